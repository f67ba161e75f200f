"""The page *Your logs*: what reuse would save of one's own agents' calls, why prefixes were missed, and, for
calls that the model reads, whether the answers stay."""

import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup

from backend.base.errors import LabError, RecordError, RunCancelled
from backend.logs.timeline import OpenLog
from backend.logs.to_read import LogToRead
from backend.records.events import Progress
from backend.records.log_reading import ReadingRecord, ReadingRequest
from lab_app.ui import fields, html, text
from lab_app.ui.components import panes, raw_html
from lab_app.ui.method_chips import chosen_methods, method_chips, usable_methods
from lab_app.ui.method_choice import MOST_COLUMNS
from lab_app.ui.one_run import cancelled, field_errors, one_run_in_turn
from lab_app.ui.page import OPTIONS, PageBuilder, PageSpec
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, plural, size
from viz.logs.overview import details_html, overview_html
from viz.logs.reading import answers_html, verdict_html
from viz.logs.session import session_html

KEY = "logs"
EXAMPLE = Path(__file__).resolve().parents[3] / "presets" / "logs" / "example.jsonl"
MOST_BYTES = 4 << 20
MOST_SESSIONS = 200
METHODS_AT_FIRST = ("naive", "prefix")
USUAL = {"sample": 8, "budget": 20_000, "seed": 0}
ANSWER_TOKENS, BLAME_PASSES = 64, 60
PLACES = {"most-tokens": "budget", "blame-passes": "run"}  # whose boxes have other names than the flags
READS = (*USUAL, "same", "layouts", "methods", OPTIONS)
PACKED = (b"\x1f\x8b", b"PK")  # how gzip and zip begin


@dataclass
class LogsState:
    """What a visit's page remembers: the log, the session that is shown, the two calls that were chosen, and
    what was read of it last."""

    log: OpenLog
    session: str = ""
    picked: tuple[int, int] | None = None
    read: ReadingRecord | None = None


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


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The example, at the first visit, and the methods that run here."""
    return render_log(state(visit)) | usable_methods(page)


def render_log(mine: LogsState) -> Update:
    """All of a log."""
    sessions = mine.log.sessions[:MOST_SESSIONS]
    return {
        "status": "",
        **found_html(mine),
        "pick_session.choices": [(called(mine.log, one), str(place)) for place, one in enumerate(sessions)],
        "pick_session": str(mine.log.sessions.index(mine.session)),
        "calls": {"html": session_html(mine.log, mine.session, mine.picked)},
    }


def found_html(mine: LogsState) -> Update:
    """The verdicts; what to change first, and what became of the answers."""
    empty = html.empty_card(text.LOGS_NOT_READ, text.LOGS_NOT_READ_HELP)
    return {
        "verdict": overview_html(mine.log.xray) + (verdict_html(mine.read) if mine.read else Markup(empty)),
        "found": details_html(mine.log.xray),
        "answers": answers_html(mine.read) if mine.read else f'<p class="kv-help">{text.LOGS_NOT_READ}</p>',
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
    return render_log(mine)


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


def choose(visit: Visit, place: str) -> Update:
    """Another session; nothing where it is the one that is shown."""
    mine, sessions = state(visit), state(visit).log.sessions
    if not place.isdecimal() or int(place) >= len(sessions) or sessions[int(place)] == mine.session:
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


# -- with the model


def asked(visit: Visit, given: Given) -> LogToRead:
    """What stands on the page as a checked request.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(given)
    numbers = {name: reader.number(name, field) for name, field in text.LOGS_NUMBERS.items()}
    methods = reader.attempt("methods", partial(chosen_methods, given, MOST_COLUMNS))
    reader.check()
    log = state(visit).log
    reading = ReadingRequest(
        tuple(method for method in methods if not method.reference), numbers["sample"], numbers["budget"],
        BLAME_PASSES, max_new_tokens=ANSWER_TOKENS, same=given["same"], seed=numbers["seed"],
        layouts=bool(given["layouts"]),
    )  # fmt: skip
    return LogToRead(reading, log.calls, tuple(log.xray.advice), log.xray.block)


