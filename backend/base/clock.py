"""A clock that adds up the time of named parts, also on a device that works asynchronously."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Clock:
    """Adds up the milliseconds of named parts. A part inside another counts for the inner one alone.

    Parts begin and end without waiting for the device: their marks are compared when :attr:`parts` is read.
    """

    def __init__(
        self,
        mark: Callable[[], Any] = time.perf_counter,
        elapsed: Callable[[Any, Any], float] = lambda first, last: (last - first) * 1e3,
    ) -> None:
        """
        Args:
            mark: sets a mark where a device's work stands now, without waiting for it.
            elapsed: milliseconds from one mark to another, once both have been reached.
        """
        self._mark, self._elapsed = mark, elapsed
        self._parts: dict[str, float] = {}
        self._open: list[str] = []
        self._spans: list[tuple[str, Any, Any, int]] = []  # part, from, to, and 1 or -1

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time the body under ``name``."""
        self._open.append(name)
        start = self._mark()
        try:
            yield
        finally:
            end = self._mark()
            self._open.pop()
            self._spans.append((name, start, end, 1))
            if self._open:
                self._spans.append((self._open[-1], start, end, -1))

    def add(self, name: str, ms: float) -> None:
        """Add milliseconds that were measured elsewhere."""
        self._parts[name] = self._parts.get(name, 0.0) + ms

    @property
    def parts(self) -> dict[str, float]:
        """Milliseconds by part; may be changed. Waits for the device."""
        spans, self._spans = self._spans, []
        for name, start, end, sign in spans:
            self.add(name, sign * self._elapsed(start, end))
        return self._parts
