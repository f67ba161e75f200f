"""An engine's own record beside a log: its cache's events, what it really hit, another engine's answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_logs
import msgpack
import pytest

from backend.base.errors import OptionError, RecordError
from backend.logs.engine_cache import EngineCache, engine_cache
from backend.logs.reader import LogReader
from backend.logs.two_engines import Parting, two_engines
from backend.logs.xray import xray
from lab_app.cli.main import main

Event = dict[str, Any]


def stored(*hashes: Any, **more: Any) -> Event:
    return {
        "type": "BlockStored", "block_hashes": list(hashes), "parent_block_hash": None,
        "token_ids": [1] * 16 * len(hashes), "block_size": 16, "lora_id": None, **more,
    }  # fmt: skip


def removed(*hashes: Any, **more: Any) -> Event:
    return {"type": "BlockRemoved", "block_hashes": list(hashes), **more}


#: Six blocks, of which two are dropped and one of these comes again; that it is told once more is not news.
EVENTS = [
    stored(1, 2, 3), stored(4, medium="GPU"), removed(3), stored(5, 4), removed(2, 77), stored(3), stored(3),
    stored(8, 9, medium="CPU"), removed(1, medium="CPU"),
]  # fmt: skip
FOUND = EngineCache(block=16, stored=6, again=1, dropped=2, most=4)


def as_list(event: Event) -> list[Any]:
    """An event of older versions."""
    names = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium")
    fields = names if event["type"] == "BlockStored" else ("block_hashes", "medium")
    return [event["type"], *(event.get(name) for name in fields)]


WRITERS: dict[str, Callable[[list[Event]], bytes]] = {
    "events": lambda all: b"\n".join(json.dumps(event).encode() for event in all),
    "lists": lambda all: b"\n".join(json.dumps(as_list(event)).encode() for event in all),
    "batches": lambda all: json.dumps([1.5, all, 0]).encode() + b"\n\n",
    "tables": lambda all: json.dumps({"ts": 1.5, "events": all}).encode(),
    "msgpack": lambda all: b"".join(msgpack.packb([1.5, [event]]) for event in all),
    "older msgpack": lambda all: msgpack.packb([1.5, [as_list(event) for event in all]]),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_events_are_read_in_every_form(name: str, tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(WRITERS[name](EVENTS))
    assert engine_cache(path) == FOUND
    assert FOUND.capacity == 64


def test_a_cleared_cache_drops_nothing_and_hashes_may_be_bytes(tmp_path: Path) -> None:
    path = tmp_path / "events"
    rows = [stored(b"\xff1", b"\xff2"), {"type": "AllBlocksCleared"}, stored(b"\xff1")]
    path.write_bytes(msgpack.packb([1.0, rows]))
    found = engine_cache(path)
    assert found == EngineCache(block=16, stored=3, again=1, dropped=0, most=2)
    assert found.capacity is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "holds no BlockStored"),
        (b"{", "line 1: this is not valid JSON"),
        (b'{"type": "Other"}', "line 1: this event is"),
        (b"[5, 5]", "this is [5, 5]; an event or a batch"),
        (b'\n{"type": "BlockRemoved"}', "line 2: block_hashes is None; a list is allowed"),
        (json.dumps(stored([])).encode(), "a block's hash is"),
        (json.dumps(stored(1, block_size=0)).encode(), "block_size is 0"),
        (WRITERS["events"]([stored(1), stored(2, block_size=32)]), "line 2: block_size is 32"),
        (b"[" * 70 + b"]" * 70, "nested 70 deep"),
        (msgpack.packb([1.5, 3]), "batch 1: this is"),
        (b"\xc1\xc1", "batch 1: this is not msgpack"),
    ],
)  # fmt: skip
def test_what_are_no_events_is_told_with_its_place(content: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_bytes(content)
    with pytest.raises(RecordError) as raised:
        engine_cache(path)
    assert why in str(raised.value)


def test_hits_stand_beside_the_prediction(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A log whose server hit what is predicted, but in two calls."""
    calls = made_logs.coding_agent(seed=2, calls=30)
    log, events, out = (tmp_path / name for name in ("log.jsonl", "events.jsonl", "out.json"))
    made_logs.write_log(log, calls)
    predicted = xray(log, block=16, cache_tokens=64 * 100)
    really = [call.bounded for call in predicted.calls]
    assert really[12] > 48
    really[12] -= 48
    really[20] += 32
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row, call, cached in zip(rows, predicted.calls, really, strict=True):
        row["response"]["usage"] = {
            "prompt_tokens": call.tokens, "prompt_tokens_details": {"cached_tokens": cached}
        }  # fmt: skip
    log.write_text("\n".join(map(json.dumps, rows)))
    events.write_text("\n".join(map(json.dumps, [stored(*range(400)), removed(0)])))
    assert main(["xray", str(log), "--events", str(events), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "The same in 28 calls, within a block of 16 in 28; less in 1, more in 1." in said
    assert f"less: {predicted.calls[12].where}: {really[12]:,} really" in said
    found = json.loads(out.read_text())
    assert found["capacity"] == 6400
    assert found["engine"]["cache"]["most"] == 400
    assert found["engine"]["hits"]["really"] == sum(really)
    assert found["engine"]["hits"]["bounded"] == predicted.totals["bounded"]
    assert found["engine"]["hits"]["input"] == predicted.totals["tokens"]
    assert found["calls"][12]["cached"] == really[12]
    assert main(["xray", str(log), "--events", str(events), "--block", "32"]) == 2
    assert "--block is 32, but the events are of blocks of 16" in capsys.readouterr().err
    assert main(["xray", str(log), "--events", str(tmp_path / "none")]) == 2


# -- two engines ---------------------------------------------------------------------------------------------


def answer(*tokens: tuple[str, float, dict[str, float]], form: str = "chat") -> dict[str, Any]:
    """A choice: its tokens, each with its log probability and those of the likeliest."""
    text = "".join(token for token, _, _ in tokens)
    if form == "chat":
        content = [
            {"token": t, "logprob": p, "top_logprobs": [{"token": n, "logprob": q} for n, q in top.items()]}
            for t, p, top in tokens
        ]
        return {"message": {"role": "assistant", "content": text}, "logprobs": {"content": content}}
    names = ("tokens", "token_logprobs", "top_logprobs")
    columns = map(list, zip(*tokens, strict=True))
    return {"text": text, "logprobs": dict(zip(names, columns, strict=True))}


def log_of(path: Path, answers: dict[str, dict[str, Any]], form: str) -> Path:
    asked = {
        "chat": lambda text: {"messages": [{"role": "user", "content": text}]},
        "completion": lambda text: {"prompt": text},
    }[form]
    rows = [{"request": asked(text), "response": {"choices": [choice]}} for text, choice in answers.items()]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.mark.parametrize("form", ["chat", "completion"])
def test_rounding_stands_apart_from_divergence(form: str, tmp_path: Path) -> None:
    def pair(a: tuple[Any, ...], b: tuple[Any, ...]) -> tuple[Any, Any]:
        same = ("So ", -0.5, {"So ": -0.5, "No": -2.0})
        near = ("So ", -0.51, {"So ": -0.51, "No": -2.0})
        return answer(same, a, form=form), answer(near, b, form=form)

    cases = {
        "tie": pair(("a", -0.70, {"a": -0.70, "b": -0.72}), ("b", -0.69, {"b": -0.69, "a": -0.72})),
        "apart": pair(("a", -0.1, {"a": -0.1, "b": -3.0}), ("b", -0.6, {"b": -0.6, "a": -0.9})),
        "far": pair(("a", -0.1, {"a": -0.1, "c": -3.0}), ("b", -0.60, {"b": -0.60, "a": -0.61})),
        "unknown": pair(("a", -0.1, {"a": -0.1, "c": -0.11}), ("b", -0.60, {"b": -0.60, "a": -0.61})),
        "same": pair(("a", -0.70, {"a": -0.70}), ("a", -0.72, {"a": -0.72})),
    }  # fmt: skip
    texts = list(cases)
    one = log_of(tmp_path / "one.jsonl", {t: cases[t][0] for t in texts}, form)
    theirs = {t: cases[t][1] for t in reversed(texts)} | {"only there": cases["tie"][1]}
    other = log_of(tmp_path / "other.jsonl", theirs, form)
    found = two_engines(LogReader(one), LogReader(other))
    assert (found.pairs, found.left, found.same) == (5, (0, 1), 1)
    assert found.tokens == 6
    assert found.usual == pytest.approx(0.01)
    assert found.largest == pytest.approx(0.02)
    assert found.limit == pytest.approx(0.1)
    kinds = {texts[int(part.where.split()[-1]) - 1]: part.kind for part in found.partings}
    assert kinds == {"tie": "near tie", "apart": "divergence", "far": "divergence", "unknown": "unknown"}
    widest: Parting = found.partings[0]
    assert (widest.at, widest.one, widest.other) == (1, "a", "b")
    assert max(gap or 0 for gap in widest.gaps) == pytest.approx(2.9)
    strict = two_engines(LogReader(one), LogReader(other), 0.001)
    assert [part.kind for part in strict.partings] == ["divergence"] * 4
    with pytest.raises(OptionError, match="near tie"):
        two_engines([], [], -1.0)


def test_the_command_compares_two_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = made_logs.coding_agent(seed=4, calls=8)
    one = made_logs.write_log(tmp_path / "one.jsonl", calls)
    changed = [{**call, "output": {"role": "assistant", "content": "Other."}} for call in calls[:2]]
    other = made_logs.write_log(tmp_path / "other.jsonl", [*changed, *calls[2:]])
    out = tmp_path / "out.json"
    assert main(["xray", str(one), "--beside", str(other), "--json", str(out)]) == 0
    said = capsys.readouterr().out
    assert "8 calls are in both, 0 only here, 0 only there. 6 were answered alike." in said
    assert json.loads(out.read_text())["beside"]["kinds"]["without log probabilities"] == 2
    assert main(["xray", str(one), "--near-tie", "1"]) == 2
    assert "--near-tie is for --beside" in capsys.readouterr().err


def test_log_probabilities_leave_with_a_secret(tmp_path: Path) -> None:
    secret = ("sk-" + "a1" * 12, -0.5, {})
    path = log_of(tmp_path / "log.jsonl", {"q": answer(secret), "r": answer(("a", -0.5, {}))}, "chat")
    masked, kept = LogReader(path)
    assert masked.chances == ()
    assert [chance.token for chance in kept.chances] == ["a"]
