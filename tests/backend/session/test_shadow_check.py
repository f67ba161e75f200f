"""Shadow dense: what the sampled checks say of all requests."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import tiny
from scipy.stats import binom
from tiny import QUESTIONS

from backend.base.errors import OptionError
from backend.base.row_file import RowFile
from backend.base.statistics import exact_share
from backend.engine.prefill import Prefill
from backend.methods.plan import Compute, Plan, Step
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.prompts.scoring import extract_answer
from backend.records.request import Decoding
from backend.records.run import RunRecord
from backend.session.session import LabSession
from backend.session.shadow_check import check_share, is_sampled
from backend.studies.batch import Batch, flip_rates, run_batch


def test_the_estimate_is_unbiased() -> None:
    """Over every way in which 8 requests can be drawn, with its probability."""
    flipped = [True, False, False, True, False, True, False, False]
    share, mean, some = 0.3, 0.0, 0.0
    for picks in product((False, True), repeat=len(flipped)):
        checked = sum(picks)
        if not checked:
            continue
        likely = share**checked * (1 - share) ** (len(flipped) - checked)
        flips = sum(f for f, p in zip(flipped, picks, strict=True) if p)
        mean += likely * exact_share(flips, checked).value
        some += likely
    assert mean / some == pytest.approx(3 / 8)
    nothing = exact_share(0, 0)
    assert math.isnan(nothing.value)
    assert (nothing.low, nothing.high) == (0.0, 1.0)


@pytest.mark.parametrize("checked", [1, 5, 20, 60])
def test_the_interval_covers_at_least_what_it_says(checked: int) -> None:
    """Exactly: over all outcomes of so many checks, for every true rate."""
    shares = [exact_share(flips, checked) for flips in range(checked + 1)]
    found = []
    for rate in np.linspace(0.0, 1.0, 201):
        likely = binom.pmf(np.arange(checked + 1), checked, rate)
        found.append(
            sum(p for p, share in zip(likely, shares, strict=True) if share.low <= rate <= share.high)
        )
    assert min(found) >= 0.95 - 1e-12
    assert max(found[1:-1]) < 1.0 or checked < 10


def test_the_interval_covers_in_a_served_stream() -> None:
    """The whole way: requests that flip at random, drawn by their keys."""
    rng = np.random.default_rng(0)
    held, estimates = 0, []
    for stream in range(300):
        flips = rng.random(120) < 0.15
        picked = np.array([is_sampled(0.25, 7, f"{stream}/{n}") for n in range(len(flips))])
        share = exact_share(int(flips[picked].sum()), int(picked.sum()))
        held += share.low <= 0.15 <= share.high
        estimates.append(share.value)
    assert held / 300 >= 0.94
    assert np.mean(estimates) == pytest.approx(0.15, abs=0.012)


def test_requests_are_drawn_by_their_key_at_the_share_asked() -> None:
    keys = [str(n) for n in range(20_000)]
    for share in (0.1, 0.5):
        assert np.mean([is_sampled(share, 0, k) for k in keys]) == pytest.approx(share, abs=0.012)
    assert [is_sampled(0.1, 0, k) for k in keys] == [is_sampled(0.1, 0, k) for k in keys]
    assert [is_sampled(0.1, 0, k) for k in keys] != [is_sampled(0.1, 1, k) for k in keys]
    assert not any(is_sampled(0.0, 0, k) for k in keys)
    assert all(is_sampled(1.0, 0, k) for k in keys)
    # a larger share checks what the smaller one did, and more
    assert all(is_sampled(0.5, 0, k) for k in keys if is_sampled(0.1, 0, k))


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan, math.inf])
def test_a_share_is_between_0_and_1(share: float) -> None:
    with pytest.raises(OptionError, match="allowed: 0 to 1") as refused:
        check_share(share)
    assert refused.value.field == "shadow"


def test_pinned_checks_cost_nothing_and_say_what_the_outcomes_say(tiny_model: LoadedModel) -> None:
    record = tiny.run(LabSession(tiny_model), tiny.request(("dense", "naive", "prefix"), shadow=True))
    dense = record.outcome(3, "dense")
    assert [c.method for c in record.shadow] == ["naive", "prefix"]
    for found in record.shadow:
        served = record.outcome(3, found.method)
        assert found.agent == 3
        assert found.forwarded_tokens == 0
        assert found.dense_answer == dense.answer
        same = served.text == dense.text if served.answer is None and dense.answer is None else None
        assert found.flipped is (served.answer != dense.answer if same is None else not same)
    assert not record.shadow[1].flipped
    assert record.shadow[0].flipped  # and there was something to find
    assert RunRecord.from_bytes(record.to_bytes()).shadow == record.shadow
    assert not tiny.run(LabSession(tiny_model), tiny.request(("dense", "naive"))).shadow


@pytest.mark.slow
def test_free_checks_read_the_methods_own_prompt_densely(tiny_model: LoadedModel) -> None:
    """What dense would have answered to that very prompt, at the price of reading it."""
    asked = tiny.request(("dense", "naive", "kvcomm"), mode="free", shadow=True)
    session = LabSession(tiny_model)
    record = tiny.run(session, asked)
    naive, kvcomm = record.shadow
    prompt = record.prompts[record.outcome(3, "naive").prompt]
    engine = session.engine
    cache, logits = engine.prefill(prompt.token_ids.tolist())
    plan = Plan((Step(0, len(prompt.token_ids), Compute("here")),), "dense", "here")
    written = Prefill(cache, logits, record.outcome(3, "naive").actions, 0, True, plan)
    [answer] = engine.decode([written], Decoding(max_new_tokens=8))
    text = tiny_model.tokens.decode(answer.ids)
    served = record.outcome(3, "naive")
    assert naive.dense_answer == extract_answer(text, asked.pipeline.scoring)
    if naive.dense_answer is None and served.answer is None:
        assert naive.flipped is (text != served.text)
    else:
        assert naive.flipped is (naive.dense_answer != served.answer)
    assert naive.forwarded_tokens >= len(prompt.token_ids)
    # with an empty pool KVCOMM read its prompt densely itself
    assert record.outcome(3, "kvcomm").state != "reused"
    assert (kvcomm.flipped, kvcomm.forwarded_tokens) == (False, 0)


@pytest.mark.slow
def test_a_batch_checks_the_share_it_was_asked_and_goes_on_with_it(
    tiny_model: LoadedModel, tmp_path: Path
) -> None:
    examples = tuple(Example({"user_question": q}) for q in QUESTIONS)
    batch = Batch(tiny.request(("dense", "naive")), examples, ("pinned",), shadow=0.5)
    path = tmp_path / "rows.jsonl"
    for _ in run_batch(LabSession(tiny_model), batch, path):
        pass
    rows = RowFile(path).rows()
    checked = [row for row in rows if row["shadow"]]
    assert 0 < len(checked) < len(rows)
    for row in rows:
        assert bool(row["shadow"]) is is_sampled(0.5, 0, row["key"])
    [line] = flip_rates(rows)
    assert (line["served"], line["checked"]) == (len(rows), len(checked))
    assert line["flipped"] == sum(row["shadow"]["naive"] for row in checked)
    assert line["flip_rate_ci"][0] <= line["flip_rate"] <= line["flip_rate_ci"][1]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    for _ in run_batch(LabSession(tiny_model), batch, path):
        pass
    assert [row["shadow"] for row in RowFile(path).rows()] == [row["shadow"] for row in rows]
    assert flip_rates([{"mode": "free", "shadow": {}}]) == []
    with pytest.raises(OptionError):
        list(run_batch(LabSession(tiny_model), replace(batch, shadow=2.0), path))
