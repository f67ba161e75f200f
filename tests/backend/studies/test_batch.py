"""Batches: every request once, whatever happens on the way, and the numbers of a summary."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from intervals import scipy_wilson
from tiny import QUESTIONS, request, run

from backend.base.errors import PromptError, RecordError
from backend.base.row_file import RowFile
from backend.base.statistics import wilson
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Progress
from backend.records.request import MethodChoice
from backend.records.rows import outcome_row
from backend.session.session import LabSession
from backend.studies.batch import Batch, run_batch, summarise

KVCOMM = MethodChoice("kvcomm", {"gamma": 0.9, "capacity": 3})


def batch(count: int = 4, **changes: Any) -> Batch:
    questions = [QUESTIONS[n] for n in (0, 1, 0, 1, 2, 3)[:count]]  # some repeat, so that something is reused
    examples = tuple(Example({"user_question": q}, str(n)) for n, q in enumerate(questions))
    return Batch(request(["dense", "naive", KVCOMM]), examples, **changes)


def send(loaded: LoadedModel, what: Batch, path: Path) -> list[Any]:
    return list(run_batch(LabSession(loaded), what, path))


def told(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """What a batch found out: everything but times and the last digits of floats."""

    def keep(outcome: dict[str, Any]) -> dict[str, Any]:
        names = ("agent", "method", "state", "answer", "correct", "text", "prompt_tokens", "tokens_reused",
                 "blocks", "blocks_reused", "first_divergence", "gate")  # fmt: skip
        exact = {name: outcome.get(name) for name in names}
        return exact | {
            name: pytest.approx(outcome.get(name), abs=1e-4) for name in ("kl_first", "key_error")
        }

    return [(r["key"], r["mode"], r["index"], r["expected"], [keep(o) for o in r["outcomes"]]) for r in rows]


@pytest.fixture(scope="module")
def whole(tiny_model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an uninterrupted batch of four requests in both modes."""
    path = tmp_path_factory.mktemp("whole") / "rows.jsonl"
    send(tiny_model, batch(), path)
    return path


@pytest.mark.slow
def test_a_batch_leaves_a_row_per_request_and_mode(whole: Path) -> None:
    rows = RowFile(whole).rows()
    assert [(r["mode"], r["index"]) for r in rows] == [(m, i) for m in ("pinned", "free") for i in range(4)]
    assert len({r["key"] for r in rows}) == 8
    for row in rows:
        assert len(row["outcomes"]) == 9
        assert row["expected"] == str(row["index"])
        assert row["wall_ms"] > 0
    assert any(o["state"] == "reused" for r in rows for o in r["outcomes"] if o["method"] == "kvcomm")


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.5, 0.71, 0.999])
@pytest.mark.slow
def test_a_killed_batch_goes_on_where_it_stopped(
    tiny_model: LoadedModel, whole: Path, tmp_path: Path, kept: float
) -> None:
    """However little of the file is left, and in the middle of whatever line it ends."""
    content = whole.read_bytes()
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content[: int(len(content) * kept)])
    assert not path.read_bytes().endswith(b"\n")
    before = path.read_bytes().rpartition(b"\n")[0]
    send(tiny_model, batch(), path)
    assert path.read_bytes().startswith(before), "what was written stays as it is"
    rows = RowFile(path).rows()
    keys = [r["key"] for r in rows]
    assert len(set(keys)) == len(keys) == 8
    assert told(rows) == told(RowFile(whole).rows())


