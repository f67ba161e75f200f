"""Truths that hold exactly, in fp32 at 1e-5: what equals dense, and what equals itself.

Each was seen to fail once with the code broken on purpose (a flipped rotation, wrong padding positions,
skipped offsets, ...).
"""

from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import QUESTIONS, TOLERANCE, Walk, assert_same, caches, error, request, run, walk

from backend.base.clock import Clock
from backend.base.errors import BudgetError, OptionError, PromptError, RunCancelled
from backend.cache.kv_cache import KVCache, KVOffset, made_cache
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.placement import mix
from backend.methods.base import Arrived
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import KVCommOptions
from backend.methods.naive import NaiveMethod, NaiveOptions
from backend.methods.plan import Compute, Plan, Reuse, Step, Term
from backend.methods.prefix import PrefixMethod, PrefixOptions
from backend.model.load import LoadedModel, wrap_model
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.request import Decoding, MethodChoice, Mode
from backend.records.run import COMPUTED, CORRECTED, REUSED, RunRecord
from backend.session.session import LabSession


@pytest.fixture(scope="module")
def walked(tiny_model: LoadedModel, tiny_pipeline: Pipeline) -> Walk:
    """One question, densely through all agents; its true offsets are in the log."""
    return walk(tiny_model, tiny_pipeline)


@pytest.fixture
def session(tiny_model: LoadedModel) -> LabSession:
    return LabSession(tiny_model)


def plain(loaded: LoadedModel, ids: Any) -> Any:
    """transformers' own forward pass over all ids: output with every logit and a DynamicCache."""
    with torch.inference_mode():
        return loaded.module(input_ids=torch.tensor([list(ids)]), use_cache=True)


# -- equal to dense


@pytest.mark.parametrize("agent", [1, 2, 3])
@pytest.mark.slow
def test_dense_is_transformers_own_forward(walked: Walk, agent: int) -> None:
    ids = walked.contexts[agent].prompt.ids
    wanted, found = plain(walked.engine.model, ids), walked.dense[agent]
    assert error(found.logits, wanted.logits[0, -1]) <= TOLERANCE
    for index, layer in enumerate(made_cache(wanted).layers):
        assert error(found.cache.keys[index, :, :, : len(ids)], layer.keys) <= TOLERANCE
        assert error(found.cache.values[index, :, :, : len(ids)], layer.values) <= TOLERANCE


@pytest.mark.parametrize("pieces", [2, 3, 7])
def test_chunked_prefill_is_one_shot_prefill(walked: Walk, pieces: int) -> None:
    ids = walked.contexts[3].prompt.ids
    cache, logits = walked.engine.prefill(ids, pieces)
    assert error(logits, walked.dense[3].logits) <= TOLERANCE
    assert caches(cache, walked.dense[3].cache, len(ids)) <= TOLERANCE


