"""Dataclasses to one file and back: a zip of ``record.json`` and one ``.npy`` per array. Free of torch."""

from __future__ import annotations

import dataclasses
import io
import json
import types
import typing
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.errors import RecordError

UNPACKED_BYTES = 256 * 2**20  # a file that unpacks to more is not opened


def pack(value: Any) -> bytes:
    """The content of the file for a dataclass with a ``format``; the same value gives the same bytes."""
    arrays: dict[str, NDArray[Any]] = {}
    body = json.dumps(encode(value, arrays), ensure_ascii=False, allow_nan=True)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_entry("record.json"), body)
        for name, array in arrays.items():
            part = io.BytesIO()
            np.save(part, array, allow_pickle=False)
            archive.writestr(_entry(f"{name}.npy"), part.getvalue())
    return buffer.getvalue()


def unpack(kind: type, content: bytes, wanted_format: int, limit_bytes: int = UNPACKED_BYTES) -> Any:
    """The inverse of :func:`pack`.

    Raises:
        RecordError: the content is damaged, too large or of another format.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(part.file_size for part in archive.infolist()) > limit_bytes:
                raise RecordError(
                    f"The record unpacks to more than {limit_bytes // 2**20} MiB and was not opened."
                )
            body = json.loads(archive.read("record.json"))
            arrays = {
                name[:-4]: np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name.endswith(".npy")
            }
        if body.get("format") != wanted_format:
            raise RecordError(
                f"The record has format {body.get('format')!r}; this version reads format {wanted_format}. "
                "Run it again."
            )
        return decode(kind, body, arrays)
    except RecordError:
        raise
    except Exception as error:
        raise RecordError(
            f"This is not a complete record of the lab ({type(error).__name__}). "
            "Choose a file that the lab's download button wrote."
        ) from None


def _entry(name: str) -> zipfile.ZipInfo:
    """A file in the archive, without the time of day: the same record gives the same bytes."""
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Dataclasses, tuples and mappings to JSON values; arrays go to ``arrays`` by reference."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"$array": name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name), arrays) for f in dataclasses.fields(value) if f.init}
    if isinstance(value, Mapping):
        return {str(k): encode(v, arrays) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [encode(v, arrays) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def decode(kind: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of :func:`encode`, guided by type hints."""
    if isinstance(value, dict) and set(value) == {"$array"}:
        return arrays[value["$array"]]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return decode(next(a for a in args if a is not type(None)), value, arrays)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        return kind(**{k: decode(hints[k], v, arrays) for k, v in value.items()})
    if origin is tuple:
        return tuple(decode(args[0], v, arrays) for v in value)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {k: decode(args[1], v, arrays) for k, v in value.items()}
    return value
