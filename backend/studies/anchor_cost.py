"""What anchors cost on this model and machine: bytes, matching, mixing, moving (KVCOMM, Fig. A.1, Tables A.5,
A.6).

The tensors are drawn at random in the model's own shapes, number format and device: neither bytes nor times
depend on what stands in them. What runs is the lab's own code. The paper's softmax works on whole KV; here
both ways are timed: by token embeddings (the published equations) and by whole KV (as shipped).
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.base.errors import BudgetError, OptionError
from backend.cache.kernels.mix_and_rotate import mix_and_rotate
from backend.cache.kernels.mixture import Mixture
from backend.cache.kv_cache import KVSegment
from backend.cache.row_arena import ArenaOffset
from backend.cache.samples import Sample, SampleLog
from backend.methods.kvcomm.pool import AnchorPool, PoolRules
from backend.methods.kvcomm.weights import Weighing
from backend.model.load import LoadedModel
from backend.records.anchor_cost import COST_LIMITS, AnchorCost, AnchorCostRequest
from backend.records.events import Progress
from backend.session.study import study

REPEATS = 3
HELD_ANCHORS = 2  # of each length beside the pool: the sample, and a mix's result
EMBEDDINGS = Weighing()
WHOLE_KV = Weighing(compared="kv", norm="frobenius", per="separate")


@study(AnchorCostRequest)
def anchor_cost(
    model: LoadedModel, request: AnchorCostRequest, budget_bytes: int, clock: Clock
) -> Iterator[Progress | AnchorCost]:
    """Measure; yields progress and, last, the record.

    Args:
        model: gives shapes, number format and device.
        request: how many anchors, how long, read by how many agents.
        budget_bytes: the largest pool allowed.
        clock: waits for the device before and after what it times.

    Raises:
        OptionError: a number is out of range.
        BudgetError: the largest pool would not fit.
    """
    began = time.perf_counter()
    _check(model, request, budget_bytes)
    shape = (len(request.anchors), len(request.lengths))
    times: dict[str, Any] = {
        name: np.full(shape, np.nan) for name in ("match_ms", "match_kv_ms", "mix_ms", "move_ms")
    }
    pool_bytes = np.zeros(shape, dtype=np.int64)
    steps = shape[0] * shape[1]
    for column, tokens in enumerate(request.lengths):
        log = SampleLog("cost", budget_bytes)
        sample = _draw(model, log, tokens, 0)
        for row, count in enumerate(request.anchors):
            what = f"{count} anchors of {tokens:,} tokens"
            yield Progress(what, column * shape[0] + row, steps)
            while len(log.samples) <= count:
                _draw(model, log, tokens, request.agents)
            anchors = [o for o in log.samples.values() if o is not sample][:count]
            pool_bytes[row, column] = sum(a.bytes for a in anchors)
            times["match_ms"][row, column] = _timed(clock, partial(_match, sample, anchors, log, EMBEDDINGS))
            times["match_kv_ms"][row, column] = _timed(clock, partial(_match, sample, anchors, log, WHOLE_KV))
            times["mix_ms"][row, column] = _timed(clock, partial(_mix, model, sample, anchors))
            if model.device.type != "cpu":
                log.offload({a.number for a in anchors})
                times["move_ms"][row, column] = _timed(clock, partial(_fetch, anchors, model.device))
                log.offload(set())
    yield AnchorCost(request, model.info, pool_bytes, **times, wall_ms=(time.perf_counter() - began) * 1e3)


def _check(model: LoadedModel, request: AnchorCostRequest, budget_bytes: int) -> None:
    for name, (low, high) in COST_LIMITS.items():
        value = getattr(request, name)
        values = value if isinstance(value, tuple) else (value,)
        if not values or any(type(v) is not int or not low <= v <= high for v in values):
            raise OptionError(
                f"{name} is {value!r}; whole numbers from {low} to {high:,} are allowed. Change it.",
                field=f"cost.{name}",
            )
        if len(set(values)) < len(values) or list(values) != sorted(values):
            raise OptionError(
                f"{name} is {value!r}; name each number once, smallest first.", field=f"cost.{name}"
            )
    most = (request.anchors[-1] + HELD_ANCHORS) * request.lengths[-1]
    needed = most * (request.agents + 1) * model.info.kv_bytes_per_token
    if needed > budget_bytes:
        raise BudgetError(
            f"The largest pool would take {needed / 2**20:,.0f} MiB; this lab allows "
            f"{budget_bytes / 2**20:,.0f} MiB. Ask for fewer anchors, shorter ones or fewer agents.",
            field="cost.lengths",
        )


def _draw(model: LoadedModel, log: SampleLog, tokens: int, agents: int) -> Sample:
    """A text of random KV with an offset for each agent; no template text behind it."""
    cache = model.new_cache(1)
    layers, _, heads, _, dim = cache.keys.shape

    def random_kv() -> Tensor:
        return torch.randn((layers, heads, tokens, dim), dtype=cache.keys.dtype, device=model.device)

    ids = tuple(range(tokens))
    one_token = model.embed((0,))
    described = (one_token + torch.randn(tokens, 1, device=model.device)).to(one_token.dtype)
    sample = log.add("cost", ids, "", KVSegment(random_kv(), random_kv(), 0, True, "drawn"), described)
    for agent in range(1, agents + 1):
        sample.add_offsets(
            agent, {"cost": (KVSegment(random_kv(), random_kv(), 0, True, "drawn"), sample.base)}, {"cost": 0}
        )
    return sample


def _match(sample: Sample, anchors: list[Sample], log: SampleLog, how: Weighing) -> None:
    uses = {a.number: 0 for a in anchors}
    AnchorPool("cost", PoolRules(capacity=len(anchors), weighing=how), uses).match(sample, 1, [], log)


def _mix(model: LoadedModel, sample: Sample, anchors: list[Sample]) -> None:
    """As when a prompt is assembled: mixed, added, rotated and written."""
    device, tokens = sample.base.keys.device, sample.tokens
    weights = torch.full((len(anchors), tokens), 1 / len(anchors), device=device)
    offsets = [a.offsets[1].placeholder for a in anchors]
    rows = [offset for offset in offsets if isinstance(offset, ArenaOffset)]
    mixture = Mixture(rows[0].rows.arena, tuple(offset.first_row for offset in rows), weights)
    positions = torch.arange(tokens, device=device)
    keys, values = torch.empty_like(sample.base.keys), torch.empty_like(sample.base.values)
    mix_and_rotate(sample.base, mixture, positions, model.rotation, keys, values)


def _fetch(anchors: list[Sample], device: torch.device) -> None:
    for anchor in anchors:
        rows = anchor.offsets[1].rows
        assert rows is not None, "it was seen in a run"
        rows.tensor.to(device, non_blocking=True)


@torch.inference_mode()
def _timed(clock: Clock, act: Callable[[], None]) -> float:
    """Milliseconds: the best of a few repetitions, which other work disturbed least, after a warm-up."""
    act()
    spent = []
    for _ in range(REPEATS):
        clock.parts.clear()
        with clock.part("it"):
            act()
        spent.append(clock.parts["it"])
    return min(spent)
