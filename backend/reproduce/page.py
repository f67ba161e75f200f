"""The list of reproductions, for a terminal and as ``docs/reproductions.md``. Free of torch."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backend.reproduce.registry import find, printed, reproductions
from backend.reproduce.result import picture, read, table
from backend.reproduce.spec import PAPERS, SCALES, Printed, Reproduction, Scale

INTRODUCTION = """# Reproductions

Made by `kvlab reproduce --markdown` from the registry and the saved reports; do not edit by hand.

`kvlab reproduce NAME` runs one of these, prints the paper's figures beside ours with what has to be known
before comparing them, and saves both as JSON and Markdown with hardware, weights, versions and command.
Alone, `kvlab reproduce` lists the names.

**What kind of evidence this is.** A run at embedded scale is a model of a few million parameters on the
tasks that it was trained on: one machine, some 40 requests, greedy.

* It *is* evidence that the method as coded here does what it says on a model that reads: which step, gate
  or pool changes answers, in which direction, and whether a mechanism (a key at a wrong place, a copy that
  never saw its neighbours) is enough to produce what a paper reports.
* It is *no* evidence of a level: 95% here and 80% there are other tasks on another model. A trend that
  fails here may hold on a large model, and one that shows here may be the small model's own.
* It is *no* repetition of a paper's data set. Where the embedded model has no task of the kind (MMLU's four
  choices, HumanEval's programs that are run) the lines are openly empty, and a task of another kind that
  stands beside one says so.
* Unless `--warmups N` was given, all requests stand behind one warm-up. One pool is one draw: another draw
  may order two near rows the other way, and the intervals, which count requests as independent, are then
  too narrow. With `--warmups 20` they are over 20 draws.
