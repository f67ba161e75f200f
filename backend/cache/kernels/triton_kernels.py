""":mod:`.mix_and_rotate` and :mod:`.distances` as Triton kernels: every byte is read or written once.

Sums are fp32 throughout and rounded once, to the cache's dtype. Under ``TRITON_INTERPRET=1`` the kernels run
on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from backend.cache.kernels.mixture import Mixture
from backend.cache.kv_cache import KVSegment
from backend.cache.rope import Rotation

TOKENS = 16  # of one program
FEATURES = 256  # of a descriptor, that one program reads at a time


@triton.jit
def _load_pairs(at, left, right, inside, run, interleaved: tl.constexpr):
    """Both halves of each pair, fp32. Interleaved pairs are read as one run and then split, which allows wide
    loads."""
    if interleaved:
        wide = tl.load(at + tl.arange(0, 2 * left.shape[0])[None], mask=run, other=0.0).to(tl.float32)
        return tl.split(tl.reshape(wide, (run.shape[0], left.shape[0], 2)))
    else:
        first = tl.load(at + left[None], mask=inside, other=0.0).to(tl.float32)
        return first, tl.load(at + right[None], mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _store_pairs(at, left, right, inside, run, first, second, interleaved: tl.constexpr):
    if interleaved:
        wide = tl.reshape(tl.join(first, second), (run.shape[0], 2 * left.shape[0]))
        tl.store(at + tl.arange(0, 2 * left.shape[0])[None], wide, mask=run)
    else:
        tl.store(at + left[None], first, mask=inside)
        tl.store(at + right[None], second, mask=inside)


@triton.jit
def _mix_and_rotate(
    base_keys,
    base_values,
    rows,  # (rows, 2, layers, heads, dim)
    starts,  # (anchors,)
    weights,  # (anchors, tokens), fp32
    cosines,  # (rules, tokens, dim / 2), fp32; 1 where nothing is rotated
    sines,
    rules,  # (layers,)
    keys,
    values,
    tokens,
    anchors,
    heads,
    base_layer,
    base_head,
    base_token,
    out_layer,
    out_head,
    out_token,
    row,
    dim: tl.constexpr,
    rotated: tl.constexpr,
    interleaved: tl.constexpr,
    block: tl.constexpr,
    pairs: tl.constexpr,
):
    """One head of one layer, ``block`` tokens: both halves of each rotated pair, of keys and of values."""
    place = tl.program_id(0)
    layer, head = (place // heads).to(tl.int64), (place % heads).to(tl.int64)
    t = tl.program_id(1).to(tl.int64) * block + tl.arange(0, block)
    p = tl.arange(0, pairs)
    inside = (t < tokens)[:, None] & (p < dim // 2)[None]
    if interleaved:
        left, right = 2 * p, 2 * p + 1
    elif rotated == dim:
        left, right = p, p + dim // 2
    else:  # pairs of the rotated channels, then of the others
        rotates = p < rotated // 2
        left = tl.where(rotates, p, p + rotated // 2)
        right = left + tl.where(rotates, rotated // 2, (dim - rotated) // 2)
    run = (t < tokens)[:, None] & (tl.arange(0, 2 * pairs) < dim)[None]
    base = layer * base_layer + head * base_head + t[:, None] * base_token
    key_left, key_right = _load_pairs(base_keys + base, left, right, inside, run, interleaved)
    value_left, value_right = _load_pairs(base_values + base, left, right, inside, run, interleaved)
    for anchor in range(anchors):
        weight = tl.load(weights + anchor * tokens + t, mask=t < tokens, other=0.0)[:, None]
        at = rows + (tl.load(starts + anchor) + t)[:, None] * row + place.to(tl.int64) * dim
        first, second = _load_pairs(at, left, right, inside, run, interleaved)
        key_left += weight * first
        key_right += weight * second
        first, second = _load_pairs(at + row // 2, left, right, inside, run, interleaved)
        value_left += weight * first
        value_right += weight * second
    rule = tl.load(rules + layer)
    angle = (rule * tokens + t)[:, None] * (dim // 2) + p[None]
    cosine = tl.load(cosines + angle, mask=inside, other=1.0)
    sine = tl.load(sines + angle, mask=inside, other=0.0)
    out = layer * out_layer + head * out_head + t[:, None] * out_token
    first = key_left * cosine - key_right * sine
    second = key_right * cosine + key_left * sine
    _store_pairs(keys + out, left, right, inside, run, first, second, interleaved)
    _store_pairs(values + out, left, right, inside, run, value_left, value_right, interleaved)


@triton.jit
def _squared_distances(rows, starts, out, start, tokens, features, block: tl.constexpr, width: tl.constexpr):
    """``block`` tokens of one anchor."""
    anchor = tl.program_id(1)
    t = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    anchor_start = tl.load(starts + anchor)
    total = tl.zeros((block,), dtype=tl.float32)
    for first in range(0, features, width):
        f = first + tl.arange(0, width)
        inside = (t < tokens)[:, None] & (f < features)[None]
        a = tl.load(rows + (start + t)[:, None] * features + f[None], mask=inside, other=0.0)
        b = tl.load(rows + (anchor_start + t)[:, None] * features + f[None], mask=inside, other=0.0)
        difference = a.to(tl.float32) - b.to(tl.float32)
        total += tl.sum(difference * difference, axis=1)
    tl.store(out + anchor * tokens + t, total, mask=t < tokens)


def mix_and_rotate(
    base: KVSegment,
    mixture: Mixture | None,
    positions: Tensor,
    rotation: Rotation,
    keys: Tensor,
    values: Tensor,
) -> bool:
    """The same as the torch function. False, with nothing written, if layers rotate different channels."""
    layers, heads, tokens, dim = keys.shape
    kinds = {(r.rotated_dims, r.interleaved) for r in rotation.layers if r.rotated_dims}
    if len(kinds) > 1 or dim % 2 or base.keys.stride() != base.values.stride() or base.keys.stride(3) != 1:
        return False
    if not tokens:
        return True
    [(rotated, interleaved)] = kinds or {(dim, False)}
    cosines, sines, rules = rotation.tables(positions, dim // 2)
    device = keys.device
    if mixture is None:
        rows, starts, weights = keys, rules, cosines  # not read
    else:
        rows, weights = mixture.arena.buffer, mixture.weights.float().contiguous()
        starts = torch.tensor(mixture.starts).to(device, non_blocking=True)
    _mix_and_rotate[(layers * heads, triton.cdiv(tokens, TOKENS))](
        base.keys, base.values, rows, starts, weights, cosines, sines, rules, keys, values,
        tokens, 0 if mixture is None else len(mixture.starts), heads,
        *base.keys.stride()[:3], *keys.stride()[:3], 2 * layers * heads * dim,
        dim=dim, rotated=rotated, interleaved=interleaved, block=TOKENS,
        pairs=triton.next_power_of_2(dim // 2),
    )  # fmt: skip
    return True


def squared_distances(rows: Tensor, start: int, tokens: int, starts: Sequence[int]) -> Tensor:
    """Of rows ``[mine, mine + tokens)`` to those from each of ``starts`` on, (anchors, tokens), fp32."""
    out = torch.empty((len(starts), tokens), dtype=torch.float32, device=rows.device)
    first = torch.tensor(starts).to(rows.device, non_blocking=True)
    _squared_distances[(triton.cdiv(tokens, TOKENS), len(starts))](
        rows, first, out, start, tokens, rows.shape[1], block=TOKENS, width=FEATURES
    )
    return out
