"""The lab: a session and its studies, the one interface of the page and the command line.

A study is a measurement beside runs. It has a request of its own, yields its progress, and its record last.
Each module of :mod:`backend.studies` registers its study (:func:`backend.session.study.study`).
"""

from collections.abc import Generator, Iterator
from typing import Any

import backend.studies
from backend.base.cancel import Cancel
from backend.base.modules import modules_of
from backend.bench.break_even import measure_within
from backend.engine.speed import measured_speed
from backend.judge.cost import judging_seconds
from backend.judge.judge_lab import drawn_problem
from backend.judge.live import write
from backend.judge.prompts import check_wording
from backend.model.adapters import weight_labels
from backend.records.events import Progress
from backend.records.familiarity import Outlook
from backend.records.hardware import Figures
from backend.records.judge import JudgeProblem, JudgeRequest
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from backend.records.sweep import Count, Swept
from backend.session.familiarity import typed_outlook
from backend.session.session import LabSession
from backend.session.study import run_study
from backend.session.tensors import tensor_bytes, tensor_file
from backend.sweeps.page_sweep import SweepDesk

modules_of(backend.studies.__name__)  # each registers its study


class Lab:
    """One visitor's lab.

    Args:
        session: runs requests; a trust domain of its own.
    """

    def __init__(self, session: LabSession) -> None:
        self.session = session

    # -- studies

    def study(self, request: object, *, cancel: Cancel = None) -> Generator[Any, None, None]:
        """Run the study of a request; yields its record last.

        Raises:
            LabError: see the study's own function.
            RunCancelled: ``cancel`` was set, where the study can be stopped.
        """
        yield from self.session.measure(lambda: run_study(self.session, request, cancel))

    def machine_figures(self) -> Iterator[Progress | Figures]:
        """Measure the figures of this machine that the break-even formula needs; yields them last.

        Raises:
            LabError: see :func:`backend.bench.break_even.measure_within`.
        """
        session = self.session
        yield from session.measure(lambda: measure_within(session.model, session.budget_bytes))

    def trained_weights(self) -> dict[str, str]:
        """Names and labels of the shipped weights trained for this model; see
        :mod:`backend.model.adapters`."""
        return weight_labels(self.session.model)

    # -- the judge lab, beside its study

    def write_candidates(
        self, request: JudgeRequest, *, cancel: Cancel = None
    ) -> Iterator[Progress | JudgeProblem]:
        """Let agents write the candidates of the request's one problem; yields the problem last.

        Raises:
            LabError: see :func:`backend.judge.live.write`.
        """
        yield from self.session.measure(lambda: write(self.session.model, request, cancel))

    def estimate_judging(self, request: JudgeRequest, count: int = 1, taken_in: int = 0) -> float:
        """Seconds of judging ``count`` problems like the request's first (or the first that it draws), after
        ``taken_in`` others; see :mod:`backend.judge.cost`.

        Raises:
            LabError: the request names an unknown wording.
        """
        check_wording(request.wording)
        problem = request.problems[0] if request.problems else drawn_problem(request, 1)
        speed = measured_speed(self.session.engine, self.session.scheduler)
        return judging_seconds(self.session.model, request, problem, speed, count, taken_in)

    # -- sweeps

    def sweep_desk(self) -> SweepDesk:
        """Where this session's visitor asks for sweeps; see :class:`backend.sweeps.page_sweep.SweepDesk`."""
        session = self.session
        return SweepDesk(session.model, session.estimate, self.estimate_judging, session.budget_bytes)

    def sweep(
        self, desk: SweepDesk, text: str, lines: str, *, cancel: Cancel = None
    ) -> Generator[Count | Swept]:
        """Run a sweep at its desk; yields all its lines last.

        Raises:
            LabError: see :meth:`backend.sweeps.page_sweep.SweepDesk.run`.
        """
        yield from self.session.measure(lambda: desk.run(text, lines, cancel=cancel))

    # -- the keys and values behind a run

    def tensor_bytes(self, record: RunRecord) -> int:
        """Bytes of the keys and values behind a run, as far as the log still holds them."""
        return tensor_bytes(self.session.streams, record)

    def tensors(self, record: RunRecord) -> bytes:
        """The keys and values behind a run, as the content of a safetensors file.

        Raises:
            BudgetError: see :func:`backend.session.tensors.tensor_file`.
        """
        return tensor_file(self.session.streams, record)

    def familiarity(self, request: RunRequest) -> Outlook | None:
        """See :func:`backend.session.familiarity.typed_outlook`."""
        return typed_outlook(self.session, request)

    def __getattr__(self, name: str) -> Any:
        """The session's own attributes (runs, estimates, pools), for a page that has the lab alone."""
        return getattr(self.session, name)
