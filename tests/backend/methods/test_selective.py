"""CacheBlend and the controls of its choice: what they must equal exactly, and whom they choose."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from tiny import QUESTIONS, assert_same, request, run, walk

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.cache.kv_cache import as_argument
from backend.engine.prefill import Prefill
from backend.methods.base import Arrived, Method, PromptView
from backend.methods.cacheblend import CacheBlendMethod, first_seen
from backend.methods.naive import NaiveMethod, NaiveOptions
from backend.methods.plan import Selection
from backend.methods.registry import make_options, method_class, parse_methods, profile_options
from backend.methods.selective import best, candidates
from backend.model.load import LoadedModel
from backend.records.request import MethodChoice
from backend.records.run import COMPUTED, CORRECTED, RECOMPUTED, REUSED
from backend.session.session import LabSession

CONTROLS = ("query_norm", "random_k", "oracle_k")
EACH = pytest.mark.parametrize("name", ["cacheblend", *CONTROLS])


@cache
def walked() -> tiny.Walk:
    return walk(tiny.model(), tiny.pipeline())


def execute(name: str, one: tiny.Walk | None = None, agent: int = 3, **options: Any) -> Prefill:
    one = one or walked()
    method = method_class(name)(make_options(name, options))
    context = one.contexts[agent]
    for sample in context.samples.values():
        method.on_event(Arrived(sample), one.log)
    plan = method.plan(context, one.log, Clock())
    return one.engine.execute(context.prompt, plan, Clock(), method=method, context=context)


def naive(agent: int = 3) -> Prefill:
    one = walked()
    return one.execute(agent, NaiveMethod(NaiveOptions()).plan(one.contexts[agent], one.log, Clock()))


def total(agent: int = 3) -> int:
    return len(walked().contexts[agent].prompt.ids)


def suffix_start() -> int:
    last = walked().contexts[3].prompt.spans[-1]
    assert last.kind == "prefix"
    return last.start


# -- exact ends


@EACH
@pytest.mark.parametrize("mask", ["exact", "shipped"])
@pytest.mark.parametrize("suffix", [True, False])
def test_at_ratio_one_it_is_dense(name: str, mask: str, suffix: bool) -> None:
    found = execute(name, ratio=1.0, mask=mask, suffix=suffix)
    assert_same(found, walked().dense[3], total())
    assert (found.actions[:, :-1] == RECOMPUTED).all()
    assert found.forwarded_tokens == total()


@pytest.mark.parametrize("mask", ["exact", "shipped"])
def test_gradual_at_ratio_one_is_dense(mask: str) -> None:
    found = execute("cacheblend", ratio=1.0, selection="gradual", mask=mask)
    assert_same(found, walked().dense[3], total())
    assert found.forwarded_tokens == total()


@EACH
def test_at_ratio_zero_it_is_position_only(name: str) -> None:
    found = execute(name, ratio=0.0, suffix=False)
    assert_same(found, naive(), total())
    assert found.forwarded_tokens == 1
    with_suffix = execute(name, ratio=0.0)
    assert (with_suffix.actions[:, : suffix_start()] == REUSED).all()
    assert (with_suffix.actions[:, suffix_start() : -1] == RECOMPUTED).all()
    assert with_suffix.forwarded_tokens == total() - suffix_start()


@pytest.mark.parametrize("name", CONTROLS)
def test_controls_are_dense_where_every_layer_is_fresh(name: str) -> None:
    assert_same(execute(name, ratio=0.3, fresh_layers=255), walked().dense[3], total())


def test_check_layers_beyond_the_model_are_its_last() -> None:
    assert_same(execute("cacheblend", ratio=0.3, check_layer=255), walked().dense[3], total())


# -- what is chosen and what it costs


def test_cacheblend_takes_the_tokens_that_differ_most() -> None:
    one, found = walked(), execute("cacheblend", ratio=0.25, deviation="values", suffix=False)
    dense, copied = one.dense[3].cache, naive().cache
    held = total() - 1
    moved = (dense.values - copied.values)[1, 0, :, :held].square().sum(dim=(0, 2))
    count = round(0.25 * held)
    wanted = set(moved.topk(count).indices.tolist())
    assert set(np.flatnonzero(found.actions[2, :held] == RECOMPUTED)) == wanted
    assert (found.actions[:2, :held] == RECOMPUTED).all()  # the layers that were computed to choose by
    assert found.token_layers == 2 * total() + 3 * (count + 1)
    mine = found.cache.keys[:2, ..., : total(), :]
    assert tiny.error(mine, dense.keys[:2]) <= tiny.TOLERANCE


def test_cacheblend_compares_keys_values_or_both() -> None:
    chosen = {
        which: np.flatnonzero(
            execute("cacheblend", ratio=0.2, deviation=which).actions[2] == RECOMPUTED
        ).tolist()
        for which in ("keys", "values", "both")
    }
    assert len({tuple(c) for c in chosen.values()}) == 3
    assert len({len(c) for c in chosen.values()}) == 1


def test_only_the_chosen_are_fresh_at_lmcaches_check_layer() -> None:
    found = execute("cacheblend", ratio=0.2, whole_check_layer=False)
    assert (found.actions[0, :-1] == RECOMPUTED).all()
    assert (found.actions[1] == found.actions[2]).all()


def test_gradual_choices_shrink_and_are_counted() -> None:
    found = execute("cacheblend", ratio=0.4, selection="gradual", suffix=False)
    counts = (found.actions == RECOMPUTED).sum(axis=1).tolist()
    assert counts[:2] == [total() - 1] * 2
    assert counts[2] == round(0.4 * (total() - 1))  # one deeper layer, whose share is the ratio
    assert found.token_layers == sum(counts) + 3


def test_gradual_shares_fall_from_layer_to_layer() -> None:
    """Over four deeper layers: the first takes more than the ratio, the last less, and their mean is it."""

    class Fresh:
        total = 1001

        def step(self, tokens: Any, mask: str) -> Any:
            return (torch.rand(1, len(tokens), 2, generator=torch.Generator().manual_seed(0)),) * 2

        def stale(self, layer: int) -> Any:
            return (torch.zeros(1, self.total, 2),) * 2

    method = CacheBlendMethod(make_options("cacheblend", {"selection": "gradual", "ratio": 0.4}))  # type: ignore[arg-type]
    sets = method._sets(Fresh(), range(1000), [], check=1, layers=6)  # type: ignore[arg-type]
    assert [len(tokens) for tokens in sets] == [1000, 1000, 438, 412, 388, 365]


def test_gradual_and_one_shot_agree_where_one_layer_is_left() -> None:
    """With three layers and the check at the second, both choose once."""
    gradual = execute("cacheblend", selection="gradual", ratio=0.4, suffix=False)
    one_shot = execute("cacheblend", ratio=0.4, suffix=False)
    assert (gradual.actions == one_shot.actions).all()
    assert_same(gradual, one_shot, total())


def test_the_shipped_mask_errs_more_over_all_prompts() -> None:
    errors = {"exact": 0.0, "shipped": 0.0}
    for mask in errors:
        for agent in (2, 3):
            found = execute("random_k", agent=agent, ratio=0.6, mask=mask, fresh_layers=0)
            dense = walked().dense[agent].cache
            again = torch.from_numpy(found.actions[2] == RECOMPUTED)
            mine = found.cache.values[..., : len(again), :]
            gap = (mine - dense.values)[2, 0][:, again]
            errors[mask] += float(gap.square().sum())
    assert errors["shipped"] > 1.2 * errors["exact"]


def test_query_norm_takes_what_the_suffix_looks_at() -> None:
    one = walked()
    found = execute("query_norm", ratio=0.2, layer=1, fresh_layers=0)
    method = method_class("query_norm")(make_options("query_norm", {"layer": 1}))
    seen: list[torch.Tensor] = []

    class Looking(Method):
        name, title, summary = "looking", "Looking", "For tests."

        def select(self, view: PromptView, clock: Clock) -> Selection | None:
            seen.append(view.attention(range(suffix_start(), view.total), 1))
            return None

    context = one.contexts[3]
    plan = method.plan(context, one.log, Clock())
    one.engine.execute(context.prompt, plan, Clock(), method=Looking(method.options), context=context)
    score = seen[0].square().sum(dim=(0, 1))[: suffix_start()]
    wanted = set(score.topk(round(0.2 * suffix_start())).indices.tolist())
    assert set(np.flatnonzero(found.actions[0, : suffix_start()] == RECOMPUTED)) == wanted
    queries = total() - suffix_start()
    assert found.token_layers == 2 * queries + 3 * (len(wanted) + queries)


def test_prophetkv_is_dense_at_ratio_one_and_position_only_at_zero() -> None:
    found = execute("prophetkv", ratio=1.0)
    assert_same(found, walked().dense[3], total())
    none = execute("prophetkv", ratio=0.0)
    assert_same(none, execute("random_k", ratio=0.0), total())  # both compute what stands behind the texts


@torch.inference_mode()
def test_prophetkv_fuses_what_every_layer_of_the_query_looks_at() -> None:
    """Its attention is that of a plain pass of the query's tokens over the assembled cache."""
    one, start, end = walked(), suffix_start(), total()
    cache = naive().cache.copy()
    cache.length = start
    module = one.engine.model.module
    module.set_attn_implementation("eager")
    ids = torch.tensor([one.contexts[3].prompt.ids[start:]])
    out = module(
        ids,
        position_ids=torch.arange(start, end)[None],
        **as_argument(module, cache.cache),
        output_attentions=True,
    )
    module.set_attn_implementation("sdpa")
    looks: list[torch.Tensor] = []

    class Looking(NaiveMethod):
        def select(self, view: PromptView, clock: Clock) -> Selection | None:
            looks.append(view.attentions(range(start, end)))
            return None

    context, looking = one.contexts[3], Looking(NaiveOptions())
    plan = looking.plan(context, one.log, Clock())
    one.engine.execute(context.prompt, plan, Clock(), method=looking, context=context)
    assert tiny.error(looks[0], torch.cat(out.attentions)) <= tiny.TOLERANCE
    first = one.contexts[3].prompt.spans[0].end  # an exact beginning is no candidate
    seen = torch.stack([a[0].sum(dim=(0, 1))[first:start] for a in out.attentions])
    score = (seen / seen.sum(dim=1, keepdim=True)).mean(dim=0)
    wanted = {first + i for i in score.topk(round(0.2 * (start - first))).indices.tolist()}
    found = execute("prophetkv")
    assert set(np.flatnonzero(found.actions[0, :start] == RECOMPUTED)) == wanted
    assert (found.actions[0] == found.actions[2]).all()
    queries = end - start
    assert found.token_layers == 3 * queries + 3 * (len(wanted) + queries)


