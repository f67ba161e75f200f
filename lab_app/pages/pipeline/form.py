"""From what stands on the bench to a checked :class:`RunRequest`. Free of the web framework."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.base.errors import LabError, OptionError, PromptError
from backend.prompts.pipeline import MAX_TURNS, Pipeline
from backend.prompts.presets import Example, Preset, load_preset, preset_names
from backend.prompts.template import QUESTION
from backend.records.run import Decoding, MethodChoice, RunRequest

MOST_COLUMNS = 8
WARM_LIMIT, USUAL_WARM = 200, 20  # requests for the pools: at most, and as the page offers it
MANY_LIMIT = 50
DECODING: dict[str, tuple[str, float, float, bool]] = {
    "max_new_tokens": ("The longest answer", 1, 4096, True),
    "temperature": ("The temperature", 0.0, 5.0, False),
    "top_p": ("Top-p", 0.01, 1.0, False),
    "seed": ("The seed", 0, 2**31 - 1, True),
}


@dataclass(frozen=True)
class Problem:
    """One message and the input it is about (``""``: none in particular)."""

    field: str
    message: str


class Problems(LabError):
    """Everything that is wrong with the bench at once."""

    def __init__(self, found: Sequence[Problem]) -> None:
        super().__init__(found[0].message, field=found[0].field or None)
        self.found = tuple(found)


@dataclass(frozen=True)
class Form:
    """The bench as it stands. ``templates`` and ``values`` are as typed, and may be wrong."""

    preset: str
    values: Mapping[str, str]
    templates: tuple[str, ...]
    declared: str = ""
    methods: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    ablate: tuple[str, ...] = ()
    mode: str = "pinned"
    max_new_tokens: Any = 96
    temperature: Any = 0.0
    top_p: Any = 1.0
    seed: Any = 0
    warm: bool = True
    warm_count: Any = USUAL_WARM
    many_count: Any = 10
    every_profile: tuple[str, ...] = ()
    turns: Any = None  # as the scenario ships
    weights: tuple[str, ...] = ()  # of each agent, empty: the lab's own; where none is given, as it ships
    attention: bool = False


def find_preset(name: object) -> Preset:
    """A preset that ships with the lab; paths are not taken from the page."""
    if name not in preset_names():
        raise PromptError(f"There is no scenario {str(name)[:60]!r}. Choose one of the list.", field="preset")
    return load_preset(str(name))


def as_shipped(preset: Preset, request: RunRequest, warm: int) -> bool:
    """Whether nothing that ``warm`` requests of the scenario's set leave is a visitor's own: templates,
    decoding and their number are the usual ones."""
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
        turns = int(read_number(form.turns, "The number of turns", 1, MAX_TURNS, True, "turns"))
    return dataclasses.replace(base, agents=agents, declared=names, turns=turns)


def value_boxes(pipeline: Pipeline) -> tuple[str, ...]:
    """The outside placeholders in the order of their boxes: the question, then the others."""
    first = tuple(name for name in pipeline.inputs if name == QUESTION)
    return first + tuple(name for name in pipeline.inputs if name != QUESTION)


def read_decoding(form: Form) -> Decoding:
    """Decoding settings in their ranges."""
    found: dict[str, Any] = {}
    problems = []
    for name, (label, low, high, whole) in DECODING.items():
        try:
            found[name] = read_number(getattr(form, name), label, low, high, whole, f"decoding.{name}")
        except OptionError as error:
            problems.append(Problem(f"decoding.{name}", str(error)))
    if problems:
        raise Problems(problems)
    return Decoding(**found)


def read_number(value: Any, label: str, low: float, high: float, whole: bool, where: str) -> float | int:
    """A number in its range."""
    allowed = f"allowed: {low:g} to {high:g}{', whole numbers' if whole else ''}"
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise OptionError(
            f"{label} is {'empty' if value in (None, '') else repr(value)[:40]}; {allowed}. Give a number.",
            field=where,
        )
    if not low <= value <= high or (whole and value != int(value)):
        raise OptionError(f"{label} is {value:g}; {allowed}. Change it.", field=where)
    return int(value) if whole else float(value)


def read_methods(form: Form, most: int = MOST_COLUMNS) -> tuple[MethodChoice, ...]:
    """The chosen methods with checked options, dense first, and the ablations asked for; up to ``most``."""
    from backend.methods.registry import make_options, method_names

    for name in form.methods:
        if name not in method_names():
            raise OptionError(
                f"There is no method {str(name)[:40]!r}. Choose among the chips.", field="methods"
            )
    out: list[MethodChoice] = []
    problems: list[Problem] = []
    for name in method_names():
        if name != "dense" and name not in form.methods:
            continue
        given = dict(form.options.get(name, {}))
        try:
            problems += blanks(name, given)
            options = dataclasses.asdict(make_options(name, given)) if not problems else {}
        except LabError as error:
            problems.append(Problem(error.field or "methods", str(error)))
            continue
        out.append(MethodChoice(name, options))
        if name in form.every_profile:
            out += other_profiles(name, options)
        if name in form.ablate:
            out += ablations(name, options)
    if problems:
        raise Problems(problems)
    if len(out) > most:
        raise too_many(form, out, most)
    return tuple(out)


def too_many(form: Form, out: Sequence[MethodChoice], most: int) -> OptionError:
    """Says where the columns come from, beside the switches that add them if there are any."""
    bare = len({choice.name for choice in out})
    adding = [name for name in (*form.every_profile, *form.ablate) if name in form.methods]
    more = f", and {len(out) - bare} by “Also run”" if len(out) > bare else ""
    remedy = "Turn one of these switches off, or leave a method out." if more else "Leave a method out."
    return OptionError(
        f"That makes {len(out)} columns ({bare} methods with dense{more}); up to {most} can be "
        f"compared. {remedy}",
        field=f"{adding[0]}.columns" if more else "methods",
    )


def blanks(name: str, given: Mapping[str, Any]) -> list[Problem]:
    """Options whose box is empty."""
    from backend.methods.registry import method_class, option_fields

    labels = {f.name: f.label for f in option_fields(method_class(name))}
    return [
        Problem(f"{name}.{key}", f"{labels.get(key, key)}: this box is empty. Give a number.")
        for key, value in given.items()
        if value is None or value == ""
    ]


def ablations(name: str, options: Mapping[str, Any]) -> list[MethodChoice]:
    """The method once more for each alignment step that is on, with that step off."""
    from backend.methods.registry import method_class, option_fields

    steps = [f.name for f in option_fields(method_class(name)) if f.kind == "bool" and not f.advanced]
    switches = [key for key in steps if options[key]]
    return [MethodChoice(name, {**options, key: False}, f"{name} without {key}") for key in switches]


def other_profiles(name: str, options: Mapping[str, Any]) -> list[MethodChoice]:
    """The method once more under each of its profiles that is not what the options already say."""
    from backend.methods.registry import make_options, method_class, profile_options

    found = []
    for profile in method_class(name).profiles:
        other = dataclasses.asdict(make_options(name, profile_options(name, profile)))
        if other != options:
            found.append(MethodChoice(name, other, f"{name} {profile}"))
    return found


@dataclass(frozen=True)
class Standing:
    """How a method's boxes stand to its profiles. ``profile``: the one they say, if any; else ``nearest`` and
    the labels of the options that ``differ`` from it. ``folded``: options of the fold off their defaults."""

    profile: str | None
    nearest: str
    summary: str
    differ: tuple[str, ...]
    folded: int


def standing(name: str, given: Mapping[str, Any]) -> Standing:
    """Compare what stands in a method's boxes with its profiles. Boxes may be wrong."""
    from backend.methods.registry import make_options, method_class, option_fields, profile_options

    cls = method_class(name)
    fields = option_fields(cls)
    now = {f.name: given.get(f.name, f.default) for f in fields}
    folded = sum(f.advanced and now[f.name] != f.default for f in fields)
    best = Standing(None, "", "", (), folded)
    for key, profile in cls.profiles.items():
        wanted = dataclasses.asdict(make_options(name, profile_options(name, key)))
        differ = tuple(f.label for f in fields if now[f.name] != wanted[f.name])
        if not best.nearest or len(differ) < len(best.differ):
            best = Standing(None if differ else key, profile.title, profile.summary, differ, folded)
    return best


