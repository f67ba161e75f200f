"""The error of a copied text, step by step: copied, turned, corrected, read."""

import numpy as np
import torch
from torch import Tensor

from backend.cache.kv_cache import KVCache
from backend.cache.rope import LayerRotation, Rotation
from backend.methods.plan import Plan, Reuse, Step
from backend.records.prompt import TokenizedPrompt
from backend.records.transfer import SHOWN_PAIRS, SHOWN_TOKENS, Transfer
from backend.session.probes.cache_error import keys_in_place


def transfers(
    prompt: TokenizedPrompt, plan: Plan, cache: KVCache, dense: KVCache, rotation: Rotation
) -> tuple[Transfer, ...]:
    """One of each placeholder's text that was copied though it is only nearly the same here; of a text that
    was copied in pieces, the longest piece. None where only the lower layers were copied.

    Args:
        prompt: what was read; the same under dense.
        plan: how the method read it, into ``cache``.
        dense: the full read's cache.
    """
    if plan.cut is not None:
        return ()
    keys = keys_in_place(cache, len(prompt.ids), rotation)
    out = []
    for span in prompt.spans:
        pieces = [
            step
            for step in plan.steps
            if span.kind == "placeholder"
            and isinstance(step.action, Reuse)
            and not step.action.exact
            and span.start <= step.start < step.end <= span.end
        ]
        if pieces:
            piece = max(pieces, key=lambda step: step.end - step.start)
            out.append(_transfer(piece, keys, cache.values[:, 0], dense, rotation))
    return tuple(out)


def _transfer(step: Step, keys: Tensor, values: Tensor, dense: KVCache, rotation: Rotation) -> Transfer:
    assert isinstance(step.action, Reuse)
    base, text = step.action.base, slice(step.start, step.end)
    places = torch.arange(step.start, step.end, device=keys.device)
    encoded_at = torch.arange(base.start, base.start + base.tokens, device=keys.device)
    encoded, turned = rotation.rotate(base.keys, encoded_at), rotation.rotate(base.keys, places)
    full_keys, full_values = dense.keys[:, 0, :, text], dense.values[:, 0, :, text]
    read_keys, read_values = keys[:, :, text], values[:, :, text]
    missing = _error(turned, full_keys)
    layer, head = divmod(int(missing.argmax()), missing.shape[1])
    rule = rotation.layers[layer]
    channels = _pairs(rule, keys.shape[-1])
    place = step.start if step.position is None else step.position
    moved = place - base.start if step.action.moved else 0
    shown = slice(0, SHOWN_TOKENS)
    turns = (step.start - base.start) * rule.inv_freq.float().cpu()

    def picture(*stages: Tensor) -> np.ndarray:
        slices = [stage[layer, head, shown][:, channels.to(stage.device)].float().cpu() for stage in stages]
        return torch.stack(slices).numpy().astype(np.float16)

    return Transfer(
        start=step.start,
        end=step.end,
        first_position=base.start,
        moved_by=moved,
        missing_keys=missing.numpy(),
        missing_values=_error(base.values, full_values).numpy(),
        left_keys=_error(read_keys, full_keys).numpy(),
        left_values=_error(read_values, full_values).numpy(),
        layer=layer,
        head=head,
        angles=turns[_evenly(len(turns))].numpy(),
        keys=picture(encoded, turned, full_keys, read_keys),
        values=picture(base.values, full_values, read_values),
    )


def _error(own: Tensor, full: Tensor) -> Tensor:
    """(layers, kv_heads) of two (layers, kv_heads, tokens, head_dim)."""
    distance = torch.linalg.vector_norm((own - full).float(), dim=(2, 3))
    relative: Tensor = distance / torch.linalg.vector_norm(full.float(), dim=(2, 3)).clamp_min(1e-12)
    return relative.cpu()


def _evenly(count: int) -> list[int]:
    """At most :data:`SHOWN_PAIRS` of so many, spread evenly, the first and the last among them."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, SHOWN_PAIRS))}) if count else []


def _pairs(rule: LayerRotation, channels: int) -> Tensor:
    """Channels of the pairs that are shown, each pair's two side by side; without a rotation, neighbours."""
    half, neighbours = rule.rotated_dims // 2, rule.interleaved
    if not half:
        half, neighbours = channels // 2, True
    pair = torch.tensor(_evenly(half))
    first, other = (2 * pair, 2 * pair + 1) if neighbours else (pair, pair + half)
    return torch.stack([first, other], dim=1).flatten()
