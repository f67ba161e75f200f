"""Every study's record knows how many of its prompts' tokens stand only where texts meet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import hostile
import pytest
import tiny

from backend.base.text import sum_taxes
from backend.logs.calls import Call, Message
from backend.model.load import LoadedModel
from backend.model.tokenizer import Tokens
from backend.records.blame import BlameRequest
from backend.records.blend import BlendRequest
from backend.records.hypotheses import HypothesesRequest, record_of_rows
from backend.records.log_gate import GateRequest
from backend.records.log_reading import ReadingRequest
from backend.records.offsets import OffsetRequest, OffsetStudy
from backend.records.prompt import Taxed
from backend.records.request import MethodChoice
from backend.records.sweep import Cell
from backend.session.session import LabSession
from backend.studies.hypotheses import hypotheses
from backend.studies.log_gate import log_gate
from backend.studies.log_reading import read_log
from backend.sweeps.rows import Row
from backend.sweeps.summary import boundary_tax
from viz.logs.reading import answers_html

NAIVE = MethodChoice("naive")
CALLS = [
    Call("here", (Message("user", f"Solve this:\n{question}\nThe answer:"),), "a", str(n))
    for n, question in enumerate(tiny.QUESTIONS)
]


@pytest.fixture(autouse=True)
def two_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokens, "boundary_tokens", lambda self, ids: 2)


def test_only_what_is_known_is_added() -> None:
    assert sum_taxes([(2, 30), None, (1, 10)]) == (3, 40)
    assert sum_taxes([None]) is sum_taxes([]) is None


def test_a_run_has_that_of_the_full_read(tiny_model: LoadedModel) -> None:
    record = tiny.run(LabSession(tiny_model), tiny.request())
    lengths = [len(record.prompts[record.outcome(a, "dense").prompt].token_ids) for a in record.agents]
    assert record.boundary_tax == (2 * len(lengths), sum(lengths))
    earlier = tuple(replace(prompt, boundary_tokens=None) for prompt in record.prompts)
    assert replace(record, prompts=earlier).boundary_tax is None


@pytest.mark.slow
def test_studies_on_the_page(tiny_model: LoadedModel) -> None:
    lab = tiny.lab(tiny_model)
    values = tuple({"user_question": question} for question in tiny.QUESTIONS[:2])
    blend = BlendRequest(tiny.pipeline(), values, choices=("random_k",), ratios=(0.0,), max_new_tokens=4)
    *_, blended = lab.study(blend)
    assert blended.boundary_tax == (4, int(blended.prompt_tokens.sum()))
    *_, offsets = lab.study(OffsetRequest("Tess has 35 coins.", ("", "You are a judge. ")))
    assert offsets.boundary_tax == (4, int(offsets.prefix_tokens.sum()) + 2 * len(offsets.tokens))
    run = tiny.run(lab.session, tiny.request())
    *_, blamed = lab.study(BlameRequest(run.request, "naive", 3, passes=50))
    assert blamed.boundary_tax == (2, blamed.tokens)


def test_hypotheses_go_on_from_rows_that_know_none(tiny_model: LoadedModel, tmp_path: Path) -> None:
    methods = (MethodChoice("dense"), MethodChoice("segments", {"minimum_tokens": 8}, "segments"))
    request = HypothesesRequest(methods, 1, 2, 1, max_new_tokens=4, reruns=0, candidates=1, grid="none")
    path = tmp_path / "rows.jsonl"
    *_, record = hypotheses(tiny_model, request, path)
    assert isinstance(record, Taxed)
    dense = [step for step in record.live if step.method == "dense"]
    assert record.boundary_tax == (2 * len(dense), sum(step.prompt_tokens for step in dense))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows:
        del row["boundary_tax"]
    assert record_of_rows(request, record.model, 0.1, (), rows).boundary_tax is None


def test_logged_calls(tiny_model: Any) -> None:
    *_, gate = log_gate(tiny_model, GateRequest(NAIVE, 0.9, calls=4, warm=0, max_new_tokens=3), CALLS)
    *_, read = read_log(
        tiny_model, ReadingRequest((NAIVE,), sample=3, blame_passes=0, warm=0, max_new_tokens=3), CALLS
    )
    for found in (gate, read):
        rows = [row for row in found.rows if row.prompt_tokens]
        assert found.boundary_tax == (2 * len(rows), sum(row.prompt_tokens for row in rows))
    assert "Boundary tax: 6 of" in answers_html(read)


def test_records_of_earlier_versions_open_without() -> None:
    record = hostile.offsets()
    assert OffsetStudy.from_bytes(record.to_bytes()).boundary_tax is None
    taxed = replace(record, boundary_tax=(3, 90))
    assert OffsetStudy.from_bytes(taxed.to_bytes()).boundary_tax == (3, 90)


def test_rows_of_a_sweep_have_theirs_in_what_else_was_measured() -> None:
    row = Row(
        "k", "t", "m", "pinned", "given", 0, "", None, None, 1, "dense", "?", *[None] * 6, "dense",
        2, 0, 0, 0, 70, 0, 1.0, 1.0,
    )  # fmt: skip
    bodies = (
        '{"outcomes": [{"boundary_tokens": 2}, {"boundary_tokens": 3}]}',
        '{"boundary_tokens": 4}',
        "{}",
    )
    assert [replace(row, body=body).boundary_tax for body in bodies] == [(5, 70), (4, 70), None]
    cell = Cell("t", "m", "pinned", "given", 0)
    done = SimpleNamespace(
        rows=[(cell, method, replace(row, body=bodies[0], method=method)) for method in ("dense", "naive")],
        line_cell=lambda c: c, line_cells=(cell,),
    )  # fmt: skip
    assert boundary_tax(done) == (5, 70), "dense's alone"  # type: ignore[arg-type]
