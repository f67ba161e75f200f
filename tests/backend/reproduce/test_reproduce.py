"""Reproductions: the registry points at what its plans measure, reports are honest, the cheap ones run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from tiny import QUESTIONS

from backend.base.errors import LabError, OptionError
from backend.bench.group import AgentTimes, group_times
from backend.methods.registry import method_class, option_fields, parse_methods
from backend.model.link_tokens import SHIPPED as LINKED_WEIGHTS
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Progress
from backend.records.hypothesis_verdicts import Verdict
from backend.records.request import MethodChoice
from backend.records.risk_gate import EVERY
from backend.reproduce import energy, studies, sweeping
from backend.reproduce.context import Context, Linked, Settings
from backend.reproduce.judging import THIRDS
from backend.reproduce.layers import DEPTHS
from backend.reproduce.overlap import BUDGETS
from backend.reproduce.page import listing, page
from backend.reproduce.registry import find, reproductions
from backend.reproduce.result import fits, markdown, read, report
from backend.reproduce.run import ReportEvent, check, reproduce
from backend.reproduce.spec import (
    SCALES,
    AttentionPlan,
    CostPlan,
    GroupPlan,
    HarnessPlan,
    JudgedPlan,
    LatencyPlan,
    Line,
    Measurement,
    OffsetsPlan,
    OverlapPlan,
    Plan,
    ProximityPlan,
    Reproduction,
    Scale,
    Scaled,
    SeriesPlan,
    SpeedPlan,
    SweepPlan,
    UsesPlan,
    Value,
    Weights,
)
from backend.reproduce.timings import group_units
from backend.studies.documents import base_arms
from backend.studies.latency import Server
from backend.studies.offset_estimates import METHODS
from backend.sweeps.grid import planned_rows, shards_of
from backend.sweeps.read import parse_sweep
from backend.sweeps.spec import JudgeTask
from backend.training.link_tokens.train import LinkRecipe
from lab_app.cli.main import main
from lab_app.cli.reproduce import IMAGES, RESULTS

ROOT = Path(__file__).parents[3]
ASKED_FOR = {
    *(f"kvcomm-table-{n}" for n in ("1", "2", "3", "4", "5", "6", "a2", "a3", "a4", "a5", "a6")),
    *(f"kvcomm-figure-{n}" for n in ("1", "4", "a3", "a4", "a12")),
    *(f"judges-table-{n}" for n in "1234"),
    *(f"judges-figure-{n}" for n in ("3", "4b", "5", "6")),
    *(f"kvlink-table-{n}" for n in "1235"),
    "kvlink-figure-3",
    "kvlink-figure-6",
    *(f"segments-h{n}" for n in "1234"),
    "end-to-end",
}
ROWS = {
    "gsm8k": {"question": "1 and 1?", "answer": "#### 2"},
    "mmlu": {"question": "?", "choices": ["a", "b", "c", "d"], "answer": 0},
    "humaneval": {"prompt": "def f():\n", "test": "def check(f):\n    pass\n", "entry_point": "f"},
    "math500": {"problem": "1 and 1?", "answer": "2"},
    "aime": {"problem": "1 and 1?", "answer": "2"},
    "hotpotqa": {"question": "?", "answer": "b", "context": [["t", ["s."]]]},
    "2wikimqa": {"question": "?", "answer": "b", "context": [["t", ["s."]]]},
    "musique": {"question": "?", "answer": "b", "paragraphs": [{"title": "t", "paragraph_text": "s."}] * 20},
    "samsum": {"dialogue": "A: hi", "summary": "A greets."},
    "multinews": {"document": "One. ||||| Two.", "summary": "Both."},
    "nq": {"question": "?", "answers": ["b"], "ctxs": [{"title": "t", "text": "s."}]},
    "triviaqa": {"question": "?", "answers": ["b"], "ctxs": [{"title": "t", "text": "s."}]},
}
ROWS |= {f"nq-open-10_total_documents_gold_at_{n}": ROWS["nq"] for n in (0, 4, 9)}


def test_every_table_that_was_asked_for_is_there() -> None:
    assert {one.name for one in reproductions()} == ASKED_FOR
    assert len(reproductions()) == len(ASKED_FOR)
    assert all(find(name).name == name for name in ASKED_FOR)
    with pytest.raises(OptionError, match="no reproduction 'table-9'"):
        find("table-9")


@pytest.mark.parametrize("one", reproductions(), ids=lambda one: one.name)
def test_a_table_is_whole(one: Reproduction) -> None:
    assert one.caveat.strip()
    assert all(len(line.paper) == len(one.columns) for line in one.lines)
    labels = [line.label for line in one.lines]
    assert len(set(labels)) == len(labels)
    assert set(one.scales) == set(SCALES)
    for scale, scaled in one.scales.items():
        placed = [scale in line.at for line in one.lines]
        assert any(placed), "a scale at which nothing is measured"
        assert all(placed) or scaled.absent, "a line without a figure of ours says why"


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("one", reproductions(), ids=lambda one: one.name)
def test_every_line_names_what_its_plan_measures(one: Reproduction, scale: Any, tmp_path: Path) -> None:
    """Nobody notices a line that points nowhere: it says "not measured" for ever."""
    settings = [Measurement(where, {}) for where in measured(one, scale, tmp_path)]
    for line in one.lines:
        if scale in line.at:
            for column in one.columns:
                place = {**line.at[scale], **(column.at or {}).get(scale, {})}
                where = {name: value for name, value in place.items() if name != "model"}
                there = any(fits(found, where) for found in settings)
                assert there or not column.measured(scale), (line.label, column.title, where)


# Rows that the papers print, and data sets, agents and models of each: what is run when nobody says --model.
WHOLE = {
    "kvcomm-table-1": 3 * 4 * 3, "kvcomm-table-4": 4, "kvcomm-table-5": 8, "kvcomm-table-6": 10,
    "kvcomm-table-a2": (3 + 3 + 3) * 2, "kvcomm-table-a3": 2, "judges-table-1": 3 * 2 * 2 * 4,
    "judges-table-2": 4, "judges-table-3": 8, "judges-table-4": 4,
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_all_that_a_paper_prints_is_run_at_paper_scale(name: str, tmp_path: Path) -> None:
    one = find(name)
    assert len(one.lines) == WHOLE[name]
    assert all(None not in line.paper[:1] for line in one.lines)
    settings = [Measurement(where, {}) for where in measured(one, "paper", tmp_path)]
    for line in one.lines:
        fitting = {found.where["model"] for found in settings if fits(found, line.at["paper"])}
        assert len(fitting) == 1, (line.label, fitting)
        [model] = fitting
        if "HumanEval" in line.label and one.paper == "kvcomm":
            assert "Qwen-Coder" in line.label
            assert model == "Qwen/Qwen2.5-Coder-7B-Instruct"
        elif "Deepseek" in line.label:
            assert model == "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"
        else:
            assert model == one.scales["paper"].model


@pytest.mark.parametrize(
    ("name", "agents"),
    [("kvcomm-table-4", {4}), ("kvcomm-table-5", {4}), ("kvcomm-table-6", {4}), ("kvcomm-table-a3", {4}),
     ("kvcomm-table-a4", {4}), ("kvcomm-table-1", {2, 3, 4, 5}), ("kvcomm-table-a2", {2, 3, 4})],
)  # fmt: skip
def test_as_many_agents_work_as_in_the_paper(name: str, agents: set[int]) -> None:
    for scale in SCALES:
        plan: Any = find(name).scales[scale].plan
        found = set()
        for given in plan.tasks:
            if given["pipeline"] == "program-loop":
                continue
            bare = {k: v for k, v in given.items() if k in ("pipeline", "agents", "label")}
            text = json.dumps({"name": "t", "tasks": [bare], "methods": "dense", "problems": 1})
            [shard] = shards_of(parse_sweep(text))
            assert shard.pipeline is not None
            found.add(len(shard.pipeline.agents))
            if "agents" in given.get("label", ""):
                assert f"{len(shard.pipeline.agents)} agents" in given["label"]
        assert found == agents, scale


def kind_of(one: Weights) -> tuple[str, dict[str, str]]:
    """What weights are called in a report."""
    rate = f"{one.compressed if one.compression != 'none' else 0:.0%}"
    linked = Linked("", LinkRecipe(**asdict(one)).label, one.mixture, one.compression, rate, 0, "")
    return linked.label, linked.kind


def kind_of_weights(one: Weights) -> dict[str, str]:
    label, kind = kind_of(one)
    return {"weights": label, **kind}


def measured(one: Reproduction, scale: Any, folder: Path) -> Iterator[Mapping[str, str]]:
    """The settings that a plan gives figures of."""
    plan: Plan = one.scales[scale].plan
    for part in plan.plans if isinstance(plan, SeriesPlan) else (plan,):
        yield from measured_by(part, one, scale, folder)


def measured_by(plan: Plan, one: Reproduction, scale: Any, folder: Path) -> Iterator[Mapping[str, str]]:
    if isinstance(plan, HarnessPlan):
        for title in (title for task in plan.tasks for title in task.metrics):
            for kind in ({"weights": "base"}, *map(kind_of_weights, one.scales[scale].weights)):
                yield {**kind, "method": "dense", "task": title}
    elif isinstance(plan, SweepPlan):
        for name, row in ROWS.items():
            (folder / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n" * 3, encoding="utf-8")
        context = Context(one, scale, one.scales[scale].model, Settings(folder, 1, 0, data=folder))
        tasks = [task for given in plan.tasks if (task := sweeping._task(given, plan, context))]
        assert not context.notes, "data that is not there"
        for (model, problems), task in sweeping._place_tasks(tasks, plan, context):
            text = json.dumps(
                {
                    "name": "t", "tasks": [task], "methods": list(plan.methods), "modes": [plan.mode],
                    "request_orders": list(plan.request_orders), "problems": problems, "models": [model],
                }
            )  # fmt: skip
            for slot in planned_rows(shards_of(parse_sweep(text))):
                yield sweeping.place_of(slot.cell, slot.method)
                for one_set in one.scales[scale].weights if plan.linked else ():
                    label, kind = kind_of(one_set)
                    yield sweeping.place_of(slot.cell, label) | kind
                    yield sweeping.place_of(slot.cell, f"dense on {label}") | kind
    elif isinstance(plan, GroupPlan):
        for agents, prefix, _, answer in plan.settings:
            for agent in (*range(1, agents + 1), "mean"):
                yield {"agent": str(agent), "prefix": str(prefix), "answer": str(answer)}
    elif isinstance(plan, CostPlan):
        yield from ({"anchors": str(a), "tokens": str(t)} for a in plan.anchors for t in plan.lengths)
    elif isinstance(plan, SpeedPlan):
        yield from ({"length": str(n)} for n in plan.lengths)
    elif isinstance(plan, LatencyPlan):
        yield from ({"task": p, "method": m} for p in plan.pipelines for m in plan.methods)
    elif isinstance(plan, ProximityPlan):
        yield from ({"depth": depth} for depth in DEPTHS)
    elif isinstance(plan, OffsetsPlan):
        yield from ({what: depth} for what in ("text", "requests") for depth in DEPTHS)
        yield from ({"estimate": name} for name in METHODS)
    elif isinstance(plan, AttentionPlan):
        labels = [choice.label for choice in parse_methods(plan.methods)]
        yield from ({"method": m, "token": query} for m in labels for query in ("first", "selecting"))
    elif isinstance(plan, OverlapPlan):
        yield from ({"budget": f"{budget:.0%}"} for budget in BUDGETS)
        yield {"budget": "rank correlation"}
    elif isinstance(plan, JudgedPlan):
        labels = [choice.label for choice in parse_methods(plan.methods)]
        yield from ({"kept": str(n)} for n in range(len(labels)))
        yield from ({"gate": name} for name in (EVERY, *labels[1:]))
    elif isinstance(plan, UsesPlan):
        yield from ({"anchors": name} for name in (*THIRDS, "all"))
    else:  # studies: what they call their arms
        yield from ({"hypothesis": f"H{n}"} for n in range(1, 5))
        yield from ({"position": place} for place in (*map(str, range(1, 11)), "1 to 2", "3 to 10"))
        yield {"weights": "base"}
        yield from ({"arm": arm.label} for arm in base_arms("embedded"))
        for label in ("KVLink0", "KVLink1", "KVLink5", "Block-Attention"):
            for mixture in ("lab", "no-summary", "no-conversation", "qa-only"):
                for compression, rate in (
                    ("none", "0%"), ("drop", "50%"), ("drop", "75%"), ("anchors", "50%"), ("anchors", "75%"),
                ):  # fmt: skip
                    more = {"mixture": mixture, "compression": compression, "rate": rate}
                    yield {"arm": label, "weights": label, **more}
                    yield {"arm": f"dense on {label}", **more}


def test_what_papers_print_is_what_stands_here() -> None:
    """Spot checks against the papers' text, one of each printed table."""
    for name, label, figures in (
        ("kvcomm-table-1", "GSM8K, 5 agents, CacheBlend", (57.1, 80)),
        ("kvcomm-table-2", "Agent 5", (428.6, 17.5, 21.1, 16.2, 7.82)),
        ("kvcomm-table-3", "out 1024, in 1024", (6.72,)),
        ("kvcomm-table-5", "keys moved, template text corrected", (62.1,)),
        ("kvcomm-table-6", "gamma 0.3, V 5", (82.0, 44.0)),
        ("kvcomm-table-a2", "AIME, Deepseek-Qwen, 4 agents, KVCOMM", (8.3, 74.6)),
        ("kvcomm-table-a5", "25 anchors of 4,096 tokens", (18.113,)),
        ("judges-table-1", "HumanEval, Parallel Exploration, shuffled, PAL-KV", (36.02, 36.65, 66.96)),
        ("judges-table-3", "PAL-KV, V 20", (34.64, 37.25, 57.25)),
        ("kvlink-table-1", "Llama 3B, KVLink 5", (64.4, 71.2, 73.7, 69.5, 35.8, 0.204, 0.320)),
        ("kvlink-table-3", "Anchor tokens, 50%, KVLink", (43.0, 69.4, 69.3, 55.4, 17.3)),
    ):
        [line] = [line for line in find(name).lines if line.label == label]
        assert line.paper[: len(figures)] == figures, name


