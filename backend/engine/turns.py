"""Turns: the sessions of one model work one after the other, and decode at the same time."""

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
CLOSE_SECONDS = 10.0  # that a run which is closed waits for the end of another's step


class ModelScheduler:
    """The sessions of one model: one works at a time, and what they decode at once is one batch.

    All of their runs are done in one thread. Torch keeps buffers and helpers for every thread that it works
    in, and a server's handlers are called in dozens.

    Attributes:
        going: runs that have begun and not ended.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "model")
        self._ident, self.going = 0, 0
        self._batches: WeakValueDictionary[int, DecodeBatch] = WeakValueDictionary()  # gone with their rows

    @staticmethod
    def on(model: LoadedModel) -> ModelScheduler:
        """That of all sessions of a loaded model."""
        return _BY_MODEL.get(model.module) or _BY_MODEL.setdefault(model.module, ModelScheduler())

    def batch(self, runner: ModelRunner, prefills: Sequence[Prefill]) -> DecodeBatch:
        """A batch for rows on a runner's weights: that of the others, forwarded by the runner of who came
        first, unless its padding would make it much larger than its rows are."""
        batch = self._batches.get(id(runner.model.module))
        if batch is not None and not batch.idle:
            return batch if batch.fits(prefills) else DecodeBatch(runner)
        own_batch = self._batches[id(runner.model.module)] = DecodeBatch(runner)
        return own_batch

    def by_turns(self, work: Generator[T, None, None]) -> Iterator[T]:
        """What ``work`` yields, with nobody else at work between one event and the next."""
        self.do(partial(self._count, 1))
        try:
            advance: Callable[[], Any] = partial(next, work, _END)
            while (event := self.do(advance)) is not _END:
                yield event
        finally:
            # Collected, and not closed, it may be in a thread that has what the model's thread waits for.
            with suppress(TimeoutError):
                self.do(partial(self._end, work), CLOSE_SECONDS)

    def do(self, work: Callable[[], T], seconds: float | None = None) -> T:
        """What ``work`` returns, while nobody else is at work.

        Raises:
            TimeoutError: it had not ended after ``seconds``; it goes on.
        """
        if threading.get_ident() == self._ident:  # as when work that nobody waits for is collected there
            return work()
        try:
            future = self._thread.submit(self._call, work)
        except RuntimeError:  # the interpreter is ending, and has ended its threads
            return work()
        return future.result(seconds)

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
