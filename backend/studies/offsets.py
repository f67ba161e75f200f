"""True offsets of a text behind several prefixes, and estimates of them (KVCOMM, Fig. 1, A.4 to A.12).

The first half reads one segment behind the begin-of-sequence token alone and behind each prefix; what differs
is its offset, keys compared position-free and, for Fig. 1b, also as they lie. The second half sends several
requests through a pipeline densely and takes every offset that its agents show; then each sample is estimated
from the other requests' samples.

Readings of open points: a token's *similar* token is the trained one whose input embedding is nearest, put in
its place with all before it unchanged, so that nothing but the token differs. Prefixes are no anchors: behind
other prefixes the segment is the same text, all its distances are zero, and every weighing is the plain mean.
So Fig. A.12 leaves one request out instead, as the paper's does. The gate is not asked: every sample that has
an anchor as long is estimated, by the very steps that the methods execute.
"""

import time
from collections.abc import Generator, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from backend.base.errors import BudgetError, OptionError
from backend.cache.kv_cache import KVCache, KVOffset
from backend.cache.samples import SampleLog
from backend.engine.engine import Engine
from backend.methods.registry import make_options
from backend.model.load import LoadedModel
from backend.prompts.presets import Example
from backend.records.events import Progress
from backend.records.offsets import (
    MOST_PREFIXES,
    MOST_SAMPLES,
    MOST_SEGMENT_TOKENS,
    OffsetRequest,
    OffsetStudy,
    SampleOffsets,
    Twins,
)
from backend.records.request import Decoding, MethodChoice, RunRequest
from backend.session.request_state import RequestState
from backend.session.session import LabSession
from backend.session.study import study
from backend.studies.offset_estimates import METHODS, History, approximate, to_numpy
from backend.studies.proximity import MAX_PREFIX_TOKENS, trained_vocabulary

TWIN_BYTES = 1 << 26  # of the caches that replaced tokens are read on, at once


@study(OffsetRequest)
def offset_study(
    model: LoadedModel, request: OffsetRequest, budget_bytes: int = 1 << 30
) -> Iterator[Progress | OffsetStudy]:
    """Measure; yields progress and, last, the record.

    Args:
        model: the loaded model.
        request: what is measured.
        budget_bytes: what the KV held at once and the record may take.

    Raises:
        OptionError: the segment or a prefix cannot be used, or their number.
        BudgetError: more bytes would be needed than allowed.
        LabError: a request cannot be sent through the pipeline.
    """
    began = time.perf_counter()
    segment, prefixes = _check(model, request)
    needed = needed_bytes(model, request, len(segment), [len(p) for p in prefixes])
    if needed > budget_bytes:
        raise BudgetError(
            f"This measurement needs about {needed / 2**20:,.0f} MiB; {budget_bytes / 2**20:,.0f} MiB are "
            "allowed. Take fewer prefixes or requests, or shorter texts.",
            field="study.measure",
        )
    engine = Engine(model)
    bos = model.tokens.bos
    alone, _ = engine.prefill((*bos, *segment))
    twin_ids, distance = nearest_tokens(model, segment)
    twins_alone = replaced(engine, alone, len(bos), twin_ids)
    norms: dict[str, list[Tensor]] = {"keys": [], "values": [], "unmoved": []}
    twins: dict[str, list[Tensor]] = {"keys": [], "values": [], "unmoved": []}
    for number, prefix in enumerate(prefixes, 1):
        yield Progress(f"Behind prefix {number} of {len(prefixes)}", number - 1, len(prefixes))
        cache, _ = engine.prefill((*prefix, *segment))
        for name, part in offset_norms(cache, len(prefix), alone, len(bos), len(segment), model).items():
            norms[name].append(part)
        for name, part in replaced(engine, cache, len(prefix), twin_ids).items():
            twins[name].append((part - twins_alone[name]).flatten(-2).norm(dim=-1))
    samples = approximated = None
    read: list[Sequence[int]] = [(*prefix, *segment) for prefix in prefixes]
    if request.values:
        history, log = yield from _requests(model, request, budget_bytes)
        read += [context.prompt.ids for contexts in history for context in contexts]
        samples = sample_offsets(history)
        approximated = yield from approximate(engine, history, log)
    base = alone.segment(
        len(bos), len(bos) + len(segment), model.rotation, exact=True, context="encoded alone"
    )
    yield OffsetStudy(
        request=request,
        model=model.info,
        boundary_tax=model.tokens.boundary_tax(*read),
        tokens=np.array(segment, dtype=np.int64),
        texts=model.tokens.texts(segment),
        prefix_tokens=np.array([len(p) for p in prefixes], dtype=np.int64),
        key_norm=to_numpy(base.keys.float().norm(dim=-1)),
        value_norm=to_numpy(base.values.float().norm(dim=-1)),
        twins=Twins(
            np.array(twin_ids, dtype=np.int64),
            tuple(model.tokens.decode((token,)) for token in twin_ids),
            to_numpy(distance),
            **{name: to_numpy(torch.stack(parts)) for name, parts in twins.items()},
        ),
        samples=samples,
        approximated=approximated,
        keys=to_numpy(torch.stack(norms["keys"])),
        values=to_numpy(torch.stack(norms["values"])),
        unmoved=to_numpy(torch.stack(norms["unmoved"])),
        wall_ms=(time.perf_counter() - began) * 1e3,
    )


