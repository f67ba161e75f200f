"""Offsets and observations of random numbers, for tests of what keeps and packs them."""

from __future__ import annotations

import torch

from backend.cache.kv_cache import KVOffset, KVSegment
from backend.cache.samples import ContextOffset, Sample, SampleLog


def offset(tokens: int = 3, seed: int = 0, scale: float = 2.0) -> KVOffset:
    generator = torch.Generator().manual_seed(seed)
    shape = (2, 2, tokens, 4)
    return KVOffset(*(scale * torch.randn(shape, generator=generator) for _ in range(2)))


def made_sample(log: SampleLog, tokens: int, agents: int) -> Sample:
    zeros = torch.zeros(2, 2, tokens, 4)
    made = log.add(
        "q", tuple(range(tokens)), "text", KVSegment(zeros, zeros, 0, True, ""), torch.zeros(tokens, 8)
    )
    for agent in range(1, agents + 1):
        made.offsets[agent] = ContextOffset(offset(tokens, made.number), {"prefix 1": offset(2, agent)})
    return made
