"""Anchor pools: the gate's rules with numbers worked out by hand, weights, insertion and eviction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

from backend.cache.kv_cache import KVOffset, KVSegment
from backend.cache.samples import ContextOffset, Sample, SampleLog
from backend.methods.kvcomm.pool import AnchorPool, PoolRules, entropy
from backend.methods.kvcomm.weights import Match, Weighing, Weight, squared_distances
from backend.records.run import GateDecision


def rows(*tokens: float | Sequence[float]) -> torch.Tensor:
    """A descriptor: one row per token."""
    return torch.tensor([[t] if isinstance(t, int | float) else list(t) for t in tokens], dtype=torch.float32)


def kv(tokens: int) -> KVSegment:
    return KVSegment(torch.zeros(1, 1, tokens, 2), torch.zeros(1, 1, tokens, 2), 0, True, "test")


def add(log: SampleLog, descriptor: torch.Tensor, name: str = "q") -> Sample:
    tokens = descriptor.shape[0]
    return log.add(name, tuple(range(tokens)), "some text", kv(tokens), descriptor)


def saw(sample: Sample, agent: int, followers: Sequence[str] = ()) -> None:
    """Give a sample an offset in an agent's context."""
    zero = torch.zeros(1, 1, sample.tokens, 2)
    offset = KVOffset(zero, zero)
    sample.offsets[agent] = ContextOffset(
        offset, {name: KVOffset(zero[:, :, :1], zero[:, :, :1]) for name in followers}
    )


@pytest.fixture
def log() -> SampleLog:
    return SampleLog("test", 1 << 30)


RULES = {"capacity", "gamma", "gate", "closeness", "eviction"}


def make_pool(capacity: int = 20, **options: Any) -> AnchorPool:
    """A pool whose options are rules or parts of its weighing."""
    rules = {name: value for name, value in options.items() if name in RULES}
    weighing = {name: value for name, value in options.items() if name not in RULES}
    return AnchorPool("q", PoolRules(capacity, weighing=Weighing(**weighing), **rules))


def pool_of(log: SampleLog, *anchors: torch.Tensor, capacity: int = 20, **options: Any) -> AnchorPool:
    pool = make_pool(capacity, **options)
    for descriptor in anchors:
        pool.insert(add(log, descriptor))
    return pool


def gate(pool: AnchorPool, sample: Sample, gamma: float, log: SampleLog) -> GateDecision:
    pool.rules = replace(pool.rules, gamma=gamma)
    return pool.gate(sample, log)


def per(pool: AnchorPool, how: Any) -> AnchorPool:
    pool.rules = replace(pool.rules, weighing=replace(pool.rules.weighing, per=how))
    return pool


def match_of(*anchors: Sample) -> Match:
    """A match in which the anchors weigh alike."""
    share = torch.full((len(anchors),), 1 / len(anchors))
    same = tuple(Weight(w, w) for w in share)
    return Match(anchors, share, same, same)


# -- the gate, rule by rule


def test_without_a_pool_nothing_is_shared(log: SampleLog) -> None:
    pool = make_pool(0)
    decision = gate(pool, add(log, rows(1, 2)), 0.3, log)
    assert (decision.shareable, decision.rule, decision.pool_size) == (False, "no pool", 0)
    assert decision.entropy is decision.threshold is None
    assert pool.insert(add(log, rows(1))) is None
    assert not pool.uses


def test_an_empty_pool_makes_an_anchor(log: SampleLog) -> None:
    decision = gate(make_pool(), add(log, rows(1, 2)), 1.0, log)
    assert (decision.shareable, decision.rule, decision.pool_size, decision.eligible) == (
        False,
        "empty pool",
        0,
        0,
    )
    assert "first anchor" in decision.reason


def test_a_text_longer_than_every_anchor_makes_an_anchor(log: SampleLog) -> None:
    pool = pool_of(log, rows(0, 0), rows(0, 0, 0))
    decision = gate(pool, add(log, rows(0, 0, 0, 0)), 1.0, log)
    assert (decision.shareable, decision.rule) == (False, "longer than every anchor")
    assert (decision.pool_size, decision.eligible, decision.tokens) == (2, 0, 4)
    assert "4 tokens" in decision.reason
    assert "longest has 3" in decision.reason


