"""What the embedded model need not learn: results of exact calculations, filled in while it writes.

After ``46 - 6 =`` stands `` 40``, and after ``36 < 38 is`` stands `` True``, as in GSM8K's calculator
annotations (Cobbe et al. 2021, section 4.1 and appendix C). The model chooses what is calculated; the result
is exact.
"""

from __future__ import annotations

import re

_SUM = re.compile(r"(\d{1,12}) ([-+*/]) (\d{1,12}) =$")
_ORDER = re.compile(r"(\d{1,12}) ([<>]) (\d{1,12}) is$")
_FILLED = re.compile(r"(?<=[0-9] =) -?\d+(?:\.\d+)?|(?<=[0-9] is) (?:True|False)")
ENDS = ("=", "is")  # tokens that may have a result behind them


def result_after(text: str) -> str | None:
    """What follows a text that ends with a calculation or a comparison, with the space before it; else None.

    A division that leaves a remainder gives a decimal of at most four places; by zero, nothing is filled in.
    """
    if found := _SUM.search(text):
        left, op, right = int(found[1]), found[2], int(found[3])
        if op == "/":
            if right == 0:
                return None
            if left % right:
                return f" {left / right:.4f}".rstrip("0").rstrip(".")
            return f" {left // right}"
        return f" { {'+': left + right, '-': left - right, '*': left * right}[op] }"
    if found := _ORDER.search(text):
        left, right = int(found[1]), int(found[3])
        return f" {left < right if found[2] == '<' else left > right}"
    return None


def split_filled(text: str) -> list[tuple[str, bool]]:
    """A written text cut where results are filled in: ``(piece, whether it is filled in)``."""
    out, at = [], 0
    for found in _FILLED.finditer(text):
        if result_after(text[max(0, found.start() - 40) : found.start()]) == found[0]:
            out += [(text[at : found.start()], False), (found[0], True)]
            at = found.end()
    return [*out, (text[at:], False)] if at < len(text) else out
