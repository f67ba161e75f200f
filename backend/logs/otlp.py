"""Spans as OTLP JSON, in the conventions of OpenTelemetry GenAI and of OpenInference.

A line is an export, ``{"resourceSpans": [...]}``. Spans that are no call of a model are passed over. An
agent's name may stand in a span above the call's, if both are in one line.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from backend.base.bounded_json import excess
from backend.base.text import show
from backend.logs import calls as typed
from backend.logs.calls import BadLine, Call, Fields, Message, Tool, Usage, object_of, text_of

NAME = "OTLP spans"
_KINDS = ("stringValue", "intValue", "doubleValue", "boolValue")
_DEEPEST = 10  # parts of an attribute's name

AGENT = ("gen_ai.agent.name", "agent.name", "graph.node.id")
SESSION = ("gen_ai.conversation.id", "session.id")


def fits(row: Mapping[str, Any]) -> bool:
    """Whether a row is of this format."""
    return "resourceSpans" in row


def calls(row: Mapping[str, Any], where: str) -> Iterator[Call]:
    """The calls among the row's spans, by time."""
    spans = [
        (span, _attributes(span.get("attributes")))
        for resource in _objects(row, "resourceSpans")
        for scope in _objects(resource, "scopeSpans")
        for span in _objects(scope, "spans")
    ]
    by_id = {str(span.get("spanId")): (span, attributes) for span, attributes in spans}
    for span, attributes in sorted(spans, key=lambda s: _started(s[0]) or 0.0):
        for event in _objects(span, "events"):  # newer instrumentation puts the texts there
            attributes.update(_attributes(event.get("attributes")))
        read = next((read for sign, read in CONVENTIONS if any(k.startswith(sign) for k in attributes)), None)
        if read is None:
            if attributes.get("gen_ai.operation.name") in ("chat", "text_completion", "generate_content"):
                raise BadLine(f"span {show(span.get('name'))} has no messages; let the texts be recorded too")
            continue
        messages, tools, output, usage = read(attributes)
        trace, fields = Fields(span), Fields(attributes)
        yield Call(
            f"{where}, span {trace.text('spanId')}",
            typed.checked(messages),
            agent=fields.text(*AGENT) or _above(trace.text("parentSpanId"), by_id),
            session=fields.text(*SESSION) or trace.text("traceId"),
            id=trace.text("spanId"),
            parent=trace.text("parentSpanId"),
            time=_started(span),
            tools=tuple(tools),
            output=output,
            usage=usage,
            model=fields.text("gen_ai.request.model", "llm.model_name"),
        )


def _started(span: Mapping[str, Any]) -> float | None:
    return typed.seconds(span.get("startTimeUnixNano"))


def _above(parent: str, by_id: Mapping[str, Any]) -> str:
    """The agent's name in a span above."""
    visited: set[str] = set()
    while parent in by_id and parent not in visited:
        visited.add(parent)
        span, attributes = by_id[parent]
        if name := Fields(attributes).text(*AGENT):
            return name
        parent = str(span.get("parentSpanId") or "")
    return ""


# -- OpenTelemetry GenAI -------------------------------------------------------------------------------------

Read = tuple[list[Message], list[Tool], str, Usage]


