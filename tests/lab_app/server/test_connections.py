"""Connections on which no request comes are closed, counted and bounded; proxies are believed when named."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import gradio.http_server as framework
import pytest

from lab_app.server import connections
from lab_app.server.request_limits import Bound, Open

ASKED = b"GET /a HTTP/1.1\r\nHost: lab\r\n%s\r\n"


async def who(scope: Any, receive: Any, send: Any) -> None:
    """Answers with whom a request is from."""
    if scope["type"] == "lifespan":
        return
    body = scope["client"][0].encode() + b" " + scope["scheme"].encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def served(*proxies: str) -> Iterator[tuple[Callable[[], socket.socket], Open]]:
    """A server of the framework's kind; a way to connect to it, and its count."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with connections.server_settings(proxies) as counts:
        _, _, _, server = framework.start_server(who, "127.0.0.1", port)  # type: ignore[arg-type]
    with ExitStack() as every:

        def connect() -> socket.socket:
            return every.enter_context(socket.create_connection(("127.0.0.1", port), 10))

        yield connect, counts
    server.close()


def answer(to: socket.socket, *sent: bytes) -> bytes:
    for part in sent:
        to.sendall(part)
    said = b""
    while not said.endswith((b" http", b" https")) and (more := to.recv(4096)):
        said += more
    return said


def closed_after(found: socket.socket) -> float:
    began = time.monotonic()
    try:
        while found.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return time.monotonic() - began


def test_a_connection_without_a_request_is_closed_however_slowly_one_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with served() as (connect, counts):
        silent, half, dripping, honest = (connect() for _ in range(4))
        half.sendall(b"GET / HT")
        assert b"200" in answer(honest, ASKED % b"")
        assert b"200" in answer(dripping, ASKED % b"Content-Length: 9000\r\n"), "answered before its body"
        with suppress(ConnectionError):
            for _ in range(100):
                dripping.sendall(b"x")
                time.sleep(0.05)
            pytest.fail("a body after its answer went on")
        assert closed_after(silent) < 3 > closed_after(half)
        assert counts.counted.total() <= 1


def test_two_requests_on_one_connection_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    with served() as (connect, _):
        one = connect()
        assert b"200" in answer(one, ASKED % b"")
        time.sleep(0.8)
        assert b"200" in answer(one, ASKED % b""), "between two requests the server's own time holds"
        assert b"200" in answer(one, (ASKED % b"") * 3)


def test_connections_are_bounded_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", Bound(3, 100))
    with served() as (connect, counts):
        kept = [connect() for _ in range(3)]
        assert b"200" in answer(kept[2], ASKED % b"")
        assert closed_after(connect()) < 3
        kept[0].close()
        ends = time.monotonic() + 5
        while counts.counted.total() > 2 and time.monotonic() < ends:
            time.sleep(0.02)
        assert b"200" in answer(connect(), ASKED % b"")


@pytest.mark.parametrize(
    "more", [b"X: " + b"x" * connections.MOST_HEAD + b"\r\n", b"a:\r\n" * (connections.MOST_LINES + 1)]
)
def test_headers_that_are_too_large_or_too_many_are_not_parsed(more: bytes) -> None:
    with served() as (connect, _):
        whole = ASKED % more
        assert b"431" in answer(connect(), whole)
        found = connect()
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(whole), len(whole) // 3 + 1):
            found.sendall(whole[at : at + len(whole) // 3 + 1])
            time.sleep(0.1)
        assert b"431" in found.recv(100), "also in pieces"
        assert b"200" in answer(connect(), ASKED % (b"X: " + b"x" * 8000 + b"\r\n"))


@pytest.mark.parametrize(
    ("proxies", "sent", "seen"),
    [
        ((), b"7.7.7.7", b"127.0.0.1 http"),
        (("10.0.0.0/8",), b"7.7.7.7", b"127.0.0.1 http"),
        (("127.0.0.1",), b"7.7.7.7", b"7.7.7.7 https"),
        (("127.0.0.1", "10.0.0.0/8"), b"1.1.1.1, 7.7.7.7, 10.1.2.3", b"7.7.7.7 https"),
    ],
)
def test_proxies_are_believed_when_they_are_named(proxies: tuple[str, ...], sent: bytes, seen: bytes) -> None:
    with served(*proxies) as (connect, _):
        said = b"X-Forwarded-For: " + sent + b"\r\nX-Forwarded-Proto: https\r\n"
        assert answer(connect(), ASKED % said).endswith(seen)
