"""Nothing jumps, no type is small, and a result is not an endless page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import PATIENCE, Watched
from browser.test_phone import SMALL_TYPE, SMALLEST
from lab_app.pages.registry import FIRST, PAGES

MOST_SHIFT = 0.1
#: Screens of 800 pixels that a saved first run takes at a width of 1280, whatever pane is open.
MOST_SCREENS = {FIRST: 2.0, "judge": 2.0, "documents": 1.8, "loop": 1.7, "sweep": 1.1, "logs": 1.5}
PANES = {
    FIRST: ("texts", "play", "tokens", "errors", "anchors"), "judge": 5, "documents": 3, "loop": 4, "logs": 3,
}  # fmt: skip
LISTED = {"errors": 4, "anchors": 12}  # figures and parts that measure, of which one is shown
CUT_OFF = "all => all.filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
WATCH = """window.kvShifts = []; new PerformanceObserver((list) => {
    for (const e of list.getEntries()) window.kvShifts.push(e.value);
}).observe({ type: "layout-shift", buffered: true });"""


def watched(opened: Watched, address: str) -> Page:
    """A page that notes what jumps on it."""
    page = opened()
    page.add_init_script(WATCH)
    page.goto(address)
    expect(page.locator("body[data-kv-visit] #kv-verdict .kv-verdict-head")).to_be_visible()
    page.wait_for_timeout(1500)
    return page


def shifted(page: Page) -> float:
    """How far things jumped since the last look, also right behind a press, which a standard would forgive: a
    slow machine jumps later."""
    return float(page.evaluate("window.kvShifts.splice(0).reduce((sum, one) => sum + one, 0)"))


def show(page: Page, key: str) -> None:
    if key != FIRST:
        page.click(f'.kv-nav a[data-page="{key}"]')
        expect(page.locator(f"#kv-page-{key} button:visible").first).to_be_enabled()
    page.wait_for_timeout(1500)


@pytest.mark.slow
def test_nothing_jumps_when_a_page_opens_or_runs(opened: Watched, tiny_address: str) -> None:
    page = watched(opened, tiny_address)
    found = {}
    for key in (FIRST, *(spec.key for spec in PAGES)):
        show(page, key)
        found[key] = shifted(page)
        run = page.locator("#kv-run" if key == FIRST else f"#kv-{key}-run")
        if key in (FIRST, "documents", "judge", "loop"):
            run.click()
            page.wait_for_timeout(600)
            expect(run).to_be_visible(timeout=3 * PATIENCE)
            page.wait_for_timeout(1000)
            found[f"{key}, run"] = shifted(page)
    assert {where: much for where, much in found.items() if much >= MOST_SHIFT} == {}


@pytest.mark.slow
def test_first_runs_have_their_length_and_no_small_type(opened: Watched, embedded_address: str) -> None:
    page = watched(opened, embedded_address)
    found = {}
    for key, most in MOST_SCREENS.items():
        show(page, key)
        if key != FIRST:
            expect(page.locator(f"#kv-{key}-verdict .kv-verdict-head").first).to_be_visible()
            panes = page.locator(f"#kv-page-{key} .kv-panes button").all()
            assert len(panes) == PANES.get(key, 0), key
        else:
            panes = [page.locator(f"#kv-tab-{name}-button") for name in PANES[FIRST]]
        for index, pane in enumerate(panes or [None]):
            if pane is not None:
                pane.click()
            page.wait_for_timeout(1500)
            listed = LISTED.get(PANES[FIRST][index], 0) if key == FIRST else 0
            tabs = page.locator("#kv-tabs .kv-figure-list:visible button")
            expect(tabs).to_have_count(listed)
            assert tabs.evaluate_all(CUT_OFF) == []
            for one in range(listed or 1):
                if listed:
                    tabs.nth(one).click()
                    page.wait_for_timeout(500)
                length = page.evaluate("document.documentElement.scrollHeight") / 800
                if length > most:
                    found[key, index, one] = length
                assert page.evaluate(SMALL_TYPE, SMALLEST) == [], key
    assert found == {}


def test_a_panes_list_shows_one_figure_or_the_part_that_measures(
    opened: Watched, embedded_address: str
) -> None:
    page = watched(opened, embedded_address)
    page.click("#kv-tab-errors-button")
    tabs = page.locator("#kv-tab-errors .kv-figure-list button")
    cards = page.locator("#kv-view-errors .kv-card")
    expect(tabs).to_have_count(4)
    tabs.first.focus()
    for index in range(3):
        expect(tabs.nth(index)).to_have_attribute("aria-selected", "true")
        expect(cards.nth(index).locator(".main-svg").first).to_be_visible()
        assert [card.is_visible() for card in cards.all()] == [other == index for other in range(3)]
        expect(page.locator("#kv-blame-measure")).to_be_hidden()
        page.keyboard.press("ArrowRight")
    expect(page.locator("#kv-blame-measure")).to_be_visible()
    assert not any(card.is_visible() for card in cards.all())
    page.locator("#kv-pick-method input").click()
    page.get_by_role("option", name="KVCOMM", exact=True).click()
    expect(tabs.nth(1)).to_contain_text("KVCOMM")
    expect(page.locator("#kv-blame-measure")).to_be_visible()  # what was chosen stays


def test_one_pane_is_shown_at_a_time_and_arrow_keys_reach_it(opened: Watched, embedded_address: str) -> None:
    page = watched(opened, embedded_address)
    lines, heads = page.locator("#kv-comparison .kv-agent"), page.locator("#kv-comparison .kv-method-head")
    expect(lines.first).to_be_visible()
    page.click("#kv-tab-tokens-button")
    expect(page.locator("#kv-strip .kv-band").first).to_be_visible()
    expect(lines.first).to_be_hidden()
    expect(heads.first).to_be_visible()  # with what each answered
    expect(page.locator("#kv-comparison .kv-head-answer .kv-badge-answer").first).to_be_visible()
    show(page, "loop")
    panes = page.locator("#kv-page-loop .kv-panes button")
    parts = ("#kv-loop-turns-shown", "#kv-loop-strip .kv-strip", "#kv-view-loop-turn", "#kv-view-loop")
    panes.first.focus()
    for index, part in enumerate(parts):
        expect(panes.nth(index)).to_be_focused()
        expect(panes.nth(index)).to_have_attribute("aria-selected", "true")
        for other in parts:
            (
                expect(page.locator(other)).to_be_visible
                if other == part
                else expect(page.locator(other)).to_be_hidden
            )()
        page.keyboard.press("ArrowRight")
    expect(panes.first).to_be_focused()
