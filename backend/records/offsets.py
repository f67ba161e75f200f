"""Offsets of a text behind several prefixes, and estimates of them: request and record. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.serialization import Floats
from backend.prompts.pipeline import Pipeline
from backend.records.model_info import ModelInfo
from backend.records.prompt import Taxed

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
class OffsetStudy(Taxed):
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
