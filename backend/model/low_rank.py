"""An adapter's low-rank part of keys and values (LoRA: ``x @ down.T @ up.T``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from backend.model.link_tokens import Delta

KINDS = {"k_proj": 0, "v_proj": 1}


@dataclass(frozen=True)
class LowRank:
    """An adapter's part of the key and value projections, in this order, at every layer.

    Attributes:
        down: (2, layers, rank, hidden); zeros if a projection is not adapted.
        up: (2, layers, kv_heads, head_dim, rank).
    """

    down: Tensor
    up: Tensor

    @property
    def rank(self) -> int:
        return int(self.down.shape[2])

    @property
    def rows(self) -> Tensor:
        """(layers, 2 * rank, hidden): each layer's input is multiplied by these rows and the product
        stored."""
        return self.down.transpose(0, 1).flatten(1, 2)

    def at(self, layer: int) -> LowRank:
        """The part of one layer."""
        return LowRank(self.down[:, layer : layer + 1], self.up[:, layer : layer + 1])

    def expand(self, products: Tensor) -> tuple[Tensor, Tensor]:
        """What it adds to position-free keys and to values, each (layers, kv_heads, tokens, head_dim), from
        the products (layers, tokens, 2 * rank) of the layers' inputs with :attr:`rows`."""
        parts = products.unflatten(-1, (2, self.rank))
        keys, values = (
            torch.einsum("ltr,lhdr->lhtd", parts[:, :, kind], self.up[kind].to(products)) for kind in (0, 1)
        )
        return keys, values


def low_rank_of(module: Any, deltas: Mapping[str, Delta], kv_heads: int) -> LowRank:
    """The part of deltas that changes keys and values.

    If a model normalises keys after the projection (Qwen 3), the keys' part cannot be added afterwards and is
    left out.

    Args:
        module: the adapted model, of a family whose layers can be called one by one.
        deltas: by the projection's name (:func:`backend.model.link_tokens.projections`).
        kv_heads: heads of its keys and values.
    """
    layers = module.get_decoder().layers
    hidden = module.get_input_embeddings().weight
    rank = max((int(delta.down.shape[0]) for delta in deltas.values()), default=1)
    down = torch.zeros(2, len(layers), rank, hidden.shape[1])
    up: Tensor | None = None
    for name, part in module.named_modules():
        if (kind := KINDS.get(name.rpartition(".")[2])) is None:
            continue
        if up is None:
            up = torch.zeros(2, len(layers), part.out_features, rank)
        delta, layer = deltas.get(name), int(name.rsplit("layers.", 1)[1].partition(".")[0])
        normed = kind == 0 and hasattr(layers[layer].self_attn, "k_norm")
        if delta is not None and not normed:
            down[kind, layer, : len(delta.down)] = delta.down
            up[kind, layer, :, : len(delta.down)] = delta.up
    assert up is not None, "no key or value projection was found"
    return LowRank(down.to(hidden.device), up.unflatten(2, (kv_heads, -1)).to(hidden.device))
