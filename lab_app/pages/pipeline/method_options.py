"""Fields made from a method's options, so that a new method needs no code here."""

import dataclasses
from typing import Any

from backend.methods.registry import make_options, method_class, method_names, option_fields, profile_options
from backend.records.blame import MOST_EXACT
from lab_app.pages.pipeline import html as pipeline_html
from lab_app.ui import fields, text
from lab_app.ui.fields import Node
from lab_app.ui.method_choice import MOST_COLUMNS, standing
from viz.base.format import escape

MOST_COPIES = MOST_COLUMNS - 2


def option_name(method: str, option: str) -> str:
    """The name of an option's field."""
    return f"{method}:{option}"


def read_options(method: str, inputs: Any) -> dict[str, Any]:
    """A method's options; ``inputs`` holds them by their fields' names."""
    return {o.name: inputs[option_name(method, o.name)] for o in option_fields(method_class(method))}


def options_of(inputs: Any) -> dict[str, dict[str, Any]]:
    """The options of every method, by method; ``inputs`` holds them by their fields' names."""
    return {name: read_options(name, inputs) for name in with_options()}


def copied_panels() -> Node:
    """The duplicated columns, each with the panel of its method."""
    titles = {name: method_class(name).title for name in with_options()}
    return fields.copies(
        "copies", read_copies, id="kv-copies", titles=titles, most=MOST_COPIES, repaired=text.REPAIRED
    )


def read_copies(value: Any) -> list[dict[str, Any]]:
    """Duplicated columns as a browser sent them, without the invalid ones."""
    out: list[dict[str, Any]] = []
    for entry in value[:MOST_COPIES] if isinstance(value, list) else ():
        column = entry if isinstance(entry, dict) else {}
        method, number, values, exact = (column.get(key) for key in ("of", "number", "values", "exact"))
        if method not in with_options() or type(number) is not int or not 2 <= number <= 99:
            continue
        if any((c["of"], c["number"]) == (method, number) for c in out):
            continue
        texts = values if isinstance(values, dict) else {}
        boxes = [option_field(method, option) for option in option_fields(method_class(method))]
        options = {box.name: box.read(texts.get(box.name, box.value)) for box in boxes}
        exact = exact[:MOST_EXACT] if isinstance(exact, str) else ""
        out.append({"of": method, "number": number, "values": options, "exact": exact})
    return out


def with_options() -> tuple[str, ...]:
    """The methods that have options."""
    return tuple(name for name in method_names() if option_fields(method_class(name)))


def switches_of(method: str) -> list[Any]:
    """The switches of a method's alignment steps."""
    return [f for f in option_fields(method_class(method)) if f.kind == "bool" and not f.advanced]


def adds_columns() -> dict[str, dict[str, int]]:
    """How many columns the switches that add some can add, by kind and method."""
    profiles = {name: len(method_class(name).profiles) for name in with_options()}
    switches = {name: len(switches_of(name)) for name in with_options()}
    return {
        "every_profile": {name: count for name, count in profiles.items() if count},
        "ablate": {name: count for name, count in switches.items() if count > 1},
    }


def option_field(method: str, option: Any) -> Node:
    """One option as a field of its kind."""
    name = option_name(method, option.name)
    look: dict[str, Any] = {"id": f"kv-option-{method}-{option.name}"}
    info = f"{option.help} ({option.paper})" if option.paper else option.help
    if option.kind == "bool":
        return fields.switch(name, option.label, option.default, help=info, **look)
    if option.kind == "choice":
        choices = [(str(value), value) for value in option.choices]
        return fields.choice(name, option.label, choices, option.default, help=info, **look)
    span = f" {option.minimum:g} to {option.maximum:g}." if option.minimum is not None else ""
    step = 1 if option.kind == "int" else 0.05
    if option.maximum is not None and (option.maximum <= 256):  # a slider needs a short range
        most = min(option.maximum, 64 if option.kind == "int" else 2)
        look["slider"] = [option.minimum, most]
    return fields.number(name, option.label, option.default, help=info + span, step=step, **look)


def method_panel(method: str, shown: bool) -> Node:
    """All options of a method: profiles, switches, numbers, choices; advanced ones are folded away. Below
    them stand the switches that add columns and the place for messages."""
    cls = method_class(method)
    every = option_fields(cls)
    basic, folded = ([f for f in every if f.advanced == later] for later in (False, True))
    words = f"<b>{escape(cls.title)}.</b> {escape(cls.summary)}"
    items = [fields.note("", f'<p class="kv-panel-title">{words}</p>')]
    if cls.profiles:
        settings = [(profile.title, _settings(method, key)) for key, profile in cls.profiles.items()]
        place, look = f"kv-profile-{method}", "kv-profile"
        items.append(fields.profiles(text.PROFILE, settings, help=text.PROFILE_HELP, id=place, css=look))
        note, place = pipeline_html.profile_note(standing(method, {})), f"kv-profile-note-{method}"
        items.append(fields.note(f"profile_note_{method}", note, id=place, css="kv-profile-note"))
    items += _arranged(method, basic)
    if folded:
        rows = _arranged(method, folded)
        more = fields.fold(f"more_{method}", text.MORE_OPTIONS, *rows, id=f"kv-more-{method}", css="kv-more")
        items.append(more)
    labels = {"every_profile": text.EVERY_PROFILE, "ablate": text.ABLATE}
    for kind, methods in adds_columns().items():
        if method in methods:
            place = f"kv-{kind.replace('_', '-')}-{method}"
            words = f"Adds up to {methods[method]} columns."
            items.append(
                fields.switch(option_name(method, kind), labels[kind], help=words, id=place, css="kv-adds")
            )
    items.append(fields.message(method, f"panel-{method}"))
    name, place = f"panel_{method}", f"kv-panel-{method}"
    return fields.panel(name, *items, hidden=not shown, id=place, css="kv-method-panel")


def _settings(method: str, profile: str) -> dict[str, Any]:
    """The value of each option under a profile, by the options' field names."""
    options = dataclasses.asdict(make_options(method, profile_options(method, profile)))
    return {option_name(method, name): value for name, value in options.items()}


def _arranged(method: str, options: list[Any]) -> list[Node]:
    """Switches, numbers in a row, then choices."""
    switches, numbers, choices = (
        [option_field(method, option) for option in options if option.kind in kinds] for kinds in KINDS
    )
    return [*switches, *([fields.row(*numbers, css="kv-numbers")] if numbers else []), *choices]


KINDS = (("bool",), ("int", "float"), ("choice",))
