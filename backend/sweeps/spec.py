"""What a sweep compares, over what, and how often; :mod:`backend.sweeps.read` reads it from YAML such as

::

    name: order-of-requests
    tasks:
      - pipeline: math-{agents}          # a preset's name or a YAML file; {agents} is one of `agents`
        agents: [2, 4]
      - pipeline: mmlu-paper             # of its five agents the first ones and the last
        agents: [2, 3]
      - pipeline: gsm8k-paper
        data: gsm8k_test.jsonl           # beside the sweep file; format says how to read it
        format: gsm8k
      - pipeline: documents-10           # with places for as many documents as the problems bring
        documents: 20
        data: musique.jsonl
        format: musique
      - {pipeline: gsm8k-paper-5, data: hub, format: gsm8k}  # the same from the hub
      - judge: {regime: [parallel, progressive], orders: "identity,shuffle:0"}
      - trace: prompts.jsonl             # prompts that agents of another system were sent
    methods: [dense, naive, {name: kvcomm, gamma: [0.1, 0.5], capacity: 20}]
    request_orders: [given, random:1, ascending, descending]
    temperature: [0, 0.7]
    problems: 60
    against: [dense, {request_order: given}]   # what a line is compared with, problem by problem

Every value that is a list is an axis of the grid, but for ``against`` (:mod:`backend.sweeps.baselines`).
Dense is added where it is missing. ``warmups: 20`` repeats everything behind so many independent draws of
warm-up and problems, and the lines are over all of them. ``problems``, ``warmup``, ``budget_mb`` and
``measure_cache`` are the sweep's, one value each. ``max_new_tokens`` and ``temperature`` are those of
pipelines and traces; a judge has its own two, which may be lists too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from backend.prompts.pipeline import Pipeline
from backend.prompts.resize import team
from backend.prompts.resize_documents import with_documents
from backend.records.judge import JudgeRequest
from backend.records.request import MethodChoice, Mode
from backend.records.sweep import Axis, Baseline
from backend.sweeps.hub import HubData

Draw = Literal["first", "random"]


@dataclass(frozen=True)
class Data:
    """Problems of a local file or of the hub. ``draw``: the first ones, or others for every seed."""

    path: Path | HubData
    format: str
    draw: Draw = "first"


@dataclass(frozen=True)
class PipelineTask:
    """Agents that answer requests: the preset's own (``data`` None) or a file's. ``trace``: a file of prompts
    with the answers that were recorded, from which pipeline and requests are made. ``agents``: how many of
    the pipeline's work (:mod:`backend.prompts.resize`); ``documents``: how many it reads
    (:mod:`backend.prompts.resize_documents`)."""

    label: str
    pipeline: str | Path = ""
    data: Data | None = None
    trace: Path | None = None
    turns: int | None = None
    agents: int | None = None
    documents: int | None = None

    def fitted(self, pipeline: Pipeline) -> Pipeline:
        """The pipeline with as many agents, documents and turns as the task asks for.

        Raises:
            PromptError: it cannot have so many.
        """
        if self.agents is not None:
            pipeline = team(pipeline, self.agents)
        if self.documents is not None:
            pipeline = with_documents(pipeline, self.documents)
        return pipeline if self.turns is None else replace(pipeline, turns=self.turns)


@dataclass(frozen=True)
class JudgeTask:
    """Candidates before a judge; ``request`` has everything but problems, count, seed and methods.

    ``max_new_tokens`` (of the judge, which is greedy) and ``temperatures`` (of the agents that write the
    candidates) are axes; None is the request's own.
    """

    label: str
    request: JudgeRequest
    data: Data | None = None
    max_new_tokens: tuple[int | None, ...] = (None,)
    temperatures: tuple[float | None, ...] = (None,)


Task = PipelineTask | JudgeTask


@dataclass(frozen=True)
class Sweep:
    """A grid: every task, on every model, in every mode and request order, with every seed, under every
    method.

    Attributes:
        request_orders: *given*; *random* or *random:SEED*; *ascending* and *descending* by the number of
            characters that a request gives (KVCOMM, Table 4). The problems are the same in every order.
        max_new_tokens, temperatures: of pipelines; None is the pipeline's longest answer.
        against: what lines are compared with.
        problems: measured ones of each cell; ``warmup`` further ones before them only fill the pools.
        warmups: independent draws of both, a seed each, that the lines are averaged over.
        measure_cache: also measure how far off each method's cache is (pinned; costs time, not TTFT).
        budget_mb: what a cell's pools may hold.
        source: the file's text, and below it what was read from the hub, with its commit.
    """

    name: str
    tasks: tuple[Task, ...]
    methods: tuple[MethodChoice, ...]
    title: str = ""
    models: tuple[str, ...] = ("embedded",)
    modes: tuple[Mode, ...] = ("pinned",)
    request_orders: tuple[str, ...] = ("given",)
    seeds: tuple[int, ...] = (0,)
    problems: int = 20
    warmup: int = 0
    warmups: int = 1
    max_new_tokens: tuple[int | None, ...] = (None,)
    temperatures: tuple[float, ...] = (0.0,)
    measure_cache: bool = False
    budget_mb: int = 4096
    against: tuple[Baseline, ...] = ()
    source: str = ""

    @property
    def lines(self) -> int:
        """How many lines its summary will have: every method in every cell."""
        of_tasks = 0
        for task in self.tasks:
            how = task if isinstance(task, JudgeTask) else self
            orders = len(task.request.orders) if isinstance(task, JudgeTask) else 1
            of_tasks += orders * len(how.max_new_tokens) * len(how.temperatures)
        axes = (self.models, self.modes, self.request_orders, self.seeds, self.methods)
        return of_tasks * math.prod(map(len, axes))

    @property
    def files(self) -> tuple[Path, ...]:
        """What it reads beside its own text: pipelines, problems and traces."""
        named: list[object] = [task.data.path for task in self.tasks if task.data]
        for task in self.tasks:
            if isinstance(task, PipelineTask):
                named += [task.pipeline, task.trace]
        return tuple(path for path in named if isinstance(path, Path))

    @property
    def axes(self) -> dict[Axis, tuple[str | int | float, ...]]:
        """The values along which lines can be compared."""
        judges = [task for task in self.tasks if isinstance(task, JudgeTask)]
        parts: list[Sweep | JudgeTask] = [*judges, *[self] * (len(judges) < len(self.tasks))]
        axes: dict[Axis, Sequence[str | int | float | None]] = {
            "method": [choice.label for choice in self.methods],
            "task": [task.label for task in self.tasks],
            "model": self.models,
            "mode": self.modes,
            "request_order": self.request_orders,
            "judge_order": [order.label for task in judges for order in task.request.orders],
            "max_new_tokens": [tokens for how in parts for tokens in how.max_new_tokens],
            "temperature": [value for how in parts for value in how.temperatures],
        }
        return {
            name: tuple(dict.fromkeys(v for v in values if v is not None)) for name, values in axes.items()
        }
