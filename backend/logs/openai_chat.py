"""OpenAI chat requests: ``messages``, ``tools`` and ``tool_calls``, as servers of vLLM's kind also log them.

A line is the request, ``{"request": ..., "response": ...}``, or a line of the batch API (``body``). Agent,
session and time stand beside the request or in its ``metadata``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.logs import calls as typed
from backend.logs.calls import Call, Fields, Message, Tool, object_of, text_of
from backend.logs.chances import chances_of

NAME = "OpenAI chat"
ROLES = {"developer": "system", "function": "tool"}


def unwrapped(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The request and the response within a line."""
    request = next((row[k] for k in ("request", "body") if isinstance(row.get(k), dict)), row)
    response = row.get("response")
    if isinstance(response, dict) and isinstance(response.get("body"), dict):
        response = response["body"]
    return request, response if isinstance(response, dict) else {}


def first_choice(response: Mapping[str, Any], row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first of a response's answers; empty where there is none."""
    choices = Fields(response, row).rows("choices")
    return choices[0] if choices and isinstance(choices[0], dict) else {}


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format."""
    return "messages" in unwrapped(row)[0]


def calls(row: Mapping[str, Any], where: str) -> Iterator[Call]:
    """The row's call."""
    request, response = unwrapped(row)
    choice = first_choice(response, row)
    answer = choice.get("message")
    yield Call(
        where,
        typed.checked(message(m) for m in Fields(request).rows("messages")),
        tools=tuple(declared(t) for name in ("tools", "functions") for t in Fields(request).rows(name)),
        output=message(answer).text if answer is not None else text_of(row.get("output"), "output"),
        usage=typed.usage_of(response.get("usage"), row.get("usage")),
        chances=chances_of(choice),
        **typed.about(row, request, response),
    )


def message(value: object) -> Message:
    """One of ``messages``."""
    table = object_of(value, "a message")
    role = typed.role_of(table)
    parts = [text_of(table.get("reasoning_content")), text_of(table.get("content"))]
    for call in Fields(table).rows("tool_calls") if table.get("tool_calls") else ():
        function = object_of(Fields(call).value("function"), "the function of a call of a tool")
        parts.append(typed.tool_call(function.get("name"), function.get("arguments")))
    return Message(ROLES.get(role, role), "\n".join(filter(None, parts)))


def declared(value: object) -> Tool:
    """One of ``tools``, in today's form or that of ``functions``."""
    table = object_of(Fields(value).value("function") or value, "a tool")
    return typed.tool(table.get("name"), table.get("description"), table.get("parameters"))
