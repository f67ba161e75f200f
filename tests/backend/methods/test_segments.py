"""Cutting, sketching, packing and storing segments, and reading above a cut."""

from __future__ import annotations

import importlib
import random
import sys
from dataclasses import replace

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.base.errors import ModelError, OptionError
from backend.cache.int8 import pack
from backend.cache.kv_cache import KVSegment
from backend.engine.partial_layers import KnownTokens, gather, read_above
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.methods.segments.cutting import Cut, CutRules, cuts
from backend.methods.segments.grafts import Graft, Run, _rank, cover, labels, without_halo
from backend.methods.segments.minhash import Sketcher, blocks, jaccard, shingles
from backend.methods.segments.store import MatchRules, Owner, SegmentMatch, SegmentStore, beginnings
from backend.model.load import LoadedModel

RULES = MatchRules(shingle=3, permutations=64, tau=0.7, context_tokens=6, context_tau=0.5, edit_tokens=2)
ME = Owner("me")


def kv(tokens: int, seed: int = 0, *, exact: bool = True) -> KVSegment:
    """Random KV of two layers, marked by its tokens' places."""
    generator = torch.Generator().manual_seed(seed)
    keys, values = torch.randn(2, 2, 2, tokens, 4, generator=generator)
    return KVSegment(keys, values, 0, exact, "")


# -- where segments begin


def test_scaffold_marks_arguments_and_punctuation_cut() -> None:
    texts = [
        "Be",
        " brief",
        ".",
        "\n",
        "Thought",
        " 1:",
        " I",
        " look",
        " Action",
        " 1",
        ":",
        " find",
        "[",
        "a",
        "b",
        "]",
    ]
    texts += ["\n", "Observation", ":", " 4"]
    found = {(c.start, c.end) for c in cuts(texts, CutRules(minimum=1, maximum=99, window=0))}
    whole_turns = {(0, 3), (3, 8), (8, 16), (16, 20)}
    assert whole_turns <= found
    assert {
        (0, 3),
        (3, 4),
        (4, 6),
        (6, 8),
        (8, 11),
        (11, 13),
        (13, 15),
        (15, 16),
        (17, 19),
        (19, 20),
    } <= found
    assert not any(a < 4 < b for a, b in found - whole_turns), "a smaller piece runs over a mark"


