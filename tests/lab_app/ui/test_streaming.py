"""What a stream of answers tells the browser."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lab_app.ui.streaming import coalesced
from lab_app.ui.types import Update


def test_what_came_an_instant_before_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers that arrive together are drawn as the last of them; what it leaves out would be lost."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    given: list[tuple[float, Update]] = [
        (0.0, {"status": "Starting"}),
        (5.0, {"status": "", "error": "No."}),
        (0.0, {"run": True}),
        (0.9, {"run": False}),
        (1.2, {"cost": "3"}),
    ]

    def steps() -> Iterator[Update]:
        for later, update in given:
            now[0] += later
            yield update

    assert list(coalesced(steps())) == [
        {"status": "Starting"},
        {"status": "", "error": "No."},
        {"status": "", "error": "No.", "run": True},
        {"status": "", "error": "No.", "run": False},
        {"cost": "3"},
    ]
