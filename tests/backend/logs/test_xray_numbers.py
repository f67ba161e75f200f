"""The X-ray's figures against what they are said to be: seconds, dollars, matrices, donors, templates."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import made_logs
import numpy as np
import pytest

from backend.logs.call_pipeline import CallPipelines
from backend.logs.calls import Call, Message
from backend.logs.gather import gather
from backend.logs.pieces import load_tokenizer
from backend.logs.timeline import OpenLog
from backend.logs.xray import xray
from backend.records.hardware import given_machine

EXAMPLE = Path(__file__).parents[3] / "presets" / "logs" / "example.jsonl"


def write(path: Path, *calls: tuple[str, str, list[str]]) -> Path:
    """Calls of an agent in a session with these paragraphs."""
    rows = [
        {"agent": agent, "session_id": session, "prompt": "\n\n".join(texts)}
        for agent, session, texts in calls
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_seconds_and_dollars_are_the_break_even_formulas(tmp_path: Path) -> None:
    path = made_logs.write_log(tmp_path / "log.jsonl", made_logs.planted("uuid", seed=2))
    machine = given_machine("llama-8b", 600.0, 2500.0)
    found = xray(path, machine=machine, hour_price=7.2)
    a, b, c = machine.dense_ms
    assert b > 0
    assert c > 0
    assert machine.write_ms > 0

    def wanted(cached: list[int], moved: int = 0) -> float:
        ms = sum(
            a + b * (one.tokens - hit) + c * (one.tokens**2 - hit**2)
            for one, hit in zip(found.calls, cached, strict=True)
        )
        return (ms + machine.write_ms * moved) / 1e3

    every = found.calls
    moved = sum(one.anywhere - one.prefix for one in every)
    assert moved > 0
    assert found.seconds == pytest.approx({
        "full": wanted([0] * len(every)), "bounded cache": wanted([one.bounded for one in every]),
        "unlimited cache": wanted([one.blocks for one in every]),
        "anywhere": wanted([one.anywhere for one in every], moved),
    }, rel=1e-9)  # fmt: skip
    assert found.seconds["full"] > found.seconds["unlimited cache"]
    assert found.dollars == pytest.approx({name: s * 7.2 / 3600 for name, s in found.seconds.items()})


def test_matrices_count_earlier_calls_of_each_agent(tmp_path: Path) -> None:
    path = made_logs.write_log(tmp_path / "log.jsonl", made_logs.coding_agent(seed=5, calls=40))
    log, found = gather(path, load_tokenizer()), xray(path)
    count = len(log.names)
    matrix, prefixes = np.zeros((count, count), int), np.zeros((count, count), int)
    places = {where: n for n, where in enumerate(log.where)}
    for n, pieces in enumerate(log.pieces):
        for other in range(count):
            had = {p for m in range(n) if log.agents[m] == other for p in log.pieces[m].tolist()}
            matrix[log.agents[n], other] += sum(
                int(log.tokens.lengths[p]) for p in pieces.tolist() if p in had
            )
        if found.calls[n].donor:
            donor = places[found.calls[n].donor]
            assert donor < n
            prefixes[log.agents[n], log.agents[donor]] += found.calls[n].prefix
    assert found.matrix == matrix.tolist()
    assert found.prefixes == prefixes.tolist()
    assert (prefixes - np.diag(np.diag(prefixes))).any(), "some donors are other agents"


def test_a_call_is_compared_with_its_agents_last_call_if_that_had_most(tmp_path: Path) -> None:
    """The longest paragraph that was missed stood first in another agent's call, which had little else."""
    texts = {name: f"{name} " + made_logs.prose(made_logs.random.Random(name), 60) for name in "pqrs"}
    texts["p"] += " " + made_logs.prose(made_logs.random.Random("long"), 60)
    path = write(
        tmp_path / "log.jsonl",
        ("other", "1", [texts["p"], "End."]),
        ("own", "2", ["Head.", texts["p"], texts["q"], texts["r"], texts["s"]]),
        ("third", "3", ["Something else that is new."]),
        ("own", "4", ["Now 12:01.", texts["p"], texts["q"], texts["r"], texts["s"]]),
    )
    assert xray(path).calls[3].against == "log.jsonl, line 2"


def test_nine_in_ten_stay(tmp_path: Path) -> None:
    nine, eight = "In nine of ten.", "In eight of ten."
    texts = [
        ["Always here.", *([nine] if n > 0 else []), *([eight] if n > 1 else []), f"Only {n}."]
        for n in range(10)
    ]
    path = write(tmp_path / "log.jsonl", *(("a", str(n), one) for n, one in enumerate(texts)))
    [template] = xray(path).templates
    parts = {part.excerpt: part.stays for part in template.parts}
    assert template.calls == 10
    [stays] = [text for text, fixed in parts.items() if fixed]
    assert stays.endswith("Always here. In nine of ten.")
    assert "In eight of ten." in next(text for text, fixed in parts.items() if not fixed)


def test_the_worst_call_of_a_session_is_the_one_that_missed_most() -> None:
    log = OpenLog(EXAMPLE)
    seen = 0
    for session in log.sessions:
        own = [log.xray.calls[n] for n in log.of_session(session)]
        missed = {one.where: one.anywhere - one.prefix for one in own if one.cause is not None}
        pair = log.worst(session)
        if len(set(missed.values())) > 1:
            assert pair is not None
            one = log.xray.calls[pair[1]]
            assert missed[one.where] == max(missed.values())
            assert log.xray.calls[pair[0]].where == one.against
            seen += 1
    assert seen > 1


def test_of_two_earlier_answers_the_longer_is_the_text() -> None:
    """One answer is the other's beginning: what was said at once is one text."""
    short = "The answer to all of this is 12."
    longer = f"{short} And that was checked by a second way of counting."
    calls = [
        Call("1", (Message("user", "First?"),), "a", "s", output=short),
        Call("2", (Message("user", "Second?"),), "a", "s", output=longer),
        Call("3", (Message("user", f"Somebody said: {longer} Right?"),), "a", "s"),
    ]
    _, values = CallPipelines(calls).pipeline(2, 4)
    assert list(values.values()) == ["Somebody said:", longer, "Right?"]


def test_what_follows_the_most_runs_of_a_call_keeps_its_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    log = OpenLog(EXAMPLE)
    totals = [Counter({r.kind: 0 for r in log.runs(n)}) for n in range(len(log.xray.calls))]
    for n, total in enumerate(totals):
        for run in log.runs(n):
            total[run.kind] += run.tokens
    monkeypatch.setattr("backend.logs.timeline.MOST_RUNS", 1)
    cut = 0
    for n, total in enumerate(totals):
        runs = log.runs(n)
        assert len(runs) <= 4
        kinds: Counter[str] = Counter()
        for run in runs:
            kinds[run.kind] += run.tokens
        assert kinds == total
        cut += any(run.kind != "new" for run in runs[1:])
    assert cut
