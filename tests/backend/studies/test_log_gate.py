"""The gate on logged calls: exact limits, calls as pipelines, and the command's exit status."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta

from backend.base.errors import OptionError
from backend.base.statistics import confidence_sequence, log_evidence, lower_limit, upper_limit
from backend.logs.call_pipeline import CallPipelines, by_template
from backend.logs.calls import Call, Message
from backend.records.log_gate import GateRecord, GateRequest, GateRow
from backend.records.request import MethodChoice
from backend.studies.log_gate import flipped, log_gate
from backend.studies.logged_calls import sampled
from lab_app.cli.main import main

NAIVE = MethodChoice("naive")


@given(st.integers(1, 400), st.data())
def test_limits_are_those_of_clopper_and_pearson(seen: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, seen))
    upper = beta.ppf(0.95, hits + 1, seen - hits) if hits < seen else 1
    lower = beta.ppf(0.05, hits, seen - hits + 1) if hits else 0
    assert upper_limit(hits, seen) == pytest.approx(upper, rel=1e-9)
    assert lower_limit(hits, seen) == pytest.approx(lower, abs=1e-12, rel=1e-9)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5])
def test_a_confidence_sequence_covers_at_every_look(share: float) -> None:
    """Of 2,000 sequences of 300 looks each, no more than 5% ever miss the share (and 2.6 deviations)."""
    rng = np.random.default_rng(0)
    seen = np.arange(1, 301)
    table = np.array([[log_evidence(k, n, share, 0.02) if k <= n else 0.0 for n in seen] for k in range(301)])
    hits = (rng.random((2000, 300)) < share).cumsum(axis=1)
    missed = (table[hits, seen - 1] >= -math.log(0.05)).any(axis=1).mean()
    assert 0.001 < missed <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / 2000)
    low, high = confidence_sequence(int(hits[0, 99]), 100, 0.95, 0.02)
    for end in {low, high} - {0.0, 1.0}:
        assert log_evidence(int(hits[0, 99]), 100, end, 0.02) == pytest.approx(-math.log(0.05), abs=1e-6)


def call(agent: str, session: str, *texts: str, output: str = "") -> Call:
    return Call("here", tuple(Message("user", text) for text in texts), agent, session, output=output)


def test_a_call_keeps_its_text_and_an_agents_calls_share_a_template() -> None:
    calls = []
    for number, question in enumerate(tiny.QUESTIONS):
        answer = f"I think {number} is right.\n\nBecause of {{text_1}} and {number + 1}."
        asked = f"Solve.\nThe task:\n{question}\n"
        calls.append(call("Solver", str(number), asked, output=answer))
        calls.append(
            call("Judge", str(number), f"Judge it.\nThe task:\n{question}\nIt says: {answer}\nRight?\n")
        )
    whole = CallPipelines(calls)
    made = {index: whole.pipeline(index, 8) for index in range(len(calls))}
    for index, (pipeline, values) in made.items():
        parts = pipeline.template(1).parts
        text = "".join(part if isinstance(part, str) else values[part.name] for part in parts)
        assert text == calls[index].messages[0].text
    assert [len(group) for group in by_template({i: p for i, (p, _) in made.items()}).values()] == [6, 6]
    _, values = made[3]
    assert list(values.values()) == [f"{tiny.QUESTIONS[1]}\nIt says:", calls[2].output]


def test_what_some_of_an_agents_calls_have_is_a_text() -> None:
    calls = [
        call("a", str(n), "Always here.\n" + "In some calls.\n" * (n % 2) + f"Question {n}?\n")
        for n in range(10)
    ]
    _, values = CallPipelines(calls).pipeline(1, 8)
    assert list(values.values()) == ["In some calls.\nQuestion 1?"]
    _, values = CallPipelines(calls[:1]).pipeline(0, 8)
    assert list(values.values()) == ["Always here.\nQuestion 0?"], "of one call nobody knows what stays"


def test_an_agent_without_a_name_is_one_agent_at_every_hour() -> None:
    calls = [
        Call(f"{n}", (Message("system", f"It is 12:0{n}.\nYou answer.\n"), Message("user", f"Is {n} even?")))
        for n in range(4)
    ]
    whole = CallPipelines(calls)
    assert set(whole.agents) == {"It is #:#. You answer."}
    assert len(by_template({n: whole.pipeline(n, 8)[0] for n in range(4)})) == 1


def test_what_another_agent_read_before_is_a_text_though_it_stays() -> None:
    rules = "Rules that both agents read, in a line of some length.\n"
    calls = [
        call(agent, str(n), f"{head}\n{rules}Number {n}.\n")
        for n in range(4)
        for agent, head in (("Solver", "Solve."), ("Judge", "Judge."))
    ]
    whole = CallPipelines(calls)
    said = [" ".join(whole.pipeline(index, 8)[1].values()) for index in (2, 3)]
    assert ["Rules" in text for text in said] == [False, True], "the one who reads it first owns it"


@pytest.mark.parametrize(
    ("dense", "other", "changed"),
    [
        (("7", "It is 7."), ("7", "So it is 7."), False),
        (("7", "It is 7."), ("8", "It is 8."), True),
        (("7", "It is 7."), (None, "It is."), True),
        ((None, "Yes. "), (None, "Yes."), False),
        ((None, "Yes."), (None, "No."), True),
        ((None, "Yes."), ("7", "Yes."), True),
    ],
)
def test_an_answer_changed_if_what_is_read_off_it_did(dense: Any, other: Any, changed: bool) -> None:
    pair: Any = [SimpleNamespace(answer=answer, text=text) for answer, text in (dense, other)]
    assert flipped(*pair) is changed


def test_every_agent_has_its_share_of_a_sample() -> None:
    agents = ["a"] * 60 + ["b"] * 30 + ["c"] * 10
    chosen = sampled(range(100), agents, 20, 0)
    assert [sum(agents[i] == name for i in chosen) for name in "abc"] == [12, 6, 2]
    assert len(set(chosen)) == 20
    assert chosen == sampled(range(100), agents, 20, 0)
    assert chosen != sampled(range(100), agents, 20, 1)
    assert sorted(sampled(range(100), agents, 500, 0)) == list(range(100))


def record(flips: int, seen: int, reused: int = 5, **more: Any) -> GateRecord:
    rows = tuple(
        GateRow("", "", flipped=number < flips, prompt_tokens=9, reused_tokens=reused)
        for number in range(seen)
    )
    return GateRecord(GateRequest(NAIVE, 0.02, **more), tiny.model().info, 300, 0, rows)


@pytest.mark.parametrize(
    ("found", "code", "said"),
    [
        (record(0, 149), 0, "0 of 149 answers changed: at most 1.99%"),
        (record(0, 148), 2, "148 calls were compared; no fewer than 149"),
        (record(0, 0), 2, "300 calls can be sampled"),
        (record(1, 149), 1, "1 of 149 answers changed: at most 3.14%"),
        (record(3, 12), 1, "more than 2.00%"),
        (record(0, 149, reused=0), 2, "reused nothing"),
        (record(0, 149, stop_early=True), 2, "no fewer than 204"),
        (record(0, 204, stop_early=True), 0, "at most 2.00%"),
    ],
)  # fmt: skip
def test_the_verdict_is_the_limits(found: GateRecord, code: int, said: str) -> None:
    assert found.code == code
    assert said in found.decision[1]
    assert GateRecord.from_bytes(found.to_bytes()) == found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, and logs of its agents: a judge reads every task behind a solver."""
    out = tmp_path_factory.mktemp("gate")
    tiny.llama().save_pretrained(out / "model")
    tiny.tokenizer().save_pretrained(out / "model")
    with (out / "log.jsonl").open("w", encoding="utf-8") as file:
        for number in range(12):
            task = tiny.QUESTIONS[number % 6].replace("has", f"has {number}")
            for agent, head in (("Solver", "Solve the task:"), ("Judge", "Judge the task:")):
                messages = [{"role": "user", "content": f"{head}\n{task}\nThe answer:"}]
                file.write(
                    json.dumps({"agent": agent, "session_id": str(number), "messages": messages}) + "\n"
                )
        file.write("no call\n")
    return out


