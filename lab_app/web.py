"""What the server answers besides the page: assets, record downloads, and a few closed doors."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

import viz.theme
from backend.judged import Judged
from backend.measured import AnchorCost, OffsetStudy, ProximityRecord, Replay
from lab_app import pages
from lab_app.sessions import Lab

ASSETS = Path(__file__).parent / "assets"
CACHE = {"Cache-Control": "no-cache"}
#: Doors of the web framework that this page does not use.
CLOSED = re.compile(
    r"^/(gradio_api/)?(run/|call/|api/|info|runs|run-history|proxy=|mcp|monitoring|vibe-|dev/|deep_link)",
    re.IGNORECASE,
)

HEAD = """
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="lab/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="lab/app.css">
<script src="lab/plotly.js" defer></script>
<script src="lab/app.js" defer></script>
"""


class ClosedDoors:
    """Refuses requests that would make the server fetch other addresses or skip the queue, and pages
    of other origins that would talk to it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or answer 403."""
        if scope["type"] == "http":
            reason = refusal(Request(scope))
            if reason:
                await PlainTextResponse(reason, status_code=403)(scope, receive, send)
                return
        await self.app(scope, receive, send)


def refusal(request: Request) -> str | None:
    """Why a request is refused, or None."""
    path = unquote(unquote(request.url.path))
    if "file=" in path and re.search(r"file=\s*/*\s*[a-z][a-z0-9+.-]*:/", path, re.IGNORECASE):
        return "The lab does not fetch addresses."
    if CLOSED.search(path):
        return "This door is closed."
    origin = request.headers.get("origin")
    if (
        origin
        and request.method not in ("GET", "HEAD")
        and origin.split("://")[-1] != request.headers.get("host")
    ):
        return "Requests from other pages are refused."
    return None


def plotly_file() -> Path:
    """plotly.js as packaged with plotly.py."""
    return Path(str(importlib.resources.files("plotly") / "package_data" / "plotly.min.js"))


def routes(lab: Lab) -> list[Route]:
    """Routes under ``/lab/``."""

    def css(_: Request) -> Response:
        own = "".join((ASSETS / name).read_text(encoding="utf-8") for name in ("app.css", "tour.css"))
        every = viz.theme.stylesheet() + own + pages.stylesheet()
        return Response(every, media_type="text/css", headers=CACHE)

    def script(_: Request) -> Response:
        own = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in ("app.js", "lesson.js"))
        return Response(viz.theme.script() + "\n" + own, media_type="text/javascript", headers=CACHE)

    def plotly(_: Request) -> Response:
        return FileResponse(
            plotly_file(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"}
        )

    def icon(_: Request) -> Response:
        return FileResponse(ASSETS / "icon.svg", media_type="image/svg+xml")

    def record(request: Request) -> Response:
        found = lab.record(request.path_params["token"])
        if found is None:
            return PlainTextResponse(
                "This record is no longer held by the server. Run it again.", status_code=404
            )
        name = f"run-{re.sub(r'[^A-Za-z0-9_-]', '', found.id)[:40] or 'record'}.kvrun"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return Response(found.to_bytes(), media_type="application/octet-stream", headers=headers)

    def measurement(request: Request) -> Response:
        found = lab.measurement(request.path_params["token"])
        return measured("proximity", found, f"-{found.request.seed}" if found else "")

    def study(request: Request) -> Response:
        return measured("offsets", lab.study(request.path_params["token"]))

    def cost(request: Request) -> Response:
        return measured("anchors", lab.cost(request.path_params["token"]))

    def replay(request: Request) -> Response:
        return measured("replay", lab.replay(request.path_params["token"]))

    def judged(request: Request) -> Response:
        return measured("judged", lab.judged(request.path_params["token"]))

    def room(request: Request) -> Response:
        found = lab.rooms.state(request.path_params["room"])
        if found is None:
            return PlainTextResponse("This class room has ended.", status_code=404)
        return JSONResponse(found, headers={"Cache-Control": "no-store"})

    def measured(
        kind: str, found: ProximityRecord | OffsetStudy | AnchorCost | Replay | Judged | None, more: str = ""
    ) -> Response:
        if found is None:
            return PlainTextResponse(
                "This measurement is no longer held by the server. Measure again.", status_code=404
            )
        weights = re.sub(r"[^A-Za-z0-9]", "", found.model.weights_hash)[:12]
        name = f"{kind}-{weights}{more}.kvmeasure"
        headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
        return Response(found.to_bytes(), media_type="application/octet-stream", headers=headers)

    return [
        Route("/lab/app.css", css),
        Route("/lab/app.js", script),
        Route("/lab/plotly.js", plotly),
        Route("/lab/icon.svg", icon),
        Route("/lab/record/{token}", record),
        Route("/lab/proximity/{token}", measurement),
        Route("/lab/offsets/{token}", study),
        Route("/lab/anchors/{token}", cost),
        Route("/lab/replay/{token}", replay),
        Route("/lab/judged/{token}", judged),
        Route("/lab/room/{room}", room),
    ]
