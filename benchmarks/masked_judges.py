"""Does a judge need its candidates to see each other? By its prompt's wording and the number of candidates.

Held-out problems, read in full while the candidates' texts cannot attend to each other (*masked*), or neither
their texts nor the words before them can (*strictly masked*). Each cell counts the right selections of
equally many problems, the same under every mask. FINDINGS.md has the figures in "What a visitor's edit does
to the model".
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

from backend.base.machine import versions
from backend.base.statistics import exact_share
from backend.model.load import load_model
from backend.records.request import MethodChoice
from backend.training.evaluate import APART, JUDGES, WORDINGS, held_out_documents, right_by_method

SIZES = range(2, 7)
METHODS = (MethodChoice("dense"), *APART)


def main() -> None:
    """Print right selections by judge, wording, number of candidates and mask."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--count", type=int, default=60, help="problems of each cell")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    args = parser.parse_args()
    model = load_model(args.model, dtype="fp32")
    cells: list[dict[str, Any]] = []
    for task, wording, size in product(JUDGES, WORDINGS, SIZES):
        documents = held_out_documents(task, args.count, wording, args.seed, size)
        right = right_by_method(model, documents, METHODS)
        cell = {"judge": task, "wording": wording, "candidates": size, "of": args.count}
        cells.append(cell | {"right": {choice.label: right[choice.label] for choice in METHODS}})
        print(cells[-1], flush=True)
    for wording, choice in product(WORDINGS, METHODS):
        mine = [cell for cell in cells if cell["wording"] == wording]
        good, count = sum(cell["right"][choice.label] for cell in mine), args.count * len(mine)
        interval = exact_share(good, count)
        print(f"{wording}, {choice.label}: {good} of {count} ({interval.low:.0%} to {interval.high:.0%})")
    if args.json:
        facts = {"bench": "masked judges", "weights": model.info.weights_hash, "seed": args.seed}
        report = facts | {"versions": versions(), "cells": cells}
        args.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
