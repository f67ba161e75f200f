"""Rows of several callers decoded as one batch: each gets what it gets alone, and nobody waits."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Generator, Sequence
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import TOLERANCE, error

from backend.base.clock import Clock
from backend.base.errors import LabError, RunCancelled
from backend.cache.kv_cache import KVCache
from backend.engine.decoding import DecodeBatch, Decoded, sample
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.engine.turns import ModelScheduler
from backend.methods.plan import Compute, Plan, Step
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import RunDone, TextSoFar
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding
from backend.session.session import LabSession

Steps = Generator[list[list[int]], None, list[Decoded]]


@pytest.fixture(scope="module")
def prompts(tiny_model: LoadedModel) -> list[Prefill]:
    """Six prompts of different lengths in their caches."""
    engine, draw = Engine(tiny_model), torch.Generator().manual_seed(1)
    found = []
    for length in (23, 9, 30, 4, 17, 12):
        ids = tuple(torch.randint(5, 60, (length,), generator=draw).tolist())
        plan = Plan((Step(0, length, Compute("test")),), "dense", "")
        found.append(engine.execute(TokenizedPrompt(1, ids, ()), plan, Clock()))
    return found


def rest(steps: Steps) -> list[Decoded]:
    """What decoding ends with."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def same(one: Sequence[Decoded], other: Sequence[Decoded]) -> None:
    for mine, alone in zip(one, other, strict=True):
        assert (mine.ids, mine.stopped) == (alone.ids, alone.stopped)
        assert mine.margins == pytest.approx(alone.margins, abs=1e-4)
        assert mine.logits is not None
        assert alone.logits is not None
        assert error(mine.logits, alone.logits) <= TOLERANCE
        assert mine.kv.start == alone.kv.start
        if alone.ids:
            assert error(mine.kv.keys, alone.kv.keys) <= TOLERANCE
            assert error(mine.kv.values, alone.kv.values) <= TOLERANCE


class Counting(Engine):
    """Counts its passes, and the rows of each."""

    passes: list[int]

    def forward(self, ids: Any, cache: Any, **more: Any) -> Any:
        self.passes.append(len(ids))
        return super().forward(ids, cache, **more)


def counting(model: LoadedModel) -> Counting:
    engine = Counting(model)
    engine.passes = []
    return engine


@given(data=st.data())
@settings(max_examples=25, deadline=None)
@pytest.mark.slow
def test_whoever_decodes_beside_others_writes_what_it_writes_alone(
    tiny_model: LoadedModel, prompts: list[Prefill], data: st.DataObject
) -> None:
    """Callers come at any time, ask in any order, stop early or go away in the middle."""
    engine = Engine(tiny_model)
    free = engine.decode(prompts, Decoding(6))
    stop = data.draw(st.sampled_from(sorted({token for row in free for token in row.ids})))
    engine.stop_ids = lambda: {stop}  # type: ignore[method-assign]
    batch = DecodeBatch(engine)
    asked: list[tuple[list[Prefill], Decoding]] = []
    going: dict[int, Steps] = {}
    for number in range(data.draw(st.integers(2, 4), label="callers")):
        rows = data.draw(st.lists(st.sampled_from(prompts), min_size=1, max_size=3))
        heat = data.draw(st.sampled_from([0.0, 0.0, 1.5]))
        asked.append((rows, Decoding(data.draw(st.integers(1, 9)), heat, 1.0, seed=number)))
    coming = list(range(len(asked)))
    while coming or going:
        if coming and (not going or data.draw(st.booleans())):
            number = coming.pop(0)
            going[number] = batch.steps(*asked[number], keep_logits=True)
        number = data.draw(st.sampled_from(sorted(going)))
        if data.draw(st.integers(0, 12)) == 0:
            going.pop(number).close()
            continue
        try:
            next(going[number])
        except StopIteration as end:
            del going[number]
            same(end.value, engine.decode(*asked[number], keep_logits=True))
    assert not batch._rows
    assert batch._cache is None, "nothing is held when nobody decodes"


def test_one_pass_serves_all(tiny_model: LoadedModel, prompts: list[Prefill]) -> None:
    engine = counting(tiny_model)
    engine.stop_ids = set  # type: ignore[method-assign]
    batch = DecodeBatch(engine)
    first = batch.steps(prompts[:2], Decoding(10))
    next(first), next(first)
    second = batch.steps(prompts[2:4], Decoding(10))
    next(second)
    # The one who lags behind finds its tokens; the first's end is the second's ninth.
    [one, *_] = rest(second)
    assert engine.passes == [2, 2] + [4] * 8 + [2] * 2
    ids = next(first)
    assert len(ids[0]) == 10, "the newest is told, not each"
    assert len(one.ids) == len(rest(first)[0].ids) == 10
    assert len(engine.passes) == 12


