"""The form as plain JSON values, for links and files, and back. Only what differs from the shipped scenario
is written. Every key that is read is checked, because a link or file may come from anybody."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from backend.base.errors import LabError, RecordError
from backend.base.text import check_text, show
from backend.prompts.presets import Example
from backend.records.blame import MOST_EXACT, exact_parts
from backend.records.request import control_values
from backend.records.run import RunRecord
from lab_app.pages.pipeline.form import CONTROLS, Copy, Form, read_pipeline, read_request, value_boxes
from lab_app.pages.pipeline.method_options import MOST_COPIES
from lab_app.ui.scenarios import find_preset

FORMAT = 1
#: Most entries of a table; as many boxes as the page has, and some.
MOST = 32
MOST_TEXT = 400_000  # characters of all texts
Body = dict[str, Any]


def form_to_json(form: Form, example: Example | None = None) -> Body:
    """The form as JSON values; with the known answer while its values are those of ``example``."""
    preset = find_preset(form.preset)
    agents = preset.pipeline.agents
    body: Body = {"format": FORMAT, "preset": form.preset, "values": dict(form.values)}
    templates = {str(a.id): t for a, t in zip(agents, form.templates, strict=False) if t != a.template}
    weights = {str(a.id): w for a, w in zip(agents, form.weights, strict=False) if w != a.model}
    options = {name: _changed(name, values) for name, values in form.options.items()}
    body |= {"templates": templates, "weights": weights, "options": {n: o for n, o in options.items() if o}}
    if form.declared != ", ".join(preset.pipeline.declared):
        body["declared"] = form.declared
    body["methods"] = list(form.methods)
    usual = Form("", {}, (), max_new_tokens=preset.pipeline.longest_answer, turns=preset.pipeline.turns)
    for name in ("ablate", "every_profile", *CONTROLS):
        value = getattr(form, name)
        if value != getattr(usual, name) and (name != "turns" or value is not None):
            # an empty box is written as null
            body[name] = list(value) if isinstance(value, tuple) else None if value == "" else value
    body["copies"] = [
        {"method": c.method, "number": c.number, "options": _changed(c.method, c.options)}
        | ({"exact": c.exact} if c.exact else {})
        for c in form.copies
    ]
    body["pinned"] = form.pinned
    same = example and example.matches(form.values)
    if example and same and example.answer is not None:
        body["known"] = example.answer
    return {key: value for key, value in body.items() if value not in ({}, "") and (value or key != "copies")}


def form_from_json(body: Any) -> tuple[Form, Example | None]:
    """The inverse of :func:`form_to_json`: a form, and the example with its known answer.

    The form may be one that cannot be run; the page says so beside its boxes.

    Raises:
        RecordError: a key or value is not valid in a form.
    """
    try:
        return _read(body)
    except RecordError:
        raise
    except LabError as error:
        raise RecordError(f"This bench cannot be opened. {error}") from None


def from_record(record: RunRecord) -> Body | None:
    """The form that makes exactly a record's request; None where no form does."""
    request = record.request
    pipeline = request.pipeline
    options = {m.name: dict(m.options) for m in request.methods if m.name == m.label}
    copies = [(m, m.label.removeprefix(f"{m.name} ")) for m in request.methods]
    form = Form(
        pipeline.name, dict(request.values), tuple(a.template for a in pipeline.agents),
        ", ".join(pipeline.declared), tuple(name for name in options if name != "dense"), options,
        turns=pipeline.turns, weights=tuple(a.model for a in pipeline.agents),
        copies=tuple(Copy(m.name, int(n), dict(m.options), m.exact) for m, n in copies if n.isdecimal()),
        **control_values(request),
    )  # fmt: skip
    example = Example(dict(request.values), request.expected)
    try:
        same = request_key(read_request(form, example)) == request_key(request)
        return form_to_json(form, example) if same else None
    except LabError:
        return None


def request_key(request: Any) -> tuple[Any, ...]:
    """What a request asks for, default options filled in; for comparing two requests."""
    from backend.methods.registry import make_options

    methods = [
        (m.name, m.label, dataclasses.asdict(make_options(m.name, m.options)), m.exact)
        for m in request.methods
    ]
    return request.pipeline, dict(request.values), methods, request.mode, request.decoding, request.expected


def _options(name: str) -> dict[str, Any]:
    """A method's options, by name, with their fields."""
    from backend.methods.registry import method_class, option_fields

    return {option.name: option for option in option_fields(method_class(name))}


def _changed(name: str, values: Mapping[str, Any]) -> Body:
    fields = _options(name)
    return {k: value for k, value in values.items() if k not in fields or value != fields[k].default}


# -- reading -------------------------------------------------------------------------------------------------


