"""Candidates kept apart, and candidates computed again: exact truths on a tiny random model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import tiny
import torch
from tiny import TOLERANCE, error
from torch import Tensor

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.candidates import Scope, blocks, chosen_tokens, dense_steps, slots_only, visible
from backend.methods.dense import dense_plan
from backend.methods.masked import MaskedMethod
from backend.methods.naive import NaiveMethod, NaiveOptions
from backend.methods.plan import Compute, Plan
from backend.methods.recompute_slots import RecomputeSlotsMethod
from backend.methods.registry import make_options
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.prompt import slots
from backend.records.run import COMPUTED, CORRECTED, RECOMPUTED, REUSED, Outcome, RunRecord
from backend.session.request_state import RequestState
from backend.session.session import LabSession

TEXTS = ("The answer is 4.", "Two and two give 4, so the answer is 4.", "It must be 5")
LIKE = (
    "You are the judge.\nThe task is: {user_question}\nCandidate:\n{candidate_1}\nCandidate:\n{candidate_2}\n"
)
LIKE += "Candidate:\n{candidate_3}\nThe best is:"


def judge(
    template: str = LIKE, names: Sequence[str] = ("candidate_1", "candidate_2", "candidate_3")
) -> Pipeline:
    """One agent that reads typed candidates."""
    return Pipeline("judge", "Judge", "For tests.", (Agent(1, "Judge", "", template, 8),), tuple(names))


class Read:
    """A judge's prompt, with everything that a plan could need."""

    def __init__(self, texts: Sequence[str] = TEXTS, template: str = LIKE) -> None:
        names = [f"candidate_{i}" for i in range(1, len(texts) + 1)]
        self.engine = Engine(tiny.model())
        self.log = SampleLog("test", 1 << 40)
        flow = RequestState(judge(template, names), self.engine, self.log)
        flow.start({"user_question": tiny.QUESTIONS[0]} | dict(zip(names, texts, strict=True)))
        self.context: PromptInContext = flow.context(1)
        self.prompt = self.context.prompt

    def masked(self, **options: Any) -> Prefill:
        method = MaskedMethod(make_options("masked", options))
        return self.engine.execute(self.prompt, method.plan(self.context, self.log, Clock()), Clock())

    def dense(self) -> Prefill:
        return self.engine.execute(self.prompt, dense_plan(self.context.prompt, "test"), Clock())

    def recomputed(self, **options: Any) -> Prefill:
        method = RecomputeSlotsMethod(make_options("recompute_slots", options))
        plan = method.plan(self.context, self.log, Clock())
        return self.engine.execute(self.prompt, plan, Clock(), method=method, context=self.context)

    def block(self, prefill: Prefill, number: int) -> KVSegment:
        """A candidate's KV with its header, position-free."""
        found = blocks(self.prompt)[number]
        rotation = self.engine.model.rotation
        return prefill.cache.segment(found.start, found.end, rotation, exact=True, context="")


def apart(a: KVSegment, b: KVSegment) -> float:
    return max(error(a.keys, b.keys), error(a.values, b.values))


@pytest.fixture(scope="module")
def read() -> Read:
    return Read()


# -- where candidates and their headers are


def test_blocks_follow_one_another_and_hold_their_headers(read: Read) -> None:
    found, ids = blocks(read.prompt), read.prompt.ids
    assert [b.name for b in found] == ["candidate_1", "candidate_2", "candidate_3"]
    assert all(a.end == b.start for a, b in pairwise(found))
    headers = {ids[b.start : b.text] for b in found}
    assert len(headers) == 1
    assert "Candidate" in read.engine.model.tokens.decode(headers.pop())


def test_a_numbered_header_of_the_first_is_as_long_as_the_second() -> None:
    template = (
        "The task is: {user_question}. Now compare.\nCandidate 1:\n{candidate_1}\nCandidate 2:\n{candidate_2}"
    )
    found = Read(TEXTS[:2], template)
    first, second = blocks(found.prompt)
    assert first.text - first.start == second.text - second.start
    decode = found.engine.model.tokens.decode
    assert decode(found.prompt.ids[first.start : first.text]).strip() == "Candidate 1:"


def test_a_lone_candidate_has_nothing_to_keep_apart() -> None:
    one = Read(TEXTS[:1], "The task is: {user_question}\n{candidate_1}\nThe best is:")
    assert len(blocks(one.prompt)) == 1
    assert bool(visible(one.prompt, "strict").all())
    assert error(one.masked(scope="strict").logits, one.dense().logits) <= TOLERANCE


def test_texts_side_by_side_leave_out_the_question_and_what_is_empty() -> None:
    found = Read(("a", "", "b"))
    assert [s.name for s in slots(found.prompt.spans)] == ["candidate_1", "candidate_3"]


# -- who sees whom


