"""Many simulated visitors against a real server: nothing fails unreported, nothing leaks, memory stays flat.

    python benchmarks/soak.py --visitors 100 --minutes 10 --json soak.json

Visitors come in bursts and waves. Each writes a text that nobody else has into its question, runs it, looks
at what comes, downloads its record, and sometimes cancels, uploads a record, closes its tab in the middle,
asks the judge, or runs a sweep over problems of its own and downloads the rows.
Every byte that a visitor gets, and in the end the server's log, is searched for the texts of the others.

A failure is an answer 500, an error that the lab did not expect, a hang, or a text in the wrong place. A
refusal with a sentence is none: it is counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from visitor import Answer, Page, RefusedError, Visitor

from backend.base.machine import versions

CANARY = re.compile(r"canary[0-9a-f]{16}")
SWEEP = """
name: {canary}
tasks: [{{pipeline: math-2, data: lines.jsonl, format: gsm8k}}]
methods: [dense, naive]
problems: 2
"""
LINES = """{{"question": "{canary} has 3 coins and finds 4. How many coins are there?", "answer": "#### 7"}}
{{"question": "{canary} has 5 coins and loses 2. How many coins are there?", "answer": "#### 3"}}
"""
ROWS_OF_SWEEP = 4
ROWS = re.compile(r"lab/sweep/[A-Za-z0-9_-]{20,}/(?:csv|yaml)")
RECORD = re.compile(r"lab/record/([A-Za-z0-9_-]{20,})")
WAIT = re.compile(r"Others have the model: [^<\"]*")
ERROR = re.compile(r"data-state=\\*\"error\\*\" role=\\*\"alert\\*\"><p>([^<]*)")
BESIDE = re.compile(r"kv-problem\\*\"[^>]*>([^<]*)")
UNEXPECTED = "The lab met an error that it did not expect"
GAUGE = re.compile(r"^kvlab_(\w+) ([0-9.e+]+)$", re.MULTILINE)
HELD = ("cached_bytes", "warm_up_bytes", "record_bytes")
# What visitors hold is limited, and a hundred of them need long to hold all that they will: what the process
# takes beside it has to stay. Runs under way take memory too, so it is compared while none is.
FLAT = 1.15  # the end may take this much more memory beside what is held than the middle
TRIMMED_S = 20.0  # the server gives freed pages back every 15 s


class Soak:
    """What all visitors share: the address, the clock, and what was counted."""

    def __init__(self, address: str, seed: int) -> None:
        self.address, self.ends, self.seed = address, float("inf"), seed
        self.count: Counter[str] = Counter()
        self.failed: list[str] = []
        self.refused: Counter[str] = Counter()
        self.waits: list[float] = []
        self.lasted: list[float] = []
        self.canaries: set[str] = set()
        self._guard = threading.Lock()
        with httpx.Client(base_url=address, timeout=120) as client:
            self.page = Page(client)

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.ends

    def note(self, what: str, many: int = 1) -> None:
        """Count something."""
        with self._guard:
            self.count[what] += many

    def fail(self, why: str) -> None:
        """Something that must not happen."""
        with self._guard:
            self.failed.append(why[:400])

    def visit(self, number: int) -> None:
        """One visitor after the other in the same chair, until the time is up."""
        rng = random.Random(f"{self.seed}:{number}")
        # Bursts: everybody at once, as when a link is shown on the wall; waves: the chairs fill one by one.
        self.sleep(rng.random() * 2 if number % 2 else rng.random() * 60)
        while not self.over:
            try:
                self.one_visitor(rng, f"127.0.1.{number % 250 + 1}")
            except RefusedError as error:
                self.count_refusal(f"{error.status} {error.message}", error.status)
                self.sleep(2 + 3 * rng.random())
            except (httpx.HTTPError, ValueError, KeyError) as error:
                self.fail(f"{type(error).__name__}: {error}")
                self.sleep(1)
            self.sleep(rng.expovariate(1 / 8))

    def sleep(self, seconds: float) -> None:
        """Pause, not past the end."""
        time.sleep(max(0.0, min(seconds, self.ends - time.monotonic())))

    def one_visitor(self, rng: random.Random, source: str) -> None:
        """One visitor from arriving to leaving; ``source``: their address."""
        canary = f"canary{secrets.token_hex(8)}"
        with self._guard:
            self.canaries.add(canary)
        transport = httpx.HTTPTransport(local_address=source)
        with httpx.Client(base_url=self.address, timeout=120, transport=transport) as client:
            visitor = Visitor(self.page, client)
            try:
                arrived = visitor.arrive()
                self.check(arrived, canary, "arrive")
                if ERROR.search(arrived.text):  # every place is taken: try again later
                    self.sleep(10 + 20 * rng.random())
                    return
                for _ in range(rng.randrange(1, 4)):
                    if self.over:
                        return
                    self.act(visitor, client, canary, rng)
                    self.sleep(rng.expovariate(1 / 5))
            finally:
                visitor.leave()
        self.note("visits")

    def act(self, visitor: Visitor, client: httpx.Client, canary: str, rng: random.Random) -> None:
        """One thing that a visitor does."""
        visitor.put("kv-value-0", f"Tess has {rng.randrange(90)} coins. {canary} How many coins has Tess?")
        # Half of them fill their pools as the page offers it, a few with another number of requests.
        visitor.put("kv-warm-first", rng.random() < 0.5)
        visitor.put("kv-warm-count", 20 if rng.random() < 0.9 else 3)
        visitor.put("kv-many-count", 2)
        kind = rng.choices(
            ("run", "leave", "cancel", "many", "forget", "sweep", "judge"), (12, 2, 2, 1, 1, 2, 1)
        )[0]
        if kind == "leave":  # in the middle of a run, or while waiting for one
            visitor.do("kv-run", until=lambda message: "process_generating" in message and rng.random() < 0.3)
            self.note("left in the middle")
            return
        if kind == "forget":
            self.check(visitor.do("kv-forget"), canary, kind)
            return
        if kind == "cancel":
            threading.Timer(rng.random() * 3, self.cancel, (visitor,)).start()
        if kind == "sweep":
            visitor.put("kv-sweep-yaml", SWEEP.format(canary=canary))
            visitor.put("kv-sweep-jsonl", LINES.format(canary=canary))
        if kind == "judge":
            visitor.put("kv-judge-question", f"{canary} has 3 coins and finds 4. How many coins are there?")
            visitor.put("kv-judge-text", ["3 + 4 = 8. The answer is 8", "3 + 4 = 7. The answer is 7"])
        button = {"many": "kv-many", "sweep": "kv-sweep-run", "judge": "kv-judge-run"}.get(kind, "kv-run")
        times: list[float] = []

        def watch(message: str) -> bool:
            waits = WAIT.search(message) is not None
            if (waits and not times) or (not waits and len(times) == 1 and "kv-status-running" in message):
                times.append(time.monotonic())
            return self.over  # visitors who still wait leave

        answer = visitor.do(button, until=watch)
        if answer.success is None and self.over:
            self.leak(answer.text, canary, kind)
            self.note("left at the end")
            return
        self.check(answer, canary, kind)
        if len(times) > 1:
            self.waits.append(times[1] - times[0])
            self.note("told waits")
        self.lasted.append(answer.seconds)
        for place in dict.fromkeys(ROWS.findall(answer.text)):
            got = client.get(f"/{place}")
            if got.status_code == 200:
                self.leak(got.text, canary, "rows")
                if not place.endswith("yaml") and got.text.count("\n") != 1 + ROWS_OF_SWEEP:
                    self.fail(f"rows: {got.text.count(chr(10)) - 1} in the file of a sweep")
                self.note("files of a sweep")
        for token in dict.fromkeys(RECORD.findall(answer.text)):
            got = client.get(f"/lab/record/{token}")
            if got.status_code == 200:
                self.record(got.content, canary)
                if rng.random() < 0.2:
                    self.open(visitor, client, got.content, canary)

    def cancel(self, visitor: Visitor) -> None:
        """Press Cancel in a second connection, as a browser would."""
        try:
            cookies = visitor.client.cookies
            with httpx.Client(base_url=self.address, timeout=120, cookies=cookies) as client:
                other = Visitor(self.page, client)
                other.tab = visitor.tab
                event = self.page.events[self.page.event("kv-cancel", "click")]
                data = [None if n == event["inputs"][0] else visitor.values[n] for n in event["inputs"]]
                body = {
                    "data": data,
                    "fn_index": event["id"],
                    "session_hash": visitor.tab,
                    "event_data": None,
                }
                client.post("/gradio_api/queue/join", json=body)
                self.note("cancelled")
        except httpx.HTTPError as error:
            self.fail(f"cancel: {error!r}")

    def record(self, content: bytes, canary: str) -> None:
        """A downloaded record holds nobody else's text."""
        import io
        import zipfile

        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            body = archive.read("record.json").decode()
        self.leak(body, canary, "record")
        self.note("records")

    def open(self, visitor: Visitor, client: httpx.Client, content: bytes, canary: str) -> None:
        """Upload a record again."""
        sent = client.post("/gradio_api/upload", files={"files": ("run.kvrun", content)})
        if sent.status_code != 200:
            self.count_refusal(f"{sent.status_code} {sent.text}", sent.status_code)
            return
        visitor.put(
            "kv-upload",
            {"path": sent.json()[0], "orig_name": "run.kvrun", "meta": {"_type": "gradio.FileData"}},
        )
        self.check(visitor.do("kv-upload", "upload"), canary, "upload")
        visitor.put("kv-upload", None)

    def check(self, answer: Answer, canary: str, what: str) -> None:
        """An answer is complete, has no unexpected error, and no text of another."""
        self.note(what)
        if answer.success is not True:
            self.fail(f"{what}: ended with {answer.messages[-1][:300] if answer.messages else 'nothing'}")
        if UNEXPECTED in answer.text or "Traceback" in answer.text:
            self.fail(f"{what}: {next(iter(ERROR.findall(answer.text)), UNEXPECTED)}")
        for message in dict.fromkeys(ERROR.findall(answer.text) + BESIDE.findall(answer.text)):
            if UNEXPECTED not in message:
                self.count_refusal(message, 200)
        self.leak(answer.text, canary, what)

    def count_refusal(self, message: str, status: int) -> None:
        """A refusal with a sentence; without one, or a broken server, it is a failure."""
        if status >= 500 and status not in (503, 507):
            self.fail(message)
        with self._guard:
            self.refused[re.sub(r"\d+", "#", message)[:160]] += 1

    def leak(self, text: str, canary: str, where: str) -> None:
        """Search for texts of other visitors."""
        others = set(CANARY.findall(text)) - {canary}
        if others:
            self.fail(f"LEAK in {where}: {len(others)} texts of other visitors")


