"""What the benchmarks share: models of known shapes, fair timing, fitted slopes."""

import copy
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from backend.base.errors import BudgetError, OptionError
from backend.base.machine import processor, versions
from backend.cache.kv_cache import KVCache, KVSegment
from backend.cache.rope import LayerRotation, Rotation
from backend.model.load import DTYPES, LoadedModel, load_model, pick_device, wrap_model
from backend.records.hardware import SHAPES

WARM_UP = 2  # turns that do not count


class NoText:
    """A stand-in tokenizer for random-weight models: the benchmark works on ids alone."""

    bos_token_id = 1
    eos_token_id = 2
    chat_template = None

    def __call__(self, text: str, **options: object) -> dict[str, list[int]]:
        """No text has tokens."""
        return {"input_ids": []}


def _dtype(name: str | None, device: str) -> torch.dtype:
    return DTYPES[name or ("bf16" if device == "cuda" else "fp32")]


def random_model(shape: str, device: str | None, dtype: str | None = None) -> LoadedModel:
    """A randomly initialised model of a known shape: its times are those of the real one."""
    from transformers import LlamaConfig, LlamaForCausalLM

    if shape not in SHAPES:
        raise OptionError(
            f"The shape {shape!r} is unknown; there are: {', '.join(SHAPES)}.", field="bench.shape"
        )
    sizes, where = SHAPES[shape], pick_device(device)
    torch.manual_seed(0)
    kind = _dtype(dtype, where)
    config = LlamaConfig(**sizes, tie_word_embeddings=shape != "llama-8b", attn_implementation="sdpa")
    with torch.device(where):
        module = LlamaForCausalLM(config).to(kind).eval()
    return wrap_model(module, NoText(), name=f"random {shape}")


def model_of(
    shape: str,
    device: str | None,
    dtype: str | None = None,
    *,
    device_map: str | None = None,
    quantise: str | None = None,
) -> LoadedModel:
    """A known shape with random weights, or a model by its name or folder; see
    :func:`backend.model.load.load_model`.

    Raises:
        OptionError: random weights are to be spread or rounded.
        ModelError: the model cannot be loaded.
    """
    if shape not in SHAPES:
        return load_model(shape, device=device, dtype=dtype, device_map=device_map, quantise=quantise)
    for flag, value in (("--device-map", device_map), ("--quantise", quantise)):
        if value is not None:
            raise OptionError(
                f"{flag} is {value!r}, but {shape} is a shape with random weights, made on one device. "
                f"Leave {flag} out, or name a model with --model.",
                field="bench.shape",
            )
    return random_model(shape, device, dtype)


def stronger_dense(model: LoadedModel) -> LoadedModel | None:
    """The same weights in bf16, in which many CPUs read a long prompt sooner; None where they are in half
    precision already, or on a GPU. Buffers, such as the rotation's tables, stay."""
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return None
    module = copy.deepcopy(model.module)
    for weight in module.parameters():
        weight.data = weight.data.to(torch.bfloat16)
    return replace(model, module=module, info=replace(model.info, dtype="bf16"))


def drawn_cache(model: LoadedModel, tokens: int, rows: int = 1) -> KVCache:
    """A cache full of random numbers: what a time does not depend on need not be computed."""
    cache = model.new_cache(tokens, rows)
    cache.keys.normal_()
    cache.values.normal_()
    cache.length = tokens
    return cache


def random_segment(model: LoadedModel, tokens: int) -> KVSegment:
    """A segment full of random numbers."""
    cache = drawn_cache(model, tokens)
    return KVSegment(cache.keys[:, 0], cache.values[:, 0], 0, True, "drawn")


@dataclass(frozen=True)
class CacheShape:
    """What a model's cache looks like; enough where no weights are needed."""

    layers: int
    kv_heads: int
    head_dim: int
    hidden: int
    rotation: Rotation
    dtype: torch.dtype
    device: torch.device

    @property
    def token_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.dtype.itemsize


def cache_shape(shape: str, device: str | None, dtype: str | None = None) -> CacheShape:
    """The cache of a known shape, or of a model by its name or folder."""
    if shape not in SHAPES:
        model = load_model(shape, device=device, dtype=dtype)
        info, hidden = model.info, model.module.get_input_embeddings().weight.shape[1]
        return CacheShape(
            info.layers,
            info.kv_heads,
            info.head_dim,
            hidden,
            model.rotation,
            DTYPES[info.dtype],
            model.device,
        )
    sizes, where = SHAPES[shape], torch.device(pick_device(device))
    dim = sizes["hidden_size"] // sizes["num_attention_heads"]
    turning = LayerRotation(10_000.0 ** (-torch.arange(0, dim, 2, device=where) / dim))
    layers, heads = sizes["num_hidden_layers"], sizes["num_key_value_heads"]
    kind = _dtype(dtype, where.type)
    return CacheShape(layers, heads, dim, sizes["hidden_size"], Rotation((turning,) * layers), kind, where)


def check_reads(model: LoadedModel, tokens: int) -> None:
    """
    Raises:
        BudgetError: the model cannot read so many tokens.
    """
    limit = model.info.context_tokens
    if tokens > limit:
        raise BudgetError(
            f"{model.info.name} can read {limit:,} tokens; {tokens:,} would be read and written here. Lower "
            "--tokens.",
            field="bench.tokens",
        )


