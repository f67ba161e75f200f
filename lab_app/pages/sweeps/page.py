"""The Sweeps page: a grid of comparisons over many problems, with figures that grow while it runs."""

import secrets
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr
import yaml

from backend.base.errors import LabError, OptionError
from backend.methods.registry import method_class
from backend.prompts.presets import PRESET_FOLDER
from backend.records.request import RunRequest
from backend.records.sweep import Count, Swept
from lab_app.ui import html, text
from lab_app.ui.components import figure_view, payload, section
from lab_app.ui.first_runs import first_run, results_notice
from lab_app.ui.one_run import cancelled, field_errors, in_line, one_run
from lab_app.ui.page import PageBuilder, PageSpec
from lab_app.ui.types import Given, Update
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import clip, escape, plural, size
from viz.run.verdict_card import verdict_card
from viz.studies.sweep import as_dense, cached, right, sooner, views

KEY = "sweep"
READS = ("text", "lines")
EXAMPLES_FOLDER = PRESET_FOLDER.parent / "sweeps"
SMALL = """# Does the order of requests matter to the anchor pools? (KVCOMM, Table 4)
name: first-look
tasks: [math-3]
methods: [dense, naive, kvcomm]
request_orders: [given, ascending]
problems: 12
warmup: 8
"""
FILES = {"csv": "CSV", "parquet": "Parquet", "sqlite": "SQLite", "yaml": "YAML"}


@dataclass
class SweepState:
    """What a visit's page remembers: its sweeps' rows, and the last sweep that was run."""

    desk: Any  # the engine's SweepDesk, which holds the rows
    token: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    own: str = ""  # a text that somebody wrote, before an example took its place
    sources: tuple[str, str] | None = None  # text and lines of the last sweep
    changed: bool = False  # whether another file was uploaded since then
    saved: bool = False  # whether the shown rows are the saved ones of a first visit
    stale_shown: bool = False  # whether the page says that the figures are of an earlier text


def state_of(visit: Visit) -> SweepState:
    """The visit's page."""
    if KEY not in visit.pages:
        visit.pages[KEY] = SweepState(visit.engine.sweep_desk())
    state: SweepState = visit.pages[KEY]
    return state


def examples() -> dict[str, str]:
    """Texts of sweeps by title: a small one, and the shipped ones that need no file."""
    texts = {"A first look: two orders of requests": SMALL}
    for path in sorted(EXAMPLES_FOLDER.glob("*.yaml")):
        body = path.read_text(encoding="utf-8")
        if "data:" not in body:
            texts[yaml.safe_load(body).get("title", path.stem)] = body
    return texts


_RUNNABLE: WeakKeyDictionary[VisitStore, list[str]] = WeakKeyDictionary()


def runnable(lab: VisitStore, visit: Visit) -> list[str]:
    """The titles of the examples that the lab's model can run."""
    if lab not in _RUNNABLE:
        desk, titles = state_of(visit).desk, []
        for title, body in examples().items():
            with suppress(LabError):
                desk.plan(body, "")
                titles.append(title)
        _RUNNABLE[lab] = titles
    return _RUNNABLE[lab]


def texts_of(inputs: Given) -> tuple[str, str]:
    """The two sources of a sweep: text and lines."""
    return str(inputs["text"] or ""), str(inputs["lines"] or "")


def page_errors(error: LabError | None) -> Update:
    """Messages beside their places; those about the file stand beside the lines."""
    return field_errors(error, lambda field: "lines" if field in ("lines", "data", "trace") else "text")


# -- the form


def arrive(lab: VisitStore, visit: Visit) -> Update:
    """The examples that can be run here, and the saved rows of the first one."""
    sweep, state = first_run(lab.first_runs, KEY), state_of(visit)
    update: Update = {"start.choices": runnable(lab, visit)}
    if sweep is None or sweep.text != SMALL:
        return update
    state.sources, state.saved = (SMALL, ""), True
    status = html.status(text.FIRST_RUN_HERE, "note")
    figures = payload(views(sweep.swept))
    return update | {"figures": figures, "verdict": verdict_of(sweep.swept), "status": status}


def start(lab: VisitStore, visit: Visit, inputs: Given) -> Update:
    """Put an example's text into the box; what somebody has written becomes an entry of the list."""
    state, chosen, texts = state_of(visit), str(inputs["start"]), examples()
    body = state.own if chosen == text.SWEEP_OWN else texts.get(chosen)
    if body is None:
        return {}
    written = str(inputs["text"] or "")
    if written.strip() and written not in (*texts.values(), state.own):
        state.own = written
    own = [text.SWEEP_OWN] if state.own else []
    return {"text": body, "start.choices": [*runnable(lab, visit), *own]}


