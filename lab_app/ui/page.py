"""What pages are made of: widgets by name, and handlers that answer with ``{name: value}``.

Handlers know no framework: they take the visit and the values of the boxes that they read, by name, and
answer with an update. A key ``"name"`` sets a widget's value, ``"name.visible"`` or ``"name.choices"``
another property of it, and ``"errors"`` every message of the page at once. A page may have rules for further
keys.

A page beside the pipeline's is one file with a :class:`PageSpec`, whose ``build`` makes the widgets inside
the current ``gr.Blocks`` and says what they do, and one line in ``lab_app.pages.registry``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from lab_app.ui import html, text
from lab_app.ui.components import hidden_button
from lab_app.ui.page_widgets import Answer, PageWidgets, merged
from lab_app.ui.streaming import coalesced
from lab_app.ui.types import Given, Update
from lab_app.visits.visits import Visit, VisitStore

LOG = logging.getLogger("lab_app")
# The framework writes every documented endpoint with all its inputs and outputs into the page: megabytes.
QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private"}
LATEST: dict[str, Any] = QUIET | {"trigger_mode": "always_last"}
# By default the framework ignores a press while an answer is on its way, and a run's last words have shown
# the button again by then. What is pressed during a run is refused by the server, in words.
EVERY: dict[str, Any] = QUIET | {"trigger_mode": "multiple"}
OPTIONS = "options"  # the methods' options, as they stand on the pipeline's page
STATUS = ("status", "run", "cancel")  # what every measurement may change, beside its own
#: Sends what the tab kept of the form (``assets/typed.js``) in the place of the second value.
KEPT = """(...given) => {
  try { given[1] = sessionStorage.getItem("kv-typed") || ""; } catch { /* a private window may refuse */ }
  return given;
}"""
Act = Callable[[Visit, Given], Update]
Select = Callable[[Visit, Given, Any], Update]
Steps = Callable[[Visit, Given], Iterator[Update]]
Sent = dict[tuple[str, str], Any]  # by page and name


@dataclass(frozen=True)
class InputView:
    """Boxes of a page that a handler reads under one name; ``read`` makes one value of theirs."""

    page: PageBuilder
    names: Sequence[str]
    read: Callable[[Visit, Given], Any]


@dataclass(frozen=True)
class PageSpec:
    """A page: ``key`` in its address (``#documents``) and its elements' ids, ``label`` in the navigation."""

    key: str
    label: str
    build: Callable[[PageBuilder], None]


class PageBuilder(PageWidgets):
    """A page in the making.

    Args:
        key: its name.
        lab: the visits and the model, loaded at the first visit.
        session: the box that holds a visit's id, one for all pages.
        ids: how its elements' ids begin; usually the key.
        views: boxes that its handlers may ask for by one name.
        pipeline: the pipeline's page, for what another page shows there.
    """

    def __init__(
        self,
        key: str,
        lab: VisitStore,
        session: gr.State,
        *,
        ids: str = "",
        views: dict[str, InputView] | None = None,
        pipeline: PageBuilder | None = None,
    ) -> None:
        super().__init__(key, ids or f"kv-{key}")
        self.lab, self.session = lab, session
        self.views = {} if views is None else views
        self.pipeline = pipeline
        if pipeline is not None:
            self.forms = pipeline.forms
        self._arrive: Act = lambda visit, given: {}
        self._follow: tuple[Act, tuple[str, ...]] = (lambda visit, given: {}, ())
        self._events: list[Callable[[], None]] = []

    def mount(self) -> gr.Column:
        """The column of a page that is hidden until somebody goes to it, and the buttons that open it."""
        self.opener = hidden_button(f"kv-open-{self.key}")
        self.column = gr.Column(
            visible=False, elem_id=f"kv-page-{self.key}", elem_classes="kv-page", min_width=0
        )
        return self.column

    def frame(self, inputs: Callable[[PageBuilder], None], results: Callable[[PageBuilder], None]) -> None:
        """Inputs at the left with *Run* and *Cancel* (``run``, ``cancel``) below them, and the results."""
        with gr.Row(elem_classes="kv-frame"):
            with gr.Column(elem_classes="kv-bench", scale=0, min_width=0):
                with gr.Column(elem_classes="kv-bench-scroll"):
                    inputs(self)
                with gr.Column(elem_classes="kv-go"):
                    self.error("run")
                    self.block("cost", elem_classes="kv-maybe")
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
        """``act`` derives an update from the boxes ``names``: after each of the events ``when``, and in the
        answer to every event with ``follow``."""
        self._follow = act, names
        self.on(list(when), act, *names, latest=True)

    def on(
        self,
        event: Any,
        act: Act,
        *names: str,
        latest: bool = False,
        follow: bool = False,
        outputs: Sequence[Any] | None = None,
    ) -> None:
        """Answer ``event``, or each of several events, once.

        Args:
            act: the handler.
            names: the boxes that it reads.
            latest: of several quick events the last is answered.
            follow: say what follows, too.
            outputs: the widgets that it may change; usually all of the page.
        """
        listen = partial(gr.on, event) if isinstance(event, list) else event

        def answer(visit_id: str, *values: Any) -> Answer:
            return self.guarded(visit_id, lambda visit: self._once(visit, act, names, values, follow))

        self._listen(listen, answer, names, LATEST if latest else QUIET, follow, outputs)

    def select(self, event: Any, act: Select, *names: str, outputs: Sequence[Any] | None = None) -> None:
        """Answer a choice inside a widget, such as a click on a token; ``act`` is given what was chosen."""

        # The framework hands what was chosen to the parameter with this annotation.
        def handler(chosen: gr.EventData, visit_id: str, *values: Any) -> Answer:
            def chose(visit: Visit, given: Given) -> Update:
                return act(visit, given, chosen)

            return self.guarded(visit_id, lambda visit: self._once(visit, chose, names, values, False))

        self._listen(event, handler, names, LATEST, False, outputs)

    def stream(
        self,
        event: Any,
        act: Steps,
        *names: str,
        follow: bool = False,
        latest: bool = False,
        outputs: Sequence[Any] | None = None,
    ) -> None:
        """Answer ``event``, or each of several events, step by step; it stops when the browser goes away.
        ``latest``: of several quick events the last is answered."""
        how = (LATEST if latest else EVERY) | {"concurrency_limit": None}
        event = partial(gr.on, event) if isinstance(event, list) else event
        self._listen(event, self._steps(act, names, follow), names, how, follow, outputs)

    def to_pipeline(self, event: Any, act: Act) -> None:
        """Answer ``event`` on the pipeline's page, by its names (the browser goes there by itself where the
        widget has the class ``kv-to-pipeline``)."""
        pipeline = self.pipeline
        assert pipeline is not None

        def answer(visit_id: str) -> Answer:
            return pipeline.guarded(visit_id, lambda visit: pipeline.applied(act(visit, {}), visit))

        self._events.append(lambda: event(answer, [self.session], pipeline.outputs, **QUIET))

    def connect(self) -> None:
        """Attach all events."""
        for attach in self._events:
            attach()
        if self.pipeline is None:
            return

        names = self._follow[1]

        def opened(visit_id: str, kept: Any, *values: Any) -> Answer:
            def act(visit: Visit, given: Given) -> Update:
                return self._arrive(visit, given) | self.kept_boxes(kept)

            answer = self.guarded(visit_id, lambda visit: self._once(visit, act, (), values, True))
            return {self.column: gr.update(visible=True), **answer}

        inputs = [self.session, self.pipeline["carried"], *self.boxes(names)]
        self.opener.click(opened, inputs, [self.column, *self.outputs], js=KEPT, **QUIET)

    # -- the framework's side --------------------------------------------------------------------------------

    def boxes(self, names: Sequence[str]) -> list[Any]:
        """The components that hold the boxes ``names``, each once."""
        widgets = {}
        for page, name in self._places(names):
            widget = page.widgets[page.home.get(name, name)]
            widgets[widget._id] = widget
        return list(widgets.values())

    def _places(self, names: Sequence[str]) -> list[tuple[PageBuilder, str]]:
        """Each box with the page on which it stands."""
        out: list[tuple[PageBuilder, str]] = []
        for name in names:
            view = self.views.get(name)
            out += [(self, name)] if view is None else [(view.page, box) for box in view.names]
        return out

    def _sent(self, visit: Visit, names: Sequence[str], values: Sequence[Any]) -> Sent:
        """The value that a browser sent for each of the boxes ``names``."""
        by_widget = {w._id: value for w, value in zip(self.boxes(names), values, strict=True)}
        forms: dict[int, Given] = {}
        sent: Sent = {}
        for page, name in self._places(names):
            home = page.home.get(name)
            widget = page.widgets[home or name]
            if home is None:
                sent[page.key, name] = by_widget[widget._id]
                continue
            if widget._id not in forms:
                forms[widget._id] = page.standing(visit).read(home, page.fields[home], by_widget[widget._id])
            sent[page.key, name] = forms[widget._id][name]
        return sent

    def box_values(
        self, visit: Visit, names: Sequence[str], sent: Sent, update: Update | None = None
    ) -> Given:
        """The values of the boxes ``names`` once ``update`` is on the page: from it, else as sent, else the
        initial ones."""
        changed = update or {}

        def box(page: PageBuilder, name: str) -> Any:
            for key in (name, f"{name}.value") if page is self else ():
                if key in changed:
                    value = changed[key]
                    return value[1] if name.startswith("pick_") and isinstance(value, tuple) else value
            if (home := page.home.get(name)) is not None:
                return page.standing(visit).current(home, page.fields[home])[name]
            return sent[page.key, name] if (page.key, name) in sent else page.widgets[name].value

        values: dict[str, Any] = {}
        for name in names:
            view = self.views.get(name)
            if view is None:
                values[name] = box(self, name)
            else:
                values[name] = view.read(visit, {part: box(view.page, part) for part in view.names})
        return values

    def _listen(
        self,
        listen: Any,
        handler: Callable[..., Any],
        names: Sequence[str],
        how: Mapping[str, Any],
        follow: bool,
        outputs: Sequence[Any] | None,
    ) -> None:
        def attach() -> None:
            changed = self.outputs if outputs is None else list(outputs)
            listen(handler, [self.session, *self.boxes(self._read_names(names, follow))], changed, **how)

        self._events.append(attach)

    def _read_names(self, names: Sequence[str], follow: bool) -> tuple[str, ...]:
        """The boxes that an event reads."""
        return (*names, *self._follow[1]) if follow else tuple(names)

    def _once(
        self, visit: Visit, act: Act, names: Sequence[str], values: Sequence[Any], follow: bool
    ) -> Answer:
        """What ``act`` answers, and what follows from it."""
        sent = self._sent(visit, self._read_names(names, follow), values)
        update = act(visit, self.box_values(visit, names, sent))
        answer = self.applied(update, visit)
        return merged(answer, self.following(visit, sent, update)) if follow else answer

    def following(self, visit: Visit, sent: Sent, update: Update) -> Answer:
        """What follows from what stands on the page once ``update`` is on it. It comes in the same answer, so
        that no other answer can come between."""
        act, names = self._follow
        return self.applied(act(visit, self.box_values(visit, names, sent, self._by_name(update))), visit)

    def _steps(self, act: Steps, names: Sequence[str], follow: bool) -> Callable[..., Iterator[Answer]]:
        def answer(visit_id: str, *values: Any) -> Iterator[Answer]:
            try:
                visit = self.lab.visit(visit_id)
            except LabError as error:
                yield self.applied({"status": html.status(str(error), "error")})
                return
            sent = self._sent(visit, self._read_names(names, follow), values)
            last: Update = {}
            latest: Answer = {}
            for update in coalesced(act(visit, self.box_values(visit, names, sent))):
                last |= update
                yield (latest := self.applied(update, visit))
            if follow:  # it may arrive together with the last answer, and only the later one is drawn
                yield merged(latest, self.guarded(visit_id, lambda visit: self.following(visit, sent, last)))

        return answer

    def guarded(self, visit_id: str, act: Callable[[Visit], Answer]) -> Answer:
        """What ``act`` answers, by widget; an error becomes a sentence in the status line."""
        if not visit_id:  # the framework announces the first tab before the visit has begun
            return self.applied({})
        try:
            return act(self.lab.visit(visit_id))
        except LabError as error:
            return self.applied({"status": html.status(str(error), "error")})
        except Exception:
            LOG.exception("a handler of %s failed", self.key)
            return self.applied({"status": html.status(text.UNEXPECTED, "error")})
