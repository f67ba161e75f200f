"""Reproductions of what judges and pools did: the numbers are those of the runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.model.load import LoadedModel
from backend.records.judge_tables import ProblemCount
from backend.reproduce import judging, overlap
from backend.reproduce.context import Context, Settings
from backend.reproduce.registry import find
from backend.reproduce.spec import AttentionPlan, JudgedPlan, Measurement, OverlapPlan, UsesPlan


def context(model: LoadedModel, name: str, folder: Path, problems: int, warmup: int = 1) -> Context:
    made = Context(find(name), "embedded", "tiny", Settings(folder, problems=problems, warmup=warmup))
    made.loaded["tiny"] = model
    return made


@pytest.mark.slow
def test_attention_is_that_of_the_runs(tiny_model: LoadedModel, tmp_path: Path) -> None:
    plan = AttentionPlan("judge-right", "dense,naive", 2, 1)
    asked = context(tiny_model, "judges-figure-3", tmp_path, 2)
    found = {
        x.where["method"]: x
        for x in judging.attention(plan, asked)
        if isinstance(x, Measurement)
        if x.where["token"] == "first"
    }
    records = [x for x in judging.runs(plan, asked, attention=True) if isinstance(x, judging.RunRecord)]
    assert len(records) == 2
    inside = []
    for record in records:
        [probe] = [p for p in record.attention if p.method == "naive" and p.query == "first"]
        names = [name.startswith("candidate_") for name in probe.regions]
        assert sum(names) == 4
        inside.append(float(probe.mass.mean(axis=(0, 1))[names].sum()))
    naive = found["naive"].values
    assert naive["candidates"].value == pytest.approx(np.mean(inside), abs=1e-5)
    assert naive["answer"].value == pytest.approx(0, abs=1e-6)
    assert sum(v.value for v in naive.values()) == pytest.approx(1, abs=1e-5)
    assert set(found) == {"dense", "naive"}


@pytest.mark.slow
def test_questions_are_counted_by_how_many_methods_kept_them(
    tiny_model: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = [
        ProblemCount(n, "identity", "?", right, kept, 2, (), (), ())
        for n, (right, kept) in enumerate(((0, 0), (2, 2), (1, 2), (2, 1)))
    ]
    monkeypatch.setattr(judging, "counted", lambda judged: tuple(counts))
    asked = context(tiny_model, "judges-figure-6", tmp_path, 2)
    plan = JudgedPlan("dense,naive,palkv:capacity=5@palkv", 2, 1)
    found = [x for x in judging.judged(plan, asked) if isinstance(x, Measurement)]
    kept = [x.values for x in found if "kept" in x.where]
    assert [v["questions"].value for v in kept] == [0.25, 0.25, 0.5]
    assert [v["right"].value for v in kept] == [0, 1, 0.75]


@pytest.mark.slow
def test_anchors_are_grouped_by_length(tiny_model: LoadedModel, tmp_path: Path) -> None:
    asked = context(tiny_model, "kvcomm-figure-a3", tmp_path, 2, warmup=3)
    plan = UsesPlan("math-2", "dense,kvcomm", 2, 3)
    *_, last = judging.runs(plan, asked, attention=False)
    assert isinstance(last, judging.RunRecord)
    found = {x.where["anchors"]: x.values for x in judging.uses(plan, asked) if isinstance(x, Measurement)}
    lengths = sorted(n for pool in last.pools for n in pool.lengths)
    assert found["all"]["tokens"].of == len(lengths) > 3
    third = -(-len(lengths) // 3)
    assert found["shortest third"]["tokens"].value == pytest.approx(np.mean(lengths[:third]))
    uses = [n for pool in last.pools for n in pool.uses]
    assert found["all"]["uses"].value == pytest.approx(np.mean(uses))
    assert found["all"]["never"].value == pytest.approx(np.mean([n == 0 for n in uses]))


def test_a_model_keeps_what_it_keeps(tiny_model: LoadedModel, tmp_path: Path) -> None:
    asked = context(tiny_model, "judges-figure-5", tmp_path, 2)
    asked.loaded["twin"] = tiny_model
    found = [
        x
        for x in overlap.token_overlap(OverlapPlan("judge-right", "twin", 2), asked)
        if isinstance(x, Measurement)
    ]
    assert len(found) == len(overlap.BUDGETS) + 1
    assert all(x.values[who].value == pytest.approx(1) for x in found for who in overlap.OBSERVERS)
    assert 0 < found[0].values["chance"].value < found[-2].values["chance"].value < 1
