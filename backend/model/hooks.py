"""Controls a forward pass of transformers: custom masks, stopping early, single layers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from backend.base.errors import ModelError
from backend.cache.kv_cache import KVCache, as_argument
from backend.model.load import LoadedModel
from backend.records.model_info import BIASED


class StoppedEarlyError(Exception):
    """Ends a pass whose further layers are not needed; caught right outside of it."""


def masks_of(
    model: LoadedModel, visible: Tensor, positions: Tensor, *, in_place: bool = False
) -> Tensor | dict[str, Tensor]:
    """An attention mask for the model's forward.

    Transformers passes a mask with four axes through, so a sliding window (a number of positions back) and
    chunks (which end at multiples of a length) have to be added here. The mask is additive, since eager
    attention misreads a boolean one.

    Args:
        model: for its layer kinds, window and chunk length.
        visible: (queries, keys) bool; the queries are the last of the keys.
        positions: (keys,) RoPE positions.
        in_place: every token's place in the cache is its position, as in a plain pass.

    Returns:
        (1, 1, queries, keys), or one for each kind of layer if there are several.

    Raises:
        ModelError: its attention adds a bias by the places of the cache (ALiBi), which a mask cannot move.
    """
    if not in_place and any(layer.kind == "distance bias" for layer in model.info.certificate.layers):
        raise ModelError(
            f"{model.info.name} cannot read under a mask of one's own. {BIASED}", field="methods"
        )
    config = model.module.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    queries = positions[-len(visible) :, None]
    limits = {}
    if window := getattr(config, "sliding_window", None):
        limits["sliding_attention"] = queries - positions[None] < window
    if chunk := getattr(config, "attention_chunk_size", None):
        limits["chunked_attention"] = queries // chunk == positions[None] // chunk
    full = _additive(model, visible)
    if kinds is None:
        return (
            _additive(model, visible & limits["sliding_attention"]) if "sliding_attention" in limits else full
        )
    masks = {kind: _additive(model, visible & limits[kind]) for kind in sorted(limits.keys() & {*kinds})}
    return {"full_attention": full, **masks} if masks else full


def _additive(model: LoadedModel, visible: Tensor) -> Tensor:
    mask = torch.zeros(visible.shape, dtype=model.dtype, device=model.device)
    return mask.masked_fill_(~visible.to(model.device), torch.finfo(model.dtype).min)[None, None]


def layers_of(model: LoadedModel) -> nn.ModuleList:
    """The model's decoder layers, under whatever name."""
    lists = (m for m in model.module.modules() if isinstance(m, nn.ModuleList))
    return next(m for m in lists if len(m) == model.info.layers)


@contextmanager
def stop_after(model: LoadedModel, layer: int) -> Iterator[None]:
    """End a pass in the body behind a layer; it then returns no logits."""

    def stop(*_: Any) -> None:
        raise StoppedEarlyError

    with suppress(StoppedEarlyError), ExitStack() as hooks:
        for module in list(layers_of(model))[layer + 1 : layer + 2]:
            hooks.enter_context(module.register_forward_pre_hook(stop))
        yield


@contextmanager
def masked_at(model: LoadedModel, first: int, last: int, masks: Tensor | dict[str, Tensor]) -> Iterator[None]:
    """Use other masks (:func:`masks_of`) at layers ``first`` to ``last`` of a pass in the body."""
    kinds = getattr(model.module.config.get_text_config(), "layer_types", None) or []

    def hook(layer: int) -> Any:
        mask = masks[kinds[layer]] if isinstance(masks, dict) else masks
        return lambda _module, inputs, options: (inputs, {**options, "attention_mask": mask})

    with ExitStack() as hooks:
        for layer, module in list(enumerate(layers_of(model)))[first : last + 1]:
            hooks.enter_context(module.register_forward_pre_hook(hook(layer), with_kwargs=True))
        yield


@contextmanager
def watch_attention(model: LoadedModel, layers: range) -> Iterator[list[Tensor]]:
    """Collect the attention probabilities, (rows, heads, queries, keys), of some layers in a pass in the
    body, which ends behind the last of them. Uses eager attention, since others return none."""
    weights: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, outputs: Any) -> None:
        if isinstance(outputs, tuple):
            weights.extend(x for x in outputs[1:] if isinstance(x, Tensor) and x.ndim == 4)

    kind = model.module.config._attn_implementation
    children = [child for layer in layers for child in layers_of(model)[layer].children()]
    handles = [child.register_forward_hook(keep) for child in children]
    model.module.set_attn_implementation("eager")
    try:
        with stop_after(model, layers[-1]):
            yield weights
    finally:
        model.module.set_attn_implementation(kind)
        for handle in handles:
            handle.remove()


def why_not_layerwise(model: LoadedModel) -> str:
    """Why the model's layers cannot be called one by one; empty if they can."""
    if model.info.layerwise:
        return ""
    return (
        "Choosing anew at each layer needs the model's layers one by one, which the lab does for the Llama "
        f"and Qwen families; {model.info.name} is of the family {model.info.family!r}. Choose one-shot "
        "selection."
    )


def call_layer(
    model: LoadedModel, layer: int, hidden: Tensor, positions: Tensor, masks: Any, cache: KVCache
) -> Tensor:
    """One decoder layer over hidden states (rows, tokens, hidden); K/V are appended to the cache's layer."""
    decoder = model.module.get_decoder()
    if isinstance(masks, dict):
        masks = masks[decoder.config.layer_types[layer]]
    out = decoder.layers[layer](
        hidden,
        attention_mask=masks,
        position_ids=positions[None],
        **as_argument(decoder.layers[layer], cache.cache),
        use_cache=True,
        position_embeddings=decoder.rotary_emb(hidden, positions[None]),
    )
    first_output: Tensor = out[0] if isinstance(out, tuple) else out
    return first_output
