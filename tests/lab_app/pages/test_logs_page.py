"""The page *Your logs* without a browser: the example, one's own file, and two calls side by side."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from backend.logs.timeline import OpenLog
from lab_app.pages.logs import page


@pytest.fixture
def visit() -> Any:
    return SimpleNamespace(pages={})


def log_of(*prompts: str) -> bytes:
    rows = [{"agent": f"a{n % 2}", "session_id": "s", "prompt": prompt} for n, prompt in enumerate(prompts)]
    return "\n".join(map(json.dumps, rows)).encode()


def test_the_page_opens_with_the_labs_own_agents_in_three_formats(visit: Any) -> None:
    shown = page.arrive(visit)
    log = page.state(visit).log
    assert log.xray.formats == ("Anthropic messages", "OTLP spans", "OpenAI chat")
    assert (len(log.sessions), len(log.xray.calls), log.xray.skipped) == (6, 24, 0)
    assert {missed.kind for missed in log.xray.missed} >= {"time stamp"}
    assert "What should be changed first?" in shown["overview"]
    assert shown["calls"]["html"].count("data-pick") == 4
    assert shown["calls"]["html"].count('aria-pressed="true"') == 2


def test_bars_and_texts_hold_all_of_every_call() -> None:
    log: OpenLog = page.example()
    for number, call in enumerate(log.xray.calls):
        runs = log.runs(number)
        count = {
            kind: sum(r.tokens for r in runs if r.kind == kind) for kind in ("beginning", "elsewhere", "new")
        }
        assert sum(count.values()) == call.tokens
        assert count["beginning"] == call.prefix
        assert count["elsewhere"] <= call.anywhere - call.prefix + call.repeated
        found = log.pair(0, number)
        own = "".join(log.log.texts[p] for p in log.log.pieces[number])
        assert "".join(row.after for row in found.rows) == own
        assert all(row.before == row.after for row in found.rows if row.same)
    assert np.isin([k for run in log.runs(3) for k in (run.kind,)], ["elsewhere"]).any()


def test_an_own_file_takes_the_examples_place_and_bad_lines_are_told(visit: Any) -> None:
    text = "A long paragraph that both of them read. " * 8
    shown = page.upload(
        visit, {"upload": log_of(f"Now: 12:01\n\n{text}", f"Now: 12:02\n\n{text}") + b"\nno call"}
    )
    assert shown["status"] == ""
    assert "line held no call" in shown["overview"]
    assert "time stamp" in shown["calls"]["html"]
    assert page.state(visit).picked == (0, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x" * (page.MOST_BYTES + 1), "up to 4"),
        (b"\x1f\x8b packed", "is packed"),
        (b"PK packed", "is packed"),
        (b"", "holds no call"),
        (b"no call", "holds no call"),
        (b"\xff\xfe", "holds no call"),
    ],
)
def test_a_file_that_is_no_log_leaves_the_log_before(visit: Any, content: bytes, said: str) -> None:
    page.arrive(visit)
    before = page.state(visit)
    shown = page.upload(visit, {"upload": content})
    assert list(shown) == ["status"]
    assert said in shown["status"]
    assert page.state(visit) is before


def test_a_call_is_laid_beside_the_one_chosen_before(visit: Any) -> None:
    page.arrive(visit)
    first = page.state(visit).picked
    assert first is not None
    page.pick(visit, {}, SimpleNamespace(token=0))
    assert page.state(visit).picked == (first[1], 0)
    for bad in (99, "0", None, True):
        assert page.pick(visit, {}, SimpleNamespace(token=bad)) == {}
    page.choose(visit, {"pick_session": "2"})
    assert page.state(visit).session == "request-3"
    assert page.choose(visit, {"pick_session": "99"}) == {}
