"""The study under the Documents page: how much computing tokens again brings, by their share and the mask."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import gradio as gr

from backend.prompts.presets import load_preset, preset_requests
from backend.records.blend import BlendRequest, BlendStudy
from backend.records.request import RunRequest
from lab_app.ui import text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, Problem
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, milliseconds, plural
from viz.studies.recompute_ratio import views

KIND = "blend"
RATIOS = (0.0, 0.1, 0.2, 0.5, 0.9, 1.0)
USUAL = {"prompts": 8, "seed": 7}
SECTION = Section("ratio", tuple(USUAL), page="documents", as_run=True, busy=text.RUN_ELSEWHERE)
#: The chosen kind of example, and what stands on the page as a request; None where it is wrong.
Above = Callable[[Visit, Given], tuple[str, RunRequest | None]]


def read(given: Given, preset: str, page: RunRequest | None) -> BlendRequest:
    """What is measured: the page's own prompt, or drawn ones of the kind ``preset``.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(SECTION.asked(given))
    numbers = {name: reader.number(name, field) for name, field in text.RATIO_NUMBERS.items()}
    own = given["ratio_source"] != "drawn"
    if own and page is None:
        reader.found.append(Problem("measure", text.RATIO_PAGE_WRONG))
    reader.done()
    if own and page is not None:
        return BlendRequest(page.pipeline, (dict(page.values),), ratios=RATIOS)
    kind = load_preset(preset)
    drawn = preset_requests(kind, numbers["prompts"], numbers["seed"])
    return BlendRequest(kind.pipeline, tuple(dict(example.values) for example in drawn), ratios=RATIOS)


def measure(lab: VisitStore, visit: Visit, read_request: Callable[[], BlendRequest]) -> Iterator[Update]:
    """Measure it, and show what was measured with its figures."""
    began = time.monotonic()

    def finished(study: BlendStudy) -> Update:
        tokens = round(float(study.prompt_tokens.mean()))
        facts = (
            f"{plural(len(study.prompt_tokens), 'prompt')} of {tokens} tokens on "
            f"{clip(study.model.name, 40)} in {milliseconds((time.monotonic() - began) * 1e3)}."
        )
        saved = SECTION.saved(facts, KIND, visit.keep_result(KIND, study))
        return saved | {SECTION.view: payload(views(study))}

    yield from SECTION.measure(
        lab, visit, read_request, lambda request, _: visit.engine.study(request), finished
    )


def build(page: PageBuilder) -> None:
    """The widgets."""
    with SECTION.box(text.RATIO, text.RATIO_HELP, f"{SECTION.ids}-box", "kv-measure-box kv-set-box"):
        with gr.Row(elem_classes="kv-measure"):
            for name, value in USUAL.items():
                field = text.RATIO_NUMBERS[name]
                SECTION.number(page, name, field, value, min_width=80, elem_classes="kv-small")
            page.add(
                ratio_source=gr.Dropdown(
                    [(label, name) for name, label in text.RATIO_SOURCES.items()], value="drawn",
                    label=text.RATIO_SOURCE, filterable=False, min_width=150,
                    elem_id="kv-documents-ratio-source",
                )
            )  # fmt: skip
            SECTION.button(page, text.RATIO_RUN, f"{SECTION.ids}-run", elem_classes="kv-measure-button")
        SECTION.error(page, *USUAL, "measure")
    SECTION.said(page)
    SECTION.figures(page)


def connect(page: PageBuilder, reads: tuple[str, ...], above: Above) -> None:
    """What the widgets do; ``reads`` names what stands on the page above, which ``above`` reads."""
    page.stream(
        page["ratio_measure"].click,
        lambda visit, given: measure(page.lab, visit, lambda: read(given, *above(visit, given))),
        *reads,
        *SECTION.names,
        "ratio_source",
        outputs=page.part(SECTION.part),
    )
