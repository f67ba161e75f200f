"""A cache of the page's HTML, a megabyte that the framework would render for every visitor.

The early page, shown until the framework's own scripts have run, is written into it here.
"""

import asyncio
import gzip
from collections import OrderedDict

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lab_app.server.placeholder_page import with_early_page

MOST_ADDRESSES = 8  # addresses under which the lab is reached; a hostile Host header takes no more
SAYS_ADDRESS = ("host", "x-forwarded-host", "x-forwarded-proto", "x-gradio-server")
Key = tuple[str, ...]
Answers = tuple[list[Message], list[Message]]  # plain and compressed


class IndexCache:
    """Answers ``GET /`` from memory. The HTML depends on the requested address alone: what belongs to a
    visit comes with its first event.

    Args:
        app: the framework.
        early: HTML to show until the framework's scripts have run.
    """

    def __init__(self, app: ASGIApp, early: str = "") -> None:
        self.app = app
        self._early = early.encode()
        self._answers: OrderedDict[Key, Answers] = OrderedDict()
        self._rendering = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass the request on."""
        if scope["type"] != "http" or scope["path"] != "/" or scope["method"] != "GET":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        if "deep_link" in request.query_params:  # the framework's saved links have pages of their own
            for message in (await self._render(None, scope, receive))[zipped]:
                await send(message)
            return
        key = address(request)
        if key not in self._answers:
            async with self._rendering:  # visitors who come together wait for one rendering
                if key not in self._answers:
                    messages = await self._render(key, scope, receive)
                    for message in messages[zipped]:
                        await send(dict(message))
                    return
        self._answers.move_to_end(key)
        for message in self._answers[key][zipped]:
            await send(dict(message))

    async def _render(self, key: Key | None, scope: Scope, receive: Receive) -> Answers:
        """Let the framework answer and add the early page; cache it under ``key`` if it succeeded."""
        messages: list[Message] = []

        async def listen(message: Message) -> None:
            messages.append(dict(message))

        await self.app(scope, receive, listen)
        if not messages or messages[0].get("status") != 200 or messages[-1].get("more_body", False):
            return messages, messages
        if any(name.lower() == b"content-encoding" for name, _ in messages[0]["headers"]):
            made = messages, messages
        else:
            whole = b"".join(message.get("body", b"") for message in messages[1:])
            whole = with_early_page(whole, self._early)
            made = (
                answer(messages[0], whole),
                answer(messages[0], gzip.compress(whole, 6, mtime=0), zipped=True),
            )
        if key is not None:
            self._answers[key] = made
        while len(self._answers) > MOST_ADDRESSES:
            self._answers.popitem(last=False)
        return made


def answer(start: Message, body: bytes, *, zipped: bool = False) -> list[Message]:
    """An answer as ``start`` began it, with another body."""
    replaced = (b"content-length", b"vary")
    headers = [(name, value) for name, value in start["headers"] if name.lower() not in replaced]
    headers += [(b"content-length", str(len(body)).encode()), (b"vary", b"Accept-Encoding")]
    if zipped:
        headers.append((b"content-encoding", b"gzip"))
    return [{**start, "headers": headers}, {"type": "http.response.body", "body": body}]


def address(request: Request) -> Key:
    """What the framework builds addresses from: scheme, path, host and the proxies' headers."""
    headers = (request.headers.get(name, "") for name in SAYS_ADDRESS)
    return (request.scope["scheme"], request.scope.get("root_path", ""), *headers)
