"""Reproductions of figures by layer: the numbers are those of the studies, at the depths that they name."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset
from backend.records.offsets import OffsetStudy
from backend.records.proximity import ProximityRecord, ProximityRequest
from backend.reproduce import layers
from backend.reproduce.context import Context, Settings
from backend.reproduce.registry import find
from backend.reproduce.result import fits
from backend.reproduce.spec import Measurement, OffsetsPlan, ProximityPlan
from backend.studies import offsets as study_of_offsets
from backend.studies.proximity import proximity


def context(model: LoadedModel, name: str, folder: Path, problems: int) -> Context:
    made = Context(find(name), "embedded", "tiny", Settings(folder, problems))
    made.loaded["tiny"] = model
    return made


def test_depths_are_layers_of_any_model() -> None:
    assert [layers.layer_at(depth, 6) for depth in layers.DEPTHS] == [0, 1, 2, 4, 5]
    assert [layers.layer_at(depth, 1) for depth in layers.DEPTHS] == [0] * 5


def test_prompts_begin_with_what_stands_before_their_first_hole() -> None:
    begun = layers.openings(load_preset("math-4"))
    assert len(begun) == 5 == len(set(begun))
    assert all(text.startswith("You are ") and "{" not in text for text in begun)


def test_nearness_is_the_studys(tiny_model: LoadedModel, tmp_path: Path) -> None:
    plan = ProximityPlan("math-3", problems=300, vocabulary=300)
    asked = context(tiny_model, "kvcomm-figure-4", tmp_path, 60)
    found = [x for x in layers.proximity(plan, asked) if isinstance(x, Measurement)]
    first, second, *_ = layers.openings(load_preset("math-3"))
    *_, record = proximity(tiny_model, ProximityRequest(first, second, 300, 60, 0))
    assert isinstance(record, ProximityRecord)
    assert [x.where["depth"] for x in found] == list(layers.DEPTHS)
    last = found[-1].values
    assert last["values"].value == pytest.approx(record.correlations["values"].rho[-1])
    assert last["key offsets"].low == pytest.approx(record.correlations["key_offsets"].low[-1])
    assert last["keys"].of == 60
    assert math.isnan(found[0].values["key offsets"].value), "the first layer has no offsets"


@pytest.mark.slow
def test_offsets_and_estimates_are_the_studys(
    tiny_model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[OffsetStudy] = []

    def watched(*args: object) -> object:
        for event in study_of_offsets.offset_study(*args):  # type: ignore[arg-type]
            if isinstance(event, OffsetStudy):
                seen.append(event)
            yield event

    monkeypatch.setattr(layers, "offset_study", watched)
    asked = context(tiny_model, "kvcomm-figure-a12", tmp_path, 3)
    found = [x for x in layers.offsets(OffsetsPlan("math-2", 10), asked) if isinstance(x, Measurement)]
    [study] = seen
    assert study.approximated is not None

    def at(**where: str) -> Measurement:
        [one] = [x for x in found if fits(x, where)]
        return one

    whole = study.values[:, -1].mean() / study.value_norm[-1].mean()
    assert at(text="last layer").values["values"].value == pytest.approx(float(whole))
    assert at(text="first layer").values["values"].value == pytest.approx(0, abs=1e-5)
    template = study.approximated.offset[:, 1, 0, -1]
    assert at(requests="last layer").values["prefix keys"].value == pytest.approx(np.nanmean(template))
    oracle, moved = (at(estimate=name).values for name in ("oracle", "moved"))
    assert oracle["error keys last layer"].value < 0.01
    assert oracle["cosine keys last layer"].value > 0.99
    assert oracle["cache values last layer"].value > moved["cache values last layer"].value
    assert moved["error keys last layer"].value == pytest.approx(1, abs=0.01)
    for name in ("kvcomm-figure-1", "kvcomm-figure-a4", "kvcomm-figure-a12"):
        for line in find(name).lines:
            values = at(**line.at["embedded"]).values
            assert {column.metric for column in find(name).columns} <= values.keys()
