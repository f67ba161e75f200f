"""What judged problems show, counted: accuracy, consistency (JCR), reuse, picks per slot, with intervals.
Free of torch.

Source: judge study, Section 5 (metrics), Table 1, A.2 and Fig. 7 (counts). Readings of open points: JCR is
over the problems where dense's selection can be read; a selection that cannot be read is not dense's. Changed
selections that take none and those that take another candidate are counted apart. Shares
of problems have Wilson's interval; the reuse rate's and every change's is a bootstrap over problems, paired.
The changes of a table are read together, so that all their intervals hold with 95% (Bonferroni).
"""

import statistics
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from backend.base.statistics import NOTHING, Share, bootstrap, deviations, share, wilson
from backend.records.judge import NONE_TAKEN, Change, Judged, JudgeOutcome
from backend.records.judge_tables import JudgeLine, JudgeTable, ProblemCount


def paired(
    own: Sequence[JudgeOutcome],
    other: Sequence[JudgeOutcome],
    value: Callable[[JudgeOutcome], bool | None],
    family: int,
) -> Share:
    """Mean change of an indicator from ``other`` to ``own`` over the problems where both have it; one of
    ``family`` changes."""
    baseline = {o.problem: value(o) for o in other}
    both = [(value(o), baseline.get(o.problem)) for o in own]
    changes = [float(a) - float(b) for a, b in both if a is not None and b is not None]
    interval = bootstrap(changes, family=family)
    if len(set(changes)) == 1:  # resampling equal values gives an interval of no width
        doubt = 1 - wilson(len(changes), len(changes), deviations(family))[0]
        interval = Share(
            interval.value, max(-1.0, interval.value - doubt), min(1.0, interval.value + doubt), interval.of
        )
    return interval


def changed_to(outcomes: Sequence[JudgeOutcome], change: Change) -> Share:
    """How often a selection differs from dense's in one way, over the problems that JCR is over."""
    return share([None if o.consistent is None else o.change == change for o in outcomes])


def picks(outcomes: Sequence[JudgeOutcome]) -> tuple[Share, ...]:
    """How often none, and each slot, was taken, among the readable selections; a set takes a part of each."""
    selections = [o.slots for o in outcomes if o.slots is not None]
    most = max((len(o.layout) for o in outcomes), default=0)
    out = []
    for slot in range(most + 1):
        shares = [1 / len(slots) if slot in slots else 0.0 for slots in selections]
        if not shares:
            out.append(NOTHING)
            continue
        low, high = wilson(round(sum(shares)), len(shares))
        mean = sum(shares) / len(shares)
        out.append(Share(mean, min(low, mean), max(high, mean), len(shares)))
    return tuple(out)


def changes_of(judged: Judged) -> int:
    """How many changes a table has: of every other method's answers in each order, and of its consistency in
    each further order."""
    return max(1, (len(judged.labels) - 1) * (2 * len(judged.orders) - 1))


def line(judged: Judged, order: str, method: str) -> JudgeLine:
    """One method in one order."""
    outcomes = judged.outcomes(order, method)
    dense = judged.outcomes(order, judged.labels[0])
    first = judged.outcomes(judged.orders[0], method)
    family = changes_of(judged)
    moved = jcr_change = NOTHING
    if order != judged.orders[0]:
        baseline = {o.problem: o.selected for o in first}
        pairs = [(o.selected, baseline.get(o.problem)) for o in outcomes]
        moved = share([a != b for a, b in pairs if a is not None and b is not None])
        jcr_change = paired(outcomes, first, lambda o: o.consistent, family)
    return JudgeLine(
        order=order,
        method=method,
        problems=len(outcomes),
        accuracy=share([o.correct for o in outcomes]),
        selection=share([o.selection_right for o in outcomes]),
        jcr=share([o.consistent for o in outcomes]),
        jcr_without_ties=share([o.consistent for o in outcomes if not o.near_tie]),
        jcr_without_none=share([o.consistent for o in outcomes if o.selected != NONE_TAKEN]),
        to_none=changed_to(outcomes, "none"),
        to_another=changed_to(outcomes, "another"),
        same_answer=share([o.same_answer for o in outcomes]),
        blocks=bootstrap([o.reused_blocks for o in outcomes], [o.blocks for o in outcomes]),
        tokens=sum(o.reused_tokens for o in outcomes) / max(1, sum(o.prompt_tokens for o in outcomes)),
        reused_problems=statistics.fmean(o.state == "reused" for o in outcomes) if outcomes else 0.0,
        picks=picks(outcomes),
        failures=sum(bool(o.failure) for o in outcomes),
        near_ties=sum(o.near_tie for o in outcomes),
        twins=sum(o.twin for o in outcomes),
        accuracy_change=paired(outcomes, dense, lambda o: o.correct, family),
        jcr_change=jcr_change,
        moved=moved,
        ttft_ms=statistics.median(o.ttft_ms for o in outcomes) if outcomes else 0.0,
    )


def table(judged: Judged) -> JudgeTable:
    """All lines, order by order, dense first (judge study, Table 1)."""
    return JudgeTable(tuple(line(judged, o, m) for o in judged.orders for m in judged.labels))


def counted(judged: Judged, order: str | None = None) -> tuple[ProblemCount, ...]:
    """Per problem, over the methods other than dense: how many were right, and how many kept dense's
    selection (judge study, A.2: ACC counts and JCR counts). Problems whose dense selection cannot be read are
    left out.

    Args:
        order: of one order only.
    """
    dense = judged.labels[0] if judged.labels else ""
    out = []
    for row in judged.rows:
        for name in dict.fromkeys(o.order for o in row.outcomes):
            outcomes = [o for o in row.outcomes if o.order == name and o.method != dense]
            if order not in (None, name) or not outcomes or any(o.consistent is None for o in outcomes):
                continue
            out.append(
                ProblemCount(
                    problem=row.problem.number,
                    order=name,
                    question=row.problem.question,
                    right=sum(bool(o.correct) for o in outcomes),
                    kept=sum(bool(o.consistent) for o in outcomes),
                    methods=len(outcomes),
                    flipped=tuple(o.method for o in outcomes if not o.consistent),
                    none_taken=tuple(o.method for o in outcomes if o.change == "none"),
                    near_ties=tuple(o.method for o in outcomes if o.near_tie),
                )
            )
    return tuple(out)


def heat(counts: Sequence[ProblemCount]) -> NDArray[np.int64]:
    """(right, kept) numbers of problems: row by how many methods were right, column by how many kept dense's
    selection."""
    methods = max((c.methods for c in counts), default=0)
    grid = np.zeros((methods + 1, methods + 1), dtype=np.int64)
    for c in counts:
        grid[c.right, c.kept] += 1
    return grid
