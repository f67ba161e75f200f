"""Checks of numbers and choices that a person gave. Free of torch."""

from collections.abc import Iterable, Mapping
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.base.text import show

#: Seeds that a person may give: what every generator here takes.
SEEDS = (0, 2**31 - 1)


def check_choice(
    value: object, choices: Iterable[Any], field: str, label: str = "", error: type[LabError] = OptionError
) -> None:
    """Refuse what is none of the choices. ``label``: its name in messages; the field's last part if empty."""
    choices = tuple(choices)
    if value not in choices:
        name, allowed = label or field.rpartition(".")[2], ", ".join(map(str, choices))
        raise error(f"{name} is {show(value)}; allowed: {allowed}. Choose one of them.", field=field)


def check_within(value: float, low: float, high: float, field: str) -> None:
    """Refuse a number outside of its range."""
    if not low <= value <= high:
        name = field.rpartition(".")[2]
        message = f"{name} is {value!r}; allowed: {low:g} to {high:g}. Choose a value in that range."
        raise OptionError(message, field=field)


def check_whole(value: object, low: int, high: int, field: str, advice: str = "Change it.") -> None:
    """
    Args:
        field: what the value is of, such as ``loop.turns``; its last part is what the message calls it.

    Raises:
        OptionError: it is no whole number from ``low`` to ``high``.
    """
    if type(value) is not int or not low <= value <= high:
        raise OptionError(
            f"{field.rpartition('.')[2]} is {value!r}; {low:,} to {high:,} are allowed, whole numbers. "
            f"{advice}",
            field=field,
        )


def check_ranges(
    request: object, limits: Mapping[str, tuple[int, int]], section: str, advice: str = "Change it."
) -> None:
    """:func:`check_whole` of several attributes of a request; ``section`` precedes their names.

    Raises:
        OptionError: one is no whole number in its range.
    """
    for name, (low, high) in limits.items():
        check_whole(getattr(request, name), low, high, f"{section}.{name}", advice)