def test_prophetkv_counts_every_layer_alike_however_much_it_looks_at_the_texts() -> None:
    """A layer that looks at the texts with a hundredth of its attention has as much say as one that does
    with all of it."""
    method = method_class("prophetkv")(make_options("prophetkv", {}))
    looks = torch.tensor([[0.9, 0.1, 0.0], [0.001, 0.009, 0.99]])[
        :, None, None
    ]  # (layers, heads, queries, tokens)

    class View:
        cache = naive().cache
        context = walked().contexts[3]
        total = 3

        def attentions(self, queries: range) -> torch.Tensor:
            return looks

    method.parts = lambda view: ([0, 1], [])  # type: ignore[attr-defined]
    score = method.score(View(), Clock())  # type: ignore[attr-defined]
    assert score[:2].tolist() == pytest.approx([(0.9 + 0.1) / 2, (0.1 + 0.9) / 2])


def test_random_tokens_follow_their_seed() -> None:
    maps = [execute("random_k", ratio=0.3, seed=seed).actions for seed in (0, 0, 1)]
    assert (maps[0] == maps[1]).all()
    assert (maps[0] != maps[2]).any()


def test_the_oracle_takes_the_largest_true_errors_and_pays_for_them() -> None:
    found = execute("oracle_k", ratio=0.2, fresh_layers=0, suffix=False)
    one, copied = walked(), naive().cache
    dense, held = one.dense[3].cache, total() - 1
    score = torch.zeros(held)
    for mine, theirs in ((copied.keys, dense.keys), (copied.values, dense.values)):
        wanted = theirs[:, 0, :, :held]
        gap = (mine[:, 0, :, :held] - wanted).square().sum(dim=(1, 3))
        score += (gap / wanted.square().sum(dim=(1, 3)).mean(dim=1, keepdim=True)).sum(dim=0)
    count = round(0.2 * held)
    assert set(np.flatnonzero(found.actions[0, :held] == RECOMPUTED)) == set(
        score.topk(count).indices.tolist()
    )
    assert found.forwarded_tokens == total() + count + 1


