"""How familiar a model is with a request, and how likely its answer is wrong. Free of torch.

*Surprisal* is minus the log probability that the model gives to a token behind those before it, in nats. A
small model that meets words it never learned is surprised by them and answers wrongly, with or without reuse.
How surprisal and wrong answers go together is learned from held-out requests and edits of them, once for
each model's weights (``kvlab calibrate-familiarity``). Other weights are compared with the scenario's own
requests, which shows what is unusual to them, not what they get wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.base.serialization import Floats, as_json, from_json
from backend.base.statistics import logistic

Level = Literal["familiar", "unsure", "unusual"]

#: What is known of a prompt before any agent answers, by name.
PROMPT_FEATURES: dict[str, str] = {
    "values": "mean surprisal of the texts from outside (the question)",
    "template": "mean surprisal of the template text",
    "surprising": "share of tokens over the familiar requests' 99% quantile",
    "peak": "highest mean surprisal of eight tokens in a row",
    "most": "surprisal of the most surprising token",
}
#: What is known in addition once dense has answered; of its first agent's answer alone, all but the last.
ANSWER_FEATURES: dict[str, str] = {
    "answer": "mean surprisal of the tokens that the agents wrote",
    "answer_most": "surprisal of the least sure token that the agents wrote",
    "last_answer": "mean surprisal of the last agent's answer",
}
IN_A_ROW = 8
USUAL = 99.0  # percentile of the familiar requests' surprisal; a token beyond it is surprising
SURE, UNSURE = 0.25, 0.75  # chances of a wrong answer up to which a request is familiar, and unsure
FLOOR = 1e-3  # nats; added before a feature's logarithm is taken
#: Of the tokens, without a calibration. In familiar requests it is 0.01 by the percentile's definition.
FEW, SOME = 0.03, 0.08


@dataclass(frozen=True)
class Reading:
    """The model's surprisal at one agent's prompt and at its answer.

    Attributes:
        surprisal: (tokens,) nats, of the part that is known before any agent answers; NaN where nothing
            predicts a token, or where it is filled in.
        typed: (tokens,) whether the token is of a text from outside, not of the template.
        answer: (answer tokens,) nats; none before the answer is there.
    """

    surprisal: Floats
    typed: NDArray[np.bool_]
    answer: Floats


def features(readings: Sequence[Reading], usual: float) -> dict[str, float]:
    """Features of a request over its agents, as logarithms: surprisals spread over orders of magnitude. What
    is not known is missing.

    Args:
        readings: its agents', in running order.
        usual: nats beyond which a token is surprising.
    """
    nats = np.concatenate([r.surprisal for r in readings])
    typed = np.concatenate([r.typed for r in readings])
    defined = ~np.isnan(nats)
    answers = [r.answer[~np.isnan(r.answer)] for r in readings]
    answer_nats = np.concatenate(answers)
    values: dict[str, float] = {}
    for name, part in (("values", nats[defined & typed]), ("template", nats[defined & ~typed])):
        if len(part):
            values[name] = float(part.mean())
    if defined.any():
        values |= {"surprising": surprising(readings, usual), "most": float(nats[defined].max())}
        values["peak"] = max(_peak(r.surprisal) for r in readings)
    if len(answer_nats):
        values |= {"answer": float(answer_nats.mean()), "answer_most": float(answer_nats.max())}
    if len(answers[-1]):
        values["last_answer"] = float(answers[-1].mean())
    return {name: math.log(max(value, 0.0) + FLOOR) for name, value in values.items()}


def surprising(readings: Sequence[Reading], usual: float) -> float:
    """Share of the known tokens beyond ``usual`` nats."""
    nats = np.concatenate([r.surprisal for r in readings])
    return float((nats[~np.isnan(nats)] > usual).mean())


def _peak(surprisal: Floats) -> float:
    """The highest mean of some tokens in a row; 0 without any."""
    nats = surprisal[~np.isnan(surprisal)]
    width = min(IN_A_ROW, len(nats))
    return float(np.convolve(nats, np.ones(width) / width, "valid").max()) if width else 0.0


def usual_surprisal(readings: Sequence[Reading]) -> float:
    """The nats beyond which a token surprises, from familiar requests."""
    nats = np.concatenate([r.surprisal for r in readings])
    return float(np.nanpercentile(nats, USUAL))


@dataclass(frozen=True)
class Bin:
    """Held-out requests whose predicted chance of a wrong answer lies in ``[low, high)``."""

    low: float
    high: float
    requests: int
    wrong: int


@dataclass(frozen=True)
class Predictor:
    """The chance that dense answers wrongly, by a logistic regression.

    Attributes:
        features, mean, scale, weight: one entry each; a feature enters as (value - mean) / scale, and as 0
            where it is not known.
        curve: how often held-out requests were answered wrongly, by the chance that was predicted for them
            by a fit that did not know them.
    """

    features: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    weight: tuple[float, ...]
    bias: float
    curve: tuple[Bin, ...]

    def wrong(self, values: Mapping[str, float]) -> float:
        """The chance of a wrong answer."""
        return logistic(values, self.features, self.mean, self.scale, self.weight, self.bias)

    def like(self, chance: float) -> Bin:
        """The held-out requests for which about the same was predicted."""
        return next((b for b in self.curve if chance < b.high), self.curve[-1])


@dataclass(frozen=True)
class Calibration:
    """The predictors of one model's weights.

    Attributes:
        weights_hash: of the weights that it holds for.
        usual: nats beyond which a token is surprising.
        prompt: from the prompt alone.
        first: from the prompt and the first agent's answer, while it is typed.
        run: from the prompt and dense's answers, after a run.
    """

    weights_hash: str
    usual: float
    prompt: Predictor
    first: Predictor
    run: Predictor

    def save(self, path: Path) -> Path:
        """Write it as JSON."""
        path.write_text(json.dumps(as_json(self), indent=1) + "\n", encoding="utf-8")
        return path

    @staticmethod
    def load(path: Path) -> Calibration | None:
        """Read a saved one; None where the file is missing or holds none."""
        try:
            return from_json(Calibration, json.loads(path.read_text("utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True)
class Outlook:
    """What surprisal predicts of dense's answer.

    Attributes:
        level: in words; *unusual*: the model will probably be wrong, as far as that can be told.
        surprising: share of the known tokens that surprise the model more than ``USUAL`` percent of the
            tokens of familiar requests do.
        words: the most surprising words, those of the texts from outside first.
        wrong: the chance of a wrong answer; None where the weights have no calibration.
        like: the held-out requests with about this chance, for the same weights.
    """

    level: Level
    surprising: float
    words: tuple[str, ...]
    wrong: float | None = None
    like: Bin | None = None


def outlook(
    readings: Sequence[Reading], words: tuple[str, ...], usual: float, predictor: Predictor | None
) -> Outlook:
    """The outlook of a request from its readings; without a predictor, from the share of surprising tokens.

    Args:
        usual: nats beyond which a token surprises.
    """
    share = surprising(readings, usual)
    if predictor is None:
        return Outlook("familiar" if share <= FEW else "unsure" if share <= SOME else "unusual", share, words)
    wrong = predictor.wrong(features(readings, usual))
    level: Level = "familiar" if wrong < SURE else "unsure" if wrong < UNSURE else "unusual"
    return Outlook(level, share, words, wrong, predictor.like(wrong))


@dataclass(frozen=True)
class AgentSurprisal:
    """How surprised the model was, reading one agent's prompt and dense's answer to it.

    Attributes:
        prompt: index into ``RunRecord.prompts``.
        tokens: (prompt tokens,) nats; NaN for the first, and for results that were filled in.
        answer: (answer tokens,) nats.
    """

    agent: int
    prompt: int
    tokens: Floats
    answer: Floats


@dataclass(frozen=True)
class Familiarity:
    """A run's surprisal under dense, and its outlook; a token beyond ``usual`` nats surprises."""

    agents: tuple[AgentSurprisal, ...]
    usual: float
    outlook: Outlook
