"""What one GPU is asked for: times at an 8B model's shape, tests, KVCOMM's Tables 2 and 3; met or missed.

    python scripts/gpu.py               # or make gpu; goes on where it stopped; build/gpu/page.md
    python scripts/gpu.py --rehearse    # on a CPU, with small shapes: every step, end to end

Needs torch, transformers, scipy, triton and what these need; the tests are left out where there is no pytest.
After 25 minutes no step begins any more: the same command does the rest. ``--write`` puts what was measured
into ``benchmarks/results/`` and draws docs/speed.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from speed import ASKED, ASSEMBLY_TIMES, MATCH_MS, ON_A_GPU, RESULTS, table

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # where the lab is not installed
MINUTES = 25.0
TOKENS, ANCHORS = 3500, 20  # of the measured prompt
CARDS = (24, 48, 80, 141)  # GB
#: Tests of what a GPU runs, which a CPU can run too: kernels in the interpreter and compiled ahead, the
#: capture of graphs, and a device that refuses what a GPU would refuse.
ON_A_CPU = (
    "tests/backend/cache/test_kernels.py", "tests/backend/cache/test_kernels_compiled.py",
    "tests/backend/engine/test_cuda_graph.py", "tests/backend/engine/test_other_device.py",
)  # fmt: skip
REHEARSED = "embedded"  # the shape that a rehearsal has
Row = tuple[str, str, str, str]


class Step(NamedTuple):
    """A command: a Python module and its arguments. ``saves``: the file in the results' folder."""

    name: str
    words: tuple[str, ...]
    saves: str = ""


def steps(out: Path, rehearse: bool) -> list[Step]:
    """All of them, in the order of what was asked for first."""
    shape, device = (REHEARSED, "cpu") if rehearse else (ON_A_GPU, "cuda")
    lab = ("lab_app.cli.main",)

    def bench(what: str, tokens: int, anchors: int, saves: str) -> Step:
        small = ("--tokens", "200", "--anchors", "3", "--repeats", "3")
        size = small if rehearse else ("--tokens", str(tokens), "--anchors", str(anchors))
        return Step(what, (*lab, "bench", what, *size, "--shape", shape, "--device", device), saves)

    def reproduced(number: int) -> Step:
        how = (
            ("--scale", "embedded", "--requests", "1") if rehearse else ("--scale", "paper", "--model", shape)
        )
        words = (*lab, "reproduce", f"kvcomm-table-{number}", *how, "--out", str(out))
        return Step(f"kvcomm-table-{number}", words, f"table-{number}-{ON_A_GPU}-cuda.json")

    chosen = ON_A_CPU if rehearse else ("-m", "gpu", "tests")
    return [
        bench("ttft", TOKENS, ANCHORS, f"ttft-{ON_A_GPU}-{TOKENS}-cuda.json"),
        bench("match", 4096, 25, f"match-{ON_A_GPU}-cuda.json"),
        bench("assemble", 2048, ANCHORS, f"assemble-{ON_A_GPU}-cuda.json"),
        bench("memory", 2048, ANCHORS, f"memory-{ON_A_GPU}-cuda.json"),
        Step("tests", ("pytest", "-q", "-p", "no:cacheprovider", *chosen)),
        reproduced(2),
        reproduced(3),
    ]


def carry_out(step: Step, out: Path, seconds: float) -> str:
    """Run a step, and keep its report as ``NAME.json``; what went wrong, or nothing."""
    if step.name == "tests" and find_spec("pytest") is None:
        return "pytest is not installed"
    log, began = out / f"{step.name}.log", time.monotonic()
    try:
        with log.open("w", encoding="utf-8") as output:
            process = subprocess.run(
                [sys.executable, "-m", *step.words], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                timeout=seconds, check=False,
            )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "not finished in time; run again"
    text = log.read_text(encoding="utf-8")
    busy = REHEARSED in step.words and '"wrong": "These sides reach' in text  # a busy CPU's times, not kept
    if process.returncode and not busy:
        return f"ended with {process.returncode}: {' '.join(text.split()[-30:])}"
    file = out / f"{step.name}.json"
    if not step.name.startswith("kvcomm"):  # these write it themselves
        at = text.find("\n{")
        report = (
            json.JSONDecoder().raw_decode(text[text.index("{") if at < 0 else at + 1 :])[0]
            if "bench" in step.words
            else {"passed": text.strip().splitlines()[-1]}
        )
        file.write_text(json.dumps(report), encoding="utf-8")
    entry = json.loads(file.read_text(encoding="utf-8")) | {
        "words": step.words,
        "took": round(time.monotonic() - began),
    }
    file.write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")
    return ""


