"""Checks chosen methods and their options, and compares options with a method's profiles."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.base.errors import LabError, OptionError
from backend.records.request import MethodChoice
from lab_app.ui.validation import Problem, Problems
from viz.base.format import listing

MOST_COLUMNS = 8


def read_methods(
    chosen: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    ablate: Sequence[str] = (),
    every_profile: Sequence[str] = (),
    copies: Sequence[MethodChoice] = (),
    most: int = MOST_COLUMNS,
) -> tuple[MethodChoice, ...]:
    """The chosen methods with checked options, dense first; up to ``most`` columns.

    Args:
        chosen: names of methods.
        options: as they stand in the boxes, by method; may be wrong.
        ablate: methods to run once more with each alignment step off.
        every_profile: methods to run once more under each other profile.
        copies: further columns, with options as they stand in their boxes.
        most: columns, dense included.

    Raises:
        Problems: every option that is wrong.
        OptionError: a method is unknown, or there are too many columns.
    """
    from backend.methods.registry import make_options, method_class, method_names

    for name in (*chosen, *(copy.name for copy in copies)):
        if name not in method_names():
            raise OptionError(
                f"There is no method {str(name)[:40]!r}. Choose among the chips.", field="methods"
            )
    out: list[MethodChoice] = []
    problems: list[Problem] = []
    for name in method_names():
        if name != "dense" and name not in chosen:
            continue
        values = dict(options.get(name, {}))
        try:
            problems += blanks(name, values)
            checked = dataclasses.asdict(make_options(name, values)) if not problems else {}
        except LabError as error:
            problems.append(Problem(error.field or "methods", str(error)))
            continue
        out.append(MethodChoice(name, checked))
        if name in every_profile:
            out += other_profiles(name, checked)
        if name in ablate:
            out += ablations(name, checked)
    for copy in copies:
        shown = f"{method_class(copy.name).title} {copy.label.rpartition(' ')[2]}"
        try:
            if wrong := blanks(copy.name, copy.options):
                raise Problems(wrong)
            checked = dataclasses.asdict(make_options(copy.name, dict(copy.options)))
            out.append(dataclasses.replace(copy, options=checked))
        except Problems as error:
            problems += [Problem("copies", f"{shown}: {problem.message}") for problem in error.problems]
        except LabError as error:
            problems.append(Problem("copies", f"{shown}: {error}"))
    if problems:
        raise Problems(problems)
    if len(out) > most:
        adding = [name for name in (*every_profile, *ablate) if name in chosen]
        raise too_many(adding, len(out) - len(copies), len(copies), len({c.name for c in out}), most)
    return tuple(out)


def copy_label(name: str, number: int) -> str:
    """The label of a method's ``number``-th column: ``kvcomm 2``."""
    return f"{name} {number}"


def too_many(adding: Sequence[str], columns: int, copies: int, methods: int, most: int) -> OptionError:
    """The error that says where the columns come from. It stands beside the switches that add some (those of
    the methods ``adding``), if there are any."""
    added = columns - methods if adding else 0
    parts = [f"{methods} methods with the full read"]
    parts += [f"{added} by “Also run”"] if added else []
    parts += [f"{copies} duplicated"] if copies else []
    remedy = "Turn one of these switches off, or leave a method out." if added else "Leave a method out."
    return OptionError(
        f"That makes {columns + copies} columns ({listing(parts)}); up to {most} can be compared. {remedy}",
        field=f"{adding[0]}.columns" if added else "methods",
    )


def blanks(name: str, values: Mapping[str, Any]) -> list[Problem]:
    """Options whose box is empty."""
    from backend.methods.registry import method_class, option_fields

    labels = {f.name: f.label for f in option_fields(method_class(name))}
    return [
        Problem(f"{name}.{key}", f"{labels.get(key, key)}: this box is empty. Give a number.")
        for key, value in values.items()
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

    choices = []
    for profile in method_class(name).profiles:
        other = dataclasses.asdict(make_options(name, profile_options(name, profile)))
        if other != options:
            choices.append(MethodChoice(name, other, f"{name} {profile}"))
    return choices


@dataclass(frozen=True)
class Standing:
    """A method's options beside its profiles. ``profile``: the one that they equal, if any; else ``nearest``
    and the labels of the options that ``differ`` from it. ``folded``: how many folded ones are changed."""

    profile: str | None
    nearest: str
    summary: str
    differ: tuple[str, ...]
    folded: int


def standing(name: str, values: Mapping[str, Any]) -> Standing:
    """Compare the values in a method's boxes with its profiles. Values may be wrong."""
    from backend.methods.registry import make_options, method_class, option_fields, profile_options

    cls = method_class(name)
    fields = option_fields(cls)
    current = {f.name: values.get(f.name, f.default) for f in fields}
    folded = sum(f.advanced and current[f.name] != f.default for f in fields)
    best = Standing(None, "", "", (), folded)
    for key, profile in cls.profiles.items():
        options = dataclasses.asdict(make_options(name, profile_options(name, key)))
        differ = tuple(f.label for f in fields if current[f.name] != options[f.name])
        if not best.nearest or len(differ) < len(best.differ):
            best = Standing(None if differ else key, profile.title, profile.summary, differ, folded)
    return best


def keeps_pools(methods: Sequence[MethodChoice]) -> bool:
    """Whether one of the methods learns from earlier requests."""
    from backend.methods.registry import method_class

    none = method_class("dense").pools
    return any(method_class(m.name).pools is not none for m in methods)
