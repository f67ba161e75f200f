"""Anchor pools after a run, and what their anchors hold. Frozen and free of torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class PoolState:
    """A pool after the run: one row per anchor, oldest first."""

    method: str
    placeholder: str
    capacity: int
    anchors: tuple[int, ...]
    lengths: tuple[int, ...]
    uses: tuple[int, ...]
    previews: tuple[str, ...]
    bytes: int  # base KV, descriptors and offsets, as they are kept
    budget_bytes: int = 0  # 0: no limit but the capacity
    codec: str = "none"


@dataclass(frozen=True)
class PoolView:
    """What the anchors of a pool hold after the run; rows are those of the pool's :class:`PoolState`.

    Attributes:
        sample: the run's own text for this placeholder, as an observation number; 0 when it had none.
        agents: agents in whose context each anchor's offset was seen.
        base_bytes: (anchors,) base KV and descriptor; ``offset_bytes`` the offsets as they were computed,
            ``stored_bytes`` as they are kept.
        away: anchors whose offsets wait in main memory while the model runs on another device.
        small: (2, layers) share of offset elements under 0.1 in size, keys then values.
        offset_size: (2, layers) root mean square of the offset elements; ``stored_error`` that of the error
            which keeping them packed adds; ``largest_error`` the largest error of one element.
        points: (texts, components) the texts' mean token embeddings in principal coordinates, the widest
            first, so that distances are kept: the anchors, then the sample when it is no anchor itself.
    """

    method: str
    placeholder: str
    sample: int
    sample_preview: str
    agents: tuple[tuple[int, ...], ...]
    base_bytes: NDArray[np.int64]
    offset_bytes: NDArray[np.int64]
    stored_bytes: NDArray[np.int64]
    away: tuple[int, ...]
    small: NDArray[np.float64]
    offset_size: NDArray[np.float64]
    stored_error: NDArray[np.float64]
    largest_error: float
    points: NDArray[np.float32]
