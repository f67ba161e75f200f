"""A log is read call by call whatever its format; damage is told by its line, and secrets never leave."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import made_logs
import pytest

from backend.base.errors import LabError, OptionError, RecordError
from backend.logs.calls import Call, Usage
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


#: Written by inspect_ai 0.3.285 (made_logs.write_inspect), packed again without Zstandard.
KEPT = Path(made_logs.__file__).with_name("inspect.eval")


class Told(SimpleNamespace):
    """An object as the package makes it of JSON: what is not there is None."""

    def __getattr__(self, name: str) -> None:
        return None

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {name: plain(value) for name, value in vars(self).items()}


def plain(value: Any) -> Any:
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.model_dump() if isinstance(value, Told) else value


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of the package, where it is not installed: what the reader asks of it."""

    def summaries(path: str) -> Any:
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("summaries.json"), object_hook=lambda row: Told(**row))

    def sample(path: str, id: str, epoch: int, resolve_attachments: bool) -> Any:
        assert resolve_attachments
        with zipfile.ZipFile(path) as archive:
            row = json.loads(archive.read(f"samples/{id}_epoch_{epoch}.json"))

        def resolved(value: Any) -> Any:
            if isinstance(value, str):
                return row["attachments"].get(value.removeprefix("attachment://"), value)
            if isinstance(value, list):
                return [resolved(one) for one in value]
            if not isinstance(value, dict):
                return value
            return Told(**{k: v if k == "arguments" else resolved(v) for k, v in value.items()})

        found = resolved(row)
        for event in found.events:
            event.timestamp = datetime.fromisoformat(event.timestamp)
            for start, end in event.input_refs or ():
                event.input += found.events_data.messages[start:end]
        return found

    logs = ModuleType("inspect_ai.log")
    vars(logs).update(read_eval_log_sample=sample, read_eval_log_sample_summaries=summaries)
    monkeypatch.setitem(sys.modules, "inspect_ai", ModuleType("inspect_ai"))
    monkeypatch.setitem(sys.modules, "inspect_ai.log", logs)


def test_a_file_that_the_package_wrote_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the package where it is installed, else through what stands in for it."""
    if importlib.util.find_spec("inspect_ai") is None:
        stand_in(monkeypatch)
    calls = made_logs.coding_agent(seed=3, calls=6)
    wanted = [known(c) for c in read(made_logs.write_log(tmp_path / "openai.jsonl", calls))]
    found = read(KEPT)
    assert [known(replace(c, session=c.session.rpartition("/")[0])) for c in found] == wanted
    assert [c.session for c in found] == ["s0/1"] * 2 + ["s2/2"] * 4
    assert found[2].where == "inspect.eval, sample s2/2, call 1"
    assert {c.agent for c in found} == {"main", "tester"}
    damaged = tmp_path / "log.eval"
    damaged.write_bytes(KEPT.read_bytes()[:3000])
    with pytest.raises(RecordError, match="cannot be read as Inspect's log"):
        read(damaged)


def test_without_the_package_its_logs_are_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    with pytest.raises(OptionError, match=r"kv-reuse-lab\[inspect\]"):
        read(KEPT)


def test_one_document_several_formats_and_compression(tmp_path: Path) -> None:
    rows = [line(call) for call, line in zip(CALLS, 3 * list(made_logs.FORMATS.values()), strict=True)]
    path = tmp_path / "log.json"
    path.write_text(json.dumps(rows, indent=2))
    found = read(path)
    assert [c.agent for c in found] == [c["agent"] for c in CALLS]
    packed = tmp_path / "log.jsonl.gz"
    packed.write_bytes(gzip.compress("\n".join(json.dumps(row) for row in rows).encode()))
    assert list(map(known, read(packed))) == list(map(known, found))


def test_an_agent_is_named_by_a_span_above_and_a_session_by_its_trace(tmp_path: Path) -> None:
    row = made_logs.genai_line(CALLS[0])
    spans = row["resourceSpans"][0]["scopeSpans"][0]["spans"]
    left_out = ("gen_ai.agent.name", "gen_ai.conversation.id")
    spans[0]["attributes"] = [a for a in spans[0]["attributes"] if a["key"] not in left_out]
    spans[0] |= {"parentSpanId": "up", "traceId": "t7"}
    name = {"key": "gen_ai.agent.name", "value": {"stringValue": "planner"}}
    spans += [{"spanId": "up", "parentSpanId": "top"}, {"spanId": "top", "attributes": [name]}]
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(row))
    [call] = read(path)
    assert (call.agent, call.session, call.parent) == ("planner", "t7", "up")


def spans_usage(row: dict[str, Any], input: str, output: str, cached: str) -> dict[str, Any]:
    [span] = row["resourceSpans"][0]["scopeSpans"][0]["spans"]
    counts = {input: 23, output: 3, cached: 7}
    span["attributes"] += [{"key": key, "value": {"intValue": str(n)}} for key, n in counts.items()]
    return row


OF_OPENAI = {"prompt_tokens": 23, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 7}}
OF_ANTHROPIC = {
    "input_tokens": 5, "output_tokens": 3, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 11
}  # fmt: skip


@pytest.mark.parametrize(
    "row",
    [
        made_logs.openai_line(CALLS[0]) | {"usage": OF_OPENAI},
        made_logs.anthropic_line(CALLS[0]) | {"usage": OF_ANTHROPIC},
        {"request": {"prompt": "hi"}, "response": {"choices": [{"text": "ho"}], "usage": OF_OPENAI}},
        {"prompt": "hi", "output": "ho", "prompt_tokens": 23, "completion_tokens": 3, "cached_tokens": 7},
        spans_usage(
            made_logs.genai_line(CALLS[0]), "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens",
            "gen_ai.usage.cache_read.input_tokens",
        ),
        spans_usage(
            made_logs.openinference_line(CALLS[0]), "llm.token_count.prompt", "llm.token_count.completion",
            "llm.token_count.prompt_details.cache_read",
        ),
    ],
)  # fmt: skip
def test_what_the_server_counted_is_read(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps(row))
    [call] = read(path)
    assert call.usage == Usage(23, 3, 7)
    assert call.output.startswith(("ho", CALLS[0]["output"]["content"]))


def test_a_message_without_a_text_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    messages = [{"role": "system", "content": ""}, {"role": "user", "content": "hi"}]
    path.write_text(json.dumps({"messages": messages}))
    assert [message.role for message in read(path)[0].messages] == ["user"]


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
            "session": said, "tools": [{"name": "t", "description": said, "parameters": {}}]}  # fmt: skip
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
@pytest.mark.slow
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
