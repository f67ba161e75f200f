"""The method contract, over the whole registry: a new method is tested here by being registered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import QUESTIONS, request, run, walk

from backend.base.clock import Clock
from backend.base.errors import NotRelocatableError, OptionError
from backend.engine.engine import Engine
from backend.methods.base import Arrived, Method, Prefilled
from backend.methods.plan import Reuse
from backend.methods.registry import METHODS, make_options, method_class, method_names, option_fields
from backend.model.load import LoadedModel
from backend.records.request import Decoding, MethodChoice
from backend.records.run import ACTIONS, COMPUTED, CORRECTED, PROVENANCE, RECOMPUTED, REUSED, RunRecord
from backend.session.limits import LOCAL_LIMITS
from backend.session.outcomes import PARTS
from backend.session.session import LabSession
from backend.session.streams import AnsweredRequest

OPTIONS = [(cls, f) for cls in METHODS for f in option_fields(cls)]
EACH_METHOD = pytest.mark.parametrize("cls", METHODS, ids=lambda c: c.name)
EACH_OPTION = pytest.mark.parametrize(
    ("cls", "field"), OPTIONS, ids=[f"{c.name}.{f.name}" for c, f in OPTIONS]
)


def others(field: Any) -> list[Any]:
    """Valid values of an option besides its default."""
    if field.kind == "bool":
        return [not field.default]
    if field.kind == "choice":
        return [c for c in field.choices if c != field.default]
    return [field.minimum, field.maximum]


# Every method with its defaults, and with each option at each of its ends or choices.
VARIANTS: list[tuple[str, dict[str, Any]]] = [(cls.name, {}) for cls in METHODS]
VARIANTS += [(cls.name, {field.name: value}) for cls, field in OPTIONS for value in others(field)]
EACH_VARIANT = pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param(name, options, id=f"{name} {options}", marks=pytest.mark.sampled(4))
        if options
        else pytest.param(name, options, id=name)
        for name, options in VARIANTS
    ],
)


@pytest.fixture(scope="module", autouse=True)
def all_side_by_side() -> Iterator[None]:
    """A page runs a dozen methods at most; here all run in one request."""
    with pytest.MonkeyPatch.context() as patch:
        roomy = replace(LOCAL_LIMITS, methods=len(METHODS))
        patch.setitem(LabSession.__init__.__kwdefaults__, "limits", roomy)  # type: ignore[arg-type]
        yield


# -- what a method says of itself


def test_names_are_unique_and_dense_comes_first() -> None:
    assert len(set(method_names())) == len(METHODS)
    assert method_names()[0] == "dense"


@EACH_METHOD
def test_a_method_describes_itself(cls: type[Method]) -> None:
    assert cls.name.isidentifier()
    assert cls.name == cls.name.lower()
    assert cls.title
    assert cls.summary.endswith(".")
    assert (cls.__doc__ or "").strip()
    assert method_class(cls.name) is cls


@EACH_OPTION
def test_an_option_describes_itself(cls: type[Method], field: Any) -> None:
    assert field.label
    assert field.help.endswith(".")
    assert field.kind in ("bool", "int", "float", "choice")
    if field.kind in ("int", "float"):
        assert field.minimum is not None
        assert field.maximum is not None
        assert field.minimum <= field.default <= field.maximum
    if field.kind == "choice":
        assert field.default in field.choices
        assert len(set(field.choices)) == len(field.choices) > 1
    assert all(f.default is not MISSING for f in fields(cls.Options))


@EACH_METHOD
def test_supports_says_yes_or_why_not(cls: type[Method], tiny_model: LoadedModel) -> None:
    assert cls.supports(tiny_model.info) is None
    certificate = replace(tiny_model.info.certificate, relocatable=False, reason="Its keys do not move.")
    refused = cls.supports(replace(tiny_model.info, certificate=certificate))
    assert refused is None or "do not move" in refused
    if cls.name in ("naive", "kvcomm"):
        assert refused is not None


# -- options are checked


@EACH_METHOD
def test_defaults_are_valid(cls: type[Method]) -> None:
    options = make_options(cls.name, {})
    assert options == cls.Options()
    if fields(options):
        with pytest.raises(FrozenInstanceError):
            setattr(options, fields(options)[0].name, None)


@EACH_OPTION
def test_every_end_and_choice_is_valid(cls: type[Method], field: Any) -> None:
    for value in others(field):
        assert getattr(make_options(cls.name, {field.name: value}), field.name) == value


def bad_values(field: Any) -> list[Any]:
    wrong: list[Any] = [None, [], "no such value", {}]
    if field.kind in ("int", "float"):
        wrong += [field.minimum - 1, field.maximum + 1, float("nan"), float("inf"), -float("inf"), "3", True]
    if field.kind == "int":
        wrong.append(field.minimum + 0.5)
    if field.kind == "bool":
        wrong += [1, 0, "true"]
    if field.kind == "choice":
        wrong += [1, True, field.choices[0].upper()]
    return wrong


@EACH_OPTION
def test_bad_values_are_refused_by_name(cls: type[Method], field: Any) -> None:
    for value in bad_values(field):
        with pytest.raises(OptionError) as refused:
            make_options(cls.name, {field.name: value})
        assert refused.value.field == f"{cls.name}.{field.name}", value
        assert field.label in str(refused.value)
        assert "\n" not in str(refused.value)


@EACH_OPTION
def test_whole_numbers_may_come_in_either_type(cls: type[Method], field: Any) -> None:
    """Widgets and JSON do not tell 20 from 20.0."""
    if field.kind == "float":
        assert type(getattr(make_options(cls.name, {field.name: int(field.maximum)}), field.name)) is float
    if field.kind == "int":
        assert type(getattr(make_options(cls.name, {field.name: float(field.default)}), field.name)) is int


@EACH_METHOD
def test_unknown_options_are_refused(cls: type[Method]) -> None:
    with pytest.raises(OptionError, match="no option 'nonsense'") as refused:
        make_options(cls.name, {"nonsense": 1})
    assert refused.value.field == f"{cls.name}.nonsense"


def test_unknown_methods_are_refused() -> None:
    with pytest.raises(OptionError, match="there are: dense, ") as refused:
        method_class("nonsense")
    assert refused.value.field == "methods"


# -- plans


@pytest.fixture(scope="module")
def walked(tiny_model: LoadedModel) -> list[tiny.Walk]:
    """Three requests, of which the last repeats the first, over one log."""
    first = walk(tiny_model, tiny.pipeline())
    more = [walk(tiny_model, tiny.pipeline(), q, first.log) for q in (QUESTIONS[1], QUESTIONS[0])]
    return [first, *more]


# Of KVCOMM's kinds, which replay without planning; every other method plans.
REPLAYED = [(name, options) for name, options in VARIANTS if method_class(name).replay is not Method.replay]
REPLAYED += [
    (cls.name, dict(p.options)) for cls in METHODS for key, p in cls.profiles.items() if key == "shipped"
]


@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(*one, id=f"{one[0]} {one[1]}", marks=pytest.mark.sampled(8)) for one in REPLAYED],
)
def test_a_replay_leaves_a_method_as_planning_does(
    walked: list[tiny.Walk], name: str, options: dict[str, Any]
) -> None:
    *before, last = [AnsweredRequest([*one.contexts.values()], {}) for one in walked]
    planned, replayed = (method_class(name)(make_options(name, options)) for _ in range(2))
    if planned.options.wants_lead_in:
        walked[0].state.encode_lead_ins()
    log = walked[0].log
    for past in before:
        for _ in past.plans(planned, log):
            pass
        past.replay(replayed, log)
    assert replayed.pools(log) == planned.pools(log)
    plans, same = ([plan for _, plan in last.plans(method, log)] for method in (planned, replayed))
    assert [(p.state, p.reason, p.gate) for p in plans] == [(p.state, p.reason, p.gate) for p in same]
    assert replayed.pools(log) == planned.pools(log)


@EACH_VARIANT
@pytest.mark.slow
def test_plans_partition_the_prompt_and_nothing_else_is_forwarded(
    walked: list[tiny.Walk], name: str, options: dict[str, Any]
) -> None:
    method = method_class(name)(make_options(name, options))
    if method.options.wants_lead_in:
        walked[0].state.encode_lead_ins()
    arrived: set[int] = set()
    for one in walked:
        for agent, context in one.contexts.items():
            for sample in context.samples.values():
                if sample.number not in arrived:
                    arrived.add(sample.number)
                    method.on_event(Arrived(sample), one.log)
            plan = method.plan(context, one.log, Clock())
            total = len(context.prompt.ids)
            assert [s.start for s in plan.steps] == [0, *(s.end for s in plan.steps[:-1])]
            assert plan.steps[-1].end == total
            assert all(s.end > s.start for s in plan.steps)
            assert plan.reason.endswith(".")
            for step in plan.steps:
                assert step.action.reason
                if isinstance(step.action, Reuse):
                    assert step.action.base.tokens >= step.end - step.start
                    for term in step.action.terms:
                        assert term.anchor in one.log.samples
                        assert term.weight.ndim in (0, 1, 4)
                        assert term.offset.tokens >= step.end - step.start
            layers, soft = one.engine.model.info.layers, sum(link.tokens for link in plan.links)
            prefill = one.execute(agent, plan)
            check_actions(prefill.actions, plan.state, total, layers)
            assert prefill.token_layers == (prefill.actions == COMPUTED).sum() + layers * soft
            before = one.engine.token_layers
            hooked = one.engine.execute(context.prompt, plan, Clock(), method=method, context=context)
            check_actions(hooked.actions, hooked.plan.state, total, layers)
            assert hooked.token_layers == one.engine.token_layers - before
            for found in (prefill, hooked):
                assert found.cache.length == total + (soft if found.plan is plan else 0)
                assert torch.isfinite(found.logits).all()
                if found.exact:
                    tiny.assert_same(found, one.dense[agent], total)
            method.on_event(Prefilled(context, hooked.cache, hooked.plan.plain, hooked.plan), one.log)
    assert method.needed() <= set(walked[0].log.samples)
    for pool in method.pools(walked[0].log):
        assert len(pool.anchors) == len(pool.lengths) == len(pool.uses) == len(pool.previews) <= pool.capacity
        assert (pool.bytes > 0) == bool(pool.anchors)


def check_actions(actions: Any, state: str, total: int, layers: int) -> None:
    assert actions.shape == (layers, total)
    assert actions.dtype == np.uint8
    assert actions.max() < len(ACTIONS)
    assert (actions[:, -1] == COMPUTED).all(), "the last token gives the first answer"
    copied = np.isin(actions, (REUSED, CORRECTED, RECOMPUTED))  # or was, before it was computed again
    assert copied.any() == (state in ("reused", "partial"))
    assert (actions == COMPUTED).all() == (state in ("dense", "fallback"))


@EACH_METHOD
def test_a_fork_goes_on_by_itself(walked: list[tiny.Walk], cls: type[Method]) -> None:
    method = cls(make_options(cls.name, {}))
    log = walked[0].log
    samples = list(log.samples.values())
    for sample in samples[:2]:
        method.on_event(Arrived(sample), log)
    before = method.pools(log), method.needed()
    fork = method.fork()
    assert type(fork) is cls
    assert (fork.pools(log), fork.needed(), fork.options) == (*before, method.options)
    for sample in samples[2:]:
        fork.on_event(Arrived(sample), log)
    fork.forget({samples[0].number})
    assert samples[0].number not in fork.needed()
    assert (method.pools(log), method.needed()) == before


# -- runs


@pytest.fixture(scope="module")
def records(tiny_model: LoadedModel) -> dict[str, list[RunRecord]]:
    """Every method in one run, in both modes: a first request, others, and the first again."""
    out: dict[str, list[RunRecord]] = {}
    for mode in ("pinned", "free"):
        session = LabSession(tiny_model)
        asked = [request(method_names(), q, mode=mode, expected="1") for q in (*QUESTIONS[:3], QUESTIONS[0])]
        out[mode] = [run(session, one) for one in asked]
    return out


@pytest.mark.parametrize("mode", ["pinned", "free"])
@EACH_METHOD
@pytest.mark.slow
def test_a_run_ends_with_a_complete_outcome(
    records: dict[str, list[RunRecord]], cls: type[Method], mode: str
) -> None:
    for record in records[mode]:
        layers = record.model.layers
        for agent in record.request.pipeline.order:
            outcome = record.outcome(agent, cls.name)
            prompt = record.prompts[outcome.prompt]
            total = len(prompt.token_ids)
            assert prompt.agent == agent
            check_actions(outcome.actions, outcome.state, total, layers)
            assert outcome.reason.endswith(".")
            assert len(outcome.texts) == len(outcome.token_ids)
            assert outcome.correct in (True, False)
            # spans partition the prompt and tell what the action map tells
            assert [s.start for s in outcome.spans] == [0, *(s.end for s in outcome.spans[:-1])]
            assert outcome.spans[-1].end == total
            for span in outcome.spans:
                assert (outcome.actions[-1, span.start : span.end] == span.action).all()
                assert span.provenance in PROVENANCE
                assert span.reason
                assert span.source
                assert len(span.anchors) == len(span.weights)
                assert bool(span.anchors) == (span.action == CORRECTED)
                if span.weights:
                    assert sum(span.weights) == pytest.approx(1, abs=1e-4)
            timing = outcome.timing
            assert set(timing.parts_ms) <= set(PARTS)
            assert list(timing.parts_ms) == [p for p in PARTS if p in timing.parts_ms]
            assert timing.ttft_ms == pytest.approx(sum(timing.parts_ms.values()))
            in_map = np.isin(outcome.actions, (COMPUTED, RECOMPUTED)).sum()
            in_map += layers * sum(link.tokens for link in outcome.links)
            hooks = {"select", "accept"} & set(timing.parts_ms)  # they look, and what they compute is counted
            assert timing.token_layers >= in_map
            assert timing.token_layers == in_map or hooks
            assert timing.forwarded_tokens == -(-timing.token_layers // layers)
            assert (outcome.fidelity is not None) == (mode == "pinned")
            if mode == "pinned":
                assert outcome.key_error is not None
                assert outcome.key_error.shape == (layers, total)
                assert outcome.fidelity is not None
                assert np.isfinite(outcome.fidelity.kl_tokens).all()


@EACH_METHOD
def test_a_prompts_beginning_is_exact(records: dict[str, list[RunRecord]], cls: type[Method]) -> None:
    """However it was come by: nothing stands before it that could have changed it."""
    for record in records["pinned"]:
        for outcome in (o for o in record.outcomes if o.method == cls.name):
            end = record.prompts[outcome.prompt].spans[0].end
            assert outcome.key_error is not None
            assert outcome.value_error is not None
            assert outcome.key_error[:, :end].max() <= tiny.TOLERANCE
            assert outcome.value_error[:, :end].max() <= tiny.TOLERANCE


def test_what_repeats_is_reused(records: dict[str, list[RunRecord]]) -> None:
    """The suite would say little if nothing were ever copied."""
    for mode in ("pinned", "free"):
        last = records[mode][-1]
        states = {label: last.outcome(1, label).state for label in last.labels}
        assert states == {"dense": "dense", "prefix": "partial", "naive": "reused", "kvcomm": "reused"} | {
            label: state
            for label, state in states.items()
            if label not in ("dense", "prefix", "naive", "kvcomm")
        }


@pytest.mark.parametrize("mode", ["pinned", "free"])
@pytest.mark.slow
def test_no_token_is_forwarded_beyond_the_action_map(tiny_model: LoadedModel, mode: Any) -> None:
    """Every forwarded token of a run has its reason: action map, bases, answers, or comparing with dense."""
    session = LabSession(tiny_model)
    flow = tiny.pipeline()
    alone: set[tuple[str, tuple[str, tuple[int, ...]]]] = set()  # texts encoded by themselves, by log
    for number, question in enumerate((QUESTIONS[0], QUESTIONS[1], QUESTIONS[0])):
        asked = request(method_names(), question, mode=mode, decoding=Decoding(max_new_tokens=6))
        before = session.engine.token_layers
        record = run(session, asked)
        forwarded, layers = session.engine.token_layers - before, record.model.layers
        rows = len(record.labels)
        logs = 1 if mode == "pinned" else rows
        planned = sum(o.timing.token_layers for o in record.outcomes)
        decoded = forced = 0
        for agent in record.agents:
            outcomes = [record.outcome(agent, label) for label in record.labels]
            decoded += rows * max(len(o.token_ids) for o in outcomes)
            dense = outcomes[0]
            if mode == "pinned":
                forced += rows * (len(dense.token_ids) - (not dense.stopped))
        bases = logs * (len(tiny_model.tokens.bos) + len(tiny_model.tokens.encode(question)))
        bases *= number < 2  # the third request's question is the first's
        texts = {(log, key) for log, stream in session.streams.items() for key in stream.log.isolated}
        bases += sum(sum(id >= 0 for id in ids) for _, (_, ids) in texts - alone)  # -1 parts a lead-in
        alone |= texts
        if number == 0:
            filled = {n: tiny_model.tokens.encode(t) for n, t in flow.stand_ins.items()}
            templates = [tiny_model.tokens.prompt(flow, a, filled) for a in flow.order]
            bases += logs * sum(len(t.ids) for t in templates)
            pieces = [s for t in templates for s in t.spans if s.kind == "prefix" and s.start > 0]
            bases += logs * sum(len(tiny_model.tokens.bos) + s.end - s.start for s in pieces)
        assert forwarded == planned + layers * (decoded + forced + bases)


def test_an_unsupported_method_is_refused_before_anything_runs(tiny_model: LoadedModel) -> None:
    certificate = replace(tiny_model.info.certificate, relocatable=False, reason="Its keys do not move.")
    crippled = replace(tiny_model, info=replace(tiny_model.info, certificate=certificate))
    session = LabSession(crippled)
    for cls in METHODS:
        if cls.supports(crippled.info) is None:
            continue
        with pytest.raises(NotRelocatableError, match="do not move"):
            run(session, request(["dense", cls.name]))
    assert session.engine.forwarded_tokens == 0
    assert isinstance(session.engine, Engine)


def test_options_reach_the_method(tiny_model: LoadedModel) -> None:
    """Each of KVCOMM's alignment steps switched off changes the cache, and only there."""
    steps = {"rotate": False, "placeholder_offset": False, "prefix_offset": False}
    choices = [MethodChoice("kvcomm", {name: value}, name) for name, value in steps.items()]
    session = LabSession(tiny_model)
    for _ in range(2):
        record = run(session, request(["dense", "kvcomm", *choices]))
    for agent in record.agents:
        full = record.outcome(agent, "kvcomm")
        assert full.state == "reused"
        assert full.key_error is not None
        for label in steps:
            off = record.outcome(agent, label)
            assert off.key_error is not None
            assert off.state == "reused"
            if label == "rotate" and agent == 1:
                continue  # agent 1's question happens to stand near the place where it was encoded
            assert off.key_error.max() > 100 * full.key_error.max()
        spans = {s.start: s for s in record.outcome(agent, "prefix_offset").spans}
        for span in record.prompts[full.prompt].spans:
            if span.kind == "prefix" and span.end < len(record.prompts[full.prompt].token_ids):
                assert spans[span.start].action == REUSED
            if span.kind == "placeholder":
                assert spans[span.start].action == CORRECTED
