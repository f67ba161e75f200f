"""What the server answers besides the page: assets, and downloads of runs and measurements."""

import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import segno
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import viz.base.theme
from backend.base.errors import LabError
from backend.records.proximity import ProximityRecord
from lab_app.pages import registry as pages
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.pages.sweeps import page as sweep_page
from lab_app.pages.tour.html import room_link
from lab_app.visits.visits import VisitStore
from viz.base.theme import PLOTLY_DARK, PLOTLY_LIGHT
from viz.run.report import plotly_file, report_html

ASSETS = Path(__file__).parents[1] / "assets"
STYLES = ("app.css", "fields.css", "tour.css", "early.css")
SCRIPTS = ("figures.js", "app.js", "fields.js", "share.js", "typed.js", "lesson.js")
GONE = "This run is no longer held by the server. Run it again."
PAGE_ADDRESS = re.compile(r"https?://[A-Za-z0-9.:\[\]_~/%-]{1,300}")
CACHE = {"Cache-Control": "no-cache"}
HEAD = """
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<link rel="icon" href="lab/icon.svg" type="image/svg+xml">
"""


def declarations(forms: Mapping[str, Any]) -> str:
    """What the scripts draw by: the figures' colours, and the components of many controls."""
    themes = {"light": PLOTLY_LIGHT, "dark": PLOTLY_DARK}
    components = json.dumps(forms, ensure_ascii=False, separators=(",", ":"))
    return f"window.KVThemes = {json.dumps(themes)};\nwindow.KVForms = {components};\n"


def routes(lab: VisitStore, forms: Mapping[str, Any]) -> list[Route]:
    """Routes under ``/lab/``. They are plain functions, so each is answered in a thread of its own.

    Args:
        lab: whose records they serve.
        forms: see :class:`lab_app.ui.page.PageBuilder`.
    """
    sharing = Sharing(lab)

    def css(_: Request) -> Response:
        styles = "".join((ASSETS / name).read_text(encoding="utf-8") for name in STYLES)
        content = viz.base.theme.stylesheet() + styles + pages.stylesheet()
        return Response(content, media_type="text/css", headers=CACHE)

    def script(_: Request) -> Response:
        scripts = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS)
        return Response(
            f"{declarations(forms)}{viz.base.theme.script()}\n{scripts}",
            media_type="text/javascript",
            headers=CACHE,
        )

    def plotly(_: Request) -> Response:
        return FileResponse(
            plotly_file(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"}
        )

    def icon(_: Request) -> Response:
        return FileResponse(ASSETS / "icon.svg", media_type="image/svg+xml")

    def record(request: Request) -> Response:
        run = lab.record(request.path_params["token"])
        if run is None:
            return PlainTextResponse(GONE, status_code=404)
        return _file(run.to_bytes(), f"run-{_safe(run.id)}.kvrun")

    def bundle(request: Request) -> Response:
        token = request.path_params["token"]
        visit = lab.holder(token)
        if visit is None:
            return PlainTextResponse(GONE, status_code=404)
        tensors = request.query_params.get("tensors") == "1"
        try:
            content = sharing.bundle_of(visit, token, tensors)
        except LabError as error:
            return PlainTextResponse(str(error), status_code=409)
        return _file(content, f"run-{_safe(visit.records[token].id)}.zip", "application/zip")

    def report(request: Request) -> Response:
        run = lab.record(request.path_params["token"])
        if run is None:
            return PlainTextResponse(GONE, status_code=404)
        try:
            content = report_html(run).encode()
        except LabError as error:
            return PlainTextResponse(str(error), status_code=409)
        return _file(content, f"report-{_safe(run.id)}.html", "text/html; charset=utf-8")

    def measurement(request: Request) -> Response:
        kind = request.path_params["kind"]
        result = lab.result(kind, request.path_params["token"])
        if result is None:
            return PlainTextResponse(
                "This measurement is no longer held by the server. Measure again.", status_code=404
            )
        weights = re.sub(r"[^A-Za-z0-9]", "", result.model.weights_hash)[:12]
        seed = f"-{result.request.seed}" if isinstance(result, ProximityRecord) else ""
        return _file(result.to_bytes(), f"{kind}-{weights}{seed}.kvmeasure")

    def swept(request: Request) -> Response:
        kind = request.path_params["kind"]
        try:
            content = sweep_page.rows_file(lab, request.path_params["token"], kind)
        except LabError as error:
            return PlainTextResponse(str(error), status_code=404)
        return _file(content, f"sweep.{kind}")

    def room(request: Request) -> Response:
        state = lab.rooms.state(request.path_params["room"])
        if state is None:
            return PlainTextResponse("This class room has ended.", status_code=404)
        return JSONResponse(state, headers={"Cache-Control": "no-store"})

    def qr(request: Request) -> Response:
        name, at = request.path_params["room"], request.query_params.get("at", "")
        if lab.rooms.find(name) is None:
            return PlainTextResponse("This class room has ended.", status_code=404)
        if not PAGE_ADDRESS.fullmatch(at):
            return PlainTextResponse(
                "'at' is to be the address of the page, without a query.", status_code=400
            )
        code = segno.make(at + room_link(name), error="m")
        image = io.BytesIO()
        code.save(image, kind="svg", scale=6, border=3, dark="#14181d", light="#ffffff")
        return Response(image.getvalue(), media_type="image/svg+xml", headers={"Cache-Control": "no-store"})

    return [
        Route("/lab/app.css", css),
        Route("/lab/app.js", script),
        Route("/lab/plotly.js", plotly),
        Route("/lab/icon.svg", icon),
        Route("/lab/record/{token}", record),
        Route("/lab/measured/{kind}/{token}", measurement),
        Route("/lab/sweep/{token}/{kind}", swept),
        Route("/lab/bundle/{token}", bundle),
        Route("/lab/report/{token}", report),
        Route("/lab/room/{room}", room),
        Route("/lab/room/{room}/qr.svg", qr),
    ]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "", name)[:40] or "record"


def _file(content: bytes, name: str, kind: str = "application/octet-stream") -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type=kind, headers=headers)
