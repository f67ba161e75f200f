"""Records of measurements: on the model itself, without a request, and on past requests under other settings.
Frozen and free of torch, like :mod:`backend.records.run`; pictures are drawn from them alone."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import OptionError
from backend.base.serialization import pack, unpack
from backend.base.statistics import mean_interval, wilson
from backend.prompts.pipeline import Pipeline
from backend.records.run import AgentState, GateDecision, ModelInfo, RunRequest

PROXIMITY_FORMAT = 1
BINS = ("near", "mid", "far")
LIMITS: dict[str, tuple[int, int]] = {
    "vocabulary": (10, 20_000),
    "pairs": (9, 3000),
    "seed": (0, 2**31 - 1),
}

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ProximityRequest:
    """What is measured: pairs of single tokens behind one prefix, and behind two (KVCOMM, Fig. 4).

    ``vocabulary``: tokens sampled (all that were trained when there are fewer); ``pairs``: the nearest of
    them, in three bins of equal size.
    """

    prefix_a: str
    prefix_b: str
    vocabulary: int = 4000
    pairs: int = 300
    seed: int = 0


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation at each layer (layers,), NaN where one side is constant, with its 95%
    interval (Fisher's z)."""

    rho: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class ProximityRecord:
    """Distances between the tokens of each pair. Pairs are sorted by embedding distance.

    Attributes:
        tokens: (pairs, 2) token ids; ``texts`` what they read.
        embedding: (pairs,) L2 distance of the input embeddings.
        keys, values: (layers, pairs) L2 distance of the two tokens' KV behind prefix a.
        key_offsets, value_offsets: (layers, pairs) L2 distance of what changes when prefix a becomes
            prefix b (keys position-free).
        bound: (layers, pairs) Proposition 1's right side for keys, its constants being the smallest that hold
            on these pairs.
    """

    request: ProximityRequest
    model: ModelInfo
    sampled: int
    tokens: NDArray[np.int64]
    texts: tuple[tuple[str, str], ...]
    embedding: Floats
    keys: Floats
    values: Floats
    key_offsets: Floats
    value_offsets: Floats
    bound: Floats
    correlations: dict[str, Correlation]
    wall_ms: float
    format: int = PROXIMITY_FORMAT

    @property
    def bins(self) -> NDArray[np.int64]:
        """(pairs,) 0 near, 1 mid, 2 far: thirds by embedding distance."""
        return np.arange(len(self.embedding)) * len(BINS) // max(1, len(self.embedding))

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> ProximityRecord:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(ProximityRecord, unpack(ProximityRecord, content, PROXIMITY_FORMAT))


OFFSETS_FORMAT = 1
#: What stands in a prompt's holes, and the template text behind it (KVCOMM, Table A.7).
PARTS = ("placeholder", "prefix")
KINDS = ("keys", "values")
MOST_PREFIXES = 20
MOST_SEGMENT_TOKENS = 512
MOST_SAMPLES = 40
#: The rows of Fig. A.12: two copies without correction, KVCOMM's estimates and profiles, and the ceiling.
APPROXIMATIONS: dict[str, str] = {
    "plain": "copied, not moved",
    "moved": "copied and moved",
    "nearest": "nearest anchor",
    "cosine": "cosine",
    "softmax": "L2 softmax (as published)",
    "uniform": "mean of all anchors",
    "shipped": "as shipped",
    "corrected": "corrected",
    "oracle": "true offsets",
}


@dataclass(frozen=True)
class OffsetRequest:
    """What is measured: one text behind several prefixes, and a scenario's texts over several requests.

    ``text`` is the segment; ``prefixes`` what it is read behind, one after the other. ``values``: one request
    to ``pipeline`` each (two or more), or none to leave that half out.
    """

    text: str
    prefixes: tuple[str, ...]
    pipeline: Pipeline | None = None
    values: tuple[Mapping[str, str], ...] = ()
    max_new_tokens: int = 96


