"""``kvlab bench``: times and memory, both sides in one run, as JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from backend.base.errors import OptionError
from backend.records.hardware import SHAPES

DEFAULTS: dict[str, Any] = {
    "shape": "embedded", "tokens": 1000, "anchors": 20, "repeats": 7, "device": None, "dtype": None,
}  # fmt: skip
#: Options that play no part in a measurement; given all the same, they would be dropped without a word.
UNREAD = {
    "decode": ("anchors",),
    "attention": ("tokens",),
}
WHAT = ("ttft", "match", "assemble", "decode", "memory", "attention")


def add_bench(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "bench",
        bench,
        "Measure time to first token, matching, assembly, batched decoding, memory and recording, both sides "
        "in one run.",
    )
    sub.add_argument("what", choices=WHAT)
    shapes = ", ".join(map(repr, SHAPES))
    sub.add_argument("--shape", help=f"'embedded', {shapes} (random weights), or a model (embedded)")
    sub.add_argument(
        "--tokens", type=int, help="of the measured agent's prompt, or of the text (1000; not for attention)"
    )
    sub.add_argument("--anchors", type=int, help="in each pool (20; not for decode)")
    sub.add_argument("--repeats", type=int, help="of each side (7)")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"), help="else the best there is")
    sub.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), help="else bf16 on CUDA, fp32 elsewhere")


def bench(args: argparse.Namespace) -> int:
    """Handler of the command; 1 where the times contradict the hardware's own."""
    for name in UNREAD.get(args.what, ()):
        value = getattr(args, name)
        if value is not None:
            raise OptionError(
                f"--{name} is {value}, but kvlab bench {args.what} reads no --{name}. Leave it out.",
                field=f"bench.{name}",
            )
    given = {name: usual if getattr(args, name) is None else getattr(args, name)
             for name, usual in DEFAULTS.items()}  # fmt: skip
    report = _measure(args.what)(*given.values())
    print(json.dumps(report, indent=1))
    if wrong := report.get("wrong"):
        print(wrong, file=sys.stderr)
    return int(bool(wrong))


def _measure(what: str) -> Callable[..., dict[str, Any]]:
    """What measures, by its name."""
    from backend.bench.assemble import bench_assemble
    from backend.bench.attention import bench_attention
    from backend.bench.decode import bench_decode
    from backend.bench.match import bench_match
    from backend.bench.memory import bench_memory
    from backend.bench.roofline import checked
    from backend.bench.ttft import bench_ttft

    return checked({
        "ttft": bench_ttft, "match": bench_match, "assemble": bench_assemble, "decode": bench_decode,
        "memory": bench_memory, "attention": bench_attention,
    }[what])  # fmt: skip
