"""Closed doors, headers, offline mode and discreet logs, each without the page."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from backend.base.redaction import HIDDEN, Discreet, places, redact
from lab_app.server import request_limits as limits
from lab_app.server.heartbeats import Heartbeats
from lab_app.server.offline import GUARD, Guard, is_local
from lab_app.server.request_guard import RequestGuard, labs_own, policy
from lab_app.server.request_limits import Counts

SEEN: list[str] = []


def app_of(**options: Any) -> TestClient:
    """Every path answers, behind the doors."""

    async def echo(request: Request) -> PlainTextResponse:
        await request.body()
        return PlainTextResponse(request.url.path, headers={"server": "x"})

    inner = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST", "PUT", "OPTIONS"])])
    own = Route("/lab/record/{token}", echo).path_regex
    ended = asyncio.Event()
    ended.set()  # heartbeats end at once
    heartbeats = Heartbeats(stopping=lambda: ended)
    options = {"heartbeats": heartbeats, **options}
    return TestClient(RequestGuard(inner, opened=[own], **options), base_url="http://lab")


@pytest.fixture(scope="module")
def client() -> TestClient:
    return app_of()


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/config",
        "/theme.css",
        "/assets/index-x.js",
        "/static/fonts/a.woff2",
        "/gradio_api/queue/data",
        "/gradio_api/upload",
        "/gradio_api/heartbeat/abc",
        "/lab/record/abc",
        "/gradio_api/startup-events",
        "/gradio_api/info",
        "/gradio_api/call/run",
        "/gradio_api/call/v2/judge",
        "/gradio_api/call/v2/judge/0123456789abcdef0123456789abcdef",
    ],
)
def test_what_the_page_needs_is_open(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=http://example.com/x",
        "/gradio_api/file%3Dhttp://example.com",
        "/gradio_api/file/tmp/x",
        "/gradio_api/proxy=http://example.com",
        "/gradio_api/run/predict",
        "/gradio_api/api/x",
        "/gradio_api/call/x",
        "/gradio_api/info?all_endpoints=true",
        "/gradio_api/info/x",
        "/gradio_api/openapi.json",
        "/gradio_api/call/arrive",
        "/gradio_api/call/run/../x",
        "/gradio_api/call/v2/run/x",
        "/gradio_api/run/run",
        "/mcp",
        "/gradio_api/mcp",
        "/monitoring",
        "/gradio_api/stream/a/b/c/p",
        "/gradio_api/component_server",
        "/gradio_api/process_recording",
        "/gradio_api/vibe-edit",
        "/gradio_api/dev/reload",
        "/custom_component/x/client/y/z.js",
        "/login",
        "/gradio_api/token",
        "/gradio_api/app_id",
        "/docs",
        "/lab/record/a/b",
        "/static/../secret",
        "/static/%2e%2e/secret",
        "/assets/%252e%252e/secret",
        "/static/..%5csecret",
        "/static/x%00",
        "/gradio_api/mcp/sse",
        "/CONFIG",
        "//config",
        "/gradio_api/deep_link",
        "/gradio_api/runs",
        "/gradio_api/login_check",
    ],
)
def test_everything_else_is_closed(path: str) -> None:
    assert answered(path) == (403, "This door is closed.")


BEHIND = app_of()


def answered(raw: str) -> tuple[int, str]:
    """Status and body for a path as it stands in a request's first line: a client would tidy it before."""
    told: list[Any] = []
    path, _, query = raw.partition("?")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        told.append(message)

    scope = {
        "type": "http", "method": "GET", "scheme": "http", "server": ("lab", 80), "root_path": "",
        "headers": [(b"host", b"lab")], "path": unquote(path), "raw_path": path.encode(),
        "query_string": query.encode(),
    }  # fmt: skip
    asyncio.run(BEHIND.app(scope, receive, send))  # type: ignore[arg-type]
    return told[0]["status"], b"".join(part.get("body", b"") for part in told[1:]).decode()


PIECES = st.sampled_from(
    ["gradio_api", "queue", "join", "data", "file=", "file", "proxy=", "http://example.com", "/etc/passwd",
     "run", "predict", "api", "call", "v2", "judge", "upload", "heartbeat", "assets", "static", "svelte",
     "config", "lab", "record", "stream", "..", "%2e%2e", "x", ""]
)  # fmt: skip


