"""LRAgent: whose part of each key and value is whose, its exact ends, and what it forwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import tiny
import torch
from tiny import QUESTIONS, TOLERANCE, request, run, walk
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.engine.engine import Engine
from backend.engine.partial_layers import KnownTokens, read_above
from backend.engine.prefill import Prefill
from backend.methods.base import Prefilled
from backend.methods.droidspeak import DroidSpeakMethod, DroidSpeakOptions
from backend.methods.lragent import LRAgentMethod, LRAgentOptions
from backend.model.link_tokens import Delta, Deltas, projections
from backend.model.load import LoadedModel, wrap_model
from backend.model.low_rank import low_rank_of
from backend.prompts.pipeline import Pipeline
from backend.records.request import MethodChoice
from backend.records.run import COMPUTED, RECOMPUTED, REUSED
from backend.session.session import LabSession

SHARED = "Solve the problem step by step.\nThe task is: {user_question}\n"
EVERYWHERE = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK = 3


@cache
def adapted(parts: tuple[str, ...] = EVERYWHERE, first: int = 0, size: float = 0.3) -> LoadedModel:
    """The tiny model with drawn deltas of some projections, from layer ``first`` on."""
    module, generator = tiny.llama(), torch.Generator().manual_seed(5)
    deltas: Deltas = {}
    for name, part in projections(module).items():
        if name.endswith(parts) and int(name.split(".")[2]) >= first:
            up = torch.randn(part.out_features, RANK, generator=generator) * size
            down = torch.randn(RANK, part.in_features, generator=generator) * 0.3
            deltas[name] = Delta(up, down)
            part.weight.data += up @ down
    model = wrap_model(module, tiny.tokenizer(), name="tiny+tuned")
    return replace(model, low_rank=low_rank_of(module, deltas, model.info.kv_heads))


def flow(weights: Sequence[str] = ("", "tuned", "")) -> Pipeline:
    """The second agent's prompt begins with the whole of the first's."""
    whole = tiny.pipeline(6, t2=SHARED + "Agent 1 wrote:\n{agent_1_current}\n")
    named = zip(whole.agents, weights, strict=True)
    return replace(whole, agents=tuple(replace(agent, model=name) for agent, name in named))


@cache
def base_walk() -> tiny.Walk:
    return walk(tiny.model(), flow(("", "", "")))


def received(
    model: LoadedModel, options: LRAgentOptions, writer: str = "", reader: str = "tuned"
) -> tuple[Prefill, int, LRAgentMethod]:
    """Agent 2's prompt after agent 1's, each on its weights, and how many tokens they share."""
    one, method = base_walk(), LRAgentMethod(options)
    engines = {"": one.engine, "tuned": Engine(model)}
    known = {} if model.low_rank is None else {"tuned": model.low_rank}
    for agent, weights in ((1, writer), (2, reader)):
        context = replace(one.contexts[agent], weights=weights, low_ranks=known)
        plan = method.plan(context, one.log, Clock())
        found = engines[weights].execute(context.prompt, plan, Clock())
        seen = Prefilled(context, found.cache, False, found.plan, found.hidden, found.projected)
        method.on_event(seen, one.log)
    return found, plan.steps[0].end, method


def kv(prefill: Prefill, tokens: int) -> KVSegment:
    return prefill.cache.segment(0, tokens, tiny.model().rotation, exact=True, context="")


def inputs(model: LoadedModel, ids: tuple[int, ...]) -> list[Tensor]:
    """(tokens, hidden) normed input of each layer, as transformers has it."""
    with torch.no_grad():
        states = model.module(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        return [
            layer.input_layernorm(state[0])
            for layer, state in zip(model.module.model.layers, states[:-1], strict=True)
        ]


def projected(model: LoadedModel, kind: str, given: list[Tensor]) -> Tensor:
    """(layers, kv_heads, tokens, head_dim): what a model's projections make of given inputs."""
    layers = model.module.model.layers
    with torch.no_grad():
        out = [getattr(layer.self_attn, kind)(x) for layer, x in zip(layers, given, strict=True)]
    return torch.stack([x.view(len(x), 2, 16).transpose(0, 1) for x in out])


