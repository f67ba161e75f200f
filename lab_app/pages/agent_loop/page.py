"""The Agent loop page: an agent with tools, turn by turn, and where each turn's prompt came from."""

import dataclasses
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.prompts.presets import Example
from backend.prompts.template import QUESTION
from backend.records.agent_loop import (
    LIMITS,
    LoopRequest,
    cut,
    is_final,
    loop_pipeline,
    loop_questions,
    record_of_rows,
    turns_of,
)
from backend.records.events import AgentDone, Progress, RunDone, TextSoFar
from backend.records.request import CONTROLS, Mode, RunRequest
from backend.records.run import Outcome, RunRecord
from lab_app.pages.pipeline.results import open_run
from lab_app.ui import fields, html, text
from lab_app.ui.components import figure_view, panes, payload, raw_html
from lab_app.ui.first_runs import first_run, results_notice
from lab_app.ui.method_chips import chosen_methods, method_chips, usable_methods
from lab_app.ui.method_choice import MOST_COLUMNS
from lab_app.ui.one_run import cancelled, field_errors, one_run_in_turn
from lab_app.ui.page import OPTIONS, PageBuilder, PageSpec
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, NumberField
from lab_app.visits.visits import Visit, VisitStore
from viz.base.figure import FigureView, Panel
from viz.base.format import plural
from viz.pages.agent_loop import views
from viz.pages.agent_loop_turns import ends_html, fragments_finding, fragments_html, turns_html
from viz.run.cache_error_facts import error_by_layer
from viz.run.divergence import kl_along_answer
from viz.run.timing import ttft_view
from viz.run.token_strip import strip_html
from viz.run.verdict_card import factline, run_card, verdict_card

KEY = "loop"
METHODS_AT_FIRST = ("prefix", "naive", "segments")
TURNS_AT_FIRST = 8
SET = 50  # questions that Next goes through
REDRAW_SECONDS = 0.2
READS = ("question", "methods", OPTIONS, "mode", "turns")


@dataclass
class AgentLoopState:
    """What a visit's page remembers; ``ran`` is what was last run, ``token`` its record's, ``rows`` the
    episodes so far under its methods."""

    example: Example | None = None
    next_example: int = 0
    ran: RunRequest | None = None
    token: str = ""
    saved: bool = False  # what is shown is the saved run of a first visit
    rows: list[dict[str, Any]] = field(default_factory=list)


def state(visit: Visit) -> AgentLoopState:
    """The visit's page."""
    found: AgentLoopState = visit.pages.setdefault(KEY, AgentLoopState())
    return found


def read(visit: Visit, given: Given) -> RunRequest:
    """What stands on the page as a checked request."""
    reader, question = FormReader(given), str(given["question"] or "")
    mode: Mode = "free" if given["mode"] == "free" else "pinned"
    turns = reader.number("turns", NumberField(text.LOOP_TURNS, *LIMITS["turns"]))
    values = reader.attempt("question", lambda: loop_pipeline(turns).check_values({QUESTION: question}))
    methods = reader.attempt("methods", lambda: chosen_methods(given, MOST_COLUMNS))
    reader.done()
    asked = state(visit).example
    known = asked.answer if asked is not None and dict(asked.values) == values else None
    request = LoopRequest(methods, turns=turns, modes=(mode,)).episode(Example(values, known), mode)
    return dataclasses.replace(request, probe_offsets=True)


def page_errors(error: LabError | None) -> Update:
    """Messages beside their places."""
    return field_errors(error, lambda field: "question" if "question" in (field or "") else "run")


