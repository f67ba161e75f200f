"""Calls in other layouts: what a model reads of them, and whether its answer is the layout's own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_logs
import pytest
import tiny

from backend.logs.advice import CUT, Advice
from backend.logs.call_pipeline import sections_of
from backend.logs.gather import gather
from backend.logs.layouts import Layouts
from backend.logs.pieces import load_tokenizer
from backend.logs.reader import LogReader
from backend.records.log_reading import LayoutRow, Proposed, ReadingRecord, ReadingRequest
from backend.records.request import MethodChoice
from backend.session.session import LabSession
from backend.studies.layout_reading import LayoutTrials
from backend.studies.log_reading import LookingSession, read_log
from backend.studies.logged_calls import LoggedCalls
from lab_app.cli.main import main

NAIVE, KVCOMM = MethodChoice("naive"), MethodChoice("kvcomm")
MOVE = "move what changes in the system prompt to the end"
SORT = "sort the tools by name"
RULES = "You are a solver.\n\nWork step by step and say the answer at the end."


def write(path: Path, systems: list[str], tools: list[list[str]] | None = None) -> Path:
    rows = [
        {
            "agent": "solver", "session_id": str(n), "timestamp": 100 + n,
            "messages": [
                {"role": "system", "content": system},
                {"role": "user", "content": tiny.QUESTIONS[n % len(tiny.QUESTIONS)]},
            ],
            "tools": [
                {"type": "function", "function": {"name": name, "description": "d", "parameters": {}}}
                for name in (tools[n] if tools else ())
            ],
        }
        for n, system in enumerate(systems)
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(row) for row in reversed(rows)))  # the time orders them
    return path


def read(path: Path, model: Any, methods: tuple[MethodChoice, ...] = (NAIVE,), **given: Any) -> ReadingRecord:
    log = gather(path, load_tokenizer())
    calls = sorted(LogReader(path), key=lambda call: call.time or 0)
    advice = [Advice(layout, 5, 50, len(calls)) for layout in (MOVE, CUT)]
    request = ReadingRequest(methods, max_new_tokens=5, blame_passes=0, warm=0, layouts=True, **given)
    *_, found = read_log(model, request, calls, xrayed=(Layouts(log, 4), advice))
    assert isinstance(found, ReadingRecord)
    assert ReadingRecord.from_bytes(found.to_bytes()) == found
    return found


def of(found: ReadingRecord, layout: str) -> list[LayoutRow]:
    return [row for row in found.laid if row.layout == layout]


@pytest.fixture(scope="module")
def moved(tiny_model: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ReadingRecord]:
    """Six calls whose system prompts begin with what changes; of two of them nothing does."""
    systems = [f"It is {n} past nine.\n\n{RULES}" for n in range(10, 14)] + [RULES, RULES]
    path = write(tmp_path_factory.mktemp("logs") / "log.jsonl", systems)
    return path, read(path, tiny_model)


def test_a_moved_text_is_read_behind_all_others_and_the_rest_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "log.jsonl", ["It is 10.\n\n" + RULES, "It is 11.\n\n" + RULES, RULES])
    layouts = Layouts(gather(path, load_tokenizer()), 4)
    question = tiny.QUESTIONS[0]
    assert layouts.sections(MOVE, 0) == [("system", RULES), ("user", f"{question}\n\nIt is 10.")]
    assert layouts.sections(MOVE, 2) is None
    assert layouts.sections(SORT, 0) is None
    path = write(tmp_path / "log.jsonl", [RULES] * 2, [["b", "a"], ["a", "b"]])
    layouts = Layouts(gather(path, load_tokenizer()), 4)
    found = layouts.sections(SORT, 0)
    assert found is not None
    assert [json.loads(line)["name"] for line in found[0][1].splitlines()] == ["a", "b"]
    assert found[1:] == [("system", RULES), ("user", question)]
    assert layouts.sections(SORT, 1) is None
    saved = layouts.saved(SORT)
    assert saved is not None
    assert saved[0] == 0
    assert saved[1] > 0


def test_every_text_of_a_call_is_in_every_layout_once(tmp_path: Path) -> None:
    path = made_logs.write_log(tmp_path / "log.jsonl", made_logs.coding_agent(seed=3, calls=30))
    log = gather(path, load_tokenizer())
    layouts = Layouts(log, 16)
    changed = 0
    for n, call in enumerate(LogReader(path)):
        words = sorted(" ".join(text for _, text in sections_of(call)).split())
        for name in layouts.named:
            if (sections := layouts.sections(name, n)) is not None:
                changed += 1
                assert sorted(" ".join(text for _, text in sections).split()) == words
    assert changed > 0


@pytest.mark.slow
def test_a_layouts_answer_is_that_to_the_call_so_written(
    moved: tuple[Path, ReadingRecord], tiny_model: Any
) -> None:
    """A layout's row beside dense's answers to the call as it was sent, and to the call so written."""
    path, found = moved
    calls = sorted(LogReader(path), key=lambda call: call.time or 0)
    logged = LoggedCalls(tiny_model, calls, [NAIVE], found.request)
    rows = {row.where: row for row in of(found, MOVE)}
    assert len(rows) == 6
    for index, call in enumerate(calls):
        row, question = rows[call.where], call.messages[1].text
        dense = logged.read(index, LabSession(tiny_model)).outcome(1, "dense")
        assert row.dense == dense.text
        assert row.touched == (index < 4)
        if not row.touched:
            assert (row.flipped, row.text, row.kl_first, row.prompt_tokens) == (False, row.dense, 0, 0)
            continue
        first = call.messages[0].text.partition("\n\n")[0]
        laid = [("system", RULES), ("user", f"{question}\n\n{first}")]
        record = logged_run(logged, index, laid, tiny_model)
        assert row.text == record.outcome(1, "dense").text
        assert row.flipped == (row.text.strip() != row.dense.strip())
        assert row.kl_first > 1e-5
        assert row.prompt_tokens == len(record.prompts[0].token_ids)
    assert any(row.flipped for row in rows.values())
    line = next(line for line in found.verdicts() if line["layout"] == MOVE)
    assert (line["saved"], line["of"], line["touched"]) == (5, 50, 4)
    assert line["flips"]["count"] == sum(row.flipped for row in rows.values())
    assert line["flips"]["of"] == 6
    assert line["flips"]["low"] < line["flips"]["count"] / 6 < line["flips"]["high"]


def logged_run(logged: LoggedCalls, index: int, sections: Any, model: Any) -> Any:
    *_, done = LabSession(model).run(logged.laid_out(index, sections, ()))
    return done.record  # type: ignore[union-attr]


@pytest.mark.slow
def test_what_a_layout_does_not_change_reads_the_same_tokens(
    moved: tuple[Path, ReadingRecord], tiny_model: Any
) -> None:
    """The sections of a call as it was sent are the call: otherwise every layout would change answers."""
    path, found = moved
    calls = sorted(LogReader(path), key=lambda call: call.time or 0)
    logged = LoggedCalls(tiny_model, calls, [NAIVE], found.request)
    for index, call in enumerate(calls):
        own = [(message.role, message.text) for message in call.messages]
        ids = logged_run(logged, index, own, tiny_model).prompts[0].token_ids
        assert tuple(ids) == logged._ids(index)
    # Cut at every paragraph the texts are the same, too.
    asked = logged.laid_out(0, None, (), paragraphs=True)
    assert list(asked.values.values()) == [
        *calls[0].messages[0].text.split("\n\n"),
        calls[0].messages[1].text,
    ]


def test_cut_at_paragraphs_a_method_copies_them(moved: tuple[Path, ReadingRecord], tiny_model: Any) -> None:
    path, found = moved
    rows = of(found, CUT)
    assert {row.method for row in rows} == {"naive"}
    assert len(rows) == 6
    assert all(row.saved > 0.5 * row.prompt_tokens for row in rows)
    assert min(row.kl_answer for row in rows) > 1e-5
    # A method that keeps pools has none here: it would copy nothing and change nothing.
    alone = read(path, tiny_model, (KVCOMM,), sample=1)
    assert [one.layout for one in alone.proposed] == [MOVE]
    assert {row.layout for row in alone.laid} == {MOVE}


def test_near_ties_are_told_apart(moved: tuple[Path, ReadingRecord]) -> None:
    _, found = moved
    rows = tuple(LayoutRow("", "a", MOVE, "", True, 9, 1, "x", "y", n < 3, n < 1) for n in range(8))
    record = replace(found, proposed=(Proposed(MOVE, 8, 80, 8),), laid=rows)
    [line] = record.verdicts()
    assert (line["flips"]["count"], line["real_flips"]["count"], line["flips"]["of"]) == (3, 2, 8)
    assert line["tool_flips"]["of"] == 0
    rows = (
        replace(rows[0], dense_call="a()", method_call="b()"),
        replace(rows[1], dense_call="a()"),
        rows[2],
    )
    [line] = replace(record, laid=rows).verdicts()
    assert (line["tool_flips"]["count"], line["tool_flips"]["of"]) == (2, 2)


@pytest.mark.slow
def test_a_tie_of_dense_is_a_near_tie(tiny_model: Any, tmp_path: Path) -> None:
    """With a floor above every gap all that changes may be rounding; with none nothing may."""
    path = write(tmp_path / "log.jsonl", [f"It is {n} past nine.\n\n{RULES}" for n in range(10, 14)])
    calls, layouts = (
        sorted(LogReader(path), key=lambda c: c.time or 0),
        Layouts(gather(path, load_tokenizer()), 4),
    )
    request = ReadingRequest((NAIVE,), max_new_tokens=5, layouts=True)
    logged = LoggedCalls(tiny_model, calls, [NAIVE], request)
    trials = LayoutTrials(logged, layouts, [Advice(MOVE, 5, 50, 4)], [NAIVE], 1 << 30)
    session, seen = LookingSession(tiny_model, []), set()
    for index in range(4):
        dense = logged.read(index, session).outcome(1, "dense")
        assert session.dense is not None
        for floor in (0.0, 1e3):
            [row] = trials.rows(index, dense, session.dense, floor)
            assert row.near_tie == (row.text != row.dense and floor > 0)
            seen.add((row.flipped, row.near_tie))
    assert {(True, True), (True, False)} <= seen


@pytest.mark.slow
def test_the_command_tries_the_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.llama().save_pretrained(tmp_path / "model")
    tiny.tokenizer().save_pretrained(tmp_path / "model")
    log = write(tmp_path / "log.jsonl", [f"Now: 2025-03-04T09:{n}.\n\n{RULES * 3}" for n in range(10, 16)])
    out = tmp_path / "out.json"
    command = ["xray", str(log), "--model", str(tmp_path / "model"), "--device", "cpu", "--sample", "3",
               "--methods", "naive", "--max-new-tokens", "4", "--blame-passes", "0", "--advice",
               "--json", str(out)]  # fmt: skip
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Layouts that would share more, read by" in said
    found = json.loads(out.read_text())
    lines = {line["layout"]: line for line in found["model"]["verdicts"]}
    advised = {one["layout"]: one["saved"] for one in found["advice"]}
    assert {layout: line["saved"] for layout, line in lines.items()} == advised
    assert {MOVE, CUT} <= set(lines)
    assert all(line["flips"]["of"] == 3 for line in lines.values())
    [places] = [
        [row["where"] for row in found["model"]["laid"] if row["layout"] == layout] for layout in (MOVE,)
    ]
    assert places == [row["where"] for row in found["model"]["rows"]]
    assert main(["xray", str(log), "--advice"]) == 2
    assert "--advice is for --model" in capsys.readouterr().err
    assert main(command[:-3]) == 0
    assert "read by" in (said := capsys.readouterr().out)
    assert "Layouts that would share more, read by" not in said
