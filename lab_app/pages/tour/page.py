"""The guided tour: steps with a prediction to make first and a live run, alone or with a class."""

import json
import time
from collections.abc import Iterator
from functools import partial
from threading import Event as Flag
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.records.run import RunRecord
from lab_app.pages.pipeline.results import open_run
from lab_app.pages.pipeline.running import progress
from lab_app.pages.tour import html as tour_html
from lab_app.pages.tour import text as words
from lab_app.pages.tour.steps import Step, prepare, recorded, steps
from lab_app.pages.tour.view import (
    KEY,
    render_step,
    replay_label,
    room_card,
    room_of,
    run_label,
    shown_run,
    state_of,
    tally_card,
)
from lab_app.ui import html, text
from lab_app.ui.components import figure_view, hidden_button, raw_html
from lab_app.ui.one_run import cancelled, one_run_in_turn
from lab_app.ui.page import Act, PageBuilder, PageSpec
from lab_app.ui.streaming import live
from lab_app.ui.types import Given, Update
from lab_app.visits import classroom
from lab_app.visits.visits import Visit, VisitStore

PATIENCE_SECONDS = 6.0  # of waiting, then the recorded run is shown instead
MOST_NEWS = 400  # characters of the browser's message
#: Sends the browser's message when the hidden button is pressed (``assets/lesson.js``).
NEWS_JS = "(session, news) => [session, window.KVTour ? window.KVTour.news() : news]"


# -- going through the steps


def arrive(lab: VisitStore, visit: Visit) -> Update:
    """The step that the visit is at."""
    return render_step(lab, visit)


def read_news(value: object) -> dict[str, Any]:
    """The browser's message: ``what`` it asks for, and what its address holds. Empty where malformed."""
    if not isinstance(value, str) or len(value) > MOST_NEWS:
        return {}
    try:
        body = json.loads(value)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def news(lab: VisitStore, visit: Visit, inputs: Given) -> Update:
    """Answer the browser's message: a link was opened, a step chosen, or the class room changed."""
    state, message = state_of(visit), read_news(inputs["news"])
    what, step = message.get("what"), message.get("step")
    if what == "enter" and message.get("room"):
        return enter(lab, visit, message)
    if what in ("enter", "go") and type(step) is int and 0 <= step < len(steps()):
        return go(lab, visit, step)
    if what == "look" and state.room:
        return follow_room(lab, visit)
    return render_step(lab, visit)


def enter(lab: VisitStore, visit: Visit, message: dict[str, Any]) -> Update:
    """Enter a class room by a link; with the key, as its teacher. A visit that is at the room's step already
    may have chosen an answer while the page joined, which stays."""
    state, room = state_of(visit), lab.rooms.find(message["room"])
    at = state.step
    if room is None:
        state.room = ""
        return render_step(lab, visit, words.ROOM_GONE)
    leads = lab.rooms.leads(room, message.get("key"))
    if not leads:
        state.member = classroom.member_token(message.get("member"), visit.id)
        lab.rooms.join(room, state.member)
    state.room, state.leads = room.id, leads
    update = render_step(lab, visit)
    if at == room.step and update["guess"] is None:
        del update["guess"]
    return update


def follow_room(lab: VisitStore, visit: Visit) -> Update:
    """What changed in the class room. If only the count of predictions grew, nothing else is drawn, so that a
    student's choice stays."""
    state, room = state_of(visit), room_of(lab, visit)
    if room is None or room.step != state.step or room.reveal is not None:
        return render_step(lab, visit)
    run = shown_run(visit, room, steps()[state.step])
    return {"tally": tally_card(room, steps()[state.step], state, run)} | room_card(room, state)


def go(lab: VisitStore, visit: Visit, step: int) -> Update:
    """Go to a step; in a class room only the teacher can."""
    state, room = state_of(visit), room_of(lab, visit)
    if state.running:
        return {"status": html.status(text.RUN_ELSEWHERE, "busy")}
    if room is not None and not state.leads:
        return render_step(lab, visit, words.LED)
    state.step = step
    if room is not None:
        lab.rooms.go(room, step)
    return render_step(lab, visit)


def moving(lab: VisitStore, by: int) -> Act:
    """The handler of Back and Next."""
    return lambda visit, inputs: go(lab, visit, min(max(state_of(visit).step + by, 0), len(steps()) - 1))


# -- predicting and running


