"""PAL-KV and slot-aligned reuse: KVCOMM with another scope of anchors, on candidates that change places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import QUESTIONS, TOLERANCE, error, model

from backend.judge.judge_lab import JudgeLab
from backend.judge.judge_session import JudgeSession, SlotText, side_by_side
from backend.methods.kvcomm.weights import Weight, subset
from backend.methods.plan import Reuse
from backend.methods.registry import profile_options
from backend.model.load import LoadedModel
from backend.records.judge import Candidate, JudgeProblem, JudgeRequest, Order
from backend.records.request import MethodChoice, RunRequest
from backend.records.run import CORRECTED, Outcome, RunRecord

TEXTS = ("35 - 34 = 1. The answer is 1", "35 + 34 = 69. The answer is 69", "34 - 35 = 2. The answer is 2")
#: What differs between methods only in their scope.
OPTIONS: dict[str, Any] = {"gate": "length", "capacity": 3, "approximation": "nearest"}


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return model()


#: Characters written before each candidate's solution, by problem: the second writer's third text is new to a
#: pool of shorter ones, all others are not.
BEFORE = ((40, 24, 32), (9, 12, 15), (12, 60, 9), (15, 9, 12))


def problem(number: int) -> JudgeProblem:
    """A problem whose question is no longer than the first one's."""
    question = QUESTIONS[2] if number == 1 else QUESTIONS[number % 2]
    texts = [f"{QUESTIONS[i - number][:n]}. {TEXTS[i]}" for i, n in enumerate(BEFORE[number - 1])]
    candidates = tuple(Candidate(text, f"agent {i}") for i, text in enumerate(texts, 1))
    return JudgeProblem(number, question, candidates, "typed")


def records(tiny: LoadedModel, methods: tuple[MethodChoice, ...], order: Order, count: int = 4) -> Iterator[
    tuple[RunRecord, JudgeSession, tuple[int, ...]]
]:  # fmt: skip
    """Judge several problems in one order."""
    lab = JudgeLab(tiny)
    request = JudgeRequest(regime="typed", candidates=3, methods=methods, orders=(order,), max_new_tokens=2)
    for number in range(1, count + 1):
        asked = problem(number)
        layout = order.layout(number, 3)
        [(_, run, texts)] = lab.prompts(asked, (None,) * 3, layout, request)
        yield heard(lab.session(order), run, texts), lab.session(order), layout


def heard(session: JudgeSession, run: RunRequest, texts: dict[str, SlotText]) -> RunRecord:
    [record] = side_by_side([session.run_slots(run, texts)])
    return record


def choices(*names: str, **options: Any) -> tuple[MethodChoice, ...]:
    return tuple(MethodChoice(name, OPTIONS | options) for name in names)


def corrected(outcome: Outcome) -> set[tuple[int, int]]:
    """Where something was mixed in, and which anchor."""
    return {(s.start, n) for s in outcome.spans if s.action == CORRECTED for n in s.anchors}


@pytest.mark.parametrize("fresh", ["prompt", "text"])
@pytest.mark.parametrize("order", [Order(), Order("shuffle", 1)], ids=["identity", "shuffle"])
@pytest.mark.slow
def test_pal_kv_reuses_exactly_where_kvcomm_does(tiny: LoadedModel, order: Order, fresh: str) -> None:
    """Its gate, its counts and so its evictions are KVCOMM's, though it mixes other anchors."""
    methods = choices("kvcomm", "palkv", fresh=fresh)
    states, mixed_others = set(), False
    for record, session, _ in records(tiny, methods, order):
        own, pooled = (record.outcome(1, name) for name in ("kvcomm", "palkv"))
        assert (own.state, own.gate) == (pooled.state, pooled.gate)
        for span in record.prompts[0].spans:  # template text has other anchors, which stood elsewhere
            if span.kind == "placeholder":
                mine, theirs = (o.actions[:, span.start : span.end] for o in (own, pooled))
                assert (mine == theirs).all()
        assert [p.anchors for p in record.pools if p.method == "kvcomm"] == [
            p.anchors for p in record.pools if p.method == "palkv"
        ]
        assert [p.uses for p in record.pools if p.method == "kvcomm"] == [
            p.uses for p in record.pools if p.method == "palkv"
        ]
        states.add(own.state)
        mixed_others = mixed_others or bool(corrected(pooled) - corrected(own))
        here = {s.number for s in session.rows[0].context.samples.values()}
        # the lab knows this request's own offsets, a server would not
        assert not {anchor for _, anchor in corrected(pooled)} & here
    assert states == {"fallback", "reused"} | ({"partial"} if fresh == "text" else set())
    assert mixed_others


