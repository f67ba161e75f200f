"""Rows of a data file, whatever its form: JSON lines, a JSON list, CSV or Parquet, from disk or the hub."""

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from backend.base.bounded_json import MOST_VALUES, excess
from backend.base.errors import OptionError, PromptError
from backend.base.text import show
from backend.prompts.presets import MAX_REQUEST_FILE_BYTES
from backend.sweeps.hub import HubData

LETTERS = "ABCD"  # of a question's choices


def read_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A file's rows with their places for messages.

    Raises:
        PromptError: it cannot be read.
    """
    name = path.name.casefold()
    if name.endswith(".parquet"):
        yield from _parquet(path)
        return
    content = _content(path)
    if name.endswith(".csv"):
        yield from _csv(content, path.name)
    elif name.endswith(".json"):
        rows = _json(content, path.name)
        if not isinstance(rows, list):
            raise PromptError(f"{path.name} is no list of problems. Choose another file.", field="data")
        for number, row in enumerate(rows, 1):
            yield _row(row, f"{path.name}, problem {number}")
    else:
        for number, line in enumerate(content.split("\n"), 1):
            if line.strip():
                where = f"{path.name}, line {number}"
                yield _row(_json(line, where), where)


def fetched_rows(data: HubData) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a data set that lies in the hub's cache."""
    try:
        for path in data.paths:
            for where, row in read_rows(path):
                yield f"{data.name}, {where}", row
    except PromptError as error:
        raise PromptError(f"{data.name}: {error}", field="data") from None


def _content(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_REQUEST_FILE_BYTES + 1)
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or "it is damaged"
        raise PromptError(f"{path.name} cannot be read: {why}. Choose another file.", field="data") from None
    if len(content) > MAX_REQUEST_FILE_BYTES:
        raise PromptError(
            f"{path.name} holds more than {MAX_REQUEST_FILE_BYTES // 2**20} MiB. Choose a smaller file.",
            field="data",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise PromptError(f"{path.name} is not UTF-8 text. Save it as UTF-8.", field="data") from None


def _json(text: str, where: str) -> Any:
    if problem := excess(text.encode(), MAX_REQUEST_FILE_BYTES):
        raise PromptError(f"{where}: this {problem}. Give fewer.", field="data")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise PromptError(f"{where}: this is not valid JSON. Correct it.", field="data") from None


def _row(row: Any, where: str) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(row, dict):
        raise PromptError(f"{where}: {show(row)} is not an object. Correct it.", field="data")
    return where, row


def _csv(content: str, file: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """With a header; MMLU's own files have none, but question, four choices and the letter."""
    if (many := content.count(",") + content.count("\n")) > MOST_VALUES:
        raise PromptError(
            f"{file} holds about {many:,} cells; up to {MOST_VALUES:,} are read. Give fewer.", field="data"
        )
    try:
        rows: Sequence[list[str]] = list(csv.reader(io.StringIO(content, newline="")))
    except csv.Error as error:
        raise PromptError(f"{file} is no CSV: {error}. Choose another file.", field="data") from None
    if not rows:
        return
    header, first = rows[0], 1
    if len(header) == 6 and header[5].strip() in LETTERS and len(header[5].strip()) == 1:
        header, first = ["question", *LETTERS, "answer"], 0
    for number, cells in enumerate(rows[first:], first + 1):
        if cells:
            where = f"{file}, row {number}"
            if len(cells) != len(header):
                raise PromptError(
                    f"{where} has {len(cells)} cells, but there are {len(header)} columns. Correct it.",
                    field="data",
                )
            yield where, dict(zip(header, cells, strict=True))


def _parquet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    parquet = parquet_module()
    if not path.is_file():
        raise PromptError(
            f"{path.name} cannot be read: there is no such file. Choose another file.", field="data"
        )
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise PromptError(
            f"{path.name} is no Parquet file: {error}. Choose another file.", field="data"
        ) from None
    for number, row in enumerate(rows, 1):
        yield f"{path.name}, row {number}", row


def parquet_module() -> Any:
    """``pyarrow.parquet``, an extra.

    Raises:
        OptionError: it is not installed.
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise OptionError(
            "Parquet files need pyarrow, which is not installed. Install it with pip install "
            "'kv-reuse-lab[parquet]', or use CSV or JSON lines.",
            field="export",
        ) from None
    return pyarrow.parquet
