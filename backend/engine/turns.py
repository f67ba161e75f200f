"""The scheduler: the sessions of one model take turns, and decode in one batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from backend.engine.decoding import DecodeBatch
from backend.engine.prefill import Prefill
from backend.engine.runner import ModelRunner
from backend.model.load import LoadedModel

T = TypeVar("T")
CLOSE_SECONDS = 10.0  # that closing a run waits for another run's step to end


class ModelScheduler:
    """Schedules the sessions of one model: one works at a time, and rows decoded at once form one batch.

    All runs use one thread: torch keeps buffers and worker threads for every thread that it runs in, and a
    server's handlers run in dozens of threads.

    Attributes:
        going: runs in progress.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "model")
        self._ident, self.going = 0, 0
        self._batches: WeakValueDictionary[int, DecodeBatch] = WeakValueDictionary()  # gone with their rows

    @staticmethod
    def on(model: LoadedModel) -> ModelScheduler:
        """The scheduler of a loaded model's sessions."""
        return _BY_MODEL.get(model.module) or _BY_MODEL.setdefault(model.module, ModelScheduler())

    def batch(self, runner: ModelRunner, prefills: Sequence[Prefill]) -> DecodeBatch:
        """The batch to decode rows in, on a runner's weights: the current one, unless these rows would add
        too much padding; else a new one."""
        batch = self._batches.get(id(runner.model.module))
        if batch is not None and not batch.idle:
            return batch if batch.fits(prefills) else DecodeBatch(runner)
        own_batch = self._batches[id(runner.model.module)] = DecodeBatch(runner)
        return own_batch

    def by_turns(self, work: Generator[T, None, None]) -> Iterator[T]:
        """What ``work`` yields. Nothing else runs between one event and the next."""
        self.do(partial(self._count, 1))
        try:
            advance: Callable[[], Any] = partial(next, work, _END)
            while (event := self.do(advance)) is not _END:
                yield event
        finally:
            # If garbage-collected, this may run in a thread that holds what the model's thread waits for.
            with suppress(TimeoutError):
                self.do(partial(self._end, work), CLOSE_SECONDS)

    def do(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """Run ``work`` in the model's thread, while nothing else runs; its result.

        Raises:
            TimeoutError: it had not ended after ``seconds``; it continues.
        """
        if threading.get_ident() == self._ident:  # as when abandoned work is garbage-collected there
            return work()
        try:
            future = self._thread.submit(self._call, work)
        except RuntimeError:  # the interpreter is shutting down
            return work()
        try:
            return future.result(seconds)
        finally:
            # It holds an exception, which holds this frame: all that the work had under way would stay until
            # Python next looks for cycles, on a server minutes later.
            del future

    def _call(self, work: Callable[[], T]) -> T:
        self._ident = threading.get_ident()
        return work()

    def _count(self, change: int) -> None:
        self.going += change

    def _end(self, work: Generator[Any, None, None]) -> None:
        self._count(-1)
        work.close()


_END = object()
_BY_MODEL: WeakKeyDictionary[Any, ModelScheduler] = WeakKeyDictionary()  # by the model's module
