"""The finished runs that a first visit finds on the pages beside Compare: files of ``presets/pages``, made by
``scripts/record_pages.py`` with the weights that ship."""

import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from backend.base.errors import LabError
from backend.base.serialization import Saved
from backend.records.judge import JudgedProblem, JudgeRequest
from backend.records.run import RunRecord
from backend.records.sweep import Swept
from lab_app.ui import html, text

LOG = logging.getLogger("lab_app")


@dataclass(frozen=True)
class SavedJudgement(Saved):
    """One problem as a judge saw it; ``records`` are of the request's orders."""

    request: JudgeRequest
    row: JudgedProblem
    records: tuple[RunRecord, ...]
    format: int = 1


@dataclass(frozen=True)
class SavedSweep(Saved):
    """A sweep's ``text`` and its lines."""

    text: str
    swept: Swept
    format: int = 1


#: What the file of each page holds.
KINDS: dict[str, type[Saved]] = {
    "documents": RunRecord, "loop": RunRecord, "judge": SavedJudgement, "sweep": SavedSweep,
}  # fmt: skip


@cache
def first_run(folder: Path | None, page: str) -> Any:
    """The saved run of a page; None where there is none that can be read."""
    if folder is None or not (path := folder / f"{page}.kvrun").is_file():
        return None
    try:
        return KINDS[page].from_bytes(path.read_bytes())
    except LabError:
        LOG.warning("the first run %s cannot be read", path.name)
        return None


def results_notice(old: bool, saved: bool, edited: str) -> str:
    """The line above results: they are of an earlier setup, they are a saved run's, or nothing."""
    if old:
        return html.status(edited, "edited")
    return html.status(text.FIRST_RUN_HERE, "note") if saved else ""