@pytest.mark.parametrize(
    ("method", "more", "code", "said"),
    [
        ("prefix", [], 0, "0 of 20 answers changed: at most 13.91%"),
        ("naive", ["--max-flips", "50%"], 1, "more than 50.00%"),
        ("oracle", ["--max-flips", "20%"], 0, "0 of 20 answers changed: at most 13.91%"),
        ("oracle", ["--max-flips", "50%", "--stop-early"], 0, "answers changed: at most"),
        ("naive", ["--max-flips", "2%"], 2, "20 calls can be sampled; no fewer than 149"),
    ],
)
@pytest.mark.slow
def test_the_command_says_it_with_its_exit_status(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    method: str,
    more: list[str],
    code: int,
    said: str,
) -> None:
    out = tmp_path / "gate.json"
    command = [
        "certify",
        str(folder / "model"),
        "--device",
        "cpu",
        "--log",
        str(folder / "log.jsonl"),
        "--json",
        str(out),
    ]
    command += [
        "--method",
        method,
        "--max-new-tokens",
        "4",
        "--calls",
        "20",
        "--skip-bad",
        "--max-flips",
        "20%",
    ]
    badges = [tmp_path / "badge.svg", tmp_path / "badge.json"]
    command += ["--badge", str(badges[len(more) % 2])]
    assert main([*command, *more]) == code, capsys.readouterr()
    told = capsys.readouterr().out
    assert said in told
    assert "1 bad lines" in told
    found = json.loads(out.read_text(encoding="utf-8"))
    assert (found["code"], found["bad_lines"]) == (code, 1)
    assert found["compared"] == len(found["rows"])
    assert sum(row["flipped"] for row in found["rows"]) == found["flips"]
    if "--stop-early" in more:
        assert 3 < found["compared"] == found["needed"] < 20


