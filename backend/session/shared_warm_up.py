"""Pools that public texts have filled, kept once for all sessions of a model.

Most visitors run a scenario as it ships, and the same requests of its set fill the anchor pools first. So the
first session computes them, and the others get copies of its log. Each copy is a session's own, as if it had
computed it.

Only public texts belong here: how fast a pool fills shows whether another session filled the same one before.
The caller says so (``shared`` of :meth:`backend.session.session.LabSession.warm_up`).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from backend.engine.engine import Engine
from backend.engine.isolated_encoder import IsolatedEncoder
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.session.streams import AnsweredRequest, Stream

WARM_UP_BYTES = 512 << 20  # three or four warm-ups of the embedded model
Key = tuple[str, tuple[tuple[tuple[str, str], ...], ...]]
_BY_MODEL: WeakKeyDictionary[Any, WarmUpCache] = WeakKeyDictionary()


class WarmUpCache:
    """Streams by what was sent through them, the longest unused given up first.

    For the account of memory (:class:`backend.cache.memory_budget.Holder`) it is a session that never runs:
    it is emptied when a session needs the room.
    """

    def __init__(self, budget_bytes: int = WARM_UP_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self.runs, self.used = 0, time.monotonic()
        self._streams: OrderedDict[Key, tuple[Stream, int]] = OrderedDict()  # with their bytes: they stay
        self._guard = threading.Lock()

    @staticmethod
    def on(model: LoadedModel) -> WarmUpCache:
        """The cache of a loaded model, for all its sessions."""
        return _BY_MODEL.setdefault(model.module, WarmUpCache())

    @property
    def held(self) -> int:
        """Bytes."""
        with self._guard:
            return self._bytes

    @property
    def _bytes(self) -> int:
        return sum(size for _, size in self._streams.values())

    def forget(self) -> None:
        """Drop everything."""
        with self._guard:
            self._streams.clear()

    def size(self, key: Key) -> int | None:
        """Bytes of the stream of ``key``; None if there is none."""
        with self._guard:
            return self._streams[key][1] if key in self._streams else None

    def keep(self, key: Key, stream: Stream, complete: Callable[[Stream], None] = lambda copy: None) -> None:
        """Keep a copy of a stream that a warm-up and nothing else went through; ``complete`` adds to it."""
        if key in self._streams or stream.log.bytes > self.budget_bytes:
            return
        copy = copy_stream(stream, "ready", self.budget_bytes, None)
        complete(copy)
        size = copy.bytes
        with self._guard:
            self._streams[key] = copy, size
            self.used = time.monotonic()
            while self._bytes > self.budget_bytes:
                self._streams.popitem(last=False)

    def copy(self, key: Key, domain: str, budget_bytes: int, engine: Engine) -> Stream | None:
        """The stream of ``key``, copied for a trust domain; None if there is none."""
        with self._guard:
            stream, _ = self._streams.get(key, (None, 0))
            if stream is None:
                return None
            self._streams.move_to_end(key)
            self.used = time.monotonic()
        return copy_stream(stream, domain, budget_bytes, engine)


def kept_bytes() -> int:
    """Bytes kept for whoever comes next, of all loaded models."""
    return sum(cache.held for cache in list(_BY_MODEL.values()))


def warm_up_key(stream: str, examples: Sequence[Example]) -> Key:
    """What a warm-up is: a stream's key and the texts that went through it, answers included."""
    return stream, tuple(
        (*sorted(example.values.items()), ("answer", example.answer or "")) for example in examples
    )


def copy_stream(stream: Stream, domain: str, budget_bytes: int, engine: Engine | None) -> Stream:
    """A stream's log and history on memory of their own. Methods find their pools in the history.

    Args:
        stream: of requests that dense alone answered, on the lab's own weights.
        domain, budget_bytes: of the new log.
        engine: of the session that it is for; None to keep it for nobody yet. What is kept must not hold the
            model, whose life bounds its own.
    """
    log = stream.log.copy(domain, budget_bytes)
    history = []
    for past in stream.history:
        contexts = [
            replace(
                context,
                samples={name: log.samples[o.number] for name, o in context.samples.items()},
                prefix_bases=log.prefix_bases[context.prompt.agent],
                isolated_bases=log.isolated_bases[context.prompt.agent],
                named_bases=log.named_bases.setdefault(context.prompt.agent, {}),
                encoder=IsolatedEncoder(engine, log, context.weights) if engine is not None else None,
            )
            for context in past.contexts
        ]
        history.append(AnsweredRequest(contexts, dict(past.answers), past.expected))
    return Stream(log, history)
