"""The Sweeps page: a grid of comparisons over many problems, with figures that grow while it runs."""

import secrets
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
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
from lab_app.ui.one_run import cancelled, field_errors, one_run
from lab_app.ui.page import PageBuilder, PageSpec
from lab_app.ui.types import Given, Update
from lab_app.visits.queue import wait_for_turn
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
    """What a visit's page remembers: its sweeps' rows, and what was last run."""

    rows: Any  # the session's desk
    token: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    ran: tuple[str, str] | None = None  # text and lines
    changed: bool = False  # whether another file was uploaded since
    saved: bool = False  # what is shown is the saved run of a first visit
    edited: bool = False  # whether the page says that its figures are of an earlier text


def state(visit: Visit) -> SweepState:
    """The visit's page."""
    if KEY not in visit.pages:
        visit.pages[KEY] = SweepState(visit.engine.sweep_desk())
    found: SweepState = visit.pages[KEY]
    return found


def examples() -> dict[str, str]:
    """Sweeps to start from, by their titles: a small one, and the shipped ones that need no file."""
    found = {"A first look: two orders of requests": SMALL}
    for path in sorted(EXAMPLES_FOLDER.glob("*.yaml")):
        body = path.read_text(encoding="utf-8")
        if "data:" not in body:
            found[yaml.safe_load(body).get("title", path.stem)] = body
    return found


_RUNNABLE: WeakKeyDictionary[VisitStore, list[str]] = WeakKeyDictionary()


def runnable(lab: VisitStore, visit: Visit) -> list[str]:
    """The titles of the examples that the lab's model can run: their plan is not refused."""
    if lab not in _RUNNABLE:
        desk, found = state(visit).rows, []
        for title, body in examples().items():
            with suppress(LabError):
                desk.plan(body, "")
                found.append(title)
        _RUNNABLE[lab] = found
    return _RUNNABLE[lab]


def texts_of(given: Given) -> tuple[str, str]:
    """Text and lines as they stand."""
    return str(given["text"] or ""), str(given["lines"] or "")


def page_errors(error: LabError | None) -> Update:
    """Messages beside their places: what is wrong in the lines or the file stands beside those."""
    return field_errors(error, lambda field: "lines" if field in ("lines", "data", "trace") else "text")


# -- the bench


def arrive(lab: VisitStore, visit: Visit) -> Update:
    """The examples that can be run here, and the saved rows of the text that stands there at first."""
    found, mine = first_run(lab.first_runs, KEY), state(visit)
    update: Update = {"start.choices": runnable(lab, visit)}
    if found is None or found.text != SMALL:
        return update
    mine.ran, mine.saved = (SMALL, ""), True
    status = html.status(text.FIRST_RUN_HERE, "note")
    figures = payload(views(found.swept))
    return update | {"figures": figures, "verdict": verdict_of(found.swept), "status": status}


def start(visit: Visit, given: Given) -> Update:
    """An example's text."""
    found = examples().get(str(given["start"]))
    return {} if found is None else {"text": found}


def take(visit: Visit, given: Given) -> Update:
    """The last run of the pipeline's page, over many problems."""
    if visit.record is None:
        return {"status": html.status(text.SWEEP_NO_RUN, "note")}
    request = visit.record.request
    named = state(visit).rows.edited(request.pipeline)
    return {"text": as_text(request, named), "status": html.status(text.SWEEP_TAKEN, "note")}


def as_text(request: RunRequest, pipeline: str) -> str:
    """A run's scenario and methods as a sweep; options stand where they are not the usual ones."""
    methods: list[Any] = []
    for choice in request.methods:
        usual = method_class(choice.name).Options()
        own = {k: v for k, v in choice.options.items() if v != getattr(usual, k, None)}
        row: dict[str, Any] = {"name": choice.name, **own}
        methods.append(choice.name if list(row) == ["name"] else row)
    body: dict[str, Any] = {"name": "from-the-bench", "tasks": [pipeline], "methods": methods}
    body |= {"modes": [request.mode], "problems": 20, "warmup": 10}
    if request.decoding.temperature:
        body["temperature"] = request.decoding.temperature
    return yaml.safe_dump(body, sort_keys=False, allow_unicode=True)


def upload(visit: Visit, given: Given) -> Update:
    """Keep a file beside the text. What is wrong with it stands beside the button; the one before stays."""
    content, mine = given["upload"], state(visit)
    if not isinstance(content, bytes):
        return {}
    try:
        name, lines = mine.rows.keep(content)
    except LabError as error:
        return {"uploaded": html.error(str(error))}
    mine.changed = True
    said = text.SWEEP_UPLOADED.format(lines=plural(lines, "line"), size=size(len(content)), name=name)
    return {"uploaded": f'<p class="kv-help">{said}</p>'}


