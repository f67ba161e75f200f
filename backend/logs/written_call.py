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
    none. Read are ``name({...})`` and objects with a name and arguments, between whatever tags.

    Args:
        text: the answer.
        tools: names of those that may be called.
    """
    for match in _OPEN.finditer(text):
        found = _object(text, match.end() - 1)
        if found is None:
            continue
        if match[1] in tools:
            return _told(match[1], found)
        given = next((found[key] for key in ARGUMENTS if key in found), None)
        if isinstance(given, str):
            given = _object(given, 0)
        if isinstance(found.get("name"), str) and found["name"] in tools and isinstance(given, dict):
            return _told(found["name"], given)
    return ""


def _object(text: str, at: int) -> dict[str, Any] | None:
    try:
        found, _ = _DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _told(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({json.dumps(arguments, ensure_ascii=False, sort_keys=True)})"
