"""The page on a phone: how long it is, what is folded, and that what a visitor opened stays open."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Watched

WIDTH, HEIGHT = 390, 844
MOST_SCREENS = 4
SMALLEST = 12  # pixels of type
#: What can be seen of it: over a figure that is on its way the framework lays small words that nobody sees.
SMALL_TYPE = """least => [...document.querySelectorAll("body *")].filter((e) =>
  e.checkVisibility({ opacityProperty: true, visibilityProperty: true })
  && e.getBoundingClientRect().width > 2 && parseFloat(getComputedStyle(e).fontSize) < least
  && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim()))
  .map((e) => e.outerHTML.slice(0, 90))"""


def screens(page: Page) -> float:
    """The length of the page that is shown."""
    return float(page.evaluate("document.documentElement.scrollHeight")) / HEIGHT


def is_a_phones(page: Page) -> None:
    """Four screens at most, nothing beside the screen, no small type."""
    page.wait_for_timeout(500)  # a figure that has just come may still grow
    assert 1 < screens(page) <= MOST_SCREENS
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
    assert page.evaluate(SMALL_TYPE, SMALLEST) == []


def test_first_runs_are_four_screens_at_most(opened: Watched, embedded_address: str) -> None:
    """The saved first runs of the embedded model, as a visitor finds them."""
    page = opened(embedded_address, WIDTH, HEIGHT)
    expect(page.locator("body[data-kv-visit] #kv-comparison .kv-out").first).to_be_attached()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    is_a_phones(page)
    page.click("#kv-tab-play-button")
    expect(page.locator("#kv-tab-play .kv-steps-picture svg").first).to_be_visible()
    is_a_phones(page)
    tops = page.locator("#kv-tab-play .kv-steps-bar button").evaluate_all(
        "all => all.map((b) => b.offsetTop)"
    )
    assert len(tops) > 5
    assert len(set(tops)) == 1  # one line, to be swiped
    page.locator("#kv-tabs .overflow-menu > button").click()  # what does not fit on the line
    page.locator("#kv-tabs .overflow-dropdown button", has_text="Anchors").click()
    expect(page.locator("#kv-tab-anchors .kv-figure-list").first).to_be_visible()
    is_a_phones(page)
    for key, last, pane in (("judge", "judge-attention", 4), ("loop", "loop", 4)):
        page.click(f'.kv-nav a[data-page="{key}"]')
        expect(page.locator(f"#kv-{key}-verdict .kv-verdict-tone")).to_be_visible()
        expect(page.locator(".kv-nav a[aria-current]")).to_be_in_viewport(ratio=0.9)
        is_a_phones(page)
        page.click(f'#kv-page-{key} [data-pane="{pane}"]')
        figures = page.locator(f"#kv-view-{last} .kv-card")
        expect(figures.first).to_be_visible()
        is_a_phones(page)
        shut = figures.first
        expect(shut.locator(".kv-how")).to_be_hidden()
        shut.locator(".kv-unfold").click()
        expect(shut.locator(".main-svg").first).to_be_visible()
        shut.locator(".kv-unfold").click()
        expect(shut.locator(".kv-plot")).to_be_hidden()


@pytest.mark.parametrize("width", [WIDTH, 1280])
def test_a_line_that_was_opened_or_folded_stays_so(opened: Watched, address: str, width: int) -> None:
    """The comparison is drawn again when a column is pinned."""
    page = opened(address, width, HEIGHT)
    expect(page.locator("body[data-kv-visit] #kv-comparison .kv-agent")).to_have_count(3)
    shown = page.locator("#kv-comparison .kv-agent").evaluate_all("all => all.map((line) => line.open)")
    opens, shuts = shown.index(False), shown.index(True)
    for line in (opens, shuts):
        page.locator("#kv-comparison .kv-agent > summary").nth(line).click()
    page.locator('#kv-comparison [data-act="pin"]').first.click()
    expect(page.locator("#kv-differences")).to_be_visible()
    now = page.locator("#kv-comparison .kv-agent").evaluate_all("all => all.map((line) => line.open)")
    assert now == [not was if line in (opens, shuts) else was for line, was in enumerate(shown)]


@pytest.mark.sampled(1)
def test_every_page_is_reached_from_the_navigation(opened: Watched, address: str) -> None:
    """The last ones stand beside the screen until the navigation is swiped."""
    page = opened(address, WIDTH, HEIGHT)
    expect(page.locator("body[data-kv-visit] .kv-nav a").last).to_be_attached()
    for link in reversed(page.locator(".kv-nav a").all()):
        link.click(timeout=10_000)
        expect(page.locator(".kv-nav a[aria-current]")).to_be_in_viewport(ratio=0.9)
        expect(link).to_have_attribute("aria-current", "page")
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
