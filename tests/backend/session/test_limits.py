"""Limits, the account of memory, and what happens when memory runs out: all of it in the engine's session."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st

import backend.lab
from backend.base.errors import BudgetError, LabError, MemoryFullError, OptionError, RateError, RunCancelled
from backend.cache.memory_budget import MemoryBudget, out_of_memory, with_retry
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Event, Progress, RunDone
from backend.records.proximity import ProximityRequest
from backend.session.limits import LOCAL_LIMITS, Limits, Rate
from backend.session.run import SMALLER
from backend.session.session import LabSession
from backend.session.study import STUDIES

MIB = 2**20
EXAMPLES = [Example({"user_question": question}, None) for question in tiny.QUESTIONS]


# -- the numbers -----------------------------------------------------------------------------------------


def test_limits_come_from_the_environment_and_then_from_the_command_line() -> None:
    environ = {"KVLAB_LIMIT_TOKENS": "5000", "KVLAB_LIMIT_VISITS": "7", "HOME": "x"}
    found = Limits.read(["tokens=6000", " agents = 3"], environ)
    assert found == replace(Limits(), tokens=6000, visits=7, agents=3)


@pytest.mark.parametrize(
    "wrong",
    [
        "tokens=0",
        "tokens",
        "tokens=",
        "speed=3",
        "=1",
        "agents=1e3",
        "visits=-1",
        "tokens=²",
        "tokens=9" + "9" * 5000,
    ],
)
def test_a_wrong_limit_is_refused_by_name(wrong: str) -> None:
    with pytest.raises(OptionError) as caught:
        Limits.read([wrong], {})
    assert len(str(caught.value)) < 500


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_no_text_makes_anything_but_limits_or_a_told_error(text: str, environ: dict[str, str]) -> None:
    with contextlib.suppress(OptionError):
        assert isinstance(Limits.read([text], environ), Limits)


def test_every_limit_is_stated_in_words() -> None:
    assert len(Limits().sentences) == len(fields(Limits))
    assert "1,000,000 prompt tokens in a request" in Limits().sentences[0]
    assert len(LOCAL_LIMITS.sentences) == len(fields(Limits)) - 1, "there is no rate on one's own machine"


# -- the engine holds to them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"tokens": 1000}, BudgetError, "allows 1,000"),
        ({"agents": 2}, BudgetError, "allows 2"),
        ({"methods": 2}, OptionError, "at most 2"),
    ],
)
@pytest.mark.slow
def test_a_session_refuses_what_is_over_a_limit(
    tiny_model: LoadedModel, changes: dict[str, int], error: type[LabError], said: str
) -> None:
    asked = tiny.request(question=tiny.QUESTIONS[0] * 8)
    tiny.run(LabSession(tiny_model), tiny.request())
    session = LabSession(tiny_model, limits=replace(LOCAL_LIMITS, **changes))
    for ask in (
        lambda: list(session.run(asked)),
        lambda: session.estimate(asked),
        lambda: list(session.warm_up(replace(asked, mode="free"), [Example(asked.values, None)])),
    ):
        with pytest.raises(error, match=said):
            ask()
    assert session.bytes == 0


@pytest.mark.slow
def test_the_rate_counts_what_a_visitor_asks_and_no_more(tiny_model: LoadedModel) -> None:
    now = 0.0
    session = LabSession(tiny_model, limits=replace(LOCAL_LIMITS, requests_a_minute=2))
    session.rate = Rate(2, lambda: now)
    # A warm-up is one request, however many it sends.
    list(session.warm_up(tiny.request(mode="free"), EXAMPLES[:3]))
    tiny.run(session, tiny.request(["dense"]))
    with pytest.raises(RateError, match="allows 2") as caught:
        tiny.run(session, tiny.request(["dense"]))
    assert caught.value.seconds == 60
    with pytest.raises(RateError):
        list(backend.lab.Lab(session).study(ProximityRequest("a", "b")))
    now = 60.0
    tiny.run(session, tiny.request(["dense"]))


@given(st.lists(st.floats(0, 100), max_size=40), st.integers(1, 5))
def test_no_minute_holds_more_than_the_rate(pauses_before_decode: list[float], most: int) -> None:
    now, let_through = 0.0, []
    rate = Rate(most, lambda: now)
    for wait in pauses_before_decode:
        now += wait
        seconds = 0.0
        try:
            rate.ask()
            let_through.append(now)
        except RateError as error:
            seconds = error.seconds
        assert 0 <= seconds <= 60
        now += seconds
    for start in let_through:
        assert sum(1 for at in let_through if start <= at < start + 59.99) <= most


# -- one account for all -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_idle_sessions_make_room_and_the_longest_unused_goes_first(tiny_model: LoadedModel) -> None:
    alone = LabSession(tiny_model)
    tiny.run(alone, tiny.request())
    each = alone.held
    assert each == alone.bytes > 0
    memory = MemoryBudget(int(each * 8.5))
    first, second, third = (LabSession(tiny_model, memory=memory) for _ in range(3))
    for session in (first, second):
        tiny.run(session, tiny.request())
    tiny.run(first, tiny.request())  # used again, so the second is the longest unused
    memory.total_bytes = first.held + second.held + each
    tiny.run(third, tiny.request(["dense"]))
    assert second.held == second.bytes == 0
    assert third.held > 0
    assert memory.held <= memory.total_bytes


@pytest.mark.slow
def test_nothing_is_taken_from_a_session_that_runs(tiny_model: LoadedModel) -> None:
    memory = MemoryBudget(1 << 40)
    busy, other = (LabSession(tiny_model, memory=memory) for _ in range(2))
    tiny.run(busy, tiny.request())
    events = busy.run(tiny.request())
    next(events)
    memory.total_bytes = held = busy.held
    with pytest.raises(BudgetError, match=r"may need \d+ MiB of memory, and \d+ MiB are left") as caught:
        tiny.run(other, tiny.request())
    assert caught.value.field == "methods"
    assert busy.held == held
    assert isinstance(list(events)[-1], RunDone)
    # An abandoned run counts no longer.
    memory.total_bytes = 1 << 30
    events = busy.run(tiny.request())
    next(events)
    events.close()
    memory.empty(other)
    assert busy.held == 0


def test_what_a_run_will_need_counts_for_those_who_come_while_it_runs(tiny_model: LoadedModel) -> None:
    memory = MemoryBudget(1 << 40)
    one, two = (LabSession(tiny_model, memory=memory) for _ in range(2))
    needs: list[int] = []
    make_room = memory.make_room

    def watched(asking: Any, needed: int, passing: int) -> None:
        needs.append(needed + passing)
        make_room(asking, needed, passing)

    memory.make_room = watched  # type: ignore[method-assign]
    running = one.run(tiny.request())
    next(running)
    memory.total_bytes = 2 * needs[0] - 1  # either fits, both at once do not
    with pytest.raises(BudgetError, match="MiB are left beside what others are running"):
        tiny.run(two, tiny.request())
    assert isinstance(list(running)[-1], RunDone)
    one.forget()
    tiny.run(two, tiny.request())
    assert not memory._promised


def test_what_one_of_two_runs_of_a_session_needs_counts_until_both_are_over() -> None:
    class Session:
        runs, used, held = 0, 0.0, 0

        def forget(self) -> None:
            raise AssertionError("it runs")

    memory, mine, other = MemoryBudget(100), Session(), Session()
    memory.join(mine)
    memory.join(other)
    with memory.running(mine):
        with memory.running(mine):
            memory.make_room(mine, 60, 0)
        with pytest.raises(BudgetError):
            memory.make_room(other, 60, 0)
    memory.make_room(other, 60, 0)


def test_a_device_with_too_little_left_refuses_before_the_model_works(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model, memory=MemoryBudget(free=lambda: 1000))
    before = session.engine.forwarded_tokens
    with pytest.raises(BudgetError, match="MiB are left"):
        tiny.run(session, tiny.request())
    assert session.engine.forwarded_tokens == before


@dataclass(eq=False)
class Held:
    """A session as the account sees it."""

    held: int
    runs: int = 0
    used: float = 0.0

    def forget(self) -> None:
        self.held = 0


def test_what_a_session_holds_already_asks_nothing_more_of_the_device() -> None:
    memory, mine = MemoryBudget(free=lambda: 30), Held(60)
    memory.make_room(mine, 80, 10)  # 20 more to hold, 10 in passing
    with pytest.raises(BudgetError):
        memory.make_room(mine, 80, 11)
    with pytest.raises(BudgetError):
        memory.make_room(Held(0), 80, 10)


def test_a_session_that_is_gone_counts_no_longer(tiny_model: LoadedModel) -> None:
    memory = MemoryBudget(1 << 40)
    session = LabSession(tiny_model, memory=memory)
    tiny.run(session, tiny.request(["dense"]))
    assert memory.held > 0
    session.forget()
    assert memory.held == 0


# -- memory runs out ---------------------------------------------------------------------------------------

OUT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 8 bytes"),
]


def test_what_counts_as_out_of_memory() -> None:
    assert all(map(out_of_memory, OUT))
    assert not any(map(out_of_memory, [RuntimeError("shape mismatch"), ValueError("out of memory")]))


def test_the_systems_own_refusal_is_recognized() -> None:
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert out_of_memory(caught.value)


def failing(session: LabSession, error: BaseException, when: Any) -> None:
    """Let the session's model raise at every forward for which ``when(rows)`` holds."""
    real = session.engine.forward

    def forward(ids: Any, *given: Any, **more: Any) -> Any:
        if when(ids.shape[0]):
            raise error
        return real(ids, *given, **more)

    session.engine.forward = forward  # type: ignore[method-assign]