@dataclass(frozen=True)
class Twins:
    """Each token of the segment replaced by the token most like it, all before it unchanged (Fig. 1b).

    Attributes:
        tokens: (tokens,) ids; ``texts`` what they read; ``distance`` (tokens,) L2 distance of the embeddings.
        keys, unmoved, values: (prefixes, layers, tokens) L2 norms of the replaced token's offsets.
    """

    tokens: NDArray[np.int64]
    texts: tuple[str, ...]
    distance: Floats
    keys: Floats
    unmoved: Floats
    values: Floats


@dataclass(frozen=True)
class SampleOffsets:
    """Offset norms of every token that a scenario's agents read over several requests (Fig. A.4 to A.11).

    Attributes:
        agent, sample, part: (tokens,) whose prompt, which request, index into ``PARTS``.
        keys, values: (layers, tokens) L2 norms.
    """

    agent: NDArray[np.int64]
    sample: NDArray[np.int64]
    part: NDArray[np.int64]
    keys: Floats
    values: Floats


@dataclass(frozen=True)
class Approximated:
    """Offsets estimated from the other requests' samples against the real ones (Fig. A.12).

    Axes: rows of ``names``, ``agents``, ``PARTS``, ``KINDS``, layers; means over tokens, NaN without any.

    Attributes:
        cosine: cosine similarity of estimated and real offset; NaN where the real ones are zero,
            and 0 for an estimate of nothing.
        cache_cosine: cosine similarity of the estimated and the real keys or values themselves.
        error: L2 norm of estimated minus real.
        offset: (agents, parts, kinds, layers) L2 norm of the real offset.
        tokens: (agents, parts) tokens compared; ``unmatched`` those left out for want of an anchor as long.
    """

    names: tuple[str, ...]
    agents: tuple[int, ...]
    cosine: NDArray[np.float64]
    cache_cosine: NDArray[np.float64]
    error: NDArray[np.float64]
    offset: NDArray[np.float64]
    tokens: NDArray[np.int64]
    unmatched: NDArray[np.int64]


@dataclass(frozen=True)
class OffsetStudy:
    """True offsets of a text behind several prefixes: KV there minus KV behind the begin-of-sequence token
    alone (Fig. 1), and what a scenario's requests show of offsets and their estimates.

    Attributes:
        tokens: (tokens,) ids of the segment; ``texts`` what each adds.
        prefix_tokens: (prefixes,) tokens before the segment, the begin-of-sequence token included.
        keys, values: (prefixes, layers, kv_heads, tokens) L2 norms of the offsets; keys position-free.
        unmoved: the same of keys as they lie in the two caches, without alignment.
        key_norm, value_norm: (layers, kv_heads, tokens) L2 norms of the isolated KV.
    """

    request: OffsetRequest
    model: ModelInfo
    tokens: NDArray[np.int64]
    texts: tuple[str, ...]
    prefix_tokens: NDArray[np.int64]
    keys: Floats
    values: Floats
    unmoved: Floats
    key_norm: Floats
    value_norm: Floats
    twins: Twins
    samples: SampleOffsets | None
    approximated: Approximated | None
    wall_ms: float
    format: int = OFFSETS_FORMAT

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> OffsetStudy:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(OffsetStudy, unpack(OffsetStudy, content, OFFSETS_FORMAT))


COST_FORMAT = 1
COST_LIMITS: dict[str, tuple[int, int]] = {"anchors": (1, 64), "lengths": (1, 8192), "agents": (1, 8)}


@dataclass(frozen=True)
class AnchorCostRequest:
    """Pools of so many anchors of so many tokens, read by so many agents; ascending, each once."""

    anchors: tuple[int, ...] = (5, 10, 15, 20)
    lengths: tuple[int, ...] = (64, 128, 256)
    agents: int = 2


