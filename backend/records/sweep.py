"""A sweep's cells, its progress, a line for each method in each cell, and comparisons of lines. Free of
torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from backend.base.statistics import NOTHING, Share
from backend.base.text import Tax
from backend.records.request import Mode

Axis = Literal[
    "method", "task", "model", "mode", "request_order", "judge_order", "max_new_tokens", "temperature"
]


@dataclass(frozen=True)
class Cell:
    """A point of the grid without the method.

    Attributes:
        judge_order: empty where there is no judge's order.
        max_new_tokens, temperature: None where they are the task's own, not an axis of the sweep.
    """

    task: str
    model: str
    mode: Mode
    request_order: str
    seed: int
    judge_order: str = ""
    max_new_tokens: int | None = None
    temperature: float | None = None

    def label(self, among: Sequence[Cell]) -> str:
        """Its name: the task, and what differs among the task's cells."""
        axes: dict[str, str] = {
            "model": "{}", "mode": "{}", "request_order": "{}", "seed": "seed {}", "judge_order": "{}",
            "max_new_tokens": "{} tokens", "temperature": "temperature {:g}",
        }  # fmt: skip
        cells = [cell for cell in among if cell.task == self.task]
        varied = [name for name in axes if len({getattr(cell, name) for cell in cells}) > 1]
        return ", ".join([self.task, *(axes[name].format(getattr(self, name)) for name in varied)])


@dataclass(frozen=True)
class Baseline:
    """What lines are compared with: the lines that differ in one axis alone, and there have the value."""

    axis: Axis
    value: str | int | float

    def of(self, cell: Cell, method: str) -> tuple[Cell, str]:
        """Cell and method of the line that this one is compared with."""
        if self.axis == "method":
            return cell, str(self.value)
        changed: dict[str, object] = {self.axis: self.value}
        return replace(cell, **changed), method  # type: ignore[arg-type]  # the axis names the field

    def __str__(self) -> str:
        return axis_value(self.axis, self.value)


@dataclass(frozen=True)
class SweepLine:
    """One method in one cell.

    Attributes:
        accuracy: answers right; ``selection`` a judge's selections right; ``as_dense`` answers (a judge's:
            selections, JCR) equal to dense's; ``to_none`` and ``to_another`` a judge's changed selections, of
            none and of another candidate; ``as_dense_without_none`` JCR where it took a candidate.
        score: mean token F1 of questions over texts, or Rouge-L of summaries, else the accuracy with a t
            interval.
        agents, blocks, tokens: the three reuse rates.
        ttft_ms, ttft_ratio: medians; the ratio is dense's time over this one's, problem by problem.
        warmups: independent draws of warm-up and problems that the line is over.
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
    ttft_ms: Share
    ttft_ratio: Share
    warmups: int = 1
    to_none: Share = NOTHING
    to_another: Share = NOTHING
    as_dense_without_none: Share = NOTHING

    @property
    def counted(self) -> str:
        """How many problems, and behind how many warm-ups where there are several."""
        return str(self.problems) if self.warmups == 1 else f"{self.problems} behind {self.warmups}"

    @property
    def graded(self) -> bool:
        """Whether the score says more than how many are right."""
        same = bool(self.accuracy.of) and math.isclose(self.score.value, self.accuracy.value, abs_tol=1e-9)
        return bool(self.score.of) and not same


@dataclass(frozen=True)
class Comparison:
    """A line against another that differs in one axis alone, problem by problem.

    Attributes:
        mine, other: the two values of the axis.
        pairs: problems that both have.
        only_other, only_mine: problems where just one of the two is right; ``right_p`` their exact p, None
            where no answer is known. Over several ``warmups`` both tests are Wilcoxon's signed ranks of the
            warm-ups' mean differences.
        ttft_ratio: median of the other's time to first token over this one's; ``wilcoxon`` p of the times.
            The ``*_holm`` are corrected over all tests of their kind in the sweep.
    """

    cell: Cell
    label: str
    method: str
    axis: Axis
    mine: str | int | float
    other: str | int | float
    pairs: int
    only_other: int
    only_mine: int
    ttft_ratio: Share
    right_p: float | None
    wilcoxon: float
    right_holm: float | None = None
    wilcoxon_holm: float | None = None
    warmups: int = 1

    @property
    def against(self) -> str:
        """The baseline in words."""
        return axis_value(self.axis, self.other)


@dataclass(frozen=True)
class Compared:
    """All comparisons of a sweep. ``left_out``: sentences on baselines that cannot be compared."""

    tests: tuple[Comparison, ...] = ()
    left_out: tuple[str, ...] = ()

    def with_method(self, label: str) -> dict[tuple[Cell, str], Comparison]:
        """The comparisons with one method, by the line's cell and method."""
        return {(x.cell, x.method): x for x in self.tests if x.axis == "method" and x.other == label}

    def but_method(self, label: str) -> tuple[Comparison, ...]:
        """All others."""
        return tuple(x for x in self.tests if x.axis != "method" or x.other != label)


@dataclass(frozen=True)
class Count:
    """How far a sweep is. ``seconds_left`` is None until a row of this process is done."""

    done: int
    total: int
    seconds_left: float | None
    text: str = ""

    def __str__(self) -> str:
        time_left = "" if self.seconds_left is None else f", {clock_time(self.seconds_left)} left"
        return f"{self.done:,} of {self.total:,} rows{time_left}" + (f"; {self.text}" if self.text else "")


@dataclass(frozen=True)
class SweepPlan:
    """The size of a sweep before it runs.

    Attributes:
        cells: points of the grid without the method; ``rows`` a problem under a method in a cell each.
        stored: rows that are in the file already.
        seconds: what the other rows will take on this machine.
    """

    name: str
    title: str
    cells: int
    rows: int
    stored: int
    seconds: float


@dataclass(frozen=True)
class Swept:
    """A sweep's lines so far, of ``rows`` rows; ``complete`` when it has run to its end.

    Every cell's first line is dense's, under the same label in all.
    """

    name: str
    title: str
    lines: tuple[SweepLine, ...]
    rows: int
    complete: bool
    compared: Compared = Compared()
    boundary_tax: Tax | None = None

    @property
    def warmups(self) -> int:
        """Draws of warm-up and problems behind each line."""
        return max((line.warmups for line in self.lines), default=1)

    @property
    def graded(self) -> bool:
        """Whether scores say more than how many answers are right: F1 of questions over texts, Rouge-L."""
        return any(line.graded for line in self.lines)

    @property
    def p_name(self) -> str:
        """What the p of right or wrong is of."""
        return "p by warm-up" if any(line.warmups > 1 for line in self.lines) else "McNemar p"

    @property
    def dense(self) -> str:
        """Dense's label; empty before the first line."""
        return self.lines[0].method if self.lines else ""

    @property
    def against_dense(self) -> dict[tuple[Cell, str], Comparison]:
        """The comparisons with dense, by the line's cell and method."""
        return self.compared.with_method(self.dense)

    @property
    def against_others(self) -> tuple[Comparison, ...]:
        """All other comparisons."""
        return self.compared.but_method(self.dense)


def axis_value(axis: str, value: object) -> str:
    """``request order given``; of a method its label alone."""
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if axis == "method" else f"{axis.replace('_', ' ')} {text}"


def clock_time(seconds: float) -> str:
    """``1:02:03``, or ``02:03`` under an hour."""
    whole = max(0, round(seconds))
    hours, remainder = divmod(whole, 3600)
    return (f"{hours}:" if hours else "") + f"{remainder // 60:02d}:{remainder % 60:02d}"