def memory_mib(process: int) -> float:
    """Resident memory of a process."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Memory(NamedTuple):
    """The server at one moment: MiB, and counts."""

    seconds: float  # since the soak began
    resident: float
    allocated: float  # given out by the C library
    held: float  # for visits and for newcomers
    visits: int
    records: int
    under_way: int  # engine calls

    @property
    def beside(self) -> float:
        """What the process takes beside what is held, MiB."""
        return self.resident - self.held


def measure(address: str, process: int, began: float) -> Memory | None:
    """The server's memory now; None while it is too busy to answer."""
    try:
        told = httpx.get(f"{address}/metrics", timeout=30).text
    except httpx.HTTPError:
        return None
    gauges = {name: float(value) for name, value in GAUGE.findall(told)}
    held = sum(gauges[name] for name in HELD) / 2**20
    counts = (int(gauges[name]) for name in ("visits", "records", "under_way"))
    seconds = time.monotonic() - began
    return Memory(seconds, memory_mib(process), gauges["allocated_bytes"] / 2**20, held, *counts)


def at_rest(address: str, process: int, began: float, patience: float = 180.0) -> Memory | None:
    """The server's memory when no run is under way and freed pages are given back; None if it never is."""
    ends, quiet = time.monotonic() + patience, time.monotonic()
    while time.monotonic() < ends:
        now = measure(address, process, began)
        if now is None or now.under_way:
            quiet = time.monotonic()
        elif time.monotonic() - quiet >= TRIMMED_S:
            return now
        time.sleep(1)
    return None