@pytest.mark.parametrize("piece", [1, 3, 5, 1000])
@pytest.mark.parametrize("agent", [1, 3])
@pytest.mark.slow
def test_what_stands_behind_a_beginning_may_be_read_in_pieces(
    walked: Walk, agent: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No piece sees what comes after it, and none is left out; an empty cache is filled in one pass."""
    monkeypatch.setattr("backend.engine.assembly.PIECE", piece)
    passes = list[tuple[int, int]]()
    forward = Engine.forward

    def counted(engine: Engine, ids: Any, cache: KVCache, **more: Any) -> Any:
        passes.append((cache.length, ids.shape[1]))
        return forward(engine, ids, cache, **more)

    monkeypatch.setattr(Engine, "forward", counted)
    dense, total = walked.dense[agent], len(walked.contexts[agent].prompt.ids)
    beginning = dense.cache.segment(0, 4, walked.engine.model.rotation, exact=True, context="kept")
    steps = (Step(0, 4, Reuse(beginning, exact=True)), Step(4, total, Compute("the rest")))
    found = walked.execute(agent, Plan(steps, "partial", "test"))
    assert passes == [(at, min(piece, total - at)) for at in range(4, total, piece)]
    assert_same(found, dense, total)
    passes.clear()
    assert_same(walked.execute(agent, Plan((Step(0, total, Compute("all")),), "dense", "test")), dense, total)
    assert passes == [(0, total)]


@pytest.mark.parametrize("agent", [1, 2, 3])
@pytest.mark.parametrize("other", [QUESTIONS[0], QUESTIONS[0] + " Really?", QUESTIONS[1]])
def test_prefix_cache_is_dense(walked: Walk, agent: int, other: str) -> None:
    log = SampleLog("test", 1 << 40)
    earlier = walk(walked.engine.model, walked.state.pipeline, other)
    for number, context in earlier.contexts.items():
        log.remember_prompt(context.prompt.ids, earlier.real(number))
    context = walked.contexts[agent]
    plan = PrefixMethod(PrefixOptions()).plan(context, log, Clock())
    found = walked.execute(agent, plan)
    assert plan.state == "partial"
    assert_same(found, walked.dense[agent], len(context.prompt.ids))
    assert found.exact
    if other == QUESTIONS[0]:
        assert found.forwarded_tokens == 1


@pytest.mark.parametrize("agent", [1, 2, 3])
def test_true_offsets_give_dense(walked: Walk, agent: int) -> None:
    found = walked.execute(agent, walked.true_offset_plan(agent))
    total = len(walked.contexts[agent].prompt.ids)
    assert_same(found, walked.dense[agent], total)
    assert found.forwarded_tokens == 1
    assert (found.actions[:, :-1] == CORRECTED).all()
    assert (found.actions[:, -1] == COMPUTED).all()


@pytest.mark.parametrize("agent", [1, 2, 3])
def test_naive_with_segments_of_this_very_context_gives_dense(walked: Walk, agent: int) -> None:
    context, real = walked.contexts[agent], walked.real(agent)
    places = {s.name: real.slice(s.start, s.end) for s in context.prompt.spans}
    own = PromptInContext(
        context.prompt,
        {name: replace(sample, base=places[name]) for name, sample in context.samples.items()},
        {name: places[name] for name in context.prefix_bases},
        {name: places[name] for name in context.isolated_bases},
    )
    for rotate in (True, False):  # they stand where they were computed, so moving them changes nothing
        plan = NaiveMethod(NaiveOptions(rotate=rotate)).plan(own, walked.log, Clock())
        assert_same(walked.execute(agent, plan), walked.dense[agent], len(context.prompt.ids))


def test_naive_is_not_dense_where_context_matters(walked: Walk) -> None:
    """The control of the tests above: uncorrected reuse errs by far more than the tolerance."""
    found = walked.execute(3, NaiveMethod(NaiveOptions()).plan(walked.contexts[3], walked.log, Clock()))
    assert error(found.logits, walked.dense[3].logits) > 1000 * TOLERANCE


@pytest.mark.parametrize(
    "options", [{}, {"distance": "sequence"}, {"norm": "frobenius"}, {"prefix_base": "alone"}, {"gamma": 1.0}]
)
def test_kvcomm_with_the_request_as_its_only_anchor_gives_dense(
    tiny_model: LoadedModel, tiny_pipeline: Pipeline, options: dict[str, Any]
) -> None:
    log = SampleLog("test", 1 << 40)
    method = KVCommMethod(KVCommOptions(**options))
    first = walk(tiny_model, tiny_pipeline, log=log)
    for sample in first.state.samples.values():
        method.on_event(Arrived(sample), log)
    again = walk(tiny_model, tiny_pipeline, log=log)
    for sample in again.state.samples.values():
        method.on_event(Arrived(sample), log)
    for agent, context in again.contexts.items():
        plan = method.plan(context, log, Clock())
        assert plan.state == "reused", plan.reason
        found = again.execute(agent, plan)
        assert_same(found, again.dense[agent], len(context.prompt.ids))
        assert found.forwarded_tokens == 1


@pytest.mark.parametrize("options", [{}, {"capacity": 0}, {"gamma": 0.0}])
def test_nothing_to_share_gives_dense(session: LabSession, options: dict[str, Any]) -> None:
    """An empty pool at the first request; V = 0 and gamma = 0 at the second and third, too."""
    for question in QUESTIONS[: 3 if options else 1]:
        record = run(session, request(["dense", MethodChoice("kvcomm", options)], question))
        for agent in record.agents:
            dense, found = record.outcome(agent, "dense"), record.outcome(agent, "kvcomm")
            assert found.state == "fallback"
            assert not any(g.shareable for g in found.gate)
            assert (found.actions == COMPUTED).all()
            assert found.token_ids.tolist() == dense.token_ids.tolist()
            assert found.fidelity is not None
            assert found.fidelity.logit_difference == 0
            assert found.key_error is not None
            assert found.key_error.max() <= TOLERANCE


def test_a_template_without_text_to_share_is_read_exactly(session: LabSession) -> None:
    """Template text behind an empty placeholder has no offset to borrow: it must not pass for exact."""
    flow = tiny.pipeline(t1="Before: {agent_1_history_-1} and this was before.\nNow solve: {user_question}\n")
    for _ in range(2):
        record = run(session, request(flow=flow))
    found = record.outcome(1, "kvcomm")
    assert found.state == "reused"
    for span in found.spans:
        if span.action == REUSED:  # copied and not corrected: nothing but the prompt's own beginning may be
            assert span.start == 0
            assert found.key_error is not None
            assert found.key_error[:, span.start : span.end].max() <= TOLERANCE
    assert found.fidelity is not None
    assert found.fidelity.logit_difference <= TOLERANCE


@pytest.mark.parametrize("history", [False, True])
def test_the_oracle_is_dense(session: LabSession, history: bool) -> None:
    """Also where template text follows a placeholder that is still empty."""
    before = "Before: {agent_1_history_-1} and this was before.\n"
    flow = tiny.pipeline(t1=before + "Now solve: {user_question}\n") if history else tiny.pipeline()
    record = run(session, request(["dense", "oracle"], flow=flow))
    for agent in record.agents:
        found = record.outcome(agent, "oracle")
        assert found.state == "reused"
        assert found.fidelity is not None
        assert found.fidelity.logit_difference <= TOLERANCE
        assert found.key_error is not None
        assert found.value_error is not None
        assert max(found.key_error.max(), found.value_error.max()) <= TOLERANCE
        assert (found.actions == CORRECTED).any()


# -- offsets


def test_offsets_are_zero_at_layer_0_once_aligned(session: LabSession) -> None:
    record = run(session, request(["dense"]))
    assert len(record.offsets) == 3
    for probe in record.offsets:
        assert (probe.key_offset[0] <= TOLERANCE * probe.key_norm[0]).all()
        assert (probe.value_offset[0] <= TOLERANCE * probe.value_norm[0]).all()
        first = record.prompts[probe.prompt].spans[0].end
        # Deeper layers have seen the context; unaligned keys differ by their position alone.
        assert (probe.key_offset[1:, first:] > 1e-3 * probe.key_norm[1:, first:]).all()
        assert (probe.value_offset[1:, first:] > 1e-3 * probe.value_norm[1:, first:]).all()
    judge = record.offsets[-1]
    answer = next(s for s in record.prompts[judge.prompt].spans if s.name == "agent_2_current")
    assert (judge.key_unaligned[0, answer.start : answer.end] > 1e-2).all()


def test_the_beginning_of_a_prompt_has_no_offset(walked: Walk) -> None:
    for agent, context in walked.contexts.items():
        span = context.prompt.spans[0]
        real = walked.real(agent).slice(span.start, span.end)
        base = context.prefix_bases[span.name]
        assert error(base.keys, real.keys) <= TOLERANCE
        assert error(base.values, real.values) <= TOLERANCE


def test_a_base_is_encoded_behind_the_begin_token_alone(walked: Walk) -> None:
    tokens = walked.engine.model.tokens
    ids = tokens.encode(QUESTIONS[0])
    cache, _ = walked.engine.prefill((*tokens.bos, *ids))
    alone = cache.segment(1, 1 + len(ids), walked.engine.model.rotation, exact=True, context="")
    base = walked.state.samples["user_question"].base
    assert (base.start, base.tokens) == (1, len(ids))
    assert error(base.keys, alone.keys) <= TOLERANCE
    assert error(base.values, alone.values) <= TOLERANCE


# -- decoding


def batch_of(walked: Walk, decoding: Decoding) -> list[Any]:
    return walked.engine.decode([walked.dense[a] for a in (1, 2, 3)], decoding, keep_logits=True)


@pytest.mark.parametrize("decoding", [Decoding(12), Decoding(12, 1.0, 1.0, 3), Decoding(12, 1.5, 0.7, 11)])
def test_batch_decoding_is_single_decoding(walked: Walk, decoding: Decoding) -> None:
    together = batch_of(walked, decoding)  # prompts of different lengths: rows are padded
    for agent, row in zip((1, 2, 3), together, strict=True):
        [alone] = walked.engine.decode([walked.dense[agent]], decoding, keep_logits=True)
        assert row.ids == alone.ids
        assert row.stopped == alone.stopped
        assert np.allclose(row.margins, alone.margins, atol=1e-4)
        assert error(row.logits, alone.logits) <= TOLERANCE
        assert row.kv.start == alone.kv.start == len(walked.contexts[agent].prompt.ids)
        assert error(row.kv.keys, alone.kv.keys) <= TOLERANCE
        assert error(row.kv.values, alone.kv.values) <= TOLERANCE


def test_rows_that_stop_early_leave_the_batch(walked: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that go on write what they write alone, and those that have stopped are not forwarded."""
    decoding = Decoding(12)
    free = [row.ids for row in batch_of(walked, decoding)]
    # A token that one row writes early, and others late or never.
    stop, steps = min(
        ((t, [row.index(t) if t in row else 12 for row in free]) for row in free for t in row),
        key=lambda found: sorted(found[1])[:2],
    )
    assert sorted(steps)[1] < 10, "two rows stop while another goes on"
    assert max(steps) > sorted(steps)[1] + 1
    engine = walked.engine
    monkeypatch.setattr(engine, "stop_ids", lambda: {stop})
    before = engine.token_layers
    together = batch_of(walked, decoding)
    forwarded = (engine.token_layers - before) // engine.model.info.layers
    assert forwarded == 3 * sorted(steps)[1] + min(12, max(steps)) - sorted(steps)[1]
    for agent, row, own, at in zip((1, 2, 3), together, free, steps, strict=True):
        [alone] = engine.decode([walked.dense[agent]], decoding, keep_logits=True)
        assert row.ids == alone.ids == own[:at]
        assert row.stopped == alone.stopped == (at < 12)
        assert row.logits.shape == alone.logits.shape
        assert error(row.logits, alone.logits) <= TOLERANCE
        assert row.kv.tokens == alone.kv.tokens == at
        if at:  # else there is nothing to compare
            assert row.kv.start == alone.kv.start
            assert error(row.kv.keys, alone.kv.keys) <= TOLERANCE
            assert error(row.kv.values, alone.kv.values) <= TOLERANCE


@given(seed=st.integers(0, 2**31), temperature=st.floats(0.2, 5), top_p=st.floats(0.1, 1))
@settings(max_examples=8)
def test_rows_with_equal_logits_take_equal_tokens(
    walked: Walk, seed: int, temperature: float, top_p: float
) -> None:
    rows = walked.engine.decode([walked.dense[1]] * 3, Decoding(6, temperature, top_p, seed))
    assert rows[0].ids == rows[1].ids == rows[2].ids


def test_another_seed_samples_another_text(walked: Walk) -> None:
    texts = {walked.engine.decode([walked.dense[1]], Decoding(8, 1.0, 1.0, s))[0].ids for s in range(4)}
    assert len(texts) == 4


def test_sampling_within_the_smallest_nucleus_is_greedy(walked: Walk) -> None:
    greedy = walked.engine.decode([walked.dense[2]], Decoding(8))[0]
    assert walked.engine.decode([walked.dense[2]], Decoding(8, 1.0, 1e-9, 5))[0].ids == greedy.ids


@pytest.mark.parametrize("agent", [1, 2, 3])
def test_decoding_leaves_the_kv_of_a_prefill_of_prompt_and_answer(walked: Walk, agent: int) -> None:
    ids, answer = walked.contexts[agent].prompt.ids, walked.answers[agent]
    whole, _ = walked.engine.prefill((*ids, *answer.ids))
    kv = whole.segment(
        len(ids), len(ids) + len(answer.ids), walked.engine.model.rotation, exact=True, context=""
    )
    assert answer.kv.tokens == len(answer.ids)
    assert error(answer.kv.keys, kv.keys) <= TOLERANCE
    assert error(answer.kv.values, kv.values) <= TOLERANCE


def test_teacher_forcing_is_the_plain_forward(walked: Walk) -> None:
    ids, answer = walked.contexts[2].prompt.ids, walked.answers[2].ids
    forced = walked.engine.teacher_force([walked.dense[2]] * 2, answer)
    wanted = plain(walked.engine.model, (*ids, *answer)).logits[0, len(ids) - 1 :]
    assert error(forced[0], wanted) <= TOLERANCE
    assert error(forced[1], wanted) <= TOLERANCE


def test_decoding_stops_at_the_stop_token_and_keeps_the_caches(walked: Walk) -> None:
    """The stop token is no part of the answer; a row that ended early does not disturb the others."""
    lengths = [walked.dense[a].cache.length for a in (1, 2, 3)]
    stops = {a: walked.answers[a].ids[a] for a in (1, 2, 3)}
    engine = Engine(walked.engine.model)
    for agent, stop in stops.items():
        engine.stop_ids = lambda stop=stop: {stop}  # type: ignore[method-assign]
        rows = engine.decode([walked.dense[a] for a in (1, 2, 3)], Decoding(8), keep_logits=True)
        at = walked.answers[agent].ids.index(stop)
        mine = rows[agent - 1]
        assert mine.stopped
        assert mine.ids == walked.answers[agent].ids[:at]
        assert len(mine.margins) == at + 1 == len(mine.logits)
        assert mine.kv.tokens == at
        for other, row in zip((1, 2, 3), rows, strict=True):
            assert row.ids == walked.answers[other].ids[: len(row.ids)]
    assert [walked.dense[a].cache.length for a in (1, 2, 3)] == lengths


# -- a method against itself, and against dense


@pytest.mark.slow
def test_a_method_against_itself(session: LabSession) -> None:
    twins = [
        MethodChoice(name, {}, f"{name} {copy}") for name in ("naive", "kvcomm", "prefix") for copy in "ab"
    ]
    for question in (QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]):
        record = run(session, request(["dense", *twins], question))
    for agent in record.agents:
        near = record.outcome(agent, "dense").fidelity
        assert near is not None
        assert near.first_divergence is None
        assert near.kl_first == 0
        assert near.kl_tokens.max() <= 1e-6
        assert near.floor <= 1e-4
        for name in ("naive", "kvcomm", "prefix"):
            a, b = record.outcome(agent, f"{name} a"), record.outcome(agent, f"{name} b")
            assert a.token_ids.tolist() == b.token_ids.tolist()
            assert (a.state, a.reason, a.spans) == (b.state, b.reason, b.spans)
            assert np.array_equal(a.actions, b.actions)
            assert a.fidelity is not None
            assert b.fidelity is not None
            assert np.allclose(a.fidelity.kl_tokens, b.fidelity.kl_tokens, atol=1e-6)
    pools: dict[str, Any] = {p.method: {} for p in record.pools}
    for pool in record.pools:
        pools[pool.method][pool.placeholder] = (pool.anchors, pool.uses)
    assert pools["kvcomm a"] == pools["kvcomm b"]
    # and a twin does not count its sibling's accesses as its own
    alone = LabSession(session.model)
    for question in (QUESTIONS[0], QUESTIONS[1], QUESTIONS[0]):
        record = run(alone, request(["dense", "kvcomm"], question))
    assert pools["kvcomm a"] == {p.placeholder: (p.anchors, p.uses) for p in record.pools}
    assert any(sum(p.uses) for p in record.pools)


