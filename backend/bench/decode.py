"""``kvlab bench decode``: rows decoded together as one batch, beside one row alone.

Both sides in one run, through the engine's own decoding: one row of so many tokens, and sixteen of them,
whose caches differ in length by up to an eighth, each for the same number of steps. KV is drawn at random,
and no row stops early. Beside each time stands what its bytes need: every step reads the weights once, and
each row's cache.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from backend.bench.common import BenchRequest, check_reads, drawn_cache, medians, slope, timed
from backend.bench.roofline import copy_gb_s, least_ms, percent, weight_bytes
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.plan import Plan
from backend.model.load import LoadedModel
from backend.records.request import Decoding

ROWS = 16
STEPS = 16  # tokens that each row writes
FEWER = (1, 2, 4, 8)  # rows, where their number is varied


class Endless(Engine):
    """Rows write as long as they may: what is timed has a known length."""

    def stop_ids(self) -> set[int]:
        return set()


def rows_of(model: LoadedModel, tokens: int, rows: int) -> list[Prefill]:
    """Prefilled rows of up to ``tokens`` tokens, the longest first."""
    prefilled = []
    for row in range(rows):
        length = tokens - row * (tokens // 8) // max(1, rows)
        logits = torch.randn(model.info.vocabulary, device=model.device)
        actions = np.zeros((model.info.layers, length), dtype=np.uint8)
        prefilled.append(
            Prefill(drawn_cache(model, length), logits, actions, 0, True, Plan((), "dense", "drawn"))
        )
    return prefilled


@torch.inference_mode()
def bench_decode(request: BenchRequest) -> dict[str, Any]:
    """Measure; see the module's docstring. ``tokens`` are the longest row's; anchors play no part."""
    model, tokens, repeats = request.model(), request.tokens, request.repeats
    check_reads(model, tokens + STEPS)
    engine, decoding = Endless(model), Decoding(STEPS)
    rows = rows_of(model, tokens, ROWS)

    def act(count: int) -> Callable[[], object]:
        return lambda: engine.decode(rows[:count], decoding)

    times = timed({str(count): act(count) for count in (*FEWER, ROWS)}, repeats, model.device)
    ms, gb_s = medians(times), copy_gb_s(model.device, repeats)
    each = model.info.kv_bytes_per_token

    def least(count: int) -> float:
        cache_bytes = sum(row.cache.length + STEPS / 2 for row in rows[:count]) * each
        return least_ms(STEPS * (weight_bytes(model) + cache_bytes), gb_s)

    alone, batch = ms["1"], ms[str(ROWS)]
    bound = {"one_row": least(1), "batch": least(ROWS)}
    # Decoded one after the other, the rows would take ROWS times as long as one.
    throughput = times.ratios("1", str(ROWS), often=ROWS)
    return request.report(
        "decode",
        times,
        model.device,
        model.dtype,
        ("tokens",),
        rows=ROWS,
        steps=STEPS,
        one_row_ms=alone,
        batch_ms=batch,
        **throughput,
        one_row_tokens_per_s=round(1e3 * STEPS / alone, 1),
        batch_tokens_per_s=round(1e3 * STEPS * ROWS / batch, 1),
        copy_gb_s=gb_s,
        copy_ms=bound,
        roofline_percent={
            "one_row": percent(bound["one_row"], alone),
            "batch": percent(bound["batch"], batch),
        },
        slopes=[slope("rows", [*FEWER, ROWS], list(ms.values()))],
    )
