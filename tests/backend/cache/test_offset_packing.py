"""Packed offsets: without loss bit for bit, with loss within half a step; pools that keep to their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made_offsets import made_sample, offset

from backend.cache.kv_cache import KVOffset, KVSegment
from backend.cache.offset_packing import AnchorStore, Codec, PackedOffset, pack, pack_tensor, store
from backend.cache.row_arena import ArenaOffset, Arenas
from backend.cache.samples import SMALL, ContextOffset, SampleLog
from backend.engine.placement import _mixture
from backend.engine.prefetch import prefetch
from backend.methods.base import Finished
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.pool import AnchorPool, PoolRules
from backend.methods.plan import Reuse, Term
from backend.methods.repair import RepairMethod
from backend.records.request import MethodChoice
from backend.session.session import LabSession
from backend.session.streams import MethodInstance, Stream

SHAPE = (2, 2, 3, 4)
FLOATS = st.floats(width=32, allow_nan=True, allow_infinity=True)
SMALL_FLOATS = st.floats(-1000, 1000, width=32)


def tensor(values: list[float], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32).to(dtype)


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


# -- the codecs


@given(st.lists(FLOATS, max_size=50), st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
def test_lossless_gives_every_bit_back(values: list[float], dtype: torch.dtype) -> None:
    x = tensor(values, dtype)
    found = pack_tensor(x, Codec("lossless")).unpack()
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    assert torch.equal(bits(found), bits(x))  # NaN's payload and the sign of zero too


@given(st.lists(SMALL_FLOATS, min_size=1, max_size=50), st.floats(0.001, 10))
def test_lossy_errs_by_half_its_step_at_most(values: list[float], step: float) -> None:
    x = tensor(values)
    packed = pack_tensor(x, Codec("lossy", step))
    assert packed.step == step
    found = packed.unpack()
    rounding = np.spacing(np.abs(x.numpy()) + np.float32(step))  # of fp32, by the product that unpacks
    assert ((found - x).abs().double().numpy() <= step / 2 + rounding).all()


def test_lossy_rounds_to_multiples_of_the_step() -> None:
    x = tensor([0.0, 0.04, -0.06, 0.26, 12.34])
    found = pack_tensor(x, Codec("lossy", 0.1)).unpack()
    assert found.tolist() == pytest.approx([0.0, 0.0, -0.1, 0.3, 12.3], abs=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
def test_what_cannot_be_rounded_is_kept_without_loss(bad: float) -> None:
    x = tensor([1.26, bad])
    packed = pack_tensor(x, Codec("lossy", 0.1))
    assert packed.step == 0
    assert torch.equal(bits(packed.unpack()), bits(x))


@pytest.mark.parametrize(("peak", "item_bytes"), [(127.0, 1), (128.0, 2), (32767.0, 2), (32768.0, 4)])
def test_whole_steps_take_the_smallest_integers_that_hold_them(peak: float, item_bytes: int) -> None:
    packed = pack_tensor(tensor([peak, -peak]), Codec("lossy", 1.0))
    assert packed.item_bytes == item_bytes
    assert packed.unpack().tolist() == [peak, -peak]


def test_a_packed_offset_reads_like_the_offset() -> None:
    true = offset(tokens=5)
    packed: PackedOffset = pack(true, Codec("lossless"))
    part, wanted = packed.slice(1, 4).slice(1, 9), true.slice(1, 4).slice(1, 9)
    assert (part.tokens, packed.tokens) == (wanted.tokens, 5) == (2, 5)
    assert torch.equal(part.keys, wanted.keys)
    assert torch.equal(part.values, wanted.values)


def test_small_elements_make_a_small_pack() -> None:
    """What is under half a step becomes zero, and zeros take next to nothing."""
    noise, tiny_noise = offset(tokens=400, scale=2.0), offset(tokens=400, scale=0.01)
    step = Codec("lossy", 0.1)
    assert pack(tiny_noise, step).bytes < 0.01 * tiny_noise.bytes
    assert pack(noise, step).bytes < 0.5 * noise.bytes
    assert 0.5 * noise.bytes < pack(noise, Codec("lossless")).bytes < noise.bytes


def test_the_error_told_is_the_error_made() -> None:
    seen = ContextOffset(offset(seed=1), {"prefix 1": offset(seed=2)})
    kept = store(seen, Codec("lossy", 0.5), 1, Arenas(int), seen.placeholder.keys)
    pairs = [(seen.placeholder, kept.offsets.placeholder)]
    pairs.append((seen.followers["prefix 1"], kept.offsets.followers["prefix 1"]))
    for row, side in enumerate(("keys", "values")):
        wanted = sum(
            (getattr(a, side) - getattr(b, side)).double().square().sum(dim=(1, 2, 3)) for a, b in pairs
        )
        assert kept.squared_error[row] == pytest.approx(wanted.numpy(), rel=1e-9)
    largest = max(
        float((getattr(a, s) - getattr(b, s)).abs().max()) for a, b in pairs for s in ("keys", "values")
    )
    assert kept.largest == pytest.approx(largest)
    assert 0 < kept.largest <= 0.25 + 1e-6
    exact = KVOffset(torch.zeros_like(seen.placeholder.keys), torch.zeros_like(seen.placeholder.values))
    late = ContextOffset(seen.placeholder, {"prefix 1": exact})
    assert store(late, Codec("lossy", 0.5), 1, Arenas(int), exact.keys).largest > 0.2, "the last is exact"
    assert not store(seen, Codec("lossless"), 1, Arenas(int), seen.placeholder.keys).squared_error.any()


def test_small_elements_are_counted_by_layer() -> None:
    keys = torch.full(SHAPE, SMALL)
    keys[0, 0, 0, :3] = 0.0
    values = torch.zeros(SHAPE)
    values[1] = 1.0
    small, squares, elements = ContextOffset(KVOffset(keys, values), {}).spread
    assert elements == 24
    assert small.tolist() == [[3, 0], [24, 0]]
    assert squares[1].tolist() == [0, 24]


# -- half precision


def half(seen: ContextOffset, arenas: Arenas) -> ContextOffset:
    found = store(seen, Codec("half"), 3, arenas, seen.placeholder.keys).offsets
    assert isinstance(found, ContextOffset)
    return found


def test_half_precision_errs_by_its_rounding_and_lies_in_one_arena() -> None:
    arenas = Arenas(int)
    seen = ContextOffset(offset(3, 1), {"prefix 1": offset(2, 2)}, {"q": 5, "prefix 1": 8})
    found = [half(seen, arenas), half(seen, arenas)]
    assert found[0].starts == seen.starts
    parts = [part for one in found for part in (one.placeholder, one.followers["prefix 1"])]
    assert all(isinstance(p, ArenaOffset) for p in parts)
    assert len({id(p.rows.arena) for p in parts if isinstance(p, ArenaOffset)}) == 1, "one pass mixes them"
    for part, true in zip(parts, [seen.placeholder, seen.followers["prefix 1"]] * 2, strict=True):
        for a, b in ((part.keys, true.keys), (part.values, true.values)):
            assert a.dtype == torch.float16
            assert torch.equal(a, b.half())
    assert found[0].bytes == seen.bytes / 2


def test_what_half_precision_cannot_hold_becomes_its_largest_number() -> None:
    large = KVOffset(torch.full(SHAPE, 1e6), torch.full(SHAPE, -1e6))
    kept = store(ContextOffset(large, {}), Codec("half"), 1, Arenas(int), large.keys)
    assert float(kept.offsets.placeholder.keys.max()) == 65504
    assert float(kept.offsets.placeholder.values.min()) == -65504
    assert kept.largest == pytest.approx(1e6 - 65504)


def test_what_a_model_keeps_in_16_bits_stays_as_it_is() -> None:
    log, kept = SampleLog("test", 1 << 40), AnchorStore(Codec("half"))
    sample = made_sample(log, 3, 1)
    own = sample.offsets[1].placeholder
    sample.offsets[1] = ContextOffset(KVOffset(own.keys.bfloat16(), own.values.bfloat16()), {})
    kept.keep(sample)
    assert kept.stored(sample, 1) is None
    assert kept.offset(sample, 1) is sample.offsets[1]


@pytest.mark.parametrize("codec", ["half", "lossless"])
def test_what_is_packed_is_counted_until_it_is_dropped(codec: Any) -> None:
    log, kept = SampleLog("test", 1 << 40), AnchorStore(Codec(codec))
    samples = [made_sample(log, 4, 2) for _ in range(3)]
    for sample in samples:
        kept.keep(sample)
    beside = {s.number: sum(kept.offset(s, agent).bytes for agent in s.offsets) for s in samples}
    assert kept.held_bytes == sum(beside.values()) > 0
    first = kept.stored(samples[0], 1)
    kept.keep(samples[0])
    assert kept.stored(samples[0], 1) is first, "packed once"
    twin = kept.copy()
    early = made_sample(log, 2, 1)
    twin.keep(early)
    assert kept.stored(early, 1) is None, "a twin's gain is its own"
    twin.drop_all_but({samples[0].number})
    assert twin.held_bytes >= beside[samples[0].number]
    assert kept.stored(samples[1], 1) is not None, "and its loss"
    late = made_sample(log, 2, 1)
    twin.keep(late)
    assert twin.held_of(late.number) == twin.offset(late, 1).bytes
    kept.drop_all_but(set())
    twin.drop_all_but(set())
    assert kept.held_bytes == twin.held_bytes == 0


def test_room_that_nobody_holds_yet_counts() -> None:
    log, kept = SampleLog("test", 1 << 40), AnchorStore(Codec("half"))
    samples = [made_sample(log, 4, 2) for _ in range(8)]
    for sample in samples:
        kept.keep(sample)
    packed = sum(kept.held_of(sample.number) for sample in samples)
    spare = kept.held_bytes - packed
    row = next(iter(kept._arenas._all.values())).row_bytes
    assert spare == sum(a.capacity * a.row_bytes for a in kept._arenas._all.values()) - packed
    assert spare >= row


def filled(codec: str, budget: int, samples: int = 16) -> tuple[Stream, KVCommMethod]:
    """A stream in which a method packed what it holds of every observation."""
    stream, method = Stream(SampleLog("test", budget)), KVCommMethod(KVCommMethod.Options(codec=codec))
    stream.instances["it"] = MethodInstance(method)
    for _ in range(samples):
        method.pool("q").insert(made_sample(stream.log, 4, 2))
    method.on_event(Finished(), stream.log)
    return stream, method


def test_what_left_its_pool_is_not_kept_packed() -> None:
    stream, method = filled("lossless", 1 << 30, samples=4)
    assert method.held_of(1) > 0
    del method.pool("q").uses[1]
    method.on_event(Finished(), stream.log)
    assert method.held_of(1) == 0
    assert method.held_bytes == sum(method.held_of(n) for n in (2, 3, 4)) > 0


@pytest.mark.parametrize("codec", ["half", "lossless"])
def test_packed_offsets_count_towards_a_visits_memory(codec: str) -> None:
    """A budget that the log alone would keep to; what goes takes its packed copies with it, and no more goes
    than has to."""
    free, _ = filled(codec, 1 << 30)
    free.shrink()
    assert len(free.log.samples) == 16
    assert free.bytes > free.log.bytes
    for share in (0.9, 0.5, 0.2):
        budget = int(free.bytes * share)
        tight, method = filled(codec, budget)
        tight.shrink()
        left = len(tight.log.samples)
        assert tight.bytes <= budget
        assert 16 * share - 2 <= left < 16, "about its share"
        assert method.held_bytes == sum(method.held_of(n) for n in tight.log.samples)


def test_a_repair_over_it_counts_the_same() -> None:
    method = RepairMethod(RepairMethod.Options())
    _, base = filled("half", 1 << 30, 2)
    method._base = base
    assert method.held_bytes == base.held_bytes > 0
    assert method.held_of(1) == base.held_of(1) > 0


def test_half_precision_is_mixed_in_one_pass() -> None:
    stream, method = filled("half", 1 << 30, 3)
    anchors = list(stream.log.samples.values())
    offsets = [method._offset(anchor, 1) for anchor in anchors]
    terms = tuple(Term(torch.tensor(0.3), o, a.number) for o, a in zip(offsets, anchors, strict=True))
    mixture = _mixture(Reuse(anchors[0].base, terms), 4)
    assert mixture is not None, "offset by offset it would take several times as long"
    assert mixture.arena.buffer.dtype == torch.float16


@pytest.mark.slow
def test_half_precision_changes_next_to_nothing(record: Any) -> None:
    """As near to the full one as its rounding; the same gate, the same anchors."""
    agent = next(a for a in record.agents if record.outcome(a, "plain").state == "reused")
    plain, found = record.outcome(agent, "plain"), record.outcome(agent, "half")
    assert found.state == "reused"
    assert 0 < np.abs(found.value_error - plain.value_error).max() < 1e-3
    assert np.abs(found.fidelity.kl_tokens - plain.fidelity.kl_tokens).max() < 1e-3
    views = [v for v in record.pool_views if v.method == "half"]
    assert views
    for view in views:
        assert 0 < view.largest_error < 1e-2
        assert view.stored_bytes.sum() * 2 == view.offset_bytes.sum()


# -- budgets


@given(
    arrivals=st.lists(st.tuples(st.integers(1, 12), st.integers(0, 2), st.booleans()), max_size=12),
    budget=st.integers(1, 20_000),
    capacity=st.integers(1, 6),
    eviction=st.sampled_from(["published", "shipped", "least used"]),
    codec=st.sampled_from(["none", "half", "lossless", "lossy"]),
)
@settings(max_examples=25)
def test_a_budget_is_never_exceeded(
    arrivals: list[tuple[int, int, bool]], budget: int, capacity: int, eviction: Any, codec: Any
) -> None:
    log, kept = SampleLog("test", 1 << 40), AnchorStore(Codec(codec))
    pool = AnchorPool("q", PoolRules(capacity, eviction=eviction, budget_bytes=budget))
    for tokens, agents, used in arrivals:
        sample = made_sample(log, tokens, agents)
        kept.keep(sample)
        before = dict(pool.uses)
        gone = pool.insert(sample)
        victims = pool.trim(log, kept.bytes)
        held = {n: kept.bytes(log.samples[n]) for n in pool.uses}
        assert sum(held.values()) <= budget
        assert set(pool.uses) == {*before, sample.number} - {gone, *victims}
        if victims:  # no more than need be was dropped
            assert sum(held.values()) + kept.bytes(log.samples[victims[-1]]) > budget
        if used and pool.uses:
            pool.uses[next(iter(pool.uses))] += 1


def test_without_a_budget_nothing_is_trimmed() -> None:
    log, pool = SampleLog("test", 1 << 40), AnchorPool("q")
    pool.insert(made_sample(log, 12, 3))
    assert pool.trim(log, lambda o: 1 << 40) == []
    assert len(pool.uses) == 1


def test_an_anchor_larger_than_the_budget_is_not_kept() -> None:
    log = SampleLog("test", 1 << 40)
    pool = AnchorPool("q", PoolRules(budget_bytes=10))
    sample = made_sample(log, 3, 0)
    pool.insert(sample)
    assert pool.trim(log, lambda o: o.bytes) == [sample.number]
    assert not pool.uses


# -- the options of the method


def kvcomm(label: str, **options: Any) -> MethodChoice:
    return MethodChoice("kvcomm", {"gamma": 1.0, **options}, label)


BUDGET_MIB = 0.1


@pytest.fixture(scope="module")
def record(tiny_model: Any) -> Any:
    """The last of four requests under every codec, with and without a budget."""
    session = LabSession(tiny_model)
    methods = [
        "dense", kvcomm("plain"), kvcomm("lossless", codec="lossless"), kvcomm("half", codec="half"),
        kvcomm("lossy", codec="lossy", codec_step=0.01), kvcomm("coarse", codec="lossy", codec_step=10.0),
        kvcomm("few", budget_mib=BUDGET_MIB), kvcomm("away", on_device=1),
    ]  # fmt: skip
    for question in (*tiny.QUESTIONS[2:5], tiny.QUESTIONS[0]):
        found = tiny.run(session, tiny.request(methods, question))
    return found


@pytest.mark.slow
def test_a_lossless_codec_changes_no_number(record: Any) -> None:
    reused = 0
    for agent in record.agents:
        a, b = record.outcome(agent, "plain"), record.outcome(agent, "lossless")
        reused += a.state == "reused"
        assert np.array_equal(a.key_error, b.key_error)
        assert np.array_equal(a.value_error, b.value_error)
        assert np.array_equal(a.fidelity.kl_tokens, b.fidelity.kl_tokens)
    assert reused, "nothing was mixed, so nothing was unpacked"


def test_a_lossy_codec_changes_the_mix_and_says_by_how_much(record: Any) -> None:
    agent = next(a for a in record.agents if record.outcome(a, "plain").state == "reused")
    plain, lossy, coarse = (record.outcome(agent, m).value_error for m in ("plain", "lossy", "coarse"))
    assert 0 < np.abs(lossy - plain).max() < np.abs(coarse - plain).max()
    for label, step in (("lossy", 0.01), ("coarse", 10.0)):
        views = [v for v in record.pool_views if v.method == label]
        assert views
        for view in views:
            assert 0 < view.largest_error <= step / 2 + 1e-6
            assert (view.stored_error <= view.largest_error).all()
            assert view.stored_bytes.sum() < view.offset_bytes.sum()
    assert not any(v.stored_error.any() for v in record.pool_views if v.method in ("plain", "lossless"))


def test_pools_keep_to_their_budget_and_say_their_bytes(record: Any) -> None:
    few = [p for p in record.pools if p.method == "few"]
    plain = {p.placeholder: p for p in record.pools if p.method == "plain"}
    assert {p.budget_bytes for p in few} == {int(BUDGET_MIB * 2**20)}
    assert all(p.bytes <= p.budget_bytes for p in few)
    assert any(plain[p.placeholder].bytes > p.budget_bytes for p in few), "the budget never bit"
    views = {(v.method, v.placeholder): v for v in record.pool_views}
    for pool in record.pools:
        if not pool.anchors:
            assert (pool.method, pool.placeholder) not in views
            continue
        view = views[pool.method, pool.placeholder]
        assert pool.bytes == view.base_bytes.sum() + view.stored_bytes.sum()
        assert len(view.agents) == len(pool.anchors)


@pytest.mark.slow
def test_a_replay_gives_the_pools_that_a_live_run_gave(tiny_model: Any) -> None:
    """Pinned pools derived from the history alone, with a budget and a codec."""
    choices = (
        kvcomm("plain"),
        kvcomm("few", budget_mib=BUDGET_MIB),
        kvcomm("packed", budget_mib=0.05, codec="lossless"),
    )
    session = LabSession(tiny_model)
    for question in tiny.QUESTIONS[:3]:
        tiny.run(session, tiny.request(["dense", *choices], question))
    asked = tiny.request(["dense", *choices])
    live = session.pools(asked)
    for stream in session.streams.values():
        stream.instances.clear()
    assert session.pools(asked) == live
    assert any(p.anchors for p in live if p.method == "few")
    assert any(p.bytes > BUDGET_MIB * 2**20 for p in live if p.method == "plain"), "the budget never bit"


def test_on_a_cpu_no_anchor_moves(record: Any) -> None:
    assert all(v.away == () for v in record.pool_views)
    plain = [(p.placeholder, p.anchors, p.bytes) for p in record.pools if p.method == "plain"]
    assert plain == [(p.placeholder, p.anchors, p.bytes) for p in record.pools if p.method == "away"]


def test_cold_anchors_are_the_least_used() -> None:
    method = KVCommMethod(KVCommMethod.Options(on_device=2))
    method.pool("q").uses |= {1: 5, 2: 0, 3: 7, 4: 5}
    assert method.offloadable() == {1, 2}  # of 1 and 4, used alike, the newer stays
    assert KVCommMethod(KVCommMethod.Options()).offloadable() == set()


@pytest.mark.gpu
def test_cold_offsets_wait_in_main_memory() -> None:
    log = SampleLog("test", 1 << 40)
    for _ in range(2):
        made = made_sample(log, 3, 1)
        made.base = KVSegment(made.base.keys.cuda(), made.base.values.cuda(), 0, True, "")
    log.offload(set())
    log.offload({1})
    places = [o.offsets[1].placeholder.keys.device.type for o in log.samples.values()]
    assert places == ["cpu", "cuda"]
    away, near = (o.offsets[1].placeholder for o in log.samples.values())
    assert isinstance(away, ArenaOffset)
    assert away.rows.tensor.is_pinned()
    base = log.samples[1].base
    terms = tuple(Term(torch.ones((), device="cuda"), offset, n) for n, offset in enumerate((away, near)))
    for blend in prefetch([Reuse(base, terms)] * 3):
        for term in blend.terms:
            assert torch.equal(term.offset.values, terms[term.anchor].offset.values.cuda())
        assert len({term.offset.rows.arena for term in blend.terms}) == 1
    log.offload(set())
    assert log.samples[1].offsets[1].followers["prefix 1"].values.device.type == "cuda"
