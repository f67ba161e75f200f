"""Files of rows: what a kill leaves; files written before :class:`RowFile` go on without a new row."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import test_agent_loop
import test_batch
import test_hypotheses
import test_judge_lab

from backend.base.errors import RecordError
from backend.base.row_file import RowFile
from backend.judge.batch import run_judging
from backend.judge.judge_lab import JudgeLab
from backend.model.load import LoadedModel
from backend.session.session import LabSession
from backend.studies.agent_loop import run_loop
from backend.studies.documents import ask
from backend.studies.hypotheses import hypotheses

#: Rows of the tiny model, as each study wrote them when it still had a file of its own.
BEFORE = Path(__file__).parent / "rows_before"
STUDIES: dict[str, Callable[[LoadedModel, Path], Iterable[object]]] = {
    "batch": lambda model, path: test_batch.send(model, test_batch.batch(2, modes=("pinned",)), path),
    "agent_loop": lambda model, path: run_loop(
        LabSession(model), test_agent_loop.asked(modes=("pinned",), episodes=1), path
    ),
    "hypotheses": lambda model, path: hypotheses(model, replace(test_hypotheses.REQUEST, episodes=1), path),
    "documents": lambda model, path: ask([model], 2, 0, path),
    "judge": lambda model, path: run_judging(JudgeLab(model), test_judge_lab.asked(count=1), path),
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


def test_rows_come_back_in_order_and_a_torn_line_is_cut(tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "folder" / "rows.jsonl")
    assert rows.rows() == []
    assert not rows.path.parent.exists(), "reading makes nothing"
    assert rows.resume() == {}
    rows.append({"key": "a", "text": "é"}, {"key": "b"})
    rows.append({"other": 1})
    with rows.path.open("ab") as file:
        file.write(b'{"key": "c"')
    assert rows.rows() == [{"key": "a", "text": "é"}, {"key": "b"}, {"other": 1}]
    assert rows.resume() == {"a": {"key": "a", "text": "é"}, "b": {"key": "b"}}
    assert rows.path.read_text("utf-8").endswith('{"other": 1}\n')


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "a"}\nnonsense\n', encoding="utf-8")
    with pytest.raises(RecordError, match=r"Line 2 of rows\.jsonl is damaged"):
        RowFile(path).resume()
