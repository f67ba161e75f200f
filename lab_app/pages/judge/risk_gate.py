"""Below a judged set: can it be known beforehand which verdicts survive reuse, and what would knowing buy?

A gate is trained on the set that was judged last, tested on problems that its training did not see, and its
threshold can be moved (judge study, Section 7, Fig. 6).
"""

from backend.base.errors import LabError, OptionError
from backend.records.risk import RiskRecord, RiskRequest, sets_of
from backend.records.risk_gate import EVERY
from lab_app.pages.judge.form import KEY
from lab_app.ui import fields, html, text
from lab_app.ui.components import figure_view, payload
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from lab_app.visits.visits import Visit
from viz.base.format import escape
from viz.judge.risk_gate import trade_view, views

TRAINED = f"{KEY}-gate"
READS = ("gate_target", "gate_threshold")


def untrained(visit: Visit) -> Update:
    """A new set: what was learned of another one goes."""
    visit.pages.pop(TRAINED, None)
    return {"gate.visible": True, "gate_set.visible": False, "view_gate": payload(())} | show_error("")


def show_error(message: str) -> Update:
    """A message below the button, or none."""
    return {"gate_status": html.error(message) if message else ""}


def train(visit: Visit, given: Given) -> Update:
    """Train and test on the judged set, and show all figures."""
    from backend.judge.gate_training import risk_study

    if "judged" not in visit.results:
        return show_error(text.GATE_NO_SET)
    _, judged = visit.results["judged"]
    try:
        record = risk_study(sets_of(judged), RiskRequest(), judged.model)
    except LabError as error:
        return show_error(str(error))
    visit.pages[TRAINED] = record
    own = next((test.gate for test in record.tests if test.gate is not None), None)
    names = {EVERY: text.GATE_EVERY} | {label: label for label in record.methods}
    known = [(names[t.target], t.target) for t in record.tests if t.gate is not None]
    return show_error("") | {
        "gate_set.visible": own is not None,
        "gate_target.choices": known,
        "gate_target": own.target if own else None,
        "gate_threshold": round(own.threshold, 2) if own else 0.5,
        "view_gate": payload(views(record)),
    }


def chosen(visit: Visit, given: Given) -> Update:
    """Another gate: its own threshold."""
    record: RiskRecord | None = visit.pages.get(TRAINED)
    if record is None:
        return show_error(text.GATE_NO_SET)
    gate = next((t.gate for t in record.tests if t.target == given["gate_target"] and t.gate), None)
    if gate is None:
        return {}
    return moved(visit, {**given, "gate_threshold": gate.threshold}) | {
        "gate_threshold": round(gate.threshold, 2)
    }


def moved(visit: Visit, given: Given) -> Update:
    """Another threshold: what it keeps and what that costs."""
    record: RiskRecord | None = visit.pages.get(TRAINED)
    if record is None:
        return show_error(text.GATE_NO_SET)
    try:
        threshold = read_threshold(given["gate_threshold"])
    except OptionError as error:
        return show_error(str(error))
    known = [test.target for test in record.tests if test.gate is not None]
    target = given["gate_target"] if given["gate_target"] in known else EVERY
    first, *rest = views(record)
    drawn = [trade_view(record, threshold, target), first, *(v for v in rest if v.key != "risk_trade")]
    return show_error("") | {"view_gate": payload(drawn)}


def read_threshold(value: object) -> float:
    """A probability.

    Raises:
        OptionError: it is none.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise OptionError(
        f"The threshold is {str(value)[:20]!r}; 0 to 1 is allowed. Change it.", field="gate_threshold"
    )


def build(page: PageBuilder) -> None:
    """The widgets; hidden until a set was judged."""
    page.form(
        "gate",
        fields.panel(
            "",
            fields.note("", f'<h3 class="kv-card-title">{text.GATE}</h3>'),
            fields.help_text("", escape(text.GATE_HELP), ""),
            fields.row(
                fields.button("gate_train", text.GATE_TRAIN, primary=True, id=f"kv-{TRAINED}-train"),
                css="kv-measure",
            ),
            fields.note("gate_status", id=f"kv-{TRAINED}-status"),
            fields.panel(
                "gate_set",
                fields.row(
                    fields.select(
                        "gate_target", text.GATE_TARGET, [], "", event="select", id=f"kv-{TRAINED}-target"
                    ),
                    fields.number(
                        "gate_threshold", text.GATE_THRESHOLD, 0.5, step=0.01, slider=[0, 1],
                        id=f"kv-{TRAINED}-threshold",
                    ),
                    css="kv-measure",
                ),
                hidden=True,
            ),
            id=f"kv-{TRAINED}", css="kv-section",
        ),
        visible=False,
    )  # fmt: skip
    page.add(view_gate=figure_view(TRAINED, css="kv-own-view"))


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.on(page.event("gate_train"), train)
    page.on(page.event("gate_target"), chosen, *READS, latest=True)
    page.on(page["gate"].input, moved, *READS, latest=True)
