"""What a sweep's rows say of every method in every cell, with 95% intervals.

* Shares (right, as dense): Wilson's. Means (KL, F1): Student's t. Reuse rates are ratios of sums: percentile
  bootstrap over problems. Medians of times: between two of the measured ones (order statistics).
* How lines differ from each other: :mod:`backend.sweeps.compare`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from scipy import stats

from backend.base.statistics import NOTHING, Share, bootstrap, share
from backend.records.sweep import Cell, SweepLine
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone


def by_line(done: SweepDone) -> dict[tuple[Cell, str], list[Row]]:
    """Rows by cell and method, cell by cell, dense first."""
    found: dict[tuple[Cell, str], list[Row]] = {}
    for cell, method, row in done.rows:
        found.setdefault((cell, method), []).append(row)
    first = dict(reversed(found))  # by cell; dense stands first in every shard
    places = {cell: at for at, cell in enumerate(done.cells)}
    order = sorted(found, key=lambda line: (places[line[0]], line[1] != first[line[0]]))
    return {line: found[line] for line in order}


def summarise(done: SweepDone) -> tuple[SweepLine, ...]:
    """All lines, cell by cell, dense first."""
    lines = by_line(done)
    dense: dict[Cell, list[Row]] = {}
    for (cell, _), rows in lines.items():
        dense.setdefault(cell, rows)
    return tuple(_line(cell, method, rows, dense[cell], done.cells) for (cell, method), rows in lines.items())


def _line(cell: Cell, method: str, rows: list[Row], dense: list[Row], cells: Sequence[Cell]) -> SweepLine:
    known = {row.problem: row.ttft_ms for row in dense}
    return SweepLine(
        cell=cell,
        label=cell.label(cells),
        method=method,
        problems=len(rows),
        accuracy=share([row.correct for row in rows]),
        selection=share([row.selection_right for row in rows]),
        as_dense=share([row.as_dense for row in rows]),
        score=mean([row.score for row in rows]),
        agents=bootstrap([row.agents_reused for row in rows], [row.agents for row in rows]),
        blocks=bootstrap([row.blocks_reused for row in rows], [row.blocks for row in rows]),
        tokens=bootstrap([row.reused_tokens for row in rows], [row.prompt_tokens for row in rows]),
        kl_first=mean([row.kl_first for row in rows]),
        near_ties=sum(bool(row.near_tie) for row in rows),
        ttft_ms=median([row.ttft_ms for row in rows]),
        ttft_ratio=median(
            [known[row.problem] / max(row.ttft_ms, 1e-9) for row in rows if row.problem in known]
        ),
    )


def median(values: Sequence[float]) -> Share:
    """Median with the narrowest interval between the k-th smallest and the k-th largest value that holds the
    median of where they come from with 95% or more (the binomial distribution of how many lie below it). Of
    five values or fewer there is none."""
    if not values:
        return NOTHING
    ordered, count = sorted(values), len(values)
    rank = int(stats.binom.ppf(0.025, count, 0.5))  # fewer than this lie below with under 2.5%
    middle = statistics.median(ordered)
    if not rank:
        return Share(middle, -math.inf, math.inf, count)
    return Share(middle, ordered[rank - 1], ordered[count - rank], count)


def mean(values: Sequence[float | None]) -> Share:
    """Mean of the known values with Student's 95% interval; of a single value there is none."""
    known = [float(v) for v in values if v is not None and math.isfinite(v)]
    if not known:
        return NOTHING
    middle = statistics.fmean(known)
    if len(known) == 1:
        return Share(middle, -math.inf, math.inf, 1)
    half = float(stats.t.ppf(0.975, len(known) - 1)) * statistics.stdev(known) / math.sqrt(len(known))
    return Share(middle, middle - half, middle + half, len(known))
