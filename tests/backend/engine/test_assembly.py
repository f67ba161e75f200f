"""What the engine does with a plan beyond copying: positions, soft tokens, visibility, recompute, hooks."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import fake_record
import numpy as np
import pytest
import tiny
import torch
from tiny import assert_same, error, walk
from transformers import AutoModelForCausalLM, Qwen3Config
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gpt_neox.configuration_gpt_neox import GPTNeoXConfig

from backend.base.clock import Clock
from backend.base.errors import ModelError, OptionError
from backend.engine.engine import Engine
from backend.engine.layout import lay_out
from backend.engine.prefill import Prefill
from backend.methods.base import Method, PromptView
from backend.methods.dense import dense_plan
from backend.methods.naive import NaiveMethod, NaiveOptions
from backend.methods.options import Options
from backend.methods.plan import Compute, Link, Plan, Reuse, Selection, Step
from backend.model.load import LoadedModel, wrap_model
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding
from backend.records.run import COMPUTED, RECOMPUTED, REUSED, RunRecord


class Hooked(Method):
    """Position-only reuse with hooks of the test's choice."""

    name, title, summary = "hooked", "Hooked", "For tests."

    def __init__(
        self,
        select: Callable[[PromptView], Selection | None],
        accept: Callable[[PromptView], Any] = lambda _: None,
    ):
        super().__init__(Options())
        self.asked, self.judge = select, accept

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        return self.asked(view)

    def accept(self, view: PromptView, clock: Clock) -> str | None:
        return self.judge(view)


@cache
def random_model(kind: str) -> LoadedModel:
    """A tiny model of another family, with a window where the family has one."""
    vocabulary = len(tiny.tokenizer())
    shape: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 1024,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    kv = {"num_key_value_heads": 2, "head_dim": 16}
    config: Any
    if kind == "gpt_neox":
        config = GPTNeoXConfig(**shape)
    elif kind == "gemma3":
        kinds = ["sliding_attention", "sliding_attention", "full_attention"]
        config = Gemma3TextConfig(**shape, **kv, sliding_window=24, layer_types=kinds)
    else:
        config = Qwen3Config(**shape, **kv)
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    for name, weight in sorted(module.named_parameters()):
        if weight.ndim == 2:
            weight.data.normal_(0, 0.12, generator=torch.Generator().manual_seed(len(name)))
    return wrap_model(module, tiny.tokenizer(), name=kind)


@cache
def walked(kind: str = "llama") -> tiny.Walk:
    loaded = tiny.model() if kind == "llama" else random_model(kind)
    return walk(loaded, tiny.pipeline())


def run(one: tiny.Walk, method: Method, plan: Plan | None = None, agent: int = 3) -> Prefill:
    context = one.contexts[agent]
    plan = plan or NaiveMethod(NaiveOptions()).plan(context, one.log, Clock())
    return one.engine.execute(context.prompt, plan, Clock(), method=method, context=context)


def every(view: PromptView) -> tuple[int, ...]:
    return tuple(range(view.total))


# -- computing again


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma3", "gpt_neox"])
def test_computing_every_token_again_is_dense(kind: str) -> None:
    one = walked(kind)
    found = run(one, Hooked(lambda v: Selection(every(v))))
    total = len(one.contexts[3].prompt.ids)
    assert_same(found, one.dense[3], total)
    assert (found.actions[:, :-1] == RECOMPUTED).all()
    assert found.forwarded_tokens == total
    assert found.cache.length == total
    untouched = run(one, Hooked(lambda v: None))
    assert tiny.caches(untouched.cache, one.dense[3].cache, total) > 1e-2


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_beginning_computed_again_is_dense_there_and_the_rest_stays(kind: str) -> None:
    one = walked(kind)
    n = 60
    found = run(one, Hooked(lambda v: Selection(tuple(range(n)))))
    before = run(one, Hooked(lambda v: None))
    dense, total = one.dense[3].cache, len(one.contexts[3].prompt.ids)
    for mine, theirs, copied in (
        (found.cache.keys, dense.keys, before.cache.keys),
        (found.cache.values, dense.values, before.cache.values),
    ):
        assert error(mine[..., :n, :], theirs[..., :n, :]) <= tiny.TOLERANCE
        assert torch.equal(mine[..., n : total - 1, :], copied[..., n : total - 1, :])
    assert found.forwarded_tokens == n + 1
    assert (found.actions[:, :n] == RECOMPUTED).all()
    assert (found.actions[:, n:-1] == REUSED).all()


