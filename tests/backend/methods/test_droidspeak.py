"""DroidSpeak: whose each layer is, what is computed from the sender's hidden states, and its exact ends."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import tiny
import torch
from tiny import QUESTIONS, TOLERANCE, request, run, walk

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.engine.engine import Engine
from backend.engine.partial_layers import KnownTokens, read_above
from backend.engine.prefill import Prefill
from backend.methods.base import Prefilled
from backend.methods.beginnings import MOST_PROMPTS
from backend.methods.droidspeak import DroidSpeakMethod, DroidSpeakOptions
from backend.methods.plan import Reuse
from backend.prompts.pipeline import Pipeline
from backend.records.request import MethodChoice
from backend.records.run import COMPUTED, REUSED
from backend.session.session import LabSession

SHARED = "Solve the problem step by step.\nThe task is: {user_question}\n"


def flow(weights: str = "tuned", read_by: int = 2) -> Pipeline:
    """The second agent's prompt begins with the whole of the first's, and runs on other weights."""
    whole = tiny.pipeline(6, t2=SHARED + "Agent 1 wrote:\n{agent_1_current}\n")
    return replace(
        whole, agents=tuple(replace(a, model=weights if a.id == read_by else "") for a in whole.agents)
    )


@cache
def sender() -> tiny.Walk:
    return walk(tiny.model(), flow(""))


def received(first: int, layers: int, weights: str = "tuned") -> tuple[Prefill, int]:
    """Agent 2's prompt on other weights after agent 1's, and how many tokens they share."""
    one, method = sender(), DroidSpeakMethod(DroidSpeakOptions(first, layers))
    context = one.contexts[1]
    sent = one.engine.execute(context.prompt, method.plan(context, one.log, Clock()), Clock())
    assert sent.exact
    method.on_event(Prefilled(context, sent.cache, True, sent.plan, sent.hidden), one.log)
    context = replace(one.contexts[2], weights=weights)
    plan = method.plan(context, one.log, Clock())
    engine = Engine(tiny.model(seed=1)) if weights else one.engine
    return engine.execute(context.prompt, plan, Clock()), max(s.end for s in plan.steps[:-1] or plan.steps)


def kv(prefill: Prefill, tokens: int) -> KVSegment:
    return prefill.cache.segment(0, tokens, tiny.model().rotation, exact=True, context="")


def hidden_states(ids: tuple[int, ...]) -> list[torch.Tensor]:
    """The sender's, (tokens, hidden) before each layer, as transformers has them."""
    with torch.no_grad():
        out = tiny.model().module(input_ids=torch.tensor([ids]), output_hidden_states=True)
    return [state[0] for state in out.hidden_states]


def test_all_layers_computed_again_is_dense() -> None:
    found, _ = received(0, 255)
    ids = sender().contexts[2].prompt.ids
    cache_, logits = Engine(tiny.model(seed=1)).prefill(ids)
    assert tiny.error(found.logits, logits) <= TOLERANCE
    assert tiny.caches(found.cache, cache_, len(ids)) <= TOLERANCE
    assert (found.actions == COMPUTED).all()


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("layers", [0, 2])
def test_on_the_same_weights_it_is_exact_whatever_the_layers(first: int, layers: int) -> None:
    found, shared = received(first, layers, weights="")
    tiny.assert_same(found, sender().dense[2], len(sender().contexts[2].prompt.ids))
    assert shared > 20
    assert (found.actions[:, :shared] == REUSED).all()
    assert found.exact
    assert found.hidden is not None
    states = hidden_states(sender().contexts[2].prompt.ids)
    assert tiny.error(found.hidden, states[first]) <= TOLERANCE, "so that it can be handed on"


@pytest.mark.parametrize(("first", "layers"), [(0, 0), (0, 1), (1, 1), (1, 2), (2, 1), (255, 255)])
@pytest.mark.slow
def test_critical_layers_are_the_receivers_over_the_senders_states(first: int, layers: int) -> None:
    """Against transformers: hidden states of the sender, projections of the receiver."""
    found, shared = received(first, layers)
    first, until = min(first, 2), min(min(first, 2) + layers, 3)
    ids, receiver = sender().contexts[2].prompt.ids, tiny.model(seed=1)
    layer = receiver.module.model.layers[first]
    with torch.no_grad():
        values = layer.self_attn.v_proj(layer.input_layernorm(hidden_states(ids[:shared])[first]))
    sent, got = kv(sender().dense[1], shared), kv(found, shared)
    values = values.view(shared, 2, 16).transpose(0, 1)
    for at in range(3):
        same = tiny.error(got.values[at], sent.values[at]) <= TOLERANCE
        assert same == (not first <= at < until), at
        assert tiny.error(got.keys[at], sent.keys[at]) <= TOLERANCE or not same
    if layers:
        assert tiny.error(got.values[first], values) <= TOLERANCE
    again = until - first
    assert found.token_layers == 3 * len(ids) - (3 - again) * shared
    assert (found.actions[:, :shared] == COMPUTED).sum() == again * shared
    assert (found.actions[:, shared:] == COMPUTED).all()


