"""Sharing on the page without a browser: links, stored runs, files, undo, what a tab carries over."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import subprocess
import sys
import zipfile
from html import unescape
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from bench_forms import last, make_form, templates
from fake_record import make_record
from fake_session import FakeModel, FakeSession
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.base.errors import LabError, RecordError
from backend.methods.registry import method_class, option_fields
from backend.prompts.presets import load_preset, preset_names, preset_requests
from backend.records.run import RunRecord
from backend.records.sharing.bundle import Bundle, read_bundle, read_run
from backend.records.sharing.links import to_link
from backend.records.sharing.store import SharedRuns
from lab_app.cli.main import main
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.form_json import form_from_json, form_to_json, from_record, ordered
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.layout import build_page
from lab_app.pages.pipeline.sharing.actions import STORED_OF_A_VISIT, Sharing, restore
from lab_app.pages.pipeline.state import state_of
from lab_app.pages.pipeline.undo import Step, UndoStack
from lab_app.visits.visits import Visit, VisitStore
from viz.run.report import report_html as report

ROOT = Path(__file__).parents[3]
TITLE = load_preset("math-3").pipeline.title
OWN = ("",) * len(templates())  # every agent on the lab's own weights


@pytest.fixture
def lab(tmp_path: Path) -> VisitStore:
    return VisitStore(FakeModel, FakeSession, shared=SharedRuns(tmp_path / "data"))


@pytest.fixture
def sharing(lab: VisitStore) -> Sharing:
    return Sharing(lab)


@pytest.fixture
def visit(lab: VisitStore) -> Visit:
    found, _ = Handlers(lab).arrive("math-3")
    return lab.visit(found)


def whole(form: Form) -> Form:
    """A form as the page sends it: every option of every method."""
    given = {
        name: {f.name: f.default for f in option_fields(method_class(name))}
        | dict(form.options.get(name, {}))
        for name in ("naive", "kvcomm", "cacheblend")
    }
    return dataclasses.replace(form, options=given)


def fragment(update: dict[str, Any]) -> str:
    """The part of the link behind #, as the page shows it."""
    shown = update["share_link"]
    assert "kv-shared-link" in shown, shown
    return str(shown).partition('href="#')[2].partition('"')[0]


def carried(address: str = "", draft: Any = None) -> str:
    return json.dumps({"address": address, "draft": draft})


# -- the bench as values


@pytest.mark.parametrize("name", preset_names())
def test_every_scenario_survives_a_link(name: str) -> None:
    preset = load_preset(name)
    values = dict(preset_requests(preset, 1)[0].values) if preset.request_source != "file" else {}
    agents = preset.pipeline.agents
    form = ordered(
        whole(
            Form(
                name, values, tuple(a.template for a in agents), ", ".join(preset.pipeline.declared),
                ("naive",), max_new_tokens=preset.pipeline.longest_answer, turns=preset.pipeline.turns,
                weights=tuple(a.model for a in agents),
            )
        )
    )  # fmt: skip
    back, _ = form_from_json(form_to_json(form))
    for field in dataclasses.fields(Form):
        if field.name != "options":
            assert getattr(back, field.name) == getattr(form, field.name), field.name
    assert all(dict(back.options[m]) == given for m, given in form.options.items())


EDITS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["pinned", "free"]),
        "seed": st.none() | st.integers(-5, 10**6),
        "temperature": st.none() | st.floats(-1, 9, allow_nan=False),
        "methods": st.lists(st.sampled_from(["naive", "kvcomm", "epic"]), unique=True).map(tuple),
        "ablate": st.just(("kvcomm",)),
        "every_profile": st.just(("kvcomm",)),
        "attention": st.booleans(),
        "turns": st.sampled_from([1, 3, ""]),
        "warm": st.booleans(),
        "warm_count": st.none() | st.integers(0, 300),
        "values": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).map(
            lambda text: {"user_question": text}
        ),
    },
)


