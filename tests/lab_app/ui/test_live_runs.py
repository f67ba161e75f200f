"""What a run streams to the page, and what importing the page leaves out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tiny

from backend.base.errors import LabError
from backend.records.events import Event, Progress, TextSoFar
from lab_app.ui import streaming as live


def test_the_first_word_is_shown_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones wait until there is something to see."""
    monkeypatch.setattr(live, "REDRAW_SECONDS", 1e9)
    words = ["One", "One two", "One two three"]

    def events() -> Iterator[Event]:
        yield Progress("A dense reader: dense is reading", 0, 3, 1, "dense")
        for word in words:
            yield TextSoFar(1, "dense", word)

    updates = live.live(tiny.request(), events())
    first = next(updates)
    assert "A dense reader: Full read is reading" in first["status"], "a method is called as its column is"
    shown = [first["comparison"], next(updates)["comparison"]]
    with pytest.raises(LabError, match="without a result"):
        next(updates)
    assert "One" not in shown[0], "the columns alone"
    assert "One" in shown[1]
    assert "two" not in shown[1]
