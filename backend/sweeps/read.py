"""Reading a sweep file: YAML to a :class:`backend.sweeps.spec.Sweep`, checked as strictly as a preset."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.base.ranges import SEEDS
from backend.base.text import show
from backend.judge.prompts import WORDINGS, check_wording
from backend.prompts.presets import (
    MAX_PRESET_BYTES,
    MAX_REQUESTS,
    load_preset,
    parse_yaml,
    preset_names,
    read_text,
)
from backend.records.judge import ANSWER_TOKENS, CANDIDATE_TOKENS, JudgeRequest, read_orders
from backend.records.request import CONTROLS, Decoding
from backend.sweeps.baselines import read_against
from backend.sweeps.datasets import FORMATS, NOT_ON_HUB, ON_HUB
from backend.sweeps.hub import HubData, fetch
from backend.sweeps.method_axes import read_choices
from backend.sweeps.scoring import rouge
from backend.sweeps.spec import Data, JudgeTask, PipelineTask, Sweep, Task
from backend.sweeps.yaml_checks import axis, keys, numbers, one_of, within

MAX_CELLS = 10_000
LENGTHS, TEMPERATURES, TOP_P = (CONTROLS[name].limits for name in ("max_new_tokens", "temperature", "top_p"))
_ORDER = re.compile(r"given|ascending|descending|random(:[0-9]{1,9})?")
_TOP: dict[str, tuple[type, ...]] = {
    "name": (str,), "title": (str,), "tasks": (list,), "methods": (list, str), "models": (list, str),
    "modes": (list, str), "request_orders": (list, str), "seeds": (list, int), "problems": (int,),
    "warmup": (int,), "warmups": (int,), "max_new_tokens": (int, list), "temperature": (int, float, list),
    "measure_cache": (bool,), "budget_mb": (int,), "against": (str, dict, list),
}  # fmt: skip
_PIPELINE: dict[str, tuple[type, ...]] = {
    "pipeline": (str, list), "label": (str,), "agents": (int, list), "data": (str, dict), "format": (str,),
    "draw": (str,), "turns": (int, list), "documents": (int,), "trace": (str,),
}  # fmt: skip
_JUDGE: dict[str, tuple[type, ...]] = {
    "judge": (dict,), "label": (str,), "data": (str, dict), "format": (str,), "draw": (str,),
}  # fmt: skip
_HUB: dict[str, tuple[type, ...]] = {"hub": (str,), "config": (str,), "split": (str,), "revision": (str,)}
_JUDGE_AXES: dict[str, tuple[type, ...]] = {
    "regime": (str, list), "criterion": (str, list), "protocol": (str, list), "candidates": (int, list),
    "steps": (int, list), "wording": (str,), "orders": (str, list), "agents": (str,),
    "temperature": (int, float, list), "top_p": (int, float), "answer_tokens": (int,),
    "max_new_tokens": (int, list), "candidates_only": (bool,),
}  # fmt: skip


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file; data files are looked for beside it, and data sets of the hub are fetched.

    Raises:
        LabError: the file cannot be read, or what it says cannot be run.
    """
    path = Path(path)
    return parse_sweep(read_text(path, MAX_PRESET_BYTES), path.name, path.parent)


def parse_sweep(text: str, file: str = "sweep", folder: Path = Path()) -> Sweep:
    """Read a sweep from YAML, and fetch what it names of the hub.

    Args:
        file: its name, for messages.
        folder: where the files it names are looked for.

    Raises:
        LabError: with the place in ``field``, for example ``tasks.2.pipeline``.
    """
    body = parse_yaml(text, file)
    try:
        return _sweep(body, file, folder, text)
    except LabError as error:
        message = str(error)
        raise OptionError(
            message if message.startswith(file) else f"{file}: {message}", field=error.field
        ) from None


