"""Records of training risk gates: will reuse keep the judge's selection? Frozen and free of torch.

Source: judge study, Section 7 and Fig. 6: a simple classifier over features of the candidate set tells sets
that are safe under every reuse method from the others (AUC 0.82 there).
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.ranges import check_within
from backend.base.serialization import Saved
from backend.base.statistics import wilson
from backend.prompts.scoring import Scoring
from backend.records.judge import Judged
from backend.records.model_info import ModelInfo
from backend.records.risk_gate import RiskGate, own_features

RISK_FORMAT = 1
Booleans = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class CandidateSet:
    """One candidate set in one order before the judge, and what each method did to the selection.

    ``problem`` ties the orders of one problem together: they are always on the same side of a fold. ``own``:
    per method the features of ``OWN_FEATURES`` that are known of it. ``same``: the selection is dense's.
    ``copied``: share of the prompt's tokens that the method did not compute.
    """

    problem: str
    texts: tuple[str, ...]
    same: Mapping[str, bool]
    copied: Mapping[str, float]
    own: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)


def sets_of(judged: Judged) -> list[CandidateSet]:
    """The candidate sets of a judged batch, one per problem and order.

    Those where dense's own selection cannot be read are left out.
    """
    out = []
    for row in judged.rows:
        for order in judged.orders:
            by_method = {o.method: o for o in row.outcomes if o.order == order}
            reused = {m: o for m, o in by_method.items() if m != judged.labels[0]}
            if not reused or any(o.consistent is None for o in reused.values()):
                continue
            layout = next(iter(reused.values())).layout
            out.append(
                CandidateSet(
                    str(row.problem.number),
                    tuple(row.problem.candidates[place - 1].text for place in layout),
                    {m: bool(o.consistent) for m, o in reused.items()},
                    {m: o.reused_tokens / max(1, o.prompt_tokens) for m, o in reused.items()},
                    {m: own_features(o.entropies, o.first_margin) for m, o in reused.items()},
                )
            )
    return out


@dataclass(frozen=True)
class RiskRequest:
    """How gates are trained and tested.

    ``wanted``: the consistency (JCR) that the threshold is chosen for. ``penalty``: weight of the squared
    coefficients. ``resamples`` of the problems give the interval of the AUC.
    """

    scoring: Scoring = "number"
    folds: int = 5
    penalty: float = 1.0
    resamples: int = 1000
    wanted: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        limits = {"folds": (2, 20), "penalty": (0, 1000), "resamples": (0, 10_000), "wanted": (0, 1)}
        for name, (low, high) in limits.items():
            check_within(getattr(self, name), low, high, f"risk.{name}")


@dataclass(frozen=True)
class GateTest:
    """One target's cross-validated test, and the gate trained on all rows.

    Attributes:
        target: ``EVERY`` or a method's label; ``features`` the names that its columns have.
        safe: (sets,) the truth: the selection was dense's.
        asked: (sets,) something was copied; where nothing was, a gate is not asked, and learns nothing.
        score: (sets,) probability of safe from a fit that did not see the set's problem; NaN when untested.
        fold: (sets,) which fold tested it.
        auc, auc_low, auc_high: with a 95% interval from resampled problems; NaN when untested. The interval
            holds the luck of the tested problems, not that of the training.
        gate: None where there was nothing to learn, and ``refused`` says why.
    """

    target: str
    features: tuple[str, ...]
    safe: Booleans
    asked: Booleans
    score: Numbers
    fold: NDArray[np.int64]
    auc: float
    auc_low: float
    auc_high: float
    gate: RiskGate | None
    refused: str = ""


@dataclass(frozen=True)
class RiskRecord(Saved):
    """Gates trained on judged candidate sets.

    Attributes:
        problems: (sets,) which sets belong together.
        same: (sets, methods) the selection was dense's; ``copied``: (sets, methods) share of the prompt's
            tokens not computed.
        tests: ``EVERY`` first, then one per method.
    """

    request: RiskRequest
    model: ModelInfo
    problems: tuple[str, ...]
    methods: tuple[str, ...]
    same: Booleans
    copied: Numbers
    tests: tuple[GateTest, ...]
    wall_ms: float
    format: int = RISK_FORMAT


def roc(score: Numbers, safe: Booleans) -> tuple[Numbers, Numbers]:
    """False and true positive rates, (thresholds + 1,) each, from (0, 0) to (1, 1); *safe* is positive."""
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.diff(score[order], append=-np.inf))  # equal scores share a threshold
    hits, misses = np.cumsum(safe[order])[ends], np.cumsum(~safe[order])[ends]
    start = np.zeros(1)
    return (
        np.concatenate([start, misses / max(1, int((~safe).sum()))]),
        np.concatenate([start, hits / max(1, int(safe.sum()))]),
    )


@dataclass(frozen=True)
class Trade:
    """What a gate buys at each threshold; all (thresholds,), from *keep nothing* to *keep all*.

    ``kept``: share of candidate sets whose reuse is kept; ``copied``: share of prompt tokens then copied.
    ``consistency``: JCR, where a set that is read densely agrees with dense; with its 95% interval (Wilson).
    """

    threshold: Numbers
    kept: Numbers
    copied: Numbers
    consistency: Numbers
    low: Numbers
    high: Numbers


def trade(score: Numbers, same: Booleans, copied: Numbers) -> Trade:
    """Reuse against consistency as the threshold falls.

    Args:
        score: (sets,) probability of safe; ``same``: (sets,) this method's selection was dense's; ``copied``:
            (sets,) share of tokens it copies.
    """
    order = np.argsort(-score, kind="stable")
    ends = np.flatnonzero(np.diff(score[order], append=-np.inf))
    flips = np.concatenate([[0], np.cumsum(~same[order])[ends]])
    total = len(score)
    bounds = np.array([wilson(int(total - f), total) for f in flips])
    return Trade(
        np.concatenate([[np.inf], score[order][ends]]),
        np.concatenate([[0.0], (ends + 1) / total]),
        np.concatenate([[0.0], np.cumsum(copied[order])[ends] / total]),
        1 - flips / total,
        bounds[:, 0],
        bounds[:, 1],
    )


@dataclass(frozen=True)
class Reliability:
    """Sets in groups of equal size by score, all (groups,): mean score, share that was safe with its 95%
    interval (Wilson), number of sets."""

    score: Numbers
    share: Numbers
    low: Numbers
    high: Numbers
    sets: NDArray[np.int64]


def reliability(score: Numbers, safe: Booleans) -> Reliability:
    """Does a score of 0.8 mean that 80% are safe?"""
    parts = [p for p in np.array_split(np.argsort(score, kind="stable"), 8) if len(p)]
    bounds = np.array([wilson(int(safe[p].sum()), len(p)) for p in parts])
    return Reliability(
        np.array([score[p].mean() for p in parts]),
        np.array([safe[p].mean() for p in parts]),
        bounds[:, 0],
        bounds[:, 1],
        np.array([len(p) for p in parts]),
    )
