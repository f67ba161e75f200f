"""A trained risk gate, and the features by which it decides whether reuse will keep the judge's selection.

Source: judge study, Section 7. Its *correctness signals* need the expected answer, which a judge does not
have, so they are no features here; agreement among the candidates stands in for them. Nothing here looks at
the dense result. Free of torch.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from backend.base.errors import RecordError
from backend.base.serialization import as_json, from_json
from backend.base.statistics import logistic
from backend.prompts.scoring import Scoring, extract_answer

EVERY = "every method"  # the target that is safe when no method changes the selection

#: Known from the candidates' texts, before anything is copied or read.
TEXT_FEATURES: dict[str, str] = {
    "candidates": "number of candidates",
    "agreement": "share of candidates with the most frequent answer",
    "answers": "different answers per candidate",
    "unread": "share of candidates without a readable answer",
    "first_agrees": "the first candidate gives the most frequent answer",
    "similarity_mean": "mean similarity of two candidates",
    "similarity_low": "similarity of the least similar two",
    "similarity_high": "similarity of the most similar two",
    "length_mean": "words of a candidate (logarithm of the mean)",
    "length_spread": "spread of the candidates' lengths over their mean",
}
#: Known of one method once it has planned and the last prompt token was read over its own cache.
OWN_FEATURES: dict[str, str] = {
    "entropy_mean": "mean entropy of the gate over the candidates",
    "entropy_high": "highest entropy of the gate",
    "margin": "top-2 gap of the first token over the method's own cache",
}


def text_features(texts: Sequence[str], scoring: Scoring) -> dict[str, float]:
    """Features of a candidate set, from its texts in the judge's order.

    Args:
        texts: the candidates, two or more.
        scoring: how a candidate's answer is read off; where the judge is scored by its selection, the
            candidates end in a number.
    """
    answers = [extract_answer(text, "number" if scoring == "selection" else scoring) for text in texts]
    counts = Counter(a for a in answers if a is not None)
    most = max(counts.values(), default=0)
    words = [text.casefold().split() for text in texts]
    similarities = [_jaccard(set(a), set(b)) for a, b in combinations(words, 2)] or [1.0]
    lengths = [len(w) for w in words]
    mean = statistics.fmean(lengths)
    return {
        "candidates": float(len(texts)),
        "agreement": most / len(texts),
        "answers": len(counts) / len(texts),
        "unread": answers.count(None) / len(texts),
        "first_agrees": float(answers[0] is not None and counts[answers[0]] == most),
        "similarity_mean": statistics.fmean(similarities),
        "similarity_low": min(similarities),
        "similarity_high": max(similarities),
        "length_mean": math.log1p(mean),
        "length_spread": statistics.pstdev(lengths) / mean if mean else 0.0,
    }


def _jaccard(a: set[str], b: set[str]) -> float:
    return len(a & b) / len(a | b) if a | b else 1.0


def own_features(entropies: Sequence[float], margin: float | None) -> dict[str, float]:
    """What is known of one method at the judge; what is not known is missing.

    Args:
        entropies: of its gate, over the candidates; ``margin``: top-2 gap of its own first token.
    """
    features = {} if margin is None else {"margin": margin}
    if entropies:
        features |= {"entropy_mean": statistics.fmean(entropies), "entropy_high": max(entropies)}
    return features


@dataclass(frozen=True)
class RiskGate:
    """A trained gate: a logistic regression over named features, and the threshold it decides by.

    Attributes:
        target: ``EVERY``, or the label of the method it was trained for.
        weights_hash: the model's whose judgements it learned from; on others it says nothing.
        features, mean, scale, weight: one entry each; a feature enters as (value - mean) / scale, and as 0
            where it is not known.
        threshold: least probability of *safe* at which reuse is kept.
    """

    target: str
    weights_hash: str
    scoring: Scoring
    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weight: tuple[float, ...]
    bias: float
    threshold: float

    def safe(self, features: Mapping[str, float]) -> float:
        """Probability that reuse keeps the selection."""
        return logistic(features, self.features, self.mean, self.scale, self.weight, self.bias)

    def save(self, path: Path) -> Path:
        """Write the gate as JSON."""
        path.write_text(json.dumps(as_json(self), indent=1) + "\n", encoding="utf-8")
        return path

    @staticmethod
    def load(path: Path) -> RiskGate:
        """Read a saved gate.

        Raises:
            RecordError: the file is missing or holds no gate.
        """
        try:
            gate = from_json(RiskGate, json.loads(path.read_text("utf-8")))
            widths = {len(gate.features), len(gate.mean), len(gate.scale), len(gate.weight)}
            if len(widths) != 1 or not math.isfinite(gate.safe({})) or not all(gate.scale):
                raise ValueError("its lists do not fit together")
        except OSError as error:
            raise RecordError(
                f"The gate {path.name} cannot be read: {error.strerror}. Choose another file."
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise RecordError(
                f"{path.name} holds no risk gate. Choose a file that training a gate wrote."
            ) from None
        return gate
