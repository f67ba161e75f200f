"""Which tokens two models would keep: received attention, Jaccard by budget, and chance."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny
import torch

from backend.base.errors import ModelError, OptionError
from backend.engine.engine import Engine
from backend.lab import Lab
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.records.token_overlap import OBSERVERS, OverlapRequest, TokenOverlap
from backend.session.session import LabSession
from backend.studies import token_overlap as probe
from backend.studies.token_overlap import expected_jaccard, keep, overlap, received, token_overlap
from viz.studies.token_overlap import views

JUDGE = Pipeline(
    "judge", "Judge", "For tests.",
    (Agent(1, "Judge", "", "Judge {user_question}\nA:\n{candidate_1}\nB:\n{candidate_2}\nThe best is:", 4),),
    ("candidate_1", "candidate_2"),
)  # fmt: skip
VALUES = tuple(
    {"user_question": q, "candidate_1": f"It has {n} of them left.", "candidate_2": f"The answer is {n + 1}."}
    for n, q in enumerate(tiny.QUESTIONS[:3])
)
ASKED = OverlapRequest(JUDGE, VALUES, (0.1, 0.5, 1.0), last_tokens=4, max_new_tokens=1)


def measure(asked: OverlapRequest = ASKED, other: int = 1) -> TokenOverlap:
    *_, found = token_overlap(tiny.model(), tiny.model(other), asked)
    assert isinstance(found, TokenOverlap)
    return found


@pytest.fixture(scope="module")
def record() -> TokenOverlap:
    return measure()


def test_received_attention_is_that_of_whole_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against transformers' own maps of all tokens by all tokens, in one piece and in several."""
    model, ids = tiny.model(), [1, *(5 + (i * 31) % 300 for i in range(49))]
    model.module.set_attn_implementation("eager")
    with torch.inference_mode():
        out = model.module(input_ids=torch.tensor([ids]), output_attentions=True)
    model.module.set_attn_implementation("sdpa")
    maps = torch.stack(out.attentions)[:, 0].mean((0, 1)).tril(-1).numpy()
    wanted = np.zeros((2, 50))
    for token in range(49):
        wanted[0, token] = maps[token + 1 :, token].mean()
        wanted[1, token] = maps[max(40, token + 1) :, token].mean()
    for chunk in (64, 16):
        monkeypatch.setattr(probe, "CHUNK_TOKENS", chunk)
        assert np.abs(received(Engine(model), ids, 10) - wanted).max() < 1e-6


def test_the_highest_scores_are_kept_and_of_equal_ones_the_earlier() -> None:
    scores = np.array([0.1, 0.5, 0.5, 0.9, 0.5], dtype=np.float32)
    assert keep(scores, 3) == {3, 1, 2}
    assert overlap(scores, scores, 2) == 1
    assert overlap(scores, scores[::-1].copy(), 2) == pytest.approx(1 / 3)  # {3, 1} and {1, 0}


def test_chance_is_the_mean_over_all_pairs_of_sets() -> None:
    sets = [set(c) for c in itertools.combinations(range(6), 4)]
    wanted = np.mean([len(a & b) / len(a | b) for a in sets for b in sets])
    assert expected_jaccard(6, 4) == pytest.approx(wanted)
    assert expected_jaccard(10, 10) == pytest.approx(1)


def test_a_model_keeps_what_it_keeps() -> None:
    same = measure(other=0)
    assert (same.jaccard == 1).all()
    assert np.allclose(same.correlation, 1)


def test_a_record_holds_candidates_alone_and_comes_back(record: TokenOverlap) -> None:
    assert record.jaccard.shape == (len(OBSERVERS), 3, 3)
    assert (record.jaccard[:, :, -1] == 1).all()  # everything kept
    assert np.allclose(record.chance[:, -1], 1)
    assert (record.jaccard[:, :, 0] < 1).any()
    said = "".join(record.texts)
    assert "left." in said
    assert "The answer is 1." in said
    assert "Judge" not in said
    assert record.slot.tolist() == sorted(record.slot.tolist())
    assert set(record.slot.tolist()) == {1, 2}
    assert record.kept[:, 1].tolist() == [round(n / 2) for n in record.tokens]
    again = TokenOverlap.from_bytes(record.to_bytes())
    assert np.array_equal(again.scores, record.scores)
    assert again.request == record.request


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budgets": ()}, "The budgets are none"),
        ({"budgets": (0.5, 0.2)}, "ascending"),
        ({"budgets": (0.0, 0.2)}, "shares over 0"),
        ({"budgets": (float("nan"),)}, "shares over 0"),
        ({"values": ()}, "0 requests were given"),
        ({"last_tokens": 0}, "1 to 1,024 are allowed"),
    ],
)
def test_what_is_out_of_range_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        measure(replace(ASKED, **change))


def test_a_pipeline_without_candidates_is_refused() -> None:
    alone = Pipeline("solo", "Solo", "For tests.", (Agent(1, "Solver", "", "Solve {user_question}", 2),))
    with pytest.raises(OptionError, match="reads no candidates"):
        measure(replace(ASKED, pipeline=alone, values=({"user_question": "2 + 2?"},)))


def test_another_tokenizer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = tiny.model(1)
    vocabulary = dict(other.tokens.tokenizer.get_vocab()) | {"new": 9999}

    class Other:
        def get_vocab(self) -> dict[str, int]:
            return vocabulary

    changed = replace(other, tokens=object.__new__(type(other.tokens)))
    object.__setattr__(changed.tokens, "tokenizer", Other())
    with pytest.raises(ModelError, match="another tokenizer"):
        list(token_overlap(tiny.model(), changed, ASKED))


def test_figures_hold_the_record(record: TokenOverlap) -> None:
    by_budget, scores = views(record)
    rows = list(csv.DictReader(io.StringIO(by_budget.csv())))
    assert len(rows) == 2 * 3
    assert float(rows[0]["Jaccard (mean)"]) == pytest.approx(record.jaccard[0, :, 0].mean(), abs=1e-6)
    assert float(rows[0]["Jaccard by chance"]) == pytest.approx(record.chance[:, 0].mean(), abs=1e-6)
    assert len(scores.rows) == 2 * 2 * len(record.texts)
    one = replace(record, jaccard=record.jaccard[:, :1], tokens=record.tokens[:1])
    assert "" in [r["95% from"] for r in csv.DictReader(io.StringIO(views(one)[0].csv()))]
    for view in (by_budget, scores):
        assert view.finding
        assert view.how_to_read
        assert view.json()


def test_a_session_measures_its_other_weights() -> None:
    session = LabSession(tiny.model(), others={"small": tiny.model(1)})
    *_, found = Lab(session).token_overlap(replace(ASKED, values=VALUES[:1]), "small")
    assert isinstance(found, TokenOverlap)
    assert found.other.weights_hash != found.model.weights_hash
    with pytest.raises(ModelError, match=r"no weights 'big'.*there are 'small'"):
        next(Lab(session).token_overlap(ASKED, "big"))
