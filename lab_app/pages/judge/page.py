"""The Judge page: candidates before a judge, in several orders, read through every method."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from markupsafe import Markup

from backend.base.errors import LabError, PromptError
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.template import QUESTION
from backend.prompts.variants import other_numbers
from backend.records.events import Progress
from backend.records.judge import (
    ANSWER_TOKENS,
    CANDIDATE_TOKENS,
    CRITERIA,
    Candidate,
    Judged,
    JudgedProblem,
    JudgeProblem,
    JudgeRequest,
    OrderDone,
)
from backend.records.request import Decoding
from backend.records.run import RunRecord
from lab_app.pages.judge import problem_set as judge_set
from lab_app.pages.judge.closer import open_judged
from lab_app.pages.judge.form import KEY, REPAIR, SETTINGS, read_regime, read_settings
from lab_app.pages.judge.layout import build_inputs, build_results
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.first_runs import first_run, results_notice
from lab_app.ui.method_chips import usable_methods
from lab_app.ui.one_run import cancelled, field_errors, one_run_in_turn
from lab_app.ui.page import PageBuilder, PageSpec
from lab_app.ui.scenarios import OWN_WARM
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, Problem
from lab_app.visits.visits import Visit, VisitStore
from viz.attention.views import closer_views, slot_views
from viz.base.format import clip, escape, milliseconds, plural
from viz.judge.disagreement import gate_words
from viz.judge.verdict_grid import (
    baseline,
    grid_html,
    looks_of,
    picks_html,
    remedy,
    sentence,
    slot_words,
    tone,
)
from viz.pages.documents import documents_html
from viz.run.comparison import comparison_html
from viz.run.token_strip import strip_html
from viz.run.verdict_card import verdict_card

READS = ("text", "question", "expected", "source", "temperature", *SETTINGS)


@dataclass
class JudgeState:
    """What a visit's Judge page remembers: the problem with the model's candidates (``draft``), the last
    ``request`` and its ``records`` by order, whether the closer figures are ``unfolded``, and whether the
    verdict says what a gate on disagreement would do (``gated``)."""

    next_example: int = 0
    offered: Given = field(default_factory=dict)  # question and candidates as the page put them there
    known: str = ""  # the known answer that came with them, while it is in its field
    writes: int = 0
    draft: JudgeProblem | None = None
    request: JudgeRequest | None = None
    last_order: OrderDone | None = None
    records: dict[str, RunRecord] = field(default_factory=dict)
    token: str = ""
    saved: bool = False  # whether the shown run is the saved one of a first visit
    unfolded: bool = False
    gated: bool = False
    selection: Given = field(default_factory=dict)  # the chosen order and method


def state_of(visit: Visit) -> JudgeState:
    """The visit's page."""
    state: JudgeState = visit.pages.setdefault(KEY, JudgeState())
    return state


# -- reading the form


def read(visit: Visit, inputs: Given) -> JudgeRequest:
    """The problem, typed or written by the model, and all settings, checked.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    state, reader = state_of(visit), FormReader(inputs)
    texts = inputs["text"]
    for slot, candidate in enumerate(texts):
        if not candidate.strip():
            message = text.CANDIDATE_EMPTY.format(number=slot + 1)
            reader.problems.append(Problem(f"text_{slot}", message))
        else:
            reader.text(f"text_{slot}", f"Candidate {slot + 1}", candidate)
    question = read_question(reader)
    expected = reader.text("expected", text.JUDGE_EXPECTED, known_answer(state, inputs)) or None
    settings = read_settings(reader, len(texts))
    reader.check()
    problem = written_problem(state, question, texts, inputs["source"], expected)
    if problem is None:
        candidates = tuple(Candidate(candidate, f"agent {i}") for i, candidate in enumerate(texts, 1))
        problem = JudgeProblem(1, question, candidates, "typed", expected)
    return JudgeRequest(
        problem.regime, (problem,), 1, candidates=len(texts), max_new_tokens=ANSWER_TOKENS,
        sampling=Decoding(CANDIDATE_TOKENS, 1.0, 1.0, 0), own_numbers=bool(inputs["own_numbers"]), **settings,
    )  # fmt: skip


def read_question(reader: FormReader) -> str:
    """The question, which must not be empty; one message for each thing that is wrong."""
    question = reader.text("question", "The question")
    if not question.strip() and not any(p.field == "question" for p in reader.problems):
        reader.problems.append(Problem("question", "The question is empty. Write some text."))
    return question


def known_answer(state: JudgeState, inputs: Given) -> str:
    """The known answer that is typed; that of an example is none for another question."""
    expected = str(inputs["expected"] or "").strip()
    asked = state.offered.get("question", inputs["question"])
    return "" if expected == state.known and inputs["question"] != asked else expected


def written_problem(
    state: JudgeState, question: str, texts: list[str], source: Any, expected: str | None
) -> JudgeProblem | None:
    """The problem with the model's own candidates, if these are on the cards unedited."""
    problem = state.draft
    if problem is None or (problem.regime, problem.question, problem.expected) != (
        source,
        question,
        expected,
    ):
        return None
    return problem if [c.text for c in problem.candidates] == texts else None