@given(
    texts=st.lists(st.sampled_from(["a", " b", "\n", ".", " Thought", ":", "[", "]", ""]), max_size=60),
    minimum=st.integers(1, 9),
    extra=st.integers(0, 30),
    window=st.integers(0, 20),
)
def test_cuts_keep_to_the_rules(texts: list[str], minimum: int, extra: int, window: int) -> None:
    rules = CutRules(minimum, minimum + extra, window)
    found = cuts(texts, rules)
    assert list(found) == sorted(set(found))
    for cut in found:
        assert 0 <= cut.start < cut.end <= len(texts)
        assert rules.minimum <= cut.tokens <= rules.maximum
    if minimum <= window <= rules.maximum:
        wanted = {Cut(a, a + window) for a in range(0, len(texts) - window + 1, max(1, window // 2))}
        assert wanted <= set(found)


# -- what is alike


def test_shingles_and_their_similarity_are_exact() -> None:
    assert shingles((1, 2, 3, 4), 2) == {(1, 2), (2, 3), (3, 4)}
    assert shingles((1, 2), 8) == {(1, 2)}
    assert shingles((), 8) == set()
    assert jaccard((1, 2, 3, 4), (1, 2, 3, 9), 2) == 2 / 4
    assert jaccard((), (), 3) == 1
    assert jaccard((), (1,), 3) == 0


def test_signatures_estimate_the_similarity() -> None:
    rng, sketcher = random.Random(0), Sketcher(4, 256, 0.5)
    for edits in (0, 3, 10, 60):
        a = [rng.randrange(500) for _ in range(120)]
        b = list(a)
        for place in rng.sample(range(120), edits):
            b[place] = 999
        estimate = sketcher.signature(a).jaccard(sketcher.signature(b))
        assert abs(estimate - jaccard(a, b, 4)) < 0.12
    assert sketcher.signature(()).jaccard(sketcher.signature(())) == 1


@given(a=st.lists(st.integers(0, 5), max_size=30), b=st.lists(st.integers(0, 5), max_size=30))
def test_shared_blocks_are_shared_in_order(a: list[int], b: list[int]) -> None:
    at_a = at_b = 0
    for x, y, size in blocks(a, b):
        assert a[x : x + size] == b[y : y + size]
        assert x >= at_a
        assert y >= at_b
        at_a, at_b = x + size, y + size


# -- eight bits


@given(
    seed=st.integers(0, 10_000),
    tokens=st.integers(0, 9),
    scale=st.sampled_from([1e-20, 1e-3, 1.0, 37.5, 1e20]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_int8_errs_by_at_most_half_a_step(seed: int, tokens: int, scale: float, dtype: torch.dtype) -> None:
    values = torch.randn(2, 3, tokens, 5, generator=torch.Generator().manual_seed(seed)).mul(scale).to(dtype)
    values[:, :, :, 0] = 0
    packed = pack(values)
    assert packed.steps.dtype == torch.int8
    step = packed.step.double()
    in_full = packed.steps.double() * step
    assert ((in_full - values.double()).abs() <= step / 2 * (1 + 1e-4)).all()  # the step itself is an fp32
    read = packed.unpack()
    assert read.dtype == dtype
    rounding = torch.finfo(dtype).eps * values.double().abs()
    assert ((read.double() - values.double()).abs() <= step / 2 * (1 + 1e-4) + rounding).all()
    if tokens:
        most = values.double().abs().amax(dim=-2, keepdim=True)
        assert torch.allclose(step, most / 127, rtol=1e-6, atol=0), (
            "the step is no finer or coarser than needed"
        )
    assert packed.bytes == values.numel() + 4 * 2 * 3 * 5


# -- the store


def test_the_same_text_behind_the_same_text_is_found_and_equal() -> None:
    store, ids, own = SegmentStore(RULES, 1 << 20), tuple(range(40)), kv(40)
    assert store.add(ME, ids, [Cut(10, 20)], own, agent=3) == 1
    [(_, found, others)] = store.find(ME, ids, [Cut(10, 20)])
    assert found is not None
    assert others == 0
    assert (found.similarity, found.context, found.beginning) == (1.0, 1.0, True)
    assert found.stored.agent == 3
    piece = found.stored.kv(2, 7)
    assert torch.equal(piece.keys, own.keys[:, :, 12:17])
    assert torch.equal(piece.values, own.values[:, :, 12:17])
    assert piece.start == 12


def test_another_place_is_found_but_the_beginning_is_not_the_same() -> None:
    store, ids = SegmentStore(RULES, 1 << 20), tuple(range(40))
    store.add(ME, ids, [Cut(10, 20)], kv(40))
    moved = (99, 98, 97, *ids)
    [(_, found, _)] = store.find(ME, moved, [Cut(13, 23)])
    assert found is not None
    assert (found.similarity, found.context, found.beginning) == (1.0, 1.0, False)


def test_up_to_the_first_difference_a_beginning_is_exact() -> None:
    store, ids = SegmentStore(RULES, 1 << 20), tuple(range(60))
    store.add(ME, ids, [Cut(0, 40)], kv(60))
    edited = (*ids[:35], 555, *ids[36:])
    first, second = cover(found_in(store, edited, [Cut(0, 40)]), 59)
    assert [(g.start, g.end, g.exact) for g in (*first.grafts, *second.grafts)] == [
        (0, 35, True),
        (36, 40, False),
    ]
    packed = SegmentStore(RULES, 1 << 20, int8=True)
    packed.add(ME, ids, [Cut(0, 40)], kv(60))
    assert not any(g.exact for run in cover(found_in(packed, ids, [Cut(0, 40)]), 59) for g in run.grafts)


class Everything(list[int]):
    """An index that finds all there is."""

    def query(self, signature: object) -> list[int]:
        return self


def test_what_is_alike_is_verified_exactly() -> None:
    """The index may say what it likes: similarity, context and length are measured on the tokens."""
    ids = tuple(range(60))
    edited = (*ids[:33], 777, *ids[34:])
    wanted = jaccard(ids[20:50], edited[20:50], RULES.shingle)
    assert wanted == 25 / 31
    for tau, there in ((0.8, True), (0.81, False)):
        store = SegmentStore(replace(RULES, tau=tau), 1 << 20)
        store.add(ME, ids, [Cut(20, 50)], kv(60))
        store._rooms[ME].index = Everything([s.number for s in store.segments(ME)])
        [(_, found, others)] = store.find(ME, edited, [Cut(20, 50)])
        assert (found is not None) == there
        assert others == (not there)
        if found:
            assert found.similarity == wanted
    other_context = (*range(200, 220), *ids[20:])
    [(_, found, others)] = store.find(ME, other_context, [Cut(20, 50)])
    assert found is None
    assert others == 1
    longer = (*ids[:50], 50, 51, 52)
    store.rules = replace(RULES, tau=0.1)
    [(_, found, _)] = store.find(ME, longer, [Cut(20, 53)])
    assert found is None, "three tokens more are more than the rules allow"


@pytest.mark.slow
def test_the_index_finds_what_is_alike() -> None:
    rng, store = random.Random(1), SegmentStore(replace(RULES, permutations=128), 1 << 30)
    prompts = [tuple(rng.randrange(1000) for _ in range(80)) for _ in range(30)]
    for ids in prompts:
        store.add(ME, ids, [Cut(10, 74)], kv(80))
    hits = 0
    for ids in prompts:
        edited = list(ids)
        edited[40] = 5000
        [(_, found, _)] = store.find(ME, edited, [Cut(10, 74)])
        hits += found is not None and found.stored.ids == ids[10:74]
    assert hits == 30


def test_content_is_kept_once_and_the_exact_one_stays() -> None:
    store, ids = SegmentStore(RULES, 1 << 20), tuple(range(40))
    cut = Cut(10, 20)
    assert store.add(ME, ids, [cut], kv(40, 1, exact=False)) == 1
    held = store.held_bytes(ME)
    assert store.add(ME, ids, [cut], kv(40, 2)) == 0, "exact takes the place of approximate"
    [one] = store.segments(ME)
    assert torch.equal(one.keys, kv(40, 2).keys[:, :, 10:20])
    store.add(ME, ids, [cut], kv(40, 3, exact=False))
    [still] = store.segments(ME)
    assert still.keys is one.keys
    far = (77, *ids[1:])  # within W tokens before the segment nothing differs
    store.add(ME, far, [cut], kv(40, 4))
    [newest] = store.segments(ME)
    assert newest.before != one.before
    assert store.held_bytes(ME) == held
    other = (*ids[:5], 88, *ids[6:])
    assert store.add(ME, other, [cut], kv(40, 5)) == 1, "another left context is another segment"


def test_the_budget_holds_and_the_longest_unused_goes_first() -> None:
    ids = tuple(range(200))
    pieces = [Cut(a, a + 10) for a in range(10, 90, 10)]
    one = SegmentStore(RULES, 1 << 20)
    one.add(ME, ids, pieces[:1], kv(200))
    size = one.held_bytes(ME)
    store = SegmentStore(RULES, 3 * size)
    store.add(ME, ids, pieces[:3], kv(200))
    first, second, third = (s.number for s in store.segments(ME))
    store.mark_used(ME, [first])
    store.add(ME, ids, pieces[3:4], kv(200))
    assert [s.number for s in store.segments(ME)][:2] == [third, first]
    assert store.held_bytes(ME) == sum(s.bytes for s in store.segments(ME)) <= 3 * size
    [(_, gone, _)] = store.find(ME, ids, pieces[1:2])
    assert gone is None
    assert second not in [s.number for s in store.segments(ME)]


def test_all_owners_together_shrink_the_largest_first() -> None:
    store, ids = SegmentStore(RULES, 1 << 20), tuple(range(200))
    other = Owner("somebody else")
    pieces = [Cut(a, a + 10) for a in range(10, 90, 10)]
    store.add(ME, ids, pieces[:5], kv(200))
    store.add(other, ids, pieces[:2], kv(200))
    one = store.held_bytes(other) // 2
    assert store.total_bytes == 7 * one
    store.shrink(4 * one)
    assert (store.held_bytes(ME), store.held_bytes(other)) == (2 * one, 2 * one)
    assert [s.start for s in store.segments(ME)] == [40, 50], "the longest unused went"
    store.shrink(store.total_bytes)
    assert store.total_bytes == 4 * one
    store.shrink(0)
    assert store.total_bytes == 0


def test_int8_takes_a_quarter() -> None:
    ids = tuple(range(200))
    sizes = []
    for int8 in (False, True):
        store = SegmentStore(RULES, 1 << 20, int8)
        store.add(ME, ids, [Cut(10, 138)], kv(200))
        [one] = store.segments(ME)
        assert one.packed == int8
        assert one.kv(0, 128).exact != int8
        sizes.append(store.held_bytes(ME))
    channels = 2 * 2 * 2 * 4  # of keys and values, layers, heads
    assert sizes[0] - sizes[1] == channels * (128 * 4 - 128 - 4)


def test_a_twin_goes_on_by_itself() -> None:
    store, ids = SegmentStore(RULES, 1 << 20), tuple(range(60))
    store.add(ME, ids, [Cut(10, 20)], kv(60))
    twin = store.twin()
    twin.add(ME, ids, [Cut(30, 40)], kv(60))
    twin.forget(ME, [store.segments(ME)[0].number])
    assert [s.ids[0] for s in store.segments(ME)] == [10]
    assert [s.ids[0] for s in twin.segments(ME)] == [30]
    [(_, mine, _), (_, theirs, _)] = store.find(ME, ids, [Cut(10, 20), Cut(30, 40)])
    assert mine is not None
    assert theirs is None, "the index is shared, but what it says is looked up in one's own"


def test_an_index_is_made_anew_when_most_of_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.methods.segments.store.REBUILD", 2)
    store = SegmentStore(RULES, 2500)
    for number in range(20):
        ids = tuple(range(number * 100, number * 100 + 40))
        store.add(ME, ids, [Cut(10, 20)], kv(40))
        [(_, found, _)] = store.find(ME, ids, [Cut(10, 20)])
        assert found is not None
        room = store._rooms[ME]
        assert room.indexed <= 2 * len(room.entries) + 3
        assert store.held_bytes(ME) <= 2500


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "find", "evict", "twin"]),
            st.sampled_from([Owner("a"), Owner("b"), Owner("a", "tuned")]),
            st.integers(0, 2),  # which text
            st.integers(0, 8),  # where it stands
        ),
        max_size=25,
    )
)
@pytest.mark.slow
def test_no_trust_domain_is_ever_crossed(steps: list[tuple[str, Owner, int, int]]) -> None:
    """Whatever is added, evicted and forked in whatever order: what is found was added by the one who asks,
    and its bytes are that one's."""
    store = SegmentStore(replace(RULES, context_tau=0.0), 4000)
    mine: dict[Owner, set[int]] = {}
    for number, (what, owner, text, shift) in enumerate(steps):
        ids = (*range(900, 900 + shift), *range(text * 50, text * 50 + 20))
        cut = Cut(shift, shift + 20)
        if what == "add":
            store.add(owner, ids, [cut], kv(shift + 20, number))
            mine.setdefault(owner, set()).update(s.number for s in store.segments(owner))
        elif what == "evict":
            store.forget(owner, [s.number for s in store.segments(owner)][:1])
        elif what == "twin":
            store = store.twin()
        else:
            [(_, found, _)] = store.find(owner, ids, [cut])
            known = {s.number for s in store.segments(owner)}
            assert known <= mine.get(owner, set())
            if found:
                assert found.stored.number in known
            else:
                assert all(s.ids != ids[cut.start :] for s in store.segments(owner))
    owners = {owner for _, owner, _, _ in steps}
    for owner in owners:
        assert store.held_bytes(owner) == sum(s.bytes for s in store.segments(owner))
        for other in owners:
            if other != owner:
                assert not mine.get(owner, set()) & mine.get(other, set())


