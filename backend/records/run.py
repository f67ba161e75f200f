"""The record of a run: :class:`RunRecord`. Frozen and free of torch.

A record holds everything a page shows: figures are drawn from it alone. ``RunRecord.save`` writes one file (a
zip of ``record.json`` and NumPy arrays) and ``RunRecord.load`` reads it back without loss.

Axes: ``layers`` is the number of decoder layers, ``tokens`` the length of one agent's prompt.
Distances between keys are taken position-free (rotation undone), so they hold no position effect.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import RecordError
from backend.base.serialization import Saved
from backend.base.text import Tax, sum_taxes
from backend.records.familiarity import Familiarity
from backend.records.model_info import ModelInfo
from backend.records.pools import PoolState, PoolView
from backend.records.prompt import Prompt, Span
from backend.records.request import RunRequest
from backend.records.transfer import Transfer

FORMAT = 1
AgentState = Literal["dense", "reused", "partial", "fallback"]

NEAR_TIE = 10.0  # a top-2 gap below this many floors is a near tie

#: Ends the source of a copy whose text was encoded before, so that nothing had to be encoded now.
EARLIER = "earlier in this session"

#: What happened to a token's KV at one layer; the codes of ``Outcome.actions``.
ACTIONS = ("computed", "reused", "corrected", "recomputed")
COMPUTED, REUSED, CORRECTED, RECOMPUTED = range(4)


#: Where a token's KV came from, in the words that users of serving systems proposed: equal to what dense
#: would compute, from this agent's earlier prompts or from elsewhere; approximated; found but not taken;
#: read afresh because a gate or a probe said so; read afresh as nothing was there to take.
Provenance = Literal["exact local", "exact external", "semantic", "rejected", "fallback", "computed"]
PROVENANCE: tuple[Provenance, ...] = typing.get_args(Provenance)


def reuse(spans: Sequence[Span], actions: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Tokens copied, placeholder texts (blocks), and those of them that were copied whole.

    Args:
        spans: the prompt's.
        actions: (layers, tokens), codes of ``ACTIONS``.
    """
    computed: NDArray[np.bool_] = np.asarray(np.isin(actions, (COMPUTED, RECOMPUTED)).all(axis=0))
    blocks = [s for s in spans if s.kind == "placeholder" and s.end > s.start]
    # The last prompt token is always forwarded; it does not make its block a computed one.
    whole = sum(1 for s in blocks if not computed[s.start : min(s.end, len(computed) - 1)].any())
    return int((~computed).sum()), len(blocks), whole


@dataclass(frozen=True)
class GateDecision:
    """Why a placeholder's sample was shared or became an anchor (KVCOMM, Eq. 5)."""

    placeholder: str
    shareable: bool
    rule: str  # "no pool", "empty pool", "longer than every anchor", "entropy"
    reason: str  # one sentence for a person
    tokens: int
    pool_size: int
    eligible: int
    entropy: float | None
    threshold: float | None
    anchors: tuple[int, ...] = ()  # observation numbers, as in Outcome.mixes
    weights: tuple[float, ...] = ()
    distances: tuple[float, ...] = ()
    previews: tuple[str, ...] = ()  # the start of each anchor's text


@dataclass(frozen=True)
class SpanAction:
    """What was done to a run of prompt tokens, and from where it came. ``action`` is that at the last layer;
    ``provenance`` is empty in records of earlier versions."""

    start: int
    end: int
    action: int  # index into ACTIONS
    source: str  # for a person: "encoded alone", "agent 1's own context", "anchors 3, 7", "forward pass"
    reason: str
    exact: bool  # False when the copied KV itself came from an approximate cache
    moved_by: int = 0  # positions the copied keys were moved by
    anchors: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    provenance: Provenance | Literal[""] = ""


@dataclass(frozen=True)
class LinkAction:
    """Soft tokens that a method put before prompt token ``at``."""

    at: int
    tokens: int
    reason: str


