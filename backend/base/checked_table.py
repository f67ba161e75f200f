"""Keys and values of a YAML file that a person wrote, checked one by one. Free of torch."""

from collections.abc import Collection, Mapping
from typing import Any

from backend.base.errors import LabError
from backend.base.text import show

NOTHING = type(None)
#: Types of values in words.
KINDS: dict[type, str] = {
    str: "text (in quotes if it looks like a number)",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "names with values",
    NOTHING: "nothing",
}


def checked_table(
    value: object,
    name: str,
    field: str,
    allowed: Mapping[str, tuple[type, ...]],
    required: Collection[str],
    error: type[LabError],
    advice: str = "Correct it.",
) -> dict[str, Any]:
    """Check that a value is a mapping with allowed keys alone, of their types, and with all required ones.

    Args:
        name: what the messages call it. ``field``: its place in the file, empty for the whole.
        error: the exception to raise.
        advice: ends the message where the value is no mapping.

    Raises:
        error: with the key, the value, and what is allowed.
    """
    names = ", ".join(allowed)
    if not isinstance(value, dict):
        text = "empty" if value is None else show(value)
        more = f"; needed are {', '.join(required)}" if required else ""
        raise error(
            f"{name} is {text}, but must be keys with values, as in '{next(iter(allowed))}: ...'. The keys "
            f"are {names}{more}. {advice}",
            field=field or None,
        )
    for key, item in value.items():
        path = f"{field}.{key}" if field else str(key)
        if key not in allowed:
            raise error(
                f"{name} has the unknown key {show(key)}. Allowed keys: {names}. Remove or correct it.",
                field=path,
            )
        if type(item) not in allowed[key]:
            kinds = " or ".join(KINDS[kind] for kind in allowed[key])
            raise error(f"{path} is {show(item)}, but must be {kinds}. Correct it.", field=path)
    for key in required:
        if key not in value:
            raise error(
                f"{name} lacks the key '{key}'. Needed: {', '.join(required)}. Add it.", field=field or None
            )
    return value
