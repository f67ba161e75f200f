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
    definitions: dict[str, Any] = {}
    root = _schema(kind, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": kind.__name__,
        **root,
        "$defs": definitions,
    }


def _schema(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {}
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema(arg, definitions) for arg in args]}
    if origin is typing.Literal:
        return {"enum": list(args)}
    if origin is np.ndarray:
        return ARRAY
    if origin is tuple:
        if args[-1] is Ellipsis or len(args) == 1:
            return {"type": "array", "items": _schema(args[0], definitions)}
        return {"type": "array", "prefixItems": [_schema(arg, definitions) for arg in args], "items": False}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(args[1], definitions)}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if kind.__name__ not in definitions:
            definitions[kind.__name__] = {}  # it may hold itself
            definitions[kind.__name__] = _dataclass(kind, definitions)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    raise TypeError(f"{show(kind)} cannot stand in a record")


def _dataclass(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints, fields = typing.get_type_hints(kind), [f for f in dataclasses.fields(kind) if f.init]
    required = [f.name for f in fields if f.default is f.default_factory is dataclasses.MISSING]
    return {
        "type": "object", "required": required, "additionalProperties": False,
        "properties": {f.name: _schema(hints[f.name], definitions) for f in fields},
    }  # fmt: skip
