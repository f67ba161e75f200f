"""The study in the Offsets tab: what is typed, one measurement at a time, and what is shown of it.

Needs no run. Its figures share one chosen token, which a click on the text or on the map of tokens moves.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError, OptionError, PromptError
from backend.prompts.pipeline import QUESTION, Pipeline, called, check_text
from backend.prompts.presets import load_preset, preset_requests
from backend.records.events import Progress
from backend.records.offsets import MOST_SAMPLES, PARTS, OffsetRequest, OffsetStudy
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.sections.proximity import REDRAW_SECONDS, working
from lab_app.pages.pipeline.state import state
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.run_results import marked, read_selection
from lab_app.ui.scenarios import find_preset
from lab_app.ui.types import Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.queue import waiting
from lab_app.visits.visits import Lab, Visit
from viz.base.figure import Panel
from viz.base.format import agent_name, clip, prompt_of
from viz.studies.offset_study import PART_WORDS, Focus, tokens_html, valid_focus, views

LOG = logging.getLogger("lab_app")
#: Whose openings stand in the box at first: (preset, agent).
ROLES = (
    ("math-2", 1), ("math-2", 2), ("math-3", 3), ("math-4", 4), ("math-5", 5), ("judge-majority", 1),
    ("judge-right", 1), ("documents-10", 1), ("message-who", 1), ("program-branch", 1),
)  # fmt: skip
FIRST_PRESET = "math-3"
DIVIDER = re.compile(r"(?:^|\n)-{3,}[ \t]*(?:\n|$)")


@dataclass(frozen=True)
class Asked:
    """The boxes as they stand; may be wrong."""

    text: Any
    prefixes: Any
    samples: Any


FIELDS = ("text", "prefixes", "samples")


def first_asked() -> Asked:
    """What stands in the boxes at first: a question, and ten agents' prompts up to their first hole."""
    openings = (str(load_preset(name).pipeline.template(agent).parts[0]) for name, agent in ROLES)
    [example] = preset_requests(load_preset(FIRST_PRESET), 1)
    return Asked(example.values[QUESTION], "\n---\n".join(openings), 10)


def divided(box: Any) -> tuple[str, ...]:
    """The prefixes of the box: lines of three dashes or more divide them, all else is kept as it is."""
    return tuple(DIVIDER.split(str(box or "").replace("\r\n", "\n")))


def read(asked: Asked, form: Form) -> OffsetRequest:
    """A checked request; the scenario's requests and templates are the bench's.

    Raises:
        Problems: everything that is wrong.
    """
    problems: list[Problem] = []
    prefixes = divided(asked.prefixes)
    samples, longest = 0, 96
    pipeline: Pipeline | None = None
    values: tuple[dict[str, str], ...] = ()
    try:
        if not check_text(str(asked.text or ""), "The text", "study.text").strip():
            raise PromptError(
                "The text is empty. Write some, or take a segment of the run.", field="study.text"
            )
    except LabError as error:
        problems.append(Problem("study.text", str(error)))
    try:
        for number, prefix in enumerate(prefixes, 1):
            check_text(prefix, f"Prefix {number}", "study.prefixes")
    except LabError as error:
        problems.append(Problem("study.prefixes", str(error)))
    try:
        samples = NumberField(text.STUDY_SAMPLES, 0, MOST_SAMPLES).read(asked.samples, "study.samples")
        if samples == 1:
            raise OptionError(text.STUDY_ONE, field="study.samples")
    except LabError as error:
        problems.append(Problem("study.samples", str(error)))
    if samples and not problems:
        try:
            preset = find_preset(form.preset)
            pipeline = found = forms.read_pipeline(form).unrolled
            for agent in found.agents:
                if agent.model:  # what a study measures is one model's
                    raise OptionError(
                        text.STUDY_WEIGHTS.format(agent=called(agent.id), name=agent.model),
                        field="study.samples",
                    )
            values = tuple(
                found.check_values(dict(example.values)) for example in preset_requests(preset, samples)
            )
            longest = forms.read_decoding(form).max_new_tokens
        except LabError as error:
            problems.append(Problem("study.samples", f"The scenario on the bench cannot be sent. {error}"))
    if problems:
        raise Problems(problems)
    return OffsetRequest(str(asked.text), prefixes, pipeline, values, longest)


def take(visit: Visit, agent: Any, method: Any, segment: Any) -> Update:
    """The text of the segment that is chosen above."""
    record = visit.record
    chosen = read_selection(record, agent, method, segment) if record is not None else None
    place = marked(record, chosen) if record is not None and chosen is not None else None
    if record is None or chosen is None or place is None:
        return told(OptionError(text.STUDY_NO_SEGMENT, field="study.text"))
    texts = prompt_of(record, record.outcome(chosen.agent, chosen.method)).texts
    return told(None) | {"study_text": "".join(texts[place[0] : place[1]])}


