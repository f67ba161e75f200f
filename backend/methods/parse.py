"""Methods as a person writes them on one line."""

from __future__ import annotations

from typing import Any

from backend.base.errors import OptionError
from backend.methods.composed import expanded
from backend.methods.registry import make_options, method_class, option_fields, profile_options
from backend.records.request import MethodChoice


def parse_methods(text: str) -> tuple[MethodChoice, ...]:
    """``dense,naive,kvcomm:gamma=0.5+rotate=false@no rotation`` to choices.

    Methods are separated by commas; options follow a colon, joined by ``+``; a label follows ``@``. The
    option ``profile`` sets a bundle of options; others given beside it win.
    ``kvcomm>prophetkv:ratio=0.3`` is a composition (:mod:`backend.methods.composed`).

    Raises:
        OptionError: it cannot be read so, or an option is unknown or out of range.
    """
    choices = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        body, _, label = item.partition("@")
        expression, _, settings = body.partition(":")
        name, options = expanded(expression)
        fields = {f.name: f for f in option_fields(method_class(name))}
        for setting in filter(None, settings.split("+")):
            key, equals, value = setting.partition("=")
            if not equals:
                raise OptionError(
                    f"{setting!r} is no option; write option=value, as in kvcomm:gamma=0.5.", field="methods"
                )
            if key.strip() == "profile":
                options = profile_options(name, value.strip()) | options
                continue
            known = fields.get(key.strip())
            options[key.strip()] = _value(value.strip(), known.kind if known else "choice", key.strip())
        make_options(name, options)
        choices.append(MethodChoice(name, options, label.strip() or body.strip()))
    if not choices:
        raise OptionError(
            "No method was named. Name at least one, as in --methods dense,naive,kvcomm.", field="methods"
        )
    return tuple(choices)


def _value(text: str, kind: str, name: str) -> Any:
    readers: dict[str, Any] = {
        "bool": lambda t: {
            "true": True,
            "on": True,
            "yes": True,
            "1": True,
            "false": False,
            "off": False,
            "no": False,
            "0": False,
        }[t.lower()],
        "int": int,
        "float": float,
        "choice": str,
    }
    try:
        return readers[kind](text)
    except (KeyError, ValueError):
        wanted = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise OptionError(f"{name} is {text!r}; it must be {wanted}.", field=f"methods.{name}") from None
