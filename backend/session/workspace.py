"""What one session works with: the engines of its model, the logs of its visitor, its share of memory."""

import secrets
import time
from collections.abc import Mapping
from contextlib import suppress

from backend.base.errors import ModelError
from backend.base.text import show
from backend.cache.memory_budget import MemoryBudget, free_bytes
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.cuda_graph import CudaGraphs
from backend.engine.engine import Engine
from backend.engine.turns import ModelScheduler
from backend.methods.base import Finished
from backend.model.adapters import variant
from backend.model.load import LoadedModel
from backend.model.weight_variants import check_sibling
from backend.prompts.template import agent_label
from backend.records.request import RunRequest
from backend.session.dense_reading import DenseReading
from backend.session.limits import LOCAL_LIMITS, Limits, Rate
from backend.session.request_state import RequestState
from backend.session.shared_warm_up import WarmUpCache
from backend.session.streams import AnsweredRequest, MethodRun, PromptRun, Stream

CONCURRENT = (
    "{what} went on at the same time, so the times of decoding and of the whole run are not those of "
    "this request alone. Times to the first token are: no other run works meanwhile."
)


class Workspace:
    """Engines, logs and memory of one session; a trust domain of its own.

    Args:
        model: the loaded model; may be shared with other sessions.
        domain: trust domain; a fresh one when absent.
        budget_bytes: how much the logs of this session may hold.
        others: other weights of the model's architecture by the names that agents call them.
        limits: what may be asked; ``budget_bytes`` stands for its own limit of a visit's memory.
        memory: the account that this session shares with others; one of its own when absent.

    Raises:
        ModelError: the caches of some of ``others`` do not fit the model.
    """

    #: Whether a run yields ``PROMPTS_READ`` before its first token, so that others may be decoded with it.
    pauses_before_decode = False
    #: The note of a run that was not alone.
    concurrent_note = CONCURRENT.format(what="Runs of others")

    def __init__(
        self,
        model: LoadedModel,
        *,
        domain: str | None = None,
        budget_bytes: int = 1 << 30,
        others: Mapping[str, LoadedModel] | None = None,
        limits: Limits = LOCAL_LIMITS,
        memory: MemoryBudget | None = None,
    ) -> None:
        self.id = domain or secrets.token_urlsafe(12)
        self.model = model
        self.engine = Engine(model)
        for name, other in (others or {}).items():
            check_sibling(model, other, name)
        self.others = {name: Engine(other) for name, other in (others or {}).items()}
        models = (model, *(other for _, other in sorted((others or {}).items())))
        self.weights_hash = "-".join(loaded.info.weights_hash for loaded in models)
        self.budget_bytes = budget_bytes
        self.streams: dict[str, Stream] = {}
        self.limits, self.rate = limits, Rate(limits.requests_a_minute)
        self.memory = memory or MemoryBudget(free=lambda: free_bytes(model.device))
        self.reading: DenseReading | None = None  # of the run that was changed last
        self._held, self.runs, self.used = 0, 0, time.monotonic()
        #: Where shared warm-ups are kept. A study of private texts puts one of its own here.
        self.kept_warm_ups = WarmUpCache.on(model)
        self.memory.join(self)
        self.memory.join(self.kept_warm_ups)
        for loaded in models:
            self.memory.join(CudaGraphs.on(loaded))
        self.scheduler = ModelScheduler.on(model)

    def engine_of(self, request: RunRequest, agent: int) -> Engine:
        """The engine of an agent's weights; a variant that ships with the lab's own is made when first used.

        Raises:
            ModelError: this session has no such weights.
        """
        name = request.pipeline.agent(agent).model
        if name and name not in self.others and (other := variant(self.model, name)) is not None:
            self.others[name] = Engine(other)
            self.memory.join(CudaGraphs.on(other))
        if name and name not in self.others:
            listed = ", ".join(map(repr, self.others)) or "no others"
            raise ModelError(
                f"Agent {agent_label(agent)} runs on the weights {show(name)}, but beside "
                f"{self.model.info.name} there are {listed}. Load them (kvlab with --weights "
                f"{show(name)[1:-1]}=MODEL), or let the agent run on the lab's own.",
                field=f"agents.{agent}.model",
            )
        return self.others.get(name, self.engine)

    def request_state(self, request: RunRequest, stream: Stream) -> RequestState:
        """A new request state over a stream's log."""
        return RequestState(request.pipeline, self.engine, stream.log, engines=self.others)

    def stream(self, key: str) -> Stream:
        """The stream of a key, a new one if need be; the last one used stands last."""
        stream = self.streams.pop(key, None) or Stream(SampleLog(self.id, self.budget_bytes))
        self.streams[key] = stream
        return stream

    def finish(self, rows: list[PromptRun]) -> None:
        """Called with the rows of an agent that has answered under every method; keeps none here."""

    def settle(
        self,
        runs: list[MethodRun],
        contexts: dict[str, list[PromptInContext]],
        finished: bool,
        expected: str | None = None,
    ) -> None:
        """Close a request: remember it, or undo what an unfinished one left; then keep to the budget.

        Args:
            runs: of its methods, dense first.
            contexts: what agents read, in running order, by a method's label.
            finished: whether all its agents answered.
            expected: its known answer.
        """
        self.reading = None
        for stream in {id(run.stream): run.stream for run in runs}.values():
            members = [run for run in runs if run.stream is stream]
            if finished:
                first = members[0]
                stream.history.append(
                    AnsweredRequest(contexts[first.choice.label], first.state.answers, expected)
                )
                for run in members:
                    run.method.on_event(Finished(), stream.log)
                    run.instance.method, run.instance.position = (run.method, len(stream.history))
                needed = {n for run in members for n in run.method.needed() - run.method.offloadable()}
                stream.log.offload({n for run in members for n in run.method.offloadable()} - needed)
            else:
                numbers = stream.needed().union(*(request.sample_numbers for request in stream.history))
                for number in list(stream.log.samples):
                    if number not in numbers:
                        del stream.log.samples[number]
            stream.shrink()
        self.drop_idle({id(run.stream) for run in runs})

    def drop_idle(self, running: set[int]) -> None:
        """Drop streams of earlier templates or settings, the longest unused first, until the budget holds."""
        for key in [key for key, stream in self.streams.items() if id(stream) not in running]:
            if self.bytes <= self.budget_bytes:
                break
            del self.streams[key]

    @property
    def bytes(self) -> int:
        """Bytes held by this session's logs and methods."""
        reading_bytes = self.reading.bytes if self.reading is not None else 0
        return reading_bytes + sum(stream.bytes for stream in self.streams.values())

    @property
    def held(self) -> int:
        """Bytes held, for the account of all sessions; while a run changes the logs, those before it.

        Counted at every call: after a failed run, its exception keeps dropped tensors alive for a while.
        """
        if not self.runs:
            with suppress(RuntimeError):  # a page that looks at the pools may add to a log just now
                self._held = self.bytes
        return self._held

    def forget(self) -> None:
        """Drop every log and pool."""
        self.streams.clear()
        self.reading = None
        self._held = 0
