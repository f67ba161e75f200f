"""A sweep taken apart: shards that run by themselves, and the identity of every row.

A *cell* is a point of the grid without the method: task, model, mode, request order, longest answer,
temperature, seed and (of a judge) the order of candidates. Pools fill as requests come, so the problems of a
cell belong together and run in turn; a *shard* is what shares one walk through them: the methods of a cell,
and all orders of a judge. Shards depend on nothing outside them, so they can run anywhere.

A row's key is a hash of all that decides it: this version of rows, the weights, the pipeline with its
decoding, the method with all its options, the order, the seed, and the texts of its request and of those
before it (they are in the pools). Neither labels nor the number of problems are part of it: a longer sweep
goes on from a shorter one.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

from backend.base.errors import OptionError
from backend.base.serialization import as_json
from backend.base.text import show
from backend.methods.registry import make_options
from backend.prompts.pipeline import Pipeline
from backend.records.judge import JudgeProblem, JudgeRequest, Order
from backend.records.request import Decoding, MethodChoice
from backend.records.sweep import Cell
from backend.session.limits import Limits
from backend.sweeps.problems import Request, arranged, judge_problems, pipeline_requests
from backend.sweeps.spec import JudgeTask, PipelineTask, Sweep

ROW_VERSION = 2  # raised when a row of the same request would hold something else


@dataclass(frozen=True)
class PlannedRow:
    """A row to be: its place in the grid, and its identity but for the weights."""

    cell: Cell
    problem: int
    method: str
    digest: str

    def key(self, weights: str) -> str:
        """The row's key under weights."""
        return hashlib.sha256(f"{weights} {self.digest}".encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Shard:
    """What runs in one walk. ``judge`` is there for judges (with ``problems``), ``pipeline`` for the rest
    (with ``requests``); both in the order in which they are sent, warm-up first."""

    cell: Cell
    methods: tuple[MethodChoice, ...]  # dense first
    warmup: int
    decoding: Decoding
    budget_mb: int
    measure_cache: bool = False
    pipeline: Pipeline | None = None
    requests: tuple[Request, ...] = ()
    judge: JudgeRequest | None = None
    problems: tuple[JudgeProblem, ...] = ()

    @property
    def size(self) -> int:
        """Measured problems."""
        return len(self.sent) - self.warmup

    @property
    def models(self) -> str:
        """Names of what computes it: the model, and where a judge's agents have another one, that."""
        agents = self.judge.agents if self.judge else ""
        return f"{self.cell.model} with agents of {agents}" if agents else self.cell.model

    @property
    def sent(self) -> tuple[Request | JudgeProblem, ...]:
        """Requests or problems, warm-up first."""
        return (*self.requests, *self.problems)

    @property
    def orders(self) -> tuple[Order | None, ...]:
        """The judge's orders; one that is None where there is no judge."""
        return self.judge.orders if self.judge else (None,)

    @cached_property
    def units(self) -> list[list[PlannedRow]]:
        """The rows of each measured problem: order by order, method by method."""
        running = hashlib.sha256(_text([ROW_VERSION, self._facts()]).encode())
        methods = [(m.label, _text([m.name, asdict(make_options(m.name, m.options))])) for m in self.methods]
        units: list[list[PlannedRow]] = []
        for place, item in enumerate(self.sent):
            running.update(_text(_content(item)).encode())
            if place < self.warmup:
                continue
            base, unit = running.hexdigest(), []
            for order in self.orders:
                name = order.label if order else ""
                cell = replace(self.cell, judge_order=name)
                for label, options in methods:
                    digest = hashlib.sha256(f"{base} {name} {options}".encode()).hexdigest()
                    unit.append(PlannedRow(cell, item.number, label, digest))
            units.append(unit)
        return units

    def _facts(self) -> Any:
        facts: list[Any] = [
            self.cell.mode, self.cell.request_order, self.cell.seed, as_json(self.decoding), self.warmup,
            self.budget_mb, self.measure_cache,
        ]  # fmt: skip
        if self.judge:
            bare = replace(
                self.judge, problems=(), count=1, warmup=0, orders=(), methods=(), judge="", seed=0
            )
            return [*facts, as_json(bare)]
        assert self.pipeline is not None
        return [*facts, as_json(self.pipeline.unrolled)]


def shards_of(sweep: Sweep) -> list[Shard]:
    """A sweep's shards, those of one model together.

    Raises:
        LabError: a task's file or pipeline cannot be used, or two cells ask for the same rows.
    """
    shards: list[Shard] = []
    for task in sweep.tasks:
        for seed in sweep.seeds:
            shards += _shards(sweep, task, seed)
    shards.sort(key=lambda shard: sweep.models.index(shard.cell.model))
    owners: dict[tuple[str, str], Cell] = {}
    cells = [shard.cell for shard in shards]
    for shard in shards:
        for planned in (planned for unit in shard.units for planned in unit):
            other = owners.setdefault((planned.cell.model, planned.digest), planned.cell)
            if other != planned.cell:
                a, b = other.label(cells), planned.cell.label(cells)
                raise OptionError(
                    f"The cells {show(a)} and {show(b)} ask for the same rows. Remove one.", field="tasks"
                )
    return shards


def planned_rows(shards: Sequence[Shard]) -> Iterator[PlannedRow]:
    """All rows to be, each once (dense stands in every shard of a cell with many methods)."""
    keys: set[tuple[str, str]] = set()
    for shard in shards:
        for unit in shard.units:
            for planned in unit:
                if (planned.cell.model, planned.digest) not in keys:
                    keys.add((planned.cell.model, planned.digest))
                    yield planned


def _shards(sweep: Sweep, task: PipelineTask | JudgeTask, seed: int) -> list[Shard]:
    dense, *others = sweep.methods
    step = Limits().methods - 1
    groups = [(dense, *others[at : at + step]) for at in range(0, max(1, len(others)), step)]
    shards = []
    if isinstance(task, JudgeTask):
        problems = judge_problems(task, sweep.problems, sweep.warmup, seed)
        axes = (sweep.models, sweep.request_orders, task.max_new_tokens, task.temperatures)
        for model, order, tokens, temperature in product(*axes):
            measured = problems[sweep.warmup :]
            lengths = [len(p.question) for p in measured]
            sent = (*problems[: sweep.warmup], *arranged(measured, lengths, order))
            cell = Cell(
                task.label, model, "pinned", order, seed, max_new_tokens=tokens, temperature=temperature
            )
            judge = _judge(task.request, seed, tokens, temperature)
            decoding = Decoding(judge.max_new_tokens)
            shards += [
                Shard(cell, methods, sweep.warmup, decoding, sweep.budget_mb, judge=judge, problems=sent)
                for methods in groups
            ]
        return shards
    pipeline, requests = pipeline_requests(task, sweep.problems, sweep.warmup, seed)
    axes_of_all = (
        sweep.models, sweep.modes, sweep.request_orders, sweep.max_new_tokens, sweep.temperatures,
    )  # fmt: skip
    for model, mode, order, tokens, temperature in product(*axes_of_all):
        late = requests[sweep.warmup :]
        lined = (*requests[: sweep.warmup], *arranged(late, [r.length for r in late], order))
        cell = Cell(task.label, model, mode, order, seed, max_new_tokens=tokens, temperature=temperature)
        decoding = Decoding(tokens or pipeline.longest_answer, temperature, 1.0, seed)
        shards += [
            Shard(
                cell, methods, sweep.warmup, decoding, sweep.budget_mb, sweep.measure_cache, pipeline, lined
            )
            for methods in groups
        ]
    return shards


def _judge(request: JudgeRequest, seed: int, tokens: int | None, temperature: float | None) -> JudgeRequest:
    """The request of one cell; None is its own."""
    heat = request.sampling.temperature if temperature is None else temperature
    sampling = replace(request.sampling, seed=seed, temperature=heat)
    return replace(request, sampling=sampling, seed=seed, max_new_tokens=tokens or request.max_new_tokens)


def _content(item: Request | JudgeProblem) -> Any:
    """What of a request decides a row: its texts and how it is scored."""
    if isinstance(item, JudgeProblem):
        return as_json(item)
    recorded = {str(agent): text for agent, text in item.recorded.items()}
    return [dict(item.values), item.golds, item.scorer, recorded]


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
