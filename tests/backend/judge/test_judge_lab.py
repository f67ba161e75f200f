"""The judge lab: orders, execution caches, verdicts, batches, metrics, figures."""

from __future__ import annotations

import json
import math
import random
import threading
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from fake_judge import BLANK
from fake_record import make_record
from hypothesis import given
from hypothesis import strategies as st
from intervals import scipy_wilson
from tiny import QUESTIONS, error, llama, model, tokenizer
from transformers import LlamaForCausalLM

from backend.base.errors import LabError, ModelError, OptionError, PromptError, RecordError, RunCancelled
from backend.base.serialization import as_json
from backend.base.statistics import bootstrap, share, wilson
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.engine.turns import ModelScheduler
from backend.judge import verdicts as judge_reading
from backend.judge.batch import keys_of, read_problems, run_judging, typed_problem
from backend.judge.judge_lab import JudgeLab
from backend.judge.judge_session import JudgeSession, side_by_side
from backend.judge.prompts import Verdict, execution_pipeline, judge_pipeline, read_verdict, same_final, truth
from backend.judge.verdicts import Reading, most_wins, near_tie, outcome_of
from backend.model.load import LoadedModel, wrap_model
from backend.prompts.presets import load_preset
from backend.prompts.tasks import Style, make_document
from backend.records.events import PROMPTS_READ, RunDone
from backend.records.judge import (
    CRITERIA,
    Candidate,
    Judged,
    JudgedProblem,
    JudgeOutcome,
    JudgeProblem,
    JudgeRequest,
    Order,
    originals,
    read_orders,
)
from backend.records.judge_summary import changes_of, counted, heat, paired, picks, table
from backend.records.request import Decoding, MethodChoice
from backend.records.run import Fidelity
from lab_app.cli.judge import judge_rows
from viz.base.figure import FigureView, Panel
from viz.judge import metrics as drawn

METHODS = (MethodChoice("naive"), MethodChoice("kvcomm", {"gate": "length"}))


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return model()


@pytest.fixture(autouse=True)
def verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A random model names no candidate; here its text's checksum does, one in eight unreadable."""

    def read(text: str, count: int, *_: str) -> Verdict:
        number = zlib.crc32(text.encode())
        if number % 8 == 0:
            return Verdict(None, None, "", "no selection")
        return Verdict((number % count + 1,), str(number % 3), "", "")

    monkeypatch.setattr(judge_reading, "read_verdict", read)


def asked(**changes: Any) -> JudgeRequest:
    """A small request whose agents write."""
    settings: dict[str, Any] = {
        "regime": "parallel", "count": 3, "candidates": 3, "steps": 1, "methods": METHODS,
        "max_new_tokens": 4, "sampling": Decoding(5, 1.0, 1.0, 0),
    }  # fmt: skip
    return JudgeRequest(**settings | changes)


def typed(number: int = 1, count: int = 3) -> JudgeProblem:
    texts = [f"{QUESTIONS[i][: 12 + i]} The answer is {i}" for i in range(count)]
    return replace(typed_problem(QUESTIONS[0], texts, "1"), number=number)


# -- orders and selections


@given(st.permutations(range(1, 9)), st.sets(st.integers(1, 8), min_size=1))
def test_selected_slots_map_back_to_their_candidates(layout: list[int], candidates: set[int]) -> None:
    slots = [layout.index(number) + 1 for number in candidates]
    random.Random(0).shuffle(slots)
    assert originals(slots, layout) == tuple(sorted(candidates))
    assert originals((0,), layout) == (0,)


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(2, 8))
def test_a_shuffle_is_a_permutation_fixed_by_seed_and_problem(seed: int, problem: int, count: int) -> None:
    order = Order("shuffle", seed)
    assert sorted(order.layout(problem, count)) == list(range(1, count + 1))
    assert order.layout(problem, count) == Order("shuffle", seed).layout(problem, count)


def test_shuffles_reach_every_permutation_alike() -> None:
    seen = [Order("shuffle", 0).layout(number, 3) for number in range(1, 1201)]
    counts = [seen.count(layout) for layout in set(seen)]
    assert len(counts) == 6
    assert min(counts) > 140  # 200 expected, four standard deviations are 52


def test_orders_are_read_and_refused() -> None:
    assert read_orders("identity, shuffle:3", 4) == (Order(), Order("shuffle", 3))
    every = read_orders("all", 3)
    assert [o.layout(1, 3) for o in every] == [
        (1, 2, 3), (1, 3, 2), (2, 1, 3), (2, 3, 1), (3, 1, 2), (3, 2, 1)
    ]  # fmt: skip
    for wrong in ("", "identity,identity", "reverse", "shuffle:-1", "shuffle:x", "identity,all", "shuffle:²"):
        with pytest.raises(OptionError):
            read_orders(wrong, 3)
    with pytest.raises(OptionError, match="permutations"):
        read_orders("all", 5)


