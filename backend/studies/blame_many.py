"""The search for what changed an answer (:mod:`backend.studies.blame`), over many requests of a preset."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from backend.base.statistics import exact_share
from backend.prompts.presets import Example
from backend.prompts.template import Placeholder
from backend.records.blame import BlameRecord, BlameRequest
from backend.records.events import Progress, RunDone
from backend.records.request import with_reference
from backend.session.session import LabSession
from backend.studies.blame import blame, verdict


def blame_many(
    session: LabSession,
    request: BlameRequest,
    warmup: Sequence[Example],
    examples: Sequence[Example],
    most: int,
) -> Iterator[Progress | tuple[int, BlameRecord | None]]:
    """Send examples one after the other and search wherever the method's verdict is another, until ``most``
    were found; yields how many were sent, and the search's record where there was one.

    Raises:
        LabError: a request cannot be run; or see :func:`blame`.
    """
    if warmup:
        for _ in session.warm_up(request.run, warmup):
            yield Progress("Filling the pools", 0, len(examples))
    changed = 0
    for sent, example in enumerate(examples, 1):
        run = replace(request.run, values=dict(example.values), expected=example.answer)
        for event in session.run(run):
            if isinstance(event, RunDone):
                pair = [event.record.outcome(request.agent, m.label) for m in with_reference(run.methods)]
        verdicts = {verdict(outcome.text, run.pipeline.scoring) for outcome in pair}
        record = None
        if len(verdicts) > 1:
            for step in blame(session, replace(request, run=run)):
                record = step if isinstance(step, BlameRecord) else None
        yield sent, record
        changed += record is not None
        if changed == most:
            return


def kind_of(segment: str) -> str:
    """What kind of text a segment is: the template's own words, the question, an agent's answer, ..."""
    return "template" if segment.startswith("prefix ") else Placeholder(segment).kind


def summary(records: Sequence[BlameRecord], most: float = 0.1) -> list[dict[str, Any]]:
    """How often sets of at most ``most`` of the cache restore the verdict, beside random ones as large;
    then which kinds of segment and which layers those sets hold. Each a count with its exact 95% interval."""
    small = [record for record in records if record.share <= most]
    placed = [record for record in small if record.random]
    sets = [record.found.parts for record in small if record.found]

    def line(what: str, hits: Iterable[bool]) -> dict[str, Any]:
        flags = list(hits)
        share = exact_share(sum(flags), len(flags))
        return {"what": what, "count": sum(flags), "of": share.of, "interval": (share.low, share.high)}

    kinds = sorted({kind_of(part.segment) for parts in sets for part in parts})
    layers = sorted({n for parts in sets for part in parts for n in range(part.first, part.last + 1)})
    return [
        line(f"a set of at most {most:.0%} of the cache restores", (r.share <= most for r in records)),
        line("the first random set of that size restores", (r.random[0].restored for r in placed)),
        line("any of its random sets restores", (any(t.restored for t in r.random) for r in placed)),
        *(line(f"the set holds {k}", (any(kind_of(p.segment) == k for p in s) for s in sets)) for k in kinds),
        *(
            line(f"the set holds layer {n}", (any(p.first <= n <= p.last for p in s) for s in sets))
            for n in layers
        ),
    ]
