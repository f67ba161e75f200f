"""Undo and redo of edits of the form. Needs no web framework."""

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.prompts.presets import Example
from lab_app.pages.pipeline.form import Form

MOST = 100
PAUSE_SECONDS = 1.5  # typing in one box with shorter pauses is one edit


@dataclass(frozen=True)
class Step:
    """A form, and the request of the set that it held, if any."""

    form: Form
    example: Example | None = None


class UndoStack:
    """The forms that there were, oldest first, and which of them is shown."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._steps: list[Step] = []
        self._at, self._clock = -1, clock
        self._fields: tuple[str, ...] = ()  # what the last edit changed
        self._time = 0.0

    def note(self, form: Form, example: Example | None = None) -> None:
        """Add the current form. An edit drops the steps that could be redone."""
        step, now = Step(form, example), self._clock()
        if self._at < 0:
            self._steps, self._at = [step], 0
            return
        before = self._steps[self._at]
        if form == before.form:
            self._steps[self._at] = step
            return
        fields = changes(before.form, form)
        typing = self._at > 0 and self._at == len(self._steps) - 1 and len(fields) == 1
        if typing and fields == self._fields and now - self._time < PAUSE_SECONDS:
            self._steps[self._at] = step
        else:
            self._steps = [*self._steps[: self._at + 1], step][-MOST:]
            self._at = len(self._steps) - 1
        self._fields, self._time = fields, now

    @property
    def can_undo(self) -> bool:
        """Is there an earlier form?"""
        return self._at > 0

    @property
    def can_redo(self) -> bool:
        """Is there a form that was undone?"""
        return self._at < len(self._steps) - 1

    def buttons(self) -> dict[str, bool]:
        """Which of the two buttons can be pressed, as an update of the page."""
        return {"undo.interactive": self.can_undo, "redo.interactive": self.can_redo}

    def undo(self) -> Step | None:
        """The form before the last edit; None at the beginning."""
        return self._go(-1) if self.can_undo else None

    def redo(self) -> Step | None:
        """The form that was undone last; None when there is none."""
        return self._go(1) if self.can_redo else None

    def _go(self, by: int) -> Step:
        self._at += by
        self._fields = ()
        return self._steps[self._at]


def changes(before: Form, after: Form) -> tuple[str, ...]:
    """The boxes that differ, such as ``values.user_question`` or ``templates.2``."""
    out: list[str] = []
    for field in dataclasses.fields(Form):
        old, new = getattr(before, field.name), getattr(after, field.name)
        if old == new:
            continue
        if field.name == "values":
            out += [f"values.{n}" for n in {**old, **new} if old.get(n) != new.get(n)]
        elif field.name == "templates" and len(old) == len(new):
            out += [f"templates.{i}" for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        else:
            out.append(field.name)
    return tuple(out)
