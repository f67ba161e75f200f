"""The page's behaviour without a browser: validation, errors beside fields, sessions, records."""

from __future__ import annotations

import base64
import dataclasses
import threading
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from bench_forms import last, make_form, templates
from fake_record import make_record
from fake_session import FakeModel, FakeSession

from backend.base.errors import LabError, OptionError
from backend.methods.registry import method_class, option_fields, profile_options
from backend.prompts.presets import load_preset, preset_names, preset_requests
from backend.prompts.variants import other_numbers
from backend.studies.gallery import GALLERY, GalleryEntry, save_gallery
from lab_app.app import FIRST_RUN
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline import live
from lab_app.pages.pipeline.examples import as_checked, read_gallery, scenarios
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Form
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.method_options import option_field, read_copies
from lab_app.pages.pipeline.results import repair_button, results
from lab_app.pages.pipeline.sections import proximity
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.pages.pipeline.state import state_of
from lab_app.ui.one_run import cancelled
from lab_app.ui.scenarios import USUAL_WARM
from lab_app.ui.types import Update
from lab_app.visits.queue import ModelQueue
from lab_app.visits.visits import ACTIVE_SECONDS, Visit, VisitStore


@pytest.fixture
def handlers() -> Handlers:
    return Handlers(VisitStore(FakeModel, FakeSession))


@pytest.fixture
def visit(handlers: Handlers) -> Visit:
    visit_id, _ = handlers.arrive("math-3")
    return handlers.lab.visit(visit_id)


PROFILES = ["published", "shipped", "corrected"]
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


def test_how_usual_the_question_is_stands_beside_it(handlers: Handlers, visit: Visit) -> None:
    def told(question: str) -> str:
        return str(handlers.familiar(visit, make_form(visit, values={"user_question": question}))["familiar"])

    assert "The model knows requests like this." in told("What is 1 + 1?")
    assert "Unusual for the model: “armadillo”." in told("An armadillo has 3 balls.")
    assert told("") == ""  # nothing to measure; what is missing is said elsewhere


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
    assert first["run.visible"] is True
    assert "kv-compare" in first["comparison"]
    last(handlers.run(visit, form))
    assert len(engine.warmed) == 5, "pools that hold something are not filled again"
    assert engine.requests[0].expected is not None


def test_a_question_of_ones_own_finds_anchors_in_open_wording(handlers: Handlers, visit: Visit) -> None:
    """Pools of one wording are emptied before they are filled with the other."""
    engine: Any = visit.engine
    stock, open_ = (
        preset_requests(load_preset("math-3"), 5, seed=1, open_words=kind) for kind in (False, True)
    )
    from_set = make_form(visit, warm_count=5)
    own = dataclasses.replace(from_set, values={"user_question": "Ada had 9 keys and lost 2. How many now?"})
    last(handlers.run(visit, own))
    assert engine.warmed == open_
    last(handlers.run(visit, dataclasses.replace(own, values={"user_question": "And with 3 more?"})))
    assert engine.warmed == open_, "one's next question finds them there"
    last(handlers.run(visit, from_set))
    assert engine.warmed == stock
    last(handlers.run(visit, dataclasses.replace(own, warm=False)))
    assert engine.warmed == stock, "who fills the pools by hand keeps them"
    handlers.forget(visit, own)
    last(handlers.warm_up(visit, own))
    assert engine.warmed == open_


def test_pools_can_be_filled_with_ones_own_request_in_other_numbers(handlers: Handlers, visit: Visit) -> None:
    """They are nobody else's, and another request of one's own asks for others."""
    engine: Any = visit.engine
    asked = {"user_question": "Ada had 19 keys and lost 2. How many now?"}
    own = dataclasses.replace(as_offered(visit, warm_count=4, warm_own=True), values=asked)
    last(handlers.run(visit, own))
    assert [example.values for example in engine.warmed] == other_numbers(asked, 4)
    assert engine.shared == [False]
    last(handlers.run(visit, own))
    assert engine.shared == [False]
    asked = {"user_question": "Bo had 7 keys and lost 2. How many now?"}
    last(handlers.run(visit, dataclasses.replace(own, values=asked)))
    assert [example.values for example in engine.warmed] == other_numbers(asked, 4)
    wordless = dataclasses.replace(own, values={"user_question": "How many keys?"})
    assert "no number" in handlers.refresh(visit, wordless)["errors"]["warm"]


def as_offered(visit: Visit, **changes: Any) -> Form:
    """The bench as the page fills it for a scenario."""
    usual = {"max_new_tokens": load_preset("math-3").pipeline.longest_answer}
    return make_form(visit, **(usual | changes))


def test_only_a_scenario_as_shipped_shares_what_its_set_leaves(handlers: Handlers, visit: Visit) -> None:
    """What a warm-up depends on is a visitor's own as soon as anything of it is changed."""
    engine: Any = visit.engine
    last(handlers.run(visit, as_offered(visit)))
    assert engine.shared == [True]
    own = templates(t1=make_form().templates[1] + " canary")
    changes: list[dict[str, Any]] = [
        {"templates": own}, {"warm_count": 3}, {"seed": 987654}, {"temperature": 0.5}, {"top_p": 0.9},
        {"max_new_tokens": 7}, {"turns": 2},
    ]  # fmt: skip
    for change in changes:
        last(handlers.warm_up(visit, as_offered(visit, **change)))
    assert engine.shared == [True] + [False] * len(changes)
    last(handlers.warm_up(visit, as_offered(visit)))
    assert engine.shared[-1] is True


