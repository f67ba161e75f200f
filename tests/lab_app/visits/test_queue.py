"""The line before the model, and visits that end: positions, expected waits, cancelling, leaving."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bench_forms import make_form
from fake_record import make_record
from fake_session import FakeModel, FakeSession
from hypothesis import given
from hypothesis import strategies as st

from backend.base.errors import LabError, RateError, RunCancelled
from backend.session.limits import Limits
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.running import paced
from lab_app.ui.one_run import cancelled
from lab_app.visits.queue import ModelQueue, QueuePlace, wait_for_turn
from lab_app.visits.visits import ACTIVE_SECONDS, KEPT_RECORDS, LEFT_SECONDS, Visit, VisitStore, record_bytes


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lab_of(clock: Clock | None = None, **limits: int) -> VisitStore:
    return VisitStore(
        FakeModel, FakeSession, limits=dataclasses.replace(Limits(), **limits), clock=clock or Clock()
    )


# -- the line ----------------------------------------------------------------------------------------------


def test_a_wait_is_expected_from_the_turns_before() -> None:
    clock = Clock()
    turns = ModelQueue(clock)
    first, second, third = QueuePlace(turns), QueuePlace(turns), QueuePlace(turns)
    assert turns.expected(1) is None, "nothing was measured yet"
    assert third.describe(2) == "Others have the model: 2 runs before you."
    clock.now = 10.0
    first.leave()
    fourth = QueuePlace(turns)
    assert turns.expected(0) is None
    assert turns.expected(1) == 10.0
    clock.now = 14.0
    assert turns.expected(1) == 6.0, "of which four have passed"
    assert (
        fourth.describe(2)
        == "Others have the model: 2 runs before you. Expected wait: 16 s, as the last runs went."
    )
    clock.now = 40.0  # this one lasts longer than usual
    assert turns.expected(2) == 10.0
    second.leave()
    assert turns.expected(1) == (10 + 30) / 2


def test_a_place_given_up_while_waiting_is_no_measured_turn() -> None:
    clock = Clock()
    turns = ModelQueue(clock)
    first, second = QueuePlace(turns), QueuePlace(turns)
    clock.now = 5.0
    second.leave()
    assert turns.expected(1) is None
    first.leave()
    third, fourth = QueuePlace(turns), QueuePlace(turns)
    assert turns.expected(1) == 5.0
    assert (third(0), fourth(0)) == (0, 1)


@given(st.lists(st.integers(0, 5), max_size=30))
def test_whoever_leaves_the_order_stays(leaves: list[int]) -> None:
    turns = ModelQueue(Clock())
    line = [turns.join() for _ in range(8)]
    for index in leaves:
        if index < len(line):
            turns.leave(line.pop(index))
        assert [turns.wait(ticket, 0) for ticket in line] == list(range(len(line)))


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 4), st.data())
def test_runs_go_together_up_to_the_width_and_nothing_overtakes(
    kinds: list[bool], width: int, data: st.DataObject
) -> None:
    turns = ModelQueue(Clock(), width)
    line = [turns.join(kind) for kind in kinds]
    while line:
        waits = [turns.wait(ticket, 0) for ticket in line]
        together = next((n for n, ticket in enumerate(line) if not ticket.together), len(line))
        first = max(1, min(width, together))
        assert waits == [0] * first + list(range(first, len(line)))
        turns.leave(line.pop(data.draw(st.integers(0, len(line) - 1))))


def test_a_wait_behind_runs_that_go_together_is_expected_from_how_soon_they_end() -> None:
    clock = Clock()
    turns = ModelQueue(clock, 2)
    one, two, three = (QueuePlace(turns, together=True) for _ in range(3))
    clock.now = 10.0
    two.leave()
    assert three(0) == 0
    clock.now = 12.0
    one.leave()
    last = QueuePlace(turns)
    assert last(0) == 1, "what measures has the model alone"
    assert turns.expected(1) == (10 + 2) / 2
    last.leave()
    more = [QueuePlace(turns, together=True) for _ in range(2)]
    assert more[1](0) == 2
    assert turns.expected(2, together=True) == 6, "one end is enough: two have their turn at once"
    assert turns.expected(2) == 12


def test_waiting_says_only_what_is_new_and_can_be_cancelled() -> None:
    clock = Clock()
    turns = ModelQueue(clock)
    first, second, third = QueuePlace(turns), QueuePlace(turns), QueuePlace(turns)
    cancel = threading.Event()
    said = wait_for_turn(third, cancel, clock)
    assert "2 runs" in next(said)
    threading.Timer(0.01, second.leave).start()
    assert "1 run " in next(said)
    cancel.set()
    with pytest.raises(RunCancelled):
        next(said)
    first.leave()
    assert third(0) == 0


def test_a_cancelled_run_gives_its_place_away_at_once() -> None:
    handlers = Handlers(lab_of())
    visit = handlers.lab.visit(handlers.arrive("math-3")[0])
    holder = QueuePlace(handlers.lab.turns)
    run = handlers.run(visit, make_form(visit, warm=False))
    for update in run:
        if "before you" in str(update.get("status")):
            break
    assert len(handlers.lab.turns) == 2
    cancelled(visit, {})
    rest = list(run)
    assert any("Stopped" in str(update.get("status")) for update in rest)
    assert len(handlers.lab.turns) == 1
    assert visit.cancel is None
    holder.leave()


def test_two_visitors_run_at_once_and_a_third_waits() -> None:
    handlers = Handlers(lab_of(together=2))

    def start() -> tuple[Iterator[dict[str, Any]], str]:
        visit = handlers.lab.visit(handlers.arrive("math-3")[0])
        run = handlers.run(visit, make_form(visit, warm=False))
        said = ""
        while "reading" not in said and "before you" not in said:
            said = str(next(run).get("status"))
        return run, said

    (one, _), (two, told), (three, waits) = start(), start(), start()
    assert "before you" not in told
    assert "2 runs before you" in waits
    list(one)
    assert not any("before you" in str(update.get("status")) for update in three)
    list(two)
    assert len(handlers.lab.turns) == 0


def test_a_browser_that_goes_away_gives_its_turn_away() -> None:
    handlers = Handlers(lab_of())
    visit = handlers.lab.visit(handlers.arrive("math-3")[0])
    run = handlers.run(visit, make_form(visit, warm=False))
    next(run), next(run), next(run)
    assert len(handlers.lab.turns) == 1
    run.close()  # what the framework does to a generator whose reader is gone
    assert len(handlers.lab.turns) == 0
    assert visit.cancel is None


def test_several_runs_let_others_in_between() -> None:
    handlers = Handlers(lab_of())
    visit = handlers.lab.visit(handlers.arrive("math-3")[0])
    other: QueuePlace | None = None
    waited, told = [], []
    for update in handlers.run_many(visit, make_form(visit, many_count=3, warm=False)):
        if other is None and handlers.lab.turns:
            other = QueuePlace(handlers.lab.turns)
        said = str(update.get("status"))
        if "before you" in said and other is not None and other(0) == 0:
            waited.append(len(visit.engine.requests))  # type: ignore[attr-defined]
            other.leave()
        told.append(said)
    assert waited == [1], "after the first of three, whoever waits has the turn"
    assert len(visit.engine.requests) == 3  # type: ignore[attr-defined]


def test_a_batch_waits_where_the_rate_is_over() -> None:
    tries = []

    def run() -> Iterator[dict[str, Any]]:
        tries.append(1)
        if len(tries) == 1:
            raise RateError("too fast", 0.01)
        yield {"ran": True}

    updates = list(paced(run, threading.Event()))
    assert updates[-1] == {"ran": True}
    assert "Going on in 1 s" in updates[0]["status"]
    stopped = threading.Event()
    stopped.set()
    tries.clear()
    with pytest.raises(RunCancelled):
        list(paced(run, stopped))


# -- visits ------------------------------------------------------------------------------------------------


def held(lab: VisitStore, visit: Visit) -> bool:
    """Whether the lab still knows a visit, without touching it."""
    return visit.id in lab._visits


def test_a_visit_ends_when_its_tab_stays_away_and_not_before() -> None:
    clock = Clock()
    lab = lab_of(clock)
    gone, back, other = lab.open("tab-1"), lab.open("tab-2"), lab.open("tab-3")
    gone.engine.warmed.append("something")  # type: ignore[attr-defined]
    gone.cancel = cancel = threading.Event()
    lab.leave("tab-1")
    lab.leave("tab-2")
    lab.leave("")
    assert cancel.is_set(), "what it runs is stopped at once"
    gone.cancel = None
    clock.now = LEFT_SECONDS
    assert lab.sweep() == 0
    lab.tab_returned("tab-2")
    clock.now += 1
    assert lab.sweep() == 1
    assert [held(lab, v) for v in (gone, back, other)] == [False, True, True]
    assert gone.engine.warmed == []  # type: ignore[attr-defined]


def test_visits_end_when_idle_and_at_the_end_of_their_lifetime() -> None:
    clock = Clock()
    lab = lab_of(clock, idle_minutes=10, lifetime_minutes=15)
    idle, used, running = lab.open(), lab.open(), lab.open()
    running.measuring = threading.Event()
    clock.now = 9 * 60.0
    lab.visit(used.id)
    clock.now = 10 * 60.0 + 1
    lab.sweep()
    assert [held(lab, v) for v in (idle, used, running)] == [False, True, True]
    clock.now = 15 * 60.0 + 1
    lab.visit(used.id)
    lab.sweep()
    assert [held(lab, v) for v in (used, running)] == [False, True], "never one that runs"


def test_a_full_lab_ends_the_longest_unused_and_refuses_when_all_are_in_use() -> None:
    clock = Clock()
    lab = lab_of(clock, visits=2)
    first, second = lab.open(), lab.open()
    clock.now = ACTIVE_SECONDS + 1
    lab.visit(first.id)
    assert not lab.full
    third = lab.open()
    assert [held(lab, v) for v in (first, second, third)] == [True, False, True]
    assert lab.full
    with pytest.raises(LabError, match="All 2 places"):
        lab.open()  # a crowd does not push one another out
    clock.now += ACTIVE_SECONDS + 1
    first.cancel, third.measuring = threading.Event(), threading.Event()
    with pytest.raises(LabError, match="All 2 places"):
        lab.open()
    assert len(lab.visits) == 2


def test_of_a_full_lab_no_address_keeps_more_places_than_others() -> None:
    clock = Clock()
    lab = lab_of(clock, visits=3)
    crowd = [lab.open(address="10.0.0.1") for _ in range(3)]
    one = lab.open(address="10.0.0.2")
    assert [held(lab, v) for v in (*crowd, one)] == [False, True, True, True]
    with pytest.raises(LabError, match="All 3 places"):
        lab.open(address="10.0.0.1")
    with pytest.raises(LabError, match="All 3 places"):
        lab.open(address="10.0.0.2")
    lab.leave("")  # of no browser
    crowd[1].left_at = clock.now
    lab.open(address="10.0.0.2")
    assert not held(lab, crowd[1]), "whoever has gone makes room at once"


def test_records_are_kept_within_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    visit = lab_of().open()
    records = [make_record(layers=4, seed=n) for n in range(KEPT_RECORDS + 2)]
    tokens = [visit.keep(record) for record in records]
    assert list(visit.records) == tokens[-KEPT_RECORDS:]
    monkeypatch.setattr("lab_app.visits.visits.RECORD_BYTES", 1)
    shown = visit.shown
    last = visit.keep(records[0], show=False)
    assert list(visit.records) == [shown, last], "what is on the screen and what was just made stay"
    assert visit.kept_bytes == record_bytes(records[-1]) + record_bytes(records[0])


def test_the_page_states_every_limit() -> None:
    handlers = Handlers(lab_of(tokens=4321))
    _, update = handlers.arrive("math-3")
    for sentence in handlers.lab.limits.sentences:
        assert sentence[1:] in update["topbar"]
    assert "4,321 prompt tokens" in update["topbar"]