def _sweep(body: object, file: str, folder: Path, text: str) -> Sweep:
    table = keys(body, file, "", _TOP, ("name", "tasks", "methods"))
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,60}", table["name"]):
        raise OptionError(
            f"name is {show(table['name'])}; small letters, digits and hyphens are allowed, up to 61. "
            "Rename it.",
            field="name",
        )
    modes = axis(table, "modes", str, ("pinned",))
    for mode in modes:
        one_of(mode, "modes", ("pinned", "free"))
    orders = axis(table, "request_orders", str, ("given",))
    for order in orders:
        if not _ORDER.fullmatch(order):
            raise OptionError(
                f"request_orders has {show(order)}; there are given, random, random:SEED, ascending and "
                "descending. Correct it.",
                field="request_orders",
            )
    limits = (
        ("problems", 20, 1, MAX_REQUESTS), ("warmup", 0, 0, 1000), ("budget_mb", 4096, 1, 2**20),
        ("warmups", 1, 1, 1000),
    )  # fmt: skip
    single = {name: within(table.get(name, usual), name, low, high) for name, usual, low, high in limits}
    if not table["tasks"]:
        raise OptionError("tasks is an empty list. Give at least one task.", field="tasks")
    tasks: list[Task] = []
    for number, row in enumerate(table["tasks"], 1):
        tasks += _tasks(row, f"task {number}", f"tasks.{number}", folder)
    for index, task in enumerate(tasks):
        if task.label in [t.label for t in tasks[:index]]:
            raise OptionError(
                f"Two tasks are called {show(task.label)}. Give each a label of its own.", field="tasks"
            )
    if "free" in modes and any(isinstance(task, JudgeTask) for task in tasks):
        raise OptionError(
            "modes has 'free', but a judge's methods all read the same candidates (pinned). Leave 'free' "
            "out, or put the judge into a sweep of its own.",
            field="modes",
        )
    models = axis(table, "models", str, ("embedded",))
    seeds = numbers(table, "seeds", int, (0,), (SEEDS[0], SEEDS[1] - 1000))
    warmups = int(single["warmups"])
    if warmups > 1 and len(seeds) > 1:
        raise OptionError(
            f"warmups is {warmups} beside {len(seeds)} seeds. Each warm-up has a seed of its own, counted up "
            "from the one that is given: name one seed, or leave warmups out.",
            field="warmups",
        )
    sweep = Sweep(
        name=table["name"],
        title=table.get("title", table["name"]),
        tasks=tuple(tasks),
        methods=read_choices(table["methods"]),
        models=models,
        modes=modes,
        request_orders=orders,
        seeds=tuple(range(seeds[0], seeds[0] + warmups)) if warmups > 1 else seeds,
        problems=int(single["problems"]),
        warmup=int(single["warmup"]),
        warmups=warmups,
        max_new_tokens=numbers(table, "max_new_tokens", int, (None,), LENGTHS),
        temperatures=numbers(table, "temperature", float, (0.0,), TEMPERATURES),
        measure_cache=table.get("measure_cache", False),
        budget_mb=int(single["budget_mb"]),
        source=text,
    )
    if sweep.lines > MAX_CELLS:
        raise OptionError(
            f"The grid has {sweep.lines:,} cells; up to {MAX_CELLS:,} are allowed. Shorten an axis.",
            field=None,
        )
    sweep = replace(sweep, against=read_against(table.get("against", "dense"), sweep.axes))
    return _fetched(sweep)


