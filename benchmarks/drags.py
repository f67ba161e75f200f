"""Drags of gamma, one visitor's and many at once: ``python benchmarks/drags.py [--visitors 20]``.

Everybody runs the page's scenario, then draws gamma of KVCOMM from 0.1 to 0.9 in 17 steps of 50 ms. As in a
browser, what moves while an answer is on its way is sent when it has come, and only the last of it. Reported
are the time to the first change on the page, the changes that came, and the time from the end of the drag to
its last state. Then every other control of KVCOMM is moved by itself, to a value that was not seen before.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from soak import serve
from visitor import Page, Visitor

from backend.base.machine import processor, versions
from backend.methods.registry import profile_options

STEPS, STEP_SECONDS = 17, 0.05
OPTION = "kv-option-kvcomm-"
GAMMA = f"{OPTION}gamma"
#: What each control of KVCOMM is set to, and back again; a profile sets many at once, as the browser does.
CONTROLS: dict[str, dict[str, Any]] = {
    "gamma": {"gamma": 0.9},
    "pool size": {"capacity": 3},
    "no placeholder offsets": {"placeholder_offset": False},
    "no prefix offsets": {"prefix_offset": False},
    "no rotation": {"rotate": False},
    "approximation": {"approximation": "nearest"},
    "temperature": {"temperature": 2.0},
    "top-k": {"top_k": 1},
    "profile as shipped": {
        name: value
        for name, value in profile_options("kvcomm", "shipped").items()
        if name not in ("gamma", "capacity")
    },
}


@dataclass(frozen=True)
class Drag:
    """One drag, in milliseconds: to the first change, from its end to its last state; and the changes."""

    first_ms: float
    settled_ms: float
    changes: int


def move(visitor: Visitor, page: Page, values: Mapping[str, Any]) -> list[float]:
    """Set controls of KVCOMM at once; when the page changed."""
    form = page.fields[GAMMA][0]
    [number] = [
        number
        for number, event in page.events.items()
        if [form, "input"] in event["targets"] and event["types"]["generator"]
    ]
    changes: list[float] = []

    def note_change(message: str) -> bool:
        if '"process_generating"' in message and "kv-agent" in message:
            changes.append(time.perf_counter())
        return False

    for name, value in values.items():
        visitor.put(f"{OPTION}{name}", value)
    answer = visitor.send(visitor.body(number), note_change)
    if not answer.success:
        raise SystemExit(f"a control was not answered: {answer.messages[-1][:300]}")
    return changes


def drag(visitor: Visitor, page: Page) -> Drag:
    """Draw the slider of gamma."""
    changes: list[float] = []
    began = time.perf_counter()
    at = -1
    while at < STEPS - 1:
        at = min(STEPS - 1, int((time.perf_counter() - began) / STEP_SECONDS))
        changes += move(visitor, page, {"gamma": round(0.1 + 0.8 * at / (STEPS - 1), 3)})
    if not changes:
        raise SystemExit("a drag changed nothing on the page")
    over = began + (STEPS - 1) * STEP_SECONDS
    return Drag(1e3 * (changes[0] - began), 1e3 * max(0.0, changes[-1] - over), len(changes))


@contextmanager
def visitor_after_run(address: str, page: Page, number: int = 0) -> Iterator[Visitor]:
    """A visitor with full pools and a run on the screen."""
    transport = httpx.HTTPTransport(local_address=f"127.0.2.{number + 1}")
    with httpx.Client(base_url=address, timeout=300, transport=transport) as client:
        visitor = Visitor(page, client)
        try:
            visitor.arrive()
            visitor.put("kv-warm-first", True)
            visitor.put("kv-warm-count", 20)
            answer = visitor.take("kv-run")
            if not answer.success:
                raise SystemExit(f"a run was not answered: {answer.messages[-1][:300]}")
            yield visitor
        finally:
            visitor.leave()


def controls(address: str, page: Page, times: int) -> dict[str, dict[str, float]]:
    """Every control moved away and back, each time after a run of its own, without earlier moves; medians
    of the milliseconds to the first change and to the last."""
    timings: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTROLS}
    for _ in range(times):
        with visitor_after_run(address, page) as visitor:
            form = visitor.values[page.fields[GAMMA][0]]
            usual = {
                name: form[page.fields[f"{OPTION}{name}"][1]] for each in CONTROLS.values() for name in each
            }
            move(visitor, page, {"gamma": 0.31})  # reads dense's caches again
            for name, values in CONTROLS.items():
                began = time.perf_counter()
                if not (changes := move(visitor, page, values)):
                    raise SystemExit(f"{name}: nothing changed on the page")
                timings[name].append((1e3 * (changes[0] - began), 1e3 * (changes[-1] - began)))
                move(visitor, page, {key: usual[key] for key in values})
    return {
        name: {
            "first_change_ms": round(statistics.median(first for first, _ in each), 1),
            "whole_ms": round(statistics.median(last for _, last in each), 1),
        }
        for name, each in timings.items()
    }


def drags(address: str, page: Page, visitors: int, times: int) -> list[Drag]:
    """So many drags of each visitor; all begin each at once."""
    ready = threading.Barrier(visitors)

    def repeat_drag(number: int) -> list[Drag]:
        with visitor_after_run(address, page, number) as visitor:
            results = []
            for _ in range(times):
                visitor.put(GAMMA, 0.3)
                ready.wait()
                results.append(drag(visitor, page))
            return results

    with ThreadPoolExecutor(visitors) as chairs:
        # the first of each visitor warms up
        return [each for series in chairs.map(repeat_drag, range(visitors)) for each in series[1:]]


def summary(results: list[Drag]) -> dict[str, Any]:
    """Medians, and the slowest."""
    return {
        "drags": len(results),
        "first_change_ms": round(statistics.median(d.first_ms for d in results), 1),
        "slowest_first_change_ms": round(max(d.first_ms for d in results), 1),
        "settled_ms": round(statistics.median(d.settled_ms for d in results), 1),
        "slowest_settled_ms": round(max(d.settled_ms for d in results), 1),
        "changes": statistics.median(d.changes for d in results),
    }


def main() -> int:
    """Serve, drag alone and together, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=20)
    parser.add_argument(
        "--times", type=int, default=4, help="drags of each, of which the first does not count"
    )
    parser.add_argument("--json", help="where to write the report")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        process, address = serve(Path(folder) / "server.log", [])
        try:
            with httpx.Client(base_url=address, timeout=120) as client:
                page = Page(client)
            by_control = controls(address, page, args.times)
            alone = summary(drags(address, page, 1, 3 * args.times))
            together = summary(drags(address, page, args.visitors, args.times))
        finally:
            process.terminate()
            process.wait(30)
    report = {
        "visitors": args.visitors,
        "controls": by_control,
        "alone": alone,
        "together": together,
        "first_change_ratio": round(together["first_change_ms"] / alone["first_change_ms"], 2),
        "processor": processor(),
        "python": platform.python_version(),
        "versions": versions(),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if args.json:
        Path(args.json).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
