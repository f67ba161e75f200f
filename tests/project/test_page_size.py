"""How much the page is, and what it hears: components, events, and the bytes of configuration that a browser
reads first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession
from gradio.context import Context

from lab_app.app import build_app

MOST = {"components": 327, "events": 106, "bytes": 348_000}


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("page")
    first = make_record(layers=4).save(folder / "first.kvrun")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Context, "id", 0)  # counted through all pages that a process builds: longer numbers
        app = build_app(FakeModel, engine=FakeSession, first_run=first, gallery=folder / "none.json")
        found: dict[str, Any] = app.blocks.config
    return found


def test_the_page_stays_light(config: dict[str, Any]) -> None:
    counted = {
        "components": len(config["components"]),
        "events": len(config["dependencies"]),
        "bytes": len(json.dumps(config, default=str)),
    }
    assert all(counted[what] <= most for what, most in MOST.items()), counted


def test_no_press_is_lost_while_an_answers_last_words_are_on_their_way(config: dict[str, Any]) -> None:
    """They show the button again; by the framework's default it would be deaf until they are over."""
    events = config["dependencies"]
    streams = [event for event in events if event["types"]["generator"] and event["targets"]]
    assert len(streams) > 10
    assert {event["trigger_mode"] for event in streams} == {"multiple", "always_last"}
