"""The events of a running session, in order; the last one of a run is :class:`RunDone`."""

from dataclasses import dataclass

from backend.records.run import Outcome, RunRecord


@dataclass(frozen=True)
class Progress:
    """What is being done now; ``done`` of ``total`` steps."""

    text: str
    done: int
    total: int
    agent: int | None = None
    method: str | None = None


@dataclass(frozen=True)
class TextSoFar:
    """The text that one agent has generated under one method until now."""

    agent: int
    method: str
    text: str


@dataclass(frozen=True)
class AgentDone:
    """All methods of one agent are finished."""

    agent: int
    outcomes: tuple[Outcome, ...]


@dataclass(frozen=True)
class RunDone:
    """The run is complete."""

    record: RunRecord


#: The event before anything is answered, in a session with ``LabSession.pauses_before_decode``.
PROMPTS_READ = Progress("Every prompt has been read", 1, 1)

Event = Progress | TextSoFar | AgentDone | RunDone
