"""The X-ray of a log, as a result for programs and notebooks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.logs.xray import XRay
from backend.logs.xray import xray as xray_log
from kvlab.notebook import framed
from viz.logs.overview import details_html, overview_html
from viz.run.report import document_html

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class LogXRay:
    """What reuse would save of a log's calls. ``record`` holds all of it."""

    record: XRay

    @property
    def causes(self) -> dict[str, int]:
        """Tokens that prefixes missed, by what came first that differed."""
        return {missed.kind: missed.tokens for missed in self.record.missed}

    def to_frame(self) -> DataFrame:
        """One row for each call: tokens in all, found as exact prefix, in blocks, anywhere, and new."""
        import pandas

        return pandas.DataFrame(self.record.plain()["calls"])

    def to_html(self) -> str:
        """As one page, for a browser without a network."""
        body = overview_html(self.record) + details_html(self.record)
        return document_html(f"What reuse would save: {self.record.file}", body)

    def _repr_html_(self) -> str:
        return framed(self.to_html(), "What reuse would save")

    def __repr__(self) -> str:
        return f"<LogXRay of {len(self.record.calls):,} calls in {self.record.file}>"


def xray(path: str | Path, **options: Any) -> LogXRay:
    """X-ray a log of model calls, as ``kvlab xray`` does; no model is loaded.

    Args:
        path: JSON lines of calls or spans, or an Inspect log (docs/logs.md).
        options: see :func:`backend.logs.xray.xray`.

    Raises:
        LabError: the log cannot be read, or an option is out of range.

    >>> import json
    >>> lines = [json.dumps({"prompt": f"Today is May {day}.", "agent": "a"}) for day in (1, 2)]
    >>> _ = Path("log.jsonl").write_text("\\n".join(lines))
    >>> found = xray("log.jsonl")
    >>> list(found.to_frame().shape)[0]
    2
    """
    return LogXRay(xray_log(Path(path), **options))