def test_kvcomm_keeps_a_pool_per_writer_and_slot_aligned_per_slot(tiny: LoadedModel) -> None:
    order = Order("fixed", places=(3, 1, 2))
    [*_, (record, session, _)] = records(tiny, choices("kvcomm", "slotaligned"), order, 2)
    names = {m: {p.placeholder for p in record.pools if p.method == m} for m in ("kvcomm", "slotaligned")}
    assert names["kvcomm"] == {"user_question", "agent 1", "agent 2", "agent 3"}
    assert names["slotaligned"] == {"user_question", "candidate_1", "candidate_2", "candidate_3"}
    log = session.rows[0].run.stream.log
    for pool in record.pools:
        held = [log.samples[n] for n in pool.anchors]
        whose = {o.source if pool.method == "kvcomm" else o.placeholder for o in held}
        assert pool.placeholder == "user_question" or whose == {pool.placeholder}


def test_slot_aligned_is_kvcomm_where_nobody_changes_places(tiny: LoadedModel) -> None:
    seen = []
    for record, session, _ in records(tiny, choices("kvcomm", "slotaligned"), Order()):
        own, slot = (record.outcome(1, name) for name in ("kvcomm", "slotaligned"))
        assert own.state == slot.state
        a, b = (session.rows[i].prefill for i in (1, 2))
        assert torch.equal(a.logits, b.logits)
        assert torch.equal(a.cache.keys, b.cache.keys)
        seen.append(own.state)
    assert "reused" in seen


def test_slot_aligned_differs_from_kvcomm_under_shuffle(tiny: LoadedModel) -> None:
    differ = []
    for _, session, _ in records(tiny, choices("kvcomm", "slotaligned"), Order("shuffle", 1)):
        a, b = (session.rows[i].prefill for i in (1, 2))
        differ.append(not torch.equal(a.logits, b.logits))
    assert any(differ)


@pytest.mark.parametrize("name", ["kvcomm", "palkv", "slotaligned"])
def test_the_same_request_again_in_the_same_layout_is_dense(tiny: LoadedModel, name: str) -> None:
    """Its own offsets are then the nearest anchors', whatever the scope (text by text: single tokens that
    two candidates share are as near to each other)."""
    lab, order = JudgeLab(tiny), Order("fixed", places=(2, 3, 1))
    request = JudgeRequest(
        candidates=3, methods=choices(name, distance="sequence"), orders=(order,), max_new_tokens=2
    )
    [(_, run, texts)] = lab.prompts(problem(1), (None,) * 3, order.places, request)
    session = lab.session(order)
    heard(session, run, texts)
    record = heard(session, run, texts)
    assert record.outcome(1, name).state == "reused"
    dense, mine = (row.prefill for row in session.rows)
    assert error(mine.logits, dense.logits) <= TOLERANCE


@pytest.mark.parametrize("name", ["kvcomm", "palkv", "slotaligned"])
def test_offsets_in_the_anchors_frame_come_from_where_the_anchor_stood(tiny: LoadedModel, name: str) -> None:
    """As shipped, between texts that have changed places: a shift is the anchor's own slot minus this one."""
    shipped = MethodChoice(name, profile_options(name, "shipped") | {"gate": "length", "missing": "dense"})
    order, places, shifted = Order("shuffle", 1), {}, 0
    for record, session, _ in records(tiny, (shipped,), order):
        row = session.rows[1]
        for sample in row.context.samples.values():
            places[sample.number] = next(
                s.start for s in row.context.prompt.spans if s.name == sample.placeholder
            )
        for step in row.plan.steps:
            span = next(s for s in row.context.prompt.spans if s.start == step.start)
            if isinstance(step.action, Reuse) and span.kind == "placeholder":
                for term in step.action.terms:
                    assert term.shift == places[term.anchor] - step.start
                    shifted += term.shift != 0
        assert record.outcome(1, name).text is not None
    assert shifted