def test_the_caveat_on_cacheblend_is_true_at_both_scales() -> None:
    """Embedded: the method's own share; paper: the one that the plan names."""
    table = find("kvlink-table-1")
    usual = next(f.default for f in option_fields(method_class("cacheblend")) if f.name == "ratio")
    plan = table.scales["paper"].plan
    assert isinstance(plan, SweepPlan)
    assert "cacheblend:ratio=0.18@cacheblend" in plan.methods
    assert (
        f"computes 18% again at paper scale, as the paper does, and {usual:.0%} at embedded" in table.caveat
    )


@pytest.mark.parametrize("scale", SCALES)
def test_the_list_has_the_minutes_of_its_scale(scale: Scale) -> None:
    said = listing(scale)
    for one in reproductions():
        [line] = [row for row in said.splitlines() if row.startswith(f"  {one.name} ")]
        assert f", about {one.scales[scale].minutes} min: " in line
    assert f"Minutes are of {scale} scale" in said
    assert ("--scale paper runs one" in said) is (scale == "paper")


def test_the_page_lists_all_and_holds_the_saved_reports() -> None:
    saved = (ROOT / "docs" / "reproductions.md").read_text(encoding="utf-8")
    assert saved == page(RESULTS, IMAGES), "renew it: kvlab reproduce --markdown > docs/reproductions.md"
    for one in reproductions():
        assert f"| `{one.name}`" in saved
        assert f"{one.name} " in listing()


