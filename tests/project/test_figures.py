"""Figures that pages repeat: the papers' printed ones, and those of FINDINGS and README as saved."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from own_scripts import script
from scipy import stats

from backend.reproduce.registry import reproductions
from backend.sweeps.read import read_sweep

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FINDINGS = (ROOT / "FINDINGS.md").read_text(encoding="utf-8")

#: Of each paper's printed figures, with their tables, when they were last compared with the paper.
PRINTED = {
    "judges": "ba6664d3bf6fd125",
    "kvcomm": "2d7729d072975452",
    "kvlink": "55b84a6b0cd4b3ee",
    "omitted": "1458d4b80fabb916",
    "segments": "f950ab44c40535c1",
}


def digest(paper: str) -> str:
    lines = [
        (one.name, list(line.paper)) for one in reproductions() if one.paper == paper for line in one.lines
    ]
    return hashlib.sha256(json.dumps(lines).encode()).hexdigest()[:16]


@pytest.mark.parametrize("paper", PRINTED)
def test_printed_figures_are_those_that_were_compared_with_the_paper(paper: str) -> None:
    assert digest(paper) == PRINTED[paper], (
        "a printed figure changed: compare it with the paper, then renew this"
    )


def test_every_paper_is_compared() -> None:
    assert {one.paper for one in reproductions()} == set(PRINTED)


def saved(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def rows_under(head: str) -> list[list[str]]:
    """The cells of the first table of a section, below its heads; an empty first cell is the one above's."""
    lines = FINDINGS.split(f"\n## {head}", 1)[1].split("\n## ")[0].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|---"))
    found: list[list[str]] = []
    for line in lines[start + 1 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip().strip("*") for cell in line.strip("|").split("|")]
        found.append([cells[0] or found[-1][0], *cells[1:]])
    return found


def percents(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"[\d.]+", cell)]


def test_every_section_on_the_present_weights_names_its_command_and_its_file() -> None:
    for section in FINDINGS.split("\n## ")[1:]:
        head, _, body = section.partition("\n")
        if not head.endswith("(present weights)"):
            continue
        assert re.search(r"kvlab\s\w|make \w|python benchmarks/", body), f"{head}: no command"
        files = re.findall(r"\b((?:benchmarks/results|presets)/[\w./-]*[\w/])", body)
        assert files, f"{head}: no file"
        assert all((ROOT / file).exists() for file in files), head


def shares_of_rooflines(found: Any) -> list[float]:
    """Every share of a roofline in a saved report, in percent."""
    if isinstance(found, list):
        return [share for part in found for share in shares_of_rooflines(part)]
    if not isinstance(found, dict):
        return []
    shares: list[float] = []
    for name, value in found.items():
        if name == "roofline_percent":
            shares += value.values() if isinstance(value, dict) else [value]
        elif name.endswith("_roofline"):
            shares.append(100 * value["value"])
        else:
            shares += shares_of_rooflines(value)
    return shares


def test_no_saved_time_is_under_what_the_hardware_allows() -> None:
    seen = 0
    for path in sorted(RESULTS.rglob("*.json")):
        shares = shares_of_rooflines(json.loads(path.read_text(encoding="utf-8")))
        seen += len(shares)
        assert all(0 < share <= 100 for share in shares), path.name
    assert seen > 50


def test_a_count_out_of_so_many_has_its_exact_interval() -> None:
    """38 of 40 sounds surer than it is: 83 to 99% (Clopper and Pearson)."""
    for page in ("FINDINGS.md", "README.md"):
        text = (ROOT / page).read_text(encoding="utf-8").replace("such as 38 of 40", "")
        for found in re.finditer(r"(?<![\d.,])(\d+) of (\d+)\b(?!\.\d|%)(.{0,24})", text, re.DOTALL):
            good, seen = int(found[1]), int(found[2])
            if good > seen or seen < 5:
                continue
            ends = stats.binomtest(good, seen).proportion_ci(method="exact")
            said = f"{100 * ends.low:.0f} to {100 * ends.high:.0f}%"
            shown = " ".join(found[3].split()).lstrip(" ,(")
            assert shown.startswith(said), f"{page}: behind {good} of {seen} has to stand ({said})"


def test_the_section_on_many_warm_ups_is_what_was_saved() -> None:
    """Every figure and verdict of it is made from the file that ``make pools`` writes."""
    pools = script("pools")
    assert pools.page(FINDINGS, pools.read()) == FINDINGS, "renew it: python scripts/pools.py --write"


