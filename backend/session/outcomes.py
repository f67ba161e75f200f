"""Finished rows to outcomes: what a record keeps of one agent under one method."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.cache.norms import largest_difference
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.prompts.scoring import extract_answer, right
from backend.records.prompt import Prompt, slots
from backend.records.request import RunRequest
from backend.records.run import (
    COMPUTED,
    CORRECTED,
    RECOMPUTED,
    REUSED,
    AttentionProbe,
    LinkAction,
    Mix,
    OffsetProbe,
    Outcome,
    Provenance,
    SpanAction,
    Timing,
)
from backend.records.transfer import Transfer
from backend.session.pool_views import mixes
from backend.session.probes.attention import attention_probes
from backend.session.probes.cache_error import cache_error, offset_probe
from backend.session.probes.fidelity import fidelity
from backend.session.probes.transfer import transfers
from backend.session.streams import MethodRun, PromptRun

PARTS = (
    "base", "gate", "match", "correct", "rotate", "prefill", "select", "recompute", "first_token", "accept",
    "fallback",
)  # fmt: skip


def outcomes_of(
    engine: Engine,
    rows: list[PromptRun],
    request: RunRequest,
    decode_ms: float,
    prompts: list[Prompt],
    offsets: list[OffsetProbe],
) -> list[Outcome]:
    """Turn finished rows into outcomes, with probes where they are defined."""
    pinned = request.mode == "pinned"
    dense = rows[0]
    forced: list[Forced | None] = [None] * len(rows)
    if pinned:
        assert dense.decoded is not None
        assert dense.decoded.logits is not None
        dense_logits = dense.decoded.logits
        answer = dense.decoded.ids[: len(dense_logits) - 1]
        logits = engine.teacher_force([*(r.prefill for r in rows), *_read_again(engine, dense)], answer)
        differences = [largest_difference(x, dense_logits) for x in (logits[0], *logits[len(rows) :])]
        # A one-token answer has nothing to compute again; what loading measured holds then.
        floor = max(engine.model.info.certificate.logit_floor, *differences)
        forced = [Forced(x, dense_logits, floor) for x in logits[: len(rows)]]
    dense_index, out = len(prompts), []
    for row, along in zip(rows, forced, strict=True):
        # pinned, every method reads dense's prompt, but for one that lays out another
        same_prompt = row.context.prompt.ids == dense.context.prompt.ids
        if row is dense or not pinned or not same_prompt:
            prompts.append(engine.model.tokens.as_record(row.context.prompt))
        prompt_index = dense_index if pinned and same_prompt else len(prompts) - 1
        out.append(outcome_of(engine, row, dense, request, decode_ms, prompt_index, along))
    if pinned and request.probe_offsets:
        offsets.append(offset_probe(dense.context, dense.prefill.cache, engine.model.rotation, dense_index))
    for row in rows[:1] if pinned else rows:
        if row.prefill.exact and not row.run.method.shares_texts:
            remember_prompt(engine, row.context, row.prefill, row.run.stream.log)
    return out


@dataclass(frozen=True)
class Forced:
    """A method's logits along dense's answer and dense's own, each (answer + 1, vocabulary), and the largest
    difference between two ways of computing dense's."""

    logits: Tensor
    dense_logits: Tensor
    floor: float


@dataclass(frozen=True)
class CacheDistance:
    """How far a method's cache is from dense's: relative L2 errors, (layers, tokens), and the texts that were
    copied into it; and by which weights it was corrected."""

    keys: NDArray[np.float32] | None = None
    values: NDArray[np.float32] | None = None
    copied: tuple[Transfer, ...] = ()
    mixes: tuple[Mix, ...] = ()


