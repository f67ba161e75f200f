"""Which tokens two models would keep: received attention, Jaccard by budget, and chance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tiny
import torch

from backend.engine.engine import Engine
from backend.reproduce import overlap as token_overlap


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
        monkeypatch.setattr(token_overlap, "CHUNK_TOKENS", chunk)
        assert np.abs(token_overlap.attention_received(Engine(model), ids, 10) - wanted).max() < 1e-6


def test_the_highest_scores_are_kept_and_of_equal_ones_the_earlier() -> None:
    scores = np.array([0.1, 0.5, 0.5, 0.9, 0.5], dtype=np.float32)
    assert token_overlap.keep(scores, 3) == {3, 1, 2}
    assert token_overlap.overlap(scores, scores, 2) == 1
    assert token_overlap.overlap(scores, scores[::-1].copy(), 2) == pytest.approx(1 / 3)  # {3, 1} and {1, 0}


def test_chance_is_the_mean_over_all_pairs_of_sets() -> None:
    sets = [set(c) for c in itertools.combinations(range(6), 4)]
    wanted = np.mean([len(a & b) / len(a | b) for a in sets for b in sets])
    assert token_overlap.expected_jaccard(6, 4) == pytest.approx(wanted)
    assert token_overlap.expected_jaccard(10, 10) == pytest.approx(1)