def test_scattered_tokens_read_the_cache_as_if_it_had_been_dense() -> None:
    """Over a dense cache any selection gives dense again, so no token sees its own stale copy twice."""
    one = walked()
    total = len(one.contexts[3].prompt.ids)
    plan = one.true_offset_plan(3)
    for tokens in ((3, 17, 18, 40), tuple(range(1, total, 3))):
        found = run(one, Hooked(lambda v, t=tokens: Selection(t)), plan)  # type: ignore[misc]
        assert_same(found, one.dense[3], total)


def test_lower_layers_stay_or_become_fresh_when_asked() -> None:
    one = walked()
    tokens, total = tuple(range(10, 50)), len(one.contexts[3].prompt.ids)
    kept = run(one, Hooked(lambda v: Selection(tokens, first_layer=1)))
    copied = run(one, Hooked(lambda v: None))
    assert torch.equal(kept.cache.keys[0, ..., : total - 1, :], copied.cache.keys[0, ..., : total - 1, :])
    assert (kept.actions[0, :-1] == REUSED).all()
    assert (kept.actions[1:, 10:50] == RECOMPUTED).all()
    fresh = run(one, Hooked(lambda v: Selection(tokens, fresh_below=2)))
    dense = one.dense[3].cache
    assert (
        error(fresh.cache.keys[:2, ..., : total - 1, :], dense.keys[:2, ..., : total - 1, :])
        <= tiny.TOLERANCE
    )
    assert (fresh.actions[:2, :-1] == RECOMPUTED).all()
    assert fresh.token_layers == 2 * total + 3 * 40 + 3  # two layers of all, the chosen, the last token


def test_the_shipped_mask_lets_tokens_see_later_ones() -> None:
    """At every token both masks are one; in between the shipped one is further from dense."""
    one = walked()
    total = len(one.contexts[3].prompt.ids)
    assert_same(run(one, Hooked(lambda v: Selection(every(v), mask="shipped"))), one.dense[3], total)
    plan = one.true_offset_plan(3)  # nothing is stale, so only the mask can err
    half = tuple(range(0, total, 2))
    found = run(one, Hooked(lambda v: Selection(half, mask="shipped")), plan)
    assert tiny.caches(found.cache, one.dense[3].cache, total) > 1e-2
    # Its first row sees as many later tokens as were not chosen.
    with_last = tuple(range(total - 21, total - 1))
    same = run(one, Hooked(lambda v: Selection(with_last, mask="shipped")), plan)
    assert_same(same, one.dense[3], total)  # a suffix sits in the corner for which the mask was made


def test_gradual_sets_are_carried_out_layer_by_layer() -> None:
    one = walked()
    total, layers = len(one.contexts[3].prompt.ids), 3
    whole = tuple(range(total - 1))
    found = run(one, Hooked(lambda v: Selection((whole,) * layers)))
    assert_same(found, one.dense[3], total)
    assert found.forwarded_tokens == total
    sets = (whole, whole[::2], whole[::4])
    found = run(one, Hooked(lambda v: Selection(sets)))
    assert found.token_layers == sum(map(len, sets)) + layers
    for layer, tokens in enumerate(sets):
        assert set(np.flatnonzero(found.actions[layer] == RECOMPUTED)) == set(tokens)
    # The same set at each layer is one-shot selection.
    for mask in ("exact", "shipped"):
        one_shot = run(one, Hooked(lambda v, m=mask: Selection(sets[1], mask=m)))  # type: ignore[misc]
        gradual = run(one, Hooked(lambda v, m=mask: Selection((sets[1],) * 3, mask=m)))  # type: ignore[misc]
        assert_same(one_shot, gradual, total)


