"""The page's HTML, rendered once: the framework copies and renders a megabyte of it for every visitor."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

KEPT = 8  # addresses under which the lab is reached; a hostile Host header takes no more
SAYS_ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")
Key = tuple[str, ...]


class KeptIndex:
    """Answers ``GET /`` from memory. The HTML differs by the address it was asked under and by nothing else:
    what belongs to a visit comes with its first event."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._kept: OrderedDict[Key, list[Message]] = OrderedDict()
        self._rendering = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        if "deep_link" in request.query_params:  # the framework's own links, which carry a page of theirs
            await self.app(scope, receive, send)
            return
        key = address(request)
        if key not in self._kept:
            async with self._rendering:  # visitors who come together wait for one rendering
                if key not in self._kept:
                    await self._render(key, scope, receive, send)
                    return
        self._kept.move_to_end(key)
        for message in self._kept[key]:
            await send(message)

    async def _render(self, key: Key, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the framework answer, and keep what it said if it went well."""
        said: list[Message] = []

        async def listen(message: Message) -> None:
            said.append(dict(message))
            await send(message)

        await self.app(scope, receive, listen)
        if said and said[0].get("status") == 200 and not said[-1].get("more_body", False):
            self._kept[key] = said
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def address(request: Request) -> Key:
    """What the framework builds its own addresses from: the host, and what proxies say of theirs."""
    told = (request.headers.get(name, "") for name in SAYS_ADDRESS)
    return (request.scope["scheme"], request.scope.get("root_path", ""), *told)
