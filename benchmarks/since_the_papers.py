"""Methods since the papers beside their controls: flips by preset with exact intervals, in Markdown.

Reads the rows that ``kvlab sweep presets/sweeps/since-the-papers.yaml`` left (or ``kvlab frontier`` with that
file as ``--held-out``; ``--sweep`` names another file, such as ``droidspeak.yaml``): per preset and over all,
answers that are not the full read's and tokens computed; then each method against its controls, problem by
problem (McNemar's exact test, Holm's correction over the pairs). Prints the table, and with ``--json`` writes
the numbers. ``--mode`` names the mode, pinned (every method reads the full read's texts) or free (each reads
what its own agents wrote); the rows of both fit into one file. ``--run`` first runs what is not there yet.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.base.machine import versions
from backend.base.statistics import exact_share
from backend.model.load import load_model
from backend.sweeps.compare import holm, mcnemar
from backend.sweeps.grid import shards_of
from backend.sweeps.read import read_sweep
from backend.sweeps.rows import Row
from backend.sweeps.run import Recorded, SweepDone, run_sweep
from backend.sweeps.runner import ModelRunner
from backend.sweeps.store import SweepStore

SWEEP = Path(__file__).resolve().parents[1] / "presets" / "sweeps" / "since-the-papers.yaml"
RANDOM, QUERY = "random_k:ratio=0.2+fresh_layers=0", "query_norm:ratio=0.2+fresh_layers=0"
CONTROLS = (
    ("prophetkv", RANDOM), ("prophetkv", QUERY), ("ape", "ape untuned"), ("ape", "block_attention"),
    ("relaycaching", "relay random"), ("relaycaching", "relay none"),
    ("droidspeak", "full reuse"), ("droidspeak", "naive"), ("droidspeak", "kvcomm"),
    ("lragent", "full reuse"), ("lragent", "naive"), ("lragent", "droidspeak"),
)  # fmt: skip
ALL = "all"


def summary(rows: list[Row], dense: dict[tuple[str, int], Row]) -> dict[str, Any]:
    flips, count = sum(row.as_dense is False for row in rows), len(rows)
    share = exact_share(flips, count)
    whole = sum(dense[row.task, row.problem].forwarded_tokens for row in rows)
    return {
        "problems": count,
        "flips": flips,
        "flipped_95": [round(share.low, 3), round(share.high, 3)],
        "tokens_computed": round(sum(row.forwarded_tokens for row in rows) / whole, 3),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="the SQLite file")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--sweep", type=Path, default=SWEEP)
    parser.add_argument("--mode", choices=("pinned", "free"), default="pinned")
    parser.add_argument("--run", action="store_true", help="run what is missing; goes on where it stopped")
    args = parser.parse_args()
    sweep = replace(read_sweep(args.sweep), modes=(args.mode,))
    with SweepStore(args.rows) as store:
        *_, result = run_sweep(sweep, store, ModelRunner(load_model) if args.run else Recorded(store))
        weights = store.weights(shards_of(sweep)[0].models)
    assert isinstance(result, SweepDone)
    by_method: dict[str, list[Row]] = {}
    for _, method, row in result.rows:
        by_method.setdefault(method, []).append(row)
    dense = {(row.task, row.problem): row for row in by_method.pop("dense")}
    presets = list(dict.fromkeys(row.task for row in dense.values()))
    table = {
        method: {
            preset: summary([r for r in rows if preset in (r.task, ALL)], dense) for preset in (*presets, ALL)
        }
        for method, rows in by_method.items()
    }
    print("| flips | " + " | ".join(presets) + " | all | tokens computed |\n|" + "---|" * (len(presets) + 3))
    for method, summaries in table.items():
        cells = [
            f"{x['flips']} of {x['problems']} ({x['flipped_95'][0]:.0%} to {x['flipped_95'][1]:.0%})"
            for x in summaries.values()
        ]
        print(f"| {method} | {' | '.join(cells)} | {summaries[ALL]['tokens_computed']:.0%} |")
    flipped = {m: {(r.task, r.problem): r.as_dense is False for r in rows} for m, rows in by_method.items()}
    pairs: list[dict[str, Any]] = []
    for method, control in ((m, c) for m, c in CONTROLS if {m, c} <= flipped.keys()):
        own_flips, control_flips = flipped[method], flipped[control]
        worse = sum(own_flips[k] and not control_flips[k] for k in own_flips)
        better = sum(control_flips[k] and not own_flips[k] for k in own_flips)
        p = mcnemar(worse, better)
        pairs.append({"method": method, "control": control, "only_it": worse, "only_control": better, "p": p})
    for pair, corrected in zip(pairs, holm([pair["p"] for pair in pairs]), strict=True):
        pair["holm"] = corrected
        print(*(f"{v:.4f}" if isinstance(v, float) else v for v in pair.values()))
    if args.json:
        report = {"weights": weights, "versions": versions(), "mode": args.mode, "complete": result.complete}
        report |= {"methods": table, "pairs": pairs}
        args.json.write_text(json.dumps(report) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
