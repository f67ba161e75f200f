"""What is wrong with what was typed, each message with the box that it is about."""

import math
from collections.abc import Callable, Mapping, Sequence
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

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(problems[0].message, field=problems[0].field or None)
        self.problems = tuple(problems)


def problems_of(error: LabError | None) -> tuple[Problem, ...]:
    """The problems of an error, each with the field of the engine's request or the box that it is about."""
    if isinstance(error, Problems):
        return error.problems
    return () if error is None else (Problem(error.field or "", str(error)),)


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
            shown = "empty" if value in (None, "") else repr(value)[:40]
            raise OptionError(f"{self.label} is {shown}; {allowed}. Give a number.", field=where)
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            raise OptionError(f"{self.label} is {value:g}; {allowed}. Change it.", field=where)
        return int(value) if self.whole else float(value)


class FormReader:
    """Reads boxes by name and collects what is wrong, each with its place."""

    def __init__(self, values: Given) -> None:
        self.values, self.problems = values, list[Problem]()

    def number(self, name: str, field: NumberField) -> Any:
        """A number; the field's lowest where it is wrong."""
        try:
            return field.read(self.values[name], name)
        except LabError as error:
            self.problems.append(Problem(name, str(error)))
            return int(field.low) if field.whole else field.low

    def numbers(self, boxes: Mapping[str, NumberField]) -> dict[str, Any]:
        """Several numbers, by the names of their boxes."""
        return {name: self.number(name, field) for name, field in boxes.items()}

    def text(self, name: str, what: str, content: Any = None) -> str:
        """A text that a tokenizer can take; ``content`` where it is one of several in a box."""
        try:
            return check_text(str((self.values[name] if content is None else content) or ""), what, name)
        except LabError as error:
            self.problems.append(Problem(name, str(error)))
            return ""

    def attempt(self, place: str | Callable[[str], str], read: Callable[[], Any]) -> Any:
        """What ``read`` gives, or None and a message at ``place``, which may follow from the field."""
        try:
            return read()
        except LabError as error:
            for problem in problems_of(error):
                where = place if isinstance(place, str) else place(problem.field)
                self.problems.append(Problem(where, problem.message))
        return None

    def check(self) -> None:
        """
        Raises:
            Problems: something was wrong.
        """
        if self.problems:
            raise Problems(self.problems)