def test_template_text_is_read_afresh_where_no_anchor_stood(tiny: LoadedModel) -> None:
    """Agent 1's text has been seen in slot 1 only, so what stands behind slot 2 has no offset of its own."""
    lab, order = JudgeLab(tiny), Order()
    request = JudgeRequest(candidates=3, methods=choices("kvcomm"), max_new_tokens=2)
    session = lab.session(order)
    for layout in ((1, 2, 3), (2, 1, 3)):
        [(_, run, texts)] = lab.prompts(problem(1), (None,) * 3, layout, request)
        record = heard(session, run, texts)
    outcome, prompt = record.outcome(1, "kvcomm"), record.prompts[0]
    assert outcome.state == "reused"
    done = {s.name: set(outcome.actions[:, s.start : s.end].flatten().tolist()) for s in prompt.spans}
    slots = [s.name for s in prompt.spans if s.kind == "placeholder"]
    assert all(done[name] == {CORRECTED} for name in slots)
    behind = {a.name: b.name for a, b in zip(prompt.spans, prompt.spans[1:], strict=False)}
    assert done[behind["candidate_1"]] == {0}
    assert done[behind["candidate_2"]] == {0}
    assert CORRECTED in done[behind["candidate_3"]]  # this one stayed


def test_only_the_new_text_is_read_afresh(tiny: LoadedModel) -> None:
    """One candidate longer than every anchor: under Algorithm 1 all is dense, else the others are copied."""
    lab, order = JudgeLab(tiny), Order()
    methods = (
        MethodChoice("kvcomm", OPTIONS, "whole"),
        MethodChoice("kvcomm", OPTIONS | {"fresh": "text"}, "alone"),
    )
    request = JudgeRequest(candidates=3, methods=methods, max_new_tokens=2)
    session = lab.session(order)
    first, second = problem(1), problem(1)
    long = Candidate(second.candidates[1].text * 2, "agent 2")
    second = JudgeProblem(2, second.question, (second.candidates[0], long, second.candidates[2]), "typed")
    for asked in (first, second):
        [(_, run, texts)] = lab.prompts(asked, (None,) * 3, (1, 2, 3), request)
        record = heard(session, run, texts)
    whole, alone = (record.outcome(1, label) for label in ("whole", "alone"))
    assert (whole.state, alone.state) == ("fallback", "partial")
    prompt = record.prompts[0]
    computed = {s.name for s in prompt.spans if not alone.actions[:, s.start : s.end].any()}
    assert computed == {"candidate_2", "prefix 3"}
    assert "candidate_2" in alone.reason
    # over nothing but exact texts, what is read afresh is exact too
    spans = {s.name: s for s in prompt.spans}
    dense, mine = (session.rows[i].prefill.cache for i in (0, 2))
    end = spans["prefix 3"].end
    assert error(mine.keys[:, :, :, :end], dense.keys[:, :, :, :end]) <= TOLERANCE


@pytest.mark.slow
def test_pal_kv_with_texts_of_one_writer_is_kvcomm(tiny: LoadedModel) -> None:
    """The question is alone in its kind; with one candidate source there is nothing to pool."""
    lab, order = JudgeLab(tiny), Order()
    request = JudgeRequest(candidates=2, methods=choices("kvcomm", "palkv"), max_new_tokens=2)
    session, states = lab.session(order), []
    for number in (1, 2, 3):
        base = problem(number)
        asked = JudgeProblem(number, base.question, base.candidates[:2], "typed")
        [(_, run, texts)] = lab.prompts(asked, (None,) * 2, (1, 2), request)
        same = {name: SlotText(text.ids, text.base, "agent 1") for name, text in texts.items()}
        record = heard(session, run, same)
        a, b = (session.rows[i].prefill for i in (1, 2))
        assert torch.equal(a.logits, b.logits)
        states.append(record.outcome(1, "palkv").state)
    assert "reused" in states


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=6), st.data())
def test_weights_of_some_sum_to_one(values: list[float], data: st.DataObject) -> None:
    known = data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values)))
    found = subset([Weight(torch.tensor(v), torch.tensor(2 * v)) for v in values], known)
    assert len(found) == sum(known)
    if found:
        assert abs(float(sum(w.keys for w in found)) - 1) < 1e-5
        assert abs(float(sum(w.values for w in found)) - 1) < 1e-5
        ratio = [v for v, wanted in zip(values, known, strict=True) if wanted]
        assert torch.allclose(torch.stack([w.keys for w in found]), torch.tensor(ratio) / sum(ratio))


def test_weightless_anchors_count_as_none() -> None:
    nearest = [Weight(torch.tensor(x), torch.tensor(x)) for x in (1.0, 0.0)]
    assert subset(nearest, [False, True]) == ()
    assert subset(nearest, [False, False]) == ()