def cache_distance(engine: Engine, row: PromptRun, dense: PromptRun) -> CacheDistance:
    """How far a row's cache is from dense's of the same prompt."""
    prompt, rotation = row.context.prompt, engine.model.rotation
    keys, values = cache_error(row.prefill.cache, dense.prefill.cache, len(prompt.ids), rotation)
    copied = transfers(prompt, row.plan, row.prefill.cache, dense.prefill.cache, rotation)
    return CacheDistance(keys, values, copied, mixes(row.plan))


def outcome_of(
    engine: Engine,
    row: PromptRun,
    dense: PromptRun,
    request: RunRequest,
    decode_ms: float,
    prompt_index: int,
    forced: Forced | None,
    distance: CacheDistance | None = None,
) -> Outcome:
    """One finished row as a record keeps it. ``forced``: for the fidelity of a pinned run. ``distance``:
    where it is measured already."""
    decoded = row.decoded
    assert decoded is not None
    assert dense.decoded is not None
    text = engine.model.tokens.decode(decoded.ids)
    scoring = request.pipeline.scoring
    answer = extract_answer(text, scoring)
    agent = row.context.prompt.agent
    expected = request.expected if agent in request.pipeline.scored else None
    correct = right(answer, expected, scoring) if expected is not None else None
    nearness = None
    if forced is not None:
        nearness = fidelity(
            dense.decoded, decoded, forced.logits, forced.dense_logits, forced.floor, engine.model.tokens,
            engine.stop_ids(),
        )  # fmt: skip
        if distance is None and request.probe_offsets and row.context.prompt.ids == dense.context.prompt.ids:
            distance = cache_distance(engine, row, dense)
    distance = distance or CacheDistance(mixes=mixes(row.plan) if request.probe_offsets else ())
    parts = row.clock.parts
    return Outcome(
        agent=agent,
        method=row.run.choice.label,
        prompt=prompt_index,
        state=row.plan.state,
        reason=row.plan.reason,
        text=text,
        token_ids=np.array(decoded.ids, dtype=np.int64),
        texts=engine.model.tokens.texts(decoded.ids),
        stopped=decoded.stopped,
        answer=answer,
        correct=correct,
        actions=row.prefill.actions,
        spans=_span_actions(row),
        gate=row.plan.gate,
        timing=Timing(
            {p: parts[p] for p in PARTS if p in parts},
            sum(parts.values()),
            decode_ms,
            row.prefill.forwarded_tokens,
            row.prefill.token_layers,
        ),
        fidelity=nearness,
        key_error=distance.keys,
        value_error=distance.values,
        mixes=distance.mixes,
        links=tuple(LinkAction(k.at, k.tokens, k.reason) for k in row.plan.links),
        transfers=distance.copied,
    )