def measure(lab: Lab, visit: Visit, form: Form, asked: Asked) -> Iterator[Update]:
    """Measure, one at a time per visit, and show the record."""
    if visit.measuring:
        yield {"study_status": html.status(text.MEASURES_ALREADY, "busy")}
        return
    visit.measuring = True
    try:
        request = read(asked, form)
        yield told(None) | {"studying": True, "study_status": working("Starting", 0, 1)}
        with lab.in_line() as place:
            for said in waiting(place):
                yield {"study_status": html.status(said, "busy")}
            yield from _stream(visit, request)
    except LabError as error:
        yield told(error) | {"study_status": ""}
    except Exception as error:
        LOG.exception("a study of offsets failed")
        yield {"study_status": html.status(text.UNEXPECTED.format(kind=type(error).__name__), "error")}
    finally:
        visit.measuring = False
    yield {"studying": False}


def _stream(visit: Visit, request: OffsetRequest) -> Iterator[Update]:
    drawn = 0.0
    for event in visit.engine.offset_study(request):
        if isinstance(event, OffsetStudy):
            visit.keep_result("offsets", event)
            yield shown(visit)
        elif isinstance(event, Progress) and time.monotonic() - drawn >= REDRAW_SECONDS:
            drawn = time.monotonic()
            yield {"study_status": working(event.text, event.done, event.total)}


def edited(visit: Visit, asked: Asked) -> Update:
    """Whether the figures still belong to what stands in the boxes."""
    if visit.measuring or "offsets" not in visit.results:
        return {}
    token, record = visit.results["offsets"]
    now = (str(asked.text or ""), divided(asked.prefixes), asked.samples)
    if now == (record.request.text, record.request.prefixes, len(record.request.values)):
        return told(None) | {"study_status": html.studied(record, token)}
    return told(None) | {"study_status": html.status(text.MEASURE_EDITED, "note")}


def read_focus(visit: Visit, prefix: Any, place: Any) -> Focus:
    """What the figures look at, from the boxes; what does not fit falls back to the usual."""

    def index(value: Any) -> int | None:
        return int(value) if str(value).isdecimal() else None

    agent, _, part = str(place).partition(":")
    wish = Focus(state(visit).study_token, index(prefix), index(agent), index(part) or 0)
    return valid_focus(visit.result("offsets"), wish)


def pick(visit: Visit, token: Any, prefix: Any, place: Any) -> Update:
    """Another token: every figure moves to it."""
    if "offsets" not in visit.results:
        return {}
    known = range(len(visit.result("offsets").tokens))
    if isinstance(token, int | float) and not isinstance(token, bool) and token in known:
        state(visit).study_token = int(token)
    return look(visit, prefix, place)


def look(visit: Visit, prefix: Any, place: Any) -> Update:
    """The figures and the text for what the boxes say."""
    if "offsets" not in visit.results:
        return {}
    record, focus = visit.result("offsets"), read_focus(visit, prefix, place)
    return {
        "study_tokens": {"html": tokens_html(record, focus)},
        "view_study": payload(views(record, focus)),
    }


def shown(visit: Visit) -> Update:
    """A finished study: what it was, its boxes, its text and its figures."""
    token, record = visit.results["offsets"]
    prefixes = [("mean of all", "")] + [
        (f"{number}: {clip(prefix, 48) or '(nothing)'}", str(number - 1))
        for number, prefix in enumerate(record.request.prefixes, 1)
    ]
    agents = record.approximated.agents if record.approximated else ()
    pipeline = record.request.pipeline
    places = [
        (
            f"{PART_WORDS[part]}, {agent_name(pipeline, agent) if agent and pipeline else 'all agents'}",
            f"{agent or ''}:{part}",
        )
        for part in range(len(PARTS))
        for agent in (None, *agents)
    ]
    return {
        "study_status": html.studied(record, token),
        "study_looks": True,
        "pick_study_prefix": (prefixes, ""),
        "pick_study_place": (places, ":0"),
        **look(visit, "", ":0"),
    }


def before() -> dict[str, Any]:
    """What the section shows when nothing was measured yet."""
    steps = "".join(f"<li>{step}</li>" for step in text.STUDY_STEPS)
    return payload([Panel("study_plan", text.PROXIMITY_PLAN, f'<ol class="kv-steps">{steps}</ol>')])


def told(error: LabError | None) -> Update:
    """Messages beside their boxes; boxes without one are cleared."""
    slots = dict.fromkeys((f"error_study_{name}" for name in (*FIELDS, "measure")), "")
    if error is None:
        return dict(slots)
    found = error.found if isinstance(error, Problems) else (Problem(error.field or "", str(error)),)
    for problem in found:
        name = problem.field.removeprefix("study.")
        slots[f"error_study_{name if name in FIELDS else 'measure'}"] += html.error(problem.message)
    return dict(slots)
