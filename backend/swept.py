"""What a sweep says of itself: its cells, how far it is, a line for each method in each. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.judged import Share
from backend.records import Mode


@dataclass(frozen=True)
class Cell:
    """A point of the grid without the method. ``judge_order`` is empty where there is no judge's order."""

    task: str
    model: str
    mode: Mode
    request_order: str
    seed: int
    judge_order: str = ""

    def label(self, among: Sequence[Cell]) -> str:
        """Its name: the task, and what differs among the cells."""
        names = ("model", "mode", "request_order", "seed", "judge_order")
        varied = [n for n in names if len({getattr(cell, n) for cell in among}) > 1]
        said = [f"seed {self.seed}" if n == "seed" else str(getattr(self, n)) for n in varied]
        return ", ".join([self.task, *filter(None, said)])


@dataclass(frozen=True)
class SweepLine:
    """One method in one cell.

    Attributes:
        accuracy: answers right; ``selection`` a judge's selections right; ``as_dense`` answers (a judge's:
            selections, JCR) equal to dense's.
        score: mean token F1 of questions over texts, else the accuracy with a t interval.
        agents, blocks, tokens: the three reuse rates.
        only_dense, only_mine: problems where just one of the two is right; ``mcnemar`` their exact p.
        ttft_ms, ttft_ratio: medians; the ratio is dense's time over this one's, problem by problem.
        wilcoxon: p of the paired times. The ``*_holm`` are corrected over the summary; None for dense.
    """

    cell: Cell
    label: str
    method: str
    problems: int
    accuracy: Share
    selection: Share
    as_dense: Share
    score: Share
    agents: Share
    blocks: Share
    tokens: Share
    kl_first: Share
    near_ties: int
    ttft_ms: float
    ttft_ratio: float
    only_dense: int = 0
    only_mine: int = 0
    mcnemar: float | None = None
    mcnemar_holm: float | None = None
    wilcoxon: float | None = None
    wilcoxon_holm: float | None = None


@dataclass(frozen=True)
class Count:
    """How far a sweep is. ``seconds_left`` is None until a row of this process is done."""

    done: int
    total: int
    seconds_left: float | None
    text: str = ""

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {clock_time(self.seconds_left)} left"
        return f"{self.done:,} of {self.total:,} rows{left}" + (f"; {self.text}" if self.text else "")


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep will ask for, before it runs.

    Attributes:
        cells: points of the grid without the method; ``rows`` a problem under a method in a cell each.
        there: rows that are in the file already.
        seconds: what the other rows will take on this machine; None where a judge's, which are not foreseen.
    """

    name: str
    title: str
    cells: int
    rows: int
    there: int
    seconds: float | None


@dataclass(frozen=True)
class Swept:
    """A sweep's lines so far, of ``rows`` rows; ``complete`` when it has run to its end."""

    name: str
    title: str
    lines: tuple[SweepLine, ...]
    rows: int
    complete: bool


def clock_time(seconds: float) -> str:
    """``1:02:03``, or ``02:03`` under an hour."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"
