"""The log of samples: what was computed once and can be reused by any method.

One log per trust domain. A :class:`Sample` is one text of one placeholder (a question, a response): its
tokens, its base KV, its descriptor, and its offsets in the context of each agent that prefilled it densely.
Samples are immutable except that offsets are added. Anchor pools are index sets over the log, so pools of
several sizes and thresholds share the same bytes. (Table A.1's anchor manager and shared KV manager are two
views of it.)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol
from weakref import WeakMethod, WeakValueDictionary

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVOffset, KVSegment
from backend.cache.radix_tree import PrefixTree
from backend.cache.rope import Rotation
from backend.cache.row_arena import ArenaOffset, ArenaRows, Arenas
from backend.records.prompt import TokenizedPrompt

PREFIX_SHARE = 4  # past prompts may take this part of a log's budget: one in so many
SMALL = 0.1  # the paper finds half of the offset elements to be smaller (appendix 6.4.5)


@dataclass(frozen=True)
class ContextOffset:
    """Offsets of one sample in one agent's context (Eq. 6 and 7).

    ``placeholder``: of the sample's own tokens; ``followers``: by name, of the prefix segments between it and
    the next placeholder that holds text. ``starts``: by name, where each started in that prompt. Offsets from
    a run are neighbours in an arena.
    """

    placeholder: KVOffset | ArenaOffset
    followers: Mapping[str, KVOffset | ArenaOffset]
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.placeholder.bytes + sum(offset.bytes for offset in self.followers.values())

    @cached_property
    def spread(self) -> tuple[Tensor, Tensor, int]:
        """The number of elements under :data:`SMALL` in size and the sum of squares, each (2, layers) for
        keys then values, and the number of elements behind one entry."""
        pairs = [(o.keys.float(), o.values.float()) for o in (self.placeholder, *self.followers.values())]
        small = [torch.stack([(x.abs() < SMALL).sum(dim=(1, 2, 3)) for x in pair]).cpu() for pair in pairs]
        squares = [torch.stack([x.square().sum(dim=(1, 2, 3)) for x in pair]).cpu() for pair in pairs]
        elements = sum(keys[0].numel() for keys, _ in pairs)
        return torch.stack(small).sum(dim=0), torch.stack(squares).double().sum(dim=0), elements

    def remap(self, rows: Mapping[ArenaRows, ArenaRows]) -> ContextOffset:
        """The same offsets in a copy of their log's arenas. Those outside of arenas are never written to, so
        both logs share them."""

        def move(offset: KVOffset | ArenaOffset) -> KVOffset | ArenaOffset:
            return offset.remap(rows) if isinstance(offset, ArenaOffset) and offset.rows in rows else offset

        followers = {name: move(offset) for name, offset in self.followers.items()}
        return ContextOffset(move(self.placeholder), followers, dict(self.starts))

    @property
    def rows(self) -> ArenaRows | None:
        """The rows that hold all of it; None if it is not in one place in an arena."""
        offsets = (self.placeholder, *self.followers.values())
        rows_of_offsets = {offset.rows if isinstance(offset, ArenaOffset) else None for offset in offsets}
        return rows_of_offsets.pop() if len(rows_of_offsets) == 1 else None

    def in_main_memory(self) -> ContextOffset:
        """A copy in main memory; see :meth:`backend.cache.row_arena.ArenaRows.in_main_memory`."""
        if self.rows is not None:
            return self.remap({self.rows: self.rows.in_main_memory()})
        main = torch.device("cpu")
        followers = {name: offset.to(main) for name, offset in self.followers.items()}
        return ContextOffset(self.placeholder.to(main), followers, self.starts)


@dataclass
class Sample:
    """One sample of one placeholder.

    ``features``: the rows of its descriptor. ``lead_in_base``: a second base of an outside text, behind its
    lead-in, if a method needs it (``RequestState.encode_lead_ins``). ``source``: the author, where
    placeholders are slots for any agent's text; else empty.
    """

    number: int
    placeholder: str
    ids: tuple[int, ...]
    text: str
    base: KVSegment
    features: ArenaRows
    arenas: Arenas  # of its log, for its offsets
    offsets: dict[int, ContextOffset] = field(default_factory=dict)
    lead_in_base: KVSegment | None = None
    source: str = ""

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def bytes(self) -> int:
        lead_in = 0 if self.lead_in_base is None else self.lead_in_base.bytes
        return (
            self.base.bytes
            + lead_in
            + self.features.bytes
            + sum(offset.bytes for offset in self.offsets.values())
        )

    @property
    def preview(self) -> str:
        text = " ".join(self.text.split())
        return text if len(text) <= 60 else text[:59] + "\u2026"

    @property
    def descriptor(self) -> Tensor:
        """(tokens, hidden) input embeddings, fp32, by which samples are compared; a view if stored in
        fp32."""
        return self.features.tensor.float()

    def add_offsets(
        self, agent: int, pairs: Mapping[str, tuple[KVSegment, KVSegment]], starts: dict[str, int]
    ) -> None:
        """Store the offsets that a dense pass of ``agent`` gives. ``pairs``: by name, the KV and the base of
        the sample's own tokens and then of its followers; ``starts``: where each started in the prompt."""
        like, tokens = self.base.keys, {name: base.tokens for name, (_, base) in pairs.items()}
        places = self.arenas.take_offsets(agent, tokens, like, like.dtype)
        for name, (real, base) in pairs.items():
            places[name].write(real, base)
        self._keep_offsets(agent, places, starts)

    def to_device(self, agent: int) -> None:
        """Bring an offset from another device back to the base's device."""
        source = self.offsets[agent]
        if (rows := source.rows) is not None:
            shape, dtype, home = tuple(rows.tensor.shape[1:]), rows.tensor.dtype, self.base.keys.device
            target = self.arenas.take(agent, rows.count, shape, dtype, home)
            target.tensor.copy_(rows.tensor, non_blocking=True)
            self.offsets[agent] = source.remap({rows: target})
            return
        sources = {"": source.placeholder, **source.followers}
        like, tokens = self.base.keys, {name: offset.tokens for name, offset in sources.items()}
        places = self.arenas.take_offsets(agent, tokens, like, like.dtype)
        for name, offset in sources.items():
            places[name].copy_from(offset)
        self._keep_offsets(agent, places, source.starts)

    def _keep_offsets(self, agent: int, places: dict[str, ArenaOffset], starts: dict[str, int]) -> None:
        first, *followers = places
        self.offsets[agent] = ContextOffset(places[first], {name: places[name] for name in followers}, starts)


