"""What anchors cost on a model and a machine: request and record. Free of torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.serialization import Saved
from backend.records.model_info import ModelInfo

COST_FORMAT = 1
COST_LIMITS: dict[str, tuple[int, int]] = {"anchors": (1, 64), "lengths": (1, 8192), "agents": (1, 8)}


@dataclass(frozen=True)
class AnchorCostRequest:
    """Pools of so many anchors of so many tokens, read by so many agents; ascending, each once."""

    anchors: tuple[int, ...] = (5, 10, 15, 20)
    lengths: tuple[int, ...] = (64, 128, 256)
    agents: int = 2


@dataclass(frozen=True)
class AnchorCost(Saved):
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