def alone(
    model: LoadedModel, problem: JudgeProblem, order: Order, request: JudgeRequest
) -> tuple[JudgeOutcome, ...]:
    """Every method's outcome in one order, of texts without caches."""
    [heard] = JudgeLab(model).judge(problem, (None,) * len(problem.candidates), [order], request)
    return heard.outcomes


@pytest.mark.slow
def test_a_fixed_order_is_the_problem_written_in_that_order(tiny: LoadedModel) -> None:
    """Dense reads the same tokens either way, and names the same candidate once mapped back."""
    problem, request, readable = typed(), asked(methods=()), 0
    for places in ((3, 1, 2), (2, 3, 1), (2, 1, 3)):
        there = alone(tiny, problem, Order("fixed", places=places), request)[0]
        moved = replace(problem, candidates=tuple(problem.candidates[n - 1] for n in places))
        here = alone(tiny, moved, Order(), request)[0]
        assert there.text == here.text
        assert there.slots == here.slots
        if there.slots is not None:
            readable += 1
            assert there.selected == originals(there.slots, places)
    assert readable


@pytest.mark.slow
def test_dense_agrees_with_itself_in_every_order(tiny: LoadedModel) -> None:
    again = MethodChoice("prefix", {}, "prefix")  # exact, and by another path
    request = asked(methods=(MethodChoice("dense"), again), orders=read_orders("all", 3), regime="typed")
    row = JudgeLab(tiny).judged(typed(), request)
    judged = Judged(request, tiny.info, (row,))
    lines = table(judged).lines
    assert len(lines) == 12
    assert sum(line.jcr.of for line in lines) >= 8
    assert all(line.jcr.value == 1 for line in lines if line.jcr.of)
    assert {o.layout for o in row.outcomes} == {o.layout(1, 3) for o in request.orders}


# -- orders side by side


