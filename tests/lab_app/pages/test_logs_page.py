"""The page *Your logs* without a browser: the example, one's own file, and two calls side by side."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny

from backend.logs.timeline import OpenLog
from lab_app.pages.logs import page
from lab_app.ui.validation import Problems
from lab_app.visits.visits import Visit, VisitStore


@pytest.fixture
def visit() -> Any:
    return SimpleNamespace(pages={}, cancel=None)


@pytest.fixture
def lab() -> VisitStore:
    return VisitStore(tiny.model, tiny.lab)


@pytest.fixture
def reader(lab: VisitStore) -> Visit:
    """A visit with a log of six calls that the tiny model can read."""
    found = lab.open()
    page.upload(
        found, {"upload": log_of(*(f"Solve this:\n{question}\nThe answer:" for question in tiny.QUESTIONS))}
    )
    return found


def boxes(**changes: Any) -> dict[str, Any]:
    usual = {
        **page.USUAL,
        "same": "none",
        "layouts": False,
        "pick_session": "0",
        "methods": ["naive", "prefix"],
        "options": {},
    }
    return usual | changes


def log_of(*prompts: str) -> bytes:
    rows = [{"agent": f"a{n % 2}", "session_id": "s", "prompt": prompt} for n, prompt in enumerate(prompts)]
    return "\n".join(map(json.dumps, rows)).encode()


def test_the_page_opens_with_the_labs_own_agents_in_three_formats(visit: Any) -> None:
    shown = page.render_log(page.state_of(visit))
    log = page.state_of(visit).log
    assert log.xray.formats == ("Anthropic messages", "OTLP spans", "OpenAI chat")
    assert (len(log.sessions), len(log.xray.calls), log.xray.skipped) == (6, 24, 0)
    assert {missed.kind for missed in log.xray.missed} >= {"time stamp"}
    assert "What should be changed first?" in shown["found"]
    assert "Press Run" in shown["verdict"]
    assert shown["calls"]["html"].count("data-pick") == 4
    assert shown["calls"]["html"].count('aria-pressed="true"') == 2


def test_no_log_is_opened_under_a_reading(visit: Any) -> None:
    before = page.state_of(visit)
    visit.cancel = threading.Event()
    log = {"upload": json.dumps({"messages": [{"role": "user", "content": "How many?"}]}).encode()}
    assert list(page.upload(visit, log)) == ["status"]
    assert page.state_of(visit) is before
    visit.cancel = None
    assert "found" in page.upload(visit, log), "it is a log"


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
    assert "line held no call" in shown["verdict"]
    assert "time stamp" in shown["calls"]["html"]
    assert page.state_of(visit).pair == (0, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"x" * (page.MOST_BYTES + 1), "up to 4"),
        (b"\x1f\x8b packed", "is compressed"),
        (b"PK packed", "is compressed"),
        (b"", "holds no call"),
        (b"no call", "holds no call"),
        (b"\xff\xfe", "holds no call"),
    ],
)
def test_a_file_that_is_no_log_leaves_the_log_before(visit: Any, content: bytes, said: str) -> None:
    page.state_of(visit)
    before = page.state_of(visit)
    shown = page.upload(visit, {"upload": content})
    assert list(shown) == ["status"]
    assert said in shown["status"]
    assert page.state_of(visit) is before


def test_a_call_is_laid_beside_the_one_chosen_before(visit: Any) -> None:
    page.state_of(visit)
    first = page.state_of(visit).pair
    assert first is not None
    page.pick(visit, {}, SimpleNamespace(token=0))
    assert page.state_of(visit).pair == (first[1], 0)
    for bad in (99, "0", None, True):
        assert page.pick(visit, {}, SimpleNamespace(token=bad)) == {}
    assert "calls" in page.refresh(visit, boxes(pick_session="2"))
    assert page.state_of(visit).session == "request-3"
    for same in ("2", "99", "x"):
        assert "calls" not in page.refresh(visit, boxes(pick_session=same))


# -- with the model


@pytest.mark.slow
def test_sampled_calls_are_read_and_the_verdict_is_the_records(lab: VisitStore, reader: Visit) -> None:
    steps = list(page.run(lab, reader, boxes(sample=4)))
    found = page.state_of(reader).reading
    assert found is not None
    assert {row.method for row in found.rows} == {"naive", "prefix"}
    assert len(found.of("naive")) == 4
    flips = sum(row.flipped for row in found.of("naive"))
    assert flips > 0
    [(verdict, answers)] = [(step["verdict"], step["answers"]) for step in steps if "answers" in step]
    assert f"Copy and reposition changed {flips} answer" in verdict
    assert "4 of 6 calls read" in verdict
    assert "Which answers changed" in answers
    assert any("calls read, " in step.get("status", "") for step in steps)
    assert steps[-1]["run.visible"]
    assert reader.cancel is None
    # What stands in the boxes still belongs to it, until it is edited or another log is opened.
    assert page.refresh(reader, boxes(sample=4))["status"] == ""
    assert "Edited since" in page.refresh(reader, boxes(sample=5))["status"]
    shown = page.upload(reader, {"upload": log_of("Another prompt.")})
    assert page.state_of(reader).reading is None
    assert "Press Run" in shown["verdict"]


@pytest.mark.slow
def test_layouts_are_tried_where_that_is_asked_for(lab: VisitStore, reader: Visit) -> None:
    rules = "Work step by step and say the answer at the end. " * 3
    said = [
        [
            {"role": "system", "content": f"It is 1{n}:00.\n\n{rules}"},
            {"role": "user", "content": tiny.QUESTIONS[n]},
        ]
        for n in range(4)
    ]
    rows = [{"agent": "a", "session_id": f"{n}", "messages": messages} for n, messages in enumerate(said)]
    page.upload(reader, {"upload": "\n".join(map(json.dumps, rows)).encode()})
    *_, done, _ = page.run(lab, reader, boxes(sample=2, methods=["naive"], layouts=True))
    found = page.state_of(reader).reading
    assert found is not None
    assert "move what changes in the system prompt to the end" in {row.layout for row in found.laid}
    assert "Would another layout change the answers?" in done["answers"]
    *_, done, _ = page.run(lab, reader, boxes(sample=2, methods=["naive"]))
    assert "Would another layout" not in done["answers"]


@pytest.mark.slow
def test_the_budget_and_cancel_end_the_reading(lab: VisitStore, reader: Visit) -> None:
    list(page.run(lab, reader, boxes(budget=100)))
    found = page.state_of(reader).reading
    assert found is not None
    assert found.spent
    assert 1 <= len(found.of("naive")) < 6
    steps = page.run(lab, reader, boxes())
    for step in steps:
        if "calls read, " in step.get("status", ""):
            assert reader.cancel is not None
            reader.cancel.set()
            break
    assert any("topped" in step.get("status", "") for step in steps)
    assert page.state_of(reader).reading is found


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"sample": 0}, "sample"), ({"budget": 10**9}, "budget"), ({"seed": -1}, "seed"),
        ({"methods": ["none such"]}, "methods"), ({"methods": []}, "methods"), ({"same": "odd"}, "same"),
    ],
)  # fmt: skip
def test_what_is_wrong_stands_beside_its_box(
    lab: VisitStore, reader: Visit, changes: dict[str, Any], field: str
) -> None:
    told = page.refresh(reader, boxes(**changes))["errors"]
    assert list(told) == [field]
    steps = list(page.run(lab, reader, boxes(**changes)))
    assert any(step.get("errors") == told for step in steps)
    assert page.state_of(reader).reading is None
    if field == "sample":
        with pytest.raises(Problems):
            page.read_request(reader, boxes(**changes))
