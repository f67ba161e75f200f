"""A sweep whose problems cost nothing, and a program that kills it at random times.

``python fake_sweep.py FILE.sqlite SEED`` runs a sweep of 2,000 rows in child processes, kills the first three
with SIGKILL somewhere inside, lets the fourth finish, and prints what happened as JSON. The children are
forks, so that what they need is imported once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from backend.records.events import Progress
from backend.sweeps.grid import PlannedRow, Shard
from backend.sweeps.read import parse_sweep
from backend.sweeps.rows import Finished, Row
from backend.sweeps.run import run_sweep
from backend.sweeps.store import SweepStore

SWEEP = """
name: fake
tasks: [{pipeline: math-2, data: questions.jsonl, format: gsm8k}]
seeds: [0, 1]
methods: [dense, naive, kvcomm, "kvcomm:gamma=0.5"]
problems: 250
"""


def row(slot: PlannedRow, weights: str = "fake", **changes: Any) -> Row:
    """A made-up row for a place in the grid."""
    cell = slot.cell
    facts: dict[str, Any] = {
        "key": slot.key(weights), "task": cell.task, "model": cell.model, "mode": cell.mode,
        "request_order": cell.request_order, "seed": cell.seed, "judge_order": cell.judge_order,
        "max_new_tokens": 96, "temperature": 0.0, "problem": slot.problem, "method": slot.method,
        "request": f"problem {slot.problem}", "expected": "1",
        "answer": "1", "correct": True, "score": 1.0, "as_dense": True, "selection_right": None,
        "state": "reused", "agents": 3, "agents_reused": 2, "blocks": 4, "blocks_reused": 3,
        "prompt_tokens": 100, "reused_tokens": 60, "ttft_ms": 2.0, "total_ttft_ms": 5.0,
    }  # fmt: skip
    return Row(**(facts | changes))


class FakeRunner:
    """Makes rows up; ``started`` and ``finished`` hear of every problem (finished: it is in the file)."""

    def __init__(self, weights: str = "fake") -> None:
        self.name = weights
        self.started: Callable[[int], None] = lambda problem: None
        self.finished: Callable[[int], None] = lambda problem: None

    def weights(self, shard: Shard) -> str:
        return self.name

    def run(
        self,
        shard: Shard,
        keys: Collection[str],
        memo: Callable[[str], Any],
        cancel: threading.Event | None,
    ) -> Iterator[Progress | Finished]:
        for slots in shard.units:
            if all(slot.key(self.name) in keys for slot in slots):
                continue
            self.started(slots[0].problem)
            yield Finished(slots[0].key(self.name), tuple(row(slot, self.name) for slot in slots))
            self.finished(slots[0].problem)


def child(path: Path, pipe: int) -> None:
    """Run the sweep to its end; one byte into the pipe for each problem begun (s) and written (f)."""
    runner = FakeRunner()
    runner.started = lambda _: void(os.write(pipe, b"s"))
    runner.finished = lambda _: void(os.write(pipe, b"f"))
    with SweepStore(path) as store:
        for _ in run_sweep(parse_sweep(SWEEP, folder=path.parent), store, runner):
            pass


def void(_: object) -> None:
    return None


def attempt(path: Path, stop_after: int | None) -> dict[str, Any]:
    """One child; with ``stop_after`` it is killed once it has begun and written so many times."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        child(path, writing)
        os._exit(0)
    os.close(writing)
    heard = bytearray()
    while part := os.read(reading, 1):
        heard += part
        if len(heard) == stop_after:
            os.kill(pid, signal.SIGKILL)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    with SweepStore(path) as store:
        rows = len(store.keys())
    return {
        "killed": os.WIFSIGNALED(status), "begun": heard.count(b"s"), "written": heard.count(b"f"), "rows":
    rows, }  # fmt: skip


if __name__ == "__main__":
    file, rng = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
    lines = (json.dumps({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"}) for n in range(250))
    (file.parent / "questions.jsonl").write_text("\n".join(lines), encoding="utf-8")
    print(json.dumps([*(attempt(file, rng.randint(20, 200)) for _ in range(3)), attempt(file, None)]))
