"""Anthropic's messages: ``system`` beside ``messages``, blocks of content, tools with an ``input_schema``.

A line is the request or ``{"request": ..., "response": ...}``. Results of tools stand in a user's message;
here they are messages of their own, as in other formats.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from backend.logs import calls as typed
from backend.logs.calls import Call, Fields, Message, Tool, Usage, object_of, text_of
from backend.logs.openai_chat import unwrapped

NAME = "Anthropic messages"
OWN = ("tool_use", "tool_result", "thinking")  # types of blocks that no other format has


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format: it has what OpenAI's never has."""
    request, response = unwrapped(row)
    if not isinstance(request.get("messages"), list):
        return False
    if "system" in request or response.get("type") == "message" or "claude" in str(request.get("model")):
        return True
    if any(isinstance(t, dict) and "input_schema" in t for t in Fields(request).value("tools") or ()):
        return True
    contents = (m.get("content") for m in request["messages"] if isinstance(m, dict))
    blocks = (b for content in contents if isinstance(content, list) for b in content)
    return any(isinstance(b, dict) and b.get("type") in OWN for b in blocks)


def calls(row: Mapping[str, Any], where: str) -> Iterator[Call]:
    """The row's call."""
    request, response = unwrapped(row)
    messages = [Message("system", text_of(request.get("system"), "system"))]
    for message in Fields(request).rows("messages"):
        messages += split(message)
    usage = Fields(response.get("usage"), row.get("usage"))
    cached, writes = usage.whole("cache_read_input_tokens"), usage.whole("cache_creation_input_tokens")
    fresh = usage.whole("input_tokens")
    answer = split({"role": "assistant", "content": response.get("content", row.get("output"))})
    yield Call(
        where,
        typed.checked(messages),
        tools=tuple(declared(t) for t in Fields(request).rows("tools")),
        output="\n".join(m.text for m in answer),
        usage=Usage(
            None if fresh is None else fresh + (cached or 0) + (writes or 0),  # reported apart
            usage.whole("output_tokens"),
            cached,
        ),
        **typed.about(row, request, response),
    )


def split(value: object) -> Iterator[Message]:
    """A message; results of tools in it are messages of their own, before it."""
    table = object_of(value, "a message")
    role, content = typed.role_of(table), table.get("content")
    if not isinstance(content, list):
        yield Message(role, text_of(content))
        return
    parts = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "tool_result":
            yield Message("tool", text_of(block.get("content")))
        elif kind == "tool_use":
            parts.append(typed.tool_call(block.get("name"), block.get("input")))
        else:
            parts.append(typed.block_text(block))
    if text := "\n".join(filter(None, parts)):
        yield Message(role, text)


def declared(value: object) -> Tool:
    """One of ``tools``; those that the server runs itself have no schema."""
    table = object_of(value, "a tool")
    return typed.tool(table.get("name"), table.get("description"), table.get("input_schema"))
