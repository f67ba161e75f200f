"""What a task of a sweep sends: its pipeline, its requests in each order, and how their answers are scored.

Free of the model, so that everything a file says can be refused before any model is loaded.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from backend.base.errors import OptionError, PromptError
from backend.base.text import show
from backend.judge.judge_lab import drawn_problem
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.records.judge import JudgeProblem
from backend.sweeps.datasets import FORMATS, Problem, read_problems, values_of
from backend.sweeps.spec import Data, JudgeTask, PipelineTask
from backend.sweeps.traces import read_trace

Item = TypeVar("Item")


@dataclass(frozen=True)
class Request:
    """One request: values of the outside placeholders, the known answers (any is right), their scorer, and
    what agents were recorded to answer (of a trace)."""

    number: int  # among the measured ones, from 1 in the order in which they are drawn; below 1: warm-up
    values: Mapping[str, str]
    golds: tuple[str, ...] = ()
    scorer: str = "none"
    recorded: Mapping[int, str] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Characters that the request gives."""
        return sum(map(len, self.values.values()))

    @property
    def example(self) -> Example:
        """As the session takes it; answers are scored here, not there."""
        return Example(self.values)


def pipeline_requests(
    task: PipelineTask, problems: int, warmup: int, seed: int
) -> tuple[Pipeline, list[Request]]:
    """A task's pipeline and its requests, warm-up first.

    Raises:
        LabError: a file cannot be read, holds too few problems, or does not fit the pipeline.
    """
    count = problems + warmup
    if task.trace is not None:
        pipeline, requests = read_trace(task.trace)
        _enough(len(requests), count, task.trace.name)
        drawn = [
            Request(number, r.values, (), "none", r.recorded)
            for number, r in enumerate(requests[:count], 1 - warmup)
        ]
        return pipeline, drawn
    preset = load_preset(task.pipeline)
    pipeline = task.fitted(preset.pipeline)
    if task.data is None:
        examples = preset_requests(preset, count, seed)
        scoring = pipeline.scoring
        return pipeline, [
            Request(n, e.values, () if e.answer is None else (e.answer,), scoring)
            for n, e in enumerate(examples, 1 - warmup)
        ]  # fmt: skip
    scorer = FORMATS[task.data.format].scorer
    return pipeline, [
        Request(n, values_of(p, pipeline, f"{task.data.path.name}, problem {n + warmup}"), p.golds, scorer)
        for n, p in enumerate(_sampled_problems(task.data, count, seed), 1 - warmup)
    ]  # fmt: skip


def judge_problems(task: JudgeTask, problems: int, warmup: int, seed: int) -> list[JudgeProblem]:
    """A judge task's problems, warm-up first, each with the number that seeds what is drawn for it.

    Raises:
        LabError: see :func:`pipeline_requests`.
    """
    numbers = range(1 - warmup, problems + 1)
    if task.data is None:
        request = replace(task.request, seed=seed)
        return [drawn_problem(request, number) for number in numbers]
    drawn = _sampled_problems(task.data, problems + warmup, seed)
    if any(p.documents for p in drawn):
        raise OptionError(
            f"{task.label}: a judge reads a question and candidates, but {task.data.format} has documents "
            "too. Choose gsm8k, mmlu, math500, aime or humaneval.",
            field="tasks",
        )
    return [
        JudgeProblem(n, p.question, (), task.request.regime, p.golds[0])
        for n, p in zip(numbers, drawn, strict=True)
    ]


def arranged(items: Sequence[Item], lengths: Sequence[int], order: str) -> list[Item]:
    """The same items in a request order; of two of one length the earlier drawn stands first.

    Args:
        lengths: of each item, in characters.
        order: *given*, *random*, *random:SEED*, *ascending* or *descending*.
    """
    if order == "given":
        return list(items)
    places = list(range(len(items)))
    if order.startswith("random"):
        random.Random(f"request order:{int(order.partition(':')[2] or 0)}").shuffle(places)
    else:
        places.sort(key=lambda place: lengths[place] * (1 if order == "ascending" else -1))
    return [items[place] for place in places]


def _sampled_problems(data: Data, count: int, seed: int) -> list[Problem]:
    every = read_problems(data.path, data.format)
    _enough(len(every), count, data.path.name)
    return random.Random(f"draw:{seed}").sample(every, count) if data.draw == "random" else every[:count]


def _enough(available: int, count: int, file: str) -> None:
    if available < count:
        raise PromptError(
            f"{count:,} problems are wanted, warm-up included, but {show(file)} holds {available:,}. Ask for "
            "fewer.",
            field="problems",
        )
