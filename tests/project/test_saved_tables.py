"""Tables of FINDINGS and README are those of the files that their sections name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
FINDINGS = (ROOT / "FINDINGS.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
RENEW = "the page and its file differ: write the file's figure"


def section(head: str) -> str:
    return FINDINGS.split(f"\n## {head}", 1)[1].split("\n## ")[0]


def file_of(text: str, name: str) -> Any:
    """The first file of a section whose name begins so."""
    found = re.search(rf"\b({name}[\w-]*\.json)", text)
    assert found, f"no file {name}"
    return json.loads((RESULTS / found[1]).read_text(encoding="utf-8"))


def table_rows(text: str, head: str) -> dict[str, list[str]]:
    """Cells of the first table with this in its heads, by their first cell."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|") and head in line)
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip().strip("*") for cell in line.strip().strip("|").split("|"))
        rows[first.strip("* ")] = cells
    return rows


def numbers(cell: str) -> list[float]:
    return [float(x) for x in re.findall(r"-?\d+(?:\.\d+)?", cell)]


def said(cell: str, *wanted: float) -> None:
    """Each number of a cell is the file's, rounded to as many places as the cell has."""
    found = re.findall(r"\d+(?:\.(\d+))?", cell)
    for text, value, decimals in zip(numbers(cell), wanted, found, strict=False):
        assert text == pytest.approx(value, abs=0.5001 * 10 ** -len(decimals)), f"{cell}: {wanted}; {RENEW}"
    assert len(found) >= len(wanted), cell


PIPELINE = {
    "dense": "dense", "prefix cache": "prefix", "position-only (naive)": "naive",
    "naive, keys not moved": "naive no rotation", "KVCOMM": "kvcomm",
    "KVCOMM, keys not moved": "kvcomm no rotation",
    "KVCOMM, shared texts not corrected": "kvcomm no phi",
    "KVCOMM, template text not corrected": "kvcomm no p",
}  # fmt: skip
IN_README = {
    "dense": "dense", "position-only reuse": "naive", "KVCOMM": "kvcomm",
    "KVCOMM without moving keys": "kvcomm no rotation",
    "KVCOMM without correcting the shared texts": "kvcomm no phi",
    "KVCOMM without correcting the template text": "kvcomm no p",
}  # fmt: skip


def judges_of_pipeline() -> dict[str, dict[str, Any]]:
    lines = file_of(section("Does reuse break a pipeline"), "math-4-pinned")["summary"]
    last = max(line["agent"] for line in lines)
    return {line["method"]: line for line in lines if line["agent"] == last}


def test_what_reuse_breaks_is_what_was_saved() -> None:
    lines = judges_of_pipeline()
    rows = table_rows(section("Does reuse break a pipeline"), "answer flipped")
    assert set(rows) == set(PIPELINE)
    for label, (right, flipped, reused, tokens, first, along, keys, values) in rows.items():
        line = lines[PIPELINE[label]]
        said(right, 100 * line["accuracy"], *(100 * x for x in line["accuracy_ci"]))
        said(flipped, 100 * (1 - line["same_answer"]))
        said(reused, 100 * line["reuse_agents"])
        said(tokens, 100 * line["reuse_tokens"])
        for cell, name in (
            (first, "kl_first"),
            (along, "kl_mean"),
            (keys, "key_error"),
            (values, "value_error"),
        ):
            said(cell, line[name])


def test_the_readmes_pipeline_is_what_was_saved() -> None:
    rows, lines = table_rows(README, "same answer as dense"), judges_of_pipeline()
    assert set(rows) == set(IN_README)
    for label, (right, same, tokens) in rows.items():
        line = lines[IN_README[label]]
        for cell, name in ((right, "accuracy"), (same, "same_answer"), (tokens, "reuse_tokens")):
            said(cell, 100 * line[name])


EDITS = {
    "own names and things": "names", "harmless sentences more": "extra", "other words": "words",
    "numbers from 100 to 9,999": "numbers", "twice, half, each": "ratios", "bare sums": "bare",
    "roles reworded": "roles", "agents left out or added": "agents", "white space": "space",
    "documents retyped": "documents", "judges retyped": "judge", "messages retyped": "prefix",
    "tool turns retyped": "tools", "programs retyped": "program",
}  # fmt: skip


