"""Controls of a comparison: fields of a request that a person sets.

A field of a request's dataclass that is declared by :func:`control` is a control. Its declaration makes its
field on the page, its key in links and files, its flag of ``kvlab run`` and its parameter for programs.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

DECLARATION = "control"  # the key of a field's metadata


@dataclass(frozen=True)
class Control:
    """What is declared of a control.

    Attributes:
        default: its usual value; whole if the control is a whole number.
        label: its name on the page.
        help: what it does, in a sentence; on the page.
        usage: the same for the command line and for programs.
        called: its name in messages about a wrong number.
        limits: least and most of a number.
        step: of a number's arrows on the page.
        choices: words by value, where it is one of some names.
        shown_only: what it adds to a record is seen on the page alone; it is no flag and no parameter.
        key: its name on the page, in links and files, and as a flag; the field's own name if empty.
        field, part: the field that it sets, and the part of the request in which that is; empty: its own.
    """

    default: Any
    label: str
    help: str = ""
    usage: str = ""
    called: str = ""
    limits: tuple[float, float] = (0, 0)
    step: float = 1
    choices: Mapping[str, str] = dataclasses.field(default_factory=dict)
    shown_only: bool = False
    key: str = ""
    field: str = ""
    part: str = ""

    @property
    def type(self) -> Any:
        """The type of its values."""
        return Literal[tuple(self.choices)] if self.choices else type(self.default)

    @property
    def kind(self) -> Literal["number", "flag"] | tuple[str, ...]:
        """What it holds: a number, a switch, or one of these names."""
        return tuple(self.choices) or ("flag" if isinstance(self.default, bool) else "number")


def control(default: Any, label: str, **more: Any) -> Any:
    """A field of a request that is a control; see :class:`Control`."""
    return dataclasses.field(default=default, metadata={DECLARATION: Control(default, label, **more)})


def controls_of(request: type, part: str = "") -> dict[str, Control]:
    """The controls that a dataclass declares, by key; ``part``: the field of the request that holds it."""
    out = {}
    for field in dataclasses.fields(request):
        if declaration := field.metadata.get(DECLARATION):
            key = declaration.key or field.name
            out[key] = dataclasses.replace(declaration, key=key, field=field.name, part=part)
    return out
