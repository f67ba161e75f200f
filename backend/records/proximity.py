"""Does nearness in embedding space predict nearness in KV? Request and record. Free of torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.ranges import SEEDS
from backend.base.serialization import Floats, Saved
from backend.records.model_info import ModelInfo

PROXIMITY_FORMAT = 1
BINS = ("near", "mid", "far")
LIMITS: dict[str, tuple[int, int]] = {"vocabulary": (10, 20_000), "pairs": (9, 3000), "seed": SEEDS}


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
class ProximityRecord(Saved):
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
