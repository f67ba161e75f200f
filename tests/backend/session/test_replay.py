"""A replay gives what the runs themselves gave, reads no prompt again, and is told and drawn honestly."""

from __future__ import annotations

import csv
import io
import itertools
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import tiny
from intervals import scipy_wilson
from tiny import QUESTIONS, run

import backend.lab
from backend.base.errors import BudgetError, LabError, OptionError, RecordError, RunCancelled
from backend.methods.registry import profile_options
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Progress
from backend.records.replay import MOST_REPLAYED, Replay, Replayed
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import GateDecision, RunRecord, reuse
from backend.session.replay import BATCH_ROWS
from backend.session.session import LabSession
from backend.session.streams import Stream
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.sections import replay as what_if
from lab_app.ui import html, text
from lab_app.ui.method_choice import MOST_COLUMNS
from lab_app.visits.visits import Visit, VisitStore
from viz.base.figure import FigureView, card_html
from viz.base.theme import OUTLINE_COLOUR
from viz.studies.replay import FATES, counts, fates, tallies, texts, trade_off, valid_request, views

PIPELINE = replace(tiny.pipeline(), scoring="number")
OPEN = {"gamma": 1.0}  # every text is shared as soon as an anchor is long enough
METHODS = (
    MethodChoice("dense"),
    MethodChoice("naive"),
    MethodChoice("kvcomm"),
    MethodChoice("kvcomm", OPEN, "kvcomm open"),
    MethodChoice("kvcomm", {**OPEN, "placeholder_offset": False, "capacity": 2}, "kvcomm bare"),
    MethodChoice("kvcomm", profile_options("kvcomm", "shipped") | OPEN, "kvcomm shipped"),
    MethodChoice("kvcomm", {**OPEN, "codec": "lossy", "codec_step": 1.0}, "kvcomm packed"),
    MethodChoice("oracle"),
)
ASKED = (*QUESTIONS, QUESTIONS[2], QUESTIONS[0])


def request(
    methods: Sequence[MethodChoice] = METHODS, question: str = QUESTIONS[0], **more: Any
) -> RunRequest:
    return tiny.request(methods, question, flow=PIPELINE, **more)


def finished(events: Iterator[Any]) -> Replay:
    *steps, found = events
    assert isinstance(found, Replay)
    assert steps
    assert all(isinstance(step, Progress) for step in steps)
    return found


def sent(model: LoadedModel, asked: Sequence[str], **more: Any) -> tuple[LabSession, list[RunRecord]]:
    session = LabSession(model, **more)
    return session, [run(session, request(question=q, expected=str(i))) for i, q in enumerate(asked)]


def forwarded(session: LabSession) -> int:
    return session.engine.forwarded_tokens


def decision(gate: GateDecision) -> tuple[Any, ...]:
    """What was decided and why; anchors are numbered in the order in which they were computed."""
    entropy = None if gate.entropy is None else pytest.approx(gate.entropy, abs=1e-4)
    return gate.placeholder, gate.shareable, gate.rule, re.sub(r"anchor \d+", "", gate.reason), entropy


def assert_as_run(found: Replay, records: Mapping[int, RunRecord]) -> None:
    """Every row is what the run of its request had."""
    assert [asked.number for asked in found.requests] == list(records)
    for asked in found.requests:
        record = records[asked.number]
        assert asked.values == record.request.values
        assert asked.expected == record.request.expected
        rows = [row for row in found.rows if row.request == asked.number]
        assert [(r.agent, r.method) for r in rows] == [(o.agent, o.method) for o in record.outcomes]
        for row, outcome in zip(rows, record.outcomes, strict=True):
            spans = record.prompts[outcome.prompt].spans
            assert (row.text, row.texts, row.answer) == (outcome.text, outcome.texts, outcome.answer)
            assert (row.state, row.correct) == (outcome.state, outcome.correct)
            assert row.prompt_tokens == outcome.actions.shape[1]
            assert (row.reused_tokens, row.blocks, row.reused_blocks) == reuse(spans, outcome.actions)
            if row.method != "dense":
                assert row.reason == outcome.reason
                assert list(map(decision, row.gate)) == list(map(decision, outcome.gate))
            shares = outcome.timing.forwarded_tokens < row.prompt_tokens
            assert row.forwarded_tokens == (outcome.timing.forwarded_tokens if shares else 0)


