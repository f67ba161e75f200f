"""Predictors of dense's wrong answers from surprisal, fitted on held-out requests with and without edits.

Every request is read densely; its features are those of :mod:`backend.records.familiarity`, its label is
whether the final answer is wrong. Three predictors are fitted: on the prompts alone, on prompts and the first
agent's answer (for use while somebody types), and on all answers of dense.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.base.statistics import bootstrap_interval
from backend.engine.engine import Engine
from backend.judge.gate_training import Line, fit
from backend.methods.dense import dense_plan
from backend.model.load import LoadedModel
from backend.prompts.presets import load_preset
from backend.prompts.scoring import extract_answer, right
from backend.prompts.tasks import Document, Style, make_document
from backend.prompts.tasks.arithmetic import draw_problem
from backend.records.familiarity import (
    ANSWER_FEATURES,
    FEW,
    FLOOR,
    PROMPT_FEATURES,
    SOME,
    SURE,
    UNSURE,
    Bin,
    Calibration,
    Predictor,
    Reading,
    features,
    surprising,
    usual_surprisal,
)
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding, RunRequest
from backend.session.familiarity import COMPARED, reading, surprisals
from backend.studies.task_requests import as_request
from backend.training.edits import DENSE, FAMILIES, PIPELINES, PRESET, edited_request
from backend.training.evaluate import marks, share

UNEDITED = "as it ships"  # kinds of request in the presets' words, of the preset or of a family
FOLDS, PENALTY = 5, 1.0
EDGES = (0.0, 0.1, SURE, UNSURE, 0.9, 1.0)  # of the curve's bins
AUC_RESAMPLES = 1000
BATCH = 16
Booleans = NDArray[np.bool_]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A held-out request, and how to tell whether its final answer is right."""

    kind: str
    request: RunRequest
    document: Document | None = None

    def right(self, text: str) -> bool:
        """Whether dense's final text is right."""
        if self.document is not None:
            return marks(self.document, text)["selection" if self.document.task == "judge" else "answer"]
        scoring = self.request.pipeline.scoring
        return right(extract_answer(text, scoring), self.request.expected or "", scoring)


@dataclass(frozen=True)
class CaseResult:
    """A request that dense has answered."""

    kind: str
    wrong: bool
    readings: tuple[Reading, ...]

    @property
    def edited(self) -> bool:
        return not self.kind.endswith(UNEDITED)


def held_out_requests(count: int, seed: int) -> Iterator[Case]:
    """``count`` requests of each kind: the preset as it ships and with every edit; each family's documents in
    the presets' words and in words that training never shows."""
    rng = random.Random(f"familiarity:{seed}")
    pipeline = load_preset(PRESET).pipeline
    for _ in range(count):
        problem = draw_problem(rng, True, 3, None, Style("stock"))
        values = {"user_question": problem.question}
        yield Case(UNEDITED, RunRequest(pipeline, values, DENSE, expected=str(problem.answer)))
    for kind in PIPELINES:
        for _ in range(count):
            yield Case(kind, edited_request(rng, kind))
    for family in FAMILIES:
        for kind, style in ((f"{family}, {UNEDITED}", Style("stock")), (family, Style("unseen"))):
            for _ in range(count):
                document = make_document(rng, family, held_out=True, style=style)
                yield Case(kind, as_request(document, DENSE), document)


def answer_cases(model: LoadedModel, cases: Sequence[Case]) -> Iterator[CaseResult]:
    """Read requests densely and answer them, ``BATCH`` at a time, agent by agent."""
    engine = Engine(model)
    for start in range(0, len(cases), BATCH):
        part = cases[start : start + BATCH]
        texts: list[dict[str, tuple[int, ...]]] = [
            {name: model.tokens.encode(text) for name, text in case.request.values.items()} for case in part
        ]
        readings: list[list[Reading]] = [[] for _ in part]
        final = [""] * len(part)
        for step in range(max(len(case.request.pipeline.order) for case in part)):
            active = [i for i, case in enumerate(part) if step < len(case.request.pipeline.order)]
            prompts = [_prompt(model, part[i].request, step, texts[i]) for i in active]
            longest = max(part[i].request.pipeline.longest_answer for i in active)
            prefills = [engine.execute(p, dense_plan(p, "calibration"), Clock()) for p in prompts]
            decoded = engine.decode(prefills, Decoding(max_new_tokens=longest))
            for i, prompt, answer in zip(active, prompts, decoded, strict=True):
                pipeline = part[i].request.pipeline
                prompt_nats, answer_nats = surprisals(model, prompt.ids, answer.ids)
                readings[i].append(reading(prompt.spans, pipeline.inputs, prompt_nats, answer_nats))
                texts[i][pipeline.output(prompt.agent)] = answer.ids
                final[i] = model.tokens.decode(answer.ids)
        for case, case_readings, text in zip(part, readings, final, strict=True):
            yield CaseResult(case.kind, not case.right(text), tuple(case_readings))