@pytest.mark.parametrize("error", OUT, ids=lambda e: type(e).__name__)
@pytest.mark.slow
def test_a_batch_that_does_not_fit_is_decoded_row_by_row(tiny_model: LoadedModel, error: Exception) -> None:
    wanted = tiny.run(LabSession(tiny_model), tiny.request())
    memory = MemoryBudget(1 << 40)
    session, idle = (LabSession(tiny_model, memory=memory) for _ in range(2))
    tiny.run(idle, tiny.request(["dense"]))
    failing(session, error, lambda rows: rows > 1)
    events = list(session.run(tiny.request()))
    assert [e.text for e in events if isinstance(e, Progress) and "Memory ran out" in e.text]
    record = events[-1].record  # type: ignore[union-attr]
    assert SMALLER in record.notes
    assert [o.text for o in record.outcomes] == [o.text for o in wanted.outcomes]
    assert idle.held == 0, "idle sessions give their memory first"


@pytest.mark.slow
def test_a_warm_up_that_does_not_fit_goes_one_by_one(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    failing(session, OUT[0], lambda rows: rows > 1)
    list(session.warm_up(tiny.request(), EXAMPLES))
    [stream] = session.streams.values()
    assert len(stream.history) == len(EXAMPLES)


def test_a_warm_up_stops_while_it_decodes(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    session, cancel, steps = LabSession(tiny_model), threading.Event(), []
    real = session.engine.forward

    def forward(ids: Any, *rest: Any, **more: Any) -> Any:
        if ids.shape[0] > 1:
            steps.append(ids.shape[0])
            if len(steps) == 2:
                cancel.set()
        return real(ids, *rest, **more)

    monkeypatch.setattr(session.engine, "forward", forward)
    with pytest.raises(RunCancelled):
        list(session.warm_up(tiny.request(), EXAMPLES, cancel=cancel))
    assert len(steps) == 2, "not a step more"
    [stream] = session.streams.values()
    assert not stream.history
    assert not stream.log.samples
    monkeypatch.undo()
    tiny.run(session, tiny.request())


def test_memory_that_stays_full_is_told_and_leaves_nothing(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    tiny.run(session, tiny.request())
    real = session.engine.forward
    failing(session, OUT[0], lambda rows: True)
    with pytest.raises(MemoryFullError, match="also in smaller pieces") as caught:
        tiny.run(session, tiny.request())
    assert caught.value.__context__ is None, "no traceback that keeps the tensors"
    assert session.held == session.bytes == 0
    session.engine.forward = real  # type: ignore[method-assign]
    tiny.run(session, tiny.request())


def test_a_measurement_that_runs_out_is_told(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = LabSession(tiny_model)

    def full() -> Iterator[Event]:
        yield Progress("one", 0, 2)
        raise OUT[0]

    monkeypatch.setitem(STUDIES, ProximityRequest, full)
    with pytest.raises(MemoryFullError, match="more memory than this machine has free"):
        list(backend.lab.Lab(session).study(ProximityRequest("a", "b")))


def test_other_errors_are_not_retried() -> None:
    tried = []

    def attempt(small: bool) -> Generator[Any, None, None]:
        tried.append(small)
        raise RuntimeError("a bug")
        yield

    with pytest.raises(RuntimeError, match="a bug"):
        list(with_retry(attempt, lambda last: None, Progress("again", 0, 1)))
    assert tried == [False]


def test_a_model_that_raises_leaves_the_session_as_it_was(tiny_model: LoadedModel) -> None:
    session = LabSession(tiny_model)
    tiny.run(session, tiny.request())
    before = session.bytes
    real = session.engine.forward
    calls = 0

    def breaks(*given: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 12:
            raise ValueError("broken weights")
        return real(*given, **more)

    session.engine.forward = breaks  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="broken weights"):
        tiny.run(session, tiny.request(question=tiny.QUESTIONS[1]))
    session.engine.forward = real  # type: ignore[method-assign]
    assert session.held == session.bytes
    # Past prompts may stay for exact-prefix reuse; no observation of the broken run does.
    [stream] = session.streams.values()
    assert len(stream.history) == 1
    assert {o.text for o in stream.log.samples.values()}.isdisjoint({tiny.QUESTIONS[1]})
    assert session.bytes < 2 * before
    tiny.run(session, tiny.request(question=tiny.QUESTIONS[1]))