@dataclass(frozen=True)
class AnchorCost:
    """What pools cost on this model and machine (KVCOMM, Fig. A.1, Tables A.5, A.6); all (anchors, lengths).

    Attributes:
        pool_bytes: memory of one placeholder's anchors.
        match_ms, match_kv_ms: weights by token embeddings, and by whole KV as shipped.
        mix_ms: adding the weighted offsets of one agent to keys and values.
        move_ms: bringing those offsets back from main memory; NaN on a CPU, where they lie there anyway.
    """

    request: AnchorCostRequest
    model: ModelInfo
    pool_bytes: NDArray[np.int64]
    match_ms: NDArray[np.float64]
    match_kv_ms: NDArray[np.float64]
    mix_ms: NDArray[np.float64]
    move_ms: NDArray[np.float64]
    wall_ms: float
    format: int = COST_FORMAT

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> AnchorCost:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(AnchorCost, unpack(AnchorCost, content, COST_FORMAT))


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
class Replay:
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

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> Replay:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(Replay, unpack(Replay, content, REPLAY_FORMAT))


OVERLAP_FORMAT = 1
MOST_OVERLAPPED = 200
#: Whose attention decides what is kept: that of every later token, or of the prompt's last ones alone.
OBSERVERS: dict[str, str] = {"every": "every later token", "last": "the prompt's last tokens"}


@dataclass(frozen=True)
class OverlapRequest:
    """Which candidate tokens two models of one tokenizer would keep (judge study, Fig. 5).

    Attributes:
        pipeline: its judge (else its last agent) reads the candidates.
        values: one request each; texts are those that the first model generates densely, for both.
        budgets: shares of the candidates' tokens that are kept, ascending.
        last_tokens: how many tokens at the prompt's end observe, where only the last do.
    """

    pipeline: Pipeline
    values: tuple[Mapping[str, str], ...]
    budgets: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    last_tokens: int = 16
    max_new_tokens: int = 96


@dataclass(frozen=True)
class TokenOverlap:
    """Kept tokens of two models, over several prompts.

    A token's score is the attention it receives: mean over layers, heads and the observers that stand behind
    it. The highest scores are kept.

    Attributes:
        agent: whose prompts.
        tokens: (prompts,) candidate tokens; ``kept`` (prompts, budgets) how many of them each model keeps.
        jaccard: (observers, prompts, budgets) of the two kept sets, in the order of ``OBSERVERS``.
        chance: (prompts, budgets) the same of two sets drawn at random, in expectation.
        correlation: (observers, prompts) Spearman's rho of the two models' scores.
        texts: the first prompt's candidate tokens; ``scores`` (observers, 2, tokens) their scores, this
            model's and the other's; ``places`` (tokens,) where they stand; ``slot`` (tokens,) in which slot,
            from 1.
    """

    request: OverlapRequest
    model: ModelInfo
    other: ModelInfo
    agent: int
    tokens: NDArray[np.int64]
    kept: NDArray[np.int64]
    jaccard: NDArray[np.float64]
    chance: NDArray[np.float64]
    correlation: NDArray[np.float64]
    texts: tuple[str, ...]
    scores: Floats
    places: NDArray[np.int64]
    slot: NDArray[np.int64]
    wall_ms: float
    format: int = OVERLAP_FORMAT

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> TokenOverlap:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(TokenOverlap, unpack(TokenOverlap, content, OVERLAP_FORMAT))


DOCUMENTS_FORMAT = 1
DOCUMENT_LIMITS: dict[str, tuple[int, int]] = {
    "questions": (1, 100_000), "seed": (0, 2**31 - 1), "lengths": (1, 100_000), "repeats": (1, 1000),
}  # fmt: skip
BOOTSTRAP = 2000  # draws behind an interval of a ratio


@dataclass(frozen=True)
class DocumentArm:
    """One way of answering the study's questions.

    Attributes:
        label: in figures and rows, such as "KVLink5"; ``method`` its name in the registry, ``options`` the
            method's own.
        weights: name of the model; several arms may share one.
        adapted: were its weights trained for separately encoded documents?
        compression: how documents were shortened, "none", "drop" or "anchors", and by what share (``rate``).
    """

    label: str
    method: str
    options: Mapping[str, str]
    weights: str
    adapted: bool = False
    compression: str = "none"
    rate: float = 0.0