def slot_of(name: str | None) -> str:
    """The error slot of a field of the engine's request."""
    last = (name or "").rpartition(".")[2]
    number = last.removeprefix("candidate_")
    if number.isdecimal():
        return f"text_{int(number) - 1}"
    places = {QUESTION: "question", "question": "question", "candidates": "cards", "methods": "methods"}
    return places.get(last, "run")


# -- the form


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The saved judgement and its problem, else the first example; and the methods that run here."""
    state, judgement = state_of(visit), first_run(page.lab.first_runs, KEY)
    update = next_example(visit, {"criterion": CRITERIA[0]}) | usable_methods(page)
    if judgement is not None:
        [problem] = judgement.request.problems
        state.request, state.saved = judgement.request, True
        labels = (order.label for order in judgement.request.orders)
        state.records = dict(zip(labels, judgement.records, strict=True))
        state.last_order = OrderDone(judgement.row, *list(state.records.items())[-1])
        update |= {
            "text": [c.text for c in problem.candidates],
            "question": problem.question,
            "expected": problem.expected or "",
        }
        state.offered = {name: update[name] for name in ("question", "text")}
        state.known = problem.expected or ""
        update |= (view := render_judgement(visit)) | show_order(visit, view)
    chips = [(title, name) for title, name in update["methods.choices"] if name != REPAIR]
    return update | {"methods.choices": chips}


def choose_criterion(visit: Visit, inputs: Given) -> Update:
    """An example of the criterion; what somebody has written stays instead."""
    offered = state_of(visit).offered
    own = any(inputs[name] != shown for name, shown in offered.items())
    return {} if own else next_example(visit, inputs)


def next_example(visit: Visit, inputs: Given) -> Update:
    """The next example of the criterion."""
    state = state_of(visit)
    if inputs["criterion"] not in CRITERIA:
        raise PromptError(f"There is no criterion {str(inputs['criterion'])[:30]!r}. Choose one of the list.")
    preset = load_preset(f"judge-{inputs['criterion']}")
    example = preset_requests(preset, state.next_example + 1)[-1]
    state.next_example += 1
    texts = [value for name, value in example.values.items() if name != QUESTION]
    numbers = [int(n) for n in re.findall("[0-9]+", example.answer or "") if 0 < int(n) <= len(texts)]
    final = re.findall(r"The answer is ([0-9]+)", texts[numbers[0] - 1]) if numbers else []
    answer = final[-1] if final and inputs["criterion"] in ("right", "all", "corrects") else ""
    state.offered, state.known = {"text": texts, "question": example.values[QUESTION]}, answer
    return state.offered | {"expected": answer, "source": "typed"}


def refresh(visit: Visit, inputs: Given) -> Update:
    """What follows from the form: messages, the cost, and whether the results belong to an earlier one."""
    state, request = state_of(visit), None
    source = inputs["source"] if inputs["source"] in text.JUDGE_SOURCES else "typed"
    update: Update = {"write-row.visible": source != "typed"}
    if inputs["expected"] and not known_answer(state, inputs):
        inputs, state.known = {**inputs, "expected": ""}, ""
        update["expected"] = ""
    try:
        request = read(visit, inputs)
        verdicts = len(request.orders) * max(1, len(request.methods))
        lasts = html.lasting(visit.engine.estimate_judging(request, taken_in=request.warmup))
        cost = f'<p class="kv-cost"><b>{plural(verdicts, "verdict")}</b>, {lasts}</p>'
        update |= field_errors(None, slot_of) | {"cost": cost}
    except LabError as error:
        update |= field_errors(error, slot_of) | {"cost": ""}
    source_help = text.JUDGE_SOURCE_HELP[source]
    if source != "typed":
        texts = inputs["text"]
        expected = known_answer(state, inputs) or None
        same = written_problem(state, str(inputs["question"] or ""), texts, source, expected)
        source_help += f" {text.JUDGE_WROTE if same else text.JUDGE_CHANGED}"
    update["source-help"] = f'<p class="kv-help">{escape(source_help)}</p>'
    if visit.cancel is None and state.request is not None:
        if state.gated != bool(inputs["gated"]):
            state.gated = not state.gated
            update["verdict"] = card(state)
        update["status"] = results_notice(request != state.request, state.saved, text.DOCUMENTS_EDITED)
    return update


# -- running


def write(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Let the model write the candidates, and put them on the cards."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        state, reader = state_of(visit), FormReader(inputs)
        question = read_question(reader)
        expected = reader.text("expected", text.JUDGE_EXPECTED, known_answer(state, inputs)) or None
        temperature = reader.number("temperature", text.JUDGE_NUMBERS["temperature"])
        regime = read_regime(inputs["source"], "parallel")
        reader.check()
        state.writes += 1
        request = JudgeRequest(
            regime, (JudgeProblem(1, question, (), regime, expected),), 1, candidates=len(inputs["text"]),
            sampling=Decoding(CANDIDATE_TOKENS, temperature, 1.0, state.writes),
        )  # fmt: skip
        yield field_errors(None, slot_of)
        for event in visit.engine.write_candidates(request, cancel=cancel):
            if isinstance(event, JudgeProblem):
                state.draft = event
                yield {"text": [c.text for c in event.candidates]} | {"status": ""}
            else:
                yield {"status": html.progress(event)}

    yield from one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of))


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Judge the candidates in every order, and show each order as it is done."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request, state = read(visit, inputs), state_of(visit)
        state.gated = bool(inputs["gated"])
        yield field_errors(None, slot_of)
        records: dict[str, RunRecord] = {}
        for event in visit.engine.study(request, cancel=cancel):
            if isinstance(event, Progress):
                yield {"status": html.progress(event)}
            elif isinstance(event, OrderDone):
                records[event.order] = event.record
                yield {"grid": grid_html(event.row, request), "picks": picks_html(event.row, request)}
                last = event
            elif isinstance(event, Judged):
                state.request, state.last_order, state.records, state.saved = request, last, records, False
                state.token = visit.keep_result("judged", event)
                update = render_judgement(visit)
                yield update
                yield show_order(
                    visit, update
                )  # apart, because these are slow to draw and the verdict should not wait

    yield from one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of))


def render_judgement(visit: Visit) -> Update:
    """A finished judgement without the figures of one order."""
    state = state_of(visit)
    assert state.last_order is not None
    assert state.request is not None
    row, request = state.last_order.row, state.request
    looks = looks_of(row, request)
    changed_methods = [o.method for o in row.outcomes if o.consistent is False]
    method = next((label for label in reversed(list(looks)) if label in changed_methods), list(looks)[-1])
    orders = (o.order for o in row.outcomes if o.method == method and o.consistent is False)
    order = next(orders, next(iter(state.records)))
    state.unfolded = False
    closer = text.JUDGE_BLAME_HELP if changed_methods else text.DOCUMENTS_CLOSER_HELP
    return {
        "status": "",
        "verdict": card(state),
        "grid": grid_html(row, request),
        "picks": picks_html(row, request),
        "looks.visible": True,
        "more.visible": True,
        "more.open": False,
        "closer-row.visible": True,
        "closer": text.JUDGE_BLAME if changed_methods else text.CLOSER,
        "closer-help": f'<p class="kv-help">{closer}</p>',
        "save": save_link(state),
        "pick_order.choices": [(slot_words(row, order), order) for order in state.records],
        "pick_order": order,
        "pick_method.choices": [(look.name, label) for label, look in looks.items()],
        "pick_method": method,
    }


def card(state: JudgeState) -> str:
    """The verdict with its cause and repair."""
    assert state.last_order is not None
    assert state.request is not None
    row, request = state.last_order.row, state.request
    filled = [text.JUDGE_OWN_FACT] if request.own_numbers else []
    facts = [f"Judged in {milliseconds(row.wall_ms)}, filling the pools included.", *filled, *row.notes]
    repair = remedy(row, request)
    repair += nearer_anchors(row, request)
    if state.gated:
        repair += " " + gate_words(Judged(request, state.last_order.record.model, (row,)))
    return verdict_card(sentence(row, request), tone(row), facts, baseline(row), repair, factline(request))


def nearer_anchors(row: JudgedProblem, request: JudgeRequest) -> Markup:
    """The button that fills KVCOMM's pools with the problem in other numbers and runs; empty where that was
    done, cannot be, or KVCOMM reused and kept every selection."""
    kvcomm = [o for o in row.outcomes if o.method == "kvcomm"]
    helped = not kvcomm or (all(o.reused_tokens for o in kvcomm) and all(o.consistent for o in kvcomm))
    [problem] = request.problems
    typed = problem.candidates if problem.regime == "typed" else ()  # agents write theirs anew
    texts = {"question": problem.question, "candidates": " ".join(c.text for c in typed)}
    if helped or request.own_numbers or not other_numbers(texts, 1):
        return Markup()
    boxes = {f"kv-{KEY}-own-numbers-box": True, f"kv-{KEY}-warm-box": OWN_WARM}
    return html.set_button(boxes, text.JUDGE_FILL_OWN, run=True)


def factline(request: JudgeRequest) -> str:
    """What was judged, in one line."""
    [problem] = request.problems
    question = f'<span class="kv-asked">{escape(clip(problem.question, 140))}</span>'
    source = text.JUDGE_SOURCES[problem.regime].lower()
    settings = (
        f"{plural(len(problem.candidates), 'candidate')}, {source} · {text.JUDGE_CRITERIA[request.criterion]}"
        f" · writes {text.JUDGE_PROTOCOLS[request.protocol]}"
    )
    return f"{question}<span>{escape(settings)} · greedy judge</span>"


def save_link(state: JudgeState) -> str:
    """The link that saves the judgement; empty for the saved one of a first visit."""
    if state.saved:
        return ""
    link = f"lab/measured/judged/{escape(state.token)}"
    return f'<a class="kv-button" id="kv-{KEY}-save-link" href="{link}" download>{text.MEASURE_SAVE}</a>'


def show_order(visit: Visit, inputs: Given) -> Update:
    """The texts and the attention of one order."""
    if (selection := selection_of(visit, inputs)) is None:
        return {}
    state_of(visit).selection = {name: inputs[name] for name in ("pick_order", "pick_method")}
    record, agent, method = selection
    update: Update = {
        "comparison": comparison_html(record),
        "table": documents_html(record),
        "strip": {"html": strip_html(record, agent, method=method)},
        "view_attention": payload(slot_views(record, agent)),
    }
    if state_of(visit).unfolded:
        update["view_more"] = payload(closer_views(record, agent, method))
    return update


def selection_of(visit: Visit, inputs: Given) -> tuple[RunRecord, int, str] | None:
    """The chosen order's record, its judge, and the chosen method; None before anything was judged."""
    records = state_of(visit).records
    record = records.get(str(inputs.get("pick_order"))) or next(iter(records.values()), None)
    if record is None:
        return None
    method = inputs["pick_method"] if inputs.get("pick_method") in record.labels else record.labels[-1]
    return record, record.agents[-1], method