@pytest.mark.slow
def test_a_finished_batch_does_nothing(tiny_model: LoadedModel, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(whole.read_bytes())
    session = LabSession(tiny_model)
    assert list(run_batch(session, batch(), path)) == []
    assert path.read_bytes() == whole.read_bytes()
    assert session.engine.forwarded_tokens == 0


@pytest.mark.slow
def test_a_longer_batch_adds_to_a_shorter_one(tiny_model: LoadedModel, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    send(tiny_model, batch(2, modes=("pinned",)), path)
    shorter = path.read_bytes()
    events = send(tiny_model, batch(4, modes=("pinned",)), path)
    assert path.read_bytes().startswith(shorter)
    assert told(RowFile(path).rows()) == told(RowFile(whole).rows()[:4])
    steps = [e for e in events if isinstance(e, Progress) and e.agent is None and e.total == 4]
    assert [e.done for e in steps] == [3, 4]


def test_warming_up_leaves_no_rows(tiny_model: LoadedModel, whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    send(tiny_model, batch(4, modes=("pinned",), warmup=2), path)
    rows = RowFile(path).rows()
    assert [r["index"] for r in rows] == [2, 3]
    assert [t[4] for t in told(rows)] == [t[4] for t in told(RowFile(whole).rows()[2:4])]


def test_keys_tell_configurations_apart() -> None:
    one = batch()
    dense, other = (MethodChoice("dense"),), tiny.pipeline(t1="{user_question}")
    keys = {
        *one.keys("pinned", "w")[:2],
        one.keys("free", "w")[0],
        one.keys("pinned", "other weights")[0],
        replace(one, warmup=1).keys("pinned", "w")[0],
        replace(one, request=replace(one.request, methods=dense)).keys("pinned", "w")[0],
        replace(one, request=replace(one.request, pipeline=other)).keys("pinned", "w")[0],
        replace(one, examples=one.examples[::-1]).keys("pinned", "w")[0],
    }
    assert len(keys) == 8
    longer = batch(6).keys("pinned", "w")
    assert longer[:4] == one.keys("pinned", "w")[:4], "a longer batch continues a shorter one"


def test_rows_of_another_batch_stay(tiny_model: LoadedModel, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "someone else\'s"}\n', encoding="utf-8")
    send(tiny_model, batch(1, modes=("pinned",)), path)
    assert [r["key"] == "someone else's" for r in RowFile(path).rows()] == [True, False]


def test_a_torn_last_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert RowFile(path).rows() == []
    for content, rows in (
        (b'{"key', []),
        (b'{"a": 1}\n{"b"', [{"a": 1}]),
        (b'{"a": 1}\n{"b": 2}', [{"a": 1}]),
        (b"\n", []),
    ):
        path.write_bytes(content)
        assert RowFile(path).rows() == rows
        assert path.read_bytes() == content[: content.rfind(b"\n") + 1]


def test_a_damaged_line_inside_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\nnonsense\n{"b": 2}\n', encoding="utf-8")
    with pytest.raises(RecordError, match=r"Line 2 of rows\.jsonl is damaged"):
        RowFile(path).rows()
    assert "nonsense" in path.read_text(encoding="utf-8"), "reading repairs nothing but a torn end"


def test_a_request_that_cannot_run_stops_the_batch_and_keeps_its_rows(
    tiny_model: LoadedModel, tmp_path: Path
) -> None:
    path = tmp_path / "rows.jsonl"
    examples = (Example({"user_question": QUESTIONS[0]}, "1"), Example({"user_question": " "}, "1"))
    with pytest.raises(PromptError, match="empty"):
        send(tiny_model, replace(batch(), examples=examples), path)
    assert [r["index"] for r in RowFile(path).rows()] == [0]


def test_rows_count_what_the_record_shows(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    for _ in range(2):
        record = run(session, request(["dense", "prefix", "naive", "kvcomm"], expected="1"))
    rows = {(o.agent, o.method): outcome_row(record, o) for o in record.outcomes}
    for (agent, method), row in rows.items():
        assert row["blocks"] == agent  # the question, and one answer per earlier agent
        assert json.loads(json.dumps(row)) == row
        if method == "dense":
            assert (row["tokens_reused"], row["blocks_reused"]) == (0, 0)
        else:
            assert row["tokens_reused"] == row["prompt_tokens"] - 1
            assert row["blocks_reused"] == agent


# -- summaries


def outcome(agent: int, method: str, **more: Any) -> dict[str, Any]:
    return {
        "agent": agent, "method": method, "state": "dense", "answer": "4", "correct": True,
        "prompt_tokens": 100,
        "tokens_reused": 0, "blocks": 2, "blocks_reused": 0, "ttft_ms": 10.0, "text": "the answer is 4",
        "kl_first": 0.0, "kl_mean": 0.0, "floor": 1e-5, "key_error": 0.0, "value_error": 0.0,
    } | more  # fmt: skip


def copied(agent: int, **more: Any) -> dict[str, Any]:
    facts = {
        "state": "reused",
        "tokens_reused": 80,
        "blocks_reused": 2,
        "ttft_ms": 4.0,
        "kl_first": 0.2,
        "kl_mean": 0.1,
    }
    return outcome(agent, "kvcomm", **(facts | {"key_error": 0.3, "value_error": 0.5} | more))


ROWS = [
    {
        "mode": "pinned",
        "outcomes": [
            outcome(1, "dense"),
            copied(1),
            outcome(2, "dense", ttft_ms=20.0),
            copied(2, correct=False, answer="5", text="the answer is 5", ttft_ms=5.0),
        ],
    },
    {
        "mode": "pinned",
        "outcomes": [
            outcome(1, "dense", correct=False),
            outcome(1, "kvcomm", state="fallback", correct=False),
            outcome(2, "dense"),
            outcome(2, "kvcomm", state="fallback"),
        ],
    },
]


def line(rows: Sequence[dict[str, Any]], method: str, agent: int) -> dict[str, Any]:
    [found] = [s for s in summarise(rows, final=2) if (s["method"], s["agent"]) == (method, agent)]
    return found


def test_a_summary_by_hand() -> None:
    whole = line(ROWS, "kvcomm", 0)
    assert whole["requests"] == 2
    assert whole["accuracy"] == 0.5  # the final agent's: wrong once, right once
    assert whole["accuracy_ci"] == pytest.approx(scipy_wilson(1, 2), abs=1e-5)
    assert whole["same_answer"] == 0.5
    assert whole["same_text"] == 0.5
    assert (whole["reuse_agents"], whole["reuse_events"]) == (0.5, 2)
    assert whole["reuse_blocks"] == 4 / 8
    assert whole["reuse_tokens"] == 160 / 400
    assert whole["ttft_ms"] == 7.5  # of 4, 10, 5, 10
    assert whole["ttft_ratio"] == 1.75  # of 2.5, 1, 4, 1
    assert (whole["kl_first"], whole["kl_mean"]) == pytest.approx((0.2, 0.1))  # of the reused ones only
    assert (whole["key_error"], whole["value_error"]) == pytest.approx((0.3, 0.5))
    assert whole["reused_same_text"] == 0.5
    assert whole["floor"] == 1e-5
    judge = line(ROWS, "kvcomm", 2)
    assert (judge["requests"], judge["accuracy"], judge["ttft_ms"], judge["reuse_events"]) == (2, 0.5, 7.5, 1)
    dense = line(ROWS, "dense", 0)
    assert (dense["accuracy"], dense["same_text"], dense["ttft_ratio"], dense["reuse_tokens"]) == (
        1.0,
        1.0,
        1.0,
        0,
    )


def test_a_summary_lists_the_whole_first_and_pinned_first() -> None:
    free = [row | {"mode": "free"} for row in ROWS]
    lines = summarise([*free, *ROWS], final=2)
    assert [(s["mode"], s["agent"]) for s in lines] == [
        (m, a) for m in ("pinned", "free") for a in (0, 0, 1, 1, 2, 2)
    ]
    assert summarise([], final=2) == []


def test_a_summary_without_known_answers_or_fidelity() -> None:
    keep = (
        "agent",
        "method",
        "state",
        "answer",
        "prompt_tokens",
        "tokens_reused",
        "blocks",
        "blocks_reused",
        "ttft_ms",
        "text",
    )
    rows = [
        {"mode": "free", "outcomes": [{k: o[k] for k in keep} | {"correct": None} for o in r["outcomes"]]}
        for r in ROWS
    ]
    found = line(rows, "kvcomm", 0)
    assert found["accuracy"] is found["accuracy_ci"] is None
    assert "kl_first" not in found
    assert found["reuse_tokens"] == 0.4


def test_wilson_by_hand() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)
    low, high = wilson(0, 20)
    assert low == pytest.approx(0, abs=1e-12)
    assert all(wilson(0, total)[0] >= 0 and wilson(total, total)[1] <= 1 for total in range(1, 300))
    assert high == pytest.approx(0.1611, abs=1e-4)


@given(total=st.integers(1, 10_000), share=st.floats(0, 1))
def test_wilson_holds_its_share(total: int, share: float) -> None:
    successes = round(total * share)
    low, high = wilson(successes, total)
    assert -1e-9 <= low <= successes / total + 1e-9
    assert successes / total - 1e-9 <= high <= 1 + 1e-9
    assert wilson(total - successes, total) == pytest.approx((1 - high, 1 - low), abs=1e-9)