@given(EDITS, st.none() | st.floats(0, 2, allow_nan=False), st.text("ab{}_ <>&\"'\n", max_size=40))
@settings(max_examples=12)
def test_any_edit_survives_a_link(edits: dict[str, Any], gamma: float | None, template: str) -> None:
    form = whole(make_form(**{"max_new_tokens": 96, "turns": 1, "weights": OWN} | edits))
    options = {**form.options, "kvcomm": {**form.options["kvcomm"], "gamma": gamma}}
    form = dataclasses.replace(form, options=options, templates=templates(t1=template))
    back, _ = form_from_json(form_to_json(form))
    assert {**dataclasses.asdict(back), "options": 0} == {**dataclasses.asdict(form), "options": 0}
    assert back.options["kvcomm"] == options["kvcomm"]


GOOD: dict[str, Any] = {
    "format": 1,
    "preset": "math-3",
    "values": {"user_question": "2 + 2?"},
    "methods": ["naive"],
}
BAD: list[Any] = [
    None, [], "x", 7, {}, {"format": 2}, {"format": 1}, {"format": 1, "preset": "../../x"},
    {**GOOD, "surprise": 1}, {**GOOD, "values": []}, {**GOOD, "values": {"a": 1}},
    {**GOOD, "values": {"a": "\0"}},
    {**GOOD, "values": {str(i): "" for i in range(99)}}, {**GOOD, "templates": {"99": "x"}},
    {**GOOD, "templates": {"1": "x" * 300_000}}, {**GOOD, "methods": "naive"}, {**GOOD, "methods": ["magic"]},
    {**GOOD, "methods": [["naive"]]}, {**GOOD, "methods": ["dense"]},
    {**GOOD, "options": {"naive": {"speed": 1}}},
    {**GOOD, "options": {"magic": {}}}, {**GOOD, "options": {"kvcomm": {"rotate": 1}}},
    {**GOOD, "options": {"kvcomm": {"gamma": "<b>"}}}, {**GOOD, "options": {"kvcomm": {"gate": "<b>"}}},
    {**GOOD, "options": {"kvcomm": {"gate": ["entropy"]}}}, {**GOOD, "seed": True}, {**GOOD, "seed": "1"},
    {**GOOD, "seed": 1e300}, {**GOOD, "mode": "wild"}, {**GOOD, "attention": 1}, {**GOOD, "turns": [1]},
    {**GOOD, "known": 4}, {**GOOD, "weights": {"1": 2}}, {**GOOD, "declared": 1},
]  # fmt: skip


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_a_bench_of_another_kind_is_refused(body: Any, sharing: Sharing, visit: Visit) -> None:
    with pytest.raises(RecordError):
        form_from_json(body)
    before = state_of(visit).value_names
    told = sharing.arrive(visit, carried("c=" + to_link(body)) if body != BAD[14] else "{")
    assert "kv-status-error" in told["status"]
    assert "<b>" not in told["status"]
    assert state_of(visit).value_names == before, "nothing on the bench was changed"


# -- links


def test_a_link_brings_the_bench_and_its_known_answer(
    sharing: Sharing, visit: Visit, lab: VisitStore
) -> None:
    edited = templates(t1="Odd <script> {user_question} {agent_1_current} 🙂")
    form = whole(make_form(visit, methods=("kvcomm",), seed=7, templates=edited, turns=1, weights=OWN))
    link = fragment(sharing.link(visit, form))
    assert link.startswith("c=")
    assert not list((lab.shared._files).iterdir()), "nothing is stored"  # type: ignore[union-attr]
    other = lab.open()
    update = sharing.arrive(other, carried(link))
    assert (update["preset"], update["seed"], update["methods"]) == ("math-3", 7, ["kvcomm"])
    assert update["template_1"] == edited[1]
    assert update["value_0"] == "" or update["values"][0].text == form.values["user_question"]
    assert state_of(other).example is not None
    assert state_of(visit).example is not None
    assert state_of(other).example.answer == state_of(visit).example.answer
    assert state_of(other).value_names == ("user_question",)
    assert other.record is None


