"""What a prefill computes, by torch's own count, and the dense that reuse is held against."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import tiny
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from backend.bench.attention import run_least_ms
from backend.bench.common import stronger_dense
from backend.bench.reading import Reading
from backend.bench.roofline import Rates, beyond, least_ms, percent, prefill_operations, weight_bytes
from backend.engine.engine import Engine
from backend.methods.kvcomm.options import KVCommOptions
from backend.records.run import RunRecord


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


def test_a_text_encoded_for_its_cache_asks_no_logits() -> None:
    model = tiny.model()
    head = 2 * model.module.get_output_embeddings().weight.numel()
    assert prefill_operations(model, 30) - prefill_operations(model, 30, logits=False) == head


def test_reuse_needs_its_bytes_and_dense_its_operations() -> None:
    model = tiny.model()
    half = {"half": KVCommOptions(capacity=3, gamma=1.0, codec="half")}
    reading = Reading(model, 2, (8, 4, 4), {"user_question": 16, "agent_1_current": 12}, 3, half)
    token, weights = model.info.kv_bytes_per_token, weight_bytes(model)
    corrected, whole = 4 + 4 + 16 + 12, 44
    assert reading.least_bytes("reuse") == weights + token * (3 * corrected + 2 * whole)
    assert reading.least_bytes("two_heaviest") == weights + token * (2 * corrected + 2 * whole)
    assert reading.least_bytes("half") == weights + token * (1.5 * corrected + 2 * whole), "fp16 beside fp32"
    found = reading.least_ms(Rates(0.5, {"dense": 0.25, "dense_bf16": 0.75}))
    assert found["reuse"] == least_ms(reading.least_bytes("reuse"), 0.5)
    assert found["dense"] == least_ms(prefill_operations(model, whole), 0.25)
    assert found["dense_bf16"] == pytest.approx(found["dense"] / 3, rel=1e-3)
    assert set(found) == {"reuse", "two_heaviest", "half", "dense", "dense_bf16"}


def test_a_run_needs_what_it_reads_afresh_and_the_weights_for_every_token() -> None:
    """Methods that write together read the weights once a token; the first one comes with the prompt."""
    model = tiny.model()

    def outcome(prompt: int, forwarded: int, written: int) -> SimpleNamespace:
        timing = SimpleNamespace(forwarded_tokens=forwarded)
        return SimpleNamespace(prompt=prompt, timing=timing, token_ids=range(written))

    prompts = [SimpleNamespace(token_ids=range(size)) for size in (40, 30)]
    outcomes = [outcome(0, 40, 5), outcome(0, 1, 3), outcome(1, 35, 1)]  # the last read itself twice
    record = cast(RunRecord, SimpleNamespace(prompts=prompts, outcomes=outcomes))
    operations = sum(prefill_operations(model, *asked) for asked in ((40, 40), (40, 1), (30, 30)))
    least = run_least_ms(model, record, Rates(0.5, {"run": 0.25}))
    assert least == pytest.approx(
        least_ms(operations, 0.25) + least_ms(4 * weight_bytes(model), 0.5), abs=2e-4
    )


def test_least_times() -> None:
    assert least_ms(3e9, 1.5) == 2000, "3e9 bytes at 1.5e9 a second"
    assert percent(5, 20) == 25


def test_more_than_the_hardware_allows_is_an_error() -> None:
    assert beyond({"dense": 100.0, "reuse": 43.2}) == ""
    told = beyond({"dense": 60.6, "reuse": 946.0})
    assert "reuse 946%" in told
    assert "dense" not in told


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
