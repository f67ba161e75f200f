"""``kvlab xray --model``: what becomes of a log's sampled calls under reuse, on a model of one's own."""

from __future__ import annotations

import argparse
import itertools
from typing import TYPE_CHECKING, Any

from backend.base.errors import OptionError
from lab_app.cli.common import add_loading, loading, parse_methods, path_of, print_table, show_progress

if TYPE_CHECKING:
    from backend.records.log_reading import ReadingRecord

SHOWN = 5  # changed answers, and agents
METHODS, SAMPLE = "naive,kvcomm", 50
HEAD = (
    "method, agent", "reused", "answers changed", "95%", "not by rounding", "tool calls changed", "KL first",
    "KL logged", "cache error",
)  # fmt: skip


def add_reading(sub: argparse.ArgumentParser) -> None:
    """The flags of ``kvlab xray --model``."""
    group = sub.add_argument_group(
        "with a model", "Sampled calls are read densely and under reuse methods, and their answers compared."
    )
    group.add_argument("--model", help="'embedded', a folder in hub layout, or a hub id")
    group.add_argument("--methods", help=f"as in --methods of run ({METHODS})")
    group.add_argument("--sample", type=int, help=f"most calls that are read ({SAMPLE})")
    group.add_argument(
        "--most-tokens", type=int, default=10_000_000, help="of prompts, over all methods (10000000)"
    )
    group.add_argument("--warmup", type=int, default=8, help="first calls of a template: they fill pools (8)")
    group.add_argument("--max-new-tokens", type=int, default=64, help="the longest answer (64)")
    group.add_argument(
        "--same", default="none", help="what has to be equal: none (all of it), number, text, ..."
    )
    group.add_argument(
        "--blame-passes", type=int, default=150,
        help="caches tried to find what changed an answer; 0: none (150)",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--budget-mb", type=int, default=4096)
    group.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)


def check_reading(args: argparse.Namespace) -> None:
    """
    Raises:
        OptionError: there is something to read, but no model.
    """
    for flag in ("methods", "sample"):
        if getattr(args, flag) is not None and not args.model:
            raise OptionError(f"--{flag} is for --model, which is not there. Add it.", field="model")


def read(args: argparse.Namespace) -> ReadingRecord:
    """Read the log's calls on the model that ``--model`` names."""
    from backend.logs.reader import LogReader
    from backend.model.load import load_model
    from backend.records.events import Progress
    from backend.records.log_reading import ReadingRequest
    from backend.studies.log_reading import read_log
    from backend.studies.logged_calls import MOST_CALLS

    request = ReadingRequest(
        tuple(m for m in parse_methods(args.methods or METHODS) if not m.reference),
        SAMPLE if args.sample is None else args.sample, args.most_tokens,
        args.blame_passes, args.warmup, args.max_new_tokens, args.same, args.seed,
    )  # fmt: skip
    calls = list(itertools.islice(LogReader(path_of(args.log), skip_bad=args.skip_bad), MOST_CALLS + 1))
    for event in read_log(load_model(args.model, **loading(args)), request, calls, args.budget_mb << 20):
        if isinstance(event, Progress):
            show_progress(event.text)
        else:
            record = event
    show_progress("")
    return record


def say_reading(record: ReadingRecord) -> None:
    """The tables."""
    read = len(record.of(record.request.methods[0].label))
    print(
        f"\n{read} of {record.calls:,} calls were read by {record.model.name}, densely and under reuse; "
        f"{record.warmed:,} only filled pools, {len(record.refused):,} could not be read"
        + ("; the budget of tokens ended it." if record.spent else ".")
    )
    if record.refused:
        print(f"  The first: {record.refused[0].where}: {record.refused[0].why}")
    rows: list[tuple[str, ...]] = [HEAD]
    for line in record.summary():
        if line["agent"] in (None, *record.agents[:SHOWN]) and line["flips"]["of"]:
            rows.append(_line(line, several=len(record.agents) > 1))
    print_table([row for row in rows if row], 1)
    print(
        "KL in nats, dense to method, a token; logged: along the logged answers. Cache error: keys, values."
    )
    changed = [row for row in record.rows if row.flipped]
    for row in changed[:SHOWN]:
        print(f"  {row.where}, {row.agent[:40]}, {row.method}{' (near tie)' if row.near_tie else ''}:")
        print(f"    dense: {_short(row.dense)}\n    reuse: {_short(row.text)}")
        if row.blamed is not None:
            print(f"    {_blame(row.blamed)}")
    if len(changed) > SHOWN:
        print(f"  and {len(changed) - SHOWN} more (--json)")


def _line(line: dict[str, Any], several: bool) -> tuple[str, ...]:
    if line["agent"] is not None and not several:
        return ()
    flips, real, calls = line["flips"], line["real_flips"], line["tool_flips"]

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.2g}"

    return (
        line["method"] if line["agent"] is None else f"  {line['agent'][:30]}",
        f"{line['reused']:.0%}", f"{flips['count']} of {flips['of']}",
        f"{flips['low']:.1%} to {flips['high']:.1%}", f"{real['count']}",
        f"{calls['count']} of {calls['of']}" if calls["of"] else "",
        number(line["kl_first"]), number(line["kl_logged"]),
        ", ".join(filter(None, map(number, (line["key_error"], line["value_error"])))),
    )  # fmt: skip


def _blame(blamed: Any) -> str:
    if blamed.refused:
        return f"because of: not searched. {blamed.refused}"
    if not blamed.parts:
        return "because of: no small set of texts was found."
    parts = "; ".join(
        f"“{_short(p.text, 60)}” ({p.half}, layers {p.first} to {p.last})" for p in blamed.parts
    )
    return (
        f"because of: {parts}; {blamed.share:.1%} of the cache. Of {blamed.random} random sets as large "
        f"{blamed.random_restored} bring the answer back."
    )


def _short(text: str, most: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def plain(record: ReadingRecord) -> dict[str, Any]:
    """All of it as JSON."""
    from backend.base.serialization import as_json

    return {"summary": record.summary(), **as_json(record)}
