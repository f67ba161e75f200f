"""The study in the Offsets tab: one text behind several prefixes. It needs no run.

Its figures show one chosen token; a click on the text or on the map of tokens chooses another.
"""

import re
from collections.abc import Sequence
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.base.text import check_text
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.template import QUESTION, agent_label
from backend.records.offsets import MOST_SAMPLES, PARTS, OffsetRequest, OffsetStudy
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import FORM, PICKERS, Form
from lab_app.pages.pipeline.state import state_of
from lab_app.ui import fields, text
from lab_app.ui.components import payload, raw_html
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.page import PageBuilder
from lab_app.ui.run_results import marked, read_selection
from lab_app.ui.scenarios import find_preset
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import NumberField, Problem
from lab_app.visits.visits import Visit
from viz.base.format import agent_name, clip, plural, prompt_of
from viz.studies.offset_study import PART_WORDS, Focus, tokens_html, valid_focus, views

KIND = "offsets"
PICKS = ("pick_study_prefix", "pick_study_place")
SAMPLES = NumberField("Requests of the scenario", 0, MOST_SAMPLES)
EMPTY = "The text is empty. Write some, or take a segment of the run."
ONE = "One request leaves no other to estimate it from; 0 or 2 to 40 are allowed. Change it."
NO_SEGMENT = "No segment of a run is chosen. Choose one above under “Segment or token”, or write a text."
PLAN = "What will be measured?"
STEPS = (
    "Read the text alone: the KV that a copy would start from.",
    "Read it behind every prefix. What differs, keys turned back to one position, is its offset: by layer, "
    "head and token.",
    "Put the most similar token in each token’s place: does it need the same offset?",
    "Send requests of the scenario through its agents and collect the offsets of shared texts and of the "
    "template text behind them.",
    "Estimate each request’s offsets from the other requests, by every rule and profile, and compare them "
    "with the real ones.",
)
#: The prompts whose openings are the first prefixes: (preset, agent).
ROLES = (
    ("math-2", 1), ("math-2", 2), ("math-3", 3), ("math-4", 4), ("math-5", 5), ("judge-majority", 1),
    ("judge-right", 1), ("documents-10", 1), ("message-who", 1), ("program-branch", 1),
)  # fmt: skip
FIRST_PRESET = "math-3"
DIVIDER = re.compile(r"(?:^|\n)-{3,}[ \t]*(?:\n|$)")


def boxes(section: Section) -> Sequence[Node]:
    """The boxes; first with a question and ten agents' prompts up to their first placeholder."""
    openings = (str(load_preset(name).pipeline.template(agent).parts[0]) for name, agent in ROLES)
    [example] = preset_requests(load_preset(FIRST_PRESET), 1)
    texts = (
        ("text", "Text", example.values[QUESTION]),
        ("prefixes", "Prefixes, divided by lines of three dashes", "\n---\n".join(openings)),
    )
    return [
        fields.row(
            *(
                fields.panel("", section.text_box(*box, lines=4, max=6), section.error(box[0]))
                for box in texts
            ),
            css="kv-prefixes",
        ),
        fields.row(
            section.number("samples", SAMPLES, 10),
            fields.button("study_take", "Take the chosen segment", event="apply", id="kv-study-take"),
            section.button(),
            css="kv-measure",
        ),
    ]


def divided(box: Any) -> tuple[str, ...]:
    """The prefixes in the box, which lines of three or more dashes separate."""
    return tuple(DIVIDER.split(str(box or "").replace("\r\n", "\n")))


def read(visit: Visit, inputs: Given) -> OffsetRequest:
    """A checked request; scenario and templates are the form's.

    Raises:
        Problems: everything that is wrong.
    """
    reader = SECTION.reader(inputs)
    content = reader.text("text", "The text")
    if not content.strip() and not reader.problems:
        reader.problems.append(Problem("text", EMPTY))
    prefixes = divided(reader.values["prefixes"])
    numbered = enumerate(prefixes, 1)
    reader.attempt("prefixes", lambda: [check_text(p, f"Prefix {i}", "prefixes") for i, p in numbered])
    samples = reader.number("samples", SAMPLES)
    scenario: tuple[Any, ...] = ()
    if samples == 1:
        reader.problems.append(Problem("samples", ONE))
    elif samples and not reader.problems:
        try:
            scenario = _requests(inputs[FORM], samples)
        except LabError as error:
            reader.problems.append(Problem("samples", f"The scenario on the bench cannot be sent. {error}"))
    reader.check()
    return OffsetRequest(content, prefixes, *scenario)


def _requests(form: Form, count: int) -> tuple[Pipeline, tuple[dict[str, str], ...], int]:
    """The form's pipeline, requests of its scenario, and the longest answer.

    Raises:
        LabError: the pipeline cannot be sent.
    """
    pipeline = forms.read_pipeline(form).unrolled
    for agent in pipeline.agents:
        if agent.model:  # a study measures one model
            raise OptionError(text.STUDY_WEIGHTS.format(agent=agent_label(agent.id), name=agent.model))
    examples = preset_requests(find_preset(form.preset), count)
    values = tuple(pipeline.check_values(dict(example.values)) for example in examples)
    decoding = forms.read_controls({"max_new_tokens": form.max_new_tokens})["decoding"]
    return pipeline, values, decoding.max_new_tokens


