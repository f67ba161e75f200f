"""EPIC: which tokens it computes again, and what it must equal exactly."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tiny
from tiny import assert_same, request, run, walk

from backend.base.clock import Clock
from backend.engine.prefill import Prefill
from backend.methods.epic import EpicMethod, EpicOptions
from backend.methods.naive import NaiveMethod, NaiveOptions
from backend.model.load import LoadedModel
from backend.records.prompt import Span
from backend.records.request import MethodChoice
from backend.records.run import RECOMPUTED
from backend.session.session import LabSession


@cache
def walked() -> tiny.Walk:
    return walk(tiny.model(), tiny.pipeline())


def spans() -> tuple[Span, ...]:
    return walked().contexts[3].prompt.spans


def execute(**options: Any) -> Prefill:
    one, method = walked(), EpicMethod(EpicOptions(**options))
    context = one.contexts[3]
    plan = method.plan(context, one.log, Clock())
    return one.engine.execute(context.prompt, plan, Clock(), method=method, context=context)


def again(found: Prefill) -> list[int]:
    assert (found.actions == found.actions[0]).all()
    return np.flatnonzero(found.actions[0] == RECOMPUTED).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("k", [1, 3, 32])
def test_the_first_tokens_of_every_text_are_computed_again(k: int) -> None:
    found = execute(first_tokens=k, suffix=False)
    texts = [s for s in spans() if s.kind == "placeholder"]
    assert all(s.start > 0 for s in texts)
    assert again(found) == [t for s in texts for t in range(s.start, min(s.start + k, s.end))]
    assert found.forwarded_tokens == len(again(found)) + 1
    everything = execute(first_tokens=k, suffix=False, chunks="all segments")
    total = spans()[-1].end
    later = [t for s in spans() if s.start for t in range(s.start, min(s.start + k, s.end)) if t < total - 1]
    assert again(everything) == later


def test_the_suffix_is_computed_in_any_case() -> None:
    assert again(execute(first_tokens=0)) == list(range(spans()[-1].start, spans()[-1].end - 1))


@pytest.mark.parametrize("mask", ["exact", "shipped"])
def test_without_first_tokens_and_suffix_it_is_position_only(mask: str) -> None:
    one = walked()
    found = execute(first_tokens=0, suffix=False, mask=mask)
    naive = NaiveMethod(NaiveOptions()).plan(one.contexts[3], one.log, Clock())
    assert_same(found, one.execute(3, naive), spans()[-1].end)


def test_where_texts_are_short_it_is_dense() -> None:
    """Every segment is no longer than k, so every token but the exact beginning is computed again."""
    short = tiny.pipeline(t3="Who?{user_question}Hm{agent_1_current} and {agent_2_current}so", tokens=6)
    one = walk(tiny.model(), short, "Ann has 3.")
    context = one.contexts[3]
    assert max(s.end - s.start for s in context.prompt.spans) <= 32
    method = EpicMethod(EpicOptions(first_tokens=32, chunks="all segments"))
    plan = method.plan(context, one.log, Clock())
    found = one.engine.execute(context.prompt, plan, Clock(), method=method, context=context)
    assert_same(found, one.dense[3], len(context.prompt.ids))


def test_it_runs_beside_the_others(tiny_model: LoadedModel) -> None:
    record = run(LabSession(tiny_model), request(["dense", MethodChoice("epic", {"first_tokens": 4})]))
    for agent in record.agents:
        outcome = record.outcome(agent, "epic")
        assert outcome.state == "reused"
        assert any(s.action == RECOMPUTED and "beginning of a text" in s.reason for s in outcome.spans)
