"""``kvlab frontier``: search a sweep's methods for the frontier of tokens computed and answers flipped."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from backend.base.errors import OptionError
from lab_app.cli.common import add_loading, loading, print_table, write_json
from lab_app.cli.sweep import Told, rows_file, show_end


def add_frontier(add: Any) -> None:
    """Register the command; ``add`` makes a sub-parser from a name, a handler and a help text."""
    sub = add(
        "frontier",
        frontier,
        "Search compositions for those that flip few answers and compute few tokens; the same command goes "
        "on where it stopped.",
    )
    sub.add_argument("file", metavar="FILE.yaml", help="a sweep; its methods are searched, in rounds")
    sub.add_argument(
        "--out", metavar="FILE.sqlite", help="where the rows go; else NAME.sqlite in this folder"
    )
    sub.add_argument(
        "--first", type=int, default=5, help="problems of each cell in the first round; each doubles them"
    )
    sub.add_argument(
        "--cost",
        type=float,
        default=1.0,
        help="the most that the best may compute, of the full read's tokens",
    )
    sub.add_argument(
        "--held-out", metavar="FILE.yaml", help="a sweep of other problems: the best beside its methods"
    )
    sub.add_argument("--show", action="store_true", help="only show what the rows say; nothing is run")
    sub.add_argument("--device", choices=("cpu", "cuda", "mps"))
    add_loading(sub)


def frontier(args: argparse.Namespace) -> int:
    """Handler of the command."""
    from backend.base.machine import versions
    from backend.base.serialization import as_json
    from backend.model.load import load_model
    from backend.records.frontier import Frontier
    from backend.records.sweep import Count
    from backend.sweeps.frontier import search
    from backend.sweeps.read import read_sweep
    from backend.sweeps.run import Recorded
    from backend.sweeps.runner import ModelRunner
    from backend.sweeps.store import SweepStore
    from viz.run.report import figure_html
    from viz.studies.frontier import finding, held_out_rows, rows, view

    spec = read_sweep(Path(args.file))
    other = read_sweep(Path(args.held_out)) if args.held_out else None
    for name, value, most in (("first", args.first, spec.problems), ("cost", args.cost, 1)):
        if not 0 < value <= most:
            raise OptionError(f"--{name} is {value:g}; it must be above 0 and at most {most:g}.", field=name)
    read = [Path(args.file), *spec.files]
    if other is not None:
        read += [Path(args.held_out), *other.files]
    report, page = "frontier.json", "frontier.html"
    out, (report_file, page_file) = rows_file(args.out, spec.name, read, (report, page))
    if args.show and not out.is_file():
        raise OptionError(
            f"--show shows what is in a file, and there is no {out}. Leave it out.", field="show"
        )
    facts = {"versions": versions(), "platform": sys.platform, "device": args.device}
    with SweepStore(out) as store:
        given = loading(args)
        runner = Recorded(store) if args.show else ModelRunner(lambda name: load_model(name, **given))
        tell, found = Told(), None
        for event in search(
            spec, store, runner, first=args.first, limit=args.cost, held_out=other, facts=facts
        ):
            if isinstance(event, Count):
                tell(event)
            elif isinstance(event, Frontier):
                found = event
        facts["weights"] = {name: store.weights(name) for name in spec.models}
    show_end()
    assert found is not None
    print_table(rows(found), left=1)
    if found.confirmed is not None:
        print()
        print_table(held_out_rows(found), left=1)
    print(f"\n{finding(found)}")
    write_json(
        report_file, {**as_json(found), **facts, "sweep": spec.source, "other": other.source if other else ""}
    )
    page_file.write_text(figure_html(view(found), found.title or found.name), encoding="utf-8")
    print(f"rows in {out}, summary in {report_file}, figure in {page_file}")
    return 0
