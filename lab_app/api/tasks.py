"""What the lab does for a program, step by step: every endpoint as a generator of plain JSON values.

While a call waits or works, it yields ``{"status": "waiting" | "running", "said": ...}`` every few seconds,
which also shows when the caller has gone; the last value is the answer. Expected errors are raised as they
are."""

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.records.events import Progress, RunDone
from backend.records.judge import Judged
from lab_app.api.callers import Caller, Callers
from lab_app.api.requests import JudgeCall, Nothing, RunCall, read_call, read_judge, read_run
from lab_app.api.responses import Body, judged_body, methods_body, model_body, presets_body, run_body
from lab_app.ui import text
from lab_app.ui.streaming import Throttle
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import Visit, VisitStore

REPORT_SECONDS = 1.0
DONE = {"status": "done"}
Arguments = Mapping[str, Any]
Steps = Iterator[Body]


def methods(lab: VisitStore, callers: Callers, caller: Caller, arguments: Arguments) -> Steps:
    """All methods with their options, their allowed values and their profiles."""
    read_call(Nothing, arguments)
    yield methods_body(lab.model.info)


def presets(lab: VisitStore, callers: Callers, caller: Caller, arguments: Arguments) -> Steps:
    """All scenarios with their agents' templates, the values that they ask for and a request to begin
    with."""
    read_call(Nothing, arguments)
    yield presets_body()


def model(lab: VisitStore, callers: Callers, caller: Caller, arguments: Arguments) -> Steps:
    """The loaded model, the certificate that says whether its cache can be moved, and the limits of this
    lab."""
    from backend.base.machine import versions

    read_call(Nothing, arguments)
    yield model_body(lab.model.info, lab.limits, versions())


def run(lab: VisitStore, callers: Callers, caller: Caller, arguments: Arguments) -> Steps:
    """Send one request through a group of agents, dense and with each method of KV-cache reuse, and compare
    them: texts, tokens, whose answer flipped, times, reuse rates, nearness to dense, and a record to
    download."""
    job = read_run(arguments)
    with callers.visit(caller) as visit, one_at_a_time(visit) as cancel:

        def work() -> Steps:
            if job.warm:
                events = visit.engine.warm_up(job.request, job.warm, cancel=cancel, shared=job.shipped)
                yield from result_of(events)
            done = yield from result_of(visit.engine.run(job.request, cancel=cancel))
            if done is None:
                raise LabError("The run ended without a result. Run it again.")
            yield DONE | run_body(done.record, visit.keep(done.record, show=False))

        yield from in_line(lab, cancel, work, together=True)


def judge(lab: VisitStore, callers: Callers, caller: Caller, arguments: Arguments) -> Steps:
    """Put typed candidates before a judge in several orders, dense and with each method of KV-cache reuse,
    and say whose verdict reuse keeps."""
    request = read_judge(arguments)
    with callers.visit(caller) as visit, one_at_a_time(visit) as cancel:

        def work() -> Steps:
            judged = yield from result_of(visit.engine.study(request, cancel=cancel))
            if judged is None:
                raise LabError("The judgement ended without a result. Judge again.")
            yield DONE | judged_body(judged, visit.keep_result("judged", judged))

        yield from in_line(lab, cancel, work)


#: Every endpoint by its name, with its parameters.
ENDPOINTS: dict[str, tuple[Callable[[VisitStore, Callers, Caller, Arguments], Steps], type[Any]]] = {
    "run": (run, RunCall),
    "judge": (judge, JudgeCall),
    "methods": (methods, Nothing),
    "presets": (presets, Nothing),
    "model": (model, Nothing),
}


@contextmanager
def one_at_a_time(visit: Visit) -> Iterator[threading.Event]:
    """The visit's one run; the event stops it, as its session's end does.

    Raises:
        OptionError: another one is going on.
    """
    if visit.cancel is not None:
        raise OptionError(text.CALL_ELSEWHERE)
    cancel = visit.cancel = threading.Event()
    try:
        yield cancel
    finally:
        cancel.set()
        visit.cancel = None


def in_line(
    lab: VisitStore, cancel: threading.Event, work: Callable[[], Steps], together: bool = False
) -> Steps:
    """Wait for the model, with a status now and then, and do ``work``."""
    with lab.in_line(together) as place:
        for words in wait_for_turn(place, cancel):
            yield {"status": "waiting", "said": words}
        yield from work()


def result_of(events: Iterator[Any]) -> Generator[Body, None, Any]:
    """The last result among events, if there is one; their progress as a status, at most once a second."""
    words, done, total, result = "Starting", 0, 1, None
    due = Throttle(REPORT_SECONDS)
    for event in events:
        if isinstance(event, RunDone | Judged):
            result = event
            continue
        if isinstance(event, Progress):
            words, done, total = event.text, event.done, event.total
        if due():
            yield {"status": "running", "said": words, "done": done, "total": total}
    return result