def test_beginnings_are_those_of_the_tokens() -> None:
    a, b = tuple(range(30)), (*range(20), 99, *range(21, 30))
    ends = [25, 5, 20, 5]
    same = [x == y for x, y in zip(beginnings(a, ends), beginnings(b, ends), strict=True)]
    assert same == [False, True, True, True]
    assert beginnings(a, [25])[0] == beginnings(a, ends)[0]


# -- grafts


def found_in(store: SegmentStore, ids: tuple[int, ...], pieces: list[Cut]) -> list[SegmentMatch]:
    return [one for _, one, _ in store.find(ME, ids, pieces) if one]


def test_grafts_cover_each_token_once_and_only_with_its_own_kind() -> None:
    store, ids = SegmentStore(replace(RULES, context_tau=0.0), 1 << 20), tuple(range(100))
    pieces = [Cut(10, 40), Cut(30, 60), Cut(50, 90), Cut(12, 20)]
    store.add(ME, ids, pieces, kv(100))
    edited = (7, 7, *ids[:35], 555, *ids[36:])
    moved = [Cut(c.start + 2, c.end + 2) for c in pieces]
    out = cover(found_in(store, edited, moved), 80)
    places = [t for run in out for g in run.grafts for t in range(g.start, g.end)]
    assert len(places) == len(set(places)) > 40
    assert max(places) < 80
    for run in out:
        assert [g.start for g in run.grafts[1:]] == [g.end for g in run.grafts[:-1]]
        for g in run.grafts:
            assert edited[g.start : g.end] == g.stored.ids[g.at : g.at + g.tokens]
    assert 37 not in places, "a token that differs is read afresh"


