"""Logged calls under reuse: what changes and why; and the exact prefix cache of a call's session."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import tiny
from scipy.stats import beta

from backend.base.errors import OptionError, RunCancelled
from backend.logs.calls import Call, Message, Tool
from backend.logs.written_call import written_call
from backend.records.log_gate import GateRequest
from backend.records.log_reading import ExactCount, ReadingRecord, ReadingRequest
from backend.records.request import MethodChoice
from backend.session.session import LabSession
from backend.session.shared_warm_up import WarmUpCache
from backend.studies.log_reading import LookingSession, read_log
from backend.studies.logged_calls import LoggedCalls
from lab_app.cli.main import main

NAIVE, ORACLE, PREFIX = (MethodChoice(name) for name in ("naive", "oracle", "prefix"))
TOOLS = (Tool("look", "{}"), Tool("write", "{}"))


def call(session: str, *texts: str, output: str = "", agent: str = "a") -> Call:
    return Call(
        f"call {session}", tuple(Message("user", text) for text in texts), agent, session, output=output
    )


def talks(answers: tuple[str, ...] = ("",) * 6) -> list[Call]:
    """One call a session, of two agents in turn."""
    return [
        call(str(n), f"Solve this:\n{question}\nThe answer:", output=answer, agent="ab"[n % 2])
        for n, (question, answer) in enumerate(zip(tiny.QUESTIONS, answers, strict=True))
    ]


def read(model: Any, request: ReadingRequest, calls: list[Call]) -> ReadingRecord:
    *_, found = read_log(model, request, calls)
    assert isinstance(found, ReadingRecord)
    assert ReadingRecord.from_bytes(found.to_bytes()) == found
    return found


def test_what_is_exact_changes_nothing_and_what_is_not_is_measured(tiny_model: Any) -> None:
    request = ReadingRequest((NAIVE, ORACLE), max_new_tokens=5, blame_passes=0)
    silent = read(tiny_model, request, talks())
    assert {(row.logged_tokens, row.kl_logged) for row in silent.rows} == {(0, 0.0)}
    found = read(tiny_model, request, talks(("It is 3.",) * 6))
    assert {row.logged_tokens for row in found.rows} == {len(tiny_model.tokens.encode("It is 3."))}
    for row in found.of("oracle"):
        assert not row.flipped
        assert max(row.kl_logged, row.kl_answer, row.key_error or 0, row.value_error or 0) < 1e-5
        assert row.swapped == 0
    assert sum(row.flipped for row in found.of("naive")) >= 3
    assert min(row.kl_logged for row in found.of("naive")) > 1e-4
    assert min(row.value_error or 0 for row in found.of("naive")) > 0.01
    assert sum(row.swapped for row in found.of("naive")) > 0
    whole = found.summary()
    assert [(line["method"], line["agent"]) for line in whole[:3]] == [
        ("naive", None), ("naive", "a"), ("naive", "b"),
    ]  # fmt: skip
    assert whole[0]["flips"]["count"] == sum(row.flipped for row in found.of("naive"))
    assert whole[0]["flips"]["of"] == whole[1]["flips"]["of"] + whole[2]["flips"]["of"] == 6


def test_along_denses_own_answer_the_divergence_is_the_runs(tiny_model: Any) -> None:
    """What a session finds along a given answer is what the run itself finds along dense's, if it is that."""
    logged = LoggedCalls(tiny_model, talks(), [NAIVE], ReadingRequest((NAIVE,), max_new_tokens=5))
    for index in range(6):
        ids = logged.read(index, LabSession(tiny_model)).outcome(1, "dense").token_ids
        session = LookingSession(tiny_model, ids.tolist())
        near = logged.read(index, session).outcome(1, "naive").fidelity
        look = session.looks["naive"]
        assert near is not None
        assert look.logged_tokens == len(ids) == 5
        assert look.kl_logged == pytest.approx(float(near.kl_tokens[:5].mean()), rel=1e-4)


