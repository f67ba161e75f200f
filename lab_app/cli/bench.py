"""``kvlab bench``: times and memory, both sides in one run, as JSON."""

import json
import sys
from typing import Any, Literal

from typer import Argument, Context, Option

from backend.base.errors import OptionError
from lab_app.cli.common import Device, Dtype

DEFAULTS: dict[str, Any] = {
    "shape": "embedded", "tokens": 1000, "anchors": 20, "repeats": 7, "device": None, "dtype": None,
}  # fmt: skip
#: Options that a measurement does not read; naming one is an error.
UNREAD = {"decode": ("anchors",), "attention": ("tokens",)}


def bench(
    context: Context,
    what: Literal["ttft", "match", "assemble", "decode", "memory", "attention"] = Argument(...),
    shape: str | None = Option(
        None, help="'embedded', 'smollm2-135m', 'llama-8b' (random weights), or a model (embedded)"
    ),
    tokens: int | None = Option(
        None, help="of the measured agent's prompt, or of the text (1000; not for attention)"
    ),
    anchors: int | None = Option(None, help="in each pool (20; not for decode)"),
    repeats: int | None = Option(None, help="of each side (7)"),
    device: Device = None,
    dtype: Dtype = None,
) -> int:
    """Measure time to first token, matching, assembly, batched decoding, memory or recording, both sides in
    one run."""
    for name in UNREAD.get(what, ()):
        value = context.params[name]
        if value is not None:
            raise OptionError(
                f"--{name} is {value}, but kvlab bench {what} reads no --{name}. Leave it out.",
                field=f"bench.{name}",
            )
    options = {name: default if context.params[name] is None else context.params[name]
             for name, default in DEFAULTS.items()}  # fmt: skip
    report = _measure(what, options)
    print(json.dumps(report, indent=1))
    if wrong := report.get("wrong"):
        print(wrong, file=sys.stderr)
    return int(bool(wrong))


def _measure(what: str, options: dict[str, Any]) -> dict[str, Any]:
    """The report of the measurement with this name."""
    from backend.bench.assemble import bench_assemble
    from backend.bench.attention import bench_attention
    from backend.bench.common import BenchRequest
    from backend.bench.decode import bench_decode
    from backend.bench.match import bench_match
    from backend.bench.memory import bench_memory
    from backend.bench.roofline import checked
    from backend.bench.ttft import bench_ttft

    return checked({
        "ttft": bench_ttft, "match": bench_match, "assemble": bench_assemble, "decode": bench_decode,
        "memory": bench_memory, "attention": bench_attention,
    }[what](BenchRequest(**options)))  # fmt: skip