def test_of_two_that_overlap_the_likelier_one_is_grafted() -> None:
    """The longer first; of equals the more alike, then the one behind likelier words, then the earlier."""
    store, ids = SegmentStore(replace(RULES, context_tau=0.0), 1 << 20), tuple(range(100))
    store.add(ME, ids, [Cut(10, 40)], kv(100))
    [one] = store.find(ME, (7, *ids), [Cut(11, 41)])
    assert one[1] is not None
    found = replace(one[1], beginning=False, similarity=0.8, context=0.5)
    order = [
        replace(found, beginning=True, cut=Cut(50, 60)),
        replace(found, cut=Cut(50, 90)),
        replace(found, similarity=0.9, context=0.1, cut=Cut(50, 80)),
        replace(found, context=0.6, cut=Cut(50, 80)),
        replace(found, cut=Cut(12, 42)),
        replace(found, cut=Cut(50, 80)),
    ]
    ranks = [_rank(one) for one in order]
    assert sorted(set(ranks), reverse=True) == ranks


def test_neighbours_in_their_prompt_make_one_run() -> None:
    store, ids = SegmentStore(replace(RULES, context_tau=0.0), 1 << 20), tuple(range(100))
    store.add(ME, ids, [Cut(10, 40), Cut(40, 70)], kv(100))
    asked = (7, 7, *ids)
    [run] = cover(found_in(store, asked, [Cut(12, 42), Cut(42, 72)]), 90)
    assert (run.start, run.end, len(run.grafts)) == (12, 72, 2)
    other = (*ids[:40], *range(500, 530))
    store.add(ME, other, [Cut(40, 70)], kv(70, 5))
    mixed = (7, 7, *ids[:40], *range(500, 530), 1)
    parts = cover(found_in(store, mixed, [Cut(12, 42), Cut(42, 72)]), 73)
    assert len(parts) == 2, "from two prompts: an edge"


