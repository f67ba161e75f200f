"""Connects the events of the pipeline's page to their handlers, and fills the page for a new visit."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from lab_app.pages.pipeline.form import FORM, PICKERS, Form, Picks
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.layout import PipelinePage
from lab_app.pages.pipeline.live import change
from lab_app.pages.pipeline.sections import SECTIONS
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.pages.pipeline.sharing.events import CARRY, connect_sharing
from lab_app.ui import html, initial_state, text
from lab_app.ui.measurement import Section
from lab_app.ui.one_run import cancelled
from lab_app.ui.page import QUIET
from lab_app.ui.page_widgets import merged
from lab_app.ui.run_results import span_of_token
from lab_app.ui.types import Given, Update
from lab_app.visits.addresses import address_of
from lab_app.visits.visits import Visit

LOG = logging.getLogger("lab_app")
#: Tells the page that its visit has begun; the page's script may load later.
BEGIN = '() => { document.body.dataset.kvVisit = "begun"; if (window.KVLab) window.KVLab.begin(); }'


def with_form(act: Callable[[Visit, Form], Any]) -> Callable[[Visit, Given], Any]:
    """A handler that reads the form."""
    return lambda visit, inputs: act(visit, inputs[FORM])


def read_picks(inputs: Given) -> Picks:
    """The chosen agent, method and segment."""
    agent, method, segment = (inputs[name] for name in PICKERS)
    return agent, method, segment


def connect(page: PipelinePage, act: Handlers) -> None:
    """Connect every event but a visit's first (:class:`Arrival`)."""
    connect_form(page, act)
    connect_runs(page, act)
    connect_sharing(page, Sharing(act.lab))
    connect_results(page, act)
    for section in SECTIONS:
        section.connect(page)


def connect_form(page: PipelinePage, act: Handlers) -> None:
    """Connect what changes the form, and what follows from it."""
    page.on(
        page["preset"].input,
        with_form(lambda visit, form: act.scenarios.choose(visit, form.preset)),
        FORM,
        follow=True,
    )
    page.on(
        page["pick_effect"].input,
        lambda visit, inputs: act.scenarios.choose_effect(visit, inputs["pick_effect"]),
        "pick_effect",
    )
    page.on(
        page["pick_example"].input,
        lambda visit, inputs: act.scenarios.choose_example(visit, inputs[FORM], inputs["pick_example"]),
        "pick_example",
        FORM,
        follow=True,
    )
    page.on(
        page["next"].click,
        with_form(lambda visit, form: act.scenarios.next_example(visit, form.preset)), FORM,
        follow=True,
    )  # fmt: skip
    edits = [box.input for box in page.boxes((FORM,)) if box is not page["preset"]]
    page.follows(with_form(act.refresh), FORM, when=edits)
    # the run on the screen follows the methods' controls while they move
    page.stream(
        [page["options"].input, page["methods"].input],
        lambda visit, inputs: change(
            visit, inputs[FORM], read_picks(inputs), lambda: act.run(visit, inputs[FORM])
        ),
        FORM, *PICKERS, latest=True,
    )  # fmt: skip
    # an event of its own, because it waits for the model; of the edits during a measurement only the last
    # is measured
    changes = [page[name].change for name in ("values", "agents_form")]
    page.on(changes, with_form(act.familiar), FORM, latest=True, outputs=[page["familiar"], page["status"]])


def connect_runs(page: PipelinePage, act: Handlers) -> None:
    """Connect what runs the model, and what stops it."""
    page.stream(page["run"].click, with_form(act.run), FORM)
    page.stream(page["many"].click, with_form(act.run_many), FORM, follow=True)
    page.stream(page["warm_now"].click, with_form(act.warm_up), FORM)
    page.on(page["cancel"].click, cancelled)
    page.on(page["forget"].click, with_form(act.forget), FORM)


