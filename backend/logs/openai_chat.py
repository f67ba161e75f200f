"""OpenAI chat requests: ``messages``, ``tools`` and ``tool_calls``, as servers of vLLM's kind also log them.

A line is the request, ``{"request": ..., "response": ...}``, or a line of the batch API (``body``). Agent,
session and time stand beside the request or in its ``metadata``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.base.text import show
from backend.logs.calls import (
    BadLine,
    Call,
    Fields,
    Message,
    Tool,
    Usage,
    about,
    checked,
    text_of,
    tool,
    tool_call,
)  # fmt: skip

NAME = "OpenAI chat"
ROLES = {"developer": "system", "function": "tool"}


def unwrapped(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The request and the response within a line."""
    request = next((row[k] for k in ("request", "body") if isinstance(row.get(k), dict)), row)
    response = row.get("response")
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = response["body"]
    return request, response if isinstance(response, dict) else {}


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format."""
    return "messages" in unwrapped(row)[0]


def calls(row: Mapping[str, Any], where: str) -> Iterator[Call]:
    """The row's call."""
    request, response = unwrapped(row)
    choices = Fields(response, row).rows("choices")
    answer = choices[0].get("message") if choices and isinstance(choices[0], dict) else None
    found = Fields(response.get("usage"), row.get("usage"))
    details = Fields(found.value("prompt_tokens_details"), *found.objects)
    yield Call(
        where,
        checked(message(m) for m in Fields(request).rows("messages")),
        tools=tuple(declared(t) for name in ("tools", "functions") for t in Fields(request).rows(name)),
        output=message(answer).text if answer is not None else text_of(row.get("output"), "output"),
        usage=Usage(
            found.whole("prompt_tokens", "input_tokens"), found.whole("completion_tokens", "output_tokens"),
            details.whole("cached_tokens"),
        ),
        **about(row, request, response),
    )  # fmt: skip


def message(given: object) -> Message:
    """One of ``messages``."""
    if not isinstance(given, dict):
        raise BadLine(f"a message is {show(given)}; an object is allowed")
    role = given.get("role", "user")
    if not isinstance(role, str) or len(role) > 40:
        raise BadLine(f"a message's role is {show(role)}; a word is allowed")
    parts = [text_of(given.get("reasoning_content")), text_of(given.get("content"))]
    for one in Fields(given).rows("tool_calls") if given.get("tool_calls") else ():
        function = Fields(one).value("function")
        if not isinstance(function, dict):
            raise BadLine(f"a call of a tool is {show(one)}; an object with a function is allowed")
        parts.append(tool_call(function.get("name"), function.get("arguments")))
    return Message(ROLES.get(role, role), "\n".join(filter(None, parts)))


def declared(given: object) -> Tool:
    """One of ``tools``, in today's form or that of ``functions``."""
    table = Fields(given).value("function") or given
    if not isinstance(table, dict):
        raise BadLine(f"a tool is {show(given)}; an object is allowed")
    return tool(table.get("name"), table.get("description"), table.get("parameters"))
