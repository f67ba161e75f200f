"""Exact arithmetic on text: a small parser and evaluator with strict limits. Nothing is passed to ``eval``.

A recursive descent over numbers, ``+ - * / ( )`` and powers reads an expression from a position as far as it
goes. That also finds one inside a sentence, and it keeps decimals as they are written, which Python's own
parser would round to floats. Precedence is Python's: ``-2**2`` is -4 and ``2**3**2`` is 512.

``×``, ``·``, ``÷``, ``−`` and ``^`` are read as ``*``, ``*``, ``/``, ``-`` and ``**``, and so is an ``x``
between spaces; a dollar sign and thousands commas are dropped.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from backend.prompts.tools.base import ToolError, clip

MAX_LENGTH = 400  # characters of one expression
MAX_DEPTH = 32  # parentheses, signs and powers inside one another
MAX_DIGITS = 40  # of one written number
MAX_EXPONENT = 256  # absolute value
MAX_BITS = 512  # numerator or denominator of any result on the way: about 154 digits
MAX_PLACES = 20  # decimals that are still written out exactly

_TOKEN = re.compile(
    r"""(?P<number>(?<![A-Za-z_0-9])(?<![0-9][.,])\$?
            (?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)
            (?![A-Za-z_0-9%]|[.,][0-9]))
      | (?P<power>\*\*|\^) | (?P<times>[*×·]|(?<=[ ])x(?=[ ])) | (?P<over>[/÷])
      | (?P<plus>\+) | (?P<minus>[-−]) | (?P<open>\() | (?P<close>\))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


# A parsed expression: a number's text, or an operator with its operands.
Tree = str | tuple[str, "Tree"] | tuple[str, "Tree", "Tree"]


class _Parser:
    """The longest expression at a position; None where there is none.

    Raises:
        ToolError: it nests too deep.
    """

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0
        self.operators = 0

    def parse(self, start: int) -> Tree | None:
        self.at, self.depth, self.operators = start, 0, 0
        return self._chain(("plus", "minus"), 1)

    def _take(self, *kinds: str) -> str | None:
        if self.at < len(self.tokens) and (kind := self.tokens[self.at].kind) in kinds:
            self.at += 1
            return kind
        return None

    def _chain(self, kinds: tuple[str, str], level: int) -> Tree | None:
        """Operands of one precedence from the left: sums (level 1) of products (level 0)."""
        tree = self._operand(level)
        while tree is not None:
            before = self.at
            if (kind := self._take(*kinds)) is None or (right := self._operand(level)) is None:
                self.at = before  # an operator without a second operand belongs to the sentence
                break
            tree = (kind, tree, right)
            self.operators += 1
        return tree

    def _operand(self, level: int) -> Tree | None:
        return self._chain(("times", "over"), 0) if level else self._signed()

    def _signed(self) -> Tree | None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise ToolError(
                f"The expression nests deeper than {MAX_DEPTH} parentheses, signs or powers. "
                "Write it in several steps.",
                "Error: the expression nests too deep",
            )
        try:
            if (sign := self._take("plus", "minus")) is None:
                return self._power()
            return None if (inner := self._signed()) is None else (f"unary {sign}", inner)
        finally:
            self.depth -= 1

    def _power(self) -> Tree | None:
        base = self._atom()
        before = self.at
        if base is None or self._take("power") is None:
            return base
        if (exponent := self._signed()) is None:
            self.at = before
            return base
        self.operators += 1
        return ("power", base, exponent)

    def _atom(self) -> Tree | None:
        if self._take("number"):
            return self.tokens[self.at - 1].text
        if self._take("open") is None:
            return None
        inner = self._chain(("plus", "minus"), 1)
        return None if inner is None or self._take("close") is None else inner


def _number(text: str) -> Fraction:
    text = text.replace(",", "").lstrip("$")
    if (digits := sum(map(str.isdigit, text))) > MAX_DIGITS:
        raise ToolError(
            f"The number {clip(text, 20)} has {digits} digits; up to {MAX_DIGITS} are allowed. Shorten it.",
            "Error: a number has too many digits",
        )
    return Fraction(text)


