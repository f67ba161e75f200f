"""The prefix tree against a brute-force model, and the prefix cache against dense."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import QUESTIONS, request, run, walk

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.radix_tree import Key, PrefixTree
from backend.cache.samples import SampleLog
from backend.methods.plan import Reuse
from backend.methods.prefix import PrefixMethod, PrefixOptions
from backend.model.load import LoadedModel
from backend.records.run import REUSED
from backend.session.session import LabSession

TOKEN_BYTES = 2 * 2 * 4  # keys and values of one layer, one head, two dims, fp32
KEYS: tuple[Key, ...] = (("a", ""), ("a", "tuned"), ("b", ""))
Ids = tuple[int, ...]


def kv(key: Key, ids: Sequence[int]) -> KVSegment:
    """KV that depends, at each token, on all tokens before it and on whose prompt it is."""
    marks = [hash((key, tuple(ids[: i + 1]))) % 9973 for i in range(len(ids))]
    data = torch.tensor(marks, dtype=torch.float32)[None, None, :, None].expand(1, 1, -1, 2)
    return KVSegment(data, data + 0.5, 0, True, "test")


class Model:
    """The same by brute force: where nodes end, as whole prefixes, in order of use (deeper ones first)."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.ends: list[tuple[Key, Ids]] = []  # the longest unused first

    def kept(self, key: Key) -> set[Ids]:
        return {ids[: i + 1] for k, ids in self.ends if k == key for i in range(len(ids))}

    @property
    def tokens(self) -> int:
        return sum(len(self.kept(key)) for key in KEYS)

    def longest(self, key: Key, ids: Ids) -> int:
        length = max((len(p) for p in self.kept(key) if ids[: len(p)] == p), default=0)
        # a node is used when at least its first token is: its end reaches past what the node above covers
        used = []
        for k, end in self.ends:
            above = max(
                (len(e) for q, e in self.ends if q == k and e != end and end[: len(e)] == e), default=0
            )
            if k == key and length > above and end[: above + 1] == ids[: above + 1]:
                used.append((k, end))
        self._use(used)
        return length

    def insert(self, key: Key, ids: Ids) -> None:
        length = max((len(p) for p in self.kept(key) if ids[: len(p)] == p), default=0)
        for end in (ids[:length], ids):
            if end and (key, end) not in self.ends:
                self.ends.append((key, end))
        self._use([(k, end) for k, end in self.ends if k == key and ids[: len(end)] == end])
        while self.tokens > self.budget:
            leaves = [
                (k, e)
                for k, e in self.ends
                if not any(q == k and f != e and f[: len(e)] == e for q, f in self.ends)
            ]
            self.ends.remove(leaves[0])

    def _use(self, nodes: list[tuple[Key, Ids]]) -> None:
        for node in sorted(nodes, key=lambda n: -len(n[1])):
            self.ends.remove(node)
            self.ends.append(node)


IDS = st.lists(st.integers(0, 2), min_size=1, max_size=9).map(tuple)
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS), IDS), max_size=40)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(0, 30))
@pytest.mark.slow
def test_the_tree_is_the_brute_force_model(steps: list[tuple[bool, Key, Ids]], budget: int) -> None:
    tree, model = PrefixTree(budget * TOKEN_BYTES), Model(budget)
    for inserts, key, ids in steps:
        if inserts:
            tree.insert(key, ids, kv(key, ids))
            model.insert(key, ids)
        else:
            pieces = tree.longest(key, ids)
            length = sum(p.tokens for p in pieces)
            assert length == model.longest(key, ids)
            wanted, at = kv(key, ids), 0
            for piece in pieces:
                assert piece.start == at
                assert torch.equal(piece.keys, wanted.keys[:, :, at : at + piece.tokens])
                assert torch.equal(piece.values, wanted.values[:, :, at : at + piece.tokens])
                at += piece.tokens
        assert tree.bytes == model.tokens * TOKEN_BYTES <= budget * TOKEN_BYTES
        assert len(tree) == len(model.ends)
    tree.shrink(0)
    assert (tree.bytes, len(tree)) == (0, 0)
    assert all(tree.longest(key, ids) == () for _, key, ids in steps)


def test_what_is_evicted_is_really_given_back() -> None:
    """No node is a view into another's memory, so the bytes counted are the bytes held."""
    tree, key = PrefixTree(1 << 20), KEYS[0]
    for ids in ((1, 2, 3, 4, 5), (1, 2, 3, 6), (1, 2, 7), (1, 2, 3, 4, 5, 8)):
        tree.insert(key, ids, kv(key, ids))
    pieces = tree.longest(key, (1, 2, 3, 4, 5, 8))
    assert [p.tokens for p in pieces] == [2, 1, 2, 1]
    for piece in pieces:
        for tensor in (piece.keys, piece.values):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_a_prompt_over_the_budget_is_not_kept() -> None:
    tree, key = PrefixTree(3 * TOKEN_BYTES), KEYS[0]
    tree.insert(key, (1, 2, 3, 4), kv(key, (1, 2, 3, 4)))
    assert tree.bytes == 0
    tree.insert(key, (1, 2, 3), kv(key, (1, 2, 3)))
    assert tree.bytes == tree.budget_bytes