@pytest.fixture(scope="module")
def ran(tiny_model: LoadedModel) -> tuple[LabSession, list[RunRecord]]:
    return sent(tiny_model, ASKED)


@pytest.fixture(scope="module")
def record(ran: tuple[LabSession, list[RunRecord]]) -> Replay:
    return finished(backend.lab.Lab(ran[0]).replay(request(), 5))


def test_a_replay_is_the_run(ran: tuple[LabSession, list[RunRecord]], record: Replay) -> None:
    """Under unchanged settings: texts, states, gates and tokens of every method at every agent."""
    assert_as_run(record, dict(list(enumerate(ran[1], 1))[-5:]))
    states = {row.state for row in record.rows if row.method.startswith("kvcomm")}
    assert states == {"reused", "fallback"}  # else the test says little
    assert any(row.method != "dense" and not row.as_dense for row in record.rows)
    assert (record.held, record.forgotten) == (len(ASKED), 0)


def test_nothing_is_prefilled(ran: tuple[LabSession, list[RunRecord]], record: Replay) -> None:
    """The engine forwards what plans leave and one token per row and step of decoding; no prompt, no base."""
    session, records = ran
    before = forwarded(session)
    found = finished(backend.lab.Lab(session).replay(request(), len(ASKED)))
    left = steps = 0
    together = BATCH_ROWS // (len(METHODS) - 1)
    for first in range(0, len(records), together):
        for agent in records[0].agents:
            shared = [
                o
                for kept in records[first : first + together]
                for o in kept.outcomes
                if o.agent == agent and o.timing.forwarded_tokens < o.actions.shape[1]
            ]
            left += sum(o.timing.forwarded_tokens for o in shared)
            # an answer that ended by a stop token took one more step to see it, which forwards nothing
            longest = max(len(o.token_ids) for o in shared)
            steps += longest * len(shared)
    assert forwarded(session) - before == left + steps
    assert (found.prefill_tokens, found.decode_tokens, found.encoded_tokens) == (left, steps, 0)
    prompts = sum(len(p.token_ids) for kept in records for p in kept.prompts)
    methods = sum(r.prompt_tokens - r.reused_tokens for r in found.rows if r.method != "dense")
    assert found.again_tokens == prompts + methods
    assert found.prefill_tokens < found.again_tokens / 10


def test_without_a_shared_text_it_is_dense(ran: tuple[LabSession, list[RunRecord]]) -> None:
    session, _ = ran
    before = forwarded(session)
    closed = [MethodChoice("kvcomm", {key: 0}, f"no {key}") for key in ("gamma", "capacity")]
    found = finished(backend.lab.Lab(session).replay(request(closed), 8))
    assert forwarded(session) == before
    assert (found.prefill_tokens, found.decode_tokens) == (0, 0)
    dense = {(row.request, row.agent): row for row in found.rows if row.method == "dense"}
    assert len(dense) == 8 * 3
    assert found.labels == ("dense", "no gamma", "no capacity")
    for row in found.rows:
        assert row.texts == dense[row.request, row.agent].texts
        assert (row.as_dense, row.reused_tokens) == (True, 0)
        assert row.state == ("dense" if row.method == "dense" else "fallback")


