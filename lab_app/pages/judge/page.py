"""The Judge page: candidates before a judge, in several orders, read through every method."""

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from backend.base.errors import LabError, PromptError
from backend.prompts.presets import load_preset, preset_requests
from backend.prompts.template import QUESTION
from backend.records.events import Progress
from backend.records.judge import (
    ANSWER_TOKENS,
    CANDIDATE_TOKENS,
    CRITERIA,
    Candidate,
    Judged,
    JudgeProblem,
    JudgeRequest,
    OrderDone,
)
from backend.records.request import Decoding
from backend.records.run import RunRecord
from lab_app.pages.judge import problem_set as judge_set
from lab_app.pages.judge.closer import open_judged
from lab_app.pages.judge.form import (
    KEY,
    REPAIR,
    SETTINGS,
    read_regime,
    read_settings,
)
from lab_app.pages.judge.layout import build_inputs, build_results
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.first_runs import first_run, results_notice
from lab_app.ui.method_chips import usable_methods
from lab_app.ui.one_run import cancelled, field_errors, one_run_in_turn
from lab_app.ui.page import PageBuilder, PageSpec
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
    """What a visit's Judge page remembers: ``written`` by the model, ``ran`` and its ``records`` by order;
    whether the closer figures are ``unfolded``, and whether disagreement as a gate is told (``gated``)."""

    next_example: int = 0
    writes: int = 0
    written: JudgeProblem | None = None
    ran: JudgeRequest | None = None
    judged: OrderDone | None = None
    records: dict[str, RunRecord] = field(default_factory=dict)
    token: str = ""
    saved: bool = False  # what is shown is the saved run of a first visit
    unfolded: bool = False
    gated: bool = False
    looks: Given = field(default_factory=dict)  # the order and the method that are looked at


def state(visit: Visit) -> JudgeState:
    """The visit's page."""
    found: JudgeState = visit.pages.setdefault(KEY, JudgeState())
    return found


# -- reading what stands on the page


def read(visit: Visit, given: Given) -> JudgeRequest:
    """The typed or written problem and all settings, checked.

    Raises:
        Problems: everything that is wrong, each with its place.
    """
    mine, reader = state(visit), FormReader(given)
    texts = given["text"]
    for slot, said in enumerate(texts):
        if not said.strip():
            message = text.CANDIDATE_EMPTY.format(number=slot + 1)
            reader.found.append(Problem(f"text_{slot}", message))
        else:
            reader.text(f"text_{slot}", f"Candidate {slot + 1}", said)
    question = reader.text("question", "The question")
    if not question.strip() and not any(p.field == "question" for p in reader.found):
        reader.found.append(Problem("question", "The question is empty. Write some text."))
    expected = reader.text("expected", text.JUDGE_EXPECTED).strip() or None
    settings = read_settings(reader, len(texts))
    reader.done()
    problem = as_written(mine, question, texts, given["source"], expected)
    if problem is None:
        candidates = tuple(Candidate(said, f"agent {i}") for i, said in enumerate(texts, 1))
        problem = JudgeProblem(1, question, candidates, "typed", expected)
    return JudgeRequest(
        problem.regime, (problem,), 1, candidates=len(texts), max_new_tokens=ANSWER_TOKENS,
        sampling=Decoding(CANDIDATE_TOKENS, 1.0, 1.0, 0), **settings,
    )  # fmt: skip


def as_written(
    mine: JudgeState, question: str, texts: list[str], source: Any, expected: str | None
) -> JudgeProblem | None:
    """The model's own candidates, if these are what stands on the cards."""
    found = mine.written
    if found is None or (found.regime, found.question, found.expected) != (source, question, expected):
        return None
    return found if [c.text for c in found.candidates] == texts else None


def slot_of(name: str | None) -> str:
    """The error slot of a field of the engine's request."""
    last = (name or "").rpartition(".")[2]
    number = last.removeprefix("candidate_")
    if number.isdecimal():
        return f"text_{int(number) - 1}"
    places = {QUESTION: "question", "question": "question", "candidates": "cards", "methods": "methods"}
    return places.get(last, "run")


# -- the bench


def arrive(page: PageBuilder, visit: Visit) -> Update:
    """The saved judgement and its problem, else the first example; and the methods that run here."""
    mine, found = state(visit), first_run(page.lab.first_runs, KEY)
    update = next_example(visit, {"criterion": CRITERIA[0]}) | usable_methods(page)
    if found is not None:
        [problem] = found.request.problems
        mine.ran, mine.saved = found.request, True
        mine.records = dict(zip((order.label for order in found.request.orders), found.records, strict=True))
        mine.judged = OrderDone(found.row, *list(mine.records.items())[-1])
        update |= {
            "text": [c.text for c in problem.candidates], "question": problem.question,
            "expected": problem.expected or "",
        } | (seen := render_judgement(visit)) | show_order(visit, seen)  # fmt: skip
    chips = [(title, name) for title, name in update["methods.choices"] if name != REPAIR]
    return update | {"methods.choices": chips}


