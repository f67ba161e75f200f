"""Small programs in open form: any names, statements as people write them, with or without a function.

A program is built as a few statements (:class:`Step` and blocks of them), then written down and run; one
whose numbers leave the bounds or whose run grows long is drawn again.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase

from backend.prompts.filled_results import COMPARISONS
from backend.prompts.tasks.arithmetic import comparison
from backend.prompts.tasks.parts import kept_options, pick
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.story_teller import compute
from backend.prompts.tasks.words import WORDS, Draw

PROGRAMS = phrases("programs")


LARGEST = 999
LONGEST = 12  # lines of a run
MOST = {"*": 5, "//": 9, "%": 12}  # the largest right side, where it is small
# names that only evaluation has
KEPT = {*kept_options(PROGRAMS.variables), *kept_options(PROGRAMS.functions)}
_RESERVED = {"print", "range", "int", "str", "list", "sum", "len", "min", "max", "and", "vs"}


@dataclass
class Step:
    """``target = left op right``, or ``target = left`` without an operation. Names or numbers."""

    target: str
    left: str | int
    op: str = ""
    right: str | int = 0
    short: bool = False  # written with += and the like


@dataclass
class If:
    """A branch; ``other`` is what stands after else, and *elif* where it is one more branch."""

    name: str
    sign: str
    limit: str | int
    body: list[Step]
    other: list[Step | If] = field(default_factory=list)

    @property
    def head(self) -> str:
        return f"if {self.name} {self.sign} {self.limit}"


@dataclass
class Loop:
    """A loop of ``turns`` (a variable takes the values), or while a comparison holds."""

    head: str
    body: list[Step | If]
    variable: str = ""
    values: tuple[int, ...] = ()
    test: tuple[str, str, int] | None = None


class _TooLongError(Exception):
    """The run leaves the bounds."""


class Run:
    """Runs statements and writes down what happens."""

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        self.trace: list[str] = []

    def get(self, what: str | int) -> int:
        return what if isinstance(what, int) else self.values[what]

    def tell(self, line: str) -> None:
        self.trace.append(line)
        if len(self.trace) > LONGEST:
            raise _TooLongError

    def holds(self, name: str, sign: str, limit: str | int) -> bool:
        left, right = self.get(name), self.get(limit)
        self.tell(comparison(left, sign, right))
        return COMPARISONS[sign](left, right)

    def run(self, block: Sequence[Step | If | Loop]) -> None:
        for statement in block:
            if isinstance(statement, Step):
                self._step(statement)
            elif isinstance(statement, If):
                holds = self.holds(statement.name, statement.sign, statement.limit)
                self.run(statement.body if holds else statement.other)
            elif statement.test is not None:
                while self.holds(*statement.test):
                    self.run(statement.body)
            else:
                for value in statement.values:
                    self.values[statement.variable] = value
                    self.run(statement.body)

    def _step(self, step: Step) -> None:
        left = self.get(step.left)
        if not step.op:
            self.values[step.target] = left
            self.tell(f"{step.target} = {left}.")
            return
        right = self.get(step.right)
        if right == 0 and step.op in "//%":
            raise _TooLongError
        value = compute(left, step.op, right)
        if not 0 <= value <= LARGEST:
            raise _TooLongError
        self.values[step.target] = value
        self.tell(f"{step.target} = {left} {step.op} {right} = {value}.")


def identifier(d: Draw, words: Sequence[str], reserved: set[str]) -> str:
    """A name that is not taken. In training many are any word or letters, as people choose them,
    but none that is kept for evaluation."""
    kept = KEPT if d.trains else set()
    while True:
        at = d.rng.random()
        if d.trains and d.chance(0.35):
            name = _any_name(d)
        elif at < 0.65:
            name = pick(d, words)
        elif at < 0.9:
            name = d.word()
        elif at < 0.96:
            name = f"{d.word()}_{pick(d, words)}".replace("__", "_")
        else:
            name = f"{pick(d, words)}{d.rng.randint(1, 9)}"
        name = "".join(c for c in name.lower() if c.isalnum() or c == "_")
        if not name.isidentifier() or name in reserved | _RESERVED or keyword.iskeyword(name):
            continue
        if name not in kept:
            reserved.add(name)
            return name


def _any_name(d: Draw) -> str:
    """One letter or two, or any word of the tasks' lists, some with a number behind."""
    at = d.rng.random()
    if at < 0.25:
        return "".join(d.rng.choice(ascii_lowercase) for _ in range(d.rng.randint(1, 2)))
    words = (d.thing, d.name, d.color, d.word, lambda: d.rng.choice(WORDS.adjectives))
    name = d.rng.choice(words)().split()[-1]
    return f"{name}{d.rng.randint(1, 9)}" if d.chance(0.1) else name


