"""What every tool shares: its result, its description, and how a failure becomes a result."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from backend.base.errors import LabError

_UNUSABLE = re.compile("[\x00\ud800-\udfff]")  # what no tokenizer takes
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ToolError(LabError):
    """A tool found nothing to do, or refused it.

    Args:
        message: for the person: what, which value, what is allowed, what to do.
        observation: for the agent's prompt: one short line.
    """

    def __init__(self, message: str, observation: str) -> None:
        super().__init__(message)
        self.observation = observation


@dataclass(frozen=True)
class ToolResult:
    """What a tool gave.

    ``text`` goes into a prompt: the result, or one line that says why there is none; it is never empty and
    always valid text. ``reason`` is None when ``ok``, else the explanation for the person. ``wall_ms`` is
    the time that the call took, in milliseconds.
    """

    text: str
    ok: bool
    reason: str | None
    wall_ms: float


@dataclass(frozen=True)
class Tool:
    """One tool.

    ``call`` says in words how its call is found in an agent's text, ``find`` finds it: the call's content,
    or None where the text holds no call.
    """

    name: str
    title: str
    summary: str
    call: str
    find: Callable[[str], str | None]
    run: Callable[[str], ToolResult]


def finish(work: Callable[[], str]) -> ToolResult:
    """Do the work and time it; a :class:`ToolError` becomes a result that is not ok."""
    start = time.perf_counter()
    reason = None
    try:
        text = work()
    except ToolError as error:
        text, reason = error.observation, str(error)
    wall = (time.perf_counter() - start) * 1000
    return ToolResult(_UNUSABLE.sub(_REPLACEMENT, text), reason is None, reason, wall)


def clip(text: str, limit: int) -> str:
    """At most ``limit`` characters, cut at a space if one is near the end, with an ellipsis."""
    if len(text) <= limit:
        return text
    head = text[: limit - 1]
    space = head.rfind(" ")
    if not text[limit - 1].isspace() and space > limit // 2:
        head = head[:space]
    return head.rstrip() + "…"
