"""The Agent loop page: an agent with tools, turn by turn, and which parts of each prompt were reused."""

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
from lab_app.ui.first_runs import first_run
from lab_app.ui.method_chips import chosen_methods, method_chips, usable_methods
from lab_app.ui.method_choice import MOST_COLUMNS
from lab_app.ui.one_run import RunState, cancelled, field_errors, follow, one_run_in_turn
from lab_app.ui.page import OPTIONS, PageBuilder, PageSpec
from lab_app.ui.streaming import REDRAW_SECONDS
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
SET = 50  # questions in the set
READS = ("question", "methods", OPTIONS, "mode", "turns")


@dataclass
class AgentLoopState(RunState):
    """What a visit's page remembers: also the episodes under the last request's methods (``rows``)."""

    rows: list[dict[str, Any]] = field(default_factory=list)


def state_of(visit: Visit) -> AgentLoopState:
    """The visit's page."""
    state: AgentLoopState = visit.pages.setdefault(KEY, AgentLoopState())
    return state


def read(visit: Visit, inputs: Given) -> RunRequest:
    """The form as a checked request."""
    reader, question = FormReader(inputs), str(inputs["question"] or "")
    mode: Mode = "free" if inputs["mode"] == "free" else "pinned"
    turns = reader.number("turns", NumberField(text.LOOP_TURNS, *LIMITS["turns"]))
    values = reader.attempt("question", lambda: loop_pipeline(turns).check_values({QUESTION: question}))
    methods = reader.attempt("methods", lambda: chosen_methods(inputs, MOST_COLUMNS))
    reader.check()
    example = state_of(visit).example
    answer = example.answer if example is not None and dict(example.values) == values else None
    request = LoopRequest(methods, turns=turns, modes=(mode,)).episode(Example(values, answer), mode)
    return dataclasses.replace(request, probe_offsets=True)


def page_errors(error: LabError | None) -> Update:
    """Messages beside their places."""
    return field_errors(error, lambda field: "question" if "question" in (field or "") else "run")


# -- the form


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The saved episode and its question, else the first question; and the methods that run here."""
    state, record = state_of(visit), first_run(page.lab.first_runs, KEY)
    update = next_example(visit, {})
    if record is not None:
        values = record.request.values
        state.example = Example(dict(values), record.request.expected)
        # the record's pipeline is cut to the turns that were reached
        state.request = dataclasses.replace(record.request, pipeline=loop_pipeline(TURNS_AT_FIRST))
        state.saved = True
        state.token, state.rows = visit.keep(record, show=False), [row_of(record, 0)]
        update = {"question": values[QUESTION]} | render_episode(visit, record)
    return update | usable_methods(page)


def next_example(visit: Visit, inputs: Given) -> Update:
    """The next question of the set."""
    state = state_of(visit)
    state.example = loop_questions(SET)[state.next_example % SET]
    state.next_example += 1
    return {"question": state.example.values[QUESTION]}


def refresh(visit: Visit, inputs: Given) -> Update:
    """What follows from the form."""
    return follow(visit, state_of(visit), lambda: read(visit, inputs), page_errors, text.LOOP_EDITED)


# -- running


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """One episode, shown turn by turn."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request = read(visit, inputs)
        yield page_errors(None)
        state = state_of(visit)
        record: RunRecord | None = None
        outcomes: list[Outcome] = []
        writing: dict[str, str] = {}
        names = {m.label: m.name for m in request.methods}
        message, turns, last_draw = "Starting", 0, 0.0
        for event in visit.engine.run(request, cancel=cancel, ends=is_final):
            if isinstance(event, RunDone):
                record = cut(event.record)
            elif isinstance(event, TextSoFar):
                writing[event.method] = event.text
            elif isinstance(event, AgentDone):
                outcomes += event.outcomes
                writing, last_draw = {}, 0.0
            elif isinstance(event, Progress):
                message, turns = html.progress_text(event), event.done
            if time.monotonic() - last_draw >= REDRAW_SECONDS:
                last_draw = time.monotonic()
                yield {
                    "status": html.status(message, "running", turns, len(request.pipeline.order)),
                    "turns_shown": turns_html(outcomes, list(names), names, writing),
                }
        if record is None:
            raise LabError("The episode ended without a result. Run it again.")
        if state.request is None or state.request.methods != request.methods:
            state.rows.clear()
        state.rows.append(row_of(record, len(state.rows)))
        state.request, state.token, state.saved = request, visit.keep(record, show=False), False
        yield render_episode(visit, record)

    yield from one_run_in_turn(lab, visit, work, page_errors)


