"""The study under the Documents page: how much computing tokens again brings, by their share and the mask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import gradio as gr

from backend.errors import LabError, RunCancelled
from backend.events import Progress
from backend.measured import BlendRequest, BlendStudy
from backend.presets import load_preset, preset_requests
from backend.records import RunRequest
from lab_app import html, text
from lab_app.board import Board, Given, Update, beside, running
from lab_app.figure_view import figure_view, payload
from lab_app.form import Problem, Problems, read_number
from lab_app.live import REDRAW_SECONDS
from lab_app.sessions import Lab, Visit
from viz.blend_study import views
from viz.words import clip, escape, milliseconds, plural

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
    found, numbers = [], {}
    for name, (label, low, high, whole) in text.RATIO_NUMBERS.items():
        try:
            numbers[name] = int(read_number(given[name], label, low, high, whole, name))
        except LabError as error:
            found.append(Problem(name, str(error)))
    own = given["ratio_source"] != "drawn"
    if own and page is None:
        found.append(Problem("ratio", text.RATIO_PAGE_WRONG))
    if found:
        raise Problems(found)
    if own and page is not None:
        return BlendRequest(page.pipeline, (dict(page.values),), ratios=RATIOS)
    kind = load_preset(preset)
    drawn = preset_requests(kind, numbers["prompts"], numbers["ratio_seed"])
    return BlendRequest(kind.pipeline, tuple(dict(example.values) for example in drawn), ratios=RATIOS)


def run(lab: Lab, visit: Visit, request: BlendRequest) -> Iterator[Update]:
    """Measure, with figures at the end; between two prompts it can be stopped."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        yield told(None) | {"status": ""}
        began = said = time.monotonic()
        for event in visit.engine.blend_study(request):
            if cancel.is_set():
                raise RunCancelled(text.CANCELLED)
            now = time.monotonic()
            if isinstance(event, BlendStudy):
                token = visit.keep_measured("blend", event)
                yield {
                    "ratio_status": finished(event, token, (now - began) * 1e3),
                    "view_ratio": payload(views(event)),
                }
            elif isinstance(event, Progress) and (now - said >= REDRAW_SECONDS or not event.done):
                said = now
                yield {"ratio_status": html.status(event.text, "measuring", event.done, event.total)}

    for update in running(lab, visit, work, told):
        # what is said of it stands beside this part, not above the results of the page's run
        yield {"ratio_status" if key == "status" and value else key: value for key, value in update.items()}


def told(error: LabError | None) -> Update:
    """Messages beside their places."""
    return beside(error, lambda field: "ratio")


def finished(study: BlendStudy, token: str, spent_ms: float) -> str:
    """What was measured, and the link that saves it."""
    tokens = round(float(study.prompt_tokens.mean()))
    facts = (
        f"{plural(len(study.prompt_tokens), 'prompt')} of {tokens} tokens on {clip(study.model.name, 40)} in "
        f"{milliseconds(spent_ms)}."
    )
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>'
        f'<a class="kv-button" id="kv-{KEY}-ratio-save" href="lab/measured/blend/{escape(token)}" download>'
        f"{text.MEASURE_SAVE}</a></div>"
    )


def build(board: Board) -> None:
    """The widgets."""
    with gr.Column(elem_id=f"kv-{KEY}-ratio-box", elem_classes="kv-measure-box kv-set-box", min_width=0):
        gr.HTML(f'<h3 class="kv-card-title">{text.RATIO}</h3>', apply_default_css=False)
        board.block("ratio_help", f'<p class="kv-help">{text.RATIO_HELP}</p>')
        with gr.Row(elem_classes="kv-measure"):
            for name, value in USUAL.items():
                box = gr.Number(
                    value, label=text.RATIO_NUMBERS[name][0], step=1, min_width=80,
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
            yield told(error)
            return
        yield from run(board.lab, visit, request)

    board.stream(board["ratio_run"].click, pressed, *reads, *USUAL, "ratio_source")