@given(st.lists(PIECES, max_size=5), st.sampled_from(["/", "", "%2f", "?"]))
@example(["gradio_api", "file=", "/etc/passwd"], "/")
@example(["gradio_api", "proxy=", "http://example.com"], "/")
@example(["assets", "..", "config"], "/")
def test_no_path_reaches_a_file_or_an_address(pieces: list[str], between: str) -> None:
    path = "/" + between.join(pieces)
    if answered(path)[0] == 200:
        reached = unquote(path.partition("?")[0])
        assert ".." not in reached
        own = r"/(assets|static|svelte)/|/gradio_api/heartbeat/[^/]+$|/lab/record/[^/]+$"
        assert re.match(own, reached) or not re.search(r"file|proxy|http|etc", reached), reached


def test_every_answer_has_the_headers(client: TestClient) -> None:
    for path in ("/", "/gradio_api/info", "/lab/record/x"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'self'" in headers["content-security-policy"]
        assert "server" not in headers


@pytest.mark.parametrize(
    ("asked", "passed"),
    [
        ("page=x", ""), ("deep_link=abc&preset=math-3", "preset=math-3"), ("page", ""),
        ("preset=judge-all", "preset=judge-all"), ("pages=2&__theme=dark&page=", "pages=2&__theme=dark"),
    ],
)  # fmt: skip
def test_the_frameworks_own_pages_and_links_are_not_asked_for(asked: str, passed: str) -> None:
    assert labs_own(asked.encode()) == passed.encode()


def test_the_policy_lets_nothing_in_or_out() -> None:
    rules = dict(rule.split(" ", 1) for rule in policy().split("; "))
    assert rules["default-src"] == rules["form-action"] == rules["base-uri"] == "'self'"
    assert rules["object-src"] == rules["frame-src"] == "'none'"
    assert not re.search(r"https?:|\*", policy()), "no other host, anywhere"
    framed = policy(["https://huggingface.co", "https://*.hf.space"])
    assert framed.endswith("frame-ancestors 'self' https://huggingface.co https://*.hf.space")


def test_other_pages_are_refused(client: TestClient) -> None:
    for method in (client.get, client.post):
        assert method("/config", headers={"Origin": "https://example.com"}).status_code == 403
        assert method("/config", headers={"Origin": "null"}).status_code == 403
        assert method("/config", headers={"Origin": "http://lab"}).status_code == 200
    assert client.options("/config").status_code == 405
    assert client.put("/config").status_code == 405


def test_bodies_have_a_length_and_a_limit(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BODY", 100)
    monkeypatch.setattr(limits, "MOST_UPLOAD", 200)
    assert client.post("/gradio_api/queue/join", content=b"x" * 100).status_code == 200
    assert client.post("/gradio_api/queue/join", content=b"x" * 101).status_code == 413
    assert client.post("/gradio_api/upload", content=b"x" * 200).status_code == 200
    answer = client.post("/gradio_api/upload", content=b"x" * 201)
    assert (answer.status_code, "up to 200 are allowed" in answer.text) == (413, True)
    assert client.post("/gradio_api/upload", content=(b for b in [b"x"])).status_code == 411
    for wrong in ("-1", "9" * 400, "1e3"):
        assert client.post("/config", headers={"Content-Length": wrong}).status_code == 411


def test_uploads_of_an_hour_are_limited() -> None:
    now = 0.0
    counts = Counts(lambda: now)
    counts.uploads.each = 100_000
    client = app_of(counts=counts)
    assert [client.post("/gradio_api/upload", content=b"x" * 60).status_code for _ in range(2)] == [200, 503]
    assert counts.uploads.take("another address", 60), "each has its own, and a small file counts for 64 KiB"
    assert counts.uploads.used == 2 << 16
    now = limits.HOUR + 1
    assert client.post("/gradio_api/upload", content=b"x" * 60).status_code == 200


def test_a_full_disk_is_told() -> None:
    async def full(request: Request) -> PlainTextResponse:
        raise OSError(errno.ENOSPC, "No space left on device")

    routes = [Route("/{path:path}", full, methods=["GET", "POST"])]
    client = TestClient(Starlette(routes=routes, middleware=[Middleware(RequestGuard)]))
    answer = client.post("/gradio_api/upload", content=b"x")
    assert (answer.status_code, "No space left" in answer.text) == (507, True)


def test_a_body_that_cannot_be_read_is_told() -> None:
    async def broken(request: Request) -> PlainTextResponse:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    routes = [Route("/{path:path}", broken, methods=["GET", "POST"])]
    client = TestClient(Starlette(routes=routes, middleware=[Middleware(RequestGuard)]))
    answer = client.post("/gradio_api/queue/join", content=b"\xff")
    assert (answer.status_code, answer.text) == (400, "This is no call of the page.")


# -- offline mode ------------------------------------------------------------------------------------------


@pytest.fixture
def guard() -> Iterator[Guard]:
    found, before, GUARD.on = Guard(), GUARD.on, False
    found.start("192.168.7.7")
    yield found
    found.stop()
    GUARD.on = before


def test_offline_no_connection_leaves_this_machine(guard: Guard) -> None:
    with socket.socket() as one, pytest.raises(OSError, match="offline"):
        one.connect(("192.0.2.1", 9))
    with socket.socket(type=socket.SOCK_DGRAM) as one, pytest.raises(OSError, match="offline"):
        one.sendto(b"x", ("192.0.2.1", 9))
    with pytest.raises(OSError, match="offline"):
        socket.getaddrinfo("example.com", 443)
    with pytest.raises(OSError, match="offline"):
        socket.gethostbyname("example.com")
    assert guard.refused == 4


def test_offline_the_machine_itself_answers(guard: Guard) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        socket.create_connection(("localhost", server.getsockname()[1]), 5).close()
    assert guard.refused == 0
    guard.stop()
    socket.getaddrinfo("192.0.2.1", 80)
    assert guard.refused == 0


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("192.168.7.7", True),
        (None, True),
        ("0.0.0.0", True),
        (b"localhost", True),
        ("192.168.7.8", False),
        ("localhost.example.com", False),
        ("8.8.8.8", False),
        ("fe80::1%eth0", False),
        ("2130706433", False),
        ("127.0.0.1.nip.io", False),
        ("huggingface.co", False),
    ],
)
def test_what_is_this_machine(guard: Guard, host: Any, inside: bool) -> None:
    assert guard.inside(host) is inside