def _step(d: Draw, names: list[str]) -> Step:
    """An operation on a variable, now and then with another."""
    name = names[0] if d.chance(0.75) else d.rng.choice(names)
    op = d.rng.choice((*"+++++++------***", "//", "%"))
    right: str | int = d.number(1, MOST.get(op, 300))
    others = [other for other in names if other != name]
    if op in "+-*" and d.chance(0.08):  # the number first
        return Step(name, d.number(1, MOST.get(op, 300)), op, name)
    if others and d.chance(0.06):
        return Step(name, d.rng.choice(others))
    if others and d.chance(0.4):
        right = d.rng.choice(others)
    if others and d.chance(0.1):
        return Step(name, d.rng.choice(others), op, d.number(1, MOST.get(op, 300)))
    return Step(name, name, op, right, d.chance(0.45))


def _branch(d: Draw, names: list[str], nested: bool = False) -> If:
    limit: str | int = d.number(2, 300)
    if len(names) > 1 and d.chance(0.2):
        limit = names[1]
    other: list[Step | If] = [_step(d, names)] if d.chance(0.45) else []
    if not nested and d.chance(0.2):
        other = [_branch(d, names, nested=True)]
    sign = d.rng.choice(("<", "<", ">", ">", "<=", ">=", "==", "!="))
    return If(names[0], sign, limit, [_step(d, names)], other)


def _loop(d: Draw, names: list[str], reserved: set[str], start: int) -> Loop:
    body: list[Step | If] = [_step(d, names)]
    if d.chance(0.45 if d.trains else 0.25):
        body.append(_branch(d, names, nested=True) if d.chance(0.4) else _step(d, names))
    variable = pick(d, ("i", "i", "i", "j", "_", "step", "turn", "k"))
    if variable in reserved:
        variable = identifier(d, PROGRAMS.variables, reserved)
    at = d.rng.random()
    if at < 0.2:
        add = d.number(1, 100)
        up, or_equal = d.chance(0.5), "=" if d.chance(0.25) else ""
        sign = ("<" if up else ">") + or_equal
        limit = start + d.rng.randint(1, 3 * add) if up else max(add, start - d.rng.randint(1, 3 * add))
        step = Step(names[0], names[0], "+" if up else "-", add, d.chance(0.5))
        return Loop(f"while {names[0]} {sign} {limit}", [step], test=(names[0], sign, limit))
    turns = d.rng.choice((2, 2, 3, 3, 4, 5))
    values, head = tuple(range(turns)), f"range({turns})"
    if at < 0.3:
        first = d.rng.randint(1, 9)
        values, head = tuple(range(first, first + turns)), f"range({first}, {first + turns})"
    elif at < 0.35:
        first, by = d.rng.randint(0, 9), d.rng.randint(2, 5)
        stop = first + turns * by
        values, head = tuple(range(first, stop, by)), f"range({first}, {stop}, {by})"
    elif at < 0.45:
        values = tuple(d.number(1, 99) for _ in range(turns))
        head = ("[{}]" if d.chance(0.7) else "({})").format(", ".join(map(str, values)))
    if variable != "_" and (at < 0.5 or "r" not in head) and d.chance(0.8):
        body[0] = Step(names[0], names[0], d.rng.choice("++-"), variable, d.chance(0.5))
    return Loop(f"for {variable} in {head}", body, variable, values)


def _statement(step: Step) -> str:
    if not step.op:
        return f"{step.target} = {step.left}"
    if step.short and step.target == step.left:
        return f"{step.target} {step.op}= {step.right}"
    return f"{step.target} = {step.left} {step.op} {step.right}"


