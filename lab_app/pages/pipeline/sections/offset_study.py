"""The study in the Offsets tab: one text behind several prefixes. It needs no run.

Its figures share one chosen token, which a click on the text or on the map of tokens moves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.base.errors import LabError, OptionError, PromptError
from backend.base.text import check_text
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.template import QUESTION, called
from backend.records.offsets import MOST_SAMPLES, PARTS, OffsetRequest, OffsetStudy
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import FORM, PICKERS, Form
from lab_app.pages.pipeline.state import state
from lab_app.ui import html, text
from lab_app.ui.components import payload, raw_html
from lab_app.ui.measurement import Section, plan
from lab_app.ui.page import PageBuilder, any_edit
from lab_app.ui.run_results import marked, read_selection
from lab_app.ui.scenarios import find_preset
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import agent_name, clip, milliseconds, plural, prompt_of
from viz.studies.offset_study import PART_WORDS, Focus, tokens_html, valid_focus, views

KIND = "offsets"
PICKS = ("pick_study_prefix", "pick_study_place")
SAMPLES = NumberField(text.STUDY_SAMPLES, 0, MOST_SAMPLES)
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
SECTION = Section("study", FIELDS)


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
        samples = SAMPLES.read(asked.samples, "study.samples")
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
        return SECTION.errors(OptionError(text.STUDY_NO_SEGMENT, field="study.text"))
    texts = prompt_of(record, record.outcome(chosen.agent, chosen.method)).texts
    return SECTION.errors(None) | {"study_text": "".join(texts[place[0] : place[1]])}


def measure(lab: VisitStore, visit: Visit, form: Form, asked: Asked) -> Iterator[Update]:
    """Measure, one at a time per visit, and show the record."""

    def finished(record: OffsetStudy) -> Update:
        visit.keep_result(KIND, record)
        state(visit).study_token = -1
        return render_result(visit)

    yield from SECTION.measure(
        lab, visit, lambda: read(asked, form), lambda request, _: visit.engine.study(request), finished
    )


def edited(visit: Visit, asked: Asked) -> Update:
    """Whether the figures still belong to what stands in the boxes."""
    if visit.measuring or KIND not in visit.results:
        return {}
    record = visit.result(KIND)
    now = (str(asked.text or ""), divided(asked.prefixes), asked.samples)
    if now == (record.request.text, record.request.prefixes, len(record.request.values)):
        return SECTION.errors(None) | saved(visit)
    return SECTION.errors(None) | {SECTION.status: html.status(text.MEASURE_EDITED, "note")}


def saved(visit: Visit) -> Update:
    """What was studied, and the link that saves it."""
    token, record = visit.results[KIND]
    sent = f", and {plural(len(record.request.values), 'request')}" if record.request.values else ""
    prefixes = plural(len(record.prefix_tokens), "prefix", "prefixes")
    facts = (
        f"{plural(len(record.tokens), 'token')} behind {prefixes}{sent} on "
        f"{clip(record.model.name, 40)}, in {milliseconds(record.wall_ms)}."
    )
    return SECTION.saved(facts, KIND, token)


def read_focus(visit: Visit, prefix: Any, place: Any) -> Focus:
    """What the figures look at, from the boxes; what does not fit falls back to the usual."""

    def index(value: Any) -> int | None:
        return int(value) if str(value).isdecimal() else None

    agent, _, part = str(place).partition(":")
    wish = Focus(state(visit).study_token, index(prefix), index(agent), index(part) or 0)
    return valid_focus(visit.result(KIND), wish)


def pick(visit: Visit, token: Any, prefix: Any, place: Any) -> Update:
    """Another token: every figure moves to it."""
    if KIND not in visit.results:
        return {}
    known = range(len(visit.result(KIND).tokens))
    if isinstance(token, int | float) and not isinstance(token, bool) and token in known:
        state(visit).study_token = int(token)
    return look(visit, prefix, place)


def look(visit: Visit, prefix: Any, place: Any) -> Update:
    """The figures and the text for what the boxes say."""
    if KIND not in visit.results:
        return {}
    record, focus = visit.result(KIND), read_focus(visit, prefix, place)
    return {
        "study_tokens": {"html": tokens_html(record, focus)},
        "view_study": payload(views(record, focus)),
    }


def render_result(visit: Visit) -> Update:
    """A finished study: what it was, its boxes, its text and its figures."""
    record = visit.result(KIND)
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
        **saved(visit),
        "study_looks.visible": True,
        "pick_study_prefix": (prefixes, ""),
        "pick_study_place": (places, ":0"),
        **look(visit, "", ":0"),
    }


# -- the widgets ---------------------------------------------------------------------------------------------


def build(page: PageBuilder) -> None:
    """The widgets, inside the Offsets tab."""
    usual = first_asked()
    with SECTION.box(text.STUDY, text.STUDY_HELP):
        with gr.Row(elem_classes="kv-prefixes"):
            for name, label, value in (
                ("text", text.STUDY_TEXT, usual.text),
                ("prefixes", text.STUDY_PREFIXES, usual.prefixes),
            ):
                with gr.Column(min_width=0):
                    SECTION.text_box(page, name, label, value, lines=4, max_lines=8)
                    SECTION.error(page, name)
        with gr.Row(elem_classes="kv-measure"):
            SECTION.number(page, "samples", SAMPLES, usual.samples)
            page.add(study_take=gr.Button(text.STUDY_TAKE, size="sm", elem_id="kv-study-take", scale=0))
            SECTION.button(page)
        SECTION.error(page, "samples", "measure")
    SECTION.said(page)
    with gr.Row(visible=False, elem_id="kv-study-looks", elem_classes="kv-measure") as looks:
        page.add(
            study_looks=looks,
            pick_study_prefix=gr.Dropdown(
                [], label=text.STUDY_PREFIX, min_width=160, filterable=False, elem_id="kv-study-prefix"
            ),
            pick_study_place=gr.Dropdown(
                [], label=text.STUDY_PLACE, min_width=160, filterable=False, elem_id="kv-study-place"
            ),
        )
    page.add(study_tokens=raw_html("kv-study-tokens"))
    SECTION.figures(page, plan("study_plan", text.PROXIMITY_PLAN, text.STUDY_STEPS))


def connect(page: PageBuilder) -> None:
    """What the widgets do."""

    def asked(given: Given) -> Asked:
        return Asked(**SECTION.asked(given))

    def chosen(visit: Visit, given: Given, event: Any) -> Update:
        from_map = getattr(event, "x", None) if getattr(event, "view", "") == "study_tokens" else None
        return pick(visit, getattr(event, "token", from_map), *map(given.get, PICKS))

    outputs = page.part(SECTION.part)
    page.stream(
        page["study_measure"].click,
        lambda visit, given: measure(page.lab, visit, given[FORM], asked(given)),
        *SECTION.names,
        FORM,
        outputs=outputs,
    )
    for name in SECTION.names:
        page.on(
            any_edit(page[name]), lambda visit, given: edited(visit, asked(given)), *SECTION.names,
            latest=True, outputs=outputs,
        )  # fmt: skip
    page.on(
        page["study_take"].click, lambda visit, given: take(visit, *map(given.get, PICKERS)), *PICKERS,
        outputs=outputs,
    )  # fmt: skip
    figures = [page["study_tokens"], page["view_study"], page["status"]]
    page.on(
        [page[name].input for name in PICKS],
        lambda visit, given: look(visit, *map(given.get, PICKS)),
        *PICKS,
        latest=True,
        outputs=figures,
    )
    for view in figures[:2]:
        page.select(view.select, chosen, *PICKS, outputs=figures)
