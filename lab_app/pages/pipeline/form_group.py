"""The boxes that make the form, and how they are read."""

from typing import Any

from lab_app.pages.pipeline.form import AGENT_SLOTS, CONTROLS, VALUE_SLOTS, Copy, Form
from lab_app.pages.pipeline.method_options import adds_columns, option_name, options_of, read_options
from lab_app.pages.pipeline.state import state_of
from lab_app.ui.page import InputView, PageBuilder
from lab_app.ui.types import Given
from lab_app.visits.visits import Visit

#: Boxes whose name on the page is that of the form's field.
PLAIN = ("preset", "declared", "methods", *CONTROLS)
SLOTS = {"value": VALUE_SLOTS, "template": AGENT_SLOTS, "weights": AGENT_SLOTS}
NAMES = (*PLAIN, *(f"{kind}_{slot}" for kind, count in SLOTS.items() for slot in range(count)))


def read_form(visit: Visit, inputs: Given) -> Form:
    """The form as the browser sent it."""

    def texts(kind: str) -> tuple[str, ...]:
        return tuple(str(inputs[f"{kind}_{slot}"] or "") for slot in range(SLOTS[kind]))

    def methods_with(kind: str) -> tuple[str, ...]:
        return tuple(name for name in adds_columns()[kind] if inputs[option_name(name, kind)])

    controls = {name: _as(kind, inputs[name]) for name, kind in CONTROLS.items()}
    plain = controls | {
        "preset": str(inputs["preset"]),
        "declared": str(inputs["declared"] or ""),
        "methods": tuple(inputs["methods"] or ()),
        "turns": "" if inputs["turns"] is None else inputs["turns"],
    }
    return Form(
        values=dict(zip(state_of(visit).value_names, texts("value"), strict=False)),
        templates=texts("template"), weights=texts("weights"), options=options_of(inputs),
        ablate=methods_with("ablate"), every_profile=methods_with("every_profile"),
        pinned=str(inputs["pinned"]),
        copies=tuple(
            Copy(c["of"], c["number"], read_options(c["of"], c["values"]), c["exact"])
            for c in inputs["copies"]
        ),
        **plain,
    )  # fmt: skip


def _as(kind: str | tuple[str, ...], value: Any) -> Any:
    """A control's value by its kind; numbers are checked with the request."""
    return bool(value) if kind == "flag" else value if kind == "number" else str(value)


def form_view(page: PageBuilder) -> InputView:
    """The form, for handlers that ask for all of it."""
    return InputView(page, (*NAMES, *page.fields["options"].values), read_form)


def options_view(page: PageBuilder) -> InputView:
    """The methods' options alone, by method."""
    return InputView(page, tuple(page.fields["options"].values), lambda visit, inputs: options_of(inputs))