def test_walking_while_choosing_costs_nothing_more() -> None:
    one = walked()

    def walk_down(view: PromptView) -> Selection:
        sets = [tuple(range(view.total - 1))]
        keys, _ = view.step(sets[0])
        assert error(keys, view.fresh(0)[0][:, :-1]) <= tiny.TOLERANCE
        for _ in range(2):
            sets.append(sets[-1][::2])
            view.step(sets[-1])
        return Selection(tuple(sets))

    found = run(one, Hooked(walk_down))
    total = len(one.contexts[3].prompt.ids)
    without = run(
        one,
        Hooked(
            lambda v: Selection(
                ((*range(total - 1),), (*range(0, total - 1, 2),), (*range(0, total - 1, 4),))
            )
        ),
    )
    assert_same(found, without, total)
    assert found.token_layers == without.token_layers + total  # the look at layer 0 for this test's own sake


def test_gradual_selection_is_refused_where_layers_cannot_be_walked() -> None:
    one = walked("gemma3")
    with pytest.raises(OptionError, match="Llama and Qwen families; gemma3 is of the family 'gemma3_text'"):
        run(one, Hooked(lambda v: Selection(((1, 2), (1,)))))
    with pytest.raises(OptionError, match="one-shot"):
        run(one, Hooked(lambda v: v.step((1, 2)) and None))


@pytest.mark.parametrize(
    "bad",
    [
        Selection((3, 2)),
        Selection((-1,)),
        Selection((10_000,)),
        Selection(((1,), (1, 2))),
        Selection(((1,),) * 4),
        Selection((1,), fresh_below=9),
    ],
)
def test_a_selection_that_does_not_fit_is_refused(bad: Selection) -> None:
    with pytest.raises(ModelError):
        run(walked(), Hooked(lambda v: bad))


# -- what a view shows


def test_a_view_shows_fresh_stale_and_dense() -> None:
    one = walked()
    seen: dict[str, Any] = {}

    def look(view: PromptView) -> None:
        seen["fresh"], seen["stale"] = [view.fresh(layer) for layer in (0, 2)], view.stale(1)
        seen["copied"], seen["spans"] = view.copied, dict(view.start)
        seen["logits"] = view.logits

    found = run(one, Hooked(look))
    real, total = one.real(3), len(one.contexts[3].prompt.ids)
    for layer, (keys, values) in zip((0, 2), seen["fresh"], strict=True):
        assert error(keys, real.keys[layer]) <= tiny.TOLERANCE
        assert error(values, real.values[layer]) <= tiny.TOLERANCE
    base = one.state.samples["agent_1_current"].base
    start, end = seen["spans"]["agent_1_current"]
    assert error(seen["stale"][0][:, start:end], base.keys[1]) <= tiny.TOLERANCE
    assert torch.equal(seen["stale"][1][:, start:end], base.values[1])
    assert seen["copied"].sum() == total - 1
    assert seen["logits"] is None
    assert found.token_layers == total + 3 * total + 3  # layer 0 of all, then all layers, then the last token


@pytest.mark.parametrize("kind", ["llama", "gemma3", "gpt_neox"])
@pytest.mark.slow
def test_attention_is_the_models_own(kind: str) -> None:
    one = walked(kind)
    context, total = one.contexts[3], len(one.contexts[3].prompt.ids)
    queries = (5, 30, total - 1)
    module = one.engine.model.module
    before = module.config._attn_implementation
    module.set_attn_implementation("eager")
    with torch.inference_mode():
        wanted = module(one.engine.ids(context.prompt.ids), output_attentions=True).attentions
    module.set_attn_implementation(before)
    seen: list[torch.Tensor] = []
    run(one, Hooked(lambda v: seen.append(v.attention(queries, 1))), one.true_offset_plan(3))
    assert error(seen[0], wanted[1][0][:, list(queries)]) <= tiny.TOLERANCE
    assert module.config._attn_implementation == before


def test_logits_at_places_are_those_of_dense_over_a_dense_cache() -> None:
    one = walked()
    context = one.contexts[3]
    with torch.inference_mode():
        wanted = one.engine.model.module(one.engine.ids(context.prompt.ids)).logits[0]
    seen: list[torch.Tensor] = []
    places = (4, 29, 30)
    run(one, Hooked(lambda v: seen.append(v.logits_at(places))), one.true_offset_plan(3))
    assert error(seen[0], wanted[list(places)]) <= tiny.TOLERANCE


# -- accepting


