"""Puts errors beside their boxes on the form."""

from backend.base.errors import LabError
from backend.prompts.template import agent_and_turn
from lab_app.pages.pipeline.form import Form
from lab_app.pages.pipeline.state import state_of
from lab_app.ui import html
from lab_app.ui.scenarios import find_preset
from lab_app.ui.types import Update
from lab_app.ui.validation import problems_of
from lab_app.visits.visits import Visit


def problems(error: LabError | None, visit: Visit | None = None, form: Form | None = None) -> Update:
    """Messages beside their fields; those without a field stand under the Run button."""
    grouped: dict[str, str] = {}
    for problem in problems_of(error):
        slot = slot_of(problem.field, visit, form)
        grouped[slot] = grouped.get(slot, "") + html.error(problem.message)
    return {"errors": grouped}


def slot_of(field: str, visit: Visit | None, form: Form | None) -> str:
    """The error slot of a request's field, such as the third card for ``agents.3.template``."""
    head, _, path = field.partition(".")
    name = path.partition(".")[0]
    if head == "agents" and form is not None and name:
        ids = [str(agent.id) for agent in find_preset(form.preset).pipeline.agents]
        name = str(agent_and_turn(int(name))[0]) if name.isdecimal() else name  # all its turns share one card
        return f"agent_{ids.index(name)}" if name in ids else "agents"
    if head == "values" and visit is not None:
        names = state_of(visit).value_names
        return f"value_{names.index(name)}" if name in names else "value_0"
    return head or "run"