@pytest.mark.slow
def test_methods_side_by_side_do_as_each_alone(tiny_model: LoadedModel) -> None:
    """Free-running rows have prompts of different lengths; the batch must not show in the texts."""
    names = ("dense", "prefix", "naive", "kvcomm")
    together, apart = LabSession(tiny_model), LabSession(tiny_model)
    for question in QUESTIONS[:3]:
        record = run(together, request(names, question, mode="free"))
        for name in names:
            alone = run(apart, request([name], question, mode="free"))
            for agent in record.agents:
                a, b = record.outcome(agent, name), alone.outcome(agent, name)
                assert (a.text, a.state, a.reason) == (b.text, b.state, b.reason)
                assert np.array_equal(a.actions, b.actions)


# -- what a session remembers


def fill(session: LabSession, asked: Any, questions: Any = QUESTIONS) -> RunRecord:
    for question in questions:
        record = run(session, replace(asked, values={"user_question": question}))
    return record


KVCOMM = MethodChoice("kvcomm", {"gamma": 0.9, "capacity": 3})


@pytest.mark.slow
def test_pools_derived_by_replay_equal_pools_built_live(tiny_model: LoadedModel) -> None:
    live, later = LabSession(tiny_model), LabSession(tiny_model)
    record = fill(live, request(["dense", KVCOMM]), QUESTIONS + QUESTIONS[:3])
    fill(later, request(["dense"]), QUESTIONS + QUESTIONS[:3])
    derived = later.pools(request(["dense", KVCOMM]))
    assert record.pools == derived
    assert any(sum(p.uses) for p in derived)
    # and the next request decides alike
    a, b = (run(s, request(["dense", KVCOMM], QUESTIONS[4])) for s in (live, later))
    for agent in a.agents:
        x, y = a.outcome(agent, "kvcomm"), b.outcome(agent, "kvcomm")
        assert (x.state, x.reason, x.gate, x.text) == (y.state, y.reason, y.gate, y.text)