def test_best_takes_the_earlier_of_equals() -> None:
    assert best(torch.tensor([1.0, 2.0, 2.0, 0.0, 2.0]), [0, 2, 3, 4, 1], 2) == [2, 4]


def test_the_suffix_is_what_stands_behind_the_last_placeholder() -> None:
    one = walked()
    context = one.contexts[3]

    class Probe:
        total, copied = len(context.prompt.ids), torch.ones(len(context.prompt.ids), dtype=torch.bool)

    Probe.context = context  # type: ignore[attr-defined]
    free, suffix = candidates(Probe, with_suffix=True)  # type: ignore[arg-type]
    assert [*free, *suffix] == list(range(Probe.total - 1))
    assert suffix[0] == suffix_start()
    assert candidates(Probe, with_suffix=False)[1] == []  # type: ignore[arg-type]
    lone = replace(context.prompt, spans=context.prompt.spans[:1])
    Probe.context = replace(context, prompt=lone)  # type: ignore[attr-defined]
    assert candidates(Probe, with_suffix=True)[1] == []  # type: ignore[arg-type]


# -- donors


def test_the_first_reader_of_a_text_computes_and_the_next_copies_from_it() -> None:
    one = walked()
    first = execute("cacheblend", agent=1, donor="as first seen")
    assert (first.actions == COMPUTED).all()
    assert first.plan.state == "dense"
    assert "user_question is read for the first time" in first.plan.reason
    second = execute("cacheblend", agent=2, donor="as first seen", ratio=0.0, suffix=False)
    span = next(s for s in one.contexts[1].prompt.spans if s.name == "user_question")
    there = next(s for s in one.contexts[2].prompt.spans if s.name == "user_question")
    wanted = one.real(1).slice(span.start, span.end)
    mine = second.cache.segment(there.start, there.end, one.engine.model.rotation, exact=True, context="")
    assert tiny.error(mine.keys, wanted.keys) <= tiny.TOLERANCE
    assert tiny.error(mine.values, wanted.values) <= tiny.TOLERANCE
    isolated = naive(2).cache.segment(
        there.start, there.end, one.engine.model.rotation, exact=True, context=""
    )
    assert tiny.error(mine.values, isolated.values) > 1e-2


