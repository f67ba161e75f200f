"""Writes a copied span into the cache: mixes its base and weighted offsets, and rotates the keys."""

from collections.abc import Sequence

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kernels.mix_and_rotate import mix_and_rotate
from backend.cache.kernels.mixture import Mixture
from backend.cache.kv_cache import KVCache
from backend.cache.rope import Rotation
from backend.cache.row_arena import ArenaOffset
from backend.methods.plan import Reuse, Term

# Mixing processes so many bytes of the output at a time, so that they stay in the processor's cache while the
# anchors' offsets are read.
MIX_CHUNK_BYTES = 1 << 20


def place(
    rotation: Rotation, cache: KVCache, start: int, tokens: int, position: int, reuse: Reuse, clock: Clock
) -> None:
    """Write the first ``tokens`` of a span into the cache from place ``start`` on, at RoPE positions from
    ``position`` on: mix position-free, then rotate once. The cache's length is not changed.

    Keys corrected ``in_place`` (as shipped) are rotated first and mixed after.
    """
    end = start + tokens
    base, device = reuse.base, cache.keys.device
    keys, values = base.keys[:, :, :tokens], base.values[:, :, :tokens]
    room_keys, room_values = cache.keys[:, 0, :, start:end], cache.values[:, 0, :, start:end]
    first = position if reuse.moved else base.start
    positions = torch.arange(first, first + tokens, device=keys.device)
    mixture = _mixture(reuse, tokens)
    if mixture is not None or not reuse.terms:
        # One pass corrects and rotates.
        with clock.part("correct" if reuse.terms else "rotate"):
            mix_and_rotate(base, mixture, positions, rotation, room_keys, room_values)
        return
    with clock.part("correct"):
        room_values.copy_(values)
        if reuse.terms:
            first_layer, terms = reuse.first_layer, reuse.terms
            value_weights = weights = [_cut(t.weight, tokens, first_layer) for t in terms]
            if not reuse.in_place:
                keys = keys.clone()
                mix(
                    keys[first_layer:],
                    [_key_offset(rotation, t, tokens, device)[first_layer:] for t in terms],
                    weights,
                )
            if any(t.value_weight is not None for t in terms):
                value_weights = [
                    _cut(t.weight if t.value_weight is None else t.value_weight, tokens, first_layer)
                    for t in terms
                ]
            offsets = [t.offset.values[first_layer:, :, :tokens].to(values.device) for t in terms]
            mix(room_values[first_layer:], offsets, value_weights)
    with clock.part("rotate"):
        rotation.rotate(keys, positions, room_keys)
    if reuse.terms and reuse.in_place:
        with clock.part("correct"):
            key_offsets = [_key_offset(rotation, t, tokens, device, positions)[first_layer:] for t in terms]
            mix(room_keys[first_layer:], key_offsets, weights)


def _key_offset(
    rotation: Rotation, term: Term, tokens: int, device: torch.device, positions: Tensor | None = None
) -> Tensor:
    """A term's key offset, (layers, kv_heads, tokens, head_dim), rotated by its shift, and to ``positions``
    (tokens,) if given."""
    keys = term.offset.keys[:, :, :tokens].to(device)
    if positions is None:
        if not term.shift:
            return keys
        positions = torch.zeros(tokens, dtype=torch.long, device=keys.device)
    return rotation.rotate(keys, positions + term.shift)


def _mixture(reuse: Reuse, tokens: int) -> Mixture | None:
    """The terms for the first ``tokens`` of a span, if one pass can mix them: offsets in one arena, one
    weight per token for keys and values, position-free, at all layers. Else None, also for no terms."""
    if not reuse.terms or reuse.in_place or reuse.first_layer:
        return None
    offsets: list[ArenaOffset] = []
    for term in reuse.terms:
        offset = term.offset
        if not isinstance(offset, ArenaOffset) or term.shift or term.value_weight is not None:
            return None
        if term.weight.ndim > 1 or offset.rows.arena is not (offsets or [offset])[0].rows.arena:
            return None
        offsets.append(offset)
    arena = offsets[0].rows.arena
    if arena.buffer.device != reuse.base.keys.device:
        return None
    # In the order of their rows, in which anchors of one length are evenly spaced.
    pairs = sorted(zip(offsets, reuse.terms, strict=True), key=lambda pair: pair[0].first_row)
    if len({t.weight.shape for _, t in pairs}) > 1:
        return None
    table = torch.stack([t.weight for _, t in pairs]).to(arena.buffer.device)
    weights = table[:, :tokens] if table.ndim > 1 else table[:, None].expand(-1, tokens)
    return Mixture(arena, tuple(offset.first_row for offset, _ in pairs), weights)


def _cut(weight: Tensor, tokens: int, first_layer: int) -> Tensor:
    """A term's weight for the first tokens of a span and the layers from ``first_layer`` on."""
    if weight.ndim == 1:
        return weight[:tokens]
    return weight[first_layer:] if weight.ndim else weight


def mix(out: Tensor, offsets: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """``out += sum weight * offset`` in place, a few layers at a time (see MIX_CHUNK_BYTES).

    Args:
        out: (layers, kv_heads, tokens, head_dim).
        offsets: tensors of that shape.
        weights: each a scalar (), (tokens,), or (layers, kv_heads, 1, head_dim).
    """
    layer_bytes = out[0].numel() * out.element_size()
    size = max(1, MIX_CHUNK_BYTES // max(1, layer_bytes))
    plain = [float(w) if w.ndim == 0 else None for w in weights]
    columns = [
        None if w.ndim == 0 else w.to(out.dtype)[:, None] if w.ndim == 1 else w.to(out.dtype) for w in weights
    ]
    for at in range(0, out.shape[0], size):
        part = out[at : at + size]
        for offset, scalar, column in zip(offsets, plain, columns, strict=True):
            if column is None:
                part.add_(offset[at : at + size], alpha=scalar)
            else:
                part.addcmul_(offset[at : at + size], column[at : at + size] if column.ndim == 4 else column)
