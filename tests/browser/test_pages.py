"""The pages beside the pipeline: judge, documents, sweeps, tour; and the Timing tab's calculator."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from backend.base.errors import LabError
from browser.conftest import PATIENCE, Watched
from lab_app.pages.judge import page as judge
from lab_app.pages.tour import text as words
from lab_app.pages.tour.steps import steps
from lab_app.ui import one_run
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit

SWEEP = """
name: small
tasks: [math-2]
methods: [dense, naive, {name: kvcomm, gamma: 0.9}]
request_orders: [given, ascending]
problems: 3
warmup: 1
max_new_tokens: 4
"""
CSV = "question,answer\n" + "".join(f"What is {n} + 1?,#### {n + 1}\n" for n in range(4))


def late(patch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """The Judge page says only after the first event what is wrong on it; the second tells that it waits."""
    says, told_late, held = judge.read, threading.Event(), threading.Event()

    def read(visit: Visit, given: dict[str, Any]) -> Any:
        try:
            return says(visit, given)
        except LabError:
            held.set()
            told_late.wait(PATIENCE / 1000)
            raise

    patch.setattr(judge, "read", read)
    return told_late, held


Press = Callable[[Page, str], None]


@pytest.fixture
def press_run(monkeypatch: pytest.MonkeyPatch) -> Press:
    """Presses a page's Run and waits until the server has ended what that began, a refused run too.

    The page alone cannot tell: a saved run's results look like a new one's, and until the first answer comes
    the button can be pressed again, which the server refuses.
    """
    ended, whole = threading.Event(), one_run.one_run

    def watched(*given: Any, **named: Any) -> Iterator[Update]:
        yield from whole(*given, **named)
        ended.set()

    def press(page: Page, key: str) -> None:
        ended.clear()
        page.click(f"#kv-{key}-run")
        assert ended.wait(PATIENCE / 1000)
        expect(page.locator(f"#kv-{key}-run")).to_be_visible()

    monkeypatch.setattr(one_run, "one_run", watched)
    return press


@pytest.mark.slow
def test_judging(
    opened: Watched, tiny_address: str, monkeypatch: pytest.MonkeyPatch, press_run: Press
) -> None:
    """A verdict with its figures, candidates removed and written anew, and a set."""
    page = opened(tiny_address)
    # the early page has a bar of its own: what is pressed belongs to the one that stays
    expect(page.locator(".kv-early")).to_have_count(0)
    expect(page.locator("body[data-kv-visit]")).to_be_visible()
    page.click('.kv-nav a[data-page="judge"]')
    expect(page.locator("#kv-judge-text-0 textarea")).not_to_have_value("")
    expect(page.locator("#kv-judge-status")).to_contain_text("This is a saved run")
    expect(page.locator("#kv-judge-verdict .kv-verdict-tone")).to_be_visible()
    # what follows the first paint has answered, or its answer would undo what is typed
    expect(page.locator("#kv-judge-cost")).to_contain_text("6 verdicts, ")
    page.fill("#kv-judge-seed input", "-1")
    expect(page.locator("#kv-error-judge-seed")).to_contain_text("allowed")
    press_run(page, "judge")  # refused at once: nothing is left that says it is starting
    expect(page.locator("#kv-judge-status .kv-status-running")).to_have_count(0)
    page.fill("#kv-judge-seed input", "3")
    expect(page.locator("#kv-error-judge-seed .kv-problem")).to_have_count(0)
    press_run(page, "judge")
    expect(page.locator("#kv-judge-grid tbody tr")).to_have_count(2)
    expect(page.locator("#kv-judge-verdict .kv-verdict-tone")).to_be_visible()
    page.click('#kv-page-judge [data-pane="4"]')
    expect(page.locator("#kv-judge-pick-order select")).to_be_visible()
    expect(page.locator("#kv-view-judge-attention .main-svg").first).to_be_visible()
    expect(page.locator("#kv-judge-picks tbody tr")).to_have_count(3)
    # a message about a candidate comes after the candidate has gone
    told_late, held = late(monkeypatch)
    page.fill("#kv-judge-text-3 textarea", "")
    assert held.wait(PATIENCE / 1000)
    page.click("#kv-judge-remove-3")
    expect(page.locator("#kv-judge-card-3")).to_be_hidden()
    page.wait_for_timeout(500)
    told_late.set()
    page.wait_for_timeout(1000)
    expect(page.locator("#kv-judge-cost")).to_contain_text("6 verdicts, ")
    expect(page.locator("#kv-error-judge-text_3 .kv-problem")).to_have_count(0)
    page.get_by_role("radio", name="Independently").check()
    page.click("#kv-judge-write")
    expect(page.locator("#kv-judge-source-help")).to_contain_text("Written by the model")
    page.click('#kv-page-judge [data-pane="5"]')
    page.locator("#kv-judge-set > summary").click()
    page.fill("#kv-judge-count input", "2")
    page.click("#kv-judge-set-run")
    expect(page.locator("#kv-judge-set-status")).to_contain_text("2 problems")


@pytest.mark.slow
def test_documents(opened: Watched, tiny_address: str, press_run: Press) -> None:
    """Cards in another order, one too many, two runs of which the second finds every text known."""
    page = opened(f"{tiny_address}#documents")
    first = page.locator("#kv-documents-text-0 textarea")
    expect(first).not_to_have_value("")
    expect(page.locator("#kv-frame")).to_be_hidden()
    before = [page.locator(f"#kv-documents-text-{n} textarea").input_value() for n in (0, 1)]
    page.click("#kv-documents-down-0")
    expect(first).to_have_value(before[1])
    page.click("#kv-documents-add")
    expect(page.locator("#kv-documents-text-5 textarea")).to_be_visible()
    expect(page.locator("#kv-error-documents-text-5")).to_contain_text("Document 6 is empty")
    press_run(page, "documents")
    expect(first).to_have_value(before[1])
    page.click("#kv-documents-remove-5")
    expect(page.locator("#kv-error-documents-text-5 .kv-problem")).to_have_count(0)
    page.locator("#kv-documents-table summary").click()
    for said in ("encoded now", "already known"):
        expect(page.locator("#kv-documents-cost")).to_contain_text("tokens to read")
        press_run(page, "documents")
        expect(page.locator("#kv-documents-table .kv-badge", has_text=said)).to_have_count(6)
    page.click('#kv-page-documents [data-pane="2"]')
    expect(page.locator("#kv-documents-strip .kv-band").first).to_be_visible()
    page.click('#kv-page-documents [data-pane="3"]')
    page.locator("#kv-documents-ratio > summary").click()
    page.fill("#kv-documents-ratio-prompts input", "2")
    page.click("#kv-documents-ratio-measure")
    expect(page.locator("#kv-view-documents-ratio .main-svg").first).to_be_visible(timeout=3 * PATIENCE)
    expect(page.locator("#kv-documents-run")).to_be_visible()
    page.locator("#kv-documents-trained > summary").click()
    expect(page.locator("#kv-documents-trained-none")).to_contain_text("kvlab train-links")
    expect(page.locator("#kv-documents-trained-weights")).to_be_hidden()
    page.fill("#kv-documents-trained-questions input", "2")
    page.click("#kv-documents-trained-measure")
    expect(page.locator("#kv-view-documents-trained .main-svg").first).to_be_visible(timeout=3 * PATIENCE)
    expect(page.locator("#kv-documents-run")).to_be_visible()
    page.click("#kv-documents-closer")
    expect(page.locator("#kv-frame")).to_be_visible()
    expect(page.locator("#kv-page-documents")).to_be_hidden()
    expect(page.locator("#kv-status")).to_contain_text("saved record")
    page.click('.kv-nav a[data-page="documents"]')
    expect(first).to_have_value(before[1])


@pytest.mark.slow
def test_sweeps(opened: Watched, tiny_address: str) -> None:
    """A sweep is typed, run, saved, run over an uploaded file's problems, and stopped."""
    page = opened(f"{tiny_address}#sweep")
    expect(page.locator(".kv-early")).to_have_count(0)
    expect(page.locator("body[data-kv-visit]")).to_be_visible()
    cost, box = page.locator("#kv-sweep-cost"), page.locator("#kv-sweep-yaml textarea")
    expect(cost).to_contain_text("72 rows in 2 cells")
    box.fill("name: x\ntasks: [math-9]\nmethods: [dense]")
    expect(page.locator("#kv-error-sweep-text")).to_contain_text("no preset")
    expect(box).to_have_value("name: x\ntasks: [math-9]\nmethods: [dense]")
    box.fill(SWEEP)
    expect(page.locator("#kv-error-sweep-text .kv-problem")).to_have_count(0)
    expect(cost).to_contain_text("18 rows")
    page.click("#kv-sweep-run")
    page.locator("#kv-view-sweep .kv-unfold").first.click(timeout=6 * PATIENCE)
    expect(page.locator("#kv-view-sweep .main-svg").first).to_be_visible()
    expect(page.locator("#kv-sweep-run")).to_be_visible(timeout=6 * PATIENCE)
    expect(page.locator("#kv-view-sweep table th[scope=row]")).to_have_count(6)
    expect(cost).to_contain_text("nothing is missing")
    with page.expect_download() as saved:
        page.click("#kv-sweep-csv")
    assert len(Path(saved.value.path()).read_text(encoding="utf-8").splitlines()) == 19
    # problems from a file, and a file that is none
    button, note = page.locator("#kv-sweep-upload"), page.locator("#kv-sweep-uploaded")
    for content, said in ((b"\xff", "no UTF-8 text"), (CSV.encode(), "5 lines")):
        page.locator("#kv-page-sweep input[type=file]").set_input_files(
            {"name": "problems.csv", "mimeType": "text/csv", "buffer": content}
        )
        expect(note).to_contain_text(said)
    expect(button).to_be_visible()
    box.fill(SWEEP.replace("[math-2]", "[{pipeline: math-2, data: upload.csv, format: gsm8k}]"))
    expect(cost).to_contain_text("18 rows")
    expect(page.locator("#kv-error-sweep-text .kv-problem")).to_have_count(0)
    # much longer: stopped on the way, and what was done stays
    box.fill(SWEEP.replace("problems: 3", "problems: 400"))
    expect(page.locator("#kv-sweep-status")).to_contain_text("earlier text")
    expect(cost).to_contain_text("9 of them")
    page.click("#kv-sweep-run")
    expect(page.locator("#kv-sweep-status")).to_contain_text(
        re.compile(r"(1[5-9]|[2-9]\d|\d{3}) of 2,400 rows")
    )
    page.click("#kv-sweep-cancel")
    expect(page.locator("#kv-sweep-status")).to_contain_text("Stopped")
    expect(page.locator("#kv-sweep-run")).to_be_visible()
    expect(cost).not_to_contain_text(" 9 of them")


