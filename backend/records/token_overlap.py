"""Which tokens several models would compute again: what was asked, and the record. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.serialization import Floats, Saved
from backend.prompts.pipeline import Pipeline
from backend.records.model_info import ModelInfo

OVERLAP_FORMAT = 1
MOST_OVERLAPPED = 200

#: Whose attention decides what is kept: that of every later token, or of the prompt's last ones alone.
OBSERVERS: dict[str, str] = {"every": "every later token", "last": "the prompt's last tokens"}


@dataclass(frozen=True)
class OverlapRequest:
    """Which candidate tokens two models of one tokenizer would keep (judge study, Fig. 5).

    Attributes:
        pipeline: its judge (else its last agent) reads the candidates.
        values: one request each; texts are those that the first model generates densely, for both.
        budgets: shares of the candidates' tokens that are kept, ascending.
        last_tokens: how many tokens at the prompt's end observe, where only the last do.
    """

    pipeline: Pipeline
    values: tuple[Mapping[str, str], ...]
    budgets: tuple[float, ...] = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    last_tokens: int = 16
    max_new_tokens: int = 96


@dataclass(frozen=True)
class TokenOverlap(Saved):
    """Kept tokens of two models, over several prompts.

    A token's score is the attention it receives: mean over layers, heads and the observers that stand behind
    it. The highest scores are kept.

    Attributes:
        agent: whose prompts.
        tokens: (prompts,) candidate tokens; ``kept`` (prompts, budgets) how many of them each model keeps.
        jaccard: (observers, prompts, budgets) of the two kept sets, in the order of ``OBSERVERS``.
        chance: (prompts, budgets) the same of two sets drawn at random, in expectation.
        correlation: (observers, prompts) Spearman's rho of the two models' scores.
        texts: the first prompt's candidate tokens; ``scores`` (observers, 2, tokens) their scores, this
            model's and the other's; ``places`` (tokens,) where they stand; ``slot`` (tokens,) in which slot,
            from 1.
    """

    request: OverlapRequest
    model: ModelInfo
    other: ModelInfo
    agent: int
    tokens: NDArray[np.int64]
    kept: NDArray[np.int64]
    jaccard: NDArray[np.float64]
    chance: NDArray[np.float64]
    correlation: NDArray[np.float64]
    texts: tuple[str, ...]
    scores: Floats
    places: NDArray[np.int64]
    slot: NDArray[np.int64]
    wall_ms: float
    format: int = OVERLAP_FORMAT
