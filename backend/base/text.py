"""Checks of text from people and files, and text for messages."""

import re
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any

from backend.base.errors import PromptError

MAX_TEXT = 200_000  # characters of one template or value
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2


def show(value: object) -> str:
    """A value for a message: quoted, on one line, cut short."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a very large number"


def common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many entries, or characters, two sequences begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def check_text(text: object, label: str, field: str, limit: int = MAX_TEXT) -> str:
    """The text, if it is a string that a tokenizer can take."""
    if not isinstance(text, str):
        raise PromptError(f"{label} is {show(text)}, which is not text. Give text.", field=field)
    if len(text) > limit:
        raise PromptError(
            f"{label} has {len(text):,} characters; up to {limit:,} are allowed. Shorten it.", field=field
        )
    if bad := _UNUSABLE.search(text):
        kind = "a NUL character" if bad.group() == "\x00" else "half of a surrogate pair"
        raise PromptError(
            f"{label} holds {kind} at character {bad.start() + 1:,}, which is not valid text. Remove it.",
            field=field,
        )
    return text


Tax = tuple[int, int]  # tokens that exist only because segments are tokenised apart, and all tokens


def sum_taxes(taxes: Iterable[Tax | None]) -> Tax | None:
    """The sum of the taxes that are not None; None if all are."""
    present = [tax for tax in taxes if tax is not None]
    return (sum(taxed for taxed, _ in present), sum(total for _, total in present)) if present else None


def boundary_words(tax: Tax | None) -> str:
    """What tokenising segments apart costs, in a sentence; empty where it costs nothing or is unknown
    (None)."""
    taxed, total = tax or (0, 0)
    if not taxed:
        return ""
    return (
        f"Boundary tax: {taxed:,} of the prompts’ {total:,} tokens ({taxed / total:.1%}), in the full read "
        "too, would be others if the texts were tokenised at once."
    )


def replication(draws: int, unit: str, inside: str) -> str:
    """The unit of replication in a sentence. ``unit``: what shares caches, such as a warm-up or a store;
    ``inside``: what is counted, such as problems."""
    if draws > 1:
        return f"Intervals are over {draws} {unit}s, then the {inside} of each."
    return (
        f"All {inside} share one {unit}, which is a single draw: intervals do not show how another {unit} "
        "would differ."
    )


def check_label(text: object, label: str, field: str) -> None:
    if not check_text(text, label, field, 200).strip():
        raise PromptError(f"{label} is empty. Give 1 to 200 characters.", field=field)
