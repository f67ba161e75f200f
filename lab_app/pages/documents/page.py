"""The Documents page: a question over documents that are encoded once and reused in any order."""

import dataclasses
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

import gradio as gr

from backend.base.errors import LabError, PromptError
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example, load_preset, preset_requests
from backend.prompts.template import QUESTION
from backend.records.request import Decoding, RunRequest
from backend.records.run import RunRecord
from lab_app.pages.documents import recompute_ratio as documents_ratio
from lab_app.pages.documents import trained_weights as documents_trained
from lab_app.pages.pipeline.results import open_run
from lab_app.ui import fields, html, text
from lab_app.ui.components import panes, raw_html
from lab_app.ui.first_runs import first_run
from lab_app.ui.method_chips import chosen_methods, method_chips, usable_methods
from lab_app.ui.method_choice import MOST_COLUMNS
from lab_app.ui.one_run import RunState, cancelled, field_errors, follow, one_run_in_turn
from lab_app.ui.page import OPTIONS, PageBuilder, PageSpec
from lab_app.ui.streaming import live
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, Problem
from lab_app.visits.visits import Visit, VisitStore
from viz.pages.documents import documents_html
from viz.run.comparison import comparison_html
from viz.run.token_strip import strip_html
from viz.run.verdict_card import run_card

KEY = "documents"
CARDS = fields.cards("text", "document", 1, 10, ids="kv-documents")
#: Presets whose requests can be put on the cards.
EXAMPLES = ("documents-5", "documents-10", "documents-one-hop")
METHODS_AT_FIRST = ("naive", "cacheblend", "kvlink")
READS = ("text", "question", "methods", OPTIONS)


@dataclass
class DocumentsState(RunState):
    """What a visit's Documents page remembers: also the kind of its examples."""

    preset: str = EXAMPLES[0]


def state_of(visit: Visit) -> DocumentsState:
    """The visit's page."""
    state: DocumentsState = visit.pages.setdefault(KEY, DocumentsState())
    return state


@cache
def _wording() -> tuple[str, str, Agent, Pipeline]:
    """The preset's instruction, the line before the question, the reading agent and the pipeline."""
    pipeline = load_preset(EXAMPLES[0]).pipeline
    agent = pipeline.agents[0]
    head, _, body = agent.template.partition("Document 1:\n")
    return head, body[body.rindex("\n", 0, body.index("{" + QUESTION)) + 1 :], agent, pipeline


def pipeline_of(count: int) -> Pipeline:
    """A pipeline that reads ``count`` documents, with the presets' wording."""
    head, tail, agent, base = _wording()
    names = tuple(f"document_{number}" for number in range(1, count + 1))
    middle = "".join(f"Document {i}:\n{{{name}}}\n" for i, name in enumerate(names, 1))
    reader = dataclasses.replace(agent, template=head + middle + tail)
    title = f"{count} document{'s' if count > 1 else ''} and a question"
    return dataclasses.replace(base, name=f"documents-{count}", title=title, declared=names, agents=(reader,))


def read(visit: Visit, inputs: Given) -> RunRequest:
    """The form as a checked request."""
    reader, example = FormReader(inputs), state_of(visit).example
    texts = inputs["text"]
    for slot, document in enumerate(texts):
        if not document.strip():
            reader.problems.append(Problem(f"text_{slot}", text.DOCUMENT_EMPTY.format(number=slot + 1)))
    values = {f"document_{i}": document for i, document in enumerate(texts, 1)}
    values[QUESTION] = str(inputs["question"] or "")
    pipeline = pipeline_of(len(texts))
    if not reader.problems:
        values = reader.attempt(slot_of, lambda: pipeline.check_values(values))
    methods = reader.attempt("methods", lambda: chosen_methods(inputs, MOST_COLUMNS))
    reader.check()
    same = example and sorted(example.values.values()) == sorted(values.values())
    decoding = Decoding(max_new_tokens=pipeline.longest_answer)
    expected = example.answer if example and same else None
    return RunRequest(pipeline, values, methods, "pinned", decoding, expected=expected)


def slot_of(field: str | None) -> str:
    """The error slot of a field of the request."""
    name = (field or "").removeprefix("values.")
    if name == QUESTION:
        return "question"
    number = name.removeprefix("document_")
    return f"text_{int(number) - 1}" if number.isdecimal() else "run"


def page_errors(error: LabError | None) -> Update:
    """Messages beside their places."""
    return field_errors(error, slot_of)


