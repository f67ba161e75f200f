"""The judge lab as a page drives it: progress while it works, rows as they come, records of a single problem.

Everything is that of :class:`backend.judge.judge_lab.JudgeLab`; no file is written. A batch that should
survive its process is run from the command line instead.
"""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from backend.base.cancel import stop_if
from backend.base.errors import OptionError, RunCancelled
from backend.judge.batch import record_of_rows, run_judging, typed_problem
from backend.judge.judge_lab import JudgeLab, OrderResult, check, drawn_problem
from backend.judge.judge_session import SlotText
from backend.model.load import LoadedModel
from backend.prompts.template import QUESTION
from backend.prompts.variants import other_numbers
from backend.records.events import Progress
from backend.records.judge import Judged, JudgedProblem, JudgeOutcome, JudgeProblem, JudgeRequest, OrderDone
from backend.records.request import RunRequest
from backend.session.study import study


class WatchedLab(JudgeLab):
    """Runs with every probe, for one problem and not for many; fewer at once, for somebody waits."""

    most_at_once = 24

    def prompts(self, *args: Any) -> list[tuple[tuple[int, ...], RunRequest, dict[str, SlotText]]]:
        """See :meth:`backend.judge.judge_lab.JudgeLab.prompts`."""
        return [
            (places, replace(request, probe_offsets=True, probe_attention=True), texts)
            for places, request, texts in super().prompts(*args)
        ]


def write(
    model: LoadedModel, request: JudgeRequest, cancel: threading.Event | None = None
) -> Iterator[Progress | JudgeProblem]:
    """Let agents write the candidates of the request's one problem; ends with it.

    Raises:
        LabError: the request cannot be run.
        RunCancelled: ``cancel`` was set.
    """
    check(request)
    yield Progress("The agents are writing", 0, 1)
    stop_if(cancel)
    lab = JudgeLab(model)
    problem, _ = lab.execute(lab.draw(request, 1), request)
    yield problem


@study(JudgeRequest)
def judge(
    model: LoadedModel, request: JudgeRequest, budget_bytes: int, cancel: threading.Event | None = None
) -> Iterator[Progress | OrderDone | JudgedProblem | Judged]:
    """Judge a request's problems in every order; ends with all of it.

    A single given problem is watched: an :class:`OrderDone` follows each of its orders, and the warm-up's
    problems are drawn, or are the same with other numbers. Of several, each finished row is yielded, and a
    cancelled batch ends with the record of the finished rows, if there are any.

    Raises:
        LabError: the request cannot be run.
        RunCancelled: ``cancel`` was set before anything was finished.
    """
    check(request)
    if len(request.problems) == 1:
        yield from _watched(model, request, budget_bytes, cancel)
        return
    lab = JudgeLab(model, budget_bytes=budget_bytes, orders=len(request.orders))
    rows: list[JudgedProblem] = []
    try:
        for event in run_judging(lab, request, cancel=cancel):
            rows += [event] if isinstance(event, JudgedProblem) else []
            yield event
    except RunCancelled:
        if not rows:
            raise
        yield record_of_rows(lab, request, rows)


def _watched(
    model: LoadedModel, request: JudgeRequest, budget_bytes: int, cancel: threading.Event | None
) -> Iterator[Progress | OrderDone | JudgedProblem | Judged]:
    """One given problem."""
    lab, began = WatchedLab(model, budget_bytes=budget_bytes, orders=len(request.orders)), time.perf_counter()
    total, [problem] = request.warmup + len(request.orders), request.problems
    for index, other in enumerate(_warm_up(problem, request)):
        yield Progress(f"Filling the pools with problem {index + 1} of {request.warmup}", index, total)
        stop_if(cancel)
        other, bases = lab.execute(other, request)
        for order in request.orders:
            lab.learn(other, bases, order, request)
    if problem.regime == "typed":  # checks the texts, and marks those that give the known answer
        problem = typed_problem(problem.question, [c.text for c in problem.candidates], problem.expected)
    problem, bases = lab.execute(problem, request)
    verdicts: list[OrderResult] = []
    outcomes: list[JudgeOutcome] = []
    notes = dict.fromkeys([lab.note] if lab.note else [])
    for orders in lab.groups(problem, request):
        first, last = 1 + len(verdicts), len(verdicts) + len(orders)
        which = f"order {first}" if first == last else f"orders {first} to {last}"
        words = f"The judge reads the candidates in {which} of {len(request.orders)}"
        yield Progress(words, request.warmup + len(verdicts), total)
        for result in lab.judge(problem, bases, orders, request, cancel):
            verdicts.append(result)
            outcomes += result.outcomes
            notes |= result.labelled
            wall = (time.perf_counter() - began) * 1e3
            row = JudgedProblem("", problem, tuple(outcomes), wall, tuple(notes))
            yield OrderDone(row, result.order.label, result.record)
    yield row
    yield record_of_rows(lab, request, [row])


def _warm_up(given: JudgeProblem, request: JudgeRequest) -> list[JudgeProblem]:
    """The problems that fill the pools.

    Raises:
        OptionError: they are to be the given one with other numbers, and it has none.
    """
    if not request.own_numbers:
        drawn = replace(request, problems=(), warmup=0)
        return [drawn_problem(drawn, number) for number in range(1, request.warmup + 1)]
    typed = given.candidates if given.regime == "typed" else ()  # agents write their own anew
    names = tuple(map(str, range(len(typed))))
    texts = dict(zip(names, (c.text for c in typed), strict=True)) | {QUESTION: given.question}
    others = other_numbers(texts, request.warmup)
    if len(others) < request.warmup:
        raise OptionError(
            "The problem holds no number to change. Write one, or fill the pools with drawn problems.",
            field="judge.own_numbers",
        )
    return [
        replace(
            given, number=number, question=other[QUESTION], expected=None,
            candidates=tuple(
                replace(c, text=other[name], right=None) for c, name in zip(typed, names, strict=True)
            ),
        )
        for number, other in enumerate(others, 1)
    ]  # fmt: skip
