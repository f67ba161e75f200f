"""Which requests reach the web framework at all, and what every answer says to the browser.

The framework brings some fifty routes. Those that the page needs are named here; every other one is closed,
among them all that fetch an address, hand out files of the server, run a handler outside the queue, or list
what others did.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from urllib.parse import unquote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backend.base.errors import OptionError
from backend.base.redaction import places
from backend.base.text import show

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
HEARTBEAT = API + "heartbeat/"
UPLOAD = API + "upload"
MOST_BODY = 8 << 20  # bytes: every box of the page full, and its options
MOST_UPLOAD = 32 << 20
UPLOADS_AN_HOUR = 1 << 30  # of all visitors; the framework deletes what is older
HOUR = 3600.0


def policy(frame_ancestors: Sequence[str] = ()) -> str:
    """The content security policy: nothing from elsewhere, nothing to elsewhere.

    The framework's page has scripts and styles in line and makes functions of its templates' text, so those
    stay allowed; that text never becomes script is the escaping's task. Nothing it could load or reach is
    outside, though.

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


def check_frame_ancestors(given: Sequence[str]) -> tuple[str, ...]:
    """Sources that may stand in the policy.

    Raises:
        OptionError: one of them is no origin, such as ``https://huggingface.co`` or ``https://*.hf.space``.
    """
    for source in given:
        if not re.fullmatch(r"https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?", source):
            raise OptionError(
                f"{show(source)} cannot be named as a page that frames the lab. Give an origin, such as "
                "https://huggingface.co or https://*.hf.space.",
                field="frame_ancestors",
            )
    return tuple(given)


class RequestGuard:
    """ASGI middleware: refuses what is closed, too large or from another page, and adds the headers.

    Args:
        app: the framework.
        frame_ancestors: see :func:`policy`.
        opened: more paths, those of the lab's own routes (``Route.path_regex``).
        here: called with a tab's name whenever its heartbeat begins.
        clock: seconds.
    """

    def __init__(
        self,
        app: ASGIApp,
        frame_ancestors: Sequence[str] = (),
        opened: Sequence[re.Pattern[str]] = (),
        here: Callable[[str], None] = lambda tab: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self._opened, self._here, self._clock = app, opened, here, clock
        self._headers = HEADERS | {"Content-Security-Policy": policy(frame_ancestors)}
        self._uploads: deque[tuple[float, int]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say why not."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def answer(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, message = True, dict(message)  # it may be kept and sent again
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                for name in ("server", "x-powered-by"):
                    del headers[name]
            await send(message)

        request = Request(scope)
        refused = self.refusal(request)
        if refused is not None:
            await refused(scope, receive, answer)
            return
        if scope["path"].startswith(HEARTBEAT):
            self._here(scope["path"].removeprefix(HEARTBEAT))
        try:
            await self.app(scope, receive, answer)
        except Exception as error:
            # Handlers run in the queue and tell their own errors; what comes here, the framework raised
            # while it read the request.
            if started or request.method != "POST":
                raise
            LOG.warning("a request to %s was not read:\n%s", scope["path"], places(error))
            await bad_request(error, scope["path"])(scope, receive, answer)

    def refusal(self, request: Request) -> PlainTextResponse | None:
        """The answer to a request that is refused, or None."""
        path = unquote(unquote(request.url.path))
        plain = ".." not in path.split("/") and "\\" not in path and "\x00" not in path
        known = (
            ALLOWED_PATHS.fullmatch(path)
            or API_PATHS.fullmatch(path)
            or any(own.match(path) for own in self._opened)
        )
        if not plain or not known or "all_endpoints" in request.query_params:
            return PlainTextResponse("This door is closed.", status_code=403)
        if foreign(request.headers):
            return PlainTextResponse("Requests from other pages are refused.", status_code=403)
        if request.method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("The lab knows GET, HEAD and POST.", status_code=405)
        return self._too_large(request, path) if request.method == "POST" else None

    def _too_large(self, request: Request, path: str) -> PlainTextResponse | None:
        length = request.headers.get("content-length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 16):
            return PlainTextResponse("Say how long the body is (Content-Length).", status_code=411)
        most = MOST_UPLOAD if path == UPLOAD else MOST_BODY
        if int(length) > most:
            told = f"The body has {int(length):,} bytes; up to {most:,} are allowed. Send less."
            return PlainTextResponse(told, status_code=413)
        if path == UPLOAD:
            now = self._clock()
            while self._uploads and now - self._uploads[0][0] > HOUR:
                self._uploads.popleft()
            if sum(size for _, size in self._uploads) + int(length) > UPLOADS_AN_HOUR:
                told = "Many files were sent to this lab within the last hour. Try again later."
                return PlainTextResponse(told, status_code=503)
            self._uploads.append((now, int(length)))
        return None


def bad_request(error: Exception, path: str = "") -> PlainTextResponse:
    """The answer to a request that the framework could not read."""
    if isinstance(error, OSError):  # a full disk, mostly
        told = f"The server cannot store this now ({error.strerror or 'its disk failed'}). Try later."
        return PlainTextResponse(told, status_code=507)
    named = WRONG_PARAMETER.match(str(error)) if isinstance(error, TypeError) else None
    if API_PATHS.fullmatch(path) and named:
        wrong = f"There is no parameter {named[1]}" if named[1] else f"The parameter {named[2]} is missing"
        return PlainTextResponse(f"{wrong}. /gradio_api/info lists them.", status_code=400)
    return PlainTextResponse("This is no call of the page.", status_code=400)


def foreign(headers: Headers) -> bool:
    """Whether another page's script sent the request."""
    origin = headers.get("origin")
    return bool(origin) and str(origin).split("://")[-1] != headers.get("host")
