"""The measurement in the Errors tab: which part of the cache changed the chosen agent's answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import gradio as gr

from backend.base.errors import OptionError
from backend.records.blame import BLAME_LIMITS, BlameRecord, BlameRequest
from lab_app.ui import text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section
from lab_app.ui.page import PageBuilder
from lab_app.ui.run_results import choices
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, NumberField
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import agent_name, clip, milliseconds, plural
from viz.studies.blame import views

KIND = "blame"
PICKED = ("pick_agent", "pick_method")
FIELDS = {name: NumberField(text.BLAME_BOXES[name], *BLAME_LIMITS[name]) for name in text.BLAME_BOXES}
SECTION = Section("blame", tuple(FIELDS))


def read(visit: Visit, given: Given) -> BlameRequest:
    """A checked request about the run on the screen.

    Raises:
        Problems: a box is wrong; OptionError: there is no run.
    """
    if visit.record is None:
        raise OptionError(text.BLAME_NO_RUN, field="run")
    chosen = choices(visit.record, given["pick_agent"], given["pick_method"], None)["selection"]
    reader = FormReader(SECTION.asked(given))
    found: dict[str, Any] = {name: reader.number(name, field) for name, field in FIELDS.items()}
    reader.done()
    return replace(BlameRequest(visit.record.request, chosen.method, chosen.agent), **found)


def measure(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """Search, one at a time per visit, and show the record."""

    def events(request: BlameRequest, cancel: threading.Event) -> Iterator[Any]:
        return visit.engine.study(request, cancel=cancel)

    def finished(record: BlameRecord) -> Update:
        asked = record.request
        facts = (
            f"{agent_name(asked.run.pipeline, asked.agent)} under {clip(asked.method, 40)}, "
            f"{plural(record.passes, 'pass', 'passes')} in {milliseconds(record.wall_ms)}."
        )
        saved = SECTION.saved(facts, KIND, visit.keep_result(KIND, record))
        return saved | {SECTION.view: payload(views(record))}

    yield from SECTION.measure(lab, visit, lambda: read(visit, given), events, finished)


def build(page: PageBuilder) -> None:
    """The widgets, inside the Errors tab."""
    with SECTION.box(text.BLAME, text.BLAME_HELP):
        with gr.Row(elem_classes="kv-measure"):
            for name, field in FIELDS.items():
                SECTION.number(page, name, field, getattr(BlameRequest, name))
            SECTION.button(page)
        SECTION.error(page, *FIELDS, "measure")
    SECTION.said(page)
    SECTION.figures(page)


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.stream(
        page["blame_measure"].click,
        lambda visit, given: measure(page.lab, visit, given),
        *SECTION.names,
        *PICKED,
        outputs=page.part(SECTION.part),
    )
