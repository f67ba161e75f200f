"""A call of a model: one typed form for all formats of logs.

A format's reader makes :class:`Call` objects out of what a line holds; :class:`Fields` holds the checks that
all of them need. What has the wrong type raises :class:`BadLine`, which the log's reader turns into a message
with the line's number.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from backend.base.text import show

SYSTEM, TOOLS = "system", "tools"  # roles: of the system prompt, and of the part with the tools
PARAGRAPH = re.compile(r"(?<=\n\n)(?=\S)")  # where a text is cut
STAYS = 0.9  # share of an agent's calls that have what stays in it
_VARIES = re.compile(r"\b[0-9a-fA-F]{7,}\b|\d+")  # clocks and ids, in the name of an agent
_NAMED_BY = 160  # characters of a system prompt


class BadLine(Exception):
    """A line holds no call; the message says why, without file and number."""


@dataclass(frozen=True, slots=True)
class Message:
    """``role``: system, user, assistant or tool; empty for a plain prompt. ``text`` is all that the model
    reads of it, calls of tools included."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call; ``text`` is its declaration as JSON (name, description, parameters)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None where the log does not say. ``cached`` of the input."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class Chance:
    """A token of an answer with its log probability in nats, and the likeliest tokens in its place with
    theirs."""

    token: str
    log_probability: float
    likely: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """One request to a model and its answer.

    Attributes:
        where: file and line (or span), for messages.
        agent: its name; empty where the log names none.
        session, id, parent: as logged; empty where they are not.
        time: seconds since 1970, None where the log has no time.
        messages: in the order in which the model reads them, the system prompt first.
        output: the answer's text, calls of tools included; empty where the log has none.
        chances: of the answer's tokens; empty where the log has no log probabilities.
    """

    where: str
    messages: tuple[Message, ...]
    agent: str = ""
    session: str = ""
    id: str = ""
    parent: str = ""
    time: float | None = None
    tools: tuple[Tool, ...] = ()
    output: str = ""
    usage: Usage = field(default_factory=Usage)
    model: str = ""
    chances: tuple[Chance, ...] = ()

    @property
    def agent_name(self) -> str:
        """The agent's name. One without is called by how its system prompt begins, each number as ``#``."""
        system = next((m.text for m in self.messages if m.role == SYSTEM), "")
        words = " ".join(_VARIES.sub("#", system[:_NAMED_BY]).split())
        return self.agent or words or "without a system prompt"


def object_of(value: object, what: str) -> dict[str, Any]:
    """
    Raises:
        BadLine: it is no object.
    """
    if not isinstance(value, dict):
        raise BadLine(f"{what} is {show(value)}; an object is allowed")
    return value


def role_of(message: Mapping[str, Any]) -> str:
    """A message's role; without one it is a user's.

    Raises:
        BadLine: it is no word.
    """
    role = message.get("role", "user")
    if not isinstance(role, str) or len(role) > 40:
        raise BadLine(f"a message's role is {show(role)}; a word is allowed")
    return role


def tool_call(name: object, arguments: object) -> str:
    """A call of a tool as text, the same from every format: arguments are an object or its JSON."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return f"{name}({arguments})"
    return f"{name}({plain_json(arguments or {})})"


def tool(name: object, description: object, parameters: object) -> Tool:
    """A declaration as text, the same from every format. Keys of the parameters keep their order, for it
    causes misses."""
    return Tool(
        str(name or ""),
        plain_json({"name": name, "description": description or "", "parameters": parameters or {}}),
    )


def plain_json(value: object) -> str:
    """JSON on one line, not escaped to ASCII."""
    return json.dumps(value, ensure_ascii=False)


def text_of(content: object, what: str = "content") -> str:
    """The text of a message's content: a text, nothing, or a list of blocks with texts. A picture or sound
    becomes its type in brackets, since no tokenizer counts its tokens."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        raise BadLine(f"{what} is {show(content)}; a text or a list of blocks is allowed")
    return "\n".join(filter(None, (block_text(block, what) for block in content)))


def block_text(block: object, what: str = "content") -> str:
    """One block's text."""
    if isinstance(block, str):
        return block
    if not isinstance(block, dict):
        raise BadLine(f"{what} has the block {show(block)}; a text or an object is allowed")
    for key in ("text", "content", "thinking", "reasoning"):
        if isinstance(block.get(key), str):
            return str(block[key])
        if isinstance(block.get(key), list):
            return text_of(block[key], what)
    return f"[{block.get('type', 'block')}]"


class Fields:
    """Checked look-ups in objects that may be anything: the first value under one of several names."""

    def __init__(self, *objects: object) -> None:
        self.objects = [o for o in objects if isinstance(o, dict)]

    def value(self, *names: str) -> Any:
        """The first that is not None."""
        for name in names:
            for table in self.objects:
                if table.get(name) is not None:
                    return table[name]
        return None

    def text(self, *names: str) -> str:
        """A text or number as text; empty where there is none."""
        value = self.value(*names)
        if value is None or isinstance(value, bool | list | dict):
            return ""
        return show(value) if isinstance(value, int) and abs(value) > 1 << 64 else str(value)

    def whole(self, *names: str) -> int | None:
        """A whole number from 0; None where there is none."""
        value = self.value(*names)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
            value = int(value)
        return value if type(value) is int and 0 <= value < 1 << 53 else None

    def rows(self, name: str) -> list[Any]:
        """A list; empty where there is none.

        Raises:
            BadLine: it is something else.
        """
        value = self.value(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise BadLine(f"{name} is {show(value)}; a list is allowed")
        return value


def usage_of(*objects: object) -> Usage:
    """Usage as OpenAI's interfaces and servers of that kind report it; ``objects`` are where it may stand."""
    fields = Fields(*objects)
    details = Fields(fields.value("prompt_tokens_details", "input_tokens_details"), *objects)
    return Usage(
        fields.whole("prompt_tokens", "input_tokens"),
        fields.whole("completion_tokens", "output_tokens"),
        details.whole("cached_tokens"),
    )


def about(*objects: object) -> dict[str, Any]:
    """Agent, session, id, parent, time and model as logs name them, for :class:`Call`.

    Args:
        objects: where they may stand, the most trusted first.
    """
    fields = Fields(*objects, *(o.get("metadata") for o in objects if isinstance(o, dict)))
    return {
        "agent": fields.text("agent", "agent_name"),
        "session": fields.text("session_id", "session", "conversation_id", "thread_id"),
        "id": fields.text("request_id", "custom_id", "id"),
        "parent": fields.text("parent_id", "parent"),
        "time": seconds(fields.value("timestamp", "time", "created_at", "created")),
        "model": fields.text("model"),
    }


def seconds(value: object) -> float | None:
    """A time as seconds since 1970: a number (of seconds, or thousandths, or less), or ISO 8601."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                moment = datetime.fromisoformat(str(value))
                return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
            except (ValueError, OverflowError):
                return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) > 1 << 80:
        return None
    number = float(value)
    if not math.isfinite(number):
        return None
    while abs(number) > 1e11:  # thousandths, millionths or billionths of a second
        number /= 1000
    return number


def checked(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages that are not empty.

    Raises:
        BadLine: none is left.
    """
    nonempty = tuple(m for m in messages if m.text)
    if not nonempty:
        raise BadLine("it has no message with a text")
    return nonempty


def by_time(times: Sequence[float | None]) -> list[int]:
    """Calls' places in the order of their times; in the file's order where one has none."""
    logged = [time for time in times if time is not None]
    return (
        sorted(range(len(times)), key=logged.__getitem__)
        if len(logged) == len(times)
        else [*range(len(times))]
    )
