"""A logged call as a pipeline of one agent that reuse can be tried on.

The template is what stays: lines that nearly all calls of the agent have. Everything else is a text that
fills a placeholder: what other agents read or wrote before in the session, each earlier answer by itself,
and what is new. So calls with the same template share a pipeline and with it the anchor pools, as an agent's
calls would in a serving system. A text that is new in its session is encoded alone and copied, as the
question of a preset is.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from backend.logs.calls import PARAGRAPH, STAYS, TOOLS, Call
from backend.prompts.conversation import INSTRUCTION_ROLES, Part, pipeline_of_parts
from backend.prompts.pipeline import Pipeline

LONG = 40  # characters from which a line that another agent read before is a text of its own

#: A part of a prompt as a model reads it: its role and its text.
Section = tuple[str, str]


def sections_of(call: Call) -> list[Section]:
    """What a model reads of a call: the tools, then the messages."""
    tools = "".join(f"{tool.text}\n" for tool in call.tools)
    return [*([(TOOLS, tools)] if tools else []), *((m.role, m.text) for m in call.messages)]


class CallPipelines:
    """Pipelines of a log's calls.

    Args:
        calls: in the log's order.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = calls
        self.agents = [call.agent_name for call in calls]
        of_agent, have = Counter(self.agents), defaultdict[str, Counter[str]](Counter)
        for call, agent in zip(calls, self.agents, strict=True):
            have[agent].update(_lines(call))
        self._stays = {
            agent: {line for line, count in lines.items() if 1 < count >= STAYS * of_agent[agent]}
            for agent, lines in have.items()
        }
        self._shared, self._answers = self._of_sessions()

    def _of_sessions(self) -> tuple[list[frozenset[str]], list[tuple[str, ...]]]:
        """For each call: its long lines that another agent read or wrote before in the session, and the
        answers before it."""
        # Of each session, for each line: the agent that has it; None where several have.
        sessions: dict[str, dict[str, str | None]] = defaultdict(dict)
        answers: dict[str, dict[str, None]] = defaultdict(dict)
        shared, before = [], []
        for call, agent in zip(self.calls, self.agents, strict=True):
            lines, owners = _lines(call), sessions[call.session]
            shared.append(
                frozenset(line for line in lines if len(line) >= LONG and owners.get(line, agent) != agent)
            )
            before.append(tuple(answers[call.session]))
            for line in lines:
                owners[line] = agent if owners.get(line, agent) == agent else None
            owners.update(dict.fromkeys(call.output.splitlines(keepends=True)))
            if len(call.output.strip()) >= LONG // 2:
                answers[call.session][call.output.strip()] = None
        return shared, before

    def pipeline(
        self,
        index: int,
        max_new_tokens: int,
        sections: Sequence[Section] | None = None,
        *,
        paragraphs: bool = False,
    ) -> tuple[Pipeline, dict[str, str]]:
        """The pipeline of a call, and what fills its placeholders.

        Args:
            index: of the call.
            max_new_tokens: of its answer.
            sections: what is read in its place; usually what was sent.
            paragraphs: every paragraph is a text, whether it stays or changes.

        Raises:
            PromptError: a text of it cannot be used.
        """
        agent = self.agents[index]
        title = "".join(c if c.isprintable() else " " for c in agent)[:190].strip() or "agent"
        read = sections_of(self.calls[index]) if sections is None else sections
        return pipeline_of_parts(
            list(self._parts(index, read, paragraphs)), name="logged-call", title=title,
            max_new_tokens=max_new_tokens,
        )  # fmt: skip

    def _parts(self, index: int, sections: Sequence[Section], paragraphs: bool) -> Iterator[Part]:
        stays = self._stays[self.agents[index]] - self._shared[index]

        def cut(text: str, answers: Sequence[str]) -> Iterator[Part]:
            return _paragraphs(text) if paragraphs else self._cut(text, stays, answers)

        headed = sum(role not in (*INSTRUCTION_ROLES, TOOLS) for role, _ in sections) > 1
        for role, text in sections:
            if role == TOOLS:
                yield "Tools:\n", True
                yield from cut(text, ())
                yield "\n", True
                continue
            if headed and role not in INSTRUCTION_ROLES:
                yield f"{(role or 'prompt').capitalize()}:\n", True
            yield from cut(text, self._answers[index])
            if headed or role in INSTRUCTION_ROLES:
                yield "\n\n", True
        if headed:
            yield "Assistant:\n", True

    @staticmethod
    def _cut(text: str, stays: set[str], answers: Sequence[str]) -> Iterator[Part]:
        """Lines that stay and those that do not, in runs; an empty line goes with the one before it."""
        run, fixed = "", True
        for line in text.splitlines(keepends=True):
            line_fixed = fixed if not line.strip() else line in stays
            if line_fixed != fixed and run:
                yield from [(run, True)] if fixed else _texts(run, answers)
                run = ""
            run, fixed = run + line, line_fixed
        if run:
            yield from [(run, True)] if fixed else _texts(run, answers)


def _paragraphs(text: str) -> Iterator[Part]:
    """Every paragraph, and tool, a text; blanks around them are the template's."""
    for paragraph in PARAGRAPH.split(text):
        yield from _texts(paragraph, ())


def _lines(call: Call) -> set[str]:
    return {line for _, text in sections_of(call) for line in text.splitlines(keepends=True)}


def _texts(run: str, answers: Sequence[str]) -> Iterator[Part]:
    """A run of changing lines: every earlier answer in it by itself, the longest first; blanks around texts
    are the template's."""
    longest = max((answer for answer in answers if answer in run), key=len, default="")
    if longest:
        before, _, after = run.partition(longest)
        if before:
            yield from _texts(before, answers)
        yield longest, False
        if after:
            yield from _texts(after, answers)
        return
    bare = run.strip()
    start = run.index(bare) if bare else len(run)
    for part, fixed in ((run[:start], True), (bare, False), (run[start + len(bare) :], True)):
        if part:
            yield part, fixed


def by_template(pipelines: Mapping[int, Pipeline]) -> dict[str, list[int]]:
    """Calls by their agent's template, in the log's order: those of one share their anchor pools."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index in sorted(pipelines):
        agent = pipelines[index].agent(1)
        groups[f"{agent.name}\n{agent.template}"].append(index)
    return groups
