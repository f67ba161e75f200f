"""Pipelines of agents that read the request and one another. Free of torch.

A pipeline of several turns is run *unrolled* (:attr:`Pipeline.unrolled`): every agent once for each turn, as
agents of their own, whose templates name texts by their turn. So it is one acyclic graph like any other,
and a text is one sample with one cache, whether its readers met it in its own turn or later. Only the lab
writes the names with ``turn``; a person writes ``current`` and ``history``.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from backend.base.errors import PromptError
from backend.base.ranges import check_choice
from backend.base.text import check_label, check_text, show
from backend.prompts.agent import Agent
from backend.prompts.scoring import SCORINGS, Scoring
from backend.prompts.template import (
    QUESTION,
    TURN_STRIDE,
    Placeholder,
    PromptTemplate,
    agent_and_turn,
    agent_in_turn,
)

MAX_AGENTS = 12
MAX_TURNS = 8
_RESERVED = re.compile(r"user_question|(?:agent|condition)_[0-9]+_(?:current|history|turn).*")
_DECLARED = re.compile(r"[a-z][a-z0-9_]{0,40}")


@dataclass(frozen=True)
class Pipeline:
    """Agents that read the request and one another. Checked when it is made.

    ``declared`` names extra placeholders that the request fills. ``scoring`` says how an answer is
    compared with a known one, ``judge`` which agent selects among candidates. ``chat`` puts each
    prompt into the model's chat template, if it has one. ``turns``: how often the agents run one after the
    other, each turn reading what earlier ones left in ``history`` placeholders.
    """

    name: str
    title: str
    summary: str
    agents: tuple[Agent, ...]
    declared: tuple[str, ...] = ()
    scoring: Scoring = "number"
    judge: int | None = None
    chat: bool = True
    turns: int = 1

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse a pipeline that could not run.

        Raises:
            PromptError: with the place in ``field``, for example ``agents.2.template``.
        """
        check_label(self.name, "The pipeline's name", "name")
        check_label(self.title, "The pipeline's title", "title")
        check_text(self.summary, "The pipeline's summary", "summary", 2000)
        if type(self.turns) is not int or not 1 <= self.turns <= MAX_TURNS:
            raise PromptError(
                f"The number of turns is {show(self.turns)}; 1 to {MAX_TURNS} are allowed, whole numbers. "
                "Change it.",
                field="turns",
            )
        self._check_agents()
        self._check_declared()
        ids = [agent.id for agent in self.agents]
        listed = ", ".join(map(str, ids))
        if self.judge is not None and self.judge not in ids:
            raise PromptError(
                f"The judge is agent {show(self.judge)}, but the agents are {listed}. "
                "Name one of them, or leave the judge out.",
                field="judge",
            )
        check_choice(self.scoring, SCORINGS, "scoring", "The scoring", PromptError)
        for agent in self.agents:
            for hole in self.template(agent.id).placeholders:
                self._check_turn(agent, hole)
                if hole.agent is not None and hole.agent not in ids:
                    raise PromptError(
                        f"Agent {agent.id}'s template reads {{{hole.name}}}, but there is no agent "
                        f"{hole.agent}; the agents are {listed}. Correct the number or add the agent.",
                        field=f"agents.{agent.id}.template",
                    )
                if self.fills(hole) and hole.agent == agent.id:
                    raise PromptError(
                        f"Agent {agent.id}'s template reads {{{hole.name}}}, its own output of this "
                        f"run, which does not exist yet. Read another agent, or its last turn: "
                        f"{{agent_{agent.id}_history_-1}}.",
                        field=f"agents.{agent.id}.template",
                    )
        used = {hole.name for hole in self.placeholders}
        for name in self.declared:
            if name not in used:
                raise PromptError(
                    f"The placeholder {{{name}}} is declared, but no template uses it. "
                    "Write it into a template or remove the declaration.",
                    field="declared",
                )
        _ = self.order

    def _check_turn(self, agent: Agent, hole: Placeholder) -> None:
        """Refuse a placeholder of a turn that does not exist."""
        if hole.fixed and not self.is_unrolled:
            whose = f"{hole.family}_{agent_and_turn(hole.agent or 0)[0]}"
            raise PromptError(
                f"Agent {agent.id}'s template reads {{{hole.name}}}. Only the lab names turns by number, "
                f"when it runs them. Write {{{whose}_current}} for this turn, {{{whose}_history_-1}} for the "
                "one before.",
                field=f"agents.{agent.id}.template",
            )
        if self.turns > 1 and -hole.turn >= self.turns:
            raise PromptError(
                f"Agent {agent.id}'s template reads {{{hole.name}}}, but the last of {self.turns} turns can "
                f"look back by {self.turns - 1} at most. Use a smaller number, or run more turns.",
                field=f"agents.{agent.id}.template",
            )

    @property
    def is_unrolled(self) -> bool:
        """Does ``agents`` list the agents of every turn?"""
        return self.turns > 1 and any(type(a.id) is int and a.id > TURN_STRIDE for a in self.agents)

    def _check_agents(self) -> None:
        turns = self.turns if self.is_unrolled else 1
        if not 1 <= len(self.agents) <= MAX_AGENTS * turns:
            raise PromptError(
                f"The pipeline has {len(self.agents)} agents; 1 to {MAX_AGENTS} are allowed. "
                "Add or remove agents.",
                field="agents",
            )
        ids: set[int] = set()
        for agent in self.agents:
            if type(agent.id) is not int or not _usable(agent.id, turns):
                raise PromptError(
                    f"An agent has the id {show(agent.id)}; ids are whole numbers from 1 to 999999. "
                    "Change it.",
                    field="agents",
                )
            if agent.id in ids:
                raise PromptError(
                    f"Two agents have the id {agent.id}; each agent needs its own. Change one.",
                    field="agents",
                )
            ids.add(agent.id)
            agent.check()

    def _check_declared(self) -> None:
        for index, name in enumerate(self.declared):
            if not isinstance(name, str) or not _DECLARED.fullmatch(name):
                raise PromptError(
                    f"The declared placeholder {show(name)} is not a usable name. Names start with a small "
                    "letter and hold up to 41 small letters, digits and underscores. Rename it.",
                    field="declared",
                )
            if _RESERVED.fullmatch(name):
                raise PromptError(
                    f"The declared placeholder {{{name}}} has a meaning of its own, like "
                    "{user_question} and {agent_1_current}. Remove the declaration or rename it.",
                    field="declared",
                )
            if name in self.declared[:index]:
                raise PromptError(
                    f"The placeholder {{{name}}} is declared twice. Remove one declaration.", field="declared"
                )

    @cached_property
    def _templates(self) -> dict[int, PromptTemplate]:
        declared = frozenset(self.declared)
        return {agent.id: agent.parsed(declared) for agent in self.agents}

    def output(self, agent: int, family: str = "agent") -> str:
        """The placeholder that an agent's answer fills, or (family ``condition``) what its tool gave."""
        id, turn = agent_and_turn(agent)
        return f"{family}_{id}_turn_{turn}" if self.is_unrolled else f"{family}_{id}_current"

    @cached_property
    def unrolled(self) -> Pipeline:
        """The same run as one turn: every agent once for each turn, with an id and a name of its own.

        A text of ``t`` turns ago is read from the agent of that turn. Before the first turn only the request
        gives texts (``history`` placeholders, counted from the first turn; empty when it gives none). A
        pipeline of one turn is returned as it is.
        """
        if self.turns == 1 or self.is_unrolled:
            return self
        agents = tuple(
            replace(
                agent,
                id=agent_in_turn(agent.id, turn),
                name=f"{agent.name[:180]}, turn {turn}",
                template="".join(
                    part if isinstance(part, str) else "{" + self._in_turn(part, turn) + "}"
                    for part in self.template(agent.id).parts
                ),
            )
            for turn in range(1, self.turns + 1)
            for agent in self.agents
        )
        judge = None if self.judge is None else agent_in_turn(self.judge, self.turns)
        return replace(self, agents=agents, judge=judge)

    def _in_turn(self, hole: Placeholder, turn: int) -> str:
        """What a placeholder of the agents' templates is called in the unrolled template of a turn."""
        is_output = any(a.id == hole.agent and (a.tool or hole.family == "agent") for a in self.agents)
        if not hole.family or not is_output:
            return hole.name
        source = turn + hole.turn
        if source < 1:  # before the first turn
            return f"{hole.family}_{hole.agent}_history_{source - 1}"
        return f"{hole.family}_{hole.agent}_turn_{source}"

    def agent(self, id: int) -> Agent:
        """The agent with this id."""
        for agent in self.agents:
            if agent.id == id:
                return agent
        raise KeyError(id)

    def template(self, id: int) -> PromptTemplate:
        """The template of the agent with this id, taken apart."""
        return self._templates[id]

    @cached_property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """Every placeholder that some template uses, once, in order of appearance."""
        return tuple(dict.fromkeys(h for a in self.agents for h in self.template(a.id).placeholders))

    @property
    def outside_model(self) -> str:
        """The weights that encode what comes from outside: the agents' where all run on the same, else those
        of the lab (empty)."""
        named = {agent.model for agent in self.agents}
        return named.pop() if len(named) == 1 else ""

    def fills(self, hole: Placeholder) -> bool:
        """Is the placeholder filled by the run itself: an agent's answer, or what its tool gave?"""
        if hole.kind == "tool" and hole.agent is not None:
            return any(agent.id == hole.agent and agent.tool for agent in self.agents)
        return hole.kind == "agent"

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Who reads whom in this run: sorted pairs (producer, reader), of answers and of tool results."""
        edges = {
            (hole.agent, agent.id)
            for agent in self.agents
            for hole in self.template(agent.id).placeholders
            if self.fills(hole) and hole.agent is not None
        }
        return tuple(sorted(edges))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """Agent ids in running order: producers before readers, else the smaller id first.

        Raises:
            PromptError: agents read one another in a circle.
        """
        waiting = {agent.id: {p for p, reader in self.edges if reader == agent.id} for agent in self.agents}
        ready = [id for id, producers in waiting.items() if not producers]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            agent = heapq.heappop(ready)
            order.append(agent)
            del waiting[agent]
            for id, producers in waiting.items():
                if agent in producers:
                    producers.remove(agent)
                    if not producers:
                        heapq.heappush(ready, id)
        if waiting:
            path = [min(waiting)]
            while (producer := min(waiting[path[-1]])) not in path:
                path.append(producer)
            circle = [producer, *reversed(path[path.index(producer) :])]
            start = circle.index(min(circle))
            circle = circle[start:-1] + circle[: start + 1]
            raise PromptError(
                f"Agents wait for one another in a circle: {' -> '.join(map(str, circle))} (an arrow points "
                "from an agent to its reader). Remove one of these placeholders from its template.",
                field=f"agents.{circle[0]}.template",
            )
        return tuple(order)

    @property
    def final(self) -> int:
        """The agent that runs last; its answer is the pipeline's."""
        return self.order[-1]

    @cached_property
    def scored(self) -> frozenset[int]:
        """Agents whose right answer is the request's: the final one, those whose texts lead to it, and those
        that read the same outside texts. Readers of other texts have right answers of their own."""
        sources = {self.final}
        for agent in reversed(self.order):
            if any(producer == agent and reader in sources for producer, reader in self.edges):
                sources.add(agent)
        same = self._outside(self.final)
        return frozenset(agent for agent in self.order if agent in sources or self._outside(agent) == same)

    def _outside(self, agent: int) -> set[str]:
        return {h.name for h in self.template(agent).placeholders if h.kind in ("question", "declared")}

    @property
    def longest_answer(self) -> int:
        """The most new tokens that any agent may write."""
        return max(agent.max_new_tokens for agent in self.agents)

    @cached_property
    def required(self) -> tuple[str, ...]:
        """Outside placeholders that a request must fill."""
        return tuple(h.name for h in self.placeholders if h.kind in ("question", "declared"))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Outside placeholders: the required ones, then those that default to empty (tool, history)."""
        optional = tuple(
            h.name for h in self.placeholders if h.kind in ("tool", "history") and not self.fills(h)
        )
        return self.required + optional

    @property
    def stand_ins(self) -> dict[str, str]:
        """A short neutral text per placeholder, to encode template text where no value is known yet."""
        texts = {
            "question": "(the question)",
            "agent": "(the output of agent {agent})",
            "tool": "(the tool result for agent {agent})",
            "history": "(an earlier text of agent {agent})",
            "declared": "({name})",
        }
        return {
            h.name: texts[h.kind].format(agent=(h.agent or 0) % TURN_STRIDE, name=h.name)
            for h in self.placeholders
        }

    def check_values(self, values: Mapping[str, str]) -> dict[str, str]:
        """One text per outside placeholder, in the order of ``inputs``; absent optional ones are empty.

        Raises:
            PromptError: an unknown name, or a required value that is missing or blank.
        """
        for name in values:
            if name not in self.inputs:
                hole = Placeholder(name) if isinstance(name, str) else None
                is_output = hole is not None and hole in self.placeholders and self.fills(hole)
                why = "the run itself fills it" if is_output else "no template asks for it"
                listed = ", ".join(self.inputs) or "none"
                raise PromptError(
                    f"There is a value for {show(name)}, but {why}. Values can be given for: "
                    f"{listed}. Remove it.",
                    field=f"values.{name}" if is_output or _DECLARED.fullmatch(str(name)) else "values",
                )
        checked: dict[str, str] = {}
        for name in self.inputs:
            text = check_text(values.get(name, ""), f"The value of {{{name}}}", f"values.{name}")
            if name in self.required and not text.strip():
                what = "The question" if name == QUESTION else f"The value of {{{name}}}"
                raise PromptError(f"{what} is empty. Write some text.", field=f"values.{name}")
            checked[name] = text
        return checked


def _usable(id: int, turns: int) -> bool:
    agent, turn = agent_and_turn(id)
    return id > 0 and agent > 0 and turn <= turns
