"""What somebody with ten minutes comes to do, one test each, on the page as it is served."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import PATIENCE, Watched
from browser.test_address import OWN, RESULT, begun, settled

HEADS = "#kv-comparison .kv-method-head"
SCREENS = "document.documentElement.scrollHeight / innerHeight"


def on_the_first_screen(page: Page, place: str) -> None:
    """Seen without scrolling."""
    box = page.locator(place).first.bounding_box()
    assert box is not None
    assert 0 <= box["y"] < box["y"] + box["height"] <= 800, place


def blamed(page: Page) -> None:
    """Run, and search the part of the cache that did it; what was found takes two screens."""
    page.click("#kv-run")
    expect(page.locator("#kv-save-tensors")).to_be_visible()
    page.click("#kv-blame-measure")
    expect(page.locator("#kv-view-blame .kv-card .main-svg").first).to_be_visible(timeout=3 * PATIENCE)
    page.wait_for_timeout(1000)
    assert page.evaluate(SCREENS) <= 2


def test_say_what_the_page_is_for(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    expect(page.locator(".kv-purpose:visible").first).to_contain_text("copy of that cache")
    for place in (".kv-purpose:visible", '[data-kv="play"]:visible', "#kv-verdict .kv-verdict-head"):
        on_the_first_screen(page, place)
    page.locator('[data-kv="play"]:visible').first.click()
    expect(page.locator("#kv-tab-play .kv-steps-stage")).to_be_in_viewport()


@pytest.mark.sampled(1)
def test_an_own_question_and_its_first_result(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    on_the_first_screen(page, "#kv-value-0 textarea")
    page.fill("#kv-value-0 textarea", OWN)
    expect(page.locator("#kv-familiar")).not_to_be_empty()
    page.click("#kv-run")
    expect(page.locator("#kv-verdict")).to_contain_text(OWN)
    verdict = page.locator("#kv-verdict .kv-verdict-head")
    expect(verdict).to_contain_text("Nobody knows what is right here")  # no known answer is made up
    on_the_first_screen(page, "#kv-verdict .kv-verdict-head")


@pytest.mark.slow
def test_one_press_lets_kvcomm_reuse_what_its_gate_refused(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    kvcomm, press = page.locator(HEADS, has_text="KVCOMM"), page.locator('#kv-verdict [data-kv="set"]')
    page.fill("#kv-value-0 textarea", OWN + " The sun shines through the window." * 20)
    page.click("#kv-run")
    expect(page.locator("#kv-verdict")).to_contain_text("longer than every anchor")
    expect(kvcomm).to_contain_text("gate refused")
    press.click()  # it runs by itself
    expect(page.locator("#kv-warm-own input")).to_be_checked()
    expect(kvcomm).to_contain_text(re.compile(r"9\d\s?% of tokens"))
    expect(press).to_have_count(0)


def test_gamma_beside_gamma(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    page.locator('[data-act="duplicate"][data-label="kvcomm"]').click()
    page.fill("#kv-option-kvcomm-gamma input[type=number]", "0.1")
    page.fill("#kv-option-kvcomm-gamma-2 input[type=number]", "0.5")
    expect(page.locator(HEADS)).to_have_count(4)  # without Run
    line = page.locator("#kv-differences tbody tr", has_text="KVCOMM 2")
    expect(line).to_contain_text("0.1 → 0.5")


@pytest.mark.slow
def test_find_the_layer_and_the_text_that_broke_the_judge(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    expect(page.locator("#kv-verdict")).to_contain_text(re.compile(r"prompt: .*layer \d+"))
    page.click("#kv-tab-errors-button")
    page.click('#kv-tab-errors [data-of="blame"]')
    page.click("#kv-blame-measure")
    expect(page.locator("#kv-tab-errors")).to_contain_text("Run it again")  # a saved run holds no tensors
    blamed(page)
    found = page.locator("#kv-view-blame .kv-card")
    expect(found).to_contain_text(re.compile(r"Repairing .+, layers? .+ back: |No set of|Not even"))


@pytest.mark.slow
def test_repair_and_send_the_link(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    before = page.url
    expect(page.locator("#kv-verdict")).to_contain_text("What would repair it?")
    page.click("#kv-tab-errors-button")
    page.click('#kv-tab-errors [data-of="blame"]')
    blamed(page)
    page.locator('[data-act="repair"]').click()
    expect(page.locator(HEADS)).to_have_count(4)  # without Run
    mended = page.locator(HEADS, has_text="repaired: ")
    expect(mended).to_be_in_viewport()
    expect(page.locator("#kv-comparison .kv-out-pending")).to_have_count(0)
    answers = page.locator("#kv-differences tbody tr td:nth-child(3)").all_inner_texts()
    dense = page.locator("#kv-comparison .kv-cell[data-method=dense]").last.inner_text()
    assert answers[-1].removeprefix("≠ ") in dense  # what was repaired gives the full read's answer
    other = opened(settled(page, before))
    expect(other.locator(HEADS, has_text="repaired: ")).to_have_count(1)
    expect(other.locator(HEADS)).to_have_count(4)
    expect(other.locator("#kv-status")).to_have_text("")
    assert other.evaluate(RESULT) == page.evaluate(RESULT)


@pytest.mark.slow
def test_a_judged_set_whose_choice_changed_has_its_own_way_to_blame(
    opened: Watched, embedded_address: str
) -> None:
    page = begun(opened(embedded_address))
    page.click('.kv-nav a[data-page="judge"]')
    closer = page.locator("#kv-judge-closer")
    expect(closer).to_have_text("Find what changed it")
    closer.click()
    expect(page.locator("#kv-status")).to_contain_text("press Run, then Measure")
    expect(page.locator("#kv-blame-measure")).to_be_visible()
    expect(page.locator("#kv-preset input")).to_have_value("Judge: first right one")
    expect(page.get_by_text("not in the list of choices")).to_have_count(0)
    blamed(page)


def test_a_node_of_the_graph_opens_its_prompt(opened: Watched, embedded_address: str) -> None:
    page = begun(opened(embedded_address))
    page.locator('[data-kv="prompt"][data-agent="2"] rect').click()
    prompt = page.locator("#kv-template-1 textarea")
    expect(prompt).to_be_focused()
    expect(prompt).to_be_in_viewport(ratio=1)
    page.get_by_role("button", name="Edit the request").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#kv-value-0 textarea")).to_be_focused()
