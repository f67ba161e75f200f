"""Copies offsets from main memory to the device while it computes.

One pass can mix a span's offsets if they are in one arena (:mod:`backend.cache.kernels.mix_and_rotate`). If
some are in main memory, all are copied into a temporary arena on the device, and the next span's are copied
meanwhile: on CUDA from pinned memory, on a stream of their own (KVCOMM, Section 6.4.4).
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import torch

from backend.cache.row_arena import Arena, ArenaOffset
from backend.methods.plan import Reuse, Term


def prefetch(reuses: Iterable[Reuse]) -> Iterator[Reuse]:
    """Each span with its offsets on its base's device; the next span's are copied meanwhile."""
    previous: tuple[Reuse, Any] | None = None
    for reuse in reuses:
        current = _begin(reuse)
        if previous is not None:
            yield _finish(*previous)
        previous = current
    if previous is not None:
        yield _finish(*previous)


def _begin(reuse: Reuse) -> tuple[Reuse, Any]:
    """Start copying the offsets; returns the span with the copies, and the event to wait for before use."""
    device = reuse.base.keys.device
    offsets = [term.offset for term in reuse.terms if isinstance(term.offset, ArenaOffset)]
    away = any(offset.rows.tensor.device != device for offset in offsets)
    if not away or len(offsets) < len(reuse.terms):
        return reuse, None
    like = offsets[0].rows.tensor
    if any(o.rows.tensor.dtype != like.dtype or o.rows.tensor.shape[1:] != like.shape[1:] for o in offsets):
        return reuse, None
    side = _stream(device)
    terms, at = list[Term](), 0
    with torch.cuda.stream(side) if side is not None else nullcontext():
        if side is not None:
            side.wait_stream(torch.cuda.current_stream(device))
        rows = Arena.over(like.new_empty((sum(o.tokens for o in offsets), *like.shape[1:]), device=device))
        for term, offset in zip(reuse.terms, offsets, strict=True):
            target = rows.tensor[at : at + offset.tokens]
            target.copy_(offset.rows.tensor[offset.start : offset.end], non_blocking=True)
            terms.append(replace(term, offset=ArenaOffset(rows, at, at + offset.tokens)))
            at += offset.tokens
        event = side.record_event() if side is not None else None
    return replace(reuse, terms=tuple(terms)), event


def _finish(reuse: Reuse, event: Any) -> Reuse:
    if event is not None:
        stream = torch.cuda.current_stream(reuse.base.keys.device)
        stream.wait_event(event)
        for term in reuse.terms:
            term.offset.rows.tensor.record_stream(stream)  # type: ignore[attr-defined]
    return reuse


@cache
def _stream(device: torch.device) -> Any:
    """The stream for copies to a device; None where there are no streams."""
    return torch.cuda.Stream(device) if device.type == "cuda" else None