def row_of(record: RunRecord, index: int) -> dict[str, Any]:
    """An episode as a row of the figures."""
    question = record.request.values[QUESTION]
    return {"mode": record.request.mode, "index": index, "question": question, "turns": turns_of(record)}


def render_episode(visit: Visit, record: RunRecord) -> Update:
    """A finished episode, and the figures of all."""
    state, names = state_of(visit), {m.label: m.name for m in record.request.methods}
    modes: Any = tuple(dict.fromkeys(row["mode"] for row in state.rows))
    request = LoopRequest(record.request.methods, len(state.rows), modes=modes)
    episodes = record_of_rows(request, record.model, state.rows)
    count = plural(len(state.rows), "episode")
    return {
        "status": "",
        "verdict": verdict_of(record),
        "turns_shown": turns_html(record.outcomes, record.labels, names, tools=record.tools),
        "turn.choices": [(f"Turn {agent}", agent) for agent in record.agents],
        "turn": record.agents[-1],
        "turn-row.visible": True,
        "so-far": f'<p class="kv-help">{text.LOOP_SO_FAR_HELP.format(count=count)}</p>',
        "figures": payload(views(episodes)),
        "closer-row.visible": record.request.mode == "pinned",
        **render_turn(record, record.agents[-1]),
    }


def verdict_of(record: RunRecord) -> str:
    """How the episode ended under each method, and why."""
    pairs = {(o.agent, o.method) for o in record.outcomes}
    if all((agent, label) in pairs for agent in record.agents for label in record.labels):
        return run_card(record)
    return verdict_card(  # free-running: not every method reached every turn
        ends_html(record), "neutral", (), text.LOOP_FREE_WHERE, text.LOOP_FREE_REPAIR, factline(record)
    )


def render_turn(record: RunRecord, turn: int) -> Update:
    """One turn's fragments, strip and figures."""
    part = dataclasses.replace(record, outcomes=tuple(o for o in record.outcomes if o.agent == turn))
    figures: list[FigureView | Panel] = [
        Panel(
            "loop_fragments",
            text.LOOP_FRAGMENTS.format(turn=turn),
            fragments_html(record, turn),
            fragments_finding(record, turn),
        )
    ]
    if record.request.mode == "pinned":  # free-running, dense may have ended before this turn
        figures += [ttft_view(part), error_by_layer(part, turn), kl_along_answer(part, turn)]
    return {"strip": {"html": strip_html(part, turn)}, "turn-figures": payload(figures)}


def show_turn(visit: Visit, inputs: Given) -> Update:
    """Another turn."""
    record = visit.records.get(state_of(visit).token)
    if record is None:
        return {"status": html.status(text.GONE, "note")}
    if inputs["turn"] not in record.agents:
        raise LabError(
            f"There is no turn {str(inputs['turn'])[:20]!r} in this episode. Choose one of the list."
        )
    return render_turn(record, int(inputs["turn"]))


def open_in_pipeline(visit: Visit, inputs: Given) -> Update:
    """The episode on the pipeline's page, with all its figures."""
    record = visit.records.get(state_of(visit).token)
    if record is None or record.request.mode != "pinned":
        return {"status": html.status(text.GONE, "note")}
    return open_run(visit, state_of(visit).token)


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page and its events."""
    page.frame(build_inputs, build_results)
    page.arrives(lambda visit, inputs: arrive(page, visit))
    page.follows(refresh, *READS, when=[page["inputs"].input])
    page.on(page.event("next"), next_example, follow=True)
    page.on(page["turn"].input, show_turn, "turn")
    page.stream(page["run"].click, lambda visit, inputs: run(page.lab, visit, inputs), *READS)
    page.on(page["cancel"].click, cancelled)
    page.to_pipeline(page["closer"].click, open_in_pipeline)


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


PAGE = PageSpec(KEY, text.LOOP, build)
