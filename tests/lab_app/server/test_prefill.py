"""What the first click would wait for is there before it."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import tiny

from backend.model.load import load_model
from backend.prompts.presets import load_preset, preset_requests
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.session.shared_warm_up import kept_bytes
from lab_app.app import FIRST_PRESET
from lab_app.server import prefill as first_click
from lab_app.server.prefill import fill_first_pools, prefill_pools
from lab_app.ui.scenarios import USUAL_WARM
from lab_app.visits.visits import VisitStore

PRESET = "math-2"


@pytest.fixture
def lab() -> VisitStore:
    model = tiny.model()
    return VisitStore(lambda: model, tiny.lab)  # type: ignore[arg-type]


def asked() -> RunRequest:
    """As the page sends it, with whichever methods."""
    pipeline = load_preset(PRESET).pipeline
    values = dict(preset_requests(load_preset(PRESET), 1, seed=7)[0].values)
    chosen = (MethodChoice("dense"), MethodChoice("kvcomm"))
    return RunRequest(pipeline.unrolled, values, chosen, "pinned", Decoding(pipeline.longest_answer))


@pytest.mark.slow
def test_the_first_visitor_finds_full_pools(lab: VisitStore, monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [
        preset_requests(load_preset(PRESET), USUAL_WARM, seed=1, open_words=kind) for kind in (False, True)
    ]
    assert not any(lab.engine().warm_up_is_cached(asked(), examples) for examples in sets)
    monkeypatch.setattr(first_click, "MOST_SECONDS", 1e9)
    prefill_pools(lab, PRESET).join(60)
    assert all(lab.engine().warm_up_is_cached(asked(), examples) for examples in sets)
    assert lab.turns.wait(lab.turns.join(), 0) == 0, "nobody is left in line"


def test_where_it_lasts_nobody_waits_for_it(lab: VisitStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_click, "MOST_SECONDS", 0.0)
    fill_first_pools(lab, PRESET)
    assert not lab.engine().warm_up_is_cached(
        asked(), preset_requests(load_preset(PRESET), USUAL_WARM, seed=1)
    )


@pytest.mark.parametrize("preset", ["no-such", "gsm8k-paper"])
def test_what_cannot_be_filled_harms_nobody(
    preset: str, lab: VisitStore, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_click, "MOST_SECONDS", 1e9)
    with caplog.at_level(logging.INFO):
        fill_first_pools(lab, preset)
    assert [r.levelname for r in caplog.records] == ["INFO"]
    assert "stay empty" in caplog.text
    assert lab.turns.wait(lab.turns.join(), 0) == 0


@pytest.mark.slow
def test_both_kinds_of_problems_have_room_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the model and the scenario that the page opens with."""
    monkeypatch.setattr(first_click, "MOST_SECONDS", 1e9)
    model = load_model("embedded")
    lab = VisitStore(lambda: model, tiny.lab)  # type: ignore[arg-type]
    fill_first_pools(lab, FIRST_PRESET)
    scenario = load_preset(FIRST_PRESET)
    values = dict(preset_requests(scenario, 1)[0].values)
    pipeline = scenario.pipeline
    request = RunRequest(
        pipeline.unrolled, values, (MethodChoice("dense"),), "pinned", Decoding(pipeline.longest_answer)
    )
    for kind in (False, True):
        examples = preset_requests(scenario, USUAL_WARM, seed=1, open_words=kind)
        assert lab.engine().warm_up_is_cached(request, examples)
    assert kept_bytes() > 200 << 20
