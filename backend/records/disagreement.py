"""A judge that reads densely only where two quick verdicts disagree, counted on a judged batch; no torch.

Two verdicts over reused caches, of two methods in one order or of one method in two orders: where they select
the same candidate, that is taken; where they differ, or one cannot be read, the prompt is read densely in the
first order. What it selects follows from verdicts that were recorded, so nothing is run again.

*Cost* is prompt tokens forwarded, as a share of dense's: both reads, and dense where it is read. Verdicts
that are written are not in it; two are written as one batch. At the same cost stand two controls over the
better of the two verdicts alone: the dense reads spent at random, and (with a study) where a trained risk
gate trusts it least, scored on problems that it did not see.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from backend.base.statistics import Share, share
from backend.records.judge import Judged
from backend.records.risk import RiskRecord, trade


@dataclass(frozen=True)
class DisagreementLine:
    """One gate over all problems whose dense selection can be read.

    Attributes:
        verdicts: (order, method) of the two; the first one's order is where dense is read.
        dense: how often it is read; ``jcr``: selections equal to dense's; ``flips``: those that are not.
        cost: share of dense's prompt tokens.
        alone: JCR of the better verdict alone, ``alone_cost`` its cost.
        at_random: JCR expected of it where its dense reads, up to ``cost``, are spent at random; ``trained``:
            with them where a risk gate trusts it least, None where there is none.
    """

    verdicts: tuple[tuple[str, str], tuple[str, str]]
    dense: Share
    jcr: Share
    flips: int
    cost: float
    alone: float
    alone_cost: float
    at_random: float
    trained: float | None


def disagreement(judged: Judged, study: RiskRecord | None = None) -> tuple[DisagreementLine, ...]:
    """Every two methods in each order, and every method in the first order and each other one. ``study``: of
    the same batch (:func:`backend.records.risk.sets_of`)."""
    labels, orders = judged.labels[1:], judged.orders
    pairs = [((order, a), (order, b)) for order in orders for a, b in combinations(labels, 2)]
    pairs += [((orders[0], method), (order, method)) for order in orders[1:] for method in labels]
    return tuple(line for pair in pairs if (line := _line(judged, pair, study)) is not None)


def _line(
    judged: Judged, pair: tuple[tuple[str, str], tuple[str, str]], study: RiskRecord | None
) -> DisagreementLine | None:
    first_order = pair[0][0]
    columns = [judged.outcomes(order, method) for order, method in ((first_order, judged.labels[0]), *pair)]
    rows = [row for row in zip(*columns, strict=True) if row[0].consistent is not None]
    if not rows:
        return None
    rewriting = judged.request.protocol == "rewriting"
    answers = [[o.answer if rewriting else o.selected for o in row] for row in rows]
    agree = [a is not None and a == b for _, a, b in answers]
    same = [not agreed or answer[0] == answer[1] for agreed, answer in zip(agree, answers, strict=True)]
    total = sum(row[0].forwarded_tokens for row in rows)
    costs = [sum(row[i].forwarded_tokens for row in rows) / total for i in (1, 2)]
    dense_tokens = sum(row[0].forwarded_tokens for row, agreed in zip(rows, agree, strict=True) if not agreed)
    cost = sum(costs) + dense_tokens / total
    jcrs = [sum(answer[i] == answer[0] for answer in answers) / len(rows) for i in (1, 2)]
    better = max((0, 1), key=lambda i: (jcrs[i], -costs[i]))
    budget = min(1.0, max(0.0, cost - costs[better]))  # dense reads that the same cost buys
    return DisagreementLine(
        pair, share([not agreed for agreed in agree]), share(same), same.count(False), cost, jcrs[better],
        costs[better], 1 - (1 - jcrs[better]) * (1 - budget), _trained(study, pair[better][1], budget),
    )  # fmt: skip


def _trained(study: RiskRecord | None, method: str, dense: float) -> float | None:
    """JCR of a method whose least trusted sets, a share of ``dense``, are read densely."""
    test = next((t for t in study.tests if t.target == method), None) if study else None
    if study is None or test is None or test.gate is None:
        return None
    column = study.methods.index(method)
    curve = trade(test.score, study.same[:, column], study.copied[:, column])
    return float(curve.consistency[(curve.kept <= 1 - dense + 1e-9).nonzero()[0].max()])


def disagreement_rows(lines: Sequence[DisagreementLine]) -> list[tuple[str, ...]]:
    """The lines for people, its heads first."""
    out: list[tuple[str, ...]] = [
        ("first verdict", "second", "read densely", "JCR", "flips", "cost", "better alone", "its cost",
         "at random", "trained gate"),
    ]  # fmt: skip
    for x in lines:
        first, second = (f"{method} ({order})" for order, method in x.verdicts)
        numbers = (x.dense.value, x.jcr.value)
        trained = "-" if x.trained is None else f"{x.trained:.1%}"
        out.append(
            (first, second, *(f"{n:.1%}" for n in numbers), str(x.flips), f"{x.cost:.2f}", f"{x.alone:.1%}",
             f"{x.alone_cost:.2f}", f"{x.at_random:.1%}", trained)
        )  # fmt: skip
    return out