def take(visit: Visit, agent: Any, method: Any, segment: Any) -> Update:
    """The text of the segment that is chosen above the tab."""
    record = visit.record
    selection = read_selection(record, agent, method, segment) if record is not None else None
    place = marked(record, selection) if record is not None and selection is not None else None
    if record is None or selection is None or place is None:
        return SECTION.errors(OptionError(NO_SEGMENT, field="study.text"))
    texts = prompt_of(record, record.outcome(selection.agent, selection.method)).texts
    return SECTION.errors(None) | {"study_text": "".join(texts[place[0] : place[1]])}


def facts(record: OffsetStudy) -> str:
    """What was studied."""
    requests = f", and {plural(len(record.request.values), 'request')}" if record.request.values else ""
    prefixes = plural(len(record.prefix_tokens), "prefix", "prefixes")
    return f"{plural(len(record.tokens), 'token')} behind {prefixes}{requests},"


def read_focus(visit: Visit, prefix: Any, place: Any) -> Focus:
    """What the figures show, from the boxes; an invalid choice falls back to the default."""

    def index(value: Any) -> int | None:
        return int(value) if str(value).isdecimal() else None

    agent, _, part = str(place).partition(":")
    focus = Focus(state_of(visit).study_token, index(prefix), index(agent), index(part) or 0)
    return valid_focus(visit.result(KIND), focus)


def pick(visit: Visit, token: Any, prefix: Any, place: Any) -> Update:
    """Choose another token in every figure."""
    if KIND not in visit.results:
        return {}
    count = len(visit.result(KIND).tokens)
    if isinstance(token, int | float) and not isinstance(token, bool) and token in range(count):
        state_of(visit).study_token = int(token)
    return show_focus(visit, prefix, place)


def show_focus(visit: Visit, prefix: Any, place: Any) -> Update:
    """The figures and the text for the chosen token, prefix and place."""
    if KIND not in visit.results:
        return {}
    record, focus = visit.result(KIND), read_focus(visit, prefix, place)
    return {"study_tokens": {"html": tokens_html(record, focus)}, "view_study": payload(views(record, focus))}


def render_result(visit: Visit) -> Update:
    """A finished study: its pickers, its text and its figures."""
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
        "study_looks.visible": True,
        "pick_study_prefix": (prefixes, ""),
        "pick_study_place": (places, ":0"),
        **show_focus(visit, "", ":0"),
    }


class OffsetSection(Section):
    """A section with a text whose tokens can be chosen, and lists that choose what its figures show."""

    def finished(self, visit: Visit, inputs: Given, record: Any, spent_ms: float) -> Update:
        state_of(visit).study_token = -1
        return super().finished(visit, inputs, record, spent_ms) | render_result(visit)

    def between(self, page: PageBuilder) -> None:
        page.form(
            "study_looks",
            fields.row(
                fields.select(PICKS[0], "Offsets of the text behind", [], "", id="kv-study-prefix"),
                fields.select(PICKS[1], "Requests: offsets of", [], "", id="kv-study-place"),
                css="kv-measure",
            ),
            visible=False, elem_classes=self.aside,
        )  # fmt: skip
        page.add(study_tokens=raw_html("kv-study-tokens", elem_classes=self.aside))

    def outputs(self, page: PageBuilder) -> list[Any]:
        return [*super().outputs(page), page["study_looks"], page["study_tokens"]]

    def connect(self, page: PageBuilder) -> None:
        def choose(visit: Visit, inputs: Given, event: Any) -> Update:
            from_map = getattr(event, "x", None) if getattr(event, "view", "") == "study_tokens" else None
            return pick(visit, getattr(event, "token", from_map), *map(inputs.get, PICKS))

        super().connect(page)
        page.on(
            page.event("study_take"), lambda visit, inputs: take(visit, *map(inputs.get, PICKERS)), *PICKERS,
            outputs=self.outputs(page),
        )  # fmt: skip
        figures = [page["study_tokens"], page[self.view], page["status"]]
        page.on(
            page["study_looks"].input,
            lambda visit, inputs: show_focus(visit, *map(inputs.get, PICKS)),
            *PICKS,
            latest=True,
            outputs=figures,
        )
        for view in figures[:2]:
            page.select(view.select, choose, *PICKS, outputs=figures)


SECTION = OffsetSection(
    "study", "Study one text behind several prefixes",
    "A copied text is wrong by its offset: what the context would have added to its keys and values. This "
    "reads one text behind each prefix below, without a run (KVCOMM, Fig. 1), and sends requests of the "
    "scenario in the setup through its agents, to see how well each estimate meets the real offsets "
    "(Fig. A.4 to A.12).",
    boxes, read, lambda record: (), facts, kind=KIND, reads=(FORM,), tab="offsets",
    plan=(PLAN, STEPS),
)  # fmt: skip