def test_warming_up_in_a_batch_fills_the_pools_as_runs_do(tiny_model: LoadedModel) -> None:
    live, warmed = LabSession(tiny_model), LabSession(tiny_model)
    asked = request(["dense", KVCOMM])
    fill(live, asked)
    for _ in warmed.warm_up(asked, [Example({"user_question": q}) for q in QUESTIONS]):
        pass
    for a, b in zip(live.pools(asked), warmed.pools(asked), strict=True):
        # Observations are numbered in another order, so anchors are compared by what they hold.
        assert (a.placeholder, a.lengths, a.uses, a.previews) == (
            b.placeholder,
            b.lengths,
            b.uses,
            b.previews,
        )


def test_free_running_keeps_logs_apart(session: LabSession) -> None:
    fill(session, request(["dense", "naive", KVCOMM], mode="free"), QUESTIONS[:2])
    logs = [stream.log for stream in session.streams.values()]
    assert len(logs) == 3
    assert len({id(o) for log in logs for o in log.samples.values()}) == sum(len(x.samples) for x in logs)
    # Dense, which runs first and shares nothing, must not depend on who runs beside it.
    alone = LabSession(session.model)
    fill(alone, request(["dense"], mode="free"), QUESTIONS[:2])
    [log] = [stream.log for stream in alone.streams.values()]
    assert [o.ids for o in log.samples.values()] == [o.ids for o in logs[0].samples.values()]