# -- the form


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The saved run and its request, else the first example; and the methods that run here."""
    state, record = state_of(visit), first_run(page.lab.first_runs, KEY)
    update = next_example(visit, {})
    if record is not None:
        values = record.request.values
        state.example = Example(values, record.request.expected)
        state.request, state.saved = record.request, True
        state.token = visit.keep(record, show=False)
        update = fill_form(values) | render_run(record)
    return update | usable_methods(page) | documents_trained.arrive(visit)


def choose(visit: Visit, inputs: Given) -> Update:
    """The first example of a kind; what somebody has written stays instead."""
    state = state_of(visit)
    if inputs["preset"] not in EXAMPLES:
        raise PromptError(f"There are no examples {str(inputs['preset'])[:40]!r}. Choose one of the list.")
    state.preset, state.next_example = inputs["preset"], 0
    shown = fill_form(state.example.values) if state.example else {}
    own = any(inputs[name] != given for name, given in shown.items())
    return {} if own else next_example(visit, inputs)


def next_example(visit: Visit, inputs: Given) -> Update:
    """The next example of the kind."""
    state = state_of(visit)
    state.example = example = preset_requests(load_preset(state.preset), state.next_example + 1)[-1]
    state.next_example += 1
    return fill_form(example.values)


def fill_form(values: Mapping[str, str]) -> Update:
    """A request's texts and question in their boxes."""
    texts = [value for name, value in values.items() if name != QUESTION]
    return {"text": texts, "question": values[QUESTION]}


def refresh(visit: Visit, inputs: Given) -> Update:
    """What follows from the form."""
    return follow(visit, state_of(visit), lambda: read(visit, inputs), page_errors, text.DOCUMENTS_EDITED)


def current_request(visit: Visit, inputs: Given) -> tuple[str, RunRequest | None]:
    """The chosen kind of example and the form's request; None where the form is invalid."""
    try:
        return state_of(visit).preset, read(visit, inputs)
    except LabError:
        return state_of(visit).preset, None


RATIO = documents_ratio.section(READS, current_request)


# -- running


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Run every method on the documents and show the record."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request = read(visit, inputs)
        yield page_errors(None)
        record = yield from live(request, visit.engine.run(request, cancel=cancel))
        state = state_of(visit)
        state.request, state.token, state.saved = request, visit.keep(record, show=False), False
        yield render_run(record)

    yield from one_run_in_turn(lab, visit, work, page_errors)


def render_run(record: RunRecord) -> Update:
    """A finished run."""
    agent = record.agents[-1]
    return {
        "status": "",
        "verdict": run_card(record),
        "table": documents_html(record),
        "comparison": comparison_html(record),
        "strip": {"html": strip_html(record, agent)},
        "closer-row.visible": True,
    }


def open_in_pipeline(visit: Visit, inputs: Given) -> Update:
    """The run on the pipeline's page, with all its figures."""
    return open_run(visit, state_of(visit).token)


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page and its events."""
    page.frame(build_inputs, build_results)
    page.arrives(lambda visit, inputs: arrive(page, visit))
    page.follows(refresh, *READS, when=[page[name].input for name in ("cards", "asked", "chips")])
    page.on(page.event("preset"), choose, "preset", "question", "text", follow=True)
    page.on(page.event("next"), next_example, follow=True)
    page.stream(page["run"].click, partial(run, page.lab), *READS)
    page.on(page["cancel"].click, cancelled)
    page.to_pipeline(page["closer"].click, open_in_pipeline)
    for section_ in (RATIO, documents_trained.SECTION):
        section_.connect(page)


def build_inputs(page: PageBuilder) -> None:
    """The left column: example, question, documents, methods."""
    examples = [(load_preset(name).pipeline.title, name) for name in EXAMPLES]
    page.form(
        "asked",
        fields.part(
            text.DOCUMENTS_TITLE,
            f"{KEY}-question",
            fields.help_text("", text.DOCUMENTS_HELP, f"kv-{KEY}-help"),
            fields.row(
                fields.select(
                    "preset", text.EXAMPLE, examples, EXAMPLES[0], event="select", id=f"kv-{KEY}-preset",
                    css="kv-unnamed",
                ),
                fields.button("next", text.EXAMPLE_NEXT, id=f"kv-{KEY}-next"),
                css="kv-line",
            ),
            fields.text("question", "Question", lines=2, max=6, id=f"kv-{KEY}-question"),
            fields.message("question", f"{KEY}-question"),
            fields.note("expected", id=f"kv-{KEY}-expected"),
        ),
    )  # fmt: skip
    cards = fields.message("cards", f"{KEY}-cards")
    page.form("cards", fields.part(text.DOCUMENTS, f"{KEY}-cards", CARDS, cards))
    page.form("chips", method_chips(KEY, METHODS_AT_FIRST))


def build_results(page: PageBuilder) -> None:
    """The results."""
    page.block("status")
    page.block("verdict", html.empty_card(text.DOCUMENTS_EMPTY, text.DOCUMENTS_EMPTY_HELP))
    panes(*text.DOCUMENTS_PANES)
    page.block("comparison", elem_classes="kv-pane-1")
    page.block("table", elem_classes="kv-pane-1")
    page.add(strip=raw_html(f"kv-{KEY}-strip", elem_classes="kv-pane-2"))
    with gr.Column(elem_classes="kv-pane-3", min_width=0):
        for section_ in (RATIO, documents_trained.SECTION):
            section_.build(page)
    page.closer(text.DOCUMENTS_CLOSER_HELP)


PAGE = PageSpec(KEY, text.DOCUMENTS, build)
