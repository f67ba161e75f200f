"""An attention probe's regions in words, and the probes of one agent."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.records.prompt import slots
from backend.records.run import AttentionProbe, RunRecord
from viz.base import format as words

#: The token whose attention was measured; it begins the titles of its figures.
QUERIES = {"first": "First new token", "selecting": "Token of the choice"}


@dataclass(frozen=True)
class Region:
    """Similar regions of a probe, drawn as one. ``members``: indices of the probe's regions."""

    name: str
    members: tuple[int, ...]
    slot: bool = False

    @property
    def short(self) -> str:
        """A slot's name without its content."""
        return self.name.partition(":")[0]


def probes(record: RunRecord, agent: int, query: str) -> dict[str, AttentionProbe]:
    """The probes of an agent at one of its tokens by method label, dense first."""
    by_method = {p.method: p for p in record.attention if (p.agent, p.query) == (agent, query)}
    return {label: by_method[label] for label in record.labels if label in by_method}


def regions(record: RunRecord, probe: AttentionProbe) -> tuple[Region, ...]:
    """Template text before the slots, texts that are no slots, each slot, the rest of the template, soft
    tokens, the answer."""
    spans = {s.name: s for s in record.prompts[probe.prompt].spans}
    sides = slots(spans.values())
    first = sides[0].start if sides else max((s.end for s in spans.values()), default=0)
    place = {name: i for i, name in enumerate(probe.regions)}
    template = [s for s in spans.values() if s.kind == "prefix" and s.name in place]
    before = tuple(place[s.name] for s in template if s.start < first)
    behind = tuple(place[s.name] for s in template if s.start >= first)
    out = [Region("template before the slots" if sides else "template", before)]
    for span in spans.values():
        label = words.clip(words.segment_words(record.request.pipeline, span.name), 28)
        if span in sides:
            out.append(Region(f"slot {sides.index(span) + 1}: {label}", (place[span.name],), True))
        elif span.kind == "placeholder" and span.name in place:
            out.append(Region(label, (place[span.name],)))
    out.append(Region("other template text", behind))
    for name, label in (("links", "soft tokens"), ("answer", "the answer so far")):
        if name in place and (name != "answer" or probe.at):  # before the first token there is no answer
            out.append(Region(label, (place[name],)))
    return tuple(r for r in out if r.members)


def mass_of(probe: AttentionProbe, region: Region) -> NDArray[np.float64]:
    """(layers, heads) attention to a region."""
    return np.asarray(probe.mass[:, :, list(region.members)].astype(np.float64).sum(axis=2))


def absent(record: RunRecord) -> str:
    """Why there is no probe to draw."""
    reasons = [note for note in record.notes if note.startswith("Attention was not measured")]
    if reasons:
        return reasons[0]
    if record.request.probe_attention:
        return "This agent reads no text of others in slots, so its attention was not measured."
    return "Attention was not measured in this run. It is where “Record attention” is on."
