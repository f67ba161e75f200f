"""The section of FINDINGS.md on Tables 5 and 6 over many warm-ups, from what ``make pools`` saved.

``--write`` renews it; alone the section is printed. Every figure and every verdict in it comes from the file.
"""

from __future__ import annotations

import argparse
import json
import re
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAVED = ROOT / "benchmarks" / "results" / "tables-5-6-warmups.json"
FINDINGS = ROOT / "FINDINGS.md"
EVALUATION = ROOT / "presets" / "model" / "evaluation.json"  # of the weights in the repository
BEGIN, END = "<!-- make pools -->", "<!-- /make pools -->"
SURE = 0.05

PUBLISHED, SHIPPED = "kvcomm", "kvcomm:profile=shipped"
#: Rows in the words of the page, by what is added to a profile's name.
STEPS = {
    "rotate=false": "keys not moved",
    "prefix_offset=false": "template text not corrected",
    "placeholder_offset=false": "shared texts not corrected",
    "placeholder_offset=false+prefix_offset=false": "nothing but keys moved",
}
GATES = {f"gamma={gamma}": f"gamma {gamma}" for gamma in (0.1, 0.5, 0.7, 0.9)}
POOLS = {f"capacity={size}": f"V {size}" for size in (5, 10, 15)}
OTHERS = {
    "kvcomm:profile=corrected": "profile corrected",
    "kvcomm:approximation=uniform": "uniform mean (control)",
    "naive": "position-only",
}


def named(base: str, option: str) -> str:
    """A method's label."""
    return f"{base}:{option}" if base == PUBLISHED else f"{base}+{option}"


class Tables:
    """The saved summary, by method."""

    def __init__(self, saved: dict[str, Any]) -> None:
        self.saved = saved
        self.lines = {line["method"]: line for line in saved["lines"]}
        self.tests = {(test["method"], test["other"]): test for test in saved["comparisons"]}

    def share(self, method: str, name: str, digits: int = 0) -> str:
        """A share in percent with its interval."""
        cell = self.lines[method][name]
        value, low, high = (None if cell[k] is None else 100 * cell[k] for k in ("value", "low", "high"))
        if value is None:
            return ""
        ends = "" if low is None or high is None else f" ({low:.{digits}f} to {high:.{digits}f})"
        return f"{value:.1f}%{ends}"

    def against(self, method: str, base: str) -> tuple[float, float]:
        """Points of right answers that a row has more than all three steps, and p after Holm's correction."""
        test = self.tests[method, base]
        p = test["right_holm"]
        return 100 * (test["only_mine"] - test["only_other"]) / test["pairs"], 1.0 if p is None else p

    def row(self, label: str, method: str, base: str | None = None) -> str:
        cells = [self.share(method, name) for name in ("accuracy", "as_dense", "tokens")]
        if base is None:
            cells += ["", ""]
        else:
            points, p = self.against(method, base)
            cells += [f"{points:+.1f}", "<0.001" if p < 0.001 else f"{p:.3f}"]
        return f"| {label} | {' | '.join(cells)} |"

    def table(self) -> list[str]:
        """All rows, profile by profile."""
        out = [
            "| | final answer right | as dense | tokens reused | points against all steps | Holm's p |",
            "|---|---|---|---|---|---|",
            self.row("dense", "dense"),
        ]
        for base, called in ((PUBLISHED, "as published"), (SHIPPED, "as shipped")):
            out.append(self.row(f"**{called}**, all three steps, gamma 0.3, V 20", base))
            rows = STEPS | GATES | POOLS
            out += [self.row(f"{called}, {label}", named(base, o), base) for o, label in rows.items()]
        return out + [self.row(label, method, PUBLISHED) for method, label in OTHERS.items()]

    def differences(self, options: dict[str, str], base: str) -> str:
        """Which rows differ from all three steps beyond chance, and which do not."""
        differences = {label: self.against(named(base, option), base) for option, label in options.items()}
        beyond = [f"{label} {points:+.1f} points" for label, (points, p) in differences.items() if p < SURE]
        within = [f"{label} ({points:+.1f})" for label, (points, p) in differences.items() if p >= SURE]
        parts = [f"beyond chance: {', '.join(beyond)}"] if beyond else []
        parts += [f"not told from chance: {', '.join(within)}"] if within else []
        return "; ".join(parts)

    def verdicts(self) -> list[str]:
        """What the rows say, each profile for itself."""
        out = []
        for base, called in ((PUBLISHED, "As published"), (SHIPPED, "As shipped")):
            lowest, highest = named(base, "gamma=0.1"), named(base, "gamma=0.9")
            out += [
                f"- **{called}, steps left out (Table 5)**: {self.differences(STEPS, base)}.",
                f"- **{called}, gamma (Table 6)**, against 0.3: {self.differences(GATES, base)}. "
                f"From 0.1 to 0.9 reuse goes from {self.share(lowest, 'tokens')} to "
                f"{self.share(highest, 'tokens')} of the tokens, right answers from "
                f"{self.share(lowest, 'accuracy')} to {self.share(highest, 'accuracy')}.",
                f"- **{called}, V (Table 6)**, against 20: {self.differences(POOLS, base)}.",
            ]
        points, p = self.against(SHIPPED, PUBLISHED)
        decided = "beyond chance" if p < SURE else "not told from chance"
        out.append(f"- **As shipped against as published**, both whole: {points:+.1f} points, {decided}.")
        points, p = self.against("kvcomm:approximation=uniform", PUBLISHED)
        decided = "beyond chance" if p < SURE else "not told from chance"
        out.append(f"- **Uniform mean against weighing** (control): {points:+.1f} points, {decided}.")
        return out


