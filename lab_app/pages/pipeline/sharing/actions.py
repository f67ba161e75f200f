"""Links, stored runs, files, undo, and what a browser tab keeps over a reload. Needs no web framework:
like the page's other handlers, these return ``{name: value}``."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from backend.base.errors import LabError, RecordError
from backend.records.run import RunRecord
from backend.records.sharing.bundle import Bundle, read_bundle, read_run
from backend.records.sharing.links import LinkTooLong, from_link, read_json, to_link
from backend.records.sharing.store import SharedRuns
from lab_app.pages.pipeline import form as forms
from lab_app.pages.pipeline import form_json as configuration
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.pages.pipeline.form import AGENT_SLOTS, CONTROLS, VALUE_SLOTS, Box, Copy, Form, Picks
from lab_app.pages.pipeline.method_options import option_name
from lab_app.pages.pipeline.results import results
from lab_app.pages.pipeline.sharing import html as sharing_html
from lab_app.pages.pipeline.state import keep_form, state_of
from lab_app.pages.pipeline.undo import Step, UndoStack
from lab_app.ui import html, text
from lab_app.ui.scenarios import find_preset
from lab_app.ui.types import Update
from lab_app.visits.visits import Visit, VisitStore
from viz.run.report import csv_files

LOG = logging.getLogger("lab_app")
CARRIED_CHARACTERS = 1_000_000
STORED_OF_A_VISIT = 20
#: Boxes whose name on the page is that of the form's field.
PLAIN = ("preset", "declared", *CONTROLS, "pinned")


class Sharing:
    """The handlers of saving, sharing and undo in one lab."""

    def __init__(self, lab: VisitStore) -> None:
        self.lab = lab

    @property
    def store(self) -> SharedRuns | None:
        """The stored runs; None where the lab has no folder for them."""
        return self.lab.shared

    # -- arriving -------------------------------------------------------------------------------------------

    def arrive(self, visit: Visit, carried: Any) -> Update:
        """Change the usual first page to what the address and the tab hold: a link's form or run, else the
        form before a reload. What cannot be opened leaves a message and the usual page."""
        try:
            parts = read_carried(carried)
            address, draft = parts["address"], parts["draft"]
            if address and not (draft and draft.get("address") == address):
                return self._follow(visit, address)
            if draft:
                return self._resume(visit, draft)
        except LabError as error:
            return {"status": html.status(str(error), "error")}
        except Exception:
            LOG.exception("what a browser carried could not be opened")
            return {"status": html.status(text.LINK_BROKEN, "error")}
        return {}

    def _follow(self, visit: Visit, address: str) -> Update:
        """Open the link in the page's address."""
        kind, _, value = address.partition("=")
        if kind == "c":
            bundle = Bundle(bench=from_link(value))
        elif self.store is None:
            raise RecordError(text.NO_STORE_HERE)
        else:
            bundle = read_bundle(self.store.get(value))
        update = show(visit, bundle, text.LINK_RUN if bundle.record else text.LINK_BENCH)
        if bundle.record is None:
            state_of(visit).from_link, _ = configuration.form_from_json(bundle.bench)
        return update

    def _resume(self, visit: Visit, draft: dict[str, Any]) -> Update:
        """The form of this tab before a reload."""
        form, example = configuration.form_from_json(draft.get("bench"))
        form = with_typed(form, draft.get("typed"), draft.get("scenario"))
        return self._run_before(visit, draft.get("run")) | restore(visit, Step(form, example))

    def _run_before(self, visit: Visit, token: Any) -> Update:
        """The run that the tab showed before a reload, if the visit that made it still exists."""
        maker = self.lab.holder(token) if isinstance(token, str) else None
        if maker is None or maker is visit or not isinstance(token, str):
            return {"status": html.status(text.RESUMED, "note")}
        update = render_record(visit, maker.records[token])
        state_of(visit).run_form = state_of(maker).run_form if maker.shown == token else None
        bench = bench_of(maker, token)
        if bench is not None:
            keep_form(visit, bench)
        return update | {"status": html.status(text.RESUMED, "note")}

    # -- links and stored runs ------------------------------------------------------------------------------

    def link(self, visit: Visit, form: Form) -> Update:
        """A link to the form; one that would be too long stores the form instead."""
        try:
            body = configuration.form_to_json(form, state_of(visit).example)
            configuration.form_from_json(body)  # no link is made that could not be opened
            try:
                return self._linked("c", to_link(body), text.LINK_OF_BENCH)
            except LinkTooLong as error:
                if self.store is None:
                    raise LinkTooLong(f"{error} {text.NO_STORE}") from None
                return self._linked("r", self._put(visit, Bundle(bench=body)), text.LINK_STORED_BENCH)
        except LabError as error:
            return {"share_link": html.error(str(error))}

    def share(self, visit: Visit) -> Update:
        """Store the run on the screen and make a link to it."""
        record = visit.record
        if record is None:
            return {"share_link": html.error(text.NO_RECORD)}
        if self.store is None:
            return {"share_link": html.error(text.NO_STORE)}
        try:
            name = self._put(visit, Bundle(record, bench_of(visit)))
        except LabError as error:
            return {"share_link": html.error(str(error))}
        return self._linked("r", name, text.LINK_OF_RUN)

    def _put(self, visit: Visit, bundle: Bundle) -> str:
        assert self.store is not None
        if visit.stored >= STORED_OF_A_VISIT:
            raise RecordError(
                f"This visit has stored {visit.stored} runs; {STORED_OF_A_VISIT} are allowed. Save this one "
                "as a file."
            )
        content = bundle.to_bytes()
        if not self.lab.stored.take(visit.address, len(content)):
            raise RecordError(
                "Much was shared from your address or in this lab within a day. Save the run as a file, or "
                "share it tomorrow."
            )
        name = self.store.put(content)
        visit.stored += 1
        return name

    def _linked(self, kind: str, value: str, message: str) -> Update:
        days = f"{self.store.lifetime_days:g} days" if self.store else ""
        return {"share_link": sharing_html.link(f"{kind}={value}", message.format(days=days))}

    # -- files ----------------------------------------------------------------------------------------------

    def open_file(self, visit: Visit, content: Any) -> Update:
        """Show a saved run: a record or a bundle."""
        if not isinstance(content, bytes):
            return {}
        try:
            bundle = read_run(content)
            return show(visit, bundle, text.OPENED if bundle.bench is None else text.OPENED_BUNDLE)
        except LabError as error:
            return {"error_record": html.error(str(error))}

    def bundle_of(self, visit: Visit, token: str, tensors: bool = False) -> bytes:
        """The bundle of a kept record.

        Raises:
            LabError: its tensors cannot be had.
        """
        record = visit.records[token]
        if tensors and visit.cancel is not None:
            raise RecordError("A run is going on. Wait for it before you save tensors.")
        content = visit.engine.tensors(record) if tensors else b""
        return Bundle(record, bench_of(visit, token), csv_files(record), content).to_bytes()

    # -- undo and redo --------------------------------------------------------------------------------------

    def undo(self, visit: Visit, form: Form) -> Update:
        """The form before the last edit."""
        return self._move(visit, form, UndoStack.undo)

    def redo(self, visit: Visit, form: Form) -> Update:
        """The form that was undone last."""
        return self._move(visit, form, UndoStack.redo)

    def _move(self, visit: Visit, form: Form, move: Callable[[UndoStack], Step | None]) -> Update:
        history = state_of(visit).history
        history.note(form, state_of(visit).example)  # what was typed since the last event is an edit
        step = move(history)
        return history.buttons() | (restore(visit, step) if step is not None else {})


