"""Attacks of strangers on a server of its own, beside a few honest visitors: how long do these wait?

    python benchmarks/siege.py --seconds 60 --json siege.json

Each attack goes on for its share of the time, up to a number of tries, from an address of its own of this
machine (127.0.0.2 and on); nothing else is attacked. Twenty honest visitors open the page, run the scenario
and leave, and somebody asks for the server's health twice a second. They come one after the other, a second
apart, before the first attack: the cost of so many at once is no attack's effect, and is reported by itself.
A failure is a visitor or a health check that got no good answer.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from soak import memory_mib, serve
from visitor import Page, RefusedError, Visitor

from backend.base.machine import versions

#: Prints seconds and status of health checks.
ASKS = """
import sys, time, httpx
with httpx.Client(base_url=sys.argv[1], timeout=60) as client:
    while True:
        began = time.monotonic()
        try:
            said = client.get("/healthz").status_code
        except httpx.HTTPError as error:
            said = type(error).__name__
        print(time.monotonic() - began, said, flush=True)
        time.sleep(0.5)
"""
APART = 1.0  # seconds between the first honest visitors
CALM = "nobody attacks yet"
PATIENCE = 240.0  # seconds that an honest visitor waits at most
HANDS = 8  # connections that an attack uses side by side
OPEN = 200  # connections that an attack keeps open


def unfolding(mib: int = 250) -> bytes:
    """A file of 250 kB that is called a record, with ``mib`` MiB of brackets in it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("record.json", b"[" + b"[]," * ((mib << 20) // 3) + b"0]")
    return out.getvalue()


class Siege:
    """What attackers and visitors share: the address, the clock, and what was counted."""

    def __init__(self, address: str, page: Page) -> None:
        self.address, self.page = address, page
        self.where = (urlsplit(address).hostname, urlsplit(address).port)
        self.over = threading.Event()
        self.answers: dict[str, Counter[str]] = {}
        self.failed: list[str] = []
        self.healths: list[tuple[str, float]] = []  # under which attack, and seconds
        self.under = CALM
        self.runs: list[float] = []
        self._guard = threading.Lock()

    # -- honest ---------------------------------------------------------------------------------------------

    def health(self) -> None:
        """Ask for the server's health, twice a second, from a process that does nothing else."""
        asking = [sys.executable, "-c", ASKS, self.address]
        with subprocess.Popen(asking, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                seconds, answer = line.split(maxsplit=1)
                self.healths.append((self.under, float(seconds)))
                if answer.strip() != "200":
                    self.failed.append(f"health: {answer.strip()}"[:300])
                if self.over.is_set():
                    process.kill()

    def visitor(self) -> None:
        """One visitor after the other."""
        while not self.over.wait(1):
            began = time.monotonic()
            self.honest(self.one_visit, "visit")
            self.runs.append(time.monotonic() - began)

    def one_visit(self) -> None:
        """Open the page, run, leave.

        Raises:
            ValueError: the answer holds no result.
        """
        with httpx.Client(base_url=self.address, timeout=PATIENCE) as client:
            visitor = Visitor(self.page, client)
            try:
                visitor.arrive()
                visitor.put("kv-warm-first", False)
                if "kv-compare" not in visitor.do("kv-run").text and not self.over.is_set():
                    raise ValueError("a run without a result")
            finally:
                visitor.leave()

    def honest(self, work: Callable[[], object], what: str) -> None:
        """Do what a visitor does; whatever goes wrong is a failure."""
        try:
            work()
        except (RefusedError, httpx.HTTPError, ValueError, KeyError) as error:
            with self._guard:
                self.failed.append(f"{what}: {type(error).__name__}: {error}"[:300])

    # -- attackers ------------------------------------------------------------------------------------------

    def attack(self, number: int, seconds: float, most: int) -> None:
        """One kind of attack, from several connections, until its time or its tries are over."""
        kind = ATTACKS[number]
        self.under = kind.__name__
        answers = self.answers.setdefault(kind.__name__, Counter())
        ends, tries, guard = time.monotonic() + seconds, iter(range(most)), threading.Lock()
        source = f"127.0.0.{number + 2}"

        def hand(_: int) -> None:
            transport = httpx.HTTPTransport(local_address=source)
            with httpx.Client(base_url=self.address, timeout=30, transport=transport) as client:
                while time.monotonic() < ends:
                    with guard:
                        if next(tries, None) is None:
                            return
                    try:
                        answer = kind(self, Attacker(self, client, source, ends))
                    except RefusedError as error:
                        answer = str(error.status)
                    except (httpx.HTTPError, OSError) as error:
                        answer = type(error).__name__
                    with guard:
                        answers[answer] += 1

        with ThreadPoolExecutor(HANDS) as hands:
            list(hands.map(hand, range(HANDS)))


class Attacker:
    """One hand of an attack: a client, and plain sockets from the same address."""

    def __init__(self, siege: Siege, client: httpx.Client, source: str, ends: float) -> None:
        self.siege, self.client, self.source, self.ends = siege, client, source, ends

    def connect(self) -> socket.socket:
        """A connection that says nothing yet."""
        return socket.create_connection(self.siege.where, 10, (self.source, 0))

    def send(self, head: str, content: bytes = b"") -> socket.socket:
        """A connection on which a request was sent, as far as ``head`` goes."""
        connection = self.connect()
        connection.sendall(head.replace("\n", "\r\n").encode() + content)
        return connection

    def pause(self, seconds: float) -> None:
        """Wait, not past the end of the attack."""
        time.sleep(max(0.0, min(seconds, self.ends - time.monotonic())))


def status(connection: socket.socket) -> str:
    """The status of the answer on a connection."""
    with suppress(OSError):
        return connection.recv(64).decode(errors="replace").partition(" ")[2][:3] or "closed"
    return "closed"


def made_up_sessions(siege: Siege, by: Attacker) -> str:
    """Open the heartbeats of sessions that never were, many at once, and close them."""
    head = f"/gradio_api/heartbeat/{{}} HTTP/1.1\nHost: {_host(siege)}\n\n"
    connections = [by.send("GET " + head.format(secrets.token_hex(6))) for _ in range(OPEN // 4)]
    answers = Counter(map(status, connections))
    for connection in connections:
        connection.close()
    return " ".join(f"{many} x {what}" for what, many in sorted(answers.items()))


def made_up_calls(siege: Siege, by: Attacker) -> str:
    """Call the page under a name that nobody announced."""
    event = siege.page.events[siege.page.event("kv-forget", "click")]
    body = {
        "data": [None] * len(event["inputs"]),
        "fn_index": event["id"],
        "session_hash": secrets.token_hex(6),
    }
    return str(by.client.post("/gradio_api/queue/join", json=body).status_code)


def arrivals(siege: Siege, by: Attacker) -> str:
    """Open the page as a visitor does, and leave at once."""
    visitor = Visitor(siege.page, by.client)
    try:
        return str(visitor.arrive().success)
    finally:
        visitor.leave()


def unfolding_record(siege: Siege, by: Attacker) -> str:
    """Upload a small file that unpacks to 250 MiB, and open it as a record."""
    visitor = Visitor(siege.page, by.client)
    try:
        visitor.arrive()
        sent = by.client.post("/gradio_api/upload", files={"files": ("x.kvrun", BOMB)})
        if sent.status_code != 200:
            return str(sent.status_code)
        file = {"path": sent.json()[0], "orig_name": "x.kvrun", "meta": {"_type": "gradio.FileData"}}
        visitor.put("kv-upload", file)
        return "refused" if "kv-problem" in visitor.do("kv-upload", "upload").text else "taken"
    finally:
        visitor.leave()


def huge_bodies(siege: Siege, by: Attacker) -> str:
    """A call whose body is 8 MB of brackets."""
    body = b'{"session_hash": "abcdefgh", "fn_index": 0, "data": [' + b"[]," * 2_500_000 + b"0]}"
    sent = by.client.post(
        "/gradio_api/queue/join", content=body, headers={"Content-Type": "application/json"}
    )
    return str(sent.status_code)


def large_headers(siege: Siege, by: Attacker) -> str:
    """One header of 60 kB, and 60,000 headers."""
    answers = [str(by.client.get("/healthz", headers={"X-Large": "x" * 60_000}).status_code)]
    with by.send(f"GET /healthz HTTP/1.1\nHost: {_host(siege)}\n" + "a:\n" * 60_000 + "\n") as connection:
        answers.append(status(connection))
    return " ".join(answers)


def cancel_storm(siege: Siege, by: Attacker) -> str:
    """Cancel what is not there."""
    body = {"session_hash": secrets.token_hex(6), "fn_index": 0, "event_id": secrets.token_hex(16)}
    return str(by.client.post("/gradio_api/cancel", json=body).status_code)


def run_storm(siege: Siege, by: Attacker) -> str:
    """Open the page, press Run, and go at the first word of it."""
    visitor = Visitor(siege.page, by.client)
    try:
        visitor.arrive()
        visitor.put("kv-warm-first", False)
        return "began" if visitor.do("kv-run", until=lambda message: True).messages else "nothing"
    finally:
        visitor.leave()


def shares(siege: Siege, by: Attacker) -> str:
    """Open a saved run and share it, again and again."""
    visitor = Visitor(siege.page, by.client)
    try:
        visitor.arrive()
        sent = by.client.post("/gradio_api/upload", files={"files": ("x.kvrun", SAVED.read_bytes())})
        if sent.status_code != 200:
            return str(sent.status_code)
        file = {"path": sent.json()[0], "orig_name": "x.kvrun", "meta": {"_type": "gradio.FileData"}}
        visitor.put("kv-upload", file)
        visitor.take("kv-upload", "upload")
        count = 0
        while count < 30 and "#r=" in visitor.do("kv-share").text:
            count += 1
        return f"{count} taken"
    finally:
        visitor.leave()


def unknown_tokens(siege: Siege, by: Attacker) -> str:
    """Ask for records that nobody holds."""
    return str(by.client.get(f"/lab/record/{secrets.token_urlsafe(18)}").status_code)


def silent_connections(siege: Siege, by: Attacker) -> str:
    """Connect, say half a request, and wait."""
    connections = []
    with suppress(OSError):
        connections = [by.send("GET / HTTP/1.1\nHost:") for _ in range(OPEN // HANDS)]
    by.pause(20)
    for connection in connections:
        connection.close()
    return "kept"


def slow_bodies(siege: Siege, by: Attacker) -> str:
    """Say that 8 MB follow, and send a byte now and then."""
    head = f"POST /gradio_api/queue/join HTTP/1.1\nHost: {_host(siege)}\nContent-Length: 8000000\n\n"
    with by.send(head) as connection, suppress(OSError):
        connection.settimeout(0.2)
        while time.monotonic() < by.ends:
            connection.sendall(b" ")
            by.pause(2)
            with suppress(TimeoutError):
                return connection.recv(64).decode(errors="replace").partition(" ")[2][:3] or "closed"
    return "kept"


def slow_readers(siege: Siege, by: Attacker) -> str:
    """Ask for the largest file, and do not read it."""
    connections = []
    with suppress(OSError):
        for _ in range(OPEN // HANDS):
            connections.append(by.send(f"GET /lab/plotly.js HTTP/1.1\nHost: {_host(siege)}\n\n"))
    by.pause(20)
    for connection in connections:
        connection.close()
    return "kept"


ATTACKS = (
    made_up_sessions, made_up_calls, arrivals, unfolding_record, huge_bodies, large_headers, cancel_storm,
    run_storm, shares, unknown_tokens, silent_connections, slow_bodies, slow_readers,
)  # fmt: skip
BOMB = unfolding()
SAVED = Path(__file__).resolve().parents[1] / "presets" / "first_run.kvrun"


def _host(siege: Siege) -> str:
    return f"{siege.where[0]}:{siege.where[1]}"


def main() -> int:
    """Run, report, and fail if an honest visitor was failed."""
    names = [kind.__name__ for kind in ATTACKS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of all attacks together")
    parser.add_argument("--most", type=int, default=400, help="tries of each attack")
    parser.add_argument("--visitors", type=int, default=20, help="honest ones")
    parser.add_argument("--attack", action="append", choices=names, help="this one alone; may be repeated")
    parser.add_argument("--json", help="where to write the report")
    args = parser.parse_args()
    chosen = [names.index(name) for name in args.attack or names]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        process, address = serve(Path(folder) / "server.log", ["--data", str(data)])
        try:
            with httpx.Client(base_url=address, timeout=120) as client:
                siege = Siege(address, Page(client))
            siege.one_visit()
            before = peak = memory_mib(process.pid)
            honest = [threading.Thread(target=siege.health)]
            honest += [threading.Thread(target=siege.visitor) for _ in range(args.visitors)]
            for thread in honest:
                thread.start()
                time.sleep(APART)
            for number in chosen:
                siege.attack(number, args.seconds / len(chosen), args.most)
                peak = max(peak, memory_mib(process.pid))
            siege.under = ""
            siege.over.set()
            for thread in honest:
                thread.join()
            ended = process.poll()
            after = 0.0 if ended is not None else memory_mib(process.pid)
            stored = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
        finally:
            siege.over.set()
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
    if ended is not None:
        siege.failed.append(f"the server ended with {ended}")
    report = {
        "command": " ".join(["python", "benchmarks/siege.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores", "versions": versions(),
        "attacks": {name: dict(counted) for name, counted in siege.answers.items()},
        "honest": {
            "health_checks": len(siege.healths),
            "median_health_s": statistics.median(seconds for _, seconds in siege.healths),
            "slowest_health_s": {
                name: max(seconds for under, seconds in siege.healths if under == name)
                for name in dict.fromkeys(under for under, _ in siege.healths)
            },
            "visits": len(siege.runs), "slowest_visit_s": max(siege.runs, default=None),
            "failed": siege.failed,
        },
        "server_mib": {"before": before, "highest_between_attacks": peak, "after": after},
        "shared_mib": stored / 2**20,
    }  # fmt: skip
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=1))
    return 1 if siege.failed else 0


if __name__ == "__main__":
    sys.exit(main())
