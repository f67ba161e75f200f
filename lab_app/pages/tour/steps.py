"""The guided tour's steps in ``presets/tour``: texts, predictions, requests and recorded runs."""

import dataclasses
import logging
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from backend.base.errors import LabError
from backend.prompts.presets import Example, Preset, load_preset, preset_requests
from backend.records.events import Event
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.records.run import RunRecord
from lab_app.visits.engine import Engine
from viz.pages import tour

LOG = logging.getLogger("lab_app")
FOLDER = Path(__file__).resolve().parents[3] / "presets" / "tour"
WARM_SEED = 1  # draws other requests than those shown


@dataclass(frozen=True)
class Lecture:
    """A step for teachers: its goal, how long it takes, and what to ask."""

    goal: str
    minutes: int
    ask: tuple[str, ...]


@dataclass(frozen=True)
class RunPlan:
    """What a step runs.

    Attributes:
        preset: the scenario.
        methods: beside dense, in the order that ``viz.pages.tour`` expects.
        warm: how many requests of the set are sent before, to fill pools.
        repeat: send the request itself before.
        attention: record where the first token was read from.
        offsets: record the true offsets.
        look_for: the predictions one of which must come true in the recorded run.
    """

    preset: str
    methods: tuple[MethodChoice, ...]
    warm: int = 0
    repeat: bool = False
    attention: bool = False
    offsets: bool = True
    look_for: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """One step. ``choices`` are the predictions by their keys; texts may hold ``[[terms]]``."""

    key: str
    short: str
    title: str
    text: tuple[str, ...]
    asked: str
    question: str
    choices: Mapping[str, str]
    takeaway: str
    run: RunPlan
    teacher: Lecture

    def __post_init__(self) -> None:
        if self.key not in tour.STEPS:
            raise ValueError(f"viz.pages.tour knows no step {self.key!r}")
        if unknown := set(self.run.look_for) - set(self.choices):
            raise ValueError(f"the step {self.key!r} looks for {unknown}, which is no choice of it")

    @property
    def preset(self) -> Preset:
        """The scenario that the step runs."""
        return load_preset(self.run.preset)

    def request(self, example: Example | None = None) -> RunRequest:
        """The step's request: for ``example``, else for the recorded run's, else for the first of the
        scenario's set."""
        preset = self.preset
        example_used = example or recorded_example(self) or preset_requests(preset, 1)[0]
        dense = MethodChoice("dense", {})
        return RunRequest(
            preset.pipeline, dict(example_used.values), (dense, *self.run.methods),
            decoding=Decoding(max_new_tokens=preset.pipeline.longest_answer),
            expected=example_used.answer, probe_attention=self.run.attention,
            probe_offsets=self.run.offsets,
        )  # fmt: skip


def prepare(
    engine: Engine, step: Step, request: RunRequest, cancel: threading.Event | None = None
) -> Iterator[Event]:
    """Send what comes before a step's request, so that there is something to reuse."""
    if step.run.repeat:
        first = dataclasses.replace(
            request, methods=request.methods[:1], probe_offsets=False, probe_attention=False
        )
        yield from engine.run(first, cancel=cancel)
    if step.run.warm:
        examples = preset_requests(step.preset, step.run.warm, seed=WARM_SEED)
        yield from engine.warm_up(request, examples, cancel=cancel, shared=True)


def read_steps(path: Path) -> tuple[Step, ...]:
    """The steps of a file.

    Raises:
        TypeError, ValueError, KeyError: the file is no tour.
    """
    result = []
    for row in yaml.safe_load(path.read_text(encoding="utf-8")):
        body: dict[str, Any] = dict(row)
        run, lecture = dict(body.pop("run")), dict(body.pop("teacher"))
        methods = tuple(_method(method) for method in run.pop("methods"))
        look_for = tuple(run.pop("look_for", ()))
        plan = RunPlan(methods=methods, look_for=look_for, **run)
        ask = tuple(lecture.pop("ask"))
        body["text"] = tuple(body["text"])
        result.append(Step(run=plan, teacher=Lecture(ask=ask, **lecture), **body))
    return tuple(result)


def _method(row: Mapping[str, Any]) -> MethodChoice:
    from backend.methods.registry import make_options

    options = dataclasses.asdict(make_options(row["name"], row.get("options", {})))
    return MethodChoice(row["name"], options, row.get("label", ""))


@cache
def steps() -> tuple[Step, ...]:
    """The steps that ship with the lab."""
    return read_steps(FOLDER / "steps.yaml")


@cache
def recorded(key: str, folder: Path = FOLDER) -> RunRecord | None:
    """The recorded run of a step; None if it cannot be read or has other methods than the step."""
    path = folder / f"{key}.kvrun"
    if not path.is_file():
        return None
    try:
        record = RunRecord.load(path)
    except LabError:
        LOG.warning("the recorded run %s of the tour cannot be read", path.name)
        return None
    step = next(s for s in steps() if s.key == key)
    if record.labels != ("dense", *(m.label for m in step.run.methods)):
        LOG.warning("the recorded run %s of the tour is of other methods", path.name)
        return None
    return record


def recorded_example(step: Step) -> Example | None:
    """The request of a step's recorded run, if the scenario still accepts it."""
    record = recorded(step.key)
    if record is None:
        return None
    try:
        step.preset.pipeline.check_values(record.request.values)
    except LabError:
        return None
    return Example(dict(record.request.values), record.request.expected)
