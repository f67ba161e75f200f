"""The JSON schema of ``record.json``, from the dataclasses that it is written from."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any

import numpy as np

from backend.base.text import show

SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
#: An array stands in a file of its own beside ``record.json``, which names it.
ARRAY = {
    "type": "object", "required": ["$array"], "additionalProperties": False,
    "properties": {"$array": {"type": "string", "pattern": "^a[0-9]+$"}},
}  # fmt: skip


def json_schema(kind: type) -> dict[str, Any]:
    """The schema of a saved record (JSON Schema, draft 2020-12).

    Args:
        kind: a dataclass, such as :class:`backend.records.run.RunRecord`.

    Raises:
        TypeError: a field is of a type that no record may hold.
    """
    known: dict[str, Any] = {}
    root = _of(kind, known)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.__name__,
        **root,
        "$defs": known,
    }


def _of(kind: Any, known: dict[str, Any]) -> dict[str, Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {}
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_of(one, known) for one in args]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is np.ndarray:
        return ARRAY
    if origin is tuple:
        if args[-1] is Ellipsis or len(args) == 1:
            return {"type": "array", "items": _of(args[0], known)}
        return {"type": "array", "prefixItems": [_of(one, known) for one in args], "items": False}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of(args[1], known)}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in known:
            known[kind.__name__] = {}  # it may hold itself
            known[kind.__name__] = _dataclass(kind, known)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise TypeError(f"{show(kind)} cannot stand in a record")


def _dataclass(kind: type, known: dict[str, Any]) -> dict[str, Any]:
    hints, fields = typing.get_type_hints(kind), [f for f in dataclasses.fields(kind) if f.init]
    needed = [
        f.name
        for f in fields
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    ]
    return {
        "type": "object", "required": needed, "additionalProperties": False,
        "properties": {f.name: _of(hints[f.name], known) for f in fields},
    }  # fmt: skip