def _raise(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > MAX_EXPONENT:
        raise ToolError(
            f"The exponent {show(exponent)} is not a whole number from -{MAX_EXPONENT} to {MAX_EXPONENT}. "
            "Other powers are not calculated.",
            "Error: the exponent is not allowed",
        )
    if _bits(base) * abs(exponent) > MAX_BITS and base not in (-1, 0, 1):
        _too_large()
    return base ** int(exponent)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _too_large() -> None:
    raise ToolError(
        f"A result on the way has more than {MAX_BITS} bits (about {MAX_BITS * 3 // 10} digits). "
        "Use smaller numbers.",
        "Error: the result is too large",
    )


_OPERATIONS: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "plus": operator.add, "minus": operator.sub, "times": operator.mul, "over": operator.truediv,
    "power": _raise,
}  # fmt: skip


def value_of(tree: Tree) -> Fraction:
    """The exact value of a parsed expression.

    Raises:
        ToolError: it divides by zero or exceeds a limit.
    """
    if isinstance(tree, str):
        return _number(tree)
    if len(tree) == 2:
        return -value_of(tree[1]) if tree[0] == "unary minus" else value_of(tree[1])
    try:
        result = _OPERATIONS[tree[0]](value_of(tree[1]), value_of(tree[2]))
    except ZeroDivisionError:
        raise ToolError(
            "The expression divides by zero. Change the divisor.", "Error: division by zero"
        ) from None
    if _bits(result) > MAX_BITS:
        _too_large()
    return result


def show(value: Fraction) -> str:
    """An exact number as text: ``12``, ``0.125``, or ``10/3 (about 3.333333)`` where decimals never end."""
    for places in range(MAX_PLACES + 1):
        if 10**places % value.denominator == 0:
            digits = str(abs(value.numerator) * (10**places // value.denominator)).rjust(places + 1, "0")
            sign = "-" if value < 0 else ""
            return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else sign + digits
    about = show(round(value, 6)) if abs(value) >= Fraction(1, 1000) else f"{float(value):.6g}"
    exact = f"{value.numerator}/{value.denominator}"
    return f"{exact} (about {about})" if len(exact) <= 24 else f"about {about}"


def runs_of(text: str) -> list[list[_Token]]:
    """Tokens with nothing but spaces between them stand in one run."""
    runs: list[list[_Token]] = []
    end = -1
    for match in _TOKEN.finditer(text):
        token = _Token(match.lastgroup or "", match.group(), *match.span())
        if end >= 0 and not text[end : token.start].strip(" \t"):
            runs[-1].append(token)
        else:
            runs.append([token])
        end = token.end
    return runs


def last_expression(text: str) -> tuple[str, Tree | ToolError] | None:
    """The last expression with an operator, with what it reads as; a run that nests too deep is an error."""
    for run in reversed(runs_of(text)):
        last: tuple[str, Tree | ToolError] | None = None
        parser, start = _Parser(run), 0
        while start < len(run):
            try:
                tree = parser.parse(start)
            except ToolError as error:
                last = (text[run[start].start : run[-1].end], error)
                break
            if tree is None or not parser.operators:
                start += 1
            else:
                last = (text[run[start].start : run[parser.at - 1].end], tree)
                start = parser.at
        if last is not None:
            return last
    return None


def check_length(expression: str) -> None:
    """Refuse an expression of more than MAX_LENGTH characters."""
    if len(expression) > MAX_LENGTH:
        raise ToolError(
            f"The expression {clip(expression, 40)!r} has {len(expression):,} characters; up to {MAX_LENGTH} "
            "are allowed. Write it in several steps.",
            "Error: the expression is too long",
        )


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression, all of which must be arithmetic.

    Raises:
        ToolError: it is no arithmetic, divides by zero, or exceeds a limit.
    """
    check_length(expression)
    runs = runs_of(expression)
    tree = None
    if len(runs) == 1 and not expression[: runs[0][0].start].strip() + expression[runs[0][-1].end :].strip():
        parser = _Parser(runs[0])
        tree = parser.parse(0)
        if parser.at < len(runs[0]):
            tree = None
    if tree is None:
        raise ToolError(
            f"{clip(expression, 80)!r} is no arithmetic. Allowed are numbers, + - * / ( ) and powers, "
            "for example calc[3 * (4 + 1)].",
            "Error: this is no arithmetic",
        )
    return value_of(tree)
