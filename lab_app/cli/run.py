"""``kvlab run``: a preset over many requests under several methods."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.base.errors import OptionError
from lab_app.cli.common import (
    add_loading,
    add_weights,
    loading,
    named_file,
    named_preset,
    parse_methods,
    parse_weights,
    print_table,
    read_gate,
    show_progress,
    write_json,
)  # fmt: skip


def add_run(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add("run", run, "Run a preset over many requests under several methods.")
    sub.add_argument("preset", metavar="PRESET", help="a preset's name or a YAML file")
    sub.add_argument(
        "--methods",
        default="dense,naive,kvcomm",
        help="as in dense,naive,kvcomm:gamma=0.5+rotate=false@label",
    )
    sub.add_argument("--requests", type=int, default=20)
    sub.add_argument("--warmup", type=int, default=0, help="extra first requests that only fill the pools")
    sub.add_argument("--turns", type=int, help="how often the agents run; else as the preset says")
    sub.add_argument("--mode", choices=("pinned", "free", "both"), default="both")
    sub.add_argument(
        "--data", help="JSON lines with question and answer, instead of the preset's own requests"
    )
    sub.add_argument("--model", help="overrides the preset's model")
    add_weights(sub, "for agents whose preset names them")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--temperature", type=float, default=0.0)
    sub.add_argument("--max-new-tokens", type=int, help="the longest answer; else each agent's own limit")
    sub.add_argument("--gate", metavar="FILE", help="a trained risk gate, which the judge's reuse must pass")
    sub.add_argument(
        "--shadow", type=float, default=0.0, metavar="SHARE",
        help="share of requests whose last answer is checked against the full read afterwards, such as 0.1",
    )  # fmt: skip
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows go beside it"
    )


def run(args: argparse.Namespace) -> int:
    from backend.base.machine import versions
    from backend.base.row_file import RowFile
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.prompts.notices import notices
    from backend.prompts.presets import preset_requests, read_requests
    from backend.records.events import Progress
    from backend.records.request import Decoding, RunRequest
    from backend.session.session import LabSession
    from backend.studies.batch import Batch, flip_rates, run_batch, summarise, unusual

    choices = parse_methods(args.methods)
    preset = named_preset(args.preset)
    pipeline = preset.pipeline
    if args.turns is not None:
        pipeline = replace(pipeline, turns=args.turns)
    for hint in notices(pipeline):
        print(f"kvlab: note: {hint}", file=sys.stderr)
    out = named_file("json", args.json, "out.json")
    if args.requests < 1 or args.warmup < 0:
        raise OptionError(
            f"requests is {args.requests} and warmup {args.warmup}; at least 1 and 0 are needed. Change "
            "them.",
            field="requests",
        )
    count = args.requests + args.warmup
    examples = (
        read_requests(Path(args.data))[:count] if args.data else preset_requests(preset, count, args.seed)
    )
    if len(examples) < count:
        raise OptionError(
            f"{count} requests are wanted, but the file holds {len(examples)}. Ask for fewer.",
            field="requests",
        )
    model = load_model(args.model or ("embedded" if preset.model == "any" else preset.model), **loading(args))
    longest = preset.pipeline.longest_answer if args.max_new_tokens is None else args.max_new_tokens
    decoding = Decoding(longest, args.temperature, 1.0, args.seed)
    gate = read_gate(args.gate)
    request = RunRequest(pipeline, dict(examples[0].values), choices, decoding=decoding, gate=gate)
    modes: Any = ("pinned", "free") if args.mode == "both" else (args.mode,)
    batch = Batch(request, tuple(examples), modes, args.warmup, args.shadow)
    rows_path = out.with_suffix(".rows.jsonl")
    others = {name: load_model(where, **loading(args)) for name, where in parse_weights(args.weights)}
    session = LabSession(model, budget_bytes=args.budget_mb << 20, others=others)
    for event in run_batch(session, batch, rows_path):
        if isinstance(event, Progress) and event.agent is None:
            show_progress(event.text)
    wanted = {
        batch.key(mode, i, session.weights_hash) for mode in modes for i in range(args.warmup, len(examples))
    }
    rows = [row for row in RowFile(rows_path).rows() if row["key"] in wanted]
    summary = summarise(rows, request.pipeline.final)
    report = {
        "preset": preset.pipeline.name,
        "methods": args.methods,
        "turns": pipeline.turns,
        "requests": args.requests,
        "warmup": args.warmup,
        "seed": args.seed,
        "model": as_json(model.info),
        "versions": versions(),
        "summary": summary,
        "shadow": flip_rates(rows),
    }
    write_json(out, report)
    print_summary(summary)
    print_boundaries(rows)
    if said := unusual(rows):
        print(said)
    for line in report["shadow"]:
        low, high = line["flip_rate_ci"]
        print(
            f"{line['mode']} {line['method']}: {line['checked']} of {line['served']} answers checked, "
            f"{line['flipped']} differ from the full read: {line['flip_rate']:.1%} ({low:.1%} to {high:.1%}) "
            "of all"
        )
    print(f"{len(rows)} rows in {rows_path}, summary in {out}")
    return 0


def print_boundaries(rows: Sequence[dict[str, Any]]) -> None:
    """One line on what tokenising segments separately costs; none for rows of earlier versions."""
    read = [o for row in rows for o in row["outcomes"] if o.get("boundary_tokens") is not None]
    if read:
        taxed, total = (sum(o[key] for o in read) for key in ("boundary_tokens", "prompt_tokens"))
        print(
            f"boundary tax: {taxed / total:.1%} of the prompts' tokens would be others if each prompt were "
            "tokenised at once, the full read's as well"
        )


def print_summary(summary: Sequence[dict[str, Any]]) -> None:
    """The summary as a table for people."""
    from backend.prompts.template import called

    head: tuple[str, ...] = (
        "mode", "agent", "method", "right", "as full read", "agents", "blocks", "tokens", "reuses", "TTFT ms",
        "ratio", "KL first", "KL mean", "K err", "V err", "floor",
    )  # fmt: skip
    columns = (
        ("accuracy", ".1%"), ("same_answer", ".1%"), ("reuse_agents", ".0%"), ("reuse_blocks", ".0%"),
        ("reuse_tokens", ".0%"), ("reuse_events", "d"), ("ttft_ms", ".1f"), ("ttft_ratio", ".2f"),
        ("kl_first", ".4f"), ("kl_mean", ".4f"), ("key_error", ".3f"), ("value_error", ".3f"),
        ("floor", ".1e"),
    )  # fmt: skip
    rows = [head]
    for line in summary:
        cells = ("-" if line.get(key) is None else format(line[key], form) for key, form in columns)
        rows.append((line["mode"], called(line["agent"]) if line["agent"] else "all", line["method"], *cells))
    print_table(rows, left=3)
