"""Values of a sweep file, checked one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.base.errors import OptionError
from backend.base.text import show

_KINDS = {
    str: "text", int: "a whole number", float: "a number", bool: "true or false", list: "a list",
    dict: "names with values",
}  # fmt: skip


def keys(
    value: object, where: str, field: str, allowed: Mapping[str, tuple[type, ...]], required: Sequence[str]
) -> dict[str, Any]:
    """A YAML mapping with none but the known keys, each of its type."""
    listed = ", ".join(allowed)
    if not isinstance(value, dict):
        found = "empty" if value is None else show(value)
        needed = f"; needed are {', '.join(required)}" if required else ""
        raise OptionError(
            f"{where} is {found}, but must be keys with values, as in '{next(iter(allowed))}: ...'. The keys "
            f"are {listed}{needed}. docs/sweeps.md has examples.",
            field=field or None,
        )
    for key, item in value.items():
        inner = f"{field}.{key}" if field else str(key)
        if key not in allowed:
            raise OptionError(
                f"{where} has the unknown key {show(key)}. Allowed keys: {listed}. Remove or correct it.",
                field=inner,
            )
        if type(item) not in allowed[key]:
            kinds = " or ".join(_KINDS[kind] for kind in allowed[key])
            raise OptionError(f"{inner} is {show(item)}, but must be {kinds}. Correct it.", field=inner)
    for key in required:
        if key not in value:
            raise OptionError(f"{where} lacks the key '{key}'. Add it.", field=field or None)
    return value


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
                f"{inner} has {show(value)}{twice}; allowed are different values, each {_KINDS[kind]}. "
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
    found = axis(table, key, kind, usual, field)
    for value in found if key in table else ():
        within(value, f"{field}.{key}" if field else key, *limits)
    return tuple(value if value is None else kind(value) for value in found)


def one_of(value: object, field: str, known: Sequence[str]) -> None:
    """Refuse what is not among the known."""
    if value not in known:
        raise OptionError(f"{field} is {show(value)}; there are {', '.join(known)}. Choose one.", field=field)


def within(value: float, field: str, low: float, high: float) -> float:
    """The number itself, if it is in its range."""
    if not low <= value <= high:
        raise OptionError(
            f"{field} is {show(value)}; {low:,} to {high:,} are allowed. Change it.", field=field
        )
    return value