class TextEncoder(Protocol):
    """What a method may compute with the agent's weights for a text with nothing before it
    (:class:`backend.engine.isolated_encoder.IsolatedEncoder`)."""

    @property
    def links(self) -> Any:
        """The link tokens that the weights were trained with (:class:`backend.model.link_tokens.Links`);
        None: none."""

    def encode(self, ids: Sequence[int], clock: Clock, lead_in: Sequence[int] = ()) -> KVSegment:
        """The KV of tokens that see each other alone, timed as ``base``."""

    def surprisal(self, ids: Sequence[int]) -> Tensor:
        """(tokens,) minus log probability of each token; infinite for the first."""

    def anchor_tokens(self, ids: Sequence[int]) -> KVSegment:
        """A text's anchor tokens, where the weights were trained with them."""

    def packet(self, ids: Sequence[int]) -> KVSegment:
        """A text between its wrappers, where the weights were trained with them."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""


@dataclass(frozen=True)
class PromptInContext:
    """A prompt with the samples of its placeholders and its agent's prefix bases.

    ``samples``: by placeholder; empty placeholders have none. ``rotation``: the model's.
    """

    prompt: TokenizedPrompt
    samples: dict[str, Sample]
    prefix_bases: dict[str, KVSegment]  # from the template with stand-ins for the placeholders
    isolated_bases: dict[str, KVSegment] = field(default_factory=dict)  # each segment encoded alone
    rotation: Rotation | None = None
    weights: str = ""  # on which the agent runs; empty: the lab's own
    low_ranks: Mapping[str, Any] = field(
        default_factory=dict
    )  # of the pipeline's weights that are the lab's own with an adapter (backend.model.low_rank.LowRank)
    encoder: TextEncoder | None = None  # encodes texts by themselves, on the agent's weights
    method_bases: Mapping[str, KVSegment] = field(
        default_factory=dict
    )  # of texts that the method encoded itself
    named_bases: Mapping[str, KVSegment] = field(default_factory=dict)  # as shipped, if a method needs them

    def start(self, name: str) -> int:
        """Where a segment starts in this prompt."""
        return next(span.start for span in self.prompt.spans if span.name == name)

    def rotated_keys(self, start: int, keys: Tensor) -> Tensor:
        """Position-free keys rotated to the positions from ``start`` on."""
        assert self.rotation is not None, "the prompt was laid out without a model"
        positions = torch.arange(start, start + keys.shape[2], device=keys.device)
        return self.rotation.rotate(keys, positions)

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


class SampleLog:
    """Samples, prefix bases and past prompts of one trust domain, within a byte budget.

    ``bases``: of outside texts, by their tokens, as long as a sample holds them. ``arenas``: of descriptors
    and offsets. ``named_bases``: see ``RequestState.encode_lead_ins``.
    """

    def __init__(self, domain: str, budget_bytes: int) -> None:
        self.domain = domain
        self.budget_bytes = budget_bytes
        self.samples: OrderedDict[int, Sample] = OrderedDict()
        self.prefix_bases: dict[int, dict[str, KVSegment]] = {}
        self.isolated_bases: dict[int, dict[str, KVSegment]] = {}
        self.named_bases: dict[int, dict[str, KVSegment]] = {}
        self.isolated: OrderedDict[tuple[str, tuple[int, ...]], KVSegment] = OrderedDict()
        self.prefixes = PrefixTree(budget_bytes // PREFIX_SHARE)
        self.bases: WeakValueDictionary[tuple[int, ...], KVSegment] = WeakValueDictionary()
        self.next_number = 1
        spare = WeakMethod(
            self._spare_bytes
        )  # no circle: a log that is dropped gives its memory back at once
        self.arenas = Arenas(lambda: (spare() or int)())

    @property
    def bytes(self) -> int:
        """Bytes held now."""
        return (
            sum(o.bytes for o in self.samples.values())
            + sum(
                s.bytes
                for agents in (self.prefix_bases, self.isolated_bases, self.named_bases)
                for bases in agents.values()
                for s in bases.values()
            )
            + self.prefixes.bytes
            + sum(s.bytes for s in self.isolated.values())
            + self.arenas.slack_bytes
        )

    @property
    def most_lead_in_bytes(self) -> int:
        """Bytes that bases behind lead-ins may add at most."""
        prefixes = (base.bytes for bases in self.prefix_bases.values() for base in bases.values())
        return sum(sample.base.bytes for sample in self.samples.values()) + sum(prefixes)

    def _spare_bytes(self) -> int:
        """Unused bytes of the budget."""
        return self.budget_bytes - self.bytes

    def add(
        self, placeholder: str, ids: tuple[int, ...], text: str, base: KVSegment, descriptor: Tensor
    ) -> Sample:
        """Add a sample."""
        count, hidden = descriptor.shape
        rows = self.arenas.take("descriptors", count, (hidden,), descriptor.dtype, descriptor.device)
        rows.tensor.copy_(descriptor.detach())
        sample = Sample(self.next_number, placeholder, ids, text, base, rows, self.arenas)
        self.next_number += 1
        self.samples[sample.number] = sample
        return sample

    def copy(self, domain: str, budget_bytes: int) -> SampleLog:
        """A copy of the samples, with the same numbers, for another trust domain. Past prompts and texts
        encoded alone are not copied."""
        log, tensors = SampleLog(domain, budget_bytes), dict[int, Tensor]()
        rows = log.arenas.copy_from(self.arenas)

        def clone(segment: KVSegment) -> KVSegment:
            for tensor in (segment.keys, segment.values):
                if id(tensor) not in tensors:  # several segments may share one tensor
                    tensors[id(tensor)] = tensor.clone()
            return replace(segment, keys=tensors[id(segment.keys)], values=tensors[id(segment.values)])

        for number, sample in self.samples.items():
            log.samples[number] = replace(
                sample,
                base=clone(sample.base),
                lead_in_base=None if sample.lead_in_base is None else clone(sample.lead_in_base),
                features=rows[sample.features],
                arenas=log.arenas,
                offsets={agent: offset.remap(rows) for agent, offset in sample.offsets.items()},
            )
        for new_bases, old_bases in (
            (log.prefix_bases, self.prefix_bases),
            (log.isolated_bases, self.isolated_bases),
            (log.named_bases, self.named_bases),
        ):
            new_bases |= {
                agent: {n: clone(s) for n, s in bases.items()} for agent, bases in old_bases.items()
            }
        for number, sample in self.samples.items():
            if self.bases.get(sample.ids) is sample.base:  # an answer may have the ids of an outside text
                log.bases[sample.ids] = log.samples[number].base
        log.next_number = self.next_number
        return log

    def offload(self, cold: set[int]) -> None:
        """Move the offsets of ``cold`` samples to main memory, and all others to the device of their base KV.
        Does nothing on a CPU. Waits for the device once."""
        left_devices: set[torch.device] = set()
        for sample in self.samples.values():
            home = sample.base.keys.device
            if home.type == "cpu":
                continue
            target = torch.device("cpu") if sample.number in cold else home
            for agent, offset in list(sample.offsets.items()):
                if offset.placeholder.keys.device == target:
                    continue
                if target == home:
                    sample.to_device(agent)
                else:
                    sample.offsets[agent] = offset.in_main_memory()
                    left_devices.add(home)
        for home in left_devices:
            if home.type == "cuda":
                torch.cuda.current_stream(home).synchronize()

    def remember_prompt(self, ids: tuple[int, ...], segment: KVSegment, weights: str = "") -> None:
        """Store a densely prefilled prompt for exact-prefix reuse on the same weights."""
        self.prefixes.insert((self.domain, weights), ids, segment)

    def longest_prefix(self, ids: tuple[int, ...], weights: str = "") -> tuple[KVSegment, ...]:
        """The KV of the longest prefix that ``ids`` shares with a stored prompt, in pieces."""
        return self.prefixes.longest((self.domain, weights), ids)

    def shrink(
        self, needed: Iterable[int], extra_bytes: int = 0, extra_of: Callable[[int], int] = lambda _: 0
    ) -> list[int]:
        """Drop past prompts, then texts encoded alone, then the oldest samples outside ``needed``, then the
        oldest samples, until the budget holds; returns the numbers of the dropped samples.

        Args:
            needed: numbers of samples that pools hold.
            extra_bytes: bytes that methods hold beside the log; they count.
            extra_of: those of them that are freed with a sample.
        """
        keep = set(needed)
        dropped: list[int] = []
        self.trim(extra_bytes)
        over = self.bytes + extra_bytes - self.budget_bytes
        if over > 0:
            self.prefixes.shrink(self.prefixes.bytes - over)
        bytes_held = self.bytes + extra_bytes
        while bytes_held > self.budget_bytes and self.isolated:
            bytes_held -= self.isolated.popitem(last=False)[1].bytes
        for number in sorted(self.samples, key=lambda n: (n in keep, n)):
            if bytes_held <= self.budget_bytes:
                break
            bytes_held -= self.samples.pop(number).bytes + extra_of(number)
            dropped.append(number)
        self.trim(extra_bytes)
        return dropped

    def trim(self, extra_bytes: int = 0) -> None:
        """If over the budget, free the arenas' unused rows. Those of a dropped sample are in use until the
        caller drops it too."""
        if self.bytes + extra_bytes > self.budget_bytes:
            self.arenas.trim()
