"""The state of a visit's tour, and the page of its step."""

from dataclasses import dataclass, field
from functools import cache

from backend.records.run import RunRecord
from lab_app.pages.tour import html as tour_html
from lab_app.pages.tour import text as words
from lab_app.pages.tour.steps import Step, recorded, steps
from lab_app.ui import html
from lab_app.ui.components import payload
from lab_app.ui.types import Update
from lab_app.visits.classroom import Room
from lab_app.visits.visits import Visit, VisitStore
from viz.pages.tour import describe_step
from viz.run.comparison import comparison_html
from viz.run.token_strip import strip_html

KEY = "tour"


@dataclass
class TourState:
    """What a visit's tour remembers. ``runs``: by step, the token of its run and whether it was live."""

    step: int = 0
    guesses: dict[str, str] = field(default_factory=dict)
    runs: dict[str, tuple[str, bool]] = field(default_factory=dict)
    room: str = ""
    member: str = ""
    leads: bool = False
    running: bool = False  # also while the step waits for the model


def state_of(visit: Visit) -> TourState:
    """The visit's tour."""
    state: TourState = visit.pages.setdefault(KEY, TourState())
    return state


def room_of(lab: VisitStore, visit: Visit) -> Room | None:
    """The class room that the visit is in, if it is still open."""
    state = state_of(visit)
    return lab.rooms.find(state.room) if state.room else None


def render_step(lab: VisitStore, visit: Visit, note: str = "") -> Update:
    """The whole page for the visit's step, prediction and run."""
    state, room = state_of(visit), room_of(lab, visit)
    if state.room and room is None:
        state.room, state.leads, note = "", False, words.ROOM_GONE
    led = room is not None and not state.leads
    if room is not None:
        state.step = room.step
    every = steps()
    step = every[state.step]
    guess = state.guesses.get(step.key)
    if room is not None and led:
        guess = room.vote_of(state.member)
    run = shown_run(visit, room, step)
    committed = guess is not None
    update: Update = {
        "steps": tour_html.steps_nav(every, state.step, list(state.runs), led),
        "lesson": lesson(state.step),
        "guess.label": step.question,
        "guess.choices": [(answer, key) for key, answer in step.choices.items()],
        "guess": guess,
        "guess.interactive": not committed and not (led and run is not None),
        "vote.visible": led and not committed and run is None,
        "run.visible": not led,
        "run": run_label(room, committed),
        "replay.visible": not led and recorded(step.key) is not None,
        "replay": replay_label(room, committed),
        "cancel.visible": False,
        "back.visible": not led and state.step > 0,
        "next.visible": not led and state.step + 1 < len(every),
        "status": html.status(note, "note") if note else "",
        "errors": {},
        "tally": tally_card(room, step, state, run),
    }
    return update | room_card(room, state) | _results(visit, room, step, run, guess)


@cache
def lesson(at: int) -> str:
    """A step's text with its request, the same for everyone."""
    step = steps()[at]
    return tour_html.lesson(step, at, len(steps()), step.request())


def run_label(room: Room | None, committed: bool) -> str:
    return words.REVEAL if room is not None else words.AGAIN if committed else words.RUN


def replay_label(room: Room | None, committed: bool) -> str:
    if room is not None:
        return words.REVEAL_RECORDED
    return words.RECORDED_AGAIN if committed else words.RECORDED_BUTTON


def shown_run(visit: Visit, room: Room | None, step: Step) -> tuple[RunRecord, bool] | None:
    """The run on the screen, and whether it was live."""
    if room is not None:
        return (room.reveal.record, room.reveal.live) if room.reveal is not None else None
    token, was_live = state_of(visit).runs.get(step.key, ("", False))
    record = visit.records.get(token) if was_live else recorded(step.key) if token else None
    return (record, was_live) if record is not None else None


def tally_card(room: Room | None, step: Step, state: TourState, run: tuple[RunRecord, bool] | None) -> str:
    if room is None or (run is None and not state.leads):
        return tour_html.waiting(room) if room is not None else ""
    right = describe_step(step.key, run[0]).choice if run is not None else None
    return tour_html.tally(step, room.tally(), len(room.members), right)


def room_card(room: Room | None, state: TourState) -> Update:
    return {
        "room": tour_html.room_card(room, state.leads) if room is not None else "",
        "open-room.visible": room is None,
        "close-room.visible": room is not None and state.leads,
    }


def _results(
    visit: Visit, room: Room | None, step: Step, run: tuple[RunRecord, bool] | None, guess: str | None
) -> Update:
    """The run's sentences and figures, or nothing yet."""
    if run is None:
        return {
            "reveal": "", "comparison": "", "takeaway": "", "strip": {"html": ""}, "figures": payload([]),
            "closer-row.visible": False,
        }  # fmt: skip
    record, was_live = run
    outcome = describe_step(step.key, record)
    update: Update = {
        "reveal": tour_html.reveal(step, outcome, guess, record, was_live, notes(step, record, was_live)),
        "takeaway": tour_html.takeaway(step),
        "closer-row.visible": room is None or state_of(visit).leads,
    }
    if room is not None and room.reveal is not None and room.reveal.drawn is not None:
        return update | dict(room.reveal.drawn)
    figures: Update = {
        "comparison": comparison_html(record) if outcome.texts else "",
        "strip": {"html": strip_html(record, outcome.strip) if outcome.strip is not None else ""},
        "figures": payload(outcome.views),
    }
    if room is not None and room.reveal is not None:
        room.reveal.drawn = figures  # every student gets the same
    return update | figures


def notes(step: Step, record: RunRecord, was_live: bool) -> list[str]:
    """Caveats of the run: why its request was picked, and whether the wording has changed."""
    out = []
    recording = recorded(step.key)
    if (
        recording is not None
        and recording.request.values == record.request.values
        and describe_step(step.key, recording).shows
    ):
        out.append(words.PICKED)
    if not was_live and record.request.pipeline != step.preset.pipeline.unrolled:
        out.append(words.OLD_WORDING)
    return out
