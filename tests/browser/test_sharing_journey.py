"""Sharing in Chromium: undo, a reload, a link in a clean browser, and the report without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession
from playwright.sync_api import Browser, Page, expect, sync_playwright

from lab_app.server.serve import launch

# Gradio's queue reads its own statistics in ways that pandas has deprecated.
pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PATIENCE = 120_000  # ms; a slow machine is no failure
expect.set_options(timeout=PATIENCE)
FIGURES = """() => [...document.querySelectorAll("#kv-view-errors .kv-figure")]
    .map((f) => [f.kvView.title, f.kvView.finding, f.kvView.figure])"""

#: The page is painted before the visit has begun; then the link that saves the run is the visit's own.


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page on a made-up engine, with a folder for shared runs."""
    folder = tmp_path_factory.mktemp("lab")
    first = make_record(layers=4).save(folder / "first.kvrun")
    blocks, found = launch(
        FakeModel, "127.0.0.1", 0, block=False, first_run=first, data=folder / "data",
        engine=lambda model: FakeSession(model),
    )  # fmt: skip
    yield found
    blocks.close(verbose=False)


def opened(browser: Browser, address: str, complaints: list[str]) -> Page:
    """A clean browser's page, ready; what goes wrong in it is noted."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True).new_page()
    page.set_default_timeout(PATIENCE)
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    page.goto(address)
    ready(page)
    return page


def ready(page: Page) -> None:
    expect(page.locator("body[data-kv-visit]")).to_be_visible()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    expect(page.locator("#kv-view-errors .main-svg").first).to_be_visible()


def test_a_shared_run_a_reload_and_a_report(browser: Browser, address: str, tmp_path: Path) -> None:
    complaints: list[str] = []
    page = opened(browser, address, complaints)
    question = page.locator("#kv-value-0 textarea")
    before = question.input_value()
    expect(page.locator("#kv-undo")).to_be_disabled()
    question.fill("What is 1 + 1? <b>Shared</b>")
    expect(page.locator("#kv-undo")).to_be_enabled()
    page.click("#kv-undo")
    expect(question).to_have_value(before)
    page.click("#kv-redo")
    expect(question).to_have_value("What is 1 + 1? <b>Shared</b>")
    page.fill("#kv-option-kvcomm-gamma input", "0.7")
    page.click("#kv-run")
    expect(page.locator("#kv-comparison .kv-cell").first).to_be_visible()
    expect(page.locator("#kv-factline, .kv-factline").first).to_contain_text("fake")
    expect(page.locator("#kv-save-tensors")).to_contain_text("3.00 MiB")
    told, figures = page.locator("#kv-verdict").inner_text(), page.evaluate(FIGURES)
    assert len(figures) == 3

    # a reload keeps what was typed, and the run
    page.reload()
    expect(question).to_have_value("What is 1 + 1? <b>Shared</b>")
    expect(page.locator("#kv-option-kvcomm-gamma input")).to_have_value("0.7")
    ready(page)
    assert page.evaluate(FIGURES) == figures

    # a link in a clean browser: the same bench and the same figures, and nothing was run
    page.click("#kv-share")
    link = page.locator("#kv-run-shared .kv-shared-link").evaluate("a => a.href")
    assert "#r=" in link
    other = opened(browser, link, complaints)
    expect(other.locator("#kv-status")).to_contain_text("shared with you")
    expect(other.locator("#kv-value-0 textarea")).to_have_value("What is 1 + 1? <b>Shared</b>")
    expect(other.locator("#kv-option-kvcomm-gamma input")).to_have_value("0.7")
    assert other.evaluate(FIGURES) == figures
    assert other.locator("#kv-verdict").inner_text() == told
    other.context.close()

    # the report, offline
    with page.expect_download() as waiting:
        page.click("#kv-save-report")
    path = tmp_path / "report.html"
    waiting.value.save_as(path)
    page.context.close()
    context = browser.new_context(offline=True, color_scheme="dark")
    report, asked = context.new_page(), list[str]()
    report.set_default_timeout(PATIENCE)
    report.on("request", lambda r: asked.append(r.url))
    report.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    report.on("pageerror", lambda e: complaints.append(str(e)))
    report.goto(path.as_uri())
    expect(report.locator(".main-svg").first).to_be_visible()
    expect(report.locator(".kv-verdict")).to_contain_text("What would repair it?")
    assert report.locator("b", has_text="Shared").count() == 0
    assert report.evaluate("document.body.classList.contains('dark')")
    report.click("#kv-report-theme")
    assert not report.evaluate("document.body.classList.contains('dark')")
    assert [url for url in asked if not url.startswith(("data:", path.as_uri()))] == []
    context.close()
    assert complaints == []
