"""The package for programs: one call, its result in a notebook and as a table, its errors."""

from __future__ import annotations

import ast
import doctest
import json
import runpy
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import tiny

import kvlab
from backend.prompts.conversation import message_parts, pipeline_of_parts
from backend.records.sharing.bundle import Bundle
from kvlab import comparison, logs
from viz.run.report import report_html

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_what_the_documentation_says_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tried = [doctest.testmod(module) for module in (kvlab, comparison, logs)]
    assert [found.failed for found in tried] == [0, 0, 0]
    assert all(found.attempted > 1 for found in tried)


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_report_and_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``docs/compare.ipynb``, cell by cell, as ``scripts/notebook.py`` runs it: on the embedded model."""
    notebook = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))
    book = json.loads((ROOT / "docs" / "compare.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    found = list(notebook["executed"](["".join(cell["source"]) for cell in cells]))
    [said, answers], [table], [report], [own], [causes] = found
    assert said["name"] == "stdout"
    told = ast.literal_eval("".join(answers["data"]["text/plain"]))
    assert set(told) == {"dense", "naive", "epic"}
    assert table["data"]["text/html"].count("<tr") == 1 + 4 * 3
    for shown in (report, own):
        page = shown["data"]["text/html"]
        assert page.startswith('<iframe sandbox="allow-scripts"')
        assert unescape(page).count("plotly.js v") == 1
    assert "Copy and reposition" in report["data"]["text/plain"][0]
    kinds = [[sorted(output.get("data", {})) for output in cell["outputs"]] for cell in cells]
    plain = ["text/plain"]
    assert kinds == [[[], plain], [["text/html", *plain]], [plain], [plain], [plain]], "reports are too large"
    assert causes["data"]["text/plain"] == cells[4]["outputs"][0]["data"]["text/plain"]
    assert "'date'" in causes["data"]["text/plain"][0]


def test_a_tables_numbers_are_the_records(tmp_path: Path, tiny_model: Any) -> None:
    earlier = [{"user_question": question} for question in tiny.QUESTIONS[1:4]]
    found = kvlab.compare(
        tiny.pipeline(), {"user_question": tiny.QUESTIONS[0]}, model=tiny_model, methods="naive,kvcomm@pools",
        earlier=earlier,
    )  # fmt: skip
    assert found.methods == ("dense", "naive", "pools")
    assert [len(p.anchors) for p in found.record.pools if p.placeholder == "user_question"] == [2], (
        "warmed up"
    )
    table = found.to_frame()
    for row, outcome in zip(table.itertuples(), found.record.outcomes, strict=True):
        assert (row.agent, row.method, row.text) == (outcome.agent, outcome.method, outcome.text)
        assert row.tokens_reused == int(((outcome.actions == 1) | (outcome.actions == 2)).any(axis=0).sum())
    assert set(table["name"]) == {"Solver", "Checker", "Judge"}
    again = kvlab.open(found.save(tmp_path / "run.kvrun"))
    bundle = tmp_path / "run.zip"
    bundle.write_bytes(Bundle(found.record).to_bytes())
    assert again.to_frame().equals(table)
    assert kvlab.open(bundle).to_html() == report_html(found.record)


def test_a_conversation_keeps_its_text_and_its_roles() -> None:
    messages = [
        {"role": "system", "content": "Answer {user_question} and {this}."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "First {text_1}"}, {"type": "text", "text": "b"}],
        },
        {"role": "assistant", "content": "Second"},
    ]
    pipeline, values = pipeline_of_parts(message_parts(messages), name="c", title="C", max_new_tokens=4)
    whole = "".join(
        part if isinstance(part, str) else values[part.name] for part in pipeline.template(1).parts
    )
    assert whole == (
        "Answer {user_question} and {this}.\n\nUser:\nFirst {text_1}\nb\n\nAssistant:\nSecond\n\nAssistant:\n"
    )
    assert [*values.values()][1:] == ["First {text_1}\nb", "Second"]
    [(first, fixed), *_] = message_parts([{"role": "user", "content": "alone"}])
    assert (first, fixed) == ("alone", False)


@pytest.mark.parametrize(
    ("prompt", "more", "said"),
    [
        ("no-such", {}, "There is no preset 'no-such'"),
        (7, {}, "The prompt is 7"),
        (["hello"], {}, "Message 1 is 'hello'"),
        ([{"role": "user", "content": None}], {}, "The content of message 1 is None"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], {}, "The content of message 1 is"),
        ([{"role": "user", "content": "a"}], {"values": {"x": "y"}}, "Messages have no placeholders"),
        ([], {}, "is empty"),
        (tiny.pipeline(), {}, "has no requests of its own"),
        ("math-3", {"methods": []}, "No method was named"),
        ("math-3", {"methods": ["naive:no=1"]}, "no"),
        ("math-3", {"model": "/no/such/model"}, "/no/such/model"),
    ],
)
def test_what_cannot_be_run_says_what_to_do(prompt: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(kvlab.LabError) as refused:
        kvlab.compare(prompt, **more)
    assert said in str(refused.value)
    assert json.dumps(str(refused.value)).count("Traceback") == 0


def test_a_file_without_a_run_is_refused(tmp_path: Path) -> None:
    bench = tmp_path / "bench.zip"
    bench.write_bytes(Bundle(bench={"preset": "math-3"}).to_bytes())
    for path in (bench, tmp_path / "missing.kvrun", tmp_path):
        with pytest.raises(kvlab.LabError, match=r"bench|missing|cannot be read"):
            kvlab.open(path)


def test_an_xray_is_a_table_and_a_page() -> None:
    found = kvlab.xray(ROOT / "presets" / "logs" / "example.jsonl")
    table = found.to_frame()
    assert len(table) == len(found.record.calls) == 24
    assert table["tokens"].sum() == found.record.totals["tokens"]
    assert sum(found.causes.values()) > 0
    assert "What should be changed first?" in unescape(found._repr_html_())
    with pytest.raises(kvlab.LabError):
        kvlab.xray(ROOT / "none.jsonl")