@dataclass(frozen=True)
class Mix:
    """The weights by which a span's correction was mixed; over the anchors they sum to one.

    ``*_by_token``: (anchors, tokens), means over layers, heads and channels; ``*_by_layer``: (anchors,
    layers), means over tokens, heads and channels.
    """

    start: int
    end: int
    anchors: tuple[int, ...]
    keys_by_token: NDArray[np.float32]
    values_by_token: NDArray[np.float32]
    keys_by_layer: NDArray[np.float32]
    values_by_layer: NDArray[np.float32]


@dataclass(frozen=True)
class Timing:
    """Time to first token of one agent, from the last upstream token on, in milliseconds.

    ``parts_ms`` keys, in order: ``base`` (encoding missing segments), ``gate``, ``match``,
    ``correct``, ``rotate``, ``prefill`` (tokens forwarded densely), ``select`` (choosing tokens to compute
    again), ``recompute`` (computing them), ``first_token`` (the last prompt token's forward), ``accept``
    (probing the result), ``fallback`` (reading the whole prompt after all). Measured once, with no probe
    attached.

    ``token_layers`` counts every token at every layer that it was forwarded through, those of hooks, soft
    tokens and fallbacks included; ``forwarded_tokens`` is that in whole passes, rounded up.
    """

    parts_ms: Mapping[str, float]
    ttft_ms: float
    decode_ms: float  # the whole batch's decoding time, shared by all methods decoded with it
    forwarded_tokens: int
    token_layers: int = 0  # 0 in records of earlier versions


@dataclass(frozen=True)
class Fidelity:
    """Nearness to dense. KL in nats, dense || method. Only in pinned mode.

    ``first_divergence`` is the index of the first generated token that differs (None: same text),
    ``margin`` dense's top-2 logit gap at that token, ``floor`` the largest logit difference of dense
    against dense computed in another way on the same prompt.
    """

    kl_first: float
    kl_tokens: NDArray[np.float32]  # (response tokens,) along dense's response
    first_divergence: int | None
    dense_token: str
    method_token: str
    margin: float | None
    floor: float
    logit_difference: float  # largest absolute logit difference at the first token
    # the likeliest tokens at the first divergence with both probabilities; empty without one and in earlier
    # versions' records
    likely: tuple[str, ...] = ()
    dense_chances: tuple[float, ...] = ()
    method_chances: tuple[float, ...] = ()

    @property
    def near_tie(self) -> bool:
        """Could rounding alone have swapped dense's two best tokens?"""
        return self.margin is not None and self.margin < NEAR_TIE * self.floor


@dataclass(frozen=True)
class Outcome:
    """One agent under one method."""

    agent: int
    method: str  # the choice's label
    prompt: int  # index into RunRecord.prompts
    state: AgentState
    reason: str
    text: str
    token_ids: NDArray[np.int64]
    texts: tuple[str, ...]
    stopped: bool  # ended by a stop token rather than by the length limit
    answer: str | None
    correct: bool | None
    actions: NDArray[np.uint8]  # (layers, tokens), codes of ACTIONS
    spans: tuple[SpanAction, ...]
    gate: tuple[GateDecision, ...]
    timing: Timing
    fidelity: Fidelity | None = None
    # relative L2 error of this method's cache against dense, (layers, tokens); pinned mode only
    key_error: NDArray[np.float32] | None = None
    value_error: NDArray[np.float32] | None = None
    mixes: tuple[Mix, ...] = ()
    links: tuple[LinkAction, ...] = ()
    transfers: tuple[Transfer, ...] = ()  # of the texts that were copied; none in records of earlier versions

    @property
    def copied_tokens(self) -> int:
        """Prompt tokens of which at least one layer was taken from a cache."""
        return reuse((), self.actions)[0]


@dataclass(frozen=True)
class OffsetProbe:
    """True offsets of one agent's prompt: dense KV in context minus base KV, per layer and token.

    Norms over heads and channels, (layers, tokens); ``*_norm`` is the dense KV's own norm, so that
    ``key_offset / key_norm`` is relative. Tokens without a base (the first segment) hold 0.
    ``key_unaligned`` is the key difference with rotation left in, to show why alignment comes first.
    """

    agent: int
    prompt: int
    key_offset: NDArray[np.float32]
    value_offset: NDArray[np.float32]
    key_unaligned: NDArray[np.float32]
    key_norm: NDArray[np.float32]
    value_norm: NDArray[np.float32]