def connect_results(page: PipelinePage, act: Handlers) -> None:
    """Connect the choices of what a record's figures show."""
    figures = [widget for name, widget in page.widgets.items() if name.startswith("view_")]
    changed = [*(page[name] for name in PICKERS), page["strip"], page["status"], *figures]

    def select(visit: Visit, inputs: Given, choice: Any) -> Update:
        """Choose a token or segment in the strip, which marks it by itself."""
        agent, method = getattr(choice, "agent", None), getattr(choice, "method", None)
        if visit.record is None:
            return {}
        span = span_of_token(visit.record, agent, method, getattr(choice, "token", None))
        return act.redraw(visit, agent, method, span, strip=False)

    def open_tab(key: str, sections: Sequence[Section], visit: Visit, inputs: Given) -> Update:
        update = act.redraw(visit, *read_picks(inputs), key, strip=False)
        for section in sections:
            update |= section.opened(visit, inputs)
        return update

    page.on(
        [page[name].input for name in PICKERS],
        lambda visit, inputs: act.redraw(visit, *read_picks(inputs)), *PICKERS,
        latest=True, outputs=changed,
    )  # fmt: skip
    page.select(page["strip"].select, select, outputs=changed)
    page.stream(
        page["view_anchors"].change,
        lambda visit, inputs: iter([act.complete_map(visit, *read_picks(inputs))]),
        *PICKERS,
        outputs=changed,
    )
    for key, tab in page.tabs.items():
        sections = [section for section in SECTIONS if section.tab == key]
        boxes = [name for section in sections for name in (*section.names, *section.reads)]
        page.on(tab.select, partial(open_tab, key, sections), *PICKERS, *boxes, outputs=changed)


class Arrival:
    """Fills the page for a new visit: the served page holds the usual view, a visit gets what differs.

    Args:
        page: the pipeline's page, before it is served.
        act: its handlers.
        preset: the scenario at first.
    """

    def __init__(self, page: PipelinePage, act: Handlers, preset: str) -> None:
        self.page, self.act, self.preset = page, act, preset
        self.sharing = Sharing(act.lab)
        self.first: initial_state.Props = {}

    def connect(self, blocks: gr.Blocks) -> None:
        """Connect the event of a page that was opened."""
        page = self.page

        def arrive(carried: Any, request: gr.Request) -> dict[Any, Any]:
            host = request.client.host if request.client else ""
            return self.arrive(str(request.session_hash or ""), carried, address_of(host))

        event = blocks.load(arrive, page["carried"], [page.session, *page.outputs], js=CARRY, **QUIET)
        event.then(None, js=BEGIN, **QUIET)

    def prepare(self) -> None:
        """Write a new visit's view into the page. Where the model cannot be loaded the page stays empty, and
        the first visit shows the error."""
        try:
            visit_id, self.first = self.greeting()
        except LabError:
            LOG.warning("the page begins empty", exc_info=True)
            return
        self.act.lab.close(visit_id)
        initial_state.put(self.first)

    def greeting(
        self, browser: str = "", carried: Any = "", address: str = ""
    ) -> tuple[str, initial_state.Props]:
        """Begin a visit: its id and its whole view; ``carried``: what its address and tab hold."""
        visit_id, update = self.act.arrive(self.preset, browser, address)
        visit = self.act.lab.visit(visit_id)
        update |= self.sharing.arrive(visit, carried)
        view = self.page.applied(update, visit)
        return visit_id, initial_state.props_of(merged(view, self.page.following(visit, {}, update)))

    def arrive(self, browser: str = "", carried: Any = "", address: str = "") -> dict[Any, Any]:
        """Begin a visit: the part of its view that is not in the page already."""
        try:
            visit_id, view = self.greeting(browser, carried, address)
            return {self.page.session: visit_id, **initial_state.missing(view, self.first)}
        except LabError as error:
            return self.page.applied({"status": html.status(str(error), "error")})
        except Exception:
            LOG.exception("a visit could not begin")
            return self.page.applied({"status": html.status(text.UNEXPECTED, "error")})
