"""A judge over programs: candidates and its answer are run with the unit tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.base.errors import LabError, OptionError
from backend.judge import judge_lab
from backend.judge import verdicts as judge_reading
from backend.judge.judge_lab import JudgeLab
from backend.judge.prompts import final_of, read_verdict, right_final
from backend.model.load import LoadedModel
from backend.records.judge import JudgeRequest
from backend.sweeps.read import parse_sweep
from backend.sweeps.rows import Row
from backend.sweeps.run import SweepDone, run_sweep
from backend.sweeps.runner import ModelRunner
from backend.sweeps.spec import Sweep
from backend.sweeps.store import SweepStore

ROW = {
    "prompt": 'def double(n):\n    """Twice n."""\n', "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
}  # fmt: skip
TEST = f"{ROW['test']}\ncheck(double)\n"
GOOD, BAD = (f"```python\ndef double(n):\n    return n {sign} n\n```" for sign in "+*")


def sweep(folder: Path, **judge: Any) -> Sweep:
    (folder / "humaneval.jsonl").write_text(f"{json.dumps(ROW)}\n", encoding="utf-8")
    settings = {"wording": "programs", "candidates": 2, "answer_tokens": 3, "max_new_tokens": 3, **judge}
    task = {"judge": settings, "data": "humaneval.jsonl", "format": "humaneval"}
    return parse_sweep(
        json.dumps({"name": "t", "tasks": [task], "methods": "naive", "problems": 1}), folder=folder
    )


def test_a_program_is_read_from_its_block_and_run() -> None:
    said = f"Both double. The best candidate is 2.\n{GOOD}"
    found = read_verdict(said, 2, "joint", "right", "programs")
    assert (found.slots, found.failure, found.reason) == ((2,), "", "Both double.")
    assert right_final(found.answer, TEST, "programs")
    assert not right_final(final_of(BAD, "programs"), TEST, "programs")
    assert not right_final(None, TEST, "programs")
    none = read_verdict("The best candidate is 2. The answer is 4", 2, "joint", "right", "programs")
    assert (none.answer, none.failure) == (None, "no final answer"), "prose is no program"


@pytest.mark.parametrize(("ends", "right"), [(GOOD, True), (BAD, False)])
@pytest.mark.slow
def test_candidates_and_the_judge_are_scored_by_the_unit_tests(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch, ends: str, right: bool
) -> None:
    def write(lab: JudgeLab, pipeline: Any, agent: int, values: Any, *_: Any) -> Any:
        assert "Programming Expert" in pipeline.template(2).text or pipeline.name.endswith("parallel")
        ids = lab.agents.tokens.encode(BAD if agent == 1 else GOOD)
        return ids, lab._recompute(pipeline, agent, values, ids)

    asked: list[str] = []

    def read(text: str, *rest: Any) -> Any:
        asked.append(rest[-1])
        return read_verdict(f"The best candidate is 2.\n{ends}", *rest)

    monkeypatch.setattr(JudgeLab, "_write", write)
    monkeypatch.setattr(judge_reading, "read_verdict", read)
    for regime in ("parallel", "progressive"):
        rows = finish(sweep(tmp_path, regime=regime), tmp_path / f"{regime}.sqlite", tiny_model)
        assert {row.correct for row in rows} == {right}
        assert {row.judge_order: row.selection_right for row in rows}["identity"] is True
        assert {row.expected for row in rows} == {TEST}
        assert all(row.as_dense for row in rows)
        shuffled = {row.selection_right for row in rows if row.judge_order != "identity"}
        assert len(shuffled) == 1
    assert set(asked) == {"programs"}


def finish(sweep: Sweep, path: Path, model: LoadedModel) -> list[Row]:
    with SweepStore(path) as store:
        *_, done = run_sweep(sweep, store, ModelRunner(lambda _: model))
        assert isinstance(done, SweepDone)
        return [row for _, _, row in done.rows]


def test_programs_and_short_answers_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="wording is 'general', but humaneval problems have unit tests"):
        sweep(tmp_path, wording="general")
    body = {"name": "t", "methods": "naive", "tasks": [{"judge": {"wording": "programs"}}]}
    with pytest.raises(LabError, match="'programs', but generated problems have short answers"):
        parse_sweep(json.dumps(body))
    with pytest.raises(OptionError, match="a sweep over humaneval"):  # else 42 were a test that passes
        judge_lab.check(JudgeRequest(wording="programs"))
