"""Connects widgets to handlers: reads the bench into a form, turns answers into updates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import gradio as gr

from backend.base.errors import LabError
from backend.methods.registry import method_class, option_fields
from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Form
from lab_app.pages.pipeline.handlers import Handlers
from lab_app.pages.pipeline.layout import Page
from lab_app.pages.pipeline.method_options import MethodPanel
from lab_app.pages.pipeline.sections import anchor_cost, offset_study, proximity
from lab_app.pages.pipeline.sections import break_even as calculator
from lab_app.pages.pipeline.sections import replay as what_if
from lab_app.pages.pipeline.sharing.actions import Sharing
from lab_app.pages.pipeline.sharing.events import CARRY, connect_sharing, every_box
from lab_app.pages.pipeline.state import state
from lab_app.pages.pipeline.updates import applied
from lab_app.ui import html, text
from lab_app.ui import initial_state as first_paint
from lab_app.ui.page import LATEST, QUIET, press_after
from lab_app.ui.run_results import span_of_token
from lab_app.ui.streaming import coalesced
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit

LOG = logging.getLogger("lab_app")


def bench_inputs(page: Page) -> list[Any]:
    """The widgets that make a :class:`Form`, in the order of :func:`read_form`."""
    names = [
        "preset",
        "declared",
        "methods",
        "mode",
        "max_new_tokens",
        "temperature",
        "top_p",
        "seed",
        "warm",
        "warm_count",
        "many_count",
        "turns",
        "attention",
    ]
    names += [f"value_{slot}" for slot in range(VALUE_SLOTS)] + [
        f"template_{slot}" for slot in range(AGENT_SLOTS)
    ]
    names += [f"weights_{slot}" for slot in range(AGENT_SLOTS)]
    found = [page[name] for name in names]
    for panel in page.panels.values():
        found += panel.options.values()
        found += [box for box in (panel.ablate, panel.every_profile) if box is not None]
    return found


def read_form(page: Page, visit: Visit, given: tuple[Any, ...]) -> Form:
    """The bench as sent by the browser."""
    rest = list(given)

    def take(count: int) -> list[Any]:
        out, rest[:] = rest[:count], rest[count:]
        return out

    preset, declared, methods, mode, longest, temperature, top_p, seed, warm, warm_count, many = take(11)
    turns, attention = take(2)
    values = dict(zip(state(visit).value_names, (str(v or "") for v in take(VALUE_SLOTS)), strict=False))
    templates = tuple(str(t or "") for t in take(AGENT_SLOTS))
    weights = tuple(str(w or "") for w in take(AGENT_SLOTS))
    options: dict[str, dict[str, Any]] = {}
    ablate: list[str] = []
    every_profile: list[str] = []
    for name, panel in page.panels.items():
        options[name] = dict(zip(panel.options, take(len(panel.options)), strict=True))
        if panel.ablate is not None and take(1)[0]:
            ablate.append(name)
        if panel.every_profile is not None and take(1)[0]:
            every_profile.append(name)
    return Form(
        str(preset), values, templates, str(declared or ""), tuple(methods or ()), options, tuple(ablate),
        str(mode), longest, temperature, top_p, seed, bool(warm), warm_count, many,
        tuple(every_profile), "" if turns is None else turns, weights, bool(attention),
    )  # fmt: skip


def profile_setter(panel: MethodPanel) -> Callable[[Any], list[Any]]:
    """A function from a profile's name to the values of the panel's option boxes, in their order."""
    fields = option_fields(method_class(panel.name))

    def values(profile: Any) -> list[Any]:
        profiles = method_class(panel.name).profiles
        chosen = profiles[profile].options if profile in profiles else {}
        known = {f.name: chosen.get(f.name, f.default) for f in fields}
        return [known[name] for name in panel.options]

    return values


#: Tells the page that its visit has begun; its own script may come later.
BEGIN = '() => { document.body.dataset.kvVisit = "begun"; if (window.KVLab) window.KVLab.begin(); }'


class Wiring:
    """One page's events."""

    def __init__(self, page: Page, handlers: Handlers) -> None:
        self.page, self.handlers = page, handlers
        self.bench = bench_inputs(page)
        self.inputs = [page["session"], *self.bench]
        panels = [
            part
            for panel in page.panels.values()
            for part in (panel.group, panel.error, panel.profile, panel.note, panel.more)
            if part is not None
        ]
        panels += page.panels["naive"].options.values()
        self.outputs = [widget for name, widget in page.widgets.items() if name != "session"] + panels
        boxes = {id(widget) for widget in self.outputs}
        self.everything = self.outputs + [box for box in every_box(page) if id(box) not in boxes]
        self.sharing = Sharing(handlers.lab)
        self.pickers = [page["pick_agent"], page["pick_method"], page["pick_segment"]]
        self.looks = [
            *self.pickers,
            page["strip"],
            page["status"],
            *(page[name] for name in page.widgets if name.startswith("view_")),
        ]
        self.first: first_paint.Props = {}

    def connect(self, blocks: gr.Blocks, preset: str) -> None:
        """Attach every event."""
        page, act = self.page, self.handlers
        follow = press_after(page["follower"])
        self.prepare(preset)

        def arrive(carried: Any, request: gr.Request) -> dict[Any, Any]:
            return self.arrive(preset, str(request.session_hash or ""), carried)

        there = blocks.load(arrive, page["carried"], [page["session"], *self.everything], js=CARRY, **QUIET)
        there.then(None, js=BEGIN, **QUIET)
        chosen = self.once(lambda visit, form: act.choose(visit, form.preset))
        page["preset"].input(chosen, self.inputs, self.outputs, **QUIET).then(**follow)
        page["pick_effect"].input(self.effect, [page["session"], page["pick_effect"]], self.outputs, **QUIET)
        page["pick_example"].input(
            self.checked, [page["session"], page["pick_example"], *self.bench], self.outputs, **QUIET
        ).then(**follow)
        for panel in page.panels.values():
            if panel.profile is not None:
                setter = profile_setter(panel)
                panel.profile.input(setter, panel.profile, list(panel.options.values()), **QUIET).then(
                    **follow
                )
        following = self.once(lambda visit, form: act.next_example(visit, form.preset))
        page["next"].click(following, self.inputs, self.outputs, **QUIET).then(**follow)
        # a text box reports pasted and dropped text by its change event only
        typed = [
            w.change if isinstance(w, gr.Textbox) else w.input for w in self.bench if w is not page["preset"]
        ]
        gr.on([*typed, page["follower"].click], self.once(act.refresh), self.inputs, self.outputs, **LATEST)
        page["run"].click(self.stream(act.run), self.inputs, self.outputs, concurrency_limit=None, **QUIET)
        page["many"].click(
            self.stream(act.run_many), self.inputs, self.outputs, concurrency_limit=None, **QUIET
        ).then(**follow)
        page["warm_now"].click(
            self.stream(act.warm_up), self.inputs, self.outputs, concurrency_limit=None, **QUIET
        )
        page["cancel"].click(
            self.once(lambda visit, form: act.cancel(visit)), self.inputs, self.outputs, **QUIET
        )
        page["forget"].click(self.once(act.forget), self.inputs, self.outputs, **QUIET)
        connect_sharing(self, follow)
        gr.on(
            [p.input for p in self.pickers], self.look, [page["session"], *self.pickers], self.looks, **LATEST
        )
        page["strip"].select(self.select, page["session"], self.looks, **LATEST)
        asked = [page["session"], *(page[f"proximity_{name}"] for name in proximity.FIELDS)]
        page["measure"].click(self.measure, asked, self.outputs, concurrency_limit=None, **QUIET)
        for box in asked[1:]:
            event = box.change if isinstance(box, gr.Textbox) else box.input
            event(self.measure_edited, asked, self.outputs, **LATEST)
        self.connect_study()
        self.connect_what_if(follow)
        page["cost_measure"].click(
            self.measure_cost,
            [page["session"], *(page[f"cost_{name}"] for name in anchor_cost.FIELDS)],
            self.outputs,
            concurrency_limit=None,
            **QUIET,
        )
        page["view_anchors"].change(
            self.complete_map, [page["session"], *self.pickers], self.looks,
            concurrency_limit=None, **QUIET,
        )  # fmt: skip
        opened = {
            key: tab.select(self.tab(key), [page["session"], *self.pickers], self.looks, **QUIET)
            for key, tab in page.tabs.items()
        }
        self.connect_calculator(opened["timing"])

    def connect_study(self) -> None:
        """The events of the study in the Offsets tab."""
        page, session = self.page, self.page["session"]
        boxes = [page[f"study_{name}"] for name in offset_study.FIELDS]
        page["study_measure"].click(
            self.study, [session, *boxes, *self.bench], self.outputs, concurrency_limit=None, **QUIET
        )
        for box in boxes:
            event = box.change if isinstance(box, gr.Textbox) else box.input
            event(self.study_edited, [session, *boxes], self.outputs, **LATEST)
        page["study_take"].click(self.study_take, [session, *self.pickers], self.outputs, **QUIET)
        picks = [page["pick_study_prefix"], page["pick_study_place"]]
        figures = [page["study_tokens"], page["view_study"], page["status"]]
        gr.on([p.input for p in picks], self.study_look, [session, *picks], figures, **LATEST)
        for view in figures[:2]:
            view.select(self.study_pick, [session, *picks], figures, **LATEST)

    def connect_what_if(self, follow: dict[str, Any]) -> None:
        """The events of the What if tab; afterwards the bench says again how it stands."""
        page, session = self.page, self.page["session"]
        for name, ablation in (("replay_run", False), ("replay_ablation", True)):
            page[name].click(
                self.replay(ablation), [session, page["replay_last"], *self.bench], self.outputs,
                concurrency_limit=None, **QUIET,
            ).then(**follow)  # fmt: skip
        figures = [page["pick_replay"], page["view_replay"], page["status"]]
        page["pick_replay"].input(self.replay_pick, [session, page["pick_replay"]], figures, **LATEST)
        page["view_replay"].select(self.replay_point, session, figures, **LATEST)

    def connect_calculator(self, opened: Any) -> None:
        """The events of the calculator in the Timing tab; ``opened`` is that of the tab itself."""
        page, boxes = self.page, [self.page[f"pays_{name}"] for name in calculator.FIELDS]
        opened.then(calculator.revealed, None, page["pays"], **QUIET)
        asked = [page["session"], *boxes]
        shown = [widget for name, widget in page.widgets.items() if "pays" in name] + [page["status"]]
        gr.on([box.input for box in boxes], self.pays, asked, shown, **LATEST)
        page["pays_measure"].click(self.pays_measure, asked, shown, concurrency_limit=None, **QUIET)

    def prepare(self, preset: str) -> None:
        """Write what a new visit sees into the page. Without a model there is nothing to write, and the first
        visitor is told why."""
        try:
            visit_id, self.first = self.greeting(preset)
        except LabError:
            LOG.warning("the page begins empty", exc_info=True)
            return
        self.handlers.lab.close(visit_id)
        first_paint.put(self.first)

    def greeting(self, preset: str, browser: str = "", carried: Any = "") -> tuple[str, first_paint.Props]:
        """A new visit: its id, and all that it sees; ``carried``: what its address or tab asks for."""
        visit_id, update = self.handlers.arrive(preset, browser)
        visit = self.handlers.lab.visit(visit_id)
        seen = applied(self.page, update | self.sharing.arrived(visit, carried))
        given = first_paint.values(self.bench, first_paint.props_of(seen))
        derived = self.handlers.refresh(visit, read_form(self.page, visit, given))
        return visit_id, first_paint.props_of(seen, applied(self.page, derived))

    def arrive(self, preset: str, browser: str = "", carried: Any = "") -> dict[Any, Any]:
        """A new visit: what it sees and is not on the page already."""
        try:
            visit_id, seen = self.greeting(preset, browser, carried)
            return {self.page["session"]: visit_id, **first_paint.missing(seen, self.first)}
        except LabError as error:
            return applied(self.page, {"status": html.status(str(error), "error")})
        except Exception as error:
            return self.unexpected(error)

    def once(self, act: Callable[[Visit, Form], Update]) -> Callable[..., dict[Any, Any]]:
        """A handler that answers once."""

        def handler(visit_id: str, *given: Any) -> dict[Any, Any]:
            return self.guarded(visit_id, lambda visit: act(visit, read_form(self.page, visit, given)))

        return handler

    def stream(
        self, act: Callable[[Visit, Form], Iterator[Update]]
    ) -> Callable[..., Iterator[dict[Any, Any]]]:
        """A handler that answers step by step, and stops when the browser goes away."""

        def handler(visit_id: str, *given: Any) -> Iterator[dict[Any, Any]]:
            try:
                visit = self.handlers.lab.visit(visit_id)
            except LabError as error:
                yield applied(self.page, {"status": html.status(str(error), "error")})
                return
            for update in coalesced(act(visit, read_form(self.page, visit, given))):
                yield applied(self.page, update)

        return handler

    def guarded(self, visit_id: str, act: Callable[[Visit], Update]) -> dict[Any, Any]:
        """What ``act`` answers; an error becomes a sentence in the status line."""
        if not visit_id:  # the framework announces the first tab before the visit has begun
            return applied(self.page, {})
        try:
            return applied(self.page, act(self.handlers.lab.visit(visit_id)))
        except LabError as error:
            return applied(self.page, {"status": html.status(str(error), "error")})
        except Exception as error:
            return self.unexpected(error)

    def unexpected(self, error: Exception) -> dict[Any, Any]:
        """A sentence for the person, the rest for the log."""
        LOG.exception("a handler failed")
        return applied(
            self.page, {"status": html.status(text.UNEXPECTED.format(kind=type(error).__name__), "error")}
        )

    def effect(self, visit_id: str, effect: Any) -> dict[Any, Any]:
        """The other kind of checked examples."""
        return self.guarded(visit_id, lambda visit: self.handlers.choose_effect(visit, effect))

    def checked(self, visit_id: str, name: Any, *given: Any) -> dict[Any, Any]:
        """A checked example for the bench."""
        return self.guarded(
            visit_id,
            lambda visit: self.handlers.choose_example(visit, read_form(self.page, visit, given), name),
        )

    def measure(self, visit_id: str, *asked: Any) -> Iterator[dict[Any, Any]]:
        """A measurement, step by step."""
        try:
            visit = self.handlers.lab.visit(visit_id)
        except LabError as error:
            yield applied(self.page, {"proximity_status": html.status(str(error), "error")})
            return
        for update in coalesced(proximity.measure(self.handlers.lab, visit, proximity.Asked(*asked))):
            yield applied(self.page, update)

    def measure_edited(self, visit_id: str, *asked: Any) -> dict[Any, Any]:
        """Something was typed in the Proximity tab."""
        return self.guarded(visit_id, lambda visit: proximity.edited(visit, proximity.Asked(*asked)))

    def measure_cost(self, visit_id: str, *asked: Any) -> Iterator[dict[Any, Any]]:
        """A measurement of pools, step by step."""
        try:
            visit = self.handlers.lab.visit(visit_id)
        except LabError as error:
            yield applied(self.page, {"cost_status": html.status(str(error), "error")})
            return
        for update in coalesced(anchor_cost.measure(self.handlers.lab, visit, anchor_cost.Asked(*asked))):
            yield applied(self.page, update)

    def pays(self, visit_id: str, *asked: Any) -> dict[Any, Any]:
        """When reuse pays, by what stands in the calculator's boxes."""
        return self.guarded(visit_id, lambda visit: calculator.edited(visit, calculator.Asked(*asked)))

    def pays_measure(self, visit_id: str, *asked: Any) -> Iterator[dict[Any, Any]]:
        """This machine's figures for the calculator, step by step."""
        try:
            visit = self.handlers.lab.visit(visit_id)
        except LabError as error:
            yield applied(self.page, {"pays_status": html.status(str(error), "error")})
            return
        for update in coalesced(calculator.measure(self.handlers.lab, visit, calculator.Asked(*asked))):
            yield applied(self.page, update)

    def study(self, visit_id: str, text_: Any, prefixes: Any, samples: Any, *given: Any) -> Iterator[Any]:
        """A study of offsets, step by step."""
        try:
            visit = self.handlers.lab.visit(visit_id)
            form = read_form(self.page, visit, given)
        except LabError as error:
            yield applied(self.page, {"study_status": html.status(str(error), "error")})
            return
        asked = offset_study.Asked(text_, prefixes, samples)
        for update in coalesced(offset_study.measure(self.handlers.lab, visit, form, asked)):
            yield applied(self.page, update)

    def study_edited(self, visit_id: str, *asked: Any) -> dict[Any, Any]:
        """Something was typed in the study's boxes."""
        return self.guarded(visit_id, lambda visit: offset_study.edited(visit, offset_study.Asked(*asked)))

    def study_take(self, visit_id: str, *picked: Any) -> dict[Any, Any]:
        """The chosen segment's text for the study."""
        return self.guarded(visit_id, lambda visit: offset_study.take(visit, *picked))

    def study_look(self, visit_id: str, prefix: Any, place: Any) -> dict[Any, Any]:
        """Another prefix, agent or part."""
        return self.guarded(visit_id, lambda visit: offset_study.look(visit, prefix, place))

    def study_pick(self, visit_id: str, prefix: Any, place: Any, event: gr.EventData) -> dict[Any, Any]:
        """A token chosen in the study's text or in its map of tokens."""
        from_map = getattr(event, "x", None) if getattr(event, "view", "") == "study_tokens" else None
        token = getattr(event, "token", from_map)
        return self.guarded(visit_id, lambda visit: offset_study.pick(visit, token, prefix, place))

    def replay(self, ablation: bool) -> Callable[..., Iterator[dict[Any, Any]]]:
        """A replay of past requests, step by step."""

        def handler(visit_id: str, last: Any, *given: Any) -> Iterator[dict[Any, Any]]:
            try:
                visit = self.handlers.lab.visit(visit_id)
                form = read_form(self.page, visit, given)
            except LabError as error:
                yield applied(self.page, {"replay_status": html.status(str(error), "error")})
                return
            for update in coalesced(what_if.measure(self.handlers.lab, visit, form, last, ablation)):
                yield applied(self.page, update)

        return handler

    def replay_pick(self, visit_id: str, number: Any) -> dict[Any, Any]:
        """Another request's texts."""
        return self.guarded(visit_id, lambda visit: what_if.pick(visit, number))

    def replay_point(self, visit_id: str, event: gr.EventData) -> dict[Any, Any]:
        """A request chosen in the figure of changed answers."""
        if getattr(event, "view", "") != "replay_fates":
            return applied(self.page, {})
        return self.replay_pick(visit_id, getattr(event, "x", None))

    def look(self, visit_id: str, agent: Any, method: Any, segment: Any) -> dict[Any, Any]:
        """Another selection in the boxes."""
        return self.guarded(visit_id, lambda visit: self.handlers.look(visit, agent, method, segment))

    def complete_map(self, visit_id: str, agent: Any, method: Any, segment: Any) -> dict[Any, Any]:
        """The map of anchors with its slow half, when that is there."""
        return self.guarded(visit_id, lambda visit: self.handlers.complete_map(visit, agent, method, segment))

    def tab(self, key: str) -> Callable[..., dict[Any, Any]]:
        """Another tab."""

        def handler(visit_id: str, agent: Any, method: Any, segment: Any) -> dict[Any, Any]:
            return self.guarded(
                visit_id, lambda visit: self.handlers.look(visit, agent, method, segment, key, strip=False)
            )

        return handler

    def select(self, visit_id: str, event: gr.EventData) -> dict[Any, Any]:
        """A token or a segment chosen in the strip; the strip has marked it itself."""

        def act(visit: Visit) -> Update:
            agent, method = getattr(event, "agent", None), getattr(event, "method", None)
            if visit.record is None:
                return {}
            span = span_of_token(visit.record, agent, method, getattr(event, "token", None))
            return self.handlers.look(visit, agent, method, span, strip=False)

        return self.guarded(visit_id, act)