def test_other_settings_are_what_a_run_under_them_gives(tiny_model: LoadedModel) -> None:
    """Requests that dense alone has seen, then settings that no run ever had."""
    other = (MethodChoice("dense"), *METHODS[2:7])
    session, _ = filled(tiny_model, ASKED)
    direct = LabSession(tiny_model)
    records = [run(direct, request(other, q, expected=str(i))) for i, q in enumerate(ASKED)]
    before = forwarded(session)
    found = finished(backend.lab.Lab(session).replay(request(other), 4))
    assert_as_run(found, dict(list(enumerate(records, 1))[-4:]))
    # the profile that wants outside texts encoded behind their lead-in had them encoded, once
    assert found.encoded_tokens > 0
    assert forwarded(session) - before == found.encoded_tokens + found.prefill_tokens + found.decode_tokens
    assert finished(backend.lab.Lab(session).replay(request(other), 4)).encoded_tokens == 0


def test_a_replay_leaves_no_trace(tiny_model: LoadedModel) -> None:
    session, _ = sent(tiny_model, ASKED[:3])
    twin, _ = sent(tiny_model, ASKED[:3])

    def seen(s: LabSession) -> Any:
        [stream] = s.streams.values()
        pools = [replace(p, bytes=0) for p in s.pools(request())]
        return (
            pools,
            list(stream.instances),
            sorted(stream.log.samples),
            stream.log.bytes,
            len(stream.history),
        )

    assert seen(session) == seen(twin)
    finished(backend.lab.Lab(session).replay(request((MethodChoice("kvcomm", {"gamma": 0.9}),)), 4))
    with pytest.raises(RunCancelled):
        cancelled(session)
    assert seen(session) == seen(twin)
    one, other = (run(s, request(question=ASKED[3])) for s in (session, twin))
    assert [o.text for o in one.outcomes] == [o.text for o in other.outcomes]


def cancelled(session: LabSession) -> None:
    cancel = threading.Event()
    for number, _ in enumerate(backend.lab.Lab(session).replay(request(), 4, cancel=cancel)):
        if number == 1:
            cancel.set()


def filled(model: LoadedModel, asked: Sequence[str], **more: Any) -> tuple[LabSession, Stream]:
    """A session that dense alone sent requests through."""
    session = LabSession(model, **more)
    examples = [Example({"user_question": q}, str(i)) for i, q in enumerate(asked)]
    list(session.warm_up(request(METHODS[:1]), examples))
    [stream] = session.streams.values()
    return session, stream


def test_after_shrinking_it_says_how_many_are_left_and_stays_right(tiny_model: LoadedModel) -> None:
    """What is left is replayed as if the forgotten requests had never been."""
    every, few = ASKED * 2, (METHODS[0], METHODS[1], METHODS[3])
    _, whole = filled(tiny_model, every)
    session, stream = filled(tiny_model, every, budget_bytes=whole.log.bytes * 6 // 10)
    found = finished(backend.lab.Lab(session).replay(request(few), MOST_REPLAYED))
    assert 4 <= found.held < len(every)
    assert found.held + found.forgotten == len(every)
    assert len(found.requests) == found.held == len(stream.history)
    assert found.log_bytes == stream.log.bytes <= found.budget_bytes
    left = [asked.number for asked in found.requests]
    assert left == list(range(found.forgotten + 1, len(every) + 1))
    direct = LabSession(tiny_model)
    records = [run(direct, request(few, every[n - 1])) for n in left]
    assert [asked.values for asked in found.requests] == [r.request.values for r in records]
    texts = [(o.state, o.text) for r in records for o in r.outcomes]
    assert [(row.state, row.text) for row in found.rows] == texts


@pytest.mark.parametrize("last", [0, -1, MOST_REPLAYED + 1, 2.5, True, "3", None])
def test_a_wrong_number_is_refused(ran: tuple[LabSession, list[RunRecord]], last: Any) -> None:
    with pytest.raises(OptionError, match=f"allowed: 1 to {MOST_REPLAYED}") as refused:
        list(backend.lab.Lab(ran[0]).replay(request(), last))
    assert refused.value.field == "replay.last"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"mode": "free"}, "Choose pinned"),
        ({"decoding": Decoding(max_new_tokens=7)}, "Run one first"),
        (
            {"flow": tiny.pipeline(t3="Judge {user_question}, {agent_1_current} and {agent_2_current}:")},
            "Run one",
        ),
        ({"methods": ()}, "Choose a reuse method"),
        ({"methods": (MethodChoice("prefix"),)}, "Choose a reuse method"),
        ({"methods": (MethodChoice("naive"), MethodChoice("naive"))}, "its own label"),
        ({"methods": (MethodChoice("kvcomm", {"gamma": 2.0}),)}, "allowed: 0 to 1"),
    ],
)
def test_what_cannot_be_replayed_is_refused(
    ran: tuple[LabSession, list[RunRecord]], changes: dict[str, Any], said: str
) -> None:
    asked = tiny.request(**({"methods": METHODS, "flow": PIPELINE} | changes))
    with pytest.raises(LabError, match=said):
        list(backend.lab.Lab(ran[0]).replay(asked, 3))


