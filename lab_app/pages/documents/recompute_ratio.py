"""The study under the Documents page: how much computing tokens again brings, by their share and the mask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.prompts.presets import load_preset, preset_requests
from backend.records.offsets import BlendRequest
from backend.records.run import RunRequest
from lab_app.ui import text
from lab_app.ui.components import figure_view
from lab_app.ui.measurement import measure, told
from lab_app.ui.page import Board
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, Problem
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import FigureView
from viz.base.format import clip, plural
from viz.studies.recompute_ratio import views

KEY = "documents"
RATIOS = (0.0, 0.1, 0.2, 0.5, 0.9, 1.0)
USUAL = {"prompts": 8, "ratio_seed": 7}
#: The chosen kind of example, and what stands on the page as a request; None where it is wrong.
Above = Callable[[Visit, Given], tuple[str, RunRequest | None]]


def read(given: Given, preset: str, page: RunRequest | None) -> BlendRequest:
    """What is measured: the page's own prompt, or drawn ones of the kind ``preset``.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(given)
    numbers = {name: reader.number(name, field) for name, field in text.RATIO_NUMBERS.items()}
    own = given["ratio_source"] != "drawn"
    if own and page is None:
        reader.found.append(Problem("ratio", text.RATIO_PAGE_WRONG))
    reader.done()
    if own and page is not None:
        return BlendRequest(page.pipeline, (dict(page.values),), ratios=RATIOS)
    kind = load_preset(preset)
    drawn = preset_requests(kind, numbers["prompts"], numbers["ratio_seed"])
    return BlendRequest(kind.pipeline, tuple(dict(example.values) for example in drawn), ratios=RATIOS)


def run(lab: Lab, visit: Visit, request: BlendRequest) -> Iterator[Update]:
    """Measure it; see :func:`lab_app.ui.measurement.measure`."""
    yield from measure(lab, visit, "ratio", "blend", lambda: visit.engine.blend_study(request), shown)


def shown(study: Any) -> tuple[str, Sequence[FigureView]]:
    """What was measured, and its figures."""
    tokens = round(float(study.prompt_tokens.mean()))
    counted = plural(len(study.prompt_tokens), "prompt")
    return f"{counted} of {tokens} tokens on {clip(study.model.name, 40)}", views(study)


def build(board: Board) -> None:
    """The widgets."""
    with gr.Column(elem_id=f"kv-{KEY}-ratio-box", elem_classes="kv-measure-box kv-set-box", min_width=0):
        gr.HTML(f'<h3 class="kv-card-title">{text.RATIO}</h3>', apply_default_css=False)
        board.block("ratio_help", f'<p class="kv-help">{text.RATIO_HELP}</p>')
        with gr.Row(elem_classes="kv-measure"):
            for name, value in USUAL.items():
                box = gr.Number(
                    value, label=text.RATIO_NUMBERS[name].label, step=1, min_width=80,
                    elem_id=f"kv-{KEY}-{name}", elem_classes="kv-small",
                )  # fmt: skip
                board.add(**{name: box})
            board.add(
                ratio_source=gr.Dropdown(
                    [(label, name) for name, label in text.RATIO_SOURCES.items()], value="drawn",
                    label=text.RATIO_SOURCE, filterable=False, min_width=150,
                    elem_id=f"kv-{KEY}-ratio-source",
                ),
                ratio_run=gr.Button(
                    text.RATIO_RUN, variant="primary", size="md", scale=0, elem_id=f"kv-{KEY}-ratio-run",
                    elem_classes="kv-measure-button",
                ),
            )  # fmt: skip
        for name in (*USUAL, "ratio"):
            board.error(name)
    board.block("ratio_status")
    board.add(view_ratio=figure_view(f"{KEY}-ratio"))


def connect(board: Board, reads: tuple[str, ...], above: Above) -> None:
    """What the widgets do; ``reads`` names what stands on the page above, which ``above`` reads."""

    def pressed(visit: Visit, given: Given) -> Iterator[Update]:
        try:
            request = read(given, *above(visit, given))
        except LabError as error:
            yield told("ratio", error)
            return
        yield from run(board.lab, visit, request)

    board.stream(board["ratio_run"].click, pressed, *reads, *USUAL, "ratio_source")
