"""A pipeline with more or fewer documents to read. Free of torch.

Question sets bring ten documents a question, or twenty. A prompt that lists its documents one behind another,
``{document_1}`` to ``{document_10}``, grows by what it says of the last one (the lines behind the one before
it, such as ``Document 10:``), its number raised, and shrinks by the last ones.
"""

import re
from dataclasses import replace

from backend.base.errors import PromptError
from backend.base.text import show
from backend.prompts.pipeline import Pipeline

MOST = 100  # documents
_PLACE = re.compile(r"\{document_([0-9]+)\}")


def with_documents(pipeline: Pipeline, count: int) -> Pipeline:
    """The pipeline with ``{document_1}`` to ``{document_COUNT}``.

    Raises:
        PromptError: the number is out of range, or a prompt does not list its documents, two or more, each on
            a line of its own and in their order.
    """
    if type(count) is not int or not 1 <= count <= MOST:
        raise PromptError(
            f"documents is {show(count)}; 1 to {MOST} are allowed. Change the number.", field="documents"
        )
    agents = tuple(replace(a, template=_listing(a.template, count, pipeline.name)) for a in pipeline.agents)
    if not any(_PLACE.search(agent.template) for agent in agents):
        raise PromptError(
            f"The pipeline {show(pipeline.name)} reads no documents, so it cannot have {count}. Choose one "
            "that has, such as documents-10, or remove documents.",
            field="documents",
        )
    if agents == pipeline.agents:
        return pipeline
    others = tuple(name for name in pipeline.declared if not _PLACE.fullmatch(f"{{{name}}}"))
    return replace(
        pipeline,
        name=f"{pipeline.name}, {count} documents",
        agents=agents,
        declared=(*others, *(f"document_{number}" for number in range(1, count + 1))),
    )


def _listing(template: str, count: int, name: str) -> str:
    """A template with as many documents, where it has any."""
    lines = template.split("\n")
    places = [(int(n), line_number) for line_number, line in enumerate(lines) for n in _PLACE.findall(line)]
    if not places:
        return template
    total = len(places)
    if (
        total < 2
        or [n for n, _ in places] != list(range(1, total + 1))
        or len({line_number for _, line_number in places}) < total
    ):
        raise PromptError(
            f"The number of documents of {show(name)} cannot be changed: a prompt of it does not have "
            "{document_1}, {document_2} and so on in lines of their own, one behind another. Remove "
            "documents, or change the prompt.",
            field="documents",
        )
    ends = [line_number + 1 for _, line_number in places]
    body = lines[: ends[min(count, total) - 1]]
    for number in range(total + 1, count + 1):
        for line in lines[ends[-2] : ends[-1]]:
            line = re.sub(rf"\b{total}\b", str(number), line)
            body.append(line.replace(f"{{document_{total}}}", f"{{document_{number}}}"))
    return "\n".join(body + lines[ends[-1] :])