# -- the bench


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The saved episode and its question, else the first one; and the methods that run here."""
    mine, record = state(visit), first_run(page.lab.first_runs, KEY)
    found = next_example(visit, {})
    if record is not None:
        values = record.request.values
        mine.example = Example(dict(values), record.request.expected)
        # the record's pipeline is cut to the turns that something came to
        mine.ran = dataclasses.replace(record.request, pipeline=loop_pipeline(TURNS_AT_FIRST))
        mine.saved = True
        mine.token, mine.rows = visit.keep(record, show=False), [row_of(record, 0)]
        found = {"question": values[QUESTION]} | render_episode(visit, record)
    return found | usable_methods(page)


def next_example(visit: Visit, given: Given) -> Update:
    """The next question of the set."""
    mine = state(visit)
    mine.example = loop_questions(SET)[mine.next_example % SET]
    mine.next_example += 1
    return {"question": mine.example.values[QUESTION]}


def refresh(visit: Visit, given: Given) -> Update:
    """What follows from what stands on the page: messages, the cost, and whether the turns are old."""
    mine, request = state(visit), None
    try:
        request = read(visit, given)
        update = page_errors(None) | {"cost": html.cost(visit.engine.estimate(request), 0, 0.0)}
    except LabError as error:
        update = page_errors(error) | {"cost": ""}
    asked = mine.example if request is not None and request.expected is not None else None
    update["expected"] = html.known_answer(asked, asked.values) if asked else ""
    if visit.cancel is None and mine.ran is not None:
        update["status"] = results_notice(request != mine.ran, mine.saved, text.LOOP_EDITED)
    return update


# -- running


def run(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """One episode, shown turn by turn."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request = read(visit, given)
        yield page_errors(None)
        mine = state(visit)
        record: RunRecord | None = None
        outcomes: list[Outcome] = []
        writing: dict[str, str] = {}
        names = {m.label: m.name for m in request.methods}
        said, done, drawn = "Starting", 0, 0.0
        for event in visit.engine.run(request, cancel=cancel, ends=is_final):
            if isinstance(event, RunDone):
                record = cut(event.record)
            elif isinstance(event, TextSoFar):
                writing[event.method] = event.text
            elif isinstance(event, AgentDone):
                outcomes += event.outcomes
                writing, drawn = {}, 0.0
            elif isinstance(event, Progress):
                said, done = html.said_by(event), event.done
            if time.monotonic() - drawn >= REDRAW_SECONDS:
                drawn = time.monotonic()
                yield {
                    "status": html.status(said, "running", done, len(request.pipeline.order)),
                    "turns_shown": turns_html(outcomes, list(names), names, writing),
                }
        if record is None:
            raise LabError("The episode ended without a result. Run it again.")
        if mine.ran is None or mine.ran.methods != request.methods:
            mine.rows.clear()
        mine.rows.append(row_of(record, len(mine.rows)))
        mine.ran, mine.token, mine.saved = request, visit.keep(record, show=False), False
        yield render_episode(visit, record)

    yield from one_run_in_turn(lab, visit, work, page_errors)


def row_of(record: RunRecord, index: int) -> dict[str, Any]:
    """An episode among those so far."""
    question = record.request.values[QUESTION]
    return {"mode": record.request.mode, "index": index, "question": question, "turns": turns_of(record)}


def render_episode(visit: Visit, record: RunRecord) -> Update:
    """A finished episode, and all so far."""
    mine, names = state(visit), {m.label: m.name for m in record.request.methods}
    modes: Any = tuple(dict.fromkeys(row["mode"] for row in mine.rows))
    asked = LoopRequest(record.request.methods, len(mine.rows), modes=modes)
    so_far = record_of_rows(asked, record.model, mine.rows)
    count = plural(len(mine.rows), "episode")
    return {
        "status": "",
        "verdict": verdict_of(record),
        "turns_shown": turns_html(record.outcomes, record.labels, names, tools=record.tools),
        "turn.choices": [(f"Turn {agent}", agent) for agent in record.agents],
        "turn": record.agents[-1],
        "turn-row.visible": True,
        "so-far": f'<p class="kv-help">{text.LOOP_SO_FAR_HELP.format(count=count)}</p>',
        "figures": payload(views(so_far)),
        "closer-row.visible": record.request.mode == "pinned",
        **turn_shown(record, record.agents[-1]),
    }


def verdict_of(record: RunRecord) -> str:
    """How the episode ended under each method, and where that comes from."""
    found = {(o.agent, o.method) for o in record.outcomes}
    if all((agent, label) in found for agent in record.agents for label in record.labels):
        return run_card(record)
    return verdict_card(  # free-running, and some ended earlier than others
        ends_html(record), "neutral", (), text.LOOP_FREE_WHERE, text.LOOP_FREE_REPAIR, factline(record)
    )


