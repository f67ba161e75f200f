"""Plans that are sweeps: written as a sweep file's text, run, and read as measurements."""

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import yaml

from backend.base.errors import OptionError
from backend.base.machine import versions
from backend.base.statistics import Share
from backend.model.load import pick_device
from backend.prompts.tasks import Style, make_document
from backend.records.events import Progress
from backend.records.sweep import Cell, Comparison, Count, SweepLine
from backend.reproduce.context import Context, DataSource, Linked, Step
from backend.reproduce.spec import Measurement, SweepPlan, Value
from backend.studies.documents import adapted_arms
from backend.sweeps.compare import compare
from backend.sweeps.datasets import FORMATS, NOT_ON_HUB, ON_HUB
from backend.sweeps.grid import shards_of
from backend.sweeps.ray_cluster import Cluster
from backend.sweeps.read import parse_sweep
from backend.sweeps.run import run_sweep
from backend.sweeps.runner import ModelRunner
from backend.sweeps.scoring import rouge
from backend.sweeps.spec import Sweep
from backend.sweeps.store import SweepStore
from backend.sweeps.summary import summarise

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
TRIES = 50


class NoDataError(OptionError):
    """None of the data sets that a sweep reads is there."""


def sweep(plan: SweepPlan, context: Context) -> Iterator[Step]:
    """Run a plan's sweep; yields progress and measurements.

    Raises:
        LabError: it cannot be run; no data set's file was given.
    """
    if context.warmups > 1:
        context.notes.append(
            f"Everything stands behind {context.warmups} independent warm-ups; an interval is a bootstrap "
            "over warm-ups, then over the requests behind each."
        )
    tasks = [task for entry in plan.tasks if (task := _task(entry, plan, context)) is not None]
    if not tasks:
        raise _no_data(plan, context)
    parts = [
        _requested_sweep(plan, context, [task for _, task in group], model, problems, plan.methods)
        for (model, problems), group in groupby(_place_tasks(tasks, plan, context), key=lambda item: item[0])
    ]
    for part in parts:
        shards_of(part)  # refused here rather than after hours
    with ExitStack() as open_now:
        runner = _runner(context, open_now)
        for part in parts:
            if part.models != (context.model_name,):
                context.loaded.clear()  # two large models beside each other need not fit
            yield from _run(part, context, runner)
        for linked in context.trained if plan.linked else ():
            links = context.load(linked.model).links
            assert links is not None
            own = adapted_arms(linked.model, links)[1]
            options = "+".join(f"{k}={v}" for k, v in own.options.items())
            method = f"{own.method}{':' * bool(options)}{options}@{linked.label}"
            count = context.count(plan.problems)
            part = _requested_sweep(plan, context, tasks, linked.model, count, ("dense", method))
            yield from _run(part, context, runner, linked)
        if isinstance(runner, Cluster):
            context.weights |= {name: weights for (name, _), weights in runner.fingerprints.items()}


def _runner(context: Context, open_now: ExitStack) -> ModelRunner | Cluster:
    """What computes the rows: this process, or workers on Ray that load models for themselves."""
    if context.settings.ray is None:
        return ModelRunner(context.load)
    gpus = int(pick_device(context.settings.device) == "cuda")
    make = partial(ModelRunner, context.loader)
    cluster = Cluster(make, workers=context.settings.workers, address=context.settings.ray, gpus=gpus)
    context.notes.append(
        f"The rows were computed by {cluster.workers} workers on Ray at once: times of rows that ran beside "
        "each other are not those of a quiet machine."
    )
    return open_now.enter_context(cluster)


