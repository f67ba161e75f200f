"""Distances between caches, per layer and token."""

import numpy as np
import torch
from numpy.typing import NDArray

from backend.cache.kv_cache import KVCache
from backend.cache.norms import token_norms
from backend.cache.rope import Rotation
from backend.cache.samples import PromptInContext
from backend.records.run import OffsetProbe


def cache_error(
    cache: KVCache, dense: KVCache, tokens: int, rotation: Rotation
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Relative L2 error of a cache's keys and values against dense, each (layers, tokens).

    Where both caches hold the same tokens at the same positions, the rotation drops out of the norm.
    """
    out = []
    keys = keys_in_place(cache, tokens, rotation)
    for own, other in ((keys, dense.keys), (cache.values[:, 0, :, :tokens], dense.values)):
        reference = other[:, 0, :, :tokens]
        error = token_norms(own - reference) / token_norms(reference).clamp_min(1e-12)
        out.append(error.cpu().numpy())
    return out[0], out[1]


def keys_in_place(cache: KVCache, tokens: int, rotation: Rotation) -> torch.Tensor:
    """A cache's keys, (layers, kv_heads, tokens, head_dim), turned to the prompt's own positions where the
    method gave them others."""
    keys = cache.keys[:, 0, :, :tokens]
    if cache.positions is None:
        return keys
    moved = torch.arange(tokens, device=keys.device) - cache.positions_of(0, tokens).to(keys.device)
    return rotation.rotate(keys, moved)


def offset_probe(
    context: PromptInContext, dense: KVCache, rotation: Rotation, prompt_index: int
) -> OffsetProbe:
    """True offsets of a prompt: dense KV in context minus each segment's base (Section 2, Fig. 1).

    The first segment has no other context and holds 0.
    """
    prompt = context.prompt
    total, layers = len(prompt.ids), dense.keys.shape[0]
    real = dense.segment(0, total, rotation, exact=True, context="dense")
    key_offset = torch.zeros(layers, total)
    value_offset, unaligned = torch.zeros(layers, total), torch.zeros(layers, total)
    for span in prompt.spans:
        base = context.samples[span.name].base if span.name in context.samples else None
        if span.kind == "prefix" and span.start > 0:
            base = context.prefix_bases[span.name]
        if base is None or span.end == span.start:
            continue
        at = slice(span.start, span.end)
        key_offset[:, at] = token_norms(real.keys[:, :, at] - base.keys).cpu()
        value_offset[:, at] = token_norms(real.values[:, :, at] - base.values).cpu()
        positions = torch.arange(base.start, base.start + base.tokens, device=base.keys.device)
        as_encoded = rotation.rotate(base.keys, positions)
        unaligned[:, at] = token_norms(dense.keys[:, 0, :, at] - as_encoded).cpu()
    return OffsetProbe(
        prompt.agent,
        prompt_index,
        key_offset.numpy(),
        value_offset.numpy(),
        unaligned.numpy(),
        token_norms(real.keys).cpu().numpy(),
        token_norms(real.values).cpu().numpy(),
    )
