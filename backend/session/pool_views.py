"""What a record keeps of pools and mixes beyond numbers and texts: sizes, errors, weights, a map."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.cache.samples import Sample, SampleLog
from backend.methods.base import Method
from backend.methods.plan import Plan, Reuse, Term
from backend.records.pools import PoolState, PoolView
from backend.records.run import Mix
from backend.session.streams import MethodRun


def mixes(plan: Plan) -> tuple[Mix, ...]:
    """The weights of every corrected span of a plan."""
    return tuple(
        _mix(step.start, step.end, step.action.terms)
        for step in plan.steps
        if isinstance(step.action, Reuse) and step.action.terms
    )


def _mix(start: int, end: int, terms: tuple[Term, ...]) -> Mix:
    layers = terms[0].offset.keys.shape[0]
    sides = [
        [t.weight for t in terms],
        [t.weight if t.value_weight is None else t.value_weight for t in terms],
    ]
    by_token = [np.stack([_by_token(w, end - start) for w in side]) for side in sides]
    by_layer = [np.stack([_by_layer(w, layers) for w in side]) for side in sides]
    return Mix(start, end, tuple(t.anchor for t in terms), *by_token, *by_layer)


def _by_token(weight: Tensor, tokens: int) -> NDArray[np.float32]:
    """(tokens,) of a weight (), (tokens,) or (layers, heads, 1, head_dim)."""
    per_token = weight[:tokens] if weight.ndim == 1 else weight.mean().expand(tokens)
    return np.asarray(per_token.float().cpu().numpy(), dtype=np.float32)


def _by_layer(weight: Tensor, layers: int) -> NDArray[np.float32]:
    per_layer = weight.mean(dim=(1, 2, 3)) if weight.ndim == 4 else weight.mean().expand(layers)
    return np.asarray(per_layer.float().cpu().numpy(), dtype=np.float32)


def pool_views(runs: Sequence[MethodRun], pools: Sequence[PoolState]) -> tuple[PoolView, ...]:
    """A view of every pool that holds an anchor, in the order of ``pools``."""
    by_label = {run.choice.label: run for run in runs}
    out = []
    for state in pools:
        run = by_label[state.method]
        if state.anchors:
            sample = run.state.samples.get(state.placeholder)
            out.append(pool_view(state, run.method, run.stream.log, sample))
    return tuple(out)


@torch.inference_mode()
def pool_view(state: PoolState, method: Method, log: SampleLog, sample: Sample | None) -> PoolView:
    """What a pool's anchors hold, measured on the tensors and bytes themselves.

    Args:
        state: names the anchors; all are in the log.
        method: says how it keeps their offsets.
        log: holds them.
        sample: the text that the run had for this placeholder.
    """
    anchors = [log.samples[n] for n in state.anchors]
    computed = [sum(offset.bytes for offset in a.offsets.values()) for a in anchors]
    stored_bytes = []
    layers = anchors[0].base.keys.shape[0]
    small_count, squares, elements = torch.zeros(2, layers), torch.zeros(2, layers, dtype=torch.float64), 0
    squared_error, largest = np.zeros((2, layers)), 0.0
    for anchor in anchors:
        anchor_bytes = 0
        for agent, offset in anchor.offsets.items():
            small, square, count = offset.spread
            small_count, squares, elements = small_count + small, squares + square, elements + count
            stored = method.stored(anchor, agent)
            anchor_bytes += stored.offsets.bytes if stored else offset.bytes
            if stored:
                squared_error = squared_error + stored.squared_error
                largest = max(largest, stored.largest)
        stored_bytes.append(anchor_bytes)
    texts = [*anchors, *([sample] if sample is not None and sample.number not in state.anchors else [])]
    return PoolView(
        method=state.method,
        placeholder=state.placeholder,
        sample=sample.number if sample else 0,
        sample_preview=sample.preview if sample else "",
        agents=tuple(tuple(sorted(a.offsets)) for a in anchors),
        base_bytes=np.array([a.bytes - b for a, b in zip(anchors, computed, strict=True)], dtype=np.int64),
        offset_bytes=np.array(computed, dtype=np.int64),
        stored_bytes=np.array(stored_bytes, dtype=np.int64),
        away=tuple(a.number for a in anchors if _is_away(a)),
        small=(small_count.double() / max(1, elements)).numpy(),
        offset_size=(squares / max(1, elements)).sqrt().numpy(),
        stored_error=np.sqrt(squared_error / max(1, elements)),
        largest_error=largest,
        points=principal_coordinates(torch.stack([t.descriptor.mean(dim=0) for t in texts])),
    )


def _is_away(anchor: Sample) -> bool:
    device = anchor.base.keys.device
    return any(offset.placeholder.keys.device != device for offset in anchor.offsets.values())


def principal_coordinates(points: Tensor) -> NDArray[np.float32]:
    """Points (texts, features) turned to their principal axes, widest first, at most texts - 1 of them: all
    distances between points are kept, so any map can be drawn from these alone."""
    centred = (points - points.mean(dim=0)).double().cpu().numpy()
    u, s, _ = np.linalg.svd(centred, full_matrices=False)
    axes = max(1, min(len(points) - 1, len(s)))
    turned = (u * s)[:, :axes]
    # The sign of an axis is arbitrary; the largest coordinate is made positive, so that runs compare.
    signs = np.sign(turned[np.abs(turned).argmax(axis=0), np.arange(axes)])
    return np.asarray(turned * np.where(signs == 0, 1, signs), dtype=np.float32)