def test_equal_length_is_long_enough(log: SampleLog) -> None:
    decision = gate(pool_of(log, rows(0, 0), rows(0)), add(log, rows(5, 5)), 0.3, log)
    assert (decision.rule, decision.eligible) == ("entropy", 1)


def test_a_single_anchor_is_shared_however_far(log: SampleLog) -> None:
    """H of one weight is 0, and so is the threshold: Eq. 5 measures contrast, not closeness."""
    decision = gate(pool_of(log, rows(1000)), add(log, rows(0)), 0.3, log)
    assert decision.shareable
    assert (decision.entropy, decision.threshold, decision.weights) == (0.0, 0.0, (1.0,))


# Anchors at distances 3 and 2: weights 1/(1+e), e/(1+e); H = 0.58220 nats, log 2 = 0.69315, ratio 0.83993.
@pytest.mark.parametrize(("gamma", "shareable"), [(0.83, False), (0.85, True), (1.0, True), (0.3, False)])
def test_entropy_against_the_threshold(log: SampleLog, gamma: float, shareable: bool) -> None:
    pool = pool_of(log, rows(3, 0), rows(1, 1))
    decision = gate(pool, add(log, rows(0, 0)), gamma, log)
    assert (decision.shareable, decision.rule) == (shareable, "entropy")
    assert decision.distances == pytest.approx((3, 2))
    assert decision.weights == pytest.approx((0.268941, 0.731059), abs=1e-6)
    assert decision.entropy == pytest.approx(0.582203, abs=1e-6)
    assert decision.threshold == pytest.approx(gamma * 0.693147, abs=1e-6)
    assert decision.anchors == (1, 2)
    assert len(decision.previews) == 2
    assert ("anchor 2 stands out" in decision.reason) == shareable


def test_the_norm_of_two_texts_as_one_vector(log: SampleLog) -> None:
    pool = pool_of(log, rows(3, 4), rows(0, 6), norm="frobenius")
    sample = add(log, rows(0, 0))
    assert gate(pool, sample, 0.3, log).distances == pytest.approx((5, 6))
    pool = pool_of(log, rows(3, 4), rows(0, 6))
    assert gate(pool, sample, 0.3, log).distances == pytest.approx((7, 6))


def test_equally_near_anchors_are_no_evidence(log: SampleLog) -> None:
    """Three anchors identical to the sample: entropy is full, so it becomes the fourth."""
    decision = gate(pool_of(log, rows(1, 2), rows(1, 2), rows(1, 2)), add(log, rows(1, 2)), 0.99, log)
    assert not decision.shareable
    assert decision.entropy == pytest.approx(math.log(3))


def test_gamma_zero_shares_nothing(log: SampleLog) -> None:
    decision = gate(pool_of(log, rows(0)), add(log, rows(0)), 0.0, log)
    assert (decision.shareable, decision.rule) == (False, "entropy")
    assert "0.00 is over 0.00" not in decision.reason
    assert "amma" in decision.reason


def test_longer_anchors_are_cut_at_their_end(log: SampleLog) -> None:
    assert squared_distances(rows(1, 2), rows(4, 2, 99)).tolist() == [9, 0]
    decision = gate(pool_of(log, rows(4, 2, 99)), add(log, rows(1, 2)), 0.3, log)
    assert decision.distances == pytest.approx((3,))


def test_only_long_enough_anchors_weigh(log: SampleLog) -> None:
    pool = pool_of(log, rows(0, 0, 0), rows(7), rows(0, 2))
    decision = gate(pool, add(log, rows(0, 0)), 0.9, log)
    assert decision.anchors == (1, 3)
    assert (decision.pool_size, decision.eligible) == (3, 2)
    assert decision.threshold == pytest.approx(0.9 * math.log(2))


def test_a_sample_is_not_its_own_anchor(log: SampleLog) -> None:
    pool = pool_of(log, rows(5))
    sample = add(log, rows(0))
    pool.insert(sample)
    assert gate(pool, sample, 0.3, log).anchors == (1,)


def test_anchors_that_left_the_log_do_not_count(log: SampleLog) -> None:
    pool = pool_of(log, rows(1), rows(2))
    del log.samples[1]
    assert gate(pool, add(log, rows(0)), 0.3, log).anchors == (2,)


# -- weights


