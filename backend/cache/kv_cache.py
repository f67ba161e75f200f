"""KV tensors: segments stored position-free, and the cache that a forward pass reads and extends."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from backend.cache.process_memory import want_large_pages
from backend.cache.rope import Rotation


def in_large_pages(tensor: Tensor) -> Tensor:
    """A fresh tensor; large pages are requested if it is large and in main memory."""
    if tensor.device.type == "cpu":
        want_large_pages(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    return tensor


OWN_CONTEXT = "own context"  # ends the ``context`` of what an agent decoded itself


@dataclass(frozen=True)
class KeysAndValues:
    """``keys``: (layers, kv_heads, tokens, head_dim), position-free: rotated back to position 0; ``values``:
    the same shape."""

    keys: Tensor
    values: Tensor

    @property
    def tokens(self) -> int:
        return int(self.keys.shape[2])

    @property
    def bytes(self) -> int:
        return 2 * self.keys.numel() * self.keys.element_size()


@dataclass(frozen=True)
class KVSegment(KeysAndValues):
    """The KV of a contiguous token span, computed in some context.

    Attributes:
        start: RoPE position of the first token where the segment was computed.
        exact: computed by real prefill or decoding over an exact cache.
        context: in words, where it was computed ("alone", "agent 1's own context", ...).
    """

    start: int
    exact: bool
    context: str

    def slice(self, start: int, end: int) -> KVSegment:
        """Tokens ``[start, end)`` as a view."""
        keys, values = self.keys[:, :, start:end], self.values[:, :, start:end]
        return KVSegment(keys, values, self.start + start, self.exact, self.context)


class Offset(Protocol):
    """What a correction reads of a stored offset, packed or not; shapes as in :class:`KeysAndValues`."""

    @property
    def keys(self) -> Tensor: ...
    @property
    def values(self) -> Tensor: ...
    @property
    def tokens(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    def slice(self, start: int, end: int) -> Offset: ...


@dataclass(frozen=True)
class KVOffset(KeysAndValues):
    """KV in one context minus KV in another, position-free (Eq. 6, 7)."""

    @staticmethod
    def between(real: KVSegment, base: KVSegment) -> KVOffset:
        """``real - base``, token by token."""
        return KVOffset(real.keys - base.keys, real.values - base.values)

    def slice(self, start: int, end: int) -> KVOffset:
        """Tokens ``[start, end)`` as a view."""
        return KVOffset(self.keys[:, :, start:end], self.values[:, :, start:end])

    def to(self, device: torch.device) -> KVOffset:
        """A copy on a device; itself if it is there already."""
        if self.keys.device == device:
            return self
        return KVOffset(self.keys.to(device), self.values.to(device))


@dataclass(frozen=True)
class Temper:
    """How attention to some places is changed: scores are divided by ``temperature``, the logarithm of their
    sum is multiplied by ``scale``. ``places``: (places,) bool, on the CPU; places beyond its end are not
    tempered."""

    places: Tensor
    temperature: float
    scale: float


@functools.cache
def _cache_argument(kinds: tuple[type, ...]) -> str:
    forwards = [vars(kind)["forward"] for kind in kinds if "forward" in vars(kind)]
    signatures = [inspect.signature(forward) for forward in forwards]
    return "cache" if any("cache" in signature.parameters for signature in signatures) else "past_key_values"


def as_argument(module: Any, cache: Cache) -> dict[str, Cache]:
    """A cache as keyword argument of a module's ``forward``: ``cache``, in transformers before 5.24
    ``past_key_values``. Base classes are searched too, since a subclass may pass its arguments on."""
    return {_cache_argument(type(module).__mro__): cache}


def made_cache(output: Any) -> Any:
    """The cache in a forward pass's output, under either name; None if there is none."""
    cache = getattr(output, "cache", None)
    return getattr(output, "past_key_values", None) if cache is None else cache


