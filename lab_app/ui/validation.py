"""What is wrong with what was typed, each message with the box that it is about."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.prompts.pipeline import check_text
from lab_app.ui.types import Given


@dataclass(frozen=True)
class Problem:
    """One message and the input it is about (``""``: none in particular)."""

    field: str
    message: str


class Problems(LabError):
    """Everything that is wrong with the bench at once."""

    def __init__(self, found: Sequence[Problem]) -> None:
        super().__init__(found[0].message, field=found[0].field or None)
        self.found = tuple(found)


def read_number(value: Any, label: str, low: float, high: float, whole: bool, where: str) -> float | int:
    """A number in its range."""
    allowed = f"allowed: {low:g} to {high:g}{', whole numbers' if whole else ''}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionError(
            f"{label} is {'empty' if value in (None, '') else repr(value)[:40]}; {allowed}. Give a number.",
            field=where,
        )
    if not low <= value <= high or (whole and value != int(value)):
        raise OptionError(f"{label} is {value:g}; {allowed}. Change it.", field=where)
    return int(value) if whole else float(value)


Limits = Mapping[str, tuple[str, float, float, bool]]


class Reader:
    """Collects what is wrong, each with its place."""

    def __init__(self, given: Given) -> None:
        self.given, self.found = given, list[Problem]()

    def number(self, name: str, table: Limits) -> Any:
        """A number of a table of limits; its lowest where it is wrong."""
        label, low, high, whole = table[name]
        try:
            return read_number(self.given[name], label, low, high, whole, name)
        except LabError as error:
            self.found.append(Problem(name, str(error)))
            return low

    def text(self, name: str, what: str) -> str:
        """A text that a tokenizer can take."""
        try:
            return check_text(str(self.given[name] or ""), what, name)
        except LabError as error:
            self.found.append(Problem(name, str(error)))
            return ""

    def attempt(self, place: str, read: Callable[[], Any]) -> Any:
        """What ``read`` gives, or None and a message at ``place``."""
        try:
            return read()
        except Problems as error:
            self.found += [Problem(place, problem.message) for problem in error.found]
        except LabError as error:
            self.found.append(Problem(place, str(error)))
        return None

    def done(self) -> None:
        """Refuse it if anything was wrong."""
        if self.found:
            raise Problems(self.found)
