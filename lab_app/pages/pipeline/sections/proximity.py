"""The Proximity tab: how near tokens' embeddings are, and how near their keys and values. It needs no run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.prompts.presets import load_preset
from backend.records.proximity import LIMITS, ProximityRecord, ProximityRequest
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section, plan
from lab_app.ui.page import PageBuilder, any_edit
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, NumberField
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, milliseconds, plural
from viz.studies.proximity import examples, views

KIND = "proximity"
#: Whose role texts stand in the boxes at first: (preset, agent).
ROLES = (("math-3", 1), ("judge-majority", 1))
NUMBERS = {name: NumberField(text.PROXIMITY_NUMBERS[name], *limits) for name, limits in LIMITS.items()}


@dataclass(frozen=True)
class Asked:
    """The tab's boxes as they stand; may be wrong."""

    prefix_a: Any
    prefix_b: Any
    vocabulary: Any
    pairs: Any
    seed: Any


FIELDS = tuple(field.name for field in dataclasses.fields(Asked))
SECTION = Section("proximity", FIELDS)


def first_asked() -> Asked:
    """What stands in the boxes at first: two agents' prompts up to their first hole."""
    role_a, role_b = (str(load_preset(name).pipeline.template(agent).parts[0]) for name, agent in ROLES)
    usual = ProximityRequest(role_a, role_b)
    return Asked(**{name: getattr(usual, name) for name in FIELDS})


def read(asked: Asked) -> ProximityRequest:
    """A checked request.

    Raises:
        Problems: every number that is out of its range.
    """
    reader = FormReader(vars(asked))
    numbers = {name: reader.number(name, field) for name, field in NUMBERS.items()}
    reader.done()
    return ProximityRequest(str(asked.prefix_a or ""), str(asked.prefix_b or ""), **numbers)


def measure(lab: VisitStore, visit: Visit, asked: Asked) -> Iterator[Update]:
    """Measure, one at a time per visit, and show the record."""

    def finished(record: ProximityRecord) -> Update:
        visit.keep_result(KIND, record)
        return render_result(visit) | {SECTION.view: payload((*views(record), examples(record)))}

    yield from SECTION.measure(
        lab, visit, lambda: read(asked), lambda request, _: visit.engine.study(request), finished
    )


def edited(visit: Visit, asked: Asked) -> Update:
    """Messages about what was just typed, and whether the figures still belong to it."""
    if visit.measuring:
        return {}
    try:
        request = read(asked)
    except LabError as error:
        return SECTION.errors(error)
    record = visit.result(KIND)
    if record is None:
        return SECTION.errors(None)
    if record.request == request:
        return SECTION.errors(None) | render_result(visit)
    return SECTION.errors(None) | {SECTION.status: html.status(text.MEASURE_EDITED, "note")}


def render_result(visit: Visit) -> Update:
    """What the visit's measurement was, and the link that saves it."""
    token, record = visit.results[KIND]
    facts = (
        f"The {plural(len(record.embedding), 'nearest pair')} of {plural(record.sampled, 'token')} "
        f"on {clip(record.model.name, 40)}, seed {record.request.seed}, in {milliseconds(record.wall_ms)}."
    )
    return SECTION.saved(facts, KIND, token)


def build(page: PageBuilder) -> None:
    """The tab."""
    usual = first_asked()
    with gr.Tab(text.PROXIMITY, id="proximity", elem_id="kv-tab-proximity"):
        gr.HTML(
            f'<p class="kv-tab-question">{text.PROXIMITY_QUESTION}</p>',
            elem_id="kv-tab-question-proximity", apply_default_css=False,
        )  # fmt: skip
        with SECTION.box("", text.PROXIMITY_HELP, classes=""):
            with gr.Row(elem_classes="kv-prefixes"):
                for name, label in (("prefix_a", text.PREFIX_A), ("prefix_b", text.PREFIX_B)):
                    with gr.Column(min_width=0):
                        SECTION.text_box(page, name, label, getattr(usual, name), lines=3, max_lines=8)
                        SECTION.error(page, name)
            with gr.Row(elem_classes="kv-measure"):
                for name, field in NUMBERS.items():
                    SECTION.number(page, name, field, getattr(usual, name))
                SECTION.button(page, elem_id="kv-measure")
            SECTION.error(page, *NUMBERS, "measure")
        SECTION.said(page)
        SECTION.figures(page, plan("proximity_plan", text.PROXIMITY_PLAN, text.PROXIMITY_STEPS))


def connect(page: PageBuilder) -> None:
    """What the widgets do."""

    def asked(given: Given) -> Asked:
        return Asked(**SECTION.asked(given))

    outputs = page.part(SECTION.part)
    page.stream(
        page["proximity_measure"].click,
        lambda visit, given: measure(page.lab, visit, asked(given)),
        *SECTION.names,
        outputs=outputs,
    )
    for name in SECTION.names:
        page.on(
            any_edit(page[name]), lambda visit, given: edited(visit, asked(given)), *SECTION.names,
            latest=True, outputs=outputs,
        )  # fmt: skip
