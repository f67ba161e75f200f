"""Sharing in Chromium: undo, a reload, a link in a clean browser, and the report without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Watched

FIGURES = """() => [...document.querySelectorAll("#kv-view-errors .kv-figure")]
    .map((f) => [f.kvView.title, f.kvView.finding, f.kvView.figure])"""


def ready(page: Page) -> None:
    expect(page.locator("body[data-kv-visit]")).to_be_visible()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    page.click("#kv-tab-play-button")
    expect(page.locator("#kv-view-play svg").first).to_be_visible()


@pytest.mark.slow
def test_a_shared_run_a_reload_and_a_report(opened: Watched, address: str, tmp_path: Path) -> None:
    page = opened(address)
    ready(page)
    question = page.locator("#kv-value-0 textarea")
    before = question.input_value()
    expect(page.locator("#kv-undo")).to_be_disabled()
    question.fill("What is 1 + 1? <b>Shared</b>")
    expect(page.locator("#kv-undo")).to_be_enabled()
    page.click("#kv-undo")
    expect(question).to_have_value(before)
    page.click("#kv-redo")
    expect(question).to_have_value("What is 1 + 1? <b>Shared</b>")
    page.fill("#kv-option-kvcomm-gamma input[type=number]", "0.7")
    page.click("#kv-run")
    page.click("#kv-tab-texts-button")
    expect(page.locator("#kv-comparison .kv-agent[open] .kv-cell").first).to_be_visible()
    expect(page.locator("#kv-factline, .kv-factline").first).to_contain_text("fake")
    expect(page.locator("#kv-save-tensors")).to_contain_text("3.00 MiB")
    page.click("#kv-tab-errors-button")
    expect(page.locator("#kv-view-errors .main-svg").first).to_be_visible()
    told, figures = page.locator("#kv-verdict").inner_text(), page.evaluate(FIGURES)
    assert len(figures) == 3

    # a reload keeps what was typed, and the run
    page.reload()
    expect(question).to_have_value("What is 1 + 1? <b>Shared</b>")
    expect(page.locator("#kv-option-kvcomm-gamma input[type=number]")).to_have_value("0.7")
    ready(page)
    page.click("#kv-tab-errors-button")
    expect(page.locator("#kv-view-errors .main-svg").first).to_be_visible()
    assert page.evaluate(FIGURES) == figures

    # a link in a clean browser: the same bench and the same figures, and nothing was run
    page.click("#kv-share")
    link = page.locator("#kv-run-shared .kv-shared-link").evaluate("a => a.href")
    assert "#r=" in link
    other = opened(link)
    ready(other)
    expect(other.locator("#kv-status")).to_contain_text("shared with you")
    expect(other.locator("#kv-value-0 textarea")).to_have_value("What is 1 + 1? <b>Shared</b>")
    expect(other.locator("#kv-option-kvcomm-gamma input[type=number]")).to_have_value("0.7")
    other.click("#kv-tab-errors-button")
    expect(other.locator("#kv-view-errors .main-svg").first).to_be_visible()
    assert other.evaluate(FIGURES) == figures
    assert other.locator("#kv-verdict").inner_text() == told
    other.context.close()

    # the report, offline
    with page.expect_download() as waiting:
        page.click("#kv-save-report")
    path = tmp_path / "report.html"
    waiting.value.save_as(path)
    page.context.close()
    report = opened(path.as_uri(), offline=True, color_scheme="dark")
    expect(report.locator(".main-svg").first).to_be_visible()
    expect(report.locator(".kv-verdict")).to_contain_text("What would repair it?")
    assert report.locator("b", has_text="Shared").count() == 0
    assert report.evaluate("document.body.classList.contains('dark')")
    report.click("#kv-report-theme")
    assert not report.evaluate("document.body.classList.contains('dark')")


@pytest.mark.slow
def test_what_is_typed_on_other_pages_outlives_a_reload(opened: Watched, tiny_address: str) -> None:
    page = opened(tiny_address)

    def go(key: str, first: str) -> None:
        expect(page.locator("body[data-kv-visit]")).to_be_visible()
        page.click(f'.kv-nav a[data-page="{key}"]')
        expect(page.locator(first)).to_be_visible()

    go("judge", "#kv-judge-text-0 textarea")
    # what follows the first paint has answered, or its answer would undo what is typed
    expect(page.locator("#kv-judge-cost")).to_contain_text("6 verdicts, ")
    page.click("#kv-judge-remove-3")
    page.fill("#kv-judge-text-0 textarea", "2 + 2 = 5. The answer is 5")
    page.fill("#kv-judge-seed input", "7")
    go("sweep", "#kv-sweep-yaml textarea")
    expect(page.locator("#kv-sweep-cost")).to_contain_text("rows")
    page.fill("#kv-sweep-yaml textarea", "name: mine")
    for _ in range(2):  # the second time after a load in which nothing was typed
        page.reload()
        expect(page.locator("#kv-sweep-yaml textarea")).to_have_value("name: mine")
        expect(page.locator("#kv-error-sweep-text .kv-problem")).not_to_have_count(0)
        go("judge", "#kv-judge-text-0 textarea")
        expect(page.locator("#kv-judge-text-0 textarea")).to_have_value("2 + 2 = 5. The answer is 5")
        expect(page.locator("#kv-judge-seed input")).to_have_value("7")
        expect(page.locator("#kv-judge-card-3")).to_have_count(0)
        expect(page.locator("#kv-judge-cost")).to_contain_text("6 verdicts, ")
        page.click('.kv-nav a[data-page="sweep"]')
    # a page that nobody changed is as it was made
    go("documents", "#kv-documents-text-0 textarea")
    expect(page.locator("#kv-documents-text-0 textarea")).not_to_have_value("")
