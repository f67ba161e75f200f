"""The risk gate: its numbers against brute force, and what its test may never see."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import tiny
from fake_record import make_model
from hypothesis import given, settings
from hypothesis import strategies as st

import backend.judge.gate_training as risk_gate
import viz.judge.risk_gate as risk_views
from backend.base.errors import OptionError, RecordError
from backend.judge.gate_training import auc, auc_interval, fit, folds, risk_study
from backend.model.load import LoadedModel
from backend.records.risk import (
    CandidateSet,
    RiskRecord,
    RiskRequest,
    reliability,
    roc,
    trade,
)
from backend.records.risk_gate import EVERY, OWN_FEATURES, TEXT_FEATURES, RiskGate, text_features
from backend.records.run import COMPUTED, RunRecord
from backend.session.session import LabSession

MODEL = make_model(6)
SCORES = st.lists(st.integers(0, 5), min_size=2, max_size=30)


def sets(count: int = 80, orders: int = 2, seed: int = 0) -> list[CandidateSet]:
    """Sets of three candidates: reuse by *naive* keeps the selection where all agree, *kvcomm* as well and
    at every third other problem."""
    rng = np.random.default_rng(seed)
    out = []
    for number in range(count):
        agree = bool(rng.random() < 0.5)
        answers = [7, 7, 7] if agree else [7, 8, 9]
        texts = tuple(f"He has {n} {'and more ' * int(rng.integers(3))}The answer is {n}" for n in answers)
        naive = agree if rng.random() < 0.9 else not agree
        kvcomm = naive or number % 3 == 0
        own = {"naive": {"margin": float(rng.random())}}
        for _ in range(orders):
            out.append(
                CandidateSet(
                    f"problem {number}",
                    texts,
                    {"naive": naive, "kvcomm": kvcomm},
                    {"naive": 0.9, "kvcomm": 0.6},
                    own,
                )
            )
    return out


# -- features


def test_features_are_those_of_the_texts() -> None:
    found = text_features(("two apples. The answer is 4", "two apples. The answer is 4", "no idea"), "number")
    assert set(found) == set(TEXT_FEATURES)
    assert found["agreement"] == pytest.approx(2 / 3)
    assert found["answers"] == found["unread"] == pytest.approx(1 / 3)
    assert found["similarity_high"] == 1.0
    assert found["similarity_low"] == 0.0
    assert found["similarity_mean"] == pytest.approx(1 / 3)
    assert found["first_agrees"] == 1.0
    assert found["length_mean"] == pytest.approx(math.log1p((6 + 6 + 2) / 3))
    assert all(math.isfinite(v) for v in text_features(("", ""), "number").values())


@given(st.lists(st.text("ab 12.", max_size=20), min_size=2, max_size=5), st.randoms())
@settings(max_examples=50, deadline=None)
@pytest.mark.slow
def test_only_one_feature_depends_on_the_order(texts: list[str], random: object) -> None:
    other = list(texts)
    random.shuffle(other)  # type: ignore[attr-defined]
    one, two = text_features(texts, "number"), text_features(other, "number")
    for name in TEXT_FEATURES:
        if name != "first_agrees":
            assert one[name] == pytest.approx(two[name])


# -- numbers against their definitions


@given(SCORES, st.data())
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_auc_is_the_share_of_pairs_in_order(scores: list[int], data: st.DataObject) -> None:
    safe = np.array(data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))))
    score = np.array(scores, dtype=float)
    good, bad = score[safe], score[~safe]
    found = auc(score, safe)
    if not len(good) or not len(bad):
        assert math.isnan(found)
        return
    pairs = [1.0 if g > b else 0.5 if g == b else 0.0 for g in good for b in bad]
    assert found == pytest.approx(np.mean(pairs))
    false, true = roc(score, safe)
    assert found == pytest.approx(np.trapezoid(true, false))
    assert (false[0], true[0], false[-1], true[-1]) == (0, 0, 1, 1)


@given(SCORES, st.data())
@settings(max_examples=100, deadline=None)
@pytest.mark.slow
def test_a_threshold_buys_what_applying_it_gives(scores: list[int], data: st.DataObject) -> None:
    same = np.array(data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))))
    score = np.array(scores, dtype=float)
    copied = np.linspace(0.1, 0.9, len(scores))
    bought = trade(score, same, copied)
    for index, threshold in enumerate(bought.threshold):
        kept = score >= threshold
        assert bought.kept[index] == pytest.approx(kept.mean())
        assert bought.copied[index] == pytest.approx((copied * kept).mean())
        assert bought.consistency[index] == pytest.approx((same | ~kept).mean())
        assert bought.low[index] - 1e-9 <= bought.consistency[index] <= bought.high[index] + 1e-9
    assert bought.consistency[0] == 1
    assert bought.kept[-1] == 1
    assert bought.consistency[-1] == pytest.approx(same.mean())


@given(SCORES, st.data())
@settings(max_examples=50, deadline=None)
def test_calibration_groups_hold_every_set_once(scores: list[int], data: st.DataObject) -> None:
    safe = np.array(data.draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores))))
    score = np.array(scores, dtype=float) / 5
    found = reliability(score, safe)
    assert found.sets.sum() == len(scores)
    assert (found.sets * found.score).sum() == pytest.approx(score.sum())
    assert (found.sets * found.share).sum() == pytest.approx(safe.sum())
    assert (np.diff(found.score) > -1e-12).all()


def test_a_fit_ends_where_its_loss_has_no_slope() -> None:
    rng = np.random.default_rng(1)
    columns = rng.normal(size=(60, 4)) * [1, 100, 1e-3, 1] + [0, 5, 0, 2]
    columns[:, 3] = 2.0  # says nothing
    safe = columns[:, 0] + rng.normal(size=60) > 0
    line = fit(columns, safe, 0.7)
    standard = (columns - line.mean) / line.scale
    rest = line.predict(columns) - safe
    assert np.abs(standard.T @ rest + 0.7 * line.weight).max() < 1e-5
    assert abs(rest.sum()) < 1e-5
    assert line.weight[0] > 0.3
    assert line.weight[3] == 0


@pytest.mark.parametrize(
    ("seed", "figures"),
    [
        (0, [(0.872807, 0.780955, 0.953125), (0.894110, 0.810811, 0.967391), (0.734280, 0.628228, 0.836221)]),
        (1, [(0.878674, 0.774420, 0.959282), (0.872420, 0.763503, 0.957513), (0.791055, 0.676278, 0.887784)]),
    ],
)
def test_figures_are_those_of_the_fit_before_scikit_learn(
    seed: int, figures: list[tuple[float, float, float]]
) -> None:
    """Gates and AUCs that were saved before came from a Newton's method of the lab's own."""
    found = risk_study(sets(seed=seed), RiskRequest(seed=seed), MODEL).tests
    for test, wanted in zip(found, figures, strict=True):
        assert (test.auc, test.auc_low, test.auc_high) == pytest.approx(wanted, abs=1e-6)
    gates = [test.gate for test in found]
    weights = {0: (0.636746, 1.132878, -0.485690), 1: (0.579188, 0.943776, 0.305614)}[seed]
    assert gates[0] is not None
    assert [gates[0].weight[place] for place in (1, 7, 9)] == pytest.approx(weights, abs=1e-5)
    assert gates[0].threshold == pytest.approx({0: 0.228286, 1: 0.159671}[seed], abs=1e-5)


def test_a_perfect_split_still_has_a_fit() -> None:
    columns = np.arange(20.0)[:, None]
    line = fit(columns, columns[:, 0] > 9, 0.0)
    assert np.isfinite(line.weight).all()
    assert auc(line.predict(columns), columns[:, 0] > 9) == 1


def test_an_unknown_value_counts_as_the_mean() -> None:
    columns = np.array([[1.0], [2.0], [3.0], [np.nan]])
    line = fit(columns, np.array([False, False, True, True]), 1.0)
    assert line.mean[0] == 2.0
    assert line.predict(np.array([[np.nan]])) == pytest.approx(line.predict(np.array([[2.0]])))


# -- cross-validation


@given(st.lists(st.integers(0, 12), min_size=2, max_size=60), st.integers(2, 6), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_problem_never_lies_on_both_sides(numbers: list[int], parts: int, seed: int) -> None:
    problems = [str(n) for n in numbers]
    safe = np.array([n % 3 == 0 for n in numbers])
    found = folds(problems, safe, RiskRequest(folds=parts, seed=seed))
    assert set(found.tolist()) <= set(range(parts))
    for part in range(parts):
        inside = {p for p, f in zip(problems, found, strict=True) if f == part}
        outside = {p for p, f in zip(problems, found, strict=True) if f != part}
        assert not inside & outside
    unsafe = {p for p, s in zip(problems, safe, strict=True) if not s}
    per_fold = [
        len({p for p, f in zip(problems, found, strict=True) if f == part} & unsafe) for part in range(parts)
    ]
    assert max(per_fold) - min(per_fold) <= 1


def test_no_set_is_scored_by_a_fit_that_saw_its_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every column holds the problem's own number, so a fit can be asked what it saw."""
    judged = sets(30)
    seen: list[tuple[set[float], set[float]]] = []
    real = risk_gate.fit

    def spy(columns: np.ndarray, safe: np.ndarray, penalty: float) -> object:
        line = real(columns, safe, penalty)
        trained = set(columns[:, -1].tolist())

        class Watched(type(line)):  # type: ignore[misc]
            def predict(self, tested: np.ndarray) -> np.ndarray:
                seen.append((trained, set(tested[:, -1].tolist())))
                return super().predict(tested)

        return Watched(line.mean, line.scale, line.weight, line.bias)

    monkeypatch.setattr(risk_gate, "fit", spy)
    named = [replace(s, own={m: {"margin": float(s.problem.split()[1])} for m in s.same}) for s in judged]
    assert list(OWN_FEATURES)[-1] == "margin"
    record = risk_study(named, RiskRequest(folds=4, resamples=10), MODEL)
    for trained, tested in seen[4:]:  # the first four are of the target that has no such column
        assert tested
        assert not trained & tested
    assert len(seen) == 4 * 3
    assert all(not np.isnan(t.score).any() for t in record.tests)


