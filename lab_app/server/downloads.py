"""What the server answers besides the page: assets and record downloads."""

from __future__ import annotations

import importlib.resources
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import viz.base.theme
from backend.base.errors import LabError
from backend.records.anchor_cost import AnchorCost
from backend.records.blend import BlendStudy
from backend.records.documents import DocumentStudy
from backend.records.judge import Judged
from backend.records.offsets import OffsetStudy
from backend.records.proximity import ProximityRecord
from backend.records.replay import Replay
from lab_app.pages import registry as pages
from lab_app.pages.sweeps import page as sweep_page
from lab_app.server.sharing_downloads import sharing_routes
from lab_app.visits.visits import Lab

ASSETS = Path(__file__).parents[1] / "assets"
STYLES = ("app.css", "tour.css", "early.css")
CACHE = {"Cache-Control": "no-cache"}
HEAD = """
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="lab/icon.svg" type="image/svg+xml">
"""


def plotly_file() -> Path:
    """plotly.js as packaged with plotly.py."""
    return Path(str(importlib.resources.files("plotly") / "package_data" / "plotly.min.js"))


def routes(lab: Lab) -> list[Route]:
    """Routes under ``/lab/``."""

    def css(_: Request) -> Response:
        own = "".join((ASSETS / name).read_text(encoding="utf-8") for name in STYLES)
        every = viz.base.theme.stylesheet() + own + pages.stylesheet()
        return Response(every, media_type="text/css", headers=CACHE)

    def script(_: Request) -> Response:
        own = "\n".join(
            (ASSETS / name).read_text(encoding="utf-8") for name in ("app.js", "share.js", "lesson.js")
        )
        return Response(viz.base.theme.script() + "\n" + own, media_type="text/javascript", headers=CACHE)

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

    def kept(request: Request) -> Response:
        kind = request.path_params["kind"]
        return measured(kind, lab.measured(kind, request.path_params["token"]))

    def judged(request: Request) -> Response:
        return measured("judged", lab.judged(request.path_params["token"]))

    def swept(request: Request) -> Response:
        kind = request.path_params["kind"]
        try:
            found = sweep_page.saved(lab, request.path_params["token"], kind)
        except LabError as error:
            return PlainTextResponse(str(error), status_code=404)
        headers = {"Content-Disposition": f'attachment; filename="sweep.{kind}"', "Cache-Control": "no-store"}
        return Response(found, media_type="application/octet-stream", headers=headers)

    def room(request: Request) -> Response:
        found = lab.rooms.state(request.path_params["room"])
        if found is None:
            return PlainTextResponse("This class room has ended.", status_code=404)
        return JSONResponse(found, headers={"Cache-Control": "no-store"})

    def measured(
        kind: str,
        found: ProximityRecord
        | OffsetStudy
        | AnchorCost
        | BlendStudy
        | DocumentStudy
        | Replay
        | Judged
        | None,
        more: str = "",
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
        Route("/lab/measured/{kind}/{token}", kept),
        Route("/lab/sweep/{token}/{kind}", swept),
        *sharing_routes(lab),
        Route("/lab/room/{room}", room),
    ]
