"""Reading a final answer off a text, and comparing answers."""

from __future__ import annotations

import re
from decimal import Decimal

_NUMBER = re.compile(
    r"(?:(?P<sign>(?<![0-9A-Za-z)])-)?\$?|\$(?P<minus>-))"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9A-Za-z])\.[0-9]+)"
)
_CUE = re.compile(r"the answer is", re.IGNORECASE)


def _plain(found: re.Match[str]) -> str:
    whole, _, fraction = found["digits"].replace(",", "").partition(".")
    number = (whole or "0") + (f".{fraction}" if fraction.strip("0") else "")
    return f"-{number}" if found["sign"] or found["minus"] else number


def extract_number(text: str) -> str | None:
    """The final number of a solution, as GSM8K is scored.

    It is the number after the last "The answer is", else the last number of the text, else None.
    Thousands commas, a dollar sign and a fraction of zeros are removed: ``$1,200.00`` gives ``1200``.
    """
    text = text.replace("\N{MINUS SIGN}", "-")
    *_, cue = [None, *_CUE.finditer(text)]
    if cue and (after := _NUMBER.search(text, cue.end())):
        return _plain(after)
    *_, last = [None, *_NUMBER.finditer(text)]
    return _plain(last) if last else None


def same_answer(a: str | None, b: str | None) -> bool:
    """Do two answers name the same number, to within 1e-6? False if either names none."""
    left, right = extract_number(a or ""), extract_number(b or "")
    if left is None or right is None:
        return False
    return left == right or abs(Decimal(left) - Decimal(right)) <= Decimal("1e-6")
