"""A record on the pipeline's page: its verdict, comparison, links and the open tab's figures."""

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from backend.methods.registry import method_class, option_fields
from backend.prompts.variants import other_numbers
from backend.records.request import CONTROLS
from backend.records.run import RunRecord
from lab_app.pages.pipeline.form import Picks
from lab_app.pages.pipeline.method_options import with_options
from lab_app.pages.pipeline.sharing import html as sharing_html
from lab_app.pages.pipeline.state import state_of
from lab_app.ui import html, text
from lab_app.ui.components import payload
from lab_app.ui.run_results import choices, marked
from lab_app.ui.scenarios import OWN_WARM
from lab_app.ui.types import Update
from lab_app.visits.umap_worker import LAYOUTS
from lab_app.visits.visits import Visit
from viz.base.figure import FigureView, Panel
from viz.run.comparison import Columns, comparison_html
from viz.run.tabs import TABS
from viz.run.token_strip import strip_html
from viz.run.verdict import passing_gamma, refusal
from viz.run.verdict_card import run_card

#: Its button switches the recording of attention on and presses Run (``assets/app.js``).
RECORD_ATTENTION = Markup(
    '<p class="kv-help">{}</p><button type="button" class="kv-button" data-kv="attention">{}</button>'
).format(CONTROLS["attention"].help, text.ATTENTION_RERUN)


def drawing(visit: Visit, pickers: Update, strip: bool = True, record: RunRecord | None = None) -> Update:
    """The strip and the open tab for a selection; ``record``: by default the one on the screen."""
    record, selection = record or visit.record, pickers["selection"]
    if record is None:
        return {}
    tab = next((t for t in TABS if t.key == state_of(visit).tab), TABS[0])
    if tab.key == "attention" and not record.request.probe_attention:
        views: Sequence[FigureView | Panel] = (Panel("attention_off", text.ATTENTION_OFF, RECORD_ATTENTION),)
    else:
        views = LAYOUTS.completed(tab.views(record, selection), record, selection)
    # the page asks again for a view that is not complete (app.js and Handlers.complete_map)
    waits = tab.key == "anchors" and LAYOUTS.pending(record, selection)
    update: Update = {f"view_{tab.key}": payload(views) | {"waits": waits}}
    if strip:
        # a mapping: the strip carries its data in inert script elements, which plain values may not
        update["strip"] = {
            "html": strip_html(record, selection.agent, marked(record, selection), selection.method)
        }
    return update


def results(visit: Visit | None, picks: Picks = (None, None, None)) -> Update:
    """Everything under the status line, for a record or for none; ``picks``: agent, method and segment."""
    record = visit.record if visit else None
    if visit is None or record is None:
        nothing = payload([Panel("nothing", text.NOTHING_RUN, f"<p>{text.NOTHING_RUN_HELP}</p>")])
        return {
            "results.visible": False,
            "verdict": html.empty_card(),
            "comparison": "",
            "download": sharing_html.saving(None, 0),
            "strip": {"html": ""},
            **{f"view_{tab.key}": nothing for tab in TABS},
        }
    pickers = choices(record, *picks)
    update: Update = {
        "results.visible": True,
        "verdict": run_card(record, repair_button(record)),
        "comparison": comparison(visit, record),
        "download": sharing_html.saving(visit.shown, visit.engine.tensor_bytes(record)),
    }
    return update | pickers | drawing(visit, pickers)


def repair_button(record: RunRecord) -> Markup:
    """The button that lets KVCOMM reuse where its gate refused everything (``assets/app.js``).

    It sets gamma, or fills the pools with nearer anchors and runs. Empty where the gate let something
    through, or neither helps.
    """
    kvcomm = [outcome for outcome in record.outcomes if outcome.method == "kvcomm"]
    gate = refusal(kvcomm)
    if gate is None or any((outcome.actions > 0).any() for outcome in kvcomm):
        return Markup()
    boxes: dict[str, Any]
    if gamma := passing_gamma(kvcomm):
        boxes = {"kv-option-kvcomm-gamma-box": gamma}
        return html.set_button(boxes, text.SET_GAMMA.format(gamma=f"{gamma:g}"))
    if gate.rule == "longer than every anchor" and other_numbers(record.request.values, 1):
        boxes = {"kv-warm-own-box": True, "kv-warm-count-box": OWN_WARM}
        return html.set_button(boxes, text.FILL_OWN, run=True)
    return Markup()


def comparison(visit: Visit, record: RunRecord, pending: frozenset[tuple[int, str]] = frozenset()) -> Markup:
    """The columns side by side with their buttons; ``pending``: answers that are still being decoded."""
    copies = {m.label for m in record.request.methods if m.label.removeprefix(f"{m.name} ").isdecimal()}
    options = {
        name: {option.name: option.label for option in option_fields(method_class(name))}
        for name in with_options()
    }
    originals = {m.label for m in record.request.methods if m.name in options and m.label == m.name}
    columns = Columns(frozenset(originals | copies), frozenset(copies), state_of(visit).pinned, options)
    return comparison_html(record, columns=columns, pending=pending)


def open_run(visit: Visit, token: str) -> Update:
    """Show a record of another page on the pipeline's, with all its figures."""
    if token not in visit.records:
        return {"status": html.status(text.GONE, "note")}
    visit.shown, state_of(visit).run_form = token, None
    return results(visit) | {"status": html.status(text.OPENED, "note")}
