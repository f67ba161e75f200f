"""A handler's ``{name: value}`` as updates of widgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gradio as gr

from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Box
from lab_app.pages.pipeline.layout import Page, value_classes, weights_choices
from lab_app.ui import text
from lab_app.ui.method_choice import Standing
from lab_app.ui.types import Update

#: Parts of tabs that clear their messages themselves.
OF_PARTS = ("error_proximity", "error_study", "error_cost", "error_replay", "error_pays")


def applied(page: Page, update: Update) -> dict[Any, Any]:
    """Updates by widget. Names without a rule of their own set the widget's value."""
    out: dict[Any, Any] = {}
    for name, value in update.items():
        special = SPECIAL.get(name)
        if special is not None:
            for widget, change in special(page, value).items():
                out[widget] = (
                    {**out[widget], **change}
                    if isinstance(out.get(widget), dict) and isinstance(change, dict)
                    else change
                )
        elif name.startswith("pick_"):
            out[page[name]] = gr.update(choices=value[0], value=value[1])
        else:
            out[page[name]] = value
    # the framework takes an answer without any widget for a mistake
    return out or {page["status"]: gr.update()}


def show_running(page: Page, running: bool) -> dict[Any, Any]:
    """Run turns into Cancel and back."""
    return {page["run"]: gr.update(visible=not running), page["cancel"]: gr.update(visible=running)}


def show_agents(page: Page, count: int) -> dict[Any, Any]:
    """One card per agent."""
    return {page[f"agent_{slot}"]: gr.update(visible=slot < count) for slot in range(AGENT_SLOTS)}


def show_values(page: Page, boxes: tuple[Box, ...]) -> dict[Any, Any]:
    """One box per outside placeholder."""
    out = {}
    for slot in range(VALUE_SLOTS):
        if slot >= len(boxes):
            out[page[f"value_{slot}"]] = gr.update(visible=False)
            continue
        box = boxes[slot]
        more: dict[str, Any] = {} if box.text is None else {"value": box.text}
        more["elem_classes"] = [*value_classes(slot), "kv-lined"] if box.lined else value_classes(slot)
        hint = "" if box.required else text.MAY_BE_EMPTY
        out[page[f"value_{slot}"]] = gr.update(visible=True, label=box.label, placeholder=hint, **more)
    return out


def show_methods(page: Page, chosen: tuple[str, ...]) -> dict[Any, Any]:
    """The option panels of the chosen methods."""
    out = {panel.group: gr.update(visible=name in chosen) for name, panel in page.panels.items()}
    out[page["warm_group"]] = gr.update(visible=bool(set(chosen) & set(page.panels)))
    return out


def show_errors(page: Page, errors: Mapping[str, str]) -> dict[Any, Any]:
    """Every message in its slot; slots without one are emptied."""
    slots = error_slots(page)
    out: dict[Any, Any] = dict.fromkeys(slots.values(), "")
    for where, message in errors.items():
        slot = slots.get(f"error_{where}", page["error_run"])
        out[slot] = out[slot] + message
    return out


def error_slots(page: Page) -> dict[str, Any]:
    """Where messages about the bench can stand."""
    slots = {
        name: widget
        for name, widget in page.widgets.items()
        if name.startswith("error_") and name != "error_record" and not name.startswith(OF_PARTS)
    }
    return slots | {f"error_{name}": panel.error for name, panel in page.panels.items()}


def show_profiles(page: Page, standings: Mapping[str, Standing]) -> dict[Any, Any]:
    """Which profile the boxes say, and how many of the folded options differ from their defaults."""
    out: dict[Any, Any] = {}
    for name, standing in standings.items():
        panel = page.panels[name]
        if panel.profile is not None:
            out[panel.profile] = standing.profile
            out[panel.note] = pipeline_html.profile_note(standing)
        if panel.more is not None:
            count = f" · {standing.folded} changed" if standing.folded else ""
            out[panel.more] = gr.update(label=text.MORE_OPTIONS + count)
    return out


def show_weights(page: Page, models: tuple[str, ...]) -> dict[Any, Any]:
    """The weights of each agent; the boxes are hidden where there is nothing to choose."""
    out = {}
    for slot in range(AGENT_SLOTS):
        model = models[slot] if slot < len(models) else ""
        out[page[f"weights_{slot}"]] = gr.update(
            choices=weights_choices(page.weights, model), value=model, visible=bool(page.weights or model)
        )
    return out


def show_options(page: Page, options: Mapping[str, Mapping[str, Any]]) -> dict[Any, Any]:
    """Values of methods' options."""
    return {
        page.panels[method].options[name]: value
        for method, values in options.items()
        for name, value in values.items()
    }


def show_columns(page: Page, switched: Mapping[str, tuple[str, ...]]) -> dict[Any, Any]:
    """The switches that add columns, by their kind: the methods for which they are on."""
    boxes = ((panel, kind, getattr(panel, kind)) for panel in page.panels.values() for kind in switched)
    return {box: panel.name in switched[kind] for panel, kind, box in boxes if box is not None}


SPECIAL: dict[str, Callable[[Page, Any], dict[Any, Any]]] = {
    "running": show_running,
    "agents": show_agents,
    "values": show_values,
    "shown_methods": show_methods,
    "errors": show_errors,
    "options": show_options,
    "columns": show_columns,
    "undo": lambda page, value: {page["undo"]: gr.update(interactive=value)},
    "redo": lambda page, value: {page["redo"]: gr.update(interactive=value)},
    "gallery": lambda page, value: {page["gallery"]: gr.update(visible=value)},
    "picked_example": lambda page, value: {page["pick_example"]: gr.update(value=value)},
    "selection": lambda page, value: {},
    "results": lambda page, value: {page["results"]: gr.update(visible=value)},
    "measuring": lambda page, value: {page["measure"]: gr.update(interactive=not value)},
    "study_looks": lambda page, value: {page["study_looks"]: gr.update(visible=value)},
    "replay_looks": lambda page, value: {page["replay_looks"]: gr.update(visible=value)},
    "pays_sheet": lambda page, value: {page["pays_sheet"]: gr.update(visible=value)},
    "pays_here": lambda page, value: {page["pays_measure"]: gr.update(visible=value)},
    "studying": lambda page, value: {page["study_measure"]: gr.update(interactive=not value)},
    "profiles": show_profiles,
    "weights": show_weights,
    "next": lambda page, value: {page["next"]: gr.update(interactive=value)},
}