# -- reports


def test_a_report_puts_both_figures_side_by_side_and_says_why_one_is_missing(tmp_path: Path) -> None:
    one = find("kvcomm-table-1")
    where = {"task": "4 agents", "method": "CacheBlend"}
    values = {"accuracy": Value(0.5, 0.4, 0.6, 40), "tokens": Value(0.78), "agents": Value(0.0)}
    found = [
        Measurement(where, values),
        Measurement({**where, "method": "dense"}, {"accuracy": Value(math.nan)}),
    ]
    made = report(one, "embedded", found, ["A note."], {"seconds": 3.0})
    lines = {line["label"]: line for line in made["lines"]}
    mine = lines["GSM8K, 4 agents, CacheBlend"]
    assert mine["paper"][:2] == [65.1, 80]
    assert mine["ours"][0] == {"value": 0.5, "low": 0.4, "high": 0.6, "of": 40}
    assert mine["ours"][1]["value"] == 0.78, "CacheBlend's reuse is of tokens, as in the paper"
    assert lines["MMLU, 2 agents, original"]["absent"].startswith(
        "the embedded model has no task of this kind"
    )
    unmeasured = lines["GSM8K, 4 agents, original"]
    assert unmeasured["ours"] == [None] * 3, "NaN is no figure"
    assert unmeasured["absent"] == "not measured in this run"
    (tmp_path / "r.json").write_text(json.dumps(made, allow_nan=False), encoding="utf-8")
    text = markdown(read(tmp_path / "r.json"))
    assert "| GSM8K, 4 agents, CacheBlend | 65.1% | 50.0% (40.0 to 60.0) | 80% | 78.0% |" in text
    assert "the embedded model has no task of this kind" in text
    assert one.caveat.strip() in text
    assert "A note." in text