def refresh(visit: Visit, given: Given) -> Update:
    """What follows from what stands on the page: messages, the size, and whether the figures are old."""
    mine = state(visit)
    try:
        plan = mine.rows.plan(*texts_of(given))
    except LabError as error:
        update = page_errors(error) | {"cost": ""}
    else:
        said = text.SWEEP_PLAN.format(rows=plural(plan.rows, "row"), cells=plural(plan.cells, "cell"))
        said += text.SWEEP_THERE.format(there=plan.stored) if plan.stored else ""
        if plan.seconds:
            said += text.SWEEP_SECONDS.format(lasts=html.lasting(plan.seconds))
        else:
            said += text.SWEEP_ALL_THERE
        update = page_errors(None) | {"cost": f'<p class="kv-cost">{said}</p>'}
    if visit.cancel is None and mine.ran is not None:
        same = texts_of(given) == mine.ran and not mine.changed
        if not same:
            update["status"] = html.status(text.SWEEP_EDITED, "edited")
        elif mine.edited:  # what else stands there, such as that a run was stopped, stays
            update["status"] = results_notice(False, mine.saved, "")
        mine.edited = not same
    return update


# -- running


def run(lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
    """The sweep, one problem after the other; between two of them others may have the model."""

    def work(cancel: threading.Event) -> Iterator[Update]:
        mine = state(visit)
        mine.ran, mine.changed, mine.edited, mine.saved = texts_of(given), False, False, False
        yield page_errors(None)
        finished = False
        with closing(visit.engine.sweep(mine.rows, *mine.ran, cancel=cancel)) as events:
            while not finished:
                with lab.in_line() as place:
                    for said in wait_for_turn(place, cancel):
                        yield {"status": html.status(said, "waiting")}
                    finished = yield from _problem(mine, events)

    yield from one_run(visit, work, page_errors, text.SWEEP_STOPPED)


def _problem(mine: SweepState, events: Iterator[Count | Swept]) -> Generator[Update, None, bool]:
    """Show what a sweep says until a problem is done; True when it has ended."""
    done = None
    for event in events:
        if isinstance(event, Swept):
            yield render_rows(mine, event)
            continue
        yield {"status": html.status(str(event), "running", event.done, event.total)}
        if done is not None and event.done > done:
            return False
        done = event.done if done is None else done
    return True


def render_rows(mine: SweepState, swept: Swept) -> Update:
    """The figures so far, and the files."""
    update: Update = {
        "figures": payload(views(swept)),
        "verdict": verdict_of(swept),
        "files": files(mine.token),
    }
    return update | ({"status": ""} if swept.complete else {})


def verdict_of(swept: Swept) -> str:
    """Is it the same, is it right, what is gained: the findings of the figures below."""
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
    """Links to the rows."""
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
        OptionError: the server holds none, or cannot write this kind.
    """
    for visit in lab.visits:
        mine = visit.pages.get(KEY)
        if mine is not None and secrets.compare_digest(mine.token.encode(), token.encode()):
            if kind == "yaml" and mine.ran is not None:
                return bytes(mine.ran[0].encode())
            return bytes(mine.rows.saved(kind))
    raise OptionError("These rows are no longer held by the server. Run the sweep again.")


# -- the widgets


def build(page: PageBuilder) -> None:
    """The page."""
    page.frame(build_inputs, build_results)
    connect(page)


def build_inputs(page: PageBuilder) -> None:
    """The left column: the text, and a file beside it."""
    found = examples()
    with section(text.SWEEP_TITLE, f"{KEY}-text"):
        page.block("help", f'<p class="kv-help">{text.SWEEP_HELP}</p>')
        page.add(
            start=gr.Dropdown(
                list(found), value=next(iter(found)), label=text.SWEEP_START, filterable=False,
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
    """How far it is, the figures, and the files."""
    page.block("status")
    page.block("verdict", html.empty_card(text.SWEEP_EMPTY, text.SWEEP_EMPTY_HELP))
    page.add(figures=figure_view(KEY, css="kv-folds"))
    page.block("files", elem_classes="kv-maybe")


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.arrives(lambda visit, given: arrive(page.lab, visit))
    page.follows(refresh, *READS, when=[page["text"].change, page["lines"].change])
    page.on(page["start"].input, start, "start", follow=True)
    page.on(page["take"].click, take, follow=True)
    page.on(page["upload"].upload, upload, "upload", follow=True)
    page.stream(page["run"].click, lambda visit, given: run(page.lab, visit, given), *READS, follow=True)
    page.on(page["cancel"].click, cancelled)


PAGE = PageSpec(KEY, text.SWEEP, build)
