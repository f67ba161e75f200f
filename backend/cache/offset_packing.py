"""Packed forms of stored offsets: lossless, rounded to a step, in half precision.

The paper finds about half of the offset elements under 0.1 in size and expects headroom for compression
(appendix 6.4.5); a record states the share for its model.

*lossless*: the bytes of all numbers are regrouped (all first bytes, all second bytes, ...), which puts
similar exponents side by side, and deflated. *lossy*: each element is rounded to the nearest multiple of a
step, an error of at most half a step (plus rounding to the tensor's dtype), then deflated likewise; elements
under half a step become runs of zeros.

*half*: fp16 rows in an arena of their own, mixed without unpacking. Mixing is bound by reading, and this
halves the bytes. Offsets that are in 16 bits already are not packed.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.cache.kv_cache import Offset
from backend.cache.row_arena import Arenas
from backend.cache.samples import ContextOffset, Sample

CodecName = Literal["none", "half", "lossless", "lossy"]
HALF = torch.float16
LEVEL = 1  # of deflate: higher ones are several times slower and save one more percent
#: From here on whole numbers exceed the precision of fp32: such a step would round nothing.
MOST_STEPS = 1 << 23


@dataclass(frozen=True)
class Codec:
    """How offsets are kept. ``step`` is read by *lossy* alone."""

    name: CodecName = "none"
    step: float = 0.1


@dataclass(frozen=True)
class PackedTensor:
    """A tensor as deflated bytes in main memory. ``step`` 0: nothing was rounded."""

    content: bytes
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    step: float
    item_bytes: int

    @property
    def bytes(self) -> int:
        return len(self.content)

    def unpack(self) -> Tensor:
        """The tensor, on its original device."""
        if 0 in self.shape:
            return torch.empty(self.shape, dtype=self.dtype, device=self.device)
        planes = np.frombuffer(zlib.decompress(self.content), dtype=np.uint8)
        raw = torch.from_numpy(planes.reshape(self.item_bytes, -1).T.flatten())
        if not self.step:
            return raw.view(self.dtype).reshape(self.shape).to(self.device)
        integer = {1: torch.int8, 2: torch.int16, 4: torch.int32}[self.item_bytes]
        steps = raw.view(integer).reshape(self.shape).to(self.device)
        return (steps.to(torch.float32) * self.step).to(self.dtype)


def pack_tensor(tensor: Tensor, codec: Codec) -> PackedTensor:
    """Pack a floating-point tensor. One that cannot be rounded (not finite, or so large that the step is
    below its precision) is packed losslessly."""
    facts = tuple(tensor.shape), tensor.dtype, tensor.device
    if codec.name == "lossy" and tensor.numel():
        steps = tensor.detach().to(torch.float64) / codec.step
        largest = float(steps.abs().max())
        if largest < MOST_STEPS:  # false for NaN too
            kind = next(k for k in (torch.int8, torch.int16, torch.int32) if largest <= torch.iinfo(k).max)
            content, item_bytes = _deflate(steps.round().to(kind))
            return PackedTensor(content, *facts, codec.step, item_bytes)
    content, item_bytes = _deflate(tensor.detach())
    return PackedTensor(content, *facts, 0.0, item_bytes)


def _deflate(tensor: Tensor) -> tuple[bytes, int]:
    """Deflated bytes of a tensor, regrouped by their position within an item, and the item's size."""
    size = tensor.element_size()
    flat = tensor.contiguous().cpu().flatten().view(torch.uint8).numpy()
    return zlib.compress(flat.reshape(-1, size).T.tobytes(), LEVEL), size


@dataclass(frozen=True)
class PackedOffset:
    """A packed :class:`backend.cache.kv_cache.KVOffset`; ``keys`` and ``values`` are unpacked on access."""

    packed_keys: PackedTensor
    packed_values: PackedTensor
    start: int
    end: int

    @property
    def keys(self) -> Tensor:
        return self.packed_keys.unpack()[:, :, self.start : self.end]

    @property
    def values(self) -> Tensor:
        return self.packed_values.unpack()[:, :, self.start : self.end]

    @property
    def tokens(self) -> int:
        return self.end - self.start

    @property
    def bytes(self) -> int:
        return self.packed_keys.bytes + self.packed_values.bytes

    def slice(self, start: int, end: int) -> PackedOffset:
        """Tokens ``[start, end)``; nothing is unpacked."""
        return replace(self, start=self.start + start, end=min(self.end, self.start + end))


def pack(offset: Offset, codec: Codec) -> PackedOffset:
    """Pack an offset's keys and values."""
    return PackedOffset(pack_tensor(offset.keys, codec), pack_tensor(offset.values, codec), 0, offset.tokens)


@dataclass(frozen=True)
class PackedContextOffset:
    """A :class:`backend.cache.samples.ContextOffset`, packed."""

    placeholder: PackedOffset
    followers: dict[str, PackedOffset]

    @property
    def bytes(self) -> int:
        return self.placeholder.bytes + sum(offset.bytes for offset in self.followers.values())


