"""Malformed API calls, presets and records against the lab: no traceback shown, no answer 500, no hang.

    python benchmarks/fuzz.py --calls 4000 --files 1000 --json fuzz.json          # serves a lab of its own
    python benchmarks/fuzz.py --address http://127.0.0.1:7860 --calls 500

The same seed makes the same calls.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from visitor import Page, RefusedError, Visitor

from backend.base.errors import LabError
from backend.prompts.presets import load_preset, preset_names
from backend.records.run import RunRecord

ROOT = Path(__file__).resolve().parents[1]
#: What no answer may hold.
SHOWN = ("Traceback (most recent call last)", 'File \\"', 'File "/', "site-packages")
HANG = 60.0  # seconds
STRANGE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    10**400,
    -(2**63),
    2**63,
    1e308,
    -0.0,
    "",
    " ",
    "\x00",
    "\ud800",
    "A" * 300_000,
    "{user_question}" * 50,
    "{agent_1_current}",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "%s%n{}",
    "<|eot_id|>",
    "١٢٣",
    "nan",
    [],
    {},
    [[]],
    [None] * 500,
    {"__type__": "update"},
    {"path": "/etc/passwd"},
    {"path": "http://example.com/x", "meta": {"_type": "gradio.FileData"}},
    {"value": {"value": {}}},
    ["kvcomm"] * 40,
)
PATHS = (
    "/gradio_api/file=/etc/passwd",
    "/gradio_api/file=http://example.com/",
    "/gradio_api/proxy=http://example.com",
    "/gradio_api/info",
    "/gradio_api/openapi.json",
    "/gradio_api/run/predict",
    "/gradio_api/call/x",
    "/monitoring",
    "/lab/record/../../../etc/passwd",
    "/lab/record/" + "x" * 3000,
    "/lab/%2e%2e/%2e%2e/etc/passwd",
    "/static/../app.py",
    "/assets/%252e%252e/%252e%252e/etc/passwd",
    "/gradio_api/queue/data",
    "/gradio_api/queue/data?session_hash=none",
    "/config/",
    "/lab/plotly.js%00",
    "//etc/passwd",
    "/gradio_api/stream/a/b/c/playlist.m3u8",
    "/token",
    "/svelte/..%5c..",
)


class Fuzzer:
    """Calls, one after the other, and what came of them."""

    def __init__(self, address: str, seed: int = 0) -> None:
        self.client = httpx.Client(base_url=address.rstrip("/"), timeout=HANG)
        self.page = Page(self.client)
        self.visitor = Visitor(self.page, self.client)
        self.visitor.arrive()
        self.random = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.failed: list[dict[str, Any]] = []
        self.slowest: dict[str, float] = {}

    def run(self, calls: int) -> None:
        """Make so many calls, and say on stderr how it goes."""
        kinds = (self.boxes, self.boxes, self.body, self.path, self.upload, self.stranger)
        began_all = time.monotonic()
        for index in range(calls):
            if index % 250 == 0:
                spent = time.monotonic() - began_all
                print(f"{index} of {calls} calls, {spent:.0f} s, {len(self.failed)} failed", file=sys.stderr)
            kind = self.random.choice(kinds)
            state, began = self.random.getstate(), time.monotonic()
            try:
                answer = kind()
            except RefusedError as error:
                answer = f"{error.status} {error.message}"
            except httpx.TimeoutException:
                answer = "hang"
            except (httpx.HTTPError, UnicodeError) as error:
                answer = f"client {type(error).__name__}"  # what no client can send
            self.judge(kind.__name__, answer, time.monotonic() - began, hash(state))
        self.client.close()

    def judge(self, kind: str, answer: str, seconds: float, state: int) -> None:
        """Count a call, and keep it if it failed."""
        status = answer.split(" ", 1)[0][:6]
        bad = [shown for shown in SHOWN if shown in answer]
        if answer == "hang" or seconds > HANG:
            bad.append("hang")
        if status.startswith("5") and status not in ("503", "507"):
            bad.append(f"status {status}")
        self.counts[f"{kind} {status}"] += 1
        self.slowest[kind] = max(self.slowest.get(kind, 0.0), seconds)
        if bad:
            self.failed.append({"kind": kind, "why": bad, "said": answer[:500], "state": state})

    def strange(self, depth: int = 0) -> Any:
        """A value that no box would hold."""
        if depth < 3 and self.random.random() < 0.25:
            many = self.random.randrange(4)
            if self.random.random() < 0.5:
                return [self.strange(depth + 1) for _ in range(many)]
            return {str(self.strange(3))[:20]: self.strange(depth + 1) for _ in range(many)}
        return self.random.choice(STRANGE)

    def boxes(self) -> str:
        """An event of the page with strange values in some of its boxes."""
        number = self.random.choice(list(self.page.events))
        event = self.page.events[number]
        data = [self.visitor.values[widget] for widget in event["inputs"]]
        for index in range(len(data)):
            if self.random.random() < 0.15:
                data[index] = self.strange()
        if self.random.random() < 0.1:
            data = data[: self.random.randrange(len(data) + 1)]
        extra = self.strange() if self.random.random() < 0.3 else None
        body = {"data": data, "fn_index": number, "session_hash": self.visitor.tab, "event_data": extra}
        deadline = time.monotonic() + HANG / 2

        def enough(message: str) -> bool:  # a run that works is no malformed call: leave it
            return "process_generating" in message or time.monotonic() > deadline

        answer = self.visitor.send(json.dumps(body), enough)
        return f"200 {answer.text}"

    def body(self) -> str:
        """Something that is no call at all."""
        good = {"data": [], "fn_index": 0, "session_hash": "x"}
        wrong: list[bytes] = [
            b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"data": ' + b"[" * 20_000, b"[" * 100_000,
            json.dumps(good | {"fn_index": self.strange()}).encode(),
            json.dumps(good | {"session_hash": self.strange()}).encode(),
            json.dumps(good | {"data": self.strange()}).encode(),
            json.dumps({str(self.strange())[:40]: self.strange()}).encode(),
            json.dumps(good | {"fn_index": 10**6, "event_id": self.strange()}).encode(),
        ]  # fmt: skip
        where = self.random.choice(("queue/join", "queue/join", "cancel", "reset", "component_server"))
        kind = self.random.choice(("application/json", "text/plain", "multipart/form-data; boundary=x", ""))
        content = self.random.choice(wrong)
        answer = self.client.post(f"/gradio_api/{where}", content=content, headers={"Content-Type": kind})
        return f"{answer.status_code} {answer.text}"

    def path(self) -> str:
        """A path that leads nowhere."""
        path = self.random.choice(PATHS)
        if self.random.random() < 0.3:
            path = "/" + quote("".join(self.random.choices("/.%=:\\~{}<>aé\x01", k=20)))
        method = self.random.choice(("GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"))
        request = self.client.build_request(method, path)
        answer = self.client.send(request, stream=True)
        try:
            text = next(answer.iter_text(), "") if "queue/data" not in path else ""
        finally:
            answer.close()
        return f"{answer.status_code} {text}"

    def upload(self) -> str:
        """A file that is no record, and one that is too large to be said."""
        name = str(self.random.choice(("x.kvrun", "../x", "a" * 300, "é\u202e.exe", "nul\x01", "")))
        content = self.random.randbytes(self.random.randrange(3000))
        if self.random.random() < 0.3:
            answer = self.client.post(
                "/gradio_api/upload",
                content=content,
                headers={"Content-Type": "multipart/form-data; boundary=b"},
            )
        else:
            answer = self.client.post("/gradio_api/upload", files={"files": (name, content)})
        if answer.status_code != 200:
            return f"{answer.status_code} {answer.text}"
        path = self.random.choice((*answer.json()[:1], "/etc/passwd", "http://example.com/", ""))
        file = {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}
        self.visitor.put("kv-upload", file)
        result = self.visitor.do("kv-upload", "upload")
        self.visitor.put("kv-upload", None)
        return f"200 {result.text}"

    def stranger(self) -> str:
        """An event from a tab that never arrived."""
        tab, self.visitor.tab = self.visitor.tab, str(self.random.random())
        try:
            return self.boxes()
        finally:
            self.visitor.tab = tab


def fuzz_files(count: int, seed: int, record: bytes) -> list[dict[str, Any]]:
    """Presets and records with bytes changed: each loads or raises a LabError."""
    drawn, failed = random.Random(seed), []
    presets = [path.read_bytes() for path in (ROOT / "presets").rglob("*.yaml")] or [
        json.dumps({"name": name}).encode() for name in preset_names()
    ]
    with tempfile.TemporaryDirectory() as folder:
        for index in range(count):
            as_record = bool(drawn.getrandbits(1))
            content = bytearray(record if as_record else drawn.choice(presets))
            for _ in range(drawn.choice((1, 1, 3, 30))):
                at = drawn.randrange(len(content))
                if drawn.random() < 0.5:
                    content[at] = drawn.randrange(256)
                else:
                    content[at : at + drawn.randrange(20)] = drawn.choice(
                        (
                            b"",
                            b"\n",
                            b": ",
                            b"- ",
                            b"{",
                            b"[",
                            b"&a *a",
                            b"!!python/object:os.system ",
                            b"\xff",
                            b"9" * 50,
                        )
                    )
                content = content or bytearray(b" ")
            try:
                if as_record:
                    RunRecord.from_bytes(bytes(content))
                else:
                    path = Path(folder) / "fuzzed.yaml"
                    path.write_bytes(bytes(content))
                    load_preset(path)
            except LabError:
                continue
            except Exception as error:
                failed.append(
                    {"kind": "record" if as_record else "preset", "index": index, "why": repr(error)[:300]}
                )
    return failed


def main() -> int:
    """Run, report, and fail if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of a lab that is being served; else one is served for this")
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="where to write the report")
    args = parser.parse_args()
    blocks, address = None, args.address
    if address is None:
        from lab_app.server.serve import serve

        blocks, address = serve(port=0, block=False)
    fuzzer, began = Fuzzer(address, args.seed), time.monotonic()
    fuzzer.run(args.calls)
    failed = fuzzer.failed + fuzz_files(
        args.files, args.seed, (ROOT / "presets/first_run.kvrun").read_bytes()
    )
    report = {
        "calls": args.calls, "files": args.files, "seed": args.seed, "seconds": time.monotonic() - began,
        "answers": dict(sorted(fuzzer.counts.items())), "slowest_s": fuzzer.slowest, "failed": failed,
    }  # fmt: skip
    if args.json:
        Path(args.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{args.calls} calls, {args.files} files, {len(failed)} failed")
    for failure in failed[:20]:
        print(json.dumps(failure))
    if blocks is not None:
        blocks.close(verbose=False)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
