"""The configuration for ``gradio_client``: the endpoints that programs call, without the page.

The framework's client reads the configuration of the whole page, and looks every widget of every event up in
it: half a minute of work on a busy machine, to find five endpoints."""

from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

CLIENT = "gradio_client/"  # how it names itself
PATHS = ("/config", "/config/")


def short(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the framework's configuration that has to do with documented endpoints."""
    events = [event for event in config["dependencies"] if event.get("api_visibility") == "public"]
    used = {number for event in events for number in (*event["inputs"], *event["outputs"])}
    parts = [part for part in config["components"] if part["id"] in used]
    left_out = ("components", "dependencies", "layout", "page", "css", "js", "head", "theme")
    rest = {key: value for key, value in config.items() if key not in left_out}
    return rest | {"components": parts, "dependencies": events}


def asks(request: Request) -> bool:
    """Whether the framework's client sent this."""
    return request.method == "GET" and request.headers.get("user-agent", "").startswith(CLIENT)


class ClientConfig:
    """Answers the client's ``GET /config``; every other request goes on.

    Args:
        app: the framework.
        config: gives its configuration, once it serves.
    """

    def __init__(self, app: ASGIApp, config: Callable[[], Mapping[str, Any]]) -> None:
        self.app, self._config = app, config

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] == "http" and scope["path"] in PATHS and asks(Request(scope)):
            await JSONResponse(short(self._config()))(scope, receive, send)
            return
        await self.app(scope, receive, send)