def _prompt(
    model: LoadedModel, request: RunRequest, step: int, texts: dict[str, tuple[int, ...]]
) -> TokenizedPrompt:
    agent = request.pipeline.order[step]
    holes = (hole.name for hole in request.pipeline.template(agent).placeholders)
    return model.tokens.prompt(request.pipeline, agent, {name: texts.get(name, ()) for name in holes})


# -- fitting


def calibrate(model: LoadedModel, results: Sequence[CaseResult]) -> tuple[Calibration, dict[str, Any]]:
    """A calibration and a report of its quality.

    Raises:
        OptionError: all requests were answered rightly, or all wrongly.
    """
    wrong = np.array([case.wrong for case in results])
    edited = np.array([case.edited for case in results])
    if min(wrong.sum(), (~wrong).sum()) < FOLDS:
        raise OptionError(
            f"{wrong.sum()} of {len(wrong)} held-out requests were answered wrongly; at least {FOLDS} wrong "
            "and right ones are needed. Raise --count.",
            field="count",
        )
    usual_readings = [r for case in results if not case.edited and not case.wrong for r in case.readings]
    usual = usual_surprisal(usual_readings)
    rows = [features(case.readings, usual) for case in results]
    report: dict[str, Any] = {"usual_nats": round(usual, 3)}
    report["kinds"] = {
        kind: share(sum(case.wrong for case in group), len(group))
        for kind in dict.fromkeys(case.kind for case in results)
        if (group := [case for case in results if case.kind == kind])
    }
    names = (*PROMPT_FEATURES, *ANSWER_FEATURES)
    columns = np.array([[row.get(name, np.nan) for name in names] for row in rows])
    report["features"] = {
        name: _worth(np.nan_to_num(columns[:, i], nan=np.log(FLOOR)), wrong, edited)
        for i, name in enumerate(names)
    }
    report["relative"] = _relative(results, wrong, edited)
    kinds = np.array([case.kind for case in results])
    prompt, report["prompt"] = _predictor(tuple(PROMPT_FEATURES), columns, wrong, edited, kinds)
    run, report["run"] = _predictor(names, columns, wrong, edited, kinds)
    typed = [features(_first_answer(case.readings), usual) for case in results]
    first_names = names[:-1]  # without the feature of the last answer
    columns = np.array([[row.get(name, np.nan) for name in first_names] for row in typed])
    first, report["first"] = _predictor(first_names, columns, wrong, edited, kinds)
    return Calibration(model.info.weights_hash, usual, prompt, first, run), report


def _first_answer(readings: Sequence[Reading]) -> list[Reading]:
    """The readings when only the first agent has answered."""
    return [readings[0], *(replace(reading, answer=reading.answer[:0]) for reading in readings[1:])]


def _predictor(
    names: tuple[str, ...], columns: Numbers, wrong: Booleans, edited: Booleans, kinds: NDArray[np.str_]
) -> tuple[Predictor, dict[str, Any]]:
    """A fit on all requests, and its AUC by cross-validation: over requests, and over kinds of request (each
    kind scored by a fit on the others)."""
    inputs = columns[:, : len(names)]
    draws = np.random.default_rng(0).permutation(len(wrong))
    fold = np.empty(len(wrong), dtype=np.int64)
    for group in (draws[wrong[draws]], draws[~wrong[draws]]):  # each fold gets its share of both
        fold[group] = np.arange(len(group)) % FOLDS
    score = _out_of_fold(inputs, wrong, fold)
    curve = []
    for low, high in pairwise(EDGES):
        in_bin = (score >= low) & ((score < high) | (high == EDGES[-1]))
        curve.append(Bin(low, high, int(in_bin.sum()), int(wrong[in_bin].sum())))
    line: Line = fit(inputs, wrong, PENALTY)
    mean, scale, weight = (tuple(map(float, part)) for part in (line.mean, line.scale, line.weight))
    whole = Predictor(names, mean, scale, weight, line.bias, tuple(curve))
    worth = _worth(score, wrong, edited)
    unseen = _out_of_fold(inputs, wrong, np.unique(kinds, return_inverse=True)[1])
    worth["kinds_left_out"] = _worth(unseen, wrong, edited)
    worth["within_kinds"] = _within(score, wrong, kinds)
    worth["curve"] = [[b.low, b.high, b.requests, b.wrong] for b in curve]
    return whole, worth


