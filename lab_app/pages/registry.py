"""The pages beside the pipeline's. A new one is a file with a ``PageSpec`` and one line here."""

from __future__ import annotations

import gradio as gr

from lab_app.pages.agent_loop import page as agent_loop
from lab_app.pages.documents import page as documents
from lab_app.pages.judge import page as judge
from lab_app.pages.pipeline.events import Wiring
from lab_app.pages.sweeps import page as sweep_page
from lab_app.pages.tour import page as tour
from lab_app.ui import text
from lab_app.ui.page import Board, PageSpec
from lab_app.visits.visits import Lab
from viz.base.format import escape

PAGES: tuple[PageSpec, ...] = (tour.PAGE, documents.PAGE, agent_loop.PAGE, judge.PAGE, sweep_page.PAGE)
FIRST = "pipeline"


def build_pages(lab: Lab, main: Wiring) -> tuple[Board, ...]:
    """Every page, inside the current ``gr.Blocks``; each is mounted when it is first opened."""
    boards = []
    for spec in PAGES:
        board = Board(spec, lab, main)
        with board.column:
            spec.build(board)
        board.connect()
        boards.append(board)
    return tuple(boards)


def navigation() -> gr.HTML:
    """The pages by name; ``assets/app.js`` goes from one to the other."""
    names = ((FIRST, text.PIPELINE), *((spec.key, spec.label) for spec in PAGES))
    links = "".join(
        f'<a href="#{key}" data-kv="page" data-page="{key}"{" aria-current=page" if key == FIRST else ""}>'
        f"{escape(label)}</a>"
        for key, label in names
    )
    return gr.HTML(
        f'<nav class="kv-nav" aria-label="{text.PAGES}">{links}</nav>', elem_id="kv-nav",
        apply_default_css=False,
    )  # fmt: skip


def stylesheet() -> str:
    """Which page is seen."""
    rules = [
        f'body[data-kv-page="{spec.key}"] #kv-page-{spec.key} {{ display: flex !important; }}'
        for spec in PAGES
    ]
    return "\n".join(rules) + "\n"
