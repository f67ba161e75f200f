"""The page *Your logs*: what reuse would save of one's own agents' calls, and why prefixes were missed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gradio as gr

from backend.base.errors import LabError, RecordError
from backend.logs.timeline import OpenLog
from lab_app.ui import html, text
from lab_app.ui.components import raw_html
from lab_app.ui.page import PageBuilder, PageSpec
from lab_app.ui.types import Given, Update
from lab_app.visits.visits import Visit
from viz.base.format import clip, plural, size
from viz.logs.overview import overview_html
from viz.logs.session import session_html

KEY = "logs"
EXAMPLE = Path(__file__).resolve().parents[3] / "presets" / "logs" / "example.jsonl"
MOST_BYTES = 4 << 20
MOST_SESSIONS = 200
PACKED = (b"\x1f\x8b", b"PK")  # how gzip and zip begin


@dataclass
class LogsState:
    """What a visit's page remembers: the log, the session that is shown, the two calls that were chosen."""

    log: OpenLog
    session: str = ""
    picked: tuple[int, int] | None = None


@cache
def example() -> OpenLog:
    """The log of the lab's own agents."""
    return OpenLog(EXAMPLE)


def state(visit: Visit) -> LogsState:
    """The visit's page."""
    if KEY not in visit.pages:
        visit.pages[KEY] = opened(example())
    found: LogsState = visit.pages[KEY]
    return found


def opened(log: OpenLog) -> LogsState:
    """A log as it is first shown: its first session, and the call of it that missed most."""
    session = log.sessions[0]
    return LogsState(log, session, log.worst(session))


def arrive(visit: Visit) -> Update:
    """The example, at the first visit."""
    return shown(state(visit))


def shown(mine: LogsState) -> Update:
    """All of a log."""
    sessions = mine.log.sessions[:MOST_SESSIONS]
    choices = [(called(mine.log, session), str(place)) for place, session in enumerate(sessions)]
    return {
        "status": "",
        "overview": overview_html(mine.log.xray),
        "pick_session": (choices, str(mine.log.sessions.index(mine.session))),
        "calls": {"html": session_html(mine.log, mine.session, mine.picked)},
    }


def called(log: OpenLog, session: str) -> str:
    """A session for the list."""
    return f"{clip(session, 40) or text.LOGS_NO_SESSION} · {plural(len(log.of_session(session)), 'call')}"


def upload(visit: Visit, given: Given) -> Update:
    """Open a file. What is wrong with it stands beside the button; the log before stays."""
    content = given["upload"]
    if not isinstance(content, bytes):
        return {}
    try:
        visit.pages[KEY] = mine = opened(read(content))
    except LabError as error:
        return {"status": html.error(str(error))}
    return shown(mine)


def read(content: bytes) -> OpenLog:
    """A file's log; lines without a call are left out, and the page says so.

    Raises:
        RecordError: it is too large or packed, or holds no call.
    """
    if len(content) > MOST_BYTES:
        raise RecordError(text.LOGS_TOO_LARGE.format(size=size(len(content)), most=size(MOST_BYTES)))
    if content.startswith(PACKED):
        raise RecordError(text.LOGS_PACKED)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / text.LOGS_FILE
        path.write_bytes(content)
        return OpenLog(path, skip_bad=True)


def choose(visit: Visit, given: Given) -> Update:
    """Another session."""
    mine, sessions = state(visit), state(visit).log.sessions
    place = str(given["pick_session"])
    if not place.isdecimal() or int(place) >= len(sessions):
        return {}
    mine.session = sessions[int(place)]
    mine.picked = mine.log.worst(mine.session)
    return {"calls": {"html": session_html(mine.log, mine.session, mine.picked)}}


def pick(visit: Visit, given: Given, event: Any) -> Update:
    """A call, laid beside the one that was chosen before."""
    mine, chosen = state(visit), getattr(event, "token", None)
    if type(chosen) is not int or chosen not in mine.log.of_session(mine.session):
        return {}
    before = mine.picked[1] if mine.picked else chosen
    if before != chosen:
        mine.picked = (before, chosen)
    return {"calls": {"html": session_html(mine.log, mine.session, mine.picked)}}


def build(page: PageBuilder) -> None:
    """The page."""
    with gr.Column(elem_classes="kv-stage", min_width=0):
        page.block("help", f'<p class="kv-help">{text.LOGS_HELP}</p>')
        page.add(
            upload=gr.UploadButton(
                text.LOGS_UPLOAD, file_count="single", type="binary", size="sm", elem_id=f"kv-{KEY}-upload"
            )
        )
        page.block("status")
        page.block("overview")
        page.add(
            pick_session=gr.Dropdown(
                [], label=text.LOGS_SESSION, filterable=False, elem_id=f"kv-{KEY}-session", container=True
            ),
            calls=raw_html(f"kv-{KEY}-calls"),
        )
    page.arrives(lambda visit, given: arrive(visit))
    page.on(page["upload"].upload, upload, "upload")
    page.on(page["pick_session"].input, choose, "pick_session", outputs=[page["calls"]])
    page.select(page["calls"].select, pick, outputs=[page["calls"]])


PAGE = PageSpec(KEY, text.LOGS, build)
