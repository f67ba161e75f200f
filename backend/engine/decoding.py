"""Decoding: rows of one caller, or of several who take turns, as one batch.

A caller that needs a token not computed yet runs one step for the whole batch; the other callers then find
their tokens computed. A row may join between any two steps, and leaves the batch when it has stopped.
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

SPARE = 2.0  # a batch may be so many times as large as its rows; the rest is padding
BESIDE_FAILED = (
    "A request that was decoded in one batch with this one has failed, and this one ended with it. Nothing "
    "is wrong with it: run it again."
)


@dataclass(frozen=True)
class Decoded:
    """What a row generated, and the KV of it."""

    ids: tuple[int, ...]  # without the stop token
    kv: KVSegment
    stopped: bool
    margins: tuple[float, ...]  # top-2 logit gap at each token, filled in ones and the stop token included
    logits: Tensor | None


@dataclass(eq=False)
class _Row:
    prefill: Prefill
    padding: int = 0
    token: int = 0  # picked last, not forwarded yet
    ids: list[int] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)
    fill: list[int] = field(default_factory=list)  # ids of a result that is still to be filled in
    stopped: bool = False
    answer: KVSegment | None = None
    going: bool = True


@dataclass(eq=False)
class _Caller:
    """Rows that were given together; they share length, noise and words."""

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
    """The rows that are decoded together now, by callers in one thread.

    Args:
        runner: forwards them.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self._runner = runner
        self._cache: KVCache | None = None
        self._logits: Tensor | None = None  # (rows, vocabulary), from which the next tokens are picked
        self._rows: list[tuple[_Caller, _Row]] = []  # as in these; those that have ended among them
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
        """See :meth:`backend.engine.engine.Engine.decode_steps`. Where other callers have computed several
        tokens since the last was told, the newest is told next."""
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
        """Whether nobody decodes."""
        return not (self._queue or self._rows)

    def fits(self, prefills: Sequence[Prefill]) -> bool:
        """Whether the batch with these rows too is at most ``SPARE`` times as large as its rows."""
        rows = [row for _, row in self._rows if row.going] + [row for c in self._queue for row in c.rows]
        lengths = [row.prefill.cache.length + len(row.ids) for row in rows]
        lengths += [prefill.cache.length for prefill in prefills]
        return len(lengths) * max(lengths, default=0) <= SPARE * sum(lengths)

    def _next(self, caller: _Caller) -> bool:
        """Whether there is a token that a caller has not been told; computed now if need be."""
        while caller.reported == caller.count and caller.going and caller.failure is None:
            self._step()
        if caller.failure is not None:
            raise caller.failure
        computed, caller.reported = caller.reported < caller.count, caller.count
        return computed

    def _leave(self, caller: _Caller) -> None:
        """Forget a caller, also one in the middle of its answers."""
        if caller in self._queue:
            self._queue.remove(caller)
        for row in caller.rows:
            row.going = False
        if not any(row.going for _, row in self._rows):
            self._rows, self._cache, self._logits = [], None, None

    def _step(self) -> None:
        """One token more for every row that goes on."""
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
        """Copy the rows that go on, and those that come, into a batch of their own."""
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
        """Forward every row's last token; at its length limit a row gets the KV of it and ends."""
        assert self._cache is not None
        tokens = self._runner.ids([row.token for _, row in self._rows]).reshape(-1, 1)
        # A row that has ended looks at itself alone, at the first place: the others' may lie behind the
        # context that it was checked for.
        padding = [row.padding if row.going else self._cache.length for _, row in self._rows]
        self._logits = self._runner.forward(tokens, self._cache, padding=padding)[:, -1]
        for place, (caller, row) in enumerate(self._rows):
            if row.going and len(row.margins) == caller.decoding.max_new_tokens:
                self._end(place, caller, row)

    def _pick(self) -> None:
        """Take every row's next token."""
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
        # Both in one answer of the device: each costs a wait. Ids are small enough for exact floats.
        gaps, tokens = torch.stack([top.values[:, 0] - top.values[:, 1], picks.float()]).tolist()
        for place, caller, row in active:
            if caller.keep_logits:  # a view keeps the logits of all
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
        """Take the KV of what a row generated."""
        assert self._cache is not None
        start = row.prefill.cache.length + row.padding
        row.going = False
        row.answer = self._cache.segment(
            start, start + len(row.ids), self._runner.model.rotation, exact=row.prefill.exact,
            context=caller.context, row=place, padding=row.padding,
        )  # fmt: skip

    def _fail(self, error: Exception) -> None:
        """Nobody's rows can be trusted after a step that ended in the middle: each caller is told."""
        callers = [*self._queue, *(caller for caller, row in self._rows if row.going)]
        self._rows, self._queue, self._cache, self._logits = [], [], None, None
        for caller in callers:
            caller.failure = MemoryError() if out_of_memory(error) else ModelError(BESIDE_FAILED)


def sample(logits: Tensor, decoding: Decoding, noise: torch.Generator) -> Tensor:
    """A token for each row, (rows,), from logits (rows, vocabulary). The noise is the same for every row, so
    rows with equal logits take equal tokens: a difference between methods is never luck."""
    scores = logits / decoding.temperature
    if decoding.top_p < 1:
        chances, order = scores.softmax(-1).sort(dim=-1, descending=True)
        beyond = chances.cumsum(-1) - chances >= decoding.top_p
        scores = scores.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)
    uniform = torch.rand(logits.shape[-1], generator=noise).clamp_min(1e-20).to(logits.device)
    return (scores - uniform.log().neg().log()).argmax(-1)
