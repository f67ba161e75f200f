"""A run that is changed afterwards is what a run under the other settings gives; it decodes what it must."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import tiny
import torch
from tiny import QUESTIONS, run

from backend.base.errors import OptionError, RunCancelled
from backend.engine.engine import Engine
from backend.methods.plan import Compute, Plan, Reuse, Step, Term, plan_key
from backend.methods.registry import profile_options
from backend.model.load import LoadedModel
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.session.revision import NOTE, Revised
from backend.session.session import LabSession

OPEN = {"gamma": 1.0}  # every text is shared as soon as an anchor is long enough
FIRST = (MethodChoice("dense"), MethodChoice("naive"), MethodChoice("kvcomm"))
OTHER = (
    MethodChoice("dense"),
    MethodChoice("kvcomm", OPEN, "kvcomm"),
    MethodChoice("kvcomm", {**OPEN, "placeholder_offset": False, "capacity": 2}, "kvcomm 2"),
    MethodChoice("kvcomm", profile_options("kvcomm", "shipped") | OPEN, "kvcomm 3"),
    MethodChoice("kvcomm", {"gamma": 0.0}, "kvcomm 4"),
    MethodChoice("naive", {"rotate": False}, "naive 2"),
    MethodChoice("cacheblend", {}, "cacheblend"),
)
ASKED = (*QUESTIONS[:4], QUESTIONS[2])


def request(methods: Sequence[MethodChoice], question: str = ASKED[-1], **more: Any) -> RunRequest:
    return tiny.request(methods, question, flow=replace(tiny.pipeline(), scoring="number"), **more)


def sent(model: LoadedModel, methods: Sequence[MethodChoice], **more: Any) -> tuple[LabSession, RunRecord]:
    session = LabSession(model)
    return session, [run(session, request(methods, question, **more)) for question in ASKED][-1]


def revised(session: LabSession, record: RunRecord, methods: Sequence[MethodChoice]) -> list[Revised]:
    asked = replace(record.request, methods=tuple(methods))
    return [event for event in session.revise(record, asked) if isinstance(event, Revised)]


@pytest.mark.parametrize("filled", [False, True])
@pytest.mark.parametrize("decoding", [Decoding(8), Decoding(8, temperature=0.9, seed=3)])
@pytest.mark.slow
def test_a_changed_run_is_a_run_under_the_other_settings(
    tiny_model: LoadedModel, decoding: Decoding, filled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if filled:  # results are filled in behind what was written, whatever the model would say
        monkeypatch.setattr(
            tiny_model.tokens, "filled_after", lambda ids: (5, 6) if len(ids) in (1, 4) else ()
        )
    session, before = sent(tiny_model, FIRST, decoding=decoding)
    found = revised(session, before, OTHER)[-1]
    _, direct = sent(tiny_model, OTHER, decoding=decoding)
    assert found.pending == frozenset()
    assert found.record.labels == direct.labels
    for told, ran in zip(found.record.outcomes, direct.outcomes, strict=True):
        assert (told.agent, told.method, told.state, told.reason) == (
            ran.agent,
            ran.method,
            ran.state,
            ran.reason,
        )
        assert (told.text, told.stopped, told.answer) == (ran.text, ran.stopped, ran.answer)
        assert np.array_equal(told.actions, ran.actions)
        assert [(g.rule, g.shareable, g.anchors) for g in told.gate] == [
            (g.rule, g.shareable, g.anchors) for g in ran.gate
        ]
        assert told.fidelity.first_divergence == ran.fidelity.first_divergence
        assert told.fidelity.kl_first == pytest.approx(ran.fidelity.kl_first, abs=1e-5)
        assert np.allclose(told.key_error, ran.key_error, atol=1e-5)
    assert [(p.method, p.placeholder, p.anchors) for p in found.record.pools] == [
        (p.method, p.placeholder, p.anchors) for p in direct.pools
    ]
    assert any(n.startswith(NOTE + "KVCOMM, KVCOMM 2") for n in found.record.notes)
    texts = {o.text for o in found.record.outcomes if o.agent == 3}
    assert len(texts) > 1, "some method changes something, else the test says little"


@pytest.mark.slow
def test_only_what_parts_from_dense_is_decoded(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, before = sent(tiny_model, FIRST)
    decoded: list[int] = []
    steps = session.engine.decode_steps
    monkeypatch.setattr(
        session.engine,
        "decode_steps",
        lambda rows, *a, **k: (decoded.append(len(rows)), steps(rows, *a, **k))[1],
    )
    only_dense = revised(session, before, (FIRST[0], MethodChoice("kvcomm", {"gamma": 0.0})))
    assert decoded == []
    assert [event.pending for event in only_dense if not event.planned] == [frozenset()]
    _, first, last = revised(session, before, OTHER)
    assert sum(decoded) == len(first.pending) > 0
    for agent, label in first.pending:
        sure, whole = first.record.outcome(agent, label), last.record.outcome(agent, label)
        at = sure.fidelity.first_divergence
        if at is not None and whole.fidelity.first_divergence == at:
            assert list(whole.token_ids[: len(sure.token_ids)]) == list(sure.token_ids)
    kept = revised(session, last.record, OTHER)[-1].record
    assert [id(o.texts) for o in kept.outcomes] == [id(o.texts) for o in last.record.outcomes], "not again"
    decoded.clear()
    [again] = revised(session, before, OTHER)
    assert again.whole, "an answer known from the same cache"
    assert decoded == []


@pytest.mark.slow
def test_decisions_are_told_before_the_model_reads(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a slider moves, the gate answers at once."""
    session, before = sent(tiny_model, FIRST)
    events = session.revise(before, replace(before.request, methods=OTHER))
    with monkeypatch.context() as patch:
        for work in ("execute", "teacher_force", "decode_steps"):
            patch.setattr(Engine, work, lambda *a, **more: pytest.fail("a prompt was read"))
        planned = next(event for event in events if isinstance(event, Revised))
    whole = [event for event in events if isinstance(event, Revised)][-1]
    everything = {(agent, label) for agent in before.agents for label in whole.record.labels[1:]}
    assert planned.planned == planned.pending == everything
    assert (planned.whole, whole.whole, whole.planned) == (False, True, frozenset())
    for told, found in zip(planned.record.outcomes, whole.record.outcomes, strict=True):
        assert (told.agent, told.method, told.state, told.reason) == (
            found.agent, found.method, found.state, found.reason,
        )  # fmt: skip
        assert told.gate == found.gate
        for mix, whole_mix in zip(told.mixes, found.mixes, strict=True):
            assert (mix.start, mix.end, mix.anchors) == (whole_mix.start, whole_mix.end, whole_mix.anchors)
            assert np.array_equal(mix.keys_by_token, whole_mix.keys_by_token)
        if told.method == "dense":
            continue
        assert (told.fidelity, told.key_error, told.text, told.timing.parts_ms) == (None, None, "", {})
        assert found.fidelity is not None
        if told.method != "cacheblend":  # which of the copied tokens it computes again, it sees in the cache
            assert np.array_equal(told.actions, found.actions)
            assert told.spans == found.spans


