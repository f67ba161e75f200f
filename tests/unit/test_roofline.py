"""What a prefill computes, by torch's own count."""

from __future__ import annotations

import tiny
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from backend.bench.roofline import least_ms, percent, prefill_operations
from backend.engine import Engine


def test_operations_are_torchs_own_count() -> None:
    """Torch counts every pair of tokens in attention; a causal prefill needs those that see each other."""
    model, tokens = tiny.model(), 40
    info = model.info
    counter = FlopCounterMode(display=False)
    with counter, torch.inference_mode(), sdpa_kernel(SDPBackend.MATH):  # a fused one is not counted
        Engine(model).prefill([5 + i % 20 for i in range(tokens)])
    a_pair = 4 * info.layers * info.heads * info.head_dim
    seen = tokens * (tokens + 1) // 2
    assert counter.get_total_flops() == prefill_operations(model, tokens) + a_pair * (tokens**2 - seen)


def test_a_prompt_is_the_sum_of_its_parts() -> None:
    """But for the head, which each part asks once."""
    model = tiny.model()
    head = 2 * model.module.get_output_embeddings().weight.numel()
    parts = prefill_operations(model, 30, 30) + prefill_operations(model, 50, 20)
    assert parts == prefill_operations(model, 50) + head


def test_least_times() -> None:
    assert least_ms(3e9, 1.5) == 2000, "3e9 bytes at 1.5e9 a second"
    assert percent(5, 20) == 25
