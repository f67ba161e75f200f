"""Estimates of a text's offsets from those behind other prefixes, each held against the true ones."""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from backend.base.clock import Clock
from backend.cache.kv_cache import KVCache, KVSegment, Offset
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.weights import Match
from backend.methods.plan import Plan
from backend.methods.registry import make_options, method_class, profile_options
from backend.records.events import Progress
from backend.records.offsets import PARTS, Approximated
from backend.records.prompt import Span

History = Sequence[Sequence[PromptInContext]]
Planner = Callable[[PromptInContext], Plan]
#: An offset below this share of the vector's length is rounding: it has no direction to be compared.
ROUNDING = 1e-4

#: Rows of Fig. A.12 that are estimates, each from the other samples alone: KVCOMM's options.
ESTIMATES: dict[str, dict[str, Any]] = {
    **{name: {"approximation": name} for name in ("nearest", "cosine", "softmax", "uniform")},
    **{name: profile_options("kvcomm", name) for name in ("shipped", "corrected")},
}
#: All rows as (method, its options): two copies without correction before them, and the ceiling behind.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("naive", {"rotate": False}),
    "moved": ("naive", {}),
    **{name: ("kvcomm", options) for name, options in ESTIMATES.items()},
    "oracle": ("oracle", {}),
}


def approximate(engine: Engine, history: History, log: SampleLog) -> Generator[Progress, None, Approximated]:
    """Estimate each request's offsets from the others' samples; yields progress, returns the comparison."""
    agents = tuple(dict.fromkeys(c.prompt.agent for contexts in history for c in contexts))
    shape = (len(METHODS), len(agents), len(PARTS), 2, engine.model.info.layers)
    sums = {name: np.zeros(shape) for name in ("cosine", "significant", "cache_cosine", "error", "offset")}
    tokens = np.zeros((len(agents), len(PARTS)), dtype=np.int64)
    unmatched = np.zeros_like(tokens)
    planners = [_planner(name, history, log) for name in METHODS]
    estimator = _LeaveOneOut("softmax", history)
    for number, contexts in enumerate(history):
        yield Progress(f"Estimating request {number + 1} of {len(history)}", number, len(history))
        for context in contexts:
            at = agents.index(context.prompt.agent)
            # whether a text has an anchor does not depend on the weighing
            matched = set(estimator.matches(context, log))
            spans = []
            for part, name, span, offset, base in _real(context):
                # the last token is always forwarded, so nothing of it is estimated
                count = min(span.end, len(context.prompt.ids) - 1) - span.start
                (tokens if name in matched else unmatched)[at, part] += count
                if name in matched and count > 0:
                    spans.append((part, slice(span.start, span.start + count), offset, base))
            for row, plan_for in enumerate(planners if spans else ()):
                cache = engine.execute(context.prompt, plan_for(context), Clock()).cache
                for part, place, offset, base in spans:
                    for name, value in _compared(engine, cache, place, offset, base).items():
                        sums[name][row, at, part] += value
    with np.errstate(invalid="ignore", divide="ignore"):
        counts = tokens[None, :, :, None, None]
        return Approximated(
            tuple(METHODS),
            agents,
            cosine=sums["cosine"] / sums["significant"],
            cache_cosine=sums["cache_cosine"] / counts,
            error=sums["error"] / counts,
            offset=(sums["offset"] / counts)[0],
            tokens=tokens,
            unmatched=unmatched,
        )


class _LeaveOneOut:
    """KVCOMM with every sample of the history as an anchor of every other (a pool never gives a sample
    itself), whatever its gate would say."""

    def __init__(self, name: str, history: History) -> None:
        options = make_options("kvcomm", ESTIMATES[name])
        self.method = KVCommMethod(options)  # type: ignore[arg-type]
        for contexts in history:
            for context in contexts:
                for placeholder, sample in context.samples.items():
                    self.method.pool(placeholder).uses[sample.number] = 0

    def matches(self, context: PromptInContext, log: SampleLog) -> dict[str, Match]:
        """The anchors of each placeholder that has some as long, and their weights."""
        matches = {name: self.method.match(context, sample, log) for name, sample in context.samples.items()}
        return {name: match for name, match in matches.items() if match is not None}


def _planner(name: str, history: History, log: SampleLog) -> Planner:
    """What a row of Fig. A.12 does to a prompt."""
    method, options = METHODS[name]
    if name not in ESTIMATES:
        copier = method_class(method)(make_options(method, options))
        return lambda context: copier.plan(context, log, Clock())
    estimator = _LeaveOneOut(name, history)
    return lambda context: Plan(
        estimator.method.steps(context, estimator.matches(context, log)), "reused", "leave one out"
    )


def _real(context: PromptInContext) -> Iterator[tuple[int, str, Span, Offset, KVSegment]]:
    """Every span with a real offset: its part, the placeholder that it is or follows, where it stands, the
    offset, and what the offset is relative to."""
    places = {span.name: span for span in context.prompt.spans}
    for name, sample in context.samples.items():
        offsets = sample.offsets[context.prompt.agent]
        yield 0, name, places[name], offsets.placeholder, sample.base
        for follower, offset in offsets.followers.items():
            yield 1, name, places[follower], offset, context.prefix_bases[follower]


@torch.inference_mode()
def _compared(
    engine: Engine, cache: KVCache, place: slice, offset: Offset, base: KVSegment
) -> dict[str, NDArray[np.float64]]:
    """Sums over a span's tokens, (2, layers), of what :class:`Approximated` holds means of; ``significant``
    counts the tokens whose true offset is more than rounding. An estimate that is rounding has a cosine of 0.
    """
    placed = cache.segment(place.start, place.stop, engine.model.rotation, exact=False, context="")
    count = place.stop - place.start
    out: dict[str, list[Tensor]] = {}
    for cached, real, ground in (
        (placed.keys, offset.keys, base.keys),
        (placed.values, offset.values, base.values),
    ):
        made, true, old = (x[:, :, :count].float().transpose(1, 2).flatten(2) for x in (cached, real, ground))
        least = ROUNDING * (old + true).norm(dim=-1)
        significant = true.norm(dim=-1) > least
        comparable = significant & ((made - old).norm(dim=-1) > least)
        cosine = functional.cosine_similarity(made - old, true, dim=-1)
        measures = {
            "cosine": torch.where(comparable, cosine, 0.0),
            "significant": significant,
            "cache_cosine": functional.cosine_similarity(made, old + true, dim=-1),
            "error": (made - old - true).norm(dim=-1),
            "offset": true.norm(dim=-1),
        }
        for name, values in measures.items():
            out.setdefault(name, []).append(values.double().sum(dim=1).cpu())
    return {name: torch.stack(parts).numpy() for name, parts in out.items()}


def to_numpy(x: Tensor) -> NDArray[np.float32]:
    return x.float().cpu().numpy()