def _source(block: Sequence[Step | If | Loop], indent: str, deeper: str) -> list[str]:
    lines: list[str] = []
    for statement in block:
        if isinstance(statement, Step):
            lines.append(indent + _statement(statement))
            continue
        lines.append(f"{indent}{statement.head}:")
        lines += _source(statement.body, indent + deeper, deeper)
        if isinstance(statement, If) and statement.other:
            branch = _source(statement.other, indent, deeper)
            if isinstance(statement.other[0], If):
                lines += [branch[0].replace("if", "elif", 1), *branch[1:]]
            else:
                lines += [f"{indent}else:", *(deeper + line for line in branch)]
    return lines


def draw_open(d: Draw, kind: str, lines: int) -> tuple[str, str, int]:
    """Source, its written execution and what it prints; every value stays in 0..999. In training more
    loops have two lines or a branch in them."""
    while True:
        try:
            return _draw(d, kind, lines)
        except _TooLongError:
            continue


def _draw(d: Draw, kind: str, lines: int) -> tuple[str, str, int]:
    rng = d.rng
    reserved: set[str] = set()
    names = [identifier(d, PROGRAMS.variables, reserved) for _ in range(2 if d.chance(0.3) else 1)]
    starts = [d.number(0 if d.chance(0.1) else 1, LARGEST) for _ in names]
    block: list[Step | If | Loop] = [_step(d, names) for _ in range(lines)]
    at = rng.randrange(lines)
    if kind == "branch":
        block[at] = _branch(d, names)
    elif kind == "loop":
        block[at] = _loop(d, names, reserved, starts[0])
    elif len(names) == 1 and d.chance(0.1):  # a second variable from the first
        second = identifier(d, PROGRAMS.variables, reserved)
        block[-1] = Step(second, names[0], rng.choice("+-*"), d.number(1, 9))
    target = block[-1].target if isinstance(block[-1], Step) else names[0]
    deeper = rng.choice(("    ", "    ", "    ", "    ", "  ", "  ", "\t", "   "))
    plain = d.chance(0.4)
    run = Run()
    opening: list[Step | If | Loop] = [Step(name, start) for name, start in zip(names, starts, strict=True)]
    run.run(opening)
    run.run(block)
    value = run.values[target]
    result = rng.choice(("answer", "out", "r")) if d.chance(0.1) else ""
    if plain:
        source = [*_source(opening, "", deeper), *_source(block, "", deeper), f"print({target})"]
    else:
        function = identifier(d, PROGRAMS.functions, reserved)
        call = ", ".join(map(str, starts))
        inner = d.chance(0.15)  # the start values are set inside
        source = [f"def {function}({'' if inner else ', '.join(names)}):"]
        source += _source([*(opening if inner else []), *block], deeper, deeper)
        call = f"{function}({'' if inner else call})"
        if result in reserved:
            result = ""
        source.append(f"{deeper}print({target})" if inner and d.chance(0.4) else f"{deeper}return {target}")
        if source[-1].lstrip().startswith("print"):
            source.append(call)
        elif result:
            source += [f"{result} = {call}", f"print({result})"]
        else:
            source.append(f"print({call})")
    if d.chance(0.06):  # no spaces around the signs
        source = [re.sub(r" ([-+*/%<>=!]+) ", r"\1", line) for line in source]
    if d.chance(0.1):  # a short block beside its head
        text = "\n".join(source)
        source = re.sub(
            r"(?m)^(\s*(?:if|else|for|while)\b.*:)\n\s+(?!if|for)(.+)(?=\n(?!\s)|\Z)", r"\1 \2", text
        ).split("\n")
    if plain and d.chance(0.08) and not source[1].startswith(("if", "for", "while")):
        source[:2] = ["; ".join(source[:2])]  # two statements in a line
    return "\n".join(_decorated(d, source)), " ".join(run.trace), value


def _decorated(d: Draw, source: list[str]) -> list[str]:
    """With comments and blank lines, as people leave them."""
    out: list[str] = []
    for number, line in enumerate(source):
        if number and d.chance(0.06) and not line.lstrip().startswith("else"):
            out.append("")
        if d.chance(0.03) and not line.startswith(" "):
            out.append(f"# {pick(d, PROGRAMS.comments)}")
        if d.chance(0.05):
            line += f"  # {pick(d, PROGRAMS.comments)}"
        out.append(line)
    return out