def show(visit: Visit, bundle: Bundle, message: str, picks: Picks = (None, None, None)) -> Update:
    """Put a bundle's form and record on the page; ``picks``: the agent, method and segment to show.

    Raises:
        RecordError: the form cannot be read, or the record cannot be drawn; nothing was changed.
    """
    step = None if bundle.bench is None else Step(*configuration.form_from_json(bundle.bench))
    update: Update = dict.fromkeys(("error_record", "bench_shared", "run_shared"), "")
    update["status"] = html.status(message, "note")
    if bundle.record is not None:
        update |= render_record(visit, bundle.record, picks)
        if bundle.bench is not None:
            keep_form(visit, bundle.bench)
    return update | (restore(visit, step) if step is not None else {})


def render_record(visit: Visit, record: RunRecord, picks: Picks = (None, None, None)) -> Update:
    """Show a record. One that cannot be drawn is refused, and the one before stays."""
    shown, run_form = visit.shown, state_of(visit).run_form
    try:
        visit.keep(record)
        state_of(visit).run_form = None
        return results(visit, picks=picks)
    except Exception:
        LOG.exception("a record could not be drawn")
        del visit.records[visit.shown or ""]
        visit.shown, state_of(visit).run_form = shown, run_form
        raise RecordError(text.CANNOT_BE_DRAWN) from None


