"""The address follows what is seen on Compare: copied out of the bar, it opens the same setup and result."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Watched

GAMMA = "#kv-option-kvcomm-gamma input[type=number]"
DRAG = """(slider) => { for (let at = 0; at <= 17; at++) {
    slider.value = at / 20;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
} }"""
#: The texts and what happened to their tokens: the part of a result that no clock changes.
RESULT = """() => [...document.querySelectorAll(
    "#kv-comparison .kv-out, #kv-comparison .kv-share-words, #kv-verdict .kv-verdict-head"
)].map((e) => e.textContent)"""
OWN = "Cleo owns 41 ribbons. Cleo buys 7 more. How many ribbons does Cleo own?"


def begun(page: Page) -> Page:
    expect(page.locator("body[data-kv-visit] #kv-verdict .kv-verdict-head")).to_be_visible()
    expect(page.locator("#kv-cost")).to_contain_text("tokens to read")
    return page


def settled(page: Page, before: str) -> str:
    """The address once it is another one and rests."""
    page.wait_for_function("before => location.href !== before", arg=before)
    page.wait_for_timeout(1500)
    return page.url


@pytest.mark.slow
def test_the_address_follows_runs_and_sliders(opened: Watched, embedded_address: str) -> None:
    """A slider, a question of one's own and an empty box, each opened in a new tab."""
    page = begun(opened(embedded_address))
    page.evaluate("window.kvSame = true")
    entries = page.evaluate("history.length")
    page.locator("#kv-option-kvcomm-gamma .kv-slider").evaluate(DRAG)
    page.locator(GAMMA).focus()
    page.locator(GAMMA).press("End")
    page.fill("#kv-value-0 textarea", OWN)
    page.click("#kv-run")
    expect(page.locator("#kv-verdict")).to_contain_text(OWN)
    expect(page.locator("#kv-status")).to_have_text("")
    expect(page.locator("#kv-run")).to_be_visible()
    url = settled(page, embedded_address)
    assert "#c=" in url
    assert page.evaluate("history.length") == entries, "no entry for every frame of a drag"
    other = begun(opened(url))
    expect(other.locator(GAMMA)).to_have_value("0.85")
    expect(other.locator("#kv-value-0 textarea")).to_have_value(page.input_value("#kv-value-0 textarea"))
    expect(other.locator("#kv-verdict")).to_contain_text(OWN)  # its run has begun by itself and ended
    expect(other.locator("#kv-status")).to_have_text("")
    assert other.evaluate(RESULT) == page.evaluate(RESULT)
    assert len(page.evaluate(RESULT)) > 4
    assert other.url == url

    # other pages keep their own address; back here it is the setup's again
    page.click('.kv-nav a[data-page="judge"]')
    expect(page.locator("#kv-page-judge")).to_be_visible()
    assert page.url.endswith("#judge")
    page.click('.kv-nav a[data-page="pipeline"]')
    page.wait_for_function("url => location.href === url", arg=url)
    assert page.evaluate("window.kvSame"), "nothing was loaded anew"

    # a link of another setup asks for it, an own one does not
    page.fill("#kv-turns input", "")
    empty = settled(page, url)
    other = opened(empty)
    expect(other.locator("#kv-status")).to_contain_text("as the sender")
    expect(other.locator("#kv-value-0 textarea")).to_have_value(page.input_value("#kv-value-0 textarea"))
    page.evaluate("hash => { location.hash = hash; }", url.split("#")[1])
    page.wait_for_function("window.kvSame === undefined")
    begun(page)