def test_matching_takes_anchors_that_met_the_agent_in_the_same_place(log: SampleLog) -> None:
    pool = pool_of(log, rows(0), rows(1), rows(2), rows(3))
    one, two, three, _ = log.samples.values()
    saw(one, 1, ["prefix 1"])
    saw(two, 2, ["prefix 1"])
    saw(three, 1, ["prefix 1", "prefix 2"])
    sample = add(log, rows(0))
    match = pool.match(sample, 1, ["prefix 1"], log)
    assert match is not None
    assert [a.number for a in match.anchors] == [1]
    assert pool.match(sample, 3, ["prefix 1"], log) is None
    assert pool.match(sample, 1, ["prefix 2"], log) is None


def test_token_weights_by_hand(log: SampleLog) -> None:
    pool = pool_of(log, rows(3, 0), rows(1, 1))
    for anchor in list(log.samples.values()):
        saw(anchor, 1)
    match = pool.match(add(log, rows(0, 0)), 1, [], log)
    assert match is not None
    # token 1: distances 3 and 1; token 2: distances 0 and 1
    low, high = 1 / (1 + math.exp(2)), 1 / (1 + math.exp(-1))
    token = torch.stack([w.keys for w in match.own])
    torch.testing.assert_close(token, torch.tensor([[low, high], [1 - low, 1 - high]]))
    torch.testing.assert_close(match.sequence, token.mean(dim=1))
    assert [float(w.keys) for w in match.behind] == pytest.approx(match.sequence.tolist())
    assert all(w.keys is w.values for w in (*match.own, *match.behind))


def test_sequence_weights_are_the_gates(log: SampleLog) -> None:
    for norm in ("sum", "frobenius"):
        pool = pool_of(log, rows(3, 0), rows(1, 1), norm=norm, per="sequence")
        for number in pool.uses:
            saw(log.samples[number], 1)
        sample = add(log, rows(0, 0))
        decision = gate(pool, sample, 0.3, log)
        match = pool.match(sample, 1, [], log)
        assert match is not None
        assert all(w.keys.ndim == 0 for w in (*match.own, *match.behind))
        assert match.sequence.tolist() == pytest.approx(decision.weights)


DESCRIPTORS = st.lists(st.lists(st.floats(-50, 50), min_size=3, max_size=6), min_size=1, max_size=8)


@given(
    anchors=DESCRIPTORS, sample=st.lists(st.floats(-50, 50), min_size=1, max_size=3), gamma=st.floats(0.01, 1)
)
@pytest.mark.slow
def test_weights_sum_to_one(anchors: list[list[float]], sample: list[float], gamma: float) -> None:
    log = SampleLog("test", 1 << 30)
    pool = pool_of(log, *(rows(*a) for a in anchors))
    for anchor in list(log.samples.values()):
        saw(anchor, 1)
    mine = add(log, rows(*sample))
    decision = gate(pool, mine, gamma, log)
    assert sum(decision.weights) == pytest.approx(1, abs=1e-5)
    assert decision.entropy is not None
    assert decision.threshold is not None
    assert -1e-9 <= decision.entropy <= math.log(len(anchors)) + 1e-6
    assert decision.shareable == (decision.entropy <= decision.threshold)
    for how in ("token", "sequence"):
        match = per(pool, how).match(mine, 1, [], log)
        assert match is not None
        assert float(match.sequence.sum()) == pytest.approx(1, abs=1e-5)
        for weights in (match.own, match.behind):
            total = torch.stack([w.keys for w in weights]).sum(dim=0)
            torch.testing.assert_close(total, torch.ones_like(total), atol=1e-5, rtol=0)


@given(st.lists(st.floats(0, 1000), min_size=1, max_size=30))
def test_entropy_is_scipys(distances: list[float]) -> None:
    weights = torch.softmax(-torch.tensor(distances, dtype=torch.float64), dim=0)
    assert entropy(weights) == pytest.approx(float(scipy_entropy(weights.numpy())), abs=1e-9)


# -- insertion and eviction


def test_the_least_used_of_the_earliest_quarter_goes(log: SampleLog) -> None:
    pool = pool_of(log, *(rows(i) for i in range(8)), capacity=8)  # the earliest quarter: anchors 1 and 2
    uses = {1: 5, 2: 3, 3: 0, 4: 0, 5: 9, 6: 0, 7: 0, 8: 0}
    pool.uses.update(uses)
    assert pool.insert(add(log, rows(9))) == 2
    assert list(pool.uses) == [1, 3, 4, 5, 6, 7, 8, 9]
    assert pool.uses[9] == 0
    assert pool.insert(add(log, rows(10))) == 3