def ids() -> tuple[int, ...]:
    return base_walk().contexts[2].prompt.ids


def assert_dense(found: Prefill, model: LoadedModel) -> None:
    wanted, logits = Engine(model).prefill(ids())
    assert tiny.error(found.logits, logits) <= TOLERANCE
    assert tiny.caches(found.cache, wanted, len(ids())) <= TOLERANCE


def test_the_low_rank_part_is_what_was_added_to_the_weights() -> None:
    model, plain = adapted(), tiny.model()
    assert model.low_rank is not None
    for kind, name in enumerate(("k_proj", "v_proj")):
        for layer in range(3):
            mine, base = (
                getattr(m.module.model.layers[layer].self_attn, name).weight for m in (model, plain)
            )
            up = model.low_rank.up[kind, layer].flatten(0, 1)
            assert tiny.error(up @ model.low_rank.down[kind, layer], (mine - base).detach()) <= 1e-5
    assert torch.linalg.matrix_rank((mine - base).detach()) == RANK == model.low_rank.rank


def test_where_keys_are_normed_their_part_is_left_out() -> None:
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    module = Qwen3ForCausalLM(Qwen3Config(**shape, vocab_size=64, num_key_value_heads=1, head_dim=16))
    deltas = {
        f"model.layers.1.self_attn.{name}": Delta(torch.ones(16, 2), torch.ones(2, 32))
        for name in ("k_proj", "v_proj")
    }
    low = low_rank_of(module, deltas, 1)
    assert low.up.shape == (2, 2, 1, 16, 2)
    assert not low.up[0].any()
    assert not low.up[1, 0].any()
    assert low.up[1, 1].all()
    assert low.down[1, 1].all()


@pytest.mark.slow
def test_shared_is_the_readers_projections_over_the_writers_states() -> None:
    """(X_i W + (X_i A) B_j), against transformers, at every layer; and nothing of it is forwarded."""
    found, shared, method = received(adapted(), LRAgentOptions())
    given, got = inputs(tiny.model(), ids()[:shared]), kv(found, shared)
    assert shared > 20
    assert tiny.error(got.values, projected(adapted(), "v_proj", given)) <= TOLERANCE
    assert tiny.error(got.keys, projected(adapted(), "k_proj", given)) <= TOLERANCE
    dense = (
        Engine(adapted()).prefill(ids())[0].segment(0, shared, tiny.model().rotation, exact=True, context="")
    )
    assert tiny.error(got.values[0], dense.values[0]) <= TOLERANCE, "layer 0 has the same inputs"
    assert tiny.error(got.keys[0], dense.keys[0]) <= TOLERANCE
    assert tiny.error(got.values[2], dense.values[2]) > 100 * TOLERANCE
    assert found.token_layers == 3 * (len(ids()) - shared)
    assert (found.actions[:, :shared] == REUSED).all()
    assert (found.actions[:, shared:] == COMPUTED).all()
    [read] = method._prompts
    assert read.bytes - read.kv.bytes == read.kv.bytes * RANK / 32, "rank / width of the base cache"
    assert not found.exact


def test_own_puts_the_readers_part_on_the_shared_base() -> None:
    """Against transformers with its projections replaced: base keys and values, own low-rank parts."""
    found, shared, _ = received(adapted(), LRAgentOptions("own"))
    base, module = kv(base_walk().dense[1], shared), adapted().module
    low, handles = adapted().low_rank, []
    assert low is not None

    def replace_with(kind: int, layer: int, kept: Tensor) -> Any:
        def hook(_part: Any, given: tuple[Tensor], out: Tensor) -> Tensor:
            own = given[0][0, :shared] @ low.down[kind, layer].T @ low.up[kind, layer].flatten(0, 1).T
            out[0, :shared] = kept[layer].transpose(0, 1).flatten(1) + own
            return out

        return hook

    for layer, part in enumerate(module.model.layers):
        for kind, (name, kept) in enumerate((("k_proj", base.keys), ("v_proj", base.values))):
            handles.append(
                getattr(part.self_attn, name).register_forward_hook(replace_with(kind, layer, kept))
            )
    try:
        cache_, logits = Engine(adapted()).prefill(ids())
    finally:
        for handle in handles:
            handle.remove()
    assert tiny.error(found.logits, logits) <= TOLERANCE
    assert tiny.caches(found.cache, cache_, len(ids())) <= TOLERANCE
    assert found.cache.length == len(ids())
    assert found.token_layers == 3 * len(ids())
    assert (found.actions[:, :shared] == RECOMPUTED).all()


