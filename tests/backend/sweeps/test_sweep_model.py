"""Sweeps on a tiny random model: pipelines, judges and traces, whole and resumed; command and notebook."""

from __future__ import annotations

import json
import re
import runpy
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from tiny import QUESTIONS

from backend.base.errors import RunCancelled
from backend.judge.judge_lab import JudgeLab
from backend.model.load import LoadedModel
from backend.records.events import RunDone
from backend.records.judge import JudgeProblem
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from backend.records.sweep import Count
from backend.sweeps.grid import shards_of
from backend.sweeps.problems import Request
from backend.sweeps.read import parse_sweep
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone, run_sweep
from backend.sweeps.runner import ModelRunner, pipeline_rows
from backend.sweeps.spec import Sweep
from backend.sweeps.store import SweepStore
from backend.sweeps.traces import TraceSession, read_trace
from lab_app.cli.main import main

ROOT = Path(__file__).parents[3]
TIMES = ("ttft_ms", "total_ttft_ms", "wall_ms", "body")  # what no two runs share


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A preset of the tiny pipeline with three requests."""
    agents = [
        {"id": a.id, "name": a.name, "role": "", "template": a.template, "max_new_tokens": 4}
        for a in tiny.pipeline().agents
    ]
    preset = {
        "name": "tiny", "title": "Tiny", "summary": "", "model": "any", "needs_context": 512,
        "request_source": "examples", "judge": 3, "agents": agents,
        "examples": [{"values": {"user_question": q}, "answer": "1"} for q in QUESTIONS[:4]],
    }  # fmt: skip
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(preset), encoding="utf-8")
    return tmp_path


def sweep_of(
    folder: Path, text: str = "", methods: str = "[dense, naive, kvcomm]", problems: int = 3
) -> Sweep:
    tasks = "" if "tasks:" in text else "tasks: [tiny.yaml]\n"
    return parse_sweep(f"name: t\n{tasks}methods: {methods}\nproblems: {problems}\n{text}", folder=folder)


def finish(sweep: Sweep, path: Path, model: LoadedModel) -> list[Row]:
    with SweepStore(path) as store:
        *_, done = run_sweep(sweep, store, ModelRunner(lambda _: model))
        assert isinstance(done, SweepDone)
        assert len(list(store.rows())) == len(store.keys())
        return [row for _, _, row in done.rows]


def timeless(rows: list[Row]) -> list[Row]:
    return [replace(row, **dict.fromkeys(TIMES, 0)) for row in rows]


def near(a: list[Row], b: list[Row]) -> None:
    """The same rows to rounding: a batch of requests and one after the other differ in the last digits."""
    for x, y in zip(timeless(a), timeless(b), strict=True):
        for name in ("kl_first", "kl_mean", "floor"):
            mine, other = getattr(x, name), getattr(y, name)
            assert (mine is None) == (other is None)
            assert mine is None or mine == pytest.approx(other, abs=1e-4)
        blank = dict.fromkeys(("kl_first", "kl_mean", "floor", "near_tie"))
        assert replace(x, **blank) == replace(y, **blank)


@pytest.mark.slow
def test_a_sweep_that_goes_on_has_the_rows_of_one_in_one_go(
    folder: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def counted(record: RunRecord, request: Request, *rest: Any) -> Any:
        ran.append(request.values["user_question"])
        return pipeline_rows(record, request, *rest)

    monkeypatch.setattr("backend.sweeps.runner.pipeline_rows", counted)
    methods = "[dense, naive, 'kvcomm:gamma=1']"
    whole = finish(sweep_of(folder, "", methods, 4), folder / "a.sqlite", tiny_model)
    assert [(r.problem, r.method) for r in whole] == [
        (n, m) for n in (1, 2, 3, 4) for m in ("dense", "naive", "kvcomm:gamma=1")
    ]
    assert all(r.as_dense and r.reused_tokens == 0 and r.kl_first == 0 for r in whole if r.method == "dense")
    assert all(r.reused_tokens > 0 for r in whole if r.method == "naive")
    assert whole[2].reused_tokens == 0 < whole[-1].reused_tokens, "the last one reuses what the pools hold"
    assert all(r.correct is (r.answer == "1") for r in whole)
    assert json.loads(whole[0].body)["outcomes"][0]["agent"] == 1
    assert ran == list(QUESTIONS[:4])
    ran.clear()
    for problems in (3, 4, 4):
        rows = finish(sweep_of(folder, "", methods, problems), folder / "b.sqlite", tiny_model)
    assert ran == list(QUESTIONS[:4]), "nothing runs twice"
    near(rows, whole)
    ran.clear()
    with_more = finish(
        sweep_of(folder, "", "[dense, naive, prefix, 'kvcomm:gamma=1']", 4), folder / "b.sqlite", tiny_model
    )
    assert [r for r in with_more if r.method != "prefix"] == rows, "rows that were there stay as they are"


def test_a_warm_up_leaves_no_row(folder: Path, tiny_model: LoadedModel) -> None:
    [only] = finish(sweep_of(folder, "warmup: 1", "[dense]", 1), folder / "a.sqlite", tiny_model)
    assert only.request == QUESTIONS[1]


def test_a_cancelled_sweep_keeps_what_was_finished(folder: Path, tiny_model: LoadedModel) -> None:
    cancel = threading.Event()
    with SweepStore(folder / "a.sqlite") as store:
        events = run_sweep(sweep_of(folder), store, ModelRunner(lambda _: tiny_model), cancel=cancel)
        seen = next(event.done for event in events if isinstance(event, Count) and event.done)
        cancel.set()
        with pytest.raises(RunCancelled):
            next(events)
        assert seen == len(store.keys()) == 3


@pytest.mark.slow
def test_free_mode_has_no_fidelity(folder: Path, tiny_model: LoadedModel) -> None:
    rows = finish(sweep_of(folder, "modes: free", "[dense, naive]", 2), folder / "a.sqlite", tiny_model)
    assert {r.mode for r in rows} == {"free"}
    assert all(r.kl_first is None and r.near_tie is None for r in rows)


@pytest.mark.slow
def test_a_judge_goes_on_with_the_candidates_it_had(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    judge = JudgeLab.judged

    def counted(lab: JudgeLab, problem: JudgeProblem, *rest: Any, **more: Any) -> Any:
        judged.append(problem.number)
        return judge(lab, problem, *rest, **more)

    monkeypatch.setattr(JudgeLab, "judged", counted)
    text = "tasks: [{judge: {candidates: 2, answer_tokens: 4, max_new_tokens: 4, temperature: 1}}]"
    path = tmp_path / "a.sqlite"
    first = finish(sweep_of(tmp_path, text, "[dense, naive]", 1), path, tiny_model)
    rows = finish(sweep_of(tmp_path, text, "[dense, naive]", 2), path, tiny_model)
    assert judged == [1, 2]
    assert len(rows) == 2 * 2 * 2
    assert [r for r in rows if r.problem == 1] == first
    assert {r.judge_order for r in rows} == {"identity", "shuffle 0"}
    assert all(r.blocks == 2 and r.agents == 1 for r in rows)
    near(finish(sweep_of(tmp_path, text, "[dense, naive]", 2), tmp_path / "b.sqlite", tiny_model), rows)
    # another method reads the candidates that were kept, whatever the agents would write now
    monkeypatch.setattr(JudgeLab, "_write", lambda *_: pytest.fail("the candidates are known"))
    more = finish(sweep_of(tmp_path, text, "[dense, naive, slotaligned]", 2), path, tiny_model)
    assert [r for r in more if r.method != "slotaligned"] == rows
    assert len(more) == 12


@pytest.mark.slow
def test_rows_say_how_they_were_decoded(folder: Path, tiny_model: LoadedModel) -> None:
    judge = "{candidates: 2, answer_tokens: 4, max_new_tokens: [3, 4], orders: identity}"
    text = f"tasks: [tiny.yaml, {{judge: {judge}}}]\ntemperature: [0, 0.5]"
    rows = finish(sweep_of(folder, text, "[dense]", 1), folder / "a.sqlite", tiny_model)
    assert [(r.max_new_tokens, r.temperature) for r in rows] == [(4, 0), (4, 0.5), (3, 1), (4, 1)]


def test_a_judge_is_cancelled_in_the_middle_of_a_problem(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancel, judge = threading.Event(), JudgeLab.judge

    def interrupted(lab: JudgeLab, *given: Any) -> Any:
        cancel.set()
        return judge(lab, *given)

    monkeypatch.setattr(JudgeLab, "judge", interrupted)
    text = "tasks: [{judge: {candidates: 2, answer_tokens: 4, max_new_tokens: 4}}]"
    with SweepStore(tmp_path / "a.sqlite") as store:
        runner = ModelRunner(lambda _: tiny_model)
        with pytest.raises(RunCancelled):
            list(run_sweep(sweep_of(tmp_path, text, "[dense, naive]", 1), store, runner, cancel=cancel))
        assert not list(store.rows())


def test_a_trace_is_replayed_on_what_was_recorded(tmp_path: Path, tiny_model: LoadedModel) -> None:
    lines = []
    for number, (question, said) in enumerate(
        zip(QUESTIONS[:2], ("It is 1.", "Two {x}, I say"), strict=True)
    ):
        lines += [
            {
                "request": number,
                "agent": "A",
                "question": question,
                "prompt": f"Solve: {question}",
                "response": said,
            },
            {"request": number, "agent": "B", "prompt": f"Q: {question}\nA said: {said}\nJudge."},
        ]
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    pipeline, requests = read_trace(path)
    session = TraceSession(tiny_model)
    tokens = tiny_model.tokens
    for asked in requests:
        session.recorded = asked.recorded
        methods = (MethodChoice("dense"), MethodChoice("naive"))
        request = RunRequest(pipeline, dict(asked.values), methods, decoding=Decoding(4), probe_offsets=False)
        *_, last = session.run(request)
        assert isinstance(last, RunDone)
        prompt = next(p for p in last.record.prompts if p.agent == 2)
        [copied] = [s for s in prompt.spans if s.name == "agent_1_current"]
        ids = tuple(int(i) for i in prompt.token_ids[copied.start : copied.end])
        assert tokens.decode(ids) == asked.recorded[1], "what was recorded, not what the model writes now"
    rows = finish(sweep_of(tmp_path, "tasks: [{trace: trace.jsonl}]\nmax_new_tokens: 4", "[naive]", 2),
                  tmp_path / "a.sqlite", tiny_model)  # fmt: skip
    assert [(r.problem, r.method) for r in rows] == [(n, m) for n in (1, 2) for m in ("dense", "naive")]
    assert all(r.correct is None and r.expected is None for r in rows)
    # a row depends on what was recorded before it, so an edit of the trace is another sweep
    edited = "tasks: [{trace: trace.jsonl}]"
    before = [slots[0].digest for slots in shards_of(sweep_of(tmp_path, edited, problems=2))[0].units]
    path.write_text(path.read_text(encoding="utf-8").replace("It is 1.", "It is 2."), encoding="utf-8")
    after = [slots[0].digest for slots in shards_of(sweep_of(tmp_path, edited, problems=2))[0].units]
    assert not set(before) & set(after)


@pytest.mark.slow
def test_the_command(
    folder: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: tiny_model)
    file, out = folder / "s.yaml", folder / "s.sqlite"
    file.write_text("name: s\ntasks: [tiny.yaml]\nmethods: [naive]\nproblems: 2\n", encoding="utf-8")
    for _ in range(2):  # the second time there is nothing left to do
        assert main(["sweep", str(file), "--out", str(out), "--export", "csv"]) == 0
        said, told = capsys.readouterr()
        assert " of 4 rows" in told.splitlines()[0], "a log says how far it is"
        assert len(told.splitlines()) < 4, "but not at every row"
        found = [shown.split() for shown in said.splitlines()]
        assert found[0][:3] == ["method", "n", "right"]
        assert [shown[:2] for shown in found[1:4]] == [["tiny.yaml"], ["dense", "2"], ["naive", "2"]]
        assert found[4] == []
        assert found[5][:4] == ["method", "blocks", "reused", "%"]
        assert [shown[:1] for shown in found[6:9]] == [["tiny.yaml"], ["dense"], ["naive"]]
        assert "4 rows in" in said
    report = json.loads((folder / "s.summary.json").read_text(encoding="utf-8"))
    assert [x["method"] for x in report["lines"]] == ["dense", "naive"]
    [test] = report["comparisons"]
    assert (test["method"], test["other"], test["pairs"]) == ("naive", "dense", 2)
    assert test["right_p"] is not None
    assert test["ttft_ratio"]["low"] is None, "two problems have no interval"
    table = (folder / "s.rows.csv").read_text(encoding="utf-8")
    assert table.count("tiny.yaml") == 4
    (folder / "s.rows.csv").unlink()
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    assert main(["sweep", str(file), "--out", str(out), "--export", "csv", "--show"]) == 0
    assert (folder / "s.rows.csv").read_text(encoding="utf-8") == table


def test_stopping_from_the_keyboard_keeps_what_was_finished(
    folder: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: tiny_model)
    calls = iter([pipeline_rows])

    def once(*arguments: Any) -> Any:
        if (rows := next(calls, None)) is None:
            raise KeyboardInterrupt
        return rows(*arguments)

    monkeypatch.setattr("backend.sweeps.runner.pipeline_rows", once)
    file, out = folder / "s.yaml", folder / "s.sqlite"
    file.write_text("name: s\ntasks: [tiny.yaml]\nmethods: [naive]\nproblems: 2\n", encoding="utf-8")
    assert main(["sweep", str(file), "--out", str(out)]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err
    with SweepStore(out) as store:
        assert len(store.keys()) == 2


@pytest.mark.parametrize("taken", ["s.yaml", "s.summary.json", "s.rows.csv"])
@pytest.mark.parametrize("task", ["{pipeline: tiny.yaml, data: %s, format: gsm8k}", "{trace: %s}"])
def test_what_a_sweep_reads_it_never_writes_over(
    folder: Path, task: str, taken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: pytest.fail("a model was loaded"))
    monkeypatch.chdir(folder)
    (folder / taken).write_text("mine", encoding="utf-8")
    text = f"name: s\ntasks: [{task % taken}]\nmethods: [naive]\n"
    file = folder / ("s.yaml" if taken == "s.yaml" else "other.yaml")
    file.write_text(text, encoding="utf-8")
    before = (folder / taken).read_text(encoding="utf-8")
    out = ["--out", "s.yaml"] if taken == "s.yaml" else []
    assert main(["sweep", str(file), *out, "--export", "csv"]) == 2
    assert f"reads '{taken}' and would write over it" in capsys.readouterr().err
    assert (folder / taken).read_text(encoding="utf-8") == before


def test_a_sweep_leaves_a_file_of_problems_that_bears_its_name(
    folder: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.model.load.load_model", lambda *_, **__: tiny_model)
    monkeypatch.chdir(folder)
    content = {
        "s.json": json.dumps([{"question": "1?", "answer": "#### 1"}]),
        "s.csv": "question,answer\n1?,1\n",
    }
    for name, text in content.items():
        Path(name).write_text(text, encoding="utf-8")
    task = "{pipeline: tiny.yaml, data: s.json, format: gsm8k}"
    Path("s.yaml").write_text(f"name: s\ntasks: [{task}]\nmethods: [naive]\nproblems: 1\n", encoding="utf-8")
    assert main(["sweep", "s.yaml", "--export", "csv"]) == 0
    assert {name: Path(name).read_text(encoding="utf-8") for name in content} == content


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.yaml"], "none.yaml cannot be read"),
        (["s.yaml", "--out", "x.csv"], "--out is 'x.csv', which names no SQLite file"),
        (["s.yaml", "--out", "text.sqlite"], "text.sqlite is no file of a sweep"),
        (["s.yaml", "--show"], "there is no s.sqlite"),
        (["s.yaml", "--show", "--ray"], "--show runs nothing"),
        (["bad.yaml"], "bad.yaml: problems is 0; 1 to 10,000"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(folder)
    Path("s.yaml").write_text("name: s\ntasks: [tiny.yaml]\nmethods: [naive]\n", encoding="utf-8")
    Path("bad.yaml").write_text(
        "name: s\ntasks: [tiny.yaml]\nmethods: [naive]\nproblems: 0\n", encoding="utf-8"
    )
    Path("text.sqlite").write_text("no database " * 100, encoding="utf-8")
    assert main(["sweep", *arguments]) == 2
    found = capsys.readouterr()
    assert said in found.err
    assert found.err.count("\n") == 1


@pytest.mark.slow
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells, one after the other, as a person would run them; what is stored beside them is of that shape
    (``scripts/notebook.py``)."""
    notebook = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))
    book: dict[str, Any] = json.loads((ROOT / "docs" / "sweeps.ipynb").read_text(encoding="utf-8"))
    assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    monkeypatch.chdir(tmp_path)
    found = list(notebook["executed"](["".join(cell["source"]) for cell in cells]))
    assert [shape(outputs) for outputs in found] == [shape(cell["outputs"]) for cell in cells]
    assert all(found), "every cell shows something"
    assert found[0] == cells[0]["outputs"]
    [*_, drawn] = cells[-1]["outputs"]
    assert {"application/vnd.plotly.v1+json", "image/png"} < set(drawn["data"])
    shown = json.dumps([cell["outputs"] for cell in cells])
    assert not re.search(r"[\"' (](/[a-z]|[A-Z]:\\)", shown), "no path of whoever ran it"
    assert (tmp_path / "orders.csv").is_file()


def shape(outputs: list[dict[str, Any]]) -> list[tuple[str, int, list[str]]]:
    """What kinds of things were shown, how many lines, and the words in them that are no numbers."""
    kinds = []
    for output in outputs:
        text = "".join(output.get("text") or output["data"]["text/plain"])
        kinds.append((output["output_type"], text.count("\n"), re.findall(r"[A-Za-z]{4,}", text)[:6]))
    return kinds
