"""Plans that are sweeps: made into a sweep file's text, run, and read off."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from backend.embedded.tasks import Style, make_document
from backend.errors import OptionError
from backend.events import Progress
from backend.judged import Share
from backend.probes.document_study import adapted_arms
from backend.reproduce.context import Context, Step
from backend.reproduce.spec import Found, SweepPlan, Value
from backend.session import versions
from backend.sweeps.run import run_sweep
from backend.sweeps.runner import ModelRunner
from backend.sweeps.spec import parse_sweep
from backend.sweeps.stats import summarise
from backend.sweeps.store import SweepStore
from backend.swept import Cell, Count, SweepLine

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet")
TRIES = 50


def sweep(plan: SweepPlan, context: Context) -> Iterator[Step]:
    """Run a plan's sweep; yields progress and what was found.

    Raises:
        LabError: it cannot be run; no data set's file was given.
        RunCancelled: see :func:`backend.sweeps.run.run_sweep`.
    """
    tasks = [task for given in plan.tasks if (task := _task(given, plan, context)) is not None]
    if not tasks:
        wanted = ", ".join(dict.fromkeys(f"{t['data']}.jsonl" for t in plan.tasks if "data" in t))
        raise OptionError(
            f"{context.one.name} at paper scale reads {wanted}, of which none was found. Give their folder "
            f"with "
            "--data FOLDER (docs/sweeps.md has the columns), or choose --scale embedded.",
            field="reproduce.data",
        )
    yield from _run(plan, context, tasks, context.model_name, plan.methods, {})
    for linked in context.trained if plan.linked else ():
        links = context.load(linked.model).links
        assert links is not None
        own = adapted_arms(linked.model, links)[1]
        options = "+".join(f"{k}={v}" for k, v in own.options.items())
        method = f"{own.method}{':' * bool(options)}{options}@{linked.label}"
        renamed = {"dense": f"dense on {linked.label}"}
        yield from _run(plan, context, tasks, linked.model, ("dense", method), renamed)


def _run(
    plan: SweepPlan,
    context: Context,
    tasks: list[dict[str, Any]],
    model: str,
    methods: tuple[Any, ...],
    renamed: Mapping[str, str],
) -> Iterator[Step]:
    body: dict[str, Any] = {
        "name": context.one.name, "tasks": tasks, "methods": list(methods), "models": [model],
        "modes": [plan.mode], "request_orders": list(plan.request_orders), "seeds": [context.seed],
        "problems": context.count(plan.problems), "warmup": context.warm(plan.warmup) if plan.warmup else 0,
    }  # fmt: skip
    if plan.max_new_tokens:
        body["max_new_tokens"] = plan.max_new_tokens
    asked = parse_sweep(yaml.safe_dump(body, sort_keys=False, allow_unicode=True), context.one.name)
    facts = {"versions": versions(), "device": context.device}
    with SweepStore(context.out / f"{context.one.name}.sqlite") as store:
        runner = ModelRunner(context.load)
        for event in run_sweep(asked, store, runner, cancel=context.cancel, facts=facts):
            if isinstance(event, Count):
                yield Progress(str(event), event.done, event.total)
            else:
                done = event
    lines = summarise(done)
    for line in lines:
        dense = next(x for x in lines if x.cell == line.cell)
        yield _found(line, dense, renamed)


def _found(line: SweepLine, dense: SweepLine, renamed: Mapping[str, str]) -> Found:
    where = place_of(line.cell, renamed.get(line.method, line.method))
    shares = {name: value_of(getattr(line, name)) for name in (
        "accuracy", "selection", "as_dense", "score", "agents", "blocks", "tokens", "kl_first")}  # fmt: skip
    return Found(
        where,
        {
            **shares,
            "dense_accuracy": value_of(dense.accuracy),
            "ttft_ms": Value(line.ttft_ms, of=line.problems),
            "ttft_ratio": Value(line.ttft_ratio, of=line.problems),
        },
    )


def place_of(cell: Cell, method: str) -> dict[str, str]:
    """A setting's name; a judge's task without the file that sweeps put behind its label."""
    return {
        "task": cell.task.partition(" @ ")[0], "model": cell.model, "request_order": cell.request_order,
        "judge_order": cell.judge_order, "mode": cell.mode, "method": method,
    }  # fmt: skip


def value_of(share: Share) -> Value:
    """A share with its interval; NaN where nothing was counted."""
    return Value(share.value if share.of else math.nan, share.low, share.high, share.of)


def _task(given: Mapping[str, Any], plan: SweepPlan, context: Context) -> dict[str, Any] | None:
    """A task as a sweep file has it; None, and a note, where its data is not there."""
    task = dict(given)
    task.setdefault("label", str(task.get("pipeline")))
    if steps := task.pop("steps", None):
        count = context.count(plan.problems) + context.warm(plan.warmup)
        task |= {"data": str(_problems(context.out, steps, count, context.seed)), "format": "gsm8k"}
    elif "data" in task:
        file = _data_file(context.data, task["data"])
        if file is None:
            context.notes.append(
                f"{task['label']} was left out: --data has no {task['data']}.jsonl (or .json, .csv, "
                f".parquet)."
            )
            return None
        task["data"] = str(file)
    return task


def _data_file(folder: Path | None, stem: str) -> Path | None:
    if folder is None:
        return None
    places = (folder / f"{stem}{suffix}" for suffix in SUFFIXES)
    return next((place.resolve() for place in places if place.is_file()), None)


def _problems(out: Path, steps: int, count: int, seed: int) -> Path:
    """A file of held-out word problems with so many calculations each: the same beginning whatever the
    count."""
    rng = random.Random(f"reproduce:{seed}:{steps}")
    found: dict[str, str] = {}
    for _ in range(TRIES * count):
        made = make_document(rng, "solver", held_out=True, style=Style("stock"), size=steps)
        question = next(p.text for p in made.pieces if p.name == "user_question")
        found.setdefault(question, made.answer)
        if len(found) == count:
            break
    path = out / f"word-problems-{steps}-steps-seed-{seed}.jsonl"
    rows = (json.dumps({"question": q, "answer": f"#### {a}"}) for q, a in found.items())
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return path.resolve()
