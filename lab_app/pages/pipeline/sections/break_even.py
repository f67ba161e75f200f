"""The part of the Timing tab that says when reuse pays: lengths, pool and hardware in, the formula's answer
out at once (docs/break-even.md). It belongs to no run; only *this machine* has to be measured first.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import gradio as gr

from backend.base.errors import LabError, OptionError
from backend.records.break_even import MOST, Case
from backend.records.hardware import OF_SHEET, SHAPES, Figures, given_machine, shipped_figures
from lab_app.pages.pipeline.sections.proximity import REDRAW_SECONDS, working
from lab_app.ui import html, text
from lab_app.ui.components import error_slot, figure_view, payload
from lab_app.ui.types import Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.queue import waiting
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import FigureView, Panel
from viz.studies.break_even_calculator import views

LOG = logging.getLogger("lab_app")
KEY = "calculator"
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
SLOTS = (*FIELDS, "measure")


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
    problems: list[Problem] = []
    numbers: dict[str, float] = {}
    sheet = asked.hardware == SHEET
    for name, field in NUMBERS.items():
        if name in OF_SHEET and not sheet:
            continue
        try:
            numbers[name] = field.read(getattr(asked, name), name)
        except LabError as error:
            problems.append(Problem(name, str(error)))
    if sheet and asked.shape not in SHAPES:
        problems.append(_unknown("shape", asked.shape))
    if not sheet and asked.hardware != HERE and asked.hardware not in shipped():
        problems.append(_unknown("hardware", asked.hardware))
    if {"anchors", "mixed"} <= numbers.keys() and numbers["mixed"] > numbers["anchors"]:
        problems.append(Problem("mixed", text.PAYS_MIXED.format(**{k: int(v) for k, v in numbers.items()})))
    if problems:
        raise Problems(problems)
    prompt = int(numbers["prompt"])
    shared = round(prompt * numbers["shared"] / 100)
    counts = {name: int(numbers[name]) for name in ("readers", "anchors", "mixed")}
    case = Case(prompt, shared, round(shared * numbers["outside"] / 100), **counts)
    if sheet:
        machine = given_machine(str(asked.shape), numbers["tflops"], numbers["gb_s"])
        return Figures(machine, text.PAYS_BY_SHEET), case
    return here if asked.hardware == HERE else shipped()[asked.hardware], case


def _unknown(name: str, value: Any) -> Problem:
    return Problem(name, f"There is no {name} {str(value)[:40]!r}. Choose one of the list.")


def drawn(asked: Asked, here: Figures | None) -> dict[str, Any]:
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
    shown: Update = {
        "pays_sheet": asked.hardware == SHEET,
        "pays_here": asked.hardware == HERE,
    }
    try:
        return told(None) | shown | {"view_pays": drawn(asked, visit.pages.get(KEY))}
    except LabError as error:
        unread = Panel("pays", text.PAYS_UNREAD, f'<p class="kv-how">{text.PAYS_UNREAD_HELP}</p>')
        return told(error) | shown | {"view_pays": payload((unread,))}


def measure(lab: Lab, visit: Visit, asked: Asked) -> Iterator[Update]:
    """Measure this machine, one at a time per visit, and answer by it."""
    if visit.measuring:
        yield {"pays_status": html.status(text.MEASURES_ALREADY, "busy")}
        return
    visit.measuring = True
    try:
        yield told(None) | {"pays_status": working("Starting", 0, 1)}
        with lab.in_line() as place:
            for said in waiting(place):
                yield {"pays_status": html.status(said, "busy")}
            last = 0.0
            for event in visit.engine.machine_figures():
                if isinstance(event, Figures):
                    visit.pages[KEY] = event
                elif time.monotonic() - last >= REDRAW_SECONDS:
                    last = time.monotonic()
                    yield {"pays_status": working(event.text, event.done, event.total)}
        yield edited(visit, asked) | {"pays_status": ""}
    except LabError as error:
        yield told(OptionError(str(error), field="measure")) | {"pays_status": ""}
    except Exception as error:
        LOG.exception("measuring this machine failed")
        yield {"pays_status": html.status(text.UNEXPECTED.format(kind=type(error).__name__), "error")}
    finally:
        visit.measuring = False


def told(error: LabError | None) -> Update:
    """Messages beside their boxes; boxes without one are cleared."""
    slots = dict.fromkeys((f"error_pays_{name}" for name in SLOTS), "")
    found = error.found if isinstance(error, Problems) else () if error is None else (
        Problem(error.field or "", str(error)),
    )  # fmt: skip
    for problem in found:
        name = problem.field if problem.field in SLOTS else "hardware"
        slots[f"error_pays_{name}"] += html.error(problem.message)
    return dict(slots)


# -- the widgets ---------------------------------------------------------------------------------------------


def build() -> dict[str, Any]:
    """The widgets by name, inside the current column."""
    usual = first_asked()
    page: dict[str, Any] = {}

    def numbers(*names: str) -> None:
        for name in names:
            with gr.Column(min_width=0):
                page[f"pays_{name}"] = gr.Number(
                    getattr(usual, name), label=text.PAYS_BOXES[name], step=1 if NUMBERS[name].whole else 0.1,
                    min_width=90, elem_id=f"kv-pays-{name}",
                )  # fmt: skip
                page[f"error_pays_{name}"] = error_slot(f"pays-{name}")

    # Its boxes take the browser half a second, and the tab's figures come first: see :func:`revealed`.
    with gr.Column(visible=False, min_width=0) as page["pays"]:
        with gr.Column(elem_id="kv-pays", elem_classes="kv-measure-box", min_width=0):
            gr.HTML(f'<h3 class="kv-card-title">{text.PAYS}</h3>', apply_default_css=False)
            gr.HTML(f'<p class="kv-help">{text.PAYS_HELP}</p>', apply_default_css=False)
            with gr.Row(elem_classes="kv-pays-row"):
                numbers("prompt", "shared", "outside", "readers", "anchors", "mixed")
            with gr.Row(elem_classes="kv-pays-row"):
                with gr.Column(min_width=0, elem_classes="kv-pays-wide"):
                    page["pays_hardware"] = gr.Dropdown(
                        hardware(), value=usual.hardware, label=text.PAYS_HARDWARE, filterable=False,
                        elem_id="kv-pays-hardware",
                    )  # fmt: skip
                    page["error_pays_hardware"] = error_slot("pays-hardware")
                page["pays_measure"] = gr.Button(
                    text.PAYS_MEASURE,
                    variant="primary",
                    size="md",
                    visible=False,
                    scale=0,
                    elem_id="kv-pays-measure",
                )
            with gr.Row(
                elem_classes="kv-pays-row", elem_id="kv-pays-sheet", visible=usual.hardware == SHEET
            ) as sheet:
                page["pays_sheet"] = sheet
                with gr.Column(min_width=0, elem_classes="kv-pays-wide"):
                    page["pays_shape"] = gr.Dropdown(
                        [(text.PAYS_SHAPES.get(name, name), name) for name in SHAPES], value=usual.shape,
                        label=text.PAYS_SHAPE, filterable=False, elem_id="kv-pays-shape",
                    )  # fmt: skip
                    page["error_pays_shape"] = error_slot("pays-shape")
                numbers(*OF_SHEET)
            page["error_pays_measure"] = error_slot("pays-measure")
        page["pays_status"] = gr.HTML("", elem_id="kv-pays-status", apply_default_css=False)
        page["view_pays"] = figure_view("pays", drawn(usual, None))
    return page


def revealed() -> Any:
    """Put it on the page, once the tab's own figures are there."""
    return gr.update(visible=True)
