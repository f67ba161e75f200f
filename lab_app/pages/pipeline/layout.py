"""The page's widgets, by name. What they do is in ``lab_app.server.serve``; how they look in
``assets/app.css``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from backend.methods.registry import method_class, method_names, option_fields
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.examples import scenarios
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS
from lab_app.pages.pipeline.method_options import MethodPanel, method_panel
from lab_app.pages.pipeline.sections import break_even as calculator
from lab_app.pages.pipeline.sections.anchor_cost import first_asked as first_cost
from lab_app.pages.pipeline.sections.offset_study import before as before_study
from lab_app.pages.pipeline.sections.offset_study import first_asked as first_study
from lab_app.pages.pipeline.sections.proximity import before, first_asked
from lab_app.pages.pipeline.sections.replay import USUAL
from lab_app.pages.pipeline.sections.replay import before as before_replay
from lab_app.pages.pipeline.sharing.widgets import build_edits, build_files
from lab_app.ui import html, text
from lab_app.ui.components import RAW, block, error_slot, figure_view, hidden_button, section
from lab_app.ui.scenarios import USUAL_WARM
from viz.base.format import clip
from viz.run.tabs import TABS

METHODS_AT_FIRST = ("naive", "kvcomm")
BEFORE_PROXIMITY = "anchors"  # the tab that it follows


@dataclass
class Page:
    """Every widget under its name, and the panels of the methods' options. ``weights``: the names of the
    other weights that agents can run on."""

    widgets: dict[str, Any] = field(default_factory=dict)
    panels: dict[str, MethodPanel] = field(default_factory=dict)
    tabs: dict[str, Any] = field(default_factory=dict)
    weights: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        return self.widgets[name]

    def add(self, **widgets: Any) -> None:
        """Give widgets their names."""
        self.widgets.update(widgets)


def value_classes(slot: int) -> list[str]:
    """The question stands under its label, the other values beside theirs."""
    return ["kv-value"] if slot == 0 else ["kv-value", "kv-value-more"]


def weights_choices(names: tuple[str, ...], chosen: str = "") -> list[tuple[str, str]]:
    """The lab's own weights and the others by name; ``chosen`` too where this lab does not have it."""
    missing = [(text.WEIGHTS_MISSING.format(name=clip(chosen, 40)), chosen)]
    known = [(text.OWN_WEIGHTS, ""), *((name, name) for name in names)]
    return known + (missing if chosen and chosen not in names else [])


def build_page(
    preset: str, weights: tuple[str, ...] = (), navigation: Callable[[], Any] = lambda: None
) -> Page:
    """All widgets, inside the current ``gr.Blocks``; ``navigation`` makes the links to the other pages."""
    page = Page(weights=weights)
    page.add(
        session=gr.State(""),
        topbar=block("topbar", pipeline_html.topbar(None)),
        follower=hidden_button("kv-follow"),
    )
    navigation()
    with gr.Row(elem_id="kv-frame"):
        with gr.Column(elem_id="kv-bench", scale=0, min_width=0):
            with gr.Column(elem_id="kv-bench-scroll"):
                build_bench(page, preset)
            with gr.Column(elem_id="kv-go"):
                page.add(error_run=error_slot("run"), cost=block("cost"))
                page.add(run=gr.Button(text.RUN, variant="primary", elem_id="kv-run"))
                page.add(cancel=gr.Button(text.RUNNING, variant="stop", elem_id="kv-cancel", visible=False))
        with gr.Column(elem_id="kv-stage", scale=1, min_width=0):
            build_stage(page)
    return page