def test_local_models_are_known_by_their_names() -> None:
    assert all(map(is_local, ["embedded", "embedded+kvlink5", "./model", "/srv/model", "~/model"]))
    assert not any(map(is_local, ["meta-llama/Llama-3.2-1B", "Qwen/Qwen3-0.6B+links"]))


# -- secrets -----------------------------------------------------------------------------------------------


def test_secrets_are_hidden_in_text() -> None:
    environ = {
        "HF_TOKEN": "abcdefgh12345678",
        "MY_PASSWORD": "hunter22",
        "HOME": "/home/user",
        "X_TOKEN": "abc",
    }
    said = (
        "with abcdefgh12345678 and hunter22 from /home/user abc hf_ABCDEFGHIJKLMNOPQRST https://me:pw@host/x"
    )
    assert (
        redact(said, environ)
        == f"with {HIDDEN} and {HIDDEN} from /home/user abc {HIDDEN} https://{HIDDEN}@host/x"
    )


def test_a_log_holds_places_and_no_texts(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "abcdefgh12345678")
    logger = logging.getLogger("lab_app.test_discreet")
    logger.addFilter(Discreet())
    try:
        try:
            {}["what a visitor wrote"]
        except KeyError:
            raise ValueError("their secret question") from None
    except ValueError:
        logger.exception("a run failed with %s", "abcdefgh12345678")
    assert "visitor wrote" not in caplog.text
    assert "secret question" not in caplog.text
    assert "abcdefgh" not in caplog.text
    assert f"a run failed with {HIDDEN}" in caplog.text
    assert "test_request_guard.py" in caplog.text
    assert "ValueError" in caplog.text


def test_places_name_what_led_to_an_error() -> None:
    def fail() -> None:
        try:
            int("a text")
        except ValueError as error:
            raise RuntimeError("another text") from error

    with pytest.raises(RuntimeError) as caught:
        fail()
    said = places(caught.value)
    assert said.index("builtins.RuntimeError") < said.index("builtins.ValueError")
    assert "text" not in said