@pytest.mark.slow
def test_the_calculator(opened: Watched, tiny_address: str) -> None:
    """Its boxes, hardware from a data sheet, and this machine's own figures."""
    page = opened(tiny_address)
    expect(page.locator("body[data-kv-visit]")).to_be_visible()
    page.click("#kv-tab-timing-button")
    page.click('#kv-tab-timing [data-of="pays"]')
    view, prompt = page.locator("#kv-view-pays"), page.locator("#kv-pays-prompt input")
    expect(view).to_contain_text("ms sooner")
    view.get_by_role("tab", name="From what length is the first token sooner?").click()
    expect(view.locator(".main-svg").first).to_be_visible()
    prompt.fill("2000")
    expect(view).to_contain_text("A prompt of 2,000 tokens")
    prompt.fill("0")
    expect(page.locator("#kv-error-pays-prompt")).to_contain_text("is 0; allowed")
    expect(view).to_contain_text("cannot be reckoned with")
    prompt.fill("3500")
    expect(page.locator("#kv-error-pays-prompt .kv-problem")).to_have_count(0)
    hardware = page.locator("#kv-pays-hardware select")
    hardware.select_option("A data sheet")
    expect(view).to_contain_text("llama-8b on 600 TFLOP/s")
    page.locator("#kv-pays-tflops input").fill("60")
    expect(view).to_contain_text("llama-8b on 60 TFLOP/s")
    hardware.select_option("This machine and the model loaded here, measured now")
    expect(view).to_contain_text("has not been measured yet")
    expect(page.locator("#kv-pays-tflops")).to_be_hidden()
    page.click("#kv-pays-measure")
    expect(view).to_contain_text("A prompt of 3,500 tokens")
    expect(page.locator("#kv-pays-status")).to_have_text("")


