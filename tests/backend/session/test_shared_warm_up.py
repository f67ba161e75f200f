"""Pools filled once for all who open a scenario: the same pools, on memory of one's own, and only of public
texts."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from backend.base.errors import RunCancelled
from backend.base.serialization import encode
from backend.cache.memory_budget import MemoryBudget
from backend.cache.row_arena import ArenaRows, Arenas
from backend.methods.registry import method_class, method_names
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Progress, TextSoFar
from backend.records.request import Decoding, RunRequest
from backend.records.run import RunRecord
from backend.session.limits import Limits
from backend.session.session import LabSession
from backend.session.shared_warm_up import WarmUpCache
from backend.session.streams import Stream

EXAMPLES = tuple(Example({"user_question": question}, None) for question in tiny.QUESTIONS[:4])


@pytest.fixture(autouse=True)
def nothing_ready(tiny_model: LoadedModel) -> Iterator[None]:
    """No test finds what another left."""
    WarmUpCache.on(tiny_model).forget()
    yield
    WarmUpCache.on(tiny_model).forget()


def warm(session: LabSession, asked: RunRequest, shared: bool | int = True, examples: Any = EXAMPLES) -> bool:
    """Warm up; whether the pools came filled."""
    events = list(session.warm_up(asked, examples, shared=bool(shared)))
    assert all(isinstance(event, Progress) for event in events)
    return len(events) == 1


def log_of(session: LabSession) -> Stream:
    (stream,) = session.streams.values()
    return stream


def tensors(stream: Stream) -> Iterator[Tensor]:
    """Everything that a warm-up leaves, in a fixed order."""
    log = stream.log
    for number in sorted(log.samples):
        seen = log.samples[number]
        yield from (seen.base.keys, seen.base.values, seen.descriptor)
        if seen.lead_in_base is not None:
            yield from (seen.lead_in_base.keys, seen.lead_in_base.values)
        for agent in sorted(seen.offsets):
            every = (seen.offsets[agent].placeholder, *seen.offsets[agent].followers.values())
            yield from (part for offset in every for part in (offset.keys, offset.values))
    for bases in (log.prefix_bases, log.isolated_bases, log.named_bases):
        for agent in sorted(bases):
            for segment in bases[agent].values():
                yield from (segment.keys, segment.values)


def seen(record: RunRecord) -> tuple[Any, dict[str, bytes]]:
    """What a run found, but for its times."""
    arrays: dict[str, Any] = {}
    outcomes = [replace(outcome, timing=None) for outcome in record.outcomes]  # type: ignore[arg-type]
    found = encode([outcomes, list(record.offsets), list(record.pools)], arrays)
    return found, {name: array.tobytes() for name, array in arrays.items()}


@pytest.mark.slow
def test_a_copied_warm_up_is_the_computed_one(tiny_model: LoadedModel) -> None:
    """Every tensor, every method's pools, and two runs after it."""
    usable = [name for name in method_names() if not method_class(name).supports(tiny_model.info)]
    asked = [tiny.request(usable, question=question) for question in tiny.QUESTIONS[4:6]]
    limits = Limits(methods=len(usable) + 1)
    sessions = [LabSession(tiny_model, limits=limits) for _ in range(3)]
    assert [warm(s, asked[0], shared) for s, shared in zip(sessions, (0, 1, 1), strict=True)] == [0, 0, 1]
    computed, copy = log_of(sessions[0]), log_of(sessions[2])
    sessions[0].request_state(asked[0], computed).encode_lead_ins()  # a shared warm-up has them already
    pairs = list(zip(tensors(computed), tensors(copy), strict=True))
    assert len(pairs) > 100
    assert all(torch.equal(one, other) for one, other in pairs)
    assert computed.bytes == copy.bytes
    found = [[seen(tiny.run(session, request)) for request in asked] for session in sessions]
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_nobody_shares_memory_with_another(tiny_model: LoadedModel) -> None:
    asked = tiny.request()
    sessions = [LabSession(tiny_model) for _ in range(3)]
    assert [warm(session, asked) for session in sessions] == [False, True, True]
    places = [{t.untyped_storage().data_ptr() for t in tensors(log_of(s)) if t.numel()} for s in sessions]
    assert sum(map(len, places)) == len(set.union(*places))
    expected = seen(tiny.run(sessions[1], asked))
    for tensor in tensors(log_of(sessions[0])):
        tensor.fill_(torch.nan)
    late = LabSession(tiny_model)
    assert warm(late, asked)
    assert all(tensor.isfinite().all() for tensor in tensors(log_of(late)))
    assert seen(tiny.run(late, asked)) == seen(tiny.run(sessions[2], asked)) == expected