def slot_of(name: str | None) -> str:
    """The error slot of a field of the engine's request."""
    place = PLACES.get(name or "", name or "")
    return place if place in READS else "run"


def run(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """Read sampled calls, and show what became of their answers."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request, mine = asked(visit, given), state(visit)
        yield field_errors(None, slot_of)
        for event in visit.engine.study(request, cancel=cancel):
            if cancel.is_set():
                raise RunCancelled(text.CANCELLED)
            if isinstance(event, Progress):
                yield {"status": html.progress(event)}
            else:
                mine.read = event
                yield {"status": ""} | found_html(mine)

    yield from one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of))


def refresh(visit: Visit, given: Given) -> Update:
    """The chosen session, what is wrong in the boxes, and whether what was read belongs to them."""
    try:
        update, reading = field_errors(None, slot_of), asked(visit, given).reading
    except LabError as error:
        update, reading = field_errors(error, slot_of), None
    update |= choose(visit, str(given["pick_session"]))
    read = state(visit).read
    if read is not None and visit.cancel is None:
        edited = reading != read.request
        update["status"] = html.status(text.LOGS_EDITED, "edited", again=True) if edited else ""
    return update


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page."""
    page.frame(build_inputs, build_results)
    page.arrives(lambda visit, given: arrive(page, visit))
    page.follows(refresh, "pick_session", *READS, when=[page["asked"].input])
    page.on(page["upload"].upload, upload, "upload")
    page.select(page["calls"].select, pick, outputs=[page["calls"]])
    page.stream(page["run"].click, partial(run, page.lab), *READS)
    page.on(page["cancel"].click, cancelled)


def build_inputs(page: PageBuilder) -> None:
    """The left column: the log, and how the model reads it."""
    page.add(
        upload=gr.UploadButton(
            text.LOGS_UPLOAD, file_count="single", type="binary", size="sm", elem_id=f"kv-{KEY}-upload"
        )
    )
    boxes = {
        name: fields.number(name, field.label, USUAL[name], id=f"kv-{KEY}-{name}")
        for name, field in text.LOGS_NUMBERS.items()
    }
    page.form(
        "asked",
        fields.part(
            text.LOGS_TITLE,
            f"{KEY}-log",
            fields.help_text("", text.LOGS_HELP, f"kv-{KEY}-help"),
            fields.select("pick_session", text.LOGS_SESSION, [], "0", id=f"kv-{KEY}-session"),
        ),
        fields.part(
            text.LOGS_READING,
            f"{KEY}-reading",
            fields.help_text("", text.LOGS_READING_HELP, f"kv-{KEY}-reading-help"),
            fields.row(boxes["sample"], boxes["seed"], css="kv-line"),
            boxes["budget"],
            *(fields.message(name, f"{KEY}-{name}") for name in text.LOGS_NUMBERS),
            fields.select("same", text.LOGS_SAME, text.LOGS_SAMES, "none", id=f"kv-{KEY}-same"),
            fields.message("same", f"{KEY}-same"),
            fields.switch("layouts", text.LOGS_LAYOUTS, id=f"kv-{KEY}-layouts"),
        ),
        method_chips(KEY, METHODS_AT_FIRST),
    )


def build_results(page: PageBuilder) -> None:
    """The results: the verdicts first."""
    page.block("status")
    page.block("verdict")
    panes(*text.LOGS_PANES)
    page.block("found", elem_classes="kv-pane-1")
    page.block("answers", elem_classes="kv-pane-2")
    page.add(calls=raw_html(f"kv-{KEY}-calls", elem_classes="kv-pane-3"))


PAGE = PageSpec(KEY, text.LOGS, build)
