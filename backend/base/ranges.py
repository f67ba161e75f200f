"""Whole numbers that a person may choose, in their ranges. Free of torch."""

from collections.abc import Mapping

from backend.base.errors import OptionError


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
    """The same of a request's attributes, each in its limits; ``section`` stands before their names.

    Raises:
        OptionError: one is no whole number in its range.
    """
    for name, (low, high) in limits.items():
        check_whole(getattr(request, name), low, high, f"{section}.{name}", advice)