def test_plans_are_alike_where_they_do_the_same() -> None:
    base, other = cast(Any, object()), cast(Any, object())
    term = Term(torch.ones(2), cast(Any, None), anchor=1)

    def key(action: Reuse | Compute, why: str = "", **more: Any) -> Any:
        return plan_key(Plan((Step(0, 4, action),), "reused", why, **more))

    one = key(Reuse(base, (term,)), "one reason")
    assert one is not None
    assert one == key(Reuse(base, (replace(term, weight=torch.ones(2)),), reason="another"))
    changes = ({"weight": torch.zeros(2)}, {"value_weight": torch.ones(2)}, {"anchor": 2}, {"shift": 1})
    others = [Reuse(base, (replace(term, **change),)) for change in changes]
    others += [Reuse(base), Reuse(other, (term,)), Reuse(base, (term,), moved=False)]
    assert one not in [key(action) for action in (*others, Compute("new"))]
    assert key(Reuse(base, (term,)), cut=1) is None


@pytest.mark.slow
def test_what_plans_the_same_is_not_done_again(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a slider moves, most of its values decide alike."""
    session, before = sent(tiny_model, FIRST)
    done = list[int]()
    execute, force = Engine.execute, Engine.teacher_force
    monkeypatch.setattr(Engine, "execute", lambda *a, **more: (done.append(1), execute(*a, **more))[1])
    monkeypatch.setattr(Engine, "teacher_force", lambda *a: (done.append(1), force(*a))[1])

    def changed(name: str = "kvcomm", **options: Any) -> tuple[int, RunRecord]:
        done.clear()
        choices = (
            MethodChoice("dense"),
            MethodChoice(name, {**OPEN, **options} if name == "kvcomm" else options),
        )
        record = revised(session, before, choices)[-1].record
        return len(done), record

    first, _ = changed(capacity=20)
    none, same = changed(capacity=19)
    assert first > none == 0
    assert changed(gamma=0.0)[0] == 0, "read afresh"
    assert changed(capacity=18)[0] == 0, "as the change before the last"
    assert changed(capacity=19, temperature=2.0)[0] > 0, (
        "another option may do something else by the same plan"
    )
    shares = [changed("cacheblend", ratio=ratio)[1].outcome(2, "cacheblend").actions for ratio in (0.1, 0.6)]
    assert not np.array_equal(*shares), "the same plan, of which more is computed again"
    _, alone = sent(tiny_model, (MethodChoice("dense"), MethodChoice("kvcomm", {**OPEN, "capacity": 19})))
    for found, wanted in zip(same.outcomes, alone.outcomes, strict=True):
        assert (found.state, found.answer, found.gate) == (wanted.state, wanted.answer, wanted.gate)
        assert np.array_equal(found.actions, wanted.actions)
        assert np.allclose(found.key_error, wanted.key_error, atol=1e-6)
        assert (found.fidelity is None) == (wanted.fidelity is None)
        if found.fidelity is not None and wanted.fidelity is not None:
            assert found.fidelity.kl_first == pytest.approx(wanted.fidelity.kl_first, abs=1e-6)
        assert found.timing.parts_ms.keys() >= wanted.timing.parts_ms.keys() - {"base"}


@pytest.mark.slow
def test_pools_and_log_are_left_alone(tiny_model: LoadedModel) -> None:
    session, before = sent(tiny_model, FIRST)
    stream = next(iter(session.streams.values()))
    samples, history = set(stream.log.samples), len(stream.history)
    revised(session, before, OTHER)
    assert (set(stream.log.samples), len(stream.history)) == (samples, history)
    assert session.reading is not None
    assert session.bytes > stream.bytes
    run(session, request(FIRST))
    assert session.reading is None


@pytest.mark.slow
def test_what_cannot_be_changed_is_refused(tiny_model: LoadedModel) -> None:
    session, before = sent(tiny_model, FIRST)
    asked = before.request
    for other, said in (
        (replace(asked, decoding=Decoding(4)), "no longer held, or more"),
        (replace(asked, values={"user_question": "Another?"}), "no longer held, or more"),
        (replace(asked, methods=(*FIRST, MethodChoice("prefix"))), "prefix needs a run"),
    ):
        with pytest.raises(OptionError, match=said):
            list(session.revise(before, other))
    stop = threading.Event()
    stop.set()
    with pytest.raises(RunCancelled):
        list(session.revise(before, replace(asked, methods=OTHER), cancel=stop))
    session.forget()
    with pytest.raises(OptionError, match="no longer held"):
        list(session.revise(before, replace(asked, methods=OTHER)))
