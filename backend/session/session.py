"""A visitor's session: runs requests, keeps pools, and writes records.

Each session is a trust domain of its own: its logs and pools are seen by no other.

*Pinned*: every method reads the texts that dense produced, and the KV of each response is the one that
dense decoding left, so an agent's error is its own and not inherited. Dense has then seen every sample
in every context, so any method's pools can be derived by replaying the gate over the history, without
prefilling. *Free*: each method has a log of its own, reads its own texts, and inherits its own errors.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from backend.cache.memory_budget import with_retry
from backend.methods.registry import make_options
from backend.prompts.presets import Example
from backend.records.events import Event, Progress
from backend.records.pools import PoolState
from backend.records.request import RunRequest
from backend.records.run import Outcome, RunRecord
from backend.session.estimate import Estimate, estimate
from backend.session.revision import Revised, revise
from backend.session.run import Run
from backend.session.streams import stream_key
from backend.session.warm_up import WarmUp
from backend.session.workspace import Workspace

AGAIN = Progress("Memory ran out. Trying once more in smaller pieces", 0, 1)


class LabSession(Workspace):
    """Runs requests on one model. Sessions of one model may run in threads of their own: they work by turns,
    and decode in one batch. What they are made of: :class:`backend.session.workspace.Workspace`."""

    @property
    def warming(self) -> WarmUp:
        """Fills the pools."""
        return WarmUp(self)

    def run(
        self,
        request: RunRequest,
        *,
        cancel: threading.Event | None = None,
        ends: Callable[[Outcome], bool] | None = None,
    ) -> Iterator[Event]:
        """Run a request under every method; ends with :class:`RunDone`.

        Args:
            request: what to run.
            cancel: stops it at its next step.
            ends: whether no further agent runs after an outcome: under this method or, pinned, where all
                follow dense, under any.

        Raises:
            LabError: the request cannot be run; nothing was remembered of it.
            RunCancelled: ``cancel`` was set.
        """
        self.rate.ask()
        work = self._with_retry(lambda small: Run(self, request, cancel, small).events(ends), AGAIN)
        yield from self.scheduler.by_turns(work)

    def revise(
        self, record: RunRecord, request: RunRequest, *, cancel: threading.Event | None = None
    ) -> Iterator[Progress | Revised]:
        """Give a finished run the methods of ``request``, from what it stored; see
        :func:`backend.session.revision.revise`. It costs less than a run, so the rate does not count it."""
        yield from self.scheduler.by_turns(
            self._with_retry(lambda small: revise(self, record, request, cancel))
        )

    def warm_up(
        self,
        request: RunRequest,
        examples: Sequence[Example],
        *,
        cancel: threading.Event | None = None,
        shared: bool = False,
    ) -> Iterator[Event]:
        """Send ``examples`` through, so that the pools of the request's methods fill.

        Pinned: only dense runs, all examples as one batch; pools are derived from it. Free: each example runs
        under every method. A cancelled warm-up keeps what was finished.

        ``shared``: templates and examples are public. Then what they leave is kept for all sessions of the
        model, and taken from there, as a copy, where it is there already
        (:mod:`backend.session.shared_warm_up`).
        """
        self.rate.ask()
        work = self._with_retry(
            lambda small: self.warming.events(request, examples, cancel, small, shared), AGAIN
        )
        yield from self.scheduler.by_turns(work)

    def warm_up_is_cached(self, request: RunRequest, examples: Sequence[Example]) -> bool:
        """Whether a shared warm-up with these examples would find them computed."""
        return self.warming.warm_up_is_cached(request, examples)

    def measure(self, work: Callable[[], Iterator[Any]]) -> Generator[Any, None, None]:
        """Run a measurement as one request of the visitor, within its account of memory."""

        def attempt(small: bool) -> Generator[Any, None, None]:
            yield from work()

        self.rate.ask()
        yield from self._with_retry(attempt)

    def estimate(self, request: RunRequest, count: int = 1) -> Estimate:
        """See :func:`backend.session.estimate.estimate`."""
        return estimate(self, request, count)

    def pools(self, request: RunRequest) -> tuple[PoolState, ...]:
        """The pools of the request's methods as they are now."""
        out: list[PoolState] = []
        for choice in request.methods:
            stream = self.streams.get(stream_key(request, choice))
            if stream is None:
                continue
            options = make_options(choice.name, choice.options)
            if options.wants_lead_in:
                self.request_state(request, stream).encode_lead_ins()
            instance = stream.instance(choice, options)
            out += [replace(p, method=choice.label) for p in instance.method.pools(stream.log)]
        return tuple(out)

    def _with_retry(
        self, attempt: Callable[[bool], Generator[Any, None, None]], notice: Progress | None = None
    ) -> Generator[Any, None, None]:
        """Work within the account of memory; see :func:`backend.cache.memory_budget.with_retry`."""
        engines = (self.engine, *self.others.values())

        def sized(small: bool) -> Generator[Any, None, None]:
            for engine in engines:
                engine.one_by_one = small
            yield from attempt(small)

        with self.memory.running(self):
            try:
                yield from with_retry(sized, self._free, notice)
            finally:
                for engine in engines:
                    engine.one_by_one = False
                self._held, self.used = self.bytes, time.monotonic()

    def _free(self, last: bool) -> None:
        """Free what can be computed again: other sessions' idle pools, past prompts, and in the end all."""
        self.memory.empty(self)
        self.reading = None
        for stream in self.streams.values():
            stream.log.prefixes.shrink(0)
            for instance in stream.instances.values():
                instance.method.shrink(0)
        if last:
            self.forget()
