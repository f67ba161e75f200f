"""The handlers of the pipeline's page, without widgets: each returns or yields ``{name: value}``.

Names are those of the page's components (``lab_app.pages.pipeline.layout``). A handler never raises to the
browser: an expected error becomes a message beside its field, any other a plain sentence and a line in the
log.
"""

import contextlib
import dataclasses
import functools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.prompts.notices import notices
from backend.prompts.presets import Example
from backend.records.events import Event
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from backend.records.sharing.links import LinkTooLong, to_link
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.examples import Gallery, as_checked
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.form_json import form_to_json, request_key
from lab_app.pages.pipeline.live import finish, follows, same_inputs, staleness, statement
from lab_app.pages.pipeline.problems import problems
from lab_app.pages.pipeline.results import comparison, drawing, results
from lab_app.pages.pipeline.running import paced, progress
from lab_app.pages.pipeline.scenario import ScenarioChoice, boxes, example_at
from lab_app.pages.pipeline.sharing import html as sharing_html
from lab_app.pages.pipeline.state import keep_form, state_of
from lab_app.ui import html, text
from lab_app.ui.method_choice import keeps_pools, standing
from lab_app.ui.one_run import in_line, one_run
from lab_app.ui.run_results import choices
from lab_app.ui.scenarios import WarmUpSource, find_preset
from lab_app.ui.streaming import REDRAW_SECONDS, live
from lab_app.ui.types import Update
from lab_app.visits.umap_worker import LAYOUTS
from lab_app.visits.visits import Visit, VisitStore
from viz.base.format import plural
from viz.run.tally import Count, count, tally_html

LOG = logging.getLogger("lab_app")
CHEAP_PARAMETERS = 10_000_000  # smaller models record attention by default: it costs little (docs/speed.md)
LINK_SECONDS = 30.0  # a link begins a run that takes less; one that cannot run takes infinitely long
MAP_SECONDS = 90.0  # a first UMAP takes up to a minute on a slow machine