@pytest.mark.slow
def test_a_copy_that_is_written_to_reaches_nobody(tiny_model: LoadedModel) -> None:
    asked = tiny.request()
    sessions = [LabSession(tiny_model) for _ in range(2)]
    assert [warm(session, asked) for session in sessions] == [False, True]
    for tensor in tensors(log_of(sessions[1])):
        tensor.fill_(torch.nan)
    late = LabSession(tiny_model)
    assert warm(late, asked)
    assert all(tensor.isfinite().all() for tensor in tensors(log_of(late)))


@pytest.mark.parametrize("left", ["cancelled run", "look at the pools"])
@pytest.mark.slow
def test_what_was_there_before_a_warm_up_is_not_everybodys(tiny_model: LoadedModel, left: str) -> None:
    """A cancelled run leaves no history, but its texts encoded by themselves stay in the log."""
    secret = "A secret: Zoe hid 3 rings. How many rings?"
    asked, first = tiny.request(("dense", "promptcache", "kvcomm"), question=secret), LabSession(tiny_model)
    if left == "cancelled run":
        cancel = threading.Event()
        events = first.run(asked, cancel=cancel)
        for event in events:
            if isinstance(event, TextSoFar) and event.agent == 3:
                cancel.set()
                break
        with pytest.raises(RunCancelled):
            list(events)
        assert log_of(first).log.isolated, "something is there that could get out"
    else:
        first.pools(asked)
    assert not warm(first, asked)
    late = LabSession(tiny_model)
    assert warm(late, asked)
    for session in (first, late):
        log = log_of(session).log
        assert not log.isolated
        assert secret not in {seen.text for seen in log.samples.values()}
        assert min(log.samples) == 1


