"""Segments that were seen, and what is found among them: content, context and exact verification.

A *room* holds the segments of one trust domain on one set of weights; no search leaves its room. In a room
each content behind each left context is kept once; the segment used longest ago goes first when the bytes are
spent. The index of signatures may know more than the store holds (what was evicted, or belongs to a twin):
whatever it finds is looked up in the store's own entries.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import count
from typing import Any

import numpy as np
from torch import Tensor

from backend.cache.int8 import Packed, pack
from backend.cache.kv_cache import KVSegment
from backend.methods.segments.cutting import Cut
from backend.methods.segments.minhash import Sketcher, jaccard

CANDIDATES = 8  # looked at closely, of those that the index finds for one segment
REBUILD = 1000  # evicted numbers that an index may hold beside as many as are alive


@dataclass(frozen=True)
class Owner:
    """Whose segments: a trust domain's, on some weights."""

    domain: str
    weights: str = ""


@dataclass(frozen=True)
class MatchRules:
    """When a stored segment may stand for one of a prompt.

    ``shingle`` (k), ``permutations``, ``tau``: of the content. ``context_tokens`` (W) and ``context_tau``: of
    the tokens before it. ``edit_tokens`` (r): by how many tokens the lengths may differ.
    """

    shingle: int = 8
    permutations: int = 128
    tau: float = 0.8
    context_tokens: int = 64
    context_tau: float = 0.5
    edit_tokens: int = 4


@dataclass(frozen=True)
class StoredSegment:
    """A segment as it was seen.

    Attributes:
        ids, context: its tokens, and up to W before them.
        start: its first token's index in the prompt ``source``, which has one number for each prompt stored.
        before: a hash of all of that prompt's tokens before the segment.
        exact: its KV are what a dense pass gives behind those tokens.
        keys, values: (layers, kv_heads, tokens, head_dim), keys position-free, perhaps packed.
        hidden: (tokens, hidden) states before the first layer that is not kept; None when all are.
        trusted: a probe found that it changes little.
    """

    number: int
    ids: tuple[int, ...]
    context: tuple[int, ...]
    start: int
    source: int
    agent: int
    before: bytes
    exact: bool
    keys: Tensor | Packed
    values: Tensor | Packed
    hidden: Tensor | None
    signature: Any
    context_signature: Any
    trusted: bool = False

    @property
    def packed(self) -> bool:
        return isinstance(self.keys, Packed)

    @property
    def bytes(self) -> int:
        """Of the KV, the hidden states, the tokens and the signatures."""
        tensors = [_bytes(self.keys), _bytes(self.values), _bytes(self.hidden)]
        signatures = self.signature.hashvalues.nbytes + self.context_signature.hashvalues.nbytes
        return sum(tensors) + int(signatures) + 4 * (len(self.ids) + len(self.context))

    def kv(self, start: int, end: int) -> KVSegment:
        """The KV of its tokens ``[start, end)``, for the layers that are kept."""
        keys, values = (x.unpack() if isinstance(x, Packed) else x for x in (self.keys, self.values))
        where = f"agent {self.agent}'s earlier prompt"
        whole = KVSegment(keys, values, self.start, self.exact and not self.packed, where)
        return whole.slice(start, end)


def _bytes(data: Tensor | Packed | None) -> int:
    if data is None:
        return 0
    return data.bytes if isinstance(data, Packed) else data.numel() * data.element_size()


@dataclass(frozen=True)
class SegmentMatch:
    """A stored segment that may stand for the tokens ``content`` at ``cut``, verified: ``similarity`` of the
    content and ``context`` of the tokens before it are exact Jaccard similarities; ``beginning``: all that
    stands before the two is the same."""

    cut: Cut
    content: tuple[int, ...]
    stored: StoredSegment
    similarity: float
    context: float
    beginning: bool


@dataclass
class _Room:
    entries: OrderedDict[int, StoredSegment]
    index: Any
    numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)
    contents: dict[tuple[int, ...], frozenset[int]] = field(default_factory=dict)
    bytes: int = 0
    indexed: int = 0

    def twin(self) -> _Room:
        return replace(
            self, entries=OrderedDict(self.entries), numbers=dict(self.numbers), contents=dict(self.contents)
        )


