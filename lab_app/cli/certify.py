"""``kvlab certify``: can a model's keys be moved? With a log: does reuse keep the answers of its calls?"""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from backend.base.errors import OptionError
from lab_app.cli.common import (
    add_loading,
    loading,
    named_file,
    parse_methods,
    path_of,
    show_progress,
    write_json,
)

if TYPE_CHECKING:
    from backend.records.log_gate import GateRecord


def add_certify(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "certify",
        certify,
        "Probe whether a model's keys can be moved; with --log, whether reuse keeps logged calls' answers.",
    )
    sub.add_argument("model", metavar="MODEL")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    sub.add_argument("--dtype", choices=("fp32", "bf16", "fp16"))
    log = sub.add_argument_group(
        "a gate for logged calls",
        "Calls are sampled, read densely and under a method, and their answers compared. Exit status: 0: at "
        "most --max-flips change, for certain; 1: not certain; 2: it could not be told.",
    )
    log.add_argument("--log", metavar="FILE", help="calls of your agents, one a line, in any format known")
    log.add_argument("--method", default="kvcomm", help="one, as in --methods of run")
    log.add_argument("--max-flips", default="2%", help="share of answers that may change: 2%% or 0.02")
    log.add_argument("--certainty", default="95%", help="of what is said, such as 95%%")
    log.add_argument("--calls", type=int, default=300, help="most calls that are sampled")
    log.add_argument("--warmup", type=int, default=8, help="first calls of a template: they fill pools alone")
    log.add_argument("--max-new-tokens", type=int, default=64, help="the longest answer")
    log.add_argument(
        "--same", default="none", help="what has to be equal: none (all of it), number, text, ..."
    )
    log.add_argument("--stop-early", action="store_true", help="look after every call; stop once certain")
    log.add_argument("--seed", type=int, default=0)
    log.add_argument("--skip-bad", action="store_true", help="pass over lines of the log that hold no call")
    log.add_argument("--budget-mb", type=int, default=4096)
    log.add_argument("--json", metavar="OUT", help="where to write the verdict and every compared call")


def certify(args: argparse.Namespace) -> int:
    from backend.model.load import load_model

    if args.log:
        return gate(args)
    if args.json or args.stop_early:
        raise OptionError("--json and --stop-early are for --log, which is not there. Add it.", field="log")
    info = load_model(args.model, dtype=args.dtype, **loading(args)).info
    found = info.certificate
    print(
        f"{info.name}: {info.parameters:,} parameters, {info.layers} layers, {info.device}, "
        f"{info.dtype}, weights {info.weights_hash}"
    )
    print(found.reason)
    print(f"{'layer':>5}  {'kind':<18} {'turned':>6}  {'key error':>9}  {'value error':>11}")
    for index, layer in enumerate(found.layers):
        print(
            f"{index:>5}  {layer.kind:<18} {layer.rotated_dims:>6}  {layer.key_error:>9.1e}  "
            f"{layer.value_error:>11.1e}"
        )
    print(
        f"Rounding noise (one piece against two): keys {found.floor:.1e} relative, logits "
        f"{found.logit_floor:.1e} absolute"
    )
    return 0 if found.relocatable else 1


def gate(args: argparse.Namespace) -> int:
    """``kvlab certify --log``; the exit status."""
    from backend.logs.reader import LogReader
    from backend.model.load import load_model
    from backend.records.events import Progress
    from backend.records.log_gate import GateRequest
    from backend.studies.log_gate import log_gate
    from backend.studies.logged_calls import MOST_CALLS

    out = named_file("json", args.json, "gate.json") if args.json else None
    methods = [m for m in parse_methods(args.method) if not m.reference]
    if len(methods) != 1:
        raise OptionError(
            f"--method is {args.method!r}; name one reuse method, such as kvcomm.", field="method"
        )
    request = GateRequest(
        methods[0], share("max-flips", args.max_flips), share("certainty", args.certainty), args.calls,
        args.warmup, args.max_new_tokens, args.same, args.stop_early, args.seed,
    )  # fmt: skip
    reader = LogReader(path_of(args.log), skip_bad=args.skip_bad)
    calls = list(itertools.islice(reader, MOST_CALLS + 1))
    model = load_model(args.model, dtype=args.dtype, **loading(args))
    for event in log_gate(model, request, calls, args.budget_mb << 20):
        if isinstance(event, Progress):
            show_progress(event.text)
        else:
            record = event
    verdict, why = record.told
    print(f"{verdict}: {why}.\n{facts(record)}.")
    if reader.skipped:
        print(f"{reader.skipped} bad lines of the log were passed over; the first: {reader.bad[0]}")
    if out:
        write_json(out, report(record, reader.skipped))
        print(f"The verdict and {len(record.rows)} calls are in {out}")
    return record.code


def share(flag: str, text: str) -> float:
    """``2%`` or ``0.02``.

    Raises:
        OptionError: it is neither.
    """
    number, percent, rest = text.strip().partition("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = float("nan")
    if rest or not -1e9 < value < 1e9:
        raise OptionError(f"--{flag} is {text!r}; write a share, such as 2% or 0.02.", field=flag)
    return value


def facts(record: GateRecord) -> str:
    """What the verdict rests on."""
    rows = record.read
    reused, tokens = (sum(getattr(row, name) for row in rows) for name in ("reused_tokens", "prompt_tokens"))
    part = f", {reused / tokens:.0%} of their prompt tokens reused" if tokens else ""
    ties = sum(row.near_tie for row in rows)
    what = f"{record.model.name}, {record.request.method.label}"
    unread = len(record.rows) - len(rows)
    return (
        f"{what}: {len(rows)} of {record.calls} calls compared{part}; {record.warmed} only filled pools, "
        f"{unread} could not be read; in {ties} of {record.flips} changes rounding alone could have changed "
        "the answer"
    )


def report(record: GateRecord, skipped: int) -> dict[str, Any]:
    """Everything, as plain JSON."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json

    verdict, why = record.told
    low, high = record.limits
    return {
        "verdict": verdict, "why": why, "code": record.code, "flips": record.flips,
        "compared": len(record.read), "low": low, "high": high, "needed": record.request.needed,
        "bad_lines": skipped, "versions": versions(), **as_json(record),
    }  # fmt: skip