def _out_of_fold(columns: Numbers, wrong: Booleans, fold: NDArray[np.int64]) -> Numbers:
    """(requests,): each request's predicted chance, by the fit without its fold."""
    score = np.empty(len(wrong))
    for part in np.unique(fold):
        line = fit(columns[fold != part], wrong[fold != part], PENALTY)
        score[fold == part] = line.predict(columns[fold == part])
    return score


def _relative(results: Sequence[CaseResult], wrong: Booleans, edited: Booleans) -> dict[str, Any]:
    """AUC of the score for weights without a calibration: the share of tokens with more surprisal than usual
    in a few requests of the scenario as it ships. Also the shares of wrong answers at its levels."""
    scenarios: dict[str, float] = {}
    for kind in dict.fromkeys(case.kind for case in results):
        if kind.endswith(UNEDITED):
            few = [r for case in [s for s in results if s.kind == kind][:COMPARED] for r in case.readings]
            scenarios[kind] = usual_surprisal(few)
    score = np.array(
        [surprising(
            case.readings, scenarios.get(f"{case.kind.split(',')[0]}, {UNEDITED}", scenarios[UNEDITED])
        ) for case in results]
    )  # fmt: skip
    worth = _worth(score, wrong, edited)
    levels = (score <= FEW, (score > FEW) & (score <= SOME), score > SOME)
    worth["wrong_at"] = {
        name: share(int(wrong[at_level].sum()), int(at_level.sum()))
        for name, at_level in zip(("familiar", "unsure", "unusual"), levels, strict=True)
        if at_level.any()
    }
    return worth


def _worth(score: Numbers, wrong: Booleans, edited: Booleans) -> dict[str, Any]:
    """AUC of a score against *dense is wrong*, over all requests and over the edited ones."""
    return {"all": _auc(score, wrong), "edits": _auc(score[edited], wrong[edited])}


def _within(score: Numbers, wrong: Booleans, kinds: NDArray[np.str_]) -> dict[str, Any]:
    """AUC among requests of the same kind: pairs of a wrong and a right one of which the wrong one scores
    higher, over all such pairs. Most kinds are nearly all right or all wrong, so there are few."""
    ahead, pairs = 0.0, 0
    for kind in np.unique(kinds):
        bad, good = score[wrong & (kinds == kind)], score[~wrong & (kinds == kind)]
        ahead += float((np.sign(bad[:, None] - good) / 2 + 0.5).sum())
        pairs += len(bad) * len(good)
    return {"auc": round(ahead / pairs, 3) if pairs else None, "pairs": pairs}


def _auc(score: Numbers, wrong: Booleans) -> dict[str, Any] | None:
    if not wrong.any() or wrong.all():
        return None

    ahead = np.sign(score[wrong][:, None] - score[~wrong]) / 2 + 0.5

    def resampled_auc(places: NDArray[np.int64]) -> Numbers:
        """AUC of each draw: pairs in order, weighted by how often both were drawn."""
        counts = np.array([np.bincount(row, minlength=len(wrong)) for row in places], dtype=float)
        bad, good = counts[:, wrong], counts[:, ~wrong]
        pairs = bad.sum(axis=1) * good.sum(axis=1)
        return np.asarray(((bad @ ahead) * good).sum(axis=1)[pairs > 0] / pairs[pairs > 0])

    low, high = bootstrap_interval(resampled_auc, len(wrong), AUC_RESAMPLES)
    return {
        "auc": round(float(ahead.mean()), 3), "ci": [round(low, 3), round(high, 3)],
        "n": len(wrong), "wrong": int(wrong.sum()),
    }  # fmt: skip
