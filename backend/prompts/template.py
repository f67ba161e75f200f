"""Prompt templates, their holes, and the agent and the turn that a hole names. Free of torch.

A template is literal text with named holes, the *placeholders* of the KVCOMM paper (appendix 6.2.3):

==========================  ===========================================  ==========
name                        filled with                                  kind
==========================  ===========================================  ==========
``{user_question}``         the request                                  question
``{agent_2_current}``       what agent 2 wrote in this run               agent
``{condition_3_current}``   what agent 3's tool gave in this run         tool
``{agent_1_history_-1}``    what agent 1 wrote one turn ago              history
``{condition_1_history_-1}``  a tool's result one turn ago               history
``{agent_2_turn_1}``        what agent 2 wrote in the first turn         agent
``{anything_declared}``     a value of the pipeline's ``declared``       declared
==========================  ===========================================  ==========

Any other brace is plain text. A template is never formatted twice: a value that contains braces or
the text of a control token stays text.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from backend.base.errors import PromptError
from backend.base.text import check_text

Kind = Literal["question", "agent", "tool", "history", "declared"]
TURN_STRIDE = 1_000_000  # agent 3 of the second turn has the id 1000003
QUESTION = "user_question"
FAMILY = re.compile(
    r"(agent|condition)_([1-9][0-9]{0,5})_(?:current|history_(-[1-9][0-9]{0,5})|turn_([1-9][0-9]{0,2}))"
)
_BRACES = re.compile(r"\{([A-Za-z0-9_-]{1,64})\}")


def agent_and_turn(id: int) -> tuple[int, int]:
    """An agent's number in its pipeline, and its turn; the inverse of :func:`agent_in_turn`."""
    return id % TURN_STRIDE, id // TURN_STRIDE + 1


def agent_in_turn(agent: int, turn: int) -> int:
    """The id that an agent has in a turn of an unrolled pipeline: its own in the first."""
    return agent + (turn - 1) * TURN_STRIDE


def agent_label(id: int) -> str:
    """An agent's id for a person: ``3``, or ``3 (turn 2)``."""
    agent, turn = agent_and_turn(id)
    return f"{agent} (turn {turn})" if turn > 1 else str(agent)


@dataclass(frozen=True)
class Placeholder:
    """A named hole in a template."""

    name: str

    @property
    def kind(self) -> Kind:
        """What fills it; every value of an earlier turn is ``history``."""
        if self.name == QUESTION:
            return "question"
        if (match := FAMILY.fullmatch(self.name)) is None:
            return "declared"
        if match[3]:
            return "history"
        return "agent" if match[1] == "agent" else "tool"

    @property
    def agent(self) -> int | None:
        """The agent whose output or tool result it is, if it is one; of a named turn, its id in that turn."""
        match = FAMILY.fullmatch(self.name)
        return agent_in_turn(int(match[2]), int(match[4] or 1)) if match else None

    @property
    def family(self) -> str:
        """``agent`` or ``condition`` for an output or a tool's result, else empty."""
        match = FAMILY.fullmatch(self.name)
        return match[1] if match else ""

    @property
    def fixed(self) -> bool:
        """Does it name a turn by its number? (Only unrolled templates do.)"""
        match = FAMILY.fullmatch(self.name)
        return bool(match and match[4])

    @property
    def turn(self) -> int:
        """0 for this turn, -t for t turns ago."""
        match = FAMILY.fullmatch(self.name)
        return int(match[3] or 0) if match else 0


@dataclass(frozen=True)
class PromptTemplate:
    """A template taken apart: ``parts`` in order; their concatenation is ``text``."""

    text: str
    parts: tuple[str | Placeholder, ...]

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """The holes, in order."""
        return tuple(part for part in self.parts if isinstance(part, Placeholder))

    @staticmethod
    def parse(
        text: str,
        declared: Collection[str] = (),
        field: str = "template",
        owner: str = "The template",
    ) -> PromptTemplate:
        """Take a template apart.

        Args:
            text: the template.
            declared: names beside the papers' families that are placeholders too.
            field, owner: the input and whose template it is, for the error.

        Raises:
            PromptError: the text is empty, too long or not valid text, or names a placeholder twice.
        """
        if not check_text(text, owner, field).strip():
            raise PromptError(
                f"{owner} is empty. Write what the agent should read, for example "
                "'Solve: {user_question}'.",
                field=field,
            )
        parts: list[str | Placeholder] = []
        names: set[str] = set()
        start = 0
        for match in _BRACES.finditer(text):
            name = match[1]
            if name != QUESTION and name not in declared and not FAMILY.fullmatch(name):
                continue
            if name in names:
                raise PromptError(
                    f"{owner} uses {{{name}}} twice. A placeholder may appear once in a template, because "
                    "its place in the prompt has to be unambiguous. Remove one of the two.",
                    field=field,
                )
            names.add(name)
            if match.start() > start:
                parts.append(text[start : match.start()])
            parts.append(Placeholder(name))
            start = match.end()
        if start < len(text):
            parts.append(text[start:])
        return PromptTemplate(text, tuple(parts))
