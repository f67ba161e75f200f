"""Anchor pools: gate, insertion and eviction (KVCOMM, Eq. 5 and Section 3.3).

A pool is an ordered set of observation numbers with use counts; the tensors stay in the log. How anchors are
weighed is in :mod:`backend.methods.kvcomm.weights`.

Readings of points that the paper leaves open
    * Eligible anchors (A_phi) are those at least as long as the sample ("longer" would exclude
      equal lengths, for which the alignment is perfect).
    * Entropy carries the minus sign that Eq. 5 lacks; the log's base cancels.
    * The gate needs one distribution over the anchors and takes the sequence form of the weights; where the
      weighing has none of its own (*nearest*, *uniform*), the softmax of the distances.
    * An empty pool makes an anchor (the maximum over nothing is below any length).
    * An entropy over the threshold by rounding alone is within it: else gamma 1, the entropy of even weights,
      would refuse a text that is as near to every anchor as to any other.
    * Eviction: "the least frequently accessed among the earliest-added": among the first quarter
      (at least one), ties to the oldest. An access is being mixed into a reuse. The public code counts once
      per text instead, at the gate, and makes room in the turn of every agent that reads a new text afresh
      (:meth:`AnchorPool.read_afresh`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Literal

import torch
from torch import Tensor

from backend.cache.kernels.distances import squared_distances
from backend.cache.samples import Sample, SampleLog
from backend.methods.kvcomm.weights import (
    Match,
    Turn,
    Weighing,
    base_of,
    dissimilarities,
    of_sequences,
    weigh,
    weights,
)
from backend.records.run import GateDecision

GateRule = Literal["entropy", "length", "closeness", "shipped"]
Eviction = Literal["published", "shipped", "least used"]
WeightsFrom = Literal["each agent", "first agent"]
COUNTED_MASS = 0.9  # as shipped: the heaviest anchors count as used while they hold less than this together
ROUNDING = 1e-6  # an entropy is rounded by at most about this share of that of even weights


@dataclass(frozen=True)
class PoolRules:
    """How a pool gates, weighs and evicts.

    ``gate``: *entropy* (Eq. 5); *length*: any anchor long enough will do (Table A.3); *closeness*: the
    nearest anchor must be near, and either one anchor stands out or all that weigh are near; *shipped*: the
    public implementation's (two entries and two eligible anchors at least, distances between the values).
    ``closeness``: the allowed distance per token, as a share of the token embeddings' own norm.
    ``eviction``: *published*; *shipped*: the least counted of the first five, one late, in every dense
    reader's turn, and counted at the gate; *least used*: of all, ties to the oldest.
    ``weights_from``: *each agent* matches for itself, or all mix by the weights that the *first agent* to
    reuse the text found (as shipped).
    ``budget_bytes``: what the anchors may take, beside their number; 0 sets no limit.
    """

    capacity: int = 20
    gamma: float = 0.3
    gate: GateRule = "entropy"
    closeness: float = 0.5
    eviction: Eviction = "published"
    weighing: Weighing = field(default_factory=Weighing)
    weights_from: WeightsFrom = "each agent"
    budget_bytes: int = 0


def entropy(weights: Tensor) -> float:
    """-sum w log w in nats; 0 log 0 is 0."""
    return float(torch.special.entr(weights.double()).sum())


@dataclass
class AnchorPool:
    """The anchors of one placeholder."""

    placeholder: str
    rules: PoolRules = field(default_factory=PoolRules)
    uses: dict[int, int] = field(default_factory=dict)  # observation number -> accesses, in insertion order
    # Dissimilarities of the sample last measured, by anchor: the gate computes, matching reads them.
    _measured: tuple[int, dict[int, Tensor]] = (0, {})
    # The sample last matched, its anchors' numbers, and its first agent's weights; without the anchors, so
    # that none is kept alive that left the log.
    _first: tuple[int, tuple[int, ...], Match] | None = None

    @property
    def capacity(self) -> int:
        return self.rules.capacity

    def eligible(self, sample: Sample, log: SampleLog, agent: int | None = None) -> list[Sample]:
        """Anchors at least as long as the sample; with ``agent``, those with an offset seen there."""
        anchors = [log.samples[n] for n in self.uses if n in log.samples and n != sample.number]
        return [o for o in anchors if o.tokens >= sample.tokens and (agent is None or agent in o.offsets)]

    def scores(self, sample: Sample, anchors: Sequence[Sample]) -> Tensor:
        """Dissimilarity of each token (anchors, tokens) of a sample; each is computed once."""
        if self._measured[0] != sample.number:
            self._measured = (sample.number, {})
        scores, weighing = self._measured[1], self.rules.weighing
        missing = [anchor for anchor in anchors if anchor.number not in scores]
        if missing:
            computed = dissimilarities(sample, missing, weighing)
            scores.update(zip((anchor.number for anchor in missing), computed, strict=True))
        return torch.stack([scores[a.number] for a in anchors])

    def _gate_distances(self, sample: Sample, anchors: Sequence[Sample]) -> Tensor:
        """Sequence distances (anchors,) that the gate looks at."""
        if self.rules.gate != "shipped":
            return of_sequences(self.scores(sample, anchors), self.rules.weighing)
        sample_values, *anchor_values = (
            base_of(o, self.rules.weighing.text_base).values for o in (sample, *anchors)
        )
        return torch.stack([(sample_values - x[:, :, : sample.tokens]).norm() for x in anchor_values])

    def _nearness(self, sample: Sample, anchors: Sequence[Sample]) -> Tensor:
        """Mean distance per token (anchors,) as a share of the tokens' own mean norm."""
        weighing = self.rules.weighing
        if (weighing.compared, weighing.norm) == ("embedding", "mean") and weighing.approximation != "cosine":
            return self.scores(sample, anchors).sqrt().mean(dim=1)  # the same, and known
        norm: Tensor = sample.descriptor.norm(dim=-1).mean().clamp_min(1e-9)
        squared = squared_distances(sample.features, [a.features for a in anchors])
        return squared.sqrt().mean(dim=1) / norm

    def gate(self, sample: Sample, log: SampleLog) -> GateDecision:
        """Is the sample shareable, or does it become an anchor? (Eq. 5)"""
        gamma, rule = self.rules.gamma, self.rules.gate
        anchors = self.eligible(sample, log)
        size = len(self.uses)
        facts = {
            "placeholder": sample.placeholder, "tokens": sample.tokens, "pool_size": size,
            "eligible": len(anchors), "entropy": None, "threshold": None,
        }  # fmt: skip

        def verdict(shareable: bool, rule: str, reason: str, **more: object) -> GateDecision:
            values: dict[str, Any] = facts | more
            return GateDecision(shareable=shareable, rule=rule, reason=reason, **values)

        if self.capacity == 0:
            return verdict(False, "no pool", "The pool size V is 0: nothing is shared.")
        if not size:
            return verdict(False, "empty pool", "The pool is empty: this text becomes its first anchor.")
        if not anchors:
            longest = max((log.samples[n].tokens for n in self.uses if n in log.samples), default=0)
            return verdict(
                False,
                "longer than every anchor",
                f"{sample.tokens} tokens are longer than every anchor (the longest has {longest}): it "
                "becomes an anchor.",
            )
        if rule == "shipped" and (size < 2 or len(anchors) < 2):
            return verdict(
                False,
                "too few anchors",
                f"Fewer than two anchors are long enough ({len(anchors)} of {size}): it becomes an anchor.",
            )
        self._measured = (0, {})  # a sample is gated once, when it arrives
        distances = self._gate_distances(sample, anchors).cpu()  # a decision waits for the device, once
        weighing = self.rules.weighing
        if weighing.approximation in ("nearest", "uniform"):
            weighing = replace(weighing, approximation="softmax")
        weight = weights(distances, weighing)
        even_entropy = math.log(len(anchors))
        spread, threshold = entropy(weight), gamma * even_entropy
        if threshold < spread <= threshold + ROUNDING * even_entropy:
            spread = threshold
        shareable = gamma > 0 and spread <= threshold
        nearest = anchors[int(distances.argmin())]
        if rule == "length":
            shareable = gamma > 0
            reason = f"{len(anchors)} anchors are long enough, and this gate asks for nothing else."
        elif rule == "closeness":
            distances_per_token = self._nearness(sample, anchors).cpu()
            least, mean = float(distances_per_token.min()), float((weight * distances_per_token).sum())
            limit = self.rules.closeness
            shareable = gamma > 0 and least <= limit and (shareable or mean <= limit)
            reason = (
                f"The nearest anchor is {least:.2f} of a token's norm away, the weighted mean {mean:.2f}; "
                f"{limit:g} is allowed. Entropy {spread:.2f}, threshold {threshold:.2f}. "
                + ("Near enough to be trusted." if shareable else "It becomes an anchor.")
            )
        elif shareable:
            reason = (
                f"Entropy {spread:.2f} is within {threshold:.2f} (gamma {gamma:g} x log {len(anchors)}): "
                f"anchor {nearest.number} stands out, so its offsets can be trusted."
            )
        else:
            reason = (
                f"Entropy {spread:.2f} is over {threshold:.2f} (gamma {gamma:g} x log {len(anchors)}): "
                "no anchor stands out, so it becomes an anchor."
            )
        if gamma <= 0:
            reason = "Gamma is 0, so nothing is shared: this text becomes an anchor."
        return verdict(
            shareable,
            "entropy" if rule == "shipped" else rule,
            reason,
            entropy=spread,
            threshold=threshold,
            anchors=tuple(a.number for a in anchors),
            weights=tuple(weight.tolist()),
            distances=tuple(distances.tolist()),
            previews=tuple(a.preview for a in anchors),
        )

    def match(
        self,
        sample: Sample,
        agent: int,
        followers: list[str] | None,
        log: SampleLog,
        turn: Turn | None = None,
    ) -> Match | None:
        """Weights of Eq. 6 and 7 over the anchors that know this agent; None when there is none.

        ``followers``: only anchors behind which the same prefix segments stood; None: all, for texts that
        may stand in any slot. ``turn``: see :func:`backend.methods.kvcomm.weights.weigh`. With the first
        agent's weights, None also when one of the anchors that they belong to does not know this agent (the
        public code stops with an error there).
        """
        anchors = [
            a
            for a in self.eligible(sample, log, agent)
            if followers is None or list(a.offsets[agent].followers) == followers
        ]
        first = self._first if self.rules.weights_from == "first agent" else None
        if first is not None and first[0] == sample.number:
            _, numbers, match = first
            by_number = {a.number: a for a in anchors}
            if not by_number.keys() >= set(numbers):
                return None
            return replace(match, anchors=tuple(by_number[n] for n in numbers))
        if not anchors:
            return None
        match = weigh(sample, anchors, self.scores(sample, anchors), self.rules.weighing, turn)
        if self.rules.weights_from == "first agent":
            self._first = (sample.number, tuple(a.number for a in match.anchors), replace(match, anchors=()))
        return match

    def count_uses(self, match: Match) -> None:
        """Count an access of each anchor that was mixed in; as shipped they were counted at the gate."""
        if self.rules.eviction != "shipped":
            for anchor in match.anchors:
                self.uses[anchor.number] += 1

    def count_gated(self, decision: GateDecision) -> None:
        """As shipped: count the anchors that a shared text leans on, the heaviest as long as they hold less
        than :data:`COUNTED_MASS` of the weight together. Where the heaviest alone has as much, all count."""
        if self.rules.eviction != "shipped" or not decision.shareable:
            return
        ranked = sorted(zip(decision.anchors, decision.weights, strict=True), key=lambda pair: -pair[1])
        cumulative = accumulate(weight for _, weight in ranked)
        counted = [
            number for (number, _), mass in zip(ranked, cumulative, strict=True) if mass < COUNTED_MASS
        ]
        for number in counted or decision.anchors:
            self.uses[number] += 1

    def insert(self, sample: Sample) -> int | None:
        """Add an anchor; returns the number of the one that had to go, if any."""
        if self.capacity == 0 or sample.number in self.uses:
            return None
        self.uses[sample.number] = 0
        return self._evict() if len(self.uses) > self.capacity else None

    def read_afresh(self, sample: Sample) -> int | None:
        """As shipped, in the turn of each agent that reads a new text afresh: make room if the pool holds
        more than V, then add the text if it is not there. Returns the number of the anchor that had to go.

        So one reader leaves V + 1 anchors and several leave V. With V under 5 the public code may drop the
        newcomer itself and stop with an error later; here it stays.
        """
        if self.capacity == 0:
            return None
        victim = self._evict(sample.number) if len(self.uses) > self.capacity else None
        self.uses.setdefault(sample.number, 0)
        return victim

    def trim(self, log: SampleLog, size: Callable[[Sample], int]) -> list[int]:
        """Drop anchors by the eviction rule until the others keep to the byte budget; all of them, if even
        the last is too large.

        Args:
            log: holds the anchors.
            size: bytes that an anchor takes.

        Returns:
            the numbers dropped, in that order.
        """
        if not self.rules.budget_bytes:
            return []
        sizes = {n: size(log.samples[n]) for n in self.uses if n in log.samples}
        held_bytes, victims = sum(sizes.values()), []
        while held_bytes > self.rules.budget_bytes:
            victims.append(self._evict())
            held_bytes -= sizes.get(victims[-1], 0)
        return victims

    def _evict(self, newcomer: int | None = None) -> int:
        """Drop one anchor by the eviction rule; ties go to the oldest, as min keeps the first."""
        numbers = [number for number in self.uses if number != newcomer]
        first = {
            "published": max(1, self.capacity // 4),
            "shipped": 5,
            # the newest has had no chance to be used
            "least used": max(1, len(numbers) - 1),
        }[self.rules.eviction]
        victim = min(numbers[:first], key=self.uses.__getitem__)
        del self.uses[victim]
        return victim