@pytest.mark.parametrize("tokens", [[0, 1, 2, 3, 4], [3, 4, 5, 20, 21]])
def test_products_stand_at_their_tokens(tokens: list[int]) -> None:
    model, drawn, none = tiny.model(), tuple(range(7, 37)), torch.empty(0)
    rows = torch.randn(3, 4, 64, generator=torch.Generator().manual_seed(1))
    whole = read_above(model, drawn, KnownTokens(none.long(), none, none, None, 0), project=rows)
    assert whole.projected is not None
    wanted = torch.stack([x @ r.T for x, r in zip(inputs(model, drawn), rows, strict=True)])
    assert tiny.error(whole.projected, wanted) <= TOLERANCE
    kept = whole.cache.segment(0, len(drawn), model.rotation, exact=True, context="")
    held = (kept.keys[:, :, tokens], kept.values[:, :, tokens], None, 0, 0, whole.projected[:, tokens])
    out = read_above(model, drawn, KnownTokens(torch.tensor(tokens), *held), project=rows)
    assert out.projected is not None
    assert tiny.error(out.projected, wanted) <= TOLERANCE


@pytest.mark.parametrize("form", ["shared", "own", "none"])
def test_an_adapter_of_zero_is_plain_reuse(form: str) -> None:
    model = adapted(size=0)
    found, shared, _ = received(model, LRAgentOptions(form))
    assert_dense(found, tiny.model())
    assert shared > 20


@pytest.mark.parametrize("form", ["shared", "own"])
@pytest.mark.slow
def test_an_adapter_of_the_last_layers_keys_and_values_is_exact(form: str) -> None:
    """All that separates the two caches is the low-rank part, and it is put back; left out, it is missed."""
    model = adapted(("k_proj", "v_proj"), first=2)
    found, shared, _ = received(model, LRAgentOptions(form))
    assert_dense(found, model)
    for less in (LRAgentOptions("none"), LRAgentOptions(form, keys=False)):
        wrong, _, _ = received(model, less)
        with pytest.raises(AssertionError):
            assert_dense(wrong, model)
    same, base = kv(wrong, shared), kv(base_walk().dense[1], shared)
    assert tiny.error(same.keys, base.keys) <= TOLERANCE
    assert tiny.error(same.values[2], base.values[2]) > 100 * TOLERANCE


def test_left_out_it_is_full_reuse_between_variants() -> None:
    found, _, _ = received(adapted(), LRAgentOptions("none"))
    one, method = base_walk(), DroidSpeakMethod(DroidSpeakOptions(0, 0))
    for agent, weights, engine in ((1, "", one.engine), (2, "tuned", Engine(adapted()))):
        context = replace(one.contexts[agent], weights=weights)
        plan = method.plan(context, one.log, Clock())
        other = engine.execute(context.prompt, plan, Clock())
        method.on_event(Prefilled(context, other.cache, False, other.plan, other.hidden), one.log)
    tiny.assert_same(found, other, len(ids()))


@pytest.mark.slow
def test_the_base_takes_over_from_an_adapter_without_its_part() -> None:
    found, shared, _ = received(adapted(), LRAgentOptions(), writer="tuned", reader="")
    given, got = inputs(adapted(), ids()[:shared]), kv(found, shared)
    assert tiny.error(got.values, projected(tiny.model(), "v_proj", given)) <= TOLERANCE
    assert tiny.error(got.keys, projected(tiny.model(), "k_proj", given)) <= TOLERANCE