def synchronise(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


class Times(dict[str, list[float]]):
    """Milliseconds of every side, one for each turn.

    ``processor``: the same in this process's processor time, over all threads. On a CPU that others use too
    it says what wall-clock time cannot; a device's work is not in it.
    """

    def __init__(self, sides: Iterable[str]) -> None:
        super().__init__({name: [] for name in sides})
        self.processor: dict[str, list[float]] = {name: [] for name in self}

    def ratios(self, slow: str, fast: str, name: str = "ratio", often: int = 1) -> dict[str, float]:
        """How many times as long the slow side takes, done ``often``, by the medians."""
        by_name: dict[str, dict[str, list[float]]] = {name: self}
        if any(any(values) for values in self.processor.values()):
            by_name[f"processor_{name}"] = self.processor
        return {
            key: round(often * statistics.median(times[slow]) / statistics.median(times[fast]), 2)
            for key, times in by_name.items()
        }


def timed(sides: Mapping[str, Callable[[], object]], repeats: int, device: torch.device) -> Times:
    """Times of every side, turn by turn, so that what else the machine does falls on all alike."""
    times = Times(sides)
    for turn in range(repeats + WARM_UP):
        for name, act in sides.items():
            synchronise(device)
            began, busy = time.perf_counter(), time.process_time()
            act()
            synchronise(device)
            if turn >= WARM_UP:
                times[name].append((time.perf_counter() - began) * 1e3)
                if device.type == "cpu":
                    times.processor[name].append((time.process_time() - busy) * 1e3)
    return times


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: round(statistics.median(values), 4) for name, values in times.items()}


def spreads(times: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    return {name: [round(min(values), 4), round(max(values), 4)] for name, values in times.items()}


def slope(over: str, sizes: Sequence[int], times: Sequence[float]) -> dict[str, Any]:
    """A line through the times: milliseconds for each unit of size, milliseconds at size 0, and R squared."""
    per_one, at_nothing = np.polyfit(sizes, times, 1)
    residuals = np.asarray(times) - (per_one * np.asarray(sizes) + at_nothing)
    whole = float(np.var(times))
    return {
        "over": over,
        "sizes": list(sizes),
        "ms": [round(t, 4) for t in times],
        "ms_each": round(float(per_one), 6),
        "ms_at_0": round(float(at_nothing), 4),
        "r2": round(1 - float(np.var(residuals)) / whole, 4) if whole else 1.0,
    }


def slope_of(
    over: str, sides: Sequence[tuple[int, Callable[[], object]]], repeats: int, device: torch.device
) -> dict[str, Any]:
    """The :func:`slope` of what takes so many of something, timed side by side."""
    times = medians(timed({str(size): act for size, act in sides}, repeats, device))
    return slope(over, [size for size, _ in sides], list(times.values()))


def steps_to(most: int, least: int) -> list[int]:
    """A quarter, a half, three quarters and all of it; what is under ``least`` is left out."""
    return sorted({max(least, most * part // 4) for part in (1, 2, 3, 4)})


def conditions(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Where and with what it was measured."""
    return {
        "hardware": torch.cuda.get_device_name() if device.type == "cuda" else processor(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "dtype": next(name for name, kind in DTYPES.items() if kind == dtype),
        "versions": versions(),
    }


@dataclass(frozen=True)
class BenchRequest:
    """A benchmark's sizes; ``device`` and ``dtype`` as for :func:`backend.model.load.load_model`.

    Args:
        shape: ``smollm2-135m``, ``llama-8b`` (random weights), or a model's name or folder.
        tokens: of the prompt or text that is measured.
        anchors: in each pool.
        repeats: timed repetitions of each side.

    Raises:
        OptionError: a size is out of range.
    """

    shape: str
    tokens: int
    anchors: int
    repeats: int
    device: str | None = None
    dtype: str | None = None

    def __post_init__(self) -> None:
        if not 32 <= self.tokens <= 8000 or not 1 <= self.anchors <= 64 or not 1 <= self.repeats <= 1000:
            raise OptionError(
                f"tokens {self.tokens}, anchors {self.anchors}, repeats {self.repeats}: allowed are 32 to "
                "8000, 1 to 64 and 1 to 1000.",
                field="bench",
            )

    def model(self) -> LoadedModel:
        """The model of this shape."""
        return model_of(self.shape, self.device, self.dtype)

    def cache_shape(self) -> CacheShape:
        """What its cache looks like, without its weights where they are random."""
        return cache_shape(self.shape, self.device, self.dtype)

    def report(
        self,
        bench: str,
        times: Times,
        device: torch.device,
        dtype: torch.dtype,
        sizes: Sequence[str] = ("tokens", "anchors"),
        /,
        **figures: Any,
    ) -> dict[str, Any]:
        """A benchmark's report: the request (of its sizes only ``sizes``), the figures and the conditions."""
        settings = {name: getattr(self, name) for name in ("shape", *sizes, "repeats")}
        return {"bench": bench, **settings, **figures, "spread": spreads(times), **conditions(device, dtype)}
