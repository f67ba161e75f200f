"""``kvlab blame``: over many requests, which part of the cache changed the answers that reuse changed."""

from __future__ import annotations

import argparse
from typing import Any

from backend.base.errors import OptionError
from lab_app.cli.common import (
    add_loading,
    loading,
    named_file,
    named_preset,
    parse_methods,
    show_progress,
    write_json,
)  # fmt: skip


def add_blame(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add("blame", blame, "Find the part of the reused cache that changed each answer reuse changed.")
    sub.add_argument("preset", metavar="PRESET", help="a preset's name or a YAML file")
    sub.add_argument("--method", default="kvcomm", help="one, as in --methods of run")
    sub.add_argument("--problems", type=int, default=20, help="changed answers to look into")
    sub.add_argument("--requests", type=int, default=200, help="most requests that are sent to find them")
    sub.add_argument("--warmup", type=int, default=20, help="first requests that only fill the pools")
    sub.add_argument("--passes", type=int, default=300, help="most caches put together for each")
    sub.add_argument("--most-parts", type=int, default=4, help="most segments of a set")
    sub.add_argument("--draws", type=int, default=20, help="random sets of equal size for each")
    sub.add_argument("--share", type=float, default=0.1, help="a small set is at most this of the cache")
    sub.add_argument("--model", default="embedded", help="'embedded', a folder in hub layout, or a hub id")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument("--json", required=True, metavar="OUT", help="where to write the summary and every set")


def blame(args: argparse.Namespace) -> int:
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.prompts.presets import preset_requests
    from backend.records.blame import BlameRecord, BlameRequest
    from backend.records.request import Decoding, RunRequest
    from backend.session.session import LabSession
    from backend.studies.blame_many import blame_many, summary

    out = named_file("json", args.json, "blame.json")
    methods = [m for m in parse_methods(args.method) if not m.reference]
    if len(methods) != 1:
        raise OptionError(
            f"--method is {args.method!r}; name one reuse method, such as kvcomm.", field="method"
        )
    for name, low in (("problems", 1), ("requests", 1), ("warmup", 0)):
        if getattr(args, name) < low:
            raise OptionError(
                f"--{name} is {getattr(args, name)}; at least {low} is needed. Change it.", field=name
            )
    if not 0 < args.share <= 1:
        raise OptionError(f"--share is {args.share:g}; above 0 and up to 1 is allowed.", field="share")
    preset = named_preset(args.preset)
    examples = preset_requests(preset, args.requests + args.warmup, args.seed)
    decoding = Decoding(preset.pipeline.longest_answer, seed=args.seed)
    run = RunRequest(
        preset.pipeline, dict(examples[0].values), parse_methods(f"dense,{args.method}"), decoding=decoding,
        probe_offsets=False,
    )  # fmt: skip
    request = BlameRequest(
        run, methods[0].label, preset.pipeline.final, args.passes, args.most_parts, args.draws, args.seed
    )
    model = load_model(args.model, **loading(args))
    session = LabSession(model, budget_bytes=args.budget_mb << 20)
    records: list[BlameRecord] = []
    sent = 0

    def write() -> list[dict[str, Any]]:
        lines = summary(records, args.share)
        report = {
            "preset": preset.pipeline.name, "method": args.method, "warmup": args.warmup, "sent": sent,
            "passes": args.passes, "most_parts": args.most_parts, "draws": args.draws, "seed": args.seed,
            "share": args.share, "model": as_json(model.info), "versions": versions(), "summary": lines,
            "problems": [_row(record) for record in records],
        }  # fmt: skip
        write_json(out, report)
        return lines

    for event in blame_many(
        session, request, examples[: args.warmup], examples[args.warmup :], args.problems
    ):
        if isinstance(event, tuple):
            sent, record = event
            if record:
                records.append(record)
                write()  # so that a run that is stopped leaves what it found
            show_progress(
                f"{sent} requests sent, {len(records)} of {args.problems} changed answers looked into"
            )
    lines = write()
    print(f"{sent} requests sent; {len(records)} changed answers looked into, summary in {out}")
    for line in lines:
        low, high = line["interval"]
        print(f"{line['what']:<60} {line['count']:>3} of {line['of']:<3} ({low:.0%} to {high:.0%})")
    return 0


def _row(record: Any) -> dict[str, Any]:
    """What is kept of one search."""
    from backend.base.serialization import as_json

    return {
        "values": dict(record.request.run.values),
        "dense": record.dense.text, "method": record.nothing.text,
        "found": as_json(record.found.parts) if record.found else None,
        "share": record.share if record.found else None,
        "random_restored": sum(t.restored for t in record.random), "random": len(record.random),
        "whole_restores": record.everything.restored, "spent": record.spent, "passes": record.passes,
        "mapped": record.mapped,
        "recovered": [[round(record.recovered(float(x)), 4) for x in row] for row in record.map],
    }  # fmt: skip
