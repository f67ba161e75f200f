"""Attention to some places of a cache, tempered and scaled (APE, Section 4 and its Algorithm 1).

With scores s over the tempered places and o over all others, temperature T and scale S, a query's weights
are softmax([S * logsumexp(s / T), logsumexp(o)]) over the two groups, and softmax(s / T) within the first.
That is ordinary attention with s / T + (S - 1) * logsumexp(s / T) instead of s, so the model's own attention
gets an additive mask with the difference.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from backend.base.errors import ModelError
from backend.cache.kv_cache import KVCache, Temper
from backend.model.load import LoadedModel

TEMPERED = "kvlab_tempered"


@contextmanager
def temper_attention(model: LoadedModel, cache: KVCache) -> Iterator[None]:
    """Temper attention in the body's passes over a cache, as its rows' ``tempers`` say.

    Raises:
        ModelError: this family's attention cannot be replaced.
    """
    if not any(cache.tempers):
        yield
        return
    module, attention, masks = model.module, AttentionInterface(), AttentionMaskInterface()
    kind = module.config._attn_implementation
    was_called = False
    if kind not in attention:
        raise ModelError(_refusal(model, f"it uses {kind!r}"), field="methods")
    inner = attention[kind]

    def attend(
        layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
    ) -> Any:
        nonlocal was_called
        was_called = True
        scale = float(options.get("scaling") or query.shape[-1] ** -0.5)
        return inner(layer, query, key, value, temper_mask(query, key, mask, scale, cache.tempers), **options)

    attention.register(TEMPERED, attend)
    masks.register(TEMPERED, masks[kind])
    try:
        module.set_attn_implementation(TEMPERED)
        yield
        if not was_called:
            raise ModelError(_refusal(model, "it does not ask for it"), field="methods")
    finally:
        module.set_attn_implementation(kind)
        for table in (attention, masks):
            type(table)._global_mapping.pop(TEMPERED, None)


def temper_mask(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, tempers: list[Temper | None]
) -> Tensor:
    """The additive mask (rows, heads, new, places) that tempers attention.

    Args:
        query: (rows, heads, new, head_dim), rotated; of the last ``new`` places.
        key: (rows, kv_heads, places, head_dim), rotated.
        mask: (rows or 1, heads or 1, new, places), bool or additive; None: causal.
        scale: of the scores.
        tempers: one per row.
    """
    (rows, heads, new, _), places = query.shape, key.shape[2]
    lowest = torch.finfo(query.dtype).min
    if mask is None:
        mask = torch.ones(new, places, dtype=torch.bool, device=key.device).tril(places - new)[None, None]
    mask = mask[..., :places]
    if mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, lowest)
    out = mask.expand(rows, heads, new, places).clone()
    for row, temper in enumerate(tempers):
        if temper is None:
            continue
        at = temper.places.nonzero()[:, 0].to(key.device)
        keys = key[row, :, at].float().repeat_interleave(heads // key.shape[1], dim=0)
        scores = query[row].float() @ keys.transpose(-1, -2) * scale / temper.temperature
        hidden = out[row][:, :, at] <= lowest / 2
        total = scores.masked_fill(hidden, -torch.inf).logsumexp(dim=-1, keepdim=True)
        change = scores * (1 - temper.temperature) + (temper.scale - 1) * total
        out[row][:, :, at] += change.masked_fill(hidden, 0.0).to(out.dtype)
    return out


def _refusal(model: LoadedModel, reason: str) -> str:
    return (
        f"{model.info.name} cannot tune its attention: {reason}. Models that go through the attention "
        "interface of transformers can. Choose another model or another method."
    )