def test_ties_go_to_the_oldest(log: SampleLog) -> None:
    pool = pool_of(log, *(rows(i) for i in range(12)), capacity=12)
    pool.uses.update({1: 2, 2: 1, 3: 1})
    assert pool.insert(add(log, rows(99))) == 2


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_small_pools_drop_their_oldest(log: SampleLog, capacity: int) -> None:
    pool = make_pool(capacity)
    dropped = [pool.insert(add(log, rows(i))) for i in range(5)]
    assert dropped == [None] * capacity + list(range(1, 6 - capacity))
    assert len(pool.uses) == capacity


def test_an_anchor_is_inserted_once(log: SampleLog) -> None:
    pool = pool_of(log, rows(1), capacity=1)
    pool.count_uses(match_of(log.samples[1]))
    assert pool.insert(log.samples[1]) is None
    assert pool.uses == {1: 1}


def test_being_mixed_is_being_used(log: SampleLog) -> None:
    pool = pool_of(log, rows(1), rows(2), rows(3))
    pool.count_uses(match_of(log.samples[1], log.samples[3]))
    pool.count_uses(match_of(log.samples[3]))
    assert pool.uses == {1: 1, 2: 0, 3: 2}


@given(capacity=st.integers(0, 9), steps=st.lists(st.integers(0, 30), max_size=40))
def test_capacity_is_never_exceeded(capacity: int, steps: list[int]) -> None:
    """Insert, or use an anchor that is there; the newest anchor is never the one that goes."""
    log = SampleLog("test", 1 << 30)
    pool = make_pool(capacity)
    for step in steps:
        held = list(pool.uses)
        if held and step % 3 == 0:
            pool.count_uses(match_of(log.samples[held[step % len(held)]]))
            continue
        sample = add(log, rows(step))
        gone = pool.insert(sample)
        assert len(pool.uses) <= capacity
        assert gone != sample.number
        assert (gone is not None) == (capacity > 0 and len(held) == capacity)
        if gone is not None:
            assert gone in held[: max(1, capacity // 4)]
        if capacity:
            assert list(pool.uses)[-1] == sample.number


# -- other rules than the paper's


def known(pool: AnchorPool, log: SampleLog, agent: int = 1) -> None:
    for number in pool.uses:
        saw(log.samples[number], agent)


def sequence(pool: AnchorPool, log: SampleLog, sample: torch.Tensor) -> list[float]:
    """One weight per anchor, for a new sample."""
    known(pool, log)
    match = per(pool, "sequence").match(add(log, sample), 1, [], log)
    assert match is not None
    return [float(w) for w in match.sequence]


# Anchors at distances 4 and 2 (sums over two tokens).
@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, [1 / (1 + math.exp(2)), 1 / (1 + math.exp(-2))]),
        ({"temperature": 2.0}, [1 / (1 + math.exp(1)), 1 / (1 + math.exp(-1))]),
        ({"approximation": "nearest"}, [0, 1]),
        ({"approximation": "uniform"}, [0.5, 0.5]),
        ({"norm": "frobenius"}, [1 / (1 + math.exp(8**0.5 - 2**0.5)), 1 / (1 + math.exp(2**0.5 - 8**0.5))]),
        # per token, in units of the sample's mean norm: (2 - 1) / 10
        ({"norm": "mean"}, [1 / (1 + math.exp(0.1)), 1 / (1 + math.exp(-0.1))]),
    ],
)
def test_approximations_by_hand(log: SampleLog, options: dict[str, Any], weights: list[float]) -> None:
    pool = pool_of(log, rows(12, 12), rows(11, 11), **options)
    assert sequence(pool, log, rows(10, 10)) == pytest.approx(weights, abs=1e-6)


def test_cosine_looks_at_directions_alone(log: SampleLog) -> None:
    pool = pool_of(log, rows((0, 9)), rows((50, 0)), approximation="cosine")
    # the angle's cosine is 0 and 1, however long the vectors are
    assert sequence(pool, log, rows((1, 0))) == pytest.approx([1 / (1 + math.e), 1 / (1 + math.exp(-1))])