@dataclass(frozen=True)
class DocumentRequest:
    """A study small enough to wait for: two-hop questions on a model and on shipped weights trained for it.

    Raises:
        OptionError: a number is out of range, or weights are named twice.
    """

    weights: tuple[str, ...] = ()
    questions: int = 24
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in {"questions": (2, 100), "seed": DOCUMENT_LIMITS["seed"]}.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise OptionError(
                    f"{name} is {value!r}; allowed: {low} to {high:,}, whole numbers. Change it; kvlab "
                    "documents asks more.",
                    field=f"documents.{name}",
                )
        if len(set(self.weights)) != len(self.weights):
            raise OptionError("The same weights are named twice. Name each once.", field="documents.weights")


@dataclass(frozen=True)
class DocumentSpeed:
    """Time to first token by document length, KV loaded from where it is kept; all (rows, lengths), medians.

    Attributes:
        names: rows, dense first.
        documents: how many are read; ``lengths`` tokens of each; ``prompt_tokens`` (lengths,) of the whole.
        source: where the KV lay: "memory" or "disk" (files that were read before, so in the system's cache).
        loaded_bytes: (lengths,) KV of all documents.
        ttft_ms, load_ms: the whole, and the part of it that loading takes; ``low_ms``, ``high_ms`` quartiles.
    """

    model: ModelInfo
    names: tuple[str, ...]
    documents: int
    lengths: tuple[int, ...]
    prompt_tokens: NDArray[np.int64]
    source: str
    repeats: int
    loaded_bytes: NDArray[np.int64]
    ttft_ms: NDArray[np.float64]
    load_ms: NDArray[np.float64]
    low_ms: NDArray[np.float64]
    high_ms: NDArray[np.float64]


@dataclass(frozen=True)
class DocumentStudy:
    """Two-hop questions over documents, answered densely and from documents that were encoded apart.

    Attributes:
        arms: what was compared; dense on the base's own weights comes first.
        documents: (questions,) how many there were; ``position`` the place, from 1, of the one with the
            answer, ``first_position`` of the one with the first hop.
        prompt_tokens: (questions,) of the dense prompt.
        correct: (arms, questions) 1 right, 0 wrong, -1 not asked yet.
        ttft_ms: (arms, questions) without what can be done before the question is known: encoding documents.
            NaN where not asked.
        forwarded_tokens: (arms, questions) behind that time; -1 where not asked.
        speed: times by document length, where they were measured.
    """

    model: ModelInfo
    seed: int
    arms: tuple[DocumentArm, ...]
    documents: NDArray[np.int64]
    position: NDArray[np.int64]
    first_position: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    correct: NDArray[np.int8]
    ttft_ms: NDArray[np.float64]
    forwarded_tokens: NDArray[np.int64]
    speed: DocumentSpeed | None = None
    format: int = DOCUMENTS_FORMAT

    @property
    def labels(self) -> tuple[str, ...]:
        """Of the arms, in order."""
        return tuple(arm.label for arm in self.arms)

    def arm(self, label: str) -> int:
        """An arm's row.

        Raises:
            KeyError: there is none of that label.
        """
        if label not in self.labels:
            raise KeyError(label)
        return self.labels.index(label)

    def share(self, label: str, where: NDArray[np.bool_] | None = None) -> tuple[int, int, float, float]:
        """Right answers, questions asked, and the 95% interval of the share (Wilson); of questions
        ``where``."""
        row = self.correct[self.arm(label)]
        asked = row[(row >= 0) & (True if where is None else where)]
        return int(asked.sum()), len(asked), *wilson(int(asked.sum()), len(asked))

    def own_dense(self, label: str) -> str | None:
        """The label of dense on an arm's own weights; None where it was not asked."""
        weights = self.arms[self.arm(label)].weights
        return next((a.label for a in self.arms if a.method == "dense" and a.weights == weights), None)

    def recovered(
        self, label: str, floor: str, ceiling: str, seed: int = 0
    ) -> tuple[float, float, float] | None:
        """How much of the gap between two arms' accuracies an arm closes, with its 95% interval (a bootstrap
        over questions, paired); None where the two do not differ or were not asked alike."""
        rows = self.correct[[self.arm(label), self.arm(floor), self.arm(ceiling)]]
        rows = rows[:, (rows >= 0).all(axis=0)].astype(np.float64)
        if not rows.size or rows[2].mean() == rows[1].mean():
            return None
        drawn = np.random.default_rng(seed).integers(0, rows.shape[1], (BOOTSTRAP, rows.shape[1]))
        means = rows[:, drawn].mean(axis=2)
        gap = means[2] - means[1]
        known = (means[0] - means[1])[gap != 0] / gap[gap != 0]
        one, low_, high_ = rows.mean(axis=1)
        low, high = np.percentile(known, [2.5, 97.5])
        return float((one - low_) / (high_ - low_)), float(low), float(high)

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> DocumentStudy:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(DocumentStudy, unpack(DocumentStudy, content, DOCUMENTS_FORMAT))


