"""Training and testing risk gates: a logistic regression, cross-validated over problems.

Source: judge study, Section 7, Fig. 6. Readings of open points: the orders of one problem share a fold, for
their texts are the same; a feature that is not known counts as its mean; scores of all folds are ranked
together; a threshold is the lowest at which the tested sets reach the wanted consistency, so on new problems
expect a little less.
"""

import math
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from backend.base.errors import OptionError
from backend.base.statistics import bootstrap_interval
from backend.records.model_info import ModelInfo
from backend.records.risk import Booleans, CandidateSet, GateTest, Numbers, RiskRecord, RiskRequest, trade
from backend.records.risk_gate import EVERY, OWN_FEATURES, TEXT_FEATURES, RiskGate, text_features

TOLERANCE, FIT_STEPS = 1e-7, 1000  # the slope at which a fit ends, of so many steps at most


def risk_study(sets: Sequence[CandidateSet], request: RiskRequest, model: ModelInfo) -> RiskRecord:
    """Train and test a gate for *safe under every method* and one per method.

    Raises:
        OptionError: there are no sets, or not all were judged under the same methods.
    """
    began = time.perf_counter()
    if not sets:
        raise OptionError("There is no judged candidate set to learn from. Judge some first.", field="risk")
    methods = tuple(sets[0].same)
    for each in sets:
        if tuple(each.same) != methods or not methods:
            raise OptionError(
                f"The set of problem {each.problem!r} was judged under {', '.join(each.same) or 'no method'}"
                f", the first one under {', '.join(methods) or 'none'}. Judge all under the same methods.",
                field="risk",
            )
    same = np.array([[each.same[m] for m in methods] for each in sets], dtype=bool)
    features = [text_features(each.texts, request.scoring) for each in sets]
    problems = tuple(each.problem for each in sets)
    safe: Booleans = np.logical_and.reduce(same, axis=1)
    fold = folds(problems, safe, request)
    copied = np.array([[each.copied[m] for m in methods] for each in sets])
    texts = np.array([[row[name] for name in TEXT_FEATURES] for row in features])
    every = _Table(
        tuple(TEXT_FEATURES), texts, safe, np.logical_or.reduce(copied > 0, axis=1), fold, problems
    )
    tests = [_test(EVERY, every, request, model)]
    names = (*TEXT_FEATURES, *OWN_FEATURES)
    for index, method in enumerate(methods):
        own = [[each.own.get(method, {}).get(n, math.nan) for n in OWN_FEATURES] for each in sets]
        columns = np.hstack([texts, np.array(own, dtype=np.float64)])
        own_table = replace(
            every, names=names, columns=columns, safe=same[:, index], asked=copied[:, index] > 0
        )
        tests.append(_test(method, own_table, request, model))
    wall_ms = (time.perf_counter() - began) * 1e3
    return RiskRecord(request, model, problems, methods, same, copied, tuple(tests), wall_ms)


def folds(problems: Sequence[str], safe: Booleans, request: RiskRequest) -> NDArray[np.int64]:
    """Which fold tests each set, (sets,).

    All sets of a problem share one. Problems that hold an unsafe set and the others are dealt out separately,
    so that every fold gets its share of both.
    """
    rows = defaultdict(list)
    for row, problem in enumerate(problems):
        rows[problem].append(row)
    names = np.random.default_rng(request.seed).permutation(sorted(rows))
    ordered = sorted(names, key=lambda name: bool(safe[rows[name]].all()))
    out = np.empty(len(problems), dtype=np.int64)
    for place, name in enumerate(ordered):
        out[rows[name]] = place % request.folds
    return out


@dataclass(frozen=True)
class _Table:
    """What one target is learned from: ``columns`` (sets, features), the rest as in
    :class:`backend.records.risk.GateTest`."""

    names: tuple[str, ...]
    columns: Numbers
    safe: Booleans
    asked: Booleans
    fold: NDArray[np.int64]
    problems: Sequence[str]


