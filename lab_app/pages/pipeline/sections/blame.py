"""The measurement in the Errors tab: which part of the cache changed the chosen agent's answer."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from markupsafe import Markup

from backend.base.errors import OptionError
from backend.methods.registry import make_options
from backend.records.blame import BLAME_LIMITS, BlameRecord, BlameRequest, exact_text
from lab_app.pages.pipeline.method_options import option_name, with_options
from lab_app.ui import fields, text
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.run_results import choices
from lab_app.ui.types import Given
from lab_app.ui.validation import NumberField
from lab_app.visits.visits import Visit
from viz.base.format import agent_name, clip, plural
from viz.base.theme import method_styles
from viz.studies.blame import views

BOXES = {"most_parts": "Most parts of a set", "passes": "Most passes", "draws": "Random sets"}
NUMBERS = {name: NumberField(label, *BLAME_LIMITS[name]) for name, label in BOXES.items()}
NO_RUN = "There is no run to look into. Run one first, with a method beside dense."


def boxes(section: Section) -> Sequence[Node]:
    """The boxes with their first values."""
    row = [section.number(name, field, getattr(BlameRequest, name)) for name, field in NUMBERS.items()]
    return [fields.row(*row, section.button(), css="kv-measure")]


def read(visit: Visit, inputs: Given) -> BlameRequest:
    """A checked request about the run on the screen.

    Raises:
        Problems: a box is wrong; OptionError: there is no run.
    """
    if visit.record is None:
        raise OptionError(NO_RUN, field="run")
    selection = choices(visit.record, inputs["pick_agent"], inputs["pick_method"], None)["selection"]
    reader = SECTION.reader(inputs)
    numbers = reader.numbers(NUMBERS)
    reader.check()
    return replace(BlameRequest(visit.record.request, selection.method, selection.agent), **numbers)


def facts(record: BlameRecord) -> str:
    """What was measured."""
    request = record.request
    agent = agent_name(request.run.pipeline, request.agent)
    return f"{agent} under {clip(method_name(request), 40)}, {plural(record.passes, 'pass', 'passes')}"


def method_name(request: BlameRequest) -> str:
    """The method's name on the page."""
    names = {m.label: m.name for m in request.run.methods}
    return method_styles((request.method,), names)[request.method].name


class BlameSection(Section):
    """A section whose result can become a column."""

    def act(self, record: BlameRecord) -> Markup:
        return repair_button(record)


def repair_button(record: BlameRecord) -> Markup:
    """The button that makes a column with the found parts exact (``assets/fields.js``); empty where nothing
    was found or the method's columns cannot be duplicated."""
    choice = next(m for m in record.request.run.methods if m.label == record.request.method)
    if record.found is None or choice.name not in with_options():
        return Markup()
    exact = ";".join(filter(None, (choice.exact, exact_text(record.request.agent, record.found.parts))))
    options = asdict(make_options(choice.name, choice.options))
    column = {
        "of": choice.name, "exact": exact,
        "values": {option_name(choice.name, key): value for key, value in options.items()},
    }  # fmt: skip
    tip = text.REPAIR_HELP.format(what=method_name(record.request))
    return Markup(
        '<button type="button" class="kv-button" data-kv="column" data-act="repair" data-label="{}" '
        'data-column="{}" data-tip="{}">{}</button>'
    ).format(choice.label, json.dumps(column), tip, text.REPAIR_THIS)


SECTION = BlameSection(
    "blame", "Which part of the cache changed this answer?",
    "For the agent and the method chosen above: puts the full read’s keys and values into its cache, "
    "segment by segment and layer by layer, and looks for the smallest set that brings the full "
    "read’s verdict back. A pass is one such cache and the answer from it.",
    boxes, read, views, facts, kind="blame", reads=("pick_agent", "pick_method"), tab="errors",
)  # fmt: skip
