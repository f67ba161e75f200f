"""Run a reproduction: its plan at a scale, and the machine's facts for the report."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from backend.base.errors import OptionError
from backend.base.machine import processor, versions
from backend.base.ranges import SEEDS, check_whole
from backend.base.serialization import as_json
from backend.records.events import Progress
from backend.records.model_info import ModelInfo
from backend.reproduce import harness, judging, layers, overlap, studies, sweeping, timings
from backend.reproduce.context import Context, Settings, Step
from backend.reproduce.energy import Meter
from backend.reproduce.result import report
from backend.reproduce.spec import (
    SCALES,
    AttentionPlan,
    CostPlan,
    DocumentsPlan,
    EvaluationPlan,
    GroupPlan,
    HarnessPlan,
    HypothesesPlan,
    JudgedPlan,
    LatencyPlan,
    Measurement,
    OffsetsPlan,
    OverlapPlan,
    Plan,
    ProximityPlan,
    Reproduction,
    Scale,
    SeriesPlan,
    SpeedPlan,
    SweepPlan,
    UsesPlan,
)
from backend.reproduce.training import provide

EMBEDDED = ("embedded", "embedded-small")
COUNTS = {
    "problems": (1, 10_000), "warmup": (0, 1000), "warmups": (1, 1000), "seed": SEEDS,
    "training_steps": (0, 100_000),
}  # fmt: skip


@dataclass(frozen=True)
class ReportEvent:
    """The report of a reproduction that was run (:func:`backend.reproduce.result.report`)."""

    report: dict[str, Any]


def reproduce(entry: Reproduction, settings: Settings) -> Iterator[Progress | ReportEvent]:
    """Run one; yields progress and, last, its report.

    What keeps rows (sweeps, documents, hypotheses) goes on where it was stopped.

    Raises:
        LabError: it cannot be run.
    """
    scale = scale_of(settings)
    scaled = entry.scales[scale]
    check(settings, scaled.plan, entry.name)
    settings.out.mkdir(parents=True, exist_ok=True)
    context = Context(entry, scale, settings.model or scaled.model, settings)
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    loaded = None if settings.ray is not None else (context.model.info, context.model.device)
    meter = Meter(loaded[1] if loaded else None)
    start, before = time.monotonic(), meter.joules()
    yield from provide(scaled.weights, context)
    measurements: list[Measurement] = []
    for event in steps(scaled.plan, context):
        if isinstance(event, Measurement):
            measurements.append(event)
        else:
            yield event
    after = meter.joules()
    facts: dict[str, Any] = {
        "command": settings.command,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - start, 1),
        "hardware": hardware(loaded[1]) if loaded else f"workers on Ray, asked from {processor()}",
        "busy": f"a load of {busy:.1f} on {os.cpu_count()} cores when it began",
        "energy": {"joules": None if before is None or after is None else after - before}
        | {"absent": meter.absent},
        "model": model_facts(loaded[0]) if loaded else model_of_workers(context),
        "versions": versions(),
        "requests": settings.problems,
        "warmup": settings.warmup,
        "warmups": context.warmups,
        "seed": settings.seed,
        "trained": [asdict(entry) | {"model": Path(entry.model).stem} for entry in context.trained],
    }
    yield ReportEvent(report(entry, scale, measurements, context.notes, facts))


RUNNERS: dict[type, Callable[[Any, Context], Iterator[Step]]] = {
    SweepPlan: sweeping.sweep, DocumentsPlan: studies.documents, EvaluationPlan: studies.evaluation,
    HarnessPlan: harness.harness, HypothesesPlan: studies.hypotheses, GroupPlan: timings.group,
    CostPlan: timings.cost, SpeedPlan: timings.speed, LatencyPlan: timings.latency,
    ProximityPlan: layers.proximity, OffsetsPlan: layers.offsets,
    AttentionPlan: judging.attention, JudgedPlan: judging.judged, UsesPlan: judging.uses,
    OverlapPlan: overlap.token_overlap,
}  # fmt: skip


def steps(plan: Plan, context: Context) -> Iterator[Step]:
    """Carry a plan out, by the runner of its kind; a series part by part."""
    if not isinstance(plan, SeriesPlan):
        yield from RUNNERS[type(plan)](plan, context)
        return
    for part in plan.plans:
        try:
            yield from steps(part, context)
        except sweeping.NoDataError as error:  # the other parts read other data
            context.notes.append(str(error))


def scale_of(settings: Settings) -> Scale:
    """The scale of the settings; by default *paper* for other models than the embedded ones.

    Raises:
        OptionError: there is no such scale.
    """
    other = settings.model is not None and settings.model not in EMBEDDED
    scale: Scale = settings.scale or ("paper" if other else "embedded")
    if scale not in SCALES:
        raise OptionError(
            f"The scale is {scale!r}; there are {', '.join(SCALES)}. Choose one.", field="reproduce.scale"
        )
    return scale


def check(settings: Settings, plan: Plan, name: str) -> None:
    """
    Args:
        plan, name: of what is asked for.

    Raises:
        OptionError: a number is out of range, a folder is not there, an extra is not installed, or workers
            cannot do it.
    """
    for part in plan.plans if isinstance(plan, SeriesPlan) else (plan,):
        if isinstance(part, HarnessPlan):
            harness.check(part, settings.data, name)
    for count, (low, high) in COUNTS.items():
        value, flag = getattr(settings, count), "requests" if count == "problems" else count.replace("_", "-")
        if value is not None:
            check_whole(value, low, high, f"reproduce.{flag}")
    for what in ("data", "links"):
        folder = getattr(settings, what)
        if isinstance(folder, Path) and not folder.is_dir():
            raise OptionError(
                f"--{what} is {str(folder)!r}, which is no folder. Name one that is there.",
                field=f"reproduce.{what}",
            )
    if (settings.warmups or 1) > 1 and not isinstance(plan, SweepPlan):
        raise OptionError(
            f"--warmups is {settings.warmups}, but {name} is no sweep, so no requests stand behind a warm-up."
            " Leave --warmups out.",
            field="reproduce.warmups",
        )
    if settings.ray is not None and not isinstance(plan, SweepPlan | SeriesPlan):
        raise OptionError(
            f"--ray spreads the rows of a sweep over workers, but {name} is no sweep: one process does it. "
            "Leave --ray out.",
            field="reproduce.ray",
        )
    if settings.ray is not None and settings.device_map is not None:
        raise OptionError(
            f"--device-map is {settings.device_map!r}, which spreads one model over all GPUs, and --ray "
            "gives each worker a GPU and a model of its own. Give one of the two.",
            field="reproduce.device_map",
        )


def model_facts(info: ModelInfo) -> dict[str, Any]:
    """A model's facts as the report has them."""
    return {k: v for k, v in as_json(info).items() if k != "certificate"}


def model_of_workers(context: Context) -> dict[str, Any]:
    """The same of a model that only workers loaded, as far as they report it."""
    weights, _, dtype = context.weights.get(context.model_name, "").partition(" ")
    return {"name": context.model_name, "weights_hash": weights, "dtype": dtype, "device": "workers"}


def hardware(device: torch.device) -> str:
    """The machine in words: the GPU, or the processor with its cores and torch's threads."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{processor()}, {os.cpu_count()} cores, {torch.get_num_threads()} threads"
