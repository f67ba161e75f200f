"""Prompt templates, pipelines of agents, and the presets that ship with the lab. Free of torch.

A template is literal text with named holes, the *placeholders* of the KVCOMM paper (appendix 6.2.3):

==========================  ===========================================  ==========
name                        filled with                                  kind
==========================  ===========================================  ==========
``{user_question}``         the request                                  question
``{agent_2_current}``       what agent 2 wrote in this run               agent
``{condition_3_current}``   a tool's result for agent 3 in this run      tool
``{agent_1_history_-1}``    what agent 1 wrote one turn ago              history
``{condition_1_history_-1}``  a tool's result one turn ago               history
``{anything_declared}``     a value of the pipeline's ``declared``       declared
==========================  ===========================================  ==========

Any other brace is plain text. A template is never formatted twice: a value that contains braces or
the text of a control token stays text.
"""

from __future__ import annotations

import difflib
import heapq
import json
import random
import re
import reprlib
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from backend.embedded import tasks
from backend.errors import PromptError

Kind = Literal["question", "agent", "tool", "history", "declared"]
Scoring = Literal["number", "none"]
RequestSource = Literal["arithmetic", "examples", "file"]

MAX_TEXT = 200_000  # characters of one template or value
MAX_AGENTS = 12
MAX_NEW_TOKENS = 4096
MAX_REQUESTS = 10_000
MAX_PRESET_BYTES = 2**20
MAX_REQUEST_FILE_BYTES = 100 * 2**20
PRESET_FOLDER = Path(__file__).parents[1] / "presets" / "prompts"

_QUESTION = "user_question"
_FAMILY = re.compile(r"(agent|condition)_([1-9][0-9]{0,5})_(?:current|history_(-[1-9][0-9]{0,5}))")
_RESERVED = re.compile(r"user_question|(?:agent|condition)_[0-9]+_(?:current|history).*")
_DECLARED = re.compile(r"[a-z][a-z0-9_]{0,40}")
_BRACES = re.compile(r"\{([A-Za-z0-9_-]{1,64})\}")
_LOOKS_LIKE_A_NAME = re.compile(r"\{ ?([A-Za-z][A-Za-z0-9_-]{0,60}) ?\}")
_UNUSABLE = re.compile("[\x00\ud800-\udfff]")
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxlevel = 2


