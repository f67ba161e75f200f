"""What a page beside the pipeline's is made of: its widgets by name, and handlers that answer with
``{name: value}``.

A page is one file with a :class:`PageSpec`, whose ``build`` makes the widgets inside the current
``gr.Blocks`` and says what they do, and one line in ``lab_app.pages.registry``. Its handlers know no
framework: they take the visit and what stands in the boxes that they asked for, and answer with an update. A
key ``"name"`` sets a widget's value, ``"name.visible"`` or ``"name.choices"`` another property of it, and
``"errors"`` every message of the page at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import gradio as gr

from backend.base.errors import LabError, RunCancelled
from lab_app.ui import html, text
from lab_app.ui.components import error_slot, hidden_button
from lab_app.ui.streaming import coalesced
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import Problem, Problems
from lab_app.visits.queue import waiting
from lab_app.visits.visits import Lab, Visit

LOG = logging.getLogger("lab_app")
OPTIONS = "options"  # the methods' options, as they stand on the pipeline's bench
Act = Callable[[Visit, Given], Update]
Steps = Callable[[Visit, Given], Iterator[Update]]


class MainPage(Protocol):
    """What the other pages need of the pipeline's: its widgets and panels of options, and how it answers."""

    @property
    def page(self) -> Any:
        """The widgets by name, and the methods' ``panels``."""

    @property
    def outputs(self) -> list[Any]:
        """The widgets that its answers may change."""

    def guarded(self, visit_id: str, act: Callable[[Visit], Update]) -> dict[Any, Any]:
        """What ``act`` answers, by widget; an error becomes a sentence."""


@dataclass(frozen=True)
class PageSpec:
    """A page: ``key`` in its address (``#documents``) and its elements' ids, ``label`` in the navigation."""

    key: str
    label: str
    build: Callable[[Board], None]


