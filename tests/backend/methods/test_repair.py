"""Repair: exact at its ends, within its budget, and choosing what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import QUESTIONS, Walk, assert_same, caches, walk

from backend.base.clock import Clock
from backend.engine.prefill import Prefill
from backend.methods.base import Arrived, Prefilled
from backend.methods.candidates import blocks
from backend.methods.dense import dense_plan
from backend.methods.repair import SELECTORS, WORDS, RepairMethod, RepairOptions, _query, shares
from backend.model.load import LoadedModel
from backend.records.request import MethodChoice
from backend.records.run import COMPUTED, CORRECTED, RECOMPUTED, REUSED
from backend.session.session import LabSession

EACH = pytest.mark.parametrize("selector", [s for s in SELECTORS if s not in WORDS])


@pytest.fixture(scope="module")
def walked(tiny_model: LoadedModel) -> Walk:
    """A request whose judge (agent 3) reads two candidates."""
    return walk(tiny_model, tiny.pipeline(tokens=24))


def repaired(walked: Walk, agent: int = 3, **options: Any) -> Prefill:
    """An agent's prompt under repair."""
    options = {"base": "naive", "scope": "later", "selector": "first"} | options
    method = RepairMethod(RepairOptions(**options))
    context = walked.contexts[agent]
    plan = method.plan(context, walked.log, Clock())
    return walked.engine.execute(context.prompt, plan, Clock(), method=method, context=context)


def again(prefill: Prefill) -> list[int]:
    """Tokens computed again."""
    return np.flatnonzero((prefill.actions == RECOMPUTED).all(axis=0)).tolist()


@EACH
def test_the_whole_prompt_is_dense(walked: Walk, selector: str) -> None:
    found = repaired(walked, budget=1, scope="prompt", selector=selector)
    assert_same(found, walked.dense[3], len(walked.contexts[3].prompt.ids))
    exact = walked.contexts[3].prompt.spans[0].end  # the prompt's own beginning may stay a copy
    assert (found.actions[:, :exact] == REUSED).all()
    assert not (found.actions[:, exact:] == REUSED).any()


def test_no_budget_is_the_base(walked: Walk) -> None:
    bare = walked.execute(
        3, RepairMethod(RepairOptions(base="naive")).plan(walked.contexts[3], walked.log, Clock())
    )
    found = repaired(walked, budget=0)
    assert_same(found, bare, len(walked.contexts[3].prompt.ids))
    assert found.token_layers == bare.token_layers
    assert caches(found.cache, walked.dense[3].cache, 40) > 0.01  # and there was something to repair


#: Budgets at which each rule has to choose: the tiny model has three layers, so that looking is dear.
TIGHT: dict[str, dict[str, Any]] = {
    "cross": {"budget": 0.16},
    "asked": {"budget": 0.1},
    "deviation": {"budget": 0.8, "scope": "prompt"},
    "first": {"budget": 0.1},
    "tail": {"budget": 0.1},
    "random": {"budget": 0.1},
}


@EACH
def test_choosing_and_computing_fill_the_budget_and_keep_to_it(walked: Walk, selector: str) -> None:
    total, layers, budget = len(walked.contexts[3].prompt.ids), 3, TIGHT[selector]["budget"]
    bare = repaired(walked, budget=0).token_layers
    found = repaired(walked, selector=selector, **TIGHT[selector])
    spent, chosen = found.token_layers - bare, again(found)
    assert chosen
    assert (budget * total - 2) * layers < spent <= budget * total * layers
    if selector in ("first", "tail", "random"):
        assert spent == layers * len(chosen)
    else:
        assert spent > layers * len(chosen)  # looking was paid as well


@EACH
def test_a_budget_too_small_to_look_leaves_the_base(walked: Walk, selector: str) -> None:
    bare = repaired(walked, budget=0)
    found = repaired(walked, budget=0.01, selector=selector)
    if selector in ("cross", "deviation", "asked"):
        assert found.token_layers == bare.token_layers
    assert len(again(found)) <= 1