@pytest.mark.parametrize("scope", ["published", "strict"])
def test_visibility_is_what_the_scope_says(read: Read, scope: Scope) -> None:
    sees, found = visible(read.prompt, scope), blocks(read.prompt)
    first, second = found[0], found[1]
    strict = scope == "strict"
    assert not sees[second.text : second.end, first.text : first.end].any()
    assert bool(sees[second.text : second.end, second.text : second.end].all())
    assert bool(sees[second.text : second.end, : first.start].all())
    assert bool(sees[second.start : second.text, first.start : first.end].any()) != strict
    assert bool(sees[second.text : second.end, first.start : first.text].any()) != strict
    assert bool(sees[found[-1].end :].all())


def by_hand(read: Read, hidden: Tensor) -> Tensor:
    """Logits of plain transformers under a mask of one's own."""
    total = len(read.prompt.ids)
    seen = torch.ones(total, total, dtype=torch.bool).tril() & ~hidden
    bias = torch.zeros(1, 1, total, total).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.inference_mode():
        out = read.engine.model.module(input_ids=torch.tensor([read.prompt.ids]), attention_mask=bias)
    logits: Tensor = out.logits[0, -1]
    return logits


def test_published_masking_equals_plain_transformers_under_that_mask(read: Read) -> None:
    owner = torch.full((len(read.prompt.ids),), -1)
    for number, span in enumerate(slots(read.prompt.spans)):
        owner[span.start : span.end] = number
    hidden = (owner[:, None] >= 0) & (owner[None] >= 0) & (owner[:, None] != owner[None])
    assert error(read.masked().logits, by_hand(read, hidden)) <= TOLERANCE
    assert error(read.masked().logits, read.dense().logits) > 1e-3


@pytest.mark.slow
def test_strict_masking_at_a_shared_start_does_not_know_the_order() -> None:
    """The judge study's claim about order, as an exact truth: where a candidate stands leaves no trace."""
    order = (2, 0, 1)
    one, other = Read(TEXTS), Read([TEXTS[i] for i in order])

    def worst(**options: Any) -> float:
        mine, theirs = one.masked(**options), other.masked(**options)
        return max(apart(one.block(mine, i), other.block(theirs, place)) for place, i in enumerate(order))

    assert worst(scope="strict", shared_start=True) <= TOLERANCE
    assert worst(scope="published", shared_start=True) > 1e-3  # separators pass the order on
    assert worst(scope="strict") > 1e-3  # so does the distance to the beginning
    dense = max(
        apart(one.block(one.dense(), i), other.block(other.dense(), place)) for place, i in enumerate(order)
    )
    assert dense > 1e-3


def test_what_follows_goes_on_behind_the_longest_candidate(read: Read) -> None:
    found = blocks(read.prompt)
    steps = dense_steps(read.prompt, "", shared_start=True)
    longest = max(b.end - b.start for b in found)
    assert [s.position for s in steps] == [0, *[found[0].start] * 3, found[0].start + longest]
    assert [s.start for s in steps] == [0, *(b.start for b in found), found[-1].end]


# -- layer ranges


def test_layers_up_to_the_first_masked_one_are_dense(read: Read) -> None:
    dense, masked = read.dense().cache, read.masked(scope="strict", first_layer=1).cache
    assert error(masked.keys[:2], dense.keys[:2]) <= TOLERANCE  # layer 1's keys are made of layer 0's output
    assert error(masked.keys[2], dense.keys[2]) > 1e-3


def test_masking_no_layer_of_the_model_is_dense_and_all_is_all(read: Read) -> None:
    assert error(read.masked(first_layer=3).logits, read.dense().logits) <= TOLERANCE
    assert error(read.masked(first_layer=0, last_layer=2).logits, read.masked().logits) <= TOLERANCE
    upper = read.masked(last_layer=0).logits
    assert error(upper, read.dense().logits) > 1e-3
    assert error(upper, read.masked().logits) > 1e-3


def test_layers_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(OptionError, match="from layer 3 to layer 2, which is none"):
        make_options("masked", {"first_layer": 3, "last_layer": 2})


# -- candidates computed again


def test_chosen_tokens_are_whole_candidates(read: Read) -> None:
    found = blocks(read.prompt)
    assert chosen_tokens(read.prompt, (1,), headers=False) == tuple(range(found[1].text, found[1].end))
    assert chosen_tokens(read.prompt, (0, 2), headers=True) == (
        *range(found[0].start, found[0].end), *range(found[2].start, found[2].end),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("options", "wanted"),
    [({"which": "all"}, {0, 1, 2}), ({}, {1, 2}), ({"which": "first"}, {0}), ({"which": "last"}, {2}),
     ({"which": "one", "slot": 2}, {1}), ({"which": "one", "slot": 9}, set())],
)  # fmt: skip
def test_just_the_chosen_candidates_are_computed(
    read: Read, options: dict[str, Any], wanted: set[int]
) -> None:
    prefill = read.recomputed(**options)
    chosen = chosen_tokens(read.prompt, sorted(wanted), headers=False)
    again = {t for t in range(len(read.prompt.ids)) if (prefill.actions[:, t] == RECOMPUTED).all()}
    assert again == set(chosen)
    assert (prefill.actions[:, -1] == COMPUTED).all()
    assert (prefill.actions == REUSED).any()
    assert prefill.forwarded_tokens == len(chosen) + 1


