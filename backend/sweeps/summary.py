"""What a sweep's rows say of every method in every cell, with 95% intervals.

* Shares (right, as dense): Wilson's. Scores (F1): Student's t. Reuse rates are ratios of sums and KL is not
  below zero: percentile bootstrap over problems. Medians of times: between two of the measured ones (order
  statistics).
* Over several warm-ups all shares, means and rates have the bootstrap over warm-ups, then problems: what was
  answered behind one warm-up is not independent. A share's is no narrower than Wilson's.
* How lines differ from each other: :mod:`backend.sweeps.compare`.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace

from scipy import stats

from backend.base.statistics import NOTHING, Share, bootstrap, clustered, mean_and_half, share
from backend.base.text import Tax, sum_taxes
from backend.records.judge import NONE_TAKEN, Change
from backend.records.sweep import Cell, SweepLine
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone


def by_line(result: SweepDone) -> dict[tuple[Cell, str], list[Row]]:
    """Rows by line (cell and method), cell by cell, dense first."""
    lines: dict[tuple[Cell, str], list[Row]] = {}
    for cell, method, row in result.rows:
        lines.setdefault((result.line_cell(cell), method), []).append(row)
    first = dict(reversed(lines))  # by cell; dense stands first in every shard
    places = {cell: at for at, cell in enumerate(result.line_cells)}
    order = sorted(lines, key=lambda line: (places[line[0]], line[1] != first[line[0]]))
    return {line: lines[line] for line in order}


def _dense(lines: dict[tuple[Cell, str], list[Row]]) -> dict[Cell, list[Row]]:
    """Every cell's first line."""
    return {cell: rows for (cell, _), rows in reversed(lines.items())}


def summarise(result: SweepDone) -> tuple[SweepLine, ...]:
    """All lines, cell by cell, dense first."""
    lines = by_line(result)
    dense = _dense(lines)
    return tuple(
        _line(cell, method, rows, dense[cell], result.line_cells, result.warmups > 1)
        for (cell, method), rows in lines.items()
    )


def boundary_tax(result: SweepDone) -> Tax | None:
    """The tax on dense's prompts: dense is the first line of every cell."""
    return sum_taxes(row.boundary_tax for rows in _dense(by_line(result)).values() for row in rows)


def problem_of(row: Row) -> tuple[int, int]:
    """What names a problem in a line: other seeds draw other problems."""
    return row.seed, row.problem


def _line(
    cell: Cell, method: str, rows: list[Row], dense: list[Row], cells: Sequence[Cell], pooled: bool
) -> SweepLine:
    dense_ms = {problem_of(row): row.ttft_ms for row in dense}
    warmups = [row.seed for row in rows]

    def of_all(values: Sequence[bool | None]) -> Share:
        independent = share(values)
        if not pooled or not independent.of:
            return independent
        interval = clustered(values, warmups)  # of values that are all alike it would know no doubt
        return replace(
            interval, low=min(interval.low, independent.low), high=max(interval.high, independent.high)
        )

    def share_in(of: str) -> Share:
        return of_all([getattr(row, of) for row in rows])

    verdicts = [row.verdict for row in rows]

    def changed(to: Change) -> Share:
        return of_all([None if v is None or v.consistent is None else v.change == to for v in verdicts])

    def middle(of: str, alone: Callable[[Sequence[float | None]], Share] = mean) -> Share:
        values = [getattr(row, of) for row in rows]
        return clustered(values, warmups) if pooled else alone(values)

    def rate(of: str, over: str) -> Share:
        above, below = ([getattr(row, name) for row in rows] for name in (of, over))
        return clustered(above, warmups, below) if pooled else bootstrap(above, below)

    return SweepLine(
        cell=cell,
        label=cell.label(cells),
        method=method,
        problems=len(rows),
        accuracy=share_in("correct"),
        selection=share_in("selection_right"),
        as_dense=share_in("as_dense"),
        to_none=changed("none"),
        to_another=changed("another"),
        as_dense_without_none=of_all(
            [None if v is None or v.selected == NONE_TAKEN else v.consistent for v in verdicts]
        ),
        score=middle("score"),
        agents=rate("agents_reused", "agents"),
        blocks=rate("blocks_reused", "blocks"),
        tokens=rate("reused_tokens", "prompt_tokens"),
        kl_first=middle("kl_first", mean_distance),
        near_ties=sum(bool(row.near_tie) for row in rows),
        ttft_ms=median([row.ttft_ms for row in rows]),
        ttft_ratio=median(
            [
                dense_ms[problem_of(row)] / max(row.ttft_ms, 1e-9)
                for row in rows
                if problem_of(row) in dense_ms
            ]
        ),
        warmups=len(set(warmups)),
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
    numbers = [float(v) for v in values if v is not None and math.isfinite(v)]
    if not numbers:
        return NOTHING
    t = float(stats.t.ppf(0.975, len(numbers) - 1))
    middle, half = map(float, mean_and_half(numbers, t))
    if len(numbers) == 1:
        return Share(middle, -math.inf, math.inf, 1)
    return Share(middle, middle - half, middle + half, len(numbers))


def mean_distance(values: Sequence[float | None]) -> Share:
    """Mean of distances, whose interval does not reach below zero: a bootstrap."""
    numbers = [float(v) for v in values if v is not None and math.isfinite(v)]
    return bootstrap(numbers) if len(numbers) > 1 else mean(numbers)