def turn_shown(record: RunRecord, turn: int) -> Update:
    """One turn's fragments, strip and figures."""
    there = dataclasses.replace(record, outcomes=tuple(o for o in record.outcomes if o.agent == turn))
    figures: list[FigureView | Panel] = [
        Panel(
            "loop_fragments",
            text.LOOP_FRAGMENTS.format(turn=turn),
            fragments_html(record, turn),
            fragments_finding(record, turn),
        ),
    ]
    if record.request.mode == "pinned":  # elsewhere dense may have ended before this turn
        figures += [ttft_view(there), error_by_layer(there, turn), kl_along_answer(there, turn)]
    return {"strip": {"html": strip_html(there, turn)}, "turn-figures": payload(figures)}


def show_turn(visit: Visit, given: Given) -> Update:
    """Another turn."""
    record = visit.records.get(state(visit).token)
    if record is None:
        return {"status": html.status(text.GONE, "note")}
    if given["turn"] not in record.agents:
        raise LabError(
            f"There is no turn {str(given['turn'])[:20]!r} in this episode. Choose one of the list."
        )
    return turn_shown(record, int(given["turn"]))


def open_in_pipeline(visit: Visit, given: Given) -> Update:
    """The episode on the pipeline's page, with all its figures."""
    record = visit.records.get(state(visit).token)
    if record is None or record.request.mode != "pinned":
        return {"status": html.status(text.GONE, "note")}
    return open_run(visit, state(visit).token)


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page."""
    page.frame(build_inputs, build_results)
    connect(page)


def build_inputs(page: PageBuilder) -> None:
    """The left column: question, methods, mode."""
    modes = [(label, name) for name, label in CONTROLS["mode"].choices.items()]
    page.form(
        "inputs",
        fields.part(
            text.LOOP_TITLE,
            f"{KEY}-question",
            fields.help_text("", text.LOOP_HELP, f"kv-{KEY}-help"),
            fields.text("question", "Question", lines=3, max=6, id=f"kv-{KEY}-question"),
            fields.message("question", f"{KEY}-question"),
            fields.row(
                fields.note("expected", id=f"kv-{KEY}-expected"),
                fields.button("next", text.LOOP_NEXT, id=f"kv-{KEY}-next"),
                css="kv-line",
            ),
        ),
        method_chips(KEY, METHODS_AT_FIRST),
        fields.part(
            text.MORE,
            f"{KEY}-mode",
            fields.choice("mode", "Mode", modes, "pinned", id=f"kv-{KEY}-mode", css="kv-unnamed"),
            fields.number("turns", text.LOOP_TURNS, TURNS_AT_FIRST, id=f"kv-{KEY}-turns"),
            fields.message("turns", f"{KEY}-turns"),
        ),
    )


def build_results(page: PageBuilder) -> None:
    """The turns, one turn's figures, and the figures over the episodes."""
    page.block("status")
    page.block("verdict", html.empty_card(text.LOOP_EMPTY, text.LOOP_EMPTY_HELP))
    panes(*text.LOOP_PANES)
    page.block("turns_shown", elem_classes="kv-pane-1")
    with gr.Column(
        visible=False, min_width=0, elem_id=f"kv-{KEY}-turn-row",
        elem_classes="kv-pane-2 kv-pane-3 kv-pane-4",
    ) as row:  # fmt: skip
        page.add(
            turn=gr.Radio(
                [], show_label=False, label=text.LOOP_TURN, container=False, elem_id=f"kv-{KEY}-turn",
                elem_classes="kv-pane-2 kv-pane-3",
            ),
            strip=raw_html(f"kv-{KEY}-strip", elem_classes="kv-pane-2"),
        )  # fmt: skip
        page.add(**{"turn-figures": figure_view(f"{KEY}-turn", css="kv-folds kv-pane-3")})
        page.block("so-far", elem_classes="kv-pane-4")
        page.add(figures=figure_view(KEY, css="kv-folds kv-pane-4"))
    page.add(**{"turn-row": row})
    page.closer(text.LOOP_CLOSER_HELP)


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.arrives(lambda visit, given: arrive(page, visit))
    page.follows(refresh, *READS, when=[page["inputs"].input])
    page.on(page.event("next"), next_example, follow=True)
    page.on(page["turn"].input, show_turn, "turn")
    page.stream(page["run"].click, lambda visit, given: run(page.lab, visit, given), *READS)
    page.on(page["cancel"].click, cancelled)
    page.to_pipeline(page["closer"].click, open_in_pipeline)


PAGE = PageSpec(KEY, text.LOOP, build)
