"""Agents on other weights, on the page: chosen on the bench, warned of, shown from the record alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
import tiny
from tiny import QUESTIONS

from backend.base.errors import ModelError
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, Preset, load_preset
from backend.records.run import RunRecord
from backend.studies.gallery import GalleryEntry
from lab_app.cli.main import main
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline import form_json, problems
from lab_app.pages.pipeline import handlers as handlers_module
from lab_app.pages.pipeline import scenario as scenario_module
from lab_app.pages.pipeline.examples import as_checked
from lab_app.pages.pipeline.form import AGENT_SLOTS, FORM, Form
from lab_app.pages.pipeline.handlers import Handlers, statement
from lab_app.pages.pipeline.layout import PipelinePage, build_page
from lab_app.pages.pipeline.sections import offset_study
from lab_app.pages.pipeline.sharing import actions as sharing_module
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.ui import text
from lab_app.ui.types import Update
from lab_app.ui.validation import Problems
from lab_app.visits.visits import Visit, VisitStore
from viz.run.agent_graph import graph_svg
from viz.run.comparison import comparison_html
from viz.run.summary import record_html

ODD = '<b>"tuned"</b>'


def scenario(*models: str) -> Preset:
    """The tiny pipeline as a scenario, its agents on these weights."""
    flow = tiny.pipeline(6)
    named = (*models, *("",) * len(flow.agents))
    agents = tuple(replace(a, model=m) for a, m in zip(flow.agents, named, strict=False))
    examples = tuple(Example({"user_question": q}) for q in QUESTIONS)
    return Preset(replace(flow, agents=agents), 1024, "examples", examples, "any")


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the bench's one scenario be the tiny one, on these weights."""

    def put(*models: str) -> None:
        for module in (
            forms,
            handlers_module,
            scenario_module,
            problems,
            sharing_module,
            offset_study,
            form_json,
        ):
            monkeypatch.setattr(module, "find_preset", lambda name: scenario(*models), raising=False)

    put()
    return put


@pytest.fixture(scope="module")
def other() -> LoadedModel:
    return tiny.model(seed=1)


def served(loaded: LoadedModel, *others: tuple[str, LoadedModel]) -> Handlers:
    """A lab on the tiny model, served with these others."""
    lab = VisitStore(lambda: loaded, lambda m: tiny.lab(m, others=dict(others)))  # type: ignore[arg-type, return-value]
    return Handlers(lab)


def arrived(handlers: Handlers) -> tuple[Visit, Update]:
    visit_id, update = handlers.arrive("tiny")
    return handlers.lab.visit(visit_id), update


def bench(*weights: str, **changes: Any) -> Form:
    """The bench with the tiny scenario."""
    given: dict[str, Any] = {
        "values": {"user_question": QUESTIONS[0]},
        "templates": tuple(a.template for a in tiny.pipeline().agents),
        "methods": ("naive",),
        "max_new_tokens": 6,
        "weights": weights,
    }
    return Form("tiny", **(given | changes))


def last(updates: Any) -> Update:
    merged: Update = {}
    for update in updates:
        merged |= update
    return merged


@cache
def page_with(*names: str) -> PipelinePage:
    with gr.Blocks():
        return build_page(VisitStore(tiny.model, tiny.lab), "math-3", names)


def boxes_of(page: PipelinePage, update: Update) -> list[dict[str, Any]]:
    visit = page.lab.open()
    change = page.applied({"weights": update["weights"]}, visit)[page["agents_form"]]
    names = [f"weights_{slot}" for slot in range(AGENT_SLOTS)]
    return [change["shown"][name] | {"value": change["value"][name]} for name in names]


# -- the form


def test_the_form_states_each_agents_weights(shipped: Callable[..., None]) -> None:
    def models(*given: str) -> list[str]:
        return [a.model for a in forms.read_request(bench(*given)).pipeline.agents]

    assert models() == ["", "", ""]
    assert models("", "tuned", "") == ["", "tuned", ""]
    assert models("", "tuned", *("",) * 6) == ["", "tuned", ""], "slots without an agent say nothing"
    shipped("", "tuned")
    assert models() == ["", "tuned", ""], "as it ships"
    assert models("", "", "other") == ["", "", "other"]
    assert statement(bench("", "tuned")) != statement(bench("", "")), "a choice makes a run old"
    with pytest.raises(Problems) as caught:
        forms.read_request(bench("", "x" * 201))
    assert caught.value.field == "agents.2.model"


def test_the_page_reads_its_boxes(shipped: Callable[..., None], tiny_model: LoadedModel) -> None:
    visit, _ = arrived(served(tiny_model))
    page = page_with("tuned")
    boxes = page.boxes((FORM,))
    values = [dict(box.value) if isinstance(box.value, dict) else box.value for box in boxes]
    values[boxes.index(page["agents_form"])]["weights_1"] = "tuned"
    found = page.box_values(visit, (FORM,), page._sent(visit, (FORM,), values))[FORM]
    assert found.weights == ("", "tuned", *("",) * (AGENT_SLOTS - 2))
    assert len(found.templates) == AGENT_SLOTS
    assert found.turns == 1, "what is read after the weights is still in its place"


