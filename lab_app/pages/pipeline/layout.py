"""The page's widgets, by name. What they do is in ``lab_app.pages.pipeline.events``; how they look in
``assets/app.css``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr

from backend.methods.registry import method_class, method_names, option_fields
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.examples import scenarios
from lab_app.pages.pipeline.form import AGENT_SLOTS, FORM, VALUE_SLOTS
from lab_app.pages.pipeline.form_group import form_group, options_group
from lab_app.pages.pipeline.method_options import MethodPanel, method_panel
from lab_app.pages.pipeline.rules import rules, value_classes, weights_choices
from lab_app.pages.pipeline.sections import anchor_cost, blame, break_even, offset_study, proximity, replay
from lab_app.pages.pipeline.sharing.widgets import build_edits, build_files
from lab_app.ui import html, text
from lab_app.ui.components import block, error_slot, figure_view, hidden_button, raw_html, section
from lab_app.ui.page import OPTIONS, PageBuilder
from lab_app.ui.scenarios import USUAL_WARM
from lab_app.visits.visits import VisitStore
from viz.run.tabs import TABS

METHODS_AT_FIRST = ("naive", "kvcomm")
BEFORE_PROXIMITY = "anchors"  # the tab that it follows


class PipelinePage(PageBuilder):
    """The pipeline's page.

    Attributes:
        panels: the boxes of the methods' options, by method.
        tabs: the tabs of figures, by their keys.
        weights: the names of the other weights that agents can run on.
    """

    def __init__(self, lab: VisitStore, weights: tuple[str, ...] = ()) -> None:
        super().__init__("pipeline", lab, gr.State(""), ids="kv")
        self.panels: dict[str, MethodPanel] = {}
        self.tabs: dict[str, gr.Tab] = {}
        self.weights = weights

    @property
    def outputs(self) -> list[Any]:
        """The widgets that a handler may change; of the options' boxes, those that checked examples set."""
        parts = [
            part
            for panel in self.panels.values()
            for part in (panel.group, panel.error, panel.profile, panel.note, panel.more)
            if part is not None
        ]
        return [*super().outputs, *parts, *self.panels["naive"].options.values()]

    @property
    def everything(self) -> list[Any]:
        """With all boxes of the options, and the switches that add columns."""
        known = {id(widget) for widget in self.outputs}
        return self.outputs + [box for box in self.option_boxes if id(box) not in known]

    @property
    def option_boxes(self) -> list[Any]:
        """The boxes of all methods' options, and the switches that add columns."""
        out: list[Any] = []
        for panel in self.panels.values():
            out += panel.options.values()
            out += [box for box in (panel.ablate, panel.every_profile) if box is not None]
        return out

    def error_slots(self) -> dict[str, Any]:
        """Where messages about the form can stand."""
        panels = {f"error_{name}": panel.error for name, panel in self.panels.items()}
        return super().error_slots() | panels


