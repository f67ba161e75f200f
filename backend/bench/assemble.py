"""``kvlab bench assemble``: a corrected span into the cache, beside the time that its bytes need.

Three sides in one run: one pass from the arena (:mod:`backend.cache.kernels.mix_and_rotate`); the engine's
general path, which mixes separate offsets layer by layer and then rotates; and a plain copy of as many bytes
as the pass must move at least, (2A + 4)u for A anchors and u bytes of keys. KV is drawn at random: the time
does not depend on it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from backend.bench.common import BenchRequest, CacheShape, medians, slope_of, steps_to, timed
from backend.bench.roofline import copy_gb_s, least_ms, percent
from backend.cache.kernels import triton_on
from backend.cache.kernels.mix_and_rotate import mix_and_rotate
from backend.cache.kernels.mixture import Mixture
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import Sample, SampleLog
from backend.engine.placement import mix

READER = 1
FEW = 2  # anchors mixed where the pool's size is varied


class Pool:
    """A full pool of one placeholder's anchors, and a place to assemble."""

    def __init__(self, shape: CacheShape, tokens: int, anchors: int) -> None:
        self.shape, self.tokens = shape, tokens
        self.log = SampleLog("bench", 1 << 62)
        self.base, self.keys, self.values = self._segment(), self._draw(), self._draw()
        self.anchors = [self._anchor() for _ in range(anchors)]
        self.positions = torch.arange(100, 100 + tokens, device=shape.device)

    def _draw(self) -> Tensor:
        s = self.shape
        return torch.randn(s.layers, s.kv_heads, self.tokens, s.head_dim, dtype=s.dtype, device=s.device)

    def _segment(self) -> KVSegment:
        return KVSegment(self._draw(), self._draw(), 0, True, "drawn")

    def _anchor(self) -> Sample:
        described = torch.zeros(self.tokens, 1, device=self.shape.device)
        sample = self.log.add("text", tuple(range(self.tokens)), "", self.base, described)
        sample.add_offsets(READER, {"text": (self._segment(), self.base)}, {"text": 0})
        return sample

    def pass_over(self, tokens: int, mixed: int) -> Callable[[], None]:
        """One pass: ``mixed`` of the anchors, evenly chosen, over the first ``tokens``."""
        chosen = self.anchors[:: max(1, len(self.anchors) // mixed)][:mixed]
        offsets = [anchor.offsets[READER].placeholder for anchor in chosen]
        weights = torch.full((mixed, tokens), 1 / mixed, device=self.shape.device)

        def act() -> None:
            arena = chosen[0].offsets[READER].placeholder.rows.arena  # type: ignore[union-attr]
            starts = tuple(offset.first_row for offset in offsets)  # type: ignore[union-attr]
            keys, values = self.keys[:, :, :tokens], self.values[:, :, :tokens]
            mixture = Mixture(arena, starts, weights)
            mix_and_rotate(self.base, mixture, self.positions[:tokens], self.shape.rotation, keys, values)

        return act


@torch.inference_mode()
def bench_assemble(request: BenchRequest) -> dict[str, Any]:
    """Measure; see the module's docstring. Of the shape only the cache's counts; all anchors are mixed,
    over a span of so many tokens."""
    kind, tokens, anchors, repeats = request.cache_shape(), request.tokens, request.anchors, request.repeats
    pool = Pool(kind, tokens, anchors)
    separate = [pool._segment() for _ in range(anchors)]
    weights = [torch.full((tokens,), 1 / anchors, device=kind.device)] * anchors

    def layer_by_layer() -> None:
        keys = pool.base.keys.clone()
        pool.values.copy_(pool.base.values)
        mix(keys, [s.keys for s in separate], weights)
        mix(pool.values, [s.values for s in separate], weights)
        kind.rotation.rotate(keys, pool.positions, pool.keys)

    gb_s = copy_gb_s(kind.device, repeats)
    sides = {"one_pass": pool.pass_over(tokens, anchors), "layer_by_layer": layer_by_layer}
    times = timed(sides, repeats, kind.device)
    ms = medians(times)
    least = least_ms((anchors + 2) * tokens * kind.token_bytes, gb_s)
    separate.clear()

    varied = {
        "tokens": [(t, pool.pass_over(t, anchors)) for t in steps_to(tokens, 8)],
        "anchors mixed": [(a, pool.pass_over(tokens, a)) for a in steps_to(anchors, 1)],
    }
    slopes = [slope_of(over, sides, repeats, kind.device) for over, sides in varied.items()]
    sizes = [size for size in steps_to(anchors, FEW) if size <= anchors]
    if len(sizes) > 1:
        short = max(8, tokens // 4)
        pools = [(size, Pool(kind, short, size)) for size in sizes]
        sides_by_size = [(n, pool_of_size.pass_over(short, FEW)) for n, pool_of_size in pools]
        slopes.append(slope_of("anchors in the pool", sides_by_size, repeats, kind.device))
    return request.report(
        "assemble",
        times,
        kind.device,
        kind.dtype,
        kernel="triton" if triton_on(kind.device) else "torch",
        one_pass_ms=ms["one_pass"],
        layer_by_layer_ms=ms["layer_by_layer"],
        **times.ratios("layer_by_layer", "one_pass"),
        bytes=(anchors + 2) * tokens * kind.token_bytes,
        # Each offset weighted and added; the base added to their sum; keys, half of it, turned with three.
        operations=round((2 * anchors + 1 + 1.5) * tokens * kind.token_bytes / kind.dtype.itemsize),
        copy_gb_s=gb_s,
        copy_ms=least,
        roofline_percent={name: percent(least, value) for name, value in ms.items()},
        slopes=slopes,
    )