@pytest.mark.parametrize("tokens", [[0, 1, 2, 3, 4], [3, 4, 5, 20, 21]])
@pytest.mark.parametrize(("cut", "until"), [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2), (0, 0)])
def test_true_layers_on_both_sides_give_dense(cut: int, until: int, tokens: list[int]) -> None:
    model, ids = tiny.model(), tuple(range(7, 37))
    none = torch.empty(0)
    whole = read_above(model, ids, KnownTokens(none.long(), none, none, None, cut))
    kept = [*range(cut), *range(until, 3)]
    segment = whole.cache.segment(0, len(ids), model.rotation, exact=True, context="")
    held = (segment.keys[kept][:, :, tokens], segment.values[kept][:, :, tokens], whole.hidden[tokens])
    out = read_above(model, ids, KnownTokens(torch.tensor(tokens), *held, cut, until))
    cache_, wanted = Engine(model).prefill(ids)
    assert tiny.error(out.logits, wanted) <= TOLERANCE
    assert tiny.caches(out.cache, cache_, len(ids)) <= TOLERANCE
    assert tiny.error(out.hidden, whole.hidden) <= TOLERANCE
    assert out.token_layers == 3 * len(ids) - len(kept) * len(tokens)


@pytest.mark.slow
def test_in_a_session_the_second_request_shares_as_much() -> None:
    """A beginning that the sender copied from itself is handed on; one that came from others is not."""
    session = LabSession(tiny.model(), others={"tuned": tiny.model(seed=1)})
    methods: list[Any] = [
        "dense", "prefix", MethodChoice("droidspeak", {"layers": 0}, "none"),
        MethodChoice("droidspeak", {"first_layer": 0, "layers": 255}, "all"),
    ]  # fmt: skip
    records = [run(session, request(methods, q, flow=flow())) for q in QUESTIONS[:2]]
    for record in records:
        sent, got = record.outcome(1, "none"), record.outcome(2, "none")
        assert "read by the lab's own weights" in got.reason
        assert int((got.actions[0] == REUSED).sum()) >= len(record.prompts[sent.prompt].token_ids) - 1
        assert got.key_error is not None
        assert got.key_error.max() > 100 * TOLERANCE
        whole = record.outcome(2, "all")
        assert whole.key_error is not None
        assert whole.key_error.max() <= TOLERANCE
    again = run(session, request(methods, QUESTIONS[1], flow=flow()))
    assert again.outcome(1, "none").timing.forwarded_tokens == 1, "on its own weights it is a prefix cache"
    assert "read by the lab's own weights" in again.outcome(2, "none").reason, "not by its own, mixed"
    twin = run(LabSession(tiny.model()), request(["dense", "prefix", "droidspeak"], flow=flow("")))
    for agent in twin.agents:
        mine, prefix = twin.outcome(agent, "droidspeak"), twin.outcome(agent, "prefix")
        assert list(mine.token_ids) == list(prefix.token_ids)
        assert mine.timing.forwarded_tokens in (prefix.timing.forwarded_tokens, len(mine.actions[0]))


def test_what_it_holds_is_bounded() -> None:
    one, method = sender(), DroidSpeakMethod(DroidSpeakOptions(0, 1))
    context = one.contexts[1]
    sent = one.engine.execute(context.prompt, method.plan(context, one.log, Clock()), Clock())
    for number in range(MOST_PROMPTS + 3):
        who = replace(context, weights=str(number))
        method.on_event(Prefilled(who, sent.cache, True, sent.plan, sent.hidden), one.log)
    each = method.held_bytes // MOST_PROMPTS
    twin = method.fork()
    twin.shrink(2 * each)
    assert (twin.held_bytes, method.held_bytes) == (2 * each, MOST_PROMPTS * each)
    plan = twin.plan(context, one.log, Clock())
    assert isinstance(plan.steps[0].action, Reuse)
    assert f"read by {MOST_PROMPTS + 2};" in plan.reason
