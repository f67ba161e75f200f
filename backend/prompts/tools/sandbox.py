"""Python that an agent wrote, run in the Monty sandbox (``pydantic-monty``).

Monty is an interpreter of its own, in a worker process: a subset of Python without files, network,
environment, processes or CPython's object internals. A worker serves one call and ends with it. Limits on
time, memory, recursion and output are enforced inside the worker; one that does not answer is killed. The
clock stands still at 1 January 2026, sleeping takes no time and random numbers have a fixed seed: a run can
be repeated.

Of the modules that Monty lacks, ``string`` is given with its constants alone, which are plain data. Monty 1.4
knows no ``yield`` and no ``heapq``, for example: such code gets a clean error.

Code is never parsed in this process, only cut into tokens, because a parser can be driven out of its stack.
"""

from __future__ import annotations

import datetime
import io
import re
import string
import textwrap
import time
import tokenize
from typing import TYPE_CHECKING

from backend.prompts.tools.base import ToolError, ToolResult, clip, finish

if TYPE_CHECKING:
    from pydantic_monty import CollectString, MontySession

MAX_CODE = 20_000  # characters
MAX_SECONDS = 2.0  # of a program; a check has this for the solution and again for its tests
GRACE_SECONDS = 1.0  # past MAX_SECONDS until a worker that does not answer is killed
MAX_MEMORY = 64 * 2**20  # bytes
MAX_RECURSION = 1000  # calls inside one another, as in CPython
MAX_OUTPUT = 8192  # bytes that may be printed
MAX_MESSAGE = 300  # characters of an error's message
NOTHING = "The code ran and printed nothing."

