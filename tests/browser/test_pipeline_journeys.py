"""The real page in Chromium: run, toggle a step, compare, save and reopen, bad input, no outside requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_record import make_record
from fake_session import FakeModel, StandingSession
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright

from backend.prompts.presets import load_preset, preset_requests
from backend.records.proximity import ProximityRecord
from backend.records.run import RunRecord
from backend.session.limits import Limits
from backend.studies.gallery import GalleryEntry, save_gallery
from lab_app.server.serve import launch, serve

# Gradio's queue reads its own statistics in ways that pandas has deprecated.
QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning")
pytestmark = [pytest.mark.browser, QUIET]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
PATIENCE = 60_000  # ms; a slow machine is no failure
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page on a made-up engine that takes its time, with a first run on it."""
    folder = tmp_path_factory.mktemp("first")
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
        engine=lambda model: StandingSession(model, 0.02),
        limits=Limits(together=1),  # so that a second run waits
    )  # fmt: skip
    yield found
    blocks.close(verbose=False)


class Watched:
    """A page that remembers console errors, failed answers and requests to other hosts."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.complaints = page, []
        page.on("console", lambda m: self._note(f"console: {m.text}") if m.type == "error" else None)
        page.on("pageerror", lambda e: self._note(f"page: {e}"))
        page.on("response", lambda r: self._note(f"{r.status} {r.url}") if r.status >= 400 else None)
        page.on(
            "request", lambda r: self._note(f"outside: {r.url}") if self._outside(r.url, address) else None
        )
        page.goto(address)
        self.begun()

    def begun(self) -> None:
        """Wait until the visit has begun."""
        for place in ("body[data-kv-visit]", "#kv-verdict .kv-verdict-head"):
            expect(self.page.locator(place)).to_be_visible(timeout=PATIENCE)
        expect(self.page.locator("#kv-cost")).to_contain_text("tokens to read", timeout=PATIENCE)

    complaints: list[str]

    def _note(self, text: str) -> None:
        self.complaints.append(text)

    @staticmethod
    def _outside(url: str, address: str) -> bool:
        return not url.startswith((address.rstrip("/"), "data:", "blob:"))

    def run(self) -> None:
        """Press Run and wait for the end."""
        with StandingSession.standing():
            self.page.click("#kv-run")
            expect(self.page.locator("#kv-cancel")).to_be_visible(timeout=PATIENCE)
        expect(self.page.locator("#kv-run")).to_be_visible(timeout=2 * PATIENCE)


@pytest.fixture
def lab(browser: Browser, address: str) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    watched = Watched(context.new_page(), address)
    yield watched
    context.close()
    assert watched.complaints == []


def test_first_visit_is_not_empty(lab: Watched) -> None:
    page = lab.page
    expect(page.locator("#kv-comparison .kv-cell").first).to_be_visible()
    expect(page.locator("#kv-strip .kv-band").first).to_be_visible()
    expect(page.locator("#kv-view-errors .main-svg").first).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#kv-verdict")).to_contain_text("What would repair it?")
    expect(page.locator("#kv-graph svg")).to_be_visible()


def test_run_toggle_a_step_and_compare(lab: Watched) -> None:
    page = lab.page
    lab.run()
    expect(page.locator("#kv-comparison .kv-method-head")).to_have_count(3)
    page.locator("#kv-option-kvcomm-prefix_offset input").uncheck()
    expect(page.locator("#kv-status")).to_contain_text("edited since", timeout=PATIENCE)
    page.locator("#kv-ablate-kvcomm input").check()
    with StandingSession.standing():
        page.locator("#kv-status button").click()
        expect(page.locator("#kv-cancel")).to_be_visible(timeout=PATIENCE)
        expect(page.locator("#kv-comparison .kv-progress")).to_have_count(1, timeout=PATIENCE)
    expect(page.locator("#kv-run")).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#kv-comparison .kv-method-head")).to_have_count(5)
    expect(page.locator("#kv-status")).not_to_contain_text("edited since")


def test_a_press_before_the_visit_has_begun_is_kept(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page, asked = context.new_page(), list[Route]()
    page.route("**/queue/join*", lambda route: asked.append(route))
    page.goto(address)
    page.click("#kv-run")
    assert page.locator("body[data-kv-visit]").count() == 0
    with StandingSession.standing():
        for route in asked:
            route.continue_()
        page.unroute("**/queue/join*")
        expect(page.locator("#kv-cancel")).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#kv-run")).to_be_visible(timeout=2 * PATIENCE)
    context.close()


def test_a_page_is_seen_and_pressed_before_the_framework_is_there(browser: Browser, address: str) -> None:
    context = browser.new_context()
    page, asked = context.new_page(), list[Route]()
    page.route("**/assets/*.js", lambda route: asked.append(route))
    page.goto(address, wait_until="commit")
    early = page.locator(".kv-early")
    expect(early.locator(".kv-verdict-head")).to_be_visible(timeout=PATIENCE)
    expect(early.locator(".kv-cell").first).to_be_visible()
    assert early.locator(".kv-early-top").evaluate("e => getComputedStyle(e).position") == "sticky", "styled"
    early.locator(".kv-early-run").click()
    assert page.locator("#kv-run").count() == 0
    with StandingSession.standing():
        for route in asked:
            route.continue_()
        page.unroute("**/assets/*.js")
        expect(page.locator("#kv-cancel")).to_be_visible(timeout=PATIENCE)
        expect(early).to_have_count(0)
    expect(page.locator("#kv-run")).to_be_visible(timeout=2 * PATIENCE)
    context.close()


def test_every_tab_draws(lab: Watched) -> None:
    page = lab.page
    for tab in page.get_by_role("tab").all():
        tab.click()
        panel = page.locator("[role=tabpanel]:visible")
        expect(panel.locator(".kv-card-title").first).not_to_be_empty(timeout=PATIENCE)


def test_selection_holds_across_tabs(lab: Watched) -> None:
    page = lab.page
    page.locator("#kv-strip .kv-bracket-slot").first.click()
    expect(page.locator("#kv-pick-segment input")).to_have_value(re.compile("question"), timeout=PATIENCE)
    page.get_by_role("tab", name="Offsets").click()
    expect(page.locator("#kv-pick-segment input")).to_have_value(re.compile("question"))
    page.locator("#kv-pick-agent input").click()
    page.get_by_role("option", name="Inspector").click()
    expect(page.locator("#kv-strip h4")).to_contain_text("Inspector", timeout=PATIENCE)


def test_save_and_reopen(lab: Watched, tmp_path: Path) -> None:
    page = lab.page
    lab.run()
    with page.expect_download() as waiting:
        page.click("#kv-download")
    saved = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(saved)
    record = RunRecord.load(saved)
    page.reload()
    lab.begun()
    page.set_input_files("#kv-upload input, input[type=file]", saved)
    expect(page.locator("#kv-status")).to_contain_text("Opened a saved record", timeout=PATIENCE)
    page.get_by_role("tab", name="Record").click()
    expect(page.locator("#kv-view-record")).to_contain_text(record.id, timeout=PATIENCE)
    broken = tmp_path / "broken.kvrun"
    broken.write_bytes(b"nothing")
    page.set_input_files("#kv-upload input, input[type=file]", broken)
    expect(page.locator("#kv-error-record")).to_contain_text("not a complete record", timeout=PATIENCE)


def test_bad_input_is_told_and_kept(lab: Watched) -> None:
    page = lab.page
    page.fill("#kv-value-0 textarea", "")
    expect(page.locator("#kv-error-value-0")).to_contain_text("empty", timeout=PATIENCE)
    page.fill("#kv-value-0 textarea", "<b>2</b> {x} 🙂 plus 2?")
    expect(page.locator("#kv-error-value-0 .kv-problem")).to_have_count(0, timeout=PATIENCE)
    page.locator("#kv-agent-1 .kv-agent-head").click()
    typed = "I read {user_question} and {user_question} twice"
    page.fill("#kv-template-1 textarea", typed)
    page.fill("#kv-option-kvcomm-gamma input", "42")
    expect(page.locator("#kv-error-agent-1")).to_contain_text("twice", timeout=PATIENCE)
    expect(page.locator("#kv-error-panel-kvcomm")).to_contain_text("allowed: 0 to 1", timeout=PATIENCE)
    page.click("#kv-run")
    expect(page.locator("#kv-run")).to_be_visible(timeout=PATIENCE)
    expect(page.locator("#kv-error-agent-1")).to_contain_text("twice")
    assert page.input_value("#kv-template-1 textarea") == typed
    assert page.input_value("#kv-value-0 textarea") == "<b>2</b> {x} 🙂 plus 2?"


def test_a_checked_example_fills_the_bench(lab: Watched) -> None:
    page = lab.page
    expect(page.locator("#kv-pick-example input")).to_have_value("Choose one of 2", timeout=PATIENCE)
    page.locator("#kv-pick-example input").focus()
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#kv-gallery-note")).to_contain_text("Checked: dense answers", timeout=PATIENCE)
    expect(page.locator("#kv-preset input")).to_have_value("Ten documents, two hops")
    expect(page.locator("#kv-value-10 textarea")).to_be_visible()
    expect(page.locator("#kv-known")).to_contain_text("Known answer", timeout=PATIENCE)
    page.locator("#kv-pick-example input").click()
    page.get_by_role("option", name="Python: a loop").click()
    expect(page.locator("#kv-value-0 textarea")).to_have_value(
        re.compile(r"^def f\(\w\):\n    for "), timeout=PATIENCE
    )
    expect(page.locator("#kv-value-1")).to_be_hidden()
    page.fill("#kv-value-0 textarea", "print(1)")
    expect(page.locator("#kv-gallery-note")).to_contain_text("Edited since", timeout=PATIENCE)
    page.get_by_role("radio", name="Reuse is harmless here").check()
    expect(page.locator("#kv-pick-example input")).to_have_value("Choose one of 1", timeout=PATIENCE)
    page.locator("#kv-pick-example input").click()
    page.get_by_role("option", name="Judge: first right one").click()
    expect(page.locator("#kv-gallery-note")).to_contain_text("both answer", timeout=PATIENCE)
    page.locator("#kv-preset input").click()
    page.get_by_role("option", name="Two solvers and a judge", exact=True).click()
    expect(page.locator("#kv-pick-example input")).to_have_value("Choose one of 1", timeout=PATIENCE)
    expect(page.locator("#kv-gallery-note")).not_to_contain_text("Checked")


def test_a_profile_sets_every_box_and_follows_them(lab: Watched) -> None:
    page = lab.page
    chosen = page.locator("#kv-profile-kvcomm label.selected")
    expect(chosen).to_have_text("As published")
    # what follows the first paint answers before the click, or its answer would undo it
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read", timeout=PATIENCE)
    page.locator("#kv-profile-kvcomm").get_by_label("As shipped").click()
    expect(chosen).to_have_text("As shipped", timeout=PATIENCE)
    expect(page.locator("#kv-more-kvcomm")).to_contain_text("11 changed", timeout=PATIENCE)
    expect(page.locator("#kv-profile-note-kvcomm")).to_contain_text("public code")
    page.locator("#kv-more-kvcomm .label-wrap").click()
    for option, value in (
        ("gate", "shipped"),
        ("norm", "frobenius"),
        ("compared", "kv"),
        ("missing", "copy"),
    ):
        expect(page.locator(f"#kv-option-kvcomm-{option} label.selected")).to_have_text(value)
    page.fill("#kv-option-kvcomm-gamma input", "0.5")
    expect(page.locator("#kv-profile-note-kvcomm")).to_contain_text("Your own", timeout=PATIENCE)
    expect(chosen).to_have_count(0)
    page.fill("#kv-option-kvcomm-gamma input", "0.3")
    expect(chosen).to_have_text("As shipped", timeout=PATIENCE)
    # the boxes stay when another scenario comes, and so does what the profile says of them
    page.locator("#kv-preset input").click()
    page.get_by_role("option", name="Two solvers and a judge", exact=True).click()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read", timeout=PATIENCE)
    expect(chosen).to_have_text("As shipped")
    for switch in ("every-profile", "ablate"):
        page.locator(f"#kv-{switch}-kvcomm input").check()
    for method in ("Prefix cache", "True offsets"):
        page.locator("#kv-methods").get_by_label(method).check()
    expect(page.locator("#kv-error-panel-kvcomm")).to_contain_text(
        "up to 8 can be compared", timeout=PATIENCE
    )


def test_a_measurement_and_its_file(lab: Watched, tmp_path: Path) -> None:
    page = lab.page
    page.get_by_role("tab", name="Proximity").click()
    page.fill("#kv-proximity-pairs input", "3")
    expect(page.locator("#kv-error-proximity-pairs")).to_contain_text("allowed: 9 to 3000", timeout=PATIENCE)
    page.fill("#kv-proximity-pairs input", "30")
    expect(page.locator("#kv-error-proximity-pairs .kv-problem")).to_have_count(0, timeout=PATIENCE)
    page.fill("#kv-proximity-prefix_a textarea", "<b>odd</b> ")
    page.click("#kv-measure")
    figures = page.locator("#kv-view-proximity")
    expect(figures.locator(".main-svg").first).to_be_visible(timeout=PATIENCE)
    expect(figures.locator(".kv-card")).to_have_count(6)
    expect(figures).to_contain_text("␣the")
    with page.expect_download() as waiting:
        figures.get_by_role("button", name="Save this figure as CSV").first.click()
    assert waiting.value.suggested_filename == "proximity_kv.csv"
    with page.expect_download() as waiting:
        page.click("#kv-proximity-save")
    waiting.value.save_as(tmp_path / "saved")
    record = ProximityRecord.from_bytes((tmp_path / "saved").read_bytes())
    assert record.request.pairs == 30
    assert record.request.prefix_a == "<b>odd</b> "


def test_cancel_stops_a_run(lab: Watched) -> None:
    page = lab.page
    with StandingSession.standing():
        page.click("#kv-run")
        expect(page.locator("#kv-cancel")).to_be_visible(timeout=PATIENCE)
        page.click("#kv-cancel")
        expect(page.locator("#kv-status")).to_contain_text("Stopped", timeout=PATIENCE)
    expect(page.locator("#kv-run")).to_be_visible()
    expect(page.locator("#kv-comparison .kv-cell").first).to_be_visible()


def test_two_visitors_wait_for_one_model(lab: Watched, browser: Browser, address: str) -> None:
    other = browser.new_context().new_page()
    second = Watched(other, address)
    with StandingSession.standing():
        lab.page.click("#kv-run")
        expect(lab.page.locator("#kv-cancel")).to_be_visible(timeout=PATIENCE)
        other.click("#kv-run")
        expect(other.locator("#kv-status")).to_contain_text("1 run before you", timeout=PATIENCE)
    expect(other.locator("#kv-run")).to_be_visible(timeout=2 * PATIENCE)
    assert second.complaints == []
    other.context.close()


def test_theme_and_narrow_window(lab: Watched) -> None:
    page = lab.page
    page.click('[data-kv="theme"]')
    assert page.evaluate("document.body.classList.contains('dark')")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_model_chip_opens_the_certificate(lab: Watched) -> None:
    lab.page.click(".kv-model summary")
    expect(lab.page.locator(".kv-popover")).to_contain_text("key error")


@pytest.mark.parametrize(
    "path",
    [
        "gradio_api/file=http://example.com/x",
        "gradio_api/file=https%3A//example.com/x",
        "gradio_api/info?all_endpoints=true",
        "gradio_api/run/refresh",
    ],
)
def test_doors_are_closed(path: str, browser: Browser, address: str) -> None:
    context: Any = browser.new_context()
    assert context.request.get(address.rstrip("/") + "/" + path).status == 403
    context.close()


def test_other_origins_cannot_post(browser: Browser, address: str) -> None:
    context = browser.new_context()
    answer = context.request.post(
        address.rstrip("/") + "/gradio_api/queue/join", data="{}", headers={"Origin": "https://example.com"}
    )
    assert answer.status == 403
    context.close()


@pytest.mark.slow
def test_preset_on_the_embedded_model(browser: Browser) -> None:
    blocks, address = serve(port=0, block=False)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    watched = Watched(context.new_page(), address)
    watched.page.click("#kv-run")
    expect(watched.page.locator("#kv-status")).not_to_contain_text("saved run", timeout=PATIENCE)
    expect(watched.page.locator("#kv-run")).to_be_visible(timeout=2 * PATIENCE)
    expect(watched.page.locator("#kv-comparison .kv-method-head")).to_have_count(3)
    expect(watched.page.locator("#kv-comparison")).to_contain_text("TTFT")
    context.close()
    blocks.close(verbose=False)
    assert watched.complaints == []