def finished(step: Step, out: Path) -> dict[str, Any] | None:
    """A step's report, where the same command was carried out before."""
    try:
        report: dict[str, Any] = json.loads((out / f"{step.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return report if report.get("words") == list(step.words) else None


def rows(results: dict[str, dict[str, Any]], wrong: dict[str, str]) -> Iterator[Row]:
    """What was asked, what was found, and whether that is met."""

    def row(name: str, asks: str, value: Any, says: str) -> Row:
        report = results.get(name)
        if report is None:
            return asks, "-", wrong.get(name, "not begun; run again"), name
        got, met = value(report)
        return asks, says.format(got), "met" if met else "missed", name

    for side, words in (("reuse", f"mixing {ANCHORS} anchors"), ("two_heaviest", "mixing two")):
        want = ASKED[ON_A_GPU, TOKENS, side]

        def ratio(r: dict[str, Any], side: str = side, want: float = want) -> tuple[float, bool]:
            dense = min(r[f"{kind}_ms"] for kind in ("dense", "dense_bf16") if f"{kind}_ms" in r)
            return dense / r[f"{side}_ms"], dense / r[f"{side}_ms"] >= want

        yield row(
            "ttft", f"first token {want:g} times as soon as the strongest dense, {words}", ratio, "{:.2f}"
        )
    yield row(
        "match",
        f"matching within {MATCH_MS:g} ms",
        lambda r: (r["match_ms"], r["match_ms"] <= MATCH_MS),
        "{:.2f} ms",
    )

    def copies(r: dict[str, Any]) -> tuple[float, bool]:
        times = 100 / r["roofline_percent"]["one_pass"]
        return times, times <= ASSEMBLY_TIMES

    yield row("assemble", f"assembly within {ASSEMBLY_TIMES:g} of a copy's time", copies, "{:.2f}")

    def bytes_held(r: dict[str, Any]) -> tuple[float, bool]:
        furthest = max(r["ratio"].values(), key=lambda ratio: abs(ratio - 1))
        return furthest, abs(furthest - 1) <= 0.02

    yield row("memory", "memory within 2% of what shapes predict", bytes_held, "{}")
    yield row("tests", "the tests pass", lambda r: (r["passed"], True), "{}")
    for number, column in ((2, "speedup"), (3, "mean speedup")):

        def lines(r: dict[str, Any], column: str = column) -> tuple[str, bool]:
            at = [cell["title"] for cell in r["columns"]].index(column)
            pairs = [
                (line["ours"][at]["value"], line["paper"][at]) for line in r["lines"] if line["ours"][at]
            ]
            good = sum(ours >= paper for ours, paper in pairs)
            return f"{good} of {len(pairs)} lines", good == len(pairs)

        yield row(
            f"kvcomm-table-{number}",
            f"KVCOMM's Table {number}: every speedup at least the paper's",
            lines,
            "{}",
        )


def predicted() -> Iterator[tuple[object, ...]]:
    """What a family needs in bf16, in GB: weights, a prompt's cache, a full pool; the cards that it fits."""
    from backend.bench.memory import FAMILY, needed

    for name, shape in FAMILY.items():
        weights, cache, pool = (size / 1e9 for size in needed(shape, TOKENS, ANCHORS))
        total = weights + cache + pool
        fits = [str(card) for card in CARDS if total <= 0.9 * card]
        yield (
            name,
            f"{weights:.1f}",
            f"{cache:.2f}",
            f"{pool:.1f}",
            f"{total:.1f}",
            ", ".join(fits) or "several",
        )


def page(results: dict[str, dict[str, Any]], wrong: dict[str, str], rehearse: bool) -> str:
    """The page, in Markdown."""
    title = "# What a GPU is asked for: a rehearsal on a CPU" if rehearse else "# What a GPU was asked for"
    note = (
        "Small shapes on a CPU: the steps are those of a GPU's run, the figures are not.\n"
        if rehearse
        else ""
    )
    where = next((r["hardware"] for r in results.values() if "hardware" in r), "-")
    took = sum(r["took"] for r in results.values())
    head = ("asked", "found", "met or missed", "step")
    sizes = (
        "model",
        "weights",
        f"cache of {TOKENS:,} tokens",
        f"pool of {ANCHORS} anchors",
        "in all",
        "fits a card of",
    )
    return "\n".join([
        title, "", f"{note}{where}; {took:,} s in all.", "", *table(head, list(rows(results, wrong))), "",
        "## Memory predicted from shapes", "",
        "Llama 3's sizes, GB in bf16; a tenth of a card is left for what a forward pass needs.", "",
        *table(sizes, list(predicted())), "",
    ])  # fmt: skip


def write(results: dict[str, dict[str, Any]], all_steps: Sequence[Step]) -> None:
    """Put what was measured into the results, and draw the page of speeds."""
    for step in all_steps:
        if step.saves and (report := results.get(step.name)):
            body = {key: value for key, value in report.items() if key not in ("words", "took")}
            (RESULTS / step.saves).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "scripts" / "speed.py"), "--write"], check=True)


def main() -> int:
    """Carry out what is left, and write the page; 1 where something is missing or missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, with small shapes")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which no step begins")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--write", action="store_true", help="put it into benchmarks/results/")
    args = parser.parse_args()
    if args.rehearse and args.write:
        parser.error("a rehearsal's figures are no GPU's; leave --write out")
    out = ROOT / "build" / ("gpu-rehearsal" if args.rehearse else "gpu")
    if args.again:
        shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    all_steps, ends = steps(out, args.rehearse), time.monotonic() + 60 * args.minutes
    wrong: dict[str, str] = {}
    for step in all_steps:
        seconds = ends - time.monotonic()
        if finished(step, out) is None and seconds > 0:
            print(f"{step.name} ...", flush=True)
            if problem := carry_out(step, out, seconds):
                wrong[step.name] = problem
    results = {step.name: report for step in all_steps if (report := finished(step, out))}
    text = page(results, wrong, args.rehearse)
    (out / "page.md").write_text(text, encoding="utf-8")
    print(text)
    if args.write:
        write(results, all_steps)
    return int(len(results) < len(all_steps))


if __name__ == "__main__":
    sys.exit(main())
