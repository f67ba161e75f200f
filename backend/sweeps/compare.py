"""Lines against lines: the same in everything but one axis, and paired problem by problem.

* Right or wrong on the same problems: McNemar's exact test (the binomial test on the problems where just one
  of the two is right). Times: Wilcoxon's signed-rank test on the paired differences.
* Over several warm-ups the unit of both tests is the warm-up: what was answered behind one pool is not
  independent. Wilcoxon's signed ranks, of the mean difference (of times: the median) of each warm-up.
* Many tests find something by chance alone, so Holm's correction over all tests of one kind in the sweep
  stands beside each p, whatever the baselines.
* A problem's number is its place in the order of drawing, so it means the same in every order of requests.
  Between tasks it need not: pairs whose question or known answer differs leave the comparison out, with a
  word.
* Two lines are compared once, also where each is a baseline for the other.
"""

import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from scipy import stats

from backend.records.sweep import Baseline, Cell, Compared, Comparison
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone
from backend.sweeps.summary import by_line, median, problem_of

Rows = Mapping[tuple[int, int], Row]  # by seed and problem


def compare(result: SweepDone) -> Compared:
    """Every line with its baselines, baseline by baseline, and what cannot be compared."""
    lines = {place: {problem_of(row): row for row in rows} for place, rows in by_line(result).items()}
    tests: list[Comparison] = []
    left_out: list[str] = []
    pairs: set[frozenset[tuple[Cell, str]]] = set()
    for baseline in result.against:
        counterparts = 0
        for place, own in lines.items():
            other = baseline.of(*place)
            if other == place or other not in lines:
                continue
            counterparts += 1
            pair = frozenset((place, other))
            if pair in pairs:
                continue
            pairs.add(pair)
            if _same_problems(own, lines[other]):
                tests += _tested(place, own, lines[other], baseline, result)
            else:
                label = place[0].label(result.line_cells)
                left_out.append(f"{label} is not compared with {baseline}: their problems are not the same.")
        if result.complete and not counterparts and baseline.axis != "method":
            left_out.append(
                f"Nothing is compared with {baseline}: no line differs from another in that alone."
            )
    exact, ranks = (holm([getattr(test, name) for test in tests]) for name in ("right_p", "wilcoxon"))
    corrected = (
        replace(test, right_holm=a, wilcoxon_holm=b) for test, a, b in zip(tests, exact, ranks, strict=True)
    )
    return Compared(tuple(corrected), tuple(dict.fromkeys(left_out)))


def _same_problems(rows: Rows, other: Rows) -> bool:
    """Do the numbers that both have name the same questions with the same known answers?"""
    return all(
        (rows[n].request, rows[n].expected) == (other[n].request, other[n].expected)
        for n in rows.keys() & other.keys()
    )


def _tested(
    place: tuple[Cell, str], own: Rows, other: Rows, baseline: Baseline, result: SweepDone
) -> list[Comparison]:
    """The comparison; none while the two have no problem in common."""
    cell, method = place
    pairs = [(own[n], other[n]) for n in sorted(own.keys() & other.keys())]
    if not pairs:
        return []
    judged = [(a, b) for a, b in pairs if a.correct is not None and b.correct is not None]
    only_other = sum(bool(b.correct and not a.correct) for a, b in judged)
    only_mine = sum(bool(a.correct and not b.correct) for a, b in judged)
    if result.warmups > 1:
        right = wilcoxon(
            _by_warmup(judged, lambda a, b: float(a.correct or 0) - float(b.correct or 0), statistics.mean)
        )
        slower = wilcoxon(_by_warmup(pairs, lambda a, b: a.ttft_ms - b.ttft_ms, statistics.median))
    else:
        right = mcnemar(only_other, only_mine)
        slower = wilcoxon([a.ttft_ms - b.ttft_ms for a, b in pairs])
    return [
        Comparison(
            cell=cell,
            label=cell.label(result.line_cells),
            method=method,
            axis=baseline.axis,
            mine=method if baseline.axis == "method" else getattr(cell, baseline.axis),
            other=baseline.value,
            pairs=len(pairs),
            only_other=only_other,
            only_mine=only_mine,
            ttft_ratio=median([b.ttft_ms / max(a.ttft_ms, 1e-9) for a, b in pairs]),
            right_p=right if judged else None,
            wilcoxon=slower,
            warmups=len({a.seed for a, _ in pairs}),
        )
    ]


def _by_warmup(
    pairs: Sequence[tuple[Row, Row]],
    difference: Callable[[Row, Row], float],
    middle: Callable[[list[float]], float],
) -> list[float]:
    """The middle of each warm-up's differences."""
    by_warmup: dict[int, list[float]] = {}
    for a, b in pairs:
        by_warmup.setdefault(a.seed, []).append(difference(a, b))
    return [middle(values) for values in by_warmup.values()]


def mcnemar(only_one: int, only_other: int) -> float:
    """Exact two-sided p that two methods are right equally often (McNemar 1947): binomial on the problems
    where just one of them is."""
    parted = only_one + only_other
    return float(stats.binomtest(only_one, parted, 0.5).pvalue) if parted else 1.0


def wilcoxon(differences: Sequence[float]) -> float:
    """Two-sided p that paired differences lie around zero (Wilcoxon's signed ranks, zeros dropped)."""
    nonzero = [d for d in differences if d]
    if not nonzero:
        return 1.0
    with warnings.catch_warnings():  # it says that ties make p approximate
        warnings.simplefilter("ignore")
        return float(stats.wilcoxon(nonzero).pvalue)


def holm(ps: Sequence[float | None]) -> list[float | None]:
    """Holm's (1979) step-down correction over the tests that were made; None stays None."""
    places = sorted((i for i, p in enumerate(ps) if p is not None), key=lambda i: ps[i] or 0.0)
    adjusted: list[float | None] = [None] * len(ps)
    most = 0.0
    for rank, place in enumerate(places):
        most = max(most, min(1.0, (len(places) - rank) * (ps[place] or 0.0)))
        adjusted[place] = most
    return adjusted