class SegmentStore:
    """Segments of any number of owners; each has a room and a byte budget of its own.

    Args:
        rules: when segments match.
        budget_bytes: the most that one owner's segments may hold.
        int8: keep KV in eight bits.
    """

    def __init__(self, rules: MatchRules, budget_bytes: int, int8: bool = False) -> None:
        self.rules, self.budget_bytes, self.int8 = rules, budget_bytes, int8
        self.sketcher = Sketcher(rules.shingle, rules.permutations, rules.tau)
        self._rooms: dict[Owner, _Room] = {}
        self._numbers, self._sources = count(1), count(1)

    def segments(self, owner: Owner) -> tuple[StoredSegment, ...]:
        """What an owner has, the longest unused first."""
        room = self._rooms.get(owner)
        return tuple(room.entries.values()) if room else ()

    def held_bytes(self, owner: Owner) -> int:
        """Bytes that an owner's segments hold."""
        room = self._rooms.get(owner)
        return room.bytes if room else 0

    def twin(self) -> SegmentStore:
        """A store that goes on by itself; segments and indexes are shared."""
        other = object.__new__(SegmentStore)
        other.__dict__ = {**self.__dict__, "_rooms": {o: room.twin() for o, room in self._rooms.items()}}
        return other

    def under(self, rules: MatchRules) -> SegmentStore:
        """The same rooms, searched by other rules. The index finds what is alike by its own tau, so that a
        higher one loses nothing; shingle and permutations stay."""
        other = object.__new__(SegmentStore)
        other.__dict__ = {**self.__dict__, "rules": rules}
        return other

    # -- keeping ---------------------------------------------------------------------------------

    def add(
        self,
        owner: Owner,
        ids: Sequence[int],
        cuts: Sequence[Cut],
        kv: KVSegment,
        agent: int = 0,
        hidden: Tensor | None = None,
    ) -> int:
        """Keep segments of a prompt; returns how many were new.

        Args:
            owner: who may find them.
            ids: the whole prompt's tokens.
            cuts: which segments.
            kv: the prompt's KV, position-free, of the layers to keep; ``exact`` when a dense pass left it.
            agent: whose prompt it is.
            hidden: (tokens, hidden) states at the cut of the layers, where not all are kept.
        """
        room = self._room(owner)
        source, prompt, added = next(self._sources), tuple(ids), 0
        hashes = beginnings(prompt, [cut.start for cut in cuts])
        for cut, before in zip(cuts, hashes, strict=True):
            content = prompt[cut.start : cut.end]
            context = prompt[max(0, cut.start - self.rules.context_tokens) : cut.start]
            stored = room.entries.get(room.numbers.get((content, context), 0))
            if stored is not None and (stored.before == before and stored.exact >= kv.exact):
                if stored.exact:  # the same KV: so it goes on from its neighbours in this prompt
                    room.entries[stored.number] = replace(stored, source=source)
                room.entries.move_to_end(stored.number)
                continue
            if stored is not None and stored.exact and not kv.exact:
                continue
            if stored is not None:
                self._drop(room, stored)
            keys, values = (x[:, :, cut.start : cut.end] for x in (kv.keys, kv.values))
            self._insert(
                room,
                StoredSegment(
                    next(self._numbers), content, context, cut.start, source, agent, before, kv.exact,
                    pack(keys) if self.int8 else keys.clone(), pack(values) if self.int8 else values.clone(),
                    None if hidden is None else hidden[cut.start : cut.end].clone(),
                    self.sketcher.signature(content), self.sketcher.signature(context),
                ),
            )  # fmt: skip
            added += stored is None
        self._shrink(room, self.budget_bytes)
        if room.indexed > 2 * len(room.entries) + REBUILD:
            room.index = self.sketcher.index((n, e.signature) for n, e in room.entries.items())
            room.indexed = len(room.entries)
        return added

    @property
    def total_bytes(self) -> int:
        """Bytes that all owners' segments hold."""
        return sum(room.bytes for room in self._rooms.values())

    def shrink(self, budget_bytes: int) -> None:
        """Drop segments, the longest unused first and the largest room's before the others', until all
        together hold at most ``budget_bytes``."""
        while (over := self.total_bytes - budget_bytes) > 0:
            largest = max(self._rooms.values(), key=lambda room: room.bytes)
            self._shrink(largest, max(0, largest.bytes - over))

    def _shrink(self, room: _Room, budget_bytes: int) -> None:
        while room.bytes > budget_bytes:
            self._drop(room, next(iter(room.entries.values())))

    def _room(self, owner: Owner) -> _Room:
        if owner not in self._rooms:
            self._rooms[owner] = _Room(OrderedDict(), self.sketcher.index())
        return self._rooms[owner]

    def _insert(self, room: _Room, entry: StoredSegment) -> None:
        room.entries[entry.number] = entry
        room.numbers[entry.ids, entry.context] = entry.number
        room.contents[entry.ids] = room.contents.get(entry.ids, frozenset()) | {entry.number}
        room.index.insert(entry.number, entry.signature)
        room.bytes += entry.bytes
        room.indexed += 1

    def _drop(self, room: _Room, entry: StoredSegment) -> None:
        del room.entries[entry.number], room.numbers[entry.ids, entry.context]
        numbers = room.contents.pop(entry.ids) - {entry.number}
        if numbers:
            room.contents[entry.ids] = numbers
        room.bytes -= entry.bytes

    def mark_used(self, owner: Owner, numbers: Sequence[int], trusted: bool = False) -> None:
        """These were grafted just now; ``trusted``: and a probe found nothing wrong with them."""
        room = self._room(owner)
        for number in numbers:
            if number in room.entries:
                room.entries.move_to_end(number)
                if trusted:
                    room.entries[number] = replace(room.entries[number], trusted=True)

    def forget(self, owner: Owner, numbers: Sequence[int]) -> None:
        """Drop segments: a probe found that they do not fit."""
        room = self._room(owner)
        for number in numbers:
            if number in room.entries:
                self._drop(room, room.entries[number])

    # -- finding ---------------------------------------------------------------------------------

    def find(
        self, owner: Owner, ids: Sequence[int], cuts: Sequence[Cut]
    ) -> Iterator[tuple[Cut, SegmentMatch | None, int]]:
        """For each cut of a prompt the best stored segment, verified, and how many others were verified."""
        room = self._rooms.get(owner)
        if room is None or not room.entries:
            yield from ((cut, None, 0) for cut in cuts)
            return
        prompt = tuple(ids)
        for cut, before in zip(cuts, beginnings(prompt, [cut.start for cut in cuts]), strict=True):
            yield cut, *self._best(room, prompt, cut, before)

    def _best(
        self, room: _Room, prompt: tuple[int, ...], cut: Cut, before: bytes
    ) -> tuple[SegmentMatch | None, int]:
        content = prompt[cut.start : cut.end]
        context = prompt[max(0, cut.start - self.rules.context_tokens) : cut.start]
        same = [room.entries[n] for n in room.contents.get(content, ()) if n in room.entries]
        exact = [self._verify(cut, e, content, context, before) for e in self._nearest(same, context)]
        matches = [match for match in exact if self._passes(match)]
        verified = len(exact)
        if not matches:  # the same content would have been the best; now for what is like it
            numbers = room.index.query(self.sketcher.signature(content))
            similar = [room.entries[n] for n in numbers if n in room.entries]
            edits = self.rules.edit_tokens
            similar = [e for e in similar if e.ids != content and abs(len(e.ids) - len(content)) <= edits]
            close = [self._verify(cut, e, content, context, before) for e in self._nearest(similar, context)]
            matches = [match for match in close if self._passes(match)]
            verified += len(close)
        best = max(matches, key=_rank, default=None)
        return best, verified - (best is not None)

    def _nearest(self, entries: list[StoredSegment], context: tuple[int, ...]) -> list[StoredSegment]:
        """Those whose left context's signature is nearest, where there are many."""
        if len(entries) <= CANDIDATES:
            return entries
        signature = self.sketcher.signature(context).hashvalues
        signatures = np.stack([e.context_signature.hashvalues for e in entries])
        order = np.argsort(-(signatures == signature).mean(axis=1), kind="stable")
        return [entries[i] for i in order[:CANDIDATES]]

    def _verify(
        self,
        cut: Cut,
        entry: StoredSegment,
        content: tuple[int, ...],
        context: tuple[int, ...],
        before: bytes,
    ) -> SegmentMatch:
        size, same = self.rules.shingle, entry.ids == content
        similarity = 1.0 if same else jaccard(entry.ids, content, size)
        context_similarity = 1.0 if entry.context == context else jaccard(entry.context, context, size)
        return SegmentMatch(cut, content, entry, similarity, context_similarity, entry.before == before)

    def _passes(self, match: SegmentMatch) -> bool:
        return match.similarity >= self.rules.tau and match.context >= self.rules.context_tau


def _rank(match: SegmentMatch) -> tuple[bool, float, float, int]:
    return match.beginning, match.similarity, match.context, match.stored.number


def beginnings(ids: Sequence[int], ends: Sequence[int]) -> list[bytes]:
    """A hash of the prompt up to each of these ends, which may come in any order."""
    tokens, at, digest = np.asarray(ids, dtype=np.int64), 0, sha256()
    hashes: dict[int, bytes] = {}
    for end in sorted(set(ends)):
        digest.update(tokens[at:end].tobytes())
        hashes[end], at = digest.copy().digest(), end
    return [hashes[end] for end in ends]
