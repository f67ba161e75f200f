"""Draws ``docs/speed.md`` from the files of ``benchmarks/results/`` that ``kvlab bench`` wrote.

``python scripts/speed.py`` prints the page; ``--write`` puts it into place. A file is the JSON of one
command; the page says which.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "speed.md"
Report = dict[str, Any]

#: The ratios that were asked for, by shape, tokens and side.
ASKED = {
    ("embedded", 1500, "reuse"): 6.0,
    ("smollm2-135m", 1500, "reuse"): 12.0,
    ("smollm2-135m", 3500, "reuse"): 20.0,
    ("llama-8b", 3500, "reuse"): 8.0,
    ("llama-8b", 3500, "two_heaviest"): 12.0,
}
ASKED_OF_A_BATCH = 4.0
#: On a GPU, at the shape of an 8B model: milliseconds to match 25 anchors of 4,096 tokens, and how many times
#: what its bytes need at the bandwidth of a copy assembly may take.
ON_A_GPU, MATCH_MS, ASSEMBLY_TIMES = "llama-8b", 1.0, 1.5

HEAD = """# How fast reuse is

Drawn by `scripts/speed.py` from the files of `benchmarks/results/`, which `kvlab bench` wrote. Both sides of
a ratio were measured in the same run, in turn, after a warm-up; times are medians. The machines were not
idle: compare ratios, not milliseconds. *Processor* is the same ratio in the process's own processor time.
The *roofline* is the least time that the hardware allows, as a share of the time taken: for what reuses, its
bytes at the bandwidth of a large copy in the same run; for dense, its operations at the rate of a large
product of matrices in its precision.

Where there is a GPU of 24 GB or more, `make gpu` runs the tests that need one and measures what was asked of
it (the shape of an 8B model, random weights); this page then says what was met.
"""
NO_GPU = "No GPU has measured yet: every figure here is a CPU's.\n"


def reports() -> list[Report]:
    """Every report of a benchmark, with its file's name."""
    results = []
    for path in sorted(RESULTS.glob("*.json")):
        body = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(body, dict) and body.get("bench") in SECTIONS:
            results.append({**body, "file": path.name})
    return results


def command(report: Report) -> str:
    """What measures it again."""
    if report["bench"] == "peers":
        return (
            f"python benchmarks/peers --shape {report['shape']} --tokens {report['tokens']} "
            f"--anchors {report['anchors']} --repeats {report['repeats']} --python ..."
        )
    if "shape" not in report:
        return "python benchmarks/page_load.py"
    words = f"kvlab bench {report['bench']} --shape {report['shape']}"
    for name in ("tokens", "anchors", "repeats"):
        if name in report:
            words += f" --{name} {report[name]}"
    if report["dtype"] != "fp32":
        words += f" --dtype {report['dtype']}"
    return "OMP_NUM_THREADS=1 " * (report["threads"] == 1 < report["cores"]) + words


def where(report: Report) -> str:
    """Hardware and versions in a few words."""
    if "made_with" in report:
        made = report["made_with"]
        return (
            f"{made['machine']}, {made['processors']} cores, load {made['load']:.1f}, "
            f"gradio {made['gradio']}, chromium {made['chromium']}"
        )
    load = f"load {report['load']}, " if report.get("load") is not None else ""
    return (
        f"{report['hardware']}, {report['threads']} of {report['cores']} cores, {load}{report['dtype']}, "
        f"torch {report['versions']['torch']}, transformers {report['versions']['transformers']}"
    )