@EACH
def test_only_candidates_after_the_first_are_touched(walked: Walk, selector: str) -> None:
    [_, second] = blocks(walked.contexts[3].prompt)
    found = repaired(walked, selector=selector, **TIGHT[selector] | {"scope": "later"})
    chosen = again(found)
    assert chosen
    assert set(chosen) <= set(range(second.text, second.end))
    rest = [t for t in range(len(found.actions[0]) - 1) if t not in chosen]
    assert (found.actions[:, rest] == REUSED).all()


def test_words_are_all_that_is_no_candidate_and_not_exact(walked: Walk) -> None:
    prompt = walked.contexts[3].prompt
    candidates = {t for b in blocks(prompt) for t in range(b.text, b.end)}
    exact = {t for s in prompt.spans if s.start == 0 for t in range(s.start, s.end)}
    wanted = set(range(len(prompt.ids) - 1)) - candidates - exact
    found = repaired(walked, budget=1, selector="words")
    assert exact
    assert set(again(found)) == wanted
    copied = sorted(candidates | exact)
    assert (found.actions[:, copied] == REUSED).all()
    # Whatever a word reads before the first candidate is dense's, so it is too.
    first = blocks(prompt)[0].text
    assert caches(found.cache, walked.dense[3].cache, first) < 1e-4
    assert caches(found.cache, walked.dense[3].cache, len(prompt.ids)) > 0.01
    spent = found.token_layers - repaired(walked, budget=0).token_layers
    assert spent == found.actions.shape[0] * len(wanted)  # nothing is paid for choosing


def test_headers_come_first_then_the_question_within_the_budget(walked: Walk) -> None:
    prompt = walked.contexts[3].prompt
    heads = [t for b in blocks(prompt) for t in range(b.start, b.text)]
    question = next(s for s in prompt.spans if s.name == "user_question")
    asked = list(range(question.start, question.end))
    assert heads
    for count in (1, len(heads) - 1, len(heads), len(heads) + 2, len(heads) + len(asked)):
        found = again(repaired(walked, budget=(count + 0.5) / len(prompt.ids), selector="words"))
        assert found == sorted([*heads, *asked][:count])
    assert again(repaired(walked, budget=1, selector="headers")) == heads
    assert again(repaired(walked, budget=1, selector="question")) == asked


def test_words_bring_a_comparison_back_that_candidates_do_not(walked: Walk) -> None:
    """What is read behind the copied candidates comes nearer to dense by the words than by nothing."""
    _, last = blocks(walked.contexts[3].prompt)
    end = len(walked.contexts[3].prompt.ids)

    def behind(prefill: Prefill) -> float:
        real, mine = walked.dense[3].cache, prefill.cache
        return float((mine.values[..., last.end : end, :] - real.values[..., last.end : end, :]).norm())

    assert behind(repaired(walked, budget=1, selector="words")) < behind(repaired(walked, budget=0))


def test_exact_copies_take_nothing_of_the_budget(tiny_model: LoadedModel) -> None:
    """Over KVCOMM the whole prompt may be computed again, but for its beginning, whose copy is exact."""
    session, seen = LabSession(tiny_model), 0
    method = MethodChoice("repair", {"selector": "random", "budget": 0.9, "scope": "prompt"})
    for question in (*QUESTIONS[:3], *QUESTIONS[:1]):
        record = tiny.run(session, tiny.request(("dense", method), question))
        for agent in record.agents:
            outcome, spans = record.outcome(agent, "repair"), record.prompts[agent - 1].spans
            exact = next(s.start for s in spans if s.kind == "placeholder")
            assert not (outcome.actions[:, :exact] == RECOMPUTED).any()
            reused = (outcome.actions[:, :exact] == REUSED).all()
            seen += bool(reused and (outcome.actions[:, exact:] == RECOMPUTED).any())
    assert seen
    assert (RepairOptions().selector, RepairOptions().scope) == ("tail", "all")