def take(visit: Visit, inputs: Given) -> Update:
    """Make a sweep of the last run of the pipeline's page."""
    if visit.record is None:
        return {"status": html.status(text.SWEEP_NO_RUN, "note")}
    request = visit.record.request
    pipeline = state_of(visit).desk.edited(request.pipeline)
    return {"text": as_text(request, pipeline), "status": html.status(text.SWEEP_TAKEN, "note")}


def as_text(request: RunRequest, pipeline: str) -> str:
    """A run's scenario and methods as a sweep's text, with the options that differ from their defaults."""
    methods: list[Any] = []
    for choice in request.methods:
        if choice.exact:  # what was repaired are tokens of that one run
            continue
        usual = method_class(choice.name).Options()
        options = {k: v for k, v in choice.options.items() if v != getattr(usual, k, None)}
        row: dict[str, Any] = {"name": choice.name, **options}
        method = choice.name if list(row) == ["name"] else row
        if method not in methods:  # a column that was doubled, and not changed yet
            methods.append(method)
    body: dict[str, Any] = {"name": "from-the-bench", "tasks": [pipeline], "methods": methods}
    body |= {"modes": [request.mode], "problems": 20, "warmup": 10}
    if request.decoding.temperature:
        body["temperature"] = request.decoding.temperature
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def upload(visit: Visit, inputs: Given) -> Update:
    """Keep an uploaded file. If it is refused, a message says why and the one before stays."""
    content, state = inputs["upload"], state_of(visit)
    if not isinstance(content, bytes):
        return {}
    try:
        name, lines = state.desk.keep(content)
    except LabError as error:
        return {"uploaded": html.error(str(error))}
    state.changed = True
    message = text.SWEEP_UPLOADED.format(lines=plural(lines, "line"), size=size(len(content)), name=name)
    return {"uploaded": f'<p class="kv-help">{message}</p>'}


def refresh(visit: Visit, inputs: Given) -> Update:
    """What follows from the form: messages, the size, and whether the figures belong to an earlier one."""
    state = state_of(visit)
    try:
        plan = state.desk.plan(*texts_of(inputs))
    except LabError as error:
        update = page_errors(error) | {"cost": ""}
    else:
        message = text.SWEEP_PLAN.format(rows=plural(plan.rows, "row"), cells=plural(plan.cells, "cell"))
        message += text.SWEEP_THERE.format(there=plan.stored) if plan.stored else ""
        if plan.seconds:
            message += text.SWEEP_SECONDS.format(lasts=html.lasting(plan.seconds))
        else:
            message += text.SWEEP_ALL_THERE
        update = page_errors(None) | {"cost": f'<p class="kv-cost">{message}</p>'}
    if visit.cancel is None and state.sources is not None:
        same = texts_of(inputs) == state.sources and not state.changed
        if not same:
            update["status"] = html.status(text.SWEEP_EDITED, "edited")
        elif state.stale_shown:  # other messages, such as that a run was stopped, stay
            update["status"] = results_notice(False, state.saved, "")
        state.stale_shown = not same
    return update


# -- running


def run(lab: VisitStore, visit: Visit, inputs: Given) -> Iterator[Update]:
    """Run the sweep problem by problem; between two problems other visits may use the model."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        state = state_of(visit)
        state.sources, state.changed, state.stale_shown, state.saved = texts_of(inputs), False, False, False
        yield page_errors(None)
        finished = False
        with closing(visit.engine.sweep(state.desk, *state.sources, cancel=cancel)) as events:
            while not finished:
                finished = yield from in_line(lab, cancel, lambda: _show_problem(state, events))

    yield from one_run(visit, work, page_errors, text.SWEEP_STOPPED)


def _show_problem(state: SweepState, events: Iterator[Count | Swept]) -> Generator[Update, None, bool]:
    """Show the sweep's progress until a problem is done; True when the sweep has ended."""
    start = None
    for event in events:
        if isinstance(event, Swept):
            yield render_rows(state, event)
            continue
        yield {"status": html.status(str(event), "running", event.done, event.total)}
        if start is not None and event.done > start:
            return False
        start = event.done if start is None else start
    return True


def render_rows(state: SweepState, swept: Swept) -> Update:
    """The figures of the rows that there are, and the files."""
    update: Update = {
        "figures": payload(views(swept)),
        "verdict": verdict_of(swept),
        "files": files(state.token),
    }
    return update | ({"status": ""} if swept.complete else {})


