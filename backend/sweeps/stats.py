"""What a sweep's rows say: every method in every cell, with intervals, and paired tests against dense.

* Shares (right, as dense): Wilson's 95% interval. Means (KL, F1): Student's t. Reuse rates are ratios of
  sums: percentile bootstrap over problems.
* Right or wrong against dense on the same problems: McNemar's exact test (the binomial test on the problems
  where just one of the two is right). Times: Wilcoxon's signed-rank test on the paired differences.
* Many tests find something by chance alone, so Holm's correction over all tests of one kind stands beside
  each p.
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Sequence

from scipy import stats

from backend.judge_metrics import NOTHING, bootstrap, share
from backend.judged import Share
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone
from backend.swept import Cell, SweepLine


def summarise(done: SweepDone) -> tuple[SweepLine, ...]:
    """All lines, cell by cell, dense first."""
    groups: dict[tuple[Cell, str], list[Row]] = {}
    for cell, method, row in done.rows:
        groups.setdefault((cell, method), []).append(row)
    first: dict[Cell, str] = {}
    for cell, method in groups:
        first.setdefault(cell, method)  # dense stands first in every shard
    lines = [
        _line(cell, method, rows, groups[cell, first[cell]] if method != first[cell] else None, done.cells)
        for (cell, method), rows in groups.items()
    ]
    lines.sort(key=lambda line: (done.cells.index(line.cell), line.method != first[line.cell]))
    exact, ranks = (holm([getattr(line, name) for line in lines]) for name in ("mcnemar", "wilcoxon"))
    return tuple(
        SweepLine(**{**vars(line), "mcnemar_holm": a, "wilcoxon_holm": b})
        for line, a, b in zip(lines, exact, ranks, strict=True)
    )


def _line(
    cell: Cell, method: str, rows: list[Row], dense: list[Row] | None, cells: Sequence[Cell]
) -> SweepLine:
    known = {row.problem: row for row in dense or rows}
    pairs = [(row, known[row.problem]) for row in rows if row.problem in known]
    judged = [(a.correct, b.correct) for a, b in pairs if a.correct is not None and b.correct is not None]
    only_dense, only_mine = sum(b and not a for a, b in judged), sum(a and not b for a, b in judged)
    times = [(a.ttft_ms, b.ttft_ms) for a, b in pairs]
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
        ttft_ms=statistics.median(row.ttft_ms for row in rows),
        ttft_ratio=statistics.median(b / max(a, 1e-9) for a, b in times),
        only_dense=only_dense if dense else 0,
        only_mine=only_mine if dense else 0,
        mcnemar=mcnemar(only_dense, only_mine) if dense and judged else None,
        wilcoxon=wilcoxon([a - b for a, b in times]) if dense else None,
    )


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


def mcnemar(only_one: int, only_other: int) -> float:
    """Exact two-sided p that two methods are right equally often (McNemar 1947): binomial on the problems
    where just one of them is."""
    parted = only_one + only_other
    return float(stats.binomtest(only_one, parted, 0.5).pvalue) if parted else 1.0


def wilcoxon(differences: Sequence[float]) -> float:
    """Two-sided p that paired differences lie around zero (Wilcoxon's signed ranks, zeros dropped)."""
    other = [d for d in differences if d]
    if not other:
        return 1.0
    with warnings.catch_warnings():  # it says that ties make p approximate
        warnings.simplefilter("ignore")
        return float(stats.wilcoxon(other).pvalue)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's (1979) step-down correction over the tests that were made; None stays None."""
    places = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i] or 0.0)
    found: list[float | None] = [None] * len(ps)
    most = 0.0
    for rank, place in enumerate(places):
        most = max(most, min(1.0, (len(places) - rank) * (ps[place] or 0.0)))
        found[place] = most
    return found