def test_a_prompt_without_candidates_is_asked_by_its_end(walked: Walk) -> None:
    """Only the words behind its last text look back."""
    seen: list[int] = []

    class Keeper(RepairMethod):
        def select(self, view: Any, clock: Clock) -> None:
            seen.extend(_query(view))

    context = walked.contexts[1]
    method = Keeper(RepairOptions(base="naive"))
    plan = method.plan(context, walked.log, Clock())
    walked.engine.execute(context.prompt, plan, Clock(), method=method, context=context)
    last = max(s.end for s in context.prompt.spans if s.kind == "placeholder")
    assert seen == list(range(min(last, len(context.prompt.ids) - 1), len(context.prompt.ids)))


def test_a_prompt_without_candidates_has_the_end_of_its_text_computed_again(walked: Walk) -> None:
    """The first agent reads the question alone; a budget of nothing computes nothing."""
    context = walked.contexts[1]
    assert not blocks(context.prompt)
    [(start, end)] = [(s.start, s.end) for s in context.prompt.spans if s.kind == "placeholder"]
    for budget in (0.0, 0.25):
        method = RepairMethod(RepairOptions(base="naive", budget=budget))
        plan = method.plan(context, walked.log, Clock())
        read = walked.engine.execute(context.prompt, plan, Clock(), method=method, context=context)
        count = min(int(budget * len(context.prompt.ids)), end - start)
        again = [*range(end - count, end)]
        assert np.flatnonzero((read.actions == RECOMPUTED).all(axis=0)).tolist() == again


def test_layers_that_deviation_computed_stay_fresh(walked: Walk) -> None:
    """Layers 0 and 1 were computed for every token; with three layers, the chosen ones follow in the last."""
    found, total = (
        repaired(walked, selector="deviation", **TIGHT["deviation"]),
        len(walked.contexts[3].prompt.ids),
    )
    assert (found.actions[:2, : total - 1] == RECOMPUTED).all()
    assert 0 < len(again(found)) < total - 1
    real, mine = walked.dense[3].cache, found.cache
    assert torch.allclose(mine.keys[:2, 0, :, : total - 1], real.keys[:2, 0, :, : total - 1], atol=1e-5)


def test_each_rule_chooses_what_it_says(walked: Walk) -> None:
    [_, second] = blocks(walked.contexts[3].prompt)
    total = len(walked.contexts[3].prompt.ids)
    count = int(0.1 * total)
    first = again(repaired(walked, budget=0.1, selector="first"))
    assert first == list(range(second.text, second.text + count))
    tail = again(repaired(walked, budget=0.1, selector="tail"))
    assert tail == list(range(second.end - count, second.end))
    by_seed = [again(repaired(walked, budget=0.1, selector="random", seed=s)) for s in (0, 0, 1)]
    assert by_seed[0] == by_seed[1] != by_seed[2]


def view_of(walked: Walk) -> Any:
    """What a selection is shown of the judge's prompt under naive reuse."""
    kept: list[Any] = []

    class Keeper(RepairMethod):
        def select(self, view: Any, clock: Clock) -> None:
            kept.append(view)
            self.scores = {
                how: RepairMethod(RepairOptions(base="naive", selector=how)).score(
                    view, [range(*view.start["agent_2_current"])], 1
                )
                for how in ("cross", "asked", "deviation")
            }
            self.attention = view.attention(_query(view), 1)
            self.late = view.attention(range(*view.start["agent_2_current"]), 1)
            self.fresh, self.stale = view.fresh(1), view.stale(1)

    method = Keeper(RepairOptions(base="naive"))
    context = walked.contexts[3]
    walked.engine.execute(
        context.prompt, method.plan(context, walked.log, Clock()), Clock(), method=method, context=context
    )
    return method


