"""The last prompt token's forward as one CUDA graph.

If all tokens before it were copied, this token goes through the model alone: some fifteen small kernels a
layer, whose launches take longer than their work. A graph launches them at once. Its shapes and addresses are
fixed, so it is recorded for a capacity, a power of two: the assembled cache is copied into its buffers (which
costs far less than the launches), and a mask hides the places behind the token's own.

A recording is used only if its logits agree with the plain pass's on the same prompt. If they do not, or a
family's code cannot be recorded, the plain pass is used.
"""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from backend.cache.kv_cache import KVCache, as_argument
from backend.cache.memory_budget import free_bytes
from backend.model.hooks import masks_of
from backend.model.load import LoadedModel

LEAST = 512  # tokens of the smallest recording
MOST = 5  # recordings of a model; none is replaced, or mixed sizes would record without end
SHARE = 8  # a recording may take this part of the device's free memory: one in so many
WARM_UP = 3  # passes before recording, in which kernels choose algorithms and allocate
#: Largest difference of a recording's logits from the plain pass's, relative to their norm.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 5e-2}
_BY_MODEL: WeakKeyDictionary[Any, CudaGraphs] = WeakKeyDictionary()


class PlacedLayer(DynamicLayer):
    """A cache layer of fixed size. A tensor holds the place of the new token, so no shape changes."""

    def __init__(self, keys: Tensor, values: Tensor, place: Tensor) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.keys, self.values, self.place = keys, values, place

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        self.keys.index_copy_(2, self.place, key_states)
        self.values.index_copy_(2, self.place, value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return int(self.keys.shape[2]) - 1


class FixedPass:
    """One token's forward over up to ``capacity`` places, always in the same memory. It holds no reference to
    the model.

    Args:
        model: to forward with.
        capacity: places, including the token's own.
    """

    def __init__(self, model: LoadedModel, capacity: int) -> None:
        self.capacity = capacity
        info, device = model.info, model.device
        shape = (info.layers, 1, info.kv_heads, capacity, info.head_dim)
        # Zeros, since hidden places are multiplied by zero, which leaves NaN as NaN.
        self.keys, self.values = (torch.zeros(shape, dtype=model.dtype, device=device) for _ in range(2))
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.ids, self.position = (torch.zeros(1, 1, dtype=torch.long, device=device) for _ in range(2))
        self.masks: dict[str, Tensor] = {}
        layers = [PlacedLayer(k, v, self.place) for k, v in zip(self.keys, self.values, strict=True)]
        self.cache = Cache(layers=layers)
        self.graph: Any = None
        self.logits = torch.empty(0)

    @property
    def held(self) -> int:
        """Bytes of its buffers."""
        return 2 * self.keys.numel() * self.keys.element_size()

    def load(self, model: LoadedModel, ids: Tensor, cache: KVCache, position: Tensor) -> None:
        """Copy a prompt into the buffers.

        Args:
            model: the same as at construction.
            ids: (1, 1), the token.
            cache: of the places before it, a single row.
            position: (1,), its RoPE position.
        """
        length = cache.length
        self.keys[:, :, :, :length].copy_(cache.keys[:, :, :, :length])
        self.values[:, :, :, :length].copy_(cache.values[:, :, :, :length])
        self.ids.copy_(ids)
        self.position.copy_(position[None], non_blocking=True)
        self.place.fill_(length)
        # Like the plain pass, a window counts places; RoPE positions may have gaps.
        places = torch.arange(length + 1, device=cache.keys.device)
        visible = torch.ones(1, length + 1, dtype=torch.bool, device=places.device)
        masks = masks_of(model, visible, places, in_place=True)
        for kind, mask in (masks if isinstance(masks, dict) else {"": masks}).items():
            if kind not in self.masks:
                self.masks[kind] = mask.new_empty((1, 1, 1, self.capacity))
            self.masks[kind].fill_(torch.finfo(mask.dtype).min)
            self.masks[kind][..., : length + 1].copy_(mask)

    @torch.inference_mode()
    def forward(self, model: LoadedModel) -> Tensor:
        """The pass over the buffers, not recorded; logits (vocabulary,), fp32."""
        logits: Tensor = model.module(
            input_ids=self.ids,
            position_ids=self.position,
            attention_mask=self.masks.get("", self.masks),
            **as_argument(model.module, self.cache),
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[0, -1].float()

    def record(self, model: LoadedModel) -> None:
        """Record the pass over the loaded prompt."""
        current, side = torch.cuda.current_stream(), _side_stream(self.keys.device)
        side.wait_stream(current)
        # The outer context restores the stream also if recording fails.
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                self.forward(model)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                self.logits = self.forward(model)
        current.wait_stream(side)
        self.graph = graph

    def run(self, model: LoadedModel) -> Tensor:
        """The recorded pass over the loaded prompt, or the plain one; logits (vocabulary,), fp32."""
        if self.graph is None:
            return self.forward(model)
        self.graph.replay()
        return self.logits.clone()

    def give(self, cache: KVCache) -> None:
        """Append the token's K/V to the cache that was loaded."""
        at = cache.length
        cache.keys[:, :, :, at] = self.keys[:, :, :, at]
        cache.values[:, :, :, at] = self.values[:, :, :, at]
        cache.length = at + 1


class CudaGraphs:
    """A model's recordings by capacity.

    For the memory budget they are a :class:`backend.cache.memory_budget.Holder` that never runs.
    """

    def __init__(self) -> None:
        self.off = False  # recording failed or was given up
        self.runs, self.used = 0, time.monotonic()
        self._by_capacity: dict[int, FixedPass] = {}
        self._guard = threading.Lock()

    @staticmethod
    def on(model: LoadedModel) -> CudaGraphs:
        """The recordings of a loaded model."""
        return _BY_MODEL.setdefault(model.module, CudaGraphs())

    @property
    def held(self) -> int:
        """Bytes."""
        with self._guard:
            return sum(recording.held for recording in self._by_capacity.values())

    def forget(self) -> None:
        """Drop all and record no more: without room, recordings would be made anew for every run."""
        with self._guard:
            self.off = True
            self._by_capacity.clear()

    def run(self, model: LoadedModel, ids: Tensor, cache: KVCache, position: Tensor) -> Tensor | None:
        """Forward a token and append it to its cache (see :meth:`FixedPass.load`); logits (vocabulary,),
        fp32. Returns None and does nothing if there is no recording for this size."""
        with self._guard:
            recording = self._by_capacity.get(capacity_for(cache.length + 1))
            if recording is None:
                return None
            self.used = time.monotonic()
            recording.load(model, ids, cache, position)
            logits = recording.run(model)
            recording.give(cache)
            return logits

    def learn(
        self, model: LoadedModel, ids: Tensor, cache: KVCache, position: Tensor, plain: Tensor
    ) -> Tensor:
        """Record a pass that was just computed plainly, if there is room and no recording of its size.

        Args:
            model: of the pass.
            ids: (1, 1), the token.
            cache: with the token; its K/V are replaced by the recording's, as later prompts will have them.
            position: (1,), the token's.
            plain: (vocabulary,), the plain pass's logits.

        Returns:
            the recording's logits; ``plain`` if nothing was recorded.
        """
        capacity, length = capacity_for(cache.length), cache.length
        with self._guard:
            is_full = len(self._by_capacity) >= MOST
            if self.off or is_full or capacity in self._by_capacity or not has_room(model, capacity):
                return plain
            try:
                recording = FixedPass(model, capacity)
                cache.length = length - 1
                recording.load(model, ids, cache, position)
                recording.record(model)
                logits = recording.run(model)
                self.off = not agree(logits, plain, model.dtype)
            except Exception:  # the forward cannot be recorded, or memory ran out
                self.off = True
            finally:
                cache.length = length
            if self.off:
                self._by_capacity.clear()
                return plain
            cache.length = length - 1
            recording.give(cache)
            self._by_capacity[capacity] = recording
            return logits


def capacity_for(tokens: int) -> int:
    """The smallest power of two for ``tokens`` places, at least :data:`LEAST`."""
    return int(max(LEAST, 1 << (tokens - 1).bit_length()))


@cache
def _side_stream(device: torch.device) -> Any:
    """One stream per device for all recordings, since each stream has its own workspace."""
    return torch.cuda.Stream(device)


def has_room(model: LoadedModel, capacity: int) -> bool:
    """Whether the device has room for a recording's buffers."""
    free = free_bytes(model.device)
    return free is not None and capacity * model.info.kv_bytes_per_token * SHARE <= free


def agree(logits: Tensor, plain: Tensor, dtype: torch.dtype) -> bool:
    """Whether logits agree to the rounding of a dtype; waits for the device."""
    return bool((logits - plain).norm() <= TOLERANCE[dtype] * plain.norm())


def recordable(model: LoadedModel, cache: KVCache) -> bool:
    """Whether this is a single row with plain attention, and the model on one CUDA device."""
    single = cache.keys.shape[1] == 1 and not any(cache.tempers)
    devices = set((getattr(model.module, "hf_device_map", None) or {"": 0}).values())
    return model.device.type == "cuda" and single and len(devices) == 1
