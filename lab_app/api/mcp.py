"""The lab's calls as tools of an MCP server, for programs that let a language model use tools. Off by
default.

Needs the package ``mcp`` (``pip install 'kv-reuse-lab[mcp]'``). Every call is one request without a session
and has a visit of its own. The framework's own MCP server would send all calls through one session, where
callers could find one another's texts."""

import contextlib
import inspect
import json
from collections.abc import AsyncIterator
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from backend import __version__
from backend.base.errors import OptionError
from lab_app.api.callers import Caller, Callers
from lab_app.api.gradio_endpoints import steps
from lab_app.api.responses import Body
from lab_app.api.tasks import ENDPOINTS
from lab_app.ui import text
from lab_app.visits.visits import VisitStore

PATH = "/mcp"


class Tools:
    """An MCP server (streamable HTTP, without sessions) whose tools are the lab's endpoints.

    Raises:
        OptionError: the package ``mcp`` is not installed.
    """

    def __init__(self, lab: VisitStore, callers: Callers) -> None:
        try:
            from mcp.server.lowlevel import Server
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        except ImportError:
            raise OptionError(
                "--mcp needs the package mcp, which is not installed. Install it: pip install "
                "'mcp>=1.21,<2'.",
                field="mcp",
            ) from None
        self.lab, self.callers = lab, callers
        self.server: Any = Server(text.TITLE, version=__version__, instructions=text.MCP_INSTRUCTIONS)
        self.server.list_tools()(self.tools)  # type: ignore[no-untyped-call]
        # Parameters are checked by the call itself, whose messages say what to do.
        self.server.call_tool(validate_input=False)(self.call)
        self.manager = StreamableHTTPSessionManager(self.server, stateless=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to :data:`PATH`."""
        if scope["method"] != "POST":
            await PlainTextResponse(text.MCP_POST, status_code=405)(scope, receive, send)
            return
        await self.manager.handle_request(scope, receive, send)

    def route(self) -> Route:
        """Where it is found."""
        return Route(PATH, self)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """As long as the server runs."""
        async with self.manager.run():
            yield

    async def tools(self) -> list[Any]:
        """Every tool with its parameters."""
        from mcp.types import Tool

        return [
            Tool(name=name, description=inspect.getdoc(work), inputSchema=kind.model_json_schema())
            for name, (work, kind) in ENDPOINTS.items()
        ]

    async def call(self, name: str, arguments: dict[str, Any]) -> list[Any]:
        """Run one tool. An exception's message becomes the tool's error."""
        from mcp.types import TextContent

        if name not in ENDPOINTS:
            raise OptionError(f"There is no tool {name[:40]!r}; there are {', '.join(ENDPOINTS)}. Name one.")
        context = self.server.request_context
        request: Request | None = context.request
        address = request.client.host if request is not None and request.client is not None else ""
        token = context.meta.progressToken if context.meta is not None else None
        events = steps(self.lab, self.callers, name, arguments, Caller(address=address))
        answer: Body = {}
        try:
            count = 0
            while (step := await anyio.to_thread.run_sync(next, events, None)) is not None:
                answer, count = step, count + 1
                if request is not None and await request.is_disconnected():
                    break  # nobody listens any more, so the work is stopped
                if token is not None and "said" in step:
                    await context.session.send_progress_notification(
                        token,
                        float(count),
                        message=str(step["said"]),
                        related_request_id=str(context.request_id),
                    )
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(events.close)  # type: ignore[attr-defined]
        return [TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))]