class Board:
    """A page in the making.

    Attributes:
        lab: the visits and the model, loaded at the first visit.
        widgets: by name; every one of them may be changed by every handler.
    """

    def __init__(self, spec: PageSpec, lab: Lab, main: MainPage) -> None:
        self.spec, self.lab, self.main = spec, lab, main
        self.widgets: dict[str, Any] = {}
        self.opener = hidden_button(f"kv-open-{spec.key}")
        self.column = gr.Column(
            visible=False, elem_id=f"kv-page-{spec.key}", elem_classes="kv-page", min_width=0
        )
        self.follower = hidden_button(f"kv-follow-{spec.key}")
        self._arrive: Act = lambda visit, given: {}
        self._events: list[Callable[[], None]] = []

    def __getitem__(self, name: str) -> Any:
        return self.widgets[name]

    def add(self, **widgets: Any) -> None:
        """Give widgets their names."""
        self.widgets.update(widgets)

    def block(self, name: str, value: str = "", **extra: Any) -> gr.HTML:
        """A named piece of server-made HTML, morphed into place."""
        found = gr.HTML(value, elem_id=f"kv-{self.spec.key}-{name}", apply_default_css=False, **extra)
        self.widgets[name] = found
        return found

    def error(self, name: str) -> gr.HTML:
        """An empty place for messages about ``name``."""
        self.widgets[f"error_{name}"] = found = error_slot(f"{self.spec.key}-{name}")
        return found

    def frame(self, bench: Callable[[Board], None], stage: Callable[[Board], None]) -> None:
        """The bench at the left with *Run* and *Cancel* (``run``, ``cancel``) below it, and the stage."""
        ids = f"kv-{self.spec.key}"
        with gr.Row(elem_classes="kv-frame"):
            with gr.Column(elem_classes="kv-bench", scale=0, min_width=0):
                with gr.Column(elem_classes="kv-bench-scroll"):
                    bench(self)
                with gr.Column(elem_classes="kv-go"):
                    self.error("run")
                    self.block("cost", elem_classes="kv-may-be-empty")
                    look: dict[str, Any] = {"elem_classes": "kv-run-button"}
                    self.add(
                        run=gr.Button(text.RUN, variant="primary", elem_id=f"{ids}-run", **look),
                        cancel=gr.Button(
                            text.RUNNING, variant="stop", visible=False, elem_id=f"{ids}-cancel", **look
                        ),
                    )
            with gr.Column(elem_classes="kv-stage", scale=1, min_width=0):
                stage(self)

    # -- events; attached when the page is complete, so that they may change every widget of it ------------

    def arrives(self, act: Act) -> None:
        """What the page shows when a visit first opens it, before what follows from it (:meth:`follows`)."""
        self._arrive = act

    def follows(self, act: Act, *names: str, when: Sequence[Any]) -> None:
        """Say what follows from what stands in the boxes ``names``, after each of the events ``when`` and
        wherever ``follow`` asks for it."""
        self.on([*when, self.follower.click], act, *names, latest=True)

    def on(self, event: Any, act: Act, *names: str, latest: bool = False, follow: bool = False) -> None:
        """Answer ``event``, or each of several events, once. ``latest``: of several quick ones the last is
        answered; ``follow``: then say what follows."""
        how = LATEST if latest else QUIET
        listen = partial(gr.on, event) if isinstance(event, list) else event

        def attach() -> None:
            done = listen(self._once(act, names), self._inputs(names), self._outputs, **how)
            if follow:
                done.then(**press_after(self.follower))

        self._events.append(attach)

    def stream(self, event: Any, act: Steps, *names: str, follow: bool = False) -> None:
        """Answer ``event`` step by step; it stops when the browser goes away."""

        def attach() -> None:
            done = event(
                self._steps(act, names), self._inputs(names), self._outputs, concurrency_limit=None, **QUIET
            )
            if follow:
                done.then(**press_after(self.follower))

        self._events.append(attach)

    def to_pipeline(self, event: Any, act: Act) -> None:
        """Answer ``event`` on the pipeline's page, by its names (the browser goes there by itself where the
        widget has the class ``kv-to-pipeline``)."""

        def answer(visit_id: str) -> dict[Any, Any]:
            return self.main.guarded(visit_id, lambda visit: act(visit, {}))

        self._events.append(
            lambda: event(answer, [self.main.page["session"]], self.main.outputs, **QUIET)
        )  # fmt: skip

    def connect(self) -> None:
        """Attach what was announced."""
        for attach in self._events:
            attach()

        def opened(visit_id: str) -> dict[Any, Any]:
            return {self.column: gr.update(visible=True), **self._guarded(visit_id, self._arrive, {})}

        there = self.opener.click(opened, [self.main.page["session"]], [self.column, *self._outputs], **QUIET)
        there.then(**press_after(self.follower))

    # -- the framework's side ------------------------------------------------------------------------------

    @property
    def _outputs(self) -> list[Any]:
        return list(self.widgets.values())

    def _inputs(self, names: tuple[str, ...]) -> list[Any]:
        found = [self.main.page["session"]]
        for name in names:
            if name == OPTIONS:
                panels = self.main.page.panels.values()
                found += [box for panel in panels for box in panel.options.values()]
            else:
                found.append(self.widgets[name])
        return found

    def _given(self, names: tuple[str, ...], values: tuple[Any, ...]) -> Given:
        rest, found = list(values), {}
        for name in names:
            if name == OPTIONS:
                found[OPTIONS] = {
                    panel.name: {option: rest.pop(0) for option in panel.options}
                    for panel in self.main.page.panels.values()
                }
            else:
                found[name] = rest.pop(0)
        return found

    def _once(self, act: Act, names: tuple[str, ...]) -> Callable[..., dict[Any, Any]]:
        def answer(visit_id: str, *values: Any) -> dict[Any, Any]:
            return self._guarded(visit_id, act, self._given(names, values))

        return answer

    def _steps(self, act: Steps, names: tuple[str, ...]) -> Callable[..., Iterator[dict[Any, Any]]]:
        def answer(visit_id: str, *values: Any) -> Iterator[dict[Any, Any]]:
            try:
                visit = self.lab.visit(visit_id)
            except LabError as error:
                yield self.applied({"status": html.status(str(error), "error")})
                return
            for update in coalesced(act(visit, self._given(names, values))):
                yield self.applied(update)

        return answer

    def _guarded(self, visit_id: str, act: Act, given: Given) -> dict[Any, Any]:
        try:
            return self.applied(act(self.lab.visit(visit_id), given))
        except LabError as error:
            return self.applied({"status": html.status(str(error), "error")})
        except Exception as error:
            LOG.exception("a handler of %s failed", self.spec.key)
            return self.applied({"status": html.status(unexpected(error), "error")})

    def applied(self, update: Update) -> dict[Any, Any]:
        """An update by widget."""
        out: dict[Any, Any] = {}
        for key, value in update.items():
            if key == "errors":
                slots = [name for name in self.widgets if name.startswith("error_")]
                out |= {self.widgets[name]: value.get(name.removeprefix("error_"), "") for name in slots}
                continue
            name, _, what = key.partition(".")
            widget = self.widgets[name]
            if what:
                out[widget] = {**out.get(widget, gr.update()), what: value}
            elif isinstance(out.get(widget), dict):
                out[widget]["value"] = value
            else:
                out[widget] = gr.update(value=value)
        return out or {self.widgets["status"]: gr.update()}


