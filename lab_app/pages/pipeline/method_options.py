"""Widgets from a method's option fields: a new method shows up on the bench by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from lab_app.pages.pipeline import html as pipeline_html
from lab_app.ui import text
from lab_app.ui.components import error_slot
from lab_app.ui.method_choice import standing


@dataclass(frozen=True)
class MethodPanel:
    """A method's widgets: ``options`` by option name; ``profile`` sets them all and follows them, ``note``
    says how they stand to it, ``more`` is the fold of the seldom used ones."""

    name: str
    group: gr.Column
    options: dict[str, Any]
    profile: gr.Radio | None
    note: gr.HTML | None
    more: gr.Accordion | None
    every_profile: gr.Checkbox | None
    ablate: gr.Checkbox | None
    error: gr.HTML


def option_widget(method: str, option: Any) -> Any:
    """One option as a widget of its kind."""
    common: dict[str, Any] = {
        "label": option.label,
        "elem_id": f"kv-option-{method}-{option.name}",
        "elem_classes": f"kv-option kv-kind-{option.kind}",
        "interactive": True,
    }
    info = f"{option.help} ({option.paper})" if option.paper else option.help
    if option.kind == "bool":
        return gr.Checkbox(value=option.default, info=info, **common)
    if option.kind == "choice":
        return gr.Radio(list(option.choices), value=option.default, info=info, **common)
    span = f" {option.minimum:g} to {option.maximum:g}." if option.minimum is not None else ""
    step = 1 if option.kind == "int" else 0.05
    return gr.Number(value=option.default, info=info + span, step=step, precision=None, **common)


def method_panel(cls: Any, fields: tuple[Any, ...], shown: bool) -> MethodPanel:
    """All options of a method: its profiles, switches, then numbers; seldom used ones are folded away. Last
    come the switches that add columns, with the place for messages."""
    basic = [f for f in fields if not f.advanced]
    switches = [f for f in basic if f.kind == "bool"]
    folded = [f for f in fields if f.advanced]
    widgets: dict[str, Any] = {}
    profile = note = every_profile = ablate = more = None
    with gr.Column(visible=shown, elem_classes="kv-method-panel", elem_id=f"kv-panel-{cls.name}") as group:
        gr.HTML(f'<p class="kv-panel-title"><b>{cls.title}.</b> {cls.summary}</p>', apply_default_css=False)
        if cls.profiles:
            first = next(iter(cls.profiles))
            profile = gr.Radio(
                [(found.title, key) for key, found in cls.profiles.items()],
                value=first,
                label=text.PROFILE,
                info=text.PROFILE_HELP,
                elem_id=f"kv-profile-{cls.name}",
                elem_classes="kv-option kv-kind-choice kv-profile",
            )
            note = gr.HTML(
                pipeline_html.profile_note(standing(cls.name, {})), elem_id=f"kv-profile-note-{cls.name}",
                elem_classes="kv-profile-note", apply_default_css=False,
            )  # fmt: skip
        for field in switches:
            widgets[field.name] = option_widget(cls.name, field)
        _settings(cls.name, [f for f in basic if f.kind != "bool"], widgets)
        if folded:
            with gr.Accordion(
                text.MORE_OPTIONS, open=False, elem_id=f"kv-more-{cls.name}", elem_classes="kv-more"
            ) as more:
                for field in folded:
                    if field.kind == "bool":
                        widgets[field.name] = option_widget(cls.name, field)
                _settings(cls.name, [f for f in folded if f.kind != "bool"], widgets)
        if cls.profiles:
            every_profile = _adds(f"kv-every-profile-{cls.name}", text.EVERY_PROFILE, len(cls.profiles))
        if len(switches) > 1:
            ablate = _adds(f"kv-ablate-{cls.name}", text.ABLATE, len(switches))
        error = error_slot(f"panel-{cls.name}")
    return MethodPanel(cls.name, group, widgets, profile, note, more, every_profile, ablate, error)


def _adds(name: str, label: str, columns: int) -> gr.Checkbox:
    """A switch that adds columns."""
    return gr.Checkbox(
        False, label=label, info=f"Adds up to {columns} columns.", elem_id=name,
        elem_classes="kv-option kv-kind-bool kv-adds",
    )  # fmt: skip


def _settings(method: str, fields: list[Any], widgets: dict[str, Any]) -> None:
    """Numbers in a row, then choices."""
    numbers = [f for f in fields if f.kind in ("int", "float")]
    if numbers:
        with gr.Row(elem_classes="kv-numbers"):
            for field in numbers:
                widgets[field.name] = option_widget(method, field)
    for field in fields:
        if field.kind == "choice":
            widgets[field.name] = option_widget(method, field)