BLEND_FORMAT = 1
#: Methods that compute a share of the tokens again, each with its own choice of them.
CHOICES = ("cacheblend", "query_norm", "random_k", "oracle_k")
MASKS = ("exact", "shipped")
RATIOS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
MOST_BLENDED = 1000  # prompts


@dataclass(frozen=True)
class BlendRequest:
    """What is measured: prompts of one agent under each choice of tokens, mask and share computed again.

    ``values``: one request to ``pipeline`` each. ``agent``: whose prompts, 0 for the last one's.
    """

    pipeline: Pipeline
    values: tuple[Mapping[str, str], ...]
    agent: int = 0
    choices: tuple[str, ...] = CHOICES
    masks: tuple[str, ...] = MASKS
    ratios: tuple[float, ...] = RATIOS
    max_new_tokens: int = 96


@dataclass(frozen=True)
class BlendStudy:
    """Distances from dense, (choices, masks, ratios, prompts) each.

    Attributes:
        agent: whose prompts; ``prompt_tokens`` (prompts,) their lengths.
        keys, values: relative L2 error of K and V, mean over layers and tokens.
        chosen: that of V over the tokens that were computed again at every layer; NaN where none was.
        kl: of the next token behind the prompt, dense || method, in nats.
        work: tokens times layers forwarded, as a share of dense's.
        copied_keys, copied_values, copied_kl: (prompts,) the same of position-only reuse.
        floor: (prompts,) KL of dense against dense in two pieces.
    """

    request: BlendRequest
    model: ModelInfo
    agent: int
    prompt_tokens: NDArray[np.int64]
    keys: Floats
    values: Floats
    chosen: Floats
    kl: Floats
    work: Floats
    copied_keys: Floats
    copied_values: Floats
    copied_kl: Floats
    floor: Floats
    wall_ms: float
    format: int = BLEND_FORMAT

    def mean(self, kind: str, choice: str, mask: str) -> tuple[NDArray[np.float64], ...]:
        """Mean over prompts by ratio and its 95% interval (normal), each (ratios,)."""
        return mean_interval(self._rows(kind, choice, mask))

    def steps(self, kind: str, choice: str, mask: str) -> tuple[NDArray[np.float64], ...]:
        """Mean change from each ratio to the next, paired over prompts, with its 95% interval, each (ratios -
        1,)."""
        return mean_interval(np.diff(self._rows(kind, choice, mask), axis=0))

    def _rows(self, kind: str, choice: str, mask: str) -> NDArray[np.float64]:
        where = self.request.choices.index(choice), self.request.masks.index(mask)
        return np.asarray(getattr(self, kind)[where], dtype=np.float64)

    def to_bytes(self) -> bytes:
        """The file's content."""
        return pack(self)

    @staticmethod
    def from_bytes(content: bytes) -> BlendStudy:
        """Read it back; see :func:`backend.base.serialization.unpack`."""
        return typing.cast(BlendStudy, unpack(BlendStudy, content, BLEND_FORMAT))
