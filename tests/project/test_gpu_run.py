"""What a GPU's run says and keeps, without a GPU: met or missed, and where it stopped."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from own_scripts import script
from transformers import LlamaConfig, LlamaForCausalLM

from backend.bench.memory import FAMILY, needed

ROOT = Path(__file__).resolve().parents[2]
sys.modules.setdefault("speed", script("speed"))  # it stands beside
gpu = script("gpu")
REPORTS: dict[str, dict[str, Any]] = {
    "ttft": {"dense_ms": 90.0, "dense_bf16_ms": 80.0, "reuse_ms": 9.0, "two_heaviest_ms": 8.0},
    "match": {"match_ms": 0.4},
    "assemble": {"roofline_percent": {"one_pass": 50.0}},
    "memory": {"ratio": {"cache": 1.001, "pool": 0.97}, "hardware": "a card"},
    "kvcomm-table-3": {
        "columns": [{"title": "mean speedup"}],
        "lines": [{"ours": [{"value": 3.0}], "paper": [2.0]}, {"ours": [None], "paper": [4.0]}],
    },
}


def test_the_page_says_met_missed_or_why_not() -> None:
    found = {name: {**report, "took": 5} for name, report in REPORTS.items()}
    text = gpu.page(found, {"tests": "pytest is not installed"}, False)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    said = [[cell.strip() for cell in line.split("|")[1:5]] for line in lines]
    assert [row[1:3] for row in said if row[3] in (*REPORTS, "tests", "kvcomm-table-2")] == [
        ["8.89", "met"], ["10.00", "missed"], ["0.40 ms", "met"], ["2.00", "missed"], ["0.97", "missed"],
        ["-", "pytest is not installed"], ["-", "not begun; run again"], ["1 of 1 lines", "met"],
    ]  # fmt: skip
    assert "a card; 25 s in all" in text
    assert [row[0] for row in said if row[0].endswith("B")] == list(FAMILY)


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    steps = [gpu.Step(name, ("json.tool", "--help")) for name in ("one", "two")]
    for step in steps:
        assert gpu.finished(step, tmp_path) is None
        assert gpu.carry_out(step, tmp_path, 60) == ""
        kept = gpu.finished(step, tmp_path)
        assert kept is not None
        assert kept["words"] == list(step.words)
    assert gpu.finished(steps[0]._replace(words=("json.tool",)), tmp_path) is None, "another command"
    (tmp_path / "one.json").write_text('{"words": ["json.tool"')
    assert gpu.finished(steps[0], tmp_path) is None, "cut off"
    assert "ended with" in gpu.carry_out(gpu.Step("three", ("json.tool", "nowhere")), tmp_path, 60)
    assert "in time" in gpu.carry_out(gpu.Step("four", ("http.server", "0")), tmp_path, 0.5)


def test_every_step_of_a_rehearsal_is_one_of_the_run(tmp_path: Path) -> None:
    run, rehearsal = (gpu.steps(tmp_path, rehearse) for rehearse in (False, True))
    assert [(s.name, s.saves) for s in run] == [(s.name, s.saves) for s in rehearsal]
    assert all("cuda" in s.words for s in run if "bench" in s.words)
    assert all((ROOT / name).is_file() for name in gpu.ON_A_CPU)


@pytest.mark.parametrize("name", FAMILY)
def test_the_weights_that_a_shape_needs_are_counted(name: str) -> None:
    shape = dict(FAMILY[name])
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**shape, tie_word_embeddings=bool(shape.pop("tied"))))
    weights, cache, _ = needed(FAMILY[name], 100, 2)
    assert weights == 2 * sum(weight.numel() for weight in model.parameters())
    head = shape["hidden_size"] // shape["num_attention_heads"]
    assert cache == 100 * 2 * 2 * shape["num_hidden_layers"] * shape["num_key_value_heads"] * head
