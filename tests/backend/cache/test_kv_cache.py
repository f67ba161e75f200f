"""Caches: the preallocated one does what transformers' own does, and segments lose nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tiny import TOLERANCE, error
from transformers import DynamicCache

from backend.cache.kv_cache import KVCache, KVOffset, KVSegment, as_argument, made_cache
from backend.cache.rope import LayerRotation, Rotation
from backend.engine.engine import Engine
from backend.model.load import LoadedModel

IDS = list(range(20, 52))
SHAPE = (2, 1, 2, 6, 4)  # layers, rows, heads, capacity, channels


def filled(tokens: int, seed: int = 0, shape: tuple[int, int, int, int, int] = SHAPE) -> KVCache:
    cache = KVCache(shape, torch.float32, torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    cache.keys.copy_(torch.randn(shape, generator=generator))
    cache.values.copy_(torch.randn(shape, generator=generator))
    cache.length = tokens
    return cache


ROTATION = Rotation((LayerRotation(torch.tensor([1.0, 0.1])),) * 2)


class Named(torch.nn.Module):
    def forward(self, ids: torch.Tensor, cache: object = None) -> object:
        return cache


class NamedAsBefore(torch.nn.Module):
    def forward(self, ids: torch.Tensor, past_key_values: object = None) -> object:
        return past_key_values


class PassedOn(Named):
    def forward(self, ids: torch.Tensor, **rest: object) -> object:  # type: ignore[override]
        return super().forward(ids, **rest)


@pytest.mark.parametrize("kind", [Named, NamedAsBefore, PassedOn])
def test_a_module_is_given_the_cache_under_its_own_name_for_it(kind: type[torch.nn.Module]) -> None:
    held = DynamicCache()
    assert kind()(torch.zeros(1), **as_argument(kind(), held)) is held


def test_the_cache_of_an_output_is_read_by_either_name() -> None:
    held = DynamicCache()
    assert made_cache(SimpleNamespace(cache=held)) is held
    assert made_cache(SimpleNamespace(cache=None, past_key_values=held)) is held
    assert made_cache(SimpleNamespace(logits=None)) is None


@pytest.mark.parametrize("cuts", [(32,), (20, 12), (1, 30, 1), (10, 1, 1, 20)])
def test_the_buffer_cache_gives_what_dynamic_cache_gives(
    tiny_model: LoadedModel, cuts: tuple[int, ...]
) -> None:
    mine, theirs = tiny_model.new_cache(len(IDS)), DynamicCache(config=tiny_model.module.config)
    at = 0
    for size in cuts:
        ids = torch.tensor([IDS[at : at + size]])
        positions = torch.arange(at, at + size)[None]
        mask = torch.ones(1, at + size, dtype=torch.long)
        with torch.inference_mode():
            a, b = (
                tiny_model.module(
                    input_ids=ids,
                    position_ids=positions,
                    attention_mask=mask,
                    **as_argument(tiny_model.module, cache),
                    use_cache=True,
                ).logits
                for cache in (mine.cache, theirs)
            )
        assert torch.equal(a, b)
        at += size
        assert mine.length == theirs.get_seq_length() == at
    for index, layer in enumerate(theirs.layers):
        assert torch.equal(mine.layers[index].keys, layer.keys)
        assert torch.equal(mine.layers[index].values, layer.values)
        assert torch.equal(mine.keys[index, :, :, :at], layer.keys)
        assert torch.equal(mine.values[index, :, :, :at], layer.values)


def test_appending_writes_in_place() -> None:
    cache = KVCache(SHAPE, torch.float32, torch.device("cpu"))
    before = cache.keys.data_ptr()
    new = torch.ones(1, 2, 3, 4)
    for layer in cache.layers:
        keys, values = layer.update(new, 2 * new)
        assert keys.shape == values.shape == (1, 2, 3, 4)
        layer.update(3 * new, 4 * new)
    assert cache.length == cache.capacity == 6
    assert cache.keys.data_ptr() == before
    assert torch.equal(cache.keys[0, :, :, 3:], 3 * new)
    assert torch.equal(cache.values[1, :, :, :3], 2 * new)


def test_making_room_keeps_the_content() -> None:
    cache = filled(4)
    keys, values = cache.keys.clone(), cache.values.clone()
    cache.reserve(5)
    assert cache.capacity == 6, "there was room"
    cache.reserve(11)
    assert (cache.capacity, cache.length) == (11, 4)
    assert torch.equal(cache.keys[:, :, :, :4], keys[:, :, :, :4])
    assert torch.equal(cache.values[:, :, :, :4], values[:, :, :, :4])
    assert torch.equal(cache.layers[1].keys, keys[1, :, :, :4])


def test_a_segment_is_position_free_and_comes_back() -> None:
    cache = filled(6)
    segment = cache.segment(2, 5, ROTATION, exact=True, context="test")
    assert (segment.tokens, segment.start, segment.exact, segment.context) == (3, 2, True, "test")
    assert segment.bytes == 2 * 2 * 2 * 3 * 4 * 4
    back = ROTATION.rotate(segment.keys, torch.arange(2, 5))
    assert error(back, cache.keys[:, 0, :, 2:5]) <= 1e-6
    assert torch.equal(segment.values, cache.values[:, 0, :, 2:5])
    cache.keys.zero_()
    cache.values.zero_()
    assert segment.keys.abs().min() > 0, "a segment is a copy"
    assert segment.values.abs().min() > 0


def test_the_same_tokens_elsewhere_are_the_same_segment(tiny_model: LoadedModel) -> None:
    """At layer 0 keys depend on token and position alone: position-free they are equal anywhere."""
    engine = Engine(tiny_model)
    near, _ = engine.prefill(IDS)
    far, _ = engine.prefill([*reversed(IDS), *IDS])
    a = near.segment(0, 32, tiny_model.rotation, exact=True, context="")
    b = far.segment(32, 64, tiny_model.rotation, exact=True, context="")
    assert error(a.keys[0], b.keys[0]) <= TOLERANCE
    assert error(a.values[0], b.values[0]) <= TOLERANCE
    assert error(near.keys[0, 0, :, :32], far.keys[0, 0, :, 32:64]) > 0.1
    assert error(a.values[1], b.values[1]) > 1e-3


def test_a_batch_is_aligned_at_the_right() -> None:
    rows = [filled(2, seed=1), filled(6, seed=2), filled(5, seed=3)]
    joined, padding = KVCache.batch(rows, extra_tokens=3)
    assert padding == [4, 0, 1]
    assert (joined.length, joined.capacity) == (6, 9)
    for index, (row, pad) in enumerate(zip(rows, padding, strict=True)):
        assert torch.equal(joined.keys[:, index, :, pad:6], row.keys[:, 0, :, : row.length])
        assert torch.equal(joined.values[:, index, :, pad:6], row.values[:, 0, :, : row.length])
        assert not joined.keys[:, index, :, :pad].any()
        # A place in the batch is a position plus the padding.
        a = joined.segment(pad, 6, ROTATION, exact=True, context="", row=index, padding=pad)
        b = row.segment(0, row.length, ROTATION, exact=True, context="")
        assert a.start == b.start == 0
        assert torch.equal(a.keys, b.keys)
        assert torch.equal(a.values, b.values)


def test_slices_know_where_they_stood() -> None:
    segment = filled(6).segment(1, 6, ROTATION, exact=False, context="test")
    part = segment.slice(2, 4)
    assert (part.tokens, part.start, part.exact, part.context) == (2, 3, False, "test")
    assert torch.equal(part.keys, segment.keys[:, :, 2:4])


def test_an_offset_is_real_minus_base() -> None:
    real = filled(6, seed=1).segment(0, 6, ROTATION, exact=True, context="")
    base = filled(6, seed=2).segment(0, 6, ROTATION, exact=True, context="")
    offset = KVOffset.between(real, base)
    assert torch.equal(offset.keys, real.keys - base.keys)
    assert torch.equal(offset.values, real.values - base.values)
    assert offset.tokens == 6
    assert offset.bytes == real.bytes
    part = offset.slice(1, 3)
    assert torch.equal(part.values, offset.values[:, :, 1:3])
    assert isinstance(base, KVSegment)
