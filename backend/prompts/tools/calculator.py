"""Calculate what an agent wrote: its last ``calc[...]``, or else its last expression with an operator."""

import re

from backend.prompts.tools.arithmetic import check_length, evaluate, last_expression, show, value_of
from backend.prompts.tools.base import ToolError, ToolResult, finish

MAX_TEXT = 5000  # characters from the text's end that are searched for an expression without calc[...]

_CALL = re.compile(r"\bcalc(?:ulator|ulate)?\[([^\]\n]*)(?:\]|\Z)", re.IGNORECASE)
_HALF = re.compile(r"\A[^A-Za-wyz\n=]*")  # what may be the rest of an expression that was cut off


def _bracketed(text: str) -> str | None:
    calls = _CALL.findall(text)
    return str(calls[-1]).strip(" =?\t") if calls else None


def _end(text: str) -> str:
    return text if len(text) <= MAX_TEXT else _HALF.sub("", text[-MAX_TEXT:])


def find_expression(text: str) -> str | None:
    """The expression that :func:`calculate` would evaluate, as written."""
    if (inside := _bracketed(text)) is not None:
        return inside
    last = last_expression(_end(text))
    return last[0] if last else None


def calculate(text: str) -> ToolResult:
    """Evaluate the last ``calc[...]`` of an agent's text, else its last expression with an operator."""

    def work() -> str:
        if (inside := _bracketed(text)) is not None:
            return show(evaluate(inside))
        if (last := last_expression(_end(text))) is None:
            raise ToolError(
                "The text holds no calc[...] and no arithmetic. Write for example calc[3 * 4].",
                "Error: nothing to calculate",
            )
        expression, tree = last
        check_length(expression)
        if isinstance(tree, ToolError):
            raise tree
        return show(value_of(tree))

    return finish(work)