def test_what_edits_do_is_what_was_saved() -> None:
    text = section("What a visitor's edit does")
    rows, marks = table_rows(text, "asked"), file_of(text, "edits")["edits"]
    assert {EDITS[label] for label in rows} == set(marks)
    for label, cells in rows.items():
        mark = marks[EDITS[label]]
        said(cells[0], 100 * mark["share"], *(100 * x for x in mark["ci"]))
        said(cells[-1], 100 * mark["asked"])


@pytest.mark.parametrize("page", [README, section("What a visitor's edit does")])
def test_typed_questions_are_what_was_saved(page: str) -> None:
    mark = json.loads((RESULTS / "typed.json").read_text(encoding="utf-8"))["typed"]["all"]
    assert f"{round(mark['share'] * mark['n'])} of {mark['n']}" in " ".join(page.split()), RENEW


TASKS = {
    "word problems": "solver", "others' work": "worker", "judges": "judge", "documents": "documents",
    "tool turns": "tools", "programs": "program", "messages": "prefix",
}  # fmt: skip


def test_the_presets_own_wording_is_as_sure_as_was_saved() -> None:
    path = ROOT / "presets" / "model" / "evaluation.json"
    marks = json.loads(path.read_text(encoding="utf-8"))["held_out"]
    every = {name: marks[f"{task}, stock"]["all"] for name, task in TASKS.items()}
    shares = {name: x["selection" if name == "judges" else "answer"]["share"] for name, x in every.items()}
    told = ", ".join(f"{n} {round(100 * s)}" for n, s in shares.items())
    first, *others = told.split(", ")
    assert ", ".join([f"{first}%", *others]) in " ".join(FINDINGS.split()), RENEW
    low, high = (round(100 * ends(shares.values())) for ends in (min, max))
    told = f"{high}%" if low == high else f"{low} to {high}%"
    assert f" {told} of the held-out requests in the presets' own wording" in " ".join(README.split())


OFFSETS = {
    "dense": "dense", "naive": "naive", "as published": "published", "as shipped": "shipped",
    "corrected": "corrected", "corrected, entropy gate": "corrected, entropy gate",
    "nearest anchor": "nearest", "uniform mean (control)": "uniform", "two heaviest anchors": "top 2",
    "length gate alone": "length gate", "each token's KV compared": "token kv",
    "the same, for the weights alone": "token kv, gate by embeddings",
    "cosine similarity": "cosine",
}  # fmt: skip


def test_what_is_left_of_offsets_is_what_was_saved() -> None:
    text = section("How much of the true offset is left?")
    rows, found = table_rows(text, "first placeholder"), file_of(text, "offset-left")
    lines, of = found["summary"], found["requests"]
    assert set(rows) == set(OFFSETS)
    for label, (right, flipped, agents, *left) in rows.items():
        line = lines[OFFSETS[label]]
        said(right, 100 * line["right"][0] / of)
        if label != "dense":
            said(flipped, 100 * line["flipped"][0] / of)
            said(agents, 100 * line["agents that reused"])
        for cell, name in zip(
            left, ("first placeholder", "first prefix", "later placeholder", "later prefix"), strict=True
        ):
            if cell:
                mark = line["key offset left"][name]
                said(cell, *[mark["mean"], mark["low"], mark["high"]][: len(numbers(cell))])


LOOP = {
    "dense": "dense", "prefix tree (exact)": "prefix", "segment reuse": "segments",
    "CacheBlend": "cacheblend", "KVCOMM": "kvcomm", "position-only": "naive",
    "PromptCache, own positions": "promptcache",
}  # fmt: skip


def test_a_judge_and_a_loop_behind_20_draws_are_what_was_saved() -> None:
    text = section("A judge and a loop behind 20 draws")
    lines = {x["method"]: x for x in file_of(text, "judges")["lines"]}
    shares = ("accuracy", "as_dense", "to_none", "to_another", "tokens")
    rows = table_rows(text, "dense's choice kept")
    assert len(rows) == len(lines)
    for label, cells in rows.items():
        line = lines[{"position-only": "naive", "PAL-KV": "palkv"}.get(label, label.lower())]
        for cell, share in zip(cells, shares, strict=True):
            wanted = [100 * line[share][name] for name in ("value", "low", "high")]
            said(cell, *wanted[: len(numbers(cell))])
    saved = {(x["mode"], x["method"]): x for x in file_of(text, "loop")["summary"]}
    for label, (pinned, free, reused, along, faster) in table_rows(text, "right, free").items():
        for cell, mode in ((pinned, "pinned"), (free, "free")):
            line = saved[mode, LOOP[label]]
            said(
                cell,
                *(100 * x for x in (line["right"] / line["known"], line["right_low"], line["right_high"])),
            )
        line = saved["pinned", LOOP[label]]
        for cell, value in ((reused, 100 * line["reused"]), (along, line["kl"]), (faster, line["ratio"])):
            said(cell, value)


