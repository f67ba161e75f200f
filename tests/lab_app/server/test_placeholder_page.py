"""The page before the framework has come to life: what it shows, and that what a press on it means."""

from __future__ import annotations

import asyncio
import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from fake_record import make_record
from fake_session import FakeModel, FakeSession

from lab_app.app import App, build_app
from lab_app.server.index_cache import IndexCache
from lab_app.server.placeholder_page import early_page, with_early_page


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> App:
    folder = tmp_path_factory.mktemp("early")
    first = make_record(layers=4).save(folder / "first.kvrun")
    return build_app(FakeModel, engine=FakeSession, first_run=first, gallery=folder / "none.json")


@pytest.mark.slow
def test_the_first_run_is_in_the_document_itself(app: App) -> None:
    early = early_page(app.page, app.navigation)
    for part in ("kv-topbar", "kv-nav", "What would repair it", "kv-cell", "tokens to read", "kv-early-run"):
        assert part in early, part
    assert 'href="lab/app.css"' in early.split("<div")[0], "the styles come first"


def test_every_press_on_it_means_a_widget_of_the_page(app: App) -> None:
    there = {c["props"].get("elem_id") for c in app.blocks.config["components"]}
    there |= {node.look.get("id") for fields in app.page.fields.values() for node in fields.nodes.values()}
    early = early_page(app.page, app.navigation)
    meant = re.findall(r'data-stands="#([\w-]+)', early)
    assert {"kv-run", "kv-preset", "kv-value-0", "kv-methods"} <= set(meant)
    assert set(meant) <= there
    own = [name for name in re.findall(r' id="(kv-[\w-]+)"', early) if name in there]
    assert own == [], "no name of a widget stands on the page twice"


def test_it_stands_before_the_frameworks_root() -> None:
    assert with_early_page(b"<body><gradio-app></gradio-app>", b"E") == b"<body>E<gradio-app></gradio-app>"
    assert with_early_page(b"<p>an error</p>", b"E") == b"<p>an error</p>"


class Framework:
    """Answers with a page of two parts."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"25")]})
        await send({"type": "http.response.body", "body": b"<body><gradio-", "more_body": True})
        await send({"type": "http.response.body", "body": b"app></body>"})


def ask(app: Any, query: bytes = b"", *headers: tuple[bytes, bytes]) -> tuple[dict[bytes, bytes], bytes]:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": query, "scheme": "http",
        "headers": [(b"host", b"a"), *headers],
    }  # fmt: skip
    asyncio.run(app(scope, None, send))
    return dict(said[0]["headers"]), b"".join(m.get("body", b"") for m in said)


def test_the_document_is_sent_compressed_to_who_can_read_it() -> None:
    app = IndexCache(Framework(), early="<p>seen</p>")
    whole = b"<body><p>seen</p><gradio-app></body>"
    for query in (b"", b"", b"deep_link=x"):
        headers, body = ask(app, query)
        assert (body, headers[b"content-length"]) == (whole, str(len(whole)).encode())
        assert b"content-encoding" not in headers
        headers, body = ask(app, query, (b"accept-encoding", b"br, gzip"))
        assert headers[b"content-encoding"] == b"gzip"
        assert gzip.decompress(body) == whole
        assert headers[b"content-length"] == str(len(body)).encode()


def test_the_styles_are_served(tmp_path: Path) -> None:
    from starlette.requests import Request

    from lab_app.server import downloads as web

    routes = {route.path: route.endpoint for route in web.routes(lab=None, forms={})}  # type: ignore[arg-type]
    css = routes["/lab/app.css"](Request({"type": "http", "headers": []})).body.decode()
    assert "body.kv-early-seen > gradio-app" in css