def test_top_k_keeps_the_heaviest_and_renormalises(log: SampleLog) -> None:
    pool = pool_of(log, rows(3), rows(1), rows(2), rows(9), top_k=2)
    known(pool, log)
    for how in ("token", "sequence"):
        match = per(pool, how).match(add(log, rows(0)), 1, [], log)
        assert match is not None
        assert [a.number for a in match.anchors] == [2, 3]
        assert match.sequence.tolist() == pytest.approx([1 / (1 + math.exp(-1)), 1 / (1 + math.e)])


def test_the_whole_cache_can_be_compared(log: SampleLog) -> None:
    """The embeddings are alike, the caches are not."""
    pool = pool_of(log, rows(0), rows(0), compared="kv", approximation="nearest")
    one, two = log.samples.values()
    for sample, value in ((one, 5.0), (two, 1.0)):
        sample.base.values.fill_(value)
    assert sequence(pool, log, rows(0)) == [0, 1]


def test_weights_as_shipped(log: SampleLog) -> None:
    """Keys and values weigh by themselves; behind the text there is a weight per layer, head and channel,
    over the text's tokens aligned at their ends."""
    pool = pool_of(log, rows(0, 0), rows(0, 0, 0), per="separate", compared="kv")
    known(pool, log)
    short, long = log.samples.values()
    short.base.keys[:] = torch.tensor([[3.0, 0.0], [1.0, 0.0]])  # (tokens, head_dim)
    long.base.keys[:] = torch.tensor([[1.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    long.base.values.fill_(2.0)
    match = pool.match(add(log, rows(0, 0)), 1, [], log)
    assert match is not None

    def share(a: float, b: float) -> float:
        return math.exp(-a) / (math.exp(-a) + math.exp(-b))

    # own tokens: mean absolute differences of the heads' keys are 1.5 and 0.5, then 0.5 and 2
    assert match.own[0].keys.tolist() == pytest.approx([share(1.5, 0.5), share(0.5, 2.0)])
    assert match.own[0].values.tolist() == pytest.approx([share(0, 2), share(0, 2)])
    # behind: channel 0 has norms sqrt(10) and 4 (the long anchor's last two tokens), channel 1 has 0 and 3
    assert match.behind[0].keys.shape == (1, 1, 1, 2)
    assert match.behind[0].keys.flatten().tolist() == pytest.approx([share(10**0.5, 4), share(0, 3)])
    assert match.behind[0].values.flatten().tolist() == pytest.approx([share(0, 8**0.5)] * 2)


def test_the_length_gate_asks_for_length_alone(log: SampleLog) -> None:
    pool = pool_of(log, rows(1, 2), rows(1, 2), rows(1, 2), gate="length")
    assert gate(pool, add(log, rows(50, 60)), 0.01, log).shareable
    assert not gate(pool, add(log, rows(1, 2, 3)), 0.01, log).shareable
    assert not gate(pool, add(log, rows(1, 2)), 0.0, log).shareable, "gamma 0 shares nothing"


def test_the_closeness_gate(log: SampleLog) -> None:
    """Distances are shares of the sample's mean norm, here 10."""
    near = pool_of(log, rows(11), rows(11), rows(11), gate="closeness", closeness=0.2)
    assert gate(near, add(log, rows(10)), 0.3, log).shareable, "alike and near: nothing to choose between"
    far = pool_of(log, rows(20), rows(90), gate="closeness", closeness=0.2)
    decision = gate(far, add(log, rows(10)), 0.3, log)
    assert decision.entropy is not None
    assert decision.threshold is not None
    assert decision.entropy < decision.threshold, "one anchor stands out"
    assert not decision.shareable, "and is still too far"
    assert "1.00 of a token's norm" in decision.reason
    mixed = pool_of(log, rows(11), rows(13), gate="closeness", closeness=0.2)
    # weights softmax(-1, -3): the mean distance 0.1238 is within 0.2, though one anchor lies at 0.3
    assert gate(mixed, add(log, rows(10)), 0.01, log).shareable


def test_the_gate_as_shipped(log: SampleLog) -> None:
    pool = pool_of(log, rows(0), gate="shipped")
    decision = gate(pool, add(log, rows(0)), 1.0, log)
    assert (decision.shareable, decision.rule) == (False, "too few anchors")
    pool.insert(add(log, rows(0)))
    one, _, other = log.samples.values()
    one.base.values.fill_(3.0)
    assert other.number in pool.uses
    # distances between the values, over both channels: sqrt(18) and 0
    decision = gate(pool, add(log, rows(70)), 0.9, log)
    assert decision.distances == pytest.approx((18**0.5, 0))
    assert decision.shareable


def test_eviction_as_shipped(log: SampleLog) -> None:
    """It grows to V + 1; then the least counted of the first five goes, in every dense reader's turn."""
    pool = pool_of(log, *(rows(i) for i in range(6)), capacity=6, eviction="shipped")
    pool.uses.update({1: 4, 2: 3, 3: 2, 4: 1, 5: 1, 6: 0})
    assert pool.read_afresh(add(log, rows(7))) is None
    assert len(pool.uses) == 7
    new = add(log, rows(8))
    assert pool.read_afresh(new) == 4
    assert len(pool.uses) == 7
    assert pool.read_afresh(new) == 6, "the next reader makes room again"
    assert pool.read_afresh(new) is None
    assert pool.uses == {1: 4, 2: 3, 3: 2, 5: 1, 7: 0, 8: 0}


@pytest.mark.parametrize(
    ("shares", "counted"),
    [((0.3, 0.55, 0.15), (1, 1, 0)), ((0.3, 0.65, 0.05), (0, 1, 0)), ((0.04, 0.95, 0.01), (1, 1, 1))],
)
def test_counts_as_shipped(log: SampleLog, shares: tuple[float, ...], counted: tuple[int, ...]) -> None:
    """At the gate, of a shared text alone: the heaviest that hold less than 0.9; all where one holds more."""
    pool = pool_of(log, rows(0), rows(1), rows(9), eviction="shipped")
    decision = gate(pool, add(log, rows(0)), 1.0, log)
    told = replace(decision, shareable=True, weights=shares)
    pool.count_gated(replace(told, shareable=False))
    assert set(pool.uses.values()) == {0}
    pool.count_gated(told)
    assert tuple(pool.uses.values()) == counted
    held = tuple(log.samples[n] for n in pool.uses)
    pool.count_uses(match_of(*held))
    assert tuple(pool.uses.values()) == counted, "being mixed counts nothing"


@pytest.mark.parametrize("rule", ["entropy", "shipped"])
@pytest.mark.parametrize("size", range(2, 21))
def test_gamma_one_shares_a_text_that_is_as_near_to_every_anchor(
    log: SampleLog, size: int, rule: Any
) -> None:
    """Even weights have the very entropy that gamma 1 allows: rounding must not refuse it."""
    pool = pool_of(log, *[rows(3)] * size, gate=rule)
    decision = gate(pool, add(log, rows(3)), 1.0, log)
    assert decision.shareable
    assert decision.entropy is not None
    assert decision.threshold is not None
    assert decision.entropy <= decision.threshold
    assert not gate(pool, add(log, rows(3)), 0.999, log).shareable


def test_weights_from_each_tokens_kv(log: SampleLog) -> None:
    """Appendix 6.4.4: one L2 distance per token over layers, heads and dimensions, keys and values apart."""
    pool = pool_of(log, rows(0, 0), rows(0, 0, 0), per="token kv", compared="kv")
    known(pool, log)
    short, long = log.samples.values()
    short.base.keys[:] = torch.tensor([[3.0, 4.0], [1.0, 0.0]])  # (tokens, head_dim)
    long.base.keys[:] = torch.tensor([[1.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    long.base.values.fill_(2.0)
    match = pool.match(add(log, rows(0, 0)), 1, [], log)
    assert match is not None

    def share(a: float, b: float) -> float:
        return math.exp(-a) / (math.exp(-a) + math.exp(-b))

    keys = [share(5, 1), share(1, 4)]
    assert match.own[0].keys.tolist() == pytest.approx(keys)
    assert match.own[0].values.tolist() == pytest.approx([share(0, 8**0.5)] * 2)
    assert float(match.behind[0].keys) == pytest.approx(sum(keys) / 2)
    assert float(match.behind[0].values) == pytest.approx(share(0, 8**0.5))


def test_exact_eviction_drops_the_least_used_of_all(log: SampleLog) -> None:
    pool = pool_of(log, *(rows(i) for i in range(8)), capacity=8, eviction="least used")
    pool.uses.update({1: 5, 2: 3, 3: 1, 4: 2, 5: 9, 6: 0, 7: 0, 8: 1})
    assert pool.insert(add(log, rows(9))) == 6
    assert 9 in pool.uses
