"""``kvlab bench match``: the weights of a text's tokens over a full pool.

Two sides in one run: all anchors in one pass over their embeddings, as the pools do, and anchor by anchor.
Bytes are those of the embeddings: the KV that the anchors hold is not read, which the last slope shows.
"""

from collections.abc import Callable
from typing import Any

import torch

from backend.bench.common import BenchRequest, CacheShape, medians, slope_of, steps_to, timed
from backend.bench.roofline import copy_gb_s, least_ms, percent
from backend.cache.kernels import triton_on
from backend.cache.kernels.distances import descriptor_dtype
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import Sample, SampleLog
from backend.methods.kvcomm.pool import AnchorPool, PoolRules
from backend.methods.kvcomm.weights import squared_distances, weigh

READER = 1
KV_CHANNELS = (2, 16, 64)  # of one head in one layer: how much KV the anchors hold, where that is varied


def _pool(shape: CacheShape, tokens: int, anchors: int, channels: int) -> tuple[Sample, list[Sample]]:
    """A sample and anchors with KV of one head of so many channels."""
    log = SampleLog("bench", 1 << 62)
    kv = torch.zeros(1, 1, tokens, channels, dtype=shape.dtype, device=shape.device)
    base = KVSegment(kv, kv, 0, True, "nothing")
    samples = []
    dtype = descriptor_dtype(shape.dtype, shape.device)
    for _ in range(anchors + 1):
        described = torch.randn(tokens, shape.hidden, device=shape.device).to(dtype)
        samples.append(log.add("text", tuple(range(tokens)), "", base, described))
        samples[-1].add_offsets(READER, {"text": (base, base)}, {"text": 0})
    return samples[0], samples[1:]


def _matching(sample: Sample, anchors: list[Sample]) -> Callable[[], object]:
    rules = PoolRules(capacity=len(anchors))
    log = SampleLog("index", 1 << 62)
    log.samples.update((a.number, a) for a in anchors)
    uses = dict.fromkeys(log.samples, 0)

    def act() -> object:
        # A new pool each time, for a pool remembers what it has measured of a sample.
        return AnchorPool("text", rules, dict(uses)).match(sample, READER, None, log)

    return act


@torch.inference_mode()
def bench_match(request: BenchRequest) -> dict[str, Any]:
    """Measure; see the module's docstring. Of the shape only the embeddings' width counts; all anchors
    have as many tokens as the text. On a CPU descriptors are fp32 in any case."""
    kind, tokens, anchors, repeats = request.cache_shape(), request.tokens, request.anchors, request.repeats
    sample, pool = _pool(kind, tokens, anchors, KV_CHANNELS[0])
    weighing = PoolRules().weighing

    def one_by_one() -> object:
        scores = torch.stack([squared_distances(sample.descriptor, a.descriptor) for a in pool])
        return weigh(sample, pool, scores, weighing)

    gb_s = copy_gb_s(kind.device, repeats)
    times = timed({"match": _matching(sample, pool), "one_by_one": one_by_one}, repeats, kind.device)
    ms = medians(times)
    read = (anchors + 1) * sample.features.bytes

    short = max(8, tokens // 4)
    pools = [_pool(kind, short, anchors, channels) for channels in KV_CHANNELS]
    varied = {
        "anchors in the pool": [(n, _matching(sample, pool[:n])) for n in steps_to(anchors, 1)],
        "bytes of KV that an anchor holds": [(a[0].offsets[READER].bytes, _matching(s, a)) for s, a in pools],
    }
    return request.report(
        "match",
        times,
        kind.device,
        sample.features.tensor.dtype,
        kernel="triton" if triton_on(kind.device) else "torch",
        match_ms=ms["match"],
        one_by_one_ms=ms["one_by_one"],
        **times.ratios("one_by_one", "match"),
        bytes=read,
        operations=3 * anchors * tokens * kind.hidden,  # a difference, its square and the sum
        copy_gb_s=gb_s,
        copy_ms=least_ms(read, gb_s),
        roofline_percent={name: percent(least_ms(read, gb_s), value) for name, value in ms.items()},
        slopes=[slope_of(over, sides, repeats, kind.device) for over, sides in varied.items()],
    )
