"""Results of exact calculations, filled in while the embedded model writes: it need not learn them.

After ``46 - 6 =`` stands `` 40``, and after ``36 < 38 is`` stands `` True``; operators are Python's. As in
GSM8K's calculator annotations (Cobbe et al. 2021, section 4.1 and appendix C). The model chooses what is
calculated; the result is exact.
"""

import operator
import re
from collections.abc import Callable

_SUM = re.compile(r"(\d{1,12}) ([-+*/%]|//) (\d{1,12}) =$")
_ORDER = re.compile(r"(\d{1,12}) ([<>]=?|[=!]=) (\d{1,12}) is$")
_FILLED = re.compile(r"(?<=[0-9] =) -?\d+(?:\.\d+)?|(?<=[0-9] is) (?:True|False)")
CALCULATIONS: dict[str, Callable[[int, int], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
    "/": operator.truediv, "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
ENDS = ("=", "is")  # tokens that may have a result behind them


def result_after(text: str) -> str | None:
    """What follows a text that ends with a calculation or a comparison, with the space before it; else None.

    A division that leaves a remainder gives a decimal of at most four places; by zero, nothing is filled in.
    """
    if match := _SUM.search(text):
        left, op, right = int(match[1]), match[2], int(match[3])
        if right == 0 and op in "//%":
            return None
        value = CALCULATIONS[op](left, right)
        return f" {value:.4f}".rstrip("0").rstrip(".") if op == "/" else f" {value}"
    if match := _ORDER.search(text):
        return f" {COMPARISONS[match[2]](int(match[1]), int(match[3]))}"
    return None


def split_filled(text: str) -> list[tuple[str, bool]]:
    """A written text cut where results are filled in: ``(piece, whether it is filled in)``."""
    out, start = [], 0
    for match in _FILLED.finditer(text):
        if result_after(text[max(0, match.start() - 40) : match.start()]) == match[0]:
            out += [(text[start : match.start()], False), (match[0], True)]
            start = match.end()
    return [*out, (text[start:], False)] if start < len(text) else out
