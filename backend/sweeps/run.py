"""Run a sweep: what is missing in its file, shard by shard, with progress and time left."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from backend.base.errors import OptionError
from backend.records.events import Progress
from backend.records.sweep import Baseline, Cell, Count
from backend.sweeps.grid import PlannedRow, Shard, planned_rows, shards_of
from backend.sweeps.rows import Finished, Row
from backend.sweeps.runner import Memo, Runner
from backend.sweeps.spec import Sweep
from backend.sweeps.store import SweepStore

Spread = Callable[
    [Sequence[Shard], Collection[str], Memo, threading.Event | None], Iterator[Progress | Finished]
]


@dataclass(frozen=True)
class SweepDone:
    """A sweep's rows with their places in the grid, in the order of the grid; ``complete``: all of them.

    ``against``: what its lines are compared with. With several ``warmups`` a line is over all of them.
    """

    rows: tuple[tuple[Cell, str, Row], ...]
    cells: tuple[Cell, ...]
    complete: bool = True
    against: tuple[Baseline, ...] = ()
    warmups: int = 1

    def line_cell(self, cell: Cell) -> Cell:
        """The cell that a line stands for: of several warm-ups, the first one's."""
        return replace(cell, seed=min(x.seed for x in self.cells)) if self.warmups > 1 else cell

    @property
    def line_cells(self) -> tuple[Cell, ...]:
        """The cells of its lines, each once."""
        return tuple(dict.fromkeys(map(self.line_cell, self.cells)))


def run_sweep(
    sweep: Sweep,
    store: SweepStore,
    runner: Runner,
    *,
    cancel: threading.Event | None = None,
    facts: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.monotonic,
    spread: Spread | None = None,
    look_seconds: float | None = None,
) -> Iterator[Count | SweepDone]:
    """Run what is missing, and write each problem's rows as it is done; ends with all rows.

    Args:
        runner: does the work (:class:`backend.sweeps.runner.ModelRunner`).
        cancel: ends it at its next step.
        facts: of this process, kept in the file: versions, the machine.
        spread: runs several shards at once (:class:`backend.sweeps.ray_cluster.Cluster`); else one after the
            other.
        look_seconds: also yield the rows so far, about so often.

    Raises:
        LabError: the sweep cannot be run, or the file cannot be written.
        RunCancelled: ``cancel`` was set; what was finished is in the file.
    """
    shards = shards_of(sweep)
    total = sum(1 for _ in planned_rows(shards))
    keys: set[str] = store.keys()
    own_keys: set[str] = set()  # this sweep's rows that are there
    began, fresh, noted = clock(), 0, False

    def count(text: str = "") -> Count:
        seconds_left = (clock() - began) / fresh * (total - len(own_keys)) if fresh else None
        return Count(len(own_keys), total, seconds_left, text)

    placed: dict[str, PlannedRow] = {}

    def result() -> SweepDone:
        by_key = {row.key: row for row in store.rows(own_keys)}
        rows = tuple((s.cell, s.method, by_key[key]) for key, s in placed.items() if key in by_key)
        cells = tuple(dict.fromkeys(cell for cell, _, _ in rows))
        return SweepDone(rows, cells, len(own_keys) == total, sweep.against, sweep.warmups)

    last_look = began
    for _, group in groupby(shards, lambda shard: shard.cell.model):  # one model is loaded at a time
        waiting = []
        for shard in group:
            weights = runner.weights(shard)
            store.note_weights(shard.models, weights)
            planned = {s.key(weights): s for unit in shard.units for s in unit}
            placed |= {key: s for key, s in planned.items() if key not in placed}
            own_keys |= planned.keys() & keys
            if planned.keys() - keys:
                waiting.append(shard)
        yield count()
        for event in (spread or in_turn(runner))(waiting, keys, store.memo, cancel):
            if isinstance(event, Finished):
                if not noted:  # a sweep that is only shown leaves its file as it is
                    store.note_run(sweep.name, sweep.source, facts or {})
                    noted = True
                store.add(event)
                new = {row.key for row in event.rows} - keys
                keys |= new
                own_keys |= new
                fresh += len(new)
                yield count()
                if look_seconds is not None and clock() - last_look >= look_seconds and len(own_keys) < total:
                    yield result()
                    last_look = clock()
            else:
                yield count(event.text)
    yield result()


class Recorded:
    """Runs nothing: the rows of a file as they are, under the weights with which it was last run. No model is
    loaded, so a model that changed since is not noticed."""

    def __init__(self, store: SweepStore) -> None:
        self.store = store

    def weights(self, shard: Shard) -> str:
        """See :class:`backend.sweeps.runner.Runner`.

        Raises:
            OptionError: the file never ran this model.
        """
        fingerprint = self.store.weights(shard.models)
        if fingerprint is None:
            raise OptionError(
                f"{self.store.path.name} does not say which weights {shard.models} has: it was not run on "
                "that, or by an earlier version alone. Run the sweep without --show.",
                field="show",
            )
        return fingerprint

    def run(
        self, shard: Shard, keys: Collection[str], memo: Memo, cancel: threading.Event | None
    ) -> Iterator[Progress | Finished]:
        """Nothing."""
        return iter(())


def in_turn(runner: Runner) -> Spread:
    """One shard after the other."""

    def spread(
        shards: Sequence[Shard], keys: Collection[str], memo: Memo, cancel: threading.Event | None
    ) -> Iterator[Progress | Finished]:
        for shard in shards:
            yield from runner.run(shard, keys, memo, cancel)

    return spread