_FENCE = re.compile(r"^([ \t]*)```[ \t]*(\w*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_SHOW = "\nif __value is not None:\n    print(__value)\n"
_SHOW_ANSWER = "\ntry:\n    __value = answer\nexcept NameError:\n    __value = None" + _SHOW
_OUTSIDE = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def find_code(text: str) -> str | None:
    """The code of a text: its last block fenced as Python, else its last unnamed one, else all of it.

    A block that was cut off before its closing fence counts. None for a text of spaces.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = [
        (name, textwrap.dedent(code) if indent else code) for indent, name, code in _FENCE.findall(text)
    ]
    named = [code for name, code in blocks if name.casefold() in ("python", "py", "python3")]
    unnamed = [code for name, code in blocks if not name]
    for candidates in (named, unnamed):
        if candidates:
            return str(candidates[-1])
    return text if text.strip() else None


def _last_statement(code: str) -> int | None:
    """Index of the line on which the last statement begins, if that stands at the left margin alone."""
    start, depth, last = None, 0, None
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            depth += (token.type == tokenize.INDENT) - (token.type == tokenize.DEDENT)
            if token.type == tokenize.NEWLINE:
                last, start = start, None
            elif token.type not in _OUTSIDE and start is None:
                start = token.start[0] - 1 if depth == 0 else -1
    except (tokenize.TokenError, SyntaxError, ValueError):
        return None
    return last if last is not None and last >= 0 else None


def _versions(code: str) -> list[str]:
    """The program to try, with its last expression's value printed; then the one that prints ``answer``.

    The first is a syntax error where the last statement is no expression. Then nothing of it has run.
    """
    versions = [code + _SHOW_ANSWER]
    if (start := _last_statement(code)) is not None:
        lines = code.split("\n")
        head, tail = "\n".join(lines[:start]), "\n".join(lines[start:])
        versions.insert(0, f"{head}\n__value = ({tail}\n){_SHOW}" if head else f"__value = ({tail}\n){_SHOW}")
    return versions


class _Run:
    """One worker for one call."""

    def __init__(self) -> None:
        try:
            import pydantic_monty
        except ImportError as error:
            raise ToolError(
                f"Python code needs the sandbox pydantic-monty, which cannot be loaded: {error}. "
                "Install it with pip install pydantic-monty.",
                "Error: no Python sandbox",
            ) from error
        self.monty = pydantic_monty
        self.output: CollectString = pydantic_monty.CollectString(MAX_OUTPUT)

    def __call__(self, parts: list[list[str]]) -> None:
        """Run parts in order in one session, each by the first of its versions that is valid syntax.

        Raises:
            ToolError: any failure, whatever it is.
        """
        monty = self.monty
        constants = {name: getattr(string, name) for name in string.__all__}
        constants = {name: value for name, value in constants.items() if isinstance(value, str)}
        start = time.perf_counter()
        try:
            with (
                monty.Monty(
                    max_processes=1,
                    checkout_timeout=5.0,
                    request_timeout=MAX_SECONDS + GRACE_SECONDS,
                    feed_duration_limit_grace=GRACE_SECONDS,
                ) as pool,
                pool.checkout(
                    limits={
                        "max_feed_duration_secs": MAX_SECONDS,
                        "max_memory": MAX_MEMORY,
                        "max_recursion_depth": MAX_RECURSION,
                    },
                    os_policy={
                        "datetime": datetime.datetime(2026, 1, 1),
                        "sleep": "zero",
                        "random_start": {"seed": 0},
                    },
                    external_modules={"string": monty.ExternalModule(constants)},
                ) as session,
            ):
                for versions in parts:
                    self._feed(session, versions)
        except monty.MontyCrashedError as error:
            raise (
                _slow() if error.timed_out else _failed("the sandbox's worker ended", "Simplify it.")
            ) from error
        except monty.MontyError as error:
            raise self._explained(error) from error
        except Exception as error:  # whatever the bindings raise: a tool never does
            seconds = time.perf_counter() - start
            raise _failed(f"the sandbox failed after {seconds:.1f} s: {error}", "Try again.") from error

    def _feed(self, session: MontySession, versions: list[str]) -> None:
        for version in versions[:-1]:
            try:
                session.feed_run(version, print_callback=self.output)
            except self.monty.MontySyntaxError:
                continue
            return
        session.feed_run(versions[-1], print_callback=self.output)

    def _explained(self, error: Exception) -> ToolError:
        monty = self.monty
        if not isinstance(error, monty.MontyRuntimeError | monty.MontySyntaxError):
            return _failed(f"the sandbox failed: {error}", "Simplify it.")
        message, frames = error.display("type-msg"), error.traceback()
        if message.startswith("TimeoutError: feed time limit"):
            return _slow()
        if message.startswith("MemoryError:"):
            if message.endswith(f"> {MAX_OUTPUT} bytes"):
                return _failed(f"it printed more than the {MAX_OUTPUT:,} bytes allowed", "Print less.")
            return _failed(f"it needed more than the {MAX_MEMORY // 2**20} MiB allowed", "Use less memory.")
        message = clip(" ".join(message.split()), MAX_MESSAGE)
        return _failed(message + (f" (line {frames[-1].line})" if frames else ""), "Correct the code.")


def _failed(what: str, advice: str) -> ToolError:
    what = clip(what, MAX_MESSAGE + 40)
    return ToolError(f"The code failed: {what}. {advice}", f"Error: {what}")


def _slow() -> ToolError:
    return _failed(f"it ran longer than the {MAX_SECONDS:g} s allowed", "Let it do less.")


def _code(text: str) -> str:
    if (code := find_code(text)) is None:
        raise ToolError(
            "The text holds no code. Write a block that begins with ```python and ends with ```.",
            "Error: no code",
        )
    if len(code) > MAX_CODE:
        raise ToolError(
            f"The code has {len(code):,} characters; up to {MAX_CODE:,} are allowed. Shorten it.",
            "Error: the code is too long",
        )
    return code


def run_python(text: str) -> ToolResult:
    """Run the code of an agent's text; gives what it printed, then the value of its last expression.

    Code that ends in no expression gives the value of its variable ``answer``, if it has one: the KVCOMM
    paper asks its Programming Expert to assign to that. A value of None is not shown.
    """

    def work() -> str:
        run = _Run()
        run([_versions(_code(text))])
        return run.output.output.rstrip() or NOTHING

    return finish(work)


def check(text: str, test: str) -> ToolResult:
    """Run the code of an agent's text, then a test that raises AssertionError if the code is wrong.

    Args:
        text: the agent's text; see :func:`find_code`.
        test: Python that uses what the code defines, for example ``assert double(2) == 4``.

    Returns:
        ok if the test ran to its end; what is printed is not given.
    """

    def work() -> str:
        code = _code(text)
        if len(test) > MAX_CODE:
            raise ToolError(
                f"The test has {len(test):,} characters; up to {MAX_CODE:,} are allowed. Shorten it.",
                "Error: the test is too long",
            )
        _Run()([[code + "\nNone\n"], [test + "\nNone\n"]])
        return "The code passes its test."

    return finish(work)
