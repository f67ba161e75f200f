"""How much the page is: components, events, and the bytes of configuration that a browser reads first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession
from gradio.context import Context

from lab_app.app import build_app

MOST = {"components": 326, "events": 106, "bytes": 350_000}


def test_the_page_stays_light(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Context, "id", 0)  # counted through all pages that a process builds: longer numbers
    first = make_record(layers=4).save(tmp_path / "first.kvrun")
    app = build_app(FakeModel, engine=FakeSession, first_run=first, gallery=tmp_path / "none.json")
    config = app.blocks.config
    counted = {
        "components": len(config["components"]),
        "events": len(config["dependencies"]),
        "bytes": len(json.dumps(config, default=str)),
    }
    assert all(counted[what] <= most for what, most in MOST.items()), counted