def next_example(visit: Visit, given: Given) -> Update:
    """The next example of the criterion."""
    mine = state(visit)
    if given["criterion"] not in CRITERIA:
        raise PromptError(f"There is no criterion {str(given['criterion'])[:30]!r}. Choose one of the list.")
    preset = load_preset(f"judge-{given['criterion']}")
    found = preset_requests(preset, mine.next_example + 1)[-1]
    mine.next_example += 1
    texts = [value for name, value in found.values.items() if name != QUESTION]
    chosen = [int(n) for n in re.findall("[0-9]+", found.answer or "") if 0 < int(n) <= len(texts)]
    final = re.findall(r"The answer is ([0-9]+)", texts[chosen[0] - 1]) if chosen else []
    known = final[-1] if final and given["criterion"] in ("right", "all", "corrects") else ""
    return {"text": texts} | {"question": found.values[QUESTION], "expected": known, "source": "typed"}


def refresh(visit: Visit, given: Given) -> Update:
    """What follows from what stands on the page."""
    mine, request = state(visit), None
    source = given["source"] if given["source"] in text.JUDGE_SOURCES else "typed"
    update: Update = {"write-row.visible": source != "typed"}
    try:
        request = read(visit, given)
        verdicts = len(request.orders) * max(1, len(request.methods))
        lasts = html.lasting(visit.engine.estimate_judging(request, taken_in=request.warmup))
        said = f"<b>{plural(verdicts, 'verdict')}</b>, {lasts}"
        update |= field_errors(None, slot_of) | {"cost": f'<p class="kv-cost">{said}</p>'}
    except LabError as error:
        update |= field_errors(error, slot_of) | {"cost": ""}
    said = text.JUDGE_SOURCE_HELP[source]
    if source != "typed":
        texts = given["text"]
        expected = str(given["expected"] or "").strip() or None
        same = as_written(mine, str(given["question"] or ""), texts, source, expected)
        said += f" {text.JUDGE_WROTE if same else text.JUDGE_CHANGED}"
    update["source-help"] = f'<p class="kv-help">{escape(said)}</p>'
    if visit.cancel is None and mine.ran is not None:
        if mine.gated != bool(given["gated"]):
            mine.gated = not mine.gated
            update["verdict"] = card(mine)
        update["status"] = results_notice(request != mine.ran, mine.saved, text.DOCUMENTS_EDITED)
    return update


# -- running


