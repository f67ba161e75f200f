"""The calculator in the Timing tab: when reuse pays, from lengths, pool and hardware (docs/break-even.md).

It needs no run; only *this machine* has to be measured first.
"""

import threading
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from backend.base.errors import LabError
from backend.records.break_even import MOST, Case
from backend.records.hardware import OF_SHEET, SHAPES, Figures, given_machine, shipped_figures
from lab_app.ui import fields
from lab_app.ui.components import payload
from lab_app.ui.fields import Node
from lab_app.ui.measurement import Section
from lab_app.ui.types import Given, Update
from lab_app.ui.validation import FormReader, NumberField, Problem
from lab_app.visits.visits import Visit
from viz.base.figure import FigureView, Panel
from viz.studies.break_even_calculator import views

KIND = "break_even"
HERE, SHEET = "here", "sheet"
BOXES = {
    "prompt": "Prompt (tokens)",
    "shared": "Shared text (%)",
    "outside": "Unseen share (%)",
    "readers": "Readers of a text",
    "anchors": "Anchors in a pool",
    "mixed": "Anchors mixed",
    "tflops": "TFLOP/s reached",
    "gb_s": "GB/s copied",
}
NUMBERS = {
    "prompt": NumberField(BOXES["prompt"], 1, MOST["prompt"]),
    "shared": NumberField(BOXES["shared"], 0, 100, whole=False),
    "outside": NumberField(BOXES["outside"], 0, 100, whole=False),
    "readers": NumberField(BOXES["readers"], 1, MOST["readers"]),
    "anchors": NumberField(BOXES["anchors"], 0, MOST["anchors"]),
    "mixed": NumberField(BOXES["mixed"], 0, MOST["mixed"]),
    **{name: NumberField(BOXES[name], *limits, whole=False) for name, limits in OF_SHEET.items()},
}
#: The boxes' first values.
USUAL = {
    "prompt": 1000, "shared": 75, "outside": 0, "readers": 1, "anchors": 20, "mixed": 20, "tflops": 600,
    "gb_s": 2500,
}  # fmt: skip
SHAPE_WORDS = {"smollm2-135m": "SmolLM2 135M", "llama-8b": "Llama 8B"}
NOT_YET_TITLE = "This machine has not been measured yet"
NOT_YET = (
    "Measure reads a few prompts of random tokens, densely and "
    "through full pools, which takes some seconds with a small model; the lab’s other work waits meanwhile. "
    "(The run above is no substitute: in a few short prompts, what each token takes cannot be told from what "
    "each step takes to begin.)"
)
UNREAD = "What stands in the boxes cannot be reckoned with"
UNREAD_HELP = "The box that is wrong says why; everything typed stays."
MIXED = "{mixed:,} anchors are mixed, more than the pool’s {anchors:,}. Lower it, or enlarge the pool."


@cache
def shipped() -> dict[str, Figures]:
    """The measured figures that ship with the lab, by name."""
    return shipped_figures()


def first_hardware() -> str:
    """The hardware that is chosen at first: a measured one, if figures of one ship with the lab."""
    return next(iter(shipped()), SHEET)


def hardware() -> list[tuple[str, str]]:
    """The choices of hardware, as (words, name)."""
    measured = [(f"Measured before: {f.machine.name} on {f.where}", name) for name, f in shipped().items()]
    return [
        ("This machine and the model loaded here, measured now", HERE),
        *measured,
        ("A data sheet", SHEET),
    ]


def boxes(section: Section) -> Sequence[Node]:
    """The boxes with their first values."""
    choice = first_hardware()
    shapes = [(SHAPE_WORDS.get(name, name), name) for name in SHAPES]

    def numbers(*names: str) -> list[Node]:
        return [section.number(name, NUMBERS[name], USUAL[name]) for name in names]

    return [
        fields.row(*numbers(*(name for name in NUMBERS if name not in OF_SHEET)), css="kv-six"),
        fields.row(
            section.select("hardware", "Hardware and model", hardware(), choice, css="kv-wider"),
            section.button(hidden=choice != HERE),
            css="kv-six",
        ),
        fields.panel(
            "pays_sheet",
            fields.row(
                section.select("shape", "Model", shapes, "llama-8b", css="kv-wide"), *numbers(*OF_SHEET),
                css="kv-six",
            ),
            hidden=choice != SHEET, id="kv-pays-sheet",
        ),
    ]  # fmt: skip


