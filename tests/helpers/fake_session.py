"""An engine session that replays a made-up record, so that the page can be tested without a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from fake_record import make_model, make_proximity, make_record

from backend.base.errors import OptionError, RunCancelled
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.records.blend import BlendRequest, BlendStudy
from backend.records.break_even import Machine
from backend.records.documents import DocumentArm, DocumentRequest, DocumentStudy
from backend.records.events import Event, Progress, RunDone, TextSoFar
from backend.records.familiarity import Outlook
from backend.records.hardware import Figures
from backend.records.judge import JudgeRequest
from backend.records.model_info import ModelInfo
from backend.records.pools import PoolState
from backend.records.proximity import ProximityRecord, ProximityRequest
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from backend.records.sweep import Count, SweepPlan, Swept


class FakeModel:
    """Facts of a made-up model; a token is a word."""

    info: ModelInfo = make_model(4)

    def count_tokens(self, pipeline: Pipeline, agent: int, values: Mapping[str, str]) -> int:
        words = pipeline.agent(agent).template.split()
        return len(words) + sum(
            len(values.get(hole.name, "").split()) for hole in pipeline.template(agent).placeholders
        )


@dataclass(frozen=True)
class FakeEstimate:
    """A fixed price per request."""

    seconds: float
    bytes: int
    tokens: int


class FakeDesk:
    """Plans any text; its sweeps end at once with nothing."""

    def plan(self, text: str, lines: str) -> SweepPlan:
        return SweepPlan("fake", "fake", 1, 2, 0, 1.0)

    def saved(self, kind: str) -> bytes:
        raise OptionError(f"There are no rows as {kind}. Run a sweep.", field="sweep")


class FakeSession:
    """Streams the texts of :func:`make_record`; ``pause`` seconds lie between its events."""

    filled = False  # whether pools are there before anybody asks

    def __init__(self, model: FakeModel, pause: float = 0.0) -> None:
        self.model, self.pause = model, pause
        self.warmed: list[Example] = []
        self.shared: list[bool] = []  # whether each warm-up was said to be public
        self.requests: list[RunRequest] = []
        self.revised: list[RunRequest] = []

    def run(self, request: RunRequest, *, cancel: threading.Event | None = None) -> Iterator[Event]:
        self.requests.append(request)
        labels = ["dense", *(m.label for m in request.methods if m.name != "dense")]
        record = make_record(layers=4, methods=labels, seed=len(self.requests))
        stated = replace(
            record.request, methods=request.methods, mode=request.mode, decoding=request.decoding
        )
        for done, outcome in enumerate(record.outcomes):
            yield Progress(f"Agent {outcome.agent}: {outcome.method} is reading", done, len(record.outcomes))
            self._step(cancel)
            for end in range(8, len(outcome.text) + 8, 8):
                self._step(cancel)
                yield TextSoFar(outcome.agent, outcome.method, outcome.text[:end])
        yield RunDone(replace(record, request=stated))

    def revise(
        self, record: RunRecord, request: RunRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Any]:
        """The made-up run with the request's columns, first with what its last answer is yet to say."""
        self.revised.append(request)
        made = make_record(layers=4, methods=[m.label for m in request.methods], seed=3)
        found = replace(made, request=replace(made.request, methods=request.methods))
        last = request.methods[-1].label
        for pending in (frozenset({(found.agents[-1], last)}), frozenset()):
            yield SimpleNamespace(record=found, pending=pending, planned=frozenset(), whole=not pending)
            if pending:
                self._step(cancel)

    def warm_up(
        self,
        request: RunRequest,
        examples: Sequence[Example],
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        self.shared.append(shared)
        for number, example in enumerate(examples):
            self._step(cancel)
            self.warmed.append(example)
            yield Progress(f"Request {number + 1}", number, len(examples))

    def familiarity(self, request: RunRequest) -> Outlook | None:
        strange = "armadillo" in request.values["user_question"]
        return Outlook("unusual" if strange else "familiar", 0.1, ("armadillo",) if strange else ())

    def study(self, request: object, *, cancel: threading.Event | None = None) -> Iterator[Any]:
        known = {
            BlendRequest: self._blend_study,
            DocumentRequest: self._document_study,
            ProximityRequest: self._proximity,
        }
        yield from known[type(request)](request)

    def warm_up_is_cached(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        return self.filled

    def _blend_study(self, request: BlendRequest) -> Iterator[Progress | BlendStudy]:
        count = len(request.values)
        for step in range(count):
            self._step(None)
            yield Progress(f"Prompt {step + 1} of {count}", step, count)
        shape = (len(request.choices), len(request.masks), len(request.ratios), count)
        some = np.full(shape, 0.25, dtype=np.float32)
        lone = np.full(count, 0.5, dtype=np.float32)
        yield BlendStudy(
            request, self.model.info, 1, np.full(count, 90), some, some, some, some, some, lone, lone, lone,
            lone, 12.0,
        )  # fmt: skip

    def machine_figures(self) -> Iterator[Progress | Figures]:
        yield Progress("A prompt of 200 tokens", 0, 1)
        yield Figures(Machine("made-up", (1.0, 0.1, 1e-5), 1.0, 0.0, 1e-3, 1e-4, 0.1), "nowhere")

    def trained_weights(self) -> dict[str, str]:
        return {"kvlink5": "KVLink5", "block": "Block-Attention"}

    def _document_study(self, request: DocumentRequest) -> Iterator[Progress | DocumentStudy]:
        count = request.questions
        for step in range(count):
            self._step(None)
            yield Progress(f"made-up: question {step + 1} of {count}", step + 1, count)
        arms = [
            DocumentArm("Dense", "dense", {}, "made-up"),
            DocumentArm("PromptCache", "promptcache", {}, "made-up"),
        ]
        for name in request.weights:
            arms.append(DocumentArm(self.trained_weights()[name], "kvlink", {}, f"made-up+{name}", True))
        places = np.arange(count) % 5 + 1
        right = np.ones((len(arms), count), dtype=np.int8)
        right[1, ::2] = 0
        yield DocumentStudy(
            self.model.info, request.seed, tuple(arms), np.full(count, 5), places, places, np.full(count, 90),
            right, np.ones(right.shape), np.ones(right.shape, dtype=np.int64),
        )  # fmt: skip

    def _proximity(self, request: ProximityRequest) -> Iterator[Progress | ProximityRecord]:
        if len(request.prefix_a) > 5000:
            raise OptionError("Prefix A has too many tokens.", field="proximity.prefix_a")
        for step in range(2):
            self._step(None)
            yield Progress(f"Behind prefix {step + 1} of 2", step, 2)
        texts = (" the", "<script>alert(1)</script>", "\n", "\ufffd")
        yield make_proximity(request.pairs, request=request, texts=texts)

    def sweep_desk(self) -> FakeDesk:
        return FakeDesk()

    def sweep(
        self, desk: FakeDesk, text: str, lines: str, *, cancel: threading.Event | None = None
    ) -> Generator[Count | Swept]:
        if text == "broken":
            raise ValueError("the engine broke")
        yield Count(0, 2, None, "Reading")
        yield Swept("fake", "fake", (), 0, True)

    def estimate_judging(self, request: JudgeRequest, count: int = 1, taken_in: int = 0) -> float:
        return 0.25 * len(request.orders) * count + taken_in

    def estimate(self, request: RunRequest, count: int = 1) -> FakeEstimate:
        return FakeEstimate(2.0 * count, 40_000_000, 1234)

    def pools(self, request: RunRequest) -> tuple[PoolState, ...]:
        count = min(20, len(self.warmed))
        numbers = tuple(range(count))
        names = tuple(m.label for m in request.methods if m.name == "kvcomm")
        return tuple(
            PoolState(name, "user_question", 20, numbers, (9,) * count, (0,) * count, ("",) * count, 9)
            for name in names
        )

    def tensor_bytes(self, record: RunRecord) -> int:
        return 3 << 20 if self.requests else 0

    def tensors(self, record: RunRecord) -> bytes:
        return b"made-up tensors"

    held = 5 << 20

    def forget(self) -> None:
        self.warmed.clear()

    def _step(self, cancel: threading.Event | None) -> None:
        if self.pause:
            time.sleep(self.pause)
        if cancel is not None and cancel.is_set():
            raise RunCancelled("Stopped.")


class StandingSession(FakeSession):
    """An engine that can be made to stand still, so that no run ends before a test has looked."""

    free = threading.Event()
    free.set()

    @classmethod
    @contextmanager
    def standing(cls) -> Iterator[None]:
        """Runs stand still inside this block; a cancelled one ends."""
        cls.free.clear()
        try:
            yield
        finally:
            cls.free.set()

    def _step(self, cancel: threading.Event | None) -> None:
        while not self.free.wait(0.02) and not (cancel is not None and cancel.is_set()):
            pass
        super()._step(cancel)