class Handlers:
    """The page's behaviour on one :class:`VisitStore`."""

    def __init__(
        self, lab: VisitStore, first_run: Path | None = None, gallery: Gallery | None = None
    ) -> None:
        self.lab = lab
        self._in_line = functools.partial(in_line, lab, together=True)
        self._first_run = first_run
        self.scenarios = ScenarioChoice(lab, gallery or Gallery())

    # -- arriving ---------------------------------------------------------------------------------

    def arrive(self, preset: str, browser: str = "", address: str = "") -> tuple[str, Update]:
        """Begin a visit: its id, and the page with the first run on it."""
        visit = self.lab.open(browser, address)
        update: Update = {"topbar": pipeline_html.topbar(self.lab.model.info, self.lab.limits.sentences)}
        update |= self.scenarios.choose(visit, preset) | self.scenarios.offer()
        update["attention"] = self.lab.model.info.parameters <= CHEAP_PARAMETERS
        record = self._first_record
        if record is None:
            return visit.id, update | results(None) | {"status": ""}
        visit.keep(record)
        if record.request.pipeline == find_preset(preset).pipeline.unrolled:
            # the form gets the shown run's request, so that Run repeats it
            example = Example(record.request.values, record.request.expected)
            update |= self.scenarios.set_up(visit, find_preset(preset), example)
            state_of(visit).next_example = 0
        return visit.id, update | results(visit) | {"status": html.status(text.FIRST_RUN, "note")}

    @functools.cached_property
    def _first_record(self) -> RunRecord | None:
        if self._first_run is None or not self._first_run.is_file():
            return None
        try:
            return RunRecord.load(self._first_run)
        except LabError:
            LOG.warning("the first run %s cannot be read", self._first_run.name)
            return None

    # -- the form ---------------------------------------------------------------------------------

    def refresh(self, visit: Visit, form: Form) -> Update:
        """Everything that follows from the form; clears the messages of errors that are gone."""
        state = state_of(visit)
        state.form = form
        state.history.note(form, state.example)
        update: Update = state.history.buttons() | {
            "shown_methods": form.methods,
            "profiles": {name: standing(name, options) for name, options in form.options.items()},
        }
        with contextlib.suppress(LabError):  # read_request below shows it, with all other errors
            update |= self._derived(visit, form)
        try:
            request = self._request(visit, form)
            update |= problems(None) | self._cost(visit, form, request)
            adopt(visit, form, request)
        except LabError as error:
            state.seconds = math.inf  # a form that cannot run takes no time that a link may begin
            update |= problems(error, visit, form) | {"cost": html.cannot_run(str(error))}
        update["known"] = html.known_answer(state.example, form.values)
        with contextlib.suppress(LabError):
            update["bench_kept"] = self._draft(visit, form)
        if form.pinned != state.pinned:
            state.pinned = form.pinned
            if visit.record is not None and visit.cancel is None:
                update["comparison"] = comparison(visit, visit.record)
        entry = state.gallery_entry
        unchanged = entry is not None and as_checked(form, entry)
        update["gallery_note"] = pipeline_html.gallery_note(entry, unchanged, self.scenarios.same_weights())
        if visit.cancel is None and visit.record is not None and not follows(visit, form):
            update |= staleness(visit, form)
        return update

    def _draft(self, visit: Visit, form: Form) -> str:
        """The form for the browser's memory and address. One that came by a link runs if the run is short: it
        alone, for the browser fills it in step by step, and each step is read here."""
        state = state_of(visit)
        body, run = form_to_json(form, state.example), False
        if state.from_link is not None and same_inputs(state.from_link, form):
            state.from_link = None
            run = state.run_form != statement(form) and state.seconds < LINK_SECONDS
        try:
            return sharing_html.draft(body, f"c={to_link(body)}", run)
        except (LinkTooLong, ValueError):  # ValueError: a number that a link cannot hold
            return sharing_html.draft(body, "")

    def _request(self, visit: Visit, form: Form) -> RunRequest:
        """The form as a request that fits the model's context.

        Raises:
            LabError: everything that is wrong, each with its field.
        """
        request = forms.read_request(form, state_of(visit).example)
        limit = self.lab.model.info.context_tokens
        for agent, tokens in self._count(forms.read_pipeline(form), form).items():
            answer_tokens = request.decoding_of(agent).max_new_tokens
            if tokens + answer_tokens > limit:
                longest = max(request.values, key=lambda name: len(request.values[name]), default="")
                message = text.TOO_LONG.format(
                    name=pipeline_html.label(longest), agent=request.pipeline.agent(agent).name,
                    tokens=tokens, asked=answer_tokens, limit=limit,
                )  # fmt: skip
                field = f"values.{longest}" if longest else f"agents.{agent}.template"
                raise OptionError(message, field=field)
        return request

    def familiar(self, visit: Visit, form: Form) -> Update:
        """How usual the form's request is for the model, beside the question."""
        try:
            outlook = visit.engine.familiarity(forms.read_request(form, state_of(visit).example))
        except LabError:  # refresh shows it
            outlook = None
        return {"familiar": pipeline_html.familiar(outlook)}

    def _derived(self, visit: Visit, form: Form) -> Update:
        """Graph, cards, boxes and hints that follow from the templates."""
        pipeline = forms.read_pipeline(form)
        names = forms.value_boxes(pipeline)
        moved, state_of(visit).value_names = names != state_of(visit).value_names, names
        update: Update = pipeline_html.bench(pipeline, self._count(pipeline, form))
        update["values"] = boxes(pipeline, form.values, filled=moved)
        return update | {"notices": pipeline_html.notices(notices(pipeline))}

    def _count(self, pipeline: Any, form: Form) -> dict[int, int]:
        counts: dict[int, int] = {}
        for agent in pipeline.agents:
            try:
                counts[agent.id] = self.lab.model.count_tokens(pipeline, agent.id, form.values)
            except LabError:
                continue
        return counts

    def _cost(self, visit: Visit, form: Form, request: RunRequest) -> Update:
        source = warm_up_source(visit, form, request)
        examples = self._warm_up(visit, form, request, source)
        warm, once = len(examples), visit.engine.estimate(request)
        warm_seconds = visit.engine.estimate(request, warm).seconds if warm else 0.0
        ready = warm and shared_by_all(form, request, warm)
        ready = ready and visit.engine.warm_up_is_cached(request, examples)
        state_of(visit).seconds = once.seconds + (0.0 if ready else warm_seconds)
        return {
            "cost": html.cost(once, warm, 0.0 if ready else warm_seconds),
            "pools": pipeline_html.pools(
                visit.engine.pools(request),
                keeps_pools(request.methods),
                warm if ready else 0,
                source.open_words,
            ),
        }

    def _warm_up(self, visit: Visit, form: Form, request: RunRequest, source: WarmUpSource) -> list[Example]:
        """The requests to send first: none if the pools hold anchors from this source already."""
        if not form.warm or not keeps_pools(request.methods):
            return []
        filled = any(pool.anchors for pool in visit.engine.pools(request))
        if filled and state_of(visit).filled_from in (None, source):
            return []
        if source.own is None and example_at(find_preset(form.preset), 0) is None:
            return []
        return source.draw(find_preset(form.preset), self._read_warm_count(form))

    def _read_warm_count(self, form: Form) -> int:
        return int(forms.WARM_COUNT.read(form.warm_count, "warm"))

    # -- running ----------------------------------------------------------------------------------

    def run(self, visit: Visit, form: Form) -> Iterator[Update]:
        """Warm up if the form says so, run, and show each step."""

        def work(cancel: threading.Event) -> Iterator[Update]:
            request = self._request(visit, form)
            yield problems(None)
            source = warm_up_source(visit, form, request)
            warm = self._warm_up(visit, form, request, source)

            def turn() -> Iterator[Update]:
                yield from self._refill(visit, form, request, warm, source, cancel)
                yield from self._stream(visit, request, visit.engine.run(request, cancel=cancel))

            yield from self._in_line(cancel, turn)
            state_of(visit).run_form, state_of(visit).run_token = statement(form), visit.shown or ""
            keep_form(visit, form_to_json(form, state_of(visit).example))
            last = results(visit) | {"tally": ""}
            yield from finish(last, lambda: staleness(visit, state_of(visit).form or form))

        yield from self._guarded(visit, form, work)

    def run_many(self, visit: Visit, form: Form) -> Iterator[Update]:
        """Send the next requests of the set one after the other, and count."""

        def work(cancel: threading.Event) -> Iterator[Update]:
            total = forms.MANY_COUNT.read(form.many_count, "many")
            if example_at(find_preset(form.preset), 0) is None:
                raise OptionError(text.NO_SET, field="many")
            request = forms.read_request(form, state_of(visit).example)
            yield problems(None) | {"tally": ""}
            source = WarmUpSource()  # they are the scenario's problems
            warm = self._warm_up(visit, form, request, source)
            rows: list[tuple[Count, ...]] = []
            if warm:
                yield from self._in_line(
                    cancel, lambda: self._refill(visit, form, request, warm, source, cancel)
                )
            for _ in range(total):  # one turn each, so that other visits need not wait for all
                yield self.scenarios.next_example(visit, form.preset)
                example = state_of(visit).example
                next_form = dataclasses.replace(form, values=dict(example.values) if example else {})
                item = forms.read_request(next_form, state_of(visit).example)

                def turn(item: RunRequest = item) -> Iterator[Update]:
                    yield from self._stream(visit, item, visit.engine.run(item, cancel=cancel))

                yield from paced(functools.partial(self._in_line, cancel, turn), cancel)
                assert visit.record is not None
                rows.append(count(visit.record))
                state_of(visit).run_form = statement(next_form)
                keep_form(visit, form_to_json(next_form, state_of(visit).example))
                yield results(visit) | {"tally": tally_html(rows, total)}
            yield {"status": ""}

        yield from self._guarded(visit, form, work)

    def warm_up(self, visit: Visit, form: Form) -> Iterator[Update]:
        """Send requests of the set to the pools, and nothing else."""

        def work(cancel: threading.Event) -> Iterator[Update]:
            request = forms.read_request(form, state_of(visit).example)
            source = warm_up_source(visit, form, request)
            examples = source.draw(find_preset(form.preset), self._read_warm_count(form))
            yield problems(None)
            if not keeps_pools(request.methods):
                raise OptionError(
                    "None of the chosen methods keeps anchor pools. Choose KVCOMM.", field="warm"
                )
            yield from self._in_line(cancel, lambda: self._warm(visit, form, request, examples, cancel))
            yield {"status": ""}

        yield from self._guarded(visit, form, work)

    def _refill(
        self, visit: Visit, form: Form, request: RunRequest, examples: list[Example], source: WarmUpSource,
        cancel: threading.Event,
    ) -> Iterator[Update]:  # fmt: skip
        """Fill the pools with the examples, if any, and nothing else."""
        if not examples:
            return
        if state_of(visit).filled_from not in (None, source):
            visit.engine.forget()
        state_of(visit).filled_from = source
        yield from self._warm(visit, form, request, examples, cancel)

    def _warm(
        self, visit: Visit, form: Form, request: RunRequest, examples: list[Example],
        cancel: threading.Event,
    ) -> Iterator[Update]:  # fmt: skip
        """Send the examples to the pools."""
        count = len(examples)
        shared = shared_by_all(form, request, count)
        events = visit.engine.warm_up(request, examples, cancel=cancel, shared=shared)
        yield from progress(events, f"Filling the anchor pools with {plural(count, 'request')}")

    def _guarded(
        self, visit: Visit, form: Form, work: Callable[[threading.Event], Iterator[Update]]
    ) -> Iterator[Update]:
        """Do ``work`` as the visit's one run, and say what the next would cost."""
        if visit.cancel is None:
            state_of(visit).form = None
        yield from one_run(
            visit, work, lambda error: problems(error, visit, form), failed=lambda: results(visit)
        )
        with contextlib.suppress(LabError):
            form = state_of(visit).form or form  # edited meanwhile
            yield self._cost(visit, form, forms.read_request(form, state_of(visit).example))

    def _stream(self, visit: Visit, request: RunRequest, events: Iterator[Event]) -> Iterator[Update]:
        visit.keep((yield from live(request, events)))

    def forget(self, visit: Visit, form: Form) -> Update:
        """Empty the pools."""
        if visit.cancel is not None:
            return {"status": html.status("Wait for the run to end, or cancel it first.", "busy")}
        visit.engine.forget()
        state_of(visit).filled_from = None
        return self.refresh(visit, form)

    # -- looking closer ---------------------------------------------------------------------------

    def redraw(
        self, visit: Visit, agent: Any, method: Any, segment: Any, tab: str | None = None, strip: bool = True
    ) -> Update:
        """Redraw the strip and the open tab for a selection."""
        if tab is not None:
            state_of(visit).tab = tab
        if visit.record is None:
            return {}
        pickers = choices(visit.record, agent, method, segment)
        return pickers | drawing(visit, pickers, strip)

    def complete_map(self, visit: Visit, agent: Any, method: Any, segment: Any) -> Update:
        """The Anchors tab once the slow part of its map (UMAP) is there; nothing if it was complete, or if
        something else was chosen meanwhile."""
        record, state = visit.record, state_of(visit)
        if record is None or state.tab != "anchors":
            return {}
        pickers = choices(record, agent, method, segment)
        selection, deadline = pickers["selection"], time.monotonic() + MAP_SECONDS
        if not LAYOUTS.pending(record, selection):
            return {}
        state.map_requests += 1
        number = state.map_requests
        while LAYOUTS.pending(record, selection) and time.monotonic() < deadline:
            time.sleep(REDRAW_SECONDS)
            if visit.record is not record or (state.tab, state.map_requests) != ("anchors", number):
                return {}
        return {"view_anchors": drawing(visit, pickers, strip=False)["view_anchors"]}


def warm_up_source(visit: Visit, form: Form, request: RunRequest) -> WarmUpSource:
    """The request with other numbers where the form says so; else the scenario's problems, in open wording if
    the visitor wrote the request and there are any."""
    if form.warm_own:
        return WarmUpSource(own=dict(request.values))
    example = state_of(visit).example
    typed = example is None or not example.matches(form.values)
    return WarmUpSource(open_words=typed and find_preset(form.preset).has_open_words)


def shared_by_all(form: Form, request: RunRequest, count: int) -> bool:
    """Whether a warm-up by ``count`` requests is the same for every visitor."""
    return not form.warm_own and forms.as_shipped(find_preset(form.preset), request, count)


def adopt(visit: Visit, form: Form, request: RunRequest) -> None:
    """If the form of the shown record is not known and this form makes the same request, take this form for
    it, so that later edits make the results stale."""
    record, state = visit.record, state_of(visit)
    if state.run_form is None and record and request_key(request) == request_key(record.request):
        state.run_form = statement(form)