def _tasks(row: object, where: str, field: str, folder: Path) -> list[Task]:
    if isinstance(row, str):
        row = {"pipeline": row}
    if isinstance(row, dict) and "judge" in row:
        return _judge_tasks(keys(row, where, field, _JUDGE, ("judge",)), where, field, folder)
    table = keys(row, where, field, _PIPELINE, ())
    if ("pipeline" in table) == ("trace" in table):
        raise OptionError(
            f"{where} needs one of pipeline, judge and trace. Name a preset, such as pipeline: math-4.",
            field=field,
        )
    if "trace" in table:
        for key in table:
            if key not in ("trace", "label"):
                raise OptionError(
                    f"{where} has a trace and {key}; a trace has its own prompts. Remove {key}.",
                    field=f"{field}.{key}",
                )
        path = folder / table["trace"]
        return [PipelineTask(table.get("label", path.stem), trace=path)]
    data = _data(table, where, field, folder)
    counts = axis(table, "agents", int, (), field)
    names: list[tuple[str, int | None]] = []
    for name in axis(table, "pipeline", str, (), field):
        if "{agents}" not in name:
            names += [(name, count) for count in counts or (None,)]
        elif counts:
            names += [(name.replace("{agents}", str(count)), None) for count in counts]
        else:
            raise OptionError(
                f"{where}: {{agents}} stands for numbers in the pipeline's name {show(name)}, but the "
                "agents are not given. Write for example agents: [2, 4].",
                field=f"{field}.agents",
            )
    turns: Sequence[int | None] = axis(table, "turns", int, (), field) or (None,)
    documents = table.get("documents")
    if documents is not None and data is None:
        raise OptionError(
            f"{where}: documents says how many the problems of a data set bring, and there is no data. Give "
            "data and format, or remove documents.",
            field=f"{field}.documents",
        )
    tasks: list[Task] = []
    for (name, agents), turn in product(names, turns):
        place = name if name in preset_names() or "." not in name else folder / name
        label = name + (f", {agents} agents" if agents is not None else "")
        label += f", {documents} documents" if documents is not None else ""
        label += (f" @ {data.path.name}" if data else "") + (f", {turn} turns" if turn else "")
        if "label" in table:
            label = table["label"] + (f" {label}" if len(names) * len(turns) > 1 else "")
        task = PipelineTask(label, place, data, None, turn, agents, documents)
        _check_fits(task, place, field)
        tasks.append(task)
    return tasks


def _check_fits(task: PipelineTask, place: str | Path, field: str) -> None:
    """Refuse a pipeline that is not there or cannot be as the task asks, here rather than after hours."""
    try:
        pipeline = load_preset(place).pipeline
    except LabError as error:
        raise OptionError(str(error), field=f"{field}.pipeline") from None
    try:
        task.fitted(pipeline)
    except LabError as error:
        key = error.field if error.field in _PIPELINE else "pipeline"  # a prompt's place is the pipeline's
        raise OptionError(str(error), field=f"{field}.{key}") from None


def _judge_tasks(table: dict[str, Any], where: str, field: str, folder: Path) -> list[Task]:
    inner, data = f"{field}.judge", _data(table, where, field, folder)
    options = keys(table["judge"], f"{where}, judge", inner, _JUDGE_AXES, ())
    usual = JudgeRequest()
    axes = {
        name: axis(options, name, type(getattr(usual, name)), (getattr(usual, name),), inner)
        for name in ("regime", "criterion", "protocol", "candidates", "steps")
    }
    lengths = numbers(options, "max_new_tokens", int, (ANSWER_TOKENS,), LENGTHS, inner)
    temperatures = numbers(options, "temperature", float, (1.0,), TEMPERATURES, inner)
    sampling = Decoding(
        int(within(options.get("answer_tokens", CANDIDATE_TOKENS), f"{inner}.answer_tokens", *LENGTHS)),
        temperatures[0],
        float(within(options.get("top_p", 1.0), f"{inner}.top_p", *TOP_P)),
    )
    orders = ",".join(axis(options, "orders", str, ("identity", "shuffle:0"), inner))
    tasks: list[Task] = []
    for values in product(*axes.values()):
        chosen: dict[str, Any] = dict(zip(axes, values, strict=True))
        request = JudgeRequest(
            **chosen,
            orders=read_orders(orders, chosen["candidates"]),
            sampling=sampling,
            max_new_tokens=lengths[0],
            wording=options.get("wording", "embedded"),
            agents=options.get("agents", ""),
            slots_only=options.get("candidates_only", False),
        )
        request.check()
        check_wording(request.wording)
        if data and FORMATS[data.format].examples:
            raise OptionError(
                f"{where}: a judge names the right candidate, and of the summaries that {data.format} asks "
                "for none is right or wrong. Choose gsm8k, mmlu, math500, aime or humaneval.",
                field=f"{inner}.format",
            )
        if data and request.regime == "typed":
            raise OptionError(
                f"{where}: the candidates are typed, but {data.path.name} has questions alone. Choose the "
                "regime parallel or progressive, so that agents write them.",
                field=f"{inner}.regime",
            )
        _check_final(request.wording, data, where, inner)
        varied = [n for n in axes if len(axes[n]) > 1]
        if "label" in table:
            extra = [table["label"], *(f"{n} {chosen[n]}" for n in varied)]
        else:
            extra = [f"judge {request.regime} {request.criterion} {request.protocol}"]
            extra += [f"{n} {chosen[n]}" for n in varied if n in ("candidates", "steps")]
        if data:
            extra.append(f"@ {data.path.name}")
        axes_of_cells = (values if len(values) > 1 else (None,) for values in (lengths, temperatures))
        tasks.append(JudgeTask(" ".join(extra), request, data, *axes_of_cells))
    return tasks


