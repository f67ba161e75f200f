"""Benchmarks on a known shape with random weights, as a GPU's run has them."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from backend.bench import common
from backend.bench.common import BenchRequest
from backend.bench.match import bench_match
from backend.bench.memory import bench_memory
from backend.bench.ttft import bench_ttft
from backend.records.hardware import SHAPES

SMALL = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 64, "max_position_embeddings": 256,
}  # fmt: skip


@pytest.mark.parametrize("bench", [bench_ttft, bench_match, bench_memory])
def test_a_shape_needs_no_tokenizer(
    bench: Callable[[BenchRequest], dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SHAPES, "small", SMALL)
    report = bench(BenchRequest(shape="small", tokens=48, anchors=3, repeats=2, device="cpu"))
    assert report["shape"] == "small"
    assert any(isinstance(value, float) and math.isfinite(value) for value in report.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_have_what_a_model_is_made_of(shape: str) -> None:
    assert SMALL.keys() <= SHAPES[shape].keys()
    assert common.SHAPES is SHAPES