def unexpected(error: Exception) -> str:
    """A sentence for the person; the log has the rest."""
    return text.UNEXPECTED.format(kind=type(error).__name__)


def running(
    lab: Lab,
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    told: Callable[[LabError], Update],
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run, in its turn: it begins when the model is free, and keeps it."""

    def in_turn(cancel: threading.Event) -> Iterator[Update]:
        with lab.in_line() as place:
            for said in waiting(place, cancel):
                yield {"status": html.status(said, "busy")}
            yield from work(cancel)

    yield from doing(visit, in_turn, told)


def doing(
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    told: Callable[[LabError], Update],
    stopped: str = text.CANCELLED,
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run: let Cancel stop it, tell what went wrong. It asks for its turns.

    The page has the widgets ``run``, ``cancel`` and ``status``.
    """
    if visit.cancel is not None:
        yield {"status": html.status(text.RUN_ELSEWHERE, "busy")}
        return
    cancel = visit.cancel = threading.Event()
    try:
        yield {"run.visible": False, "cancel.visible": True, "status": html.status("Starting", "running")}
        yield from work(cancel)
    except RunCancelled:
        yield {"status": html.status(stopped, "note")}
    except LabError as error:
        yield {"status": ""} | told(error)
    except Exception as error:
        LOG.exception("a run failed")
        yield {"status": html.status(unexpected(error), "error")}
    finally:
        cancel.set()
        visit.cancel = None
    yield {"run.visible": True, "cancel.visible": False}


def beside(error: LabError | None, slot_of: Callable[[str | None], str]) -> Update:
    """Messages beside their places; ``slot_of`` gives that of a field of the engine's request."""
    found = error.found if isinstance(error, Problems) else () if error is None else (
        Problem(slot_of(error.field), str(error)),
    )  # fmt: skip
    slots: dict[str, str] = {}
    for problem in found:
        slots[problem.field] = slots.get(problem.field, "") + html.error(problem.message)
    return {"errors": slots}


def cancelled(visit: Visit, given: Given) -> Update:
    """Ask the run to stop at its next step."""
    if visit.cancel is None:
        return {}
    visit.cancel.set()
    return {"status": html.status(text.CANCELLING, "running")}


# The framework writes every documented endpoint with all its inputs and outputs into the page: megabytes.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
LATEST: dict[str, Any] = QUIET | {"trigger_mode": "always_last"}


def press_after(button: gr.Button) -> dict[str, Any]:
    """What comes after an answer: a script that presses an hidden_button button when it stands in the boxes.

    What follows from the boxes is one event of the framework, however it comes about: answers of two events
    can overtake each other, and the older one would stay. A box that was hidden holds its text only some
    moments after it is shown.
    """
    script = f"() => {{ setTimeout(() => document.getElementById('{button.elem_id}').click(), 0); }}"
    return {"fn": None, "js": script, **QUIET}
