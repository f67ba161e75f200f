"""Rows of tensors in one block of memory, so that what is read together lies together.

An :class:`Arena` has one row per token. For offsets a row is what one token's KV differs by in every layer,
keys then values, (2, layers, kv_heads, head_dim), position-free; so a weighted sum over anchors is one
contraction for all layers, heads and channels (:mod:`backend.cache.kernels.mix_and_rotate`). For what texts
are compared by it is the token's embedding, (hidden,).

Who holds :class:`Rows` holds their place, and when the last holder is gone the place is free: eviction needs
no call, nothing is freed that somebody still reads, and texts of any length lie side by side without padding.
Rows move when their arena grows or is trimmed, so take tensors from them when they are read, and keep the
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from weakref import WeakSet, WeakValueDictionary

import torch
from torch import Tensor

from backend.cache.kv_cache import KVOffset, KVSegment, in_large_pages


class ArenaRows:
    """Rows ``[start, start + count)`` of an arena; theirs as long as this object lives."""

    __slots__ = ("__weakref__", "arena", "count", "start")

    def __init__(self, arena: Arena, start: int, count: int) -> None:
        self.arena, self.start, self.count = arena, start, count

    @property
    def tensor(self) -> Tensor:
        """(count, *row), a view that holds until the arena next takes or trims."""
        return self.arena.buffer[self.start : self.start + self.count]

    @property
    def bytes(self) -> int:
        return self.count * self.arena.row_bytes

    def in_main_memory(self) -> ArenaRows:
        """A copy that waits in main memory, in one piece. From CUDA it is pinned, and only asked for: who
        reads it waits for the device first."""
        cuda = self.tensor.device.type == "cuda"
        with torch.inference_mode(False):
            buffer = torch.empty(self.tensor.shape, dtype=self.tensor.dtype, pin_memory=cuda)
        buffer.copy_(self.tensor, non_blocking=cuda)
        return Arena.over(buffer)


class Arena:
    """A contiguous buffer (capacity, *row) that grows by a half when no gap is large enough."""

    def __init__(self, row: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.buffer = torch.empty((0, *row), dtype=dtype, device=device)
        self._rows: WeakSet[ArenaRows] = WeakSet()

    @staticmethod
    def over(buffer: Tensor) -> ArenaRows:
        """All rows of an arena of their own, over a buffer (rows, *row)."""
        arena = Arena((), buffer.dtype, buffer.device)
        arena.buffer = buffer
        rows = ArenaRows(arena, 0, len(buffer))
        arena._rows.add(rows)
        return rows

    @property
    def capacity(self) -> int:
        return int(self.buffer.shape[0])

    @property
    def row_bytes(self) -> int:
        return prod(self.buffer.shape[1:]) * self.buffer.element_size()

    @property
    def row_count(self) -> int:
        """Rows that somebody holds."""
        return sum(rows.count for rows in self._rows)

    @property
    def slack_bytes(self) -> int:
        """Bytes of the rows that nobody holds."""
        return (self.capacity - self.row_count) * self.row_bytes

    def take(self, count: int, spare_bytes: Callable[[], int]) -> ArenaRows:
        """``count`` rows of any content: the smallest gap that is large enough, else the buffer grows.

        Args:
            count: how many; they lie side by side.
            spare_bytes: says what a larger buffer may take at most beyond what is needed now.
        """
        gaps = [(length, start) for start, length in self._gaps() if length >= count]
        if not gaps:
            total = self.row_count + count
            self._move(total + min(total // 2, max(0, spare_bytes()) // self.row_bytes))
            gaps = [(length, start) for start, length in self._gaps() if length >= count]
        rows = ArenaRows(self, min(gaps)[1] if gaps else 0, count)
        self._rows.add(rows)
        return rows

    def copy(self) -> tuple[Arena, dict[ArenaRows, ArenaRows]]:
        """The same on memory of its own, and by the rows held here those there."""
        twin = Arena(tuple(self.buffer.shape[1:]), self.buffer.dtype, self.buffer.device)
        with torch.inference_mode(False):
            twin.buffer = in_large_pages(torch.empty_like(self.buffer)).copy_(self.buffer)
        rows = {item: ArenaRows(twin, item.start, item.count) for item in self._rows}
        twin._rows.update(rows.values())
        return twin, rows

    def trim(self) -> None:
        """Give back the rows that nobody holds."""
        if self.capacity > self.row_count:
            self._move(self.row_count)

    def _gaps(self) -> Iterator[tuple[int, int]]:
        """(start, length) of the free places."""
        places = sorted((r.start, r.start + r.count) for r in self._rows if r.count)
        for (_, end), (start, _) in pairwise([(0, 0), *places, (self.capacity, self.capacity)]):
            if start > end:
                yield end, start - end

    def _move(self, capacity: int) -> None:
        """Into a new buffer, without gaps. Both exist until it is done."""
        old, at = self.buffer, 0
        with torch.inference_mode(False):  # else nobody could write to it outside of that mode
            self.buffer = in_large_pages(old.new_empty((capacity, *old.shape[1:])))
        for rows in sorted(self._rows, key=lambda r: r.start):
            self.buffer[at : at + rows.count] = old[rows.start : rows.start + rows.count]
            rows.start, at = at, at + rows.count


class Arenas:
    """The arenas of one log, by what they are for. One that holds nothing is given up.

    ``spare``: says how many bytes the log's budget leaves, so that no arena grows past it.
    """

    def __init__(self, spare: Callable[[], int]) -> None:
        self._spare = spare
        self._all: WeakValueDictionary[tuple[object, ...], Arena] = WeakValueDictionary()

    @property
    def slack_bytes(self) -> int:
        return sum(arena.slack_bytes for arena in self._all.values())

    def take(
        self, purpose: object, count: int, row: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> ArenaRows:
        """``count`` rows of the arena for ``purpose`` and this kind of row."""
        key = (purpose, row, dtype, device)
        arena = self._all.get(key)
        if arena is None:
            arena = self._all[key] = Arena(row, dtype, device)
        return arena.take(count, self._spare)

    def take_offsets(
        self, agent: int, tokens: Mapping[str, int], like: Tensor, dtype: torch.dtype
    ) -> dict[str, ArenaOffset]:
        """Room for offsets of so many tokens each, by name, side by side among all that the agent has seen.

        Args:
            agent: whose context they belong to.
            tokens: of each.
            like: keys of them, (layers, kv_heads, tokens, head_dim), for all but their number.
            dtype: of the rows.
        """
        layers, heads, _, dim = like.shape
        rows = self.take(agent, sum(tokens.values()), (2, layers, heads, dim), dtype, like.device)
        places, at = dict[str, ArenaOffset](), 0
        for name, count in tokens.items():
            places[name] = ArenaOffset(rows, at, at + count)
            at += count
        return places

    def copy_from(self, other: Arenas) -> dict[ArenaRows, ArenaRows]:
        """Copies of another log's arenas; by its rows those here, which have to be held."""
        copies = dict[ArenaRows, ArenaRows]()
        for key, arena in other._all.items():
            self._all[key], rows = arena.copy()
            copies |= rows
        return copies

    def trim(self) -> None:
        """Give back what nobody holds."""
        for arena in list(self._all.values()):
            arena.trim()


