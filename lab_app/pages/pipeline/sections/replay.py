"""The What if tab: a replay of past pinned requests under the methods of the form, without prefilling.

The form is its editor: gamma, V, steps, profiles and the switches that add columns all count.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr

from backend.base.errors import LabError, OptionError
from backend.methods.registry import make_options
from backend.records.events import Progress
from backend.records.replay import MOST_REPLAYED, Replay
from backend.records.request import MethodChoice, RunRequest
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline.form import FORM, Form
from lab_app.ui import text
from lab_app.ui.components import payload
from lab_app.ui.measurement import Section, plan
from lab_app.ui.method_choice import blanks
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, milliseconds, plural, size
from viz.studies.replay import question, valid_request, views

KIND = "replay"
USUAL = 20  # past requests
LAST = NumberField(text.REPLAY_LAST, 1, MOST_REPLAYED)
SECTION = Section(
    "replay", ("last",), other="run", as_run=True, busy=text.REPLAY_BUSY, stopped=text.REPLAY_STOPPED
)
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
        count = LAST.read(last, "replay.last")
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


def measure(lab: VisitStore, visit: Visit, form: Form, last: Any, ablation: bool = False) -> Iterator[Update]:
    """Replay and show the record. It counts as a run of the visit: both read the same memory, so one waits
    for the other, and the page's Cancel ends it."""

    def events(asked: tuple[RunRequest, int], cancel: threading.Event) -> Iterator[Progress | Replay]:
        return visit.engine.replay(*asked, cancel=cancel)

    def finished(record: Replay) -> Update:
        visit.keep_result(KIND, record)
        return render_result(visit)

    yield from SECTION.measure(lab, visit, lambda: read(form, last, ablation), events, finished)


def pick(visit: Visit, wish: Any) -> Update:
    """The texts of another request, chosen in the box or in the figure."""
    if KIND not in visit.results:
        return {}
    whole = str(wish).isdecimal() or (isinstance(wish, float) and wish.is_integer())
    return look(visit, int(wish) if whole and not isinstance(wish, bool) else None)


def look(visit: Visit, wish: int | None = None) -> Update:
    """The figures, with one request's texts."""
    record = visit.result(KIND)
    chosen = valid_request(record, wish)
    choices = [(f"{a.number}: {clip(question(a), 70)}", str(a.number)) for a in record.requests]
    return {"pick_replay": (choices, str(chosen)), "view_replay": payload(views(record, chosen))}


def render_result(visit: Visit) -> Update:
    """A finished replay: what it was, what it took, what the memory holds, and its figures."""
    token, record = visit.results[KIND]
    left = f"; {record.forgotten:,} earlier ones had to leave it" if record.forgotten else ""
    encoded = f", {record.encoded_tokens:,} to encode texts otherwise" if record.encoded_tokens else ""
    facts = (
        f"The last {plural(len(record.requests), 'request')} of {record.held:,} in memory{left}, in "
        f"{milliseconds(record.wall_ms)}. The replay read {plural(record.prefill_tokens, 'prompt token')}"
        f"{encoded}, where sending the requests again would read {record.again_tokens:,}; it wrote "
        f"{record.decode_tokens:,}. Memory: {size(record.log_bytes)} of {size(record.budget_bytes)}, and up "
        f"to {size(record.cache_bytes)} for the methods’ caches meanwhile."
    )
    return SECTION.saved(facts, KIND, token) | {"replay_looks.visible": True, **look(visit)}


# -- the widgets ---------------------------------------------------------------------------------------------


def build(page: PageBuilder) -> None:
    """The tab."""
    with gr.Tab(text.REPLAY, id="what-if", elem_id="kv-tab-what-if"):
        gr.HTML(
            f'<p class="kv-tab-question">{text.REPLAY_QUESTION}</p>',
            elem_id="kv-tab-question-what-if", apply_default_css=False,
        )  # fmt: skip
        with SECTION.box("", text.REPLAY_HELP):
            with gr.Row(elem_classes="kv-measure"):
                SECTION.number(page, "last", LAST, USUAL)
                SECTION.button(page, text.REPLAY_RUN, elem_id="kv-replay-run")
                page.add(
                    replay_ablation=gr.Button(
                        text.REPLAY_ABLATION, size="md", elem_id="kv-replay-ablation", scale=0
                    )
                )
            SECTION.error(page, "last", "run")
        SECTION.said(page)
        with gr.Row(visible=False, elem_id="kv-replay-looks", elem_classes="kv-measure") as looks:
            page.add(
                replay_looks=looks,
                pick_replay=gr.Dropdown(
                    [], label=text.REPLAY_REQUEST, min_width=220, filterable=False,
                    elem_id="kv-replay-request",
                ),
            )  # fmt: skip
        SECTION.figures(page, plan("replay_plan", text.REPLAY_PLAN, text.REPLAY_STEPS))


def connect(page: PageBuilder) -> None:
    """What the widgets do; after a replay the form says again how it stands."""

    def replayed(ablation: bool) -> Callable[[Visit, Given], Iterator[Update]]:
        return lambda visit, given: measure(page.lab, visit, given[FORM], given["replay_last"], ablation)

    def chosen(visit: Visit, given: Given, event: Any) -> Update:
        return pick(visit, getattr(event, "x", None)) if getattr(event, "view", "") == "replay_fates" else {}

    for name, ablation in (("replay_measure", False), ("replay_ablation", True)):
        page.stream(
            page[name].click, replayed(ablation), *SECTION.names, FORM, follow=True,
            outputs=page.part(SECTION.part),
        )  # fmt: skip
    figures = [page["pick_replay"], page["view_replay"], page["status"]]
    page.on(
        page["pick_replay"].input, lambda visit, given: pick(visit, given["pick_replay"]), "pick_replay",
        latest=True, outputs=figures,
    )  # fmt: skip
    page.select(page["view_replay"].select, chosen, outputs=figures)
