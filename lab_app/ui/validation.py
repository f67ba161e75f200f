"""What is wrong with what was typed, each message with the box that it is about."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.base.text import check_text
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


@dataclass(frozen=True)
class NumberField:
    """A number that a person types: its label, the least and the most, and whether it is a whole one."""

    label: str
    low: float
    high: float
    whole: bool = True

    def read(self, value: Any, where: str) -> Any:
        """The number: an ``int`` if it is a whole one, else a ``float``.

        Raises:
            OptionError: it is empty, no number or out of its range; ``where`` names its box.
        """
        allowed = f"allowed: {self.low:g} to {self.high:g}{', whole numbers' if self.whole else ''}"
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            said = "empty" if value in (None, "") else repr(value)[:40]
            raise OptionError(f"{self.label} is {said}; {allowed}. Give a number.", field=where)
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            raise OptionError(f"{self.label} is {value:g}; {allowed}. Change it.", field=where)
        return int(value) if self.whole else float(value)


class FormReader:
    """Reads boxes by name and collects what is wrong, each with its place."""

    def __init__(self, given: Given) -> None:
        self.given, self.found = given, list[Problem]()

    def number(self, name: str, field: NumberField) -> Any:
        """A number; the field's lowest where it is wrong."""
        try:
            return field.read(self.given[name], name)
        except LabError as error:
            self.found.append(Problem(name, str(error)))
            return int(field.low) if field.whole else field.low

    def text(self, name: str, what: str, said: Any = None) -> str:
        """A text that a tokenizer can take; ``said`` where it is one of several in a box."""
        try:
            return check_text(str((self.given[name] if said is None else said) or ""), what, name)
        except LabError as error:
            self.found.append(Problem(name, str(error)))
            return ""

    def attempt(self, place: str | Callable[[str], str], read: Callable[[], Any]) -> Any:
        """What ``read`` gives, or None and a message at ``place``, which may follow from the field."""
        try:
            return read()
        except LabError as error:
            found = error.found if isinstance(error, Problems) else (Problem(error.field or "", str(error)),)
            for problem in found:
                where = place if isinstance(place, str) else place(problem.field)
                self.found.append(Problem(where, problem.message))
        return None

    def done(self) -> None:
        """Refuse it if anything was wrong."""
        if self.found:
            raise Problems(self.found)