@pytest.mark.parametrize("broken", [False, True])
def test_a_link_that_cannot_run_is_not_run(lab: VisitStore, visit: Visit, broken: bool) -> None:
    """Also where the page's own form, which would run in a moment, is read before it, and behind the link."""
    handlers, form = Handlers(lab), make_form(visit, warm=False)
    linked = dataclasses.replace(form, seed=None if broken else 7)
    assert handlers.refresh(visit, form)["errors"] == {}
    state_of(visit).from_link = dataclasses.replace(linked, weights=(*linked.weights, ""))
    assert "data-run" not in handlers.refresh(visit, form)["bench_kept"]
    assert ("data-run" in handlers.refresh(visit, linked)["bench_kept"]) is not broken
    assert "data-run" not in handlers.refresh(visit, linked)["bench_kept"], "once"


def test_a_long_bench_is_stored_where_there_is_a_place(sharing: Sharing, visit: Visit) -> None:
    long = "".join(hashlib.sha256(b"%d" % i).hexdigest() for i in range(300))
    form = whole(make_form(visit, values={"user_question": long}, turns=1, weights=OWN))
    link = fragment(sharing.link(visit, form))
    assert link.startswith("r=")
    assert sharing.arrive(sharing.lab.open(), carried(link))["values"][0].text == long
    without = Sharing(VisitStore(FakeModel, FakeSession))
    told = without.link(without.lab.open(), form)["share_link"]
    assert "a link carries up to 6,000" in told
    assert "--data" in told


def test_a_stored_run_shows_the_same_figures_to_another_visitor(
    sharing: Sharing, visit: Visit, lab: VisitStore
) -> None:
    handlers = Handlers(lab)
    mine = last(handlers.run(visit, whole(make_form(visit, turns=1, weights=OWN))))
    link = fragment(sharing.share(visit))
    assert link.startswith("r=")
    other = lab.open()
    update = sharing.arrive(other, carried(link))
    for name in ("verdict", "comparison", "strip", "view_play"):
        assert update[name] == mine[name], name
    assert other.engine.requests == [], "nothing was run to show it"  # type: ignore[attr-defined]
    assert update["preset"] == "math-3"
    assert "kv-status-note" in update["status"]
    again = fragment(sharing.share(other))
    assert again != link


def test_links_of_nothing_are_told(sharing: Sharing, visit: Visit) -> None:
    for address in ("r=" + "x" * 24, "c=1AAAA", "c=", "r=../x", "q=1"):
        update = sharing.arrive(visit, carried(address))
        assert "kv-status-error" in update["status"], address
    without = Sharing(VisitStore(FakeModel, FakeSession))
    assert "keeps none" in without.arrive(without.lab.open(), carried("r=" + "x" * 24))["status"]


def test_a_lab_without_a_folder_says_what_to_do_instead(visit: Visit) -> None:
    without = Sharing(VisitStore(FakeModel, FakeSession))
    found, _ = Handlers(without.lab).arrive("math-3")
    own = without.lab.visit(found)
    assert "no run to save" in without.share(own)["share_link"]
    own.keep(make_record(layers=4))
    assert "Save the bundle" in without.share(own)["share_link"]


def test_a_visit_stores_so_many_and_no_more(sharing: Sharing, visit: Visit) -> None:
    visit.keep(make_record(layers=4))
    visit.stored = STORED_OF_A_VISIT - 1
    fragment(sharing.share(visit))
    assert "20 are allowed" in sharing.share(visit)["share_link"]


def test_an_address_shares_so_much_a_day_under_any_number_of_visits(lab: VisitStore) -> None:
    sharing, record = Sharing(lab), make_record(layers=4)
    lab.stored.each = int(2.5 * len(Bundle(record).to_bytes()))
    said = []
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2"):
        visit = lab.open()
        visit.address = address
        visit.keep(record)
        said.append("within a day" in sharing.share(visit)["share_link"])
    assert said == [False, False, True, False]


