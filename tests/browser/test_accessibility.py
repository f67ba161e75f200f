"""Every page under axe, light and dark: no serious or critical violation; the main flow by keyboard alone."""

from __future__ import annotations

from typing import Any

import pytest
from axe_core_python.sync_playwright import Axe
from fake_session import StandingSession
from playwright.sync_api import Page, expect

from browser.conftest import Watched
from lab_app.pages.registry import FIRST, PAGES

EVERY_PAGE = (FIRST, *(spec.key for spec in PAGES))


@pytest.fixture
def page(opened: Watched, address: str) -> Page:
    found = opened(address)
    expect(found.locator("body[data-kv-visit]")).to_be_visible()
    return found


def violations(page: Page, options: dict[str, Any]) -> list[str]:
    """Serious and critical violations, each with the elements it is about."""
    found = Axe().run(page, options={"resultTypes": ["violations"], **options})
    return [
        f"{each['id']}: {[node['html'][:160] for node in each['nodes'][:4]]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def opened(page: Page, key: str) -> None:
    page.evaluate("key => { location.hash = '#' + key; }", key)
    shown = "#kv-frame" if key == FIRST else f"#kv-page-{key}"
    expect(page.locator(shown)).to_be_visible()
    if key != FIRST:
        expect(page.locator(f"{shown} button:visible").first).to_be_enabled()
    page.wait_for_timeout(300)


@pytest.mark.slow
def test_no_page_has_a_serious_violation(page: Page) -> None:
    found = {}
    for theme in ("light", "dark"):
        for key in EVERY_PAGE:
            opened(page, key)
            # what a page is made of does not depend on the theme, only its colours do
            found[theme, key] = violations(page, {} if theme == "light" else {"runOnly": ["color-contrast"]})
        page.locator('[data-kv="theme"]').click()
    assert {where: told for where, told in found.items() if told} == {}


def by_tab(page: Page, selector: str, most: int = 120) -> None:
    """Go to an element with the Tab key alone."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("wish => document.activeElement.matches(wish)", selector):
            return
    raise AssertionError(f"{selector} is not reached with {most} presses of Tab")


def test_breaking_and_repairing_by_keyboard(page: Page) -> None:
    opened(page, FIRST)
    page.evaluate("document.activeElement.blur()")
    by_tab(page, "#kv-value-0 textarea")
    page.keyboard.press("Control+A")
    page.keyboard.type("What is 2 + 2?")
    by_tab(page, "#kv-option-kvcomm-prefix_offset input")
    page.keyboard.press("Space")
    expect(page.locator("#kv-option-kvcomm-prefix_offset input")).not_to_be_checked()
    by_tab(page, "#kv-run")
    with StandingSession.standing():
        page.keyboard.press("Enter")
        expect(page.locator("#kv-cancel")).to_be_visible()
    expect(page.locator("#kv-run")).to_be_visible()
    expect(page.locator("#kv-status")).not_to_contain_text("This is a saved run")