def write(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """Let the model write the candidates, and put them on the cards."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        mine, reader = state(visit), FormReader(given)
        question = reader.text("question", "The question")
        if not question.strip():
            reader.found.append(Problem("question", "The question is empty. Write some text."))
        expected = reader.text("expected", text.JUDGE_EXPECTED).strip() or None
        temperature = reader.number("temperature", text.JUDGE_NUMBERS["temperature"])
        regime = read_regime(given["source"], "parallel")
        reader.done()
        mine.writes += 1
        request = JudgeRequest(
            regime, (JudgeProblem(1, question, (), regime, expected),), 1, candidates=len(given["text"]),
            sampling=Decoding(CANDIDATE_TOKENS, temperature, 1.0, mine.writes),
        )  # fmt: skip
        yield field_errors(None, slot_of)
        for event in visit.engine.write_candidates(request, cancel=cancel):
            if isinstance(event, JudgeProblem):
                mine.written = event
                yield {"text": [c.text for c in event.candidates]} | {"status": ""}
            else:
                yield {"status": html.progress(event)}

    yield from one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of))


def run(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """Judge the candidates in every order, and show each order as it is done."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        request, mine = read(visit, given), state(visit)
        mine.gated = bool(given["gated"])
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
                mine.ran, mine.judged, mine.records, mine.saved = request, last, records, False
                mine.token = visit.keep_result("judged", event)
                update = render_judgement(visit)
                yield update
                yield show_order(visit, update)  # drawing takes longer than reading the verdict should

    yield from one_run_in_turn(lab, visit, work, lambda error: field_errors(error, slot_of))


def render_judgement(visit: Visit) -> Update:
    """A finished judgement, without its figures."""
    mine = state(visit)
    assert mine.judged is not None
    assert mine.ran is not None
    row, request = mine.judged.row, mine.ran
    looks = looks_of(row, request)
    parted = [o.method for o in row.outcomes if o.consistent is False]
    method = next((label for label in reversed(list(looks)) if label in parted), list(looks)[-1])
    changed = (o.order for o in row.outcomes if o.method == method and o.consistent is False)
    order = next(changed, next(iter(mine.records)))
    mine.unfolded = False
    closer = text.JUDGE_BLAME_HELP if parted else text.DOCUMENTS_CLOSER_HELP
    return {
        "status": "",
        "verdict": card(mine),
        "grid": grid_html(row, request),
        "picks": picks_html(row, request),
        "looks.visible": True,
        "more.visible": True,
        "more.open": False,
        "closer-row.visible": True,
        "closer": text.JUDGE_BLAME if parted else text.CLOSER,
        "closer-help": f'<p class="kv-help">{closer}</p>',
        "save": saved(mine),
        "pick_order.choices": [(slot_words(row, order), order) for order in mine.records],
        "pick_order": order,
        "pick_method.choices": [(look.name, label) for label, look in looks.items()],
        "pick_method": method,
    }


def card(mine: JudgeState) -> str:
    """The verdict and its source and repair."""
    assert mine.judged is not None
    assert mine.ran is not None
    row, request = mine.judged.row, mine.ran
    facts = [f"Judged in {milliseconds(row.wall_ms)}, filling the pools included.", *row.notes]
    repair = remedy(row, request)
    if mine.gated:
        repair += " " + gate_words(Judged(request, mine.judged.record.model, (row,)))
    return verdict_card(sentence(row, request), tone(row), facts, baseline(row), repair, factline(request))


def factline(request: JudgeRequest) -> str:
    """What was judged, in one quiet line."""
    [problem] = request.problems
    asked = f'<span class="kv-asked">{escape(clip(problem.question, 140))}</span>'
    source = text.JUDGE_SOURCES[problem.regime].lower()
    how = (
        f"{plural(len(problem.candidates), 'candidate')}, {source} · {text.JUDGE_CRITERIA[request.criterion]}"
        f" · writes {text.JUDGE_PROTOCOLS[request.protocol]}"
    )
    return f"{asked}<span>{escape(how)} · greedy judge</span>"


def saved(mine: JudgeState) -> str:
    """The link that saves what was judged; nothing for what was saved before."""
    return (
        ""
        if mine.saved
        else (
            f'<a class="kv-button" id="kv-{KEY}-save-link" '
            f'href="lab/measured/judged/{escape(mine.token)}" download>'
            f"{text.MEASURE_SAVE}</a>"
        )
    )


def show_order(visit: Visit, given: Given) -> Update:
    """The texts and the attention of one order."""
    if (picked := looked_at(visit, given)) is None:
        return {}
    state(visit).looks = {name: given[name] for name in ("pick_order", "pick_method")}
    record, agent, method = picked
    update: Update = {
        "comparison": comparison_html(record),
        "table": documents_html(record),
        "strip": {"html": strip_html(record, agent, method=method)},
        "view_attention": payload(slot_views(record, agent)),
    }
    if state(visit).unfolded:
        update["view_more"] = payload(closer_views(record, agent, method))
    return update


def looked_at(visit: Visit, given: Given) -> tuple[RunRecord, int, str] | None:
    """The chosen order's record, its judge, and the chosen method; None before anything was judged."""
    records = state(visit).records
    record = records.get(str(given.get("pick_order"))) or next(iter(records.values()), None)
    if record is None:
        return None
    method = given["pick_method"] if given.get("pick_method") in record.labels else record.labels[-1]
    return record, record.agents[-1], method


def unfold(visit: Visit, given: Given) -> Update:
    """The closer figures, which are drawn only for those who open them: they are many."""
    state(visit).unfolded = True
    picked = looked_at(visit, given)
    return {} if picked is None else {"view_more": payload(closer_views(*picked))}


def fold(visit: Visit, given: Given) -> Update:
    """Nobody looks at them any more."""
    state(visit).unfolded = False
    return {}


def open_in_pipeline(visit: Visit, given: Given) -> Update:
    """The run that is looked at, on the pipeline's page."""
    mine = state(visit)
    picked = looked_at(visit, mine.looks)
    if picked is None or mine.ran is None:
        return {"status": html.status(text.GONE, "note")}
    return open_judged(visit, mine.ran, picked[0], picked[2])


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page."""
    page.frame(build_inputs, build_results)
    connect(page)


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.arrives(lambda visit, given: arrive(page, visit))
    page.follows(refresh, *READS, when=[page[name].input for name in ("asked", "cards", "how")])
    page.on(page.event("criterion"), next_example, "criterion", follow=True)
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