def test_models_are_named_by_a_part() -> None:
    found = Measurement({"task": "MATH500", "model": "meta-llama/Llama-3.1-8B-Instruct"}, {})
    assert fits(found, {"task": "MATH500", "model": "llama"})
    assert not fits(found, {"task": "MATH500", "model": "qwen"})
    assert not fits(found, {"task": "MATH"})


# -- running


def run(
    one: Reproduction, asked: Settings, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    monkeypatch.setattr(Context, "load", lambda self, name: model)
    *_, last = reproduce(one, asked)
    assert isinstance(last, ReportEvent)
    return last.report


def planned(name: str, **changes: Any) -> Reproduction:
    """A reproduction whose embedded plan is made smaller."""
    one = find(name)
    scaled = one.scales["embedded"]
    plan: Any = replace(scaled.plan, **changes)  # type: ignore[type-var]
    return replace(one, scales={**one.scales, "embedded": replace(scaled, plan=plan)})


@pytest.mark.parametrize("name", ["kvcomm-table-5", "kvcomm-table-6", "kvcomm-table-a3", "kvcomm-table-a4"])
def test_what_a_table_claims_of_kvcomm_is_tested_against_kvcomm(name: str, tmp_path: Path) -> None:
    for scaled in find(name).scales.values():
        assert isinstance(scaled.plan, SweepPlan)
        task = {"pipeline": "math-2"}
        context = Context(find(name), "embedded", "embedded", Settings(tmp_path))
        asked = sweeping._requested_sweep(scaled.plan, context, [task], "embedded", 2, scaled.plan.methods)
        [baseline] = asked.against
        assert baseline.value == scaled.plan.against != "dense"


@pytest.mark.slow
def test_a_sweep_is_repeated_behind_several_warm_ups(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {"max_new_tokens": 2, "methods": ("dense", "kvcomm@length and entropy")}
    one = planned("kvcomm-table-a3", tasks=({"pipeline": "math-2"},), **changes)
    made = run(one, Settings(tmp_path, problems=1, warmup=1, warmups=3), tiny_model, monkeypatch)
    [figures] = [x["ours"] for x in made["lines"] if any(x["ours"])]
    assert [figure["of"] for figure in figures] == [3, 3, 3]
    assert made["warmups"] == 3
    assert "behind 3 independent warm-ups" in made["notes"][0]
    assert made["notes"][1].startswith(
        "Right answers against length and entropy (Wilcoxon over 3 warm-ups, Holm"
    )
    assert "dense loses" in made["notes"][1], "the claim is about KVCOMM's criterion, not about dense"
    timed = find("kvcomm-table-2").scales["embedded"].plan
    with pytest.raises(OptionError, match="no sweep"):
        check(Settings(tmp_path, warmups=2), timed, "kvcomm-table-2")
    with pytest.raises(OptionError, match="warmups"):
        check(Settings(tmp_path, warmups=0), one.scales["embedded"].plan, one.name)
    given = Context(one, "paper", "embedded", Settings(tmp_path, problems=1, data=Path(tmp_path), warmups=2))
    (tmp_path / "gsm8k.jsonl").write_text("")
    task = sweeping._task({"pipeline": "x", "data": "gsm8k", "format": "gsm8k"}, SweepPlan((), (), 1), given)
    assert task is not None
    assert task["draw"] == "random", "the first ones would be the same behind every warm-up"


@pytest.mark.slow
def test_a_sweep_runs_and_goes_on(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = planned("kvcomm-table-a3", max_new_tokens=3, tasks=({"pipeline": "math-2"},))
    asked = Settings(tmp_path, problems=2, warmup=1, command="kvlab reproduce kvcomm-table-a3")
    made = run(one, asked, tiny_model, monkeypatch)
    assert all(line["ours"][1]["of"] == 2 for line in made["lines"])
    assert made["model"]["weights_hash"] == tiny_model.info.weights_hash
    assert made["energy"] == {"joules": None, "absent": "no energy: a CPU reports none"}
    monkeypatch.setattr(sweeping.ModelRunner, "run", lambda *_: pytest.fail("computed again"))
    again = run(one, asked, tiny_model, monkeypatch)
    assert again["lines"] == made["lines"]


def test_documents_say_which_weights_are_missing(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.reproduce.training.SHIPPED", tmp_path / "none")
    monkeypatch.setattr("backend.studies.documents.MAX_ANSWER", 2)
    made = run(
        find("kvlink-table-1"), Settings(tmp_path, problems=2, training_steps=0), tiny_model, monkeypatch
    )
    lines = {line["label"]: line for line in made["lines"]}
    assert lines["Llama 1B (here the embedded model), PromptCache"]["ours"][-1]["of"] == 2
    assert lines["Llama 1B (here the embedded model), KVLink 5"]["ours"][-1] is None
    assert any("kvlab train-links" in note for note in made["notes"])


@pytest.mark.slow
def test_a_sweep_runs_under_trained_weights_and_says_which(tmp_path: Path) -> None:
    """As KVLink's tables do at paper scale: the base's methods, then each set of weights and dense on it."""
    one = find("kvlink-table-3")
    plan = SweepPlan(({"pipeline": "documents-5", "label": "NQ"},), ("dense",), 1, max_new_tokens=4,
                     linked=("kvlink",))  # fmt: skip
    lines = tuple(
        Line(name, (None,) * 6, {"paper": {"method": name, **kind}})
        for name, kind in (
            ("dense", {}),
            ("KVLink5", {"mixture": "lab", "compression": "none", "rate": "0%"}),
            ("dense on KVLink5", {"compression": "none"}),
            ("KVLink5", {"compression": "anchors"}),
        )
    )
    scaled = Scaled(plan, "a test", 1, "embedded", weights=(Weights(5), Weights(5, compression="anchors")))
    one = replace(one, lines=lines, scales={"paper": scaled})
    asked = Settings(tmp_path, problems=1, scale="paper", links=LINKED_WEIGHTS, training_steps=0)
    [*_, done] = reproduce(one, asked)
    assert isinstance(done, ReportEvent)
    measured = [line["ours"][0] is not None for line in done.report["lines"]]
    assert measured == [True, True, True, False], "weights of another kind stand for nothing else"
    assert any("1 of 2 sets of trained weights are not here" in note for note in done.report["notes"])


def test_a_group_is_timed(tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.bench.roofline.COPY_BYTES", {"cpu": 1 << 20})
    monkeypatch.setattr("backend.bench.roofline.PRODUCT_SIDE", {"cpu": 64})
    seen: list[AgentTimes] = []

    def watched(*asked: Any) -> Iterator[Progress | AgentTimes]:
        for event in group_times(*asked):
            if isinstance(event, AgentTimes):
                seen.append(event)
            yield event

    monkeypatch.setattr("backend.reproduce.timings.group_times", watched)
    one = planned("kvcomm-table-2", settings=((3, 32, 32, 16),), anchors=3)
    made = run(one, Settings(tmp_path, problems=1), tiny_model, monkeypatch)
    lines = {line["label"]: line["ours"] for line in made["lines"]}
    assert all(value["value"] > 0 for value in lines["Agent 3"][:-2])
    for times in seen:
        line = [v["value"] for v in lines[f"Agent {times.agent}"]]
        dense, *_, speedup, _, bf16, strongest, of_dense, of_reuse = line
        side = "dense_bf16" if bf16 < dense else "dense"
        assert of_dense == times.roofline_percent[side] / 100, "a share, not a percentage"
        assert of_reuse == times.roofline_percent["reuse"] / 100
        assert strongest == pytest.approx(speedup * min(1, bf16 / dense))
    assert len(seen) == 3
    assert lines["Agent 4"] == [None] * 10
    where = [m["where"] for m in made["measured"]]
    assert [w["tokens"] for w in where if "tokens" in w] == ["64", "80", "96"]


def test_pools_are_counted_for_a_whole_group(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert group_units(3) == 4 + 3 + 2  # the user's input, and two answers
    one = planned("kvcomm-table-a6", anchors=(2,), lengths=(16,))
    one = replace(one, lines=(replace(one.lines[0], at={"embedded": {"anchors": "2", "tokens": "16"}}),))
    made = run(one, Settings(tmp_path), tiny_model, monkeypatch)
    [line] = made["lines"]
    assert line["ours"][2] is None, "nothing is offloaded on a CPU"
    kv = 2 * 16 * tiny_model.info.kv_bytes_per_token / 1e6
    assert line["ours"][4]["value"] == pytest.approx(9 * kv, rel=0.2)  # descriptors beside it


def test_a_verdict_becomes_figures_with_their_intervals(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = Verdict(
        "H1", "claim", "refuted", "because.",
        ("less time", "from", "to", "success lost", "from", "to", "episodes"),
        (0.1, 0.05, 0.15, 0.0, -0.01, 0.01, 40.0),
    )  # fmt: skip
    other = Verdict("H2", "claim", "undecided", "too few.", ("mean KL", "from"), (math.nan, 3.0))
    record = object.__new__(studies.HypothesesRecord)
    monkeypatch.setattr(studies, "measure", lambda *_: iter([record]))
    monkeypatch.setattr(studies, "verdicts", lambda _: (said, other))
    made = run(find("segments-h1"), Settings(tmp_path), tiny_model, monkeypatch)
    assert made["lines"][0]["ours"][0] == {"value": 0.1, "low": 0.05, "high": 0.15, "of": 40}
    assert made["notes"] == ["H1 is refuted: because."]


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("kvcomm-table-4", {"problems": 0}, "requests is 0; 1 to 10,000"),
        ("kvcomm-table-4", {"links": Path("nowhere")}, "which is no folder"),
        ("kvlink-table-2", {"scale": "paper"}, "asks gsm8k, mmlu, .* Give --data hub to fetch them"),
        ("kvlink-table-5", {"scale": "paper"}, "asks gsm8k, mmlu, .* Give --data hub to fetch them"),
        ("kvlink-table-5", {"scale": "own"}, "The scale is 'own'; there are embedded, paper"),
    ],
)
def test_what_cannot_be_run_is_refused(name: str, asked: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=message):
        list(reproduce(find(name), Settings(tmp_path, **asked)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU can run it")
def test_a_shape_that_a_cpu_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="llama-8b needs a GPU"):
        list(reproduce(find("kvcomm-table-3"), Settings(tmp_path, scale="paper")))


def test_a_data_set_that_is_not_there_is_named(
    tmp_path: Path, tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Context, "load", lambda self, name: tiny_model)
    with pytest.raises(OptionError, match=r"reads mmlu\.jsonl, of which none was found"):
        list(reproduce(find("kvcomm-table-4"), Settings(tmp_path, scale="paper", data=tmp_path)))


# -- whole requests, energy


@pytest.mark.slow
def test_a_method_alone_serves_whole_requests(tiny_model: LoadedModel) -> None:
    flow = tiny.pipeline(tokens=4)
    examples = [Example({"user_question": q}, "1") for q in QUESTIONS[:2]]
    servers = {name: Server(tiny_model, flow, MethodChoice(name)) for name in ("dense", "prefix", "naive")}
    for example in examples:
        served = {name: server.serve(example) for name, server in servers.items()}
        assert served["prefix"].answer == served["dense"].answer, "an exact prefix changes nothing"
        assert served["dense"].agents_reused == 0
        assert served["naive"].agents_reused == 3
        for one in served.values():
            assert 0 < one.ttft_ms + one.decode_ms <= one.wall_ms * 1.001


def test_joules_are_the_gpus_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert energy.Meter(torch.device("cpu")).joules() is None
    counter = iter((7_000, 7_000, 9_500))
    fake = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByPciBusId=lambda bus: {b"00000000:3b:00.0": "card"}[bus],
        nvmlDeviceGetTotalEnergyConsumption=lambda card: {"card": next(counter)}[card],
    )
    facts = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x3B, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    monkeypatch.setattr(energy.importlib, "import_module", lambda _: fake)
    meter = energy.Meter(torch.device("cuda"))
    assert (meter.joules(), meter.joules()) == (7.0, 9.5)

    def missing(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(energy.importlib, "import_module", missing)
    assert "kv-reuse-lab[energy]" in energy.Meter(torch.device("cuda")).absent


# -- the command


@pytest.mark.slow
def test_the_command_lists_runs_and_refuses(
    tmp_path: Path,
    tiny_model: LoadedModel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["reproduce"]) == 0
    assert capsys.readouterr().out == listing()
    assert main(["reproduce", "--list"]) == 0
    assert capsys.readouterr().out == listing("embedded")
    assert main(["reproduce", "--scale", "paper"]) == 0
    assert capsys.readouterr().out == listing("paper")
    for flag in ("--list", "--markdown"):
        assert main(["reproduce", "kvcomm-table-5", flag]) == 2
        assert f"{flag} is of all reproductions, but one is named: 'kvcomm" in capsys.readouterr().err
    assert main(["reproduce", "kvcomm-table-5", "--out", "~nobody-has-this-name", "--requests", "0"]) == 2
    assert "requests is 0" in capsys.readouterr().err
    assert main(["reproduce", "kvcomm-table-9"]) == 2
    assert "kvcomm-table-5" in capsys.readouterr().err
    monkeypatch.setattr(Context, "load", lambda self, name: tiny_model)
    small = planned("kvcomm-table-2", settings=((1, 32, 32, 16),), anchors=2)
    monkeypatch.setattr("backend.reproduce.registry.reproductions", lambda: (small,))
    assert main(["reproduce", small.name, "--requests", "1", "--out", str(tmp_path / "o")]) == 0
    saved = read(tmp_path / "o" / "kvcomm-table-2.json")
    assert saved["command"] == "kvlab reproduce kvcomm-table-2 --requests 1"
    assert (tmp_path / "o" / "kvcomm-table-2.md").read_text(encoding="utf-8") in capsys.readouterr().out
    (tmp_path / "f").write_text("", encoding="utf-8")
    assert main(["reproduce", small.name, "--out", str(tmp_path / "f")]) == 2


def test_a_sweeps_judge_may_copy_the_candidates_alone() -> None:
    text = "name: t\nmethods: [naive]\nproblems: 1\ntasks:\n  - judge: {candidates_only: true}\n"
    [task] = parse_sweep(text).tasks
    assert isinstance(task, JudgeTask)
    assert task.request.slots_only
    with pytest.raises(LabError, match="candidates_only"):
        parse_sweep(text.replace("true", "1"))


def test_a_column_may_be_a_setting_of_its_own() -> None:
    """KVLink's Table 1: a data set a column at paper scale, and one of them for all at embedded scale."""
    one = find("kvlink-table-1")
    paper = [
        Measurement({"task": task, "method": "dense", "model": "llama-1b"}, {"accuracy": Value(value)})
        for task, value in (("HotpotQA", 0.4), ("NQ", 0.3))
    ]
    saved = report(one, "paper", paper, (), {})
    titles = [c["title"] for c in saved["columns"] if c["measured"]]
    assert titles == ["NQ", "2WikiMQA", "TriviaQA", "HotpotQA", "MuSiQue", "MultiNews", "Samsum"]
    first = saved["lines"][0]
    assert [c and c["value"] for c in first["ours"]] == [0.3, None, None, 0.4, None, None, None, None]
    ours = report(one, "embedded", [Measurement({"arm": "Dense"}, {"accuracy": Value(0.9)})], (), {})
    assert [c["title"] for c in ours["columns"] if c["measured"]] == ["two-hop questions"]
    assert [c and c["value"] for c in ours["lines"][0]["ours"]] == [*[None] * 7, 0.9]