def genai(attributes: Mapping[str, Any]) -> Read:
    """``gen_ai.input.messages`` with parts, or the numbered ``gen_ai.prompt.N.content`` of older tracers."""
    messages = _structure(attributes, "gen_ai.input.messages")
    answers = _structure(attributes, "gen_ai.output.messages")
    system = {"role": "system", "parts": _structure(attributes, "gen_ai.system_instructions")}
    if not messages:
        messages, answers = nested(attributes, "gen_ai.prompt"), nested(attributes, "gen_ai.completion")
    tools = _structure(attributes, "gen_ai.tool.definitions") or nested(attributes, "llm.request.functions")
    fields = Fields(attributes)
    return (
        [_parted(m) for m in [system, *messages]],
        [_declared(t) for t in tools],
        _parted(answers[0]).text if answers else "",
        Usage(
            fields.whole("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
            fields.whole("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
            fields.whole("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
        ),
    )


def _parted(value: object) -> Message:
    """A message of parts, or with a text and calls of tools."""
    message = object_of(value, "a message")
    texts = [text_of(message.get("content"))]
    for part in [*Fields(message).rows("parts"), *Fields(message).rows("tool_calls")]:
        table = Fields(part, Fields(part).value("function"))
        if table.text("type") == "tool_call_response":
            response = table.value("response", "result")
            texts.append(response if isinstance(response, str) else typed.plain_json(response))
        elif table.value("name") and table.text("type") in ("tool_call", "function", ""):
            texts.append(typed.tool_call(table.text("name"), table.value("arguments")))
        else:
            texts.append(text_of([part]))
    return Message(Fields(message).text("role") or "user", "\n".join(filter(None, texts)))


# -- OpenInference -------------------------------------------------------------------------------------------


def openinference(attributes: Mapping[str, Any]) -> Read:
    """``llm.input_messages.N.message.content`` and what stands beside it."""
    answers = [_message(m) for m in nested(attributes, "llm.output_messages")]
    fields = Fields(attributes)
    return (
        [_message(m) for m in nested(attributes, "llm.input_messages")],
        [
            _declared(Fields(Fields(t).value("tool")).value("json_schema"))
            for t in nested(attributes, "llm.tools")
        ],
        answers[0].text if answers else "",
        Usage(
            fields.whole("llm.token_count.prompt"), fields.whole("llm.token_count.completion"),
            fields.whole("llm.token_count.prompt_details.cache_read"),
        ),
    )  # fmt: skip


def _message(value: object) -> Message:
    table = Fields(Fields(value).value("message"))
    blocks = [Fields(Fields(b).value("message_content")) for b in table.rows("contents")]
    texts = [text_of(table.value("content")), *(b.text("text") or f"[{b.text('type')}]" for b in blocks)]
    for call in table.rows("tool_calls"):
        function = Fields(Fields(Fields(call).value("tool_call")).value("function"))
        texts.append(typed.tool_call(function.text("name"), function.value("arguments")))
    return Message(table.text("role") or "user", "\n".join(filter(None, texts)))


CONVENTIONS: tuple[tuple[str, Callable[[Mapping[str, Any]], Read]], ...] = (
    ("llm.input_messages", openinference),
    ("gen_ai.input.messages", genai),
    ("gen_ai.prompt.", genai),
)

# -- attributes ----------------------------------------------------------------------------------------------


def _declared(value: object) -> Tool:
    table = _loaded(value)
    table = object_of(Fields(table).value("function") or table, "a tool")
    fields = Fields(table)
    return typed.tool(
        table.get("name"), table.get("description"), _loaded(fields.value("parameters", "input_schema"))
    )


def _loaded(value: object) -> Any:
    """What a text holds as JSON; anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        return None if excess(value.encode("utf-8", "replace")) else json.loads(value)
    except (ValueError, RecursionError):
        raise BadLine(f"{show(value)} is not valid JSON") from None


def _structure(attributes: Mapping[str, Any], name: str) -> list[Any]:
    """An attribute that is a list, or one as JSON."""
    value = _loaded(attributes.get(name))
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadLine(f"{name} is {show(value)}; a list is allowed")
    return value


def nested(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """The list that attributes of numbered names spell, as in ``prefix.0.role``."""
    root: dict[str, Any] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            *path, last = name[len(prefix) + 1 :].split(".", _DEEPEST)
            at = root
            for part in path:
                step = at.setdefault(part, {})
                at = step if isinstance(step, dict) else {}
            at.setdefault(last, value)
    listed = _listed(root)
    return listed if isinstance(listed, list) else []


def _listed(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    inner = {key: _listed(item) for key, item in value.items()}
    if inner and all(key.isascii() and key.isdigit() and len(key) < 8 for key in inner):
        return [inner[key] for key in sorted(inner, key=int)]
    return inner


def _objects(table: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = Fields(table).rows(name)
    if bad := [row for row in rows if not isinstance(row, dict)]:
        raise BadLine(f"{name} holds {show(bad[0])}; objects are allowed")
    return rows


def _attributes(value: object) -> dict[str, Any]:
    """OTLP's list of keys and values as a table."""
    if value is None:
        return {}
    if not isinstance(value, list):
        raise BadLine(f"attributes are {show(value)}; a list is allowed")
    return {str(row.get("key")): _any(row.get("value")) for row in value if isinstance(row, dict)}


def _any(value: object) -> Any:
    if not isinstance(value, dict):
        return None
    for kind in _KINDS:
        if kind in value:
            return value[kind]
    for kind, read in (("arrayValue", lambda v: [_any(item) for item in v]), ("kvlistValue", _attributes)):
        inner = value.get(kind)
        if isinstance(inner, dict):
            return read(inner.get("values") if isinstance(inner.get("values"), list) else [])
    return None
