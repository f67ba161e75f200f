"""The proximity probe measures what it says: true nearest pairs, position-free KV, true ranks."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from scipy import stats

from backend.base.errors import OptionError, RecordError
from backend.cache.kv_cache import made_cache
from backend.model.load import LoadedModel
from backend.records.events import Progress
from backend.records.proximity import LIMITS, ProximityRecord, ProximityRequest
from backend.records.run import RunRecord
from backend.studies.proximity import (
    in_cluster,
    last_tokens,
    nearest_pairs,
    proposition_bound,
    proximity,
    spearman,
)

ASKED = ProximityRequest("You are a solver. ", "You are the judge of all of them. ", 300, 60, 3)
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def record(tiny_model: LoadedModel) -> ProximityRecord:
    *steps, found = tiny.lab(tiny_model).study(ASKED)
    assert isinstance(found, ProximityRecord)
    assert all(isinstance(step, Progress) for step in steps)
    done = [step.done / step.total for step in steps if isinstance(step, Progress)]
    assert done == sorted(done)
    assert done[-1] < 1
    return found


def prefix(model: LoadedModel, text: str) -> list[int]:
    return [*model.tokens.bos, *model.tokens.encode(text)]


def special(model: LoadedModel) -> set[int]:
    return set(model.tokens.tokenizer.all_special_ids)


# -- ranks


def test_spearman_is_scipys() -> None:
    rng = np.random.default_rng(0)
    for count in (9, 40, 300):
        x = rng.normal(size=count).astype(np.float32)
        rows = (x * np.array([[0.0], [1.0], [-3.0]]) + rng.normal(size=(3, count))).astype(np.float32)
        found = spearman(x, rows)
        wanted = [stats.spearmanr(x, row).statistic for row in rows]
        np.testing.assert_allclose(found.rho, wanted, rtol=0, atol=1e-12)
        assert (found.low < found.rho).all()
        assert (found.rho < found.high).all()
        assert (np.abs([found.low, found.high]) <= 1).all()


def test_equal_distances_share_a_rank() -> None:
    x = np.array([1, 1, 1, 2, 2, 3, 3, 3, 4, 4], dtype=np.float32)
    row = np.array([2, 1, 1, 3, 2, 2, 5, 5, 3, 5], dtype=np.float32)
    ranks = [stats.rankdata(values, "average") for values in (x, row)]
    assert spearman(x, row[None]).rho[0] == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-12)


def test_more_pairs_make_the_interval_narrower() -> None:
    rng = np.random.default_rng(1)
    widths = []
    for count in (20, 200, 2000):
        x = rng.normal(size=count).astype(np.float32)
        found = spearman(x, (x + rng.normal(size=(1, count))).astype(np.float32))
        widths.append(float((found.high - found.low)[0]))
    assert widths == sorted(widths, reverse=True)


def test_a_constant_layer_has_no_correlation() -> None:
    x = np.arange(20, dtype=np.float32)
    rows = np.stack([np.zeros(20), np.full(20, 1e-6) * (x % 3), np.ones(20), x]).astype(np.float32)
    found = spearman(x, rows)
    assert np.isnan(found.rho).tolist() == [True, True, True, False]
    assert np.isnan(found.low).tolist() == np.isnan(found.high).tolist() == [True, True, True, False]
    assert found.rho[3] == found.low[3] == found.high[3] == 1
    assert np.isnan(spearman(x, np.zeros((2, 20), dtype=np.float32)).rho).all()


def test_small_distances_count_unless_they_are_rounding() -> None:
    x = np.arange(20, dtype=np.float32)
    rows = np.stack([x, 1e-3 * x]).astype(np.float32) * 1e-3
    assert not np.isnan(spearman(x, rows).rho).any()
    assert np.isnan(spearman(x, rows, scale=1.0).rho).tolist() == [False, True]


# -- pairs


def test_the_pairs_are_the_nearest(tiny_model: LoadedModel) -> None:
    table = tiny_model.module.get_input_embeddings().weight.detach().double().numpy()
    usable = [i for i in range(len(tiny_model.tokens.tokenizer)) if i not in special(tiny_model)]
    sampled, pairs, distances = nearest_pairs(tiny_model, replace(ASKED, vocabulary=20_000, pairs=50))
    assert sampled == len(usable), "all that were trained, when there are fewer than asked for"
    points = table[usable]
    apart = np.sqrt(((points[:, None] - points[None]) ** 2).sum(-1))[np.triu_indices(len(usable), 1)]
    np.testing.assert_allclose(distances, np.sort(apart)[:50], rtol=1e-5)
    own = np.linalg.norm(table[pairs[:, 0]] - table[pairs[:, 1]], axis=-1)
    np.testing.assert_allclose(distances, own, rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [20, 150, 20_000])
def test_the_pairs_are_distinct_sorted_and_no_control_tokens(
    vocabulary: int, tiny_model: LoadedModel
) -> None:
    sampled, pairs, distances = nearest_pairs(tiny_model, replace(ASKED, vocabulary=vocabulary))
    assert pairs.shape == (60, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert len({frozenset(pair) for pair in pairs.tolist()}) == 60
    assert (np.diff(distances) >= 0).all()
    assert not set(pairs.flatten().tolist()) & special(tiny_model)
    assert len(set(pairs.flatten().tolist())) <= sampled <= vocabulary


def test_the_pairs_are_seeded(tiny_model: LoadedModel) -> None:
    asked = replace(ASKED, vocabulary=100)
    one, again = nearest_pairs(tiny_model, asked), nearest_pairs(tiny_model, asked)
    assert one[0] == again[0]
    assert all(np.array_equal(x, y) for x, y in zip(one[1:], again[1:], strict=True))
    assert not np.array_equal(one[1], nearest_pairs(tiny_model, replace(asked, seed=4))[1])


def test_untrained_tokens_are_left_out(tiny_model: LoadedModel) -> None:
    import tiny

    module = tiny.llama()
    with torch.no_grad():
        module.get_input_embeddings().weight[50:80] *= 1e-3  # near one another, and never trained
    own = replace(tiny_model, module=module)
    _, pairs, _ = nearest_pairs(own, replace(ASKED, vocabulary=20_000))
    assert not set(range(50, 80)) & set(pairs.flatten().tolist())


def test_fewer_pairs_than_asked_for_are_all_of_them(tiny_model: LoadedModel) -> None:
    sampled, pairs, _ = nearest_pairs(tiny_model, replace(ASKED, vocabulary=10, pairs=3000))
    assert (sampled, len(pairs)) == (10, 45)


# -- last tokens


@torch.inference_mode()
def test_last_tokens_are_those_of_a_plain_forward(tiny_model: LoadedModel) -> None:
    before, tokens = prefix(tiny_model, ASKED.prefix_a), [40, 77, 123]
    found = last_tokens(tiny_model, before, tokens)
    place = torch.tensor([len(before)])
    for row, token in enumerate(tokens):
        out = tiny_model.module(
            input_ids=torch.tensor([[*before, token]]), use_cache=True, output_hidden_states=True
        )
        for layer, wanted in enumerate(out.hidden_states):
            torch.testing.assert_close(found.hidden[layer, row], wanted[0, -1], rtol=0, atol=TOLERANCE)
        for layer, cached in enumerate(made_cache(out).layers):
            key, value = cached.keys[0, :, -1], cached.values[0, :, -1]  # (kv_heads, head_dim)
            turned = tiny_model.rotation.rotate(found.keys[layer, row].reshape(key.shape)[:, None], place)
            torch.testing.assert_close(turned[:, 0], key, rtol=0, atol=TOLERANCE)
            torch.testing.assert_close(found.values[layer, row], value.flatten(), rtol=0, atol=TOLERANCE)


def test_keys_compare_position_free(tiny_model: LoadedModel) -> None:
    short, long = (prefix(tiny_model, text) for text in (ASKED.prefix_a, ASKED.prefix_b * 3))
    assert len(short) != len(long)
    a, b = (last_tokens(tiny_model, before, [40, 77]) for before in (short, long))
    # layer 0 reads the token alone, so its keys behind any prefix are one, once the position is taken out
    torch.testing.assert_close(a.keys[0], b.keys[0], rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(a.values[0], b.values[0], rtol=0, atol=TOLERANCE)
    assert (a.keys[1:] - b.keys[1:]).norm(dim=-1).min() > 100 * TOLERANCE


# -- the record


def test_layer_0_has_no_offsets(record: ProximityRecord) -> None:
    for name in ("key_offsets", "value_offsets"):
        data = getattr(record, name)
        assert data[0].max() <= 1e-4 * data.max()
        assert np.isnan(record.correlations[name].rho[0])
        assert np.isfinite(record.correlations[name].rho[1:]).all()
    for name in ("keys", "values"):
        assert np.isfinite(record.correlations[name].rho).all()


def test_the_bound_holds(record: ProximityRecord) -> None:
    assert (record.bound >= record.keys * (1 - 1e-5)).all()
    assert record.bound[0] == pytest.approx(
        record.embedding * record.bound[0, 0] / record.embedding[0], rel=1e-4
    )


def test_the_bound_is_the_smallest_in_its_form() -> None:
    hidden = torch.tensor([[1.0, 2.0], [2.0, 2.0], [2.0, 6.0]])  # grows by 2 and 1, then by 1 and 3
    keys = torch.tensor([[3.0, 2.0], [1.0, 4.0]])
    # layer 0: C = 3; layer 1: C = 2, and the growth of the layer before is 2
    assert proposition_bound(hidden, keys).tolist() == [[3.0, 6.0], [4.0, 8.0]]


def test_the_record_is_whole(record: ProximityRecord, tiny_model: LoadedModel) -> None:
    layers = tiny_model.info.layers
    assert record.tokens.shape == (60, 2)
    assert record.embedding.shape == (60,)
    for name in ("keys", "values", "key_offsets", "value_offsets", "bound"):
        assert getattr(record, name).shape == (layers, 60)
        assert getattr(record, name).dtype == np.float32
    assert np.bincount(record.bins).tolist() == [20, 20, 20]
    means = [record.embedding[record.bins == index].mean() for index in range(3)]
    assert all(a < b for a, b in pairwise(means))
    assert record.texts[0] == tuple(tiny_model.tokens.decode((int(t),)) for t in record.tokens[0])


def test_the_distances_are_those_of_the_pairs(record: ProximityRecord, tiny_model: LoadedModel) -> None:
    a, b = (prefix(tiny_model, text) for text in (ASKED.prefix_a, ASKED.prefix_b))
    for pair in (0, 31, 59):
        tokens = record.tokens[pair].tolist()
        here, there = last_tokens(tiny_model, a, tokens), last_tokens(tiny_model, b, tokens)
        keys, values = (x[:, 0] - x[:, 1] for x in (here.keys, here.values))
        moved = (there.keys - here.keys)[:, 0] - (there.keys - here.keys)[:, 1]
        for found, wanted in ((record.keys, keys), (record.values, values), (record.key_offsets, moved)):
            np.testing.assert_allclose(found[:, pair], wanted.norm(dim=-1), rtol=1e-4, atol=1e-4)


def test_a_record_survives_its_file(record: ProximityRecord) -> None:
    content = record.to_bytes()
    again = ProximityRecord.from_bytes(content)
    assert again.to_bytes() == content
    assert (again.request, again.model, again.texts) == (record.request, record.model, record.texts)
    for name in ("tokens", "embedding", "keys", "values", "key_offsets", "value_offsets", "bound"):
        assert np.array_equal(getattr(again, name), getattr(record, name))
    assert np.array_equal(again.correlations["keys"].rho, record.correlations["keys"].rho)
    for broken in (b"", content[:200]):
        with pytest.raises(RecordError):
            ProximityRecord.from_bytes(broken)
    with pytest.raises(RecordError):
        RunRecord.from_bytes(content)


# -- refusals


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        *[({name: low - 1}, name, f"{low} to {high:,}") for name, (low, high) in LIMITS.items()],
        *[({name: high + 1}, name, f"{low} to {high:,}") for name, (low, high) in LIMITS.items()],
        *[({name: 10.5}, name, "are allowed") for name in LIMITS],
        *[({name: True}, name, "are allowed") for name in LIMITS],
        ({"prefix_a": "word " * 3000}, "prefix_a", "1 to 1,023 are allowed"),
        ({"prefix_b": "word " * 3000}, "prefix_b", "1 to 1,023 are allowed"),
        ({"prefix_b": ASKED.prefix_a}, "prefix_b", "the same text"),
    ],
)
def test_refusals_name_field_and_range(
    changes: dict[str, Any], field: str, said: str, tiny_model: LoadedModel
) -> None:
    with pytest.raises(OptionError) as caught:
        next(proximity(tiny_model, replace(ASKED, **changes)))
    assert caught.value.field == f"proximity.{field}"
    assert said in str(caught.value)


def test_an_empty_prefix_is_the_beginning_alone(tiny_model: LoadedModel) -> None:
    *_, found = proximity(tiny_model, replace(ASKED, prefix_a="", vocabulary=30, pairs=9))
    assert isinstance(found, ProximityRecord)
    assert np.isfinite(found.keys).all()


def test_tokens_that_no_text_held_are_left_out() -> None:
    torch.manual_seed(0)
    spread, one = torch.randn(900, 32), torch.randn(32)
    heap = one + 0.005 * torch.randn(600, 32)
    found = in_cluster(torch.cat([spread, heap]))
    assert not found[:900].any()
    assert found[900:].all()
    assert not in_cluster(spread).any(), "a table without a heap is kept whole"
    assert not in_cluster(spread[:3]).any()
