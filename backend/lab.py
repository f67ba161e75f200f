"""What a session measures beside runs: each a request of its own, progress first and a record last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from backend.base.errors import ModelError
from backend.base.text import show
from backend.engine.engine import Engine
from backend.engine.speed import pace
from backend.engine.turns import Together
from backend.model.load import LoadedModel
from backend.records.anchor_cost import AnchorCost, AnchorCostRequest
from backend.records.blend import BlendRequest, BlendStudy
from backend.records.documents import DocumentRequest, DocumentStudy
from backend.records.events import Progress
from backend.records.hardware import Figures
from backend.records.judge import Judged, JudgedProblem, JudgeProblem, JudgeRequest, OrderDone
from backend.records.offsets import OffsetRequest, OffsetStudy
from backend.records.proximity import ProximityRecord, ProximityRequest
from backend.records.run import RunRequest
from backend.records.sweep import Count, Swept
from backend.records.token_overlap import OverlapRequest, TokenOverlap
from backend.session.limits import Rate

if TYPE_CHECKING:
    from backend.sweeps.page_sweep import SweepDesk


class Studies:
    """The measurements of a session, which gives them its model, its budget and its way to survive."""

    model: LoadedModel
    engine: Engine
    others: Mapping[str, Engine]
    together: Together
    budget_bytes: int
    rate: Rate

    def proximity(self, request: ProximityRequest) -> Iterator[Progress | ProximityRecord]:
        """Measure pairs of tokens behind two prefixes, without a request; ends with the record.

        Raises:
            OptionError: see :func:`backend.studies.proximity.proximity`.
        """
        from backend.studies.proximity import proximity

        yield from self._study(lambda: proximity(self.model, request))

    def offset_study(self, request: OffsetRequest) -> Iterator[Progress | OffsetStudy]:
        """Measure a text's offsets behind several prefixes, in a domain of its own; ends with the record.

        Raises:
            LabError: see :func:`backend.studies.offsets.offset_study`.
        """
        from backend.studies.offsets import offset_study

        yield from self._study(lambda: offset_study(self.model, request, self.budget_bytes))

    def blend_study(self, request: BlendRequest) -> Iterator[Progress | BlendStudy]:
        """Measure error against the share of tokens computed again, under both masks; ends with the record.

        Raises:
            LabError: see :func:`backend.studies.blend.blend_study`.
        """
        from backend.studies.blend import blend_study

        yield from self._study(lambda: blend_study(self.model, request, self.budget_bytes))

    def trained_weights(self) -> dict[str, str]:
        """Names and labels of the shipped weights trained for this model; see
        :mod:`backend.model.adapters`."""
        from backend.model.adapters import fitting

        return fitting(self.model)

    def document_study(self, request: DocumentRequest) -> Iterator[Progress | DocumentStudy]:
        """Ask two-hop questions over documents encoded apart, on this model and on weights trained for it;
        ends with the record.

        Raises:
            LabError: see :func:`backend.studies.documents.document_study`.
        """
        from backend.studies.documents import document_study

        yield from self._study(lambda: document_study(self.model, request))

    def token_overlap(self, request: OverlapRequest, other: str) -> Iterator[Progress | TokenOverlap]:
        """Measure which candidate tokens this model and other weights would keep; ends with the record.

        Raises:
            LabError: this session has no such weights; or see
                :func:`backend.studies.token_overlap.token_overlap`.
        """
        from backend.studies.token_overlap import token_overlap

        if other not in self.others:
            listed = ", ".join(map(repr, self.others)) or "no others"
            raise ModelError(
                f"There are no weights {show(other)} beside {self.model.info.name}; there are {listed}. Load "
                "them (kvlab with --weights NAME=MODEL) or name others.",
                field="overlap.other",
            )
        yield from self._study(
            lambda: token_overlap(self.model, self.others[other].model, request, self.budget_bytes)
        )

    def anchor_cost(self, request: AnchorCostRequest) -> Iterator[Progress | AnchorCost]:
        """Measure what pools cost by their size, without a request; ends with the record.

        Raises:
            LabError: see :func:`backend.studies.anchor_cost.anchor_cost`.
        """
        from backend.studies.anchor_cost import anchor_cost

        yield from self._study(
            lambda: anchor_cost(self.model, request, self.budget_bytes, self.engine.clock())
        )

    def machine_figures(self) -> Iterator[Progress | Figures]:
        """Measure what the break-even formula needs to know of this machine; ends with it.

        Raises:
            LabError: see :func:`backend.bench.break_even.measure_within`.
        """
        from backend.bench.break_even import measure_within

        yield from self._study(lambda: measure_within(self.model, self.budget_bytes))

    def write_candidates(
        self, request: JudgeRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | JudgeProblem]:
        """Let agents write the candidates of the request's one problem; ends with it.

        Raises:
            LabError: see :func:`backend.judge.live.write`.
        """
        from backend.judge.live import write

        yield from self._study(lambda: write(self.model, request, cancel))

    def judge_problems(
        self, request: JudgeRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | OrderDone | JudgedProblem | Judged]:
        """Judge problems in several orders, in domains of their own; ends with the record.

        Raises:
            LabError: see :func:`backend.judge.live.judge`.
        """
        from backend.judge.live import judge

        yield from self._study(lambda: judge(self.model, request, self.budget_bytes, cancel))

    def estimate_judging(self, request: JudgeRequest, count: int = 1, taken_in: int = 0) -> float:
        """Seconds of judging ``count`` problems like the request's first, or the first that it draws, after
        ``taken_in`` further ones; see :mod:`backend.judge.cost`.

        Raises:
            LabError: the request has a wording that is not there.
        """
        from backend.judge.cost import judging_seconds
        from backend.judge.judge_lab import drawn_problem
        from backend.judge.prompts import check_wording

        check_wording(request.wording)
        problem = request.problems[0] if request.problems else drawn_problem(request, 1)
        speed = pace(self.engine, self.together)
        return judging_seconds(self.model, request, problem, speed, count, taken_in)

    def sweep_desk(self) -> SweepDesk:
        """Where this session's visitor asks for sweeps; see :class:`backend.sweeps.page_sweep.SweepDesk`."""
        from backend.sweeps.page_sweep import SweepDesk

        return SweepDesk(self.model, self.estimate, self.estimate_judging, self.budget_bytes)

    def sweep(
        self, desk: SweepDesk, text: str, lines: str, *, cancel: threading.Event | None = None
    ) -> Generator[Count | Swept]:
        """Run a sweep at its desk; ends with all its lines.

        Raises:
            LabError: see :meth:`backend.sweeps.page_sweep.SweepDesk.run`.
        """
        yield from self._study(lambda: desk.run(text, lines, cancel=cancel))

    def _study(self, work: Callable[[], Iterator[Any]]) -> Generator[Any, None, None]:
        """A measurement: one request of the visitor, and told when memory runs out."""

        def attempt(small: bool) -> Generator[Any, None, None]:
            yield from work()

        self.rate.ask()
        yield from self._survive(attempt)

    def estimate(self, request: RunRequest, count: int = 1) -> Any:
        """What ``count`` runs take; the session's own."""
        raise NotImplementedError

    def _survive(
        self, attempt: Callable[[bool], Generator[Any, None, None]], again: Any = None
    ) -> Generator[Any, None, None]:
        """The session's own way, within its account of memory; never this one."""
        raise NotImplementedError
