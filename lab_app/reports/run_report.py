"""A run's report and bundle, from its record. Free of the web framework: the command line makes them too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.base.errors import RecordError
from backend.records.run import RunRecord
from backend.records.sharing.bundle import Bundle, is_bundle, read_bundle
from backend.records.sharing.citations import citations
from lab_app.ui import html
from lab_app.ui.run_results import default_selection, factline
from viz.run.diagnosis import repair, where
from viz.run.report import csv_files, report_html
from viz.run.verdict import verdict

MOST_FILE_BYTES = 96 << 20


def read_run(content: bytes) -> Bundle:
    """A saved run from a file's content: a bundle, or a record by itself.

    Raises:
        RecordError: it is neither, or damaged, or too large.
    """
    if len(content) > MOST_FILE_BYTES:
        raise RecordError(
            f"The file has {len(content) / 2**20:,.0f} MiB; up to {MOST_FILE_BYTES // 2**20} MiB are opened."
        )
    return read_bundle(content) if is_bundle(content) else Bundle(RunRecord.from_bytes(content))


def read_file(path: Path) -> Bundle:
    """A saved run; see :func:`read_run`.

    Raises:
        RecordError: the file cannot be read, or holds none.
    """
    try:
        return read_run(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from None


def report(record: RunRecord) -> str:
    """The report as HTML.

    Raises:
        RecordError: the record is well formed, but its parts do not fit one another.
    """
    try:
        told = verdict(record)
        card = html.verdict_card(
            told.sentence_html,
            told.tone,
            told.points,
            where(record),
            repair(record),
            factline(record),
            told.state,
        )
        cited = citations(m.name for m in record.request.methods)
        return report_html(record, verdict=card, citation=cited, selection=default_selection(record))
    except (LookupError, TypeError, ValueError, AttributeError, ZeroDivisionError) as error:
        raise RecordError(
            "This record is complete but cannot be drawn by this version of the lab "
            f"({type(error).__name__})."
        ) from None


def bundle(record: RunRecord, bench: Mapping[str, Any] | None, tensors: bytes = b"") -> Bundle:
    """Everything that belongs to a run."""
    return Bundle(record, bench, csv_files(record, default_selection(record)), tensors)