def test_a_refusal_reads_everything_and_is_charged() -> None:
    one = walked()
    total = len(one.contexts[3].prompt.ids)
    clock, context = Clock(), one.contexts[3]
    plan = NaiveMethod(NaiveOptions()).plan(context, one.log, clock)

    class Refusing(Method):
        name, title, summary = "refusing", "Refusing", "For tests."

        def accept(self, view: PromptView, clock: Clock) -> str | None:
            assert view.logits is not None
            view.logits_at((3, 9))
            return "The probe differs."

    found = one.engine.execute(context.prompt, plan, clock, method=Refusing(Options()), context=context)
    assert_same(found, one.dense[3], total)
    assert found.exact
    assert (found.plan.state, found.plan.reason) == ("fallback", "The probe differs.")
    assert found.plan.steps[0].action == Compute("The probe differs.", "fallback")
    assert (found.actions == COMPUTED).all()
    assert found.forwarded_tokens == 1 + 2 + total
    assert {"accept", "fallback"} <= clock.parts.keys()


def test_a_dense_pass_that_a_hook_made_is_not_made_again() -> None:
    one = walked()
    total = len(one.contexts[3].prompt.ids)
    found = run(one, Hooked(lambda v: v.dense() and None, lambda v: "no"))
    assert_same(found, one.dense[3], total)
    assert found.forwarded_tokens == total + 1


def test_hooks_are_not_asked_where_nothing_was_copied() -> None:
    one = walked()

    def never(_: PromptView) -> None:
        raise AssertionError

    found = run(one, Hooked(never, never), dense_plan(one.contexts[3].prompt, "test"))
    assert_same(found, one.dense[3], len(one.contexts[3].prompt.ids))


# -- positions, soft tokens, visibility


def test_a_step_may_stand_elsewhere() -> None:
    """Shifting everything is nothing to a rotary model; the answer goes on from there."""
    one = walked()
    context = one.contexts[2]
    total = len(context.prompt.ids)
    plan = Plan((Step(0, total, Compute("test"), position=19),), "dense", "test")
    assert not plan.plain
    found = one.engine.execute(context.prompt, plan, Clock())
    assert not found.exact
    assert error(found.logits, one.dense[2].logits) <= 1e-4
    segment = found.cache.segment(0, total, one.engine.model.rotation, exact=True, context="")
    assert segment.start == 19
    assert error(segment.keys, one.real(2).keys) <= 1e-4
    decoding = Decoding(max_new_tokens=6)
    [mine] = one.engine.decode([found], decoding)
    [theirs] = one.engine.decode([one.dense[2]], decoding)
    assert mine.ids == theirs.ids
    assert mine.kv.start == theirs.kv.start + 19
    assert error(mine.kv.keys, theirs.kv.keys) <= 1e-4
    together = one.engine.decode([found, one.dense[3]], decoding)  # padded on the left
    assert together[0].ids == mine.ids
    assert error(together[0].kv.keys, mine.kv.keys) <= 1e-4
    forced = one.engine.teacher_force([found], theirs.ids)
    assert error(forced, one.engine.teacher_force([one.dense[2]], theirs.ids)) <= 1e-4


def test_a_copied_step_is_moved_to_its_position() -> None:
    one = walked()
    context = one.contexts[3]
    span = next(s for s in context.prompt.spans if s.name == "agent_1_current")
    plan = NaiveMethod(NaiveOptions()).plan(context, one.log, Clock())
    steps = tuple(replace(s, position=7) if s.start == span.start else s for s in plan.steps)
    found = one.execute(3, replace(plan, steps=steps))
    keys = found.cache.keys[:, 0, :, span.start : span.end]
    at = torch.arange(7, 7 + span.end - span.start)
    wanted = one.engine.model.rotation.rotate(context.samples[span.name].base.keys, at)
    assert error(keys, wanted) <= tiny.TOLERANCE
    assert found.cache.positions_of(span.start, span.end).tolist() == at.tolist()


def own_embeddings(one: tiny.Walk, agent: int, start: int, end: int) -> torch.Tensor:
    return one.engine.model.embed(one.contexts[agent].prompt.ids[start:end])