def test_a_checked_example_was_checked_on_the_labs_own_weights() -> None:
    agents = load_preset("math-3").pipeline.agents
    entry = GalleryEntry("a", "flip", "math-3", {"user_question": "q"}, "1", "1", "2")
    longest = load_preset("math-3").pipeline.longest_answer
    form = Form(
        "math-3", {"user_question": "q"}, tuple(a.template for a in agents), methods=("naive",),
        max_new_tokens=longest,
    )  # fmt: skip
    assert as_checked(replace(form, weights=("",) * AGENT_SLOTS), entry)
    assert not as_checked(replace(form, weights=("", "tuned")), entry)


# -- the box


def test_the_box_is_there_only_where_there_is_a_choice(
    shipped: Callable[..., None], tiny_model: LoadedModel, other: LoadedModel
) -> None:
    _, update = arrived(served(tiny_model, ("tuned", other)))
    found = boxes_of(page_with("tuned"), update)
    assert all(box["visible"] for box in found)
    assert found[0]["choices"] == [(text.OWN_WEIGHTS, ""), ("tuned", "tuned")]
    assert {box["value"] for box in found} == {""}
    _, update = arrived(served(tiny_model))
    alone = page_with()
    assert not any(box["visible"] for box in boxes_of(alone, update))
    nodes = alone.fields["agents_form"].nodes
    assert all(nodes[f"weights_{slot}"].look["hidden"] for slot in range(AGENT_SLOTS))
    shipped("", "tuned")
    _, update = arrived(served(tiny_model))
    found = boxes_of(alone, update)
    assert [box["visible"] for box in found[:3]] == [False, True, False]
    assert (found[1]["value"], found[1]["choices"][-1]) == ("tuned", ("tuned (not in this lab)", "tuned"))


def test_a_choice_is_warned_of_and_shown_on_the_card(
    shipped: Callable[..., None], tiny_model: LoadedModel, other: LoadedModel
) -> None:
    handlers = served(tiny_model, ("tuned", other))
    visit, _ = arrived(handlers)
    plain = handlers.refresh(visit, bench("", "", ""))
    assert plain["errors"] == {}
    assert [plain[f"weights_note_{slot}"] for slot in range(3)] == ["", "", ""]
    chosen = handlers.refresh(visit, bench("", "tuned", ""))
    assert chosen["errors"] == {}
    assert text.WEIGHTS_WARNING in chosen["weights_note_1"]
    assert (chosen["weights_note_0"], chosen["weights_note_2"]) == ("", "")
    assert "weights tuned" in chosen["agent_1.label"]
    assert "kv-weights" not in chosen["agent_0.label"] + chosen["agent_2.label"]
    assert "on the weights tuned" in chosen["graph"]


def test_unknown_weights_are_told_at_their_card_and_nothing_fails(
    shipped: Callable[..., None], tiny_model: LoadedModel, other: LoadedModel
) -> None:
    for handlers, said in (
        (served(tiny_model), "there are no others"),
        (served(tiny_model, ("tuned", other)), "there are &#x27;tuned&#x27;"),
    ):
        visit, _ = arrived(handlers)
        for form in (bench("", "", "lost"), bench("", "", "lost", turns=2)):
            for update in (
                handlers.refresh(visit, form),
                last(handlers.run(visit, form)),
                last(handlers.warm_up(visit, replace(form, methods=("kvcomm",), warm_count=2))),
            ):
                assert list(update["errors"]) == ["agent_2"]
                assert "runs on the weights &#x27;lost&#x27;" in update["errors"]["agent_2"]
                assert said in update["errors"]["agent_2"]
        assert handlers.refresh(visit, bench())["errors"] == {}, "choosing the lab's own mends it"


def test_the_study_of_offsets_says_that_it_reads_with_the_labs_own(shipped: Callable[..., None]) -> None:
    usual = offset_study.SECTION.usual
    visit = served(tiny.model()).lab.open()

    def asked(samples: int, form: Form) -> dict[str, Any]:
        return {**usual, "study_samples": samples, offset_study.FORM: form}

    with pytest.raises(Problems) as caught:
        offset_study.read(visit, asked(2, bench("", "tuned")))
    assert caught.value.field == "samples"
    assert "Agent 2 runs on the weights 'tuned'" in str(caught.value)
    assert offset_study.read(visit, asked(0, bench("", "tuned"))).pipeline is None
    assert offset_study.read(visit, asked(2, bench())).pipeline is not None


# -- the results


@pytest.fixture
def record(
    shipped: Callable[..., None], tiny_model: LoadedModel, other: LoadedModel, tmp_path: Path
) -> RunRecord:
    """A run made on the page, saved and opened again."""
    handlers = served(tiny_model, ("tuned", other))
    visit, _ = arrived(handlers)
    update = last(handlers.run(visit, bench("", "tuned", "")))
    assert visit.record is not None
    assert [a.model for a in visit.record.request.pipeline.agents] == ["", "tuned", ""]
    assert "weights tuned" in update["comparison"]
    opened = served(tiny_model)  # a lab without those weights
    guest, _ = arrived(opened)
    shown = Sharing(opened.lab).open_file(guest, visit.record.to_bytes())
    assert shown["error_record"] == ""
    assert "weights tuned" in shown["comparison"]
    return RunRecord.load(visit.record.save(tmp_path / "a.kvrun"))