@dataclass(frozen=True)
class ArenaOffset:
    """Stands where a :class:`backend.cache.kv_cache.KVOffset` stands: tokens ``[start, end)`` of rows of
    offsets."""

    rows: ArenaRows
    start: int
    end: int

    @property
    def pair(self) -> Tensor:
        """Keys and values, (2, layers, kv_heads, tokens, head_dim), a view."""
        return self.rows.tensor[self.start : self.end].permute(1, 2, 3, 0, 4)

    @property
    def keys(self) -> Tensor:
        return self.pair[0]

    @property
    def values(self) -> Tensor:
        return self.pair[1]

    @property
    def tokens(self) -> int:
        return self.end - self.start

    @property
    def bytes(self) -> int:
        return self.tokens * self.rows.arena.row_bytes

    @property
    def first_row(self) -> int:
        """Where its first token lies in the arena now."""
        return self.rows.start + self.start

    def slice(self, start: int, end: int) -> ArenaOffset:
        """Tokens ``[start, end)`` of it; nothing is copied."""
        return ArenaOffset(self.rows, self.start + start, min(self.end, self.start + end))

    def to(self, device: torch.device) -> ArenaOffset | KVOffset:
        """A copy on another device; itself where it is there already."""
        if self.rows.arena.buffer.device == device:
            return self
        return KVOffset(self.keys.to(device), self.values.to(device))

    def remap(self, rows: Mapping[ArenaRows, ArenaRows]) -> ArenaOffset:
        """The same in a copy of its arena (:meth:`Arenas.copy_from`)."""
        return ArenaOffset(rows[self.rows], self.start, self.end)

    @torch.inference_mode()
    def write(self, real: KVSegment, base: KVSegment) -> None:
        """``real - base``, token by token, straight into place."""
        keys, values = self.pair
        torch.sub(real.keys, base.keys, out=keys)
        torch.sub(real.values, base.values, out=values)

    @torch.inference_mode()
    def copy_from(self, offset: KVOffset | ArenaOffset) -> None:
        """The content of another offset, from whichever device, in the arena's number format; what is too
        large for it becomes its largest number."""
        largest = torch.finfo(self.keys.dtype).max
        for target, source in ((self.keys, offset.keys), (self.values, offset.values)):
            target.copy_(source if source.dtype == target.dtype else source.clamp(-largest, largest))