def read_request(form: Form, example: Example | None = None) -> RunRequest:
    """Check everything and state the run.

    Args:
        form: the bench.
        example: the request of the set that was put on the bench; its known answer counts while the
            values are still the same.

    Raises:
        Problems: every problem that was found, each with its field.
    """
    problems: list[Problem] = []

    def attempt(read: Any) -> Any:
        try:
            return read()
        except Problems as error:
            problems.extend(error.found)
        except LabError as error:
            problems.append(Problem(error.field or "", str(error)))
        return None

    pipeline = attempt(lambda: read_pipeline(form))
    values: Any = None
    if pipeline is not None:
        values = attempt(lambda: pipeline.check_values({n: form.values.get(n, "") for n in pipeline.inputs}))
    methods = attempt(lambda: read_methods(form))
    decoding = attempt(lambda: read_decoding(form))
    if form.mode not in ("pinned", "free"):
        problems.append(Problem("mode", f"There is no mode {str(form.mode)[:20]!r}. Choose pinned or free."))
    if problems:
        raise Problems(problems)
    same = example is not None and all(values.get(k) == v for k, v in example.values.items())
    return RunRequest(
        pipeline, values, methods, "free" if form.mode == "free" else "pinned", decoding,
        expected=example.answer if same and example is not None else None, probe_attention=form.attention,
    )  # fmt: skip


def keeps_pools(methods: Sequence[MethodChoice]) -> bool:
    """Whether one of the methods learns from earlier requests."""
    from backend.methods.registry import method_class

    none = method_class("dense").pools
    return any(method_class(m.name).pools is not none for m in methods)
