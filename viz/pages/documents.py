"""What was done with each of several texts in one prompt: documents before a question, candidates before a
judge."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from backend.records.prompt import Span
from backend.records.run import ACTIONS, EARLIER, Outcome, RunRecord
from viz.base import format as words
from viz.base.format import plural
from viz.base.html import render
from viz.run.facts import final_agent


@dataclass(frozen=True)
class Treatment:
    """One placeholder's tokens under one method.

    Attributes:
        tokens: by action, the most frequent over layers, a name of ``ACTIONS``.
        links: soft tokens put right behind it.
        exact: copied, and equal to what dense computes there.
        known: its cache existed before this run; None if none was used.
        source: where the copied KV came from, for a person.
    """

    name: str
    method: str
    tokens: dict[str, int]
    links: int
    exact: bool
    known: bool | None
    source: str


def treatments(record: RunRecord, agent: int, label: str) -> tuple[Treatment, ...]:
    """How a method treated every text in an agent's prompt, in order."""
    outcome = record.outcome(agent, label)
    spans = [s for s in words.prompt_of(record, outcome).spans if s.kind == "placeholder" and s.end > s.start]
    return tuple(_treatment(outcome, span) for span in spans)


def _treatment(outcome: Outcome, span: Span) -> Treatment:
    codes = words.main_actions(outcome)[span.start : span.end]
    tokens = {name: int(np.count_nonzero(codes == code)) for code, name in enumerate(ACTIONS)}
    copies = [a for a in outcome.spans if a.action in (1, 2) and a.start < span.end and span.start < a.end]
    # the links of a text stand before the token that follows it
    links = sum(link.tokens for link in outcome.links if span.start < link.at <= span.end)
    known = all(a.source.endswith(EARLIER) for a in copies) if copies else None
    exact = bool(copies) and all(a.provenance.startswith("exact") for a in copies)
    sources = dict.fromkeys(a.source for a in copies)
    return Treatment(span.name, outcome.method, tokens, links, exact, known, words.listing(sources))


def documents_html(record: RunRecord) -> Markup:
    """A table, one row per text of the last agent's prompt, one column per method but dense; its title and
    finding are shown until it is opened."""
    agent, labels, looks = final_agent(record), words.others(record), words.styles(record)
    if not labels:
        return Markup()
    columns = [treatments(record, agent, label) for label in labels]
    rows = []
    for every in zip(*columns, strict=True):
        name = words.segment_words(record.request.pipeline, every[0].name)
        rows.append(
            {
                "name": name[:1].upper() + name[1:],
                "tokens": sum(every[0].tokens.values()),
                "text": words.clip(record.request.values.get(every[0].name, ""), 80),
                "known": was_known(every),
                "every": every,
            }
        )
    return render(
        "pages/documents.html",
        looks=[looks[label] for label in labels],
        finding=finding(record),
        rows=rows,
        actions=words.ACTION_ORDER,
    )


def finding(record: RunRecord) -> str:
    """How many texts an earlier run had encoded."""
    agent = final_agent(record)
    columns = [treatments(record, agent, label) for label in words.others(record)]
    sentences = [was_known(every) for every in zip(*columns, strict=True)]
    known_texts = [known for known in sentences if known is not None]
    if not known_texts:
        return "No text’s own cache was used in this run."
    old, new = sum(known_texts), len(known_texts) - sum(known_texts)
    if not old:
        return f"All {plural(new, 'text')} were encoded in this run; run again to see them reused."
    if not new:
        return f"All {plural(old, 'text')} were already known: nothing had to be encoded."
    return f"{plural(old, 'text')} already known, {new} encoded in this run."


def was_known(every: Sequence[Treatment]) -> bool | None:
    """Whether a text's cache existed before this run; None if no method used it."""
    return next((t.known for t in every if t.known is not None), None)