def _place_tasks(
    tasks: Sequence[dict[str, Any]], plan: SweepPlan, context: Context
) -> list[tuple[tuple[str, int], dict[str, Any]]]:
    """Tasks with their model and number of problems, sorted by model, the run's own first. A model named on
    the command line runs all tasks; those that then are equal run once."""
    placed_tasks: dict[tuple[str, str], tuple[tuple[str, int], dict[str, Any]]] = {}
    others: dict[str, list[str]] = {}
    for task in tasks:
        name = task.pop("model", context.model_name)
        if name != context.model_name:
            others.setdefault(name, []).append(task["label"])
        model = context.model_name if context.settings.model else name
        problems = context.count(task.pop("problems", plan.problems))
        placed_tasks.setdefault((task["label"], model), ((model, problems), task))
    for name, labels in others.items():
        remark = f"ran on {name}"
        if context.settings.model:
            remark = f"are meant for {name} and ran on {context.model_name}, as --model says"
        context.notes.append(f"{'; '.join(labels)}: these {remark}.")
    return sorted(placed_tasks.values(), key=lambda item: (item[0][0] != context.model_name, item[0]))


def _requested_sweep(
    plan: SweepPlan,
    context: Context,
    tasks: list[dict[str, Any]],
    model: str,
    problems: int,
    methods: tuple[Any, ...],
) -> Sweep:
    body: dict[str, Any] = {
        "name": context.reproduction.name, "tasks": tasks, "methods": list(methods), "models": [model],
        "modes": [plan.mode], "request_orders": list(plan.request_orders), "seeds": [context.settings.seed],
        "problems": problems, "warmup": context.warm(plan.warmup) if plan.warmup else 0,
        "warmups": context.warmups,
    }  # fmt: skip
    if plan.against and len(methods) > 1:
        body["against"] = {"method": plan.against}
    if plan.max_new_tokens:
        body["max_new_tokens"] = plan.max_new_tokens
    return parse_sweep(yaml.safe_dump(body, sort_keys=False, allow_unicode=True), context.reproduction.name)


def _run(
    part: Sweep, context: Context, runner: ModelRunner | Cluster, linked: Linked | None = None
) -> Iterator[Step]:
    facts = {"versions": versions(), "device": context.settings.device}
    spread = runner.spread if isinstance(runner, Cluster) else None
    with SweepStore(context.settings.out / f"{context.reproduction.name}.sqlite") as store:
        for event in run_sweep(part, store, runner, facts=facts, spread=spread):
            if isinstance(event, Count):
                yield Progress(str(event), event.done, event.total)
            else:
                result = event
    tests = compare(result).tests
    if part.against and part.against[0].value != part.methods[0].label and tests:
        context.notes.append(_describe_comparisons(tests))
    lines = summarise(result)
    for line in lines:
        dense = next(x for x in lines if x.cell == line.cell)
        yield _line_values(line, dense, linked)


def _describe_comparisons(tests: Sequence[Comparison]) -> str:
    """Right answers against one method's, in a sentence."""
    over = f"Wilcoxon over {tests[0].warmups} warm-ups" if tests[0].warmups > 1 else "McNemar"
    rows = (
        f"{x.method} loses {x.only_other} and wins {x.only_mine} of {x.pairs} (p {x.right_holm:.2g})"
        for x in tests
        if x.right_holm is not None
    )
    holm = f"Holm's p over {len(tests)} tests"
    return f"Right answers against {tests[0].other} ({over}, {holm}): {'; '.join(rows)}."


def _line_values(line: SweepLine, dense: SweepLine, linked: Linked | None) -> Measurement:
    method = f"dense on {linked.label}" if linked and line.method == "dense" else line.method
    where = place_of(line.cell, method) | (linked.kind if linked else {})
    shares = {name: value_of(getattr(line, name)) for name in (
        "accuracy", "selection", "as_dense", "to_none", "to_another", "as_dense_without_none", "score",
        "agents", "blocks", "tokens", "kl_first")}  # fmt: skip
    times = {name: value_of(getattr(line, name)) for name in ("ttft_ms", "ttft_ratio")}
    return Measurement(where, shares | {"dense_accuracy": value_of(dense.accuracy)} | times)


