"""The methods by name, and methods as a person writes them.

Every method that a module of this room defines is registered: a new one is one new file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from backend.base.errors import OptionError
from backend.base.modules import modules_of
from backend.methods.base import Method
from backend.methods.composed import expanded
from backend.methods.options import Options
from backend.records.request import MethodChoice


def _methods() -> tuple[type[Method], ...]:
    """The methods that the modules of this room define, in the order of columns."""
    classes = {
        cls for module in modules_of(__package__) for cls in vars(module).values() if isinstance(cls, type)
    }
    columns = [
        (cls.column, cls.name, cls)
        for cls in classes
        if issubclass(cls, Method) and "name" in vars(cls) and cls.column is not None
    ]
    return tuple(cls for _, _, cls in sorted(columns))


METHODS = _methods()


@dataclass(frozen=True)
class OptionField:
    """What a widget, a flag or a docs table needs to know of one option."""

    name: str
    label: str
    kind: Literal["bool", "int", "float", "choice"]
    default: Any
    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    help: str
    paper: str
    advanced: bool = False


def method_names() -> tuple[str, ...]:
    """Names in the order of columns."""
    return tuple(m.name for m in METHODS)


def method_class(name: str) -> type[Method]:
    """The class of a method.

    Raises:
        OptionError: there is no such method.
    """
    for method in METHODS:
        if method.name == name:
            return method
    raise OptionError(
        f"There is no method {name!r}; there are: {', '.join(method_names())}.", field="methods"
    )


def option_fields(cls: type[Method]) -> tuple[OptionField, ...]:
    """The method's options, from its ``Options`` dataclass."""
    kinds: dict[type, Literal["bool", "int", "float", "choice"]] = {bool: "bool", int: "int", float: "float"}
    return tuple(
        OptionField(
            option.name,
            kind="choice" if option.metadata["choices"] else kinds[type(option.default)],
            default=option.default,
            **option.metadata,
        )
        for option in fields(cls.Options)
    )


def profile_options(name: str, profile: str) -> dict[str, Any]:
    """The options that a method's profile sets.

    Raises:
        OptionError: the method has no such profile.
    """
    cls = method_class(name)
    if profile not in cls.profiles:
        allowed = ", ".join(cls.profiles) or "none"
        raise OptionError(
            f"{cls.title} has no profile {profile!r}; it has: {allowed}. Choose one of them.",
            field=f"{name}.profile",
        )
    return dict(cls.profiles[profile].options)


def make_options(name: str, values: Mapping[str, Any]) -> Options:
    """Check and build a method's options.

    Raises:
        OptionError: unknown method, unknown option, wrong type or range.
    """
    cls = method_class(name)
    names = {f.name for f in fields(cls.Options)}
    for key in values:
        if key not in names:
            allowed = ", ".join(sorted(names)) or "none"
            raise OptionError(f"{cls.title} has no option {key!r}; it has: {allowed}.", field=f"{name}.{key}")
    try:
        return cls.Options(**values)
    except OptionError as error:  # it names the options' class, which need not be called as the method is
        option = (error.field or "").rpartition(".")[2]
        raise OptionError(str(error), field=f"{name}.{option}") from None


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
        kinds = {option.name: option.kind for option in option_fields(method_class(name))}
        for setting in filter(None, settings.split("+")):
            key, equals, value = setting.partition("=")
            if not equals:
                raise OptionError(
                    f"{setting!r} is no option; write option=value, as in kvcomm:gamma=0.5.", field="methods"
                )
            if key.strip() == "profile":
                options = profile_options(name, value.strip()) | options
                continue
            options[key.strip()] = _value(value.strip(), kinds.get(key.strip(), "choice"), key.strip())
        make_options(name, options)
        choices.append(MethodChoice(name, options, label.strip() or body.strip()))
    if not choices:
        raise OptionError(
            "No method was named. Name at least one, as in --methods dense,naive,kvcomm.", field="methods"
        )
    return tuple(choices)


def _value(text: str, kind: str, name: str) -> Any:
    words = dict.fromkeys(("true", "on", "yes", "1"), True) | dict.fromkeys(
        ("false", "off", "no", "0"), False
    )
    readers: dict[str, Callable[[str], Any]] = {
        "bool": lambda word: words[word.lower()], "int": int, "float": float, "choice": str,
    }  # fmt: skip
    try:
        return readers[kind](text)
    except (KeyError, ValueError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise OptionError(f"{name} is {text!r}; it must be {expected}.", field=f"methods.{name}") from None