* An interval is 95% by itself. A table with 40 of them has two that miss, so a difference between two rows
  is a hint until a test over all of them says more (`kvlab sweep` gives Holm's p).

How it is run:

* At *embedded* scale, the default, each takes minutes on two cores; `--requests N` shortens it.
* At *paper* scale (`--model` with a hub id or a folder, or `--scale paper`) the papers' prompts and lengths
  are used on a GPU. Data sets are files in `--data FOLDER`, called after their format, such as `gsm8k` or
  `hotpotqa`, with the ending `.jsonl`, `.json`, `.csv` or `.parquet` ([sweeps.md](sweeps.md) has the formats
  and their columns); `--data hub` fetches each format's own data set. Lines that a paper ran on another
  model run on it, unless `--model` names one for all. `--device-map`, `--quantise` and, for tables that are
  sweeps, `--ray` and `--workers` are those of `kvlab sweep`. Tables of times take `--model llama-8b` (random
  weights) as well as a real model.
* Where something cannot be run, the report says so in the line; no figure is made up.
* Sweeps, document studies and hypotheses keep their rows in `--out` and go on where they were stopped.
* A table that needs trained weights (KVLink's) takes those in `--links FOLDER`, which `kvlab train-links`
  writes, then those that ship with the embedded model if all that it needs ship. What lacks is trained first,
  at embedded scale, for `--training-steps` (400; 0 trains none) on one CPU core in about two minutes each,
  into `--out`, where an interrupted training goes on and the next run finds it.
* Public benchmarks (KVLink's Tables 2 and 5 at paper scale) are asked by the LM Evaluation Harness (`pip
  install 'kv-reuse-lab[harness]'`): its own tasks with `--data hub`, yours of the same names in `--data
  FOLDER` (`NAME.yaml`, as it writes them).
* Figures are saved as pictures too, SVG and HTML.
* Papers are quoted from their text; where a figure is a plot, its numbers are not guessed.
* Energy is the GPU's own counter (NVML; `pip install 'kv-reuse-lab[energy]'`); a CPU has none.
"""


#: By scale: the machine of its minutes, and the command that runs it.
_RUN = {
    "embedded": ("two CPU cores", "NAME runs one"),
    "paper": ("one large GPU", "NAME --scale paper runs one"),
}


def listing(scale: Scale = "embedded") -> str:
    """For a terminal: name, place, minutes at a scale, and the question of each."""
    wide = max(len(entry.name) for entry in reproductions())
    lines = []
    for paper, title in PAPERS.items():
        entries = [entry for entry in reproductions() if entry.paper == paper]
        lines += [f"{title}", *(f"  {entry.name:<{wide}}  {_line(entry, scale)}" for entry in entries), ""]
    where, how = _RUN[scale]
    lines.append(
        f"Minutes are of {scale} scale on {where}. kvlab reproduce {how}; --requests N makes it shorter."
    )
    return "\n".join(lines) + "\n"


def _line(entry: Reproduction, scale: Scale) -> str:
    return f"{entry.place.partition(' (')[0]}, about {entry.scales[scale].minutes} min: {entry.sentence}"


def page(results: Path, images: Path) -> str:
    """The page: all reproductions, and the saved reports.

    Args:
        results: folder of saved reports (``NAME.json``).
        images: folder of the drawings that the page shows (``NAME.svg``), ``images`` beside it.

    Raises:
        RecordError: a report is damaged.
    """
    lines = [INTRODUCTION]
    for paper, title in PAPERS.items():
        lines += [
            f"## {title}",
            "",
            "| name | what | minutes, embedded / paper scale | asks |",
            "|---|---|---|---|",
        ]
        for entry in reproductions():
            if entry.paper == paper:
                minutes = " / ".join(str(entry.scales[scale].minutes) for scale in SCALES)
                links = " (`--links`)" if entry.needs_links else ""
                lines.append(f"| `{entry.name}`{links} | {entry.place} | {minutes} | {entry.sentence} |")
        lines.append("")
        if figures := printed(paper):
            lines += [
                "Printed figures that no table stands for:",
                "",
                "| figure | shows | here |",
                "|---|---|---|",
            ]
            lines += [
                f"| {figure.place} | {figure.shows} | {_where(figure, results)} |" for figure in figures
            ]
            lines.append("")
    saved = [results / f"{entry.name}.json" for entry in reproductions()]
    lines += [
        "## Measured",
        "",
        "Short runs at embedded scale, as the commands say; only lines with a figure of ours are shown. The",
        "reports are in `benchmarks/results/reproductions/`. Times were taken while other work ran on the",
        "same two cores: look at ratios.",
        "",
    ]
    for path in saved:
        if path.exists():
            lines += _result_lines(path, images)
    return "\n".join(lines).rstrip() + "\n"


def _where(figure: Printed, results: Path) -> str:
    """Where the lab has a printed figure, and why no figure of ours stands beside it."""
    named = set(re.findall("`([^`]*)`", figure.here)) & {entry.name for entry in reproductions()}
    saved = all((results / f"{name}.json").exists() for name in named)
    absent = figure.absent or ("" if saved else "no report of it is saved yet")
    parts = [figure.here] if figure.here else []
    parts += [f"not measured here: {absent}"] if absent else []
    return "; ".join(parts)


def _open(saved: Mapping[str, Any]) -> list[str]:
    """Which lines of a report have no figure of ours, and why."""
    reasons: dict[str, list[str]] = {}
    for line in saved["lines"]:
        if not any(line["ours"]):
            reasons.setdefault(line["absent"], []).append(line["label"])
    parts = [
        f"*{labels[0]}*{f' to *{labels[-1]}* ({len(labels)} lines)' if len(labels) > 1 else ''}: {why}."
        for why, labels in reasons.items()
    ]
    return [f"Without a figure of ours: {' '.join(parts)}", ""] if parts else []


def _result_lines(path: Path, images: Path) -> list[str]:
    saved = read(path)
    entry = find(saved["name"])
    labels = {line.label for line in entry.lines}
    lines = [line for line in saved["lines"] if line["label"] in labels]
    if len(lines) < len(saved["lines"]):  # without another task's lines, its caveat does not apply either
        saved |= {"lines": lines, "caveat": entry.caveat}
    drawing = f"{saved['name']}.svg"
    model = saved["model"]
    return [
        f"### {saved['name']}: {saved['place']}",
        "",
        f"{saved['asks']} Paper: {saved['setting_paper']}. Ours: {saved['setting_ours']}.",
        "",
        *(picture(saved, f"images/{drawing}") if (images / drawing).exists() else ()),
        *table(saved, ours_only=True),
        "",
        *_open(saved),
        f"{saved['caveat']} {' '.join(saved['notes'])}".strip(),
        "",
        f"`{saved['command']}`, {saved['created'][:10]}, weights `{model['weights_hash']}`, "
        f"{saved['hardware']}, {saved['busy']}.",
        "",
    ]