def test_a_changed_answer_is_blamed_on_a_text_of_its_prompt(tiny_model: Any) -> None:
    found = read(tiny_model, ReadingRequest((NAIVE,), sample=3, max_new_tokens=5), talks())
    searched = [row.blamed for row in found.rows if row.blamed is not None]
    assert len(searched) == sum(row.flipped and not row.near_tie for row in found.rows) > 0
    said = " ".join(" ".join(m.text.split()) for one in talks() for m in one.messages)
    explained = [blamed for blamed in searched if blamed.parts]
    assert explained
    for blamed in explained:
        assert 0 < blamed.share <= 1
        assert blamed.random_restored <= blamed.random
        assert blamed.dense_token != blamed.method_token
        assert any(part.text in said for part in blamed.parts)
    line = found.summary()[0]["explained"]
    assert (line["count"], line["of"]) == (len(explained), len(searched))


def test_the_budget_ends_the_reading_and_what_cannot_be_read_is_told(tiny_model: Any) -> None:
    calls = [*talks(), call("x", "a very long text " * 600)]
    request = ReadingRequest((NAIVE,), sample=50, most_tokens=1, max_new_tokens=2, blame_passes=0)
    found = read(tiny_model, request, calls)
    assert found.spent
    assert len(found.rows) == 1
    whole = read(tiny_model, ReadingRequest((NAIVE,), max_new_tokens=2, blame_passes=0), calls)
    assert not whole.spent
    assert len(whole.rows) == 6
    assert [refused.where for refused in whole.refused] == ["call x"]


def test_a_budget_that_the_last_call_exceeds_ended_nothing(tiny_model: Any) -> None:
    calls = [call("a", "One.\nTwo?"), call("b", "One.\nThree?"), call("c", "One.\nFour?")]
    whole = read(tiny_model, ReadingRequest((NAIVE,), max_new_tokens=2, blame_passes=0), calls)
    most = sum(2 * row.prompt_tokens for row in whole.rows[:-1]) + 1  # dense's and naive's, and one more
    found = read(
        tiny_model, ReadingRequest((NAIVE,), most_tokens=most, max_new_tokens=2, blame_passes=0), calls
    )
    assert (len(found.rows), found.spent) == (len(whole.rows), False)


def test_a_reading_stops_in_the_middle_of_a_call(tiny_model: Any) -> None:
    cancel, request = threading.Event(), ReadingRequest((NAIVE,), max_new_tokens=2)
    steps = read_log(tiny_model, request, talks(), cancel=cancel)
    next(steps)
    cancel.set()
    with pytest.raises(RunCancelled):
        next(steps)


def test_what_a_log_says_is_kept_for_nobody_else(tiny_model: Any) -> None:
    WarmUpCache.on(tiny_model).forget()
    request = ReadingRequest((MethodChoice("kvcomm"),), max_new_tokens=2, blame_passes=0)
    calls = [call(str(n), f"Solve this:\n{text}\nThe answer:") for n, text in enumerate(tiny.QUESTIONS)]
    found = read(tiny_model, request, calls)
    assert found.warmed
    assert found.rows
    assert WarmUpCache.on(tiny_model).held == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('I will.\nlook({"b": 1, "a": 2})', 'look({"a": 2, "b": 1})'),
        ('<tool_call>\n{"name": "look", "arguments": {"a": {}}}\n</tool_call>', 'look({"a": {}})'),
        ('{"function": {"name": "write", "arguments": "{\\"a\\": 1}"}}', 'write({"a": 1})'),
        ('{"name": "look", "parameters": {}} then {"name": "write", "input": {}}', "look({})"),
        ('other({"a": 1}) write({"a": 1})', 'write({"a": 1})'),
        ('{"name": "other", "arguments": {}}', ""),
        ('look({"a": ', ""),
        ("look() {", ""),
        ('{"name": "look", "arguments": 5}', ""),
        ("{" * 300, ""),
    ],
)  # fmt: skip
def test_a_call_of_a_tool_is_read_whatever_its_form(text: str, found: str) -> None:
    assert written_call(text, [tool.name for tool in TOOLS]) == found