def commit(visit: Visit, step: Step, inputs: Given) -> str:
    """Store the prediction; a later one does not replace it.

    Raises:
        LabError: none was chosen, or one that is no choice of the step.
    """
    state = state_of(visit)
    guess = state.guesses.get(step.key) or inputs["guess"]
    if not guess:
        raise LabError(words.CHOOSE_FIRST, field="guess")
    if guess not in step.choices:
        raise LabError(words.NO_SUCH_CHOICE.format(given=str(guess)[:40]), field="guess")
    state.guesses[step.key] = str(guess)
    return str(guess)


def show_error(error: LabError) -> Update:
    """A message beside its field."""
    return {"errors": {"guess" if error.field == "guess" else "run": html.error(str(error))}}


def vote(lab: VisitStore, visit: Visit, inputs: Given) -> Update:
    """Count a student's prediction."""
    state, room = state_of(visit), room_of(lab, visit)
    if room is None:
        return render_step(lab, visit)
    step = steps()[room.step]
    if room.step != state.step:  # the class went on while this was chosen
        return render_step(lab, visit)
    guess = inputs["guess"]
    if guess not in step.choices:
        return show_error(LabError(words.CHOOSE_FIRST, field="guess"))
    counted = lab.rooms.vote(room, state.member, str(guess))
    return render_step(lab, visit, "" if counted or room.vote_of(state.member) else words.TOO_LATE)


def replay(lab: VisitStore, visit: Visit, inputs: Given) -> Update:
    """Show the recorded run of the step."""
    state, room = state_of(visit), room_of(lab, visit)
    step = steps()[state.step]
    if room is not None and not state.leads:
        return render_step(lab, visit, words.LED)
    record = recorded(step.key)
    if record is None:
        return {"status": html.status(words.NO_RECORDED, "note")}
    if room is None:
        try:
            commit(visit, step, inputs)
        except LabError as error:
            return show_error(error)
    return keep(lab, visit, step, record, was_live=False)


