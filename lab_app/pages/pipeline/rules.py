"""Keys of the pipeline's updates that stand for several widgets, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

import gradio as gr

from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Box
from lab_app.pages.pipeline.method_options import MethodPanel
from lab_app.ui import text
from lab_app.ui.method_choice import Standing
from viz.base.format import clip

Answer = dict[Any, Any]


class Panels(Protocol):
    """The pipeline's page, as far as its rules need it."""

    panels: dict[str, MethodPanel]
    weights: tuple[str, ...]

    def __getitem__(self, name: str) -> Any:
        """A widget by name."""


def value_classes(slot: int) -> list[str]:
    """The question stands under its label, the other values beside theirs."""
    return ["kv-value"] if slot == 0 else ["kv-value", "kv-value-more"]


def weights_choices(names: tuple[str, ...], chosen: str = "") -> list[tuple[str, str]]:
    """The lab's own weights and the others by name; ``chosen`` too where this lab does not have it."""
    missing = [(text.WEIGHTS_MISSING.format(name=clip(chosen, 40)), chosen)]
    known = [(text.OWN_WEIGHTS, ""), *((name, name) for name in names)]
    return known + (missing if chosen and chosen not in names else [])


def show_running(page: Panels, running: bool) -> Answer:
    """Run turns into Cancel and back."""
    return {page["run"]: gr.update(visible=not running), page["cancel"]: gr.update(visible=running)}


def show_agents(page: Panels, count: int) -> Answer:
    """One card per agent."""
    return {page[f"agent_{slot}"]: gr.update(visible=slot < count) for slot in range(AGENT_SLOTS)}


def show_values(page: Panels, boxes: tuple[Box, ...]) -> Answer:
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


def show_methods(page: Panels, chosen: tuple[str, ...]) -> Answer:
    """The option panels of the chosen methods."""
    out = {panel.group: gr.update(visible=name in chosen) for name, panel in page.panels.items()}
    out[page["warm_group"]] = gr.update(visible=bool(set(chosen) & set(page.panels)))
    return out


def show_profiles(page: Panels, standings: Mapping[str, Standing]) -> Answer:
    """Which profile the boxes say, and how many of the folded options differ from their defaults."""
    out: Answer = {}
    for name, standing in standings.items():
        panel = page.panels[name]
        if panel.profile is not None:
            out[panel.profile] = standing.profile
            out[panel.note] = pipeline_html.profile_note(standing)
        if panel.more is not None:
            count = f" · {standing.folded} changed" if standing.folded else ""
            out[panel.more] = gr.update(label=text.MORE_OPTIONS + count)
    return out


def show_weights(page: Panels, models: tuple[str, ...]) -> Answer:
    """The weights of each agent; the boxes are hidden where there is nothing to choose."""
    out = {}
    for slot in range(AGENT_SLOTS):
        model = models[slot] if slot < len(models) else ""
        out[page[f"weights_{slot}"]] = gr.update(
            choices=weights_choices(page.weights, model), value=model, visible=bool(page.weights or model)
        )
    return out


def show_options(page: Panels, options: Mapping[str, Mapping[str, Any]]) -> Answer:
    """Values of methods' options."""
    return {
        page.panels[method].options[name]: value
        for method, values in options.items()
        for name, value in values.items()
    }


def show_columns(page: Panels, switched: Mapping[str, tuple[str, ...]]) -> Answer:
    """The switches that add columns, by their kind: the methods for which they are on."""
    boxes = ((panel, kind, getattr(panel, kind)) for panel in page.panels.values() for kind in switched)
    return {box: panel.name in switched[kind] for panel, kind, box in boxes if box is not None}


def rules(page: Panels) -> dict[str, Callable[[Any], Answer]]:
    """What becomes of each such key, as updates by widget."""
    every: dict[str, Callable[[Panels, Any], Answer]] = {
        "running": show_running,
        "agents": show_agents,
        "values": show_values,
        "shown_methods": show_methods,
        "options": show_options,
        "columns": show_columns,
        "profiles": show_profiles,
        "weights": show_weights,
        "selection": lambda page, value: {},  # for the handlers alone
    }
    return {name: partial(rule, page) for name, rule in every.items()}