def test_a_text_of_an_earlier_request_is_known_from_there() -> None:
    first = walk(tiny.model(), tiny.pipeline())
    walk(tiny.model(), tiny.pipeline(), QUESTIONS[1], first.log)
    again = walk(tiny.model(), tiny.pipeline(), QUESTIONS[0], first.log)
    sample = again.state.samples["user_question"]
    found = first_seen(sample, 1, first.log)
    assert found is not None
    assert found.context == "agent 1's prompt, the first that read it"
    span = next(s for s in first.contexts[1].prompt.spans if s.name == "user_question")
    assert found.start == span.start
    assert tiny.error(found.keys, first.real(1).slice(span.start, span.end).keys) <= tiny.TOLERANCE
    assert first_seen(first.state.samples["user_question"], 1, first.log) is None
    assert first_seen(first.state.samples["user_question"], 2, first.log) is not None


def test_free_requests_learn_first_contexts_too(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    choice = MethodChoice("cacheblend", {"donor": "as first seen"})
    states = []
    for _ in range(2):
        record = run(session, request(["dense", choice], mode="free"))
        states.append([record.outcome(agent, "cacheblend").state for agent in (1, 2, 3)])
    assert states == [["dense", "reused", "reused"], ["reused"] * 3]


def test_remembered_texts_are_bounded_and_forgotten() -> None:
    method = CacheBlendMethod(make_options("cacheblend", {"donor": "as first seen"}))  # type: ignore[arg-type]
    sample = walked().state.samples["user_question"]
    for number in range(100):
        method.on_event(Arrived(replace(sample, number=number)), walked().log)
    assert method.needed() == set(range(36, 100))
    method.forget({99, 40})
    assert method.needed() == set(range(36, 99)) - {40}
    assert not CacheBlendMethod(make_options("cacheblend", {})).needed()  # type: ignore[arg-type]


# -- in a run


def test_profiles_run_side_by_side_and_say_what_they_did(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    profiles = ("published", "shipped", "lmcache")
    choices = [MethodChoice("cacheblend", profile_options("cacheblend", p), p) for p in profiles]
    for _ in range(2):
        record = run(session, request(["dense", "naive", *choices]))
    layers = record.model.layers
    for agent in record.agents:
        for label in profiles:
            outcome = record.outcome(agent, label)
            assert outcome.state == "reused"
            again = [s for s in outcome.spans if s.action == RECOMPUTED]
            assert again
            assert all(s.provenance == "computed" and s.reason.startswith("computed again") for s in again)
            assert {"select", "recompute"} <= outcome.timing.parts_ms.keys()
            work = np.isin(outcome.actions, (COMPUTED, RECOMPUTED)).sum()
            assert work <= outcome.timing.token_layers < layers * outcome.actions.shape[1] * 2
            assert outcome.fidelity is not None
        naive_error = record.outcome(agent, "naive").value_error
        mine = record.outcome(agent, "published").value_error
        assert naive_error is not None
        assert mine is not None
        assert mine.mean() < naive_error.mean()


def test_gradual_is_refused_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.records.model_info.LAYERWISE", ("qwen3",))
    with pytest.raises(OptionError, match="family 'llama'"):
        execute("cacheblend", selection="gradual")


# -- compositions


@pytest.mark.parametrize("selector", [*CONTROLS, "cacheblend", "epic", "prophetkv", "repair"])
def test_a_selector_over_naive_is_the_method_that_it_is_of(selector: str) -> None:
    own = {"epic": {}, "repair": {"base": "naive", "budget": 0.3}}.get(selector, {"ratio": 0.3})
    found = execute("composed", base="naive", selector=selector, ratio=0.3)
    wanted = execute(selector, **own)
    assert torch.equal(found.logits, wanted.logits)
    assert (found.actions == wanted.actions).all()
    assert found.token_layers == wanted.token_layers


def test_a_composition_is_written_as_one_expression() -> None:
    [choice] = parse_methods("kvcomm>random_k:ratio=0.5")
    assert (choice.name, choice.label) == ("composed", "kvcomm>random_k:ratio=0.5")
    assert choice.options == {"base": "kvcomm", "selector": "random_k", "ratio": 0.5}
    [choice] = parse_methods("naive>none>margin:threshold=2@sure")
    assert (choice.name, choice.label) == ("composed", "sure")
    assert choice.options == {"base": "naive", "selector": "none", "gate": "margin", "threshold": 2.0}
    for wrong in ("kvcomm>dense", "dense>random_k", ">", "kvcomm>random_k>epic", "kvcomm>epic>margin>margin"):
        with pytest.raises(OptionError, match="allowed:"):
            parse_methods(wrong)


def test_a_composition_behind_a_gate_is_kept_or_is_dense() -> None:
    """A threshold that all margins reach keeps the copies; one that none reaches reads the whole prompt."""
    record = run(
        LabSession(tiny.model()),
        request(
            parse_methods(
                "dense,naive,naive>none>margin:threshold=0@kept,naive>none>margin:threshold=100@read"
            ),
            QUESTIONS[0],
        ),
    )
    dense, naive, kept, read = (record.outcome(3, label) for label in ("dense", "naive", "kept", "read"))
    assert kept.texts == naive.texts
    assert kept.timing.token_layers == naive.timing.token_layers
    assert (read.state, read.texts) == ("fallback", dense.texts)
    assert "100 are wanted" in read.reason
    assert read.timing.token_layers == naive.timing.token_layers + dense.timing.token_layers


@pytest.mark.parametrize(("logits", "kept"), [((9.0, 8.5, 0.0), False), ((1.5, -1.0, -2.0), True)])
def test_the_gate_asks_for_the_lead_over_the_next_and_not_for_the_height(
    logits: tuple[float, ...], kept: bool
) -> None:
    [choice] = parse_methods("naive>none>margin:threshold=2")
    method = method_class("composed")(make_options("composed", choice.options))

    class View:
        pass

    view = View()
    view.logits = torch.tensor(logits)  # type: ignore[attr-defined]
    assert (method.accept(view, Clock()) is None) == kept  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_composition_reuses_as_its_base_and_at_ratio_one_is_dense() -> None:
    """Behind some requests the pools hold anchors, so that what is chosen from was corrected."""
    session = LabSession(tiny.model())
    choices = parse_methods("dense,kvcomm,kvcomm>random_k:ratio=0.1@some,kvcomm>random_k:ratio=1.0@all")
    for question in (*QUESTIONS[:4], QUESTIONS[0]):
        record = run(session, request(choices, question))
    dense, mine = record.outcome(3, "dense"), record.outcome(3, "all")
    assert mine.texts == dense.texts
    assert mine.fidelity is not None
    assert mine.fidelity.kl_tokens.max() <= 1e-5
    corrected = [o.method for o in record.outcomes if (o.actions == CORRECTED).any()]
    assert corrected.count("some") == corrected.count("kvcomm") > 0
