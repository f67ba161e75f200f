"""Any method with parts of its cache replaced by the full read's: what a search for the parts that changed an
answer found (:mod:`backend.studies.blame`), as a column. It costs a full read: a diagnosis, not a method to
serve with."""

from dataclasses import replace

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.base.text import show
from backend.methods.base import Method, PromptView
from backend.methods.plan import Selection
from backend.records.blame import Part, exact_parts


class PatchedMethod(Method):
    """The hooks of another method, and exact parts once it has chosen. Lives for one prompt."""

    name = "patched"
    column = None
    title = "Repaired in part"
    summary = "A method whose cache holds the full read's keys and values in chosen parts."
    paper = "a control of this lab"

    def __init__(self, method: Method, parts: tuple[Part, ...]) -> None:
        super().__init__(method.options)
        self.method, self.parts = method, parts

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        chosen = self.method.select(view, clock) or Selection(())
        return replace(chosen, exact=tuple(placed(part, view) for part in self.parts))

    def accept(self, view: PromptView, clock: Clock) -> str | None:
        return self.method.accept(view, clock)


def patched(method: Method, exact: str, agent: int) -> Method:
    """A method with the parts of a line (:func:`backend.records.blame.exact_parts`) that are about an agent;
    the method itself where none is.

    Raises:
        OptionError: the line names no parts.
    """
    parts = tuple(part for reader, part in exact_parts(exact) if reader == agent)
    return PatchedMethod(method, parts) if parts else method


def placed(part: Part, view: PromptView) -> Part:
    """A part at its segment's tokens; the last token is forwarded in any case.

    Raises:
        OptionError: the prompt or the model has no such part, or its tokens do not lie where dense's do.
    """
    layers = int(view.cache.keys.shape[0])
    if part.segment not in view.start or part.last >= layers:
        raise OptionError(
            f"A repaired column names {show(part.segment)} at layer {part.last}; this prompt or model has no "
            "such part. Remove the column, and measure again what changed the answer.",
            field="methods",
        )
    start, end = view.start[part.segment]
    return replace(part, start=start, end=min(end, view.total - 1))