def build_bench(page: Page, preset: str) -> None:
    """The left column."""
    build_edits(page)
    with section(text.SCENARIO, "scenario"):
        page.add(
            preset=gr.Dropdown(
                scenarios(), value=preset, show_label=False, label=text.SCENARIO, container=False,
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


def build_gallery(page: Page) -> None:
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


def build_stage(page: Page) -> None:
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
        page.add(
            strip=gr.HTML(
                {"html": ""},
                html_template='<div class="kv-raw"></div>',
                js_on_load=RAW,
                elem_id="kv-strip",
                apply_default_css=False,
            )
        )
        with gr.Tabs(elem_id="kv-tabs"):
            for tab in TABS:
                with gr.Tab(tab.label, id=tab.key, elem_id=f"kv-tab-{tab.key}") as widget:
                    block(f"tab-question-{tab.key}", f'<p class="kv-tab-question">{tab.question}</p>')
                    page.add(**{f"view_{tab.key}": figure_view(tab.key)})
                    if tab.key == "offsets":
                        build_study(page)
                    if tab.key == "anchors":
                        build_cost(page)
                    if tab.key == "timing":
                        page.add(**calculator.build())
                page.tabs[tab.key] = widget
                if tab.key == BEFORE_PROXIMITY:
                    build_what_if(page)
                    build_proximity(page)
    build_files(page)


def build_study(page: Page) -> None:
    """The part of the Offsets tab that measures one text behind several prefixes; it belongs to no run."""
    usual = first_study()
    with gr.Column(elem_id="kv-study", elem_classes="kv-measure-box", min_width=0):
        gr.HTML(f'<h3 class="kv-card-title">{text.STUDY}</h3>', apply_default_css=False)
        block("study-help", f'<p class="kv-help">{text.STUDY_HELP}</p>')
        with gr.Row(elem_classes="kv-prefixes"):
            for name, label, value in (
                ("text", text.STUDY_TEXT, usual.text),
                ("prefixes", text.STUDY_PREFIXES, usual.prefixes),
            ):
                with gr.Column(min_width=0):
                    box = gr.Textbox(value, label=label, lines=4, max_lines=8, elem_id=f"kv-study-{name}")
                    page.add(**{f"study_{name}": box, f"error_study_{name}": error_slot(f"study-{name}")})
        with gr.Row(elem_classes="kv-measure"):
            page.add(
                study_samples=gr.Number(
                    usual.samples, label=text.STUDY_SAMPLES, step=1, min_width=90, elem_id="kv-study-samples"
                ),
                study_take=gr.Button(text.STUDY_TAKE, size="sm", elem_id="kv-study-take", scale=0),
                study_measure=gr.Button(
                    text.MEASURE, variant="primary", size="md", elem_id="kv-study-measure", scale=0
                ),
            )
        for name in ("samples", "measure"):
            page.add(**{f"error_study_{name}": error_slot(f"study-{name}")})
    page.add(study_status=block("study-status"))
    with gr.Row(visible=False, elem_id="kv-study-looks", elem_classes="kv-measure") as looks:
        page.add(
            study_looks=looks,
            pick_study_prefix=gr.Dropdown(
                [], label=text.STUDY_PREFIX, min_width=160, filterable=False, elem_id="kv-study-prefix"
            ),
            pick_study_place=gr.Dropdown(
                [], label=text.STUDY_PLACE, min_width=160, filterable=False, elem_id="kv-study-place"
            ),
        )
    page.add(
        study_tokens=gr.HTML(
            {"html": ""},
            html_template='<div class="kv-raw"></div>',
            js_on_load=RAW,
            elem_id="kv-study-tokens",
            apply_default_css=False,
        ),
        view_study=figure_view("study", before_study()),
    )


def build_cost(page: Page) -> None:
    """The part of the Anchors tab that measures pools by their size; it belongs to no run."""
    usual = first_cost()
    with gr.Column(elem_id="kv-pool-cost", elem_classes="kv-measure-box", min_width=0):
        gr.HTML(f'<h3 class="kv-card-title">{text.COST}</h3>', apply_default_css=False)
        block("cost-help", f'<p class="kv-help">{text.COST_HELP}</p>')
        with gr.Row(elem_classes="kv-measure"):
            for name, label in text.COST_BOXES.items():
                box = gr.Textbox(
                    getattr(usual, name), label=label, max_lines=1, min_width=110, elem_id=f"kv-cost-{name}"
                )
                page.add(**{f"cost_{name}": box})
            page.add(
                cost_measure=gr.Button(
                    text.MEASURE, variant="primary", size="md", elem_id="kv-cost-measure", scale=0
                )
            )
        for name in (*text.COST_BOXES, "measure"):
            page.add(**{f"error_cost_{name}": error_slot(f"cost-{name}")})
    page.add(cost_status=block("cost-status"), view_cost=figure_view("cost"))


def build_what_if(page: Page) -> None:
    """The tab that replays past requests under the methods on the bench; it belongs to no run."""
    with gr.Tab(text.REPLAY, id="what-if", elem_id="kv-tab-what-if"):
        block("tab-question-what-if", f'<p class="kv-tab-question">{text.REPLAY_QUESTION}</p>')
        with gr.Column(elem_id="kv-replay", elem_classes="kv-measure-box", min_width=0):
            block("replay-help", f'<p class="kv-help">{text.REPLAY_HELP}</p>')
            with gr.Row(elem_classes="kv-measure"):
                page.add(
                    replay_last=gr.Number(
                        USUAL, label=text.REPLAY_LAST, step=1, min_width=90, elem_id="kv-replay-last"
                    ),
                    replay_run=gr.Button(
                        text.REPLAY_RUN, variant="primary", size="md", elem_id="kv-replay-run", scale=0
                    ),
                    replay_ablation=gr.Button(
                        text.REPLAY_ABLATION, size="md", elem_id="kv-replay-ablation", scale=0
                    ),
                )
            for name in ("last", "run"):
                page.add(**{f"error_replay_{name}": error_slot(f"replay-{name}")})
        page.add(replay_status=block("replay-status"))
        with gr.Row(visible=False, elem_id="kv-replay-looks", elem_classes="kv-measure") as looks:
            page.add(
                replay_looks=looks,
                pick_replay=gr.Dropdown(
                    [],
                    label=text.REPLAY_REQUEST,
                    min_width=220,
                    filterable=False,
                    elem_id="kv-replay-request",
                ),
            )
        page.add(view_replay=figure_view("replay", before_replay()))


def build_proximity(page: Page) -> None:
    """The tab that measures the model itself; it belongs to no run."""
    usual = first_asked()
    with gr.Tab(text.PROXIMITY, id="proximity", elem_id="kv-tab-proximity"):
        block("tab-question-proximity", f'<p class="kv-tab-question">{text.PROXIMITY_QUESTION}</p>')
        with gr.Column(elem_id="kv-proximity", min_width=0):
            block("proximity-help", f'<p class="kv-help">{text.PROXIMITY_HELP}</p>')
            with gr.Row(elem_classes="kv-prefixes"):
                for name, label in (("prefix_a", text.PREFIX_A), ("prefix_b", text.PREFIX_B)):
                    with gr.Column(min_width=0):
                        box = gr.Textbox(
                            getattr(usual, name), label=label, lines=3, max_lines=8,
                            elem_id=f"kv-proximity-{name}",
                        )  # fmt: skip
                        slot = error_slot(f"proximity-{name}")
                    page.add(**{f"proximity_{name}": box, f"error_proximity_{name}": slot})
            with gr.Row(elem_classes="kv-measure"):
                for name, label in text.PROXIMITY_NUMBERS.items():
                    count = gr.Number(
                        getattr(usual, name),
                        label=label,
                        step=1,
                        min_width=90,
                        elem_id=f"kv-proximity-{name}",
                    )
                    page.add(**{f"proximity_{name}": count})
                page.add(
                    measure=gr.Button(
                        text.MEASURE, variant="primary", size="md", elem_id="kv-measure", scale=0
                    )
                )
            for name in (*text.PROXIMITY_NUMBERS, "measure"):
                page.add(**{f"error_proximity_{name}": error_slot(f"proximity-{name}")})
        page.add(
            proximity_status=block("proximity-status"), view_proximity=figure_view("proximity", before())
        )
