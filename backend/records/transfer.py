"""One copied text on its way from the prompt where it was first read into another. Free of torch."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Of the keys and values themselves a record keeps this many tokens and pairs of channels.
SHOWN_TOKENS, SHOWN_PAIRS = 12, 16


@dataclass(frozen=True)
class Transfer:
    """What a picture of one copied text needs: its keys and values before and after each step.

    Errors are relative L2 distances from the full read over the whole text, (layers, kv_heads).

    Attributes:
        start, end: the text's tokens in the prompt.
        first_position: position of its first token where it was encoded.
        moved_by: positions that its keys were turned by; 0 where the method leaves them as they were.
        missing_keys, missing_values: errors of the copy, its keys turned to their new place.
        left_keys, left_values: errors of the cache that the agent read.
        layer, head: where ``missing_keys`` is largest; what follows is of that head.
        angles: (pairs,) radians that each pair turns by over ``start - first_position`` positions.
        keys: (4, tokens, 2 * pairs), the two channels of a pair side by side: as encoded, turned, of the full
            read, of the cache that was read.
        values: (3, tokens, channels): copied, of the full read, of the cache that was read.
    """

    start: int
    end: int
    first_position: int
    moved_by: int
    missing_keys: NDArray[np.float32]
    missing_values: NDArray[np.float32]
    left_keys: NDArray[np.float32]
    left_values: NDArray[np.float32]
    layer: int
    head: int
    angles: NDArray[np.float32]
    keys: NDArray[np.float16]
    values: NDArray[np.float16]
