"""Decoding the rows of one or several callers as one batch.

A caller that needs its next token runs one step for the whole batch; the other callers then find their tokens
computed. Rows may join between any two steps, and leave the batch when they have stopped.
"""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from backend.base.errors import ModelError
from backend.cache.kv_cache import KVCache, KVSegment
from backend.cache.memory_budget import out_of_memory
from backend.engine.prefill import Prefill
from backend.engine.runner import ModelRunner
from backend.records.request import Decoding

SPARE = 2.0  # a batch may have so many times the places of its rows; the rest is padding
BESIDE_FAILED = (
    "A request that was decoded in one batch with this one has failed, and this one ended with it. Nothing "
    "is wrong with it: run it again."
)


@dataclass(frozen=True)
class Decoded:
    """What a row generated, and its KV."""

    ids: tuple[int, ...]  # without the stop token
    kv: KVSegment
    stopped: bool
    margins: tuple[float, ...]  # top-2 logit gap at each token, including filled-in and stop tokens
    logits: Tensor | None


@dataclass(eq=False)
class _Row:
    prefill: Prefill
    padding: int = 0
    token: int = 0  # the newest, not forwarded yet
    ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    fill: list[int] = field(default_factory=list)  # ids of a result still to be filled in
    stopped: bool = False
    answer: KVSegment | None = None
    going: bool = True


@dataclass(eq=False)
class _Caller:
    """The rows of one call; they share length limit, noise and context."""

    rows: list[_Row]
    decoding: Decoding
    context: str
    keep_logits: bool
    noise: torch.Generator
    count: int = 0  # tokens so far
    reported: int = 0
    failure: Exception | None = None

    @property
    def going(self) -> bool:
        return any(row.going for row in self.rows)


