"""Methods of a sweep file; a list as an option's value is an axis."""

from collections.abc import Mapping
from itertools import product
from typing import Any

from backend.base.errors import OptionError
from backend.base.text import show
from backend.methods.composed import expanded
from backend.methods.registry import make_options, method_class, parse_methods, profile_options
from backend.records.request import MethodChoice


def read_choices(value: object) -> tuple[MethodChoice, ...]:
    """The methods that a file names, dense first, whether it is named or not.

    Raises:
        OptionError: one is not known, or cannot be told from another.
    """
    choices: list[MethodChoice] = []
    rows = [value] if isinstance(value, str) else value
    assert isinstance(rows, list)
    for number, row in enumerate(rows, 1):
        field = f"methods.{number}"
        if isinstance(row, str):
            choices += parse_methods(row)
        elif isinstance(row, dict) and isinstance(row.get("name"), str):
            choices += _method_grid(row, field)
        else:
            raise OptionError(
                f"Method {number} is {show(row)}; write a name, as in kvcomm:gamma=0.5, or a table with a "
                "name and options. Correct it.",
                field=field,
            )
    choices = [c for c in choices if c.name == "dense"] + [c for c in choices if c.name != "dense"]
    if not choices or choices[0].name != "dense":
        choices.insert(0, MethodChoice("dense"))
    by_options: dict[str, str] = {}
    for choice in choices:
        same = by_options.setdefault(
            f"{choice.name} {make_options(choice.name, choice.options)}", choice.label
        )
        if same != choice.label:
            raise OptionError(
                f"The methods {show(same)} and {show(choice.label)} have the same options. Remove one.",
                field="methods",
            )
    labels = [choice.label for choice in choices]
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(f"Two methods are called {show(label)}. Label them apart.", field="methods")
    return tuple(choices)


def _method_grid(row: Mapping[str, Any], field: str) -> list[MethodChoice]:
    """A table with lists to one choice for every combination; the name may be a composition's expression."""
    (name, parts), label = expanded(row["name"]), row.get("label")
    method_class(name)
    axes = {key: value if isinstance(value, list) else [value] for key, value in row.items()}
    axes = {str(key): values for key, values in axes.items() if key not in ("name", "label")}
    for key, values in axes.items():
        if not values:
            raise OptionError(f"{name}: {key} is an empty list. Give a value.", field=f"{field}.{key}")
    if label is not None and not isinstance(label, str):
        raise OptionError(f"The label is {show(label)}, which is not text. Quote it.", field=f"{field}.label")
    choices = []
    for combination in product(*axes.values()):
        options = dict(zip(axes, combination, strict=True))
        varied = options if label is None else {k: v for k, v in options.items() if len(axes[k]) > 1}
        words = "+".join(f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in varied.items())
        called = (label or row["name"]) + (f"{':' if label is None else ' '}{words}" if words else "")
        profile = options.pop("profile", None)
        settings = parts | (profile_options(name, str(profile)) if profile is not None else {}) | options
        make_options(name, settings)
        choices.append(MethodChoice(name, settings, called))
    return choices