def bench_of(visit: Visit, token: str | None = None) -> dict[str, Any] | None:
    """The form of a kept record; None where it is not known and does not follow from the record."""
    token = token or visit.shown or ""
    form, record = state_of(visit).forms.get(token), visit.records.get(token)
    return form or (configuration.from_record(record) if record is not None else None)


def shown_copies(copies: Sequence[Copy]) -> list[dict[str, Any]]:
    """Duplicated columns as the value of their component."""
    return [
        {
            "of": copy.method,
            "number": copy.number,
            "values": {option_name(copy.method, key): value for key, value in copy.options.items()},
            "exact": copy.exact,
        }
        for copy in copies
    ]


def restore(visit: Visit, step: Step) -> Update:
    """Put an earlier form back on the page, box by box."""
    form, preset = step.form, find_preset(step.form.preset)
    try:
        pipeline = forms.read_pipeline(form)
    except LabError:
        pipeline = preset.pipeline  # invalid templates are put back as they were typed
    state = state_of(visit)
    state.value_names, state.example = tuple(form.values)[:VALUE_SLOTS], step.example
    state.gallery_entry = None
    return {
        **{name: getattr(form, name) for name in PLAIN},
        "methods": list(form.methods),
        "weights": form.weights[: len(preset.pipeline.agents)],
        "copies": shown_copies(form.copies),
        "options": form.options,
        "columns": {"ablate": form.ablate, "every_profile": form.every_profile},
        "scenario": pipeline_html.scenario(preset),
        "pick_example.value": "",
        **{f"template_{i}": "" for i in range(AGENT_SLOTS)},
        **{f"template_{i}": template for i, template in enumerate(form.templates[:AGENT_SLOTS])},
        **{f"value_{i}": "" for i in range(VALUE_SLOTS)},
        **pipeline_html.bench(pipeline, {}),
        "known": html.known_answer(step.example, form.values),
        "values": tuple(
            Box(
                pipeline_html.label(name),
                form.values[name],
                "\n" in form.values[name].strip(),
                name in pipeline.required,
            )
            for name in state.value_names
        ),
        "next.interactive": preset.request_source != "file",
    }


# -- what a browser sends ------------------------------------------------------------------------------------


def read_carried(carried: Any) -> dict[str, Any]:
    """The address's part behind # and the tab's draft, which :file:`assets/share.js` sends.

    Raises:
        RecordError: it is too large or malformed.
    """
    if not carried:
        return {"address": "", "draft": None}
    if not isinstance(carried, str) or len(carried) > CARRIED_CHARACTERS:
        raise RecordError(text.LINK_BROKEN)
    try:
        body = read_json(carried.encode())
        address, draft = str(body.get("address") or ""), body.get("draft")
    except (ValueError, AttributeError, RecursionError):
        raise RecordError(text.LINK_BROKEN) from None
    return {"address": address, "draft": draft if isinstance(draft, dict) else None}


def with_typed(form: Form, typed: Any, scenario: Any) -> Form:
    """The form with the texts typed in its boxes that the server had not read yet. ``scenario``: the title on
    the page; if it is another one, the texts belong to other boxes and are dropped.

    Raises:
        RecordError: ``typed`` is no table of texts.
    """
    if not typed or scenario != find_preset(form.preset).pipeline.title:
        return form
    if not isinstance(typed, dict) or any(not isinstance(value, str) for value in typed.values()):
        raise RecordError(text.LINK_BROKEN)
    agents = find_preset(form.preset).pipeline.agents
    templates = {
        str(agent.id): typed.get(f"template_{i}", template)
        for i, (agent, template) in enumerate(zip(agents, form.templates, strict=True))
    }
    values = {name: typed.get(f"value_{i}", value) for i, (name, value) in enumerate(form.values.items())}
    body = configuration.form_to_json(form) | {"templates": templates, "values": values}
    return configuration.form_from_json(body)[0]
