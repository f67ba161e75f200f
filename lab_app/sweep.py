"""``kvlab sweep``: run a sweep file, and print and export what it shows."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.errors import OptionError
from lab_app.loading import add_loading, loading

if TYPE_CHECKING:
    from backend.judged import Share
    from backend.sweeps.spec import Sweep
    from backend.swept import Count, SweepLine

LOG_SECONDS = 30.0


def add_sweep(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "sweep", sweep, "Run a grid of comparisons from a file; the same command goes on where it stopped."
    )
    sub.add_argument("file", metavar="FILE.yaml", help="the sweep; presets/sweeps/ has examples")
    sub.add_argument(
        "--out", metavar="FILE.sqlite", help="where the rows go; else NAME.sqlite in this folder"
    )
    sub.add_argument(
        "--export", choices=("csv", "parquet"), help="also write the rows as one table beside it"
    )
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)
    sub.add_argument(
        "--ray", nargs="?", const="", metavar="ADDRESS",
        help="run shards at once in workers on Ray: on this machine, or on the cluster at an address",
    )  # fmt: skip
    sub.add_argument("--workers", type=int, help="with --ray: how many at once; else one a processor or GPU")


def sweep(args: argparse.Namespace) -> int:
    """Handler of the command."""
    from backend.model import load_model
    from backend.session import versions
    from backend.sweeps.export import export
    from backend.sweeps.run import run_sweep
    from backend.sweeps.runner import ModelRunner
    from backend.sweeps.spec import read_sweep
    from backend.sweeps.stats import summarise
    from backend.sweeps.store import SweepStore
    from backend.swept import Count

    asked = read_sweep(Path(args.file))
    out = Path(args.out or f"{asked.name}.sqlite")
    if not out.name or out.is_dir() or out.suffix in ("", ".csv", ".parquet", ".json"):
        raise OptionError(
            f"--out is {str(out)!r}, which names no SQLite file. Name one, such as {asked.name}.sqlite.",
            field="out",
        )
    if args.export == "parquet":
        from backend.sweeps.datasets import parquet_module

        parquet_module()  # refused before the work, not after it
    if args.workers is not None and args.ray is None:
        raise OptionError("--workers is for --ray, which is not there. Add it.", field="workers")
    facts = {"versions": versions(), "platform": sys.platform, "device": args.device}
    given = loading(args)

    def runner() -> ModelRunner:
        return ModelRunner(lambda name: load_model(name, **given))

    with ExitStack() as open_now:
        spread, single = None, None
        if args.ray is not None:
            from backend.sweeps.cluster import Cluster

            gpus = int(args.device == "cuda")
            single = open_now.enter_context(
                Cluster(runner, workers=args.workers, address=args.ray, gpus=gpus)
            )
            spread = single.spread
        store = open_now.enter_context(SweepStore(out))
        tell = Told()
        for event in run_sweep(asked, store, single or runner(), facts=facts, spread=spread):
            if isinstance(event, Count):
                tell(event)
            else:
                done = event
    show_end()
    lines = summarise(done)
    for row in table(lines):
        print(row)
    summary = out.with_suffix(".json")
    write_summary(asked, lines, facts, summary)
    written = [f"{len(done.rows):,} rows in {out}", f"summary in {summary}"]
    if args.export:
        place = out.with_suffix(f".{args.export}")
        export(done.rows, place, args.export)
        written.append(f"table in {place}")
    print(", ".join(written))
    return 0


class Told:
    """How far it is: one line of a terminal, again and again; in a log a line every :data:`LOG_SECONDS`."""

    def __init__(self) -> None:
        self.last = -math.inf

    def __call__(self, count: Count | str) -> None:
        if sys.stderr.isatty():
            print(f"\r{str(count)[:100]:<100}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - self.last >= LOG_SECONDS:
            self.last = time.monotonic()
            print(count, file=sys.stderr, flush=True)


def show_end() -> None:
    """Leave the line of :class:`Told`."""
    if sys.stderr.isatty():
        print(file=sys.stderr)


def table(lines: Sequence[SweepLine]) -> Iterator[str]:
    """The summary for people, in columns: shares with 95% intervals; each p as measured and after Holm's
    correction."""
    rows: list[tuple[str, ...]] = [
        ("cell", "method", "n", "right", "as dense", "blocks", "tokens", "KL first", "TTFT ms", "ratio",
         "lost/won", "McNemar p", "Holm", "times p", "Holm"),
    ]  # fmt: skip
    for x in lines:
        kl = "-" if not x.kl_first.of else f"{x.kl_first.value:.4f}"
        parted = "-" if x.mcnemar is None else f"{x.only_dense}/{x.only_mine}"
        tests = (x.mcnemar, x.mcnemar_holm, x.wilcoxon, x.wilcoxon_holm)
        rows.append(
            (
                x.label, x.method, str(x.problems), shown(x.accuracy), shown(x.as_dense),
                shown(x.blocks, False), shown(x.tokens, False), kl, f"{x.ttft_ms:.1f}", f"{x.ttft_ratio:.2f}",
                parted, *("-" if p is None else f"{p:.3f}" for p in tests),
            )
        )  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(cells)).rstrip()


def shown(share: Share, interval: bool = True) -> str:
    """A share as percent, with its interval; ``-`` where nothing was counted."""
    if not share.of:
        return "-"
    return f"{share.value:.1%}" + (f" [{share.low:.1%}, {share.high:.1%}]" if interval else "")


def write_summary(asked: Sweep, lines: Sequence[SweepLine], facts: dict[str, Any], path: Path) -> None:
    """The summary as JSON, which knows neither NaN nor infinity."""
    from backend.codec import encode

    report = {"name": asked.name, "title": asked.title, **facts, "sweep": asked.source}
    report["lines"] = [encode(replace(line), {}) for line in lines]
    plain = json.loads(json.dumps(report), parse_constant=lambda _: None)
    path.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
