"""Squared distances of a text's tokens to those of several anchors, in one pass over their descriptors."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from backend.arena import Rows
from backend.kernels import triton_on
from backend.kernels.blend import row_places

# On a CPU the differences of this many bytes are made at a time, so that they stay in its cache.
PIECE_BYTES = 1 << 20


@torch.inference_mode()
def squared_distances(mine: Rows, theirs: Sequence[Rows]) -> Tensor:
    """Squared L2 distance of each token to the one at the same place of each anchor, (anchors, tokens), fp32.

    Args:
        mine: (tokens, features).
        theirs: at least as long, of the same arena.
    """
    arena, tokens = mine.arena, mine.count
    starts = [rows.start for rows in theirs]
    if triton_on(arena.buffer.device):
        from backend.kernels import fused

        return fused.squared_distances(arena.buffer, mine.start, tokens, starts)
    out = torch.empty((tokens, len(starts)), dtype=torch.float32, device=arena.buffer.device)
    piece = tokens
    if arena.buffer.device.type == "cpu":
        piece = max(1, PIECE_BYTES // (arena.row_bytes * len(starts)))
    own = mine.tensor[:, None].float()
    for at in range(0, tokens, piece):
        to = min(at + piece, tokens)
        apart = arena.buffer[row_places(starts, at, to, out.device)] - own[at:to]
        torch.linalg.vector_norm(apart, dim=-1, out=out[at:to])
    return out.square_().t()
