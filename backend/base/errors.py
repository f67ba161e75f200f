"""Errors a person can act on.

::

    LabError                      every expected failure; str(error) goes straight to the user
    ├── PromptError               a template, pipeline, preset or slot value cannot be used
    ├── OptionError               an option is unknown or out of its range
    ├── ModelError                a model cannot be loaded or run
    │   └── NotRelocatableError   its keys cannot be moved to another position
    ├── BudgetError               a run would need more tokens or bytes than allowed
    │   └── MemoryFullError       the machine's memory ran out, although less was estimated
    ├── RateError                 more requests within a minute than one visitor may send
    ├── RecordError               a saved record cannot be read
    └── RunCancelled              the person asked to stop

Every message says what is wrong, which value, what is allowed and what to do. ``field`` names the
input it is about (for example ``"agents.2.template"`` or ``"kvcomm.gamma"``), so that a page can show
the message beside it.
"""


class LabError(Exception):
    """Base of every expected failure.

    Args:
        message: the text for the user: what, which value, what is allowed, what to do.
        field: dotted name of the input the message is about, if there is one.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class PromptError(LabError):
    """A template, pipeline, preset or placeholder value cannot be used."""


class OptionError(LabError):
    """An option is unknown or out of its range."""


class ModelError(LabError):
    """A model cannot be loaded or run."""


class NotRelocatableError(ModelError):
    """The model's keys cannot be moved to another position, so their cache cannot be reused."""


class BudgetError(LabError):
    """A run would need more tokens or bytes than allowed."""


class MemoryFullError(BudgetError):
    """The machine's memory ran out, although less was estimated; the session was emptied and goes on."""


class RateError(LabError):
    """More requests within a minute than one visitor may send.

    Args:
        message: as in :class:`LabError`.
        seconds: until the next one is let through.
    """

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class RecordError(LabError):
    """A saved record cannot be read."""


class RunCancelled(LabError):
    """The person asked to stop; what was finished before stays valid."""