def _read_again(engine: Engine, dense: PromptRun) -> list[Prefill]:
    """In half precision, dense's prompt read over an exact copy of its own beginning: of the first words, of
    the first half, and of all but the last token. There rounding differs between prompts by more than the
    floor measured at loading, and rotating keys back and forth adds to it."""
    if engine.model.dtype == torch.float32:
        return []
    prompt, rotation, readings = dense.context.prompt, engine.model.rotation, []
    total = len(prompt.ids)
    for prefix in sorted({prompt.spans[0].end, total // 2, total - 1} - {0, total}):
        segment = dense.prefill.cache.segment(0, prefix, rotation, exact=True, context="")
        cache = engine.model.new_cache(total)
        rotation.rotate(
            segment.keys, torch.arange(prefix, device=segment.keys.device), cache.keys[:, 0, :, :prefix]
        )
        cache.values[:, 0, :, :prefix] = segment.values
        cache.length = prefix
        logits = engine.forward(engine.ids(prompt.ids[prefix:]), cache)[0, -1]
        readings.append(replace(dense.prefill, cache=cache, logits=logits))
    return readings


def attention_of(
    engine: Engine, rows: list[PromptRun], outcomes: Sequence[Outcome]
) -> tuple[AttentionProbe, ...]:
    """The attention of each method's answer; empty for an agent that reads no texts side by side.

    Raises:
        ModelError: this model's attention cannot be read.
    """
    return tuple(
        probe
        for row, outcome in zip(rows, outcomes, strict=True)
        if row.decoded is not None and slots(row.context.prompt.spans)
        for probe in attention_probes(
            engine,
            row.context.prompt,
            row.prefill,
            row.decoded.ids,
            method=outcome.method,
            prompt_index=outcome.prompt,
        )
    )


def remember_prompt(engine: Engine, context: PromptInContext, prefill: Prefill, log: SampleLog) -> None:
    """Keep an exact prompt for prefix reuse."""
    total = len(context.prompt.ids)
    segment = prefill.cache.segment(0, total, engine.model.rotation, exact=True, context="an earlier prompt")
    log.remember_prompt(context.prompt.ids, segment, weights=context.weights)


def same_request_notes(runs: list[MethodRun]) -> tuple[str, ...]:
    """Warn where a pool holds this very request: its correction is then no estimate."""
    return tuple(
        f"{run.choice.label}: an anchor holds this very request, so its correction is a memory "
        "rather than an estimate."
        for run in runs
        if any(_same_request(run, number) for number in run.method.needed())
    )


def _same_request(run: MethodRun, number: int) -> bool:
    """Is an anchor from an earlier request with all the texts of this one? A single shared text is not
    enough: behind other texts it has another offset. A request's samples have consecutive numbers."""
    samples, own = run.stream.log.samples, list(run.state.samples.values())
    if number not in samples or any(number == sample.number for sample in own):
        return False
    shifts = {
        s.number - number
        for s in own
        if (s.placeholder, s.ids) == (samples[number].placeholder, samples[number].ids)
    }
    return any(
        all(s.number - by not in samples or samples[s.number - by].ids == s.ids for s in own) for by in shifts
    )


def _span_actions(row: PromptRun) -> tuple[SpanAction, ...]:
    """The plan's steps as a record keeps them, cut where some of their tokens were computed again; the last
    token, always forwarded, is a step of its own."""
    total, plan, last = len(row.context.prompt.ids), row.plan, row.prefill.actions[-1]
    selection, out = row.prefill.selection, []
    for step in plan.steps:
        end = step.end if isinstance(step.action, Compute) else min(step.end, total - 1)
        for is_recomputed, tokens in groupby(range(step.start, end), lambda t: bool(last[t] == RECOMPUTED)):
            run = list(tokens)
            if is_recomputed and selection is not None:
                action = SpanAction(
                    run[0], run[-1] + 1, RECOMPUTED, "forward pass", selection.reason, True,
                    provenance="computed",
                )  # fmt: skip
            else:
                action = replace(_span_action(step, plan), start=run[0], end=run[-1] + 1)
            out.append(action)
    if isinstance(plan.steps[-1].action, Reuse):
        reason = "the last token gives the first answer"
        out.append(
            SpanAction(total - 1, total, COMPUTED, "forward pass", reason, True, provenance="computed")
        )
    return tuple(out)


def _span_action(step: Step, plan: Plan) -> SpanAction:
    """A step's action as a record keeps it."""
    if isinstance(step.action, Compute):
        provenance: Provenance = "fallback" if plan.state == "fallback" else "computed"
        return SpanAction(
            step.start, step.end, COMPUTED, "forward pass", step.action.reason, True,
            provenance=step.action.provenance or provenance,
        )  # fmt: skip
    reuse = step.action
    place = step.start if step.position is None else step.position
    return SpanAction(
        step.start,
        step.end,
        CORRECTED if reuse.terms else REUSED,
        reuse.base.context,
        reuse.reason,
        reuse.exact or reuse.base.exact,
        place - reuse.base.start if reuse.moved else 0,
        tuple(t.anchor for t in reuse.terms),
        tuple(float(t.weight.mean()) for t in reuse.terms),
        reuse.provenance or ("exact local" if reuse.exact else "semantic"),
    )