@pytest.mark.parametrize("protocol", ["joint", "pairwise"])
@pytest.mark.sampled(32)
def test_orders_decoded_at_once_are_what_each_is_alone(
    tiny: LoadedModel, protocol: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    forward = Engine.forward

    def counting(self: Engine, ids: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        rows.append(len(ids))
        return forward(self, ids, *args, **more)

    orders = read_orders("all", 3)
    request = asked(regime="typed", protocol=protocol, orders=orders, methods=METHODS)
    lab, singly = JudgeLab(tiny), JudgeLab(tiny)
    for number in (1, 2, 3):
        problem = replace(typed(), number=number)
        monkeypatch.setattr(Engine, "forward", counting)
        rows.clear()
        found = lab.judge(problem, (None,) * 3, orders, request)
        monkeypatch.setattr(Engine, "forward", forward)
        batches = rows[rows.index(max(rows)) :]
        assert batches[0] == len(orders) * 3, "one batch"
        assert protocol == "pairwise" or batches == sorted(batches, reverse=True), "from the first token on"
        assert next(n for n in rows if n > 1) == batches[0], "nobody began before"
        for order, heard in zip(orders, found, strict=True):
            [other] = singly.judge(problem, (None,) * 3, [order], request)
            assert heard.order == other.order == order
            taxed = sum(p.boundary_tokens or 0 for p in heard.record.prompts)
            assert protocol == "pairwise" or heard.outcomes[0].boundary_tokens == taxed
            for one, same in zip(heard.outcomes, other.outcomes, strict=True):
                assert (one.method, one.text, one.slots, one.selected, one.state) == (
                    same.method, same.text, same.slots, same.selected, same.state
                )  # fmt: skip
                assert (one.blocks, one.reused_blocks) == (same.blocks, same.reused_blocks)
            assert heard.record.request.values == other.record.request.values
            assert heard.notes == other.notes  # and not that others were at work
            session = lab.session(order)
            assert session.concurrent_note in heard.record.notes, "decoding's times are not an order's own"
            assert session.concurrent_note not in other.record.notes
    assert lab.sessions.keys() == {order.label for order in orders}


@pytest.mark.slow
def test_who_has_read_is_in_the_batch_from_the_first_token_on(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is asked for its first token later than the others."""
    lab, request, works = JudgeLab(tiny), asked(regime="typed", methods=METHODS), []
    for order in (Order(), Order("shuffle", 1)):
        [(_, run, texts)] = lab.prompts(typed(), (None,) * 3, order.layout(1, 3), request)
        works.append(lab.session(order).run_slots(run, texts))
    for work in works:
        while next(work) is not PROMPTS_READ:
            pass
    rows: list[int] = []
    forward = Engine.forward

    def counting(self: Engine, ids: torch.Tensor, *args: Any, **more: Any) -> torch.Tensor:
        rows.append(len(ids))
        return forward(self, ids, *args, **more)

    monkeypatch.setattr(Engine, "forward", counting)
    for work in works:
        assert any(isinstance(event, RunDone) for event in work)
    assert rows[0] == 2 * (1 + len(METHODS))


@pytest.mark.slow
def test_times_of_orders_together_are_never_told_as_ones_own(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that began before the others and ended after them, which saw nobody."""
    monkeypatch.setattr(ModelScheduler, "_count", lambda *_: None)
    lab, request = JudgeLab(tiny), asked(regime="typed", orders=read_orders("all", 3))
    together = lab.judge(typed(), (None,) * 3, request.orders, request)
    assert all(heard.record.notes.count(JudgeSession.concurrent_note) == 1 for heard in together)
    [alone] = lab.judge(typed(), (None,) * 3, request.orders[:1], request)
    assert JudgeSession.concurrent_note not in alone.record.notes


def test_nobody_answers_before_all_have_read() -> None:
    told: list[str] = []

    def work(name: str, reads: int) -> Any:
        for part in range(reads):
            told.append(f"{name} reads {part}")
            yield "event"
        yield PROMPTS_READ
        told.append(f"{name} answers")
        yield "event"
        return name

    assert side_by_side([work("a", 1), work("b", 3), work("c", 0)]) == ["a", "b", "c"]
    assert told.index("a answers") > told.index("b reads 2")
    assert side_by_side([]) == []


@pytest.mark.slow
def test_when_one_order_fails_the_others_are_given_up(tiny: LoadedModel) -> None:
    closed: list[str] = []

    def work(name: str, fails: bool) -> Any:
        try:
            yield PROMPTS_READ
            if fails:
                raise ModelError(name)
            yield "event"
            yield "event"
        finally:
            closed.append(name)

    works = [work("a", False), work("b", True), work("c", False)]
    with pytest.raises(ModelError, match="b"):
        side_by_side(works)
    assert sorted(closed) == ["a", "b", "c"]

    lab, request = JudgeLab(tiny), asked(regime="typed", orders=read_orders("all", 3))
    stop = threading.Event()
    stop.set()
    with pytest.raises(RunCancelled):
        lab.judge(typed(), (None,) * 3, request.orders, request, stop)
    assert all(session.scheduler.going == 0 for session in lab.sessions.values())
    assert len(lab.judge(typed(), (None,) * 3, request.orders, request)) == 6  # and goes on


def test_so_many_orders_at_once_as_memory_allows(tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    request = asked(regime="typed", orders=read_orders("all", 4), candidates=4, methods=METHODS)
    problem = JudgeProblem(1, QUESTIONS[0], tuple(Candidate(f"Text {i}.", "x") for i in range(4)))
    rows = len(METHODS) + 1

    def sizes(megabytes: float) -> list[int]:
        lab = JudgeLab(tiny, budget_bytes=int(megabytes * 2**20), orders=24)
        groups = lab.groups(problem, request)
        assert tuple(order for group in groups for order in group) == request.orders
        return [len(group) for group in groups]

    assert sizes(4096) == [JudgeLab.most_at_once // rows, 24 - JudgeLab.most_at_once // rows]
    assert sizes(0.001) == [1] * 24
    few, more = sizes(16)[0], sizes(32)[0]
    assert 1 < few < more < JudgeLab.most_at_once // rows
    assert abs(more - 2 * few) <= 1
    monkeypatch.setattr("backend.judge.judge_lab.free_bytes", lambda device: 4 << 20)  # a half is 8's quarter
    assert sizes(32)[0] == sizes(8)[0] < more
    monkeypatch.setattr("backend.judge.judge_lab.free_bytes", lambda device: 1 << 40)
    assert sizes(32)[0] == more
    monkeypatch.setattr("backend.judge.judge_lab.LOGIT_BYTES", 4 << 20)
    assert sizes(32)[0] == 1


@pytest.mark.slow
def test_the_caches_of_one_problem_are_gone_before_the_next_is_read(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, request = JudgeLab(tiny), asked(regime="typed", orders=read_orders("all", 3), methods=METHODS)
    alive: list[ref[Prefill]] = []
    execute, most = Engine.execute, []

    def counting(self: Engine, *args: Any, **more: Any) -> Prefill:
        found = execute(self, *args, **more)
        alive.append(ref(found))
        most.append(sum(one() is not None for one in alive))
        return found

    monkeypatch.setattr(Engine, "execute", counting)
    for number in (1, 2):
        lab.judge(replace(typed(), number=number), (None,) * 3, request.orders, request)
    assert max(most) == 6 * (1 + len(METHODS))


# -- execution caches


@pytest.mark.parametrize("regime", ["parallel", "progressive"])
def test_what_decoding_left_is_what_is_reused(tiny: LoadedModel, regime: Any) -> None:
    request = asked(regime=regime, methods=(MethodChoice("naive"),))
    lab, order = JudgeLab(tiny), Order("fixed", places=(2, 3, 1))
    problem, bases = lab.execute(lab.draw(request, 1), request)
    lab.judge(problem, bases, [order], request)
    _, naive = lab.session(order).rows
    for slot, number in enumerate(order.places, 1):
        candidate, base = problem.candidates[number - 1], bases[number - 1]
        assert base is not None
        span = next(s for s in naive.context.prompt.spans if s.name == f"candidate_{slot}")
        assert naive.context.prompt.span_ids(span) == candidate.ids
        assert naive.context.samples[f"candidate_{slot}"].source == f"agent {number}"
        stands = naive.prefill.cache.segment(span.start, span.end, tiny.rotation, exact=False, context="")
        assert error(stands.keys, base.keys) <= 1e-5
        assert torch.equal(stands.values, base.values)
        assert base.context == f"agent {number}'s own context"


def test_a_known_answer_has_the_cache_that_decoding_left(tiny: LoadedModel) -> None:
    """So a batch that goes on from its file reuses the same."""
    request, lab = asked(regime="progressive"), JudgeLab(tiny)
    problem, written = lab.execute(lab.draw(request, 1), request)
    same, again = lab.execute(problem, request)
    assert same == problem
    for a, b in zip(written, again, strict=True):
        assert a is not None
        assert b is not None
        assert error(b.keys, a.keys) <= 1e-5
        assert error(b.values, a.values) <= 1e-5


def test_agents_differ_by_seed_and_read_each_other_only_when_refining(tiny: LoadedModel) -> None:
    lab = JudgeLab(tiny)
    problem, _ = lab.execute(lab.draw(asked(), 1), asked())
    assert len({c.ids for c in problem.candidates}) == 3
    assert lab.execute(lab.draw(asked(), 1), asked())[0] == problem
    assert lab.draw(asked(), 2).question != problem.question
    assert execution_pipeline("parallel", 3).edges == ()
    assert execution_pipeline("progressive", 3).edges == ((1, 2), (1, 3), (2, 3))


def test_typed_texts_are_encoded_alone(tiny: LoadedModel) -> None:
    request, order = asked(regime="typed", methods=(MethodChoice("naive"),)), Order()
    lab = JudgeLab(tiny)
    problem, bases = lab.execute(typed(), request)
    assert bases == (None,) * 3
    lab.judge(problem, bases, [order], request)
    samples = lab.session(order).rows[1].context.samples
    assert {samples[f"candidate_{k}"].base.context for k in (1, 2, 3)} == {"encoded alone"}


@cache
def smaller() -> LoadedModel:
    config = llama().config
    config.num_hidden_layers = 2
    torch.manual_seed(0)
    return wrap_model(LlamaForCausalLM(config).eval(), tokenizer(), name="smaller")


def test_a_judge_of_another_size_encodes_and_says_so(tiny: LoadedModel) -> None:
    lab = JudgeLab(tiny, smaller())
    assert "layers" in lab.note
    assert "encoded alone" in lab.note
    request = asked(methods=(MethodChoice("naive"),))
    row = lab.judged(lab.draw(request, 1), request)
    assert lab.note in row.notes
    samples = lab.session(Order()).rows[1].context.samples
    assert samples["candidate_1"].base.context == "encoded alone"
    assert samples["candidate_1"].base.keys.shape[0] == tiny.info.layers
    assert JudgeLab(tiny, tiny).note == ""


# -- prompts and verdicts


def test_the_judge_is_asked_as_the_presets_ask() -> None:
    for criterion in CRITERIA:
        preset = load_preset(f"judge-{criterion}").pipeline
        mine = judge_pipeline("joint", criterion, 4)
        assert mine.template(1).text.strip() == preset.template(1).text.strip()


@pytest.mark.parametrize(
    ("text", "slots", "failure"),
    [
        ("Right. The best candidate is 2. The answer is 5", (2,), ""),
        ("The best candidate is 2. The best candidate is 2. The answer is 5", (2,), ""),
        ("The best candidate is 0. The answer is 5", (0,), ""),
        ("The best candidate is 2. No, the best candidate is 1. The answer is 5", None, "several selections"),
        ("The best candidates are 1 and 2. The answer is 5", None, "a set where one is asked for"),
        ("The best candidate is 5. The answer is 5", None, "no candidate 5 to select"),
        ("The best candidate is two. The answer is 5", None, "no selection"),
        ("The best candidate is 3.", (3,), "no final answer"),
        ("", None, "no selection; no final answer"),
    ],
)
def test_verdicts_are_read_strictly(text: str, slots: Any, failure: str) -> None:
    found = read_verdict(text, 4, "joint", "right")
    assert (found.slots, found.failure) == (slots, failure)


def test_verdicts_depend_on_what_was_asked() -> None:
    several = "The best candidates are 3 and 1. The answer is 5"
    assert read_verdict(several, 4, "joint", "all").slots == (1, 3)
    assert read_verdict("The best candidate is 2.", 4, "selection", "right").failure == ""
    rewritten = read_verdict("5 + 5 = 10. The answer is 10", 4, "rewriting", "right")
    assert (rewritten.slots, rewritten.answer, rewritten.failure) == (None, "10", "")
    assert (
        read_verdict("Reason. The best candidate is 1. The answer is 2", 4, "joint", "right").reason
        == "Reason."
    )


def test_final_answers_compare_by_value_where_they_are_one_number() -> None:
    assert same_final("$1,200", "1200")
    assert same_final("12 coins", "12")
    assert same_final("12 and 14", "12 and 14")
    assert not same_final("12 and 14", "14")
    assert not same_final("12", None)
    assert same_final("the Blue  one", "the blue one")


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_truth_is_the_task_s_own(criterion: str) -> None:
    rng = random.Random(criterion)
    for _ in range(40):
        document = make_document(
            rng, "judge", kind=criterion, held_out=True, style=Style("stock"), size=rng.randint(2, 6)
        )
        texts = [p.text for p in document.pieces if (p.name or "").startswith("candidate")]
        expected = document.answer if criterion in ("right", "all", "corrects") else None
        problem = typed_problem("?", texts, expected)
        slots, final = truth(problem, range(1, len(texts) + 1), criterion)
        assert slots is not None
        if criterion == "right":
            assert slots[:1] == (document.best or (0,))
        else:
            assert slots == (document.best or (0,))
        assert final == document.answer


# -- protocols


def test_pairwise_judges_every_two_slots(tiny: LoadedModel) -> None:
    request = asked(regime="typed", protocol="pairwise", methods=(MethodChoice("naive"),))
    problem = typed()
    prompts = JudgeLab(tiny).prompts(problem, (None,) * 3, (3, 1, 2), request)
    assert [places for places, _, _ in prompts] == [(3, 1), (3, 2), (1, 2)]
    dense, naive = alone(tiny, problem, Order(), request)
    assert (dense.blocks, naive.reused_blocks) == (6, 6)
    assert dense.consistent in (True, None)


def test_most_wins() -> None:
    class Read:
        def __init__(self, selected: tuple[int, ...] | None) -> None:
            self.selected = selected

    def wins(*selected: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return most_wins([Read(s) for s in selected])  # type: ignore[misc]

    assert wins((1,), (1,), (2,)) == (1,)
    assert wins((1,), (2,), (3,)) == (1, 2, 3)
    assert wins((0,), (0,), None) == (0,)
    assert wins((0,), (2,), None) == (2,)
    assert wins(None, None) is None


def test_rewriting_is_compared_by_its_answer(tiny: LoadedModel) -> None:
    request = asked(regime="typed", protocol="rewriting", methods=(MethodChoice("naive"),))
    for found in alone(tiny, typed(), Order(), request):
        assert found.selection_right is None
        assert found.consistent in (None, found.same_answer)


# -- batches


def finished(events: Sequence[object]) -> Judged:
    last = events[-1]
    assert isinstance(last, Judged)
    return last


def plain(rows: Sequence[JudgedProblem]) -> list[Any]:
    """Rows without what a clock said, and numbers to rounding."""
    out = []
    for row in rows:
        for o in row.outcomes:
            near = tuple(
                None if v is None else round(v, 3)
                for v in (o.margin, o.dense_margin, o.kl_first, o.kl_mean, o.first_margin, *o.entropies)
            )
            same = replace(
                o, ttft_ms=0, parts_ms={}, floor=0, margin=None, dense_margin=None,
                kl_first=0, kl_mean=0, first_margin=None, entropies=(),
            )  # fmt: skip
            out.append((row.key, row.problem, same, near))
    return out


def test_a_batch_is_cancelled_in_the_middle_of_a_problem(
    tiny: LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cancel, judge = tmp_path / "rows.jsonl", threading.Event(), JudgeLab.judge

    def interrupted(lab: JudgeLab, *given: Any) -> Any:
        cancel.set()
        return judge(lab, *given)

    monkeypatch.setattr(JudgeLab, "judge", interrupted)
    with pytest.raises(RunCancelled):
        list(run_judging(JudgeLab(tiny), asked(regime="progressive"), path, cancel))
    assert not path.exists() or not path.read_text()


@pytest.mark.slow
def test_a_killed_batch_goes_on_where_it_was(tiny: LoadedModel, tmp_path: Path) -> None:
    """It loses the problem in flight and nothing else; the pools are what they were."""
    request = asked(warmup=1, regime="progressive")
    whole = finished(list(run_judging(JudgeLab(tiny), request)))
    path, cancel = tmp_path / "rows.jsonl", threading.Event()
    events = run_judging(JudgeLab(tiny), request, path, cancel)
    done = next(e for e in events if isinstance(e, JudgedProblem) and e.problem.number == 2)
    assert done.key in path.read_text()
    cancel.set()
    with pytest.raises(RunCancelled):
        next(events)
    assert len(path.read_text().splitlines()) == 2
    with path.open("a") as file:
        file.write('{"key": "torn')
    resumed = finished(list(run_judging(JudgeLab(tiny), request, path)))
    assert plain(resumed.rows) == plain(whole.rows)
    assert any(o.state == "reused" for row in whole.rows for o in row.outcomes if o.method != "naive")
    assert len(path.read_text().splitlines()) == 3
    before = path.read_bytes()
    engine = JudgeLab(tiny)
    again = finished(list(run_judging(engine, request, path)))
    assert path.read_bytes() == before
    assert engine.engine.forwarded_tokens == 0
    assert plain(again.rows) == plain(whole.rows)
    assert Judged.from_bytes(again.to_bytes()).rows == again.rows


def test_a_row_belongs_to_its_configuration(tiny: LoadedModel) -> None:
    lab, request = JudgeLab(tiny), asked()
    keys = keys_of(lab, request)
    assert keys_of(lab, replace(request, count=2)) == keys[:2]
    changed = (
        {"seed": 1}, {"methods": METHODS[:1]}, {"orders": (Order(),)}, {"warmup": 1},
        {"protocol": "pairwise"}, {"sampling": Decoding(5, 0.5)},
    )  # fmt: skip
    for change in changed:
        assert not set(keys) & set(keys_of(lab, replace(request, **change)))
    given = replace(request, problems=tuple(typed(n) for n in (1, 2, 3)))
    other = replace(given, problems=(*given.problems[:2], typed_problem("Else?", ["1", "2"])))
    assert keys_of(lab, given)[:2] == keys_of(lab, other)[:2]
    assert keys_of(lab, given)[2] != keys_of(lab, other)[2]


def test_requests_are_refused_in_words(tiny: LoadedModel, tmp_path: Path) -> None:
    for change in (
        {"candidates": 9}, {"count": 0}, {"regime": "both"}, {"protocol": "vote"}, {"criterion": "best"},
        {"orders": ()}, {"wording": "paper"}, {"problems": (typed(),)},
    ):  # fmt: skip
        with pytest.raises(OptionError) as caught:
            list(run_judging(JudgeLab(tiny), asked(**change)))
        assert caught.value.field
    foreign = tmp_path / "rows.jsonl"
    foreign.write_text(json.dumps({"key": keys_of(JudgeLab(tiny), asked())[0], "problem": 3}) + "\n")
    with pytest.raises(RecordError):
        list(run_judging(JudgeLab(tiny), asked(), foreign))


def test_problems_are_read_from_files(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl"
    row = JudgedProblem("k", replace(typed(7), regime="parallel"), ())
    lines = [
        json.dumps({"question": "How many?", "candidates": ["The answer is 5", "6"], "answer": "x #### 5"}),
        json.dumps(as_json(row)),
        json.dumps({"question": "How much?", "answer": 12}),
    ]
    path.write_text("\n".join(lines))
    given, judged, bare = read_problems(path, asked())
    assert (given.right, given.expected, given.regime) == ((1,), "5", "typed")
    assert judged == replace(row.problem, number=2)
    assert (bare.candidates, bare.expected, bare.regime) == ((), "12", "parallel")
    wrong = ("[]", "{}", '{"question": "?", "candidates": ["one"]}', '{"question": ""}', "3", "{", "null",
             '{"question": "?", "candidates": ["a", " "]}', '{"question": "?", "candidates": [1, 2]}',
             '{"question": "?", "candidates": 5}', '{"problem": {}, "outcomes": []}')  # fmt: skip
    for line in wrong:
        path.write_text(line)
        with pytest.raises(PromptError):
            read_problems(path, asked())
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(LabError):
        read_problems(path, asked())


# -- metrics and figures


def judged_by_hand() -> Judged:
    """Four problems, two orders, dense and naive, which is right in 3 of 4 and keeps 2 of 3 selections."""
    rows = []
    for number in (1, 2, 3, 4):
        outcomes = []
        for order, layout in (("identity", (1, 2)), ("shuffle 0", (2, 1))):
            dense = replace(BLANK, problem=number, order=order, layout=layout)
            if order != "identity":
                dense = replace(dense, selected=(2,))
            mine = replace(dense, method="naive", state="reused", reused_blocks=number % 3)
            if number == 2:
                mine = replace(mine, slots=(2,), consistent=False, near_tie=order == "identity", twin=True)
            if number == 3:
                mine = replace(mine, correct=False)
            if number == 4:
                dense = replace(dense, slots=None, selected=None, consistent=None, failure="no selection")
                mine = replace(mine, consistent=None)
            outcomes += [dense, mine]
        candidates = (Candidate("a", "agent 1"), Candidate("b", "agent 2"))
        rows.append(
            JudgedProblem("", JudgeProblem(number, f"Question {number}?", candidates), tuple(outcomes))
        )
    points = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [5, 5, 5]], dtype=np.float32)
    return Judged(
        JudgeRequest(methods=(MethodChoice("naive"),)), model().info, tuple(rows), ("noted",), points
    )


def test_the_table_counts_what_the_rows_say() -> None:
    lines = table(judged_by_hand())
    naive, dense = lines.line("identity", "naive"), lines.line("identity", "dense")
    assert (naive.accuracy.value, naive.accuracy.of) == (0.75, 4)
    assert (naive.accuracy.low, naive.accuracy.high) == pytest.approx(scipy_wilson(3, 4), abs=1e-5)
    assert (naive.jcr.value, naive.jcr.of) == (2 / 3, 3)
    assert (naive.jcr_without_ties.value, naive.jcr_without_ties.of) == (1.0, 2)
    assert naive.blocks.value == (1 + 2 + 0 + 1) / 8
    assert (naive.near_ties, naive.twins, dense.failures) == (1, 1, 1)
    assert naive.accuracy_change.value == -0.25
    assert naive.accuracy_change.low <= -0.25 <= naive.accuracy_change.high
    # two orders of one method: two changes of accuracy and one of consistency are read together
    assert changes_of(judged_by_hand()) == 3
    outcomes = [judged_by_hand().outcomes("identity", label) for label in ("naive", "dense")]
    alone, three = (paired(*outcomes, lambda o: o.correct, family) for family in (1, 3))
    assert naive.accuracy_change == three
    assert three.high - three.low >= alone.high - alone.low
    [again] = [paired(outcomes[1], outcomes[1], lambda o: o.correct, family).high for family in (3,)]
    assert again == pytest.approx(1 - scipy_wilson(4, 4, 1 - 0.05 / 3)[0], abs=1e-4)
    assert [p.value for p in naive.picks] == [0, 0.75, 0.25]
    assert dense.jcr.value == 1
    assert math.isnan(dense.moved.value)
    assert lines.line("shuffle 0", "dense").moved.value == 1  # the same slot, another candidate
    assert lines.line("shuffle 0", "naive").jcr_change.value == 0
    with pytest.raises(KeyError):
        lines.line("identity", "other")


def chosen(*ways: tuple[tuple[int, ...] | None, bool | None]) -> Judged:
    """Problems of one order: what naive selected, and whether that is dense's (candidate 1; None: unread)."""
    rows = []
    for number, (selected, kept) in enumerate(ways, 1):
        dense = replace(BLANK, problem=number)
        if kept is None:
            dense = replace(dense, slots=None, selected=None, consistent=None, failure="no selection")
        mine = replace(
            dense, method="naive", slots=selected, selected=selected, consistent=kept, state="reused",
            failure="" if selected else "no selection",
        )  # fmt: skip
        rows.append(JudgedProblem("", JudgeProblem(number, "?", (Candidate("a", "1"),)), (dense, mine)))
    return Judged(JudgeRequest(methods=(MethodChoice("naive"),)), model().info, tuple(rows))


def test_none_taken_and_another_candidate_are_told_apart() -> None:
    judged = chosen(
        ((1,), True), ((0,), False), ((0,), False), ((2,), False), (None, False), ((0,), None), ((1,), True)
    )
    changes = [o.change for o in judged.outcomes("identity", "naive")]
    assert changes == [None, "none", "none", "another", "unread", None, None]
    naive = table(judged).line("identity", "naive")
    assert (naive.jcr.value, naive.jcr.of) == (2 / 6, 6), "an unread verdict is not dense's"
    assert (naive.to_none.value, naive.to_another.value) == (2 / 6, 1 / 6)
    assert (naive.jcr_without_none.value, naive.jcr_without_none.of) == (2 / 4, 4)
    counts = counted(judged)
    assert [c.none_taken for c in counts] == [(), ("naive",), ("naive",), (), (), ()]
    said = drawn.finding(table(judged))
    assert (
        "keeps 33% of the full read’s selections; it takes none in 33% where the full read selects otherwise"
        in said
    )
    assert "another candidate in 17%" in said
    found = drawn.counts_map(counts).finding
    assert "4 have a changed selection under at least one; in 2 of these every changed selection" in found
    heads, *lines = judge_rows(table(judged))
    shown = dict(zip(heads, lines[1], strict=True))
    assert shown["changed to none"].startswith("33.3%")
    assert shown["to another"].startswith("16.7%")
    assert shown["without none"].startswith("50.0%")


def test_a_verdict_that_cannot_be_read_is_not_denses(
    tiny: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JCR drops a problem when dense's own selection cannot be read, never when the method's cannot."""
    unread = Verdict(None, None, "", "no selection")
    given = iter([Verdict((1,), "1.0", "", ""), unread])  # dense's, then naive's
    monkeypatch.setattr(judge_reading, "read_verdict", lambda *_: next(given))
    request = asked(regime="typed", methods=(MethodChoice("naive"),))
    dense, naive = alone(tiny, typed(), Order(), request)
    assert (dense.method, dense.consistent, dense.selected) == ("dense", True, (1,))
    assert (naive.consistent, naive.change) == (False, "unread")
    assert (dense.correct, naive.correct) == (True, False), "1.0 is the expected 1: values, not strings"


def test_counts_hold_every_readable_problem_once() -> None:
    counts = counted(judged_by_hand())
    assert len(counts) == 6  # problem 4's dense selection cannot be read
    assert heat(counts).tolist() == [[0, 2], [2, 2]]
    assert [c.flipped for c in counts if c.problem == 2] == [("naive",)] * 2
    assert len(counted(judged_by_hand(), "identity")) == 3
    assert heat(()).tolist() == [[0]]


def test_intervals_of_nothing_are_nothing() -> None:
    assert share([None]).of == 0
    assert bootstrap([]).of == 0
    assert bootstrap([0.0], [0.0]).of == 0
    assert [p.of for p in picks([replace(BLANK, slots=None)])] == [0, 0, 0]
    assert paired([BLANK], [replace(BLANK, problem=2)], lambda o: o.correct, 1).of == 0


def test_what_is_all_alike_still_has_an_interval() -> None:
    wrong = [replace(BLANK, problem=n, correct=False) for n in range(5)]
    found = paired(wrong, [replace(o, correct=True) for o in wrong], lambda o: o.correct, 1)
    assert (found.value, found.low, found.of) == (-1, -1, 5)
    assert found.high == pytest.approx(-wilson(5, 5)[0])


@given(st.lists(st.sets(st.integers(1, 4), min_size=1), min_size=1, max_size=30))
def test_picks_sum_to_one(selections: list[set[int]]) -> None:
    found = picks([replace(BLANK, layout=(1, 2, 3, 4), slots=tuple(sorted(s))) for s in selections])
    assert sum(p.value for p in found) == pytest.approx(1)
    assert all(p.low <= p.value <= p.high for p in found)


def test_the_bootstrap_covers_as_it_says() -> None:
    """Of 200 samples of a known share, about 95% of the intervals hold it."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        found = bootstrap((rng.random(60) < 0.4).astype(float).tolist(), seed=int(rng.integers(1 << 30)))
        hits += found.low <= 0.4 <= found.high
    assert 184 <= hits <= 199


def test_a_near_tie_is_within_the_floor() -> None:
    class Near:
        def __init__(self, margin: float, first: int | None = 3) -> None:
            self.fidelity = self
            self.first_divergence, self.margin, self.floor = first, margin, 1e-5

    class Read:
        def __init__(self, outcome: Any, margin: float | None = None) -> None:
            self.outcome, self.margin = outcome, margin

    def tie(margin: float, selecting: float | None = None, first: int | None = 3) -> bool:
        return near_tie(Read(Near(margin, first)), Read(None, selecting))  # type: ignore[arg-type]

    assert tie(5e-5)
    assert not tie(5e-3)
    assert tie(1.0, selecting=5e-5)
    assert not tie(5e-5, first=None)


@pytest.mark.parametrize(("margins", "tie"), [((5e-5, 5e-5), True), ((5e-5, 1.0), False)])
def test_pairs_that_changed_are_a_near_tie_only_if_all_are(margins: tuple[float, ...], tie: bool) -> None:
    """One pair that rounding could not have changed changes the winner by itself."""

    def readings(names: tuple[int, ...], method: bool) -> list[Reading]:
        out = []
        for name, margin in zip(names, margins, strict=True):
            fidelity = Fidelity(0.1, np.array([0.1]), 3, "a", "b", margin, 1e-5, 0.1) if method else None
            verdict = Verdict((name,), "1", "", "")
            outcome = replace(make_record().outcomes[0], fidelity=fidelity)
            out.append(Reading((1, 2), outcome, verdict, 1.0 if method else 0.7, 2, 2, 90, 60, 0.5))
        return out

    request = asked(regime="typed", protocol="pairwise")
    dense, mine = readings((1, 1), False), readings((2, 2), True)
    found = outcome_of(typed(), "identity", (1, 2, 3), "naive", mine, dense, request)
    assert found.consistent is False
    assert found.near_tie is tie
    assert (found.margin, found.dense_margin) == (1.0, 0.7)


def test_every_figure_is_drawn_from_the_record() -> None:
    judged = judged_by_hand()
    lines, counts = table(judged), counted(judged)
    found = drawn.views(judged, lines, counts)
    assert [type(view) for view in found] == [Panel, *[FigureView] * 5]
    for view in found:
        assert view.title.rstrip(")").endswith(("?", "as they stand", "shuffled, seed 0"))
        if isinstance(view, FigureView):
            assert view.rows
            assert all(len(row) == len(view.columns) for row in view.rows)
            assert view.finding
            assert view.how_to_read
            json.loads(view.json())
            assert len(view.csv().splitlines()) == len(view.rows) + 1
    panel = found[0]
    assert isinstance(panel, Panel)
    assert "67% (21 to 94)" in panel.html
    assert "noted" in panel.html
    assert "Of 4 judgements that every reuse method answers right, 2 have a changed" in found[2].finding  # type: ignore[union-attr]


def test_figures_of_nothing_say_so() -> None:
    judged = replace(judged_by_hand(), rows=(), points=None)
    for view in drawn.views(judged, table(judged), ()):
        assert isinstance(view, Panel) or view.empty
