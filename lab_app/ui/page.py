"""What pages are made of: widgets by name, and handlers that answer with ``{name: value}``.

Handlers know no framework: they take the visit and what stands in the boxes that they asked for by name,
and answer with an update. A key ``"name"`` sets a widget's value, ``"name.visible"`` or ``"name.choices"``
another property of it, and ``"errors"`` every message of the page at once. A page may have rules for further
keys.

A page beside the pipeline's is one file with a :class:`PageSpec`, whose ``build`` makes the widgets inside
the current ``gr.Blocks`` and says what they do, and one line in ``lab_app.pages.registry``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from backend.base.errors import LabError, RunCancelled
from lab_app.ui import html, text
from lab_app.ui.components import error_slot, hidden_button
from lab_app.ui.streaming import coalesced
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import Problem, Problems
from lab_app.visits.queue import wait_for_turn
from lab_app.visits.visits import Visit, VisitStore

LOG = logging.getLogger("lab_app")
# The framework writes every documented endpoint with all its inputs and outputs into the page: megabytes.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
LATEST: dict[str, Any] = QUIET | {"trigger_mode": "always_last"}
OPTIONS = "options"  # the methods' options, as they stand on the pipeline's page
STATUS = ("status", "run", "cancel")  # what every handler may change
Act = Callable[[Visit, Given], Update]
Select = Callable[[Visit, Given, Any], Update]
Steps = Callable[[Visit, Given], Iterator[Update]]
Answer = dict[Any, Any]


def press_after(button: gr.Button) -> dict[str, Any]:
    """What comes after an answer: a script that presses a hidden button when the answer stands in the boxes.

    What follows from the boxes is one event of the framework, however it comes about: answers of two events
    can overtake each other, and the older one would stay. A box that was hidden holds its text only some
    moments after it is shown.
    """
    script = f"() => {{ setTimeout(() => document.getElementById('{button.elem_id}').click(), 0); }}"
    return {"fn": None, "js": script, **QUIET}


def any_edit(box: Any) -> Any:
    """The event of an edit. A text box reports pasted and dropped text by its change event only."""
    return box.change if isinstance(box, gr.Textbox) else box.input


@dataclass(frozen=True)
class InputGroup:
    """Boxes that a handler asks for by one name, and what their values are to it."""

    boxes: Sequence[Any]
    read: Callable[[Visit, Sequence[Any]], Any]


@dataclass(frozen=True)
class PageSpec:
    """A page: ``key`` in its address (``#documents``) and its elements' ids, ``label`` in the navigation."""

    key: str
    label: str
    build: Callable[[PageBuilder], None]


class PageBuilder:
    """A page in the making.

    Args:
        key: its name.
        lab: the visits and the model, loaded at the first visit.
        session: the box that holds a visit's id, one for all pages.
        ids: how its elements' ids begin; usually the key.
        groups: boxes that its handlers may ask for by one name.
        pipeline: the pipeline's page, for what another page shows there.

    Attributes:
        widgets: by name.
        rules: what becomes of further keys of an update, as updates by widget.
    """

    def __init__(
        self,
        key: str,
        lab: VisitStore,
        session: gr.State,
        *,
        ids: str = "",
        groups: dict[str, InputGroup] | None = None,
        pipeline: PageBuilder | None = None,
    ) -> None:
        self.key, self.lab, self.session = key, lab, session
        self.ids = ids or f"kv-{key}"
        self.groups = {} if groups is None else groups
        self.pipeline = pipeline
        self.widgets: dict[str, Any] = {}
        self.rules: dict[str, Callable[[Any], Answer]] = {}
        self.follower: gr.Button | None = None
        self._own_errors: set[str] = set()
        self._arrive: Act = lambda visit, given: {}
        self._events: list[Callable[[], None]] = []

    def __getitem__(self, name: str) -> Any:
        return self.widgets[name]

    # -- widgets ---------------------------------------------------------------------------------------------

    def add(self, **widgets: Any) -> None:
        """Give widgets their names."""
        self.widgets.update(widgets)

    def block(self, name: str, value: str = "", **extra: Any) -> gr.HTML:
        """A named piece of server-made HTML, morphed into place."""
        found = gr.HTML(
            value, elem_id=f"{self.ids}-{name.replace('_', '-')}", apply_default_css=False, **extra
        )
        self.widgets[name] = found
        return found

    def error(self, name: str, own: bool = False) -> gr.HTML:
        """An empty place for messages about ``name``; ``own``: ``"errors"`` leaves it as it is."""
        place = f"{self.ids}-{name}".removeprefix("kv-").replace("_", "-")
        self.widgets[f"error_{name}"] = found = error_slot(place)
        if own:
            self._own_errors.add(f"error_{name}")
        return found

    def mount(self) -> gr.Column:
        """The column of a page that is hidden until somebody goes to it, and the buttons that open it."""
        self.opener = hidden_button(f"kv-open-{self.key}")
        self.column = gr.Column(
            visible=False, elem_id=f"kv-page-{self.key}", elem_classes="kv-page", min_width=0
        )
        self.follower = hidden_button(f"kv-follow-{self.key}")
        return self.column

    def frame(self, inputs: Callable[[PageBuilder], None], results: Callable[[PageBuilder], None]) -> None:
        """Inputs at the left with *Run* and *Cancel* (``run``, ``cancel``) below them, and the results."""
        with gr.Row(elem_classes="kv-frame"):
            with gr.Column(elem_classes="kv-bench", scale=0, min_width=0):
                with gr.Column(elem_classes="kv-bench-scroll"):
                    inputs(self)
                with gr.Column(elem_classes="kv-go"):
                    self.error("run")
                    self.block("cost", elem_classes="kv-may-be-empty")
                    look: dict[str, Any] = {"elem_classes": "kv-run-button"}
                    self.add(
                        run=gr.Button(text.RUN, variant="primary", elem_id=f"{self.ids}-run", **look),
                        cancel=gr.Button(
                            text.RUNNING, variant="stop", visible=False, elem_id=f"{self.ids}-cancel", **look
                        ),
                    )
            with gr.Column(elem_classes="kv-stage", scale=1, min_width=0):
                results(self)

    # -- events; attached when the page is complete, so that they may change every widget of it --------------

    def arrives(self, act: Act) -> None:
        """What the page shows when a visit first opens it, before what follows from it (:meth:`follows`)."""
        self._arrive = act

    def follows(self, act: Act, *names: str, when: Sequence[Any]) -> None:
        """Say what follows from what stands in the boxes ``names``, after each of the events ``when`` and
        wherever ``follow`` asks for it."""
        assert self.follower is not None
        self.on([*when, self.follower.click], act, *names, latest=True)

    def on(
        self,
        event: Any,
        act: Act,
        *names: str,
        latest: bool = False,
        follow: bool = False,
        outputs: Sequence[Any] | None = None,
        then: tuple[Callable[[], Any], Any] | None = None,
    ) -> None:
        """Answer ``event``, or each of several events, once.

        Args:
            act: the handler.
            names: the boxes that it reads.
            latest: of several quick events the last is answered.
            follow: then say what follows.
            outputs: the widgets that it may change; usually all of the page.
            then: what comes after the answer, and the widget that it changes.
        """
        listen = partial(gr.on, event) if isinstance(event, list) else event
        self._listen(
            listen, self._once(act, names), names, LATEST if latest else QUIET, follow, outputs, then
        )

    def select(self, event: Any, act: Select, *names: str, outputs: Sequence[Any] | None = None) -> None:
        """Answer a choice inside a widget, such as a click on a token; ``act`` is given what was chosen."""

        # The framework hands what was chosen to the parameter with this annotation.
        def handler(chosen: gr.EventData, visit_id: str, *values: Any) -> Answer:
            return self.guarded(visit_id, lambda visit: act(visit, self._given(visit, names, values), chosen))

        self._listen(event, handler, names, LATEST, False, outputs)

    def stream(
        self,
        event: Any,
        act: Steps,
        *names: str,
        follow: bool = False,
        outputs: Sequence[Any] | None = None,
    ) -> None:
        """Answer ``event`` step by step; it stops when the browser goes away."""
        how = QUIET | {"concurrency_limit": None}
        self._listen(event, self._steps(act, names), names, how, follow, outputs)

    def to_pipeline(self, event: Any, act: Act) -> None:
        """Answer ``event`` on the pipeline's page, by its names (the browser goes there by itself where the
        widget has the class ``kv-to-pipeline``)."""
        pipeline = self.pipeline
        assert pipeline is not None

        def answer(visit_id: str) -> Answer:
            return pipeline.guarded(visit_id, lambda visit: act(visit, {}))

        self._events.append(lambda: event(answer, [self.session], pipeline.outputs, **QUIET))

    def connect(self) -> None:
        """Attach what was announced."""
        for attach in self._events:
            attach()
        if self.pipeline is None:
            return

        def opened(visit_id: str) -> Answer:
            return {
                self.column: gr.update(visible=True),
                **self.guarded(visit_id, lambda visit: self._arrive(visit, {})),
            }

        there = self.opener.click(opened, [self.session], [self.column, *self.outputs], **QUIET)
        assert self.follower is not None
        there.then(**press_after(self.follower))

    # -- the framework's side --------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[Any]:
        """The widgets that a handler may change."""
        return list(self.widgets.values())

    def part(self, name: str) -> list[Any]:
        """The widgets of a part, which have its name in theirs, and what every handler may change."""
        return [w for known, w in self.widgets.items() if name in known.split("_") or known in STATUS]

    def boxes(self, names: Sequence[str]) -> list[Any]:
        """The boxes that are asked for by these names."""
        found: list[Any] = []
        for name in names:
            found += self.groups[name].boxes if name in self.groups else [self.widgets[name]]
        return found

    def _given(self, visit: Visit, names: Sequence[str], values: Sequence[Any]) -> Given:
        rest, found = list(values), {}
        for name in names:
            group = self.groups.get(name)
            if group is None:
                found[name] = rest.pop(0)
                continue
            count = len(group.boxes)
            found[name] = group.read(visit, rest[:count])
            del rest[:count]
        return found

    def _listen(
        self,
        listen: Any,
        handler: Callable[..., Any],
        names: Sequence[str],
        how: Mapping[str, Any],
        follow: bool,
        outputs: Sequence[Any] | None,
        then: tuple[Callable[[], Any], Any] | None = None,
    ) -> None:
        def attach() -> None:
            changed = self.outputs if outputs is None else list(outputs)
            done = listen(handler, [self.session, *self.boxes(names)], changed, **how)
            if follow:
                assert self.follower is not None
                done.then(**press_after(self.follower))
            if then is not None:
                done.then(then[0], None, then[1], **QUIET)

        self._events.append(attach)

    def _once(self, act: Act, names: Sequence[str]) -> Callable[..., Answer]:
        def answer(visit_id: str, *values: Any) -> Answer:
            return self.guarded(visit_id, lambda visit: act(visit, self._given(visit, names, values)))

        return answer

    def _steps(self, act: Steps, names: Sequence[str]) -> Callable[..., Iterator[Answer]]:
        def answer(visit_id: str, *values: Any) -> Iterator[Answer]:
            try:
                visit = self.lab.visit(visit_id)
            except LabError as error:
                yield self.applied({"status": html.status(str(error), "error")})
                return
            for update in coalesced(act(visit, self._given(visit, names, values))):
                yield self.applied(update)

        return answer

    def guarded(self, visit_id: str, act: Callable[[Visit], Update]) -> Answer:
        """What ``act`` answers, by widget; an error becomes a sentence in the status line."""
        if not visit_id:  # the framework announces the first tab before the visit has begun
            return self.applied({})
        try:
            return self.applied(act(self.lab.visit(visit_id)))
        except LabError as error:
            return self.applied({"status": html.status(str(error), "error")})
        except Exception as error:
            LOG.exception("a handler of %s failed", self.key)
            return self.applied({"status": html.status(unexpected(error), "error")})

    def error_slots(self) -> dict[str, Any]:
        """The places that ``"errors"`` fills or empties."""
        return {
            name: widget
            for name, widget in self.widgets.items()
            if name.startswith("error_") and name not in self._own_errors
        }

    def applied(self, update: Update) -> Answer:
        """An update by widget."""
        out: Answer = {}
        for key, value in update.items():
            if key in self.rules:
                changes = self.rules[key](value)
            elif key == "errors":
                changes = self._errors(value)
            else:
                name, _, what = key.partition(".")
                if what:
                    change = gr.update(**{what: value})
                elif name.startswith("pick_") and isinstance(value, tuple):
                    change = gr.update(choices=value[0], value=value[1])
                else:
                    change = gr.update(value=value)
                changes = {self.widgets[name]: change}
            for widget, change in changes.items():
                known = out.get(widget)
                both = isinstance(known, dict) and isinstance(change, dict)
                out[widget] = {**(known or {}), **change} if both else change
        # the framework takes an answer without any widget for a mistake
        return out or {self.widgets["status"]: gr.update()}

    def _errors(self, errors: Mapping[str, str]) -> Answer:
        """Every message in its place; places without one are emptied."""
        slots = self.error_slots()
        out: Answer = dict.fromkeys(slots.values(), "")
        for where, message in errors.items():
            out[slots.get(f"error_{where}", slots["error_run"])] += message
        return {widget: gr.update(value=said) for widget, said in out.items()}


def unexpected(error: Exception) -> str:
    """A sentence for the person; the log has the rest."""
    return text.UNEXPECTED.format(kind=type(error).__name__)


def one_run_in_turn(
    lab: VisitStore,
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    field_errors: Callable[[LabError], Update],
) -> Iterator[Update]:
    """Do ``work`` as the visit's one run, in its turn: it begins when the model is free, and keeps it."""

    def in_turn(cancel: threading.Event) -> Iterator[Update]:
        with lab.in_line() as place:
            for said in wait_for_turn(place, cancel):
                yield {"status": html.status(said, "busy")}
            yield from work(cancel)

    yield from one_run(visit, in_turn, field_errors)


def one_run(
    visit: Visit,
    work: Callable[[threading.Event], Iterator[Update]],
    field_errors: Callable[[LabError], Update],
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
        yield {"status": ""} | field_errors(error)
    except Exception as error:
        LOG.exception("a run failed")
        yield {"status": html.status(unexpected(error), "error")}
    finally:
        cancel.set()
        visit.cancel = None
    yield {"run.visible": True, "cancel.visible": False}


def field_errors(error: LabError | None, slot_of: Callable[[str | None], str]) -> Update:
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