def build_page(
    lab: VisitStore, preset: str, weights: tuple[str, ...] = (), navigation: Callable[[], Any] = lambda: None
) -> PipelinePage:
    """All widgets, inside the current ``gr.Blocks``; ``navigation`` makes the links to the other pages."""
    page = PipelinePage(lab, weights)
    page.block("topbar", pipeline_html.topbar(None))
    page.follower = hidden_button("kv-follow")
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
    page.groups[OPTIONS] = options_group(page)
    page.groups[FORM] = form_group(page)
    page.rules.update(rules(page))
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
        for slot in range(VALUE_SLOTS):
            box = gr.Textbox(
                label="Question",
                lines=2 if slot == 0 else 1,
                max_lines=14,
                visible=slot == 0,
                elem_id=f"kv-value-{slot}",
                elem_classes=value_classes(slot),
            )
            page.add(**{f"value_{slot}": box, f"error_value_{slot}": error_slot(f"value-{slot}")})
        page.add(familiar=block("familiar", elem_classes="kv-may-be-empty"))
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
        for name in method_names():
            cls = method_class(name)
            fields = option_fields(cls)
            if fields:
                page.panels[name] = method_panel(cls, fields, name in METHODS_AT_FIRST)
        with gr.Column(elem_id="kv-warm", elem_classes="kv-method-panel", min_width=0) as warm_group:
            page.add(warm_group=warm_group)
            with gr.Row(elem_classes="kv-line"):
                page.add(
                    warm=gr.Checkbox(
                        True, label=text.WARM, elem_id="kv-warm-first", elem_classes="kv-option kv-kind-bool"
                    ),
                    warm_count=gr.Number(
                        USUAL_WARM, label="requests", step=1, elem_id="kv-warm-count", min_width=60,
                        elem_classes="kv-inline-number",
                    ),
                )  # fmt: skip
            page.add(pools=block("pools"))
            with gr.Row(elem_classes="kv-line"):
                page.add(
                    warm_now=gr.Button(text.WARM_BUTTON, size="sm", elem_id="kv-warm-now"),
                    forget=gr.Button(text.FORGET, size="sm", elem_id="kv-forget"),
                )
            page.add(error_warm=error_slot("warm"))
    with section(text.AGENTS, "agents"):
        page.add(
            turns=gr.Number(
                1, label=text.TURNS, info=text.TURNS_HELP, step=1, elem_id="kv-turns",
                elem_classes="kv-option kv-kind-int",
            ),
            error_turns=error_slot("turns"),
        )  # fmt: skip
        for slot in range(AGENT_SLOTS):
            with gr.Column(
                visible=False, min_width=0, elem_classes="kv-agent", elem_id=f"kv-agent-{slot}"
            ) as card:
                head = block(f"agent-head-{slot}")
                with gr.Column(min_width=0, elem_classes="kv-agent-body"):
                    pills = block(f"pills-{slot}")
                    weights = gr.Dropdown(
                        weights_choices(page.weights), value="", label=text.WEIGHTS, info=text.WEIGHTS_HELP,
                        visible=bool(page.weights), filterable=False, elem_id=f"kv-weights-{slot}",
                        elem_classes="kv-weights-box",
                    )  # fmt: skip
                    note = block(f"weights-note-{slot}", elem_classes="kv-weights-note")
                    template = gr.Textbox(
                        show_label=False, label="Template", lines=4, max_lines=18, container=False,
                        elem_id=f"kv-template-{slot}", elem_classes="kv-template-box",
                    )  # fmt: skip
                error = error_slot(f"agent-{slot}")
            page.add(**{
                f"agent_{slot}": card, f"head_{slot}": head, f"pills_{slot}": pills,
                f"template_{slot}": template, f"weights_{slot}": weights, f"weights_note_{slot}": note,
                f"error_agent_{slot}": error,
            })  # fmt: skip
        page.add(error_agents=error_slot("agents"), notices=block("notices"))
        page.add(
            declared=gr.Textbox(label=text.DECLARED, info=text.DECLARED_HELP, elem_id="kv-declared"),
            error_declared=error_slot("declared"),
        )
    with gr.Accordion(text.MORE, open=False, elem_classes="kv-part kv-fold", elem_id="kv-part-decoding"):
        page.add(
            mode=gr.Radio(
                [(label, name) for name, label in text.MODES.items()],
                value="pinned",
                show_label=False,
                label="Mode",
                container=False,
                elem_id="kv-mode",
            ),
            attention=gr.Checkbox(
                False,
                label=text.ATTENTION,
                info=text.ATTENTION_HELP,
                elem_id="kv-attention",
                elem_classes="kv-option kv-kind-bool",
            ),
        )
        with gr.Row(elem_classes="kv-numbers"):
            page.add(
                max_new_tokens=gr.Number(
                    96, label="Longest answer (tokens)", step=1, elem_id="kv-max-new-tokens"
                ),
                temperature=gr.Number(0, label="Temperature (0: greedy)", step=0.1, elem_id="kv-temperature"),
                top_p=gr.Number(1, label="Top-p", step=0.05, elem_id="kv-top-p"),
                seed=gr.Number(0, label="Seed", step=1, elem_id="kv-seed"),
            )
        page.add(error_decoding=error_slot("decoding"))


def build_gallery(page: PipelinePage) -> None:
    """The checked examples; hidden until a visit finds some."""
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
    """The centre: status, verdict, comparison, strip, microscope."""
    page.add(
        status=block("status"),
        tally=block("tally"),
        verdict=block("verdict", html.empty_card()),
        comparison=block("comparison"),
    )
    with gr.Column(elem_id="kv-results"):
        with gr.Row(elem_id="kv-pickers", visible=False) as pickers:
            page.add(results=pickers)
            gr.HTML(html.heading(text.QUESTION_2), apply_default_css=False, elem_id="kv-question-2")
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
        page.add(strip=raw_html("kv-strip"))
        with gr.Tabs(elem_id="kv-tabs"):
            for tab in TABS:
                with gr.Tab(tab.label, id=tab.key, elem_id=f"kv-tab-{tab.key}") as widget:
                    block(f"tab-question-{tab.key}", f'<p class="kv-tab-question">{tab.question}</p>')
                    page.add(**{f"view_{tab.key}": figure_view(tab.key)})
                    if tab.key == "errors":
                        blame.build(page)
                    if tab.key == "offsets":
                        offset_study.build(page)
                    if tab.key == "anchors":
                        anchor_cost.build(page)
                    if tab.key == "timing":
                        break_even.build(page)
                page.tabs[tab.key] = widget
                if tab.key == BEFORE_PROXIMITY:
                    replay.build(page)
                    proximity.build(page)
    build_files(page)
