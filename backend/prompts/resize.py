"""A pipeline with fewer agents: the first ones and the last. Free of torch.

The KVCOMM paper runs two to five agents and prints prompts for five; its two agents on MMLU are the first
and the last of them (Section 4.2). The other prompts lose what they say of a removed agent: the lines from
the one that numbers it, as in ``Agent 3, role is Critic`` or ``Candidate 3:``, to the last with a text of it.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

from backend.base.errors import PromptError
from backend.base.text import show
from backend.prompts.pipeline import Pipeline

_HEAD = re.compile(r"[A-Z][a-z]+ ([0-9]+)\b")
_TEXT = re.compile(r"\{(?:agent|condition)_([0-9]+)_")


def team(pipeline: Pipeline, count: int) -> Pipeline:
    """A pipeline's first ``count - 1`` agents in running order, and its last.

    Raises:
        PromptError: it has fewer agents, or a prompt needs one that is removed.
    """
    most = len(pipeline.agents)
    if type(count) is not int or not 2 <= count <= most:
        raise PromptError(
            f"The pipeline {show(pipeline.name)} has {most} agents, of which {show(count)} are asked for; "
            f"2 to {most} are allowed. Change the number.",
            field="agents",
        )
    if count == most:
        return pipeline
    members = (*pipeline.order[: count - 1], pipeline.final)
    absent = set(pipeline.order) - set(members)
    agents = tuple(
        replace(pipeline.agent(id), template=_without(pipeline.agent(id).template, absent)) for id in members
    )
    used = "".join(agent.template for agent in agents)
    try:
        return replace(
            pipeline,
            name=f"{pipeline.name}, {count} agents",
            agents=agents,
            declared=tuple(name for name in pipeline.declared if f"{{{name}}}" in used),
            judge=pipeline.judge if pipeline.judge in members else None,
        )
    except PromptError as error:
        raise PromptError(
            f"The pipeline {show(pipeline.name)} cannot do with {count} of its {most} agents: {error}",
            field="agents",
        ) from None


def _without(template: str, absent: Collection[int]) -> str:
    """A template without what it says of some agents."""
    lines = template.split("\n")
    heads = [(place, match[1]) for place, line in enumerate(lines) if (match := _HEAD.match(line))]
    removed: set[int] = set()
    for (start, number), (end, _) in pairwise([*heads, (len(lines), "")]):
        if int(number) in absent:
            mentions = [place for place in range(start, end) if number in _TEXT.findall(lines[place])]
            removed.update(range(start, max(mentions, default=start - 1) + 1))
    return "\n".join(line for place, line in enumerate(lines) if place not in removed)