def state(session: LabSession, asked: Any) -> Any:
    """What a person can see of a session's memory."""
    return (
        session.pools(asked),
        [sorted(stream.log.samples) for stream in session.streams.values()],
        [len(stream.history) for stream in session.streams.values()],
    )


@pytest.mark.parametrize("mode", ["pinned", "free"])
@pytest.mark.slow
def test_a_cancelled_run_leaves_the_pools_as_they_were(tiny_model: LoadedModel, mode: Mode) -> None:
    asked = request(["dense", "naive", KVCOMM], mode=mode)
    session = LabSession(tiny_model)
    fill(session, asked, QUESTIONS[:3])
    before = state(session, asked)
    events = list(LabSession(tiny_model).run(asked))
    for at in range(0, len(events) - 1, 7):
        cancel = threading.Event()
        stream = session.run(replace(asked, values={"user_question": QUESTIONS[4]}), cancel=cancel)
        for _ in range(at):
            next(stream)
        cancel.set()
        after: list[Any] = []
        with pytest.raises(RunCancelled):
            after.extend(stream)
        assert len(after) <= 3, "the run went on"  # the token at hand may still be shown for each method
        assert state(session, asked) == before
    # A caller that walks away is a cancellation too.
    stream = session.run(asked)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert state(session, asked) == before