class DecodeBatch:
    """The rows that are decoded together, for callers in one thread.

    Args:
        runner: forwards the rows.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._cache: KVCache | None = None
        self._logits: Tensor | None = None  # (rows, vocabulary), for the next tokens
        self._rows: list[tuple[_Caller, _Row]] = []  # in the order of the batch, including ended rows
        self._queue: list[_Caller] = []
        self._stops = runner.stop_ids()

    def steps(
        self,
        prefills: Sequence[Prefill],
        decoding: Decoding,
        *,
        context: str = "",
        keep_logits: bool = False,
        wait: bool = False,
    ) -> Generator[list[list[int]], None, list[Decoded]]:
        """See :meth:`backend.engine.engine.Engine.decode_steps`. If other callers' steps computed several
        tokens since the last yield, they are yielded together."""
        noise = torch.Generator().manual_seed(decoding.seed)
        rows = [_Row(prefill) for prefill in prefills]
        caller = _Caller(rows, decoding, context, keep_logits, noise)
        self._queue.append(caller)
        try:
            if wait:
                yield [row.ids for row in rows]
            while self._next(caller):
                yield [row.ids for row in rows]
        finally:
            self._leave(caller)
        return [
            Decoded(
                tuple(row.ids), row.answer, row.stopped, tuple(row.margins),
                torch.stack(row.logits) if keep_logits else None,
            )
            for row in rows
            if row.answer is not None
        ]  # fmt: skip

    @property
    def idle(self) -> bool:
        """Whether there is nothing to decode."""
        return not (self._queue or self._rows)

    def fits(self, prefills: Sequence[Prefill]) -> bool:
        """Whether the batch with these rows has at most ``SPARE`` times the places of its rows."""
        rows = [row for _, row in self._rows if row.going] + [row for c in self._queue for row in c.rows]
        lengths = [row.prefill.cache.length + len(row.ids) for row in rows]
        lengths += [prefill.cache.length for prefill in prefills]
        return len(lengths) * max(lengths, default=0) <= SPARE * sum(lengths)

    def _next(self, caller: _Caller) -> bool:
        """Whether a caller has a new token; runs steps until it has one or ends."""
        while caller.reported == caller.count and caller.going and caller.failure is None:
            self._step()
        if caller.failure is not None:
            raise caller.failure
        computed, caller.reported = caller.reported < caller.count, caller.count
        return computed

    def _leave(self, caller: _Caller) -> None:
        """Drop a caller, also one whose rows have not ended."""
        if caller in self._queue:
            self._queue.remove(caller)
        for row in caller.rows:
            row.going = False
        if not any(row.going for _, row in self._rows):
            self._rows, self._cache, self._logits = [], None, None

    def _step(self) -> None:
        """Compute one token for every active row."""
        try:
            active = sum(row.going for _, row in self._rows)
            if 2 * active <= len(self._rows):  # costs about one step
                self._gather(())
            if active:
                self._forward()
            if self._queue:
                queue, self._queue = self._queue, []
                self._gather(queue)
            self._pick()
        except Exception as error:
            self._fail(error)
            raise

    def _gather(self, queue: Sequence[_Caller]) -> None:
        """Copy the active rows and those of the queue into a new batch."""
        places = [place for place, (_, row) in enumerate(self._rows) if row.going]
        rows = [(caller, row) for caller in queue for row in caller.rows]
        parts, logits = (
            [(row.prefill.cache, 0, 0) for _, row in rows],
            [row.prefill.logits for _, row in rows],
        )
        if places:
            assert self._cache is not None
            assert self._logits is not None
            parts = [(self._cache, place, self._rows[place][1].padding) for place in places] + parts
            logits = [*self._logits[places], *logits]
        self._rows = [self._rows[place] for place in places] + rows
        self._cache, self._logits = None, None
        if parts:
            lengths = [caller.decoding.max_new_tokens - len(row.margins) + 1 for caller, row in self._rows]
            self._cache, padding = KVCache.gather(parts, max(lengths))
            self._logits = torch.stack(logits)
            for (_, row), pad in zip(self._rows, padding, strict=True):
                row.padding = pad

    def _forward(self) -> None:
        """Forward every row's last token; a row at its length limit then ends, with its last KV computed."""
        assert self._cache is not None
        tokens = self._runner.ids([row.token for _, row in self._rows]).reshape(-1, 1)
        # An ended row attends to itself alone, at position 0: the batch may be longer than the context that
        # the row was checked for.
        padding = [row.padding if row.going else self._cache.length for _, row in self._rows]
        self._logits = self._runner.forward(tokens, self._cache, padding=padding)[:, -1]
        for place, (caller, row) in enumerate(self._rows):
            if row.going and len(row.margins) == caller.decoding.max_new_tokens:
                self._end(place, caller, row)

    def _pick(self) -> None:
        """Pick every active row's next token."""
        active = [(place, *pair) for place, pair in enumerate(self._rows) if pair[1].going]
        if not active:
            return
        assert self._logits is not None
        top = self._logits.topk(2, dim=-1)
        picks = top.indices[:, 0]
        for caller in dict.fromkeys(caller for _, caller, _ in active):
            places = [place for place, owner, _ in active if owner is caller]
            if caller.decoding.temperature > 0:
                picks[places] = sample(self._logits[places], caller.decoding, caller.noise)
            caller.count += 1
        single = len({id(caller) for _, caller, _ in active}) == 1
        # One transfer for both, since each waits for the device. Ids are small enough for exact floats.
        gaps, tokens = torch.stack([top.values[:, 0] - top.values[:, 1], picks.float()]).tolist()
        for place, caller, row in active:
            if caller.keep_logits:  # a view would keep all rows' logits alive
                row.logits.append(self._logits[place] if single else self._logits[place].clone())
            row.margins.append(gaps[place])
            row.token = row.fill.pop(0) if row.fill else int(tokens[place])
            if row.token in self._stops:
                row.stopped = True
                self._end(place, caller, row)
            else:
                row.ids.append(row.token)
                if not row.fill:
                    row.fill = list(self._runner.model.tokens.filled_after(row.ids))

    def _end(self, place: int, caller: _Caller, row: _Row) -> None:
        """End a row: copy the KV of its answer."""
        assert self._cache is not None
        start = row.prefill.cache.length + row.padding
        row.going = False
        row.answer = self._cache.segment(
            start, start + len(row.ids), self._runner.model.rotation, exact=row.prefill.exact,
            context=caller.context, row=place, padding=row.padding,
        )  # fmt: skip

    def _fail(self, error: Exception) -> None:
        """Fail every caller: after a step that broke off, no row is reliable."""
        callers = [*self._queue, *(caller for caller, row in self._rows if row.going)]
        self._rows, self._queue, self._cache, self._logits = [], [], None, None
        for caller in callers:
            caller.failure = MemoryError() if out_of_memory(error) else ModelError(BESIDE_FAILED)


def sample(logits: Tensor, decoding: Decoding, noise: torch.Generator) -> Tensor:
    """A token for each row, (rows,), from logits (rows, vocabulary). The noise is the same for every row, so
    rows with equal logits get equal tokens, and methods never differ by chance."""
    scores = logits / decoding.temperature
    if decoding.top_p < 1:
        chances, order = scores.softmax(-1).sort(dim=-1, descending=True)
        beyond = chances.cumsum(-1) - chances >= decoding.top_p
        scores = scores.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)
    uniform = torch.rand(logits.shape[-1], generator=noise).clamp_min(1e-20).to(logits.device)
    return (scores - uniform.log().neg().log()).argmax(-1)
