"""Decides which requests reach the web framework, and adds headers to every answer.

Of the framework's some fifty routes those that the page needs are named here. All others are closed, among
them those that fetch an address, serve files of the server, run a handler outside the queue, or list what
others did. Open routes are counted and limited by address (:mod:`lab_app.server.request_limits`). A session's
name is accepted from browsers that opened the page, and for the endpoints that programs call.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.base.bounded_json import excess
from backend.base.redaction import places
from lab_app.server import request_limits as limits
from lab_app.server.browsers import Browsers
from lab_app.server.heartbeats import Heartbeats
from lab_app.server.request_limits import Counts
from lab_app.visits.addresses import address_of
from viz.base.html import html

LOG = logging.getLogger("lab_app")
API = "/gradio_api/"
#: The page itself and what it is made of; what its script sends and reads.
ALLOWED_PATHS = re.compile(
    r"/(config/?|theme\.css|favicon\.ico|robots\.txt|manifest\.json"
    r"|(assets|static|svelte)/[^/].*"
    r"|gradio_api/(queue/join|queue/data|heartbeat/[^/]+|upload|upload_progress|cancel|reset/?|startup-events))?"
)
#: What programs call: these endpoints by name, an answer by the call's number, and what parameters they have.
API_PATHS = re.compile(r"/gradio_api/(info|call/(v2/)?(run|judge|methods|presets|model)(/[0-9a-f]{32})?)")
#: How the framework says that a call has a parameter too many or too few.
WRONG_PARAMETER = re.compile(r"Parameter `([A-Za-z0-9_]{1,40})`|No value provided for .*: ([a-z_]{1,40})$")
#: Parameters of an address by which the framework chooses among its own pages and saved links.
FRAMEWORKS = (b"page", b"deep_link")
HEARTBEAT = API + "heartbeat/"
UPLOAD = API + "upload"
JOIN = API + "queue/join"
#: Answers that stay open as long as the client listens, and those that are made for each request.
STREAMS = re.compile(r"/gradio_api/(heartbeat/.*|queue/data|upload_progress|call/.*/[0-9a-f]{32})|/mcp")
DOWNLOADS = re.compile(r"/lab/(record|measured|sweep|bundle|report)/.*")
BOUNDS = ((STREAMS, limits.STREAMS), (DOWNLOADS, limits.DOWNLOADS))
NAME = re.compile(rf"[A-Za-z0-9_.-]{{1,{limits.MOST_NAME}}}")
BUSY = (
    "Too much is open at once from your address or on this lab. Close some pages, or try again in a minute."
)
ELSEWHERE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>KV Reuse Lab: busy</title><p>{}</p>'
    '<p>Recorded runs, the tour and the papers’ tables: <a href="{}">the static lab</a>.</p></html>'
)
MANY_CALLS = "Too many calls came from your address or to this lab within a minute. Wait a minute."
MANY_PAGES = (
    "Too many pages were opened from your address or on this lab within a minute. Wait a minute, reload."
)
NOT_OPENED = "The lab does not know this page: it was restarted, or cookies are off. Allow them, and reload."
NOT_YOURS = "This session belongs to another browser. Reload the page."


def policy(frame_ancestors: Sequence[str] = ()) -> str:
    """The content security policy: nothing is loaded from elsewhere or sent there.

    The framework's page has scripts and styles in line and compiles its templates, so these stay allowed;
    escaping has to prevent that text becomes script.

    Args:
        frame_ancestors: pages that may show the lab in a frame, beside its own.
    """
    return "; ".join(
        (
            "default-src 'self'",
            "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self' data: blob:",
            "worker-src 'self' blob:",
            "frame-src 'none'",
            "object-src 'none'",
            "base-uri 'self'",
            "form-action 'self'",
            " ".join(("frame-ancestors 'self'", *frame_ancestors)),
        )
    )


HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}


class RequestGuard:
    """ASGI middleware: refuses what is closed, too much or from another page, and adds the headers.

    Args:
        app: the framework.
        frame_ancestors: see :func:`policy`.
        opened: further open paths, those of the lab's own routes (``Route.path_regex``).
        heartbeats: answers tabs' heartbeats.
        for_programs: whether the event of a number is one that programs may call, without having opened the
            page.
        static_lab: address of the static lab, where visitors are sent while this one is full.
        full: whether every place is taken.
        counts: of open requests, calls, sessions and uploads.
    """

    def __init__(
        self,
        app: ASGIApp,
        frame_ancestors: Sequence[str] = (),
        opened: Sequence[re.Pattern[str]] = (),
        heartbeats: Heartbeats | None = None,
        for_programs: Callable[[object], bool] = lambda number: False,
        static_lab: str = "",
        full: Callable[[], bool] = lambda: False,
        counts: Counts | None = None,
    ) -> None:
        self.app, self._opened = app, opened
        self._heartbeats, self._for_programs = heartbeats or Heartbeats(), for_programs
        self._headers = HEADERS | {"Content-Security-Policy": policy(frame_ancestors)}
        self._static_lab, self._full = static_lab, full
        self.browsers, self.counts = Browsers(), counts or Counts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say why not."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request, path = Request(scope), scope["path"]
        fresh = path in ("/", "/config") and not self.browsers.id_of(request)
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, message = True, dict(message)  # a cached message is sent again
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                for name in ("server", "x-powered-by"):
                    del headers[name]
                if fresh:
                    headers.append("set-cookie", self.browsers.cookie(request))
            await send(message)

        if path in ("/", "/config"):
            scope["query_string"] = labs_own(scope["query_string"])
        address = address_of(request.client.host if request.client else "")
        refused = self.refusal(request, address)
        if refused is not None:
            await refused(scope, receive, answer)
            return
        kind = next((bound for paths, bound in BOUNDS if paths.fullmatch(path)), limits.ANSWERS)
        full = path == "/" and self._static_lab and self._full()
        if full or (path != "/healthz" and not self.counts.open[kind].enter(address)):
            await self._busy(path)(scope, receive, answer)
            return
        try:
            async with asyncio.timeout(None if kind is limits.STREAMS else limits.ANSWER_SECONDS):
                await self._let_in(request, address, receive, answer)
        except TimeoutError:
            LOG.warning("an answer to %s was not taken in time", path)  # the server closes the connection
        except Exception as error:
            # Handlers run in the queue and report their own errors; this one came while the framework read
            # the request.
            if started or request.method != "POST":
                raise
            LOG.warning("a request to %s was not read:\n%s", path, places(error))
            await bad_request(error, path)(scope, receive, answer)
        finally:
            if path != "/healthz":
                self.counts.open[kind].leave(address)

    def _busy(self, path: str) -> Response:
        """The refusal while too much is open; for the page itself with a link to the static lab, if any."""
        if path == "/" and self._static_lab:
            wait = {"Retry-After": "60", "Cache-Control": "no-store"}
            return HTMLResponse(html(ELSEWHERE, BUSY, self._static_lab), status_code=503, headers=wait)
        return refusal(BUSY, 503, path)

    async def _let_in(self, request: Request, address: str, receive: Receive, send: Send) -> None:
        """Check the request's session and the size of its body, and pass it on."""
        scope, path = request.scope, request.scope["path"]
        refused: Response | None = None
        if request.method == "POST" and path not in (UPLOAD, "/mcp"):
            try:
                async with asyncio.timeout(limits.BODY_SECONDS):
                    content = await Request(scope, receive).body()
            except TimeoutError:
                late = f"The body did not arrive within {limits.BODY_SECONDS:.0f} s. Send it again."
                await refusal(late, 408, path)(scope, receive, send)
                return
            refused = self._call(request, address, content)
            receive = again(content, receive)
        elif path.startswith(HEARTBEAT) or path == API + "queue/data":
            name = request.query_params.get("session_hash") or path.removeprefix(HEARTBEAT)
            if not self.counts.names.belongs(name, self.browsers.id_of(request)):
                refused = refusal(NOT_YOURS, 403, path)
        if refused is not None:
            await refused(scope, receive, send)
        elif path.startswith(HEARTBEAT):
            await self._heartbeats.answer(path.removeprefix(HEARTBEAT), scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _call(self, request: Request, address: str, content: bytes) -> Response | None:
        """The refusal of a call, or None; then its session belongs to the browser from now on."""
        path, browser = request.scope["path"], self.browsers.id_of(request)
        if not self.counts.calls.ask(address):
            return refusal(MANY_CALLS, 429, path)
        if over := excess(content, limits.MOST_BODY, limits.MOST_VALUES):
            return refusal(f"The body {over}. Send less.", 413, path)
        try:
            body: Any = json.loads(content)
        except (ValueError, RecursionError):
            return None  # the framework says so
        name = body.get("session_hash") if isinstance(body, dict) else None
        if name is None:  # a program's call for itself, which is a session of its own
            return None if self.counts.names.new(address) else refusal(MANY_PAGES, 429, path)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            return refusal("This is no name of a session: letters and digits, up to 128.", 400, path)
        if not self.counts.names.belongs(name, browser):
            return refusal(NOT_YOURS, 403, path)
        if not browser and path in (JOIN, API + "cancel") and not self._for_programs(body.get("fn_index")):
            return refusal(NOT_OPENED, 403, path)
        return None if self.counts.names.take(name, browser, address) else refusal(MANY_PAGES, 429, path)

    def refusal(self, request: Request, address: str = "") -> PlainTextResponse | None:
        """The answer to a request that is refused, or None."""
        path = unquote(unquote(request.url.path))
        plain = ".." not in path.split("/") and "\\" not in path and "\x00" not in path
        allowed = (
            ALLOWED_PATHS.fullmatch(path)
            or API_PATHS.fullmatch(path)
            or any(pattern.match(path) for pattern in self._opened)
        )
        if not plain or not allowed or "all_endpoints" in request.query_params:
            return PlainTextResponse("This door is closed.", status_code=403)
        if foreign(request.headers):
            return PlainTextResponse("Requests from other pages are refused.", status_code=403)
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("The lab knows GET, HEAD and POST.", status_code=405)
        return self._too_large(request, path, address) if request.method == "POST" else None

    def _too_large(self, request: Request, path: str, address: str) -> PlainTextResponse | None:
        length = request.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            return PlainTextResponse("Say how long the body is (Content-Length).", status_code=411)
        most = limits.MOST_UPLOAD if path == UPLOAD else limits.MOST_BODY
        if int(length) > most:
            large = f"The body has {int(length):,} bytes; up to {most:,} are allowed. Send less."
            return PlainTextResponse(large, status_code=413)
        if path == UPLOAD and not self.counts.uploads.take(address, int(length)):
            many = "Many files were sent from your address or to this lab within an hour. Try again later."
            return PlainTextResponse(many, status_code=503)
        return None


def labs_own(query: bytes) -> bytes:
    """The query without the framework's pages and saved links: the lab has none, and an unknown one would end
    in an error of the server."""
    parts = [part for part in query.split(b"&") if part.split(b"=")[0] not in FRAMEWORKS]
    return b"&".join(parts)


def refusal(message: str, status: int, path: str) -> Response:
    """A refusal; the page's script shows what stands under *detail*."""
    if path == JOIN:
        return JSONResponse({"detail": message}, status_code=status)
    return PlainTextResponse(message, status_code=status)


def again(content: bytes, receive: Receive) -> Receive:
    """A ``receive`` that repeats a body already read, then goes on."""
    unread = [content]

    async def give() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return give


def bad_request(error: Exception, path: str = "") -> PlainTextResponse:
    """The answer to a request that the framework could not read."""
    if isinstance(error, OSError):  # a full disk, mostly
        full = f"The server cannot store this now ({error.strerror or 'its disk failed'}). Try later."
        return PlainTextResponse(full, status_code=507)
    match = WRONG_PARAMETER.match(str(error)) if isinstance(error, TypeError) else None
    if API_PATHS.fullmatch(path) and match:
        wrong = f"There is no parameter {match[1]}" if match[1] else f"The parameter {match[2]} is missing"
        return PlainTextResponse(f"{wrong}. /gradio_api/info lists them.", status_code=400)
    return PlainTextResponse("This is no call of the page.", status_code=400)


def foreign(headers: Headers) -> bool:
    """Whether another page's script sent the request."""
    origin = headers.get("origin")
    return bool(origin) and str(origin).split("://")[-1] != headers.get("host")
