"""Segment reuse on the contract: exact truths, what is grafted, and what the probe does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Prefilled
from backend.methods.dense import dense_plan
from backend.methods.plan import Compute, Reuse
from backend.methods.segments.method import SegmentsMethod
from backend.methods.segments.options import FORMS, SegmentsOptions
from backend.methods.segments.store import Owner
from backend.model.load import LoadedModel
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.request import MethodChoice, RunRequest
from backend.records.run import COMPUTED, REUSED
from backend.session.request_state import RequestState
from backend.session.session import LabSession

NOTE = (
    "Thought 1: the price of pens is not known, so it has to be looked up before anything else is done.\n"
    "Observation 1: pens cost 12, shells cost 3, and marbles cost 8 at this shop.\n"
)
SMALL = {
    "minimum_tokens": 8,
    "window_tokens": 16,
    "halo": 2,
    "shingle": 3,
    "context_tokens": 8,
    "context_tau": 0.0,
}
EVERYWHERE = Pipeline("one", "One", "For tests.", (Agent(1, "Reader", "", "{user_question}", 4),))


def context(model: LoadedModel, text: str, log: SampleLog) -> PromptInContext:
    flow = RequestState(EVERYWHERE, Engine(model), log)
    flow.start({"user_question": text})
    return flow.context(1)


class Bench:
    """A method over one log; texts are read densely, or under it."""

    def __init__(self, model: LoadedModel, **options: Any) -> None:
        self.model, self.engine = model, Engine(model)
        self.log = SampleLog("test", 1 << 30)
        self.method = SegmentsMethod(SegmentsOptions(**(SMALL | options)))

    def dense(self, text: str) -> Prefill:
        seen = context(self.model, text, self.log)
        return self.engine.execute(seen.prompt, dense_plan(seen.prompt, "test"), Clock())

    def read(self, text: str, learn: bool = True) -> Prefill:
        seen = context(self.model, text, self.log)
        plan = self.method.plan(seen, self.log, Clock())
        out = self.engine.execute(seen.prompt, plan, Clock(), method=self.method, context=seen)
        if learn:
            done = Prefilled(seen, out.cache, out.plan.plain, out.plan, out.hidden)
            self.method.on_event(done, self.log)
        return out

    @property
    def stored(self) -> int:
        return len(self.method.store.segments(Owner("test")))


def grafted(out: Prefill) -> int:
    return sum(s.end - s.start for s in out.plan.steps if isinstance(s.action, Reuse))


def off(found: Prefill, wanted: Prefill) -> float:
    total = found.actions.shape[1]
    return max(tiny.error(found.logits, wanted.logits), tiny.caches(found.cache, wanted.cache, total))


# -- exact truths


@pytest.mark.parametrize(
    "options",
    [
        {"halo": 512},
        {"form": FORMS[1], "layer_share": 0.0},
        {"form": FORMS[2], "layer_share": 0.0},
        {"tau": 1.0, "context_tau": 1.0, "context_tokens": 512, "probe": "off"},
        {"minimum_tokens": 500, "maximum_tokens": 1},
    ],
    ids=[
        "a full halo",
        "no layer, states kept",
        "no layer, states skipped",
        "only alike contexts",
        "no segment",
    ],
)
def test_settings_that_reuse_nothing_are_dense(tiny_model: LoadedModel, options: dict[str, Any]) -> None:
    """Behind another beginning, where grafts would otherwise be approximate."""
    bench = Bench(tiny_model, **options)
    bench.read("Some words first. " + NOTE)
    out = bench.read("Quite another beginning stands here, longer than before. " + NOTE)
    assert grafted(out) == 0
    assert (out.actions == COMPUTED).all()
    assert (
        off(out, bench.dense("Quite another beginning stands here, longer than before. " + NOTE))
        <= tiny.TOLERANCE
    )


@pytest.mark.parametrize("form", FORMS[:2])
def test_an_exact_beginning_is_dense(tiny_model: LoadedModel, form: str) -> None:
    bench = Bench(tiny_model, form=form, probe="off")
    bench.read(NOTE)
    asked = NOTE + "Thought 2: something else altogether."
    out = bench.read(asked)
    assert out.exact
    assert grafted(out) > 30
    assert out.plan.steps[0].start == 0
    assert isinstance(out.plan.steps[0].action, Reuse)
    assert out.plan.steps[0].action.provenance == "exact local"
    assert off(out, bench.dense(asked)) <= tiny.TOLERANCE


def test_in_eight_bits_an_exact_beginning_is_nearly_dense(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, int8=True, probe="off", halo=0)
    bench.read(NOTE)
    out = bench.read(NOTE + "Thought 2: something else.")
    wanted = bench.dense(NOTE + "Thought 2: something else.")
    assert grafted(out) > 30
    assert not out.exact
    assert tiny.TOLERANCE < off(out, wanted) < 0.05


def test_no_probe_needs_no_dense_pass_and_only_the_map_is_forwarded(tiny_model: LoadedModel) -> None:
    for form in FORMS:
        bench = Bench(tiny_model, probe="off", form=form)
        bench.read("Some words first. " + NOTE)
        before = bench.engine.token_layers
        out = bench.read("Quite another beginning. " + NOTE)
        assert grafted(out) > 20
        assert bench.engine.token_layers - before == out.token_layers == (out.actions == COMPUTED).sum()
        where = np.zeros(out.actions.shape[1], dtype=bool)
        for step in out.plan.steps:
            where[step.start : step.end] = isinstance(step.action, Reuse)
        layers = 3 if form == FORMS[0] else out.plan.cut
        assert (out.actions[:layers, where] == REUSED).all()
        assert (out.actions[layers:] == COMPUTED).all()


# -- what is grafted


def test_only_equal_tokens_are_grafted_and_edges_are_fresh(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, probe="off", halo=3)
    bench.read("Some words first. " + NOTE)
    edited = "Another beginning. " + NOTE.replace("cost 12", "cost 99")
    seen = context(tiny_model, edited, bench.log)
    plan = bench.method.plan(seen, bench.log, Clock())
    assert [s.start for s in plan.steps] == [0, *(s.end for s in plan.steps[:-1])]
    own = {s.number: s for s in bench.method.store.segments(Owner("test"))}
    grafts = {g.start: g for run in bench.method._runs for g in run.grafts}
    for before, step, after in zip(plan.steps, plan.steps[1:], plan.steps[2:], strict=False):
        if isinstance(step.action, Reuse):
            graft = grafts[step.start]
            assert (
                own[graft.stored.number].ids[graft.at :][: graft.tokens]
                == seen.prompt.ids[step.start : step.end]
            )
            assert step.action.provenance == "semantic"
            if isinstance(before.action, Compute):
                assert before.action.reason == "the edge of a graft"
                assert before.end - before.start >= 3
            if isinstance(after.action, Compute):
                assert after.action.reason == "the edge of a graft"
    for run in bench.method._runs:
        assert run.grafts[0].start == run.start + 3
        assert run.grafts[-1].end == run.end - 3


def test_grafts_are_moved_and_the_halo_helps(tiny_model: LoadedModel) -> None:
    """A graft's keys are those of dense but for what the other beginning does; layer 0's are exact at any
    place."""
    errors = []
    for halo in (0, 2, 6):
        bench = Bench(tiny_model, probe="off", halo=halo)
        bench.read("Some words first. " + NOTE)
        asked = "Quite another beginning stands here, longer than before. " + NOTE
        out, wanted = bench.read(asked), bench.dense(asked)
        total = out.actions.shape[1]
        assert (
            tiny.error(out.cache.keys[0, 0, :, :total], wanted.cache.keys[0, 0, :, :total]) <= tiny.TOLERANCE
        )
        errors.append(float((out.cache.values - wanted.cache.values)[:, 0, :, :total].square().mean()))
    assert errors[0] > errors[1] > errors[2] > 0


def test_what_failed_verification_says_so(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, probe="off", context_tau=1.0)
    bench.read("Some words first. " + NOTE)
    out = bench.read("Quite another beginning stands here, unlike the first. " + NOTE[20:])
    assert "rejected" in {s.action.provenance for s in out.plan.steps}


def test_nothing_grafted_is_stored_again(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, probe="off")
    bench.read("Some words first. " + NOTE)
    first = {s.number for s in bench.method.store.segments(Owner("test"))}
    asked = "Another beginning here. " + NOTE + "Thought 2: quite another text follows, at some length.\n"
    out = bench.read(asked)
    spans = [(s.start, s.end) for s in out.plan.steps if isinstance(s.action, Reuse)]
    new = [s for s in bench.method.store.segments(Owner("test")) if s.number not in first]
    assert spans
    assert new
    clean, kinds = min(start for start, _ in spans), set()
    for segment in new:
        end = segment.start + len(segment.ids)
        assert all(end <= a or segment.start >= b for a, b in spans)
        assert segment.exact == (end <= clean)
        kinds.add(segment.exact)
        real = bench.dense(asked).cache.segment(
            segment.start, end, tiny_model.rotation, exact=True, context=""
        )
        if segment.exact:
            assert tiny.error(segment.kv(0, len(segment.ids)).keys, real.keys) <= tiny.TOLERANCE
    assert kinds == {True, False}


def test_other_domains_and_weights_see_nothing(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, probe="off")
    bench.read(NOTE)
    for log, weights in ((SampleLog("other", 1 << 30), ""), (bench.log, "tuned")):
        seen = replace(context(tiny_model, NOTE, log), weights=weights)
        plan = bench.method.plan(seen, log, Clock())
        assert all(isinstance(s.action, Compute) for s in plan.steps)
    seen = context(tiny_model, NOTE, bench.log)
    assert any(isinstance(s.action, Reuse) for s in bench.method.plan(seen, bench.log, Clock()).steps)


def test_a_fork_leaves_no_trace(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model)
    bench.read(NOTE)
    held, original = bench.stored, bench.method
    bench.method = original.fork()
    bench.read("Another text, wholly unlike the one that stands above, with words of its own.")
    assert bench.stored > held
    bench.method = original
    assert bench.stored == held


# -- the probe


def test_the_probe_measures_dense_against_grafted(tiny_model: LoadedModel) -> None:
    asked = "Quite another beginning stands here, longer than before. " + NOTE
    for threshold, state in ((0.0, "fallback"), (100.0, "partial")):
        bench = Bench(tiny_model, probe="always", threshold=threshold)
        bench.read("Some words first. " + NOTE)
        held = bench.stored
        out = bench.read(asked, learn=False)
        assert out.plan.state == state
        wanted = bench.dense(asked)
        if state == "fallback":
            assert off(out, wanted) <= tiny.TOLERANCE
            assert "nats" in out.plan.reason
            assert bench.stored < held, "segments that do not fit are dropped"
            assert out.token_layers >= 3 * out.actions.shape[1]
        else:
            assert off(out, wanted) > tiny.TOLERANCE
            assert bench.stored == held


def test_on_first_use_a_segment_is_probed_once(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, probe="first use", threshold=100.0)
    bench.read("Some words first. " + NOTE)
    asked = "Quite another beginning stands here, longer than before. " + NOTE
    first, second = bench.read(asked, learn=False), bench.read(asked, learn=False)
    assert first.token_layers > 3 * first.actions.shape[1] > second.token_layers
    assert second.token_layers == (second.actions == COMPUTED).sum()
    assert tiny.error(first.logits, second.logits) <= tiny.TOLERANCE


def test_numbers_that_are_not_finite_fall_back(tiny_model: LoadedModel) -> None:
    bench = Bench(tiny_model, probe="off")
    bench.read(NOTE)
    for segment in bench.method.store.segments(Owner("test")):
        assert isinstance(segment.values, torch.Tensor)
        segment.values.fill_(float("nan"))
    out = bench.read(NOTE + " And more.", learn=False)
    assert out.plan.state == "fallback"
    assert "not finite" in out.plan.reason
    assert off(out, bench.dense(NOTE + " And more.")) <= tiny.TOLERANCE
    assert torch.isfinite(bench.read(NOTE + " And more.").logits).all()


# -- in a session


@pytest.mark.parametrize("mode", ["pinned", "free"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.slow
def test_a_session_learns_and_grafts(tiny_model: LoadedModel, form: str, mode: Any) -> None:
    session = LabSession(tiny_model)
    choice = MethodChoice("segments", SMALL | {"probe": "off", "form": form}, "segments")
    first, second = (tiny.run(session, tiny.request(["dense", choice], mode=mode)) for _ in range(2))
    assert first.outcome(1, "segments").state == "dense"
    out = second.outcome(3, "segments")
    assert out.state == "partial"
    words = {span.provenance for span in out.spans}
    assert words & {"exact local", "exact external", "semantic"}
    assert out.timing.token_layers == int((out.actions == COMPUTED).sum())
    assert session.engine.model.info.layers == len(out.actions)
    if form != FORMS[2] and mode == "pinned":
        assert out.key_error is not None
        for span in out.spans:
            if span.provenance.startswith("exact"):
                assert out.key_error[:, span.start : span.end].max() <= tiny.TOLERANCE


def test_segments_are_counted_and_leave_when_the_budget_is_full(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    options = SMALL | {"probe": "off"}
    request = RunRequest(EVERYWHERE, {"user_question": NOTE}, (MethodChoice("segments", options),))
    list(session.run(request))
    [stream] = session.streams.values()
    held = max(slot.method.held_bytes for slot in stream.instances.values())
    assert session.bytes == stream.log.bytes + held > stream.log.bytes
    stream.log.budget_bytes = stream.log.bytes + held // 2
    stream.shrink()
    assert 0 < stream.bytes - stream.log.bytes <= held // 2
    assert stream.history, "segments went, and no request did"
    session._free(last=False)
    assert stream.bytes == stream.log.bytes
