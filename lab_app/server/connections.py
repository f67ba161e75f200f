"""Counts connections, and closes those whose request does not arrive in time.

Of the server's own settings, ``timeout_keep_alive`` bounds only the time between two requests, and
``limit_concurrency`` would also refuse health checks.
"""

import asyncio
import functools
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import gradio.http_server as framework
import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from lab_app.server.request_limits import CONNECTIONS, Bound, Open
from lab_app.visits.addresses import address_of

HEAD_SECONDS = (
    20.0  # for a request's line and headers to arrive, counted from the connection or the last answer
)
MOST_HEAD = 32 << 10  # bytes of them
MOST_LINES = 128
IDLE_SECONDS = 15  # between two requests
MOST_FILES = 1 << 14
FILES_LEFT = 256  # descriptors that are not connections'
TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Connection(H11Protocol):
    """One connection; ``counts`` counts all of them."""

    counts = Open(CONNECTIONS)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count it, and wait for its first request."""
        super().connection_made(transport)
        self._waiting: asyncio.TimerHandle | None = None
        self._bytes = self._lines = 0  # of a head that has not arrived whole
        self._address = address_of(self.client[0] if self.client else "")
        self._counted = self.counts.enter(self._address)
        if self._counted:
            self._wait()
        else:
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        super().connection_lost(exc)
        self._wait(False)
        if self._counted:
            self._counted = False
            self.counts.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Read data; refuse a request's head that is too large, unparsed."""
        if self.conn.their_state is h11.IDLE:
            head = data.partition(b"\r\n\r\n")[0]
            self._bytes, self._lines = self._bytes + len(head), self._lines + head.count(b"\n")
            if self._bytes > MOST_HEAD or self._lines > MOST_LINES:
                self.transport.write(TOO_LARGE)
                self.transport.close()
                return
        super().data_received(data)
        answered = self.conn.our_state is h11.DONE  # a body after its answer is thrown away as it comes
        if self.conn.their_state is not h11.IDLE:
            self._bytes = self._lines = 0
        self._wait(self.conn.their_state is h11.IDLE or answered)

    def _wait(self, wait: bool = True) -> None:
        """Start or stop the timer that closes the connection; a running one is not extended."""
        if not wait and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        elif wait and self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self.transport.abort)


@contextmanager
def server_settings(proxies: Sequence[str] = ()) -> Iterator[Open]:
    """The framework starts its server with these settings and :class:`Connection` while this is entered; it
    has no parameters for them.

    Args:
        proxies: see :class:`lab_app.server.hosting.Hosting`; then connections are limited in total alone.

    Returns:
        the count of connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # a system that allows fewer than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, MOST_FILES)), hard))
    together = min(CONNECTIONS.together, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - FILES_LEFT)
    counts = Open(Bound(together if proxies else CONNECTIONS.each, together))
    settings: dict[str, Any] = {
        "http": type("Counted", (Connection,), {"counts": counts}), "ws": "none",
        "timeout_keep_alive": IDLE_SECONDS, "h11_max_incomplete_event_size": MOST_HEAD,
        "server_header": False, "proxy_headers": bool(proxies), "forwarded_allow_ips": list(proxies),
    }  # fmt: skip
    server: Any = SimpleNamespace(Config=functools.partial(uvicorn.Config, **settings))
    framework.uvicorn = server  # type: ignore[attr-defined]
    try:
        yield counts
    finally:
        framework.uvicorn = uvicorn  # type: ignore[attr-defined]