def _test(target: str, table: _Table, request: RiskRequest, model: ModelInfo) -> GateTest:
    """Cross-validate one target, train its gate on all sets, and choose its threshold."""
    safe, asked, fold = table.safe, table.asked, table.fold
    score = np.full(len(safe), np.nan)
    for part in range(request.folds):
        train, test = asked & (fold != part), fold == part
        if not test.any():
            continue
        if len(set(safe[train].tolist())) < 2:
            why = (
                f"{int(safe[asked].sum())} of {int(asked.sum())} sets are safe, which leaves a fold with one "
                "kind only to learn from. Judge more problems."
            )
            score[:] = np.nan
            return GateTest(
                target, table.names, safe, asked, score, fold, math.nan, math.nan, math.nan, None, why
            )
        score[test] = fit(table.columns[train], safe[train], request.penalty).predict(table.columns[test])
    asked_problems = [p for p, a in zip(table.problems, asked, strict=True) if a]
    low, high = auc_interval(score[asked], safe[asked], asked_problems, request)
    line = fit(table.columns[asked], safe[asked], request.penalty)
    curve = trade(score, safe, asked.astype(np.float64))
    thresholds = curve.threshold[curve.consistency >= request.wanted]
    gate = RiskGate(
        target,
        model.weights_hash,
        request.scoring,
        table.names,
        tuple(line.mean.tolist()),
        tuple(line.scale.tolist()),
        tuple(line.weight.tolist()),
        line.bias,
        min(float(thresholds.min()), 1.0),
    )
    area = auc(score[asked], safe[asked])
    return GateTest(target, table.names, safe, asked, score, fold, area, low, high, gate)


class Line:
    """A fitted logistic regression over standardised columns."""

    def __init__(self, mean: Numbers, scale: Numbers, weight: Numbers, bias: float) -> None:
        self.mean, self.scale, self.weight, self.bias = mean, scale, weight, bias

    def predict(self, columns: Numbers) -> Numbers:
        """(sets,) probability of safe; ``columns`` (sets, features), NaN where not known."""
        standard = np.nan_to_num((columns - self.mean) / self.scale, nan=0.0)
        return np.asarray(expit(standard @ self.weight + self.bias))


def fit(columns: Numbers, safe: Booleans, penalty: float) -> Line:
    """Logistic regression with a penalty on the squared coefficients (not on the bias).

    Args:
        columns: (sets, features), NaN where not known; standardised here, from these sets alone.
        safe: (sets,), both kinds present.
        penalty: 0 is allowed; a tiny one is added then, so that a perfect split has a solution.
    """
    present = ~np.isnan(columns)
    count = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, columns, 0.0).sum(axis=0) / count
    spread = np.sqrt((np.where(present, columns - mean, 0.0) ** 2).sum(axis=0) / count)
    scale = np.where(spread > 1e-9, spread, 1.0)
    standard = np.nan_to_num((columns - mean) / scale, nan=0.0)
    model = LogisticRegression(C=1 / max(penalty, 1e-3), tol=TOLERANCE, max_iter=FIT_STEPS)
    model.fit(standard, safe)
    return Line(mean, scale, model.coef_[0], float(model.intercept_[0]))


def auc(score: Numbers, safe: Booleans) -> float:
    """Chance that a safe set scores higher than an unsafe one, ties half; NaN without both kinds."""
    return float(roc_auc_score(safe, score)) if safe.any() and not safe.all() else math.nan


def auc_interval(
    score: Numbers, safe: Booleans, problems: Sequence[str], request: RiskRequest
) -> tuple[float, float]:
    """95% interval of the AUC: problems, with all their sets, drawn again with replacement.

    All draws at once: the pairs of a safe and an unsafe set that are in order, weighted by how often both
    were drawn. One call of scikit-learn for each would take minutes.
    """
    _, whose = np.unique(np.array(problems), return_inverse=True)
    ahead = np.sign(score[safe][:, None] - score[~safe]) / 2 + 0.5

    def drawn_auc(drawn: NDArray[np.int64]) -> Numbers:
        often = np.array([np.bincount(row, minlength=drawn.shape[1])[whose] for row in drawn], dtype=float)
        good, bad = often[:, safe], often[:, ~safe]
        pairs = good.sum(axis=1) * bad.sum(axis=1)
        both = pairs > 0  # a draw of one kind only has no AUC
        return np.asarray(((good @ ahead) * bad).sum(axis=1)[both] / pairs[both])

    if not request.resamples:
        return math.nan, math.nan
    return bootstrap_interval(drawn_auc, int(whose.max()) + 1, request.resamples, request.seed)