# -- files


def test_a_bundle_opens_with_its_bench(sharing: Sharing, visit: Visit, lab: VisitStore) -> None:
    last(Handlers(lab).run(visit, whole(make_form(visit, seed=5, turns=1, weights=OWN))))
    assert visit.shown is not None
    content = sharing.bundle_of(visit, visit.shown)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        figures = [n for n in archive.namelist() if n.startswith("figures/")]
    assert len(figures) > 5
    other = lab.open()
    update = sharing.open_file(other, content)
    assert (update["seed"], update["error_record"]) == (5, "")
    assert other.record is not None
    assert other.record.id == visit.record.id  # type: ignore[union-attr]
    with zipfile.ZipFile(io.BytesIO(sharing.bundle_of(visit, visit.shown, tensors=True))) as archive:
        assert archive.read("tensors.safetensors") == b"made-up tensors"


def test_what_makes_no_sense_is_refused_and_the_run_before_stays(sharing: Sharing, visit: Visit) -> None:
    token = visit.keep(make_record(layers=4))
    odd = dataclasses.replace(make_record(layers=4), outcomes=())
    broken_bench = Bundle(make_record(layers=4), {"format": 1, "preset": "nothing"}).to_bytes()
    for content in (
        b"nothing",
        odd.to_bytes(),
        Bundle(odd, GOOD).to_bytes(),
        broken_bench,
        b"PK\x05\x06" + bytes(18),
    ):
        update = sharing.open_file(visit, content)
        assert "kv-problem" in update["error_record"]
        assert visit.shown == token
        assert list(visit.records) == [token]
    assert sharing.open_file(visit, None) == {}


def test_the_first_run_is_stated_by_a_bench() -> None:
    record = RunRecord.load(ROOT / "presets" / "first_run.kvrun")
    body = from_record(record)
    assert body is not None
    form, example = form_from_json(body)
    assert forms.read_request(form, example).values == record.request.values
    assert from_record(make_record(layers=3)) is None, "a made-up pipeline is no scenario"


# -- undo


def test_edits_are_undone_one_by_one_and_done_again() -> None:
    history, now = UndoStack(lambda: clock[0]), make_form()
    clock = [0.0]
    forms_ = [now]
    history.note(now)
    for change in ({"seed": 1}, {"mode": "free"}, {"values": {"user_question": "b"}}):
        clock[0] += 60
        forms_.append(dataclasses.replace(forms_[-1], **change))
        history.note(forms_[-1])
    for form in reversed(forms_[:-1]):
        step = history.undo()
        assert step is not None
        assert step.form == form
        history.note(step.form)  # the page tells how it stands after each step: no edit
    assert history.undo() is None
    assert history.buttons() == {"undo.interactive": False, "redo.interactive": True}
    for form in forms_[1:]:
        step = history.redo()
        assert step is not None
        assert step.form == form
    history.undo()
    history.note(dataclasses.replace(forms_[0], seed=9))
    assert not history.can_redo, "an edit ends what could be done again"


def test_typing_is_one_edit_until_one_stops() -> None:
    clock = [0.0]
    history = UndoStack(lambda: clock[0])
    for text, pause in (("", 0.0), ("a", 9.0), ("ab", 0.4), ("abc", 0.4), ("abcd", 9.0)):
        clock[0] += pause
        history.note(make_form(values={"user_question": text}))
    found = [step.form.values["user_question"] for step in iter(history.undo, None) if isinstance(step, Step)]
    assert found == ["abc", ""]


