"""Which calls fill pools, which are read, when a reading or a gate ends, and what its sums are."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import tiny

from backend.logs.calls import Call, Message
from backend.records.log_gate import GateRecord, GateRequest
from backend.records.log_reading import ReadingRecord, ReadingRequest, ReadingRow
from backend.records.request import MethodChoice
from backend.studies import log_gate as gate_study
from backend.studies.log_gate import log_gate
from backend.studies.log_reading import read_log
from backend.studies.logged_calls import LoggedCalls, sampled

NAIVE, KVCOMM = MethodChoice("naive"), MethodChoice("kvcomm")


def calls(count: int) -> list[Call]:
    """Of one agent and one template."""
    texts = [f"{tiny.QUESTIONS[n % len(tiny.QUESTIONS)]} ({n})" for n in range(count)]
    return [
        Call(f"{n}", (Message("user", f"Solve this:\n{text}\nThe answer:"),), "a", str(n))
        for n, text in enumerate(texts)
    ]


def read(model: Any, **given: Any) -> ReadingRecord:
    *_, found = read_log(model, ReadingRequest((NAIVE,), max_new_tokens=3, **given), calls(6))
    assert isinstance(found, ReadingRecord)
    return found


def test_at_most_half_of_a_template_fills_pools_and_is_not_read(tiny_model: Any) -> None:
    logged = LoggedCalls(tiny_model, calls(5), [KVCOMM], ReadingRequest((KVCOMM,), same="number"))
    assert logged.warmed == 2
    assert logged.eligible == [2, 3, 4]
    logged_more = LoggedCalls(tiny_model, calls(5), [KVCOMM], ReadingRequest((KVCOMM,), warm=1))
    assert logged_more.eligible == [1, 2, 3, 4]
    assert LoggedCalls(tiny_model, calls(5), [NAIVE], ReadingRequest((NAIVE,))).warmed == 0
    assert {logged.request(index).pipeline.scoring for index in range(5)} == {"number"}


@pytest.mark.parametrize(
    ("sizes", "count", "shares"),
    [((5, 3, 2), 4, (2, 1, 1)), ((5, 3, 2), 10, (5, 3, 2)), ((9, 1), 5, (4, 1)), ((4, 4, 4), 2, (1, 1, 0))],
)
def test_every_agents_share_is_rounded_by_what_is_left(
    sizes: tuple[int, ...], count: int, shares: tuple[int, ...]
) -> None:
    agents = [name for name, size in zip("abc", sizes, strict=False) for _ in range(size)]
    if sizes == (9, 1):  # 4.5 and 0.5: of equals the first by name
        shares = (5, 0)
    chosen = sampled(range(len(agents)), agents, count, 0)
    assert len(chosen) == len(set(chosen)) == count
    found = Counter(agents[index] for index in chosen)
    assert tuple(found[name] for name in "abc"[: len(sizes)]) == shares


def test_the_budget_is_of_prompt_tokens_over_all_methods(tiny_model: Any) -> None:
    first = read(tiny_model, most_tokens=1, blame_passes=0)
    assert len(first.rows) == 1
    both = 2 * first.rows[0].prompt_tokens  # dense's and naive's
    assert len(read(tiny_model, most_tokens=both, blame_passes=0).rows) == 1
    assert len(read(tiny_model, most_tokens=both + 1, blame_passes=0).rows) == 2


def test_near_ties_are_counted_and_never_blamed(tiny_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.records.run.NEAR_TIE", 1e12)
    found = read(tiny_model, sample=3)
    changed = [row for row in found.rows if row.flipped]
    assert changed
    assert all(row.near_tie and row.blamed is None for row in changed)
    *_, gate = log_gate(tiny_model, GateRequest(NAIVE, 0.9, max_new_tokens=3), calls(6))
    assert isinstance(gate, GateRecord)
    assert [row.near_tie for row in gate.read] == [row.flipped for row in gate.read]
    monkeypatch.setattr("backend.records.run.NEAR_TIE", 0.0)
    *_, gate = log_gate(tiny_model, GateRequest(NAIVE, 0.9, max_new_tokens=3), calls(6))
    assert isinstance(gate, GateRecord)
    assert gate.flips
    assert not any(row.near_tie for row in gate.read)


def test_a_gate_that_may_stop_stops_when_too_many_changed(
    tiny_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoggedCalls, "read", lambda self, index, session: SimpleNamespace(boundary_tax=None))
    monkeypatch.setattr(
        gate_study, "_row_of", lambda found, label, row: replace(row, flipped=True, reused_tokens=5)
    )
    request = GateRequest(NAIVE, 0.2, stop_early=True)
    *_, found = log_gate(tiny_model, request, calls(request.needed + 60))
    assert isinstance(found, GateRecord)
    seen = len(found.rows)
    assert 1 < seen < 30
    assert request.limits(seen, seen)[0] > 0.2 >= request.limits(seen - 1, seen - 1)[0]
    assert found.verdict == "not certain"


def test_sums_weigh_tokens_and_count_tool_calls(tiny_model: Any) -> None:
    def row(dense: str, other: str, near: bool, logged: int, kl: float) -> ReadingRow:
        return ReadingRow(
            "", "a", "naive", 10, 5, "x", "y", True, near, dense, other, 0.5, 0.5, logged_tokens=logged,
            kl_logged=kl, swapped=logged // 3,
        )  # fmt: skip

    rows = (row("f()", "f()", False, 1, 1.0), row("f()", "", False, 9, 0.0), row("f()", "g()", True, 0, 7.0),
            row("", "", False, 0, 7.0))  # fmt: skip
    assert [one.call_flipped for one in rows] == [False, True, True, False]
    [whole, own] = ReadingRecord(ReadingRequest((NAIVE,)), tiny_model.info, 4, 0, rows=rows).summary()
    assert {**whole, "agent": "a"} == own
    assert (whole["tool_flips"]["count"], whole["tool_flips"]["of"]) == (2, 3)
    assert whole["real_tool_flips"]["count"] == 1
    assert whole["kl_logged"] == pytest.approx(0.1)
    assert whole["swapped"] == pytest.approx(3 / 10)
    assert whole["logged_tokens"] == 10
