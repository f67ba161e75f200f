"""Past requests under other settings: what was replayed, and how it compares. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.base.serialization import Saved
from backend.records.model_info import ModelInfo
from backend.records.request import RunRequest
from backend.records.run import AgentState, GateDecision

REPLAY_FORMAT = 1
MOST_REPLAYED = 200


@dataclass(frozen=True)
class PastRequest:
    """A replayed request: its place among all that were sent, from 1, what it asked and the known answer."""

    number: int
    values: Mapping[str, str]
    expected: str | None


@dataclass(frozen=True)
class Replayed:
    """One agent under one method at a past request.

    Attributes:
        request: the request's number.
        method: the choice's label; dense's own rows hold what it answered at the time.
        gate: as decided again, without the lists of anchors.
        prompt_tokens, reused_tokens: of the prompt, and those of them that the method copies.
        blocks, reused_blocks: texts in placeholders, and those of them that it copies whole.
        forwarded_tokens: prompt tokens that the replay forwarded. 0 where the method shares nothing: its
            text is dense's by definition.
        texts: what each token of the answer adds to ``text``.
        as_dense: the same answer as dense's, or the same text where no answer can be read off.
    """

    request: int
    agent: int
    method: str
    state: AgentState
    reason: str
    gate: tuple[GateDecision, ...]
    prompt_tokens: int
    reused_tokens: int
    blocks: int
    reused_blocks: int
    forwarded_tokens: int
    text: str
    texts: tuple[str, ...]
    answer: str | None
    as_dense: bool
    correct: bool | None


@dataclass(frozen=True)
class Replay(Saved):
    """Past pinned requests under other methods or options, from the log alone.

    Attributes:
        request: pipeline, methods and decoding; its values belong to no request.
        requests: those replayed, oldest first; ``rows`` hold for each its agents in running order, and for
            each of these dense first, then the methods.
        held, forgotten: past requests that the log still holds, and those that left it for want of memory.
            Pools were built from those held alone.
        log_bytes, budget_bytes: what the log holds, and most that it may.
        cache_bytes: most that the methods' caches may have taken at one time.
        prefill_tokens, decode_tokens, encoded_tokens: what the replay forwarded: prompt tokens that plans
            left to the model, generated tokens, and outside texts that a method wanted encoded otherwise.
        again_tokens: prompt tokens that sending all held requests again would have forwarded: dense's of
            each, and the methods' own of those replayed.
        notes: methods left out, and why.
    """

    request: RunRequest
    model: ModelInfo
    requests: tuple[PastRequest, ...]
    rows: tuple[Replayed, ...]
    held: int
    forgotten: int
    log_bytes: int
    budget_bytes: int
    cache_bytes: int
    prefill_tokens: int
    decode_tokens: int
    encoded_tokens: int
    again_tokens: int
    wall_ms: float
    notes: tuple[str, ...] = ()
    format: int = REPLAY_FORMAT

    @property
    def labels(self) -> tuple[str, ...]:
        """Method labels in column order, dense first."""
        return tuple(dict.fromkeys(row.method for row in self.rows))

    @property
    def agents(self) -> tuple[int, ...]:
        """Agent ids in running order."""
        return tuple(dict.fromkeys(row.agent for row in self.rows))
