"""Surprisal is the model's own, and what is said of it follows from the calibration that belongs to it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import QUESTIONS, model, request, run

from backend.base.errors import OptionError
from backend.engine import surprisal as measured
from backend.engine.runner import ModelRunner
from backend.lab import Lab
from backend.prompts.presets import load_preset, preset_requests
from backend.records.familiarity import (
    ANSWER_FEATURES,
    FLOOR,
    PROMPT_FEATURES,
    Bin,
    Calibration,
    Predictor,
    Reading,
    features,
    outlook,
)
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from backend.session import familiarity
from backend.session.session import LabSession
from backend.studies.batch import unusual
from backend.training.familiarity import Case, CaseResult, answer_cases, calibrate

IDS = (1, 40, 41, 200, 17, 300, 5)
FEW = Bin(0.0, 0.5, 30, 2)
MANY = Bin(0.5, 1.0, 40, 37)


def predictor(*names: str, bias: float = 0.0) -> Predictor:
    ones = (1.0,) * len(names)
    return Predictor(names, (0.0,) * len(names), ones, ones, bias, (FEW, MANY))


BY_PROMPT = predictor(*PROMPT_FEATURES)


def a_reading(*nats: float, typed: int = 0, answer: tuple[float, ...] = ()) -> Reading:
    from_outside = np.arange(len(nats)) >= len(nats) - typed
    return Reading(np.array(nats, np.float32), from_outside, np.array(answer, np.float32))


def calibrated(found: Calibration, monkeypatch: pytest.MonkeyPatch):
    """A model with a calibration of its own."""
    loaded = model(3)
    monkeypatch.setitem(familiarity._CALIBRATIONS, loaded.module, found)
    return loaded


def test_surprisal_is_that_of_a_plain_forward(monkeypatch):
    loaded = model(0)
    logits = loaded.module(input_ids=torch.tensor([IDS])).logits[0, :-1].log_softmax(-1)
    wanted = -logits[torch.arange(len(IDS) - 1), torch.tensor(IDS[1:])]
    for most in (measured.MOST_LOGITS, 2 * loaded.info.vocabulary):  # in one piece, and two tokens at a time
        monkeypatch.setattr(measured, "MOST_LOGITS", most)
        found = measured.surprisal(ModelRunner(loaded), IDS)
        assert found[0] == torch.inf
        torch.testing.assert_close(found[1:], wanted, atol=1e-4, rtol=1e-4)


def test_results_that_are_filled_in_are_no_surprise():
    class Filling:
        def filled_after(self, ids):
            return (8, 9) if ids and ids[-1] == 7 else ()

    assert measured.filled_in(Filling(), [1, 7, 8, 9, 7, 8, 3, 7]) == [2, 3]  # type: ignore[arg-type]


def test_a_run_keeps_the_surprisal_of_every_prompt_and_answer(monkeypatch):
    both = Calibration("x", 4.0, BY_PROMPT, BY_PROMPT, predictor(*PROMPT_FEATURES, *ANSWER_FEATURES))
    loaded = calibrated(both, monkeypatch)
    session = LabSession(loaded)
    record = run(session, request(["dense", "naive"]))
    found = record.familiarity
    assert found is not None
    assert [a.agent for a in found.agents] == [1, 2, 3]
    for one in found.agents:
        dense = record.outcome(one.agent, "dense")
        ids = [*record.prompts[one.prompt].token_ids.tolist(), *dense.token_ids.tolist()]
        wanted = measured.surprisal(ModelRunner(loaded), ids)[1:].numpy()
        np.testing.assert_allclose(np.concatenate([one.tokens, one.answer])[1:], wanted, atol=1e-4)
        assert np.isnan(one.tokens[0])
    assert found.outlook.wrong is not None
    again = RunRecord.from_bytes(record.to_bytes())
    assert again.familiarity is not None
    assert again.familiarity.outlook == found.outlook
    bare = run(session, replace(request(["dense"]), probe_offsets=False))
    assert bare.familiarity is None


def test_measuring_counts_no_token_of_the_run(monkeypatch):
    both = Calibration("x", 4.0, *[predictor("values")] * 3)
    loaded = calibrated(both, monkeypatch)
    counts = []
    for probed in (True, False):
        record = run(LabSession(loaded), replace(request(["dense"]), probe_offsets=probed))
        counts.append([o.timing.forwarded_tokens for o in record.outcomes])
    assert counts[0] == counts[1]


def test_typing_reads_what_is_known_before_anybody_answers():
    session = LabSession(model(0))
    asked = request(["dense"])
    texts = [session.model.tokens.decode(p.ids) for p in familiarity.known_prompts(session, asked)]
    assert [text.split("\n")[0] for text in texts] == [
        "Solve the problem step by step.", "Check the work of the other agent.", "You are the judge.",
    ]  # fmt: skip
    assert all(QUESTIONS[0] in text for text in texts)
    assert texts[1].rstrip().endswith("Agent 1 wrote:")
    assert texts[2].rstrip().endswith("Candidate 1:")
    spans = familiarity.known_prompts(session, asked)[1].spans
    one = familiarity.reading(spans, asked.pipeline.inputs, np.ones(200, np.float32), np.zeros(0, np.float32))
    question = next(s for s in spans if s.name == "user_question")
    assert one.typed.sum() == question.end - question.start
    assert len(one.surprisal) == next(s.start for s in spans if s.name == "agent_1_current")


def test_features_leave_out_what_is_not_known():
    first = a_reading(np.nan, 1.0, 3.0, 5.0, typed=2)
    found = features([first], 4.0)
    expected = {"values": 4.0, "template": 1.0, "surprising": 1 / 3, "most": 5.0, "peak": 3.0}
    assert found == pytest.approx({name: math.log(value + FLOOR) for name, value in expected.items()})
    more = features([first, a_reading(2.0, answer=(0.5, 1.5, np.nan))], 4.0)
    assert more["template"] == math.log(1.5 + FLOOR)
    expected = {"answer": 1.0, "answer_most": 1.5, "last_answer": 1.0}
    assert {name: more[name] for name in expected} == pytest.approx(
        {name: math.log(value + FLOOR) for name, value in expected.items()}
    )
    written = features([replace(first, answer=np.array([2.0], np.float32)), a_reading(2.0)], 4.0)
    assert written["answer"] == math.log(2.0 + FLOOR), "the first agent's alone"
    assert "last_answer" not in written


def test_the_level_follows_from_the_chance_and_the_words_from_the_held_out_requests():
    calm, wild = [a_reading(0.1, 0.2, typed=1)], [a_reading(9.0, 9.0, typed=1)]
    by_values = predictor("values", bias=-1.0)
    good, bad = outlook(calm, (), 4.0, by_values), outlook(wild, ("armadillo",), 4.0, by_values)
    assert (good.level, good.like) == ("familiar", FEW)
    assert (bad.level, bad.like, bad.surprising) == ("unusual", MANY, 1.0)
    assert good.wrong < 0.25 < 0.75 < bad.wrong
    # without a calibration only the share of surprising tokens speaks
    assert [outlook(r, (), 4.0, None).level for r in (calm, wild)] == ["familiar", "unusual"]
    assert outlook(wild, (), 4.0, None).wrong is None


def test_a_calibration_belongs_to_its_weights(tmp_path: Path, monkeypatch):
    loaded = model(5)
    assert familiarity.calibration_file(loaded) is None
    monkeypatch.setattr(loaded.module, "name_or_path", str(tmp_path))
    found = Calibration(loaded.info.weights_hash, 4.0, *[predictor("values")] * 3)
    for saved, wanted in ((None, None), (replace(found, weights_hash="other"), None), (found, found)):
        familiarity._CALIBRATIONS.pop(loaded.module, None)
        if saved is not None:
            saved.save(tmp_path / familiarity.CALIBRATION)
        assert familiarity.calibration_of(loaded) == wanted
    (tmp_path / familiarity.CALIBRATION).write_text("[1]", encoding="utf-8")
    assert Calibration.load(tmp_path / familiarity.CALIBRATION) is None
    familiarity._CALIBRATIONS.pop(loaded.module, None)


def test_other_weights_are_compared_with_the_scenario_as_it_ships(monkeypatch):
    lab = Lab(LabSession(model(0)))
    preset = load_preset("math-3")
    shipped = RunRequest(preset.pipeline, preset_requests(preset, 1)[0].values, ())
    found = lab.familiarity(shipped)
    assert found is not None
    assert (found.wrong, found.level) == (None, "familiar")
    assert found.surprising <= 0.03
    # a pipeline that does not ship has nothing to be compared with
    assert lab.familiarity(request(["dense"])) is None
    # nor is anything measured that would take too long while somebody types
    monkeypatch.setattr(familiarity, "MOST_SECONDS", 0.0)
    assert lab.familiarity(shipped) is None


def test_while_somebody_types_the_first_agent_answers(monkeypatch):
    """Its answer decides what is said, where there is time for it; else the prompt does."""
    by_answer = predictor("answer")
    loaded = calibrated(Calibration("x", 4.0, BY_PROMPT, by_answer, by_answer), monkeypatch)
    lab = Lab(LabSession(loaded))
    asked = request(["dense"])
    found, record = lab.familiarity(asked), run(LabSession(loaded), asked)
    assert found is not None
    assert record.familiarity is not None
    nats = record.familiarity.agents[0].answer
    mean = float(nats[~np.isnan(nats)].mean())
    assert found.wrong == pytest.approx(by_answer.wrong({"answer": math.log(mean + FLOOR)}), abs=1e-4)
    tokens = sum(len(p.ids) for p in familiarity.known_prompts(lab.session, asked))
    monkeypatch.setattr(familiarity, "measured_speed", lambda *_: (1 / tokens, 1.0))
    monkeypatch.setattr(familiarity, "MOST_SECONDS", 1.5)
    slow = lab.familiarity(asked)
    assert slow is not None
    assert slow.wrong != found.wrong


def test_the_surprising_words_are_whole_and_those_that_were_typed_come_first():
    texts = ("", "Be", " brief", ".\n", "An", " arm", "ad", "illo", " has", " 3", ".")
    nats = np.array([np.nan, 9, 1, 0, 1, 2, 8, 3, 1, 7, 1], np.float32)
    typed = np.arange(len(texts)) >= 4
    one = Reading(nats, typed, np.zeros(0, np.float32))
    assert familiarity.surprising_words([(texts, one)], 5.0) == ("armadillo", "3")
    assert familiarity.surprising_words([(texts, one)], 8.5) == ("Be",)
    assert familiarity.surprising_words([(texts, one)], 10.0) == ()


def test_the_chat_templates_tokens_are_nobodys_words():
    """Without a question mark the token that opens the answer surprises, and nothing that was typed."""
    texts = ("<s>", "How", " many", "<a>")
    one = Reading(np.array([9, 1, 2, 9], np.float32), np.ones(4, bool), np.zeros(0, np.float32))
    assert familiarity.surprising_words([(texts, one)], 5.0, (1, 1)) == ()
    assert familiarity.surprising_words([(texts, one)], 1.5, (1, 1)) == ("many",)


def test_the_shipped_calibration_is_that_of_the_shipped_weights_and_of_its_report():
    folder = Path(__file__).parents[3]
    found = Calibration.load(folder / "presets" / "model" / familiarity.CALIBRATION)
    report = json.loads((folder / "benchmarks" / "results" / "familiarity-20.json").read_text("utf-8"))
    assert found is not None
    assert found.weights_hash == report["weights"]
    for name, one in (("prompt", found.prompt), ("first", found.first), ("run", found.run)):
        assert report[name]["curve"] == [[b.low, b.high, b.requests, b.wrong] for b in one.curve]


def test_rows_tell_how_usual_a_request_was_and_older_ones_still_count():
    known = {"level": "unusual", "surprising": 0.4, "words": ["x"], "wrong": 0.9, "like": None}
    outcomes = [
        {"agent": agent, "method": method, "correct": method == "naive"}
        for agent in (1, 2)
        for method in ("dense", "naive")
    ]
    rows = [{"index": i, "familiarity": known, "outcomes": outcomes} for i in (0, 0, 1)]
    rows.append({"index": 2, "familiarity": known | {"level": "familiar"}, "outcomes": outcomes})
    assert unusual(rows) == (
        "2 of 3 requests are unusual for the model; dense answered 2 of them wrongly, so what reuse changes "
        "there means little."
    )
    assert unusual([{"index": 0, "outcomes": outcomes}]) == ""


def test_a_predictor_finds_what_goes_with_wrong_answers():
    """Surprising values are answered wrongly; the template says nothing."""
    rng = np.random.default_rng(0)
    seen = []
    for kind in ("as it ships", "names", "words"):
        for _ in range(20):
            wrong = bool(rng.random() < (0.1 if kind == "as it ships" else 0.5))
            nats = rng.exponential(1.0, 40) + 8 * wrong * (np.arange(40) > 20)
            one = Reading(nats.astype(np.float32), np.arange(40) > 20, np.full(5, 0.1, np.float32))
            seen.append(CaseResult(kind, wrong, (one,)))
    found, worth = calibrate(model(0), seen)
    assert found.weights_hash == model(0).info.weights_hash
    assert sum(b.requests for b in found.prompt.curve) == 60
    assert worth["prompt"]["edits"]["auc"] > 0.95
    assert worth["prompt"]["within_kinds"]["auc"] > 0.95
    assert (
        worth["features"]["values"]["all"]["auc"] > 0.95 > 0.7 > worth["features"]["template"]["all"]["auc"]
    )
    with pytest.raises(OptionError, match=r"answered wrongly.*Raise --count"):
        calibrate(model(0), [one for one in seen if not one.wrong])


def test_batched_answers_are_those_of_a_run():
    loaded = model(0)
    one = Case("names", replace(request(["dense"]), expected="1"))
    two = Case("words", replace(request(["dense"], QUESTIONS[2]), expected="1"))
    for asked, seen in zip((one, two), answer_cases(loaded, [one, two]), strict=True):
        record = run(LabSession(loaded), asked.request)
        wrong = record.outcomes[-1].correct is not True
        assert (seen.kind, seen.wrong) == (asked.kind, wrong)
        for found, outcome in zip(seen.readings, record.outcomes, strict=True):
            assert len(found.answer) == len(outcome.token_ids)
