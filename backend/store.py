"""The observation log: what was computed once, to be reused by whoever may.

One log per trust domain. An :class:`Observation` is one sample of one placeholder (a question, a
response): its tokens, its base KV, a small descriptor, and, for each agent that prefilled it densely,
the offsets that were seen there. Entries are immutable but for offsets being added; anchor pools are
index sets over the log, so pools of several sizes and thresholds share the same bytes. (Table A.1's
anchor manager and shared KV manager are two views of it.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

from backend.kv import KVOffset, KVSegment
from backend.tokens import TokenizedPrompt


@dataclass(frozen=True)
class SeenOffset:
    """Offsets of one sample in one agent's context (Eq. 6 and 7).

    ``placeholder`` belongs to the sample's own tokens; ``followers[name]`` to each prefix segment
    between it and the next placeholder that holds text. ``starts``: where each of them stood in that prompt,
    by name.
    """

    placeholder: KVOffset
    followers: dict[str, KVOffset]
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.placeholder.bytes + sum(offset.bytes for offset in self.followers.values())


@dataclass
class Observation:
    """One sample of one placeholder.

    ``descriptor``: (tokens, hidden) input embeddings, fp32.
    """

    number: int
    placeholder: str
    ids: tuple[int, ...]
    text: str
    base: KVSegment
    descriptor: Tensor
    offsets: dict[int, SeenOffset] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def bytes(self) -> int:
        descriptor = self.descriptor.numel() * self.descriptor.element_size()
        return self.base.bytes + descriptor + sum(seen.bytes for seen in self.offsets.values())

    @property
    def preview(self) -> str:
        text = " ".join(self.text.split())
        return text if len(text) <= 60 else text[:59] + "\u2026"


@dataclass(frozen=True)
class PromptInContext:
    """A prompt whose placeholders are tied to observations, and its agent's prefix bases.

    ``samples`` maps a placeholder's name to its observation; empty placeholders have none.
    """

    prompt: TokenizedPrompt
    samples: dict[str, Observation]
    prefix_bases: dict[str, KVSegment]  # from the template with stand-ins in its holes
    lone_bases: dict[str, KVSegment] = field(default_factory=dict)  # each segment encoded alone

    def followers(self, name: str) -> list[str]:
        """Prefix segments between placeholder ``name`` and the next one that holds text."""
        out: list[str] = []
        inside = False
        for span in self.prompt.spans:
            if span.kind == "placeholder" and span.name in self.samples:
                inside = span.name == name
            elif span.kind == "prefix" and inside:
                out.append(span.name)
        return out


class ObservationLog:
    """Observations, prefix bases and past prompts of one trust domain, within a byte budget."""

    def __init__(self, domain: str, budget_bytes: int) -> None:
        self.domain = domain
        self.budget_bytes = budget_bytes
        self.observations: OrderedDict[int, Observation] = OrderedDict()
        self.prefix_bases: dict[int, dict[str, KVSegment]] = {}
        self.lone_bases: dict[int, dict[str, KVSegment]] = {}
        self.prompts: OrderedDict[tuple[int, ...], KVSegment] = OrderedDict()
        self.next_number = 1

    @property
    def bytes(self) -> int:
        """Bytes held now."""
        return (
            sum(o.bytes for o in self.observations.values())
            + sum(
                s.bytes
                for agents in (self.prefix_bases, self.lone_bases)
                for bases in agents.values()
                for s in bases.values()
            )
            + sum(s.bytes for s in self.prompts.values())
        )

    def add(
        self, placeholder: str, ids: tuple[int, ...], text: str, base: KVSegment, descriptor: Tensor
    ) -> Observation:
        """Write a new observation."""
        observation = Observation(self.next_number, placeholder, ids, text, base, descriptor)
        self.next_number += 1
        self.observations[observation.number] = observation
        return observation

    def remember_prompt(self, ids: tuple[int, ...], segment: KVSegment, keep: int = 24) -> None:
        """Keep a densely prefilled prompt for exact-prefix reuse; the oldest go first."""
        self.prompts[ids] = segment
        self.prompts.move_to_end(ids)
        while len(self.prompts) > keep:
            self.prompts.popitem(last=False)

    def longest_prefix(self, ids: tuple[int, ...]) -> tuple[int, KVSegment | None]:
        """Length and KV of the longest stored token prefix of ``ids``."""
        best, found = 0, None
        for stored, segment in self.prompts.items():
            length = 0
            for a, b in zip(stored, ids, strict=False):
                if a != b:
                    break
                length += 1
            if length > best:
                best, found = length, segment
        return best, found

    def shrink(self, needed: Iterable[int]) -> list[int]:
        """Drop past prompts, then the oldest observations outside ``needed``, then the oldest of all, until
        the budget holds; returns the numbers dropped."""
        keep = set(needed)
        dropped: list[int] = []
        held = self.bytes
        while held > self.budget_bytes and self.prompts:
            _, segment = self.prompts.popitem(last=False)
            held -= segment.bytes
        for number in sorted(self.observations, key=lambda n: (n in keep, n)):
            if held <= self.budget_bytes:
                break
            held -= self.observations.pop(number).bytes
            dropped.append(number)
        return dropped