def predict(page: Page, button: str) -> None:
    """Choose the first answer by the keyboard, and press a button."""
    first = page.locator("#kv-tour-guess input").first
    expect(first).to_be_enabled()
    first.focus()
    page.keyboard.press("Space")
    expect(first).to_be_checked()
    page.locator(button).focus()
    page.keyboard.press("Enter")


@pytest.mark.slow
def test_the_tour_from_start_to_end(opened: Watched, address: str) -> None:
    """Every step by the keyboard on a phone's width in lesson mode, then a class of two."""
    page = opened(f"{address}?lesson=1#tour", 390, 844)
    expect(page.locator("#kv-tour-teacher")).to_be_hidden()
    for index, step in enumerate(steps()):
        expect(page.locator(".kv-tour-step h2")).to_have_text(step.title)
        predict(page, "#kv-tour-replay" if index == 1 else "#kv-tour-run")
        expect(page.locator(".kv-tour-source")).to_have_text(words.RECORDED if index == 1 else words.LIVE)
        expect(page.locator("#kv-view-tour .kv-card-title").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), step.key
        if index + 1 < len(steps()):
            expect(page.locator("#kv-tour-next")).to_be_enabled()
            page.locator("#kv-tour-next").press("Enter")
    assert "lesson=1" in page.url
    assert f"step={len(steps())}" in page.url
    expect(page.locator("#kv-tour-next")).to_be_hidden()

    teacher = opened(f"{address}#tour", 1280)
    teacher.locator("#kv-tour-teacher button").first.click()
    teacher.click("#kv-tour-open-room")
    link = teacher.locator(".kv-room-link").get_attribute("href")
    # the room stays through other pages, lesson mode and a reload; nothing but the reload loads the page anew
    teacher.evaluate("window.kvSame = true")
    for press in ('.kv-nav a[data-page="pipeline"]', '[data-kv="lesson"]', '.kv-nav a[data-page="tour"]'):
        teacher.click(press)
    expect(teacher.locator(".kv-room")).to_be_visible()
    assert teacher.evaluate("window.kvSame")
    assert "room=" in teacher.url
    assert "lesson=1" in teacher.url
    teacher.click('[data-kv="projector"]')
    expect(teacher.locator("#kv-nav")).to_be_hidden()
    teacher.reload()
    expect(teacher.locator(".kv-room[data-leads='1']")).to_be_visible()
    assert teacher.evaluate("document.querySelector('.kv-room-qr').decode().then(() => true)")
    teacher.click('[data-kv="projector"]')
    expect(teacher.locator("#kv-nav")).to_be_visible()
    student = opened(f"{address}{link}", 390, 844)
    expect(student.locator("#kv-tour-run")).to_be_hidden()
    expect(student.locator("#kv-tour-tally")).to_contain_text(words.WAIT_REVEAL)
    predict(student, "#kv-tour-vote")
    expect(student.locator("#kv-tour-tally")).to_contain_text("1 of 1 participant")
    expect(teacher.locator(".kv-tour-tally")).to_contain_text("1 of 1 participant")
    teacher.click("#kv-tour-replay")
    expect(student.locator(".kv-tour-reveal")).to_be_visible()
    teacher.click("#kv-tour-next")
    expect(student.locator(".kv-tour-step h2")).to_have_text(steps()[1].title)
