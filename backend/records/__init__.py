"""What was asked and what came of it, with the arithmetic on it: all that viz reads. Free of torch and scipy.

A record is frozen, is packed into one file and is read from it as it was. A figure is drawn from a record
alone, so what a figure shows can be downloaded.

Others use the names below, here or from their modules.
"""

from backend.records.events import AgentDone, Event, Progress, RunDone, TextSoFar
from backend.records.rows import outcome_row
from backend.records.run import (
    Decoding,
    MethodChoice,
    ModelInfo,
    Outcome,
    Prompt,
    RunRecord,
    RunRequest,
    Span,
    TokenizedPrompt,
)

__all__ = [
    "AgentDone",
    "Decoding",
    "Event",
    "MethodChoice",
    "ModelInfo",
    "Outcome",
    "Progress",
    "Prompt",
    "RunDone",
    "RunRecord",
    "RunRequest",
    "Span",
    "TextSoFar",
    "TokenizedPrompt",
    "outcome_row",
]
