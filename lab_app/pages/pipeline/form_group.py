"""The boxes that make the form, in the order in which the browser sends them, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lab_app.pages.pipeline.form import AGENT_SLOTS, VALUE_SLOTS, Form
from lab_app.pages.pipeline.rules import Panels
from lab_app.pages.pipeline.state import state
from lab_app.ui.page import InputGroup
from lab_app.visits.visits import Visit

#: Boxes whose name on the page is that of the form's field.
PLAIN = (
    "preset", "declared", "methods", "mode", "max_new_tokens", "temperature", "top_p", "seed", "warm",
    "warm_count", "many_count", "turns", "attention",
)  # fmt: skip
SLOTS = {"value": VALUE_SLOTS, "template": AGENT_SLOTS, "weights": AGENT_SLOTS}
NAMES = (*PLAIN, *(f"{kind}_{slot}" for kind, count in SLOTS.items() for slot in range(count)))


def form_boxes(page: Panels) -> list[Any]:
    """The widgets that make a :class:`Form`: those of :data:`NAMES`, then the methods' options."""
    found = [page[name] for name in NAMES]
    for panel in page.panels.values():
        found += panel.options.values()
        found += [box for box in (panel.ablate, panel.every_profile) if box is not None]
    return found


def read_form(page: Panels, visit: Visit, sent: Sequence[Any]) -> Form:
    """The form as the browser sent it."""
    given, rest = dict(zip(NAMES, sent, strict=False)), iter(sent[len(NAMES) :])
    options: dict[str, dict[str, Any]] = {}
    ablate: list[str] = []
    every_profile: list[str] = []
    for name, panel in page.panels.items():
        options[name] = {option: next(rest) for option in panel.options}
        if panel.ablate is not None and next(rest):
            ablate.append(name)
        if panel.every_profile is not None and next(rest):
            every_profile.append(name)

    def texts(kind: str) -> tuple[str, ...]:
        return tuple(str(given[f"{kind}_{slot}"] or "") for slot in range(SLOTS[kind]))

    return Form(
        preset=str(given["preset"]),
        values=dict(zip(state(visit).value_names, texts("value"), strict=False)),
        templates=texts("template"),
        declared=str(given["declared"] or ""),
        methods=tuple(given["methods"] or ()),
        options=options,
        ablate=tuple(ablate),
        mode=str(given["mode"]),
        max_new_tokens=given["max_new_tokens"],
        temperature=given["temperature"],
        top_p=given["top_p"],
        seed=given["seed"],
        warm=bool(given["warm"]),
        warm_count=given["warm_count"],
        many_count=given["many_count"],
        every_profile=tuple(every_profile),
        turns="" if given["turns"] is None else given["turns"],
        weights=texts("weights"),
        attention=bool(given["attention"]),
    )


def form_group(page: Panels) -> InputGroup:
    """The form, for handlers that ask for all of it."""
    return InputGroup(form_boxes(page), lambda visit, sent: read_form(page, visit, sent))


def options_group(page: Panels) -> InputGroup:
    """The methods' options alone, by method."""
    boxes = [box for panel in page.panels.values() for box in panel.options.values()]

    def read(visit: Visit, sent: Sequence[Any]) -> dict[str, dict[str, Any]]:
        rest = iter(sent)
        return {
            panel.name: {option: next(rest) for option in panel.options} for panel in page.panels.values()
        }

    return InputGroup(boxes, read)
