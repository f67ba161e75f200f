"""What the pipeline's widgets do: every event of the page, and what a new visit sees."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from lab_app.pages.pipeline.form import FORM, PICKERS, Form
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.layout import PipelinePage
from lab_app.pages.pipeline.live import change
from lab_app.pages.pipeline.sections import SECTIONS
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.pages.pipeline.sharing.events import CARRY, connect_sharing
from lab_app.ui import html, initial_state
from lab_app.ui.measurement import Section
from lab_app.ui.one_run import cancelled, unexpected
from lab_app.ui.page import QUIET
from lab_app.ui.page_widgets import merged
from lab_app.ui.run_results import span_of_token
from lab_app.ui.types import Given, Update
from lab_app.visits.addresses import address_of
from lab_app.visits.visits import Visit

LOG = logging.getLogger("lab_app")
#: Tells the page that its visit has begun; its own script may come later.
BEGIN = '() => { document.body.dataset.kvVisit = "begun"; if (window.KVLab) window.KVLab.begin(); }'


def with_form(act: Callable[[Visit, Form], Any]) -> Callable[[Visit, Given], Any]:
    """A handler that reads the form."""
    return lambda visit, inputs: act(visit, inputs[FORM])


def read_picks(inputs: Given) -> tuple[Any, Any, Any]:
    """The agent, method and segment that are looked at."""
    agent, method, segment = (inputs[name] for name in PICKERS)
    return agent, method, segment


def connect(page: PipelinePage, act: Handlers) -> None:
    """Announce every event but the first visit's (:class:`Arrival`)."""
    connect_form(page, act)
    connect_runs(page, act)
    connect_sharing(page, Sharing(act.lab))
    connect_results(page, act)
    for section in SECTIONS:
        section.connect(page)


def connect_form(page: PipelinePage, act: Handlers) -> None:
    """What changes the form, and what follows from it."""
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
    # What the methods' controls change of the run on the screen comes while they move.
    page.stream(
        [page["options"].input, page["methods"].input],
        lambda visit, inputs: change(
            visit, inputs[FORM], read_picks(inputs), lambda: act.run(visit, inputs[FORM])
        ),
        FORM, *PICKERS, latest=True,
    )  # fmt: skip
    # An event of its own: it waits for the model, and what follows from the form does not. While one is
    # measured, of all further edits only the last is.
    changes = [page[name].change for name in ("values", "agents_form")]
    page.on(changes, with_form(act.familiar), FORM, latest=True, outputs=[page["familiar"], page["status"]])


def connect_runs(page: PipelinePage, act: Handlers) -> None:
    """What works on the model, and what stops it."""
    page.stream(page["run"].click, with_form(act.run), FORM)
    page.stream(page["many"].click, with_form(act.run_many), FORM, follow=True)
    page.stream(page["warm_now"].click, with_form(act.warm_up), FORM)
    page.on(page["cancel"].click, cancelled)
    page.on(page["forget"].click, with_form(act.forget), FORM)


def connect_results(page: PipelinePage, act: Handlers) -> None:
    """What is looked at of a record."""
    figures = [widget for name, widget in page.widgets.items() if name.startswith("view_")]
    changed = [*(page[name] for name in PICKERS), page["strip"], page["status"], *figures]

    def redraw(visit: Visit, inputs: Given) -> Update:
        return act.redraw(visit, *read_picks(inputs))

    def select(visit: Visit, inputs: Given, choice: Any) -> Update:
        """A token or a segment chosen in the strip; the strip has marked it itself."""
        agent, method = getattr(choice, "agent", None), getattr(choice, "method", None)
        if visit.record is None:
            return {}
        span = span_of_token(visit.record, agent, method, getattr(choice, "token", None))
        return act.redraw(visit, agent, method, span, strip=False)

    def open_tab(key: str, sections: Sequence[Section]) -> Callable[[Visit, Given], Update]:
        def handler(visit: Visit, inputs: Given) -> Update:
            update = act.redraw(visit, *read_picks(inputs), key, strip=False)
            for section in sections:
                update |= section.opened(visit, inputs)
            return update

        return handler

    page.on([page[name].input for name in PICKERS], redraw, *PICKERS, latest=True, outputs=changed)
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
        page.on(tab.select, open_tab(key, sections), *PICKERS, *boxes, outputs=changed)


class Arrival:
    """What a new visit sees: the page as it was built, and what is different for this one.

    Args:
        page: the pipeline's page, not served yet.
        act: its handlers.
        preset: the scenario at first.
    """

    def __init__(self, page: PipelinePage, act: Handlers, preset: str) -> None:
        self.page, self.act, self.preset = page, act, preset
        self.sharing = Sharing(act.lab)
        self.first: initial_state.Props = {}

    def connect(self, blocks: gr.Blocks) -> None:
        """Attach the event of an opened page."""
        page = self.page

        def arrive(carried: Any, request: gr.Request) -> dict[Any, Any]:
            host = request.client.host if request.client else ""
            return self.arrive(str(request.session_hash or ""), carried, address_of(host))

        event = blocks.load(arrive, page["carried"], [page.session, *page.outputs], js=CARRY, **QUIET)
        event.then(None, js=BEGIN, **QUIET)

    def prepare(self) -> None:
        """Write what a new visit sees into the page. Without a model there is nothing to write, and the first
        visitor is told why."""
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
        """A new visit: its id, and all that it sees; ``carried``: what its address or tab asks for."""
        visit_id, update = self.act.arrive(self.preset, browser, address)
        visit = self.act.lab.visit(visit_id)
        update |= self.sharing.arrive(visit, carried)
        view = self.page.applied(update, visit)
        return visit_id, initial_state.props_of(merged(view, self.page.following(visit, {}, update)))

    def arrive(self, browser: str = "", carried: Any = "", address: str = "") -> dict[Any, Any]:
        """A new visit: what it sees and is not on the page already."""
        try:
            visit_id, view = self.greeting(browser, carried, address)
            return {self.page.session: visit_id, **initial_state.missing(view, self.first)}
        except LabError as error:
            return self.page.applied({"status": html.status(str(error), "error")})
        except Exception as error:
            LOG.exception("a visit could not begin")
            return self.page.applied({"status": html.status(unexpected(error), "error")})
