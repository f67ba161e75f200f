"""Dataclasses to one file and back: a zip of ``record.json`` and one ``.npy`` per array. Free of torch."""

import dataclasses
import functools
import io
import json
import types
import typing
import zipfile
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from backend.base.bounded_json import JSON_BYTES, excess
from backend.base.errors import RecordError

T = TypeVar("T")
# ``metadata`` of a field that is written only if it is not its default. So a request without it is encoded as
# before the field existed, and rows saved under that text are still found.
SELDOM = {"seldom": True}
Floats = NDArray[np.float32]  # the arrays of most records

UNPACKED_BYTES = 256 * 2**20  # a file that unpacks to more is not opened
MOST_PARTS = 10_000  # files in the zip; each array is one


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
        with open_zip(content, MOST_PARTS) as archive:
            if sum(part.file_size for part in archive.infolist()) > limit_bytes:
                raise RecordError(
                    f"The record unpacks to more than {limit_bytes // 2**20} MiB and was not opened."
                )
            with archive.open("record.json") as part:
                body_bytes = part.read(JSON_BYTES + 1)
            if problem := excess(body_bytes):
                raise RecordError(f"The record {problem}. It was not opened.")
            body = json.loads(body_bytes)
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


def open_zip(content: bytes, most_parts: int) -> zipfile.ZipFile:
    """Open a zip for reading; its parts are counted before their list is built.

    Raises:
        RecordError: too many parts.
        zipfile.BadZipFile: not a zip.
    """
    if (parts := content.count(b"PK\x01\x02")) > most_parts:  # each part's entry begins so
        raise RecordError(
            f"The file holds {parts:,} parts; up to {most_parts:,} are read. It was not opened."
        )
    return zipfile.ZipFile(io.BytesIO(content))


class Saved:
    """A record that can be saved as one file. ``format``, a field with a default, is its version."""

    format: int

    def to_bytes(self) -> bytes:
        """The file's content; see :func:`pack`."""
        return pack(self)

    @classmethod
    def from_bytes(cls, content: bytes, *, limit_bytes: int = UNPACKED_BYTES) -> Self:
        """Read it back.

        Args:
            limit_bytes: refuse what unpacks to more.

        Raises:
            RecordError: the content is damaged, too large or of another format.
        """
        return typing.cast(Self, unpack(cls, content, cls.format, limit_bytes))


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
        return {
            f.name: encode(getattr(value, f.name), arrays)
            for f in dataclasses.fields(value)
            if f.init and not (f.metadata.get("seldom") and getattr(value, f.name) == f.default)
        }
    if isinstance(value, Mapping):
        return {str(k): encode(v, arrays) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [encode(v, arrays) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def as_json(value: Any) -> Any:
    """A value without arrays, as JSON values."""
    return encode(value, {})


def from_json(kind: type[T], value: Any) -> T:
    """The inverse of :func:`as_json`; see :func:`decode`."""
    return typing.cast(T, decode(kind, value, {}))


def decode(kind: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The inverse of :func:`encode`, guided by type hints.

    Every value must have its field's type, down to the leaves: figures write numbers without escaping, so a
    text in a number's place would reach the page as it is. Fields that a class had once and lists as ``gone``
    are left out.

    Raises:
        TypeError: a value of another type, or a field that the class does not have.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        return _decode_one_of(args, value, arrays)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints, gone = _hints(kind), getattr(kind, "gone", ())
        items = _require(dict, value).items()
        return kind(**{k: decode(hints[k], v, arrays) for k, v in items if k not in gone})
    if origin is np.ndarray:
        return _decode_array(args[-1], value, arrays)
    if origin is tuple:
        values = _require(list, value)
        kinds = [args[0]] * len(values) if args[-1] is Ellipsis or len(args) == 1 else args
        return tuple(decode(k, v, arrays) for k, v in zip(kinds, values, strict=True))
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        return {k: decode(args[1], v, arrays) for k, v in _require(dict, value).items()}
    if origin is typing.Literal:
        if value not in args or type(value) not in map(type, args):
            raise TypeError(f"{str(value)[:40]!r} is none of {args}")
        return value
    if kind is float and type(value) is int:
        return value
    return _require(kind, value)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _require(kind: Any, value: Any) -> Any:
    """The value, if it is of exactly this type."""
    if type(value) is not (type(None) if kind is None else kind):
        raise TypeError(f"{type(value).__name__} stands where {kind} belongs")
    return value


def _decode_one_of(kinds: tuple[Any, ...], value: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
    """The value as the first of the types that it fits."""
    for kind in kinds[:-1]:
        try:
            return decode(kind, value, arrays)
        except TypeError:
            continue
    return decode(kinds[-1], value, arrays)


def _decode_array(hint: Any, value: Any, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The array that a value names; its numbers must be of the hint's kind (``np.dtype[np.float32]``)."""
    if set(_require(dict, value)) != {"$array"}:
        raise TypeError("an array is missing")
    array, dtypes = arrays[value["$array"]], typing.get_args(hint)
    kinds = np.dtype(dtypes[0]).kind if dtypes and dtypes[0] is not Any else "biuf"
    if array.dtype.kind not in kinds:
        raise TypeError(f"an array of {array.dtype} stands where {dtypes} belongs")
    return array
