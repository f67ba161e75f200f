"""RelayCaching: its exact ends, whom it repairs and at which layers, and what that costs."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import assert_same, walk
from torch.nn.functional import cosine_similarity

from backend.base.clock import Clock
from backend.engine.assembled_prompt import AssembledPrompt
from backend.engine.prefill import Prefill
from backend.methods.base import Finished
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.methods.registry import make_options, method_class
from backend.methods.relaycaching import decoded, profiled
from backend.records.run import COMPUTED, RECOMPUTED, REUSED


@cache
def walked() -> tiny.Walk:
    return walk(tiny.model(), tiny.pipeline())


def execute(**options: Any) -> Prefill:
    one, method = walked(), method_class("relaycaching")(make_options("relaycaching", options))
    plan = method.plan(one.contexts[3], one.log, Clock())
    return one.engine.execute(one.contexts[3].prompt, plan, Clock(), method=method, context=one.contexts[3])


def total() -> int:
    return len(walked().contexts[3].prompt.ids)


def answers() -> list[int]:
    samples = walked().contexts[3].samples
    spans = [s for s in walked().contexts[3].prompt.spans if s.name in samples and decoded(samples[s.name])]
    assert [s.name for s in spans] == ["agent_1_current", "agent_2_current"]
    return [t for s in spans for t in range(s.start, s.end)]


@pytest.mark.parametrize("options", [{"choice": "all"}, {"deviation": 0.0, "last_layer": 255}])
@pytest.mark.slow
def test_all_layers_and_tokens_repaired_is_dense(options: dict[str, Any]) -> None:
    assert_same(execute(**options), walked().dense[3], total())


def test_nothing_repaired_is_the_decoded_answers_and_the_rest_read_afresh() -> None:
    one = walked()
    context = one.contexts[3]
    steps = tuple(
        Step(s.start, s.end, Reuse(context.samples[s.name].base) if "agent" in s.name else Compute("afresh"))
        for s in context.prompt.spans
        if s.end > s.start
    )
    wanted, found = one.execute(3, Plan(steps, "partial", "By hand.")), execute(choice="none")
    assert_same(found, wanted, total())
    assert (found.actions[:, answers()] == REUSED).all()
    first = context.prompt.spans[0].end
    assert found.forwarded_tokens == total() - len(answers()) - first


def test_those_that_deviate_are_repaired_up_to_the_end_of_the_range() -> None:
    one, own = walked(), answers()
    found = execute(choice="deviation", deviation=1.2, last_layer=1, detection_layer=0)
    assert (found.actions[0, own] == RECOMPUTED).all()
    assert (found.actions[2, own] == REUSED).all()
    others = sorted({*range(one.contexts[3].prompt.spans[0].end, total() - 1)} - {*own})
    assert (found.actions[2, others] == RECOMPUTED).all()
    found = execute(choice="deviation", deviation=1.2, last_layer=255)
    pair = [
        values[1, 0][:, own].transpose(0, 1).flatten(1) for values in (one.dense[3].cache.values, bases())
    ]
    deviation = 1 - cosine_similarity(*pair)
    wanted = {t for t, d in zip(own, deviation.tolist(), strict=True) if d >= 1.2 * float(deviation.mean())}
    assert 0 < len(wanted) < len(own)
    assert {t for t in own if found.actions[2, t] == RECOMPUTED} == wanted
    every = total() - one.contexts[3].prompt.spans[0].end - 1
    assert found.token_layers == 2 * every + (len(others) + len(wanted)) + 3


@pytest.mark.parametrize("suffix", [1, 10])
def test_influence_is_what_the_last_tokens_look_at(suffix: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many last tokens look; who gets more than their mean of the answers' tokens is repaired."""
    asked: list[tuple[range, torch.Tensor]] = []
    attention = AssembledPrompt.attention

    def watched(self: AssembledPrompt, queries: Any, layer: int) -> torch.Tensor:
        asked.append((range(queries[0], queries[-1] + 1), attention(self, queries, layer)))
        return asked[-1][1]

    monkeypatch.setattr(AssembledPrompt, "attention", watched)
    found = execute(choice="influence", influence=1.2, suffix_tokens=suffix, last_layer=255)
    [(queries, seen)] = asked
    assert queries == range(total() - suffix, total())
    own = answers()
    score = seen.sum(dim=(0, 1))[own]
    wanted = {t for t, s in zip(own, score.tolist(), strict=True) if s >= 1.2 * float(score.mean())}
    assert 0 < len(wanted) < len(own)
    assert {t for t in own if found.actions[2, t] == RECOMPUTED} == wanted


def bases() -> torch.Tensor:
    one = walked()
    out = torch.zeros_like(one.dense[3].cache.values)
    for span in one.contexts[3].prompt.spans:
        if "agent" in span.name:
            out[:, 0, :, span.start : span.end] = one.contexts[3].samples[span.name].base.values
    return out


def test_the_random_control_repairs_as_many() -> None:
    counts = [int((execute(choice=c).actions[2] == RECOMPUTED).sum()) for c in ("both", "random")]
    assert counts[0] == counts[1]
    assert (execute(choice="random").actions != execute(choice="random", seed=1).actions).any()


def test_the_range_ends_where_earlier_requests_deviate_last() -> None:
    """True offsets of the answers, by layer; the tiny model's layers deviate more and more."""
    one, method = walked(), method_class("relaycaching")(make_options("relaycaching", {}))
    assert profiled(type(one.log)("empty", 1 << 20)) is None
    method.on_event(Finished(), one.log)
    own, wanted = answers(), []
    for layer in range(3):
        pair = [v[layer, 0][:, own].transpose(0, 1).flatten(1) for v in (one.dense[3].cache.values, bases())]
        wanted.append(float((1 - cosine_similarity(*pair)).mean()))
    assert wanted[2] == max(wanted)
    assert method._profile == profiled(one.log) == 2  # type: ignore[attr-defined]


def test_a_prompt_without_answers_is_read_densely() -> None:
    one, method = walked(), method_class("relaycaching")(make_options("relaycaching", {}))
    found = one.execute(1, method.plan(one.contexts[1], one.log, Clock()))
    assert (np.asarray(found.actions) == COMPUTED).all()