def test_undo_puts_every_box_back(sharing: Sharing, visit: Visit, lab: VisitStore) -> None:
    handlers = Handlers(lab)
    first = whole(make_form(visit, turns=1, weights=OWN))
    handlers.refresh(visit, first)
    update = handlers.refresh(
        visit, dataclasses.replace(first, templates=templates(t0="gone {user_question}"))
    )
    assert update["undo.interactive"] is True
    known = state_of(visit).example
    state_of(visit).example = None
    back = sharing.undo(visit, dataclasses.replace(first, templates=templates(t0="gone {user_question}")))
    assert back["template_0"] == first.templates[0]
    assert (back["undo.interactive"], back["redo.interactive"]) == (False, True)
    assert state_of(visit).example == known, "the known answer comes back with its request"
    assert sharing.redo(visit, first)["template_0"] == "gone {user_question}"


def test_a_wrong_template_is_restored_as_it_was_typed(visit: Visit) -> None:
    wrong = "{user_question} {user_question}"
    update = restore(visit, Step(whole(make_form(templates=templates(t0=wrong), turns=1))))
    assert update["template_0"] == wrong


# -- reload


def draft(form: Form, **more: Any) -> dict[str, Any]:
    """What the tab remembers of a form."""
    return {"address": "", "bench": form_to_json(form), "typed": {}, "scenario": TITLE, "run": "", **more}


def test_a_reload_loses_neither_edits_nor_the_run(sharing: Sharing, visit: Visit, lab: VisitStore) -> None:
    form = whole(make_form(visit, seed=3, templates=templates(t0="Mine: {user_question}"), turns=1))
    last(Handlers(lab).run(visit, form))
    kept = draft(form, run=visit.shown, typed={"value_0": "Typed while the server was away"})
    kept["bench"]["known"] = "42"
    other = lab.open()
    update = sharing.arrive(other, carried("", kept))
    assert (update["template_0"], update["seed"]) == ("Mine: {user_question}", 3)
    assert other.record is not None
    assert other.record.id == visit.record.id  # type: ignore[union-attr]
    assert update["values"][0].text == "Typed while the server was away"
    assert "Edited: no known answer" in update["known"]
    gone = sharing.arrive(lab.open(), carried("", {**kept, "run": "no such token"}))
    assert gone["template_0"] == "Mine: {user_question}"
    assert "comparison" not in gone
    elsewhere = sharing.arrive(lab.open(), carried("", {**kept, "scenario": "Another one"}))
    assert elsewhere["values"][0].text == form.values["user_question"], "these texts are another scenario's"


def test_a_link_wins_over_the_tabs_memory_until_it_is_edited(sharing: Sharing, visit: Visit) -> None:
    linked = whole(make_form(visit, seed=5, turns=1, weights=OWN))
    address = fragment(sharing.link(visit, linked))
    own = draft(dataclasses.replace(linked, seed=6))
    assert sharing.arrive(visit, carried(address, own))["seed"] == 5
    assert sharing.arrive(visit, carried(address, {**own, "address": address}))["seed"] == 6
    assert sharing.arrive(visit, carried("", {**own, "address": address}))["seed"] == 6


JUNK = st.none() | st.integers() | st.text(max_size=9) | st.lists(st.text(max_size=3), max_size=2)
BOXES = st.sampled_from(["value_0", "template_0", "methods", "preset", "options", "turns", "format"])
DRAFT = st.fixed_dictionaries(
    {"bench": st.dictionaries(BOXES, JUNK, max_size=3).map(lambda found: {**GOOD, **found}) | JUNK},
    optional={"address": JUNK, "typed": st.dictionaries(BOXES, JUNK, max_size=2) | JUNK, "run": JUNK,
              "scenario": st.just(TITLE) | JUNK},
)  # fmt: skip
CARRIED = st.fixed_dictionaries({}, optional={"address": JUNK, "draft": DRAFT | JUNK}).map(json.dumps)


@given(st.text(max_size=20) | CARRIED)
@settings(max_examples=40)
def test_whatever_a_browser_carries_is_answered(text: str) -> None:
    sharing = Sharing(VisitStore(FakeModel, FakeSession))
    update = sharing.arrive(sharing.lab.open(), text)
    assert set(update) <= {"status"} or "preset" in update


# -- the report


