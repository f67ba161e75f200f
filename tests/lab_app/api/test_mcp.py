"""The lab's calls as tools: off by default, and for MCP clients the same calls."""

from __future__ import annotations

import asyncio
import builtins
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fake_session import FakeModel, FakeSession

from backend.base.errors import OptionError
from lab_app.api.callers import Callers
from lab_app.api.mcp import PATH, Tools
from lab_app.api.tasks import ENDPOINTS
from lab_app.app import build_app
from lab_app.cli.main import commands
from lab_app.server.serve import launch
from lab_app.visits.visits import VisitStore

# Gradio's queue reads its own statistics in ways that pandas has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[VisitStore, str]]:
    """A lab that answers MCP clients."""
    pytest.importorskip("mcp", reason="the package mcp, which --mcp needs, is not installed")
    found: list[VisitStore] = []

    def build(*given: Any, **more: Any) -> Any:
        app = build_app(*given, **more)
        found.append(app.lab)
        return app

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lab_app.server.serve.build_app", build)
        blocks, address = launch(
            FakeModel, "127.0.0.1", 0, block=False, first_run=None, mcp=True,
            engine=lambda model: FakeSession(model, 0.02),
        )  # fmt: skip
    yield found[0], address.rstrip("/")
    blocks.close(verbose=False)


def with_client(address: str, ask: Any) -> Any:
    """What ``ask`` makes of a client's session."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    async def speak() -> Any:
        async with (
            streamable_http_client(address + PATH) as (read, write, _),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await ask(session)

    return asyncio.run(speak())


@pytest.mark.slow
def test_the_tools_are_the_endpoints(served: tuple[VisitStore, str]) -> None:
    async def ask(session: Any) -> Any:
        return (await session.list_tools()).tools, await session.call_tool("presets", {})

    tools, answer = with_client(served[1], ask)
    assert {tool.name for tool in tools} == set(ENDPOINTS)
    run = next(tool for tool in tools if tool.name == "run")
    assert run.inputSchema["properties"]["preset"]["default"] == "math-3"
    assert "dense and with each method" in run.description
    assert not answer.isError
    assert json.loads(answer.content[0].text)["presets"]


@pytest.mark.slow
def test_a_tool_works_with_progress_and_every_call_for_itself(served: tuple[VisitStore, str]) -> None:
    lab, address = served
    said: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        said.append(message or "")

    async def ask(session: Any) -> Any:
        first = await session.call_tool("run", {"methods": ["naive"]}, progress_callback=heard)
        second = await session.call_tool("run", {"values": {"user_question": "canary-of-the-second"}})
        return [json.loads(answer.content[0].text) for answer in (first, second)]

    one, two = with_client(address, ask)
    assert (one["status"], two["status"]) == ("done", "done")
    assert said
    assert httpx.get(f"{address}/{one['record']}", timeout=60).status_code == 200
    asked = [[str(dict(r.values)) for r in v.engine.requests] for v in lab.visits]  # type: ignore[attr-defined]
    assert all(len(texts) == 1 for texts in asked), "no call finds another's session"
    assert sum("canary" in text for texts in asked for text in texts) == 1


@pytest.mark.slow
def test_a_wrong_call_of_a_tool_is_told(served: tuple[VisitStore, str]) -> None:
    async def ask(session: Any) -> Any:
        calls = (("run", {"preset": "x"}), ("run", {"prset": "x"}), ("no-tool", {}), ("judge", {}))
        return [await session.call_tool(name, given) for name, given in calls]

    answers = with_client(served[1], ask)
    assert all(answer.isError for answer in answers)
    said = [answer.content[0].text for answer in answers]
    assert "There is no scenario 'x'" in said[0]
    assert "There is no parameter prset" in said[1]
    assert "no-tool" in said[2]
    assert "The parameter question is missing" in said[3]
    assert "Traceback" not in " ".join(said)


@pytest.mark.slow
def test_only_calls_of_this_page_or_of_programs_are_taken(served: tuple[VisitStore, str]) -> None:
    with httpx.Client(base_url=served[1], timeout=60) as http:
        assert http.get(PATH).status_code == 405
        assert (
            http.post(PATH, json=CALL, headers=ACCEPT | {"Origin": "https://example.com"}).status_code == 403
        )
        assert http.post(PATH + "/more", json=CALL, headers=ACCEPT).status_code == 403
        assert http.post("/gradio_api/mcp/", json=CALL, headers=ACCEPT).status_code == 403


@pytest.mark.slow
def test_without_the_switch_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADIO_MCP_SERVER", "true")  # the framework's own switch does nothing here
    assert commands().commands["serve"].make_context("serve", []).params["mcp"] is False
    blocks, address = launch(FakeModel, "127.0.0.1", 0, block=False, first_run=None, engine=FakeSession)
    try:
        with httpx.Client(base_url=address, timeout=60) as http:
            for path in (PATH, "/gradio_api/mcp", "/gradio_api/mcp/", "/gradio_api/mcp/sse"):
                answer = http.post(path, json=CALL, headers=ACCEPT)
                assert (answer.status_code, answer.text) == (403, "This door is closed."), path
                assert http.get(path).status_code == 403
    finally:
        blocks.close(verbose=False)


def test_without_its_package_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def absent(name: str, *given: Any, **more: Any) -> Any:
        if name.split(".")[0] == "mcp":
            raise ImportError(name)
        return known(name, *given, **more)

    monkeypatch.setattr(builtins, "__import__", absent)
    lab = VisitStore(FakeModel, FakeSession)
    with pytest.raises(OptionError, match="needs the package mcp"):
        Tools(lab, Callers(lab))