def test_pools_are_filled_by_calls_that_are_not_sampled(tiny_model: Any) -> None:
    calls = [call("Judge", str(n), f"Judge this:\n{tiny.QUESTIONS[n % 6]} {n}\nRight?\n") for n in range(10)]
    request = GateRequest(MethodChoice("kvcomm", {"gamma": 1.0}), 0.5, calls=5, warm=5, max_new_tokens=3)
    *_, found = log_gate(tiny_model, request, calls)
    assert isinstance(found, GateRecord)
    assert (found.warmed, len(found.rows)) == (5, 5)
    assert sum(row.reused_tokens for row in found.read) > 0
    cold = [
        *log_gate(tiny_model, GateRequest(request.method, 0.5, calls=5, warm=0, max_new_tokens=3), calls)
    ][-1]
    assert isinstance(cold, GateRecord)
    assert cold.code == 2, "with empty pools nothing is reused, which is no proof of anything"


def test_calls_that_cannot_be_read_are_told(tiny_model: Any) -> None:
    calls = [call("a", str(n), "a very long text " * 600) for n in range(6)]
    *_, found = log_gate(tiny_model, GateRequest(NAIVE, 0.5, calls=6), calls)
    assert isinstance(found, GateRecord)
    assert found.code == 2
    assert "6 could not be read (" in found.decision[1]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--max-flips", "two"], "--max-flips is 'two'"),
        (["--max-flips", "0"], "--max-flips is 0.0; allowed: above 0%"),
        (["--badge", "b.png"], "--badge is 'b.png'; its name has to end in .svg or .json"),
        (["--method", "dense"], "--method is 'dense'"),
        (["--method", "naive,kvcomm"], "name one"),
        (["--same", "x"], "--same is x"),
        (["--calls", "0"], "--calls is 0"),
        ([], "line 25"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], more: list[str], said: str
) -> None:
    assert main(["certify", str(folder / "model"), "--log", str(folder / "log.jsonl"), *more]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1
    with pytest.raises(OptionError):
        GateRequest(NAIVE, 1.0)