def test_an_edited_template_starts_new_pools(session: LabSession) -> None:
    fill(session, request(), QUESTIONS[:2])
    edited = tiny.pipeline(t1="Solve it.\nThe task is: {user_question}\n")
    record = run(session, request(question=QUESTIONS[0], flow=edited))
    assert all(record.outcome(a, "kvcomm").state == "fallback" for a in record.agents)
    assert all(max(p.uses) == 0 and len(p.anchors) == 1 for p in record.pools)
    back = run(session, request(question=QUESTIONS[0]))  # the old template's pools are still there
    assert back.outcome(1, "kvcomm").state == "reused"


def test_two_sessions_share_nothing(tiny_model: LoadedModel) -> None:
    one, two = LabSession(tiny_model), LabSession(tiny_model)
    fill(one, request(), QUESTIONS[:1])
    assert run(one, request()).outcome(1, "kvcomm").state == "reused"
    assert run(two, request()).outcome(1, "kvcomm").state == "fallback"
    assert one.id != two.id
    mine = {id(o) for s in one.streams.values() for o in s.log.samples.values()}
    theirs = {id(o) for s in two.streams.values() for o in s.log.samples.values()}
    assert mine
    assert theirs
    assert not mine & theirs
    one.forget()
    assert one.bytes == 0
    assert two.bytes > 0


@pytest.mark.slow
def test_memory_stays_within_the_budget(tiny_model: LoadedModel) -> None:
    """Old requests, then anchors, give way within a stream; streams of templates no longer used go first."""
    one = LabSession(tiny_model)
    run(one, request(["dense", KVCOMM]))
    session = LabSession(tiny_model, budget_bytes=3 * one.bytes)
    record = fill(session, request(["dense", KVCOMM]), QUESTIONS + QUESTIONS[:3])
    assert session.bytes <= session.budget_bytes
    assert all(p.anchors for p in record.pools)
    for number in range(4):
        edited = tiny.pipeline(t1=f"Solve this, try {number}.\nThe task is: {{user_question}}\n")
        run(session, request(["dense", KVCOMM], flow=edited))
        assert session.bytes <= session.budget_bytes
    # What was dropped is learnt anew.
    record = run(session, request(["dense", KVCOMM]))
    assert record.outcome(1, "kvcomm").state == "fallback"
    assert run(session, request(["dense", KVCOMM])).outcome(1, "kvcomm").state == "reused"


