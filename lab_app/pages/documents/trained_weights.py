"""The study under the Documents page: many questions under each method and each set of trained weights."""

from __future__ import annotations

import time
from collections.abc import Iterator

import gradio as gr

from backend.records.documents import DocumentRequest, DocumentStudy
from lab_app.ui import text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, milliseconds, plural
from viz.studies.document_study import accuracy, by_documents, by_position

KIND = "documents"
USUAL = {"questions": 24, "seed": 0}
SECTION = Section("trained", tuple(USUAL), page="documents", as_run=True, busy=text.RUN_ELSEWHERE)


def read(given: Given) -> DocumentRequest:
    """What is asked.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(SECTION.asked(given))
    numbers = {name: reader.number(name, field) for name, field in text.TRAINED_NUMBERS.items()}
    reader.done()
    weights = tuple(str(name) for name in given["trained_weights"] or ())
    return DocumentRequest(weights, numbers["questions"], numbers["seed"])


def measure(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """Ask the questions, and show how many were answered rightly."""
    began = time.monotonic()

    def finished(study: DocumentStudy) -> Update:
        facts = (
            f"{plural(len(study.documents), 'question')} in {plural(len(study.arms), 'way')} on "
            f"{clip(study.model.name, 40)} in {milliseconds((time.monotonic() - began) * 1e3)}."
        )
        few = len(study.documents) < text.TRAINED_ENOUGH
        figures = (accuracy(study),) if few else (accuracy(study), by_position(study), by_documents(study))
        saved = SECTION.saved(facts, KIND, visit.keep_result(KIND, study))
        return saved | {SECTION.view: payload(figures)}

    yield from SECTION.measure(
        lab, visit, lambda: read(given), lambda request, _: visit.engine.study(request), finished
    )


def arrive(visit: Visit) -> Update:
    """The weights that belong to the loaded model."""
    known = visit.engine.trained_weights()
    return {
        "trained_weights.choices": [(label, name) for name, label in known.items()],
        "trained_weights": list(known)[:1],
        "trained_weights.visible": bool(known),
        "trained_none": "" if known else f'<p class="kv-help">{text.TRAINED_NONE}</p>',
    }


def build(page: PageBuilder) -> None:
    """The widgets."""
    with SECTION.box(text.TRAINED, text.TRAINED_HELP, f"{SECTION.ids}-box", "kv-measure-box kv-set-box"):
        page.add(
            trained_weights=gr.CheckboxGroup(
                [], show_label=False, label=text.TRAINED_WEIGHTS, container=False,
                elem_id=f"{SECTION.ids}-weights", elem_classes="kv-chips",
            )
        )  # fmt: skip
        with gr.Row(elem_classes="kv-measure"):
            for name, value in USUAL.items():
                field = text.TRAINED_NUMBERS[name]
                SECTION.number(page, name, field, value, min_width=80, elem_classes="kv-small")
            SECTION.button(page, text.TRAINED_RUN, f"{SECTION.ids}-run", elem_classes="kv-measure-button")
        page.block("trained_none", elem_classes="kv-may-be-empty")
        SECTION.error(page, *USUAL, "measure")
    SECTION.said(page)
    SECTION.figures(page)


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.stream(
        page["trained_measure"].click,
        lambda visit, given: measure(page.lab, visit, given),
        *SECTION.names,
        "trained_weights",
        outputs=page.part(SECTION.part),
    )