@pytest.mark.parametrize("name", [n for n in preset_names() if load_preset(n).request_source != "file"])
def test_every_scenario_is_shared_as_the_page_offers_it(handlers: Handlers, name: str) -> None:
    """Also those of several turns, of tools and of declared texts."""
    preset = load_preset(name)
    _, update = handlers.arrive(name)
    form = Form(
        name, dict(preset_requests(preset, 1)[0].values), tuple(a.template for a in preset.pipeline.agents),
        ", ".join(preset.pipeline.declared), ("kvcomm",), max_new_tokens=update["max_new_tokens"],
    )  # fmt: skip
    assert forms.as_shipped(preset, forms.read_request(form), USUAL_WARM)


def test_pools_that_come_filled_cost_nothing_before_a_run(
    handlers: Handlers, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = as_offered(visit)
    own = as_offered(visit, templates=templates(t1=form.templates[1] + " canary"))
    live = handlers.refresh(visit, form)["cost"]
    assert "20 requests to the pools first" in live
    monkeypatch.setattr(FakeSession, "filled", True)
    assert "20 requests were computed before" in handlers.refresh(visit, form)["cost"]
    assert "20 requests to the pools first" in handlers.refresh(visit, own)["cost"]


def test_several_requests_are_run_one_by_one_and_counted(handlers: Handlers, visit: Visit) -> None:
    first = state_of(visit).next_example
    updates = list(handlers.run_many(visit, make_form(visit, many_count=3)))
    tallies = [u["tally"] for u in updates if u.get("tally")]
    assert [f"{n} of 3 requests" in page for n, page in enumerate(tallies, 1)] == [True] * 3
    assert state_of(visit).next_example == first + 3
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


def test_cancel_brings_the_earlier_results_back(visit: Visit, handlers: Handlers) -> None:
    last(handlers.run(visit, make_form(visit)))
    before = visit.shown
    stream = handlers.run(visit, make_form(visit, seed=3))
    for update in stream:
        if "comparison" in update:
            cancelled(visit, {})
            break
    rest = last(stream)
    assert "Stopped" in rest["status"]
    assert rest["run.visible"] is True
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


def test_every_other_profile_adds_a_column() -> None:
    request = forms.read_request(make_form(every_profile=("kvcomm",), methods=("kvcomm",)))
    assert [m.label for m in request.methods] == ["dense", "kvcomm", "kvcomm shipped", "kvcomm corrected"]
    shipped = request.methods[2].options
    assert (shipped["frame"], shipped["gate"]) == ("anchor's position", "shipped")
    # a profile that the boxes already say is not run twice; own settings stand beside all three
    boxes = {"kvcomm": profile_options("kvcomm", "shipped")}
    for options, others in ((boxes, ["published", "corrected"]), ({"kvcomm": {"gamma": 0.5}}, PROFILES)):
        form = make_form(every_profile=("kvcomm",), methods=("kvcomm",), options=options)
        labels = [m.label for m in forms.read_request(form).methods]
        assert labels[2:] == [f"kvcomm {name}" for name in others]


@pytest.mark.parametrize(
    ("given", "profile", "differ", "folded"),
    [
        ({}, "published", 0, 0),
        (profile_options("kvcomm", "shipped"), "shipped", 0, 13),
        (profile_options("kvcomm", "corrected"), "corrected", 0, 4),
        (profile_options("kvcomm", "shipped") | {"gamma": 0.5}, None, 1, 13),
        ({"capacity": 20.0}, "published", 0, 0),
        ({"capacity": None, "rotate": False}, None, 2, 0),
        ({"top_k": "many"}, None, 1, 1),
    ],
)
def test_the_profile_follows_the_boxes(
    given: dict[str, Any], profile: str | None, differ: int, folded: int, handlers: Handlers, visit: Visit
) -> None:
    update = handlers.refresh(visit, make_form(visit, options={"kvcomm": given}))
    found = update["profiles"]["kvcomm"]
    assert (found.profile, len(found.differ), found.folded) == (profile, differ, folded)
    note = pipeline_html.profile_note(found)
    assert ("Your own" in note) == (profile is None)


def test_too_many_columns_are_told_where_they_come_from(handlers: Handlers, visit: Visit) -> None:
    every = ("prefix", "naive", "kvcomm", "oracle")
    form = make_form(visit, methods=every, ablate=("kvcomm",), every_profile=("kvcomm",))
    told = handlers.refresh(visit, form)["errors"]
    assert list(told) == ["kvcomm"]
    assert "10 columns (5 methods with the full read and 5 by" in told["kvcomm"]
    assert "up to 8" in told["kvcomm"]
    assert handlers.refresh(visit, dataclasses.replace(form, ablate=()))["errors"] == {}


def kvcomm_copy(number: int = 2, **options: Any) -> forms.Copy:
    return forms.Copy("kvcomm", number, {"gamma": 0.5, "capacity": 20} | options)


def test_a_duplicated_column_runs_beside_its_original(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit, methods=("kvcomm",), copies=(kvcomm_copy(), kvcomm_copy(3, gamma=0.1)))
    request = forms.read_request(form)
    assert [m.label for m in request.methods] == ["dense", "kvcomm", "kvcomm 2", "kvcomm 3"]
    assert [m.options["gamma"] for m in request.methods[1:]] == [0.3, 0.5, 0.1]
    alone = forms.read_request(dataclasses.replace(form, methods=()))
    assert [m.label for m in alone.methods] == ["dense", "kvcomm 2", "kvcomm 3"]


def test_what_is_wrong_with_a_duplicated_column_is_told_below_the_columns(
    handlers: Handlers, visit: Visit
) -> None:
    for wrong, what in (({"gamma": 7}, "gamma"), ({"capacity": None}, "Pool size (V): this box is empty")):
        told = handlers.refresh(visit, make_form(visit, copies=(kvcomm_copy(**wrong),)))["errors"]
        assert list(told) == ["copies"]
        assert "KVCOMM 2: " in told["copies"]
        assert what in told["copies"]
    many = tuple(kvcomm_copy(n) for n in range(2, 8))
    told = handlers.refresh(visit, make_form(visit, copies=many))["errors"]["methods"]
    assert "9 columns (3 methods with the full read and 6 duplicated); up to 8" in told


def test_what_a_browser_sends_as_copies_is_read_box_by_box() -> None:
    good = {"of": "kvcomm", "number": 2, "values": {"kvcomm:gamma": 0.5, "kvcomm:rotate": False, "other": 1}}
    found = read_copies(
        [good, good, {**good, "number": 1}, {**good, "of": "dense"}, {**good, "number": 3, "values": 4}, "x"]
    )
    assert [(c["of"], c["number"]) for c in found] == [("kvcomm", 2), ("kvcomm", 3)]
    values = found[0]["values"]
    assert (values["kvcomm:gamma"], values["kvcomm:rotate"], values["kvcomm:capacity"]) == (0.5, False, 20)
    assert "other" not in values
    for nothing in (None, {}, "x", [None]):
        assert read_copies(nothing) == []


def test_pinning_a_column_redraws_the_comparison_and_is_no_edit(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit)
    last(handlers.run(visit, form))
    assert "kv-differences" not in results(visit)["comparison"]
    update = handlers.refresh(visit, dataclasses.replace(form, pinned="kvcomm"))
    assert "KVCOMM is pinned as A" in update["comparison"]
    assert "status" not in update
    assert "comparison" not in handlers.refresh(visit, dataclasses.replace(form, pinned="kvcomm"))


def test_an_empty_box_is_named(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit, options={"kvcomm": {"temperature": None}})
    assert "Softmax temperature" in handlers.refresh(visit, form)["errors"]["kvcomm"]


# -- the Proximity tab


MEASURE = "proximity_measure.interactive"


def asked(**changes: Any) -> dict[str, Any]:
    changes = {"vocabulary": 100, "pairs": 12} | changes
    return proximity.SECTION.usual | {f"proximity_{name}": value for name, value in changes.items()}


def test_the_prefixes_are_role_texts_at_first() -> None:
    prefix_a, prefix_b, *numbers = proximity.SECTION.usual.values()
    assert prefix_a.startswith("You are a math solver")
    assert prefix_b.startswith("You are the judge")
    assert "{" not in prefix_a + prefix_b
    assert numbers == [4000, 300, 0]


def test_a_measurement_needs_no_run(handlers: Handlers, visit: Visit) -> None:
    assert visit.record is None
    updates = list(proximity.SECTION.measure(handlers.lab, visit, asked()))
    assert any("Behind prefix" in u.get("proximity_status", "") for u in updates)
    merged = last(updates)
    assert [u[MEASURE] for u in updates if MEASURE in u] == [False, True]
    keys = [view["key"] for view in merged["view_proximity"]["views"]]
    assert len(keys) == len(set(keys)) == 8
    assert all(view["csv"] for view in merged["view_proximity"]["views"][:7])
    assert not any(merged[f"error_proximity_{name}"] for name in (*proximity.SECTION.fields, "measure"))
    assert "proximity" in visit.results
    token, record = visit.results["proximity"]
    assert f"lab/measured/proximity/{token}" in merged["proximity_status"]
    assert handlers.lab.result("proximity", token) is record
    assert handlers.lab.result("proximity", "another") is None
    drawn = [
        {key: part for key, part in view.items() if key != "csv"}
        for view in merged["view_proximity"]["views"]
    ]
    assert "<script" not in str(merged | {"view_proximity": drawn}), "a file has the tokens as they are"
    assert visit.record is None, "it is no run"


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        ({"pairs": 3}, {"pairs"}),
        ({"pairs": None, "seed": 1.5, "vocabulary": 10**9}, {"pairs", "seed", "vocabulary"}),
        ({"prefix_a": "x" * 6000}, {"prefix_a"}),
        ({"prefix_a": "\ud800", "prefix_b": "\x00", "seed": -1}, {"prefix_a", "prefix_b", "seed"}),
    ],
)
def test_a_refused_measurement_is_told_beside_its_box(
    changes: dict[str, Any], slots: set[str], handlers: Handlers, visit: Visit
) -> None:
    found = last(proximity.SECTION.measure(handlers.lab, visit, asked(**changes)))
    told = {name for name in (*proximity.SECTION.fields, "measure") if found[f"error_proximity_{name}"]}
    assert told == slots
    assert "view_proximity" not in found
    assert not visit.measuring
    assert found[MEASURE] is True