def test_results_name_the_weights_from_the_record_alone(record: RunRecord) -> None:
    page = comparison_html(record)
    heads = page.split('<summary class="kv-row-head"')[1:]
    assert ["kv-weights" in head.split("</summary>")[0] for head in heads] == [False, True, False]
    assert record.notes[0].startswith("Weights differ: agent 2 on 'tuned'.")
    assert any("in texts whose cache other weights computed" in note for note in record.notes)
    plain = comparison_html(replace(record, notes=(), request=replace(record.request, pipeline=flow())))
    assert "kv-weights" not in plain
    assert "kv-notes" not in plain
    for shown in (page, record_html(record)):
        for note in record.notes:
            assert note in unescape(str(shown))


def flow(*models: str, turns: int = 1) -> Pipeline:
    return replace(scenario(*models).pipeline, turns=turns).unrolled


def test_the_graph_names_the_weights() -> None:
    plain, mixed = graph_svg(flow()), graph_svg(flow("", "tuned"))
    assert "kv-g-weights" not in plain
    assert mixed.count('class="kv-g-weights"') == 1
    assert ">tuned</text>" in mixed
    assert "<title>Checker, on the weights tuned</title>" in mixed
    assert graph_svg(flow("", "tuned", turns=3)).count('class="kv-g-weights"') == 3


def test_the_graph_has_room_for_the_weights() -> None:
    """Below the node's own name, inside the drawing: with one row of names, with two, and with none."""
    one, two = flow("", "tuned"), flow("", "tuned")
    agents = tuple(replace(a, name="Careful Checker of Everything") for a in two.agents)
    for pipeline, names in ((one, 1), (replace(two, agents=agents), 2), (flow("", "tuned", turns=3), 0)):
        svg = graph_svg(pipeline)
        height = float(svg.split('viewBox="', 1)[1].split('"', 1)[0].split()[3])
        node = next(n for n in svg.split("<g ") if "kv-g-weights" in n)
        rows = [float(y) for y in re.findall(r'<text class="kv-g-(?:name|weights)"[^>]* y="([\d.]+)"', node)]
        assert len(rows) == names + 1
        assert rows == sorted(set(rows))
        assert node.rindex("kv-g-weights") > node.rfind("kv-g-name")
        assert rows[-1] + 3 <= height


def test_odd_names_are_shown_as_text(shipped: Callable[..., None], tiny_model: LoadedModel) -> None:
    handlers = served(tiny_model)
    visit, _ = arrived(handlers)
    update = handlers.refresh(visit, bench("", ODD))
    said = "".join(str(v) for v in update.values())
    assert "<b>&quot;" not in said
    assert '<b>"' not in said
    assert "&lt;b&gt;" in update["agent_1.label"]
    assert "&lt;b&gt;" in update["graph"]
    assert "&lt;b&gt;" in update["errors"]["agent_1"]


# -- serving


def test_serve_loads_what_the_command_names_and_nothing_else(
    tiny_model: LoadedModel, other: LoadedModel, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    loaded: list[str] = []
    models = {"embedded": tiny_model, "a/b": other, "c": changed()}
    monkeypatch.setattr(
        "backend.model.load.load_model", lambda name, **_: loaded.append(name) or models[name]
    )
    caught: dict[str, Any] = {}
    monkeypatch.setattr("lab_app.server.serve.launch", lambda *_, **more: caught.update(more) or (None, ""))
    assert main(["serve", "--weights", "tuned=a/b", "--weights", "twin=embedded"]) == 0
    assert loaded == ["embedded", "a/b", "embedded"]
    assert caught["weights"] == ("tuned", "twin")
    lab = caught["engine"](tiny_model)
    assert {name: engine.model for name, engine in lab.session.others.items()} == {
        "tuned": other, "twin": tiny_model,
    }  # fmt: skip
    asked = tiny.request(("dense",), flow=flow("a/b"))
    with pytest.raises(ModelError, match="'tuned', 'twin'"):
        lab.estimate(asked)
    assert loaded == ["embedded", "a/b", "embedded"], "a name that a visitor sends loads nothing"
    caught.clear()
    for bad, said in (("tuned", "NAME=MODEL"), ("=a/b", "NAME=MODEL"), ("odd=c", "layers 2 instead of 3")):
        assert main(["serve", "--weights", bad]) == 2
        assert said in capsys.readouterr().err
    assert not caught, "the page is not served"


def changed() -> LoadedModel:
    """A model that the tiny one cannot exchange caches with."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from backend.model.load import wrap_model

    body = tiny.llama().config.to_dict() | {"num_hidden_layers": 2}
    return wrap_model(LlamaForCausalLM(LlamaConfig(**body)).eval(), tiny.tokenizer(), name="changed")
