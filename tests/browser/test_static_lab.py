"""The static lab in a browser without a network: search, a control, a link to it, the tour."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from browser.conftest import Watched
from lab_app.static_lab import build, settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two values of gamma, one example."""
    out = tmp_path_factory.mktemp("static") / "lab"
    with pytest.MonkeyPatch.context() as patch:
        gamma = settings.axes()[0]
        few = settings.Axis(gamma.key, gamma.label, gamma.help, ("0", "0.3"), ({"gamma": 0.0}, {}))
        for place in (settings, build):
            patch.setattr(place, "axes", lambda: (few,))
        assert build.build(out, examples=1, say=lambda said: None) < 25 << 20
    return out


def test_the_folder_works_without_a_network(opened: Watched, folder: Path) -> None:
    page = opened(offline=True)
    start = (folder / "index.html").as_uri()
    page.goto(start)
    page.fill(".kv-static-search", "gamma")
    expect(page.locator(".kv-static-count")).to_contain_text(" of ")
    page.click("text=Turn KVCOMM’s controls")
    expect(page.locator('[data-part="comparison"]')).to_contain_text("gate passed 4 of 4")
    page.locator('[data-axis="0"] input').fill("0")
    expect(page.locator('[data-part="comparison"]')).not_to_contain_text("gate passed 4 of 4")
    expect(page.locator("[data-view='gate'] .kv-finding")).to_contain_text("0 of 4")
    assert page.url.endswith("#gamma=0")
    page.reload()
    expect(page.locator('[data-axis="0"] output')).to_have_text("0")

    page.goto(start)
    page.click("text=2. Why can it not be copied")
    page.wait_for_url("**/tour/2.html")
    expect(page.locator(".kv-tour-reveal:visible")).to_have_count(0)
    page.locator("[data-choice]").first.click()
    expect(page.locator(".kv-tour-reveal:visible")).to_have_count(1)
    page.get_by_role("link", name="Next step", exact=True).click()
    expect(page).to_have_url(re.compile("tour/3.html"))
    page.get_by_role("link", name="KV Reuse Lab", exact=True).click()
    expect(page.locator(".kv-static-search")).to_be_visible()