def test_an_edit_after_a_measurement_is_announced(handlers: Handlers, visit: Visit) -> None:
    assert "proximity_status" not in proximity.SECTION.edited(visit, asked())
    last(proximity.SECTION.measure(handlers.lab, visit, asked()))
    assert "Edited" in proximity.SECTION.edited(visit, asked(seed=1))["proximity_status"]
    assert "seed 0" in proximity.SECTION.edited(visit, asked())["proximity_status"]
    assert "allowed" in proximity.SECTION.edited(visit, asked(pairs=0))["error_proximity_pairs"]


def test_one_measurement_at_a_time(handlers: Handlers, visit: Visit) -> None:
    stream = proximity.SECTION.measure(handlers.lab, visit, asked())
    next(stream)
    [busy] = proximity.SECTION.measure(handlers.lab, visit, asked())
    assert "still going on" in busy["proximity_status"]
    stream.close()  # the page was closed
    assert not visit.measuring
    assert handlers.lab.turns.wait(handlers.lab.turns.join(), 0.1) == 0, "the model is free again"


def test_a_measurement_waits_for_its_turn(handlers: Handlers, visit: Visit) -> None:
    ticket = handlers.lab.turns.join()
    stream = proximity.SECTION.measure(handlers.lab, visit, asked())
    next(stream)
    assert "1 run before you" in next(stream)["proximity_status"]
    handlers.lab.turns.leave(ticket)
    assert "view_proximity" in last(stream)