@dataclass(frozen=True)
class Stored:
    """One sample's offsets in one agent's context as a pool stores them, and the error of packing them.

    ``squared_error``: (2, layers) sum over the elements, keys then values; ``largest``: the largest error of
    an element. Both are measured on the unpacked result.
    """

    offsets: PackedContextOffset | ContextOffset
    squared_error: NDArray[np.float64]
    largest: float


def store(offset: ContextOffset, codec: Codec, agent: int, arenas: Arenas, like: Tensor) -> Stored:
    """Pack all parts of an offset in the context of ``agent``, and unpack them to measure the error.

    ``arenas``: for offsets in half precision; ``like``: keys of the anchor's base, whose device they use.
    """
    true = [offset.placeholder, *offset.followers.values()]
    if codec.name == "half":
        packed: ContextOffset | PackedContextOffset = _halved(offset, agent, arenas, like)
    else:
        followers = {name: pack(follower, codec) for name, follower in offset.followers.items()}
        packed = PackedContextOffset(pack(offset.placeholder, codec), followers)
    error = torch.zeros(2, offset.placeholder.keys.shape[0], dtype=torch.float64)
    largest = 0.0
    for original, copy in zip(true, [packed.placeholder, *packed.followers.values()], strict=True):
        for row, (a, b) in enumerate(((original.keys, copy.keys), (original.values, copy.values))):
            difference = a.double().cpu() - b.double().cpu()
            error[row] += difference.square().sum(dim=(1, 2, 3))
            largest = max(largest, float(difference.abs().max())) if difference.numel() else largest
    return Stored(packed, error.numpy(), largest)


def _halved(source: ContextOffset, agent: int, arenas: Arenas, like: Tensor) -> ContextOffset:
    """A copy in half precision in the agent's arena, its parts side by side."""
    placeholder, followers = source.placeholder, source.followers
    offsets = {"": placeholder, **followers}
    tokens = {name: offset.tokens for name, offset in offsets.items()}
    places = arenas.take_offsets(agent, tokens, like, HALF)
    for name, offset in offsets.items():
        places[name].copy_from(offset)
    return ContextOffset(places[""], {name: places[name] for name in followers}, source.starts)


class AnchorStore:
    """The anchor manager of Table A.1 for one placeholder: from anchor and agent to stored offsets.

    The log keeps offsets as computed, for all methods; a pool with a codec keeps its own packed copies and
    mixes from them. ``lead_ins``: the pool also uses the bases behind lead-ins.
    """

    def __init__(self, codec: Codec, lead_ins: bool = False) -> None:
        self.codec, self.lead_ins = codec, lead_ins
        self._entries: dict[tuple[int, int], Stored] = {}
        self._arenas = Arenas(lambda: 1 << 62)  # they grow by a half at most

    def keep(self, anchor: Sample) -> None:
        """Pack the anchor's offsets that are not packed yet."""
        if self.codec.name == "none":
            return
        for agent, offset in anchor.offsets.items():
            if self.codec.name == "half" and offset.placeholder.keys.element_size() <= HALF.itemsize:
                continue
            if (anchor.number, agent) not in self._entries:
                self._entries[anchor.number, agent] = store(
                    offset, self.codec, agent, self._arenas, anchor.base.keys
                )

    def stored(self, anchor: Sample, agent: int) -> Stored | None:
        """The packed offsets of an anchor in an agent's context; None if the log's are used."""
        return self._entries.get((anchor.number, agent))

    def offset(self, anchor: Sample, agent: int) -> ContextOffset | PackedContextOffset:
        """The offsets to mix from."""
        entry = self.stored(anchor, agent)
        return entry.offsets if entry else anchor.offsets[agent]

    def bytes(self, anchor: Sample) -> int:
        """Base KV, descriptor and stored offsets. A base that only other methods use does not count."""
        offsets = sum(self.offset(anchor, agent).bytes for agent in anchor.offsets)
        lead_in = anchor.lead_in_base if self.lead_ins else None
        return anchor.base.bytes + (lead_in.bytes if lead_in else 0) + anchor.features.bytes + offsets

    @property
    def held_bytes(self) -> int:
        """Bytes of everything packed."""
        return sum(entry.offsets.bytes for entry in self._entries.values()) + self._arenas.slack_bytes

    def held_of(self, number: int) -> int:
        """Packed bytes of one anchor."""
        return sum(entry.offsets.bytes for (anchor, _), entry in self._entries.items() if anchor == number)

    def drop_all_but(self, numbers: set[int]) -> None:
        """Drop the offsets of all other anchors."""
        count = len(self._entries)
        self._entries = {key: item for key, item in self._entries.items() if key[0] in numbers}
        if len(self._entries) < count:
            self._arenas.trim()

    def copy(self) -> AnchorStore:
        """An independent copy. What both hold is shared."""
        twin = AnchorStore(self.codec, self.lead_ins)
        twin._entries, twin._arenas = dict(self._entries), self._arenas
        return twin
