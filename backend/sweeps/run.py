"""Run a sweep: what is missing in its file, shard by shard, with progress and time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from backend.events import Progress
from backend.sweeps.grid import Cell, Shard, Slot, shards_of, slots_of
from backend.sweeps.rows import Finished, Row
from backend.sweeps.runner import Memo, Runner
from backend.sweeps.spec import Sweep
from backend.sweeps.store import SweepStore

Spread = Callable[
    [Sequence[Shard], Collection[str], Memo, threading.Event | None], Iterator[Progress | Finished]
]


@dataclass(frozen=True)
class Count:
    """How far a sweep is. ``seconds_left`` is None until a row of this process is done."""

    done: int
    total: int
    seconds_left: float | None
    text: str = ""

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", {clock_time(self.seconds_left)} left"
        return f"{self.done:,} of {self.total:,} rows{left}" + (f"; {self.text}" if self.text else "")


@dataclass(frozen=True)
class SweepDone:
    """A sweep's rows with their places in the grid, in the order of the grid."""

    rows: tuple[tuple[Cell, str, Row], ...]
    cells: tuple[Cell, ...]


def run_sweep(
    sweep: Sweep,
    store: SweepStore,
    runner: Runner,
    *,
    cancel: threading.Event | None = None,
    facts: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    spread: Spread | None = None,
) -> Iterator[Count | SweepDone]:
    """Run what is missing, and write each problem's rows as it is done; ends with all rows.

    Args:
        runner: does the work (:class:`backend.sweeps.runner.ModelRunner`).
        cancel: ends it at its next step.
        facts: of this process, kept in the file: versions, the machine.
        spread: runs several shards at once (:class:`backend.sweeps.cluster.Cluster`); else one after the
            other.

    Raises:
        LabError: the sweep cannot be run, or the file cannot be written.
        RunCancelled: ``cancel`` was set; what was finished is in the file.
    """
    shards = shards_of(sweep)
    total = sum(1 for _ in slots_of(shards))
    store.began(sweep.name, sweep.source, facts or {})
    keys: set[str] = store.keys()
    mine: set[str] = set()  # this sweep's rows that are there
    began, fresh = clock(), 0

    def count(text: str = "") -> Count:
        left = (clock() - began) / fresh * (total - len(mine)) if fresh else None
        return Count(len(mine), total, left, text)

    placed: dict[str, Slot] = {}
    for _, group in groupby(shards, lambda shard: shard.cell.model):  # one model is loaded at a time
        waiting = []
        for shard in group:
            weights = runner.weights(shard)
            wanted = {s.key(weights): s for slots in shard.slots for s in slots}
            placed |= {key: s for key, s in wanted.items() if key not in placed}
            mine |= wanted.keys() & keys
            if wanted.keys() - keys:
                waiting.append(shard)
        yield count()
        for event in (spread or in_turn(runner))(waiting, keys, store.memo, cancel):
            if isinstance(event, Finished):
                store.add(event)
                new = {row.key for row in event.rows} - keys
                keys |= new
                mine |= new
                fresh += len(new)
                yield count()
            else:
                yield count(event.text)
    found = {row.key: row for row in store.rows(placed)}
    rows = tuple((s.cell, s.method, found[key]) for key, s in placed.items())
    yield SweepDone(rows, tuple(dict.fromkeys(cell for cell, _, _ in rows)))


def in_turn(runner: Runner) -> Spread:
    """One shard after the other."""

    def spread(
        shards: Sequence[Shard], done: Collection[str], memo: Memo, cancel: threading.Event | None
    ) -> Iterator[Progress | Finished]:
        for shard in shards:
            yield from runner.run(shard, done, memo, cancel)

    return spread


def clock_time(seconds: float) -> str:
    """``1:02:03``, or ``02:03`` under an hour."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return (f"{hours}:" if hours else "") + f"{rest // 60:02d}:{rest % 60:02d}"
