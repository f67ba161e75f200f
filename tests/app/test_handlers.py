"""The page's behaviour without a browser: validation, errors beside fields, sessions, records."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession

from backend.errors import LabError
from backend.presets import load_preset
from lab_app import form as forms
from lab_app.form import Form
from lab_app.handlers import Handlers, Update
from lab_app.sessions import MOST_VISITS, Lab, Turns, Visit


@pytest.fixture
def handlers() -> Handlers:
    return Handlers(Lab(FakeModel, FakeSession))


@pytest.fixture
def visit(handlers: Handlers) -> Visit:
    visit_id, _ = handlers.arrive("math-3")
    return handlers.lab.visit(visit_id)


def make_form(visit: Visit | None = None, **changes: Any) -> Form:
    pipeline = load_preset("math-3").pipeline
    question = visit.example.values["user_question"] if visit and visit.example else "What is 1 + 1?"
    made = Form(
        "math-3", {"user_question": question}, tuple(a.template for a in pipeline.agents),
        methods=("naive", "kvcomm"),
        options={"kvcomm": {"gamma": 0.3, "capacity": 20}},
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def templates(**changes: str) -> tuple[str, ...]:
    made = [a.template for a in load_preset("math-3").pipeline.agents]
    for number, text in changes.items():
        made[int(number[1:])] = text
    return tuple(made)


def last(updates: Any) -> Update:
    """All updates of a stream, later ones on top."""
    merged: Update = {}
    for update in updates:
        merged |= update
    return merged


LONG = "word " * 220_000  # about 1 MB
BAD = {
    "empty question": ({"values": {"user_question": "  "}}, "value_0", "The question is empty"),
    "empty prompt": ({"templates": templates(t1=" ")}, "agent_1", "is empty"),
    "a placeholder twice": (
        {"templates": templates(t0="{user_question} {user_question}")},
        "agent_0",
        "twice",
    ),
    "no such agent": ({"templates": templates(t1="{agent_9_current}")}, "agent_1", "no agent 9"),
    "a circle": ({"templates": templates(t0="{user_question} {agent_4_current}")}, "agent_0", "circle"),
    "a megabyte": ({"templates": templates(t2=LONG)}, "agent_2", "characters"),
    "a NUL": ({"values": {"user_question": "a\x00b"}}, "value_0", "NUL"),
    "gamma too high": ({"options": {"kvcomm": {"gamma": 7.0}}}, "kvcomm", "allowed"),
    "V too high": ({"options": {"kvcomm": {"capacity": 10**6}}}, "kvcomm", "allowed"),
    "V empty": ({"options": {"kvcomm": {"capacity": None}}}, "kvcomm", "empty"),
    "V not a number": ({"options": {"kvcomm": {"capacity": "many"}}}, "kvcomm", "int"),
    "an unknown option": ({"options": {"kvcomm": {"speed": 1}}}, "kvcomm", "speed"),
    "an unknown method": ({"methods": ("magic",)}, "methods", "magic"),
    "a bad temperature": ({"temperature": -1}, "decoding", "temperature"),
    "no seed": ({"seed": None}, "decoding", "seed"),
    "an endless answer": ({"max_new_tokens": 10**9}, "decoding", "longest"),
    "not finite": ({"top_p": float("nan")}, "decoding", "Top-p"),
    "an unknown mode": ({"mode": "wild"}, "mode", "mode"),
    "another path": ({"preset": "../../etc/passwd"}, "preset", "no scenario"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_beside_its_field(name: str, handlers: Handlers, visit: Visit) -> None:
    changes, slot, said = BAD[name]
    form = make_form(visit, **changes)
    for update in (handlers.refresh(visit, form), last(handlers.run(visit, form))):
        assert slot in update["errors"], update["errors"]
        assert said.lower() in update["errors"][slot].lower()
        assert not any(key.startswith(("template_", "value_")) for key in update), "typed text must stay"
    assert visit.engine.requests == []  # type: ignore[attr-defined]


def test_every_problem_is_told_at_once(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit, values={"user_question": ""}, seed=-1, options={"kvcomm": {"gamma": 9}})
    assert set(handlers.refresh(visit, form)["errors"]) == {"value_0", "decoding", "kvcomm"}
    form = make_form(visit, templates=templates(t0=""), options={"kvcomm": {"gamma": 9}})
    assert set(handlers.refresh(visit, form)["errors"]) == {"agent_0", "kvcomm"}
    assert "warm" in handlers.refresh(visit, make_form(visit, warm_count=-3))["errors"]


def test_unusual_text_is_no_error(handlers: Handlers, visit: Visit) -> None:
    odd = "שלום 🙂 <|eot_id|> <script>alert(1)</script> {not_a_name}"
    form = make_form(visit, values={"user_question": odd}, templates=templates(t0=odd + " {user_question}"))
    update = handlers.refresh(visit, form)
    assert update["errors"] == {}
    assert "<script>" not in "".join(str(v) for v in update.values())
    assert "not_a_name" in update["notices"]


def test_run_warms_empty_pools_once(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit, warm_count=5)
    first = last(handlers.run(visit, form))
    engine: Any = visit.engine
    assert len(engine.warmed) == 5
    assert first["running"] is False
    assert "kv-compare" in first["comparison"]
    last(handlers.run(visit, form))
    assert len(engine.warmed) == 5, "pools that hold something are not filled again"
    assert engine.requests[0].expected is not None


def test_several_requests_are_run_one_by_one_and_counted(handlers: Handlers, visit: Visit) -> None:
    first = visit.next_example
    updates = list(handlers.run_many(visit, make_form(visit, many_count=3)))
    tallies = [u["tally"] for u in updates if u.get("tally")]
    assert [f"{n} of 3 requests" in page for n, page in enumerate(tallies, 1)] == [True] * 3
    assert visit.next_example == first + 3
    asked = {u["value_0"] for u in updates if "value_0" in u}
    assert len(asked) == 3
    assert visit.record is not None
    assert visit.cancel is None


@pytest.mark.parametrize("wrong", [0, 51, 2.5, None])
def test_a_wrong_number_of_requests_is_told(wrong: Any, handlers: Handlers, visit: Visit) -> None:
    updates = list(handlers.run_many(visit, make_form(visit, many_count=wrong)))
    assert any("allowed: 1 to 50" in u.get("errors", {}).get("many", "") for u in updates)
    assert visit.record is None


def test_edited_question_is_not_scored(handlers: Handlers, visit: Visit) -> None:
    last(handlers.run(visit, make_form(visit, values={"user_question": "What is 2 + 2?"})))
    assert visit.engine.requests[0].expected is None  # type: ignore[attr-defined]


def test_edit_after_a_run_is_announced(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit)
    last(handlers.run(visit, form))
    assert handlers.refresh(visit, form)["status"] == ""
    edited = handlers.refresh(
        visit, dataclasses.replace(form, options={"kvcomm": {"gamma": 0.5, "capacity": 20}})
    )
    assert "edited since" in edited["status"]


def test_cancel_brings_the_earlier_results_back(visit: Visit, handlers: Handlers) -> None:
    last(handlers.run(visit, make_form(visit)))
    before = visit.shown
    stream = handlers.run(visit, make_form(visit, seed=3))
    for update in stream:
        if "comparison" in update:
            handlers.cancel(visit)
            break
    rest = last(stream)
    assert "Stopped" in rest["status"]
    assert rest["running"] is False
    assert visit.shown == before
    assert visit.cancel is None


def test_an_unexpected_error_shows_no_traceback(
    handlers: Handlers, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(visit.engine, "run", explode)
    update = last(handlers.run(visit, make_form(visit)))
    assert "did not expect" in update["status"]
    assert "secret detail" not in update["status"]


def test_a_closed_page_stops_its_run(handlers: Handlers, visit: Visit) -> None:
    stream = handlers.run(visit, make_form(visit))
    next(stream)
    next(stream)
    cancel = visit.cancel
    assert cancel is not None
    stream.close()
    assert cancel.is_set()
    assert visit.cancel is None
    assert handlers.lab.turns.wait(handlers.lab.turns.join(), 0.1) == 0, "the model is free again"


def test_each_step_switched_off_adds_columns() -> None:
    request = forms.read_request(make_form(ablate=("kvcomm",)))
    labels = [m.label for m in request.methods]
    assert labels[:3] == ["dense", "naive", "kvcomm"]
    assert "kvcomm without prefix_offset" in labels
    assert len(labels) == len(set(labels))


def test_declared_placeholders_become_inputs() -> None:
    form = make_form(declared="document", templates=templates(t0="{user_question} {document}"))
    assert forms.read_pipeline(form).inputs == ("user_question", "document")


def test_saved_record_opens_again(handlers: Handlers, visit: Visit) -> None:
    record = make_record(layers=3)
    update = handlers.open_record(visit, record.to_bytes())
    assert update["error_record"] == ""
    assert visit.record is not None
    assert visit.record.id == record.id
    assert handlers.lab.record(str(visit.shown)) is visit.record


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_broken_record_is_refused(content: bytes, handlers: Handlers, visit: Visit) -> None:
    assert "not a complete record" in handlers.open_record(visit, content)["error_record"]
    assert visit.record is None


def test_first_visit_shows_a_saved_run(tmp_path: Path) -> None:
    path = make_record(layers=3).save(tmp_path / "first.kvrun")
    _, update = Handlers(Lab(FakeModel, FakeSession), path).arrive("math-3")
    assert update["results"] is True
    path.write_bytes(b"damaged")
    _, update = Handlers(Lab(FakeModel, FakeSession), path).arrive("math-3")
    assert update["results"] is False


def test_visits_do_not_see_each_other(handlers: Handlers) -> None:
    (one, _), (two, _) = handlers.arrive("math-3"), handlers.arrive("math-3")
    assert one != two
    assert handlers.lab.visit(one).engine is not handlers.lab.visit(two).engine
    handlers.lab.close(one)
    with pytest.raises(LabError, match="Reload"):
        handlers.lab.visit(one)


def test_old_visits_end() -> None:
    lab = Lab(FakeModel, FakeSession)
    first = lab.open().id
    for _ in range(MOST_VISITS):
        lab.open()
    with pytest.raises(LabError):
        lab.visit(first)


def test_turns_are_first_come_first_served() -> None:
    turns = Turns()
    one, two, three = turns.join(), turns.join(), turns.join()
    assert [turns.wait(t, 0) for t in (one, two, three)] == [0, 1, 2]
    threading.Timer(0.05, turns.leave, (one,)).start()
    assert turns.wait(two, 5) == 0
    turns.leave(two)
    assert turns.wait(three, 0) == 0