@pytest.mark.parametrize("hooked", [False, True])
def test_soft_tokens_that_embed_the_prompts_own_words_are_dense(hooked: bool) -> None:
    """A prompt of which a part is given as soft tokens, in the middle of a step, at two places."""
    one = walked()
    context = one.contexts[3]
    ids, total = context.prompt.ids, len(context.prompt.ids)
    cuts = ((20, 25), (25, 28), (60, 61))  # two of them stand before the same token
    rest = [t for t in range(total) if not any(a <= t < b for a, b in cuts)]
    links = tuple(Link(sum(t < a for t in rest), own_embeddings(one, 3, a, b)) for a, b in cuts)
    short = TokenizedPrompt(3, tuple(ids[t] for t in rest), ())
    n = len(rest)
    steps: tuple[Step, ...] = (Step(0, n, Compute("test")),)
    method = None
    if hooked:  # a copied beginning, so that a selection can be asked for
        base = one.real(3).slice(0, 30)
        kept = [t for t in rest if t < 30]
        base = replace(base, keys=base.keys[:, :, kept], values=base.values[:, :, kept])
        # The base is the dense one, but for the positions: they follow from the soft tokens within the step.
        steps = (Step(0, len(kept), Reuse(base)), Step(len(kept), n, Compute("test")))
        method = Hooked(lambda v: Selection(tuple(range(v.total))))
    plan = Plan(steps, "partial", "test", links=links)
    found = one.engine.execute(short, plan, Clock(), method=method, context=replace(context, prompt=short))
    assert error(found.logits, one.dense[3].logits) <= tiny.TOLERANCE
    dense = one.dense[3].cache
    for mine, theirs in ((found.cache.keys, dense.keys), (found.cache.values, dense.values)):
        assert error(mine[..., :n, :], theirs[..., rest, :]) <= tiny.TOLERANCE
        soft = [t for t in range(total) if t not in rest]
        assert error(mine[..., n:total, :], theirs[..., soft, :]) <= tiny.TOLERANCE
    assert found.cache.length == total
    assert not found.exact
    [mine_said] = one.engine.decode([found], Decoding(max_new_tokens=6))
    assert mine_said.ids == one.answers[3].ids[:6]
    assert found.forwarded_tokens == (9 + n - len(kept) + n - 1 if hooked else total)


def test_no_soft_token_changes_nothing() -> None:
    one = walked()
    context = one.contexts[2]
    plan = dense_plan(context.prompt, "test")
    found = one.execute(2, replace(plan, links=(Link(9, torch.empty(0, 64)),)))
    assert_same(found, one.dense[2], len(context.prompt.ids))


def test_soft_tokens_stand_right_before_their_text() -> None:
    steps = (Step(0, 4, Compute("")), Step(4, 8, Compute(""), position=20), Step(8, 10, Compute("")))
    links = (Link(4, torch.zeros(2, 1)), Link(6, torch.zeros(3, 1)), Link(8, torch.zeros(1, 1)))
    found = lay_out(Plan(steps, "dense", "", links=links), 10, 1)
    assert found.places.tolist() == [0, 1, 2, 3, 6, 7, 11, 12, 14, 15]
    assert found.positions.tolist() == [0, 1, 2, 3, 20, 21, 25, 26, 14, 15]
    assert found.soft.tolist() == [18, 19, 22, 23, 24, 13]
    assert found.soft_places.tolist() == [4, 5, 8, 9, 10, 13]


@pytest.mark.parametrize("bad", [Link(50, torch.zeros(1, 64)), Link(-1, torch.zeros(1, 64))])
def test_soft_tokens_outside_the_prompt_are_refused(bad: Link) -> None:
    with pytest.raises(ModelError, match="Soft tokens"):
        lay_out(Plan((Step(0, 9, Compute("")),), "dense", "", links=(bad,)), 9, 1)


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
@pytest.mark.slow
def test_causal_visibility_is_dense(kind: str) -> None:
    one = walked(kind)
    context = one.contexts[3]
    total = len(context.prompt.ids)
    plan = dense_plan(context.prompt, "test")
    for visible in (
        torch.ones(total, total, dtype=torch.bool),
        torch.ones(total, total, dtype=torch.bool).tril(),
    ):
        assert_same(one.execute(3, replace(plan, visible=visible)), one.dense[3], total)
    steps = (Step(0, 40, Compute("a")), Step(40, total, Compute("b")))
    assert_same(one.execute(3, replace(plan, steps=steps, visible=visible)), one.dense[3], total)


