"""The list of reproductions, for a terminal and as ``docs/reproductions.md``. Free of torch."""

from __future__ import annotations

from pathlib import Path

from backend.reproduce.registry import reproductions
from backend.reproduce.result import picture, read, table
from backend.reproduce.spec import PAPERS, SCALES, Reproduction, Scale

INTRODUCTION = """# Reproductions

Made by `kvlab reproduce --markdown` from the registry and the saved reports; do not edit by hand.

`kvlab reproduce NAME` runs one of these, prints the paper's figures beside ours with what has to be known
before comparing them, and saves both as JSON and Markdown with hardware, weights, versions and command.
Alone, `kvlab reproduce` lists the names.

* At *embedded* scale, the default, each takes minutes on two cores; `--requests N` shortens it. The model is
  small and its tasks are its own: it can show whether a trend holds, not whether a level does.
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


#: By scale: what its minutes are of, and how its runs are asked for.
_RUN = {
    "embedded": ("two CPU cores", "NAME runs one"),
    "paper": ("one large GPU", "NAME --scale paper runs one"),
}


def listing(scale: Scale = "embedded") -> str:
    """For a terminal: name, place, minutes at a scale, and what it asks."""
    wide = max(len(one.name) for one in reproductions())
    lines = []
    for paper, title in PAPERS.items():
        mine = [one for one in reproductions() if one.paper == paper]
        lines += [f"{title}", *(f"  {one.name:<{wide}}  {_line(one, scale)}" for one in mine), ""]
    where, how = _RUN[scale]
    lines.append(
        f"Minutes are of {scale} scale on {where}. kvlab reproduce {how}; --requests N makes it shorter."
    )
    return "\n".join(lines) + "\n"


def _line(one: Reproduction, scale: Scale) -> str:
    return f"{one.place.partition(' (')[0]}, about {one.scales[scale].minutes} min: {one.sentence}"


def page(results: Path, images: Path) -> str:
    """The page: all reproductions, and what of them was measured.

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
        for one in reproductions():
            if one.paper == paper:
                minutes = " / ".join(str(one.scales[scale].minutes) for scale in SCALES)
                links = " (`--links`)" if one.needs_links else ""
                lines.append(f"| `{one.name}`{links} | {one.place} | {minutes} | {one.sentence} |")
        lines.append("")
    saved = [results / f"{one.name}.json" for one in reproductions()]
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
            lines += _measured(path, images)
    return "\n".join(lines).rstrip() + "\n"


def _measured(path: Path, images: Path) -> list[str]:
    found = read(path)
    drawing = f"{found['name']}.svg"
    model = found["model"]
    return [
        f"### {found['name']}: {found['place']}",
        "",
        f"{found['asks']} Paper: {found['setting_paper']}. Ours: {found['setting_ours']}.",
        "",
        *(picture(found, f"images/{drawing}") if (images / drawing).exists() else ()),
        *table(found, ours_only=True),
        "",
        f"{found['caveat']} {' '.join(found['notes'])}".strip(),
        "",
        f"`{found['command']}`, {found['created'][:10]}, weights `{model['weights_hash']}`, "
        f"{found['hardware']}, {found['busy']}.",
        "",
    ]