def stored_graft(start: int, end: int, exact: bool = False) -> Graft:
    store, ids = SegmentStore(RULES, 1 << 20), tuple(range(end))
    store.add(ME, ids, [Cut(start, end)], kv(end))
    return Graft(start, end, store.segments(ME)[0], 0, exact)


def test_the_halo_is_taken_from_both_ends_or_the_left() -> None:
    graft = stored_graft(10, 30)
    whole = (Run(10, 30, (graft,)),)
    [both], [left] = without_halo(whole, 4, True), without_halo(whole, 4, False)
    assert [(g.start, g.end, g.at) for g in both.grafts] == [(14, 26, 4)]
    assert [(g.start, g.end, g.at) for g in left.grafts] == [(14, 30, 4)]
    assert (both.start, both.end) == (10, 30)
    assert without_halo(whole, 10, True) == ()
    assert without_halo(whole, 0, True) == whole
    exact = (Run(10, 30, (replace(graft, exact=True),)),)
    assert without_halo(exact, 100, True) == exact
    why = labels(40, (both,), [(0, 12), (35, 40)])
    assert why[:10] == ["rejected"] * 10
    assert why[10:14] == why[26:30] == ["edge"] * 4
    assert why[14:26] == ["graft"] * 12
    assert why[30:35] == [""] * 5


