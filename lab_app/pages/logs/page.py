"""The page *Your logs*: what reuse would save in the calls of one's own agents, why prefixes were missed,
and, for calls that the model reads, whether the answers stay the same."""

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
PLACES = {"most-tokens": "budget", "blame-passes": "run"}  # flags whose boxes have other names
READS = (*USUAL, "same", "layouts", "methods", OPTIONS)
PACKED = (b"\x1f\x8b", b"PK")  # how gzip and zip begin


@dataclass
class LogsState:
    """What a visit's page remembers: the log, the shown ``session``, the ``pair`` of calls that are compared,
    and the last ``reading`` by the model."""

    log: OpenLog
    session: str = ""
    pair: tuple[int, int] | None = None
    reading: ReadingRecord | None = None


@cache
def example() -> OpenLog:
    """The log of the lab's own agents."""
    return OpenLog(EXAMPLE)


def state_of(visit: Visit) -> LogsState:
    """The visit's page."""
    if KEY not in visit.pages:
        visit.pages[KEY] = new_state(example())
    state: LogsState = visit.pages[KEY]
    return state


def new_state(log: OpenLog) -> LogsState:
    """A log with its first session, and the call of it that missed the most tokens."""
    session = log.sessions[0]
    return LogsState(log, session, log.worst(session))


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The example, at the first visit, and the methods that run here."""
    return render_log(state_of(visit)) | usable_methods(page)


def render_log(state: LogsState) -> Update:
    """All of a log."""
    sessions = state.log.sessions[:MOST_SESSIONS]
    return {
        "status": "",
        **findings_html(state),
        "pick_session.choices": [
            (session_label(state.log, session), str(place)) for place, session in enumerate(sessions)
        ],
        "pick_session": str(state.log.sessions.index(state.session)),
        "calls": {"html": session_html(state.log, state.session, state.pair)},
    }


def findings_html(state: LogsState) -> Update:
    """The verdicts, what to change first, and what became of the answers."""
    if state.reading is None:
        verdict = Markup(html.empty_card(text.LOGS_NOT_READ, text.LOGS_NOT_READ_HELP))
        answers = f'<p class="kv-help">{text.LOGS_NOT_READ}</p>'
    else:
        verdict, answers = verdict_html(state.reading), answers_html(state.reading)
    return {
        "verdict": overview_html(state.log.xray) + verdict,
        "found": details_html(state.log.xray),
        "answers": answers,
    }


def session_label(log: OpenLog, session: str) -> str:
    """A session's label in the list."""
    return f"{clip(session, 40) or text.LOGS_NO_SESSION} · {plural(len(log.of_session(session)), 'call')}"


def upload(visit: Visit, inputs: Given) -> Update:
    """Open a file. If it cannot be read, a message says why and the log before stays."""
    content = inputs["upload"]
    if not isinstance(content, bytes):
        return {}
    if visit.cancel is not None:  # a reading's results would stand under another log's
        return {"status": html.status(text.RUN_ELSEWHERE, "busy")}
    try:
        visit.pages[KEY] = state = new_state(read_log(content))
    except LabError as error:
        return {"status": html.error(str(error))}
    return render_log(state)


def read_log(content: bytes) -> OpenLog:
    """The log of a file; lines without a call are left out, and the page says so.

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
    """Show another session; nothing if it is shown already."""
    state, sessions = state_of(visit), state_of(visit).log.sessions
    if not place.isdecimal() or int(place) >= len(sessions) or sessions[int(place)] == state.session:
        return {}
    state.session = sessions[int(place)]
    state.pair = state.log.worst(state.session)
    return {"calls": {"html": session_html(state.log, state.session, state.pair)}}


def pick(visit: Visit, inputs: Given, event: Any) -> Update:
    """Choose a call, and compare it with the one chosen before."""
    state, call = state_of(visit), getattr(event, "token", None)
    if type(call) is not int or call not in state.log.of_session(state.session):
        return {}
    previous = state.pair[1] if state.pair else call
    if previous != call:
        state.pair = (previous, call)
    return {"calls": {"html": session_html(state.log, state.session, state.pair)}}


# -- with the model


def read_request(visit: Visit, inputs: Given) -> LogToRead:
    """The form as a checked request.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(inputs)
    numbers = reader.numbers(text.LOGS_NUMBERS)
    methods = reader.attempt("methods", partial(chosen_methods, inputs, MOST_COLUMNS))
    reader.check()
    log = state_of(visit).log
    reading = ReadingRequest(
        tuple(method for method in methods if not method.reference), numbers["sample"], numbers["budget"],
        BLAME_PASSES, max_new_tokens=ANSWER_TOKENS, same=inputs["same"], seed=numbers["seed"],
        layouts=bool(inputs["layouts"]),
    )  # fmt: skip
    return LogToRead(reading, log.calls, tuple(log.xray.advice), log.xray.block)


def slot_of(name: str | None) -> str:
    """The error slot of a field of the engine's request."""
    place = PLACES.get(name or "", name or "")
    return place if place in READS else "run"


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Let the model read sampled calls, and show what became of their answers."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request, state = read_request(visit, inputs), state_of(visit)
        yield field_errors(None, slot_of)
        for event in visit.engine.study(request, cancel=cancel):
            if cancel.is_set():
                raise RunCancelled(text.CANCELLED)
            if isinstance(event, Progress):
                yield {"status": html.progress(event)}
            else:
                state.reading = event
                yield {"status": ""} | findings_html(state)

    yield from one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of))


def refresh(visit: Visit, inputs: Given) -> Update:
    """The chosen session, messages, and whether the last reading belongs to an earlier form."""
    try:
        update, reading = field_errors(None, slot_of), read_request(visit, inputs).reading
    except LabError as error:
        update, reading = field_errors(error, slot_of), None
    update |= choose(visit, str(inputs["pick_session"]))
    record = state_of(visit).reading
    if record is not None and visit.cancel is None:
        stale = reading != record.request
        update["status"] = html.status(text.LOGS_EDITED, "edited", again=True) if stale else ""
    return update


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page."""
    page.frame(build_inputs, build_results)
    page.arrives(lambda visit, inputs: arrive(page, visit))
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
