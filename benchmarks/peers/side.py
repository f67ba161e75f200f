"""The protocol of a peer's program and the driver: one JSON object a line. Standard library only, since a
peer's environment holds nothing of this project.

A request: ``{"case": ..., "ids": [...], "texts": [[start, end], ...], "front": tokens}``, where ``texts`` are
the shared texts' places and ``front`` the template text before the first. The answer: ``{"ms": wall clock,
"processor_ms": ..., "token": the first token, "kept": how many tokens came from the cache}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Request = dict[str, Any]


def serve(start: Callable[[], tuple[Callable[[Request], Request], dict[str, Any]]]) -> None:
    """Answer requests from standard input until it ends.

    Args:
        start: loads everything; returns what answers a request, and what to say of the peer.
    """
    # Libraries print what they like; the answers go where nothing else is printed.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(what: Request) -> None:
        print(json.dumps(what), file=answers, flush=True)

    handle, about = start()
    say(about)
    for line in sys.stdin:
        say(handle(json.loads(line)))


class Watch:
    """Wall clock and processor time of a block, in milliseconds."""

    def __enter__(self) -> Watch:
        self._wall, self._busy = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.ms = (time.perf_counter() - self._wall) * 1e3
        self.processor_ms = (time.process_time() - self._busy) * 1e3

    def answer(self, token: int, cached: int) -> Request:
        """The answer to a request."""
        return {"ms": self.ms, "processor_ms": self.processor_ms, "token": token, "kept": cached}
