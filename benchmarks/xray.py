"""How fast ``kvlab xray`` reads a log, and in how much memory: asked are 100,000 calls of 4,000 tokens in at
most 3 minutes and 2 GB on two cores.

The log is drawn from a seed: conversations of 20 calls behind one system prompt and nine tools; each call
adds an answer and a result of a tool, about a twentieth of its prompt. Prints one line of JSON; the log is
written first, and its making does not count, since the X-ray is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TURNS = 20
ASKED = {"calls": 100_000, "tokens": 4_000, "seconds": 180, "bytes": 2 << 30}
SYLLABLES = (
    "ba be bi do du fa fe go gu ka ki la le lo ma mi mo na ne no pa pe ra re ri sa se so ta te ti to".split()
)


def write(path: Path, calls: int, seed: int = 0) -> None:
    """A log of OpenAI chat requests."""
    rng = random.Random(seed)
    words = sorted({"".join(rng.choices(SYLLABLES, k=rng.randint(2, 4))) for _ in range(5_000)})

    def text(count: int) -> str:
        return "\n\n".join(" ".join(rng.choices(words, k=min(40, count - at))) for at in range(0, count, 40))

    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": text(30), "parameters": {"type": "object"}},
        }
        for name in rng.sample(words, 9)
    ]
    system = {"role": "system", "content": text(350)}
    with path.open("w", encoding="utf-8") as file:
        for number in range(calls):
            turn = number % TURNS
            if not turn:
                messages = [system, {"role": "user", "content": text(40)}]
            call = {"agent": f"agent {number // TURNS % 6}", "session": str(number // TURNS), "tools": tools}
            file.write(json.dumps({**call, "messages": messages}) + "\n")
            messages += [{"role": "assistant", "content": text(15)}, {"role": "tool", "content": text(45)}]


def measure(path: Path, tokenizer: str) -> dict[str, float]:
    """X-ray in this process: seconds, tokens and the most memory that it ever had."""
    from backend.logs.xray import xray

    start, begun = time.perf_counter(), time.process_time()
    result = xray(path, tokenizer=tokenizer)
    seconds = time.perf_counter() - start
    processor_s = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "calls": len(result.calls), "tokens": result.totals["tokens"], "new": result.totals["new"],
        "seconds": round(seconds, 2), "processor_s": round(processor_s, 2),
        "tokens_s": round(result.totals["tokens"] / seconds), "peak_bytes": peak,
    }  # fmt: skip


def main() -> None:
    """Make the log, and measure in a fresh process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--tokenizer", default="embedded")
    parser.add_argument("--log", type=Path, help="measure this one, in this process")
    args = parser.parse_args()
    if args.log:
        print(json.dumps(measure(args.log, args.tokenizer)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.jsonl"
        write(path, args.calls)
        again = [sys.executable, __file__, "--log", str(path), "--tokenizer", args.tokenizer]
        process = subprocess.run(again, capture_output=True, text=True, check=True)
        size = path.stat().st_size
    print(json.dumps({"bench": "xray", "file_bytes": size, **json.loads(process.stdout), "asked": ASKED}))


if __name__ == "__main__":
    main()
