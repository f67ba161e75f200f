"""Options of methods: typed, checked, and described for widgets, flags and documentation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from backend.base.errors import OptionError


def option(
    default: Any,
    label: str,
    help_text: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    paper: str = "",
    advanced: bool = False,
) -> Any:
    """A field of an ``Options`` dataclass with what widgets, flags and docs need.

    ``advanced``: seldom changed by hand, so a page may fold it away.
    """
    return field(
        default=default,
        metadata={
            "label": label,
            "help": help_text,
            "minimum": minimum,
            "maximum": maximum,
            "choices": tuple(choices),
            "paper": paper,
            "advanced": advanced,
        },
    )


MOST_LAYERS = 255  # the highest layer that can be named; one behind the model's last means the last


def layer_option(default: int, label: str, help_text: str, *, minimum: int = 0, paper: str = "") -> Any:
    """An option that names a layer, or counts them."""
    return option(
        default, label, help_text, minimum=minimum, maximum=MOST_LAYERS, paper=paper, advanced=True
    )  # fmt: skip


def seed_option(help_text: str) -> Any:
    """The option that a random choice is drawn from."""
    return option(0, "Seed", help_text, minimum=0, maximum=1_000_000, advanced=True)


@dataclass(frozen=True)
class Options:
    """Base of every method's options; checks types and ranges.

    Raises:
        OptionError: an unknown choice, a wrong type or a value out of range.
    """

    @property
    def wants_lead_in(self) -> bool:
        """Must outside texts have a base behind their lead-in as well?
        (:meth:`backend.session.request_state.RequestState.encode_lead_ins`)"""
        return False

    def __post_init__(self) -> None:
        name = type(self).__qualname__.removesuffix("Options").lower() or "options"
        for f in fields(self):
            value, meta = getattr(self, f.name), f.metadata
            where = f"{name}.{f.name}"
            kind = type(f.default)
            if kind is float and type(value) is int:
                value = float(value)
                object.__setattr__(self, f.name, value)
            if kind is int and type(value) is float and value.is_integer():
                value = int(value)
                object.__setattr__(self, f.name, value)
            if type(value) is not kind:
                raise OptionError(
                    f"{meta['label']} is {value!r}; it must be of type {kind.__name__}. The default "
                    f"is {f.default!r}.",
                    field=where,
                )
            if meta["choices"] and value not in meta["choices"]:
                raise OptionError(
                    f"{meta['label']} is {value!r}; allowed: {', '.join(meta['choices'])}. Choose one "
                    "of them.",
                    field=where,
                )
            low, high = meta["minimum"], meta["maximum"]
            if low is not None and not low <= value <= high:
                raise OptionError(
                    f"{meta['label']} is {value:g}; allowed: {low:g} to {high:g}. The default is "
                    f"{f.default:g}.",
                    field=where,
                )


@dataclass(frozen=True)
class Profile:
    """A named bundle of option values; options that it does not name keep their defaults."""

    title: str
    summary: str
    options: Mapping[str, Any]


def prefix_base_option() -> Any:
    """The option that says where uncorrected template text was encoded; the paper leaves it open."""
    return option(
        "template",
        "Template text was encoded",
        "In its template, with stand-ins in the holes, or alone. Matters only where it is not corrected.",
        choices=("template", "alone"),
        paper="KVCOMM Fig. 3, initialization",
        advanced=True,
    )
