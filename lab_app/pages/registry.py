"""The pages beside the pipeline's. A new one is a file with a ``PageSpec`` and one line here."""

import gradio as gr

from lab_app.pages.agent_loop import page as agent_loop
from lab_app.pages.documents import page as documents
from lab_app.pages.judge import page as judge
from lab_app.pages.logs import page as logs
from lab_app.pages.sweeps import page as sweep_page
from lab_app.pages.tour import page as tour
from lab_app.ui import text
from lab_app.ui.page import PageBuilder, PageSpec
from viz.base.format import escape

PAGES: tuple[PageSpec, ...] = (
    tour.PAGE,
    documents.PAGE,
    agent_loop.PAGE,
    judge.PAGE,
    sweep_page.PAGE,
    logs.PAGE,
)
FIRST = "pipeline"


def build_pages(pipeline: PageBuilder) -> tuple[PageBuilder, ...]:
    """Every page beside the pipeline's, inside the current ``gr.Blocks``; each is mounted when it is first
    opened."""
    pages = []
    for spec in PAGES:
        page = PageBuilder(spec.key, pipeline.lab, pipeline.session, views=pipeline.views, pipeline=pipeline)
        with page.mount():
            spec.build(page)
        page.connect()
        pages.append(page)
    return tuple(pages)


def navigation() -> gr.HTML:
    """Links to all pages; ``assets/app.js`` switches between them."""
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
    """The rules that show the open page."""
    return "".join(
        f'body[data-kv-page="{spec.key}"] #kv-page-{spec.key} {{ display: flex !important; }}\n'
        for spec in PAGES
    )