def saved_pools(p: float) -> dict[str, Any]:
    """A summary such as the sweep of Tables 5 and 6 writes, all tests with one p."""
    sweep = read_sweep(ROOT / "presets" / "sweeps" / "tables-5-6.yaml")
    share = {"value": 0.9, "low": 0.8, "high": 0.95, "of": 400}
    lines: list[dict[str, Any]] = [
        {"method": m.label, "warmups": 20, "problems": 400}
        | dict.fromkeys(("accuracy", "as_dense", "tokens"), share)
        for m in sweep.methods
    ]
    tests = [
        {"method": m.label, "other": b.value, "pairs": 400, "only_mine": 4, "only_other": 44, "right_holm": p}
        for b in sweep.against
        for m in sweep.methods
    ]
    return {"weights": {"embedded": "abc fp32"}, "lines": lines, "comparisons": tests}


def test_the_section_on_many_warm_ups_says_what_the_tests_decide() -> None:
    pools = script("pools")
    lost, open_ = (pools.section(saved_pools(p)) for p in (0.001, 0.4))
    assert "| as published, keys not moved | 90.0% (80 to 95) | 90.0% (80 to 95) |" in lost
    lost, open_ = (" ".join(text.split()) for text in (lost, open_))
    assert "behind each of 20 independent warm-ups 20 measured requests, 400 in all" in lost
    assert "beyond chance: keys not moved -10.0 points" in lost
    assert "not told from chance: keys not moved (-10.0)" in open_
    assert "beyond chance:" not in open_
    for label in (m.label for m in read_sweep(ROOT / "presets" / "sweeps" / "tables-5-6.yaml").methods):
        assert label in pools.Tables(saved_pools(1.0)).lines
    rows = [line for line in pools.section(saved_pools(1.0)).splitlines() if line.startswith("| ")]
    assert len(rows) == 28 + 1, "every method has a row"


def test_links_within_findings_lead_somewhere() -> None:
    heads = {re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in re.findall(r"\n##+ (.*)", FINDINGS)}
    assert set(re.findall(r"\]\(#([^)]*)\)", FINDINGS)) <= heads


JUDGED = {
    "dense": "dense", "position-only": "naive", "KVCOMM": "kvcomm", "PAL-KV": "palkv",
    "slot-aligned": "slotaligned",
    "masked as published": "masked", "masked strictly": "strict",
    "candidates' ends again, 25%": "tail", "candidates' ends again, 10%": "tail-tenth",
    "words between them again, 25%": "words", "EPIC's rule, 25%": "epic",
    "any tokens, 25% (control)": "random", "ends over position-only, 25%": "naive-tail",
    "words over position-only, 25%": "naive-words",
}  # fmt: skip


def test_findings_on_judges_are_what_was_saved() -> None:
    tables = {
        regime: {(x["order"], x["method"]): x for x in saved(f"judge-{regime}-100.json")["table"]}
        for regime in ("parallel", "progressive")
    }
    rows = rows_under("A judge keeps its answers")
    assert len(rows) == 4 * len(JUDGED)
    for place, label, right, jcr, *changed, tokens in rows:
        regime, order = place.split(", ")
        line = tables[regime]["shuffle 0" if order == "shuffled" else "identity", JUDGED[label]]
        for cell, share in ((right, line["accuracy"]), (jcr, line["jcr"])):
            wanted = [100 * share[name] for name in ("value", "low", "high")]
            if label != "dense" or cell:
                assert percents(cell) == pytest.approx(wanted, abs=0.51), (place, label)
                assert percents(cell)[0] == pytest.approx(wanted[0], abs=0.051), (place, label)
        for cell, name in zip(changed, ("to_none", "to_another"), strict=True):
            assert not cell or percents(cell)[0] == pytest.approx(100 * line[name]["value"], abs=0.51)
        assert percents(tokens)[0] == pytest.approx(100 * line["tokens"], abs=0.51), (place, label)


def test_the_readmes_judge_is_what_was_saved() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = {(x["order"], x["method"]): x for x in saved("judge-parallel-100.json")["table"]}
    lines = readme.split("A judge of four candidates")[1].splitlines()
    names = {"KVCOMM": "kvcomm", "position-only": "naive", "a random quarter": "random", "*repair*": "tail"}
    for label, method in names.items():
        line = table["shuffle 0", method]
        [row] = [x for x in lines if x.startswith(f"| {label}")]
        cells = [percents(cell)[0] for cell in row.strip("|").split("|")[1:5]]
        wanted = [line[name]["value"] for name in ("accuracy", "jcr", "to_none", "to_another")]
        assert cells == pytest.approx([100 * x for x in wanted], abs=0.51)