def read_case(inputs: Given, own_figures: Figures | None) -> tuple[Figures | None, Case]:
    """The hardware's figures (None: this machine, not measured yet) and the case.

    Args:
        own_figures: this machine's, if it was measured.

    Raises:
        Problems: everything that is wrong.
    """
    entries = SECTION.box_values(inputs)
    choice, reader = entries["hardware"], FormReader(entries)
    numbers = {
        name: reader.number(name, field)
        for name, field in NUMBERS.items()
        if choice == SHEET or name not in OF_SHEET
    }
    wrong_fields = {problem.field for problem in reader.problems}
    if choice == SHEET and entries["shape"] not in SHAPES:
        reader.problems.append(_unknown("shape", entries["shape"]))
    if choice not in (SHEET, HERE, *shipped()):
        reader.problems.append(_unknown("hardware", choice))
    if not wrong_fields & {"anchors", "mixed"} and numbers["mixed"] > numbers["anchors"]:
        reader.problems.append(Problem("mixed", MIXED.format(**numbers)))
    reader.check()
    shared = round(numbers["prompt"] * numbers["shared"] / 100)
    counts = {name: numbers[name] for name in ("readers", "anchors", "mixed")}
    case = Case(numbers["prompt"], shared, round(shared * numbers["outside"] / 100), **counts)
    if choice == SHEET:
        machine = given_machine(str(entries["shape"]), numbers["tflops"], numbers["gb_s"])
        return Figures(machine, "bf16, the least that operations and bytes need"), case
    return own_figures if choice == HERE else shipped()[choice], case


def _unknown(name: str, value: Any) -> Problem:
    return Problem(name, f"There is no {name} {str(value)[:40]!r}. Choose one of the list.")


def answer(inputs: Given, own_figures: Figures | None) -> dict[str, Any]:
    """The answer's figures.

    Raises:
        Problems: see :func:`read_case`.
    """
    figures, case = read_case(inputs, own_figures)
    panels: Sequence[Panel | FigureView] = (
        (Panel("pays", NOT_YET_TITLE, f'<p class="kv-how">{NOT_YET}</p>'),)
        if figures is None
        else views(figures, case)
    )
    return payload(panels)


class BreakEven(Section):
    """A section that answers at every edit. Only *this machine* is measured."""

    def work(self, visit: Visit, request: Any, cancel: threading.Event) -> Iterator[Any]:
        return visit.engine.machine_figures()

    def finished(self, visit: Visit, inputs: Given, record: Any, spent_ms: float) -> Update:
        visit.pages[KIND] = record
        return self.edited(visit, inputs) | {self.status: ""}

    def edited(self, visit: Visit, inputs: Given) -> Update:
        """The answer to the boxes, or what is wrong with them."""
        choice = inputs["pays_hardware"]
        parts: Update = {"pays_sheet.visible": choice == SHEET, "pays_measure.visible": choice == HERE}
        try:
            return self.errors(None) | parts | {self.view: answer(inputs, visit.pages.get(KIND))}
        except LabError as error:
            unread = Panel("pays", UNREAD, f'<p class="kv-how">{UNREAD_HELP}</p>')
            return self.errors(error) | parts | {self.view: payload((unread,))}

    def opened(self, visit: Visit, inputs: Given) -> Update:
        return {self.view: self.edited(visit, inputs)[self.view]}


SECTION = BreakEven(
    "pays", "When would reuse pay?",
    "For a prompt of your own, on hardware of your choice. Shared text is what other agents read "
    "too; the unseen share of it nobody has read yet, such as a question, and all its readers pay for it "
    "together. It is arithmetic, so the answer is there at once; nothing is run.",
    boxes, lambda visit, inputs: None, lambda record: (), lambda record: "", kind=KIND, tab="timing",
)  # fmt: skip
