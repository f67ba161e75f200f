"""The real page in Chromium: run, toggle a step, compare, save and reopen, bad input, no outside requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_session import StandingSession
from playwright.sync_api import Browser, Page, Route, expect

from backend.records.proximity import ProximityRecord
from backend.records.run import RunRecord
from browser.conftest import Watched, watching


def begun(page: Page) -> Page:
    """Wait until the visit has begun."""
    for place in ("body[data-kv-visit]", "#kv-verdict .kv-verdict-head"):
        expect(page.locator(place)).to_be_visible()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    return page


def run(page: Page) -> None:
    """Press Run and wait for the end."""
    with StandingSession.standing():
        page.click("#kv-run")
        expect(page.locator("#kv-cancel")).to_be_visible()
    expect(page.locator("#kv-run")).to_be_visible()


@pytest.fixture
def page(opened: Watched, address: str) -> Page:
    return begun(opened(address))


@pytest.fixture(scope="module")
def seen(browser: Browser, address: str) -> Iterator[Page]:
    """One page for all that only look: they run nothing, and leave it as wide and as light as it was."""
    with watching(browser) as opened:
        yield begun(opened(address))


def test_first_visit_is_not_empty(seen: Page) -> None:
    expect(seen.locator("#kv-comparison .kv-agent[open] .kv-cell").first).to_be_visible()
    for pane, drawn in (("tokens", "#kv-strip .kv-band"), ("play", "#kv-view-play svg")):
        seen.click(f"#kv-tab-{pane}-button")
        expect(seen.locator(drawn).first).to_be_visible()
    expect(seen.locator("#kv-verdict")).to_contain_text("What would repair it?")
    expect(seen.locator("#kv-graph svg")).to_be_visible()


def test_model_chip_opens_the_certificate(seen: Page) -> None:
    seen.click(".kv-model summary")
    expect(seen.locator(".kv-popover")).to_contain_text("key error")
    seen.click(".kv-model summary")


def test_the_kinds_of_checked_examples_stand_on_one_line(seen: Page) -> None:
    tops = seen.locator("#kv-pick-effect label").evaluate_all("found => found.map(e => e.offsetTop)")
    assert len(tops) == 2
    assert len(set(tops)) == 1


def test_every_tab_draws(seen: Page) -> None:
    tabs = seen.get_by_role("tab").all()
    assert [tab.inner_text() for tab in tabs[:3]] == ["Texts", "Play it", "Tokens"]
    for tab in tabs[1:2] + tabs[3:]:
        tab.click()
        panel = seen.locator("[role=tabpanel]:visible")
        expect(panel.locator(".kv-card-title").first).not_to_be_empty()


def test_selection_holds_across_tabs(seen: Page) -> None:
    seen.click("#kv-tab-tokens-button")
    seen.locator("#kv-strip .kv-bracket-slot").first.click()
    expect(seen.locator("#kv-pick-segment input")).to_have_value(re.compile("question"))
    seen.get_by_role("tab", name="Offsets").click()
    expect(seen.locator("#kv-pick-segment input")).to_have_value(re.compile("question"))
    seen.locator("#kv-pick-agent input").click()
    seen.get_by_role("option", name="Inspector").click()
    expect(seen.locator("#kv-strip h4")).to_contain_text("Inspector")


def test_theme_and_narrow_window(seen: Page) -> None:
    seen.click('[data-kv="theme"]')
    assert seen.evaluate("document.body.classList.contains('dark')")
    seen.set_viewport_size({"width": 390, "height": 844})
    seen.wait_for_timeout(300)
    assert seen.evaluate("document.documentElement.scrollWidth") <= 390
    seen.set_viewport_size({"width": 1280, "height": 800})
    seen.click('[data-kv="theme"]')


@pytest.mark.sampled(1)
def test_run_toggle_a_step_and_compare(page: Page) -> None:
    page.fill("#kv-value-0 textarea", "What is 1 + 1?")
    run(page)
    expect(page.locator("#kv-comparison .kv-method-head")).to_have_count(3)
    page.locator("#kv-option-kvcomm-prefix_offset input").uncheck()
    page.locator("#kv-ablate-kvcomm input").check()
    expect(page.locator("#kv-comparison .kv-method-head")).to_have_count(5)  # without Run
    page.fill("#kv-value-0 textarea", "What is 2 + 2?")
    expect(page.locator("#kv-status")).to_contain_text("edited since")
    with StandingSession.standing():
        page.locator("#kv-status button").click()
        expect(page.locator("#kv-cancel")).to_be_visible()
        expect(page.locator("#kv-comparison .kv-progress")).to_have_count(1)
    expect(page.locator("#kv-run")).to_be_visible()
    expect(page.locator("#kv-comparison .kv-method-head")).to_have_count(5)
    expect(page.locator("#kv-status")).not_to_contain_text("edited since")


def test_a_column_is_duplicated_changed_and_compared_with_its_original(opened: Watched, address: str) -> None:
    page = begun(opened(address))
    page.locator('[data-act="duplicate"][data-label="kvcomm"]').click()
    gamma = page.locator("#kv-option-kvcomm-gamma-2 input[type=number]")
    expect(gamma).to_be_focused()
    expect(page.locator("#kv-differences caption")).to_contain_text("KVCOMM is pinned as A")
    gamma.fill("0.5")
    expect(page.locator("#kv-option-kvcomm-gamma input[type=number]")).to_have_value("0.3")
    run(page)
    line = page.locator("#kv-differences tbody tr").last
    expect(line).to_contain_text("KVCOMM 2")
    expect(line).to_contain_text("0.3 → 0.5")
    drag = """(slider) => { for (let at = 0; at <= 19; at++) {
        slider.value = at / 20;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
    } }"""
    page.locator("#kv-option-kvcomm-gamma-2 .kv-slider").evaluate(drag)
    expect(line).to_contain_text("0.3 → 0.95")  # without Run; the last of a fast drag
    expect(gamma).to_have_value("0.95")
    page.click("#kv-bench-link")
    again = page.locator(".kv-shared-link").get_attribute("href")
    page.locator('[data-act="remove"][data-label="kvcomm 2"]').click()
    expect(gamma).to_have_count(0)
    page = opened(address.rstrip("/") + "/" + again)
    expect(begun(page).locator("#kv-option-kvcomm-gamma-2 input[type=number]")).to_have_value("0.95")
    expect(page.locator("#kv-pinned-box")).to_have_value("kvcomm")


def let_go(page: Page, address: str, held: list[Route]) -> None:
    """Send requests that were held back.

    Later ones pass from now on: one that is made meanwhile would be held for good.
    """
    page.route(address, lambda route: route.continue_())
    for route in held:
        route.continue_()


def test_a_press_before_the_visit_has_begun_is_kept(opened: Watched, address: str) -> None:
    page, asked = opened(), list[Route]()
    page.route("**/queue/join*", lambda route: asked.append(route))
    page.goto(address)
    page.click("#kv-run")
    assert page.locator("body[data-kv-visit]").count() == 0
    with StandingSession.standing():
        let_go(page, "**/queue/join*", asked)
        expect(page.locator("#kv-cancel")).to_be_visible()
    expect(page.locator("#kv-run")).to_be_visible()


def test_a_page_is_seen_and_pressed_before_the_framework_is_there(opened: Watched, address: str) -> None:
    page, asked = opened(), list[Route]()
    page.route("**/assets/*.js", lambda route: asked.append(route))
    page.goto(address, wait_until="commit")
    early = page.locator(".kv-early")
    expect(early.locator(".kv-verdict-head")).to_be_visible()
    expect(early.locator(".kv-agent[open] .kv-cell").first).to_be_visible()
    assert early.locator(".kv-early-top").evaluate("e => getComputedStyle(e).position") == "sticky", "styled"
    early.locator(".kv-early-run").click()
    assert page.locator("#kv-run").count() == 0
    with StandingSession.standing():
        let_go(page, "**/assets/*.js", asked)
        expect(page.locator("#kv-cancel")).to_be_visible()
        expect(early).to_have_count(0)
    expect(page.locator("#kv-run")).to_be_visible()


def test_save_and_reopen(page: Page, tmp_path: Path) -> None:
    run(page)
    with page.expect_download() as waiting:
        page.click("#kv-download")
    saved = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(saved)
    record = RunRecord.load(saved)
    page.reload()
    begun(page)
    page.set_input_files("#kv-upload input, input[type=file]", saved)
    expect(page.locator("#kv-status")).to_contain_text("Opened a saved record")
    page.get_by_role("tab", name="Record").click()
    expect(page.locator("#kv-view-record")).to_contain_text(record.id)
    broken = tmp_path / "broken.kvrun"
    broken.write_bytes(b"nothing")
    page.set_input_files("#kv-upload input, input[type=file]", broken)
    expect(page.locator("#kv-error-record")).to_contain_text("not a complete record")


def test_bad_input_is_told_and_kept(page: Page) -> None:
    page.fill("#kv-value-0 textarea", "")
    expect(page.locator("#kv-error-value-0")).to_contain_text("empty")
    page.fill("#kv-value-0 textarea", "<b>2</b> {x} 🙂 plus 2?")
    expect(page.locator("#kv-error-value-0 .kv-problem")).to_have_count(0)
    page.locator("#kv-agent-1 .kv-agent-head").click()
    typed = "I read {user_question} and {user_question} twice"
    page.fill("#kv-template-1 textarea", typed)
    page.fill("#kv-option-kvcomm-gamma input[type=number]", "42")
    expect(page.locator("#kv-error-agent-1")).to_contain_text("twice")
    expect(page.locator("#kv-error-panel-kvcomm")).to_contain_text("allowed: 0 to 1")
    page.click("#kv-run")
    expect(page.locator("#kv-run")).to_be_visible()
    expect(page.locator("#kv-error-agent-1")).to_contain_text("twice")
    assert page.input_value("#kv-template-1 textarea") == typed
    assert page.input_value("#kv-value-0 textarea") == "<b>2</b> {x} 🙂 plus 2?"


def test_a_checked_example_fills_the_bench(page: Page) -> None:
    expect(page.locator("#kv-pick-example input")).to_have_value("Choose one of 2")
    page.locator("#kv-pick-example input").focus()
    for key in ("ArrowDown", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#kv-gallery-note")).to_contain_text("Checked: the full read answers")
    expect(page.locator("#kv-preset input")).to_have_value("Ten documents, two hops")
    expect(page.locator("#kv-value-10 textarea")).to_be_visible()
    expect(page.locator("#kv-known")).to_contain_text("Known answer")
    page.locator("#kv-pick-example input").click()
    page.get_by_role("option", name="Python: a loop").click()
    expect(page.locator("#kv-value-0 textarea")).to_have_value(re.compile(r"^def f\(\w\):\n    for "))
    expect(page.locator("#kv-value-1")).to_be_hidden()
    page.fill("#kv-value-0 textarea", "print(1)")
    expect(page.locator("#kv-gallery-note")).to_contain_text("Edited since")
    page.get_by_role("radio", name=re.compile("Answer stays")).check()
    expect(page.locator("#kv-pick-example input")).to_have_value("Choose one of 1")
    page.locator("#kv-pick-example input").click()
    page.get_by_role("option", name="Judge: first right one").click()
    expect(page.locator("#kv-gallery-note")).to_contain_text("both answer")
    page.locator("#kv-preset input").click()
    page.get_by_role("option", name="Two solvers and a judge", exact=True).click()
    expect(page.locator("#kv-pick-example input")).to_have_value("Choose one of 1")
    expect(page.locator("#kv-gallery-note")).not_to_contain_text("Checked")


def test_a_profile_sets_every_box_and_follows_them(page: Page) -> None:
    chosen = page.locator("#kv-profile-kvcomm label.selected")
    expect(chosen).to_have_text("As published")
    # what follows the first paint answers before the click, or its answer would undo it
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    page.locator("#kv-profile-kvcomm").get_by_label("As shipped").click()
    expect(chosen).to_have_text("As shipped")
    expect(page.locator("#kv-more-kvcomm")).to_contain_text("13 changed")
    expect(page.locator("#kv-profile-note-kvcomm")).to_contain_text("public code")
    page.locator("#kv-more-kvcomm summary").click()
    for option, value in (
        ("gate", "shipped"),
        ("norm", "frobenius"),
        ("compared", "kv"),
        ("missing", "copy"),
    ):
        expect(page.locator(f"#kv-option-kvcomm-{option} label.selected")).to_have_text(value)
    page.fill("#kv-option-kvcomm-gamma input[type=number]", "0.5")
    expect(page.locator("#kv-profile-note-kvcomm")).to_contain_text("Your own")
    expect(chosen).to_have_count(0)
    page.fill("#kv-option-kvcomm-gamma input[type=number]", "0.3")
    expect(chosen).to_have_text("As shipped")
    # the boxes stay when another scenario comes, and so does what the profile says of them
    page.locator("#kv-preset input").click()
    page.get_by_role("option", name="Two solvers and a judge", exact=True).click()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    expect(chosen).to_have_text("As shipped")
    for switch in ("every-profile", "ablate"):
        page.locator(f"#kv-{switch}-kvcomm input").check()
    for method in ("Prefix cache", "True offsets"):
        page.locator("#kv-methods").get_by_label(method).check()
    expect(page.locator("#kv-error-panel-kvcomm")).to_contain_text("up to 8 can be compared")


def test_a_measurement_and_its_file(page: Page, tmp_path: Path) -> None:
    page.get_by_role("tab", name="Proximity").click()
    page.fill("#kv-proximity-pairs input", "3")
    expect(page.locator("#kv-error-proximity-pairs")).to_contain_text("allowed: 9 to 3000")
    page.fill("#kv-proximity-pairs input", "30")
    expect(page.locator("#kv-error-proximity-pairs .kv-problem")).to_have_count(0)
    page.fill("#kv-proximity-prefix_a textarea", "<b>odd</b> ")
    page.click("#kv-proximity-measure")
    figures = page.locator("#kv-view-proximity")
    expect(figures.locator(".main-svg").first).to_be_visible()
    expect(figures.locator(".kv-card")).to_have_count(8)
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


def test_cancel_stops_a_run(page: Page) -> None:
    with StandingSession.standing():
        page.click("#kv-run")
        expect(page.locator("#kv-cancel")).to_be_visible()
        page.click("#kv-cancel")
        expect(page.locator("#kv-status")).to_contain_text("Stopped")
    expect(page.locator("#kv-run")).to_be_visible()
    expect(page.locator("#kv-comparison .kv-agent[open] .kv-cell").first).to_be_visible()


def test_two_visitors_wait_for_one_model(page: Page, opened: Watched, address: str) -> None:
    other = begun(opened(address))
    with StandingSession.standing():
        page.click("#kv-run")
        expect(page.locator("#kv-cancel")).to_be_visible()
        other.click("#kv-run")
        expect(other.locator("#kv-status")).to_contain_text("1 run before you")
    expect(other.locator("#kv-run")).to_be_visible()


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


def test_preset_on_the_embedded_model(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    page.click("#kv-run")
    expect(page.locator("#kv-status")).not_to_contain_text("saved run")
    expect(page.locator("#kv-run")).to_be_visible()
    expect(page.locator("#kv-comparison .kv-method-head")).to_have_count(3)
    expect(page.locator("#kv-comparison")).to_contain_text("TTFT")
