"""What a prefill computes, by torch's own count, and the dense that reuse is held against."""

from __future__ import annotations

import tiny
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from backend.bench.common import stronger_dense
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


def test_the_stronger_dense_is_the_same_model_in_bf16() -> None:
    model = tiny.model()
    before = [weight.clone() for weight in model.module.parameters()]
    found = stronger_dense(model)
    assert found is not None
    assert found.dtype == torch.bfloat16
    for was, own, narrow in zip(before, model.module.parameters(), found.module.parameters(), strict=True):
        assert torch.equal(was, own), "the model that reuses stays as it is"
        assert torch.equal(narrow, was.bfloat16())
    buffers = zip(model.module.buffers(), found.module.buffers(), strict=True)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in buffers), "positions are not rounded"
    ids = [5 + i % 20 for i in range(40)]
    logits = [Engine(each).prefill(ids)[1].float() for each in (model, found)]
    assert 0 < (logits[0] - logits[1]).norm() < 0.05 * logits[0].norm()
    assert stronger_dense(found) is None