@pytest.mark.slow
def test_a_report_stands_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "</script><script>alert(1)</script><img src=http://x.example/y>"
    made = make_record(layers=3)
    odd = dataclasses.replace(
        made, request=dataclasses.replace(made.request, values={"user_question": evil}), notes=(evil,)
    )
    page = report(odd)
    assert evil not in page
    assert page.count("plotly.js v") == 1
    assert "default-src 'none'" in unescape(page)
    assert page.count("<script") == page.count("</script>")
    path = tmp_path / "run.zip"
    path.write_bytes(Bundle(made).to_bytes())
    out = tmp_path / "report.html"
    assert main(["report", str(path), "-o", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == report(made)
    bench = tmp_path / "bench.zip"
    bench.write_bytes(Bundle(bench=GOOD).to_bytes())
    for bad in (bench, tmp_path / "missing.kvrun", tmp_path):
        assert main(["report", str(bad), "-o", str(out)]) == 2
        told = capsys.readouterr().err
        assert told.startswith("kvlab: ")
        assert "Traceback" not in told


@pytest.mark.slow
def test_a_report_needs_neither_torch_nor_the_page() -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom backend.records.sharing.bundle import read_file\n"
        "from viz.run.report import report_html as report\n"
        f"made = report(read_file(Path({str(ROOT / 'presets' / 'first_run.kvrun')!r})).record)\n"
        "heavy = {'torch', 'gradio', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_a_file_is_a_record_or_a_bundle() -> None:
    made = make_record(layers=3)
    for content in (
        made.to_bytes(),
        Bundle(made).to_bytes(),
        read_bundle(Bundle(made).to_bytes()).to_bytes(),
    ):
        found = read_run(content).record
        assert found is not None
        assert found.id == made.id
    with pytest.raises(LabError):
        read_run(b"")


def test_duplicated_columns_and_the_pinned_one_travel_in_a_link(visit: Visit) -> None:
    copies = (forms.Copy("kvcomm", 2, usual_options("kvcomm") | {"gamma": 0.5}),)
    form = make_form(visit, weights=OWN, copies=copies, pinned="kvcomm", turns=1, max_new_tokens=64)
    body = form_to_json(form)
    assert body["copies"] == [{"method": "kvcomm", "number": 2, "options": {"gamma": 0.5}}]
    back, _ = form_from_json(json.loads(json.dumps(body)))
    assert (back.copies, back.pinned) == (copies, "kvcomm")
    repaired = (dataclasses.replace(copies[0], exact="3/agent_2_current/1-2/keys"),)
    mended = dataclasses.replace(form, copies=repaired)
    assert form_from_json(json.loads(json.dumps(form_to_json(mended))))[0].copies == repaired
    assert restore(visit, Step(mended))["copies"][0]["exact"] == repaired[0].exact
    update = restore(visit, Step(back))
    assert update["pinned"] == "kvcomm"
    assert update["copies"][0]["values"]["kvcomm:gamma"] == 0.5
    assert "copies" not in form_to_json(dataclasses.replace(form, copies=()))
    good = body["copies"][0]
    for wrong in ("x", [4], [{**good, "method": "dense"}], [{**good, "number": 1}], [good, good], [good] * 9,
                  [{**good, "exact": "all of it"}], [{**good, "exact": 4}],
                  [{**good, "options": {"gama": 1}}], [{**good, "options": {"gamma": "x"}}]):  # fmt: skip
        with pytest.raises(RecordError):
            form_from_json({**body, "copies": wrong})


def usual_options(name: str) -> dict[str, Any]:
    return {option.name: option.default for option in option_fields(method_class(name))}


def test_a_run_is_shared_only_where_there_is_a_folder(tmp_path: Path) -> None:
    for shared in (None, SharedRuns(tmp_path / "more")):
        with gr.Blocks():
            page = build_page(VisitStore(FakeModel, FakeSession, shared=shared), "math-3")
        assert page["share"].visible is (shared is not None)
