"""A log is read call by call whatever its format; damage is told by its line, and secrets never leave."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import made_logs
import pytest

from backend.base.errors import LabError, RecordError
from backend.logs.calls import Call
from backend.logs.reader import LogReader
from backend.logs.xray import xray

CALLS = made_logs.coding_agent(seed=3, calls=12)


def read(path: Path, **options: Any) -> list[Call]:
    return list(LogReader(path, **options))


def known(call: Call) -> tuple[Any, ...]:
    return call.agent, call.session, round(call.time or 0, 3), call.messages, call.tools, call.output


@pytest.mark.parametrize("name", made_logs.FORMATS)
def test_every_format_tells_the_same_calls(name: str, tmp_path: Path) -> None:
    wanted = [known(c) for c in read(made_logs.write_log(tmp_path / "openai.jsonl", CALLS))]
    assert len(wanted) == 12
    assert wanted[3][3][0].role == "system"
    assert {m.role for m in wanted[-1][3]} >= {"user", "assistant", "tool"}
    assert "_tool({" in wanted[0][5]
    path = made_logs.write_log(tmp_path / "log.jsonl", CALLS, made_logs.FORMATS[name])
    assert [known(c) for c in read(path)] == wanted


def test_inspects_logs_tell_the_same_calls(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai", reason="inspect_ai is an extra")
    wanted = [known(c) for c in read(made_logs.write_log(tmp_path / "openai.jsonl", CALLS))]
    found = [known(c) for c in read(made_logs.write_inspect(tmp_path / "log.eval", CALLS))]
    sessions = [(row[0], row[1].rpartition("/")[0], *row[2:]) for row in found]  # without its epoch
    assert sorted(sessions, key=lambda row: row[2]) == sorted(wanted, key=lambda row: row[2])


def test_one_document_several_formats_and_compression(tmp_path: Path) -> None:
    rows = [line(call) for call, line in zip(CALLS, 3 * list(made_logs.FORMATS.values()), strict=True)]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(rows, indent=2))
    found = read(path)
    assert [c.agent for c in found] == [c["agent"] for c in CALLS]
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    assert list(map(known, read(packed))) == list(map(known, found))


def test_an_agent_is_named_by_a_span_above_and_usage_is_read(tmp_path: Path) -> None:
    row = made_logs.genai_line(CALLS[0])
    [span] = row["resourceSpans"][0]["scopeSpans"][0]["spans"]
    span["attributes"] = [a for a in span["attributes"] if a["key"] != "gen_ai.agent.name"]
    span["attributes"].append({"key": "gen_ai.usage.cache_read.input_tokens", "value": {"intValue": "7"}})
    span["parentSpanId"] = "up"
    name = {"key": "gen_ai.agent.name", "value": {"stringValue": "planner"}}
    row["resourceSpans"][0]["scopeSpans"][0]["spans"].append({"spanId": "up", "attributes": [name]})
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(row))
    [call] = read(path)
    assert (call.agent, call.usage.cached, call.parent) == ("planner", 7, "up")


def test_plain_prompts_and_times(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"prompt": "hi", "agent": "a", "timestamp": "2025-01-01T00:00:00Z"}\n\n'
        '{"prompt": "ho", "time": 1735689600500}'
    )
    one, other = read(path)
    assert one.time == datetime(2025, 1, 1, tzinfo=UTC).timestamp()
    assert other.time == one.time + 0.5
    assert (one.where, other.where) == ("log.jsonl, line 1", "log.jsonl, line 3")


def test_secrets_are_masked_in_every_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "a secret value")
    secrets = ["sk-" + "a1" * 12, "ghp_" + "b2" * 15, "AKIA" + "C3" * 8, "a secret value"]
    said = " and ".join(secrets)
    answer = {"role": "assistant", "content": said}
    call = {**CALLS[0], "messages": [{"role": "user", "content": said}], "output": answer, "agent": said,
            "tools": [{"name": "t", "description": said, "parameters": {}}]}  # fmt: skip
    [found] = read(made_logs.write_log(tmp_path / "log.jsonl", [call]))
    assert not [s for s in secrets if s in repr(found)]
    assert found.messages[0].text.count("[hidden]") == 4


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"nonsense", "not valid JSON"),
        (b"5", "no JSON object"),
        (b'{"a": 1}', "no call of a model"),
        (b'{"prompt": 5}', "prompt is 5; a text is allowed"),
        (b'{"messages": [{"role": "user", "content": 7}]}', "content is 7"),
        (b'{"messages": []}', "no message with a text"),
        (b'{"prompt": ' + b"[" * 70 + b"]" * 70 + b"}", "nested 71 deep"),
        (b'{"prompt": "\xff"}', "not UTF-8"),
    ],
)
def test_a_bad_line_is_told_with_its_number_and_skipped_only_when_asked(
    line: bytes, why: str, tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"prompt": "one"}\n' + line + b'\n{"prompt": "two"}\n')
    with pytest.raises(RecordError, match=r"log\.jsonl, line 2: .*--skip-bad") as raised:
        read(path)
    assert why in str(raised.value)
    reader = LogReader(path, skip_bad=True)
    assert [c.messages[0].text for c in reader] == ["one", "two"]
    assert reader.skipped == 1
    assert why in reader.bad[0]


def test_a_line_that_is_too_long_is_passed_over_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.logs.reader.JSON_BYTES", 100)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"prompt": "' + b"x" * 350 + b'"}\n{"prompt": "short"}\n')
    reader = LogReader(path, skip_bad=True)
    assert [c.where for c in reader] == ["log.jsonl, line 2"]
    assert "line 1: this line is longer than 100 bytes" in reader.bad[0]


@pytest.mark.parametrize("seed", range(6))
def test_damaged_logs_are_told_in_words(seed: int, tmp_path: Path) -> None:
    """50 of each seed; anything but an error of the lab's is a traceback to somebody."""
    read_well = 0
    for number in range(50):
        path = tmp_path / "log.jsonl"
        path.write_bytes(made_logs.damaged(1000 * seed + number))
        for skip in (False, True):
            try:
                read_well += bool(read(path, skip_bad=skip))
                if skip and number % 10 == 0:
                    xray(path, skip_bad=True)
            except LabError as error:
                assert len(str(error)) < 1000  # noqa: PT017
    assert 20 < read_well < 95
