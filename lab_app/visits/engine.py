"""What the page needs of an engine session and of a model, as protocols."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol

from backend.prompts.pipeline import Pipeline
from backend.records.events import Event, Progress
from backend.records.hardware import Figures
from backend.records.judge import Judged, JudgedProblem, JudgeProblem, JudgeRequest, OrderDone
from backend.records.offsets import (
    AnchorCost,
    AnchorCostRequest,
    BlendRequest,
    BlendStudy,
    DocumentRequest,
    DocumentStudy,
    OffsetRequest,
    OffsetStudy,
    ProximityRecord,
    ProximityRequest,
    Replay,
)
from backend.records.run import ModelInfo, Outcome, PoolState, RunRecord, RunRequest
from backend.records.sweep import Count, Swept


class Engine(Protocol):
    """What the page needs of an engine session."""

    def run(
        self,
        request: RunRequest,
        *,
        cancel: threading.Event | None = None,
        ends: Callable[[Outcome], bool] | None = None,
    ) -> Iterator[Event]:
        """Events, the last one a finished record; ``ends`` says of an outcome that no agent follows it."""

    def warm_up(
        self,
        request: RunRequest,
        examples: Any,
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        """Fill the pools of the request's methods; progress events only. ``shared``: all of it is public."""

    def ready(self, request: RunRequest, examples: Any) -> bool:
        """Whether a shared warm-up with these examples was computed before."""

    def proximity(self, request: ProximityRequest) -> Iterator[Progress | ProximityRecord]:
        """Progress, then the record of a measurement on the model itself."""

    def anchor_cost(self, request: AnchorCostRequest) -> Iterator[Progress | AnchorCost]:
        """Progress, then the record of what pools cost."""

    def machine_figures(self) -> Iterator[Progress | Figures]:
        """Progress, then what the break-even formula needs to know of this machine."""

    def offset_study(self, request: OffsetRequest) -> Iterator[Progress | OffsetStudy]:
        """Progress, then the record of a text's offsets behind several prefixes."""

    def blend_study(self, request: BlendRequest) -> Iterator[Progress | BlendStudy]:
        """Progress, then the record of what computing tokens again brings."""

    def trained_weights(self) -> dict[str, str]:
        """Names and labels of the shipped weights that were trained for documents encoded apart."""

    def document_study(self, request: DocumentRequest) -> Iterator[Progress | DocumentStudy]:
        """Progress, then the record of questions under each method and each set of trained weights."""

    def replay(
        self, request: RunRequest, last: int, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | Replay]:
        """Progress, then the record of past requests under the request's methods."""

    def write_candidates(
        self, request: JudgeRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | JudgeProblem]:
        """Progress, then the request's one problem with candidates that agents wrote."""

    def judge_problems(
        self, request: JudgeRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | OrderDone | JudgedProblem | Judged]:
        """Progress and what is finished, then the record of all judged problems."""

    def estimate_judging(self, request: JudgeRequest, count: int = 1, taken_in: int = 0) -> float:
        """Seconds of judging so many problems of a request, and of taking in so many more."""

    def sweep_desk(self) -> Any:
        """Where sweeps are asked for: ``.plan``, ``.saved``, ``.edited``."""

    def sweep(
        self, desk: Any, text: str, lines: str, *, cancel: threading.Event | None = None
    ) -> Generator[Count | Swept]:
        """Counts and what was found so far, then all of it."""

    def estimate(self, request: RunRequest, count: int = 1) -> Any:
        """``.seconds``, ``.bytes`` and ``.tokens`` of ``count`` runs."""

    def pools(self, request: RunRequest) -> tuple[PoolState, ...]:
        """The pools that the request's methods would use."""

    def tensor_bytes(self, record: RunRecord) -> int:
        """Bytes of the keys and values behind a run, as far as they are still held."""

    def tensors(self, record: RunRecord) -> bytes:
        """They themselves, as a safetensors file."""

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
