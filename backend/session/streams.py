"""Streams: the logs of a session, the requests that went through them, and the methods' pools over them."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from backend.base.clock import Clock
from backend.base.serialization import as_json
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.decoding import Decoded
from backend.engine.prefill import Prefill
from backend.methods.base import Arrived, Finished, Method
from backend.methods.options import Options
from backend.methods.plan import Plan
from backend.methods.registry import method_class
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder
from backend.records.request import MethodChoice, RunRequest
from backend.session.request_state import RequestState


@dataclass
class MethodInstance:
    """One method choice in a stream: its instance, and how many requests of the history it has processed."""

    method: Method
    position: int = 0


@dataclass(frozen=True)
class AnsweredRequest:
    """A request that went through a stream: its prompts in running order, what each agent answered (token
    ids; pinned: dense's), and the known answer."""

    contexts: list[PromptInContext]
    answers: Mapping[int, tuple[int, ...]]
    expected: str | None = None

    @property
    def sample_numbers(self) -> set[int]:
        """Numbers of the samples that its prompts hold."""
        return {sample.number for context in self.contexts for sample in context.samples.values()}

    def plans(
        self, method: Method, log: SampleLog, clocks: Mapping[int, Clock] | None = None
    ) -> Iterator[tuple[PromptInContext, Plan]]:
        """Replay the request: the method's plan at each agent, without the model. ``clocks``, by agent, get
        ``gate`` and the parts of planning."""
        for context, clock in self._prompts(method, log, clocks or {}):
            yield context, method.plan(context, log, clock)

    def replay(self, method: Method, log: SampleLog) -> None:
        """The same for the method's state alone, without the plans."""
        for context, _ in self._prompts(method, log, {}):
            method.replay(context, log)

    def _prompts(
        self, method: Method, log: SampleLog, clocks: Mapping[int, Clock]
    ) -> Iterator[tuple[PromptInContext, Clock]]:
        """The prompts in running order, each when all its texts have arrived; the method then plans it."""
        numbers: set[int] = set()
        samples = [sample for context in self.contexts for sample in context.samples.values()]
        first = [sample for sample in samples if Placeholder(sample.placeholder).kind == "question"]
        for context in self.contexts:
            clock = clocks.get(context.prompt.agent) or Clock()
            with clock.part("gate"):
                for sample in (*first, *context.samples.values()):
                    if sample.number not in numbers:
                        numbers.add(sample.number)
                        method.on_event(Arrived(sample), log)
            yield context, clock
        method.on_event(Finished(), log)


@dataclass
class Stream:
    """A log with the requests that went through it, oldest first; ``forgotten`` counts those before them that
    had to leave it."""

    log: SampleLog
    history: list[AnsweredRequest] = field(default_factory=list)
    instances: dict[str, MethodInstance] = field(default_factory=dict)
    forgotten: int = 0

    def instance(self, choice: MethodChoice, options: Options) -> MethodInstance:
        """The method instance of a choice, brought up to date by replaying what it has not seen."""
        key = json.dumps([choice.name, [(f.name, getattr(options, f.name)) for f in fields(options)]])
        instance = self.instances.setdefault(key, MethodInstance(method_class(choice.name)(options)))
        while instance.position < len(self.history):
            self.history[instance.position].replay(instance.method, self.log)
            instance.position += 1
        return instance

    @property
    def bytes(self) -> int:
        """Bytes of the log, and of what methods keep beside it."""
        return self.log.bytes + self._method_bytes

    @property
    def _method_bytes(self) -> int:
        """Bytes of what methods keep beside the log."""
        return sum(instance.method.held_bytes for instance in self.instances.values())

    def _method_bytes_of(self, number: int) -> int:
        """Bytes of them that belong to one observation."""
        return sum(instance.method.held_of(number) for instance in self.instances.values())

    def needed(self) -> set[int]:
        """Observations that some method's pool holds."""
        return {n for instance in self.instances.values() for n in instance.method.needed()}

    def shrink(self) -> None:
        """Keep log and methods within the log's budget; requests that lost an observation leave the history.
        What methods can compute again goes first."""
        for instance in self.instances.values():
            excess = self.bytes - self.log.budget_bytes
            if excess > 0:
                instance.method.shrink(max(0, instance.method.held_bytes - excess))
        lost = set(self.log.shrink(self.needed(), self._method_bytes, self._method_bytes_of))
        if lost:
            removed = {i for i, request in enumerate(self.history) if request.sample_numbers & lost}
            for instance in self.instances.values():
                instance.position -= sum(i < instance.position for i in removed)
                instance.method.forget(lost)
            self.history = [request for i, request in enumerate(self.history) if i not in removed]
            self.forgotten += len(removed)
            self.log.trim(self._method_bytes)


@dataclass
class MethodRun:
    """One method within one request."""

    choice: MethodChoice
    options: Options
    stream: Stream
    state: RequestState
    instance: MethodInstance
    method: Method  # a fork of the instance's, which it replaces when the request is finished
    clock: Clock | None = None  # of the next prompt: what has been spent on it so far


@dataclass
class PromptRun:
    """One method at one agent."""

    run: MethodRun
    context: PromptInContext
    plan: Plan
    prefill: Prefill
    clock: Clock
    decoded: Decoded | None = None


def pipeline_hash(pipeline: Pipeline) -> str:
    """A hash of the pipeline; pools do not outlive an edit."""
    return hashlib.sha256(json.dumps(as_json(pipeline), sort_keys=True).encode()).hexdigest()[:16]


def stream_key(request: RunRequest, choice: MethodChoice) -> str:
    """Which stream a choice belongs to: pinned, all share one; free, each has its own."""
    key = [pipeline_hash(request.pipeline), request.mode, as_json(request.decoding)]
    if request.mode == "free":
        key += [choice.name, sorted(choice.options.items()), *filter(None, [choice.exact])]
    return json.dumps(key)


def states_of(runs: list[MethodRun]) -> list[tuple[RequestState, list[MethodRun]]]:
    """The distinct request states, each with the method runs that share it."""
    groups: dict[int, tuple[RequestState, list[MethodRun]]] = {}
    for run in runs:
        groups.setdefault(id(run.state), (run.state, []))[1].append(run)
    return list(groups.values())