def place_of(cell: Cell, method: str) -> dict[str, str]:
    """A setting's name; a judge's task without the file that sweeps put behind its label."""
    return {
        "task": cell.task.partition(" @ ")[0], "model": cell.model, "request_order": cell.request_order,
        "judge_order": cell.judge_order, "mode": cell.mode, "method": method,
    }  # fmt: skip


def value_of(share: Share) -> Value:
    """A share with its interval; NaN where nothing was counted."""
    return Value(share.value if share.of else math.nan, share.low, share.high, share.of)


def _task(entry: Mapping[str, Any], plan: SweepPlan, context: Context) -> dict[str, Any] | None:
    """A task as a sweep file has it, with a model and a number of problems of its own where the plan says so;
    None, and a note, where its data is not there."""
    task = dict(entry)
    task.setdefault("label", str(task.get("pipeline")))
    if "data" in task and FORMATS[task["format"]].scorer == "rouge":
        try:
            rouge()
        except OptionError as error:
            context.notes.append(f"{task['label']} was left out: {error}")
            return None
    if steps := task.pop("steps", None):
        count = (context.count(plan.problems) + context.warm(plan.warmup)) * context.warmups
        generated = _problems(context.settings.out, steps, count, context.settings.seed)
        task |= {"data": str(generated), "format": "gsm8k"}
    elif "data" in task and context.settings.data == "hub":
        if task["format"] not in ON_HUB:
            context.notes.append(f"{task['label']} was left out: {_not_on_hub(task['format'])}")
            return None
        task["data"] = "hub"
    elif "data" in task:
        file = _data_file(context.settings.data, task["data"])
        if file is None:
            context.notes.append(
                f"{task['label']} was left out: --data has no {task['data']}.jsonl (or .json, .csv, "
                f".parquet)."
            )
            return None
        task["data"] = str(file)
    if "data" in task and context.warmups > 1:
        task["draw"] = "random"  # else every warm-up would be the same requests
    return task


def _not_on_hub(format: str) -> str:
    return (
        f"for {format} no data set of the hub is known: {NOT_ON_HUB[format]}. Give --data FOLDER with such a "
        "file."
    )


def _no_data(plan: SweepPlan, context: Context) -> NoDataError:
    tasks = [task for task in plan.tasks if "data" in task]
    if context.settings.data == "hub":
        advice = " ".join(_not_on_hub(format) for format in dict.fromkeys(t["format"] for t in tasks))
        return NoDataError(f"--data is hub, but {advice}", field="reproduce.data")
    files = ", ".join(dict.fromkeys(f"{task['data']}.jsonl" for task in tasks))
    return NoDataError(
        f"{context.reproduction.name} at paper scale reads {files}, of which none was found. Give their "
        "folder with --data FOLDER (docs/sweeps.md has the columns), --data hub to fetch the formats' own "
        "data sets, or choose --scale embedded.",
        field="reproduce.data",
    )


def _data_file(folder: DataSource | None, stem: str) -> Path | None:
    if not isinstance(folder, Path):
        return None
    places = (folder / f"{stem}{suffix}" for suffix in SUFFIXES)
    return next((place.resolve() for place in places if place.is_file()), None)


def _problems(out: Path, steps: int, count: int, seed: int) -> Path:
    """A file of held-out word problems with so many calculations each: the same beginning whatever the
    count."""
    rng = random.Random(f"reproduce:{seed}:{steps}")
    answers: dict[str, str] = {}
    for _ in range(TRIES * count):
        document = make_document(rng, "solver", held_out=True, style=Style("stock"), size=steps)
        question = next(p.text for p in document.pieces if p.name == "user_question")
        answers.setdefault(question, document.answer)
        if len(answers) == count:
            break
    path = out / f"word-problems-{steps}-steps-seed-{seed}.jsonl"
    rows = (json.dumps({"question": q, "answer": f"#### {a}"}) for q, a in answers.items())
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path.resolve()