def test_caches_over_the_budget_are_refused(ran: tuple[LabSession, list[RunRecord]], record: Replay) -> None:
    [stream] = ran[0].streams.values()
    together = BATCH_ROWS // (len(METHODS) - 1)
    assert together < 5
    # one request alone is then a byte too much
    stream.log.budget_bytes, kept = record.cache_bytes // together - 1, stream.log.budget_bytes
    try:
        # without the profile that encodes texts, after which the log is kept to its budget
        few = [m for m in METHODS if m.label != "kvcomm shipped"]
        extra = [MethodChoice("naive", {"rotate": False}, "naive unmoved"), *few]
        with pytest.raises(BudgetError, match="Choose fewer methods"):
            list(backend.lab.Lab(ran[0]).replay(request(extra), 5))
    finally:
        stream.log.budget_bytes = kept


def test_the_prefix_cache_is_left_out_and_named(ran: tuple[LabSession, list[RunRecord]]) -> None:
    found = finished(
        backend.lab.Lab(ran[0]).replay(request((MethodChoice("prefix"), MethodChoice("naive"))), 2)
    )
    assert found.labels == ("dense", "naive")
    [note] = found.notes
    assert note.startswith("prefix is left out")


def test_the_file_is_the_record(record: Replay) -> None:
    again = Replay.from_bytes(record.to_bytes())
    assert again.to_bytes() == record.to_bytes()
    assert [asdict(a) for a in again.rows] == [asdict(b) for b in record.rows]
    with pytest.raises(RecordError):
        Replay.from_bytes(record.to_bytes()[:100])


# -- what is drawn, from the record alone


def finals(found: Replay, label: str) -> list[Replayed]:
    return [row for row in found.rows if row.method == label and row.agent == 3]


def test_every_figure_opens_from_the_file(record: Replay) -> None:
    again = Replay.from_bytes(record.to_bytes())
    cards = views(again)
    assert [card.key for card in cards] == [
        "replay_counts",
        "replay_trade_off",
        "replay_fates",
        "replay_texts",
    ]
    for card in cards:
        assert card_html(card)
        if isinstance(card, FigureView):
            assert card.how_to_read
            assert card.finding
            heads, *lines = list(csv.reader(io.StringIO(card.csv())))
            assert all(len(line) == len(heads) for line in lines)
    for axis in ("xaxis", "xaxis2"):
        assert "(%)" in trade_off(again).figure.layout[axis].title.text


def test_the_counts_are_the_rows(record: Replay) -> None:
    for tally in tallies(record):
        last, every = finals(record, tally.label), [r for r in record.rows if r.method == tally.label]
        assert (tally.requests, tally.same) == (5, sum(r.as_dense for r in last))
        assert (tally.right, tally.known) == (sum(r.correct is True for r in last), 5)
        assert (tally.reused_blocks, tally.blocks) == (
            sum(r.reused_blocks for r in every), sum(r.blocks for r in every)
        )  # fmt: skip
        assert tally.interval == pytest.approx(scipy_wilson(tally.same, 5), abs=1e-5)
    copied, same = trade_off(record).figure.data
    assert same.error_x.color == OUTLINE_COLOUR  # drawn black, the bars would vanish on a dark page
    for place, tally in enumerate(tallies(record)[1:]):
        low, high = tally.interval
        assert copied.x[place] == pytest.approx(100 * tally.reused_tokens / tally.tokens)
        assert same.x[place] == pytest.approx(100 * tally.same / 5)
        assert same.x[place] - same.error_x.arrayminus[place] == pytest.approx(100 * low)
        assert same.x[place] + same.error_x.array[place] == pytest.approx(100 * high)
    whole = replace(record, rows=tuple(replace(r, as_dense=False) for r in record.rows))
    assert "-0" not in counts(whole).html