def test_scores_are_what_they_are_named_for(walked: Walk) -> None:
    seen = view_of(walked)
    one, two = ((b.text, b.end) for b in blocks(walked.contexts[3].prompt))
    for row, token in enumerate(range(*two)):
        mass = seen.late[:, row, one[0] : one[1]].sum(dim=-1).mean()
        assert float(seen.scores["cross"][token]) == pytest.approx(float(mass), abs=1e-6)
    behind = list(range(two[1], len(walked.contexts[3].prompt.ids)))
    looked = seen.attention[:, -len(behind) :].mean(dim=(0, 1))
    assert torch.allclose(seen.scores["asked"], looked.cpu(), atol=1e-6)
    keys = ((seen.fresh[0] - seen.stale[0]) ** 2).sum(dim=(0, 2))
    values = ((seen.fresh[1] - seen.stale[1]) ** 2).sum(dim=(0, 2))
    wanted = (keys + values)[two[0] : two[1]]
    assert torch.allclose(seen.scores["deviation"][two[0] : two[1]].cpu(), wanted.cpu(), atol=1e-5)


@pytest.mark.slow
def test_over_kvcomm_it_has_kvcomms_plan_and_pools(tiny_model: LoadedModel) -> None:
    """With the same pools, the same gate and corrections; what is computed again is the only difference."""
    session = LabSession(tiny_model)
    methods = ("dense", "kvcomm", MethodChoice("repair", {"budget": 0.3, "selector": "tail"}))
    records = [tiny.run(session, tiny.request(methods, q)) for q in (*QUESTIONS[:3], *QUESTIONS[:1])]
    seen = 0
    for record in records:
        for agent in record.agents:
            plain, mended = record.outcome(agent, "kvcomm"), record.outcome(agent, "repair")
            assert mended.state == plain.state
            assert [g.shareable for g in mended.gate] == [g.shareable for g in plain.gate]
            chosen = mended.actions == RECOMPUTED
            assert (mended.actions[~chosen] == plain.actions[~chosen]).all()
            seen += bool(chosen.any()) and bool((mended.actions == CORRECTED).any())
    pools = {p.method: p for p in records[-1].pools if p.placeholder == "user_question"}
    assert pools["repair"].anchors == pools["kvcomm"].anchors
    assert seen


def test_a_dense_fallback_is_left_alone(tiny_model: LoadedModel) -> None:
    record = tiny.run(LabSession(tiny_model), tiny.request(("dense", MethodChoice("repair"))))
    for agent in record.agents:
        assert (record.outcome(agent, "repair").actions == COMPUTED).all()


def test_it_remembers_what_kvcomm_remembers(tiny_model: LoadedModel) -> None:
    walked = walk(tiny_model, tiny.pipeline())
    method = RepairMethod(RepairOptions())
    context = walked.contexts[1]
    for sample in context.samples.values():
        method.on_event(Arrived(sample), walked.log)
    method.on_event(
        Prefilled(context, walked.dense[1].cache, True, dense_plan(context.prompt, "")), walked.log
    )
    assert method.needed()
    twin = method.fork()
    method.forget(method.needed())
    assert not method.needed()
    assert twin.needed()
    assert RepairOptions(base="kvcomm shipped").wants_lead_in
    assert not RepairOptions().wants_lead_in


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(-5, 250))
def test_shares_add_up_and_follow_the_lengths(lengths: list[int], most: int) -> None:
    found = shares([range(n) for n in lengths], most)
    total = sum(lengths)
    assert sum(found) == max(0, min(most, total))
    for share, length in zip(found, lengths, strict=True):
        assert 0 <= share <= length
        assert abs(share - max(0, min(most, total)) * length / total) < 1


def test_what_is_left_over_goes_to_the_largest_remainder() -> None:
    """3 of 5 and 3 tokens: 1.875 and 1.125; of equal remainders the earlier chunk has it."""
    assert shares([range(5), range(3)], 3) == [2, 1]
    assert shares([range(3), range(5)], 3) == [1, 2]
    assert shares([range(3), range(3)], 3) == [2, 1]
