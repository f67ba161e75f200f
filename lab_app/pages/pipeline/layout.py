"""The page's widgets, by name. ``lab_app.pages.pipeline.events`` connects their handlers; their styles are in
``assets/app.css``."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from backend.methods.registry import method_class, method_names
from backend.records.control import Control
from backend.records.request import CONTROLS
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.examples import scenarios
from lab_app.pages.pipeline.form import AGENT_SLOTS, FORM, VALUE_SLOTS
from lab_app.pages.pipeline.form_group import form_view, options_view
from lab_app.pages.pipeline.method_options import copied_panels, method_panel, with_options
from lab_app.pages.pipeline.rules import rules, value_classes, weights_choices
from lab_app.pages.pipeline.sections import SECTIONS
from lab_app.pages.pipeline.sharing.widgets import build_edits, build_files
from lab_app.ui import fields, html, text
from lab_app.ui.components import block, error_slot, figure_view, raw_html, section
from lab_app.ui.fields import Node
from lab_app.ui.page import OPTIONS, PageBuilder
from lab_app.ui.scenarios import USUAL_WARM
from lab_app.visits.visits import VisitStore
from viz.run.tabs import TABS
from viz.run.verdict_card import QUESTION_2

METHODS_AT_FIRST = ("naive", "kvcomm")


class PipelinePage(PageBuilder):
    """The pipeline's page.

    Attributes:
        tabs: the tabs of figures, by their keys.
        weights: the names of the other weights that agents can run on.
    """

    def __init__(self, lab: VisitStore, weights: tuple[str, ...] = ()) -> None:
        super().__init__("pipeline", lab, gr.State(""), ids="kv")
        self.tabs: dict[str, gr.Tab] = {}
        self.weights = weights


def build_page(
    lab: VisitStore, preset: str, weights: tuple[str, ...] = (), navigation: Callable[[], Any] = lambda: None
) -> PipelinePage:
    """All widgets, inside the current ``gr.Blocks``; ``navigation`` makes the links to the other pages."""
    page = PipelinePage(lab, weights)
    page.block("topbar", pipeline_html.topbar(None))
    navigation()
    with gr.Row(elem_id="kv-frame"):
        with gr.Column(elem_id="kv-bench", scale=0, min_width=0):
            with gr.Column(elem_id="kv-bench-scroll"):
                build_inputs(page, preset)
            with gr.Column(elem_id="kv-go"):
                page.error("run")
                page.block("cost")
                page.add(run=gr.Button(text.RUN, variant="primary", elem_id="kv-run"))
                page.add(cancel=gr.Button(text.RUNNING, variant="stop", elem_id="kv-cancel", visible=False))
        with gr.Column(elem_id="kv-stage", scale=1, min_width=0):
            build_results(page)
    page.views[OPTIONS] = options_view(page)
    page.views[FORM] = form_view(page)
    page.rules.update(rules(page.weights))
    return page


def build_inputs(page: PipelinePage, preset: str) -> None:
    """The left column."""
    build_edits(page)
    with section(text.SCENARIO, "scenario"):
        page.add(
            preset=gr.Dropdown(
                scenarios(preset), value=preset, show_label=False, label=text.SCENARIO, container=False,
                elem_id="kv-preset",
            ),
            scenario=block("scenario"), error_preset=error_slot("preset"), graph=block("graph"),
        )  # fmt: skip
        build_gallery(page)
    with section(text.REQUEST, "request"):
        values: list[Node] = []
        for slot in range(VALUE_SLOTS):
            values.append(
                fields.text(
                    f"value_{slot}", "Question", lines=1 if slot else 2, max=14, hidden=slot > 0,
                    id=f"kv-value-{slot}", css=value_classes(slot),
                )
            )  # fmt: skip
            values.append(fields.message(f"value_{slot}", f"value-{slot}"))
        page.form("values", *values)
        page.add(familiar=block("familiar", elem_classes="kv-maybe"))
        with gr.Row(elem_classes="kv-line"):
            page.add(known=block("known"), next=gr.Button(text.NEXT, size="sm", elem_id="kv-next", scale=0))
        with gr.Row(elem_classes="kv-line"):
            page.add(
                many=gr.Button(text.MANY, size="sm", elem_id="kv-many"),
                many_count=gr.Number(
                    10, label="requests", step=1, elem_id="kv-many-count", min_width=60,
                    elem_classes="kv-inline-number",
                ),
            )  # fmt: skip
        page.add(error_many=error_slot("many"))
    with section(text.METHODS, "methods"):
        chips = [(method_class(name).title, name) for name in method_names() if name != "dense"]
        page.add(
            methods=gr.CheckboxGroup(
                chips, value=list(METHODS_AT_FIRST), show_label=False, label=text.METHODS, container=False,
                elem_id="kv-methods",
            ),
            method_help=block("method-help", f'<p class="kv-help">{text.METHODS_HELP}</p>'),
            error_methods=error_slot("methods"),
        )  # fmt: skip
        page.form(
            "options",
            *(method_panel(name, name in METHODS_AT_FIRST) for name in with_options()),
            copied_panels(),
            fields.message("copies", "copies"),
            fields.text("pinned", "", hidden=True, id="kv-pinned"),
        )
        with gr.Column(elem_id="kv-warm", elem_classes="kv-method-panel", min_width=0) as warm_group:
            page.add(warm_group=warm_group)
            page.form(
                "warming",
                fields.row(
                    fields.switch("warm", text.WARM, True, id="kv-warm-first"),
                    fields.number(
                        "warm_count", "requests", USUAL_WARM, id="kv-warm-count", css="kv-inline-number"
                    ),
                    css="kv-line",
                ),
                fields.switch("warm_own", text.WARM_OWN, False, help=text.WARM_OWN_HELP, id="kv-warm-own"),
            )
            page.add(pools=block("pools"))
            with gr.Row(elem_classes="kv-line"):
                page.add(
                    warm_now=gr.Button(text.WARM_BUTTON, size="sm", elem_id="kv-warm-now"),
                    forget=gr.Button(text.FORGET, size="sm", elem_id="kv-forget"),
                )
            page.add(error_warm=error_slot("warm"))
    with section(text.AGENTS, "agents"):
        page.form(
            "agents_form",
            fields.number("turns", text.TURNS, 1, help=text.TURNS_HELP, id="kv-turns"),
            fields.message("turns", "turns"),
            *(agent_card(page, slot) for slot in range(AGENT_SLOTS)),
            fields.message("agents", "agents"),
            fields.note("notices", id="kv-notices"),
            fields.text("declared", text.DECLARED, help=text.DECLARED_HELP, id="kv-declared"),
            fields.message("declared", "declared"),
        )
    with gr.Accordion(text.MORE, open=False, elem_classes="kv-part kv-fold", elem_id="kv-part-decoding"):
        numbers = [control_field(control) for control in CONTROLS.values() if control.kind == "number"]
        others = [control_field(control) for control in CONTROLS.values() if control.kind != "number"]
        page.form(
            "decoding",
            *others,
            fields.row(*numbers, css="kv-numbers"),
            fields.message("decoding", "decoding"),
        )


def control_field(control: Control) -> Node:
    """The field of a control that a request declares."""
    look = {"help": control.help, "id": f"kv-{control.key}".replace("_", "-")}
    if control.kind == "number":
        return fields.number(control.key, control.label, control.default, step=control.step, **look)
    if control.kind == "flag":
        return fields.switch(control.key, control.label, control.default, **look)
    choices = [(words, value) for value, words in control.choices.items()]
    return fields.choice(control.key, control.label, choices, control.default, css="kv-unnamed", **look)


def agent_card(page: PipelinePage, slot: int) -> Node:
    """An agent's prompt and weights, folded."""
    return fields.fold(
        f"agent_{slot}", "",
        fields.note(f"pills_{slot}", id=f"kv-pills-{slot}"),
        fields.select(
            f"weights_{slot}", text.WEIGHTS, weights_choices(page.weights), "", help=text.WEIGHTS_HELP,
            hidden=not page.weights, id=f"kv-weights-{slot}", css="kv-weights-box",
        ),
        fields.note(f"weights_note_{slot}", id=f"kv-weights-note-{slot}", css="kv-weights-note"),
        fields.text(
            f"template_{slot}", f"Prompt of agent {slot + 1}", lines=4, max=18, id=f"kv-template-{slot}",
            css="kv-template-box kv-unnamed",
        ),
        fields.message(f"agent_{slot}", f"agent-{slot}"),
        head="kv-agent-head", hidden=True, id=f"kv-agent-{slot}", css="kv-agent",
    )  # fmt: skip


