"""Rotating keys: what a group of rotations has to satisfy, and that it is the models' own rotation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.cohere2.modeling_cohere2 import apply_rotary_pos_emb as apply_interleaved
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as apply_halves

from backend.cache.rope import LayerRotation, Rotation, rotate_layer
from backend.model.load import LoadedModel

HEAD_DIM = 16
SMALL = st.integers(-2000, 2000)
RULES = {
    "full": LayerRotation(10_000.0 ** -(torch.arange(0, 16, 2) / 16)),
    "partial": LayerRotation(500.0 ** -(torch.arange(0, 8, 2) / 8)),
    "interleaved": LayerRotation(10_000.0 ** -(torch.arange(0, 16, 2) / 16), interleaved=True),
    "partial interleaved": LayerRotation(500.0 ** -(torch.arange(0, 8, 2) / 8), interleaved=True),
    "none": LayerRotation(torch.empty(0)),
}


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> LayerRotation:
    return RULES[request.param]


def keys(tokens: int = 5, seed: int = 0) -> torch.Tensor:
    return torch.randn(3, 2, tokens, HEAD_DIM, generator=torch.Generator().manual_seed(seed))


def at(*positions: int) -> torch.Tensor:
    return torch.tensor(positions)


@given(name=st.sampled_from(sorted(RULES)), first=SMALL, second=SMALL, seed=st.integers(0, 99))
def test_two_rotations_are_one(name: str, first: int, second: int, seed: int) -> None:
    rule, x = RULES[name], keys(1, seed)
    twice = rotate_layer(rotate_layer(x, at(first), rule), at(second), rule)
    torch.testing.assert_close(twice, rotate_layer(x, at(first + second), rule), atol=2e-3, rtol=0)
    if abs(first) + abs(second) < 64:
        torch.testing.assert_close(twice, rotate_layer(x, at(first + second), rule), atol=2e-5, rtol=0)


@given(name=st.sampled_from(sorted(RULES)), shift=SMALL, seed=st.integers(0, 99))
def test_the_inverse_brings_keys_back(name: str, shift: int, seed: int) -> None:
    """However far: both directions round the same angle."""
    rule, x = RULES[name], keys(1, seed)
    back = rotate_layer(rotate_layer(x, at(shift), rule), at(-shift), rule)
    torch.testing.assert_close(back, x, atol=2e-6, rtol=0)


@given(name=st.sampled_from(sorted(RULES)), shift=SMALL, seed=st.integers(0, 99))
def test_lengths_and_inner_products_depend_on_distance_only(name: str, shift: int, seed: int) -> None:
    rule, x, y = RULES[name], keys(1, seed), keys(1, seed + 1)
    torch.testing.assert_close(
        rotate_layer(x, at(shift), rule).norm(dim=-1), x.norm(dim=-1), atol=1e-5, rtol=1e-5
    )
    here = (rotate_layer(x, at(7), rule) * rotate_layer(y, at(3), rule)).sum(-1)
    there = (rotate_layer(x, at(7 + shift), rule) * rotate_layer(y, at(3 + shift), rule)).sum(-1)
    torch.testing.assert_close(here, there, atol=5e-3, rtol=0)


def test_by_nothing_is_the_identity(rule: LayerRotation) -> None:
    x = keys()
    assert torch.equal(rotate_layer(x, torch.zeros(5), rule), x)


def test_channels_beyond_the_rotated_ones_are_copied(rule: LayerRotation) -> None:
    x = keys()
    turned = rotate_layer(x, at(1, 2, 3, 4, 5), rule)
    assert torch.equal(turned[..., rule.rotated_dims :], x[..., rule.rotated_dims :])
    if rule.rotated_dims:
        assert not torch.allclose(turned[..., : rule.rotated_dims], x[..., : rule.rotated_dims])


def test_the_direction_is_fixed() -> None:
    """One pair, a quarter turn: (1, 0) becomes (0, 1)."""
    rule = LayerRotation(torch.tensor([torch.pi / 2]))
    turned = rotate_layer(torch.tensor([[[[1.0, 0.0]]]]), at(1), rule)
    torch.testing.assert_close(turned, torch.tensor([[[[0.0, 1.0]]]]))


def test_writing_in_place_and_to_a_view(rule: LayerRotation) -> None:
    x = keys()
    wanted = rotate_layer(x, at(1, 2, 3, 4, 5), rule)
    room = torch.zeros(3, 2, 9, HEAD_DIM)
    returned = rotate_layer(x, at(1, 2, 3, 4, 5), rule, room[:, :, 2:7])
    assert returned.data_ptr() == room[:, :, 2:7].data_ptr()
    assert torch.equal(room[:, :, 2:7], wanted)
    assert not room[:, :, :2].any()
    assert not room[:, :, 7:].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rotated_in_fp32(rule: LayerRotation, dtype: torch.dtype) -> None:
    x = keys().to(dtype)
    positions = at(900, 901, 902, 903, 904)
    turned = rotate_layer(x, positions, rule)
    assert turned.dtype == dtype
    assert torch.equal(turned, rotate_layer(x.float(), positions, rule).to(dtype))


@pytest.mark.parametrize("name", ["full", "partial"])
def test_against_transformers_halves(name: str) -> None:
    rule, x = RULES[name], keys()
    positions = at(0, 3, 17, 4, 250)
    angles = positions[:, None] * torch.cat([rule.inv_freq, rule.inv_freq])
    dims = rule.rotated_dims
    wanted, _ = apply_halves(x[..., :dims], x[..., :dims], angles.cos()[None], angles.sin()[None])
    torch.testing.assert_close(rotate_layer(x, positions, rule)[..., :dims], wanted, atol=1e-6, rtol=0)


def test_against_transformers_interleaved() -> None:
    rule, x = RULES["interleaved"], keys()
    positions = at(0, 3, 17, 4, 250)
    angles = positions[:, None] * rule.inv_freq.repeat_interleave(2)
    wanted, _ = apply_interleaved(x, x, angles.cos()[None], angles.sin()[None])
    torch.testing.assert_close(rotate_layer(x, positions, rule), wanted, atol=1e-6, rtol=0)


def test_against_a_models_own_keys(tiny_model: LoadedModel) -> None:
    """The model's rotary module, llama3 scaling included, turns keys as our frequencies do."""
    x = keys()[:, :, :, :16]
    positions = at(5, 6, 7, 300, 301)
    cos, sin = tiny_model.module.model.rotary_emb(x, positions[None])
    wanted, _ = apply_halves(x, x, cos, sin)
    turned = tiny_model.rotation.rotate(x, positions)
    torch.testing.assert_close(turned, wanted, atol=1e-6, rtol=0)
    plain = LayerRotation(10_000.0 ** -(torch.arange(0, 16, 2) / 16))
    assert not torch.allclose(rotate_layer(x, positions, plain), wanted, atol=1e-3), "llama3 scaling was lost"


def test_a_model_may_mix_rules() -> None:
    names = ("full", "full", "none", "interleaved")
    rotation = Rotation(tuple(RULES[name] for name in names))
    assert [(s.start, s.stop) for s, _ in rotation.groups] == [(0, 2), (2, 3), (3, 4)]
    x = torch.randn(4, 2, 5, HEAD_DIM)
    positions = at(3, 1, 4, 1, 5)
    turned = rotation.rotate(x, positions)
    for layer, name in enumerate(names):
        assert torch.equal(turned[layer], rotate_layer(x[layer], positions, RULES[name]))


def test_gradients_turn_back(rule: LayerRotation) -> None:
    """A rotation's transpose is its inverse, and what is trained through it is what is computed without."""
    x, wanted = keys().requires_grad_(), keys(seed=1)
    positions = at(3, 1, 4, 15, 92)
    turned = rotate_layer(x, positions, rule)
    with torch.inference_mode():
        assert torch.equal(turned, rotate_layer(x, positions, rule))
    (turned * wanted).sum().backward()
    torch.testing.assert_close(x.grad, rotate_layer(wanted, -positions, rule), atol=2e-6, rtol=0)
