"""What ``kvlab reproduce`` needs at paper scale: large models, workers, a line's model, data of the hub."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from backend.base.errors import ModelError, OptionError
from backend.bench import common
from backend.model.load import LoadedModel
from backend.reproduce import sweeping
from backend.reproduce.context import Context, Settings
from backend.reproduce.registry import find, reproductions
from backend.reproduce.run import ReportEvent, reproduce
from backend.reproduce.spec import Line, Reproduction, SweepPlan
from backend.sweeps.hub import HubData
from backend.sweeps.runner import ModelRunner
from lab_app.cli.main import main

MMLU = {"question": "?", "choices": ["a", "b", "c", "d"], "answer": 0}


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What is loaded, and how; nothing is."""
    found: list[tuple[str, dict[str, Any]]] = []

    def load(name: str, **given: Any) -> LoadedModel:
        found.append((name, given))
        raise ModelError("not here")

    monkeypatch.setattr(common, "load_model", load)
    return found


@pytest.mark.parametrize("name", ["kvcomm-table-4", "kvcomm-table-2", "kvlink-table-1", "segments-h1"])
def test_the_flags_reach_the_loader(
    name: str, loads: list[tuple[str, dict[str, Any]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--device-map", "balanced", "--quantise", "4bit", "--out", str(tmp_path)]
    assert main(["reproduce", name, "--model", "some/model", *flags]) == 2
    assert "not here" in capsys.readouterr().err
    assert loads == [
        ("some/model", {"device": None, "dtype": None, "device_map": "balanced", "quantise": "4bit"})
    ]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--model", "smollm2-135m", "--quantise", "4bit"], "shape with random weights"),
        (["--model", "smollm2-135m", "--device-map", "auto"], "Leave --device-map out"),
        (["--ray"], "kvcomm-table-2 is no sweep"),
        (["--workers", "2"], "--workers is for --ray"),
        (["--quantise", "3bit"], "allowed: 4bit, 8bit"),
        (["--device", "cpu", "--device-map", "auto"], "Give one of the two"),
        (["--data", "nowhere"], "no folder"),
    ],
)
def test_what_does_not_go_together_is_refused(
    flags: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("backend.bench.common.random_model", "backend.reproduce.run.steps"):
        monkeypatch.setattr(name, lambda *_: pytest.fail("it goes on"))
    assert main(["reproduce", "kvcomm-table-2", *flags, "--out", str(tmp_path)]) == 2
    assert said in capsys.readouterr().err


# -- workers


class FakeCluster:
    """Stands for Ray: makes one runner as a worker would, from what could be sent to it."""

    made: FakeCluster
    workers = 3

    def __init__(self, make: Any, **given: Any) -> None:
        FakeCluster.made, self.given = self, given
        assert isinstance(make, partial)
        assert make.func is ModelRunner
        [load] = make.args
        assert pickle.loads(pickle.dumps(load)).keywords == load.keywords
        self.load, self.fingerprints, self.open = load, {}, 0
        self.runner = make()

    def __enter__(self) -> Self:
        self.open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.open -= 1

    def weights(self, shard: Any) -> str:
        self.fingerprints[shard.cell.model, ""] = found = self.runner.weights(shard)
        return found

    def run(self, *given: Any) -> Iterator[Any]:
        yield from self.runner.run(*given)

    def spread(self, shards: Any, done: Any, memo: Any, cancel: Any) -> Iterator[Any]:
        assert self.open == 1
        for shard in shards:
            yield from self.runner.run(shard, done, memo, cancel)


def small(name: str, **changes: Any) -> Reproduction:
    """Its embedded plan with few tokens."""
    one = find(name)
    scaled = one.scales["embedded"]
    plan: Any = replace(scaled.plan, max_new_tokens=3, **changes)  # type: ignore[call-arg]
    return replace(one, scales={**one.scales, "embedded": replace(scaled, plan=plan)})


@pytest.mark.slow
def test_a_sweep_runs_in_workers_and_no_model_here(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "Cluster", FakeCluster)
    monkeypatch.setattr(Context, "load", lambda *_: pytest.fail("loaded in this process"))
    monkeypatch.setattr("backend.reproduce.context.shape_or_model", loader := Loaded(tiny_model))
    asked = Settings(tmp_path, 2, 0, quantise="8bit", ray="head:1", workers=3)
    *_, last = reproduce(small("kvcomm-table-a3"), asked)
    assert isinstance(last, ReportEvent)
    assert FakeCluster.made.given == {"workers": 3, "address": "head:1", "gpus": 0}
    assert FakeCluster.made.open == 0, "the cluster is left"
    assert loader.given == [("embedded", {"device": None, "device_map": None, "quantise": "8bit"})]
    assert all(line["ours"][1]["of"] == 2 for line in last.report["lines"])
    assert last.report["model"]["weights_hash"] == tiny_model.info.weights_hash
    assert last.report["hardware"].startswith("workers on Ray")
    assert last.report["energy"]["absent"] == "no energy: the workers' counters are not read"
    assert any("3 workers" in note for note in last.report["notes"])


class Loaded:
    """Gives one model for all names, and remembers; another process gets none."""

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.given = model, []  # type: ignore[var-annotated]

    def __call__(self, name: str, **given: Any) -> LoadedModel:
        self.given.append((name, given))
        return self.model

    def __reduce__(self) -> Any:
        return Loaded, (None,)


def test_a_device_map_and_workers_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.reproduce.run.steps", lambda *_: pytest.fail("it goes on"))
    with pytest.raises(OptionError, match="worker a GPU and a model of its own"):
        list(reproduce(find("kvcomm-table-4"), Settings(tmp_path, ray="", device_map="auto")))


# -- models of a line's own


def own_models() -> Reproduction:
    tasks = (
        {"pipeline": "math-2", "label": "other", "model": "org/other", "problems": 1},
        {"pipeline": "math-2", "agents": 2, "label": "base"},
        {"pipeline": "math-2", "agents": 2, "label": "base", "model": "org/other"},
    )
    one = small("kvcomm-table-a3", tasks=tasks, methods=("dense",), warmup=0)
    lines = tuple(
        Line(
            f"{task} on {model}", (None,) * 3, {"embedded": {"task": task, "model": model, "method": "dense"}}
        )
        for task, model in (("other", "other"), ("base", "embedded"), ("base", "other"))
    )
    return replace(one, lines=lines)


@pytest.mark.slow
def test_a_task_runs_on_the_model_that_the_paper_ran_it_on(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loaded(tiny_model)
    monkeypatch.setattr("backend.reproduce.context.shape_or_model", loader)
    *_, last = reproduce(own_models(), Settings(tmp_path, 2, 0))
    assert isinstance(last, ReportEvent)
    assert [name for name, _ in loader.given] == ["embedded", "org/other"], "each once, the run's own first"
    assert last.report["notes"] == ["other; base: these ran on org/other."]
    assert [line["ours"][0]["of"] for line in last.report["lines"]] == [2, 2, 2]
    plain = small("kvcomm-table-a3").scales["embedded"].plan
    assert isinstance(plain, SweepPlan)
    context = Context(own_models(), "embedded", "embedded", Settings(tmp_path))
    own = own_models().scales["embedded"].plan
    assert isinstance(own, SweepPlan)
    placed = sweeping._place_tasks([dict(task) for task in own.tasks], own, context)
    assert [place for place, _ in placed] == [("embedded", 40), ("org/other", 1), ("org/other", 40)]


@pytest.mark.slow
def test_a_model_that_was_named_runs_all(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = Loaded(tiny_model)
    monkeypatch.setattr("backend.reproduce.context.shape_or_model", loader)
    *_, last = reproduce(own_models(), Settings(tmp_path, 1, 0, "embedded", "org/mine"))
    assert isinstance(last, ReportEvent)
    assert {name for name, _ in loader.given} == {"org/mine"}
    assert last.report["notes"] == [
        "other; base: these are meant for org/other and ran on org/mine, as --model says."
    ]
    assert len(last.report["measured"]) == 2, "base is there once"


# -- data of the hub


def test_hub_means_each_formats_own_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {
        "kvcomm-table-1": {"openai/gsm8k", "cais/mmlu", "openai/openai_humaneval"},
        "kvcomm-table-4": {"cais/mmlu"},
        "kvcomm-table-a2": {"HuggingFaceH4/MATH-500", "HuggingFaceH4/aime_2024"},
        "judges-table-1": {"openai/gsm8k", "cais/mmlu", "openai/openai_humaneval"},
    }
    asked: list[HubData] = []

    def fetch(data: HubData, usual: HubData | None) -> HubData:
        assert data == usual, "the format's own"
        asked.append(data)
        raise ModelError("enough")

    monkeypatch.setattr("backend.sweeps.read.fetch", fetch)
    for name, ids in wanted.items():
        plan: Any = find(name).scales["paper"].plan
        context = Context(find(name), "paper", "some/model", Settings(tmp_path, data="hub"))
        found = set()
        for given in plan.tasks:
            task = sweeping._task(given, plan, context)
            assert task is not None
            one = replace(plan, tasks=(given,))
            with pytest.raises(OptionError, match="enough"):
                list(sweeping.sweep(one, context))
            found.add(asked[-1].id)
        assert found == ids


def test_the_hubs_rows_are_measured(
    tmp_path: Path,
    tiny_model: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(f"{json.dumps(MMLU)}\n" * 4, encoding="utf-8")
    fetched = lambda data, usual: replace(data, revision="abc", paths=(file,))  # noqa: E731
    monkeypatch.setattr("backend.sweeps.read.fetch", fetched)
    monkeypatch.setattr(Context, "load", lambda *_: tiny_model)
    one = find("kvcomm-table-a3")
    task = {"pipeline": "math-2", "agents": 2, "data": "mmlu", "format": "mmlu", "label": "MMLU, 4 agents"}
    scaled = one.scales["paper"]
    plan = replace(scaled.plan, tasks=(task,), max_new_tokens=2)  # type: ignore[call-arg]
    one = replace(one, scales={"paper": replace(scaled, plan=plan)})
    monkeypatch.setattr("backend.reproduce.registry.reproductions", lambda: (one,))
    flags = ["--scale", "paper", "--data", "hub", "--requests", "2", "--out", str(tmp_path / "o")]
    assert main(["reproduce", one.name, *flags]) == 0
    saved = json.loads((tmp_path / "o" / f"{one.name}.json").read_text(encoding="utf-8"))
    assert saved["command"] == f"kvlab reproduce {one.name} --requests 2 --scale paper --data hub"
    assert all(line["ours"][0]["of"] == 2 for line in saved["lines"])
    capsys.readouterr()


def test_a_format_that_the_hub_lacks_is_named_and_the_others_run(tmp_path: Path) -> None:
    tasks = tuple(
        {"pipeline": "documents-10", "data": f, "format": f, "label": f} for f in ("nq", "hotpotqa")
    )
    plan = SweepPlan(tasks, ("dense",), 1)
    context = Context(reproductions()[0], "paper", "some/model", Settings(tmp_path, data="hub"))
    with pytest.raises(OptionError, match=r"^--data is hub, but for nq no data set .*lost-in-the-middle"):
        list(sweeping.sweep(replace(plan, tasks=tasks[:1]), context))
    context.notes.clear()
    assert [sweeping._task(task, plan, context) is None for task in tasks] == [True, False]
    [note] = context.notes
    assert note.startswith("nq was left out: for nq no data set of the hub is known")
