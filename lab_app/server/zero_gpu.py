"""The lab on ZeroGPU, which lends a GPU to a forked process for one call.

Only what that process yields outlives it. So a visit here remembers requests, not tensors: each call makes a
fresh session on the GPU, refills the pools with the visit's earlier requests (pinned, by dense alone and in
batches), and then does its work. Without such a GPU the same code runs in this process."""

import functools
import math
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import backend.base.errors
from backend.base.errors import LabError, OptionError, RunCancelled
from backend.prompts.presets import Example
from backend.records.blame import BlameRequest
from backend.records.events import Event, Progress, RunDone
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from backend.session.limits import Limits
from lab_app.visits.engine import ALONE, Engine

#: Seconds of GPU that a call may ask for: ZeroGPU ends it then, and short calls wait less. The rates are
#: cautious guesses for a model of some billion parameters; nothing was measured on ZeroGPU.
SHORTEST, SECONDS = 15, 120
TOKENS_A_SECOND, STEPS_A_SECOND = 4000, 20  # read, and decoded one after the other
MOST_REQUESTS = 200  # earlier requests of a visit; the latest are sent again
TEMPLATES = 8  # whose requests are remembered


@dataclass(frozen=True)
class Job:
    """What is sent to the GPU. ``before``: a request and the values sent under it earlier.

    ``model`` is a name as :func:`backend.model.load.load_model` takes it; ``seconds``: how long it may take.
    """

    model: str
    limits: Limits
    what: str
    arguments: tuple[Any, ...]
    before: tuple[RunRequest, tuple[Example, ...]] | None = None
    seconds: int = SECONDS


def seconds_of(job: Job) -> int:
    """How long a job may have the GPU, as ``spaces.GPU`` asks."""
    return job.seconds


@dataclass(frozen=True)
class Failed:
    """An expected error, as data: an exception may lose its message between processes."""

    kind: str
    message: str
    field: str | None


@functools.lru_cache(maxsize=1)
def loaded(name: str) -> Any:
    """The model on the best device of this process."""
    from backend.model.load import load_model

    return load_model(name)


def on_gpu(job: Job) -> Iterator[Any]:
    """Do a job and yield its events, or a :class:`Failed` at the end. What it takes and yields can be
    pickled."""
    from backend.lab import Lab
    from backend.session.session import LabSession

    limits = replace(job.limits, requests_a_minute=0)  # counted before
    try:
        session = LabSession(loaded(job.model), budget_bytes=limits.visit_bytes, limits=limits)
        lab = Lab(session)
        if job.before is not None:
            yield from lab.warm_up(*job.before)
        yield from getattr(lab, job.what)(*job.arguments)
    except LabError as error:
        yield Failed(type(error).__name__, str(error), error.field)