class BufferLayer(DynamicLayer):
    """A cache layer over a preallocated buffer: appending writes in place instead of copying."""

    def __init__(self, keys: Tensor, values: Tensor, length: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.key_buffer, self.value_buffer, self.length = keys, values, length
        self.keys, self.values = keys[:, :, :length], values[:, :, :length]

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        end = self.length + key_states.shape[2]
        self.key_buffer[:, :, self.length : end] = key_states
        self.value_buffer[:, :, self.length : end] = value_states
        self.rewind(end)
        # A model layer on another device than the cache gets a copy.
        return self.keys.to(key_states.device), self.values.to(key_states.device)

    def get_seq_length(self) -> int:
        return self.length

    def rewind(self, length: int) -> None:
        """Count the first ``length`` places as filled, and no others."""
        self.length = length
        self.keys, self.values = self.key_buffer[:, :, :length], self.value_buffer[:, :, :length]


class KVCache:
    """The cache of one batch, in two contiguous buffers (layers, batch, kv_heads, capacity, head_dim).

    Keys are rotated to their positions, as attention needs them. A token's position is its place, with two
    exceptions: ``positions`` (places,) are the positions of a single row's first places if a method set them;
    ``shifts``, one per row, are added to the places of all later tokens. ``tempers``: one per row; None for
    plain attention.
    """

    def __init__(
        self, shape: tuple[int, int, int, int, int], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.keys = in_large_pages(torch.empty(shape, dtype=dtype, device=device))
        self.values = in_large_pages(torch.empty(shape, dtype=dtype, device=device))
        self.positions: Tensor | None = None
        self.shifts = [0] * shape[1]
        self.tempers: list[Temper | None] = [None] * shape[1]
        self._wrap(0)

    def _wrap(self, length: int) -> None:
        self.layers = [BufferLayer(k, v, length) for k, v in zip(self.keys, self.values, strict=True)]
        self.cache = Cache(layers=list(self.layers))

    @property
    def length(self) -> int:
        return self.layers[0].length

    @length.setter
    def length(self, tokens: int) -> None:
        """Declare that the first ``tokens`` places are filled (after writing into the buffers)."""
        for layer in self.layers:
            layer.rewind(tokens)

    @property
    def capacity(self) -> int:
        return int(self.keys.shape[3])

    def reserve(self, tokens: int) -> None:
        """Grow the buffers to ``tokens`` places, keeping the content."""
        if tokens <= self.capacity:
            return
        length, old_keys, old_values = self.length, self.keys, self.values
        shape = (*old_keys.shape[:3], tokens, old_keys.shape[4])
        self.keys = in_large_pages(old_keys.new_empty(shape))
        self.values = in_large_pages(old_values.new_empty(shape))
        self.keys[:, :, :, :length] = old_keys[:, :, :, :length]
        self.values[:, :, :, :length] = old_values[:, :, :, :length]
        self._wrap(length)

    def positions_of(self, start: int, end: int, row: int = 0) -> Tensor:
        """RoPE positions of places ``[start, end)`` of a row without padding, (places,), on the CPU."""
        head = self.positions if self.positions is not None else torch.empty(0, dtype=torch.long)
        tail = torch.arange(len(head), max(end, len(head))) + self.shifts[row]
        return torch.cat([head, tail])[start:end]

    def copy(self) -> KVCache:
        """A copy with its own buffers."""
        twin = KVCache((*self.keys.shape,), self.keys.dtype, self.keys.device)
        twin.keys.copy_(self.keys)
        twin.values.copy_(self.values)
        twin.positions, twin.shifts = self.positions, list(self.shifts)
        twin.tempers = list(self.tempers)
        twin.length = self.length
        return twin

    def reorder(self, order: Tensor) -> None:
        """Let place i hold what place ``order[i]`` held; ``order`` (length,) is a permutation."""
        places = order.to(self.keys.device)
        self.keys[:, :, :, : len(order)] = self.keys[:, :, :, places]
        self.values[:, :, :, : len(order)] = self.values[:, :, :, places]
        if self.positions is not None:
            self.positions = self.positions[order]

    def segment(
        self,
        start: int,
        end: int,
        rotation: Rotation,
        *,
        exact: bool,
        context: str,
        row: int = 0,
        padding: int = 0,
    ) -> KVSegment:
        """A position-free copy of places ``[start, end)`` of a row. Their positions are :meth:`positions_of`
        minus ``padding``."""
        positions = self.positions_of(start, end, row) - padding
        back = -positions.to(self.keys.device, non_blocking=True)
        keys = rotation.rotate(self.keys[:, row, :, start:end], back)
        first = int(positions[0]) if end > start else start - padding
        return KVSegment(keys, self.values[:, row, :, start:end].clone(), first, exact, context)

    @staticmethod
    def batch(rows: Sequence[KVCache], extra_tokens: int) -> tuple[KVCache, list[int]]:
        """Copy single-row caches into one batch, aligned at the right; returns it and each row's padding."""
        return KVCache.gather([(row, 0, 0) for row in rows], extra_tokens)

    @staticmethod
    def gather(parts: Sequence[tuple[KVCache, int, int]], extra_tokens: int) -> tuple[KVCache, list[int]]:
        """Copy rows of batches into one batch, aligned at the right, without padding that all rows share.

        Args:
            parts: for each row its batch, its index there, and its padding there.
            extra_tokens: room for further tokens.

        Returns:
            the batch, and each row's padding.
        """
        longest = max(cache.length - pad for cache, _, pad in parts)
        first = parts[0][0].keys
        layers, _, heads, _, dim = first.shape
        batch = KVCache((layers, len(parts), heads, longest + extra_tokens, dim), first.dtype, first.device)
        padding = []
        for index, (cache, row, pad) in enumerate(parts):
            empty = longest - (cache.length - pad)
            padding.append(empty)
            for target, source in ((batch.keys, cache.keys), (batch.values, cache.values)):
                target[:, index, :, :empty] = 0
                target[:, index, :, empty:longest] = source[:, row, :, pad : cache.length]
        batch.length = longest
        batch.shifts = [cache.shifts[row] for cache, row, _ in parts]
        for index, (cache, row, pad) in enumerate(parts):
            if (temper := cache.tempers[row]) is not None:
                places = torch.nn.functional.pad(temper.places, (padding[index] - pad, 0))
                batch.tempers[index] = replace(temper, places=places)
        return batch, padding
