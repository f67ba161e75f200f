"""Rows that studies wrote when each still had a file of its own: they are found and not written again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from tiny import QUESTIONS, request

from backend.base.row_file import RowFile
from backend.judge.batch import run_judging
from backend.judge.judge_lab import JudgeLab
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.agent_loop import LoopRequest
from backend.records.hypotheses import HypothesesRequest
from backend.records.judge import JudgeRequest
from backend.records.request import Decoding, MethodChoice
from backend.session.session import LabSession
from backend.studies.agent_loop import run_loop
from backend.studies.batch import Batch, run_batch
from backend.studies.documents import ask
from backend.studies.hypotheses import hypotheses

BEFORE = Path(__file__).parent / "rows_before"
PREFIX = (MethodChoice("dense"), MethodChoice("prefix"))
BATCH = Batch(
    request(["dense", "naive", MethodChoice("kvcomm", {"gamma": 0.9, "capacity": 3})]),
    tuple(Example({"user_question": q}, str(n)) for n, q in enumerate(QUESTIONS[:2])),
    modes=("pinned",),
)
LOOP = LoopRequest(
    (*PREFIX, MethodChoice("naive")), modes=("pinned",), episodes=1, turns=3, memory=2, max_new_tokens=6
)
SEGMENTS = MethodChoice("segments", {"minimum_tokens": 8, "window_tokens": 16, "halo": 2}, "segments")
HYPOTHESES = HypothesesRequest(
    methods=(*PREFIX, SEGMENTS), episodes=1, turns=3, memory=2, max_new_tokens=6, reruns=1, candidates=2,
    grid="none",
)  # fmt: skip
JUDGE = JudgeRequest(
    regime="parallel", count=1, candidates=3, steps=1, max_new_tokens=4, sampling=Decoding(5, 1.0, 1.0, 0),
    methods=(MethodChoice("naive"), MethodChoice("kvcomm", {"gate": "length"})),
)  # fmt: skip
STUDIES: dict[str, Callable[[LoadedModel, Path], Iterable[object]]] = {
    "batch": lambda model, path: run_batch(LabSession(model), BATCH, path),
    "agent_loop": lambda model, path: run_loop(LabSession(model), LOOP, path),
    "hypotheses": lambda model, path: hypotheses(model, HYPOTHESES, path),
    "documents": lambda model, path: ask([model], 2, 0, path),
    "judge": lambda model, path: run_judging(JudgeLab(model), JUDGE, path),
}


@pytest.mark.parametrize("study", STUDIES)
def test_what_was_written_before_goes_on(study: str, tiny_model: LoadedModel, tmp_path: Path) -> None:
    stored = BEFORE / f"{study}.jsonl"
    again = RowFile(tmp_path / "again.jsonl")
    again.append(*RowFile(stored).rows())
    assert again.path.read_bytes() == stored.read_bytes(), "a row is written as it was"
    path = Path(shutil.copy(stored, tmp_path))
    with path.open("ab") as file:
        file.write(b'{"key": "torn')
    list(STUDIES[study](tiny_model, path))
    assert path.read_bytes() == stored.read_bytes(), "every row was known, none was written again"
