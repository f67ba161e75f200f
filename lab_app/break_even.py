"""``kvlab break-even``: when does reuse pay, by lengths, pool and hardware?"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from backend.break_even import Answer, Case, Machine, answer, plain
from backend.errors import OptionError
from backend.hardware import SHAPES, given_machine, saved_figures

LENGTHS = (200, 400, 800)


def add_break_even(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "break-even",
        break_even,
        "When does reuse pay? By prompt, shared texts, readers and pool, on hardware measured here or given.",
    )
    sub.add_argument("--prompt", type=int, default=1000, help="tokens of the reader's prompt (1000)")
    sub.add_argument("--shared", type=float, default=0.75, help="share of it that is reused texts (0.75)")
    sub.add_argument(
        "--outside", type=float, default=0.0,
        help="share of these whose base has to be encoded first, such as a new question (0)",
    )  # fmt: skip
    sub.add_argument("--readers", type=int, default=1, help="agents that read them and share that cost (1)")
    sub.add_argument("--anchors", type=int, default=20, help="in each pool (20)")
    sub.add_argument("--mixed", type=int, help="of them into each text; else all")
    sub.add_argument("--model", default="embedded", help="measured: a model, smollm2-135m or llama-8b")
    sub.add_argument("--shape", choices=tuple(SHAPES), default="llama-8b",
                     help="of the model on given hardware (llama-8b)")  # fmt: skip
    sub.add_argument("--tflops", type=float, help="given: 1e12 operations a second that a prefill reaches")
    sub.add_argument("--gb-s", type=float, help="given: 1e9 bytes a second that it copies")
    sub.add_argument("--machine", metavar="FILE.json", help="figures that an earlier run measured and saved")
    sub.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS), help="measured prompts")
    sub.add_argument("--repeats", type=int, default=5)
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--json", metavar="FILE", help="where figures and answer are saved")


def break_even(args: argparse.Namespace) -> int:
    """Handler of the command."""
    for name in ("shared", "outside"):
        value = getattr(args, name)
        if not 0 <= value <= 1:
            raise OptionError(
                f"--{name} is {value:g}; a share from 0 to 1 is allowed, such as 0.5. Change it.",
                field=f"break_even.{name}",
            )
    shared = round(args.prompt * args.shared)
    mixed = args.anchors if args.mixed is None else args.mixed
    case = Case(args.prompt, shared, round(shared * args.outside), args.readers, args.anchors, mixed)
    out = Path(args.json).expanduser() if args.json else None
    if out is not None and (not out.name or out.is_dir()):
        raise OptionError(f"--json is {args.json!r}, which names no file. Name one.", field="json")
    machine, measured = _machine(args)
    found = answer(machine, case)
    for line in said(machine, case, found, measured):
        print(line)
    if out is not None:
        report = {"bench": "break-even", **plain(machine, case), **measured}
        out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"Saved as {out}; --machine {out} uses its figures again")
    return 0


def _machine(args: argparse.Namespace) -> tuple[Machine, dict[str, Any]]:
    """The hardware's figures: of a file, given, or measured now."""
    given = [args.tflops is not None, args.gb_s is not None]
    if args.machine and any(given):
        raise OptionError(
            "--machine and --tflops or --gb-s are given; name one source of figures.",
            field="break_even.machine",
        )
    if args.machine:
        return saved_figures(Path(args.machine).expanduser()).machine, {}
    if any(given):
        if not all(given):
            raise OptionError(
                "Given hardware needs both --tflops and --gb-s, as in --tflops 600 --gb-s 2500. Add the "
                "other.",
                field="break_even.tflops",
            )
        return given_machine(args.shape, args.tflops, args.gb_s), {}
    from backend.bench.break_even import Measured, measure
    from backend.bench.group import shape_or_model

    model = shape_or_model(args.model, args.device)
    for event in measure(model, args.lengths, max(2, args.anchors), args.repeats):
        if isinstance(event, Measured):
            return event.machine, {"measured": list(event.cases), **event.conditions}
        if sys.stderr.isatty():
            print(f"\r{event.text:<70}", end="", file=sys.stderr, flush=True)
    raise AssertionError("a measurement ends with its figures")


def said(machine: Machine, case: Case, found: Answer, measured: dict[str, Any]) -> list[str]:
    """The answer in words."""
    lines = [
        f"On {machine.name}: {case.prompt:,} tokens, {case.shared:,} of them in reused texts, "
        f"{case.mixed} of {case.anchors} anchors mixed.",
        f"Dense {found.dense_ms:,.1f} ms, reuse {found.reuse_ms:,.1f} ms to the first token: "
        f"{found.ratio:.2f} times as fast. Of reuse: "
        + ", ".join(f"{name} {ms:,.1f}" for name, ms in found.parts_ms.items())
        + ".",
    ]
    if found.least_share is None:
        lines.append("Reuse does not pay here, even if every request passes the gate.")
    else:
        lines.append(f"It pays from {found.least_share:.0%} of the requests passing the gate on.")
    if found.least_tokens is None:
        lines.append("With these shares no length of the prompt pays.")
    else:
        lines.append(f"With these shares a prompt pays from {found.least_tokens:,} tokens on.")
    if found.most_anchors is not None:
        lines.append(f"Up to {found.most_anchors:,} anchors could be mixed before dense is as fast.")
    held = f"A reader's anchors take {found.pool_bytes / 2**20:,.1f} MiB"
    if found.pays_after is None:
        lines.append(f"{held} and are never paid off.")
    else:
        lines.append(f"{held} and are paid off after {found.pays_after:,} requests, its own included.")
    for one in measured.get("measured", ()):
        lines.append(
            f"  measured at {one['case']['prompt']:,} tokens: dense {one['dense_ms']:.1f}, reuse "
            f"{one['reuse_ms']:.1f} ms ({one['ratio']:.2f}); the formula says {one['formula_ratio']:.2f}"
        )
    return lines
