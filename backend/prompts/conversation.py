"""Conversations as pipelines of one agent: system messages are its template, other texts fill placeholders.
Free of torch.

Reuse may copy a placeholder's text. A pipeline's prompt is one message to the model, so the roles of a
conversation become headings; a single message behind the system's needs none.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from backend.base.errors import PromptError
from backend.base.text import check_text, show
from backend.prompts.agent import Agent
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import FAMILY, QUESTION

INSTRUCTION_ROLES = ("system", "developer")  # roles whose texts are the template's
_TEXT = re.compile(r"text_[0-9]+")
_BRACES = re.compile(r"\{([A-Za-z0-9_-]{1,64})\}")

#: A part of a prompt: its text, and whether it is the template's.
Part = tuple[str, bool]


def pipeline_of_parts(
    parts: Sequence[Part], *, name: str, title: str, max_new_tokens: int
) -> tuple[Pipeline, dict[str, str]]:
    """A pipeline of one agent that reads these parts, and the values of its placeholders ``text_1``, ...

    A template's part that contains a placeholder's name in braces becomes a value, so it stays plain text.

    Raises:
        PromptError: there is nothing to read, or a text cannot be used.
    """
    template: list[str] = []
    values: dict[str, str] = {}
    for text, fixed in parts:
        names = (match[1] for match in _BRACES.finditer(text))
        if not text.strip() or (fixed and not any(map(_is_placeholder, names))):
            template.append(text)  # also blank text, which a value may not be
            continue
        slot = f"text_{len(values) + 1}"
        values[slot] = text
        template.append(f"{{{slot}}}")
    agent = Agent(1, title, "", "".join(template), max_new_tokens)
    return Pipeline(name, title, "", (agent,), tuple(values), scoring="none"), values


def _is_placeholder(name: str) -> bool:
    return name == QUESTION or bool(FAMILY.fullmatch(name) or _TEXT.fullmatch(name))


def message_parts(messages: Sequence[Mapping[str, Any]]) -> list[Part]:
    """The parts of one call's messages, as chat interfaces take them: system messages belong to the template,
    each other message is a text of its own.

    Args:
        messages: ``role`` and ``content`` each; the content a text, or blocks of type ``text``.

    Raises:
        PromptError: a message cannot be read, with its number in ``field``.
    """
    turns = [_message(message, number) for number, message in enumerate(messages)]
    has_headings = sum(role not in INSTRUCTION_ROLES for role, _ in turns) > 1
    parts: list[Part] = []
    for role, text in turns:
        if role in INSTRUCTION_ROLES:
            parts.append((f"{text}\n\n", True))
        elif has_headings:
            parts += [(f"{role.capitalize()}:\n", True), (text, False), ("\n\n", True)]
        else:
            parts.append((text, False))
    return [*parts, ("Assistant:\n", True)] if has_headings else parts


def _message(message: object, number: int) -> tuple[str, str]:
    field = f"messages.{number}"
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise PromptError(
            f"Message {number + 1} is {show(message)}; a message is a mapping with a role and a content, as "
            "in {'role': 'user', 'content': 'Hello'}. Correct it.",
            field=field,
        )
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        texts = [block.get("text") if isinstance(block, Mapping) else None for block in content]
        strings = [text for text in texts if isinstance(text, str)]
        content = "\n".join(strings) if len(strings) == len(texts) else content
    return message["role"], check_text(content, f"The content of message {number + 1}", field)
