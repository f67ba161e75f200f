"""How measurements run: a section of a page with boxes, a button, figures and a link to save.

A section is one object: its texts, its boxes, how they become a request, and how the record is drawn.
:meth:`Section.build` and :meth:`Section.connect` make the rest of it.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from backend.base.errors import LabError, RunCancelled
from backend.base.text import boundary_words
from backend.records.events import Progress
from backend.records.prompt import Taxed
from lab_app.ui import fields, html, text
from lab_app.ui.components import figure_view, payload
from lab_app.ui.fields import Node
from lab_app.ui.page import STATUS, PageBuilder
from lab_app.ui.streaming import Throttle
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, NumberField, problems_of
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import Visit, VisitStore
from viz.base.figure import FigureView, Panel
from viz.base.format import clip, milliseconds

LOG = logging.getLogger("lab_app")
OTHER = "measure"  # the place of messages that are about no box


@dataclass(frozen=True)
class Section:
    """A part of a page that measures. A subclass overrides what differs.

    Its boxes are to handlers ``<part>_<field>``, messages beside them ``error_<part>_<field>``, its button
    ``<part>_measure``, its status line ``<part>_status`` and its figures ``view_<part>``.

    Attributes:
        part: its name on the page.
        title, help: its heading and explanation.
        boxes: its rows of boxes and its button; they are made by :meth:`number` and its like.
        read: the checked request, from the values of its boxes and of ``reads``.
        figures: what a record is drawn as.
        facts: what was measured, for the sentence beside the link that saves it.
        kind: under which a visit keeps the record.
        reads: what else of the page is read.
        tab: the tab of figures in which it stands, or after which it has one of its own.
        label, question: of a tab of its own.
        plan: what is shown before anything was measured: a title and steps.
        page: the page's key; empty for the pipeline's.
        as_run: it counts as the visit's one run, and the page's Cancel stops it. Other measurements go on
            beside a run of the visit, one at a time.
    """

    part: str
    title: str
    help: str
    boxes: Callable[[Any], Sequence[Node]]
    read: Callable[[Visit, Given], Any]
    figures: Callable[[Any], Sequence[FigureView | Panel]]
    facts: Callable[[Any], str]
    kind: str
    reads: tuple[str, ...] = ()
    tab: str = ""
    label: str = ""
    question: str = ""
    plan: tuple[str, Sequence[str]] | None = None
    page: str = ""
    as_run: bool = False

    # -- names -----------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Its boxes and its button."""
        return tuple(self.boxes(self))

    @cached_property
    def usual(self) -> dict[str, Any]:
        """What stands in the boxes at first, by their names on the page."""
        inner = (part for node in self.nodes for part in node.walk())
        return {part.name: part.value for part in inner if part.value is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """Its boxes' names on the page."""
        return tuple(self.usual)

    @property
    def fields(self) -> tuple[str, ...]:
        """The same without the part's name."""
        return tuple(name.removeprefix(f"{self.part}_") for name in self.usual)

    @property
    def status(self) -> str:
        """The widget of its status line."""
        return f"{self.part}_status"

    @property
    def view(self) -> str:
        """The widget of its figures."""
        return f"view_{self.part}"

    @property
    def aside(self) -> str:
        """The CSS class of its elements, by which a tab lists it among its figures."""
        return f"kv-aside-{self.part}"

    @property
    def form(self) -> str:
        """The widget of its boxes."""
        return f"{self.part}_form"

    @property
    def ids(self) -> str:
        """How its elements' ids begin."""
        return f"kv-{self.page}-{self.part}".replace("--", "-").replace("_", "-")

    def box_values(self, given: Given) -> dict[str, Any]:
        """What stands in the boxes, by field."""
        return {name: given[f"{self.part}_{name}"] for name in self.fields}

    def reader(self, given: Given) -> FormReader:
        """Reads them, and collects what is wrong."""
        return FormReader(self.box_values(given))

    def errors(self, error: LabError | None) -> Update:
        """Messages beside their boxes; boxes without one are cleared."""
        slots = dict.fromkeys((f"error_{self.part}_{name}" for name in (*self.fields, OTHER)), "")
        for problem in problems_of(error):
            name = problem.field.rpartition(".")[2]
            where = name if name in self.fields else OTHER
            slots[f"error_{self.part}_{where}"] += html.error(problem.message)
        return dict(slots)

    # -- running ---------------------------------------------------------------------------------------------

    def measure(self, lab: VisitStore, visit: Visit, given: Given) -> Iterator[Update]:
        """Wait for the model and measure, with progress; between two steps it can be stopped."""
        if (visit.cancel if self.as_run else visit.measuring) is not None:
            busy = text.RUN_ELSEWHERE if self.as_run else text.MEASURES_ALREADY
            yield {self.status: html.status(busy, "busy")}
            return
        cancel = threading.Event()
        if self.as_run:
            visit.cancel = cancel
        else:
            visit.measuring = cancel
        try:
            request = self.read(visit, given)
            starting = html.status("Starting", "measuring", 0, 1)
            yield self.errors(None) | self._going(True) | {self.status: starting}
            with lab.in_line() as place:
                for words in wait_for_turn(place, cancel):
                    yield {self.status: html.status(words, "waiting")}
                due, began = Throttle(), time.monotonic()
                for event in self.work(visit, request, cancel):
                    if cancel.is_set():
                        raise RunCancelled(text.CANCELLED)
                    if not isinstance(event, Progress):
                        yield self.finished(visit, given, event, (time.monotonic() - began) * 1e3)
                    elif due():
                        yield {self.status: html.progress(event, "measuring")}
        except RunCancelled:
            yield {"status": "", self.status: html.status(text.CANCELLED, "note")}
        except LabError as error:
            yield self.errors(error) | {self.status: ""}
        except Exception:
            LOG.exception("measuring %s failed", self.part)
            yield {self.status: html.status(text.UNEXPECTED, "error")}
        finally:
            cancel.set()
            if self.as_run:
                visit.cancel = None
            else:
                visit.measuring = None
        yield self._going(False)

    def _going(self, going: bool) -> Update:
        """The buttons while it measures and afterwards."""
        if self.as_run:
            update = {"status": ""} if going else {}  # another run's status
            return update | {"run.visible": not going, "cancel.visible": going, "cancel": text.RUNNING}
        return {f"{self.part}_measure.interactive": not going}

    def work(self, visit: Visit, request: Any, cancel: threading.Event) -> Iterator[Any]:
        """Progress, then the record."""
        return visit.engine.study(request, cancel=cancel)

    def finished(self, visit: Visit, given: Given, record: Any, spent_ms: float) -> Update:
        """Keep a record, and show it."""
        visit.keep_result(self.kind, record)
        where = f"{clip(record.model.name, 40)}, {record.model.device}"
        visit.pages[f"measured {self.kind}"] = (
            f"{self.facts(record)} on {where}, in {milliseconds(spent_ms)}. "
            + (boundary_words(record.boundary_tax) if isinstance(record, Taxed) else "")
        ).strip()
        return self.saved(visit) | {self.view: payload(self.figures(record))}

    def saved(self, visit: Visit) -> Update:
        """What was measured, and the link that saves it."""
        facts, result = visit.pages[f"measured {self.kind}"], visit.results[self.kind]
        act = self.act(visit.result(self.kind))
        return {
            self.status: html.saved_measurement(facts, f"{self.ids}-save", self.kind, result.token, act=act)
        }

    def act(self, record: Any) -> str:
        """HTML of what can be done with a record beside saving it."""
        return ""

    def edited(self, visit: Visit, given: Given) -> Update:
        """Messages about what was just typed, and whether the figures still belong to it."""
        if visit.measuring is not None:
            return {}
        try:
            request = self.read(visit, given)
        except LabError as error:
            return self.errors(error)
        record = visit.result(self.kind)
        if record is None:
            return self.errors(None)
        if record.request == request:
            return self.errors(None) | self.saved(visit)
        return self.errors(None) | {self.status: html.status(text.MEASURE_EDITED, "note")}

    def opened(self, visit: Visit, given: Given) -> Update:
        """What comes when its tab is opened."""
        return {}

    # -- boxes -----------------------------------------------------------------------------------------------

    def number(self, name: str, field: NumberField, value: Any, **look: Any) -> Node:
        """The box of a number."""
        step = 1 if field.whole else 0.1
        return fields.number(f"{self.part}_{name}", field.label, value, step=step, **self._id(name), **look)

    def text_box(self, name: str, label: str, value: str, **look: Any) -> Node:
        """The box of a text."""
        return fields.text(f"{self.part}_{name}", label, value, **self._id(name), **look)

    def select(
        self, name: str, label: str, choices: Sequence[tuple[str, str]], value: str, **look: Any
    ) -> Node:
        """A list to choose from."""
        return fields.select(f"{self.part}_{name}", label, list(choices), value, **self._id(name), **look)

    def button(self, label: str = text.MEASURE, **look: Any) -> Node:
        """The button that measures."""
        return fields.button(f"{self.part}_measure", label, primary=True, **self._id("measure") | look)

    def error(self, name: str) -> Node:
        """The place of messages about a box; places that ``boxes`` leaves out stand below all."""
        return fields.message(f"{self.part}_{name}", f"{self.ids[3:]}-{name}".replace("_", "-"))

    def _id(self, name: str) -> dict[str, str]:
        return {"id": f"{self.ids}-{name}"}

    # -- on the page -----------------------------------------------------------------------------------------

    def build(self, page: PageBuilder) -> None:
        """The widgets."""
        names = {inner.name for node in self.nodes for inner in node.walk()}
        errors = [self.error(name) for name in (*self.fields, OTHER)]
        head = f'<h3 class="kv-card-title">{self.title}</h3>'
        title = [fields.note("", head)] if self.title and not self.page else []
        help_ = fields.note("", f'<p class="kv-help">{self.help}</p>', id=f"{self.ids}-help")
        below = [node for node in errors if node.name not in names]
        look: dict[str, Any] = {"id": self.ids, "css": "kv-section"}
        inside = (*title, help_, *self.nodes, *below)
        page.form(
            self.form,
            fields.fold(self.part, head, *inside, **look)
            if self.page
            else fields.panel(self.part, *inside, **look),
            fields.note(self.status, id=f"{self.ids}-status"),
            own=True, elem_classes=self.aside,
        )  # fmt: skip
        self.between(page)
        first = None if self.plan is None else plan(f"{self.part}_plan", *self.plan)
        page.add(**{self.view: figure_view(self.ids[3:], first, f"kv-own-view {self.aside}")})

    def between(self, page: PageBuilder) -> None:
        """Widgets between the boxes and the figures."""

    def outputs(self, page: PageBuilder) -> list[Any]:
        """What its handlers may change."""
        return [page[name] for name in (self.form, self.view, *STATUS)]

    def connect(self, page: PageBuilder) -> None:
        """What the widgets do."""
        reads, outputs = (*self.names, *self.reads), self.outputs(page)
        page.stream(
            page.event(f"{self.part}_measure"),
            lambda visit, given: self.measure(page.lab, visit, given),
            *reads,
            outputs=outputs,
        )
        if not self.as_run:
            page.on(page[self.form].input, self.edited, *reads, latest=True, outputs=outputs)


def plan(key: str, title: str, steps: Sequence[str]) -> dict[str, Any]:
    """What a section shows before anything was measured: its steps."""
    items = "".join(f"<li>{step}</li>" for step in steps)
    return payload([Panel(key, title, f'<ol class="kv-steps">{items}</ol>')])
