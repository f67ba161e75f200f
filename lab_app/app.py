"""The page: every widget and event in one ``gr.Blocks``, over the visits and their model."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import gradio as gr

from backend.records.sharing.store import SharedRuns
from backend.session.limits import Limits
from backend.studies.gallery import GALLERY
from lab_app.api.callers import Callers
from lab_app.api.gradio_endpoints import build_endpoints
from lab_app.pages.pipeline.events import Arrival, connect
from lab_app.pages.pipeline.examples import read_gallery
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.layout import PipelinePage, build_page
from lab_app.pages.registry import build_pages, navigation
from lab_app.ui import text
from lab_app.ui.blocks import LabBlocks
from lab_app.visits.engine import Engine, Model
from lab_app.visits.visits import VisitStore

FIRST_PRESET = "math-3"
FIRST_RUN = Path(__file__).resolve().parents[1] / "presets" / "first_run.kvrun"
QUEUE_LENGTH = 256


class App(NamedTuple):
    """The page, the visits behind it, the pipeline's widgets, and the links to the other pages as HTML."""

    blocks: gr.Blocks
    lab: VisitStore
    page: PipelinePage
    navigation: str


def engine_session(model: Model) -> Engine:
    """A fresh engine session, a trust domain of its own."""
    import backend.lab
    from backend.session.session import LabSession

    return backend.lab.Lab(LabSession(model))  # type: ignore[arg-type]


def build_app(
    model_loader: Callable[[], Model],
    *,
    engine: Callable[[Model], Engine] = engine_session,
    first_run: Path | None = FIRST_RUN,
    gallery: Path | None = GALLERY,
    preset: str = FIRST_PRESET,
    weights: Sequence[str] = (),
    limits: Limits | None = None,
    shared: SharedRuns | None = None,
) -> App:
    """Build the page. It is not served yet.

    Args:
        model_loader: called once, at the first visit.
        engine: makes the engine session of a visit.
        first_run: a saved record for a visitor's first look; beside it, in ``pages``, those of other pages.
        gallery: the file of the checked examples, if there is one.
        preset: the scenario on the bench at first.
        weights: the names of other weights that the engine sessions have, for agents to run on.
        limits: of visits; the engine sessions have theirs from ``engine``.
        shared: where shared runs are stored; without it they are not.
    """
    lab = VisitStore(model_loader, engine, limits=limits, shared=shared)
    lab.first_runs = first_run.parent / "pages" if first_run is not None else None
    with LabBlocks(
        title=text.TITLE, fill_width=True, analytics_enabled=False, delete_cache=(1800, 3600)
    ) as blocks:
        links: list[gr.HTML] = []
        page = build_page(lab, preset, tuple(weights), lambda: links.append(navigation()))
        act = Handlers(lab, first_run, read_gallery(gallery))
        connect(page, act)
        arrival = Arrival(page, act, preset)
        arrival.prepare()
        arrival.connect(blocks)
        page.connect()
        build_pages(page)
        build_endpoints(lab, Callers(lab))

        blocks.unload(lambda: None)  # so that a tab keeps a heartbeat, whose end the server notices

    def forget_browser(browser: str) -> None:
        # The framework would keep every widget's last value for each tab that ever came.
        if (states := getattr(blocks, "state_holder", None)) is not None:  # set once the page is served
            states.session_data.pop(browser, None)
            states.time_last_used.pop(browser, None)

    lab.on_end = forget_browser
    # The browser shows each event's progress on the widgets named here: by default on hundreds of outputs.
    for event in blocks.fns.values():
        event.show_progress_on = [page["status"]]
    blocks.queue(api_open=False, max_size=QUEUE_LENGTH, default_concurrency_limit=None)
    return App(blocks, lab, page, str(links[0].value))
