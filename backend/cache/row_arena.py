"""Rows of tensors in one block of memory, so that what is read together is stored together.

An :class:`Arena` has one row per token. For offsets a row is the token's KV difference in every layer, keys
then values, (2, layers, kv_heads, head_dim), position-free; so a weighted sum over anchors is one contraction
for all layers, heads and channels (:mod:`backend.cache.kernels.mix_and_rotate`). For descriptors it is the
token's embedding, (hidden,).

Rows are free once no :class:`ArenaRows` refers to them. So eviction needs no call, rows in use are never
freed, and texts of any length are stored without padding. Rows move when their arena grows or is trimmed:
keep the :class:`ArenaRows` and take their tensor when it is read.
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
    """Rows ``[start, start + count)`` of an arena, in use as long as this object exists."""

    __slots__ = ("__weakref__", "arena", "count", "start")

    def __init__(self, arena: Arena, start: int, count: int) -> None:
        self.arena, self.start, self.count = arena, start, count

    @property
    def tensor(self) -> Tensor:
        """(count, *row), a view that is valid until the arena next takes or trims."""
        return self.arena.buffer[self.start : self.start + self.count]

    @property
    def bytes(self) -> int:
        return self.count * self.arena.row_bytes

    def in_main_memory(self) -> ArenaRows:
        """A contiguous copy in main memory. From CUDA it is pinned and copied asynchronously: wait for the
        device before reading it."""
        cuda = self.tensor.device.type == "cuda"
        with torch.inference_mode(False):
            buffer = torch.empty(self.tensor.shape, dtype=self.tensor.dtype, pin_memory=cuda)
        buffer.copy_(self.tensor, non_blocking=cuda)
        return Arena.over(buffer)


class Arena:
    """A contiguous buffer (capacity, *row) that grows by half when no gap is large enough."""

    def __init__(self, row: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self.buffer = torch.empty((0, *row), dtype=dtype, device=device)
        self._rows: WeakSet[ArenaRows] = WeakSet()

    @staticmethod
    def over(buffer: Tensor) -> ArenaRows:
        """All rows of a new arena over a buffer (rows, *row)."""
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
        """Rows in use."""
        return sum(rows.count for rows in self._rows)

    @property
    def slack_bytes(self) -> int:
        """Bytes of the rows that are not in use."""
        return (self.capacity - self.row_count) * self.row_bytes

    def take(self, count: int, spare_bytes: Callable[[], int]) -> ArenaRows:
        """``count`` uninitialised rows: the smallest gap that is large enough, else the buffer grows.

        Args:
            count: how many neighbouring rows.
            spare_bytes: how many bytes a larger buffer may take beyond the current need.
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
        """A copy, and a mapping from this arena's rows to the copy's."""
        twin = Arena(tuple(self.buffer.shape[1:]), self.buffer.dtype, self.buffer.device)
        with torch.inference_mode(False):
            twin.buffer = in_large_pages(torch.empty_like(self.buffer)).copy_(self.buffer)
        rows = {item: ArenaRows(twin, item.start, item.count) for item in self._rows}
        twin._rows.update(rows.values())
        return twin, rows

    def trim(self) -> None:
        """Free the rows that are not in use."""
        if self.capacity > self.row_count:
            self._move(self.row_count)

    def _gaps(self) -> Iterator[tuple[int, int]]:
        """(start, length) of the free places."""
        places = sorted((r.start, r.start + r.count) for r in self._rows if r.count)
        for (_, end), (start, _) in pairwise([(0, 0), *places, (self.capacity, self.capacity)]):
            if start > end:
                yield end, start - end

    def _move(self, capacity: int) -> None:
        """Move all rows into a new buffer without gaps. Both buffers exist until the copy is done."""
        old, at = self.buffer, 0
        with torch.inference_mode(False):  # an inference tensor cannot be written to outside of that mode
            self.buffer = in_large_pages(old.new_empty((capacity, *old.shape[1:])))
        for rows in sorted(self._rows, key=lambda r: r.start):
            self.buffer[at : at + rows.count] = old[rows.start : rows.start + rows.count]
            rows.start, at = at, at + rows.count


class Arenas:
    """The arenas of one log, by purpose. An arena without rows in use is dropped.

    ``spare``: the bytes that the log's budget leaves, which limit an arena's growth.
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
        """Neighbouring rows in the agent's arena for several offsets, by name.

        Args:
            agent: whose context the offsets belong to.
            tokens: of each offset.
            like: keys (layers, kv_heads, tokens, head_dim), for the shape and the device.
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
        """Copy another log's arenas; a mapping from its rows to the copies, which the caller has to hold."""
        copies = dict[ArenaRows, ArenaRows]()
        for key, arena in other._all.items():
            self._all[key], rows = arena.copy()
            copies |= rows
        return copies

    def trim(self) -> None:
        """Free all rows that are not in use."""
        for arena in list(self._all.values()):
            arena.trim()


@dataclass(frozen=True)
class ArenaOffset:
    """A :class:`backend.cache.kv_cache.KVOffset` in an arena: tokens ``[start, end)`` of rows of offsets."""

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
        """The current arena row of its first token."""
        return self.rows.start + self.start

    def slice(self, start: int, end: int) -> ArenaOffset:
        """Tokens ``[start, end)``; nothing is copied."""
        return ArenaOffset(self.rows, self.start + start, min(self.end, self.start + end))

    def to(self, device: torch.device) -> ArenaOffset | KVOffset:
        """A copy on a device; itself if it is there already."""
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
        """Copy another offset from any device, in the arena's dtype; numbers beyond its range are clamped."""
        largest = torch.finfo(self.keys.dtype).max
        for target, source in ((self.keys, offset.keys), (self.values, offset.values)):
            target.copy_(source if source.dtype == target.dtype else source.clamp(-largest, largest))