def _check_final(wording: str, data: Data | None, where: str, field: str) -> None:
    """Refuse a judge whose answers are not what its problems are scored by."""
    code = data is not None and FORMATS[data.format].scorer == "code"
    if code != (WORDINGS[wording].final == "code"):
        problems = f"{data.format} problems" if data else "generated problems"
        raise OptionError(
            f"{where}: the wording is {show(wording)}, but {problems} have "
            f"{'unit tests for programs' if code else 'short answers'}. "
            f"{'Write wording: programs' if code else 'Write wording: general or embedded'}.",
            field=f"{field}.wording",
        )


def _data(table: Mapping[str, Any], where: str, field: str, folder: Path) -> Data | None:
    if "data" not in table:
        for key in ("format", "draw"):
            if key in table:
                raise OptionError(
                    f"{where} has {key}, but no data. Name the file, or remove it.", field=f"{field}.{key}"
                )
        return None
    if "format" not in table:
        raise OptionError(
            f"{where} has data, but no format; there are {', '.join(FORMATS)}. Name one.",
            field=f"{field}.format",
        )
    one_of(table["format"], f"{field}.format", tuple(FORMATS))
    if FORMATS[table["format"]].scorer == "rouge":
        rouge()  # said here rather than after the first answer
    draw = table.get("draw", "first")
    one_of(draw, f"{field}.draw", ("first", "random"))
    place = _place(table["data"], table["format"], f"{where}, data", f"{field}.data", folder)
    return Data(place, table["format"], draw)


def _place(value: str | dict[str, Any], format: str, where: str, field: str, folder: Path) -> Path | HubData:
    """``FILE``, ``hub`` (the format's own data set), ``hub:ID``, or a table with ``hub`` and more."""
    if isinstance(value, dict):
        table = keys(value, where, field, _HUB, ("hub",))
        return HubData(table["hub"], table.get("config"), table.get("split"), table.get("revision"))
    if value.startswith("hub:"):
        return HubData(value.removeprefix("hub:").strip())
    if value != "hub":
        return folder / os.path.expanduser(value)
    if format not in ON_HUB:
        raise OptionError(
            f"{where} is 'hub', but for {format} no data set of the hub is known: {NOT_ON_HUB[format]}. "
            "Name such a file, or hub:ID of a data set that has them.",
            field=field,
        )
    return ON_HUB[format]


def _fetched(sweep: Sweep) -> Sweep:
    """The sweep with its data sets of the hub in the hub's cache; ``source`` tells their commits."""
    fetched: dict[Data, HubData] = {}
    for data in (task.data for task in sweep.tasks):
        if data and isinstance(data.path, HubData) and data not in fetched:
            fetched[data] = fetch(data.path, ON_HUB.get(data.format))
    if not fetched:
        return sweep
    tasks = tuple(
        replace(task, data=replace(task.data, path=fetched[task.data])) if task.data in fetched else task
        for task in sweep.tasks
    )
    notes = dict.fromkeys(f"# read from the hub: {data.written}\n" for data in fetched.values())
    return replace(sweep, tasks=tasks, source="".join([sweep.source.rstrip("\n"), "\n", *notes]))
