"""The part of the Timing tab that says when reuse pays: lengths, pool and hardware in, the formula's answer
out at once (docs/break-even.md). It belongs to no run; only *this machine* has to be measured first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.records.break_even import MOST, Case
from backend.records.hardware import OF_SHEET, SHAPES, Figures, given_machine, shipped_figures
from lab_app.ui import text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, NumberField, Problem
from lab_app.visits.visits import Visit, VisitStore
from viz.base.figure import FigureView, Panel
from viz.studies.break_even_calculator import views

KEY = "break_even"
HERE, SHEET = "here", "sheet"
NUMBERS = {
    "prompt": NumberField(text.PAYS_BOXES["prompt"], 1, MOST["prompt"]),
    "shared": NumberField(text.PAYS_BOXES["shared"], 0, 100, whole=False),
    "outside": NumberField(text.PAYS_BOXES["outside"], 0, 100, whole=False),
    "readers": NumberField(text.PAYS_BOXES["readers"], 1, MOST["readers"]),
    "anchors": NumberField(text.PAYS_BOXES["anchors"], 0, MOST["anchors"]),
    "mixed": NumberField(text.PAYS_BOXES["mixed"], 0, MOST["mixed"]),
    **{name: NumberField(text.PAYS_BOXES[name], *limits, whole=False) for name, limits in OF_SHEET.items()},
}


@dataclass(frozen=True)
class Asked:
    """The boxes as they stand; may be wrong. ``shared`` and ``outside`` in percent."""

    prompt: Any = 1000
    shared: Any = 75
    outside: Any = 0
    readers: Any = 1
    anchors: Any = 20
    mixed: Any = 20
    hardware: Any = SHEET
    shape: Any = "llama-8b"
    tflops: Any = 600
    gb_s: Any = 2500


FIELDS = tuple(field.name for field in dataclasses.fields(Asked))
SECTION = Section("pays", FIELDS)


@cache
def shipped() -> dict[str, Figures]:
    """Figures that were measured before, by the value of their choice."""
    return shipped_figures()


def first_asked() -> Asked:
    """What stands in the boxes at first: hardware that was measured, if figures of some lie with the lab."""
    return Asked(hardware=next(iter(shipped()), SHEET))


def hardware() -> list[tuple[str, str]]:
    """The choices of hardware."""
    measured = [
        (text.PAYS_SHIPPED.format(model=found.machine.name, where=found.where), name)
        for name, found in shipped().items()
    ]
    return [(text.PAYS_HERE, HERE), *measured, (text.PAYS_SHEET, SHEET)]


def read(asked: Asked, here: Figures | None) -> tuple[Figures | None, Case]:
    """The hardware's figures (None: this machine, which is not measured yet) and the case.

    Args:
        here: this machine's, if it was measured.

    Raises:
        Problems: everything that is wrong.
    """
    sheet, reader = asked.hardware == SHEET, FormReader(vars(asked))
    numbers = {
        name: reader.number(name, field) for name, field in NUMBERS.items() if sheet or name not in OF_SHEET
    }
    wrong = {problem.field for problem in reader.found}
    if sheet and asked.shape not in SHAPES:
        reader.found.append(_unknown("shape", asked.shape))
    if not sheet and asked.hardware != HERE and asked.hardware not in shipped():
        reader.found.append(_unknown("hardware", asked.hardware))
    if not wrong & {"anchors", "mixed"} and numbers["mixed"] > numbers["anchors"]:
        message = text.PAYS_MIXED.format(mixed=numbers["mixed"], anchors=numbers["anchors"])
        reader.found.append(Problem("mixed", message))
    reader.done()
    shared = round(numbers["prompt"] * numbers["shared"] / 100)
    counts = {name: numbers[name] for name in ("readers", "anchors", "mixed")}
    case = Case(numbers["prompt"], shared, round(shared * numbers["outside"] / 100), **counts)
    if sheet:
        machine = given_machine(str(asked.shape), numbers["tflops"], numbers["gb_s"])
        return Figures(machine, text.PAYS_BY_SHEET), case
    return here if asked.hardware == HERE else shipped()[asked.hardware], case


def _unknown(name: str, value: Any) -> Problem:
    return Problem(name, f"There is no {name} {str(value)[:40]!r}. Choose one of the list.")


def render_figures(asked: Asked, here: Figures | None) -> dict[str, Any]:
    """The answer's figures.

    Raises:
        Problems: see :func:`read`.
    """
    figures, case = read(asked, here)
    found: tuple[Panel | FigureView, ...] = (
        (Panel("pays", text.PAYS_NOT_YET_TITLE, f'<p class="kv-how">{text.PAYS_NOT_YET}</p>'),)
        if figures is None
        else views(figures, case)
    )
    return payload(found)


def edited(visit: Visit, asked: Asked) -> Update:
    """The answer to what was just typed, or what is wrong with it."""
    boxes: Update = {
        "pays_sheet.visible": asked.hardware == SHEET,
        "pays_measure.visible": asked.hardware == HERE,
    }
    try:
        return SECTION.errors(None) | boxes | {"view_pays": render_figures(asked, visit.pages.get(KEY))}
    except LabError as error:
        unread = Panel("pays", text.PAYS_UNREAD, f'<p class="kv-how">{text.PAYS_UNREAD_HELP}</p>')
        return SECTION.errors(error) | boxes | {"view_pays": payload((unread,))}


def measure(lab: VisitStore, visit: Visit, asked: Asked) -> Iterator[Update]:
    """Measure this machine, one at a time per visit, and answer by it."""

    def finished(figures: Figures) -> Update:
        visit.pages[KEY] = figures
        return edited(visit, asked) | {SECTION.status: ""}

    yield from SECTION.measure(
        lab, visit, lambda: None, lambda request, _: visit.engine.machine_figures(), finished
    )


# -- the widgets ---------------------------------------------------------------------------------------------


def build(page: PageBuilder) -> None:
    """The widgets, inside the Timing tab."""
    usual = first_asked()

    def numbers(*names: str) -> None:
        for name in names:
            with gr.Column(min_width=0):
                SECTION.number(page, name, NUMBERS[name], getattr(usual, name))
                SECTION.error(page, name)

    # Its boxes take the browser half a second, and the tab's figures come first: see :func:`connect`.
    with gr.Column(visible=False, min_width=0) as column:
        page.add(pays=column)
        with SECTION.box(text.PAYS, text.PAYS_HELP):
            with gr.Row(elem_classes="kv-pays-row"):
                numbers("prompt", "shared", "outside", "readers", "anchors", "mixed")
            with gr.Row(elem_classes="kv-pays-row"):
                with gr.Column(min_width=0, elem_classes="kv-pays-wide"):
                    page.add(
                        pays_hardware=gr.Dropdown(
                            hardware(), value=usual.hardware, label=text.PAYS_HARDWARE, filterable=False,
                            elem_id="kv-pays-hardware",
                        )
                    )  # fmt: skip
                    SECTION.error(page, "hardware")
                SECTION.button(page, text.PAYS_MEASURE, visible=False)
            with gr.Row(
                elem_classes="kv-pays-row", elem_id="kv-pays-sheet", visible=usual.hardware == SHEET
            ) as sheet:
                page.add(pays_sheet=sheet)
                with gr.Column(min_width=0, elem_classes="kv-pays-wide"):
                    page.add(
                        pays_shape=gr.Dropdown(
                            [(text.PAYS_SHAPES.get(name, name), name) for name in SHAPES], value=usual.shape,
                            label=text.PAYS_SHAPE, filterable=False, elem_id="kv-pays-shape",
                        )
                    )  # fmt: skip
                    SECTION.error(page, "shape")
                numbers(*OF_SHEET)
            SECTION.error(page, "measure")
        SECTION.said(page)
        SECTION.figures(page, render_figures(usual, None))


def connect(page: PageBuilder) -> None:
    """What the widgets do. They are put on the page once the tab is open and its own figures are there."""

    def asked(given: Given) -> Asked:
        return Asked(**SECTION.asked(given))

    outputs = page.part(SECTION.part)
    page.on(
        [page[name].input for name in SECTION.names],
        lambda visit, given: edited(visit, asked(given)),
        *SECTION.names,
        latest=True,
        outputs=outputs,
    )
    page.stream(
        page["pays_measure"].click,
        lambda visit, given: measure(page.lab, visit, asked(given)),
        *SECTION.names,
        outputs=outputs,
    )


def reveal() -> Any:
    """Put it on the page, once the tab's own figures are there."""
    return gr.update(visible=True)
