"""One run under many settings of KVCOMM, computed ahead, so that a page can turn controls without a model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.methods.registry import make_options, method_class, option_fields
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import RunDone
from backend.records.request import MethodChoice
from backend.records.run import RunRecord
from backend.session.revision import NOTE, Revised
from lab_app.ui.run_results import marked
from lab_app.ui.scenarios import USUAL_WARM
from viz.anchors.pool import gate_view
from viz.base.figure import FigureView
from viz.run.cache_error_facts import error_by_layer
from viz.run.comparison import comparison_html
from viz.run.tabs import Selection, default_selection
from viz.run.token_strip import strip_html
from viz.run.verdict_card import run_card

METHOD = "kvcomm"
STEPS = ("rotate", "placeholder_offset", "prefix_offset")


@dataclass(frozen=True)
class Axis:
    """One control: its values' names, and the option values behind each; ``at``: those of the run."""

    key: str
    label: str
    help: str
    names: tuple[str, ...]
    options: tuple[Mapping[str, Any], ...]

    @property
    def at(self) -> int:
        """The first value that changes nothing."""
        default = make_options(METHOD, {})
        return next(i for i, options in enumerate(self.options) if make_options(METHOD, options) == default)


def axes() -> tuple[Axis, ...]:
    """The controls that can be turned."""
    fields = {field.name: field for field in option_fields(method_class(METHOD))}

    def numbers(name: str, values: Sequence[float]) -> Axis:
        field = fields[name]
        return Axis(
            name, field.label, field.help, tuple(f"{v:g}" for v in values), tuple({name: v} for v in values)
        )

    off = [{name: False} for name in STEPS]
    all_off = dict.fromkeys(STEPS, False)
    steps = Axis(
        "steps", "Alignment steps", "Each of the three steps left out, and all of them.",
        ("all three", *(f"without: {fields[name].label.lower()}" for name in STEPS), "none"),
        ({}, *off, all_off),
    )  # fmt: skip
    profiles = method_class(METHOD).profiles.values()
    profile = Axis(
        "profile", "Profile", "How open points of the paper are read.",
        tuple(p.title for p in profiles), tuple(p.options for p in profiles),
    )  # fmt: skip
    gammas = numbers("gamma", [round(0.1 * step, 1) for step in range(11)])
    return gammas, numbers("capacity", [0, 1, 2, 3, 5, 8, 12, 20]), steps, profile


def revised(lab: Any, record: RunRecord) -> Iterator[RunRecord]:
    """The run of ``record``, made again, under every setting of every axis.

    Args:
        lab: a fresh session (:class:`backend.lab.Lab`).
        record: dense, position-only and KVCOMM on a preset.
    """
    request = replace(record.request, probe_attention=False)
    for _ in lab.warm_up(request, preset_requests(load_preset(request.pipeline.name), USUAL_WARM, seed=1)):
        pass
    [first] = [event.record for event in lab.run(request) if isinstance(event, RunDone)]
    for axis in axes():
        for options in axis.options:
            methods = tuple(
                MethodChoice(m.name, dict(options), m.label) if m.name == METHOD else m
                for m in request.methods
            )
            last = [e for e in lab.revise(first, replace(request, methods=methods)) if isinstance(e, Revised)]
            yield last[-1].record


def setting(record: RunRecord) -> tuple[dict[str, Any], tuple[FigureView, ...]]:
    """What a page shows of the run under one setting, and its figures."""
    agent = default_selection(record).agent
    chosen = Selection(agent, METHOD)
    figures = (gate_view(record, agent, METHOD), error_by_layer(record, agent))
    return {
        "note": " ".join(note for note in record.notes if note.startswith(NOTE)),
        "verdict": run_card(record),
        "comparison": str(comparison_html(record)),
        "strip": str(strip_html(record, agent, marked(record, chosen), METHOD)),
        "figures": {view.key: view.figure.to_plotly_json() for view in figures if not view.empty},
        "findings": {view.key: view.finding for view in figures},
    }, figures