def verdict_of(swept: Swept) -> str:
    """Whether answers stay the same and right, and what is gained: the findings of the figures."""
    changed = any(line.as_dense.of and line.as_dense.value < 1 for line in swept.lines)
    sentence = f'<strong class="kv-verdict-head">{escape(as_dense(swept).finding)}</strong>'
    problems = plural(max((line.problems for line in swept.lines), default=0), "problem")
    return verdict_card(
        sentence, "changed" if changed else "same", (), escape(right(swept).finding),
        escape(f"{sooner(swept).finding} {cached(swept).finding}"),
        f"<span>{escape(clip(swept.title or swept.name, 80))} · {problems} in each cell</span>",
        heads=(text.SWEEP_RIGHT, text.SWEEP_GAIN),
    )  # fmt: skip


def files(token: str) -> str:
    """Links that save the rows."""
    links = "".join(
        f'<a class="kv-button" id="kv-{KEY}-{kind}" href="lab/sweep/{escape(token)}/{kind}" download>'
        f"{label}</a>"
        for kind, label in FILES.items()
    )
    help_text = f'<p class="kv-help">{text.SWEEP_FILES_HELP}</p>'
    return f'<div class="kv-saving"><b>{text.SWEEP_FILES}</b> {links}{help_text}</div>'


def rows_file(lab: VisitStore, token: str, kind: str) -> bytes:
    """A visit's rows as a file.

    Raises:
        OptionError: no visit holds these rows, or the kind cannot be written.
    """
    for visit in lab.visits:
        state = visit.pages.get(KEY)
        if state is not None and secrets.compare_digest(state.token.encode(), token.encode()):
            if kind == "yaml" and state.sources is not None:
                return bytes(state.sources[0].encode())
            return bytes(state.desk.saved(kind))
    raise OptionError("These rows are no longer held by the server. Run the sweep again.")


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page and its events."""
    page.frame(build_inputs, build_results)
    page.arrives(lambda visit, inputs: arrive(page.lab, visit))
    page.follows(refresh, *READS, when=[page["text"].change, page["lines"].change])
    page.on(page["start"].input, partial(start, page.lab), "start", "text", follow=True)
    page.on(page["take"].click, take, follow=True)
    page.on(page["upload"].upload, upload, "upload", follow=True)
    page.stream(page["run"].click, lambda visit, inputs: run(page.lab, visit, inputs), *READS, follow=True)
    page.on(page["cancel"].click, cancelled)


def build_inputs(page: PageBuilder) -> None:
    """The left column: the text, and a file beside it."""
    texts = examples()
    with section(text.SWEEP_TITLE, f"{KEY}-text"):
        page.block("help", f'<p class="kv-help">{text.SWEEP_HELP}</p>')
        page.add(
            start=gr.Dropdown(
                list(texts), value=next(iter(texts)), label=text.SWEEP_START, filterable=False,
                elem_id=f"kv-{KEY}-start",
            ),
            take=gr.Button(text.SWEEP_TAKE, size="sm", elem_id=f"kv-{KEY}-take"),
            text=gr.Textbox(
                SMALL, label=text.SWEEP_TEXT, lines=14, max_lines=30, elem_id=f"kv-{KEY}-yaml",
                elem_classes="kv-mono-box",
            ),
        )  # fmt: skip
        page.error("text")
    with section(text.SWEEP_LINES_TITLE, f"{KEY}-lines"):
        page.block("lines-help", f'<p class="kv-help">{text.SWEEP_LINES_HELP}</p>')
        page.add(
            lines=gr.Textbox(
                "", label=text.SWEEP_LINES, lines=3, max_lines=8, elem_id=f"kv-{KEY}-jsonl",
                elem_classes="kv-mono-box",
            ),
            upload=gr.UploadButton(
                text.SWEEP_UPLOAD, file_count="single", type="binary", size="sm", elem_id=f"kv-{KEY}-upload"
            ),
        )  # fmt: skip
        page.block("uploaded", elem_classes="kv-maybe")
        page.error("lines")


def build_results(page: PageBuilder) -> None:
    """The results: progress, figures and files."""
    page.block("status")
    page.block("verdict", html.empty_card(text.SWEEP_EMPTY, text.SWEEP_EMPTY_HELP))
    page.add(figures=figure_view(KEY, css="kv-folds"))
    page.block("files", elem_classes="kv-maybe")


PAGE = PageSpec(KEY, text.SWEEP, build)