@pytest.mark.slow
def test_cancelling_under_a_tight_budget_leaves_the_pools(tiny_model: LoadedModel) -> None:
    one = LabSession(tiny_model)
    asked = request(["dense", KVCOMM])
    run(one, asked)
    session = LabSession(tiny_model, budget_bytes=3 * one.bytes)
    fill(session, asked, QUESTIONS + QUESTIONS[:3])  # anchors now outlive the requests they came from
    before = session.pools(asked)
    stream = session.run(asked)
    for _ in range(12):
        next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert session.pools(asked) == before


# -- what is refused before the model works


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_new_tokens", (0, -1, 4097, 2.5, "8", None, True)),
        ("temperature", (-0.1, 5.1, float("nan"), "warm", None)),
        ("top_p", (0, 1.1, float("inf"))),
        ("seed", (-1, 2**63, 1.5)),
    ],
)
def test_decoding_settings_are_checked(session: LabSession, name: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(OptionError, match=name) as refused:
            run(session, request(decoding=Decoding(**{name: value})))
        assert refused.value.field == f"decoding.{name}"
    assert session.engine.forwarded_tokens == 0


def test_prompts_beyond_the_context_are_refused(session: LabSession) -> None:
    """Before the run if the question is too long, at the agent if the answers before it are."""
    with pytest.raises(BudgetError, match="can read") as refused:
        run(session, request(question="word " * 1000))
    assert refused.value.field == "agents.1.template"
    assert session.engine.forwarded_tokens == 0
    templates = {f"t{n}": "0" * 760 + f"{{user_question}} for {n}" for n in (1, 2)}  # a token per digit
    templates["t2"] += " {agent_1_current}"
    long = tiny.pipeline(120, **templates)
    with pytest.raises(BudgetError, match="Agent 2's prompt"):
        run(session, request(flow=long, question="0" * 40, decoding=Decoding(max_new_tokens=120)))
    [stream] = session.streams.values()
    assert not stream.history
    assert not stream.log.samples
    assert not session.pools(request(flow=long, decoding=Decoding(max_new_tokens=120)))


def test_an_empty_prompt_is_refused_in_words(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes a tokenizer without a begin token, and an agent before it that says nothing."""
    import copy

    tokenizer = copy.deepcopy(tiny.tokenizer())
    tokenizer.bos_token = tokenizer.chat_template = None
    session = LabSession(wrap_model(tiny_model.module, tokenizer, name="bare"))
    silent = tiny.pipeline(t2="{agent_1_current}")
    stop = run(session, request(["dense"], flow=silent)).outcome(1, "dense").token_ids[0]
    monkeypatch.setattr(Engine, "stop_ids", lambda self: {int(stop)})
    with pytest.raises(PromptError, match="Agent 2's prompt is empty") as refused:
        run(session, request(["dense"], flow=silent))
    assert refused.value.field == "agents.2.template"


# -- the engine's own arithmetic


@given(
    layers=st.integers(1, 4),
    tokens=st.integers(1, 9),
    terms=st.integers(0, 4),
    per_token=st.booleans(),
    chunk_bytes=st.sampled_from([1, 200, 1 << 20]),
    seed=st.integers(0, 1000),
)
def test_mixing_is_a_weighted_sum(
    layers: int, tokens: int, terms: int, per_token: bool, chunk_bytes: int, seed: int
) -> None:
    """However many layers are taken at a time."""
    generator = torch.Generator().manual_seed(seed)
    shape = (layers, 2, tokens, 4)
    out = torch.randn(shape, generator=generator)
    offsets = [torch.randn(shape, generator=generator) for _ in range(terms)]
    weights = [torch.rand((tokens,) if per_token else (), generator=generator) for _ in range(terms)]
    wanted = out + sum(w.reshape(-1, 1) * o for w, o in zip(weights, offsets, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("backend.engine.placement.MIX_CHUNK_BYTES", chunk_bytes)
        mix(out, offsets, weights)
    assert error(out, wanted) <= TOLERANCE


def test_a_step_may_follow_any_other(walked: Walk) -> None:
    """Copied, corrected and computed spans in one prompt: each place is right if its context is."""
    context, real = walked.contexts[3], walked.real(3)
    total = len(context.prompt.ids)
    cuts = [0, 5, 6, 20, 33, total - 1, total]
    steps = []
    for index, (a, b) in enumerate(pairwise(cuts)):
        action = Compute("") if index % 2 else Reuse(real.slice(a, b), exact=True)
        steps.append(Step(a, b, action))
    found = walked.execute(3, Plan(tuple(steps), "partial", ""))
    assert_same(found, walked.dense[3], total)
    wanted = np.full(total, REUSED)
    for index, (a, b) in enumerate(pairwise(cuts)):
        if index % 2:
            wanted[a:b] = COMPUTED
    assert (found.actions == wanted).all()
    assert found.forwarded_tokens == (wanted == COMPUTED).sum()


def test_the_last_token_is_always_forwarded(walked: Walk) -> None:
    context, real = walked.contexts[1], walked.real(1)
    total = len(context.prompt.ids)
    for cuts in ((0, total), (0, total - 1, total), (0, 3, total)):
        steps = [Step(a, b, Reuse(real.slice(a, b))) for a, b in pairwise(cuts)]
        found = walked.execute(1, Plan(tuple(steps), "reused", ""))
        assert found.forwarded_tokens == 1
        assert (found.actions[:, -1] == COMPUTED).all()
        assert_same(found, walked.dense[1], total)


def test_the_anchors_weights_are_per_token(walked: Walk) -> None:
    """Offsets split over several anchors by token weights that sum to one correct as fully as one."""
    context = walked.contexts[3]
    total = len(context.prompt.ids)
    plan = walked.true_offset_plan(3)
    steps = []
    for step in plan.steps:
        assert isinstance(step.action, Reuse)
        [term] = step.action.terms
        weights = torch.rand(3, step.end - step.start).softmax(dim=0)
        terms = tuple(Term(w, term.offset, 0) for w in weights)
        steps.append(replace(step, action=replace(step.action, terms=terms)))
    assert_same(walked.execute(3, replace(plan, steps=tuple(steps))), walked.dense[3], total)


def test_a_cache_keeps_its_content_when_it_grows(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model)
    ids = list(range(10, 40))
    cache = tiny_model.new_cache(4)
    engine.forward(engine.ids(ids[:4]), cache)
    logits = engine.forward(engine.ids(ids[4:]), cache)[0, -1]
    whole, wanted = engine.prefill(ids)
    assert isinstance(cache, KVCache)
    assert cache.length == cache.capacity == 30
    assert error(logits, wanted) <= TOLERANCE
    assert caches(cache, whole, 30) <= TOLERANCE


def test_weights_may_differ_by_channel_and_between_keys_and_values(walked: Walk) -> None:
    """Terms of any weights are a weighted sum, written out here for one span."""
    context, real = walked.contexts[2], walked.real(2)
    span = next(s for s in context.prompt.spans if s.start > 0 and s.end - s.start > 2)
    base, total = real.slice(span.start, span.end), len(context.prompt.ids)
    shape = (*base.keys.shape[:2], 1, base.keys.shape[3])
    offsets = [KVOffset(torch.randn_like(base.keys), torch.randn_like(base.values)) for _ in range(2)]
    key_weights, value_weights = torch.rand(2, *shape), torch.rand(2, *shape)
    terms = tuple(Term(key_weights[i], offsets[i], 0, value_weights[i], shift=7 * i) for i in range(2))
    steps = (
        Step(0, span.start, Compute("")),
        Step(span.start, span.end, Reuse(base, terms, first_layer=1)),
        Step(span.end, total, Compute("")),
    )
    found = walked.execute(2, Plan(steps, "partial", ""))
    rotation = walked.engine.model.rotation
    places = torch.arange(span.start, span.end)
    keys = rotation.rotate(base.keys, places)
    values = base.values.clone()
    for i in range(2):
        # the offset stands where its anchor stood, 7 * i places on, when its channels are weighed
        shifted = rotation.rotate(offsets[i].keys, torch.full_like(places, 7 * i))
        turned = rotation.rotate(key_weights[i] * shifted, places)
        keys[1:] += turned[1:]
        values[1:] += (value_weights[i] * offsets[i].values)[1:]
    at = slice(span.start, span.end)
    assert error(found.cache.keys[:, 0, :, at], keys) <= TOLERANCE
    assert error(found.cache.values[:, 0, :, at], values) <= TOLERANCE


def test_layer_zero_needs_no_offset(walked: Walk) -> None:
    """Its keys and values depend on the token alone, so leaving it out (as shipped) changes nothing."""
    for context in walked.contexts.values():
        for sample in context.samples.values():
            for seen in sample.offsets.values():
                for offset in (seen.placeholder, *seen.followers.values()):
                    assert float(offset.keys[0].abs().max()) <= TOLERANCE
                    assert float(offset.values[0].abs().max()) <= TOLERANCE
                    if offset.tokens > 1:
                        assert float(offset.values[1:].abs().max()) > 100 * TOLERANCE