@pytest.mark.parametrize(("count", "of"), [(0, 9), (1, 30), (7, 7), (4, 11)])
def test_intervals_are_those_of_clopper_and_pearson(count: int, of: int) -> None:
    low, high = ExactCount(count, of).limits
    assert low == pytest.approx(beta.ppf(0.025, count, of - count + 1) if count else 0, abs=1e-9)
    assert high == pytest.approx(beta.ppf(0.975, count + 1, of - count) if count < of else 1, abs=1e-9)


def test_a_sessions_calls_share_one_exact_prefix_cache(tiny_model: Any) -> None:
    """A call reuses the longest beginning that an earlier call of its own session has, and no other's."""
    first = "Here is a long common beginning, which stays as it is. Now we go on."
    calls = [
        call("1", f"{first} Once.", "Yes."),
        call("2", f"{first} Twice, and much longer than the first one was.", "No."),
        call("1", f"{first} Something else."),
        call("1", f"{first} Once.", "Yes. Then more.", "And still more."),
        call("2", f"{first} Twice, and much longer than the first one was.", "No!"),
    ]
    request = GateRequest(PREFIX, 0.5, max_new_tokens=2)
    logged = LoggedCalls(tiny_model, calls, [PREFIX], request)
    reused = []
    for index in range(len(calls)):
        record = logged.read(index, LabSession(tiny_model))
        outcome = record.outcome(1, "prefix")
        ids = [logged._ids(i) for i in range(index + 1) if calls[i].session == calls[index].session]
        known = [sum(1 for _ in alike(row, ids[-1])) for row in ids[:-1]]
        reused.append(int((outcome.actions[0] != 0).sum()))
        assert reused[-1] == min(max(known, default=0), len(ids[-1]) - 1)
        assert outcome.fidelity is not None
        assert outcome.fidelity.logit_difference < 1e-4
    assert reused[:2] == [0, 0], "the second call begins like the first, in another session"
    assert 0 < reused[2] < reused[3] < reused[4]


def alike(one: tuple[int, ...], other: tuple[int, ...]) -> Any:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return
        yield a


@pytest.mark.slow
def test_the_command_reads_with_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.llama().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    lines = [
        {"agent": one.agent, "session_id": one.session, "prompt": one.messages[0].text, "output": "It is 3."}
        for one in talks()
    ]
    log, out = tmp_path / "log.jsonl", tmp_path / "out.json"
    log.write_text("\n".join(map(json.dumps, lines)))
    command = ["xray", str(log), "--model", str(tmp_path / "model"), "--device", "cpu", "--sample", "4",
               "--methods", "naive,oracle", "--max-new-tokens", "4", "--json", str(out)]  # fmt: skip
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "4 of 6 calls were read by" in said
    assert "because of:" in said
    assert "tokenizer: " + str(tmp_path / "model") in said
    found = json.loads(out.read_text())["model"]
    assert len(found["rows"]) == 8
    assert {line["agent"] for line in found["summary"]} == {None, "a", "b"}
    assert sum(row["flipped"] for row in found["rows"]) == sum(
        line["flips"]["count"] for line in found["summary"] if line["agent"] is None
    )
    for wrong, told in (
        (["--sample", "0"], "--sample is 0"), (["--methods", "dense"], "has to name reuse methods"),
        (["--blame-passes", "7"], "--blame-passes is 7"), (["--most-tokens", "0"], "--most-tokens is 0"),
    ):  # fmt: skip
        assert main([*command, *wrong]) == 2
        assert told in capsys.readouterr().err
    assert main(["xray", str(log), "--sample", "3"]) == 2
    assert "--sample is for --model" in capsys.readouterr().err
    with pytest.raises(OptionError, match="max-new-tokens"):
        ReadingRequest((NAIVE,), max_new_tokens=0)
