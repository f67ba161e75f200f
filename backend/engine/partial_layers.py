"""Prefill where some tokens are known at the lower layers ("Layerwise reuse", made consistent).

Below the *cut* only the other tokens are forwarded, over the known tokens' stored K/V. From the cut on all
tokens are, and the known ones need a hidden state there. The plan does not say which; three readings:

- the cut lies above the last layer (*full stack*): they are not forwarded and need none;
- their hidden state at the cut was stored with their K/V (*kept hidden states*);
- their embeddings are used (*skipped*): upper layers then read states that no lower layer has processed. This
  is inconsistent, and supported for study.

From a second cut (``until``) on they may be known again: then only the layers between are computed for them.
Or they are known at every layer but for an adapter's part, which depends on their own states (``own``): then
they are forwarded over the known K/V, and the adapter's part is added layer by layer.

One causal pass over all forwarded tokens; needs the model's layers one by one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from backend.base.errors import ModelError, OptionError
from backend.cache.kv_cache import KVCache
from backend.cache.rope import Rotation
from backend.methods.plan import Plan, Reuse
from backend.model.hooks import call_layer, masks_of, why_not_layerwise
from backend.model.load import LoadedModel
from backend.model.low_rank import LowRank


@dataclass(frozen=True)
class KnownTokens:
    """Tokens whose layers below ``cut`` are known.

    Attributes:
        tokens: (n,) their indices, ascending; never the last of the prompt.
        keys, values: (known layers, kv_heads, n, head_dim), keys position-free.
        hidden: (n, hidden) inputs of layer ``cut``; None if the cut is above the last layer, or to skip the
            layers below it.
        cut: the number of known lower layers.
        until: the layer from which on they are known again; None: none.
        projected: (layers, n, rows) products of their layers' inputs, if requested.
        own: the adapter whose part is added to their K/V.
    """

    tokens: Tensor
    keys: Tensor
    values: Tensor
    hidden: Tensor | None
    cut: int
    until: int | None = None
    projected: Tensor | None = None
    own: LowRank | None = None


def known_layers(cut: int, until: int | None, layers: int) -> list[int]:
    """The layers at which known tokens are copied."""
    return [*range(cut), *range(layers if until is None else until, layers)]


def gather(plan: Plan, last: int, model: LoadedModel) -> KnownTokens:
    """All tokens that a plan with a cut copies; the prompt's ``last`` token is left out.

    Raises:
        ModelError: only some of its segments have hidden states for the cut.
    """
    cut = plan.cut or 0
    rows = known_layers(cut, plan.until, model.info.layers)
    copies = [(s, min(s.end, last) - s.start, s.action) for s in plan.steps if isinstance(s.action, Reuse)]
    copies = [(step, tokens, reuse) for step, tokens, reuse in copies if tokens > 0]
    if not copies or not rows:
        shape = (len(rows), model.info.kv_heads, 0, model.info.head_dim)
        empty = torch.empty(shape, dtype=model.dtype, device=model.device)
        return KnownTokens(torch.empty(0, dtype=torch.long), empty, empty, None, cut, plan.until)
    hidden = [reuse.hidden[:n] for _, n, reuse in copies if reuse.hidden is not None]
    if hidden and len(hidden) < len(copies):
        raise ModelError("Some of the plan's segments hold states to go on from, and others do not.")
    products = [reuse.projected[:, :n] for _, n, reuse in copies if reuse.projected is not None]
    return KnownTokens(
        torch.cat([torch.arange(step.start, step.start + n) for step, n, _ in copies]),
        torch.cat([reuse.base.keys[rows, :, :n] for _, n, reuse in copies], dim=2),
        torch.cat([reuse.base.values[rows, :, :n] for _, n, reuse in copies], dim=2),
        torch.cat(hidden) if hidden else None,
        cut,
        plan.until,
        torch.cat(products, dim=1) if products else None,
        plan.own,
    )


@dataclass(frozen=True)
class LayeredPass:
    """``cache``: in the prompt's order; ``logits``: (vocabulary,) fp32, of the last token; ``hidden``:
    (tokens, hidden) states at the cut, zeros for known tokens if it is above the last layer;
    ``token_layers``: as forwarded; ``projected``: (layers, tokens, n) products of the layers' inputs with
    requested rows."""

    cache: KVCache
    logits: Tensor
    hidden: Tensor
    token_layers: int
    projected: Tensor | None = None


@torch.inference_mode()
def read_above(
    model: LoadedModel,
    ids: tuple[int, ...],
    known: KnownTokens,
    spare_tokens: int = 0,
    project: Tensor | None = None,
) -> LayeredPass:
    """Prefill a prompt, some of whose tokens are known below a cut.

    Args:
        model: of a family whose layers can be called one by one.
        ids: the prompt's tokens.
        known: the known tokens; none gives a dense pass.
        spare_tokens: room to leave in the cache.
        project: (layers, n, hidden) rows by which each layer's normed input is multiplied; known tokens
            must then be forwarded at no layer or at all layers.

    Raises:
        OptionError: the model's layers cannot be called one by one.
    """
    if why_not_layerwise(model):
        raise OptionError(
            "Reusing some layers alone needs the model's layers one by one, which the lab does for the "
            f"Llama and Qwen families; {model.info.name} is of another. Reuse all layers instead.",
            field="segments.form",
        )
    total, layers, device = len(ids), model.info.layers, model.device
    count = len(known.tokens)
    computed = torch.ones(total, dtype=torch.bool)
    computed[known.tokens] = False
    # Known tokens are first in the cache; each token attends to what is before it in the prompt.
    order = torch.cat([known.tokens, computed.nonzero().flatten()])
    visible = order[None] <= order[:, None]
    own = known.own if count else None  # then known tokens are in the cache twice until the end
    extra = count if own is not None else 0
    cache = model.new_cache(total + extra + spare_tokens)
    rows = known_layers(known.cut, known.until, layers)
    if count and rows:
        rotation = Rotation(tuple(model.rotation.layers[layer] for layer in rows))
        cache.keys[rows, 0, :, :count] = rotation.rotate(known.keys, order[:count].to(device))
        cache.values[rows, 0, :, :count] = known.values
    decoder = model.module.get_decoder()
    embeddings = model.module.get_input_embeddings()(torch.tensor(ids, device=device)[order.to(device)])[None]
    hidden, at_cut, token_layers = embeddings[:, count:], embeddings, 0
    upper = masks_of(model, visible[count:], order), order[count:].to(device)
    masks, positions = upper
    if own is not None:
        hidden, positions = embeddings, order.to(device)
        fresh = torch.zeros(total, extra, dtype=torch.bool)  # their newly computed K/V are never attended to
        wide = torch.cat([order[:extra], order])
        masks = masks_of(model, torch.cat([visible[:, :count], fresh, visible[:, count:]], dim=1), wide)
    products = []
    for layer in range(layers):
        if own is None and layer == known.cut:
            first = embeddings[:, :count] if known.hidden is None else known.hidden[None].to(embeddings)
            hidden = at_cut = torch.cat([first, hidden], dim=1)
            masks, positions = masks_of(model, visible, order), order.to(device)
        if own is None and layer == known.until:
            hidden, (masks, positions) = hidden[:, count:], upper
        if project is not None or own is not None:
            normed = decoder.layers[layer].input_layernorm(hidden)[0]
            if project is not None:
                products.append(normed @ project[layer].to(normed).mT)
            if own is not None:
                _add_own(cache, layer, own.at(layer), normed[:count], model.rotation, positions[:count])
        cache.layers[layer].rewind(count if layer in rows else 0)
        hidden = call_layer(model, layer, hidden, positions, masks, cache)
        token_layers += hidden.shape[1]
    if known.cut >= layers:
        at_cut = torch.cat([torch.zeros_like(embeddings[:, :count]), hidden], dim=1)
    logits = model.module.lm_head(decoder.norm(hidden[:, -1])).float()[0]
    places = order.argsort()
    cache.reorder(torch.where(places < count, places, places + extra))
    cache.length = total
    projected = torch.stack(products) if products else None
    if projected is not None and projected.shape[1] < total:
        assert known.projected is not None, "the plan's copies come without what is asked for"
        projected = torch.cat([known.projected.to(projected), projected], dim=1)
    projected = None if projected is None else projected[:, places.to(device)]
    return LayeredPass(cache, logits, at_cut[0, places.to(device)], token_layers, projected)


def _add_own(
    cache: KVCache, layer: int, own: LowRank, inputs: Tensor, rotation: Rotation, positions: Tensor
) -> None:
    """Add an adapter's part to the first tokens of a layer's cache, given the layer's ``inputs`` (tokens,
    hidden)."""
    keys, values = own.expand((inputs @ own.rows[0].to(inputs).mT)[None])
    count = len(inputs)
    cache.keys[layer, 0, :, :count] += Rotation((rotation.layers[layer],)).rotate(keys, positions)[0]
    cache.values[layer, 0, :, :count] += values[0]
