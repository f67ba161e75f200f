"""Reads the form into a checked :class:`RunRequest`. Needs no web framework."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from backend.base.errors import OptionError
from backend.base.text import show
from backend.prompts.pipeline import MAX_TURNS, Pipeline
from backend.prompts.presets import Example, Preset
from backend.prompts.template import QUESTION
from backend.records.request import CONTROLS as REQUEST_CONTROLS
from backend.records.request import Decoding, MethodChoice, RunRequest, with_controls
from lab_app.ui.method_choice import copy_label, read_methods
from lab_app.ui.scenarios import USUAL_WARM, WARM_LIMIT, find_preset
from lab_app.ui.validation import FormReader, NumberField, Problem, Problems

FORM = "form"  # the view that gives a handler the whole form
PICKERS = ("pick_agent", "pick_method", "pick_segment")  # the lists that choose what the results show
Picks = tuple[Any, Any, Any]  # the chosen agent, method and segment
MANY_LIMIT = 50
MANY_COUNT = NumberField("The number of requests", 1, MANY_LIMIT)
WARM_COUNT = NumberField("The number of requests", 1, WARM_LIMIT)
TURNS = NumberField("The number of turns", 1, MAX_TURNS)


@dataclass(frozen=True)
class Copy:
    """A duplicated column of a method, with its own options; ``number`` distinguishes the method's columns.
    ``exact``: parts of its caches that are the full read's (:class:`MethodChoice`)."""

    method: str
    number: int
    options: Mapping[str, Any]
    exact: str = ""

    @property
    def label(self) -> str:
        """Its name in a run."""
        return copy_label(self.method, self.number)


#: One field for each control that a request declares (:mod:`backend.records.control`), as typed.
RequestControls = dataclasses.make_dataclass(
    "RequestControls",
    [(key, Any, field(default=c.default, kw_only=True)) for key, c in REQUEST_CONTROLS.items()],
    frozen=True,
)
#: Marks a field as a control of this page alone, by what it holds: a number or a switch.
NUMBER = {"control": "number"}
FLAG = {"control": "flag"}


@dataclass(frozen=True)
class Form(RequestControls):  # type: ignore[misc, valid-type]  # the fields exist only at run time
    """The form's values, as typed: they may be invalid."""

    preset: str
    values: Mapping[str, str]
    templates: tuple[str, ...]
    declared: str = ""
    methods: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ablate: tuple[str, ...] = ()
    warm: bool = field(default=True, metadata=FLAG)
    warm_count: Any = field(default=USUAL_WARM, metadata=NUMBER)
    warm_own: bool = field(default=False, metadata=FLAG)
    many_count: Any = field(default=10, metadata=NUMBER)
    every_profile: tuple[str, ...] = ()
    turns: Any = field(default=None, metadata=NUMBER)  # None: the scenario's own
    weights: tuple[str, ...] = ()  # by agent; "": the lab's own; missing: the scenario's
    copies: tuple[Copy, ...] = ()
    pinned: str = ""  # label of the column that the others are compared with, if any


#: The kind of each control, by the name that it has on the page and in links, drafts and files.
CONTROLS = {key: control.kind for key, control in REQUEST_CONTROLS.items()}
CONTROLS |= {f.name: f.metadata["control"] for f in dataclasses.fields(Form) if "control" in f.metadata}


def as_shipped(preset: Preset, request: RunRequest, warm: int) -> bool:
    """Whether a warm-up by ``warm`` requests is the same for every visitor: templates, decoding and number
    are the scenario's."""
    usual = Decoding(max_new_tokens=preset.pipeline.longest_answer)
    return (request.pipeline, request.decoding, warm) == (preset.pipeline.unrolled, usual, USUAL_WARM)


def read_pipeline(form: Form) -> Pipeline:
    """The preset's pipeline with the edited templates and the chosen weights.

    Raises:
        PromptError: with the template in ``field``.
    """
    base = find_preset(form.preset).pipeline
    names = tuple(n for n in (part.strip().strip("{}") for part in str(form.declared or "").split(",")) if n)
    models = form.weights + tuple(agent.model for agent in base.agents[len(form.weights) :])
    agents = tuple(
        dataclasses.replace(agent, template=template, model=model)
        for agent, template, model in zip(base.agents, form.templates, models, strict=False)
    )
    turns = base.turns
    if form.turns is not None:
        turns = TURNS.read(form.turns, "turns")
    return dataclasses.replace(base, agents=agents, declared=names, turns=turns)


def value_boxes(pipeline: Pipeline) -> tuple[str, ...]:
    """The outside placeholders in the order of their boxes: the question, then the others."""
    first = tuple(name for name in pipeline.inputs if name == QUESTION)
    return first + tuple(name for name in pipeline.inputs if name != QUESTION)


def read_controls(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check typed values of controls, by key: the fields of a request that they set."""
    settings: dict[str, Any] = {}
    problems = []
    for key, value in values.items():
        control = REQUEST_CONTROLS[key]
        where = f"decoding.{key}" if control.kind == "number" else key
        try:
            if control.kind == "number":
                whole = isinstance(control.default, int)
                value = NumberField(control.called, *control.limits, whole=whole).read(value, where)
            elif control.choices and value not in control.choices:
                allowed = " or ".join(control.choices)
                raise OptionError(f"There is no {key} {show(value)}. Choose {allowed}.", field=where)
            settings[key] = value
        except OptionError as error:
            problems.append(Problem(where, str(error)))
    if problems:
        raise Problems(problems)
    return with_controls(settings)


def read_request(form: Form, example: Example | None = None) -> RunRequest:
    """Check the form and make its request.

    Args:
        example: the request of the set that was put on the form; its known answer is expected while the
            form's values are the example's.

    Raises:
        Problems: everything that is wrong, each with its field.
    """
    reader = FormReader({})
    attempt = partial(reader.attempt, str)  # each message beside the box that it names
    pipeline = attempt(lambda: read_pipeline(form))
    values: Any = None
    if pipeline is not None:
        values = attempt(lambda: pipeline.check_values({n: form.values.get(n, "") for n in pipeline.inputs}))
    methods = attempt(lambda: chosen_methods(form))
    controls = attempt(lambda: read_controls({key: getattr(form, key) for key in REQUEST_CONTROLS}))
    reader.check()
    same = example is not None and example.matches(values)
    expected = example.answer if example and same else None
    return RunRequest(pipeline, values, methods, **controls, expected=expected)


VALUE_SLOTS = 12
AGENT_SLOTS = 8


@dataclass(frozen=True)
class Box:
    """A value box. ``text``: None keeps its content; ``lined``: the text has several lines."""

    label: str
    text: str | None
    lined: bool
    required: bool


def chosen_methods(form: Form) -> tuple[MethodChoice, ...]:
    """The form's methods with checked options, and the columns that its switches add."""
    copies = [MethodChoice(copy.method, copy.options, copy.label, copy.exact) for copy in form.copies]
    return read_methods(form.methods, form.options, form.ablate, form.every_profile, copies)