def quarters(values: list[float]) -> tuple[float, float]:
    """Medians of the second quarter and of the last."""
    quarter = max(1, len(values) // 4)
    middle = lambda part: sorted(part)[len(part) // 2] if part else 0.0  # noqa: E731
    return middle(values[quarter : 2 * quarter]), middle(values[-quarter:])


def serve(log: Path, arguments: list[str]) -> tuple[subprocess.Popen[bytes], str]:
    """A server of its own on a free port, when it answers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from lab_app.cli.main import main; raise SystemExit(main())"]
    command += ["serve", "--port", str(port), "--offline", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    address = f"http://127.0.0.1:{port}"
    for _ in range(600):
        if process.poll() is not None:
            raise SystemExit(f"the server ended with {process.returncode}:\n{log.read_text()[-2000:]}")
        try:
            httpx.get(address, timeout=10)
            return process, address
        except httpx.TransportError:
            time.sleep(1)
    raise SystemExit("the server does not answer")


def main() -> int:
    """Run, report, and fail if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="where to write the report")
    parser.add_argument("serve", nargs="*", help="more for `kvlab serve`, behind --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "server.log"
        process, address = serve(log, args.serve)
        series: list[Memory] = []
        rests: list[Memory | None] = []
        began, stop = time.monotonic(), threading.Event()

        def watch() -> None:
            while not stop.is_set() and process.poll() is None:
                if now := measure(address, process.pid, began):
                    series.append(now)
                stop.wait(2)

        try:
            watcher = threading.Thread(target=watch)
            soak = Soak(address, args.seed)
            watcher.start()
            for half in range(2):
                soak.ends = time.monotonic() + args.minutes * 30
                with ThreadPoolExecutor(args.visitors) as chairs:
                    list(chairs.map(soak.visit, range(half * args.visitors, (half + 1) * args.visitors)))
                rests.append(at_rest(address, process.pid, began))
            if process.poll() is not None:
                soak.fail(f"the server ended with {process.returncode}")
            stop.set()
            watcher.join()
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
        written = log.read_text(errors="replace")
    leaked = soak.canaries & set(CANARY.findall(written))
    if leaked:
        soak.fail(f"LEAK in the log: {len(leaked)} texts")
    if "Traceback" in written:
        soak.fail("a traceback in the log: " + written[written.index("Traceback") :][:350])
    middle, end = rests
    if middle is None or end is None:
        soak.fail("the server did not come to rest")
    elif end.beside > middle.beside * FLAT:
        soak.fail(f"memory beside what is held grew from {middle.beside:.0f} to {end.beside:.0f} MiB")
    ordered = sorted(soak.waits)
    quantile = lambda q: ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else None  # noqa: E731
    report: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/soak.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "versions": versions(),
        "visitors": args.visitors, "minutes": args.minutes, "seed": args.seed,
        "counts": dict(soak.count), "refusals": dict(soak.refused), "failed": soak.failed,
        "waits_told": len(ordered),
        "wait_s": {"median": quantile(0.5), "p95": quantile(0.95), "longest": quantile(1)},
        "memory_at_rest_mib": [rest and rest._asdict() | {"beside": rest.beside} for rest in rests],
        "memory_beside_held_mib": quarters([now.beside for now in series]),
        "allocated_beside_held_mib": quarters([now.allocated - now.held for now in series]),
        "memory_series": [tuple(map(round, now)) for now in series],
        "canaries": len(soak.canaries),
    }  # fmt: skip
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in report.items() if key != "memory_series"}, indent=1))
    return 1 if soak.failed else 0


if __name__ == "__main__":
    sys.exit(main())
