"""The papers' tables as data: ``presets/reproductions/*.yaml``, read and checked value by value. Free of
torch.

A file is called after its paper (:data:`backend.reproduce.spec.PAPERS`) and holds ``tables``, each with the
fields of :class:`backend.reproduce.spec.Reproduction`, and ``figures``, those of
:class:`backend.reproduce.spec.Printed`; ``shared`` is only there for YAML's anchors. Three
things are shorter in the files than in the classes:

* a text may be a list of texts, which are joined by spaces; a list within a list stands for its items
* under a key for each scale, ``both`` stands for the two
* figures that are left out at the end of a line are none, and so are lines without any
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from backend.base.errors import OptionError
from backend.base.text import show
from backend.prompts.presets import MAX_PRESET_BYTES, parse_yaml, read_text
from backend.reproduce.spec import PAPERS, SCALES, Line, Plan, Printed, Reproduction, Scale

FOLDER = Path(__file__).parents[2] / "presets" / "reproductions"
BOTH = "both"
#: Kinds of plans by what a file calls them.
PLANS: dict[str, type] = {kind.__name__.removesuffix("Plan").lower(): kind for kind in typing.get_args(Plan)}
_WORDS = {
    str: "text, in quotes if it looks like a number",
    int: "a whole number from 0",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


def read_tables(file: Path) -> tuple[Reproduction, ...]:
    """All tables of a paper, in the file's order.

    Raises:
        LabError: the file cannot be read, or a value in it is not what it has to be; the message names file,
            key and value, and what is allowed.
    """
    reader, table = _open(file)
    if file.stem not in PAPERS:
        reader.refuse("", file.stem, f"a file called after one of {', '.join(PAPERS)}")
    return tuple(
        reader.table(row, f"tables.{number}", file.stem)
        for number, row in enumerate(reader.spliced(table["tables"], "tables"), 1)
    )


def read_printed(file: Path) -> tuple[Printed, ...]:
    """The figures of a paper that no table stands for, in the file's order.

    Raises:
        LabError: as :func:`read_tables`; a figure says neither where the lab has it nor why it has not.
    """
    reader, table = _open(file)
    figures: tuple[Printed, ...] = reader.several((Printed, ...), table.get("figures", []), "figures")
    for number, figure in enumerate(figures, 1):
        if not figure.here and not figure.absent:
            reader.refuse(f"figures.{number}", figure.place, "a figure with here, absent or both")
    return figures


def _open(file: Path) -> tuple[_Reader, Mapping[str, Any]]:
    body = parse_yaml(read_text(file, MAX_PRESET_BYTES), file.name, trusted=True)
    reader = _Reader(file.name)
    return reader, reader.keys(body, "", ("shared", "tables", "figures"), ("tables",))


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Values of one file; ``field`` is where in it a value stands, such as ``tables.2.columns.1.title``."""

    file: str

    def refuse(self, field: str, value: object, allowed: str) -> NoReturn:
        place = f"{self.file}: {field}" if field else self.file
        raise OptionError(f"{place} is {show(value)}; allowed is {allowed}. Correct it.", field=field or None)

    def keys(
        self, value: object, field: str, allowed: Sequence[str], required: Sequence[str]
    ) -> Mapping[str, Any]:
        """A mapping of known keys, with all that are needed."""
        listed = f"keys of {', '.join(allowed)}"
        if not isinstance(value, dict):
            self.refuse(field, value, listed)
        for key in value:
            if key not in allowed:
                self.refuse(f"{field}.{key}".strip("."), value[key], f"under {field or 'the file'} {listed}")
        for key in required:
            if key not in value:
                self.refuse(f"{field}.{key}".strip("."), None, f"a value: {', '.join(required)} are needed")
        return value

    def spliced(self, value: object, field: str) -> list[Any]:
        """A list, with the items of an inner list in the inner list's place."""
        if not isinstance(value, list):
            self.refuse(field, value, "a list")
        return [element for item in value for element in (item if isinstance(item, list) else [item])]

    def table(self, value: object, field: str, paper: str) -> Reproduction:
        """One table; its lines, columns and scales have to fit together."""
        if isinstance(value, dict):
            value = {**value, "paper": paper}
        entry: Reproduction = self.read(Reproduction, value, field)
        titles = [column.title for column in entry.columns]
        listed = f"one of the columns {', '.join(titles)}"
        lines = []
        for number, line in enumerate(entry.lines, 1):
            more = len(titles) - len(line.paper)
            if more < 0:
                self.refuse(
                    f"{field}.lines.{number}.paper", list(line.paper), f"at most {len(titles)} figures"
                )
            for title in line.metrics:
                if title not in titles:
                    self.refuse(f"{field}.lines.{number}.metrics", title, listed)
            lines.append(dataclasses.replace(line, paper=(*line.paper, *(None,) * more)))
        for title in entry.drawn.columns if entry.drawn else ():
            if title not in titles:
                self.refuse(f"{field}.drawn.columns", title, listed)
        if set(entry.scales) != set(SCALES):
            self.refuse(f"{field}.scales", list(entry.scales), f"both of {', '.join(SCALES)}")
        return dataclasses.replace(entry, lines=tuple(lines))

    def read(self, kind: Any, value: object, field: str) -> Any:
        """A value of the kind that a field's annotation says."""
        origin, args = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any:
            return value
        if kind is str and isinstance(value, list):
            return " ".join(self.read(str, item, field) for item in value)
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            return self.whole(kind, value, field)
        if origin is tuple:
            return self.several(args, value, field)
        if origin is Mapping:
            return self.mapping(args, value, field)
        if origin is typing.Literal:
            if value not in args:
                self.refuse(field, value, f"one of {', '.join(args)}")
            return value
        if origin in (typing.Union, types.UnionType):
            return self.one_of(args, value, field)
        if not _fits(kind, value):
            self.refuse(field, value, _WORDS[kind])
        return value

    def whole(self, kind: Any, value: object, field: str) -> Any:
        """A dataclass: keys are its fields, those without a default are needed."""
        fields = dataclasses.fields(kind)
        required = [
            each.name
            for each in fields
            if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        ]
        if kind is Line:
            required.remove("paper")
        table = self.keys(value, field, [each.name for each in fields], required)
        hints = _hints(kind)
        values = {key: self.read(hints[key], item, f"{field}.{key}") for key, item in table.items()}
        return kind(**({"paper": ()} if kind is Line else {}) | values)

    def several(self, kinds: tuple[Any, ...], value: object, field: str) -> tuple[Any, ...]:
        """A tuple: of one kind and any length, or one kind for each place."""
        if kinds[-1] is not Ellipsis:
            if not isinstance(value, list) or len(value) != len(kinds):
                self.refuse(field, value, f"a list of {len(kinds)}")
            return tuple(self.read(kind, item, field) for kind, item in zip(kinds, value, strict=True))
        nested = typing.get_origin(kinds[0]) is tuple
        items = value if nested and isinstance(value, list) else self.spliced(value, field)
        return tuple(self.read(kinds[0], item, f"{field}.{n}") for n, item in enumerate(items, 1))

    def mapping(self, kinds: tuple[Any, ...], value: object, field: str) -> dict[Any, Any]:
        """Names with values of one kind; where the names are scales, ``both`` is the two."""
        if not isinstance(value, dict):
            self.refuse(field, value, "names with values")
        if kinds[0] == Scale:
            self.keys(value, field, (BOTH, *SCALES), ())
            value = dict.fromkeys(SCALES, value[BOTH]) if BOTH in value else value
        return {
            self.read(str, key, field): self.read(kinds[1], item, f"{field}.{key}")
            for key, item in value.items()
        }

    def one_of(self, kinds: tuple[Any, ...], value: object, field: str) -> Any:
        """One of several kinds: a plan under its name, nothing, or a plain value."""
        names = {name: kind for name, kind in PLANS.items() if kind in kinds}
        if names:
            if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= names.keys():
                self.refuse(field, value, f"one plan under its name, of {', '.join(names)}")
            ((name, body),) = value.items()
            return self.read(names[name], body, f"{field}.{name}")
        whole = [kind for kind in kinds if typing.get_origin(kind) or dataclasses.is_dataclass(kind)]
        if value is not None and whole:
            return self.read(whole[0], value, field)
        if not any(_fits(kind, value) for kind in kinds if kind not in whole):
            self.refuse(field, value, " or ".join(_WORDS[kind] for kind in kinds if kind not in whole))
        return value


def _fits(kind: Any, value: object) -> bool:
    """Is the plain value of this type? Whole numbers do as numbers, and are never negative."""
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind and not (kind is int and typing.cast(int, value) < 0)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)
