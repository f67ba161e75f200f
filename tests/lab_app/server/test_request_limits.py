"""What strangers may ask for is counted, bounded and told; a session's name belongs to one browser."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from lab_app.app import build_app
from lab_app.server import request_limits as limits
from lab_app.server.heartbeats import Heartbeats
from lab_app.server.request_guard import RequestGuard
from lab_app.server.request_limits import Bound, Minute, Names, Open
from lab_app.visits.addresses import address_of

JOIN = "/gradio_api/queue/join"


class Doors:
    """The guard before an app that notes what reaches it; ``browser()`` is one with its own cookies."""

    def __init__(self, **options: Any) -> None:
        async def echo(request: Request) -> PlainTextResponse:
            self.reached.append(request.url.path)
            return PlainTextResponse(str(len(await request.body())))

        self.reached: list[str] = []
        inner = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])
        options = {"for_programs": lambda number: number == 7, **options}
        self.guard = RequestGuard(inner, **options)

    def browser(self, opens: bool = True) -> TestClient:
        found = TestClient(self.guard, base_url="http://lab")
        if opens:
            assert "HttpOnly; SameSite=Lax" in found.get("/").headers["set-cookie"]
            assert "set-cookie" not in found.get("/").headers, "it is known now"
        return found


def call(client: TestClient, name: object = "mine", number: int = 1, path: str = JOIN) -> int:
    body = {"data": [], "fn_index": number, "session_hash": name}
    return client.post(path, json=body).status_code


def test_a_session_needs_a_page_that_was_opened() -> None:
    doors = Doors()
    stranger, visitor = doors.browser(opens=False), doors.browser()
    answer = stranger.post(JOIN, json={"data": [], "fn_index": 1, "session_hash": "made-up"})
    assert (answer.status_code, "reload" in answer.json()["detail"]) == (403, True)
    stranger.cookies.set("kvlab-80", visitor.cookies["kvlab-80"][:-1] + "x")
    assert call(stranger) == 403, "a signature of somebody else's"
    assert JOIN not in doors.reached
    assert call(visitor) == 200
    assert call(stranger, "a-program-of-mine", 7) == 200, "an endpoint for programs"


def test_a_session_belongs_to_the_browser_that_began_it() -> None:
    doors = Doors()
    one, two = doors.browser(), doors.browser()
    assert call(one) == 200
    assert [call(two), call(two, path="/gradio_api/cancel"), call(doors.browser(False), number=7)] == [
        403
    ] * 3
    for path in ("/gradio_api/queue/data?session_hash=mine", "/gradio_api/heartbeat/mine"):
        assert two.get(path).status_code == 403
    assert one.get("/gradio_api/queue/data?session_hash=mine").status_code == 200
    assert call(two, "x" * 129) == call(two, "a b") == 400


def test_new_sessions_are_bounded_by_address_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    names = Names(lambda: now)
    assert sum(names.take(f"a{n}", "b", "1.1.1.1") for n in range(200)) == limits.SESSIONS.each
    assert names.take("a0", "b", "1.1.1.1"), "one that is known is not new"
    others = sum(names.take(f"{n}", "b", f"2.2.2.{n % 250}") for n in range(2000))
    assert others == limits.SESSIONS.together - limits.SESSIONS.each
    now = limits.MINUTE
    assert names.take("later", "b", "1.1.1.1")
    monkeypatch.setattr(limits, "MOST_NAMES", 10)
    names.take("last", "b", "3.3.3.3")
    assert len(names._owners) == 10


def test_too_many_new_sessions_are_told() -> None:
    doors = Doors()
    visitor = doors.browser()
    doors.guard.counts.names.made.bound = Bound(2, 9)
    assert [call(visitor, f"tab-{n}") for n in range(3)] == [200, 200, 429]
    assert visitor.post("/gradio_api/call/v2/run", json={}).status_code == 429, "each is a session too"


def test_calls_of_a_minute_are_bounded() -> None:
    doors = Doors()
    visitor = doors.browser()
    doors.guard.counts.calls = Minute(Bound(3, 9))
    assert [call(visitor) for _ in range(4)] == [200, 200, 200, 429]


def test_what_a_body_unfolds_to_is_bounded() -> None:
    doors = Doors()
    visitor = doors.browser()
    body = b'{"session_hash": "mine", "data": [' + b"[]," * limits.MOST_VALUES + b"0]}"
    answer = visitor.post(JOIN, content=body)
    assert (answer.status_code, "up to 200,000" in answer.json()["detail"]) == (413, True)
    assert visitor.post(JOIN, content=b"[" * 1000).status_code == 413
    assert JOIN not in doors.reached
    good = b'{"session_hash": "mine", "data": ["' + b"[" * 1000 + b'"]}'
    assert visitor.post(JOIN, content=good).text == str(len(good)), "it arrives whole"


def test_what_is_open_is_bounded_by_address_and_in_all() -> None:
    opened = Open(Bound(2, 3))
    assert [opened.enter("a") for _ in range(3)] == [True, True, False]
    assert [opened.enter("b") for _ in range(2)] == [True, False]
    opened.leave("a")
    assert opened.enter("b")
    for address in ("a", "b", "b"):
        opened.leave(address)
    assert not opened.counted, "nothing is kept of who has left"


def test_too_much_at_once_is_told_and_health_is_answered() -> None:
    doors = Doors()
    visitor = doors.browser()
    doors.guard.counts.open[limits.ANSWERS].bound = Bound(0, 0)
    answer = visitor.get("/config")
    assert (answer.status_code, "Try again" in answer.text or "try again" in answer.text) == (503, True)
    doors.guard._opened = [Route("/healthz", lambda request: None).path_regex]  # type: ignore[arg-type,return-value]
    assert visitor.get("/healthz").status_code == 200
    assert not any(kind.counted for kind in doors.guard.counts.open.values())


def test_a_body_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.01)
    doors, said = Doors(), []
    visitor = doors.browser()
    del visitor

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "method": "POST", "scheme": "http", "server": ("lab", 80), "root_path": "",
        "headers": [(b"host", b"lab"), (b"content-length", b"9")], "path": JOIN, "raw_path": JOIN.encode(),
        "query_string": b"",
    }  # fmt: skip
    asyncio.run(doors.guard(scope, receive, send))
    assert (said[0]["status"], b"did not arrive" in said[1]["body"]) == (408, True)
    assert not doors.guard.counts.open[limits.ANSWERS].counted


def test_a_heartbeat_makes_no_session_and_both_its_ends_are_noticed() -> None:
    seen: list[str] = []
    ended = asyncio.Event()
    ended.set()
    beats = Heartbeats(lambda tab: seen.append(f"+{tab}"), lambda tab: seen.append(f"-{tab}"), lambda: ended)
    doors = Doors(heartbeats=beats)
    assert doors.browser(opens=False).get("/gradio_api/heartbeat/tab-1").status_code == 200
    assert seen == ["+tab-1", "-tab-1"]
    assert doors.reached == [], "the framework hears nothing of it"
    assert not doors.guard.counts.open[limits.STREAMS].counted
    assert not doors.guard.counts.names._owners


def test_cookies_in_frames_of_other_pages_are_kept_apart() -> None:
    client = TestClient(Doors().guard, base_url="https://lab")
    assert client.get("/").headers["set-cookie"].endswith("SameSite=None; Secure; Partitioned")
    assert "set-cookie" not in client.get("/theme.css").headers


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("2001:db8::1", "2001:db8::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("unix", "unix"),
    ],
)
def test_an_address_of_ipv6_is_its_network(host: str, address: str) -> None:
    assert address_of(host) == address


@pytest.mark.slow
def test_a_session_copies_no_description_of_the_page() -> None:
    from fake_session import FakeModel, FakeSession
    from gradio.state_holder import SessionState

    blocks = build_app(FakeModel, engine=lambda model: FakeSession(model), first_run=None).blocks
    made = SessionState(blocks)
    assert len(blocks.get_config_file()["components"]) > 300
    assert not any(made.config_values.values())
    assert made.blocks_config.blocks == blocks.blocks
    assert made.blocks_config.blocks is not blocks.blocks, "what a session changes is its own"


def test_a_full_lab_sends_visitors_to_the_static_one() -> None:
    doors = Doors(static_lab="https://example.org/lab/")
    for answers in doors.guard.counts.open.values():
        answers.enter = lambda address: False  # type: ignore[method-assign]
    page = doors.browser(opens=False).get("/")
    assert page.status_code == 503
    assert '<a href="https://example.org/lab/">' in page.text
    assert "<a" not in doors.browser(opens=False).get("/config").text
    places = Doors(static_lab="https://example.org/lab/", full=lambda: True)
    page = places.browser(opens=False).get("/")
    assert (page.status_code, page.headers["retry-after"], places.reached) == (503, "60", [])
    assert Doors(full=lambda: True).browser(opens=False).get("/").status_code == 200, "without one it is told"