class ZeroSession:
    """A visit's engine session: estimates here, works on the GPU.

    Args:
        model: as loaded in this process, on its CPU.
        name: by which the GPU's process loads it.
        work: :func:`on_gpu`, as it is or decorated.
        limits: of the lab.
    """

    def __init__(self, model: Any, name: str, work: Callable[[Job], Iterator[Any]], limits: Limits) -> None:
        from backend.lab import Lab
        from backend.session.session import LabSession

        self.local = Lab(LabSession(model, budget_bytes=limits.visit_bytes, limits=limits))
        self._name, self._work, self._limits = name, work, limits
        self._sent: OrderedDict[Any, list[Example]] = OrderedDict()

    def run(
        self, request: RunRequest, *, cancel: threading.Event | None = None, ends: Any = None
    ) -> Iterator[Event]:
        """See :meth:`backend.session.session.LabSession.run`; ``ends`` is not known here.

        Raises:
            LabError: the request cannot be run; or see :meth:`_events`.
        """
        if ends is not None:
            raise LabError(
                "Runs that end early are not offered on ZeroGPU. Use the lab on a machine of your own."
            )
        for event in self._events("run", request, before=self._before(request), cancel=cancel):
            if isinstance(event, RunDone):
                self._remember(request, [Example(dict(request.values), request.expected)])
            yield event

    def warm_up(
        self,
        request: RunRequest,
        examples: Sequence[Example],
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        """Remember the requests: the next run on the GPU begins with them. Nothing is ``shared`` here, as
        every call has a process of its own."""
        self._remember(request, examples)
        yield Progress("The next run begins with them", len(examples), len(examples))

    def revise(self, record: RunRecord, request: RunRequest, *, cancel: Any = None) -> Iterator[Any]:
        """Not offered.

        Raises:
            OptionError: always; a run's stored states end with its process.
        """
        raise OptionError("What a run stored is gone here, so a change needs a run.", field="methods")

    def study(self, request: object, *, cancel: threading.Event | None = None) -> Iterator[Any]:
        """See :meth:`backend.lab.Lab.study`; one about a run begins with what was sent."""
        before = self._before(request.run) if isinstance(request, BlameRequest) else None
        yield from self._events("study", request, before=before, cancel=cancel)

    def __getattr__(self, what: str) -> Any:
        if what in ALONE:
            return lambda *arguments, cancel=None: self._events(what, *arguments, cancel=cancel)
        return getattr(self.local, what)  # estimates, pools, sizes

    def tensor_bytes(self, record: RunRecord) -> int:
        """0: tensors end with their process."""
        return 0

    def forget(self) -> None:
        """Drop everything remembered."""
        self._sent.clear()
        self.local.forget()

    def warm_up_is_cached(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        """Never: see :meth:`warm_up`."""
        return False

    def _events(
        self,
        what: str,
        *arguments: Any,
        before: tuple[RunRequest, tuple[Example, ...]] | None = None,
        cancel: threading.Event | None = None,
    ) -> Iterator[Any]:
        """What the GPU's process yields.

        Raises:
            LabError: the one that it met; RateError: too many calls.
            RunCancelled: ``cancel`` was set.
        """
        self.local.rate.ask()
        for event in self._work(
            Job(self._name, self._limits, what, arguments, before, self._seconds(what, arguments, before))
        ):
            if cancel is not None and cancel.is_set():
                raise RunCancelled("Stopped. What was finished before is still there.")
            if isinstance(event, Failed):
                kind = getattr(backend.base.errors, event.kind, LabError)
                raise kind(event.message, field=event.field)
            yield event

    def _seconds(self, what: str, arguments: tuple[Any, ...], before: Any) -> int:
        """GPU seconds of a call: for a run by its tokens and those of the requests sent again; for others,
        whose tokens are not known, the most."""
        if what != "run":
            return SECONDS
        request: RunRequest = arguments[0]
        earlier = len(before[1]) if before is not None else 0
        tokens: int = self.local.estimate(request, 1 + earlier).tokens
        steps = len(request.pipeline.order) * (1 + len(request.methods)) * request.decoding.max_new_tokens
        steps += earlier * request.decoding.max_new_tokens  # they are decoded in batches, by dense alone
        return min(SECONDS, math.ceil(SHORTEST + tokens / TOKENS_A_SECOND + steps / STEPS_A_SECOND))

    def _before(self, request: RunRequest) -> tuple[RunRequest, tuple[Example, ...]] | None:
        sent = self._sent.get(key(request))
        return (request, tuple(sent)) if sent else None

    def _remember(self, request: RunRequest, examples: Sequence[Example]) -> None:
        sent = self._sent.pop(key(request), [])
        sent += [example for example in examples if example not in sent]
        self._sent[key(request)] = sent[-MOST_REQUESTS:]
        while len(self._sent) > TEMPLATES:
            self._sent.popitem(last=False)


def key(request: RunRequest) -> Any:
    """Requests with the same key share anchors."""
    return request.pipeline, request.mode, request.decoding


def serve(
    gpu: Callable[..., Any] | None = None, model_name: str = "", *, block: bool = True
) -> tuple[Any, str]:
    """Serve the lab as a Gradio Space.

    Args:
        gpu: ``spaces.GPU``; None where there is no such package.
        model_name: else ``KVLAB_MODEL`` of the environment, else the model that ships with the lab.
        block: wait until the server is stopped.

    Returns:
        the running page and its address.
    """
    from backend.model.load import load_model
    from lab_app.server.hosting import Hosting
    from lab_app.server.serve import launch

    name = model_name or os.environ.get("KVLAB_MODEL", "embedded")
    limits = replace(Limits.read(), together=1)  # each call is a process of its own
    work = gpu(duration=seconds_of)(on_gpu) if gpu is not None else on_gpu
    model: Any = load_model(name, device="cpu")  # outside of calls there is no GPU

    return launch(
        lambda: model, os.environ.get("GRADIO_SERVER_NAME", "0.0.0.0"),
        int(os.environ.get("GRADIO_SERVER_PORT", "7860")),
        engine=lambda local: cast(Engine, ZeroSession(local, name, work, limits)), limits=limits,
        hosting=Hosting.read(), block=block,
    )  # fmt: skip