def test_the_agent_loop_is_what_was_saved() -> None:
    text = section("An agent with tools")
    rows = table_rows(text, "right, pinned")
    lines = {(x["mode"], x["method"]): x for x in file_of(text, "loop")["summary"]}
    assert set(rows) == set(LOOP)
    for label, (pinned, free, reused, first, along, near, faster) in rows.items():
        mine, own = (lines[mode, LOOP[label]] for mode in ("pinned", "free"))
        for cell, line in ((pinned, mine), (free, own)):
            shares = [line["right"] / line["known"], line["right_low"], line["right_high"]]
            said(cell, *(100 * x for x in shares[: len(numbers(cell))]))
        said(reused, 100 * mine["reused"])
        for cell, value in ((first, mine["kl_first"]), (along, mine["kl"])):
            said(cell, value)
        if near:
            said(near, 100 * mine["near"])
            said(faster, mine["ratio"])


def test_methods_since_the_papers_are_what_was_saved() -> None:
    text = section("Methods since the papers")
    rows, methods = table_rows(text, "flips"), file_of(text, "since-the-papers")["methods"]
    assert len(rows) == len(methods)
    counts = {tuple(part["flips"] for part in one.values()): one for one in methods.values()}
    for label, (*flips, every, tokens) in rows.items():
        one = counts[(*(int(x) for x in flips), int(numbers(every)[0]))]
        said(every, one["all"]["flips"], *(100 * x for x in one["all"]["flipped_95"]))
        assert numbers(tokens)[0] == pytest.approx(100 * one["all"]["tokens_computed"], abs=0.51), label


BLENDS = {
    "CacheBlend's choice, exact mask": ("cacheblend", "exact"),
    "the same, shipped mask": ("cacheblend", "shipped"),
    "the true worst tokens (oracle), exact mask": ("oracle", "exact"),
    "what the question looks at most, exact mask": ("query", "exact"),
    "random tokens, exact mask": ("random", "exact"),
}  # fmt: skip


def test_computing_tokens_again_is_what_was_saved() -> None:
    text = section("How much does computing tokens again bring?")
    rows, found = table_rows(text, "100%"), file_of(text, "blend-ratio")
    lines = {(x["choice"].partition("_")[0], x["mask"]): x for x in found["rows"]}
    assert set(rows) == set(BLENDS)
    for label, cells in rows.items():
        for cell, (mean, *_) in zip(cells, lines[BLENDS[label]]["keys"], strict=True):
            said(cell, mean)
    for label, cells in table_rows(text.partition("KL of the first")[2], "90%").items():
        for cell, (mean, *_) in zip(cells, lines[BLENDS[f"{label}, exact mask"]]["kl"][:-1], strict=True):
            said(cell, mean)


def test_present_weights_are_those_of_the_files() -> None:
    """A section on the present weights takes its figures from files of the weights that the page names."""
    page = " ".join(FINDINGS.split())
    [named] = re.findall(r"measured with the weights in the repository \(`([0-9a-f]{16})`", page)
    seen = 0
    for head, body in re.findall(r"\n## ([^\n]*)\(present weights\)\n(.*?)(?=\n## |\Z)", FINDINGS, re.DOTALL):
        first = re.search(r"benchmarks/results/((?:reproductions/)?[\w-]+\.json)", body)
        assert first, head
        found = json.loads((RESULTS / first[1]).read_text(encoding="utf-8"))
        weights = found["weights"] if "weights" in found else found["model"]["weights_hash"]
        if isinstance(weights, dict):  # of a sweep, by model
            [weights] = weights.values()
        assert weights.split()[0] == named, f"{head}: {first[1]} is of other weights"
        seen += 1
    assert seen >= 3


DOCUMENTS = {
    "dense": "Dense", "PromptCache, keys moved, template text computed": "PromptCache",
    "the same, documents at their own positions": "PromptCache, own positions",
    "the same, template text copied too": "PromptCache, template too",
    "CacheBlend, exact mask": "CacheBlend, exact mask",
    "CacheBlend, shipped mask": "CacheBlend, shipped mask",
    "KVLink, 5 link tokens": "KVLink5", "KVLink, 1 link token": "KVLink1", "KVLink, no link token": "KVLink0",
    "Block-Attention": "Block-Attention",
}  # fmt: skip