def test_lower_layers_may_keep_the_copy(read: Read) -> None:
    copied = read.recomputed(which="one", slot=9)
    some = read.recomputed(which="all", first_layer=2)
    tokens = len(read.prompt.ids)
    assert torch.equal(some.cache.keys[:2, :, :, :tokens], copied.cache.keys[:2, :, :, :tokens])
    assert (some.actions[2] == RECOMPUTED).any()
    assert not (some.actions[:2] == RECOMPUTED).any()
    beyond = read.recomputed(which="all", first_layer=200)
    assert not (beyond.actions == RECOMPUTED).any()


def test_candidates_computed_again_over_an_exact_beginning_are_dense() -> None:
    """With nothing but candidates and their headers behind the first segment, all of them is everything."""
    template = "You are the judge.\nCandidate:\n{candidate_1}\nCandidate:\n{candidate_2}"
    found = Read(TEXTS[:2], template)
    # the first header stands in the first segment, which no context precedes: its copy is exact
    prefill = found.recomputed(which="all", headers=True)
    tiny.assert_same(prefill, found.dense(), len(found.prompt.ids))
    naive = found.recomputed(which="one", slot=9)
    assert error(naive.logits, found.dense().logits) > 1e-3


# -- beside the others in a run


@pytest.fixture(scope="module")
def record() -> RunRecord:
    methods = ("dense", "naive", "masked", "recompute_slots")
    return tiny.run(LabSession(tiny.model()), tiny.request(methods, probe_offsets=False))


def test_they_stand_beside_the_others(record: RunRecord) -> None:
    masked = record.outcome(3, "masked")
    assert masked.state == "dense"
    assert "could not see one another at every layer" in masked.reason
    assert masked.fidelity is not None
    assert masked.fidelity.kl_first > 1e-6
    again = record.outcome(3, "recompute_slots")
    assert [s.reason for s in again.spans if s.action == RECOMPUTED] == ["candidate 2 computed again"]


def test_a_plan_that_sees_less_is_not_taken_for_dense(read: Read) -> None:
    """Masked KV is computed, but it is not dense's: no pool and no prefix may learn from it."""
    method = MaskedMethod(make_options("masked", {}))
    plan: Plan = method.plan(read.context, read.log, Clock())
    assert not plan.plain
    assert not read.masked().exact


# -- candidates alone


def test_only_candidates_are_copied() -> None:
    """Everything before the first candidate is dense's, and the texts themselves are copied as before."""
    found = Read()
    whole = NaiveMethod(NaiveOptions()).plan(found.context, found.log, Clock())
    plan = slots_only(whole, found.prompt)
    assert [(s.start, s.end) for s in plan.steps] == [(s.start, s.end) for s in whole.steps]
    texts = [(block.text, block.end) for block in blocks(found.prompt)]
    for step, before in zip(plan.steps, whole.steps, strict=True):
        if (step.start, step.end) in texts:
            assert step == before
        else:
            assert isinstance(step.action, Compute) or step.action.exact
    prefill = found.engine.execute(found.prompt, plan, Clock())
    first = texts[0][0]
    seen, wanted = prefill.cache.keys[..., :first, :], found.dense().cache.keys[..., :first, :]
    assert error(seen, wanted) <= TOLERANCE
    assert error(prefill.logits, found.dense().logits) > 1e-3
    assert plan.state == "reused"
    lone = Read((), "You are the judge.\nThe task is: {user_question}\nThe answer is:")
    nothing = slots_only(NaiveMethod(NaiveOptions()).plan(lone.context, lone.log, Clock()), lone.prompt)
    tiny.assert_same(lone.engine.execute(lone.prompt, nothing, Clock()), lone.dense(), len(lone.prompt.ids))


def reused(outcome: Outcome) -> int:
    return sum(span.end - span.start for span in outcome.spans if span.action == REUSED)


@pytest.mark.parametrize("method", ["naive", "kvcomm", "palkv", "cacheblend"])
@pytest.mark.slow
def test_a_run_copies_only_candidates_before_the_last_agent(method: str) -> None:
    session = LabSession(tiny.model())
    asked = tiny.request(["dense", method], probe_offsets=False, slots_only=True)
    record = tiny.run(session, asked)
    copied = record.outcome(3, method)
    prompt = record.prompts[-1]
    texts = {i for s in slots(prompt.spans) for i in range(s.start, s.end)}
    for span in copied.spans:
        if span.action in (REUSED, CORRECTED) and "exact" not in span.provenance:
            assert {*range(span.start, span.end)} <= texts
    before = tiny.run(LabSession(tiny.model()), replace(asked, slots_only=False)).outcome(3, method)
    if method == "naive":
        assert 0 < reused(copied) < reused(before)
        assert reused(record.outcome(2, method)) > 0, "agents before the last one reuse as ever"
