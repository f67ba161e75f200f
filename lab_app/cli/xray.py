"""``kvlab xray``: what reuse would save of a log of other agents' calls, and why prefixes were missed."""

from __future__ import annotations

import argparse
from typing import Any

from backend.base.errors import OptionError
from backend.logs.pieces import EMBEDDED
from backend.logs.xray import XRay, xray
from backend.records.hardware import saved_figures
from lab_app.cli.common import named_file, path_of, print_table, show_progress, write_json
from lab_app.cli.xray_model import add_reading, check_reading, plain, read, say_reading

SHOWN = 12  # rows of a table; --json has all
LONGEST = 44  # characters of an agent's name


def add_xray(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add("xray", run_xray, "What reuse would save of a log of model calls, and why prefixes missed.")
    sub.add_argument(
        "log", metavar="FILE", help="JSON lines of calls or spans, or an Inspect log (docs/logs.md)"
    )
    sub.add_argument(
        "--tokenizer", help="folder, tokenizer.json or hub id (the model's; without one: embedded)"
    )
    sub.add_argument("--block", type=int, default=16, help="tokens of an engine's block (16)")
    sub.add_argument("--cache-tokens", type=int, default=400_000, help="of the bounded cache (400000)")
    sub.add_argument("--machine", metavar="FILE.json", help="figures that kvlab break-even --json saved")
    sub.add_argument("--hour-price", type=float, default=3.0, help="dollars for an hour of that machine (3)")
    sub.add_argument("--skip-bad", action="store_true", help="leave out lines that hold no call, and say so")
    sub.add_argument("--json", metavar="OUT", help="where everything is saved, call by call")
    add_reading(sub)


def run_xray(args: argparse.Namespace) -> int:
    """Handler of the command."""
    if not 0 <= args.hour_price <= 1e6:
        raise OptionError(
            f"--hour-price is {args.hour_price:g}; 0 to 1,000,000 dollars are allowed. Change it.",
            field="hour-price",
        )
    check_reading(args)
    out = named_file("json", args.json, "xray.json") if args.json else None
    result = xray(
        path_of(args.log), tokenizer=args.tokenizer or args.model or EMBEDDED, block=args.block,
        cache_tokens=args.cache_tokens,
        skip_bad=args.skip_bad, hour_price=args.hour_price, said=show_progress,
        machine=saved_figures(path_of(args.machine)).machine if args.machine else None,
    )  # fmt: skip
    show_progress("")
    say(result)
    report = result.plain()
    if args.model:
        reading = read(args)
        say_reading(reading)
        report["model"] = plain(reading)
    if out is not None:
        write_json(out, report)
        print(f"\nEvery call is in {out}")
    return 0


def say(result: XRay) -> None:
    """The tables."""
    total = max(1, result.totals["tokens"])
    print(
        f"{result.file}: {result.totals['tokens']:,} tokens in {len(result.calls):,} calls of "
        f"{len(result.agents)} agents ({', '.join(result.formats)}; tokenizer: {result.tokenizer})."
    )
    if result.tokenizer == "embedded":
        print("The lab's own tokenizer counts more tokens than a large model's; name yours with --tokenizer.")
    if result.by_prompt:
        print(
            "Where the log names no agent, calls with the same beginning of the system prompt are one agent."
        )
    if result.skipped:
        print(f"{result.skipped:,} bad lines were left out. The first: {result.bad[0]}")
    if result.cut_tax[1]:
        print(f"Cutting at paragraphs changes the count by {result.cut_tax[0] / result.cut_tax[1]:+.2%}.")
    rows = [("what a cache would find", "tokens", "share", "seconds", "dollars")]
    for name, key, cost in (
        ("nothing: every prompt is read in full", "tokens", "full"),
        (f"beginnings, a cache of {result.capacity:,} tokens", "bounded", "bounded cache"),
        (f"beginnings, in blocks of {result.block}", "blocks", "unlimited cache"),
        ("beginnings, to the token", "prefix", ""),
        ("text anywhere (needs a method)", "anywhere", "anywhere"),
        ("new, but twice in one prompt", "repeated", ""),
        ("new", "new", ""),
    ):
        count = result.totals[key]
        times = (f"{result.seconds[cost]:,.1f}", f"{result.dollars[cost]:,.2f}") if cost else ("", "")
        rows.append((name, f"{count:,}", "" if key == "tokens" else f"{count / total:.1%}", *times))
    print()
    print_table(rows, 1)
    print(f"Seconds of prefill by the break-even formula, on: {result.machine}.")
    if None not in result.logged:
        print(f"The server counted {result.logged[1]:,} cached of {result.logged[0]:,} input tokens.")
    _say_missed(result, total)
    _say_matrix(result)
    _say_templates(result)
    if result.advice:
        print("\nLayouts that would share more, tried on the log:")
        print_table(
            [("layout", "tokens saved", "share")]
            + [(a.layout, f"{a.saved:,}", f"{a.saved / max(1, a.of):.1%}") for a in result.advice], 1
        )  # fmt: skip


def _say_missed(result: XRay, total: int) -> None:
    if not result.missed:
        print("\nNo call missed text that an earlier one had sent.")
        return
    print("\nWhy text that was there before was missed:")
    rows = [("cause", "calls", "tokens missed", "share", "for example")]
    for one in result.missed[:SHOWN]:
        rows.append(
            (one.kind, f"{one.calls:,}", f"{one.tokens:,}", f"{one.tokens / total:.1%}", one.example.where)
        )
    print_table(rows, 1)
    for one in result.missed[:3]:
        if cause := one.example.cause:
            print(f"  {cause.kind}, {one.example.where} beside {one.example.against}, {cause.role}:")
            print(f"    then: {cause.before or '(nothing)'}\n    now:  {cause.after or '(nothing)'}")


def _say_matrix(result: XRay) -> None:
    names, size = [name[:LONGEST] for name in result.agents], min(SHOWN, len(result.agents))
    print(
        "\nPercent of an agent's tokens (line) that an earlier call of an agent (column) had sent, in whole"
    )
    print("paragraphs:")
    read: dict[str, int] = dict.fromkeys(result.agents, 0)
    for call in result.calls:
        read[call.agent if call.agent in read else result.agents[-1]] += call.tokens
    rows = [("", *(f"{n + 1}" for n in range(size)))]
    for n in range(size):
        whole = max(1, read[result.agents[n]])
        rows.append((f"{n + 1} {names[n]}", *(f"{result.matrix[n][m] / whole:.0%}" for m in range(size))))
    print_table(rows, 1)


def _say_templates(result: XRay) -> None:
    print("\nWhat stays and what changes in an agent's prompts:")
    for one in result.templates[:4]:
        print(f"  {one.agent[:LONGEST]}, {one.calls:,} calls:")
        for part in one.parts[:6]:
            print(f"    {'stays  ' if part.stays else 'changes'} {part.tokens:>6,} tokens  {part.excerpt}")
        if len(one.parts) > 6:
            print(f"    and {len(one.parts) - 6} more")
