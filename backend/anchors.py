"""Anchor pools: gate, weights, insertion and eviction (KVCOMM, Eq. 5 and Section 3.3).

A pool is an ordered set of observation numbers with use counts; the tensors stay in the log.

Readings of points that the paper leaves open
    * *h* is the input embedding of the tokens (h at layer 1, Section 3.1).
    * Weights ``token``: one softmax "across the anchor dimension" per token, averaged over the tokens
      for the following prefix segment; ``sequence``: one weight per anchor. The gate needs one
      distribution and takes the sequence form.
    * The distance of two sequences, ``sum``: the sum of their tokens' L2 distances (a sequence's
      unnormalised weight is then the product of its tokens'); ``frobenius``: the norm of H - H_a as one
      long vector. The two decide the reuse rate: see FINDINGS.md.
    * Truncation: an anchor longer than the sample is cut to the sample's length at its end.
    * Eligible anchors (A_phi) are those at least as long as the sample ("longer" would exclude
      equal lengths, for which the alignment is perfect).
    * Entropy carries the minus sign that Eq. 5 lacks; the log's base cancels.
    * An empty pool makes an anchor (the maximum over nothing is below any length).
    * Eviction: "the least frequently accessed among the earliest-added": among the first quarter
      (at least one), ties to the oldest. An access is being mixed into a reuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from backend.records import GateDecision
from backend.store import Observation, ObservationLog

Distance = Literal["sequence", "token"]
Norm = Literal["sum", "frobenius"]


def squared_distances(descriptor: Tensor, anchor: Tensor) -> Tensor:
    """Squared L2 distance of each token to the anchor's at the same place, (tokens,); the anchor is cut."""
    return (descriptor - anchor[: descriptor.shape[0]]).square().sum(dim=-1)


def entropy(weights: Tensor) -> float:
    """-sum w log w in nats; 0 log 0 is 0."""
    return float(torch.special.entr(weights.double()).sum())


@dataclass(frozen=True)
class Match:
    """A sample's weights over anchors: ``sequence`` (anchors,); ``token`` (anchors, tokens) or None."""

    anchors: tuple[Observation, ...]
    sequence: Tensor
    token: Tensor | None


@dataclass
class AnchorPool:
    """The anchors of one placeholder."""

    placeholder: str
    capacity: int
    norm: Norm = "sum"
    uses: dict[int, int] = field(default_factory=dict)  # observation number -> accesses, in insertion order
    # Squared token distances of the sample last measured, by anchor: the gate finds, matching reads them.
    _measured: tuple[int, dict[int, Tensor]] = (0, {})

    def eligible(
        self, sample: Observation, log: ObservationLog, agent: int | None = None
    ) -> list[Observation]:
        """Anchors at least as long as the sample; with ``agent``, those with an offset seen there."""
        found = [log.observations[n] for n in self.uses if n in log.observations and n != sample.number]
        return [o for o in found if o.tokens >= sample.tokens and (agent is None or agent in o.offsets)]

    def distances(self, sample: Observation, anchors: Sequence[Observation]) -> Tensor:
        """Squared token distances (anchors, tokens) of a sample; each is computed once."""
        if self._measured[0] != sample.number:
            self._measured = (sample.number, {})
        known = self._measured[1]
        for anchor in anchors:
            if anchor.number not in known:
                known[anchor.number] = squared_distances(sample.descriptor, anchor.descriptor)
        return torch.stack([known[a.number] for a in anchors])

    def _of_sequences(self, squared: Tensor) -> Tensor:
        """Sequence distances (anchors,) from squared token distances (anchors, tokens)."""
        return squared.sqrt().sum(dim=1) if self.norm == "sum" else squared.sum(dim=1).sqrt()

    def gate(self, sample: Observation, gamma: float, log: ObservationLog) -> GateDecision:
        """Is the sample shareable, or does it become an anchor? (Eq. 5)"""
        anchors = self.eligible(sample, log)
        size = len(self.uses)
        facts = {
            "placeholder": sample.placeholder,
            "tokens": sample.tokens,
            "pool_size": size,
            "eligible": len(anchors),
        }

        def verdict(shareable: bool, rule: str, reason: str, **more: object) -> GateDecision:
            values: dict[str, Any] = facts | more
            return GateDecision(shareable=shareable, rule=rule, reason=reason, **values)

        if self.capacity == 0:
            return verdict(
                False, "no pool", "The pool size V is 0: nothing is shared.", entropy=None, threshold=None
            )
        if not size:
            return verdict(
                False,
                "empty pool",
                "The pool is empty: this text becomes its first anchor.",
                entropy=None,
                threshold=None,
            )
        if not anchors:
            longest = max((log.observations[n].tokens for n in self.uses if n in log.observations), default=0)
            return verdict(
                False,
                "longer than every anchor",
                f"{sample.tokens} tokens are longer than every anchor (the longest has {longest}): it "
                "becomes an anchor.",
                entropy=None,
                threshold=None,
            )
        self._measured = (0, {})  # a sample is gated once, when it arrives
        distances = self._of_sequences(self.distances(sample, anchors))
        weights = torch.softmax(-distances, dim=0)
        found, threshold = entropy(weights), gamma * math.log(len(anchors))
        shareable = gamma > 0 and found <= threshold
        nearest = anchors[int(distances.argmin())]
        if shareable:
            reason = (
                f"Entropy {found:.2f} is within {threshold:.2f} (gamma {gamma:g} x log {len(anchors)}): "
                f"anchor {nearest.number} stands out, so its offsets can be trusted."
            )
        elif gamma <= 0:
            reason = "Gamma is 0, so nothing is shared: this text becomes an anchor."
        else:
            reason = (
                f"Entropy {found:.2f} is over {threshold:.2f} (gamma {gamma:g} x log {len(anchors)}): "
                "no anchor stands out, so it becomes an anchor."
            )
        return verdict(
            shareable,
            "entropy",
            reason,
            entropy=found,
            threshold=threshold,
            anchors=tuple(a.number for a in anchors),
            weights=tuple(weights.tolist()),
            distances=tuple(distances.tolist()),
            previews=tuple(a.preview for a in anchors),
        )

    def match(
        self, sample: Observation, agent: int, followers: list[str], log: ObservationLog, how: Distance
    ) -> Match | None:
        """Weights of Eq. 6 over the anchors that know this agent; None when there is none."""
        anchors = [
            a for a in self.eligible(sample, log, agent) if list(a.offsets[agent].followers) == followers
        ]
        if not anchors:
            return None
        squared = self.distances(sample, anchors)
        if how == "token":
            token = torch.softmax(-squared.sqrt(), dim=0)
            return Match(tuple(anchors), token.mean(dim=1), token)
        return Match(tuple(anchors), torch.softmax(-self._of_sequences(squared), dim=0), None)

    def used(self, anchors: Sequence[Observation]) -> None:
        """Count an access of each anchor."""
        for anchor in anchors:
            self.uses[anchor.number] += 1

    def insert(self, sample: Observation) -> int | None:
        """Add an anchor; returns the number of the one that had to go, if any."""
        if self.capacity == 0 or sample.number in self.uses:
            return None
        self.uses[sample.number] = 0
        if len(self.uses) <= self.capacity:
            return None
        earliest = list(self.uses)[: max(1, self.capacity // 4)]
        victim = min(earliest, key=self.uses.__getitem__)  # ties: the oldest, as min keeps the first
        del self.uses[victim]
        return victim
