"""``kvlab loop`` and ``kvlab hypotheses``: a ReAct agent with tools, turn by turn."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lab_app.cli.common import named_file, parse_methods, print_table, show_progress, write_json

if TYPE_CHECKING:
    from backend.records.agent_loop import LoopLine


def add_loop(add: Any) -> None:
    """Register the two commands; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add("loop", loop, "Run a ReAct agent with tools, turn by turn, under several methods.")
    sub.add_argument("--methods", default="dense,prefix,naive,segments", help="as for run")
    sub.add_argument("--episodes", type=int, default=20)
    sub.add_argument("--turns", type=int, default=8, help="the most of an episode")
    sub.add_argument("--mode", choices=("pinned", "free", "both"), default="both")
    sub.add_argument("--memory", type=int, default=25, help="episodes until the store begins empty again")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--max-new-tokens", type=int, default=48, help="the longest turn")
    sub.add_argument("--model", default="embedded", help="'embedded', a folder in hub layout, or a hub id")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument("--budget-mb", type=int, default=4096)
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the summary; rows and record lie beside"
    )

    sub = add("hypotheses", hypotheses, "Decide the four hypotheses of segment reuse by an agent loop.")
    sub.add_argument("--episodes", type=int, default=100)
    sub.add_argument("--turns", type=int, default=8, help="the most of an episode")
    sub.add_argument("--memory", type=int, default=25, help="episodes until the stores begin empty again")
    sub.add_argument(
        "--grid",
        choices=("none", "one at a time", "full"),
        default="one at a time",
        help="which settings of layers, halo, tau and context are measured on the full read's turns",
    )
    sub.add_argument(
        "--segments",
        default="minimum_tokens=12+maximum_tokens=256+window_tokens=32+shingle=4",
        help="options of segment reuse in every condition (as behind segments: in --methods)",
    )
    sub.add_argument("--reruns", type=int, default=5, help="first episodes, run five times with sampling")
    sub.add_argument("--candidates", type=int, default=4, help="segments of a prompt grafted alone")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--max-new-tokens", type=int, default=48, help="the longest turn")
    sub.add_argument("--model", default="embedded", help="'embedded', a folder in hub layout, or a hub id")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    sub.add_argument(
        "--json", required=True, metavar="OUT", help="where to write the verdicts; rows and record lie beside"
    )


def loop(args: argparse.Namespace) -> int:
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.records.agent_loop import LoopRecord, LoopRequest, summary
    from backend.session.session import LabSession
    from backend.studies.agent_loop import run_loop

    out = named_file("json", args.json, "loop.json")
    modes: Any = ("pinned", "free") if args.mode == "both" else (args.mode,)
    request = LoopRequest(
        parse_methods(args.methods), args.episodes, args.turns, modes, args.memory, args.seed,
        args.max_new_tokens,
    )  # fmt: skip
    model = load_model(args.model, device=args.device)
    session = LabSession(model, budget_bytes=args.budget_mb << 20)
    rows_path = out.with_suffix(".rows.jsonl")
    for event in run_loop(session, request, rows_path):
        if isinstance(event, LoopRecord):
            record = event
        else:
            show_progress(f"{event.text} ({event.done} of {event.total})")
    lines = summary(record)
    report = {
        "request": as_json(request),
        "model": as_json(model.info),
        "versions": versions(),
        "summary": [as_json(line) for line in lines],
    }
    write_json(out, report)
    out.with_suffix(".kvloop").write_bytes(record.to_bytes())
    print_loop(lines)
    print(f"rows in {rows_path}, the record in {out.with_suffix('.kvloop')}, summary in {out}")
    return 0


def print_loop(lines: Sequence[LoopLine]) -> None:
    """The summary of an agent loop as a table for people."""
    from backend.records.run import PROVENANCE

    rows: list[tuple[str, ...]] = [
        ("mode", "method", "episodes", "right", "95%", "behind the full read, 95%", "turns", "tokens reused",
         "TTFT ms", "faster", "KL first", "KL along", "95%", "under 0.1", *PROVENANCE),
    ]  # fmt: skip

    def number(value: float, form: str) -> str:
        return "-" if value != value else format(value, form)

    for x in lines:
        rows.append(
            (
                x.mode, x.method, str(x.episodes), f"{x.right / x.known:.1%}" if x.known else "-",
                f"{x.right_low:.0%} to {x.right_high:.0%}",
                " ".join(number(v, ".1%") for v in x.behind), f"{x.turns:.1f}",
                f"{x.reused:.1%} ± {number(x.reused_half, '.1%')}", f"{x.ttft_ms:.1f}",
                f"{number(x.ratio, '.2f')}×", number(x.kl_first, ".4f"), number(x.kl, ".4f"),
                number(x.kl_high, ".4f"), number(x.near, ".0%"), *(f"{share:.0%}" for share in x.provenance),
            )
        )  # fmt: skip
    print_table(rows, left=2)


def hypotheses(args: argparse.Namespace) -> int:
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.records.hypotheses import HypothesesRecord, HypothesesRequest
    from backend.records.hypothesis_verdicts import precision_recall, verdicts
    from backend.studies.hypotheses import hypotheses as measure

    out = named_file("json", args.json, "segments.json")
    request = HypothesesRequest(
        episodes=args.episodes, turns=args.turns, memory=args.memory, seed=args.seed, grid=args.grid,
        reruns=args.reruns, candidates=args.candidates, max_new_tokens=args.max_new_tokens,
        common=parse_methods(f"segments:{args.segments}")[0].options,
    )  # fmt: skip
    rows_path = out.with_suffix(".rows.jsonl")
    for event in measure(load_model(args.model, device=args.device), request, rows_path):
        if isinstance(event, HypothesesRecord):
            record = event
        else:
            show_progress(event.text)
    results = verdicts(record)
    report = {
        "request": as_json(request),
        "model": as_json(record.model),
        "versions": versions(),
        "verdicts": [as_json(verdict) for verdict in results],
        "precision_recall": precision_recall(record),
    }
    write_json(out, report)
    out.with_suffix(".kvhypotheses").write_bytes(record.to_bytes())
    for verdict in results:
        print(f"{verdict.name} {verdict.word}: {verdict.claim}\n   {verdict.reason}")
    print(f"{len(record.live)} turns in {rows_path}, verdicts in {out}")
    return 0