def test_a_caller_who_goes_frees_its_rows(tiny_model: LoadedModel, prompts: list[Prefill]) -> None:
    engine = counting(tiny_model)
    engine.stop_ids = set  # type: ignore[method-assign]
    batch = DecodeBatch(engine)
    stays, goes = batch.steps(prompts[:1], Decoding(6)), batch.steps(prompts[1:4], Decoding(6))
    next(goes), next(goes)
    goes.close()
    assert len(rest(stays)[0].ids) == 6
    assert engine.passes[-1] == 1
    assert batch._cache is None


def test_a_step_that_fails_is_told_to_all_and_the_next_caller_works(
    tiny_model: LoadedModel, prompts: list[Prefill], monkeypatch: pytest.MonkeyPatch
) -> None:
    for raised, told in ((torch.OutOfMemoryError("x"), MemoryError), (ZeroDivisionError("x"), LabError)):
        engine = Engine(tiny_model)
        batch = DecodeBatch(engine)
        one, two = batch.steps(prompts[:1], Decoding(6)), batch.steps(prompts[1:3], Decoding(6))
        next(one), next(two)

        def fail(*_: Any, error: Exception = raised, **__: Any) -> None:
            raise error

        monkeypatch.setattr(engine, "forward", fail)
        with pytest.raises(type(raised)):
            next(two)
        monkeypatch.undo()
        with pytest.raises(told):
            next(one)
        again = batch.steps(prompts[:2], Decoding(6), keep_logits=True)
        same(rest(again), engine.decode(prompts[:2], Decoding(6), keep_logits=True))


def test_rows_that_would_be_padding_are_decoded_apart(
    tiny_model: LoadedModel, prompts: list[Prefill]
) -> None:
    together, engine = ModelScheduler(), Engine(tiny_model)
    lengths = [prefill.cache.length for prefill in prompts]
    short, long = prompts[lengths.index(4)], prompts[lengths.index(30)]
    batch = together.batch(engine, [short])
    steps = batch.steps([short], Decoding(6))
    next(steps)
    assert together.batch(engine, [short]) is batch
    assert together.batch(engine, [long]) is batch, "36 of 60 places"
    assert together.batch(engine, [short] * 9 + [long]) is not batch, "71 of 330 places"
    steps.close()
    assert together.batch(engine, [short] * 9 + [long]) is not batch, "the first of a new one"