def build_gallery(page: PipelinePage) -> None:
    """The checked examples; hidden unless there are some."""
    with gr.Column(visible=False, min_width=0, elem_id="kv-gallery") as group:
        page.add(
            gallery=group,
            pick_effect=gr.Radio(
                [], label=text.CHECKED, elem_id="kv-pick-effect", elem_classes="kv-kind-choice"
            ),
            pick_example=gr.Dropdown(
                [(text.CHOOSE_ONE.format(count=0), "")], value="", show_label=False, label=text.CHECKED,
                container=False, filterable=False, elem_id="kv-pick-example",
            ),
            gallery_note=block("gallery-note"),
        )  # fmt: skip


def build_results(page: PipelinePage) -> None:
    """The centre: purpose, status, verdict, comparison, strip, microscope."""
    block("purpose", pipeline_html.purpose())
    page.add(
        status=block("status"),
        tally=block("tally"),
        verdict=block("verdict", html.empty_card()),
        comparison=block("comparison"),
    )
    with gr.Column(elem_id="kv-results"):
        with gr.Row(elem_id="kv-pickers", visible=False) as pickers:
            page.add(results=pickers)
            gr.HTML(html.heading(QUESTION_2), apply_default_css=False, elem_id="kv-question-2")
            page.add(
                pick_agent=gr.Dropdown(
                    [], label="Agent", elem_id="kv-pick-agent", min_width=120, filterable=False
                ),
                pick_method=gr.Dropdown(
                    [], label="Method", elem_id="kv-pick-method", min_width=120, filterable=False
                ),
                pick_segment=gr.Dropdown(
                    [], label="Segment or token", elem_id="kv-pick-segment", min_width=150, filterable=False
                ),
            )
        with gr.Tabs(elem_id="kv-tabs"):
            gr.Tab(
                text.TEXTS, id="texts", elem_id="kv-tab-texts"
            )  # shows rows of the comparison (assets/app.css)
            for tab in TABS:
                with gr.Tab(tab.label, id=tab.key, elem_id=f"kv-tab-{tab.key}") as widget:
                    asides = [aside for aside in SECTIONS if aside.tab == tab.key and not aside.label]
                    titles = [(aside.part, aside.title) for aside in asides]
                    view = figure_view(tab.key, question=tab.question, asides=titles)
                    page.add(**{f"view_{tab.key}": view})
                    for aside in asides:
                        aside.build(page)
                page.tabs[tab.key] = widget
                if tab is TABS[0]:
                    with gr.Tab(text.TOKENS, id="tokens", elem_id="kv-tab-tokens"):
                        page.add(strip=raw_html("kv-strip"))
                for study in SECTIONS:
                    if study.tab == tab.key and study.label:
                        with gr.Tab(study.label, id=study.part, elem_id=f"kv-tab-{study.part}"):
                            question = f'<p class="kv-tab-question">{study.question}</p>'
                            block(f"tab-question-{study.part}", question)
                            study.build(page)
    build_files(page)
