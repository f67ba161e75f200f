"""Layers that are added to trained weights change nothing at first, and can learn."""

from __future__ import annotations

from dataclasses import replace

import pytest
import tiny
import torch

from backend.training.deepen import deepen
from backend.training.forward_pass import build_model
from backend.training.recipe import Recipe

SMALL = Recipe(hidden=32, layers=2, heads=2, kv_heads=2, intermediate=48, context=64)


@pytest.mark.parametrize("more", [0, 1, 3])
def test_a_deeper_model_answers_as_before_and_learns(more: int) -> None:
    small = build_model(SMALL, tiny.tokenizer())
    deeper = build_model(replace(SMALL, layers=2 + more, seed=7), tiny.tokenizer())
    deeper.load_state_dict(deepen(small.state_dict(), 2 + more))
    ids = torch.arange(24)[None] % 20
    out = deeper(ids, labels=ids)
    torch.testing.assert_close(out.logits, small(ids).logits)
    out.loss.backward()
    # every layer is reached by the gradient, an added one through its silent matrices
    for layer in deeper.model.layers:
        assert layer.self_attn.o_proj.weight.grad.abs().max() > 0
        assert layer.mlp.down_proj.weight.grad.abs().max() > 0


def test_layers_are_never_taken_away() -> None:
    state = build_model(SMALL, tiny.tokenizer()).state_dict()
    with pytest.raises(ValueError, match="2 layers"):
        deepen(state, 1)