def test_a_row_that_has_ended_is_forwarded_at_the_first_place(
    tiny_model: LoadedModel, prompts: list[Prefill], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own places end where its context may end; some rotations look at the largest of all."""
    engine, seen = Engine(tiny_model), []
    engine.stop_ids = set  # type: ignore[method-assign]
    real = engine._pass

    def watched(ids: Any, cache: Any, positions: Any, *more: Any) -> Any:
        seen.append(positions[:, -1].tolist())
        return real(ids, cache, positions, *more)

    monkeypatch.setattr(engine, "_pass", watched)
    batch = DecodeBatch(engine)
    ends, goes = batch.steps(prompts[:1], Decoding(2)), batch.steps(prompts[1:3], Decoding(8))
    next(ends)
    rest(goes)
    length = prompts[0].cache.length
    assert [positions[0] for positions in seen[:4]] == [length, length + 1, 0, 0]


def test_rows_are_gathered_without_common_padding(tiny_model: LoadedModel) -> None:
    def filled(length: int, rows: int) -> KVCache:
        cache = tiny_model.new_cache(length + 2, rows)
        cache.keys.normal_()
        cache.values.normal_()
        cache.length = length
        return cache

    one, two = filled(7, 3), filled(4, 1)
    joined, padding = KVCache.gather([(one, 2, 3), (two, 0, 0), (one, 0, 2)], 5)
    assert (joined.length, joined.capacity, padding) == (5, 10, [1, 1, 0])
    for row, (cache, at, start) in enumerate([(one, 2, 3), (two, 0, 0), (one, 0, 2)]):
        pad, end = padding[row], cache.length
        assert torch.equal(joined.keys[:, row, :, pad:5], cache.keys[:, at, :, start:end])
        assert torch.equal(joined.values[:, row, :, pad:5], cache.values[:, at, :, start:end])
        assert not joined.keys[:, row, :, :pad].any()


# -- sessions


def outcome(session: LabSession, question: str) -> Any:
    return tiny.run(session, tiny.request(question=question))


def texts(record: Any) -> list[Any]:
    return [(o.agent, o.method, o.token_ids.tolist()) for o in record.outcomes]


@pytest.mark.slow
def test_visitors_at_once_get_what_they_get_alone(tiny_model: LoadedModel) -> None:
    """Their runs step by step between one another, as handlers' threads take them."""
    alone = [texts(outcome(LabSession(tiny_model), question)) for question in tiny.QUESTIONS[:3]]
    sessions = [LabSession(tiny_model) for _ in alone]
    runs = [s.run(tiny.request(question=q)) for s, q in zip(sessions, tiny.QUESTIONS, strict=False)]
    found: dict[int, Any] = {}
    while len(found) < len(runs):
        for number, run in enumerate(runs):
            for event in run:
                if isinstance(event, RunDone):
                    found[number] = event.record
                if isinstance(event, TextSoFar | RunDone):
                    break
    assert [texts(found[number]) for number in range(3)] == alone
    assert all(LabSession.concurrent_note in record.notes for record in found.values())
    for run in runs:
        run.close()
    again = outcome(sessions[0], tiny.QUESTIONS[3])
    assert LabSession.concurrent_note not in again.notes


@pytest.mark.slow
def test_threads_of_runs_and_warm_ups_end_and_mix_nothing(tiny_model: LoadedModel) -> None:
    asked = [tiny.request(question=question) for question in tiny.QUESTIONS[:4]]
    alone = [texts(tiny.run(LabSession(tiny_model), request)) for request in asked]
    found: dict[int, Any] = {}
    warmed = LabSession(tiny_model)
    examples = [Example({"user_question": question}, None) for question in tiny.QUESTIONS]

    def work(number: int) -> None:
        found[number] = tiny.run(LabSession(tiny_model), asked[number])

    def warm() -> None:
        found[-1] = list(warmed.warm_up(asked[0], examples))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    threads.append(threading.Thread(target=warm))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(found) == [-1, 0, 1, 2, 3]
    assert [texts(found[number]) for number in range(4)] == alone
    other = LabSession(tiny_model)
    list(other.warm_up(asked[0], examples))
    assert [p.anchors for p in warmed.pools(asked[0])] == [p.anchors for p in other.pools(asked[0])]


@pytest.mark.slow
def test_one_works_at_a_time_and_all_in_one_thread(tiny_model: LoadedModel) -> None:
    """Between one event and the next a run has the model for itself: times to the first token are its own."""
    threads: set[int] = set()
    inside, most = 0, 0

    class Watched(Engine):
        def execute(self, *given: Any, **named: Any) -> Any:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            threads.add(threading.get_ident())
            found = super().execute(*given, **named)
            inside -= 1
            return found

    def work() -> None:
        session = LabSession(tiny_model)
        session.engine = Watched(tiny_model)
        tiny.run(session, tiny.request())

    runs = [threading.Thread(target=work) for _ in range(3)]
    for thread in runs:
        thread.start()
    for thread in runs:
        thread.join(60)
    assert most == 1
    assert len(threads) == 1
    assert not threads & {thread.ident for thread in runs}


def test_a_run_that_is_dropped_ends_wherever_it_is_collected(tiny_model: LoadedModel) -> None:
    """Also in the model's own thread, which cannot wait for itself."""
    together, ended = ModelScheduler.on(tiny_model), []

    def dropped() -> Generator[int, None, None]:
        try:
            yield 1
            yield 2
        finally:
            ended.append(threading.get_ident())

    kept = [together.by_turns(dropped()) for _ in range(2)]
    assert [next(run) for run in kept] == [1, 1]  # type: ignore[call-overload]

    def outer() -> Generator[int, None, None]:
        kept.pop()
        yield 3

    assert list(together.by_turns(outer())) == [3]
    kept.pop()
    assert ended == [together._ident] * 2


def test_a_cancelled_run_leaves_the_batch_before_anybody_is_told(tiny_model: LoadedModel) -> None:
    cancel, session = threading.Event(), LabSession(tiny_model)
    steps, in_thread = [], threading.get_ident()
    leave = DecodeBatch._leave

    def left(self: DecodeBatch, caller: Any) -> None:
        steps.append(threading.get_ident())
        leave(self, caller)

    def cancelled() -> None:
        for event in session.run(tiny.request(), cancel=cancel):
            if isinstance(event, TextSoFar):
                cancel.set()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeBatch, "_leave", left)
        with pytest.raises(RunCancelled) as kept:
            cancelled()
        assert len(steps) == 1
        assert steps != [in_thread]
        assert kept.value.__traceback__ is not None, "the frames are still there, and the rows are not"


def test_what_sessions_share_goes_with_the_model() -> None:
    from backend.engine import turns

    model = tiny.model.__wrapped__() if hasattr(tiny.model, "__wrapped__") else tiny.model()
    session = LabSession(model)
    # Watched one by one: other tests' models may go at the same collection.
    gone = weakref.ref(model.module), weakref.ref(turns._BY_MODEL[model.module])
    tiny.run(session, tiny.request())
    [thread] = session.scheduler._thread._threads
    del session, model
    gc.collect()
    assert [one() for one in gone] == [None, None]
    thread.join(10)
    assert not thread.is_alive()


def test_the_token_that_reaches_top_p_is_among_them() -> None:
    """Of 0.5, 0.3 and 0.2 a top p of 0.6 leaves two, one of 0.45 the first alone, and any leaves one."""
    logits = torch.tensor([0.5, 0.3, 0.2]).log()[None]
    for top_p, left in ((0.6, {0, 1}), (0.45, {0}), (0.01, {0}), (0.9, {0, 1, 2})):
        decoding, noise = Decoding(8, 1.0, top_p), torch.Generator().manual_seed(0)
        drawn = {int(sample(logits, decoding, noise)) for _ in range(200)}
        assert drawn == left, top_p
