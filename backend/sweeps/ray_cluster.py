"""A sweep's shards on Ray: many at once, on this machine or on a cluster.

Every worker is a process with a runner of its own; only the process that started the sweep writes to the
file. A worker sends each problem's rows as soon as they are computed. When a worker dies, what it had sent is
in the file; its shard goes to a new worker with the keys of those rows, so only the problem in flight is
lost. Keys are hashes of what decides a row, and the file keeps one row for each: a shard that runs twice only
costs time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from backend.base import errors
from backend.base.cancel import stop_if
from backend.base.errors import LabError, OptionError
from backend.records.events import Progress
from backend.sweeps.grid import Shard
from backend.sweeps.rows import Finished
from backend.sweeps.runner import Memo, Runner, unit_of

WAIT_SECONDS = 0.5  # between two looks at whether the sweep was cancelled
MOST_DEATHS = 3  # of workers on one shard, before the sweep is given up


def ray_module() -> Any:
    """Ray, which is an extra.

    Raises:
        OptionError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
    try:
        import ray
    except ImportError:
        raise OptionError(
            "--ray needs Ray, which is not installed. Install it (pip install 'kv-reuse-lab[ray]'), or leave "
            "--ray out: the same sweep then runs in this process.",
            field="ray",
        ) from None
    return ray


class Worker:
    """What lives in a worker's process. Expected failures travel as data: not every exception can be sent."""

    def __init__(self, make: Callable[[], Runner]) -> None:
        self.runner = make()

    def weights(self, shard: Shard) -> str | Failure:
        """See :class:`backend.sweeps.runner.Runner`."""
        try:
            return self.runner.weights(shard)
        except LabError as error:
            return as_failure(error)

    def run(
        self, shard: Shard, keys: Collection[str], memos: dict[str, Any]
    ) -> Iterator[Progress | Finished | Failure]:
        """See :class:`backend.sweeps.runner.Runner`."""
        try:
            yield from self.runner.run(shard, keys, memos.get, None)
        except LabError as error:
            yield as_failure(error)


Failure = tuple[str, str, str | None]  # the error's class, its message and its field


def as_failure(error: LabError) -> Failure:
    """An expected failure as data."""
    return type(error).__name__, str(error), error.field


def as_error(failure: Failure) -> LabError:
    """The failure again."""
    kind = getattr(errors, failure[0], LabError)
    return kind(failure[1], field=failure[2])


class Cluster:
    """Runs shards on Ray; use it with ``with``. Both a runner and the ``spread`` of a sweep.

    Args:
        make: makes a worker's runner, in the worker.
        workers: how many at once; as many as Ray finds processors, or GPUs, when absent.
        address: of a running cluster; a local one is started when empty.
        gpus: that each worker takes for itself.

    Raises:
        OptionError: Ray is not installed, or there is no cluster at the address.
    """

    def __init__(
        self, make: Callable[[], Runner], *, workers: int | None = None, address: str = "", gpus: int = 0
    ) -> None:
        self.ray, self.make, self.gpus = ray_module(), make, gpus
        if workers is not None and not 1 <= workers <= 10_000:
            raise OptionError(
                f"--workers is {workers}; allowed are 1 to 10,000. Choose a number in that range.",
                field="workers",
            )
        where: dict[str, Any] = {"address": address} if address else {"address": "local", "num_cpus": workers}
        if not address:
            where["include_dashboard"] = False
        try:
            self.ray.init(log_to_driver=False, configure_logging=False, **where)
        except Exception as error:  # Ray raises bare exceptions where it cannot start
            message = " ".join(str(error).split())[:160]
            if address:
                raise OptionError(
                    f"There is no Ray cluster at {address!r} ({message}). Give the address of one that runs, "
                    "or --ray alone to start one on this machine.",
                    field="ray",
                ) from None
            raise LabError(
                f"Ray could not be started on this machine ({message}). Its processes have to answer "
                "within seconds: on a busy machine try again, or leave --ray out.",
                field="ray",
            ) from None
        kind = "GPU" if gpus else "CPU"
        available = int(self.ray.cluster_resources().get(kind, 0)) // max(1, gpus)
        if not available:
            self.ray.shutdown()
            raise OptionError(f"This Ray cluster has no {kind} for a worker.", field="ray")
        self.workers = min(workers or available, available)
        self.idle: list[Any] = []
        self.fingerprints: dict[tuple[str, str], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ray.shutdown()

    def worker(self) -> Any:
        """One that is free, a new one if need be."""
        if self.idle:
            return self.idle.pop()
        kind = self.ray.remote(num_cpus=1, num_gpus=self.gpus, max_restarts=0)(Worker)
        return kind.remote(self.make)

    def weights(self, shard: Shard) -> str:
        """Identity of what computes a shard's rows, as a worker says; asked once for each model."""
        key = (shard.cell.model, shard.judge.agents if shard.judge else "")
        if key not in self.fingerprints:
            worker = self.worker()
            fingerprint = self.ray.get(worker.weights.remote(shard))
            self.idle.append(worker)
            if not isinstance(fingerprint, str):
                raise as_error(fingerprint)
            self.fingerprints[key] = fingerprint
        return self.fingerprints[key]

    def run(
        self, shard: Shard, keys: Collection[str], memo: Memo, cancel: threading.Event | None
    ) -> Iterator[Progress | Finished]:
        """One shard."""
        yield from self.spread([shard], keys, memo, cancel)

    def spread(
        self, shards: Sequence[Shard], keys: Collection[str], memo: Memo, cancel: threading.Event | None
    ) -> Iterator[Progress | Finished]:
        """Several shards at once, events as they come.

        Raises:
            LabError: a shard cannot be run, or workers die of it.
            RunCancelled: ``cancel`` was set; the workers are ended.
        """
        waiting = deque(shards)
        deaths: dict[int, int] = {}
        streams: dict[Any, tuple[Any, Shard]] = {}  # a shard's stream of events: its worker and itself
        try:
            while waiting or streams:
                while waiting and len(streams) < self.workers:
                    shard, worker = waiting.popleft(), self.worker()
                    weights = self.weights(shard)
                    units = [unit_of(slots, weights) for slots in shard.units]
                    memos = {unit: memo(unit) for unit in units}
                    stream = worker.run.options(num_returns="streaming").remote(
                        shard, frozenset(keys), {unit: content for unit, content in memos.items() if content}
                    )
                    streams[stream] = worker, shard
                ready, _ = self.ray.wait(list(streams), num_returns=1, timeout=WAIT_SECONDS)
                stop_if(cancel)
                for stream in ready:
                    worker, shard = streams[stream]
                    try:
                        event = self.ray.get(next(stream))
                    except StopIteration:
                        self.idle.append(streams.pop(stream)[0])
                    except self.ray.exceptions.RayActorError:
                        del streams[stream]
                        deaths[id(shard)] = deaths.get(id(shard), 0) + 1
                        if deaths[id(shard)] >= MOST_DEATHS:
                            raise LabError(
                                f"Workers died {MOST_DEATHS} times on {shard.cell.task}, most likely because "
                                "memory ran out. Ask for fewer at once with --workers, or lower budget_mb."
                            ) from None
                        waiting.append(shard)
                        yield Progress(f"A worker died; {shard.cell.task} goes on in another", 0, 1)
                    else:
                        if isinstance(event, tuple):
                            raise as_error(event)
                        yield event
        finally:
            for worker, _ in streams.values():
                self.ray.kill(worker)