@pytest.mark.slow
def test_left_out_the_writers_part_stays() -> None:
    found, shared, _ = received(adapted(), LRAgentOptions("none"), writer="tuned", reader="")
    kept = Engine(adapted()).prefill(ids())[0]
    wanted, got = (
        c.segment(0, shared, tiny.model().rotation, exact=True, context="") for c in (kept, found.cache)
    )
    assert tiny.error(got.values, wanted.values) <= TOLERANCE
    assert tiny.error(got.keys, wanted.keys) <= TOLERANCE


def test_of_a_prompt_that_was_read_before_the_last_token_is_forwarded() -> None:
    one, method = base_walk(), LRAgentMethod(LRAgentOptions())
    context = one.contexts[1]
    for _ in range(2):
        found = one.engine.execute(context.prompt, method.plan(context, one.log, Clock()), Clock())
        seen = Prefilled(context, found.cache, False, found.plan, found.hidden, found.projected)
        method.on_event(seen, one.log)
    assert [step.end - step.start for step in found.plan.steps] == [len(context.prompt.ids) - 1, 1]
    assert found.token_layers == 3
    assert tiny.error(found.logits, one.engine.prefill(context.prompt.ids)[1]) <= TOLERANCE


@pytest.mark.parametrize("form", ["shared", "own"])
@pytest.mark.parametrize("weights", ["", "tuned"])
def test_on_its_own_weights_it_is_exact_and_can_be_handed_on(form: str, weights: str) -> None:
    found, shared, method = received(adapted(), LRAgentOptions(form), weights, weights)
    model = adapted() if weights else tiny.model()
    assert_dense(found, model)
    assert found.exact
    assert (found.actions[:, :shared] == REUSED).all()
    kept, low = method._prompts[-1], adapted().low_rank
    assert low is not None
    assert kept.ids == ids()
    wanted = torch.stack([x @ rows.T for x, rows in zip(inputs(model, ids()), low.rows, strict=True)])
    assert tiny.error(kept.extras["tuned"], wanted) <= TOLERANCE


def test_weights_that_are_no_adapter_of_the_base_are_read_afresh() -> None:
    found, _, _ = received(tiny.model(seed=1), LRAgentOptions())
    assert_dense(found, tiny.model(seed=1))
    assert (found.actions == COMPUTED).all()
    assert "'tuned' are not the lab's own with a low-rank adapter" in found.plan.reason
    assert "choose droidspeak" in found.plan.reason
    low, first = adapted().low_rank, replace(base_walk().contexts[1], weights="tuned")
    plan = LRAgentMethod(LRAgentOptions()).plan(
        replace(first, low_ranks={"tuned": low}), base_walk().log, Clock()
    )
    assert plan.reason == "Nobody has read this beginning on the same base."


def test_in_a_session_the_second_request_shares_as_much() -> None:
    session = LabSession(tiny.model(), others={"tuned": adapted(("q_proj", "v_proj"), size=0.05)})
    forms: list[Any] = [
        MethodChoice("lragent", {"low_rank": form}, form) for form in ("shared", "own", "none")
    ]
    records = [run(session, request(["dense", *forms], q, flow=flow())) for q in QUESTIONS[:2]]
    for record in records:
        errors = {}
        for form in ("shared", "own", "none"):
            sent, got = record.outcome(1, form), record.outcome(2, form)
            shared = len(record.prompts[sent.prompt].token_ids)
            assert "read by the lab's own weights" in got.reason
            assert got.value_error is not None
            errors[form] = got.value_error[:, : shared - 1].mean()
            layers = record.model.layers
            spared = 0 if form == "own" else (shared - 1) * layers
            assert got.timing.token_layers <= layers * len(record.prompts[got.prompt].token_ids) - spared
        assert errors["shared"] < errors["none"]
        assert errors["own"] < errors["none"]