def _show(value: object) -> str:
    """A value for a message: quoted, on one line, not long, however large the value is."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a very large number"


def _braced(names: Collection[str]) -> str:
    return ", ".join("{" + name + "}" for name in names)


def _check_text(text: object, what: str, field: str, limit: int = MAX_TEXT) -> str:
    """The text itself, if it is a string that a tokenizer can take."""
    if not isinstance(text, str):
        raise PromptError(f"{what} is {_show(text)}, which is not text. Give text.", field=field)
    if len(text) > limit:
        raise PromptError(
            f"{what} has {len(text):,} characters; up to {limit:,} are allowed. Shorten it.", field=field
        )
    if bad := _UNUSABLE.search(text):
        kind = "a NUL character" if bad.group() == "\x00" else "half of a surrogate pair"
        raise PromptError(
            f"{what} holds {kind} at character {bad.start() + 1:,}, which is not valid text. Remove it.",
            field=field,
        )
    return text


def _check_label(text: object, what: str, field: str) -> None:
    if not _check_text(text, what, field, 200).strip():
        raise PromptError(f"{what} is empty. Give 1 to 200 characters.", field=field)


@dataclass(frozen=True)
class Placeholder:
    """A named hole in a template."""

    name: str

    @property
    def kind(self) -> Kind:
        """What fills it; every value of an earlier turn is ``history``."""
        if self.name == _QUESTION:
            return "question"
        if (found := _FAMILY.fullmatch(self.name)) is None:
            return "declared"
        if found[3]:
            return "history"
        return "agent" if found[1] == "agent" else "tool"

    @property
    def agent(self) -> int | None:
        """The agent whose output or tool result it is, if it is one."""
        found = _FAMILY.fullmatch(self.name)
        return int(found[2]) if found else None

    @property
    def turn(self) -> int:
        """0 for this turn, -t for t turns ago."""
        found = _FAMILY.fullmatch(self.name)
        return int(found[3] or 0) if found else 0


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
    def parse(text: str, declared: Collection[str] = (), field: str = "template") -> PromptTemplate:
        """Take a template apart.

        Args:
            text: the template.
            declared: names beside the papers' families that are placeholders too.
            field: name of the input, for the error.

        Raises:
            PromptError: the text is empty, too long or not valid text, or names a placeholder twice.
        """
        return _parse(text, declared, field, "The template")


def _parse(text: str, declared: Collection[str], field: str, owner: str) -> PromptTemplate:
    if not _check_text(text, owner, field).strip():
        raise PromptError(
            f"{owner} is empty. Write what the agent should read, for example 'Solve: {{user_question}}'.",
            field=field,
        )
    parts: list[str | Placeholder] = []
    seen: set[str] = set()
    start = 0
    for found in _BRACES.finditer(text):
        name = found[1]
        if name != _QUESTION and name not in declared and not _FAMILY.fullmatch(name):
            continue
        if name in seen:
            raise PromptError(
                f"{owner} uses {{{name}}} twice. A placeholder may appear once in a template, because its "
                "place in the prompt has to be unambiguous. Remove one of the two.",
                field=field,
            )
        seen.add(name)
        if found.start() > start:
            parts.append(text[start : found.start()])
        parts.append(Placeholder(name))
        start = found.end()
    if start < len(text):
        parts.append(text[start:])
    return PromptTemplate(text, tuple(parts))


@dataclass(frozen=True)
class Agent:
    """One agent: its number in placeholder names, a name, what it does, and its template."""

    id: int
    name: str
    role: str
    template: str
    max_new_tokens: int = 96

    def parsed(self, declared: Collection[str] = ()) -> PromptTemplate:
        """The template taken apart; see :meth:`PromptTemplate.parse`."""
        return _parse(self.template, declared, f"agents.{self.id}.template", f"Agent {self.id}'s template")


@dataclass(frozen=True)
class Pipeline:
    """Agents that read the request and one another. Checked when it is made.

    ``declared`` names extra placeholders that the request fills. ``scoring`` says how an answer is
    compared with a known one, ``judge`` which agent selects among candidates. ``chat`` puts each
    prompt into the model's chat template, if it has one.
    """

    name: str
    title: str
    summary: str
    agents: tuple[Agent, ...]
    declared: tuple[str, ...] = ()
    scoring: Scoring = "number"
    judge: int | None = None
    chat: bool = True

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse a pipeline that could not run.

        Raises:
            PromptError: with the place in ``field``, for example ``agents.2.template``.
        """
        _check_label(self.name, "The pipeline's name", "name")
        _check_label(self.title, "The pipeline's title", "title")
        _check_text(self.summary, "The pipeline's summary", "summary", 2000)
        self._check_agents()
        self._check_declared()
        ids = [agent.id for agent in self.agents]
        listed = ", ".join(map(str, ids))
        if self.judge is not None and self.judge not in ids:
            raise PromptError(
                f"The judge is agent {_show(self.judge)}, but the agents are {listed}. "
                "Name one of them, or leave the judge out.",
                field="judge",
            )
        if self.scoring not in ("number", "none"):
            raise PromptError(
                f"The scoring is {_show(self.scoring)}; allowed are 'number' and 'none'. Choose one.",
                field="scoring",
            )
        for agent in self.agents:
            for hole in self.template(agent.id).placeholders:
                if hole.agent is not None and hole.agent not in ids:
                    raise PromptError(
                        f"Agent {agent.id}'s template reads {{{hole.name}}}, but there is no agent "
                        f"{hole.agent}; the agents are {listed}. Correct the number or add the agent.",
                        field=f"agents.{agent.id}.template",
                    )
                if hole.kind == "agent" and hole.agent == agent.id:
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

    def _check_agents(self) -> None:
        if not 1 <= len(self.agents) <= MAX_AGENTS:
            raise PromptError(
                f"The pipeline has {len(self.agents)} agents; 1 to {MAX_AGENTS} are allowed. "
                "Add or remove agents.",
                field="agents",
            )
        seen: set[int] = set()
        for agent in self.agents:
            if type(agent.id) is not int or not 1 <= agent.id <= 999_999:
                raise PromptError(
                    f"An agent has the id {_show(agent.id)}; ids are whole numbers from 1 to 999999. "
                    "Change it.",
                    field="agents",
                )
            if agent.id in seen:
                raise PromptError(
                    f"Two agents have the id {agent.id}; each agent needs its own. Change one.",
                    field="agents",
                )
            seen.add(agent.id)
            _check_label(agent.name, f"Agent {agent.id}'s name", f"agents.{agent.id}.name")
            _check_text(agent.role, f"Agent {agent.id}'s role", f"agents.{agent.id}.role", 2000)
            if type(agent.max_new_tokens) is not int or not 1 <= agent.max_new_tokens <= MAX_NEW_TOKENS:
                raise PromptError(
                    f"Agent {agent.id} may write {_show(agent.max_new_tokens)} tokens; 1 to {MAX_NEW_TOKENS} "
                    "are allowed. Change the number.",
                    field=f"agents.{agent.id}.max_new_tokens",
                )

    def _check_declared(self) -> None:
        for index, name in enumerate(self.declared):
            if not isinstance(name, str) or not _DECLARED.fullmatch(name):
                raise PromptError(
                    f"The declared placeholder {_show(name)} is not a usable name. Names start with a small "
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

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Who reads whom in this run: sorted pairs (producer, reader)."""
        found = (
            (hole.agent, agent.id)
            for agent in self.agents
            for hole in self.template(agent.id).placeholders
            if hole.kind == "agent" and hole.agent is not None
        )
        return tuple(sorted(found))

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
            done = heapq.heappop(ready)
            order.append(done)
            del waiting[done]
            for id, producers in waiting.items():
                if done in producers:
                    producers.remove(done)
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
    def required(self) -> tuple[str, ...]:
        """Outside placeholders that a request must fill."""
        return tuple(h.name for h in self.placeholders if h.kind in ("question", "declared"))

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Outside placeholders: the required ones, then those that default to empty (tool, history)."""
        optional = tuple(h.name for h in self.placeholders if h.kind in ("tool", "history"))
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
        return {h.name: texts[h.kind].format(agent=h.agent, name=h.name) for h in self.placeholders}

    def check_values(self, values: Mapping[str, str]) -> dict[str, str]:
        """One text per outside placeholder, in the order of ``inputs``; absent optional ones are empty.

        Raises:
            PromptError: an unknown name, or a required value that is missing or blank.
        """
        for name in values:
            if name not in self.inputs:
                hole = Placeholder(name) if isinstance(name, str) else None
                own = hole is not None and hole.kind == "agent" and hole in self.placeholders
                why = "an agent writes it during the run" if own else "no template asks for it"
                listed = ", ".join(self.inputs) or "none"
                raise PromptError(
                    f"There is a value for {_show(name)}, but {why}. Values can be given for: "
                    f"{listed}. Remove it.",
                    field=f"values.{name}" if own or _DECLARED.fullmatch(str(name)) else "values",
                )
        checked: dict[str, str] = {}
        for name in self.inputs:
            text = _check_text(values.get(name, ""), f"The value of {{{name}}}", f"values.{name}")
            if name in self.required and not text.strip():
                what = "The question" if name == _QUESTION else f"The value of {{{name}}}"
                raise PromptError(f"{what} is empty. Write some text.", field=f"values.{name}")
            checked[name] = text
        return checked


def notices(pipeline: Pipeline) -> tuple[str, ...]:
    """Hints for a person about names in braces that are plain text, such as ``{user_name}``."""
    known = [_QUESTION, *pipeline.declared]
    for agent in pipeline.agents:
        for family in ("agent", "condition"):
            known += [f"{family}_{agent.id}_current", f"{family}_{agent.id}_history_-1"]
    hints: list[str] = []
    for agent in pipeline.agents:
        names = dict.fromkeys(
            name
            for part in pipeline.template(agent.id).parts
            if isinstance(part, str)
            for name in _LOOKS_LIKE_A_NAME.findall(part)
        )
        others: list[str] = []
        for index, name in enumerate(names):
            # comparing is slow, so only the first names of a long text are compared
            near = difflib.get_close_matches(name.lower(), known, 1, 0.85) if index < 30 else []
            if near:
                hints.append(
                    f"Agent {agent.id}: {{{name}}} is not a placeholder and stays in the prompt as it is. "
                    f"Did you mean {{{near[0]}}}?"
                )
            else:
                others.append(name)
        if others:
            more = f" and {len(others) - 4} more" if len(others) > 4 else ""
            hints.append(
                f"Agent {agent.id}: {_braced(others[:4])}{more} will stay in the prompt as plain "
                "text. That is fine if you meant it so. To fill such a name at run time, declare it."
            )
    return tuple(hints)


@dataclass(frozen=True)
class Example:
    """One request: values of the outside placeholders, and the known answer if there is one."""

    values: Mapping[str, str]
    answer: str | None = None


@dataclass(frozen=True)
class Preset:
    """A pipeline that ships with the lab, and what it needs.

    ``needs_context`` is the number of tokens a prompt and its answer may take. ``model`` is
    ``embedded`` or ``any``. ``request_source``: problems made by the lab (*arithmetic*), the
    ``examples``, or a *file* that the person chooses.
    """

    pipeline: Pipeline
    needs_context: int
    request_source: RequestSource
    examples: tuple[Example, ...]
    model: str


class _StrictLoader(yaml.SafeLoader):
    """``yaml.SafeLoader`` that refuses a key given twice, and merge keys, which can grow without end."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.tag == "tag:yaml.org,2002:merge":
                    raise yaml.constructor.ConstructorError(
                        None, None, "merge keys ('<<') are not allowed", key.start_mark
                    )
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {_show(key.value)} appears twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


_NOTHING = type(None)
_PRESET_KEYS: dict[str, tuple[type, ...]] = {
    "name": (str,), "title": (str,), "summary": (str,), "agents": (list,), "needs_context": (int,),
    "request_source": (str,), "model": (str,), "declared": (list,), "scoring": (str,),
    "judge": (int, _NOTHING), "chat": (bool,), "examples": (list,),
}  # fmt: skip
_PRESET_REQUIRED = ("name", "title", "summary", "agents", "needs_context", "request_source", "model")
_AGENT_KEYS: dict[str, tuple[type, ...]] = {
    "id": (int,), "name": (str,), "role": (str,), "template": (str,), "max_new_tokens": (int,),
}  # fmt: skip
_EXAMPLE_KEYS: dict[str, tuple[type, ...]] = {"values": (dict,), "answer": (str, _NOTHING)}
_TYPE_NAMES = {
    str: "text (in quotes if it looks like a number)",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "names with values",
    _NOTHING: "nothing",
}


def _table(
    value: object, where: str, field: str, allowed: Mapping[str, tuple[type, ...]], required: Collection[str]
) -> dict[str, Any]:
    """A YAML mapping with exactly the known keys, each of its type."""
    keys = ", ".join(allowed)
    if not isinstance(value, dict):
        raise PromptError(
            f"{where} is {_show(value)}, but must have the keys {keys}. Correct it.", field=field or None
        )
    for key, item in value.items():
        inner = f"{field}.{key}" if field else str(key)
        if key not in allowed:
            raise PromptError(
                f"{where} has the unknown key {_show(key)}. Allowed keys: {keys}. Remove or correct it.",
                field=inner,
            )
        if type(item) not in allowed[key]:
            kinds = " or ".join(_TYPE_NAMES[kind] for kind in allowed[key])
            raise PromptError(
                f"In {where}, the key '{key}' is {_show(item)}, but must be {kinds}. Correct it.", field=inner
            )
    for key in required:
        if key not in value:
            raise PromptError(
                f"{where} lacks the key '{key}'. Needed: {', '.join(required)}. Add it.", field=field or None
            )
    return value


def _read(path: Path, limit: int) -> str:
    """A file's text, if it is UTF-8 and not too large."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except OSError as error:
        raise PromptError(f"{path.name} cannot be read: {error.strerror}. Choose another file.") from None
    if len(content) > limit:
        raise PromptError(f"{path.name} is larger than {limit // 2**20} MiB. Choose a smaller file.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PromptError(f"{path.name}, line {line}: this is not UTF-8 text. Save it as UTF-8.") from None


def preset_names() -> tuple[str, ...]:
    """Names of the presets that ship with the lab, sorted."""
    return tuple(sorted(path.stem for path in PRESET_FOLDER.glob("*.yaml")))


def load_preset(name_or_path: str | Path) -> Preset:
    """Load a preset: by name (``str``) from the shipped ones, or any file by its ``Path``.

    A ``str`` never opens another file, so a name may come from a web request.

    Raises:
        PromptError: there is no such preset, or the file is not a valid one.
    """
    if isinstance(name_or_path, Path):
        return _preset(_read(name_or_path, MAX_PRESET_BYTES), name_or_path.name)
    if name_or_path not in preset_names():
        listed = ", ".join(preset_names()) or "none"
        raise PromptError(
            f"There is no preset {_show(name_or_path)}. Presets: {listed}. Choose one of them.",
            field="preset",
        )
    path = PRESET_FOLDER / f"{name_or_path}.yaml"
    return _preset(_read(path, MAX_PRESET_BYTES), path.name)


def _preset(text: str, file: str) -> Preset:
    try:
        # SafeLoader underneath: plain data only
        body = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "the text is not YAML"
        raise PromptError(f"{file}{place}: this is not valid YAML: {problem}. Correct the file.") from None
    except (ValueError, RecursionError):
        raise PromptError(f"{file}: a value in the file cannot be read as YAML. Correct the file.") from None
    try:
        return _preset_from(body, file)
    except PromptError as error:
        message = str(error)
        raise PromptError(message if file in message else f"{file}: {message}", field=error.field) from None


def _preset_from(body: object, file: str) -> Preset:
    table = _table(body, file, "", _PRESET_KEYS, _PRESET_REQUIRED)
    agents = tuple(
        Agent(**_table(row, f"{file}, agent number {i}", f"agents.{i}", _AGENT_KEYS, tuple(_AGENT_KEYS)[:4]))
        for i, row in enumerate(table["agents"], 1)
    )
    optional = {key: table[key] for key in ("scoring", "judge", "chat") if key in table}
    pipeline = Pipeline(
        table["name"], table["title"], table["summary"], agents, tuple(table.get("declared", ())), **optional
    )
    if not 1 <= table["needs_context"] <= 10_000_000:
        raise PromptError(
            f"needs_context is {_show(table['needs_context'])}; 1 to 10,000,000 are allowed. Correct it.",
            field="needs_context",
        )
    source, sources = table["request_source"], ("arithmetic", "examples", "file")
    if source not in sources:
        raise PromptError(
            f"request_source is {_show(source)}; allowed are {', '.join(sources)}. Choose one.",
            field="request_source",
        )
    if source == "arithmetic" and pipeline.required != (_QUESTION,):
        raise PromptError(
            "request_source 'arithmetic' fills {user_question} alone, but this pipeline requires: "
            f"{', '.join(pipeline.required) or 'nothing'}. Use 'examples'.",
            field="request_source",
        )
    if table["model"] not in ("embedded", "any"):
        raise PromptError(
            f"model is {_show(table['model'])}; allowed are embedded, any. Choose one.", field="model"
        )
    examples = []
    for number, row in enumerate(table.get("examples", ()), 1):
        found = _table(row, f"{file}, example {number}", f"examples.{number}", _EXAMPLE_KEYS, ("values",))
        try:
            pipeline.check_values(found["values"])
        except PromptError as error:
            where = f"examples.{number}.{error.field}"
            raise PromptError(f"Example {number}: {error}", field=where) from None
        examples.append(Example(**found))
    if source == "examples" and not examples:
        raise PromptError("request_source is 'examples', but there are none. Add one.", field="examples")
    return Preset(pipeline, table["needs_context"], source, tuple(examples), table["model"])


def preset_requests(preset: Preset, count: int, seed: int = 0) -> list[Example]:
    """``count`` requests for a preset, the same ones for the same arguments.

    *arithmetic*: distinct problems of one to three steps that the embedded model never saw in
    training; the same for every such preset, and fewer are a beginning of more. *examples*: the
    preset's own, over and over (``seed`` plays no part).
    """
    if type(count) is not int or not 1 <= count <= MAX_REQUESTS:
        raise PromptError(
            f"The number of requests is {_show(count)}; 1 to {MAX_REQUESTS:,} are allowed. Change it.",
            field="count",
        )
    if preset.request_source == "file":
        raise PromptError(
            "This preset takes its requests from a file. Choose one, with one JSON object on each line.",
            field="requests",
        )
    if preset.request_source == "examples":
        return [preset.examples[i % len(preset.examples)] for i in range(count)]
    rng = random.Random(f"requests:{seed}")
    found: dict[str, Example] = {}
    while len(found) < count:
        problem = tasks.draw_problem(rng, held_out=True, max_steps=3)
        found.setdefault(problem.question, Example({_QUESTION: problem.question}, str(problem.answer)))
    return list(found.values())


def read_requests(path: Path) -> list[Example]:
    """Requests from a JSON-lines file in GSM8K's format.

    Each line is an object with ``question`` (or ``user_question``) and, if it is known, ``answer``;
    of an answer with ``####`` only what follows it counts. Other keys are passed over.

    Raises:
        PromptError: with the number of the first line that cannot be used.
    """
    found: list[Example] = []
    for number, line in enumerate(_read(path, MAX_REQUEST_FILE_BYTES).split("\n"), 1):
        if line.strip():
            found.append(_request(line, f"{path.name}, line {number}"))
    if not found:
        raise PromptError(
            f"{path.name} holds no request. Write one JSON object on each line.", field="requests"
        )
    return found


def _request(line: str, where: str) -> Example:
    def refuse(problem: str) -> PromptError:
        return PromptError(
            f'{where}: {problem}. A line looks like {{"question": "...", "answer": "..."}}. Correct it.',
            field="requests",
        )

    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise refuse("this is not valid JSON") from None
    if not isinstance(row, dict):
        raise refuse(f"{_show(row)} is not an object")
    names = [name for name in ("question", _QUESTION) if name in row]
    if len(names) != 1:
        raise refuse("both 'question' and 'user_question' are given" if names else "the question is missing")
    question = _check_text(row[names[0]], f"{where}: the question", "requests")
    if not question.strip():
        raise refuse("the question is empty")
    answer = row.get("answer")
    if isinstance(answer, int | float) and not isinstance(answer, bool):
        answer = str(answer)
    if answer is not None:
        answer = _check_text(answer, f"{where}: the answer", "requests")
        if "####" in answer:
            answer = answer.rpartition("####")[2].strip().replace(",", "")
    return Example({_QUESTION: question}, answer)


_NUMBER = re.compile(
    r"(?:(?P<sign>(?<![0-9A-Za-z)])-)?\$?|\$(?P<minus>-))"
    r"(?P<digits>(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![0-9A-Za-z])\.[0-9]+)"
)
_CUE = re.compile(r"the answer is", re.IGNORECASE)


def _plain(found: re.Match[str]) -> str:
    whole, _, fraction = found["digits"].replace(",", "").partition(".")
    number = (whole or "0") + (f".{fraction}" if fraction.strip("0") else "")
    return f"-{number}" if found["sign"] or found["minus"] else number


def extract_number(text: str) -> str | None:
    """The final number of a solution, as GSM8K is scored.

    It is the number after the last "The answer is", else the last number of the text, else None.
    Thousands commas, a dollar sign and a fraction of zeros are removed: ``$1,200.00`` gives ``1200``.
    """
    text = text.replace("\N{MINUS SIGN}", "-")
    *_, cue = [None, *_CUE.finditer(text)]
    if cue and (after := _NUMBER.search(text, cue.end())):
        return _plain(after)
    *_, last = [None, *_NUMBER.finditer(text)]
    return _plain(last) if last else None


def same_answer(a: str | None, b: str | None) -> bool:
    """Do two answers name the same number, to within 1e-6? False if either names none."""
    left, right = extract_number(a or ""), extract_number(b or "")
    if left is None or right is None:
        return False
    return left == right or abs(Decimal(left) - Decimal(right)) <= Decimal("1e-6")
