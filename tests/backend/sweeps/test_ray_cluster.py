"""A sweep on Ray, started on this machine: every row once, also when a worker is killed."""

from __future__ import annotations

import builtins
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_sweep import FakeRunner

from backend.base.errors import LabError, OptionError, RunCancelled
from backend.sweeps.grid import Shard
from backend.sweeps.ray_cluster import Cluster, as_error, as_failure, ray_module
from backend.sweeps.read import parse_sweep
from backend.sweeps.run import SweepDone, run_sweep
from backend.sweeps.store import SweepStore

SWEEP = """
name: spread
tasks: [{pipeline: math-2, data: questions.jsonl, format: gsm8k}]
seeds: [0, 1, 2]
methods: [dense, naive]
problems: 6
"""


class Mortal(FakeRunner):
    """Writes down every problem that it begins, in a file that all workers share; the first worker that has
    begun three is killed. ``refusing``: it cannot run at all."""

    def __init__(self, folder: Path, refusing: bool = False) -> None:
        super().__init__()
        self.folder, self.refusing, self.count = folder, refusing, 0
        self.started = self.begin

    def begin(self, problem: int) -> None:
        with (self.folder / "begun").open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {problem}\n")
        self.count += 1
        if self.count == 3:
            try:
                (self.folder / "killed").touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def run(self, shard: Shard, *rest: Any) -> Iterator[Any]:
        if self.refusing:
            raise OptionError("This cannot run. Change it.", field="tasks.1")
        yield from super().run(shard, *rest)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = (json.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"}) for n in range(6))
    (tmp_path / "questions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_killed_worker_costs_its_problem_in_flight(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))  # workers import this file
    sweep = parse_sweep(SWEEP, folder=folder)
    with Cluster(lambda: Mortal(folder), workers=2) as cluster, SweepStore(folder / "s.sqlite") as store:
        *_, done = run_sweep(sweep, store, cluster, spread=cluster.spread)
        assert isinstance(done, SweepDone)
        assert len(done.rows) == len(store.keys()) == 3 * 6 * 2
        begun = [line.split() for line in (folder / "begun").read_text(encoding="utf-8").splitlines()]
        assert (folder / "killed").exists(), "a worker was killed"
        assert len({process for process, _ in begun}) >= 2, "and another went on"
        # What the killed one had yielded but not yet sent may be made again, and no more than that.
        assert 3 * 6 < len(begun) <= 3 * 6 + 3
        # The same sweep again finds everything in the file.
        list(run_sweep(sweep, store, cluster, spread=cluster.spread))
        assert len((folder / "begun").read_text(encoding="utf-8").splitlines()) == len(begun)


class Killed(BaseException):
    """What a stand-in's worker dies of."""


class Stream:
    """A stand-in's stream of events: each is handed out as what makes it."""

    def __init__(self, events: Iterator[Any]) -> None:
        self.events, self.over = events, False

    def __next__(self) -> Any:
        if self.over:
            raise StopIteration
        try:
            found = next(self.events)
        except Killed:
            self.over = True
            return InProcess.exceptions.RayActorError()
        return found


class InProcess:
    """As much of Ray as a cluster needs, in this process, so that its bookkeeping is tested without Ray."""

    class exceptions:  # noqa: N801
        class RayActorError(Exception):
            """A worker died."""

    def __init__(self, cpus: int = 2) -> None:
        self.cpus, self.began, self.killed, self.turn = cpus, 0, 0, 0

    def init(self, **_: Any) -> None: ...

    def shutdown(self) -> None: ...

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": float(self.cpus)}

    def remote(self, **_: Any) -> Any:
        def kind(cls: type) -> Any:
            def make(given: Any) -> Any:
                self.began += 1
                real = cls(given)

                def method(name: str) -> Any:
                    def call(*args: Any) -> Any:
                        found = getattr(real, name)(*args)
                        return Stream(found) if name == "run" else found

                    return SimpleNamespace(remote=call, options=lambda **_: SimpleNamespace(remote=call))

                return SimpleNamespace(weights=method("weights"), run=method("run"))

            return SimpleNamespace(remote=make)

        return kind

    def wait(self, streams: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        self.turn += 1
        return [streams[self.turn % len(streams)]], []

    def get(self, found: Any) -> Any:
        if isinstance(found, self.exceptions.RayActorError):
            raise found
        return found

    def kill(self, worker: Any) -> None:
        self.killed += 1


class Dying(Mortal):
    """Dies as a worker does, without ending this process; ``always``: on every shard's third problem."""

    always = False

    def begin(self, problem: int) -> None:
        self.count += 1
        with (self.folder / "begun").open("a", encoding="utf-8") as file:
            file.write(f"{problem}\n")
        if problem == 3 and (self.always or not (self.folder / "killed").exists()):
            (self.folder / "killed").touch()
            raise Killed


def cluster_of(monkeypatch: pytest.MonkeyPatch, make: Any, ray: InProcess) -> Cluster:
    monkeypatch.setattr("backend.sweeps.ray_cluster.ray_module", lambda: ray)
    return Cluster(make)


def test_what_a_dead_worker_had_sent_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sweep, ray = parse_sweep(SWEEP, folder=folder), InProcess()
    cluster = cluster_of(monkeypatch, lambda: Dying(folder), ray)
    with cluster, SweepStore(folder / "s.sqlite") as store:
        *counts, done = run_sweep(sweep, store, cluster, spread=cluster.spread)
        assert isinstance(done, SweepDone)
        assert len(done.rows) == len(store.keys()) == 3 * 6 * 2
    begun = (folder / "begun").read_text(encoding="utf-8").split()
    assert len(begun) == 3 * 6 + 1, "the problem in flight is made again, and no other"
    assert ray.began == 3, "two workers, and one for the dead one"
    assert any("worker died" in str(count) for count in counts)
    assert ray.killed == 0


def test_a_shard_that_kills_every_worker_ends_the_sweep(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, ray = parse_sweep(SWEEP, folder=folder), InProcess()
    monkeypatch.setattr(Dying, "always", True)
    cluster = cluster_of(monkeypatch, lambda: Dying(folder), ray)
    with (
        cluster,
        SweepStore(folder / "s.sqlite") as store,
        pytest.raises(LabError, match="Workers died 3 times on"),
    ):
        list(run_sweep(sweep, store, cluster, spread=cluster.spread))


def test_a_refusal_and_a_cancelled_sweep_end_the_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep, ray, cancel = parse_sweep(SWEEP, folder=folder), InProcess(), threading.Event()
    refusing = cluster_of(monkeypatch, lambda: Mortal(folder, refusing=True), ray)
    with SweepStore(folder / "s.sqlite") as store:
        with pytest.raises(OptionError, match="Change it") as caught:
            list(run_sweep(sweep, store, refusing, spread=refusing.spread))
        assert caught.value.field == "tasks.1"
        assert ray.killed == 2
        (folder / "killed").touch()
        going = cluster_of(monkeypatch, lambda: Dying(folder), ray)
        events = run_sweep(sweep, store, going, spread=going.spread, cancel=cancel)
        for _ in range(4):
            next(events)
        cancel.set()
        with pytest.raises(RunCancelled):
            list(events)
        assert 0 < len(store.keys()) < 3 * 6 * 2
        assert ray.killed == 4


def test_without_ray_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def none(name: str, *rest: Any, **more: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", none)
    with pytest.raises(OptionError, match=r"kv-reuse-lab\[ray\]"):
        ray_module()


def test_failures_travel_as_data() -> None:
    back = as_error(as_failure(OptionError("What. Do that.", field="a.b")))
    assert (type(back), str(back), back.field) == (OptionError, "What. Do that.", "a.b")
    assert type(as_error(("Unheard", "x", None))) is LabError