@pytest.mark.slow
def test_noise_has_no_auc_and_a_real_sign_has() -> None:
    """Were a set tested by a fit that saw it, noise would look like knowledge (0.6 here)."""
    found, seen = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        judged = [
            CandidateSet(
                str(n),
                ("The answer is 1", "The answer is 2"),
                {"m": bool(rng.random() < 0.5)},
                {"m": 0.5},
                {"m": {name: float(rng.normal()) for name in OWN_FEATURES}},
            )
            for n in range(120)
        ]
        [_, noise] = risk_study(judged, RiskRequest(penalty=0, resamples=0), MODEL).tests
        found.append(noise.auc)
        columns = np.array([[s.own["m"][n] for n in OWN_FEATURES] for s in judged])
        seen.append(auc(fit(columns, noise.safe, 0).predict(columns), noise.safe))
    assert np.mean(found) < 0.53 < np.mean(seen)
    every, naive, _ = risk_study(sets(), RiskRequest(resamples=100), MODEL).tests
    assert every.auc > 0.8
    assert every.auc_low <= every.auc <= every.auc_high
    assert naive.gate is not None
    assert naive.features == (*TEXT_FEATURES, *OWN_FEATURES)


def test_the_interval_draws_problems_not_rows() -> None:
    """Ten copies of every problem are no more evidence than one."""
    rng = np.random.default_rng(0)
    score, safe = rng.random(40), rng.random(40) < 0.5
    once = auc_interval(score, safe, [str(n) for n in range(40)], RiskRequest(resamples=400))
    often = auc_interval(
        np.repeat(score, 10),
        np.repeat(safe, 10),
        [str(n // 10) for n in range(400)],
        RiskRequest(resamples=400),
    )
    assert often[1] - often[0] == pytest.approx(once[1] - once[0], rel=0.35)


# -- the gate itself


def test_the_threshold_reaches_the_wanted_consistency() -> None:
    for wanted in (0.0, 0.9, 1.0):
        record = risk_study(sets(), RiskRequest(resamples=10, wanted=wanted), MODEL)
        for test in record.tests:
            assert test.gate is not None
            kept = test.score >= test.gate.threshold
            assert (test.safe | ~kept).mean() >= wanted
            if wanted == 0.0:
                assert kept.all()


def test_where_nothing_was_copied_nothing_is_learned() -> None:
    """A set that a method read densely is safe whatever it looks like."""
    judged = sets(60)
    dense = [
        CandidateSet(
            f"dense {i}", ("a 1", "b 2"), {"naive": True, "kvcomm": True}, {"naive": 0.9, "kvcomm": 0.0}
        )
        for i in range(len(judged))
    ]
    alone = risk_study(judged, RiskRequest(resamples=0), MODEL).tests[2]
    mixed = risk_study([*judged, *dense], RiskRequest(resamples=0), MODEL).tests[2]
    assert mixed.asked.sum() == len(judged)
    assert alone.gate is not None
    assert mixed.gate is not None
    assert mixed.gate.weight == pytest.approx(alone.gate.weight)


def test_safe_under_every_method_is_the_and_of_all() -> None:
    record = risk_study(sets(), RiskRequest(resamples=10), MODEL)
    assert record.tests[0].target == EVERY
    assert (record.tests[0].safe == record.same.all(axis=1)).all()
    assert [t.target for t in record.tests[1:]] == ["naive", "kvcomm"]


def test_where_nothing_differs_there_is_no_gate() -> None:
    judged = [replace(s, same={"naive": True, "kvcomm": s.same["kvcomm"]}) for s in sets()]
    tests = risk_study(judged, RiskRequest(resamples=10), MODEL).tests
    assert tests[1].gate is None
    assert "one kind only" in tests[1].refused
    assert math.isnan(tests[1].auc)
    assert tests[2].gate is not None


def test_a_gate_says_what_its_fit_says(tmp_path: Path) -> None:
    judged = sets()
    record = risk_study(judged, RiskRequest(resamples=10), MODEL)
    gate = record.tests[0].gate
    assert gate is not None
    assert gate.weights_hash == MODEL.weights_hash
    known = [text_features(s.texts, "number") for s in judged]
    columns = np.array([[row[name] for name in TEXT_FEATURES] for row in known])
    wanted = fit(columns, record.tests[0].safe, 1.0).predict(columns)
    assert [gate.safe(row) for row in known] == pytest.approx(wanted.tolist())
    again = RiskGate.load(gate.save(tmp_path / "gate.json"))
    assert again == gate
    assert (tmp_path / "gate.json").stat().st_size < 4096


def test_what_is_no_gate_is_refused(tmp_path: Path) -> None:
    record = risk_study(sets(), RiskRequest(resamples=10), MODEL)
    gate = record.tests[0].gate
    assert gate is not None
    path = gate.save(tmp_path / "gate.json")
    whole = json.loads(path.read_text())
    changes = ({"weight": [1.0]}, {"bias": "x"}, {"scale": [0.0] * len(whole["scale"])}, {"mean": 1})
    for broken in ("{", "[]", "{}", *(json.dumps(whole | change) for change in changes)):
        path.write_text(broken)
        with pytest.raises(RecordError, match="holds no risk gate"):
            RiskGate.load(path)
    with pytest.raises(RecordError, match="cannot be read"):
        RiskGate.load(tmp_path / "none.json")


def test_a_record_comes_back_as_it_was() -> None:
    record = risk_study(sets(20), RiskRequest(resamples=10), MODEL)
    again = RiskRecord.from_bytes(record.to_bytes())
    assert again.to_bytes() == record.to_bytes()
    assert again.tests[0].gate == record.tests[0].gate


def test_what_cannot_be_learned_from_is_refused() -> None:
    with pytest.raises(OptionError, match="no judged candidate set"):
        risk_study([], RiskRequest(), MODEL)
    other = CandidateSet("x", ("a", "b"), {"naive": True}, {"naive": 1.0})
    with pytest.raises(OptionError, match="same methods"):
        risk_study([*sets(3), other], RiskRequest(), MODEL)
    wrong = (("folds", 1), ("penalty", -1.0), ("resamples", -1), ("wanted", 1.5), ("wanted", math.nan))
    for field, value in wrong:
        with pytest.raises(OptionError, match="allowed"):
            RiskRequest(**{field: value})  # type: ignore[arg-type]


# -- in a run


def open_or_shut(threshold: float, weights_hash: str) -> RiskGate:
    """A gate that finds every set safe with 50%."""
    return RiskGate(EVERY, weights_hash, "number", ("agreement",), (0.0,), (1.0,), (0.0,), 0.0, threshold)


def test_a_shut_gate_is_dense_at_the_judge_alone_and_is_paid(tiny_model: LoadedModel) -> None:
    hashed = tiny_model.info.weights_hash
    asked = tiny.request(("dense", "naive"))
    bare = tiny.run(LabSession(tiny_model), asked)
    kept = tiny.run(LabSession(tiny_model), replace(asked, gate=open_or_shut(0.5, hashed)))
    shut = tiny.run(LabSession(tiny_model), replace(asked, gate=open_or_shut(0.6, hashed)))
    for agent in bare.agents:
        plain, same = bare.outcome(agent, "naive"), kept.outcome(agent, "naive")
        assert (plain.text, plain.state) == (same.text, same.state)
    for agent in (1, 2):  # they read no two candidates, or judge nothing
        assert shut.outcome(agent, "naive").state == "reused"
    refused, dense = shut.outcome(3, "naive"), shut.outcome(3, "dense")
    assert refused.state == "fallback"
    assert "50%" in refused.reason
    assert refused.text == dense.text
    assert (refused.actions == COMPUTED).all()
    assert refused.timing.token_layers > dense.timing.token_layers
    assert shut.request.gate == open_or_shut(0.6, hashed)
    assert RunRecord.from_bytes(shut.to_bytes()).request.gate == shut.request.gate


def test_a_gate_decides_by_what_training_saw(tiny_model: LoadedModel) -> None:
    """The features at the judge are those of the texts, and of the method's own logits."""
    seen: list[dict[str, float]] = []

    class Watching(RiskGate):
        def safe(self, found: Mapping[str, float]) -> float:
            seen.append(dict(found))
            return 1.0

    given = open_or_shut(0.5, tiny_model.info.weights_hash)
    watching = Watching(**{f.name: getattr(given, f.name) for f in fields(given)})
    record = tiny.run(LabSession(tiny_model), tiny.request(("dense", "naive"), gate=watching))
    texts = [record.outcome(agent, "dense").text for agent in (1, 2)]
    [found] = seen
    wanted = text_features(texts, "number")
    assert {name: found[name] for name in wanted} == pytest.approx(wanted)
    assert found["margin"] >= 0
    assert set(found) == {*TEXT_FEATURES, "margin"}


def test_another_models_gate_is_refused(tiny_model: LoadedModel) -> None:
    asked = tiny.request(("dense", "naive"), gate=open_or_shut(0.5, "another"))
    with pytest.raises(OptionError, match="another model's judgements") as refused:
        tiny.run(LabSession(tiny_model), asked)
    assert refused.value.field == "gate"


# -- figures


def test_figures_show_the_records_own_numbers() -> None:
    record = risk_study(sets(), RiskRequest(resamples=20), MODEL)
    drawn = risk_views.views(RiskRecord.from_bytes(record.to_bytes()))
    assert [view.key for view in drawn] == ["risk_roc", "risk_calibration", "risk_trade", "risk_weights"]
    for view in drawn:
        assert not view.empty
        assert view.finding.endswith(".")
        assert view.how_to_read.endswith(".")
        assert view.figure.layout.xaxis.title.text
        assert len(view.csv().splitlines()) == len(view.rows) + 1
        assert all(len(row) == len(view.columns) for row in view.rows)
        json.loads(view.json())
    every = record.tests[0]
    assert every.gate is not None
    assert f"{every.auc:.2f}" in drawn[0].finding
    wanted = trade(every.score, record.same[:, 0], record.copied[:, 0])
    shown = [row for row in drawn[2].rows if row[1] == "naive"]
    assert [row[5] for row in shown] == pytest.approx(wanted.consistency.tolist(), abs=1e-6)
    weights = {row[1]: row[3] for row in drawn[3].rows if row[0] == EVERY}
    assert weights == pytest.approx(dict(zip(every.gate.features, every.gate.weight, strict=True)), abs=1e-6)


def test_moving_the_threshold_moves_the_mark() -> None:
    record = risk_study(sets(), RiskRequest(resamples=0), MODEL)
    none = risk_views.trade_view(record, threshold=1.1)
    every = risk_views.trade_view(record, threshold=0.0)
    copied, jcr = f"{record.copied[:, 0].mean():.0%}", f"{record.same[:, 0].mean():.0%}"
    assert none.finding.count("100") >= 2  # of JCR, at nothing copied
    assert f"copies {copied}".replace("%", "\u00a0%") in every.finding
    assert jcr.replace("%", "\u00a0%") in every.finding
    alone = risk_views.trade_view(record, gate="kvcomm")
    assert {row[1] for row in alone.rows} == {"kvcomm"}
    assert none.rows == every.rows


def test_without_a_gate_the_figures_say_why() -> None:
    judged = [replace(s, same=dict.fromkeys(s.same, True)) for s in sets(20)]
    for view in risk_views.views(risk_study(judged, RiskRequest(resamples=0), MODEL)):
        assert view.empty
        assert "one kind only" in view.finding
