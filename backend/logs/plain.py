"""Plain prompts: ``{"prompt": "...", "agent": "Solver", "session_id": "7", "timestamp": 1735689600}``, and
requests of the completions interface (``{"request": {"prompt": ...}, "response": ...}``).

Beside ``prompt`` everything may be missing. The answer is ``output``, ``response`` or ``completion``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.base.text import show
from backend.logs.calls import BadLine, Call, Fields, Message, about, checked, text_of, usage_of
from backend.logs.chances import chances_of
from backend.logs.openai_chat import first_choice, unwrapped

NAME = "plain prompts"


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format."""
    return "prompt" in unwrapped(row)[0]


def calls(row: Mapping[str, Any], where: str) -> Iterator[Call]:
    """The row's call."""
    request, response = unwrapped(row)
    prompt, choice = request["prompt"], first_choice(response, row)
    if not isinstance(prompt, str):
        raise BadLine(f"prompt is {show(prompt)}; a text is allowed")
    answer = choice.get("text") if response else Fields(row).value("output", "response", "completion")
    yield Call(
        where,
        checked([Message("", prompt)]),
        output=text_of(answer, "output"),
        usage=usage_of(row, response.get("usage"), row.get("usage")),
        chances=chances_of(choice),
        **about(row, request, response),
    )