def _check(model: LoadedModel, request: OffsetRequest) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The segment and the prefixes as token ids."""
    if not model.info.certificate.relocatable:
        raise OptionError(
            f"Offsets of keys are not defined on {model.info.name}. {model.info.certificate.reason}",
            field="study.measure",
        )
    segment = model.tokens.encode(request.text)
    if not 1 <= len(segment) <= MOST_SEGMENT_TOKENS:
        raise OptionError(
            f"The text has {len(segment):,} tokens; 1 to {MOST_SEGMENT_TOKENS} are allowed. Change it.",
            field="study.text",
        )
    if not 2 <= len(request.prefixes) <= MOST_PREFIXES:
        raise OptionError(
            f"There are {len(request.prefixes)} prefixes; 2 to {MOST_PREFIXES} are allowed. Add or remove "
            "some; a line of three dashes divides them.",
            field="study.prefixes",
        )
    limit = min(MAX_PREFIX_TOKENS, model.info.context_tokens - len(segment))
    prefixes: list[tuple[int, ...]] = []
    for number, text in enumerate(request.prefixes, 1):
        ids = (*model.tokens.bos, *model.tokens.encode(text))
        if len(ids) > limit:
            raise OptionError(
                f"Prefix {number} has {len(ids):,} tokens; up to {limit:,} fit before this text. Shorten it.",
                field="study.prefixes",
            )
        if ids in prefixes:
            raise OptionError(
                f"Prefix {number} is the same text as prefix {prefixes.index(ids) + 1}, which would make "
                "their spread too small. Change or remove one.",
                field="study.prefixes",
            )
        prefixes.append(ids)
    if len(request.values) == 1 or len(request.values) > MOST_SAMPLES:
        raise OptionError(
            f"{len(request.values)} requests were asked for; 2 to {MOST_SAMPLES} are allowed, or 0 for none. "
            "Each is estimated from the others.",
            field="study.samples",
        )
    distinct = len({tuple(sorted(values.items())) for values in request.values})
    if distinct < len(request.values):
        raise OptionError(
            f"{len(request.values)} requests were asked for, but only {distinct} of them differ: the others "
            f"would be remembered rather than estimated. Ask for {distinct if distinct > 1 else 0}.",
            field="study.samples",
        )
    return segment, prefixes


def needed_bytes(model: LoadedModel, request: OffsetRequest, tokens: int, prefixes: Sequence[int]) -> int:
    """About how much is held at once: caches, the record, and the requests' bases and offsets.

    Args:
        model: for the bytes of one token's KV.
        request: its requests and answers count at their longest.
        tokens: of the segment.
        prefixes: tokens of each.
    """
    info = model.info
    longest = max(prefixes) + tokens
    caches = (longest + 6 * tokens) * info.kv_bytes_per_token  # fp32 copies of a segment among them
    twins = max(TWIN_BYTES, (longest + 1) * info.kv_bytes_per_token)
    record = 4 * info.layers * tokens * (3 * len(prefixes) * (info.kv_heads + 1) + 2 * info.kv_heads)
    request_tokens = 0
    if request.pipeline is not None:
        pipeline = request.pipeline
        for values in request.values:
            for agent in pipeline.order:
                answers = sum(
                    min(request.max_new_tokens, pipeline.agent(p).max_new_tokens)
                    for p, reader in pipeline.edges
                    if reader == agent
                )
                request_tokens += 3 * (model.count_tokens(pipeline, agent, values) + answers)
    return caches + twins + record + request_tokens * info.kv_bytes_per_token


def nearest_tokens(model: LoadedModel, ids: Sequence[int]) -> tuple[list[int], Tensor]:
    """For each token the trained one whose input embedding is nearest, itself left out; with the distances
    (tokens,)."""
    table, trained = trained_vocabulary(model)
    apart = torch.cdist(table[list(ids)], table[trained])
    apart[torch.tensor(ids)[:, None] == torch.from_numpy(trained)[None]] = torch.inf
    nearest = torch.from_numpy(trained)[apart.argmin(dim=1)]
    # the sum of squares loses digits to cancellation: the nearest are measured again
    return nearest.tolist(), (table[list(ids)] - table[nearest]).norm(dim=-1)


@torch.inference_mode()
def offset_norms(
    cache: KVCache, start: int, alone: KVCache, first: int, tokens: int, model: LoadedModel
) -> dict[str, Tensor]:
    """Norms over channels (layers, kv_heads, tokens) of a segment's KV in a context minus its KV alone.

    Args:
        cache: the context; the segment starts at place ``start``.
        alone: the isolated encoding; there it starts at ``first``.
        tokens: of the segment.
        model: for the rotation.
    """
    segment = cache.segment(start, start + tokens, model.rotation, exact=True, context="")
    base = alone.segment(first, first + tokens, model.rotation, exact=True, context="")
    offset = KVOffset(segment.keys.float() - base.keys.float(), segment.values.float() - base.values.float())
    as_it_lies = cache.keys[:, 0, :, start : start + tokens].float()
    unmoved = as_it_lies - alone.keys[:, 0, :, first : first + tokens].float()
    norms = {"keys": offset.keys, "values": offset.values, "unmoved": unmoved}
    return {name: part.norm(dim=-1) for name, part in norms.items()}


@torch.inference_mode()
def replaced(engine: Engine, cache: KVCache, start: int, twins: Sequence[int]) -> dict[str, Tensor]:
    """KV of each replacement read in its token's place: (layers, tokens, kv_heads, head_dim), fp32.

    Args:
        engine: forwards one token per row, on top of the cache up to its place.
        cache: prefix and segment, of one row.
        start: place of the segment's first token.
        twins: a replacement for every token of the segment.
    """
    model = engine.model
    row_bytes = (start + len(twins)) * model.info.kv_bytes_per_token
    size = max(1, TWIN_BYTES // row_bytes)
    out: dict[str, list[Tensor]] = {"keys": [], "values": [], "unmoved": []}
    for at in range(0, len(twins), size):
        part = list(twins[at : at + size])
        lengths = [start + at + row for row in range(len(part))]
        room = lengths[-1]
        rows = model.new_cache(room + 1, rows=len(part))
        for row, length in enumerate(lengths):
            for target, source in ((rows.keys, cache.keys), (rows.values, cache.values)):
                target[:, row, :, : room - length] = 0
                target[:, row, :, room - length : room] = source[:, 0, :, :length]
        rows.length = room
        ids = torch.tensor(part, device=model.device)[:, None]
        engine.forward(ids, rows, padding=[room - length for length in lengths])
        keys = rows.keys[:, :, :, room].float()  # (layers, rows, kv_heads, head_dim)
        positions = -torch.tensor(lengths, device=model.device)
        free = model.rotation.rotate(keys.transpose(1, 2), positions).transpose(1, 2)
        out["keys"].append(free.cpu())
        out["unmoved"].append(keys.cpu())
        out["values"].append(rows.values[:, :, :, room].float().cpu())
    return {name: torch.cat(parts, dim=1) for name, parts in out.items()}


def _requests(
    model: LoadedModel, request: OffsetRequest, budget_bytes: int
) -> Generator[Progress, None, tuple[History, SampleLog]]:
    """Send the requests through the pipeline, densely; returns their contexts and the log."""
    if request.pipeline is None:
        raise OptionError("There are requests, but no pipeline to send them to.", field="study.samples")
    session = LabSession(model, budget_bytes=budget_bytes)
    run = RunRequest(
        request.pipeline, request.values[0], (MethodChoice("dense"),), "pinned",
        Decoding(request.max_new_tokens), probe_offsets=False,
    )  # fmt: skip
    for event in session.warm_up(run, [Example(dict(values)) for values in request.values]):
        if isinstance(event, Progress):
            yield event
    [stream] = session.streams.values()
    if len(stream.history) < len(request.values):
        raise BudgetError(
            f"Only {len(stream.history)} of {len(request.values)} requests fit into "
            f"{budget_bytes / 2**20:,.0f} MiB. Ask for fewer.",
            field="study.samples",
        )
    if any(make_options(name, options).wants_lead_in for name, options in METHODS.values()):
        RequestState(run.pipeline, session.engine, stream.log).encode_lead_ins()
    return [past.contexts for past in stream.history], stream.log


@torch.inference_mode()
def sample_offsets(history: History) -> SampleOffsets:
    """Norms of every offset that the requests show, token by token."""
    facts: list[tuple[int, int, int, int]] = []  # agent, sample, part, tokens
    keys, values = [], []
    for number, contexts in enumerate(history):
        for context in contexts:
            agent = context.prompt.agent
            for sample in context.samples.values():
                offsets = sample.offsets[agent]
                for part, offset in ((0, offsets.placeholder), *((1, f) for f in offsets.followers.values())):
                    facts.append((agent, number, part, offset.tokens))
                    keys.append(_token_norms(offset.keys))
                    values.append(_token_norms(offset.values))
    agent, number, part, tokens = np.array(facts, dtype=np.int64).T
    return SampleOffsets(
        agent=np.repeat(agent, tokens),
        sample=np.repeat(number, tokens),
        part=np.repeat(part, tokens),
        keys=to_numpy(torch.cat(keys, dim=1)),
        values=to_numpy(torch.cat(values, dim=1)),
    )


def _token_norms(x: Tensor) -> Tensor:
    """(layers, kv_heads, tokens, head_dim) to (layers, tokens)."""
    return x.float().square().sum(dim=(1, 3)).sqrt().cpu()
