"""Lines against lines: the same in everything but one axis, and paired problem by problem.

* Right or wrong on the same problems: McNemar's exact test (the binomial test on the problems where just one
  of the two is right). Times: Wilcoxon's signed-rank test on the paired differences.
* Many tests find something by chance alone, so Holm's correction over all tests of one kind in the sweep
  stands beside each p, whatever the baselines.
* A problem's number is its place in the order of drawing, so it means the same in every order of requests.
  Between tasks it need not: pairs whose question or known answer differs leave the comparison out, with a
  word.
* Two lines are compared once, also where each is a baseline for the other.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from scipy import stats

from backend.records.sweep import Baseline, Cell, Compared, Comparison
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone
from backend.sweeps.summary import by_line, median

Rows = Mapping[int, Row]  # by problem


def compare(done: SweepDone) -> Compared:
    """Every line with its baselines, baseline by baseline, and what cannot be compared."""
    lines = {place: {row.problem: row for row in rows} for place, rows in by_line(done).items()}
    tests: list[Comparison] = []
    left_out: list[str] = []
    seen: set[frozenset[tuple[Cell, str]]] = set()
    for baseline in done.against:
        counterparts = 0
        for place, mine in lines.items():
            other = baseline.of(*place)
            if other == place or other not in lines:
                continue
            counterparts += 1
            pair = frozenset((place, other))
            if pair in seen:
                continue
            seen.add(pair)
            if _same_problems(mine, lines[other]):
                tests += _tested(place, mine, lines[other], baseline, done.cells)
            else:
                label = place[0].label(done.cells)
                left_out.append(f"{label} is not compared with {baseline}: their problems are not the same.")
        if done.complete and not counterparts and baseline.axis != "method":
            left_out.append(
                f"Nothing is compared with {baseline}: no line differs from another in that alone."
            )
    exact, ranks = (holm([getattr(test, name) for test in tests]) for name in ("mcnemar", "wilcoxon"))
    corrected = (
        replace(test, mcnemar_holm=a, wilcoxon_holm=b) for test, a, b in zip(tests, exact, ranks, strict=True)
    )
    return Compared(tuple(corrected), tuple(dict.fromkeys(left_out)))


def _same_problems(mine: Rows, other: Rows) -> bool:
    """Do the numbers that both have name the same questions with the same known answers?"""
    return all(
        (mine[n].request, mine[n].expected) == (other[n].request, other[n].expected)
        for n in mine.keys() & other.keys()
    )


def _tested(
    place: tuple[Cell, str], mine: Rows, other: Rows, baseline: Baseline, cells: Sequence[Cell]
) -> list[Comparison]:
    """The comparison; none while the two have no problem in common."""
    cell, method = place
    pairs = [(mine[n], other[n]) for n in sorted(mine.keys() & other.keys())]
    if not pairs:
        return []
    judged = [(a.correct, b.correct) for a, b in pairs if a.correct is not None and b.correct is not None]
    only_other, only_mine = sum(b and not a for a, b in judged), sum(a and not b for a, b in judged)
    return [
        Comparison(
            cell=cell,
            label=cell.label(cells),
            method=method,
            axis=baseline.axis,
            mine=method if baseline.axis == "method" else getattr(cell, baseline.axis),
            other=baseline.value,
            pairs=len(pairs),
            only_other=only_other,
            only_mine=only_mine,
            ttft_ratio=median([b.ttft_ms / max(a.ttft_ms, 1e-9) for a, b in pairs]),
            mcnemar=mcnemar(only_other, only_mine) if judged else None,
            wilcoxon=wilcoxon([a.ttft_ms - b.ttft_ms for a, b in pairs]),
        )
    ]


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