def test_each_changed_answer_has_its_mark(record: Replay) -> None:
    """One final row each: nothing shared, as dense, changed, broken, mended."""
    dense = {r.request: replace(r, correct=r.request != 8) for r in finals(record, "dense")}
    made = [
        {"as_dense": True, "reused_tokens": 0, "correct": True},
        {"as_dense": True, "reused_tokens": 9, "correct": True},
        {"as_dense": False, "reused_tokens": 9, "correct": True},
        {"as_dense": False, "reused_tokens": 9, "correct": False},
        {"as_dense": False, "reused_tokens": 9, "correct": True},
    ]
    rows = [replace(r, **more) for r, more in zip(finals(record, "naive"), made, strict=True)]  # type: ignore[arg-type]
    view = fates(replace(record, rows=(*dense.values(), *rows)))
    heat = view.figure.data[0]
    assert list(heat.x) == [4, 5, 6, 7, 8]
    assert [FATES[code][1] for code in heat.z[0]] == ["·", "=", "≠", "✗", "✓"]
    assert list(heat.text[0]) == ["·", "=", "≠", "✗", "✓"]
    assert "Copy and reposition 3" in view.finding
    assert len(view.rows) == 10


def test_the_texts_mark_what_differs(record: Replay) -> None:
    changed = next(r for r in record.rows if not r.as_dense and r.texts)
    assert f"request {changed.request}" in texts(record, changed.request).title
    shown = texts(record, changed.request).html
    assert "kv-ins" in shown
    assert shown.count("<article") == len(record.agents) * len(record.labels)
    same = replace(record, rows=tuple(
        replace(r, texts=d.texts, text=d.text, answer=d.answer, as_dense=True)
        for r in record.rows
        for d in record.rows
        if (d.request, d.agent, d.method) == (r.request, r.agent, "dense")
    ))  # fmt: skip
    assert "kv-ins" not in texts(same, changed.request).html
    evil = replace(changed, texts=("<script>alert(1)</script>",), reason="<script>", answer="<b>")
    bad = replace(record, rows=tuple(evil if r is changed else r for r in record.rows))
    assert "<script" not in texts(bad, changed.request).html


def test_a_request_that_is_not_there_falls_back(record: Replay) -> None:
    flipped = [r.request for r in record.rows if r.agent == 3 and not r.as_dense]
    usual = max(flipped) if flipped else 8
    assert valid_request(record, 5) == 5
    assert [valid_request(record, wish) for wish in (None, 0, 3, 99)] == [usual] * 4


# -- the tab


@pytest.fixture
def visit(ran: tuple[LabSession, list[RunRecord]]) -> tuple[VisitStore, Visit]:
    lab = VisitStore(lambda: ran[0].model, lambda _: backend.lab.Lab(ran[0]))  # type: ignore[arg-type, return-value]
    return lab, lab.open()


def form(**changes: Any) -> Form:
    """The bench with the scenario that the session of these tests has run."""
    given: dict[str, Any] = {"templates": tuple(a.template for a in PIPELINE.agents), "max_new_tokens": 8}
    return Form("tiny", {}, **(given | {"methods": ("naive", "kvcomm")} | changes))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "read_pipeline", lambda form: PIPELINE)


