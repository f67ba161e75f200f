"""Plain prompts: ``{"prompt": "...", "agent": "Solver", "session_id": "7", "timestamp": 1735689600}``.

Beside ``prompt`` everything may be missing. The answer is ``output``, ``response`` or ``completion``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.base.text import show
from backend.logs.calls import BadLine, Call, Fields, Message, Usage, about, checked, text_of

NAME = "plain prompts"


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format."""
    return "prompt" in row


def calls(row: Mapping[str, Any], where: str) -> Iterator[Call]:
    """The row's call."""
    prompt = row["prompt"]
    if not isinstance(prompt, str):
        raise BadLine(f"prompt is {show(prompt)}; a text is allowed")
    found = Fields(row, row.get("usage"))
    yield Call(
        where,
        checked([Message("", prompt)]),
        output=text_of(found.value("output", "response", "completion"), "output"),
        usage=Usage(
            found.whole("prompt_tokens", "input_tokens"),
            found.whole("completion_tokens", "output_tokens"),
            found.whole("cached_tokens"),
        ),
        **about(row),
    )
