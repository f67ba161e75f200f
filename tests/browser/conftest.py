"""One browser and three servers for every journey: a made-up engine that can stand still, a tiny model, and
the embedded one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tiny
from fake_record import make_record
from fake_session import FakeModel, StandingSession
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from backend.prompts.presets import load_preset, preset_requests
from backend.session import familiarity
from backend.session.limits import Limits
from backend.studies.gallery import GalleryEntry, save_gallery
from lab_app.pages.pipeline import handlers, live
from lab_app.pages.tour import page as tour
from lab_app.server import prefill
from lab_app.server.hosting import Hosting
from lab_app.server.serve import launch, serve

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PATIENCE = 120_000  # ms; a slow machine is no failure
expect.set_options(timeout=PATIENCE)


JOURNEYS = 6  # of the journeys a sample keeps one in so many, but for those marked sampled(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gradio's queue reads its own statistics in ways that pandas has deprecated."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            if not item.get_closest_marker("sampled"):
                item.add_marker(pytest.mark.sampled(JOURNEYS))
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@pytest.fixture(scope="package")
def browser(chromium_path: str) -> Iterator[Browser]:
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="package", autouse=True)
def unhurried() -> Iterator[None]:
    """What the page begins by itself when it will not take long begins on a slow machine too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live, "RUN_SECONDS", math.inf)
        patch.setattr(handlers, "LINK_SECONDS", math.inf)
        patch.setattr(prefill, "MOST_SECONDS", math.inf)
        patch.setattr(tour, "PATIENCE_SECONDS", math.inf)
        patch.setattr(familiarity, "MOST_SECONDS", math.inf)
        yield


@pytest.fixture(scope="package")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page on a made-up engine that takes its time, with a first run, three examples and shared runs."""
    folder = tmp_path_factory.mktemp("lab")
    first = make_record(layers=4).save(folder / "first.kvrun")
    rows = []
    for effect, name in (("flip", "documents-10"), ("flip", "program-loop"), ("harmless", "judge-right")):
        asked = preset_requests(load_preset(name), 1)[0]
        reused = asked.answer if effect == "harmless" else "7"
        rows.append(
            GalleryEntry(name, effect, name, dict(asked.values), str(asked.answer), str(asked.answer), reused)  # type: ignore[arg-type]
        )
    save_gallery(FakeModel.info.weights_hash, tuple(rows), folder / "gallery.json")
    blocks, found = launch(
        FakeModel, "127.0.0.1", 0, block=False, first_run=first, gallery=folder / "gallery.json",
        hosting=Hosting(data=folder / "data"), engine=lambda model: StandingSession(model, 0.02),
        limits=Limits(together=1),  # so that a second run waits
    )  # fmt: skip
    yield found
    blocks.close(verbose=False)


@pytest.fixture(scope="package")
def tiny_address() -> Iterator[str]:
    """A page on the tiny model."""
    blocks, found = launch(tiny.model, "127.0.0.1", 0, block=False, engine=tiny.lab)
    yield found
    blocks.close(verbose=False)


@pytest.fixture(scope="package")
def embedded_address() -> Iterator[str]:
    """The page as it is served: the embedded model and its saved first runs."""
    blocks, found = serve(port=0, block=False)
    yield found
    blocks.close(verbose=False)


#: What the framework prints of a call that ends because its page is left.
CUT = ("console: AbortError: signal is aborted", "console: Unexpected error Connection errored out.")


class Watched:
    """Opens pages in clean browsers of their own, and notes what goes wrong in them."""

    def __init__(self, browser: Browser) -> None:
        self.browser, self.complaints = browser, list[str]()
        self.cut: list[list[str]] = []  # by page
        self.contexts: list[BrowserContext] = []

    def __call__(self, where: str = "", width: int = 1280, height: int = 800, **context: Any) -> Page:
        """A page, at an address if one is given; errors, failed answers and requests outside are noted."""
        here = ("data:", "blob:", "file:", "http://127.0.0.1:")
        self.contexts.append(self.browser.new_context(viewport={"width": width, "height": height}, **context))
        page, note = self.contexts[-1].new_page(), self.complaints.append
        page.set_default_timeout(PATIENCE)
        cut: list[str] = []  # a page that is loaded anew leaves calls open, which the framework reports
        self.cut.append(cut)

        def noted(said: str) -> None:
            (cut.append if said.startswith(CUT) else note)(said)

        page.on("console", lambda m: noted(f"console: {m.text}") if m.type == "error" else None)
        page.on("domcontentloaded", lambda _: cut.clear())
        page.on("pageerror", lambda e: note(f"page: {e}"))
        page.on("response", lambda r: note(f"{r.status} {r.url}") if r.status >= 400 else None)
        page.on("request", lambda r: None if r.url.startswith(here) else note(f"outside: {r.url}"))
        if where:
            page.goto(where)
        return page


@contextmanager
def watching(browser: Browser) -> Iterator[Watched]:
    """Opens pages; at the end none of them may have complained."""
    watched = Watched(browser)
    yield watched
    for context in watched.contexts:
        context.close()
    assert [*watched.complaints, *(said for cut in watched.cut for said in cut)] == []


@pytest.fixture
def opened(browser: Browser) -> Iterator[Watched]:
    """Pages of one test."""
    with watching(browser) as watched:
        yield watched
