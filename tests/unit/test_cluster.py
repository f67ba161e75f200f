"""A sweep on Ray, started on this machine: every row once, also when a worker is killed."""

from __future__ import annotations

import builtins
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_sweep import FakeRunner

from backend.errors import LabError, OptionError
from backend.sweeps.cluster import Cluster, raised, ray_module, refused
from backend.sweeps.grid import Shard
from backend.sweeps.run import SweepDone, run_sweep
from backend.sweeps.spec import parse_sweep
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_a_killed_worker_costs_its_problem_in_flight(folder: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'kv-reuse-lab[ray]')")
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
        # An expected failure in a worker is one here.
        other = parse_sweep(SWEEP.replace("[0, 1, 2]", "[3]"), folder=folder)
        refusing = Cluster.__new__(Cluster)
        refusing.__dict__ = {**cluster.__dict__, "make": lambda: Mortal(folder, True), "idle": []}
        with pytest.raises(OptionError, match="Change it") as caught:
            list(run_sweep(other, store, refusing, spread=refusing.spread))
        assert caught.value.field == "tasks.1"


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
    back = raised(refused(OptionError("What. Do that.", field="a.b")))
    assert (type(back), str(back), back.field) == (OptionError, "What. Do that.", "a.b")
    assert type(raised(("Unheard", "x", None))) is LabError