# -- in the lab


@pytest.mark.parametrize("agent", [1, 2, 3])
def test_a_prefix_put_together_of_several_prompts_is_dense(tiny_model: LoadedModel, agent: int) -> None:
    one = walk(tiny_model, tiny.pipeline())
    log = SampleLog("test", 1 << 40)
    context, real = one.contexts[agent], one.real(agent)
    ids = context.prompt.ids
    for end in (len(ids) // 3, 2 * len(ids) // 3, len(ids)):  # three nodes on one path
        log.remember_prompt(ids[:end], real.slice(0, end))
    plan = PrefixMethod(PrefixOptions()).plan(context, log, Clock())
    assert sum(isinstance(step.action, Reuse) for step in plan.steps) == 3
    found = one.execute(agent, plan)
    tiny.assert_same(found, one.dense[agent], len(ids))
    assert found.exact
    assert found.forwarded_tokens == 1
    assert (found.actions[:, :-1] == REUSED).all()


def test_other_weights_and_other_domains_are_never_found(tiny_model: LoadedModel) -> None:
    one = walk(tiny_model, tiny.pipeline())
    log = SampleLog("mine", 1 << 40)
    ids = one.contexts[1].prompt.ids
    log.remember_prompt(ids, one.real(1), weights="tuned")
    assert log.longest_prefix(ids) == ()
    assert sum(p.tokens for p in log.longest_prefix(ids, "tuned")) == len(ids)
    assert SampleLog("other", 1 << 40).longest_prefix(ids, "tuned") == ()
    assert log.prefixes.longest(("other", "tuned"), ids) == ()


def test_past_prompts_share_their_beginning_in_the_log(tiny_model: LoadedModel) -> None:
    """Two requests through three agents: the bytes held are those of the distinct beginnings."""
    session = LabSession(tiny_model)
    records = [run(session, request(["dense", "prefix"], q)) for q in QUESTIONS[:2]]
    [stream] = session.streams.values()
    prompts = [tuple(p.token_ids.tolist()) for r in records for p in r.prompts]
    distinct = {ids[: i + 1] for ids in prompts for i in range(len(ids))}
    assert stream.log.prefixes.bytes == len(distinct) * tiny_model.info.kv_bytes_per_token
    assert len(distinct) < sum(map(len, prompts))
    for record in records:
        for agent in record.agents:
            near = record.outcome(agent, "prefix").fidelity
            assert near is not None
            assert near.first_divergence is None
            assert near.logit_difference <= 1e-4


def test_a_log_under_its_budget_drops_past_prompts_first(tiny_model: LoadedModel) -> None:
    one = walk(tiny_model, tiny.pipeline())
    one.log.remember_prompt(one.contexts[3].prompt.ids, one.real(3))
    assert one.log.prefixes.bytes
    one.log.budget_bytes = one.log.bytes - one.log.prefixes.bytes
    assert one.log.shrink(set()) == []
    assert one.log.prefixes.bytes == 0


def test_a_tree_that_is_let_go_gives_its_tensors_back_at_once() -> None:
    """Without a collection of cycles, which a large process hardly ever makes."""
    tree = PrefixTree(1 << 20)
    for ids in ((1, 2, 3, 4), (1, 2, 7), (1, 2, 3, 9), (5,)):
        tree.insert(KEYS[0], ids, kv(KEYS[0], ids))
    held = [weakref.ref(node.segment.keys) for node in tree._order if node.segment is not None]
    assert len(held) == len(tree) > 4
    gc.disable()
    try:
        del tree
        assert not any(tensor() is not None for tensor in held)
    finally:
        gc.enable()


def test_past_prompts_go_before_observations_also_for_what_methods_keep_beside(
    tiny_model: LoadedModel,
) -> None:
    one = walk(tiny_model, tiny.pipeline())
    log, context = one.log, one.contexts[3]
    log.remember_prompt(context.prompt.ids, one.real(3))
    kept, prompt = len(log.samples), log.prefixes.bytes
    assert prompt
    log.arenas.trim()
    log.budget_bytes = log.bytes  # full, and a method asks for a little beside
    assert log.shrink(log.samples, extra_bytes=prompt // 2) == []
    assert len(log.samples) == kept
    assert 0 <= log.prefixes.bytes <= prompt - prompt // 2
