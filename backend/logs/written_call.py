"""The call of a tool that a model wrote into its answer, whatever its way of writing calls."""

import json
import re
from collections.abc import Collection
from typing import Any

ARGUMENTS = ("arguments", "parameters", "input")  # what models call them
_DECODER = json.JSONDecoder()
_OPEN = re.compile(r"(?:(\w[\w.-]*)\s*\(\s*)?\{")


def written_call(text: str, tools: Collection[str]) -> str:
    """The first call in an answer, as ``name({...})`` with the arguments' keys in order; empty where it has
    none. A call is written as ``name({...})`` or as an object with a name and arguments, in any tags.

    Args:
        text: the answer.
        tools: names of those that may be called.
    """
    for match in _OPEN.finditer(text):
        table = _object(text, match.end() - 1)
        if table is None:
            continue
        if match[1] in tools:
            return _as_text(match[1], table)
        arguments = next((table[key] for key in ARGUMENTS if key in table), None)
        if isinstance(arguments, str):
            arguments = _object(arguments, 0)
        if isinstance(table.get("name"), str) and table["name"] in tools and isinstance(arguments, dict):
            return _as_text(table["name"], arguments)
    return ""


def _object(text: str, at: int) -> dict[str, Any] | None:
    try:
        value, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _as_text(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({json.dumps(arguments, ensure_ascii=False, sort_keys=True)})"