def last_of(steps: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """Everything that a handler said, the latest last."""
    out: dict[str, Any] = {}
    for step in steps:
        out |= step
    return out


def test_the_bench_is_the_editor(visit: tuple[VisitStore, Visit], bench: None) -> None:
    lab, who = visit
    options = {"kvcomm": {"gamma": 0.9, "capacity": 3}}
    said = last_of(what_if.measure(lab, who, form(options=options, ablate=("kvcomm",)), 3))
    assert "replay" in who.results
    token, found = who.results["replay"]
    assert lab.result("replay", token) is found
    chosen = {m.label: m.options for m in found.request.methods if m.name == "kvcomm"}
    assert list(chosen) == ["kvcomm", *(f"kvcomm without {step}" for step in what_if.STEPS)]
    assert {(o["gamma"], o["capacity"]) for o in chosen.values()} == {(0.9, 3)}
    assert [asked.number for asked in found.requests] == [6, 7, 8]
    assert f"lab/measured/replay/{token}" in said["replay_status"]
    assert "3 requests of 8 in memory" in said["replay_status"]
    assert len(said["view_replay"]["views"]) == 4
    assert (said["run.visible"], who.cancel) == (True, None)
    assert what_if.pick(who, "6")["pick_replay"][1] == "6"
    assert what_if.pick(who, 7.0)["pick_replay"][1] == "7"
    for odd in ("x", None, True, 6.5, [1], "-1"):
        assert what_if.pick(who, odd)["pick_replay"][1] == said["pick_replay"][1]


def test_table_5_is_one_click(visit: tuple[VisitStore, Visit], bench: None) -> None:
    """Every choice of steps but none, whatever methods stand on the bench."""
    lab, who = visit
    last_of(what_if.measure(lab, who, form(methods=(), options={"kvcomm": {"gamma": 1}}), 2, True))
    assert "replay" in who.results
    _, *rows = who.result("replay").request.methods
    switched = {tuple(row.options[step] for step in what_if.STEPS) for row in rows}
    assert switched == set(itertools.product((True, False), repeat=3)) - {(False,) * 3}
    assert {row.options["gamma"] for row in rows} == {1.0}
    assert len(who.result("replay").labels) == 8 == MOST_COLUMNS


@pytest.mark.parametrize(
    ("changes", "last", "slot", "said"),
    [
        ({}, 0, "last", "allowed: 1 to 200"),
        ({}, None, "last", "empty"),
        ({}, "<script>", "last", "allowed: 1 to 200"),
        ({"mode": "free"}, 3, "run", "Choose pinned"),
        ({"options": {"kvcomm": {"gamma": 7}}}, 3, "run", "allowed: 0 to 1"),
        ({"options": {"kvcomm": {"gamma": None}}}, 3, "run", "this box is empty"),
        ({"methods": ()}, 3, "run", "Choose a reuse method"),
        ({"max_new_tokens": 9}, 3, "run", "nothing to replay"),
    ],
)
def test_bad_input_is_told_beside_its_box(
    visit: tuple[VisitStore, Visit], bench: None, changes: dict[str, Any], last: Any, slot: str, said: str
) -> None:
    lab, who = visit
    found = last_of(what_if.measure(lab, who, form(**changes), last))
    assert said in found[f"error_replay_{slot}"]
    assert "<script" not in found[f"error_replay_{slot}"]
    assert "replay" not in who.results
    assert (found["run.visible"], who.cancel, found["replay_status"]) == (True, None, "")


def test_cancel_keeps_the_replay_before(visit: tuple[VisitStore, Visit], bench: None) -> None:
    lab, who = visit
    last_of(what_if.measure(lab, who, form(), 2))
    kept = who.results["replay"]
    steps = what_if.measure(lab, who, form(), 8)
    next(steps)
    assert who.cancel is not None
    assert last_of(what_if.measure(lab, who, form(), 8)) == {
        "replay_status": html.status(text.REPLAY_BUSY, "busy")
    }
    who.cancel.set()
    found = last_of(steps)
    assert text.REPLAY_STOPPED in found["replay_status"]
    assert (who.results["replay"], who.cancel, found["run.visible"]) == (kept, None, True)