@pytest.mark.slow
def test_a_warm_up_that_cannot_be_kept_is_done_all_the_same(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running out of memory for the copy costs nobody anything."""

    def full(*given: Any) -> Any:
        raise torch.OutOfMemoryError("no memory")

    memory = MemoryBudget()
    idle, session = LabSession(tiny_model, memory=memory), LabSession(tiny_model, memory=memory)
    tiny.run(idle, tiny.request())
    held = idle.held
    with monkeypatch.context() as patched:
        patched.setattr("backend.session.shared_warm_up.copy_stream", full)
        assert not warm(session, tiny.request())
    assert len(log_of(session).history) == len(EXAMPLES)
    assert idle.held == held > 0
    assert not LabSession(tiny_model).warm_up_is_cached(tiny.request(), EXAMPLES)


def test_nobody_is_emptied_for_a_copy_that_nobody_asked_for(
    tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, memory = tiny.request(), MemoryBudget(total_bytes=1 << 30)
    idle, session = LabSession(tiny_model, memory=memory), LabSession(tiny_model, memory=memory)
    tiny.run(idle, asked)
    told: list[int] = []

    def spare(needed: int) -> bool:
        told.append(needed)
        memory.total_bytes = memory.held + needed - 1
        return MemoryBudget.spare(memory, needed)

    monkeypatch.setattr(memory, "spare", spare)
    warm(session, asked)
    assert told == [session.bytes + log_of(session).log.most_lead_in_bytes]
    assert idle.held > 0
    assert WarmUpCache.on(tiny_model).held == 0
    assert len(log_of(session).history) == len(EXAMPLES)


@pytest.mark.parametrize(
    ("total", "free", "fits"),
    [
        (None, None, True),
        (100, None, True),
        (99, None, False),
        (None, 40, True),
        (None, 39, False),
        (100, 39, False),
    ],
)
def test_what_fits_beside_all(total: int | None, free: int | None, fits: bool) -> None:
    class Held:
        runs, used, held = 0, 0.0, 60

        def forget(self) -> None:
            raise AssertionError("nobody is emptied")

    memory, one = MemoryBudget(total, lambda: free), Held()
    memory.join(one)
    assert memory.spare(40) is fits


@pytest.mark.slow
def test_other_weights_and_no_methods(tiny_model: LoadedModel) -> None:
    warm(LabSession(tiny_model), tiny.request())
    sibling = LabSession(tiny_model, others={"other": tiny.model(seed=1)})
    flow = tiny.pipeline()
    agents = (replace(flow.agents[0], model="other"), *flow.agents[1:])
    asked = tiny.request(flow=replace(flow, agents=agents))
    held = WarmUpCache.on(tiny_model).held
    assert not warm(sibling, asked)
    assert not sibling.warm_up_is_cached(asked, EXAMPLES)
    assert WarmUpCache.on(tiny_model).held == held
    assert warm(LabSession(tiny_model), tiny.request(methods=()))


def test_what_is_kept_does_not_keep_its_model() -> None:
    model = tiny.model(seed=5)
    warm(LabSession(model), tiny.request())
    assert WarmUpCache.on(model).held > 0
    watched = weakref.ref(model.module)
    del model
    gc.collect()
    assert watched() is None


def test_outside_texts_are_known_in_a_copy_and_answers_are_not(tiny_model: LoadedModel) -> None:
    """The same question again needs no second base, and an answer's KV never stands in for one."""
    asked = tiny.request(question=tiny.QUESTIONS[0])
    first, late = LabSession(tiny_model), LabSession(tiny_model)
    warm(first, asked)
    assert warm(late, asked)
    logs = [log_of(session).log for session in (first, late)]
    assert set(logs[0].bases) == set(logs[1].bases)
    assert len(logs[1].bases) == len(EXAMPLES)
    for log in logs:
        outside = [o for o in log.samples.values() if o.placeholder == "user_question"]
        assert all(log.bases[o.ids] is o.base for o in outside)
    answer = next(o for o in logs[0].samples.values() if o.placeholder != "user_question")
    question = next(o for o in logs[0].samples.values() if o.placeholder == "user_question")
    answer.ids = question.ids
    copy = logs[0].copy("x", 1 << 30)
    assert torch.equal(copy.bases[question.ids].keys, question.base.keys)


def test_what_a_visitor_adds_stays_theirs(tiny_model: LoadedModel) -> None:
    asked = tiny.request()
    first, second = LabSession(tiny_model), LabSession(tiny_model)
    warm(first, asked)
    tiny.run(first, tiny.request(question="A secret: Zoe hid 3 rings. How many rings?"))
    warm(second, asked)
    stream = log_of(second)
    assert len(stream.history) == len(EXAMPLES)
    assert {o.text for o in stream.log.samples.values() if o.placeholder == "user_question"} == set(
        tiny.QUESTIONS[:4]
    )
    assert stream.log.domain == second.id
    alone = [context.encoder for past in stream.history for context in past.contexts]
    assert all(one is not None and one.log is stream.log and one.runner is second.engine for one in alone)
    samples = [o for past in stream.history for c in past.contexts for o in c.samples.values()]
    assert all(stream.log.samples[o.number] is o and o.arenas is stream.log.arenas for o in samples)


OTHERS = {
    "not said to be public": ({}, EXAMPLES, False),
    "free": ({"mode": "free"}, EXAMPLES, True),
    "other template": (
        {"flow": tiny.pipeline(t1="Solve this.\nThe task is: {user_question}\n")},
        EXAMPLES,
        True,
    ),
    "longer answers": ({"decoding": Decoding(max_new_tokens=7)}, EXAMPLES, True),
    "fewer requests": ({}, EXAMPLES[:3], True),
    "another order": ({}, EXAMPLES[::-1], True),
    "another text": ({}, (*EXAMPLES[:3], Example({"user_question": "What now?"}, None)), True),
    "another known answer": ({}, (*EXAMPLES[:3], replace(EXAMPLES[3], answer="4")), True),
}


@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.slow
def test_only_the_same_public_requests_come_filled(tiny_model: LoadedModel, change: str) -> None:
    more, examples, shared = OTHERS[change]
    warm(LabSession(tiny_model), tiny.request())
    held = WarmUpCache.on(tiny_model).held
    session, asked = LabSession(tiny_model), tiny.request(**more)
    assert not (shared and session.warm_up_is_cached(asked, examples))
    assert not warm(session, asked, shared, examples)
    if not shared or more.get("mode") == "free":
        assert WarmUpCache.on(tiny_model).held == held


@pytest.mark.slow
def test_what_every_method_answers_itself_is_never_shared(tiny_model: LoadedModel) -> None:
    """Free: each method has a stream of its own, and a copy of dense's would leave the others empty."""
    asked = tiny.request(mode="free")
    for _ in range(2):
        session = LabSession(tiny_model)
        assert not session.warm_up_is_cached(asked, EXAMPLES[:2])
        assert not warm(session, asked, examples=EXAMPLES[:2])
    assert WarmUpCache.on(tiny_model).held == 0


def test_pools_that_hold_something_are_filled_live(tiny_model: LoadedModel) -> None:
    asked = tiny.request()
    warm(LabSession(tiny_model), asked)
    session = LabSession(tiny_model)
    tiny.run(session, asked)
    assert not session.warm_up_is_cached(asked, EXAMPLES)
    assert not warm(session, asked)
    assert len(log_of(session).history) == 1 + len(EXAMPLES)


def test_a_cancelled_warm_up_is_not_kept(tiny_model: LoadedModel) -> None:
    asked, cancel = tiny.request(), threading.Event()
    stopped = LabSession(tiny_model)
    events = stopped.warm_up(asked, EXAMPLES, cancel=cancel, shared=True)
    next(events)
    next(events)
    cancel.set()
    with pytest.raises(RunCancelled):
        list(events)
    assert not LabSession(tiny_model).warm_up_is_cached(asked, EXAMPLES)
    assert not warm(LabSession(tiny_model), asked)
    assert LabSession(tiny_model).warm_up_is_cached(asked, EXAMPLES)


def test_what_does_not_fit_a_visit_is_computed_and_not_taken(tiny_model: LoadedModel) -> None:
    asked = tiny.request()
    warm(LabSession(tiny_model), asked)
    small = LabSession(tiny_model, budget_bytes=WarmUpCache.on(tiny_model).held - 1)
    assert not warm(small, asked)
    assert small.bytes <= small.budget_bytes


def test_it_counts_in_the_account_and_makes_room(tiny_model: LoadedModel) -> None:
    asked, ready = tiny.request(), WarmUpCache.on(tiny_model)
    memory = MemoryBudget(total_bytes=1 << 30)
    first = LabSession(tiny_model, memory=memory)
    warm(first, asked)
    assert ready.held > 0
    assert memory.held == first.held + ready.held
    memory.total_bytes = memory.held + ready.held // 2  # enough for a run, but not beside both
    tiny.run(LabSession(tiny_model), asked)  # in an account of its own, with room
    assert ready.held > 0
    tiny.run(first, asked)
    assert ready.held == 0


def test_the_longest_unused_leaves_first(tiny_model: LoadedModel) -> None:
    asked = [tiny.request(decoding=Decoding(max_new_tokens=count)) for count in (3, 4, 5)]
    ready = WarmUpCache.on(tiny_model)
    ready.budget_bytes, usual = 1 << 30, ready.budget_bytes
    try:
        warm(LabSession(tiny_model), asked[0])
        one = ready.held
        warm(LabSession(tiny_model), asked[1])
        ready.budget_bytes = one * 5 // 2  # two fit, and not three
        assert warm(LabSession(tiny_model), asked[0])
        warm(LabSession(tiny_model), asked[2])
        assert [LabSession(tiny_model).warm_up_is_cached(request, EXAMPLES) for request in asked] == [
            True,
            False,
            True,
        ]
        ready.forget()
        ready.budget_bytes = one // 2
        warm(LabSession(tiny_model), asked[0])
        assert ready.held == 0
    finally:
        ready.budget_bytes = usual


def test_a_copy_that_is_let_go_gives_its_memory_back_at_once(tiny_model: LoadedModel) -> None:
    asked = tiny.request()
    warm(LabSession(tiny_model), asked)
    session = LabSession(tiny_model)
    assert warm(session, asked)
    watched = weakref.ref(next(iter(log_of(session).log.samples.values())).base)
    gc.disable()
    try:
        session.forget()
        assert watched() is None
    finally:
        gc.enable()


@given(
    counts=st.lists(st.integers(0, 5), max_size=8),
    gone=st.sets(st.integers(0, 7)),
    more=st.lists(st.integers(0, 5), max_size=4),
)
def test_copied_arenas_hold_the_same_and_go_their_own_way(
    counts: list[int], gone: set[int], more: list[int]
) -> None:
    """Rows taken, some given up, copied; then both sides take more and trim."""

    def take(arenas: Arenas, count: int, value: float) -> ArenaRows:
        rows = arenas.take("x", count, (2,), torch.float32, torch.device("cpu"))
        rows.tensor.fill_(value)
        return rows

    one, other = Arenas(lambda: 0), Arenas(lambda: 0)
    held = {number: take(one, count, float(number)) for number, count in enumerate(counts)}
    for number in gone & held.keys():
        del held[number]
    rows = other.copy_from(one)
    copies = {number: rows[mine] for number, mine in held.items()}
    rows.clear()
    for number, count in enumerate(more):
        held[100 + number] = take(one, count, -1.0)
        copies[100 + number] = take(other, count, -2.0)
    other.trim()
    assert other.slack_bytes == 0
    for number in range(len(counts)):
        if number in held:
            assert (held[number].tensor == number).all()
            assert (copies[number].tensor == number).all()
            assert copies[number].count == held[number].count
    assert all((copies[100 + n].tensor == -2.0).all() for n in range(len(more)))
    assert all((held[100 + n].tensor == -1.0).all() for n in range(len(more)))
