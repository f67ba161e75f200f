"""Pages made from the code, and from what was measured, are current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from own_scripts import script

from backend.model.load import SHIPPED, load_model
from lab_app.cli.methods import methods_markdown

ROOT = Path(__file__).parents[2]


def test_the_methods_page_is_what_the_registry_says() -> None:
    page = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert page == methods_markdown(), "renew it: kvlab methods --markdown > docs/methods.md"


@pytest.mark.parametrize(("name", "least"), [("embedded", 100), ("embedded-small", 50)])
def test_the_models_card_says_what_was_measured_with_these_weights(name: str, least: int) -> None:
    folder = SHIPPED[name]
    found = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    model = load_model(name, device="cpu", dtype="fp32")
    assert found["weights"] == model.info.weights_hash, "evaluate again: kvlab evaluate-embedded"
    assert found["count"] >= least
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card == script("model_card").card(folder), "renew it: python scripts/model_card.py"
    assert f"`{found['weights']}`" in card


def test_the_smaller_model_has_at_most_a_third_of_the_parameters_and_is_relocatable() -> None:
    main, small = (load_model(name, device="cpu", dtype="fp32") for name in ("embedded", "embedded-small"))
    assert small.info.parameters / main.info.parameters < 0.34
    assert small.info.certificate.relocatable


def test_the_model_is_small_enough_to_ship() -> None:
    weights = list((ROOT / "presets").rglob("*.safetensors"))
    assert weights
    assert sum(path.stat().st_size for path in weights) <= 32 * 10**6


def test_the_page_on_speed_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert page == script("speed").page(), "renew it: python scripts/speed.py --write"
    assert "kvlab bench ttft" in page


def test_what_was_asked_for_stands_beside_what_was_measured() -> None:
    speed = script("speed")
    page = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    [batch] = [r for r in speed.reports() if r["bench"] == "decode"]
    assert speed.met_target(4, batch["ratio"]) in page
    for (shape, tokens, _), wanted in speed.ASKED.items():
        mine = [line for line in page.splitlines() if line.startswith(f"| {shape} | {tokens} |")]
        assert shape == speed.ON_A_GPU or any(f"| {wanted:g}: " in line for line in mine)


@pytest.mark.parametrize(
    ("bench", "found", "said"),
    [
        ("ttft", {"ratio": 8.1, "two_heaviest_ratio": 11.9, "dense_ms": 405, "reuse_ms": 50,
                  "two_heaviest_ms": 34}, ["8: met", "12: missed"]),
        ("match", {"match_ms": 0.9}, ["at most 1 ms: met"]),
        ("match", {"match_ms": 1.1}, ["at most 1 ms: missed"]),
        ("assemble", {"roofline_percent": {"one_pass": 67, "layer_by_layer": 9}},
         ["at most 1.5 of a copy's time: met"]),
        ("assemble", {"roofline_percent": {"one_pass": 66, "layer_by_layer": 9}},
         ["at most 1.5 of a copy's time: missed"]),
    ],
)  # fmt: skip
def test_a_gpu_will_be_held_to_what_was_asked_of_one(
    bench: str, found: dict[str, Any], said: list[str]
) -> None:
    speed = script("speed")
    like = next(r for r in speed.reports() if r["bench"] == bench and r["dtype"] == "fp32")
    bare = {name: value for name, value in like.items() if not name.startswith(("half", "dense_bf16"))}
    [drawn] = ["\n".join(draw([bare | {"shape": speed.ON_A_GPU, "tokens": 3500} | found]))
               for kind, (_, draw) in speed.SECTIONS.items() if kind == bench]  # fmt: skip
    rows = [line for line in drawn.splitlines() if line.startswith(f"| {speed.ON_A_GPU} ")]
    assert len(rows) == len(said)
    assert all(wanted in row for wanted, row in zip(said, rows, strict=True)), rows
