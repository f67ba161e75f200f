"""Below a judged set: a gate that predicts which verdicts survive reuse, and what it would gain.

It is trained on the set that was judged last and tested on other problems of it; its threshold can be moved
(judge study, Section 7, Fig. 6).
"""

from backend.base.errors import LabError, OptionError
from backend.records.risk import RiskRecord, RiskRequest, sets_of
from backend.records.risk_gate import EVERY
from lab_app.pages.judge.form import KEY, SET
from lab_app.ui import fields, html, text
from lab_app.ui.components import figure_view, payload
from lab_app.ui.page import PageBuilder
from lab_app.ui.types import Given, Update
from lab_app.visits.visits import Visit
from viz.base.format import escape
from viz.judge.risk_gate import trade_view, views

GATE_KEY = f"{KEY}-gate"
READS = ("gate_target", "gate_threshold")


def reset_gate(visit: Visit) -> Update:
    """Forget the gate of an earlier set."""
    visit.pages.pop(GATE_KEY, None)
    return {"gate.visible": True, "gate_set.visible": False, "view_gate": payload(())} | show_error("")


def show_error(message: str) -> Update:
    """A message below the button, or none."""
    return {"gate_status": html.error(message) if message else ""}


def train(visit: Visit, inputs: Given) -> Update:
    """Train and test on the judged set, and show all figures."""
    from backend.judge.gate_training import risk_study

    judged = visit.result(SET)
    if judged is None:
        return show_error(text.GATE_NO_SET)
    try:
        record = risk_study(sets_of(judged), RiskRequest(), judged.model)
    except LabError as error:
        return show_error(str(error))
    visit.pages[GATE_KEY] = record
    first = next((test.gate for test in record.tests if test.gate is not None), None)
    names = {EVERY: text.GATE_EVERY} | {label: label for label in record.methods}
    choices = [(names[t.target], t.target) for t in record.tests if t.gate is not None]
    return show_error("") | {
        "gate_set.visible": first is not None,
        "gate_target.choices": choices,
        "gate_target": first.target if first else None,
        "gate_threshold": round(first.threshold, 2) if first else 0.5,
        "view_gate": payload(views(record)),
    }


def choose_gate(visit: Visit, inputs: Given) -> Update:
    """Choose another gate, at its own threshold."""
    record: RiskRecord | None = visit.pages.get(GATE_KEY)
    if record is None:
        return show_error(text.GATE_NO_SET)
    gate = next((t.gate for t in record.tests if t.target == inputs["gate_target"] and t.gate), None)
    if gate is None:
        return {}
    return move_threshold(visit, {**inputs, "gate_threshold": gate.threshold}) | {
        "gate_threshold": round(gate.threshold, 2)
    }


def move_threshold(visit: Visit, inputs: Given) -> Update:
    """Choose another threshold, and show what it keeps and costs."""
    record: RiskRecord | None = visit.pages.get(GATE_KEY)
    if record is None:
        return show_error(text.GATE_NO_SET)
    try:
        threshold = read_threshold(inputs["gate_threshold"])
    except OptionError as error:
        return show_error(str(error))
    targets = [test.target for test in record.tests if test.gate is not None]
    target = inputs["gate_target"] if inputs["gate_target"] in targets else EVERY
    first, *rest = views(record)
    figures = [trade_view(record, threshold, target), first, *(v for v in rest if v.key != "risk_trade")]
    return show_error("") | {"view_gate": payload(figures)}


def read_threshold(value: object) -> float:
    """A probability.

    Raises:
        OptionError: it is no number from 0 to 1.
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
                fields.button("gate_train", text.GATE_TRAIN, primary=True, id=f"kv-{GATE_KEY}-train"),
                css="kv-measure",
            ),
            fields.note("gate_status", id=f"kv-{GATE_KEY}-status"),
            fields.panel(
                "gate_set",
                fields.row(
                    fields.select(
                        "gate_target", text.GATE_TARGET, [], "", event="select", id=f"kv-{GATE_KEY}-target"
                    ),
                    fields.number(
                        "gate_threshold", text.GATE_THRESHOLD, 0.5, step=0.01, slider=[0, 1],
                        id=f"kv-{GATE_KEY}-threshold",
                    ),
                    css="kv-measure",
                ),
                hidden=True,
            ),
            id=f"kv-{GATE_KEY}", css="kv-section",
        ),
        visible=False,
    )  # fmt: skip
    page.add(view_gate=figure_view(GATE_KEY, css="kv-own-view"))


def connect(page: PageBuilder) -> None:
    """What the widgets do."""
    page.on(page.event("gate_train"), train)
    page.on(page.event("gate_target"), choose_gate, *READS, latest=True)
    page.on(page["gate"].input, move_threshold, *READS, latest=True)
