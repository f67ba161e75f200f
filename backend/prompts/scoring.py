"""Reading a final answer off a text, and comparing answers."""

import re
from collections.abc import Sequence
from decimal import Decimal
from itertools import accumulate
from typing import Literal

from backend.prompts.tools.sandbox import check, find_code

Scoring = Literal["number", "text", "selection", "choice", "code", "none"]
SCORINGS: tuple[Scoring, ...] = ("number", "text", "selection", "choice", "code", "none")

_NUMBER = re.compile(
    r"(?:(?P<sign>(?<![0-9A-Za-z)])-)?\$?|\$(?P<minus>-))"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9A-Za-z])\.[0-9]+)"
)
_CUE = re.compile(r"the answer is", re.IGNORECASE)
# up to a full stop, which is none behind a title or inside a number
_FINAL = re.compile(
    r"(?:the answer is:?|finish\[)\s*((?:\b(?:mr|mrs|ms|dr|prof|st)\.|(?<=[0-9])\.(?=[0-9])|[^\n\].])*)",
    re.IGNORECASE,
)
_SELECTION = re.compile(
    r"the best candidates? (?:is|are):? ([0-9]+(?:(?:,? and |, ?)[0-9]+)*)", re.IGNORECASE
)
# An option's letter after "the answer is", or at the beginning of a line and set apart from what follows.
_CHOICE = re.compile(
    r"(?i:the (?:correct )?(?:answer|option) is:?\s*(?:option )?)[(*]*([A-D])\b"
    r"|^[\s(*]*([A-D])(?=[).:*]|\s*$)",
    re.MULTILINE,
)


def _plain(match: re.Match[str]) -> str:
    whole, _, fraction = match["digits"].replace(",", "").partition(".")
    number = (whole or "0") + (f".{fraction}" if fraction.strip("0") else "")
    return f"-{number}" if match["sign"] or match["minus"] else number


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


def answer_changed(answer: str | None, text: str, other: str | None, other_text: str) -> bool:
    """Whether two answers differ: in what is read off them, or in their texts where nothing can be read off
    either."""
    if answer is None and other is None:
        return text.strip() != other_text.strip()
    return answer != other


def same_answer(a: str | None, b: str | None) -> bool:
    """Do two answers name the same number, to within 1e-6? False if either names none."""
    left, right = extract_number(a or ""), extract_number(b or "")
    if left is None or right is None:
        return False
    return left == right or abs(Decimal(left) - Decimal(right)) <= Decimal("1e-6")


def extract_answer(text: str, scoring: Scoring) -> str | None:
    """What a text gives as its answer, under a pipeline's scoring; None if it gives none.

    *number*: see :func:`extract_number`. *text*: what follows the last "The answer is", up to the end of
    the sentence. *selection*: the candidates after the last "The best candidate is", as ``1 and 3``.
    *choice*: the letter A to D of an option, the last that is stated as the answer. *code*: the Python of the
    text, see :func:`backend.prompts.tools.sandbox.find_code`.
    """
    if scoring == "code":
        return find_code(text)
    if scoring == "choice":
        *_, stated = [None, *_CHOICE.finditer(text)]
        return stated[1] or stated[2] if stated else None
    if scoring == "number":
        return extract_number(text)
    if scoring == "none":
        return None
    matches = list((_FINAL if scoring == "text" else _SELECTION).finditer(text))
    if not matches:
        return None
    match = matches[-1]
    if scoring == "selection":
        return " and ".join(sorted(set(re.findall("[0-9]+", match[1])), key=int))
    return " ".join(match[1].split()) or None


def selection_token(texts: Sequence[str]) -> int | None:
    """Which token of an answer names the (first) candidate it selects; None when it selects none.

    Args:
        texts: what each token adds to the answer.
    """
    matches = list(_SELECTION.finditer("".join(texts)))
    if not matches:
        return None
    place = matches[-1].start(1)
    return next(token for token, end in enumerate(accumulate(map(len, texts))) if end > place)


def right(answer: str | None, expected: str, scoring: Scoring) -> bool:
    """Is the answer that a text gave the expected one?

    Numbers agree to within 1e-6, texts and choices whatever their case and spaces, selections as sets. Code
    is right when ``expected``, a test in Python, runs to its end after it in the sandbox.
    """
    if scoring == "none" or answer is None:
        return False
    if scoring == "number":
        return same_answer(answer, expected)
    if scoring == "code":
        return check(answer, expected).ok
    if scoring in ("text", "choice"):
        return answer.casefold() == " ".join(expected.split()).casefold()
    return set(re.findall("[0-9]+", answer)) == set(re.findall("[0-9]+", expected))
