"""Values of a sweep file, checked one by one."""

from collections.abc import Mapping, Sequence
from typing import Any

from backend.base.checked_table import KINDS, checked_table
from backend.base.errors import OptionError
from backend.base.text import show


def keys(
    value: object, where: str, field: str, allowed: Mapping[str, tuple[type, ...]], required: Sequence[str]
) -> dict[str, Any]:
    """A YAML mapping with none but the known keys, each of its type."""
    return checked_table(value, where, field, allowed, required, OptionError, "docs/sweeps.md has examples.")


def axis(
    table: Mapping[str, Any], key: str, kind: type, usual: tuple[Any, ...], field: str = ""
) -> tuple[Any, ...]:
    """One value or a list of them, each of one type and given once; whole numbers do as numbers."""
    if key not in table:
        return usual
    values = table[key] if isinstance(table[key], list) else [table[key]]
    inner = f"{field}.{key}" if field else key
    kinds = (int, float) if kind is float else (kind,)
    for value in values:
        if type(value) not in kinds or values.count(value) > 1:
            twice = " twice" if values.count(value) > 1 else ""
            raise OptionError(
                f"{inner} has {show(value)}{twice}; allowed are different values, each {KINDS[kind]}. "
                "Correct it.",
                field=inner,
            )
    if not values:
        raise OptionError(f"{inner} is an empty list. Give a value.", field=inner)
    return tuple(values)


def numbers(
    table: Mapping[str, Any],
    key: str,
    kind: type,
    usual: tuple[Any, ...],
    limits: tuple[float, float],
    field: str = "",
) -> tuple[Any, ...]:
    """An axis of numbers, each in its range."""
    values = axis(table, key, kind, usual, field)
    for value in values if key in table else ():
        within(value, f"{field}.{key}" if field else key, *limits)
    return tuple(value if value is None else kind(value) for value in values)


def one_of(value: object, field: str, allowed: Sequence[str]) -> None:
    """Refuse what is not among the known."""
    if value not in allowed:
        raise OptionError(
            f"{field} is {show(value)}; there are {', '.join(allowed)}. Choose one.", field=field
        )


def within(value: float, field: str, low: float, high: float) -> float:
    """The number itself, if it is in its range."""
    if not low <= value <= high:
        raise OptionError(
            f"{field} is {show(value)}; {low:,} to {high:,} are allowed. Change it.", field=field
        )
    return value
