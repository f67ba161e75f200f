"""What the page needs of an engine session and of a model, as protocols."""

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol, TypeVar

from backend.prompts.pipeline import Pipeline
from backend.records.events import Event, Progress
from backend.records.familiarity import Outlook
from backend.records.hardware import Figures
from backend.records.judge import JudgeProblem, JudgeRequest
from backend.records.model_info import ModelInfo
from backend.records.pools import PoolState
from backend.records.request import RunRequest
from backend.records.run import Outcome, RunRecord
from backend.records.sweep import Count, Swept

F = TypeVar("F", bound=Callable[..., Any])


def work(*, alone: bool = False) -> Callable[[F], F]:
    """Mark a method as work: a generator of events that takes a while. It is counted, and it does not begin
    while the lab is stopping. ``alone``: its result depends on its arguments alone, not on earlier work."""

    def mark(method: F) -> F:
        method.work = "alone" if alone else "stateful"  # type: ignore[attr-defined]
        return method

    return mark


class Engine(Protocol):
    """What the page needs of an engine session."""

    @work()
    def run(
        self,
        request: RunRequest,
        *,
        cancel: threading.Event | None = None,
        ends: Callable[[Outcome], bool] | None = None,
    ) -> Iterator[Event]:
        """Events, the last one a finished record; ``ends`` says of an outcome that no agent follows it."""

    @work()
    def warm_up(
        self,
        request: RunRequest,
        examples: Any,
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        """Fill the pools of the request's methods; progress events only. ``shared``: all of it is public."""

    def warm_up_is_cached(self, request: RunRequest, examples: Any) -> bool:
        """Whether a shared warm-up with these examples was computed before."""

    @work(alone=True)
    def machine_figures(self) -> Iterator[Progress | Figures]:
        """Progress, then what the break-even formula needs to know of this machine."""

    def trained_weights(self) -> dict[str, str]:
        """Names and labels of the shipped weights that were trained for documents encoded apart."""

    @work()
    def revise(
        self, record: RunRecord, request: RunRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Any]:
        """A finished run under the request's methods, from what it stored: ``.record``; ``.pending``, the
        agents and labels whose answers are still to be decoded; ``.planned``, those of which the decisions
        alone are known; and ``.whole``, which the last of them is."""

    @work(alone=True)
    def write_candidates(
        self, request: JudgeRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | JudgeProblem]:
        """Progress, then the request's one problem with candidates that agents wrote."""

    @work(alone=True)
    def study(self, request: object, *, cancel: threading.Event | None = None) -> Iterator[Any]:
        """Progress, then the record of the study that the request is for (``backend.session.study``)."""

    def estimate_judging(self, request: JudgeRequest, count: int = 1, taken_in: int = 0) -> float:
        """Seconds of judging so many problems of a request, and of taking in so many more."""

    def sweep_desk(self) -> Any:
        """Where sweeps are asked for: ``.plan``, ``.saved``, ``.edited``."""

    @work()
    def sweep(
        self, desk: Any, text: str, lines: str, *, cancel: threading.Event | None = None
    ) -> Generator[Count | Swept]:
        """Counts and what was found so far, then all of it."""

    def estimate(self, request: RunRequest, count: int = 1) -> Any:
        """``.seconds``, ``.bytes`` and ``.tokens`` of ``count`` runs."""

    def familiarity(self, request: RunRequest) -> Outlook | None:
        """How likely dense's answer is wrong, by the request's prompts; None where that is not known."""

    def pools(self, request: RunRequest) -> tuple[PoolState, ...]:
        """The pools that the request's methods would use."""

    def tensor_bytes(self, record: RunRecord) -> int:
        """Bytes of the keys and values behind a run, as far as they are still held."""

    def tensors(self, record: RunRecord) -> bytes:
        """The keys and values behind a run, as a safetensors file."""

    @property
    def held(self) -> int:
        """Bytes of what is remembered."""

    def forget(self) -> None:
        """Drop everything remembered."""


class Model(Protocol):
    """What the page needs of a loaded model."""

    @property
    def info(self) -> ModelInfo:
        """Facts for the top bar."""

    def count_tokens(self, pipeline: Pipeline, agent: int, values: Any) -> int:
        """Tokens of an agent's prompt with these values."""


def _marked(*kinds: str) -> frozenset[str]:
    return frozenset(name for name, method in vars(Engine).items() if getattr(method, "work", None) in kinds)


WORK = _marked("stateful", "alone")  # names of the methods that are work
ALONE = _marked("alone")  # and of those that do not depend on earlier work
