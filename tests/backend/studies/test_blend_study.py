"""Error against the share computed again: the record's exact ends, its intervals and its figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
from tiny import QUESTIONS

from backend.base.errors import BudgetError, OptionError
from backend.model.load import LoadedModel
from backend.records.blend import CHOICES, BlendRequest, BlendStudy
from backend.records.events import Progress
from viz.studies.recompute_ratio import views

RATIOS = (0.0, 0.4, 1.0)


def asked(**changes: Any) -> BlendRequest:
    values = tuple({"user_question": q} for q in QUESTIONS[:3])
    return replace(BlendRequest(tiny.pipeline(), values, ratios=RATIOS, max_new_tokens=6), **changes)


@pytest.fixture(scope="module")
def study(tiny_model: LoadedModel) -> BlendStudy:
    found = list(tiny.lab(tiny_model).study(asked()))
    assert all(isinstance(event, Progress) for event in found[:-1])
    assert isinstance(found[-1], BlendStudy)
    return found[-1]


@pytest.mark.slow
def test_at_share_one_every_choice_is_dense(study: BlendStudy) -> None:
    for name in ("keys", "values", "chosen", "kl"):
        assert getattr(study, name).shape == (len(CHOICES), 2, 3, 3)
        assert getattr(study, name)[:, :, -1].max() < 1e-4


def test_at_share_zero_all_choices_are_one_and_only_the_suffix_is_computed(study: BlendStudy) -> None:
    for name in ("keys", "values", "kl", "work"):
        none = getattr(study, name)[:, :, 0]
        np.testing.assert_allclose(none, np.broadcast_to(none[:1, :1], none.shape), rtol=1e-5, atol=1e-7)
    assert (study.values[0, 0, 0] < study.copied_values).all()
    assert (study.work[:, :, 0] < 0.2).all()


def test_in_between_the_exact_mask_is_nearer_than_copying_and_the_shipped_one_errs(study: BlendStudy) -> None:
    for choice in CHOICES:
        at = CHOICES.index(choice)
        assert (study.values[at, 0, 1] < study.copied_values).all()
        assert study.chosen[at, 1, 1].mean() > study.chosen[at, 0, 1].mean()
    # An oracle has read everything densely before it chooses.
    assert (study.work[CHOICES.index("oracle_k"), 0, 1] > 1).all()


def test_the_floor_is_rounding(study: BlendStudy) -> None:
    assert (study.floor < 1e-6).all()
    assert (study.copied_kl > 100 * study.floor).all()


def test_intervals_stay_above_zero_and_steps_are_paired() -> None:
    rows = np.array([[1.0, 2.0, 6.0, np.nan], [0.5, 1.4, 5.6, np.nan]], dtype=np.float32)
    made = dict.fromkeys(("keys", "values", "chosen", "kl", "work"), rows[None, None])
    lone = np.zeros(4, dtype=np.float32)
    study = BlendStudy(
        asked(choices=("random_k",), masks=("exact",), ratios=(0.1, 0.2)), None, 3,  # type: ignore[arg-type]
        np.full(4, 9), **made, copied_keys=lone, copied_values=lone, copied_kl=lone, floor=lone, wall_ms=0.0,
    )  # fmt: skip
    mean, low, high = study.mean("kl", "random_k", "exact")
    assert (mean[0], low[0], high[0]) == pytest.approx((3, 1, 6), abs=0.4)
    assert low[0] >= 1, "a normal interval would begin at 0.01"
    mean, low, high = study.steps("kl", "random_k", "exact")
    half = 1.96 * np.std([0.5, 0.6, 0.4], ddof=1) / np.sqrt(3)
    np.testing.assert_allclose((mean[0], low[0], high[0]), (-0.5, -0.5 - half, -0.5 + half), rtol=1e-5)
    assert high[0] < 0  # though the two intervals overlap


def test_a_study_survives_its_file(study: BlendStudy) -> None:
    again = BlendStudy.from_bytes(study.to_bytes())
    assert again.request == study.request
    assert again.model == study.model
    for name in ("values", "chosen", "floor", "prompt_tokens"):
        np.testing.assert_array_equal(getattr(again, name), getattr(study, name))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"values": ()}, "values", "0 requests"),
        ({"agent": 9}, "agent", "no agent 9"),
        ({"choices": ("cacheblend", "kvcomm")}, "choices", "kvcomm"),
        ({"choices": ()}, "choices", "none"),
        ({"masks": ("exact", "exact")}, "masks", "each once"),
        ({"ratios": (0.5, 0.1)}, "ratios", "0.5, 0.1"),
        ({"ratios": (0.5, 1.5)}, "ratios", "from 0 to 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    tiny_model: LoadedModel, changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(OptionError, match=words) as refused:
        list(tiny.lab(tiny_model).study(asked(**changes)))
    assert refused.value.field == f"blend.{field}"


def test_other_weights_and_too_small_a_budget_are_refused(tiny_model: LoadedModel) -> None:
    pipeline = tiny.pipeline()
    others = replace(pipeline, agents=(replace(pipeline.agents[0], model="other"), *pipeline.agents[1:]))
    with pytest.raises(OptionError, match="other weights"):
        list(tiny.lab(tiny_model).study(asked(pipeline=others)))
    with pytest.raises(BudgetError, match="--budget-mb"):
        list(tiny.lab(tiny_model, budget_bytes=1 << 16).study(asked()))


def test_figures_come_from_the_record_alone(study: BlendStudy) -> None:
    found = views(study)
    assert [v.key for v in found] == ["blend_values", "blend_keys", "blend_kl", "blend_chosen", "blend_work"]
    for view in found:
        assert view.title.endswith("?")
        assert view.finding.endswith(".")
        assert view.how_to_read
        assert len(view.figure.data) == len(CHOICES) * (1 if view.key == "blend_work" else 2)
        assert view.figure.layout.xaxis.title.text
        assert view.figure.layout.yaxis.title.text
        assert len(view.csv().splitlines()) == len(view.rows) + 1
    values = found[0]
    rows = {(r[0], r[1], r[2]): r for r in values.rows}
    mean, low, high = study.mean("values", "random_k", "shipped")
    assert rows["random", "shipped", 0.4][3:6] == pytest.approx((mean[1], low[1], high[1]), abs=1e-6)
    falls = study.steps("values", "random_k", "exact")[2] < 0
    assert rows["random", "exact", 1.0][6] == ("yes" if falls[1] else "no")
    assert rows["random", "exact", 0.0][6] == ""
    alone = views(replace(study, request=replace(study.request, masks=("exact",))))
    assert len(alone[0].figure.data) == len(CHOICES)


def test_kl_is_drawn_on_a_log_axis_and_no_whisker_reaches_zero(study: BlendStudy) -> None:
    by_share, by_work = (next(v for v in views(study) if v.key == key) for key in ("blend_kl", "blend_work"))
    layout = by_share.figure.layout
    assert {layout.yaxis.type, layout.yaxis2.type, by_work.figure.layout.yaxis.type} == {"log"}
    for line in by_share.figure.data:
        ends = np.asarray(line.y) - np.asarray(line.error_y.arrayminus)
        assert (ends > 0).all()
        assert (np.asarray(line.error_y.array) >= 0).all()
    assert all((np.asarray(line.y) > 0).all() for line in by_work.figure.data)
    # what is exactly the full read has a KL of 0, which is drawn, and said, at the axis' end
    none = views(replace(study, kl=np.zeros_like(study.kl)))[2]
    assert {float(y) for line in none.figure.data for y in line.y} == {1e-6}
    assert "under 1e-06 nats" in none.how_to_read