def section(saved: dict[str, Any]) -> str:
    """The section in Markdown."""
    tables = Tables(saved)
    line = tables.lines["dense"]
    weights = ", ".join(f"`{x}`" for x in saved.get("weights", {}).values())
    holm = sum(test["right_holm"] is not None for test in saved["comparisons"])
    warmups, problems = line["warmups"], line["problems"]
    intro = (
        "One pool is one draw, so everything is repeated: three solvers and a judge, behind each of "
        f"{warmups} independent warm-ups {problems // warmups} measured requests, {problems} in all, pinned: "
        f"every row read the same texts (`make pools`; `benchmarks/results/{SAVED.name}`; weights "
        f"{weights}). Intervals are 95%, each by itself, a bootstrap over warm-ups and then requests. "
        "A row is tested against all three steps of its own profile, the last three rows against as "
        f"published: Wilcoxon's signed ranks over the {warmups} warm-ups, Holm's correction over all {holm} "
        "tests of the sweep."
    )
    present = json.loads(EVALUATION.read_text(encoding="utf-8"))["weights"] in weights
    head = f"## Tables 5 and 6 behind {warmups} warm-ups ({'present' if present else 'earlier'} weights)"
    return "\n".join([head, "", wrapped(intro), "", *tables.table(), "", *map(wrapped, tables.verdicts())])


def wrapped(text: str) -> str:
    """A paragraph, or a point of a list, in lines as the page has them."""
    inner = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 124, subsequent_indent=inner, break_long_words=False, break_on_hyphens=False)


def page(text: str, saved: dict[str, Any] | None) -> str:
    """FINDINGS with the section renewed between its marks; without a file there is none."""
    block = f"{BEGIN}\n{section(saved)}\n{END}" if saved else f"{BEGIN}\n{END}"
    return re.sub(f"{BEGIN}.*{END}", lambda _: block, text, flags=re.DOTALL)


def read() -> dict[str, Any] | None:
    """What was saved; None before the first run."""
    saved: dict[str, Any] | None = json.loads(SAVED.read_text("utf-8")) if SAVED.exists() else None
    return saved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="renew the section in FINDINGS.md")
    saved = read()
    if not parser.parse_args().write:
        print(section(saved) if saved else f"There is no {SAVED.name} yet: make pools")
        return
    FINDINGS.write_text(page(FINDINGS.read_text("utf-8"), saved), encoding="utf-8")


if __name__ == "__main__":
    main()
