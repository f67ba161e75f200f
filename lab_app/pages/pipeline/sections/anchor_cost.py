"""The measurement in the Anchors tab: what pools cost by their size. It needs no run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from backend.base.errors import OptionError
from backend.records.anchor_cost import COST_LIMITS, AnchorCost, AnchorCostRequest
from lab_app.ui import text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Update
from lab_app.ui.validation import FormReader
from lab_app.visits.visits import Visit, VisitStore
from viz.anchors.cost import views
from viz.base.format import clip, milliseconds, plural

KIND = "anchors"
MOST_NUMBERS = 8


@dataclass(frozen=True)
class Asked:
    """The boxes as they stand; may be wrong. Numbers in a box are separated by commas."""

    anchors: Any
    lengths: Any
    agents: Any


FIELDS = tuple(field.name for field in dataclasses.fields(Asked))
SECTION = Section("cost", FIELDS)


def first_asked() -> Asked:
    """What stands in the boxes at first."""
    usual = AnchorCostRequest()
    anchors, lengths = (", ".join(map(str, row)) for row in (usual.anchors, usual.lengths))
    return Asked(anchors, lengths, str(usual.agents))


def read(asked: Asked) -> AnchorCostRequest:
    """A checked request.

    Raises:
        Problems: every box that cannot be read.
    """
    reader = FormReader(vars(asked))
    found = {name: reader.attempt(name, partial(_numbers, getattr(asked, name), name)) for name in FIELDS}
    reader.done()
    return AnchorCostRequest(found["anchors"], found["lengths"], found["agents"][0])


def _numbers(box: Any, name: str) -> tuple[int, ...]:
    """Whole numbers, each once, smallest first."""
    written, (low, high) = str(box or ""), COST_LIMITS[name]
    most = 1 if name == "agents" else MOST_NUMBERS
    parts = [part.strip() for part in written.replace(";", ",").split(",") if part.strip()]
    good = [p for p in parts if p.isascii() and p.isdigit() and len(p) < 9 and low <= int(p) <= high]
    if not parts or len(good) < len(parts) or len(parts) > most:
        bad = next((p for p in parts if p not in good), written.strip() or "empty")
        count = "one whole number" if most == 1 else f"up to {most} whole numbers with commas between"
        raise OptionError(
            f"{text.COST_BOXES[name]} is {bad[:40]!r}; allowed: {count}, {low} to {high:,}. Change it.",
            field=name,
        )
    return tuple(sorted({int(p) for p in good}))


def measure(lab: VisitStore, visit: Visit, asked: Asked) -> Iterator[Update]:
    """Measure, one at a time per visit, and show the record."""

    def finished(record: AnchorCost) -> Update:
        facts = (
            f"Pools of up to {plural(record.request.anchors[-1], 'anchor')} of up to "
            f"{plural(record.request.lengths[-1], 'token')} on {clip(record.model.name, 40)}, "
            f"{record.model.device}, in {milliseconds(record.wall_ms)}."
        )
        saved = SECTION.saved(facts, KIND, visit.keep_result(KIND, record))
        return saved | {SECTION.view: payload(views(record))}

    yield from SECTION.measure(
        lab, visit, lambda: read(asked), lambda request, _: visit.engine.study(request), finished
    )


def build(page: PageBuilder) -> None:
    """The widgets, inside the Anchors tab."""
    usual = first_asked()
    with SECTION.box(text.COST, text.COST_HELP, elem_id="kv-pool-cost"):
        with gr.Row(elem_classes="kv-measure"):
            for name, label in text.COST_BOXES.items():
                SECTION.text_box(page, name, label, getattr(usual, name), max_lines=1, min_width=110)
            SECTION.button(page)
        SECTION.error(page, *FIELDS, "measure")
    SECTION.said(page)
    SECTION.figures(page)


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.stream(
        page["cost_measure"].click,
        lambda visit, given: measure(page.lab, visit, Asked(**SECTION.asked(given))),
        *SECTION.names,
        outputs=page.part(SECTION.part),
    )
