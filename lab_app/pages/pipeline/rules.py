"""Keys of the pipeline's updates that each set several widgets."""

from collections.abc import Callable, Mapping
from typing import Any

from backend.methods.registry import method_class, option_fields
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Box
from lab_app.pages.pipeline.method_options import adds_columns, option_name, with_options
from lab_app.ui import text
from lab_app.ui.method_choice import Standing
from lab_app.ui.types import Update
from viz.base.format import clip


def value_classes(slot: int, lined: bool = False) -> str:
    """CSS classes of a value box: the question stands under its label, the others beside theirs."""
    return f"kv-value{' kv-value-more' if slot else ''}{' kv-lined' if lined else ''}"


def weights_choices(names: tuple[str, ...], chosen: str = "") -> list[tuple[str, str]]:
    """The lab's own weights and the others by name; ``chosen`` is listed even if this lab lacks it."""
    missing = [(text.WEIGHTS_MISSING.format(name=clip(chosen, 40)), chosen)]
    choices = [(text.OWN_WEIGHTS, ""), *((name, name) for name in names)]
    return choices + (missing if chosen and chosen not in names else [])


def show_agents(count: int) -> Update:
    """One card per agent."""
    return {f"agent_{slot}.visible": slot < count for slot in range(AGENT_SLOTS)}


def show_values(boxes: tuple[Box, ...]) -> Update:
    """One box per outside placeholder."""
    out: Update = {f"value_{slot}.visible": slot < len(boxes) for slot in range(VALUE_SLOTS)}
    for slot, box in enumerate(boxes[:VALUE_SLOTS]):
        name = f"value_{slot}"
        out[f"{name}.label"] = box.label
        out[f"{name}.placeholder"] = "" if box.required else text.MAY_BE_EMPTY
        out[f"{name}.css"] = value_classes(slot, box.lined)
        if box.text is not None:
            out[name] = box.text
    return out


def show_methods(chosen: tuple[str, ...]) -> Update:
    """The option panels of the chosen methods."""
    names = with_options()
    out: Update = {f"panel_{name}.visible": name in chosen for name in names}
    return out | {"warm_group.visible": bool(set(chosen) & set(names))}


def show_profiles(standings: Mapping[str, Standing]) -> Update:
    """How the options differ from the profiles, and how many folded ones differ from their defaults."""
    out: Update = {}
    for name, standing in standings.items():
        if standing.nearest:
            out[f"profile_note_{name}"] = pipeline_html.profile_note(standing)
        if any(option.advanced for option in option_fields(method_class(name))):
            count = f" · {standing.folded} changed" if standing.folded else ""
            out[f"more_{name}.label"] = text.MORE_OPTIONS + count
    return out


def show_options(options: Mapping[str, Mapping[str, Any]]) -> Update:
    """Values of methods' options."""
    return {option_name(method, name): v for method, fields in options.items() for name, v in fields.items()}


def show_columns(switched: Mapping[str, tuple[str, ...]]) -> Update:
    """The switches that add columns, by their kind: the methods for which they are on."""
    switches = adds_columns()
    return {
        option_name(name, kind): name in methods
        for kind, methods in switched.items()
        for name in switches[kind]
    }


def rules(weights: tuple[str, ...]) -> dict[str, Callable[[Any], Update]]:
    """The function of each such key; ``weights``: the names of those that the lab has."""

    def show_weights(models: tuple[str, ...]) -> Update:
        """The weights of each agent; the boxes are hidden where there is nothing to choose."""
        out: Update = {}
        for slot in range(AGENT_SLOTS):
            model = models[slot] if slot < len(models) else ""
            out[f"weights_{slot}.choices"] = weights_choices(weights, model)
            out[f"weights_{slot}"] = model
            out[f"weights_{slot}.visible"] = bool(weights or model)
        return out

    return {
        "agents": show_agents,
        "values": show_values,
        "shown_methods": show_methods,
        "options": show_options,
        "columns": show_columns,
        "profiles": show_profiles,
        "weights": show_weights,
        "selection": lambda value: {},  # read by handlers, no widget
    }
