"""Base plus weighted offsets, rotated, straight into the cache, in one pass (KVCOMM, Eq. 6 and 7).

Memory traffic, with u bytes of one span's keys (or values) in all layers and A anchors: at least (2A + 4)u,
for reading every offset and the base and writing the cache, keys and values each. The torch path comes close:
a piece of the sum stays in the processor's cache between its steps. The Triton kernel writes nothing else.
"""

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from backend.cache.kernels import triton_on
from backend.cache.kernels.mixture import Mixture
from backend.cache.kv_cache import KVSegment
from backend.cache.rope import Rotation

# On a CPU so many bytes of keys and values are processed at a time: few enough for its cache, and enough that
# call overhead does not matter. (1 MiB was a quarter slower; smollm2-135m, 20 anchors, one thread.)
PIECE_BYTES = 1 << 22

# Entries of a row that a CPU sums at a time, so that the sum stays in registers: up to 1.5 times as fast as
# whole rows.
SUM_WIDTH = 64


@torch.inference_mode()
def mix_and_rotate(
    base: KVSegment,
    mixture: Mixture | None,
    positions: Tensor,
    rotation: Rotation,
    keys: Tensor,
    values: Tensor,
) -> None:
    """Write a span into the cache.

    Args:
        base: position-free; its first tokens are used.
        mixture: the offsets to add; None adds none.
        positions: (tokens,) to which the keys are rotated.
        rotation: the model's.
        keys: the cache's slice to write, (layers, kv_heads, tokens, head_dim).
        values: the same for values.
    """
    if triton_on(keys.device):
        from backend.cache.kernels import triton_kernels as fused

        if fused.mix_and_rotate(base, mixture, positions, rotation, keys, values):
            return
    tokens = keys.shape[2]
    piece = tokens
    if keys.device.type == "cpu":
        per_token = 2 * keys.shape[0] * keys.shape[1] * keys.shape[3] * keys.element_size()
        piece = max(1, PIECE_BYTES // per_token)
    for at in range(0, tokens, piece):
        to = min(at + piece, tokens)
        key_piece, value_piece = base.keys[:, :, at:to], base.values[:, :, at:to]
        if mixture is None:
            values[:, :, at:to] = value_piece
        else:
            key_sum, value_sum = weighted_sum(mixture, at, to).permute(1, 2, 3, 0, 4)
            key_piece = key_piece + key_sum
            torch.add(value_piece, value_sum, out=values[:, :, at:to])
        rotation.rotate(key_piece, positions[at:to], keys[:, :, at:to])


def weighted_sum(mixture: Mixture, at: int, to: int) -> Tensor:
    """The weighted offsets of tokens ``[at, to)``, (tokens, *row), in the arena's dtype: one contraction for
    all layers, keys and values."""
    buffer = mixture.arena.buffer
    by_anchor = buffer.device.type == "cpu" and buffer.dtype == torch.float32
    return (_by_anchor if by_anchor else _by_row)(mixture, at, to)


def _by_anchor(mixture: Mixture, at: int, to: int) -> Tensor:
    """Add anchor after anchor to a sum that stays in the processor's cache, so memory is read in long runs:
    up to twice as fast as by row. Not for 16-bit dtypes, since each step rounds."""
    buffer = mixture.arena.buffer
    rows = [buffer[start + at : start + to].flatten(1) for start in mixture.starts]
    weights = mixture.weights[:, at:to, None].to(buffer.dtype)
    total = rows[0] * weights[0]
    for row, weight in zip(rows[1:], weights[1:], strict=True):
        total.addcmul_(row, weight)
    return total.view(to - at, *buffer.shape[1:])


def _by_row(mixture: Mixture, at: int, to: int) -> Tensor:
    """Sum all anchors' rows token by token in single precision: with few anchors up to ten times as fast as a
    matrix product per token."""
    buffer, tokens = mixture.arena.buffer, to - at
    weights = mixture.weights[:, at:to].to(buffer.dtype).t()
    places = row_places(mixture.starts, at, to, buffer.device)
    entries = prod(buffer.shape[1:])
    even = buffer.device.type == "cpu" and entries % SUM_WIDTH == 0
    parts = entries // SUM_WIDTH if even else 1
    anchors = len(mixture.starts)
    sums = functional.embedding_bag(
        (places[:, None] * parts + torch.arange(parts, device=buffer.device)[:, None]).view(-1, anchors),
        buffer.view(len(buffer) * parts, -1),
        per_sample_weights=weights[:, None].expand(-1, parts, -1).reshape(-1, anchors),
        mode="sum",
    )
    return sums.view(tokens, *buffer.shape[1:])


def row_places(starts: Sequence[int], at: int, to: int, device: torch.device) -> Tensor:
    """Arena rows of tokens ``[at, to)`` of each anchor, (tokens, anchors); does not wait for the device."""
    first = torch.tensor(starts).to(device, non_blocking=True)
    return first + torch.arange(at, to, device=device)[:, None]