def test_a_text_that_sees_only_itself_is_encoded_alone() -> None:
    one = walked()
    context = one.contexts[3]
    total = len(context.prompt.ids)
    span = next(s for s in context.prompt.spans if s.name == "agent_1_current")
    visible = torch.ones(total, total, dtype=torch.bool)
    visible[span.start : span.end, : span.start] = False
    found = one.execute(3, replace(dense_plan(context.prompt, "test"), visible=visible))
    alone = one.engine.encode(context.prompt.span_ids(span), (), "alone")
    mine = found.cache.segment(span.start, span.end, one.engine.model.rotation, exact=True, context="")
    assert error(mine.keys, alone.keys) <= 1e-4
    assert error(mine.values, alone.values) <= 1e-4
    # At the first layer only: the second one's keys come from states that are still alone.
    some = replace(dense_plan(context.prompt, "test"), visible=visible, visible_layers=(0, 0))
    part = one.execute(3, some)
    at = slice(span.start, span.end)
    assert error(part.cache.values[:2, ..., at, :], found.cache.values[:2, ..., at, :]) <= tiny.TOLERANCE
    assert error(part.logits, found.logits) > 1e-3
    everywhere = one.execute(3, replace(some, visible_layers=(0, 99)))
    assert_same(everywhere, found, total)
    nowhere = one.execute(3, replace(some, visible_layers=(3, 2)))
    assert_same(nowhere, one.dense[3], total)


def test_computing_again_keeps_what_is_hidden() -> None:
    one = walked()
    context, total = one.contexts[3], len(one.contexts[3].prompt.ids)
    span = next(s for s in context.prompt.spans if s.name == "agent_2_current")
    visible = torch.ones(total, total, dtype=torch.bool)
    visible[span.start : span.end, 1 : span.start] = False
    plan = NaiveMethod(NaiveOptions()).plan(context, one.log, Clock())
    found = run(one, Hooked(lambda v: Selection(every(v))), replace(plan, visible=visible))
    wanted = one.execute(3, replace(dense_plan(context.prompt, "test"), visible=visible))
    assert_same(found, wanted, total)
    seen: list[torch.Tensor] = []
    run(one, Hooked(lambda v: seen.append(v.fresh(2)[1])), replace(plan, visible=visible))
    assert error(seen[0], wanted.cache.values[2, 0, :, :total]) <= tiny.TOLERANCE


def test_what_copies_cannot_hide_at_some_layers() -> None:
    one = walked()
    plan = NaiveMethod(NaiveOptions()).plan(one.contexts[3], one.log, Clock())
    total = len(one.contexts[3].prompt.ids)
    visible = torch.ones(total, total, dtype=torch.bool)
    with pytest.raises(ModelError, match="some layers"):
        one.execute(3, replace(plan, visible=visible, visible_layers=(0, 1)))


def test_the_engine_counts_layers(tiny_model: LoadedModel) -> None:
    engine = Engine(tiny_model)
    engine.prefill((1, 5, 6, 7))
    assert (engine.token_layers, engine.forwarded_tokens) == (12, 4)


def test_records_of_before_provenance_still_load() -> None:
    record = fake_record.make_record()
    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(record.to_bytes())) as new, zipfile.ZipFile(content, "w") as old:
        for part in new.namelist():
            held = new.read(part)
            if part == "record.json":
                held = json.dumps(without(json.loads(held), {"provenance", "token_layers", "links"})).encode()
            old.writestr(part, held)
    found = RunRecord.from_bytes(content.getvalue())
    assert {span.provenance for outcome in found.outcomes for span in outcome.spans} == {""}
    assert {(outcome.timing.token_layers, outcome.links) for outcome in found.outcomes} == {(0, ())}
    assert [o.text for o in found.outcomes] == [o.text for o in record.outcomes]


def without(value: Any, names: set[str]) -> Any:
    """JSON without these fields."""
    if isinstance(value, list):
        return [without(each, names) for each in value]
    if isinstance(value, dict):
        return {key: without(each, names) for key, each in value.items() if key not in names}
    return value
