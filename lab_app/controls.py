"""Widgets from a method's option fields: a new method shows up on the bench by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gradio as gr

from lab_app import text


@dataclass(frozen=True)
class MethodPanel:
    """A method's widgets: ``options`` by option name."""

    name: str
    group: gr.Column
    options: dict[str, Any]
    ablate: gr.Checkbox | None
    error: gr.HTML


def error_slot(name: str) -> gr.HTML:
    """An empty place for messages beside the input ``name``."""
    return gr.HTML("", elem_id=f"kv-error-{name}", elem_classes="kv-error-slot", apply_default_css=False)


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
    """All options of a method: switches first, then numbers and choices."""
    switches = [f for f in fields if f.kind == "bool"]
    rest = [f for f in fields if f.kind != "bool"]
    widgets: dict[str, Any] = {}
    ablate = None
    with gr.Column(visible=shown, elem_classes="kv-method-panel", elem_id=f"kv-panel-{cls.name}") as group:
        gr.HTML(f'<p class="kv-panel-title"><b>{cls.title}.</b> {cls.summary}</p>', apply_default_css=False)
        for field in switches:
            widgets[field.name] = option_widget(cls.name, field)
        if len(switches) > 1:
            ablate = gr.Checkbox(
                False, label=text.ABLATE, info=f"Adds up to {len(switches)} columns.",
                elem_classes="kv-option kv-kind-bool kv-ablate",
                elem_id=f"kv-ablate-{cls.name}",
            )  # fmt: skip
        if rest:
            with gr.Row(elem_classes="kv-numbers"):
                for field in rest:
                    if field.kind in ("int", "float"):
                        widgets[field.name] = option_widget(cls.name, field)
            for field in rest:
                if field.kind == "choice":
                    widgets[field.name] = option_widget(cls.name, field)
        error = error_slot(f"panel-{cls.name}")
    return MethodPanel(cls.name, group, widgets, ablate, error)
