"""The one way a measurement runs: a section of a page with boxes, a button, figures and a link to save."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import gradio as gr

from backend.base.errors import LabError, RunCancelled
from backend.records.events import Progress
from lab_app.ui import html, text
from lab_app.ui.components import figure_view, payload
from lab_app.ui.page import PageBuilder, unexpected
from lab_app.ui.streaming import Throttle
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import NumberField, Problem, Problems
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import Visit, VisitStore
from viz.base.figure import Panel

LOG = logging.getLogger("lab_app")


@dataclass(frozen=True)
class Section:
    """A part of a page that measures.

    Its widgets are ``<part>_<field>`` for each box, ``error_<part>_<field>`` for what is wrong with it,
    ``<part>_measure`` for the button, ``<part>_status`` for what is said and ``view_<part>`` for the figures.

    Attributes:
        part: its name on the page.
        fields: the boxes that have a place for messages.
        other: the place of messages that are about no box.
        page: the page's key; empty for the pipeline's.
        as_run: it counts as the visit's one run, and the page's Cancel stops it. Other measurements go on
            beside a run of the visit, one at a time.
        busy: said when another run or measurement goes on.
        stopped: said when it was stopped.
    """

    part: str
    fields: tuple[str, ...] = ()
    other: str = "measure"
    page: str = ""
    as_run: bool = False
    busy: str = text.MEASURES_ALREADY
    stopped: str = text.CANCELLED

    @property
    def status(self) -> str:
        """The widget that says how it stands."""
        return f"{self.part}_status"

    @property
    def view(self) -> str:
        """The widget of its figures."""
        return f"view_{self.part}"

    @property
    def names(self) -> tuple[str, ...]:
        """The boxes' names on the page."""
        return tuple(f"{self.part}_{name}" for name in self.fields)

    @property
    def ids(self) -> str:
        """How its elements' ids begin."""
        return f"kv-{self.page}-{self.part}" if self.page else f"kv-{self.part}"

    def asked(self, given: Given) -> dict[str, Any]:
        """What stands in the boxes, by field."""
        return {name: given[f"{self.part}_{name}"] for name in self.fields}

    def errors(self, error: LabError | None) -> Update:
        """Messages beside their boxes; boxes without one are cleared."""
        slots = dict.fromkeys((f"error_{self.part}_{name}" for name in (*self.fields, self.other)), "")
        found = error.found if isinstance(error, Problems) else () if error is None else (
            Problem(error.field or "", str(error)),
        )  # fmt: skip
        for problem in found:
            name = problem.field.rpartition(".")[2]
            slots[f"error_{self.part}_{name if name in self.fields else self.other}"] += html.error(
                problem.message
            )
        return dict(slots)

    def saved(self, facts: str, kind: str, token: str) -> Update:
        """What was measured, and the link that saves it."""
        return {self.status: html.saved_measurement(facts, f"{self.ids}-save", kind, token)}

    # -- running ---------------------------------------------------------------------------------------------

    def measure(
        self,
        lab: VisitStore,
        visit: Visit,
        read: Callable[[], Any],
        events: Callable[[Any, threading.Event], Iterator[Any]],
        finished: Callable[[Any], Update],
    ) -> Iterator[Update]:
        """Measure in turn, and say how it goes; between two steps it can be stopped.

        Args:
            lab, visit: whose.
            read: the checked request.
            events: of the request: progress, the last one the record.
            finished: the record as an update of the page.
        """
        if visit.cancel is not None if self.as_run else visit.measuring:
            yield {self.status: html.status(self.busy, "busy")}
            return
        cancel = threading.Event()
        if self.as_run:
            visit.cancel = cancel
        else:
            visit.measuring = True
        try:
            request = read()
            starting = html.status("Starting", "measuring", 0, 1)
            yield self.errors(None) | self._going(True) | {self.status: starting}
            with lab.in_line() as place:
                for said in wait_for_turn(place, cancel):
                    yield {self.status: html.status(said, "busy")}
                soon = Throttle()
                for event in events(request, cancel):
                    if cancel.is_set():
                        raise RunCancelled(self.stopped)
                    if not isinstance(event, Progress):
                        yield finished(event)
                    elif soon():
                        yield {self.status: html.status(event.text, "measuring", event.done, event.total)}
        except RunCancelled:
            yield {"status": "", self.status: html.status(self.stopped, "note")}
        except LabError as error:
            yield self.errors(error) | {self.status: ""}
        except Exception as error:
            LOG.exception("measuring %s failed", self.part)
            yield {self.status: html.status(unexpected(error), "error")}
        finally:
            cancel.set()
            if self.as_run:
                visit.cancel = None
            else:
                visit.measuring = False
        yield self._going(False)

    def _going(self, going: bool) -> Update:
        """The buttons while it measures and afterwards."""
        if self.as_run:
            said = {"status": ""} if going else {}  # what was said of another run
            return said | {"run.visible": not going, "cancel.visible": going}
        return {f"{self.part}_measure.interactive": not going}

    # -- widgets ---------------------------------------------------------------------------------------------

    @contextmanager
    def box(
        self, title: str, help_: str, elem_id: str = "", classes: str = "kv-measure-box"
    ) -> Iterator[None]:
        """The titled frame around the boxes."""
        with gr.Column(elem_id=elem_id or self.ids, elem_classes=classes, min_width=0):
            if title:
                gr.HTML(f'<h3 class="kv-card-title">{title}</h3>', apply_default_css=False)
            gr.HTML(f'<p class="kv-help">{help_}</p>', elem_id=f"{self.ids}-help", apply_default_css=False)
            yield

    def number(self, page: PageBuilder, name: str, field: NumberField, value: Any, **extra: Any) -> None:
        """The box of a number."""
        look: dict[str, Any] = {"min_width": 90, "step": 1 if field.whole else 0.1} | extra
        box = gr.Number(value, label=field.label, elem_id=f"{self.ids}-{name}", **look)
        page.add(**{f"{self.part}_{name}": box})

    def text_box(self, page: PageBuilder, name: str, label: str, value: str, **extra: Any) -> None:
        """The box of a text."""
        box = gr.Textbox(value, label=label, elem_id=f"{self.ids}-{name}", **extra)
        page.add(**{f"{self.part}_{name}": box})

    def button(self, page: PageBuilder, label: str = text.MEASURE, elem_id: str = "", **extra: Any) -> None:
        """The button that measures."""
        look: dict[str, Any] = {"variant": "primary", "size": "md", "scale": 0} | extra
        button = gr.Button(label, elem_id=elem_id or f"{self.ids}-measure", **look)
        page.add(**{f"{self.part}_measure": button})

    def error(self, page: PageBuilder, *names: str) -> None:
        """Places for messages."""
        for name in names:
            page.error(f"{self.part}_{name}", own=True)

    def said(self, page: PageBuilder) -> None:
        """The place that says how it stands."""
        page.block(self.status)

    def figures(self, page: PageBuilder, first: Mapping[str, Any] | None = None) -> None:
        """The place of the figures."""
        name = f"{self.page}-{self.part}" if self.page else self.part
        page.add(**{self.view: figure_view(name, dict(first) if first else None)})


def plan(key: str, title: str, steps: Sequence[str]) -> dict[str, Any]:
    """What a section shows before anything was measured: its steps."""
    listed = "".join(f"<li>{step}</li>" for step in steps)
    return payload([Panel(key, title, f'<ol class="kv-steps">{listed}</ol>')])