def keep(
    lab: VisitStore, visit: Visit, step: Step, record: RunRecord, was_live: bool, note: str = ""
) -> Update:
    """Remember a run and show it; in a class room, to everyone."""
    state, room = state_of(visit), room_of(lab, visit)
    state.runs[step.key] = (visit.keep(record, show=False), was_live)
    if room is not None and state.leads:
        lab.rooms.show(room, steps().index(step), record, was_live)
    if not was_live and record.model.weights_hash != lab.model.info.weights_hash:
        note = " ".join(part for part in (note, words.OTHER_WEIGHTS.capitalize() + ".") if part)
    return render_step(lab, visit, note)


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Run the step; show its recorded run where the wait for the model is too long."""
    state, room = state_of(visit), room_of(lab, visit)
    step, started = steps()[state.step], False
    if room is not None and not state.leads:
        yield render_step(lab, visit, words.LED)
        return
    if room is None:
        try:
            commit(visit, step, inputs)
        except LabError as error:
            yield show_error(error)
            return

    def work(cancel: Flag) -> Iterator[Update]:
        nonlocal started
        started = True
        yield {"errors": {}, "guess.interactive": False, "replay.visible": False, "back.visible": False,
               "next.visible": False}  # fmt: skip
        engine = lab.engine()  # a new one, so that the pools hold only what the step sends
        request = step.request()
        try:
            yield from progress(prepare(engine, step, request, cancel), "Preparing")
            record = yield from live(request, engine.run(request, cancel=cancel))
        finally:
            engine.forget()
        yield keep(lab, visit, step, record, was_live=True)

    start, recording = time.monotonic(), recorded(step.key)
    events = one_run_in_turn(lab, visit, work, show_error)
    accepted = visit.cancel is None  # else it is refused because another run of the visit is going on
    state.running = state.running or accepted
    try:
        for update in events:
            if (
                not started
                and recording is not None
                and time.monotonic() - start > PATIENCE_SECONDS
                and visit.cancel is not None
            ):
                events.close()  # type: ignore[attr-defined]  # gives up the place in the queue
                yield keep(lab, visit, step, recording, was_live=False, note=words.BUSY)
                return
            yield {name: value for name, value in update.items() if name != "verdict"}
    finally:
        state.running = state.running and not accepted
    if not accepted:
        return
    yield {
        "back.visible": state.step > 0, "next.visible": state.step + 1 < len(steps()),
        "replay.visible": recording is not None, "run": run_label(room, True),
        "replay": replay_label(room, True),
    }  # fmt: skip


# -- the class room


def open_room(lab: VisitStore, visit: Visit) -> Update:
    """Open a class room that this visit leads."""
    state = state_of(visit)
    try:
        room = lab.rooms.open(state.step)
    except LabError as error:
        return {"errors": {"room": html.error(str(error))}}
    state.room, state.leads = room.id, True
    return render_step(lab, visit)


def close_room(lab: VisitStore, visit: Visit) -> Update:
    """Close the class room."""
    state, room = state_of(visit), room_of(lab, visit)
    if room is not None and state.leads:
        lab.rooms.close(room)
    state.room, state.leads = "", False
    return render_step(lab, visit, words.ROOM_CLOSED)


def open_in_pipeline(lab: VisitStore, visit: Visit, inputs: Given) -> Update:
    """Show the run on the pipeline's page, with all its figures."""
    state = state_of(visit)
    token = state.runs.get(steps()[state.step].key, ("", False))[0]
    if token not in visit.records:
        return {"status": html.status(words.FORGOTTEN, "note")}
    return open_run(visit, token)


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page."""
    with gr.Column(elem_classes="kv-stage kv-tour", min_width=0):
        page.block("steps")
        page.block("room", elem_classes="kv-maybe")
        page.block("lesson")
        build_prediction(page)
        page.block("status")
        page.block("tally")
        page.block("reveal")
        build_run(page)
        page.block("takeaway")
        with gr.Row(elem_classes="kv-tour-move"):
            page.add(
                back=gr.Button(words.BACK, size="md", elem_id=f"kv-{KEY}-back", scale=0),
                next=gr.Button(words.NEXT, size="md", elem_id=f"kv-{KEY}-next", scale=0),
            )
        build_teacher(page)
        page.add(news=gr.Textbox("", visible=False, label="news"), tell=hidden_button(f"kv-{KEY}-tell"))
    connect(page)


def build_prediction(page: PageBuilder) -> None:
    """The question, its answers and the buttons."""
    with gr.Column(elem_classes="kv-tour-predict", min_width=0):
        gr.HTML(f'<p class="kv-eyebrow">{words.PREDICT}</p>', apply_default_css=False)
        page.add(guess=gr.Radio([], label=words.PREDICT, elem_id=f"kv-{KEY}-guess", container=True))
        page.error("guess")
        with gr.Row(elem_classes="kv-tour-go"):
            page.add(
                run=gr.Button(words.RUN, variant="primary", elem_id=f"kv-{KEY}-run", scale=0),
                cancel=gr.Button(
                    text.RUNNING, variant="stop", visible=False, elem_id=f"kv-{KEY}-cancel", scale=0
                ),
                replay=gr.Button(words.RECORDED_BUTTON, elem_id=f"kv-{KEY}-replay", scale=0),
                vote=gr.Button(
                    words.VOTE, variant="primary", visible=False, elem_id=f"kv-{KEY}-vote", scale=0
                ),
            )
        page.error("run")


def build_run(page: PageBuilder) -> None:
    """Texts, strip and figures of the run."""
    page.add(figures=figure_view(KEY))
    page.block("comparison")
    page.add(strip=raw_html(f"kv-{KEY}-strip"))
    page.closer(words.CLOSER_HELP)


def build_teacher(page: PageBuilder) -> None:
    """What teachers need: the class room's buttons and the lectures."""
    with gr.Accordion(
        words.FOR_TEACHERS, open=False, elem_id=f"kv-{KEY}-teacher", elem_classes="kv-part kv-fold"
    ):
        page.block("room-help", f'<p class="kv-help">{words.ROOM_HELP}</p>')
        with gr.Row(elem_classes="kv-tour-go"):
            page.add(**{
                "open-room": gr.Button(words.ROOM_BUTTON, size="sm", elem_id=f"kv-{KEY}-open-room", scale=0),
                "close-room": gr.Button(
                    words.ROOM_CLOSE, size="sm", visible=False, elem_id=f"kv-{KEY}-close-room", scale=0
                ),
            })  # fmt: skip
        page.error("room")
        page.block("lectures", tour_html.lectures(steps()))


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    lab = page.lab
    page.arrives(lambda visit, inputs: arrive(lab, visit))
    page.on(partial(page["tell"].click, js=NEWS_JS), partial(news, lab), "news")
    page.on(page["back"].click, moving(lab, -1))
    page.on(page["next"].click, moving(lab, 1))
    page.on(page["vote"].click, partial(vote, lab), "guess")
    page.on(page["replay"].click, partial(replay, lab), "guess")
    page.stream(page["run"].click, partial(run, lab), "guess")
    page.on(page["cancel"].click, cancelled)
    page.on(page["open-room"].click, lambda visit, inputs: open_room(lab, visit))
    page.on(page["close-room"].click, lambda visit, inputs: close_room(lab, visit))
    page.to_pipeline(page["closer"].click, partial(open_in_pipeline, lab))


PAGE = PageSpec(KEY, words.TOUR, build)
