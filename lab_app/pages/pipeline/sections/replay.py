"""The What if tab: past pinned requests under the methods as they stand on the bench, without prefilling.

The bench is its editor: gamma, V, steps, profiles and the switches that add columns all count.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from backend.base.errors import LabError, OptionError, RunCancelled
from backend.methods.registry import make_options
from backend.records.events import Progress
from backend.records.offsets import MOST_REPLAYED, Replay
from backend.records.run import MethodChoice, RunRequest
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.sections.proximity import REDRAW_SECONDS, working
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.method_choice import blanks
from lab_app.ui.types import Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.queue import waiting
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import Panel
from viz.base.format import clip
from viz.studies.replay import question, valid_request, views

LOG = logging.getLogger("lab_app")
USUAL = 20  # past requests
#: The alignment steps that KVCOMM's Table 5 switches.
STEPS = ("rotate", "placeholder_offset", "prefix_offset")


def table_5(given: Mapping[str, Any]) -> tuple[MethodChoice, ...]:
    """KVCOMM with every choice of alignment steps but none, the other options as given (Table 5).

    Raises:
        LabError: an option is wrong.
    """
    if blank := blanks("kvcomm", given):
        raise Problems(blank)
    options = dataclasses.asdict(make_options("kvcomm", given))
    rows = []
    for count in range(len(STEPS), 0, -1):
        for kept in itertools.combinations(STEPS, count):
            missing = [step for step in STEPS if step not in kept]
            said = f" without {missing[0]}" if len(missing) == 1 else f" only {kept[0]}" if missing else ""
            switched = options | {step: step in kept for step in STEPS}
            rows.append(MethodChoice("kvcomm", switched, f"kvcomm{said}"))
    return MethodChoice("dense"), *rows


def read(form: Form, last: Any, ablation: bool = False) -> tuple[RunRequest, int]:
    """What to replay and how many requests; the bench's values play no part.

    Raises:
        Problems: everything that is wrong, on the bench or in the box.
    """
    problems: list[Problem] = []
    count, request = 0, None
    try:
        count = NumberField(text.REPLAY_LAST, 1, MOST_REPLAYED).read(last, "replay.last")
    except LabError as error:
        problems.append(Problem("replay.last", str(error)))
    try:
        if form.mode != "pinned":
            raise OptionError(text.REPLAY_PINNED)
        methods = table_5(form.options.get("kvcomm", {})) if ablation else forms.chosen_methods(form)
        request = RunRequest(
            forms.read_pipeline(form), {}, methods, "pinned", forms.read_decoding(form), probe_offsets=False
        )
    except LabError as error:
        problems.append(Problem("replay.run", text.REPLAY_BENCH.format(why=error)))
    if request is None or problems:
        raise Problems(problems)
    return request, count


def measure(lab: Lab, visit: Visit, form: Form, last: Any, ablation: bool = False) -> Iterator[Update]:
    """Replay and show the record. It counts as a run of the visit: both read the same memory, so one waits
    for the other, and the bench's Cancel ends it."""
    if visit.cancel is not None:
        yield {"replay_status": html.status(text.REPLAY_BUSY, "busy")}
        return
    cancel = visit.cancel = threading.Event()
    try:
        request, count = read(form, last, ablation)
        yield told(None) | {"running": True, "replay_status": working("Starting", 0, 1)}
        with lab.in_line() as place:
            for said in waiting(place, cancel):
                yield {"replay_status": html.status(said, "busy")}
            yield from _stream(visit, request, count, cancel)
    except RunCancelled:
        yield {"status": "", "replay_status": html.status(text.REPLAY_STOPPED, "note")}
    except LabError as error:
        yield told(error) | {"replay_status": ""}
    except Exception as error:
        LOG.exception("a replay failed")
        yield {"replay_status": html.status(text.UNEXPECTED.format(kind=type(error).__name__), "error")}
    finally:
        cancel.set()
        visit.cancel = None
    yield {"running": False}


def _stream(visit: Visit, request: RunRequest, count: int, cancel: threading.Event) -> Iterator[Update]:
    drawn = 0.0
    for event in visit.engine.replay(request, count, cancel=cancel):
        if isinstance(event, Replay):
            visit.keep_result("replay", event)
            yield shown(visit)
        elif isinstance(event, Progress) and time.monotonic() - drawn >= REDRAW_SECONDS:
            drawn = time.monotonic()
            yield {"replay_status": working(event.text, event.done, event.total)}


def pick(visit: Visit, wish: Any) -> Update:
    """The texts of another request, chosen in the box or in the figure."""
    if "replay" not in visit.results:
        return {}
    whole = str(wish).isdecimal() or (isinstance(wish, float) and wish.is_integer())
    return look(visit, int(wish) if whole and not isinstance(wish, bool) else None)


def look(visit: Visit, wish: int | None = None) -> Update:
    """The figures, with one request's texts."""
    record = visit.result("replay")
    chosen = valid_request(record, wish)
    choices = [(f"{a.number}: {clip(question(a), 70)}", str(a.number)) for a in record.requests]
    return {"pick_replay": (choices, str(chosen)), "view_replay": payload(views(record, chosen))}


def shown(visit: Visit) -> Update:
    """A finished replay: what it was, and its figures."""
    token, record = visit.results["replay"]
    return {"replay_status": html.replayed(record, token), "replay_looks": True, **look(visit)}


def before() -> dict[str, Any]:
    """What the tab shows when nothing was replayed yet."""
    steps = "".join(f"<li>{step}</li>" for step in text.REPLAY_STEPS)
    return payload([Panel("replay_plan", text.REPLAY_PLAN, f'<ol class="kv-steps">{steps}</ol>')])


def told(error: LabError | None) -> Update:
    """Messages beside the box and the buttons; places without one are cleared."""
    slots = dict.fromkeys(("error_replay_last", "error_replay_run"), "")
    found = error.found if isinstance(error, Problems) else () if error is None else (
        Problem(error.field or "", str(error)),
    )  # fmt: skip
    for problem in found:
        name = "last" if problem.field == "replay.last" else "run"
        slots[f"error_replay_{name}"] += html.error(problem.message)
    return dict(slots)