@dataclass(frozen=True)
class AttentionProbe:
    """Where one generated token of one agent under one method was read from.

    ``query`` names the generated token: the *first*, or the *selecting* one, which names a candidate. It is
    the query before it that looks: the last prompt token for the first. Each method's answer is its own.

    Attributes:
        at: index of the generated token in the answer; ``token`` what it adds to the text.
        regions: names of what was looked at: the prompt's spans that hold tokens, then ``links`` (soft
            tokens, where a method put some) and ``answer`` (what was written before the token).
        mass: (layers, heads, regions) attention that each region gets in all; sums to one over the regions.
        tokens: (layers, tokens) attention that each prompt token gets, mean over heads.
    """

    agent: int
    method: str
    prompt: int
    query: Literal["first", "selecting"]
    at: int
    token: str
    regions: tuple[str, ...]
    mass: NDArray[np.float32]
    tokens: NDArray[np.float32]


@dataclass(frozen=True)
class ToolUse:
    """What an agent's tool gave for its answer; under *free* per method, else under dense."""

    agent: int
    method: str
    tool: str
    text: str
    ok: bool
    reason: str
    wall_ms: float


@dataclass(frozen=True)
class ShadowCheck:
    """One answer beside dense's to the very same prompt, found out afterwards
    (:mod:`backend.session.shadow_check`).

    ``dense_answer``: None where none can be read off, and then whole texts were compared.
    ``forwarded_tokens``, ``wall_ms``: what finding out took; 0 where dense was known, or is what was served.
    """

    agent: int
    method: str  # the choice's label
    dense_answer: str | None
    flipped: bool
    forwarded_tokens: int
    wall_ms: float


@dataclass(frozen=True)
class RunRecord(Saved):
    """Everything that the page shows of a run."""

    id: str
    created: str  # ISO 8601, UTC
    versions: Mapping[str, str]
    model: ModelInfo
    request: RunRequest
    prompts: tuple[Prompt, ...]
    outcomes: tuple[Outcome, ...]  # agent by agent in running order, dense first
    offsets: tuple[OffsetProbe, ...]
    pools: tuple[PoolState, ...]
    wall_ms: float
    notes: tuple[str, ...] = ()
    tools: tuple[ToolUse, ...] = ()
    pool_views: tuple[PoolView, ...] = ()
    attention: tuple[AttentionProbe, ...] = ()
    shadow: tuple[ShadowCheck, ...] = ()
    familiarity: Familiarity | None = None  # not measured, or of an earlier version
    format: int = FORMAT

    def outcome(self, agent: int, method: str) -> Outcome:
        """The outcome of one agent under one method label."""
        for outcome in self.outcomes:
            if outcome.agent == agent and outcome.method == method:
                return outcome
        raise KeyError((agent, method))

    @property
    def labels(self) -> tuple[str, ...]:
        """Method labels in column order, dense first."""
        return tuple(dict.fromkeys(o.method for o in self.outcomes))

    @property
    def agents(self) -> tuple[int, ...]:
        """Agent ids in running order."""
        return tuple(dict.fromkeys(o.agent for o in self.outcomes))

    @property
    def boundary_tax(self) -> Tax | None:
        """Boundary tokens of dense's prompts, and all their tokens; None in records of earlier versions."""
        prompts = [self.prompts[o.prompt] for o in self.outcomes if o.method == self.labels[0]]
        counts = [(p.boundary_tokens, len(p.token_ids)) for p in prompts]
        return sum_taxes(None if taxed is None else (taxed, total) for taxed, total in counts)

    def save(self, path: Path) -> Path:
        """Write the record to one file."""
        path.write_bytes(self.to_bytes())
        return path

    @staticmethod
    def load(path: Path) -> RunRecord:
        """Read a saved record.

        Raises:
            RecordError: the file is missing, damaged, or of another format.
        """
        try:
            content = path.read_bytes()
        except OSError as error:
            raise RecordError(
                f"The record {path.name} cannot be read: {error.strerror}. Choose another file."
            ) from None
        return RunRecord.from_bytes(content)
