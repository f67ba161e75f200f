"""``kvlab bench memory``: bytes that a cache, a batch and a pool should take, beside those that they take.

Predicted from shapes alone: keys and values of every token in all layers, and for a pool the offsets of each
anchor's own tokens and of the prefix segment behind it, with the embeddings that texts are compared by.
Measured by torch's own account of the device, for what is still held when the work is done, so that a hidden
copy or room taken in advance shows.
"""

import gc
from collections.abc import Callable, Mapping
from typing import Any

import torch

from backend.base.errors import OptionError
from backend.bench.common import (
    BenchRequest,
    check_reads,
    drawn_cache,
    medians,
    random_segment,
    synchronise,
    timed,
)
from backend.bench.roofline import copy_gb_s, least_ms, percent
from backend.cache.kv_cache import KVCache
from backend.cache.samples import SampleLog
from backend.engine.engine import Engine
from backend.model.load import LoadedModel

#: Llama 3's sizes (the config.json of each), for what they need before they are loaded.
FAMILY: dict[str, dict[str, int]] = {
    name: {
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": 8, "vocab_size": 128256, "tied": tied,
    }
    for name, hidden, inner, layers, heads, tied in (
        ("1B", 2048, 8192, 16, 32, 1), ("3B", 3072, 8192, 28, 24, 1), ("8B", 4096, 14336, 32, 32, 0),
        ("70B", 8192, 28672, 80, 64, 0),
    )
}  # fmt: skip
READER = 1
ROWS = 4


def held_bytes(make: Callable[[], object], device: torch.device) -> tuple[int, object]:
    """Bytes that torch has given out and not taken back while ``make`` ran, and what it made."""
    gc.collect()
    synchronise(device)
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        made = make()
        synchronise(device)
        gc.collect()
        return torch.cuda.memory_allocated(device) - before, made
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        made = make()
        gc.collect()
    return sum(row.self_cpu_memory_usage for row in record.key_averages()), made


def needed(shape: Mapping[str, int], tokens: int, anchors: int) -> tuple[int, int, int]:
    """Bytes of a Llama's weights in bf16, of the cache of a prompt, and of a full pool, from its shape alone.

    Args:
        shape: one of :data:`FAMILY`.
        tokens: of the prompt, and of each anchor with the prefix segment behind it.
        anchors: in the pool.
    """
    hidden, inner, layers = (shape[n] for n in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    kv = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner + 2 * hidden
    weights = layers * layer + hidden + (2 - shape["tied"]) * shape["vocab_size"] * hidden
    each = 2 * 2 * layers * kv  # keys and values, two bytes each
    return 2 * weights, tokens * each, pool_bytes(tokens, anchors, each, 2 * hidden)


def pool_bytes(tokens: int, anchors: int, each: int, described: int) -> int:
    """Bytes of a full pool; ``each``: of a token's keys and values, ``described``: of its embedding. The base
    of one text is shared by all anchors here, so it counts once."""
    own, _ = _parts(tokens)
    return anchors * (tokens * each + own * described) + own * each


def pool(model: LoadedModel, tokens: int, anchors: int) -> SampleLog:
    """A full pool of one placeholder: texts of three quarters of the tokens, and a prefix segment behind
    them."""
    own, behind = _parts(tokens)
    room, base = random_segment(model, tokens), random_segment(model, own)
    log = SampleLog("bench", 1 << 62)
    for _ in range(anchors):
        ids = tuple(range(own))
        sample = log.add("text", ids, "", base, model.embed(tuple(i % 5 for i in ids)))
        follower = room.slice(own, tokens), room.slice(0, behind)
        sample.add_offsets(
            READER, {"text": (room.slice(0, own), base), "prefix": follower}, {"text": 0, "prefix": own}
        )
    log.arenas.trim()
    return log


def _parts(tokens: int) -> tuple[int, int]:
    own = tokens * 3 // 4
    return own, tokens - own


@torch.inference_mode()
def bench_memory(request: BenchRequest) -> dict[str, Any]:
    """Measure; see the module's docstring. ``tokens`` are the cache's, and each anchor's with the prefix
    segment behind it.

    Raises:
        OptionError: the device keeps no account.
    """
    model, tokens, anchors, repeats = request.model(), request.tokens, request.anchors, request.repeats
    check_reads(model, tokens)
    if model.device.type == "mps":
        raise OptionError(
            "The device 'mps' keeps no account of its memory; allowed are cpu and cuda. Choose one of them.",
            field="bench.device",
        )
    engine = Engine(model)
    ids = [5 + i % 50 for i in range(tokens)]
    each = model.info.kv_bytes_per_token
    described = model.embed((0,))
    row = drawn_cache(model, tokens)
    sides: dict[str, tuple[int, Callable[[], object]]] = {
        "cache": (tokens * each, lambda: engine.prefill(ids)),
        "batch": (ROWS * 2 * tokens * each, lambda: KVCache.batch([row] * ROWS, tokens)),
        "pool": (
            pool_bytes(tokens, anchors, each, described.numel() * described.element_size()),
            lambda: pool(model, tokens, anchors),
        ),
    }
    measured: dict[str, int] = {}
    for name, (_, make) in sides.items():
        make()  # the first call also makes what is made only once
        measured[name], made = held_bytes(make, model.device)
        del made
    times = timed({name: make for name, (_, make) in sides.items()}, repeats, model.device)
    ms, gb_s = medians(times), copy_gb_s(model.device, repeats)
    bound = {name: least_ms(size, gb_s) for name, (size, _) in sides.items()}
    return request.report(
        "memory",
        times,
        model.device,
        model.dtype,
        rows=ROWS,
        bytes_per_token=each,
        predicted_bytes={name: size for name, (size, _) in sides.items()},
        measured_bytes=measured,
        ratio={name: round(measured[name] / size, 4) for name, (size, _) in sides.items()},
        ms=ms,
        copy_gb_s=gb_s,
        copy_ms=bound,
        roofline_percent={name: percent(bound[name], ms[name]) for name in sides},
    )
