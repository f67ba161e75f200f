"""Squared distances of a text's tokens to those of several anchors, in one pass over their descriptors."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from backend.cache.kernels import triton_on
from backend.cache.row_arena import ArenaRows

# On a CPU so many bytes of differences are computed at a time, so that they stay in its cache.
PIECE_BYTES = 1 << 20


def descriptor_dtype(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The dtype of descriptors for embeddings of ``dtype``: the same if the kernel widens them while it sums,
    which loses nothing and halves the bytes of a 16-bit model; else fp32."""
    return dtype if triton_on(device) else torch.float32


@torch.inference_mode()
def squared_distances(sample: ArenaRows, anchors: Sequence[ArenaRows]) -> Tensor:
    """Squared L2 distance of each token to the one at the same place of each anchor, (anchors, tokens), fp32.

    Args:
        sample: (tokens, features).
        anchors: at least as long, of the same arena.
    """
    buffer, tokens, width = sample.arena.buffer, sample.count, sample.tensor.shape[1]
    starts = [rows.start for rows in anchors]
    if triton_on(buffer.device):
        from backend.cache.kernels import triton_kernels as fused

        return fused.squared_distances(buffer, sample.start, tokens, starts)
    out = torch.empty((len(starts), tokens), dtype=torch.float32, device=buffer.device)
    sample_rows = sample.tensor
    for first, count, step in even_runs(starts):
        piece = tokens
        if buffer.device.type == "cpu":
            piece = max(1, PIECE_BYTES // (sample.arena.row_bytes * count))
        for at in range(0, tokens, piece):
            to = min(at + piece, tokens)
            places = (count, to - at, width), (step * width, width, 1)
            rows = buffer.as_strided(*places, (starts[first] + at) * width)
            torch.linalg.vector_norm(rows - sample_rows[at:to], dim=-1, out=out[first : first + count, at:to])
    return out.square_()


def even_runs(starts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs of evenly spaced, ascending starts, each readable as one view: (first, count, step)."""
    first = 0
    while first < len(starts):
        step = max(0, starts[first + 1] - starts[first]) if first + 1 < len(starts) else 0
        end = first + 1
        while step and end < len(starts) and starts[end] - starts[end - 1] == step:
            end += 1
        yield first, end - first, step
        first = end
