"""A run follows its methods' controls: it is revised from the state that it stored, without Run."""

import dataclasses
import logging
import threading
from collections.abc import Callable, Iterator

from backend.base.errors import LabError, OptionError
from backend.records.events import Progress
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import Form, Picks
from lab_app.pages.pipeline.form_json import form_to_json
from lab_app.pages.pipeline.results import comparison, drawing, results
from lab_app.pages.pipeline.state import keep_form, state_of
from lab_app.ui import html, text
from lab_app.ui.run_results import choices
from lab_app.ui.scenarios import USUAL_WARM
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit

LOG = logging.getLogger("lab_app")
RUN_SECONDS = 6.0  # the longest run that may begin without Run
METHODS = (
    "methods",
    "options",
    "copies",
    "ablate",
    "every_profile",
)  # the fields of a form that a revision may change


def statement(form: Form) -> Form:
    """The part of the form that decides a run's result."""
    shown = {name: form.options.get(name, {}) for name in form.methods}
    return dataclasses.replace(
        form, warm=True, warm_count=USUAL_WARM, warm_own=False, many_count=10, options=shown, pinned="",
        methods=tuple(sorted(form.methods)),
    )  # fmt: skip


def same_inputs(a: Form, b: Form) -> bool:
    """Whether two forms run the same methods on the same inputs. Their options are not compared, nor how many
    boxes are empty: a link has as many as agents, the page eight."""

    def inputs(form: Form) -> Form:
        templates, weights = tuple(filter(None, form.templates)), tuple(filter(None, form.weights))
        return dataclasses.replace(statement(form), options={}, templates=templates, weights=weights)

    return inputs(a) == inputs(b)


def follows(visit: Visit, form: Form) -> bool:
    """Whether the run on the screen can be revised to this form: only its methods differ."""
    ran, current = state_of(visit).run_form, statement(form)
    if ran is None or visit.record is None or ran.mode != "pinned":
        return False
    methods = {name: getattr(ran, name) for name in METHODS}
    return current != ran and dataclasses.replace(current, **methods) == ran


def staleness(visit: Visit, form: Form) -> Update:
    """Show that the results belong to an earlier form, or remove that note."""
    ran = state_of(visit).run_form
    if ran is not None and ran != statement(form):
        state_of(visit).stale_shown = True
        return {"status": html.status(text.EDITED, "edited", again=True)}
    if ran is not None and state_of(visit).stale_shown:
        state_of(visit).stale_shown = False
        return {"status": ""}
    return {}


def finish(update: Update, notice: Callable[[], Update]) -> Iterator[Update]:
    """The last update of a run or a revision. It is large, so the small answer to a later edit may overtake
    it and be overwritten; the ``notice`` about such an edit is therefore sent again behind it."""
    first = notice()
    yield update | {"status": ""} | first
    later = notice()
    if later and later != first:
        yield later


def change(visit: Visit, form: Form, picks: Picks, run: Callable[[], Iterator[Update]]) -> Iterator[Update]:
    """Revise the run on the screen to the form's methods: first their decisions, then their errors, then the
    answers that had to be decoded. ``run`` runs the form instead, where the stored state is gone and a run is
    short."""
    record, shown = visit.record, visit.shown
    if visit.cancel is not None or record is None or shown is None or not follows(visit, form):
        yield {}
        return
    try:
        methods = forms.read_request(form, state_of(visit).example).methods
        request = dataclasses.replace(record.request, methods=methods)
        for event in visit.engine.revise(record, request, cancel=threading.Event()):
            if isinstance(event, Progress):
                continue
            if visit.record is not record or visit.cancel is not None:  # another run began
                return
            if not event.whole:
                pickers = choices(event.record, *picks)
                yield (
                    pickers
                    | drawing(visit, pickers, record=event.record)
                    | {
                        "comparison": comparison(visit, event.record, event.pending),
                        "status": html.status(text.READING if event.planned else text.DECODING, "running"),
                    }
                )
                continue
            visit.records[shown] = event.record
            state_of(visit).run_form = statement(form)
            keep_form(visit, form_to_json(form, state_of(visit).example))
            state_of(visit).stale_shown = False

            def notice() -> Update:
                latest = state_of(visit).form or form  # the last edit, if there was one meanwhile
                return {} if follows(visit, latest) else staleness(visit, latest)

            yield from finish(results(visit, picks=picks), notice)
    except Exception as error:
        lost = isinstance(error, OptionError) and error.field == "run" and shown != state_of(visit).run_token
        if lost and state_of(visit).seconds <= RUN_SECONDS:
            yield from run()
            return
        if not isinstance(error, LabError):  # shown beside its box, or a run is needed
            LOG.exception("a run could not be changed")
        state_of(visit).stale_shown = True
        yield {"status": html.status(text.EDITED, "edited", again=True)}
