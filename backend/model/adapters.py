"""Shipped link tokens, and variants for one role, over a model that is loaded already: one adapted copy for
all who read with it."""

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
_FITTING: WeakKeyDictionary[Any, dict[str, str]] = WeakKeyDictionary()
_MADE: WeakKeyDictionary[Any, dict[str, LoadedModel]] = WeakKeyDictionary()


def fitting(model: LoadedModel) -> dict[str, str]:
    """The shipped weights that were trained for a model's: names and labels ("KVLink5")."""
    with _GUARD:
        if model.module not in _FITTING:
            _FITTING[model.module] = _fitting(model.module)
        return dict(_FITTING[model.module])


def _fitting(module: Any) -> dict[str, str]:
    from safetensors import safe_open

    labels: dict[str, str] = {}
    own: str | None = None
    for path in sorted(SHIPPED.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            hidden = file.get_slice("links").get_shape()[-1]
        if metadata.get("format") != FORMAT or hidden != module.get_input_embeddings().weight.shape[1]:
            continue  # told by its width, without reading a large model
        own = own or base_hash(module)
        if metadata["base"] == own:
            labels[path.stem] = str(json.loads(metadata["facts"])["facts"].get("label") or path.stem)
    return dict(sorted(labels.items(), key=lambda item: item[1], reverse=True))


def adapted(model: LoadedModel, name: str) -> LoadedModel:
    """The model with shipped link tokens and their deltas; it stays as it is. Made once.

    Raises:
        ModelError: no such weights belong to it.
    """
    known = fitting(model)
    if name not in known:
        listed = ", ".join(known) or "none"
        raise ModelError(
            f"No weights {show(name)} are shipped for {model.info.name}; there are: {listed}. Choose of "
            "these, or train some: kvlab train-links.",
            field="documents.weights",
        )
    return _changed(model, SHIPPED, name)


def variant(model: LoadedModel, name: str) -> LoadedModel | None:
    """The model as it was fine-tuned for one role; None: no such variant is shipped.

    Raises:
        ModelError: it was trained on other weights.
    """
    known = {path.stem for path in VARIANTS.glob("*.safetensors")}
    return _changed(model, VARIANTS, name) if name in known else None


def _changed(model: LoadedModel, folder: Path, name: str) -> LoadedModel:
    with _GUARD:
        made = _MADE.setdefault(model.module, {})
        if name not in made:
            module, called = copy.deepcopy(model.module), f"{model.info.name}+{name}"
            path = folder / f"{name}.safetensors"
            links = apply_links(module, path, called)
            whole = wrap_model(module, model.tokens.tokenizer, name=called, links=links)
            layered, (_, deltas, _) = whole.info.layerwise, load_links(path)
            low_rank = low_rank_of(module, deltas, whole.info.kv_heads) if layered else None
            made[name] = replace(whole, low_rank=low_rank)
        return made[name]