# -- layers


NOTHING = torch.empty(0, 2, 0, 16)
IDS = tuple(int(i) for i in torch.randint(5, 300, (40,), generator=torch.Generator().manual_seed(3)))


def known(model: LoadedModel, tokens: list[int], cut: int, *, states: bool = True) -> KnownTokens:
    """What a dense pass over the same prompt knows of some tokens."""
    nothing = gather(Plan((Step(0, len(IDS), Compute("")),), "dense", "", cut=cut), len(IDS) - 1, model)
    whole = read_above(model, IDS, nothing)
    segment = whole.cache.segment(0, len(IDS), model.rotation, exact=True, context="")
    return KnownTokens(
        torch.tensor(tokens, dtype=torch.long),
        segment.keys[:cut, :, tokens],
        segment.values[:cut, :, tokens],
        whole.hidden[tokens] if states else None,
        cut,
    )


@pytest.mark.parametrize("cut", [0, 1, 2, 3])
@pytest.mark.parametrize("tokens", [[], list(range(12)), [3, 4, 5, 20, 21, 22, 38]])
def test_true_lower_layers_give_dense(tiny_model: LoadedModel, cut: int, tokens: list[int]) -> None:
    """Whatever is known, if it is what dense gives; and nothing of it is forwarded below the cut."""
    engine_cache, wanted = tiny.Engine(tiny_model).prefill(IDS)
    out = read_above(tiny_model, IDS, known(tiny_model, tokens, cut))
    assert tiny.error(out.logits, wanted) <= tiny.TOLERANCE
    assert tiny.caches(out.cache, engine_cache, len(IDS)) <= tiny.TOLERANCE
    assert out.cache.length == len(IDS)
    assert out.token_layers == 3 * len(IDS) - cut * len(tokens)


def test_states_that_skip_the_lower_layers_are_wrong(tiny_model: LoadedModel) -> None:
    """The inconsistent reading shows, even with everything else true; above all layers there is nothing to
    skip."""
    _, wanted = tiny.Engine(tiny_model).prefill(IDS)
    tokens = list(range(5, 30))
    for cut, same in ((1, False), (2, False), (3, True)):
        out = read_above(tiny_model, IDS, known(tiny_model, tokens, cut, states=False))
        assert (tiny.error(out.logits, wanted) <= tiny.TOLERANCE) == same


def test_reading_goes_on_behind_a_layered_pass(tiny_model: LoadedModel) -> None:
    engine = tiny.Engine(tiny_model)
    out = read_above(tiny_model, IDS[:30], known(tiny_model, [4, 5, 6], 2))
    cache, _ = engine.prefill(IDS[:30])
    found = engine.forward(engine.ids(IDS[30:]), out.cache)[0, -1]
    assert tiny.error(found, engine.forward(engine.ids(IDS[30:]), cache)[0, -1]) <= tiny.TOLERANCE


def test_half_given_states_are_refused(tiny_model: LoadedModel) -> None:
    part = KVSegment(torch.zeros(3, 2, 4, 16), torch.zeros(3, 2, 4, 16), 0, True, "")
    steps = (
        Step(0, 4, Reuse(part, hidden=torch.zeros(4, 64))),
        Step(4, 8, Reuse(part)),
        Step(8, 9, Compute("")),
    )
    with pytest.raises(ModelError, match="others do not"):
        gather(Plan(steps, "partial", "", cut=1), 8, tiny_model)


def test_another_family_is_refused_in_words(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.engine.partial_layers.why_not_layerwise", lambda _model: "no")
    with pytest.raises(OptionError, match="Reuse all layers instead"):
        read_above(tiny_model, IDS, KnownTokens(torch.empty(0, dtype=torch.long), NOTHING, NOTHING, None, 0))


def test_datasketch_is_needed_only_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    monkeypatch.delitem(sys.modules, "backend.methods.segments.minhash")
    sketch = importlib.import_module("backend.methods.segments.minhash")
    with pytest.raises(OptionError, match="pip install datasketch"):
        sketch.Sketcher(3, 16, 0.5)