def unfold(visit: Visit, inputs: Given) -> Update:
    """The closer figures, drawn only when they are opened because they are many."""
    state_of(visit).unfolded = True
    selection = selection_of(visit, inputs)
    return {} if selection is None else {"view_more": payload(closer_views(*selection))}


def fold(visit: Visit, inputs: Given) -> Update:
    """Stop drawing the closer figures."""
    state_of(visit).unfolded = False
    return {}


def open_in_pipeline(visit: Visit, inputs: Given) -> Update:
    """Show the chosen order's run on the pipeline's page."""
    state = state_of(visit)
    selection = selection_of(visit, state.selection)
    if selection is None or state.request is None:
        return {"status": html.status(text.GONE, "note")}
    return open_judged(visit, state.request, selection[0], selection[2])


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page and its events."""
    page.frame(build_inputs, build_results)
    page.arrives(lambda visit, inputs: arrive(page, visit))
    page.follows(refresh, *READS, when=[page[name].input for name in ("asked", "cards", "how")])
    page.on(page.event("criterion"), choose_criterion, "criterion", "question", "text", follow=True)
    page.on(page.event("next"), next_example, "criterion", follow=True)
    for event, act in ((page["run"].click, run), (page.event("write"), write)):
        page.stream(event, partial(act, page.lab), *READS, follow=True)
    page.on(page["cancel"].click, cancelled)
    page.on(page["looks"].input, show_order, "pick_order", "pick_method", latest=True)
    page.on(page["more"].expand, unfold, "pick_order", "pick_method")
    page.on(page["more"].collapse, fold)
    page.to_pipeline(page["closer"].click, open_in_pipeline)
    judge_set.connect(page)


PAGE = PageSpec(KEY, text.JUDGE, build)
