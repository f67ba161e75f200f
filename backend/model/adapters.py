"""Shipped link tokens and role variants, applied to a copy of a loaded model; one copy for all sessions."""

import copy
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from backend.base.errors import ModelError
from backend.base.text import show
from backend.model.link_tokens import FORMAT, SHIPPED, VARIANTS, apply_links, base_hash, load_links
from backend.model.load import LoadedModel, wrap_model
from backend.model.low_rank import low_rank_of

_GUARD = threading.Lock()
_LABELS: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
_MODELS: WeakKeyDictionary[Any, dict[str, LoadedModel]] = WeakKeyDictionary()


def weight_labels(model: LoadedModel) -> dict[str, str]:
    """Names and labels ("KVLink5") of the shipped weights that were trained on a model's weights."""
    with _GUARD:
        if model.module not in _LABELS:
            _LABELS[model.module] = _read_labels(model.module)
        return dict(_LABELS[model.module])


def _read_labels(module: Any) -> dict[str, str]:
    from safetensors import safe_open

    labels: dict[str, str] = {}
    base: str | None = None
    for path in sorted(SHIPPED.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            hidden = file.get_slice("links").get_shape()[-1]
        if metadata.get("format") != FORMAT or hidden != module.get_input_embeddings().weight.shape[1]:
            continue  # another width: no need to hash the model
        base = base or base_hash(module)
        if metadata["base"] == base:
            labels[path.stem] = str(json.loads(metadata["facts"])["facts"].get("label") or path.stem)
    return dict(sorted(labels.items(), key=lambda item: item[1], reverse=True))


def adapt(model: LoadedModel, name: str) -> LoadedModel:
    """A copy of the model with shipped link tokens and their deltas; made once.

    Raises:
        ModelError: no such weights belong to the model.
    """
    labels = weight_labels(model)
    if name not in labels:
        names = ", ".join(labels) or "none"
        raise ModelError(
            f"No weights {show(name)} are shipped for {model.info.name}; there are: {names}. Choose of "
            "these, or train some: kvlab train-links.",
            field="documents.weights",
        )
    return _adapt(model, SHIPPED, name)


def variant(model: LoadedModel, name: str) -> LoadedModel | None:
    """A copy of the model fine-tuned for one role; None if no such variant is shipped.

    Raises:
        ModelError: the variant was trained on other weights.
    """
    names = {path.stem for path in VARIANTS.glob("*.safetensors")}
    return _adapt(model, VARIANTS, name) if name in names else None


def _adapt(model: LoadedModel, folder: Path, name: str) -> LoadedModel:
    with _GUARD:
        models = _MODELS.setdefault(model.module, {})
        if name not in models:
            module, full_name = copy.deepcopy(model.module), f"{model.info.name}+{name}"
            path = folder / f"{name}.safetensors"
            links = apply_links(module, path, full_name)
            result = wrap_model(module, model.tokens.tokenizer, name=full_name, links=links)
            layerwise, (_, deltas, _) = result.info.layerwise, load_links(path)
            low_rank = low_rank_of(module, deltas, result.info.kv_heads) if layerwise else None
            models[name] = replace(result, low_rank=low_rank)
        return models[name]
