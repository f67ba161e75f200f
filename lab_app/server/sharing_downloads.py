"""Downloads of a kept run: its bundle and its report."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from backend.base.errors import LabError
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.reports.run_report import report
from lab_app.visits.visits import Lab

GONE = "This run is no longer held by the server. Run it again."


def sharing_routes(lab: Lab) -> list[Route]:
    """Routes under ``/lab/``. They are plain functions, so each is answered in a thread of its own."""
    sharing = Sharing(lab)

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

    def page(request: Request) -> Response:
        record = lab.record(request.path_params["token"])
        if record is None:
            return PlainTextResponse(GONE, status_code=404)
        try:
            content = report(record).encode()
        except LabError as error:
            return PlainTextResponse(str(error), status_code=409)
        return _file(content, f"report-{_safe(record.id)}.html", "text/html; charset=utf-8")

    return [Route("/lab/bundle/{token}", bundle), Route("/lab/report/{token}", page)]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "", name)[:40] or "record"


def _file(content: bytes, name: str, kind: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, media_type=kind, headers=headers)
