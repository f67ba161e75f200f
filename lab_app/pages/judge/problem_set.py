"""The set under the Judge page: many problems judged like the one above, with figures that grow."""

import threading
import time
from collections.abc import Iterator
from functools import partial

from backend.records.events import Progress
from backend.records.judge import ANSWER_TOKENS, CANDIDATE_TOKENS, Judged, JudgedProblem, JudgeRequest
from backend.records.judge_summary import counted, table
from backend.records.request import Decoding
from lab_app.pages.judge import risk_gate as judge_gate
from lab_app.pages.judge.form import KEY, SET, SETTINGS, read_regime, read_settings
from lab_app.ui import fields, html, text
from lab_app.ui.components import figure_view, payload
from lab_app.ui.one_run import field_errors, one_run_in_turn
from lab_app.ui.page import PageBuilder
from lab_app.ui.streaming import REDRAW_SECONDS
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, escape, milliseconds, plural
from viz.judge.disagreement import gate_panel
from viz.judge.metrics import views

USUAL = {"count": 20, "candidates": 4, "set_seed": 0}
READS = (*USUAL, "set_source", *SETTINGS)
SECONDS_BETWEEN = 2.0  # two drawings of the figures


def read(inputs: Given) -> JudgeRequest:
    """The set, checked.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    reader = FormReader(inputs)
    numbers = reader.numbers(text.JUDGE_SET_NUMBERS)
    settings = read_settings(reader, numbers["candidates"])
    reader.check()
    regime = read_regime(inputs["set_source"])
    sampling = Decoding(CANDIDATE_TOKENS, 1.0, 1.0, numbers["set_seed"])
    return JudgeRequest(
        regime, (), numbers["count"], numbers["set_seed"], candidates=numbers["candidates"],
        sampling=sampling, max_new_tokens=ANSWER_TOKENS, **settings,
    )  # fmt: skip


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Judge the set and redraw the figures meanwhile; after a cancel, the finished problems stay."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request = read(inputs)
        yield field_errors(None, slot_of) | {"status": ""}
        rows: list[JudgedProblem] = []
        start = last_draw = last_status = time.monotonic()
        for event in visit.engine.study(request, cancel=cancel):
            now = time.monotonic()
            if isinstance(event, JudgedProblem):
                rows.append(event)
                if now - last_draw >= SECONDS_BETWEEN and len(rows) < request.count:
                    last_draw = now
                    judged = Judged(request, lab.model.info, tuple(rows))
                    yield {"view_set": figures(judged, inputs["gated"])}
            elif isinstance(event, Progress) and (now - last_status >= REDRAW_SECONDS or not event.done):
                last_status = now
                yield {"set_status": html.progress(event, "measuring")}
            elif isinstance(event, Judged):
                token, spent_ms = visit.keep_result(SET, event), (time.monotonic() - start) * 1e3
                yield {
                    "set_status": summary_html(event, token, spent_ms),
                    "view_set": figures(event, inputs["gated"]),
                }
                yield judge_gate.reset_gate(visit)

    for update in one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of)):
        # messages stand beside this part, not above the single problem's results
        yield {"set_status" if key == "status" and value else key: value for key, value in update.items()}


def slot_of(field: str | None) -> str:
    """The error slot of a field of the engine's request."""
    last = (field or "").rpartition(".")[2]
    places = {"seed": "set_seed", "methods": "methods", "orders": "order"}
    return last if last in USUAL else places.get(last, "set")


def figures(judged: Judged, gated: bool) -> Update:
    """The figures of the problems; ``gated``: also what reading densely on disagreement would do."""
    first, *rest = views(judged, table(judged), counted(judged))
    return payload((first, gate_panel(judged), *rest) if gated else (first, *rest))


def summary_html(judged: Judged, token: str, spent_ms: float) -> str:
    """What was judged, and the link that saves it."""
    total, count = judged.request.count, len(judged.rows)
    facts = f"{plural(count, 'problem')} on {clip(judged.model.name, 40)} in {milliseconds(spent_ms)}."
    if count < total:
        facts = f"{text.JUDGE_SET_STOPPED} {facts}"
    notes = "".join(f'<p class="kv-help">{escape(note)}</p>' for note in judged.notes)
    return html.saved_measurement(facts, f"kv-{KEY}-set-save", SET, token, notes)


def build(page: PageBuilder) -> None:
    """The widgets."""
    numbers = (
        fields.number(name, text.JUDGE_SET_NUMBERS[name].label, value, id=f"kv-{KEY}-{name}")
        for name, value in USUAL.items()
    )
    sources = [(label, name) for name, label in text.JUDGE_SET_SOURCES.items()]
    page.form(
        "set_form",
        fields.fold(
            "judge_set",
            f'<h3 class="kv-card-title">{text.JUDGE_SET}</h3>',
            fields.help_text("", text.JUDGE_SET_HELP, f"kv-{KEY}-set-help"),
            fields.row(
                *numbers,
                fields.select(
                    "set_source", text.JUDGE_SET_SOURCE, sources, "typed", id=f"kv-{KEY}-set-source"
                ),
                fields.button("set_run", text.JUDGE_SET_RUN, primary=True, id=f"kv-{KEY}-set-run"),
                css="kv-measure",
            ),
            *(fields.message(name, f"{KEY}-{name}".replace("_", "-")) for name in (*USUAL, "set")),
            id=f"kv-{KEY}-set", css="kv-section",
        ),
        fields.note("set_status", id=f"kv-{KEY}-set-status"),
    )  # fmt: skip
    page.add(view_set=figure_view(f"{KEY}-set", css="kv-own-view"))
    judge_gate.build(page)


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.stream(page.event("set_run"), partial(run, page.lab), *READS)
    judge_gate.connect(page)