def test_a_measurement_that_breaks_shows_no_traceback(
    handlers: Handlers, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(visit.engine, "study", explode)
    found = last(proximity.SECTION.measure(handlers.lab, visit, asked()))
    assert "did not expect" in found["proximity_status"]
    assert "secret detail" not in str(found)
    assert not visit.measuring


def test_declared_placeholders_become_inputs() -> None:
    form = make_form(declared="document", templates=templates(t0="{user_question} {document}"))
    assert forms.read_pipeline(form).inputs == ("user_question", "document")


def test_saved_record_opens_again(handlers: Handlers, visit: Visit) -> None:
    record = make_record(layers=3)
    update = Sharing(handlers.lab).open_file(visit, record.to_bytes())
    assert update["error_record"] == ""
    assert visit.record is not None
    assert visit.record.id == record.id
    assert handlers.lab.record(str(visit.shown)) is visit.record


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_broken_record_is_refused(content: bytes, handlers: Handlers, visit: Visit) -> None:
    assert "not a complete record" in Sharing(handlers.lab).open_file(visit, content)["error_record"]
    assert visit.record is None


def test_first_visit_shows_a_saved_run(tmp_path: Path) -> None:
    path = make_record(layers=3).save(tmp_path / "first.kvrun")
    _, update = Handlers(VisitStore(FakeModel, FakeSession), path).arrive("math-3")
    assert update["results.visible"] is True
    path.write_bytes(b"damaged")
    _, update = Handlers(VisitStore(FakeModel, FakeSession), path).arrive("math-3")
    assert update["results.visible"] is False


def test_visits_do_not_see_each_other(handlers: Handlers) -> None:
    (one, _), (two, _) = handlers.arrive("math-3"), handlers.arrive("math-3")
    assert one != two
    assert handlers.lab.visit(one).engine is not handlers.lab.visit(two).engine
    handlers.lab.close(one)
    with pytest.raises(LabError, match="Reload"):
        handlers.lab.visit(one)


def test_what_opens_a_visit_or_a_record_cannot_be_guessed(handlers: Handlers) -> None:
    visits = [handlers.lab.visit(handlers.arrive("math-3")[0]) for _ in range(2)]
    made = make_record(layers=3)
    keys = [visit.id for visit in visits] + [visit.keep(made) for visit in visits for _ in range(2)]
    assert len(set(keys)) == 6
    assert all(len(base64.urlsafe_b64decode(key)) >= 16 for key in keys)
    assert handlers.lab.record(made.id) is None, "the number that a person sees finds nothing"


def test_old_visits_end() -> None:
    lab = VisitStore(FakeModel, FakeSession)
    first = lab.open().id
    lab.visit(first).used -= ACTIVE_SECONDS + 1
    for _ in range(lab.limits.visits):
        lab.open()
    with pytest.raises(LabError):
        lab.visit(first)


def test_turns_are_first_come_first_served() -> None:
    turns = ModelQueue()
    one, two, three = turns.join(), turns.join(), turns.join()
    assert [turns.wait(t, 0) for t in (one, two, three)] == [0, 1, 2]
    threading.Timer(0.05, turns.leave, (one,)).start()
    assert turns.wait(two, 5) == 0
    turns.leave(two)
    assert turns.wait(three, 0) == 0


def entry(name: str, effect: Any, preset: str, reused: str | None, index: int = 0) -> GalleryEntry:
    found = preset_requests(load_preset(preset), index + 1)[index]
    answer = str(found.answer)
    return GalleryEntry(name, effect, preset, dict(found.values), answer, answer, reused)


def gallery_file(folder: Path, weights: str = FakeModel.info.weights_hash) -> Path:
    """Two flips and a harmless one, and an example of a scenario that is gone."""
    harmless = entry("kept", "harmless", "program-loop", None)
    entries = (
        entry("majority", "flip", "judge-majority", "2"),
        entry("judge", "flip", "math-3", None, index=2),
        dataclasses.replace(harmless, reused=harmless.dense),
        dataclasses.replace(harmless, name="gone", preset="no-such-scenario"),
    )
    path = folder / "gallery.json"
    save_gallery(weights, entries, path)
    return path


@pytest.fixture
def with_gallery(tmp_path: Path) -> Handlers:
    return Handlers(VisitStore(FakeModel, FakeSession), gallery=read_gallery(gallery_file(tmp_path)))


def as_sent(update: Update, visit: Visit, **changes: Any) -> Form:
    """The bench as the browser would send it back after an update."""
    values = {name: update[f"value_{slot}"] for slot, name in enumerate(state_of(visit).value_names)}
    templates = tuple(update[f"template_{slot}"] for slot in range(AGENT_SLOTS))
    made = Form(
        update["preset"], values, templates, update["declared"], tuple(update.get("methods", ("naive",))),
        max_new_tokens=update["max_new_tokens"],
    )  # fmt: skip
    return dataclasses.replace(made, **changes)


def test_gallery_is_offered_flips_first_and_by_family(with_gallery: Handlers) -> None:
    _, update = with_gallery.arrive("math-3")
    assert update["gallery.visible"] is True
    assert update["pick_effect"] == (
        [("Answer changes · 2", "flip"), ("Answer stays · 1", "harmless")], "flip",
    )  # fmt: skip
    rows, picked = update["pick_example"]
    assert picked == ""
    assert [name for _, name in rows] == ["", "judge", "majority"]
    assert rows[1][0].startswith("Three solvers and a judge · full read ")
    assert rows[1][0].endswith("reused no answer")
    assert rows[2][0] == "Judge: the majority · full read 1, 2, 3 and 4, reused 2"
    assert "checked" not in update["gallery_note"].lower()


def test_a_checked_example_fills_the_bench(with_gallery: Handlers) -> None:
    visit = with_gallery.lab.visit(with_gallery.arrive("math-3")[0])
    edited = make_form(
        visit, methods=("kvcomm",), mode="free", temperature=1, options={"naive": {"rotate": False}}
    )
    update = with_gallery.scenarios.choose_example(visit, edited, "majority")
    preset = load_preset("judge-majority")
    assert update["preset"] == "judge-majority"
    assert update["template_0"] == preset.pipeline.agents[0].template
    assert update["methods"] == ["naive", "kvcomm"]
    assert (update["mode"], update["temperature"]) == ("pinned", 0)
    assert update["options"]["naive"]["rotate"] is True
    assert "1 and 2 and 3 and 4" in update["known"]
    assert "copy and reposition" in update["gallery_note"]
    form = as_sent(update, visit)
    assert form.values == preset_requests(preset, 1)[0].values
    request = forms.read_request(form, state_of(visit).example)
    assert request.expected == "1 and 2 and 3 and 4"
    assert [m.name for m in request.methods] == ["dense", "naive", "kvcomm"]
    assert "copy and reposition" in with_gallery.refresh(visit, form)["gallery_note"]
    last(with_gallery.run(visit, form))
    assert visit.engine.requests[-1].expected == "1 and 2 and 3 and 4"  # type: ignore[attr-defined]
    # what is edited is no longer what was checked, nor scored
    changed = dataclasses.replace(form, values={**form.values, "candidate_1": "The answer is 3"})
    after = with_gallery.refresh(visit, changed)
    assert "Edited since" in after["gallery_note"]
    assert "no known answer" in after["known"]
    for other in ({"mode": "free"}, {"methods": ("kvcomm",)}, {"options": {"naive": {"rotate": False}}}):
        assert (
            "Edited since" in with_gallery.refresh(visit, dataclasses.replace(form, **other))["gallery_note"]
        )


@pytest.mark.parametrize("leave", ["scenario", "next", "none", "effect"])
def test_leaving_a_checked_example_clears_the_choice(leave: str, with_gallery: Handlers) -> None:
    visit = with_gallery.lab.visit(with_gallery.arrive("math-3")[0])
    filled = with_gallery.scenarios.choose_example(visit, make_form(visit), "judge")
    update = {
        "scenario": lambda: with_gallery.scenarios.choose(visit, "math-2"),
        "next": lambda: with_gallery.scenarios.next_example(visit, "math-3"),
        "none": lambda: with_gallery.scenarios.choose_example(visit, make_form(visit), ""),
        "effect": lambda: with_gallery.scenarios.choose_effect(visit, "harmless"),
    }[leave]()
    assert state_of(visit).gallery_entry is None
    assert update.get("pick_example.value", update.get("pick_example", ((), ""))[1]) == ""
    assert with_gallery.refresh(visit, as_sent(filled | update, visit))["gallery_note"] == ""


def test_harmless_examples_say_so(with_gallery: Handlers) -> None:
    visit = with_gallery.lab.visit(with_gallery.arrive("math-3")[0])
    rows, picked = with_gallery.scenarios.choose_effect(visit, "harmless")["pick_example"]
    assert (len(rows), picked) == (2, "")
    update = with_gallery.scenarios.choose_example(visit, make_form(visit), "kept")
    assert "both answer" in update["gallery_note"]
    assert update["value_0"].startswith("def f(n):\n    for "), "a program keeps its lines"
    assert (
        forms.read_request(as_sent(update, visit), state_of(visit).example).values["user_question"]
        == update["value_0"]
    )


def test_other_weights_are_told(tmp_path: Path) -> None:
    handlers = Handlers(
        VisitStore(FakeModel, FakeSession), gallery=read_gallery(gallery_file(tmp_path, "other"))
    )
    visit_id, update = handlers.arrive("math-3")
    visit = handlers.lab.visit(visit_id)
    assert update["gallery.visible"] is True
    picked = handlers.scenarios.choose_example(visit, make_form(visit), "judge")
    for said in (update, picked, handlers.refresh(visit, make_form(visit))):
        assert "other weights" in said["gallery_note"]


@pytest.mark.parametrize(
    "content", [None, "", "{", "[]", '{"weights": "x"}', '{"weights": "x", "entries": [3]}']
)
def test_no_gallery_no_control(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "gallery.json"
    if content is not None:
        path.write_text(content)
    handlers = Handlers(VisitStore(FakeModel, FakeSession), gallery=read_gallery(path))
    visit_id, update = handlers.arrive("math-3")
    assert update["gallery.visible"] is False
    assert "pick_example" not in update
    visit = handlers.lab.visit(visit_id)
    assert handlers.refresh(visit, make_form(visit))["gallery_note"] == ""
    for name in ("majority", 3, ["x"]):
        with pytest.raises(LabError, match="no example"):
            handlers.scenarios.choose_example(visit, make_form(visit), name)
    with pytest.raises(LabError, match="Choose another"):
        handlers.scenarios.choose_effect(visit, "flip")


def test_every_scenario_fits_the_bench(handlers: Handlers, visit: Visit) -> None:
    rows = scenarios("math-3")
    assert sorted(name for _, name in rows) == list(preset_names())
    families = [name.split("-")[0] for _, name in rows]
    assert list(dict.fromkeys(families)) == [
        "math",
        "judge",
        "documents",
        "archive",
        "message",
        "react",
        "program",
        "gsm8k",
        "mmlu",
        "humaneval",
        "chat",
        "summaries",
    ]
    assert families == sorted(families, key=families.index), "the families stand together"
    assert [n for _, n in rows if n.startswith("documents")] == [
        "documents-one-hop",
        "documents-5",
        "documents-10",
    ]
    for _, name in rows:
        update = handlers.scenarios.choose(visit, name)
        pipeline = load_preset(name).pipeline
        assert len(pipeline.agents) <= AGENT_SLOTS
        assert len(pipeline.inputs) <= VALUE_SLOTS
        assert state_of(visit).value_names[0] == "user_question"
        assert sorted(state_of(visit).value_names) == sorted(pipeline.inputs)
        form = as_sent(update, visit)
        fits = load_preset(name).model == "embedded"  # others are too long for this model, and say so
        assert handlers.refresh(visit, form)["errors"] == {} or not fits
        assert forms.read_request(form, state_of(visit).example).expected == state_of(visit).example.answer  # type: ignore[union-attr]


def test_attention_is_recorded_unasked_where_it_is_cheap() -> None:
    for parameters, expected in ((4_400_000, True), (8_000_000_000, False)):
        model = FakeModel()
        model.info = dataclasses.replace(model.info, parameters=parameters)
        _, update = Handlers(VisitStore(lambda model=model: model, FakeSession)).arrive("math-3")
        assert update["attention"] is expected


def test_a_run_without_attention_offers_it_with_one_button(handlers: Handlers, visit: Visit) -> None:
    record = make_record(layers=3)
    for asked, key in ((False, "attention_off"), (True, "attention_slots_first")):
        visit.keep(
            dataclasses.replace(record, request=dataclasses.replace(record.request, probe_attention=asked))
        )
        view = handlers.redraw(visit, None, None, None, "attention")["view_attention"]["views"][0]
        assert view["key"] == key
        assert ('data-kv="attention"' in view.get("html", "")) is not asked


# -- a run follows its methods' controls, and what does not follow is told


def never() -> Any:
    raise AssertionError("no run was to begin")


def finished_run(handlers: Handlers, visit: Visit) -> Form:
    form = make_form(visit)
    handlers.refresh(visit, form)
    last(handlers.run(visit, form))
    return form


def test_a_moved_control_changes_the_run_on_the_screen_without_run(handlers: Handlers, visit: Visit) -> None:
    form = finished_run(handlers, visit)
    moved = dataclasses.replace(
        form, options={"kvcomm": {"gamma": 0.5, "capacity": 20}}, copies=(kvcomm_copy(),)
    )
    assert "status" not in handlers.refresh(visit, moved), "no banner: the change comes by itself"
    shown, before = visit.shown, visit.record
    first, done = list(live.change(visit, moved, ("3", "naive", ""), never))
    assert visit.engine.revised[-1].methods[-1].label == "kvcomm 2"  # type: ignore[attr-defined]
    assert "kv-out-pending" in first["comparison"]
    assert "verdict" not in first, "no verdict on answers that are still written"
    assert done["selection"].method == "naive", "what was looked at stays"
    assert "kv-out-pending" not in done["comparison"]
    assert done["status"] == ""
    assert (visit.shown, visit.record is before) == (shown, False)
    assert list(live.change(visit, moved, ("", "", ""), never)) == [{}], "nothing is left to change"
    assert "status" not in handlers.refresh(visit, moved)


def test_what_is_no_method_is_not_changed_without_run(handlers: Handlers, visit: Visit) -> None:
    form = finished_run(handlers, visit)
    for other in ({"values": {"user_question": "Else?"}}, {"mode": "free"}, {"temperature": 1.0}):
        edited = dataclasses.replace(form, **other)
        assert list(live.change(visit, edited, ("", "", ""), never)) == [{}]
        assert "edited since" in handlers.refresh(visit, edited)["status"]
        assert handlers.refresh(visit, form)["status"] == "", "taken back"


def test_a_change_that_needs_a_run_says_so(handlers: Handlers, visit: Visit, monkeypatch: Any) -> None:
    form = finished_run(handlers, visit)
    moved = dataclasses.replace(form, methods=("naive",))
    for field, seconds, begins in (("methods", 1.0, False), ("run", 60.0, False), ("run", 1.0, True)):

        def refuse(*asked: Any, field: str = field, **more: Any) -> Any:
            raise OptionError("not held", field=field)

        monkeypatch.setattr(visit.engine, "revise", refuse)
        state_of(visit).seconds, state_of(visit).run_token = seconds, ""
        told = last(live.change(visit, moved, ("", "", ""), lambda: iter([{"run.visible": False}])))
        assert ("run.visible" in told) == begins
        assert ("edited since" in told.get("status", "")) == (not begins)
    # what a run of this visit left is gone: it is not run over and over
    state_of(visit).run_token = visit.shown or ""
    assert "edited since" in last(live.change(visit, moved, ("", "", ""), never))["status"]
    wrong = dataclasses.replace(form, options={"kvcomm": {"gamma": 7}})
    assert "edited since" in last(live.change(visit, wrong, ("", "", ""), never))["status"]


def test_a_question_edited_during_a_run_leaves_a_banner_at_its_end(handlers: Handlers, visit: Visit) -> None:
    form = make_form(visit)
    run = handlers.run(visit, form)
    next(run)
    handlers.refresh(visit, dataclasses.replace(form, values={"user_question": "Something else?"}))
    assert "edited since" in last(run)["status"]


def test_a_question_edited_during_a_change_leaves_a_banner_at_its_end(
    handlers: Handlers, visit: Visit
) -> None:
    """On a busy machine a change takes long enough for an edit to come between."""
    form = finished_run(handlers, visit)
    moved = dataclasses.replace(form, copies=(kvcomm_copy(),))
    handlers.refresh(visit, moved)
    change = live.change(visit, moved, ("", "", ""), never)
    assert "kv-out-pending" in next(change)["comparison"]
    edited = dataclasses.replace(moved, values={"user_question": "Something else?"})
    assert "Run again" in handlers.refresh(visit, edited)["status"]
    assert "Run again" in last(change)["status"]
    assert handlers.refresh(visit, moved)["status"] == "", "taken back"


@pytest.mark.parametrize("of", ["a run", "a change"])
def test_an_edit_that_overtakes_the_last_answer_is_told_behind_it(
    of: str, handlers: Handlers, visit: Visit
) -> None:
    """The last answer is large; one that was edited meanwhile may be on the page before it."""
    form = finished_run(handlers, visit)
    moved = dataclasses.replace(form, copies=(kvcomm_copy(),))
    handlers.refresh(visit, moved)
    steps = handlers.run(visit, moved) if of == "a run" else live.change(visit, moved, ("", "", ""), never)
    for update in steps:
        if "strip" in update and update.get("status") == "":
            break
    edited = dataclasses.replace(moved, values={"user_question": "Something else?"})
    said = handlers.refresh(visit, edited)
    assert ("status" in said) is (of == "a change"), "while a run goes on, its end says so"
    assert "Run again" in last(steps)["status"]


def test_an_emptied_question_keeps_the_banner(handlers: Handlers, visit: Visit) -> None:
    form = finished_run(handlers, visit)
    update = handlers.refresh(visit, dataclasses.replace(form, values={"user_question": ""}))
    assert "edited since" in update["status"]
    assert "Cannot run yet" in update["cost"]
    assert "The question is empty" in update["cost"]


def test_a_text_longer_than_the_model_reads_is_told_before_run(handlers: Handlers, visit: Visit) -> None:
    words = handlers.lab.model.info.context_tokens
    update = handlers.refresh(visit, make_form(visit, values={"user_question": "a " * words}))
    assert list(update["errors"]) == ["value_0"]
    assert "Question: too long" in update["errors"]["value_0"]
    assert "Question: too long" in update["cost"]
    told = last(handlers.run(visit, make_form(visit, values={"user_question": "a " * words})))
    assert "too long" in told["errors"]["value_0"]
    assert not visit.engine.requests  # type: ignore[attr-defined]


def test_another_request_beside_the_opening_run_is_told(tmp_path: Path) -> None:
    preset = load_preset("math-3")
    record = make_record(layers=4)
    values = dict(preset_requests(preset, 1)[0].values)
    request = dataclasses.replace(
        record.request, pipeline=preset.pipeline, values=values, expected=None,
        methods=forms.read_request(make_form(options={})).methods,
    )  # fmt: skip
    first = dataclasses.replace(record, request=request).save(tmp_path / "first.kvrun")
    handlers = Handlers(VisitStore(FakeModel, FakeSession), first, read_gallery(gallery_file(tmp_path)))
    visit_id, update = handlers.arrive("math-3")
    visit = handlers.lab.visit(visit_id)
    opening = as_sent(update, visit, methods=("naive", "kvcomm"), max_new_tokens=96)
    assert "status" not in handlers.refresh(visit, opening), "the note on the saved run stays"
    chosen = as_sent(update | handlers.scenarios.choose_example(visit, opening, "majority"), visit)
    assert "edited since" in handlers.refresh(visit, chosen)["status"]


def test_pools_that_come_filled_are_not_called_empty(handlers: Handlers, visit: Visit) -> None:
    assert ": empty." in handlers.refresh(visit, make_form(visit))["pools"]
    visit.engine.filled = True  # type: ignore[attr-defined]
    form = make_form(visit, max_new_tokens=load_preset("math-3").pipeline.longest_answer)
    update = handlers.refresh(visit, form)
    assert "come filled" in update["cost"]
    assert "20 requests at the next run" in update["pools"]
    own = dataclasses.replace(form, values={"user_question": "Ada had 9 keys and lost 2. How many now?"})
    assert "20 requests in open wording at the next run" in handlers.refresh(visit, own)["pools"]


def test_no_shipped_example_is_called_edited_before_anybody_touched_it() -> None:
    gallery = read_gallery(GALLERY)
    handlers = Handlers(VisitStore(FakeModel, FakeSession), gallery=gallery)
    visit = handlers.lab.visit(handlers.arrive("math-3")[0])
    assert gallery.entries
    for entry in gallery.entries:
        update = handlers.scenarios.choose_example(visit, make_form(visit), entry.name)
        form = as_sent(
            update, visit, turns=update["turns"], weights=update["weights"], options=update["options"]
        )
        assert as_checked(form, entry), entry.name


def test_the_shipped_opening_run_is_what_the_form_asks() -> None:
    handlers = Handlers(VisitStore(FakeModel, FakeSession), FIRST_RUN)
    visit_id, update = handlers.arrive("math-3")
    visit = handlers.lab.visit(visit_id)
    form = as_sent(update, visit, methods=("naive", "kvcomm"), turns=update["turns"])
    handlers.refresh(visit, form)
    assert state_of(visit).run_form is not None, "so that edits beside it are told"
    edited = dataclasses.replace(form, values={"user_question": "Something else?"})
    assert "edited since" in handlers.refresh(visit, edited)["status"]


def test_where_the_gate_refused_everything_a_button_sets_what_would_let_it_pass() -> None:
    """Gamma to a step of its slider, in the box that the page has for it, or nearer anchors."""
    record = make_record()
    assert repair_button(record) == ""

    def button(rule: str) -> str:
        def refusing(outcome: Any) -> Any:
            gate = tuple(dataclasses.replace(g, shareable=False, rule=rule) for g in outcome.gate)
            return dataclasses.replace(outcome, gate=gate, actions=outcome.actions * 0)

        refused = [refusing(o) if o.method == "kvcomm" else o for o in record.outcomes]
        return unescape(repair_button(dataclasses.replace(record, outcomes=tuple(refused))))

    [gamma] = [option for option in option_fields(method_class("kvcomm")) if option.name == "gamma"]
    assert f'{{"{option_field("kvcomm", gamma).look["id"]}-box": 0.3}}' in button("entropy")
    assert "data-run" not in button("entropy")
    assert '"kv-warm-own-box": true' in button("longer than every anchor")
    assert "data-run" in button("longer than every anchor")
    assert button("empty pool") == ""