def _read(body: Any) -> tuple[Form, Example | None]:
    from backend.methods.registry import method_names

    table = _table(body, "The bench", KEYS)
    if table.get("format") != FORMAT:
        raise RecordError(
            f"This bench has format {show(table.get('format'))}; this version of the lab reads format "
            f"{FORMAT}."
        )
    preset = find_preset(table.get("preset"))
    agents = preset.pipeline.agents
    ids = [str(agent.id) for agent in agents]
    texts = [_texts(table.get(key, {}), key) for key in ("values", "templates", "weights")]
    if sum(len(t) for part in texts for t in part.values()) > MOST_TEXT:
        raise RecordError(f"The texts of this bench have more than {MOST_TEXT:,} characters in all.")
    values, templates, weights = texts
    for name in (*templates, *weights):
        if name not in ids:
            raise RecordError(f"This bench names the agent {show(name)}; there are {', '.join(ids)}.")
    names = method_names()
    every = {name: _options(name) for name in names}
    options = {n: {key: o.default for key, o in fields.items()} for n, fields in every.items() if fields}
    for name, changed in _table(table.get("options", {}), "The options", names).items():
        for key, value in _table(changed, f"The options of {name}", tuple(every[name])).items():
            options[name][key] = _option(value, every[name][key], f"{name}.{key}")
    controls: Body = {"max_new_tokens": preset.pipeline.longest_answer, "turns": preset.pipeline.turns}
    controls |= {key: _control(table[key], kind, key) for key, kind in CONTROLS.items() if key in table}
    if controls["turns"] is None:
        controls["turns"] = ""  # in a form, None is the scenario's own number
    declared = check_text(
        table.get("declared", ", ".join(preset.pipeline.declared)), "The declared names", "", 2000
    )
    form = Form(
        preset.pipeline.name, values, tuple(templates.get(str(a.id), a.template) for a in agents), declared,
        _names(table.get("methods", []), "methods", names), options,
        _names(table.get("ablate", []), "ablate", names),
        every_profile=_names(table.get("every_profile", []), "every_profile", names),
        weights=tuple(weights.get(str(a.id), a.model) for a in agents), **controls,
        copies=_copies(table.get("copies", []), every),
        pinned=check_text(table.get("pinned", ""), "The pinned column", "", 100),
    )  # fmt: skip
    answer = table.get("known")
    example = None if answer is None else Example(values, check_text(answer, "The known answer", "", 2000))
    return ordered(form), example


def _copies(value: Any, every: Mapping[str, Mapping[str, Any]]) -> tuple[Copy, ...]:
    """The duplicated columns of a file or link."""
    if not isinstance(value, list) or len(value) > MOST_COPIES:
        raise RecordError(f"copies must be a list of up to {MOST_COPIES} columns; this is {show(value)}.")
    out: list[Copy] = []
    for entry in value:
        table = _table(entry, "A duplicated column", ("method", "number", "options", "exact"))
        name, number = table.get("method"), table.get("number")
        if not isinstance(name, str) or not every.get(name):
            raise RecordError(f"A duplicated column is of {show(name)}, which is no method with options.")
        numbers = [c.number for c in out if c.method == name]
        if type(number) is not int or not 2 <= number <= 99 or number in numbers:
            raise RecordError(
                f"A duplicated column has the number {show(number)}; allowed are 2 to 99, once."
            )
        options = {key: o.default for key, o in every[name].items()}
        changed = _table(table.get("options", {}), f"The options of {name}", tuple(every[name]))
        for key, setting in changed.items():
            options[key] = _option(setting, every[name][key], f"{name}.{key}")
        exact = check_text(table.get("exact", ""), "A repaired part", "", MOST_EXACT)
        exact_parts(exact)
        out.append(Copy(name, number, options, exact))
    return tuple(out)


def ordered(form: Form) -> Form:
    """The form with its values in the order of the pipeline's boxes, if its templates can be read."""
    try:
        boxes = value_boxes(read_pipeline(form))
    except (LabError, ValueError):
        return form
    return dataclasses.replace(form, values={name: form.values.get(name, "") for name in boxes})


KEYS = (
    "format", "preset", "values", "templates", "weights", "declared", "methods", "options", "ablate",
    "every_profile", *CONTROLS, "known", "copies", "pinned",
)  # fmt: skip


def _table(value: Any, what: str, allowed: tuple[str, ...]) -> Body:
    if not isinstance(value, dict):
        raise RecordError(f"{what} is {show(value)}, which is no table of names.")
    for key in value:
        if key not in allowed:
            raise RecordError(
                f"{what} of this file or link holds {show(key)}, which this version of the lab does not know."
            )
    return value


def _texts(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST:
        raise RecordError(f"{what} must be a table of up to {MOST} texts; this is {show(value)}.")
    return {
        check_text(k, "A name", what, 100): check_text(v, f"{what}.{k[:40]}", what) for k, v in value.items()
    }


def _names(value: Any, what: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(value, list) or any(v not in allowed or v == "dense" for v in value if _text(v, what)):
        raise RecordError(f"{what} is {show(value)}; allowed are {', '.join(allowed[1:])}.")
    return tuple(dict.fromkeys(value))


def _text(value: Any, what: str) -> bool:
    if not isinstance(value, str):
        raise RecordError(f"{what} holds {show(value)}, which is no name.")
    return True


def _control(value: Any, kind: str | tuple[str, ...], what: str) -> Any:
    if kind == "number":
        return _number(value, what)
    if kind == "flag":
        return _flag(value, what)
    if value not in kind:
        raise RecordError(f"The {what} of this bench is {show(value)}; allowed are {', '.join(kind)}.")
    return value


def _option(value: Any, option: Any, what: str) -> Any:
    if option.kind == "bool":
        return _flag(value, what)
    if option.kind == "choice":
        if value not in option.choices:
            raise RecordError(f"{what} is {show(value)}; allowed are {', '.join(option.choices)}.")
        return value
    return _number(value, what)


def _flag(value: Any, what: str) -> bool:
    if not isinstance(value, bool):
        raise RecordError(f"{what} is {show(value)}; allowed are true and false.")
    return value


def _number(value: Any, what: str) -> float | int | None:
    """A finite number; None for an empty box."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordError(f"{what} is {show(value)}, which is no number.")
    if abs(value) > 1e12:
        raise RecordError(f"{what} is {value:g}, which no option allows.")
    return value