def test_documents_encoded_apart_are_what_was_saved() -> None:
    text = section("Documents encoded apart")
    rows, arms = table_rows(text, "of the gap"), {x["arm"]: x for x in file_of(text, "documents")["arms"]}
    assert set(rows) == set(DOCUMENTS)
    for label, (right, gap, dense) in rows.items():
        arm = arms[DOCUMENTS[label]]
        said(right, 100 * arm["share"], *(100 * x for x in arm["share_95"]))
        if gap:
            said(gap, *(100 * x for x in arm["gap_recovered"]))
            said(dense, 100 * arm["own_dense"])


APART = {
    "KVCOMM, nothing": "kvcomm", "KVCOMM, the candidates, all of them": "candidates",
    "KVCOMM, the candidates' ends, 25%": "k-tail", "KVCOMM, their beginnings, 25% (EPIC)": "k-first",
    "KVCOMM, what the question looks at, 25%": "k-asked",
    "KVCOMM, what looks at other candidates, 25%": "k-cross",
    "KVCOMM, what changes most when fresh, 25%": "k-deviation",
    "KVCOMM, the question": "question", "KVCOMM, the candidates' headers alone": "headers",
    "KVCOMM, headers, question and the prompt's other words": "all", "position-only, nothing": "naive",
    "position-only, the candidates' ends, 25%": "n-tail", "position-only, their beginnings, 25%": "n-first",
    "position-only, what the question looks at, 25%": "n-asked",
    "position-only, what looks at other candidates, 25%": "n-cross",
    "position-only, what changes most when fresh, 25%": "n-deviation",
    "position-only, the headers alone": "naive-headers",
    "position-only, headers, question and other words": "naive-all",
}  # fmt: skip


def test_what_repairs_a_judge_is_what_was_saved() -> None:
    text = section("What repairs a judge")
    rows = table_rows(text, "computed again")
    lines = {(x["order"], x["method"]): x for x in file_of(text, "judge-repair-apart")["table"]}
    assert set(rows) == set(APART)
    for label, (given, shuffled, tokens) in rows.items():
        for cell, order in ((given, "identity"), (shuffled, "shuffle 0")):
            jcr = lines[order, APART[label]]["jcr"]
            said(cell, *(100 * jcr[name] for name in ("value", "low", "high")))
        said(tokens, 100 * lines["shuffle 0", APART[label]]["tokens"])


def test_surprise_is_what_was_saved() -> None:
    text = section("Surprise tells which edits")
    found = file_of(text, "familiarity")
    parts = [found[name] for name in ("prompt", "first", "run", "relative")]
    for cells, part in zip(table_rows(text, "AUC").values(), parts, strict=True):
        said(cells[0], part["edits"]["auc"], *part["edits"]["ci"])
        if cells[1]:
            said(cells[1], part["kinds_left_out"]["edits"]["auc"], *part["kinds_left_out"]["edits"]["ci"])
            said(cells[2], part["within_kinds"]["auc"])
    for cells, part in zip(table_rows(text, "predicted chance").values(), parts, strict=False):
        counts = [[int(x) for x in numbers(cell)] for cell in cells]
        assert counts == [[seen, wrong] for _, _, seen, wrong in part["curve"]], RENEW


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_hypotheses_are_as_they_were_decided(number: int) -> None:
    """The word, the weights and the figures are those of the report, which a program wrote."""
    text = section("An agent with tools")
    one = json.loads((RESULTS / "reproductions" / f"segments-h{number}.json").read_text(encoding="utf-8"))
    found = re.search(rf"- \*\*H{number}, [^*]*: (\w+)\.\*\*(.*?)(?=\n- \*\*|\n\n|\Z)", text, re.DOTALL)
    assert found, number
    [note] = one["notes"]
    assert note.startswith(f"H{number} is {found[1]}: "), RENEW
    assert one["model"]["weights_hash"] in text, RENEW
    told = numbers(re.sub(r"^H\d is \w+", "", note)) + [x["of"] for x in one["lines"][0]["ours"] if x]
    told += [int(asked) for asked in re.findall(r"--requests (\d+)", one["command"])]
    for value in numbers(found[2].replace("a19bb46e39a13efb", "").replace("0.1 nats", "")):
        assert any(abs(value) == pytest.approx(abs(x), rel=0.06) for x in told), (value, told, RENEW)