def table(head: tuple[str, ...], rows: list[tuple[object, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"


def met_target(target: float | None, got: float) -> str:
    """A target, and whether it is met."""
    return "-" if target is None else f"{target:g}: {'met' if got >= target else 'missed'}"


def ttft(results: list[Report]) -> Iterator[str]:
    yield "An agent reads what others have read and written; dense is one plain prefill of the whole prompt."
    yield "Reuse is KVCOMM's whole path: gate, matching, correction, rotation and the first token's forward."
    yield "A CPU may read long prompts sooner in bf16 than in fp32. The *strongest dense* is the sooner one"
    yield "in the same run; what was asked for is asked beside it."
    yield ""
    head = ("model", "tokens", "threads", "anchors mixed", "offsets", "dense ms", "reuse ms", "ratio",
            "processor", "strongest dense ms", "its roofline", "ratio to it", "asked",
            "roofline of reuse")  # fmt: skip
    rows: list[tuple[object, ...]] = []
    for r in results:
        # What was asked for is asked of offsets as the model computes them; on a CPU of all anchors alone.
        for name, mixed, dtype in (
            ("reuse", r["anchors"], r["dtype"]),
            ("half", r["anchors"], "fp16"),
            ("two_heaviest", 2, r["dtype"]),
        ):
            if f"{name}_ms" not in r:
                continue
            key = "ratio" if name == "reuse" else f"{name}_ratio"
            target = ASKED.get((r["shape"], r["tokens"], name))
            dense = min(("dense", "dense_bf16"), key=lambda side: r.get(f"{side}_ms", math.inf))
            strongest, near = r[f"{dense}_ms"], r["roofline_percent"][dense]
            ratio = round(strongest / r[f"{name}_ms"], 2)
            rows.append(
                (r["shape"], r["tokens"], r["threads"], mixed, dtype, f"{r['dense_ms']:.1f}",
                 f"{r[f'{name}_ms']:.1f}", r[key], r.get(f"processor_{key}", "-"), f"{strongest:.1f}",
                 f"{near:.0f}%", ratio, met_target(target, ratio), f"{r['roofline_percent'][name]:.0f}%")
            )  # fmt: skip
    yield from table(head, rows)
    yield from group()


def figure(cell: dict[str, float] | None, form: str) -> str:
    """A cell of a reproduction's table."""
    if cell is None:
        return "-"
    value = cell["value"]
    return f"{value:.0%}" if form == "percent" else f"{value:.{2 * (value < 100)}f}"


def group() -> Iterator[str]:
    """Table 2 of KVCOMM at its own lengths, where a reproduction was kept."""
    for path in sorted(RESULTS.glob("table-2-*.json")):
        r = json.loads(path.read_text(encoding="utf-8"))
        yield from (
            "",
            f"KVCOMM's Table 2 at {r['setting_ours']}, on {r['model']['name']} ({r['hardware']});",
        )
        yield from ("agent 5 reads about 3,500 tokens:", "")
        head = ("agent", *(f"{column['title']}, {column['form']}" for column in r["columns"]))
        forms = [column["form"] for column in r["columns"]]
        rows = [
            (line["label"], *(figure(cell, form) for cell, form in zip(line["ours"], forms, strict=True)))
            for line in r["lines"]
        ]
        yield from table(head, rows)
        yield ""
        yield f"`{r['command']}`: [{path.name}](../benchmarks/results/{path.name})"


def decode(results: list[Report]) -> Iterator[str]:
    yield "Rows of different lengths decoded as one batch, beside one row alone: tokens per second."
    yield ""
    head = ("model", "tokens", "rows", "one row", "batch", "ratio", "processor", "asked",
            "roofline of one row", "of the batch", "ms for each row more")  # fmt: skip
    yield from table(
        head,
        [
            (r["shape"], r["tokens"], r["rows"], r["one_row_tokens_per_s"], r["batch_tokens_per_s"],
             r["ratio"], r.get("processor_ratio", "-"), met_target(ASKED_OF_A_BATCH, r["ratio"]),
             *(f"{r['roofline_percent'][side]:.0f}%" for side in ("one_row", "batch")),
             f"{r['slopes'][0]['ms_each']:.1f}")
            for r in results
        ],
    )  # fmt: skip


def memory(results: list[Report]) -> Iterator[str]:
    yield "Bytes predicted from shapes, beside what torch's own account of the device says is held."
    yield ""
    rows: list[tuple[object, ...]] = [
        (r["shape"], r["tokens"], r["anchors"], name, f"{r['predicted_bytes'][name]:,}",
         f"{r['measured_bytes'][name]:,}", r["ratio"][name])
        for r in results
        for name in r["predicted_bytes"]
    ]  # fmt: skip
    yield from table(("model", "tokens", "anchors", "what", "predicted", "measured", "ratio"), rows)


def attention(results: list[Report]) -> Iterator[str]:
    yield "A whole pinned run with something recorded, beside the same run with nothing recorded."
    yield ""
    rows: list[tuple[object, ...]] = []
    for r in results:
        for name, ratio in r["ratio"].items():
            limit = f"at most {1 + r['allowed_percent'] / 100:g}" if name == "offsets" else None
            met = limit and f"{limit}: {'met' if ratio <= 1 + r['allowed_percent'] / 100 else 'missed'}"
            rows.append((r["shape"], r["preset"], name, f"{r['off_ms']:.0f}", f"{r[f'{name}_ms']:.0f}", ratio,
                         r["processor_ratio"][name], met or "-",
                         *(f"{r['roofline_percent'][side]:.0f}%" for side in ("off", name))))  # fmt: skip
    head = ("model", "preset", "recorded", "off ms", "on ms", "ratio", "processor", "asked",
            "roofline of off", "of on")  # fmt: skip
    yield from table(head, rows)


def _beside(results: list[Report], fused: str, other: str, goal: Callable[[Report], str]) -> Iterator[str]:
    rows: list[tuple[object, ...]] = [
        (r["shape"], r["tokens"], r["anchors"], r["kernel"], r[f"{other}_ms"], r[f"{fused}_ms"], r["ratio"],
         *(f"{r['roofline_percent'][side]:.0f}%" for side in (other, fused)),
         goal(r) if r["shape"] == ON_A_GPU else "-")
        for r in results
    ]  # fmt: skip
    head = ("model", "tokens", "anchors", "kernel", f"{other} ms".replace("_", " "),
            f"{fused} ms".replace("_", " "), "ratio", "roofline of the first", "of the second",
            "asked")  # fmt: skip
    yield from table(head, rows)


def at_most(limit: float, got: float, of: str) -> str:
    """A limit, and whether it is kept."""
    return f"at most {limit:g} {of}: {'met' if got <= limit else 'missed'}"


def match(results: list[Report]) -> Iterator[str]:
    yield "The weights of a text's tokens over a full pool, in one pass and anchor by anchor."
    yield ""
    yield from _beside(results, "match", "one_by_one", lambda r: at_most(MATCH_MS, r["match_ms"], "ms"))


def assemble(results: list[Report]) -> Iterator[str]:
    yield "A corrected span into the cache, in one pass and layer by layer."
    yield ""
    yield from _beside(
        results,
        "one_pass",
        "layer_by_layer",
        lambda r: at_most(ASSEMBLY_TIMES, 100 / r["roofline_percent"]["one_pass"], "of a copy's time"),
    )


CASES = {
    "whole": "nothing kept",
    "front": "the template text before the first text kept",
    "moved": "texts moved to their places, uncorrected",
    "again": "the same prompt again",
    "kvcomm": "KVCOMM, all anchors mixed",
    "kvcomm, two heaviest": "KVCOMM, two heaviest",
}


PEERS = """\
One agent's prompt on the same weights in several engines, each in a process of its own, turn by turn on one
core (`benchmarks/peers`). *Kept*: tokens that were not read again. *Ratio*: beside the quickest dense pass of
any engine in that precision, and in any. *Agrees*: how often the first token was that of this lab's dense
pass in single precision (texts moved: of its own moved texts in single precision); engines that agree in
single precision ran the same model and moved the same keys. The load is that of the engines themselves, most
of which wait for their turn on the one core."""
NO_PEERS = """\
vLLM and llama.cpp have no correction. Beside KVCOMM stands what they do have: an exact prefix cache, and in
llama.cpp the moving of keys on which its server's `--cache-reuse` rests. Not measured, and why: the package
of **SGLang** (0.5.23) is for CUDA alone (FlashInfer, FlashAttention 4, NVSHMEM). **LMCache** (0.5.6) installs
beside vLLM, but its blending (CacheBlend) stands on vLLM's FlashAttention and refuses any other, so it does
not run on a CPU. The code of **KVCOMM** and of **KVLink** is published as no package."""


def peers(results: list[Report]) -> Iterator[str]:
    yield PEERS
    for r in results:
        dense = [(row["dtype"], row["ms"]) for row in r["rows"] if row["case"] == "whole"]
        best = min(ms for _, ms in dense)
        rows: list[tuple[object, ...]] = [
            (row["dtype"], CASES[row["case"]], row["engine"], row["kept"], f"{row['ms']:.0f}", row["ratio"],
             f"{best / row['ms']:.2f}", f"{row['roofline_percent']:.0f}%", row["agrees"] or "-")
            for row in sorted(r["rows"], key=lambda row: row["dtype"] != "fp32")
        ]  # fmt: skip
        engines = ", ".join(f"{name} {peer['version']}" for name, peer in r["peers"].items())
        yield from ("", f"{r['shape']}, {r['tokens']:,} tokens, {r['anchors']} anchors; {engines}:", "")
        head = ("precision", "what", "engine", "kept", "ms", "ratio", "to the best of any", "roofline",
                "agrees")  # fmt: skip
        yield from table(head, rows)
    yield from ("", NO_PEERS)


def opening(results: list[Report]) -> Iterator[str]:
    """The page itself, from the import of the server to the first word of a run."""
    yield "Fresh processes and fresh browser profiles, medians; without the requests that fill the pools."
    yield ""
    rows: list[tuple[object, ...]] = []
    for r in results:
        for name, limit in r["targets"].items():
            got = r[name] if name in r else r["median"][name]
            met = f"under {limit:,g}: {'met' if got < limit else 'missed'}"
            rows.append((name.removesuffix("_s").replace("_", " "), f"{got:,}", met))
    yield from table(("what", "seconds or bytes", "asked"), rows)
    yield ""
    yield "A tab's figures come one a frame. *Slowest*: the first from the click, others from the one before."
    yield ""
    rows = [
        (name.removesuffix("_figures_s"), f"{r['median'][name.replace('_s', '')]:.0f}",
         *(r["median"][name.replace("figures_s", kind)] for kind in
           ("first_figure_s", "slowest_figure_s", "figures_s")))
        for r in results for name in r["median"] if name.endswith("_figures_s")
    ]  # fmt: skip
    yield from table(("tab", "figures", "first, s", "slowest, s", "all, s"), rows)


SECTIONS: dict[str, tuple[str, Callable[[list[Report]], Iterator[str]]]] = {
    "ttft": ("Time to first token", ttft),
    "decode": ("Decoding in a batch", decode),
    "memory": ("Memory", memory),
    "attention": ("What recording costs", attention),
    "match": ("Matching", match),
    "assemble": ("Assembly", assemble),
    "peers": ("Beside other engines", peers),
    "page": ("The page", opening),
}


def slopes(results: list[Report]) -> Iterator[str]:
    """How the cost grows, where a report fitted a line."""
    rows: list[tuple[object, ...]] = [
        (r["bench"], r["shape"], line["over"], ", ".join(map(str, line["sizes"])), line["ms_each"] + 0.0,
         line["ms_at_0"], line["r2"])
        for r in results
        for line in r.get("slopes", ())
    ]  # fmt: skip
    if rows:
        yield from ("", "## How the cost grows", "")
        yield "A line fitted to the medians: milliseconds for each thing more."
        yield ""
        yield from table(("bench", "model", "over", "sizes", "ms each", "ms at none", "R²"), rows)


def page() -> str:
    """The whole page."""
    lines, all_reports = [HEAD], reports()
    if not any(RESULTS.glob("*-cuda.json")):
        lines.append(NO_GPU)
    for kind, (title, draw) in SECTIONS.items():
        results = [r for r in all_reports if r["bench"] == kind]
        if results:
            lines += [f"## {title}", "", *draw(results), ""]
    lines = lines[:-1] if lines[-1] == "" else lines
    lines += [*slopes(all_reports), "", "## To measure it again", ""]
    lines += [
        f"- `{command(r)}` ({where(r)}): [{r['file']}](../benchmarks/results/{r['file']})"
        for r in all_reports
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")
