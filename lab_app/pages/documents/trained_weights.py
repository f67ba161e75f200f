"""The study under the Documents page: many questions under each method and each set of trained weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.records.offsets import DocumentRequest
from lab_app.ui import text
from lab_app.ui.components import figure_view
from lab_app.ui.measurement import measure, told
from lab_app.ui.page import Board
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import FigureView
from viz.base.format import clip, plural
from viz.studies.document_study import accuracy, by_documents, by_position

KEY = "documents"
USUAL = {"trained_questions": 24, "trained_seed": 0}


def read(given: Given) -> DocumentRequest:
    """What is asked.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(given)
    numbers = {name: reader.number(name, field) for name, field in text.TRAINED_NUMBERS.items()}
    reader.done()
    weights = tuple(str(name) for name in given["trained_weights"] or ())
    return DocumentRequest(weights, numbers["trained_questions"], numbers["trained_seed"])


def run(lab: Lab, visit: Visit, request: DocumentRequest) -> Iterator[Update]:
    """Ask it; see :func:`lab_app.ui.measurement.measure`."""
    yield from measure(
        lab, visit, "trained", "documents", lambda: visit.engine.document_study(request), shown
    )


def shown(study: Any) -> tuple[str, Sequence[FigureView]]:
    """What was asked, and its figures."""
    counted, arms = plural(len(study.documents), "question"), plural(len(study.arms), "way")
    facts = f"{counted} in {arms} on {clip(study.model.name, 40)}"
    if len(study.documents) < text.TRAINED_ENOUGH:
        return facts, (accuracy(study),)
    return facts, (accuracy(study), by_position(study), by_documents(study))


def arrive(visit: Visit) -> Update:
    """The weights that belong to the loaded model."""
    known = visit.engine.trained_weights()
    return {
        "trained_weights.choices": [(label, name) for name, label in known.items()],
        "trained_weights": list(known)[:1],
        "trained_weights.visible": bool(known),
        "trained_none": "" if known else f'<p class="kv-help">{text.TRAINED_NONE}</p>',
    }


def build(board: Board) -> None:
    """The widgets."""
    with gr.Column(elem_id=f"kv-{KEY}-trained-box", elem_classes="kv-measure-box kv-set-box", min_width=0):
        gr.HTML(f'<h3 class="kv-card-title">{text.TRAINED}</h3>', apply_default_css=False)
        board.block("trained_help", f'<p class="kv-help">{text.TRAINED_HELP}</p>')
        board.add(
            trained_weights=gr.CheckboxGroup(
                [], show_label=False, label=text.TRAINED_WEIGHTS, container=False,
                elem_id=f"kv-{KEY}-trained-weights", elem_classes="kv-chips",
            )
        )  # fmt: skip
        with gr.Row(elem_classes="kv-measure"):
            for name, value in USUAL.items():
                box = gr.Number(
                    value, label=text.TRAINED_NUMBERS[name].label, step=1, min_width=80,
                    elem_id=f"kv-{KEY}-{name.replace('_', '-')}", elem_classes="kv-small",
                )  # fmt: skip
                board.add(**{name: box})
            board.add(
                trained_run=gr.Button(
                    text.TRAINED_RUN, variant="primary", size="md", scale=0,
                    elem_id=f"kv-{KEY}-trained-run", elem_classes="kv-measure-button",
                ),
            )  # fmt: skip
        board.block("trained_none", elem_classes="kv-may-be-empty")
        for name in (*USUAL, "trained"):
            board.error(name)
    board.block("trained_status")
    board.add(view_trained=figure_view(f"{KEY}-trained"))


def connect(board: Board) -> None:
    """What the widgets do."""

    def pressed(visit: Visit, given: Given) -> Iterator[Update]:
        try:
            request = read(given)
        except LabError as error:
            yield told("trained", error)
            return
        yield from run(board.lab, visit, request)

    board.stream(board["trained_run"].click, pressed, *USUAL, "trained_weights")
