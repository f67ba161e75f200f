"""Rows in one block: nobody's are overwritten, what is given up is free, and no log grows past its budget."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import QUESTIONS, TOLERANCE, caches, walk

import backend.engine.placement
from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.row_arena import Arena, ArenaOffset, ArenaRows
from backend.cache.samples import Sample, SampleLog
from backend.methods.base import Arrived
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import KVCommOptions
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline


def arena() -> Arena:
    return Arena((3,), torch.float32, torch.device("cpu"))


def spare(rows: int) -> int:
    return rows * 3 * 4


@given(steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), max_size=40), most=st.integers(0, 20))
def test_rows_keep_their_content_whatever_is_taken_and_given_up(
    steps: list[tuple[int, int]], most: int
) -> None:
    """Taking more, giving up and trimming, in any order."""
    one, held = arena(), dict[int, ArenaRows]()
    for number, (count, choice) in enumerate(steps):
        if choice < 3 and held:
            del held[sorted(held)[choice % len(held)]]
        elif choice == 3:
            one.trim()
            assert one.slack_bytes == 0
        else:
            before, needed = one.capacity, one.row_count + count
            held[number] = one.take(count, lambda: spare(most))
            held[number].tensor.fill_(number)
            assert one.capacity <= max(before, needed + min(needed // 2, most))
        assert one.row_count == sum(rows.count for rows in held.values())
        places = [i for rows in held.values() for i in range(rows.start, rows.start + rows.count)]
        assert len(places) == len(set(places))
        assert all(place < one.capacity for place in places)
        # No loop of its own: its variable would hold the last rows on.
        assert all((rows.tensor == n).all() for n, rows in held.items())


def test_what_is_given_up_is_the_next_ones_place() -> None:
    one = arena()
    held = [one.take(4, lambda: 0) for _ in range(5)]
    start, capacity = held[2].start, one.capacity
    del held[2]
    assert one.slack_bytes == spare(4)
    held.append(one.take(4, lambda: 1 << 40))
    assert (held[-1].start, one.capacity) == (start, capacity)


def test_rows_are_written_inside_and_outside_of_inference_mode() -> None:
    one = arena()
    with torch.inference_mode():
        rows = one.take(2, lambda: 0)
        rows.tensor.fill_(1)
    rows.tensor.fill_(2)
    assert (rows.tensor == 2).all()


def test_an_offset_in_an_arena_is_real_minus_base() -> None:
    draw = torch.Generator().manual_seed(0)
    real, base = (
        KVSegment(*(torch.randn(3, 2, 6, 4, generator=draw) for _ in range(2)), 0, True, "") for _ in range(2)
    )
    block = Arena((2, 3, 2, 4), torch.float32, torch.device("cpu"))
    offset = ArenaOffset(block.take(9, lambda: 0), 2, 8)
    offset.write(real, base)
    assert torch.equal(offset.keys, real.keys - base.keys)
    assert torch.equal(offset.values, real.values - base.values)
    assert (offset.tokens, offset.bytes) == (6, real.bytes)
    part = offset.slice(1, 9)
    assert (part.tokens, part.first_row) == (5, 3)
    assert torch.equal(part.values, (real.values - base.values)[:, :, 1:])
    other = ArenaOffset(block.take(6, lambda: 0), 0, 6)
    other.copy_from(offset)
    assert torch.equal(other.pair, offset.pair)


# -- in the log


def two_seen(model: LoadedModel, pipeline: Pipeline, budget: int = 1 << 40) -> tuple[SampleLog, KVCommMethod]:
    """Two requests, their texts anchors and seen by all agents."""
    log, method = SampleLog("test", budget), KVCommMethod(KVCommOptions(gamma=1.0))
    for question in QUESTIONS[:2]:
        for sample in walk(model, pipeline, question, log=log).state.samples.values():
            method.pool(sample.placeholder).insert(sample)
    gc.collect()
    return log, method


def offsets_of(sample: Sample) -> list[ArenaOffset]:
    found = [o for seen in sample.offsets.values() for o in (seen.placeholder, *seen.followers.values())]
    assert all(isinstance(o, ArenaOffset) for o in found)
    return found  # type: ignore[return-value]


def test_offsets_of_one_reader_lie_in_one_arena(tiny_model: LoadedModel, tiny_pipeline: Pipeline) -> None:
    log, _ = two_seen(tiny_model, tiny_pipeline)
    by_reader: dict[int, set[int]] = {}
    for sample in log.samples.values():
        for reader, seen in sample.offsets.items():
            by_reader.setdefault(reader, set()).update(
                id(o.rows.arena)  # type: ignore[union-attr]
                for o in (seen.placeholder, *seen.followers.values())
            )
    assert all(len(arenas) == 1 for arenas in by_reader.values())
    assert len(by_reader) > 1


@pytest.mark.slow
def test_an_anchor_that_goes_leaves_its_rows_and_a_log_keeps_to_its_budget(
    tiny_model: LoadedModel, tiny_pipeline: Pipeline
) -> None:
    log, _ = two_seen(tiny_model, tiny_pipeline)
    slack = log.arenas.slack_bytes
    first = min(log.samples)
    gone = sum(o.bytes for o in offsets_of(log.samples[first])) + log.samples[first].features.bytes
    held = log.bytes
    del log.samples[first]
    gc.collect()
    assert log.arenas.slack_bytes == slack + gone
    assert log.bytes < held
    kept = {n: [o.pair.clone() for o in offsets_of(s)] for n, s in log.samples.items()}
    log.budget_bytes = log.bytes - 1
    assert log.shrink(log.samples) == [], "there was slack to give back"
    assert log.arenas.slack_bytes == 0
    for number, before in kept.items():
        assert all(map(torch.equal, before, (o.pair for o in offsets_of(log.samples[number]))))
    log.samples.clear()
    gc.collect()
    assert log.arenas.slack_bytes == 0, "an arena that holds nothing is given up"


def test_one_pass_gives_what_mixing_layer_by_layer_gives(
    tiny_model: LoadedModel, tiny_pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is the one that runs: the other way is for offsets of other kinds."""
    log, method = two_seen(tiny_model, tiny_pipeline)
    for pool in method._pools.values():  # the order of places is not that of the anchors
        oldest = log.samples[min(pool.uses)]
        for reader in oldest.offsets:
            oldest.to_device(reader)
    third = walk(tiny_model, tiny_pipeline, QUESTIONS[1], log=log)
    for sample in third.state.samples.values():
        method.on_event(Arrived(sample), log)
    for agent, context in third.contexts.items():
        plan = method.plan(context, log, Clock())
        assert plan.state == "reused", plan.reason
        with monkeypatch.context() as patch:
            patch.setattr(backend.engine.placement, "mix", None)
            one_pass = third.execute(agent, plan)
        with monkeypatch.context() as patch:
            patch.setattr(backend.engine.placement, "_mixture", lambda blend, tokens: None)
            general = third.execute(agent, plan)
        total = len(context.prompt.ids)
        assert caches(one_pass.cache, general.cache, total) <= TOLERANCE
        assert (one_pass.actions == general.actions).all()


def test_offsets_come_back_from_where_they_waited(tiny_model: LoadedModel, tiny_pipeline: Pipeline) -> None:
    log, _ = two_seen(tiny_model, tiny_pipeline)
    sample = next(o for o in log.samples.values() if o.offsets)
    [reader, seen] = next(iter(sample.offsets.items()))
    wanted = [o.pair.clone() for o in (seen.placeholder, *seen.followers.values())]  # type: ignore[union-attr]
    names = list(seen.followers)
    sample.to_device(reader)
    again = sample.offsets[reader]
    assert again is not seen
    assert (list(again.followers), again.starts) == (names, seen.starts)
    found = [o.pair for o in (again.placeholder, *again.followers.values())]  # type: ignore[union-attr]
    assert all(map(torch.equal, wanted, found))
