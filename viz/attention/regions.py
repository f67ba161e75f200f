"""What an attention probe's regions are to a person, and which probes belong together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.records.prompt import slots
from backend.records.run import AttentionProbe, RunRecord
from viz.base import format as words

QUERIES = {"first": "the first generated token", "selecting": "the token that names the candidate"}


@dataclass(frozen=True)
class Region:
    """Neighbouring or like regions of a probe, drawn as one: its words, and which of the probe's regions."""

    name: str
    members: tuple[int, ...]
    slot: bool = False


def probes(record: RunRecord, agent: int, query: str) -> dict[str, AttentionProbe]:
    """The probes of an agent at one of its tokens by method label, dense first."""
    found = {p.method: p for p in record.attention if (p.agent, p.query) == (agent, query)}
    return {label: found[label] for label in record.labels if label in found}


def regions(record: RunRecord, probe: AttentionProbe) -> tuple[Region, ...]:
    """The shared prefix, each slot, other template text, soft tokens, the answer."""
    spans = {s.name: s for s in record.prompts[probe.prompt].spans}
    sides = slots(spans.values())
    first = sides[0].start if sides else max((s.end for s in spans.values()), default=0)
    names = [s.name for s in sides]
    shared = [i for i, name in enumerate(probe.regions) if name in spans and spans[name].start < first]
    out = [Region("shared prefix" if sides else "prompt", tuple(shared))]
    for place, name in enumerate(names, 1):
        shown = words.clip(words.segment_words(record.request.pipeline, name), 28)
        out.append(Region(f"slot {place}: {shown}", (probe.regions.index(name),), True))
    kept = {i for region in out for i in region.members}
    rest = [i for i, name in enumerate(probe.regions) if i not in kept and name in spans]
    out.append(Region("other template text", tuple(rest)))
    for name, shown in (("links", "soft tokens"), ("answer", "the answer so far")):
        if name in probe.regions and (name != "answer" or probe.at):  # nothing was written before the first
            out.append(Region(shown, (probe.regions.index(name),)))
    return tuple(r for r in out if r.members)


def mass_of(probe: AttentionProbe, region: Region) -> NDArray[np.float64]:
    """(layers, heads) attention to a region."""
    return np.asarray(probe.mass[:, :, list(region.members)].astype(np.float64).sum(axis=2))


def absent(record: RunRecord) -> str:
    """Why there is no probe to draw."""
    said = [note for note in record.notes if note.startswith("Attention was not measured")]
    if said:
        return said[0]
    if record.request.probe_attention:
        return "This agent reads no text of others in slots, so its attention was not measured."
    return "Attention was not measured in this run. Switch it on under “Mode and decoding” and run again."
