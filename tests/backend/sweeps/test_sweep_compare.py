"""Lines of a sweep against lines: which stand beside which, on the same problems, and what the tests say."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_judge import BLANK
from fake_sweep import row
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.base.serialization import as_json
from backend.base.statistics import Share
from backend.records.sweep import Axis, Baseline, Cell, Compared, SweepLine, Swept
from backend.reproduce.sweeping import _line_values
from backend.sweeps.compare import compare, holm, mcnemar, wilcoxon
from backend.sweeps.grid import PlannedRow, planned_rows, shards_of
from backend.sweeps.read import parse_sweep, read_sweep
from backend.sweeps.run import SweepDone
from backend.sweeps.spec import Sweep
from backend.sweeps.summary import mean, mean_distance, summarise
from lab_app.cli.sweep import tables
from viz.studies.sweep import as_dense, table_html

Change = Any  # from a slot to what is measured there
HEAD = "name: small\ntasks: [math-2]\nproblems: 8\n"


def swept(text: str, measured: Change = lambda slot: {}, *, complete: bool = True) -> SweepDone:
    """A sweep's rows as ``measured`` has them."""
    sweep = parse_sweep(text)
    slots = list(planned_rows(shards_of(sweep)))
    rows = tuple((slot.cell, slot.method, row(slot, **measured(slot))) for slot in slots)
    return SweepDone(rows, tuple(dict.fromkeys(slot.cell for slot in slots)), complete, sweep.against)


def pairs(found: Compared) -> list[tuple[str, str, str]]:
    return [(test.label, test.method, test.against) for test in found.tests]


def chance(slot: PlannedRow) -> dict[str, Any]:
    """Something else in every row, the same whenever it is asked for."""
    rng = random.Random(repr(slot))
    correct = rng.random() < 0.6
    return {"correct": correct, "score": float(correct), "ttft_ms": rng.uniform(1, 9)}


# -- what stands beside what


def test_dense_is_the_baseline_unless_others_are_named() -> None:
    text = HEAD + "methods: [dense, naive, kvcomm]\nrequest_orders: [given, ascending]\n"
    [baseline] = parse_sweep(text).against
    assert baseline == Baseline("method", "dense")
    assert pairs(compare(swept(text))) == [
        (f"math-2, {order}", method, "dense")
        for order in ("given", "ascending")
        for method in ("naive", "kvcomm")
    ]  # fmt: skip
    renamed = text.replace("[dense,", "['dense@reference',")
    assert parse_sweep(renamed).against == (Baseline("method", "reference"),)
    assert parse_sweep(renamed + "against: dense\n").against == (Baseline("method", "reference"),)


AXES: dict[Axis, tuple[str, str, list[str]]] = {
    "method": ("methods: [dense, naive, kvcomm]", "naive", ["math-2", "math-2"]),
    "request_order": ("request_orders: [given, 'random:1', descending]", "given",
        ["math-2, random:1", "math-2, descending"]),
    "mode": ("modes: [pinned, free]", "free", ["math-2, pinned"]),
    "temperature": ("temperature: [0, 0.5, 1]", "0", ["math-2, temperature 0.5", "math-2, temperature 1"]),
    "max_new_tokens": ("max_new_tokens: [8, 16]", "16", ["math-2, 8 tokens"]),
    "model": ("models: [embedded, embedded-small]", "embedded", ["math-2, embedded-small"]),
}  # fmt: skip


@pytest.mark.parametrize("axis", AXES)
def test_a_line_stands_beside_the_one_that_differs_in_one_axis(axis: Axis) -> None:
    said, value, labels = AXES[axis]
    text = HEAD + f"{'' if 'methods' in said else 'methods: dense'}\n{said}\nagainst: {{{axis}: {value}}}\n"
    tests = compare(swept(text, chance)).tests
    assert [test.label for test in tests] == labels
    for test in tests:
        assert test.axis == axis
        assert str(test.other) in (value, "0.0")
        assert test.mine != test.other
        assert test.pairs == 8


def test_all_other_axes_are_the_same() -> None:
    text = HEAD + (
        "methods: [dense, naive]\nrequest_orders: [given, ascending]\nseeds: [0, 1]\ntemperature: [0, 1]\n"
        "against: [{request_order: given}, dense]\n"
    )
    tests = compare(swept(text)).tests
    orders = [test for test in tests if test.axis == "request_order"]
    assert len(tests) == 8 + 8
    assert [test.cell.request_order for test in orders] == ["ascending"] * 8
    assert len({(test.cell.seed, test.cell.temperature, test.method) for test in orders}) == 8


def test_a_judges_orders_may_be_named_as_they_are_written() -> None:
    text = (
        "name: a\ntasks: [{judge: {regime: parallel, orders: [identity, 'shuffle:0', 'shuffle:1']}}]\n"
        "methods: dense\nproblems: 3\nagainst: {judge_order: 'shuffle:0'}\n"
    )
    tests = compare(swept(text)).tests
    assert [test.mine for test in tests] == ["identity", "shuffle 1"]
    assert {test.against for test in tests} == {"judge order shuffle 0"}


def test_a_judge_that_takes_none_is_told_from_one_that_takes_another_candidate() -> None:
    task = "{judge: {regime: parallel, orders: identity}}"
    text = f"name: a\ntasks: [{task}]\nmethods: [dense, naive]\nproblems: 4\n"
    took = {1: (1,), 2: (0,), 3: (0,), 4: (2,)}

    def measured(slot: PlannedRow) -> dict[str, Any]:
        selected = took[slot.problem] if slot.method == "naive" else (1,)
        same = selected == (1,)
        outcome = replace(BLANK, selected=selected, consistent=same, method=slot.method)
        return {"as_dense": same, "body": json.dumps(as_json(outcome))}

    done = swept(text, measured)
    dense, naive = summarise(done)
    assert (naive.as_dense.value, naive.to_none.value, naive.to_another.value) == (1 / 4, 2 / 4, 1 / 4)
    assert (naive.as_dense_without_none.value, naive.as_dense_without_none.of) == (1 / 2, 2)
    assert (dense.to_none.value, dense.to_another.value) == (0, 0)
    found = _line_values(naive, dense, None).values
    assert (found["to_none"].value, found["to_another"].value) == (2 / 4, 1 / 4)
    record = Swept("a", "a", (dense, naive), 8, True, compare(done))
    said = as_dense(record).finding.replace("\xa0", " ")
    assert "took none in 50 % where the full read selects otherwise, another candidate in 25 %" in said
    assert "to none %" in "\n".join(tables(record))
    assert "changed to none" in table_html(record)


def test_a_row_without_a_step_is_tested_against_all_steps_of_its_profile() -> None:
    sweep = read_sweep(Path(__file__).parents[3] / "presets" / "sweeps" / "tables-5-6.yaml")
    profiles = ("kvcomm", "kvcomm:profile=shipped")
    assert sweep.against == tuple(Baseline("method", all_steps) for all_steps in profiles)
    assert sweep.warmups >= 20, "one pool is one draw"
    published = {m.label.removeprefix("kvcomm:") for m in sweep.methods if "profile" not in m.label}
    shipped = {m.label.removeprefix("kvcomm:profile=shipped+") for m in sweep.methods if "shipped" in m.label}
    left_out = {"dense", "naive", "kvcomm", "approximation=uniform"}
    assert published - left_out == shipped - {"kvcomm:profile=shipped"}, "each row under both profiles"


def test_two_lines_are_compared_once() -> None:
    text = HEAD + "methods: [dense, naive, kvcomm]\nagainst: [dense, {method: naive}]\n"
    assert [(a, b) for _, a, b in pairs(compare(swept(text)))] == [
        ("naive", "dense"), ("kvcomm", "dense"), ("kvcomm", "naive"),
    ]  # fmt: skip


# -- on the same problems


def test_a_problems_number_is_the_same_problem_in_every_order() -> None:
    text = HEAD + "methods: dense\nrequest_orders: [given, random:1, ascending, descending]\nwarmup: 2\n"
    by_number: dict[int, set[str]] = {}
    for shard in shards_of(parse_sweep(text)):
        for request in shard.requests:
            by_number.setdefault(request.number, set()).add(str(dict(request.values)))
    assert sorted(by_number) == list(range(-1, 9))
    assert all(len(values) == 1 for values in by_number.values())


def test_pairs_are_matched_by_problem_and_not_by_place() -> None:
    """Right and slow are the odd problems, in whatever order they come."""
    text = HEAD + "methods: dense\nrequest_orders: [given, descending]\nagainst: {request_order: given}\n"
    [test] = compare(
        swept(text, lambda s: {"correct": s.problem % 2 == 1, "ttft_ms": 1.0 + s.problem % 2})
    ).tests
    assert (test.only_other, test.only_mine, test.right_p, test.wilcoxon) == (0, 0, 1.0, 1.0)
    assert test.ttft_ratio.value == test.ttft_ratio.high == 1


def test_only_problems_that_both_have_are_paired() -> None:
    text = HEAD + "methods: [dense, naive]\n"
    done = swept(text, chance)
    fewer = replace(
        done, rows=tuple(r for r in done.rows if r[1] == "dense" or r[2].problem < 4), complete=False
    )
    [test] = compare(fewer).tests
    assert test.pairs == 3
    none = replace(fewer, rows=tuple(r for r in done.rows if (r[1] == "dense") == (r[2].problem < 4)))
    assert compare(none) == Compared(), "a sweep that goes on has nothing to say yet"


def test_tasks_are_compared_where_their_problems_are_the_same() -> None:
    text = HEAD.replace("[math-2]", "[math-2, math-3]") + "methods: [dense, naive]\nagainst: {task: math-2}\n"
    same = compare(swept(text))
    assert pairs(same) == [("math-3", method, "task math-2") for method in ("dense", "naive")]
    assert same.left_out == ()
    other = compare(swept(text, lambda s: {"request": f"{s.cell.task} {s.problem}"}))
    assert other == Compared(
        (), ("math-3 is not compared with task math-2: their problems are not the same.",)
    )
    answers = compare(swept(text, lambda s: {"expected": f"{s.cell.task} {s.problem == 5}"}))
    assert answers.tests == (), "another known answer makes it another problem"


def test_what_has_no_counterpart_is_told_at_the_end() -> None:
    text = (
        "name: a\nproblems: 2\nmethods: dense\nmax_new_tokens: 8\ntasks: [math-2, {judge: {regime: typed, "
        "max_new_tokens: [8, 16], temperature: [0, 1]}}]\nagainst: {task: math-2}\n"
    )
    assert compare(swept(text, complete=False)) == Compared()
    said = "Nothing is compared with task math-2: no line differs from another in that alone."
    assert compare(swept(text)) == Compared((), (said,))


# -- the numbers


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["method", "request_order", "temperature"]))
@pytest.mark.slow
def test_turned_round_a_comparison_says_the_same(seed: int, axis: Axis) -> None:
    """Lost becomes won, the ratio its inverse, and p stays."""
    values = {
        "method": ("dense", "naive"),
        "request_order": ("given", "ascending"),
        "temperature": (0.0, 1.0),
    }
    one, other = values[axis]
    text = (
        HEAD
        + ("methods: [dense, naive]\n" if axis == "method" else "methods: dense\n")
        + "request_orders: [given, ascending]\ntemperature: [0, 1]\n"
    )
    done = swept(text, lambda slot: chance(replace(slot, digest=str(seed))))
    there, back = (compare(replace(done, against=(Baseline(axis, value),))).tests for value in (one, other))
    assert len(there) == len(back) > 0
    for a, b in zip(there, back, strict=True):
        assert (a.mine, a.other) == (b.other, b.mine)
        assert (a.only_other, a.only_mine) == (b.only_mine, b.only_other)
        assert (a.right_p, a.wilcoxon) == pytest.approx((b.right_p, b.wilcoxon))
        assert a.ttft_ratio.low == pytest.approx(1 / b.ttft_ratio.high)


def test_a_comparison_by_hand() -> None:
    """Of eight problems in the other order: three lost, one won, and every first token twice as soon."""

    def measured(slot: PlannedRow) -> dict[str, Any]:
        given = slot.cell.request_order == "given"
        right = slot.problem != 8 if given else slot.problem > 3
        return {"correct": right, "ttft_ms": slot.problem * (10.0 if given else 5.0)}

    text = HEAD + "methods: dense\nrequest_orders: [given, ascending]\nagainst: {request_order: given}\n"
    [test] = compare(swept(text, measured)).tests
    assert (test.mine, test.other, test.pairs) == ("ascending", "given", 8)
    assert (test.only_other, test.only_mine) == (3, 1)
    assert test.right_p == pytest.approx(2 * (1 + 4) / 2**4)
    assert test.wilcoxon == pytest.approx(2 / 2**8)
    assert (test.ttft_ratio.value, test.ttft_ratio.low, test.ttft_ratio.of) == (2, 2, 8)


def test_the_correction_is_over_all_tests_of_a_kind_whatever_the_baseline() -> None:
    text = HEAD + (
        "methods: [dense, naive]\nrequest_orders: [given, ascending]\n"
        "against: [dense, {request_order: given}]\n"
    )
    tests = compare(swept(text, chance)).tests
    assert len(tests) == 4
    assert [test.right_holm for test in tests] == holm([test.right_p for test in tests])
    assert [test.wilcoxon_holm for test in tests] == holm([test.wilcoxon for test in tests])
    least = min(tests, key=lambda test: test.wilcoxon)
    assert least.wilcoxon_holm == pytest.approx(min(1.0, 4 * least.wilcoxon))


def test_where_no_answer_is_known_only_times_are_compared() -> None:
    [test] = compare(swept(HEAD + "methods: [dense, naive]\n", lambda s: {"correct": None})).tests
    assert (test.right_p, test.right_holm) == (None, None)
    assert test.wilcoxon_holm == 1.0


@given(st.lists(st.none() | st.floats(0, 1), max_size=12))
def test_holms_correction(ps: list[float | None]) -> None:
    """Never below the p, never above 1 or above Bonferroni's, in the order of the p."""
    found, count = holm(ps), sum(p is not None for p in ps)
    assert [p is None for p in found] == [p is None for p in ps]
    known = sorted((p, q) for p, q in zip(ps, found, strict=True) if p is not None and q is not None)
    assert all(p <= q <= min(1.0, count * p) or q == pytest.approx(p) for p, q in known)
    assert [q for _, q in known] == sorted(q for _, q in known)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_does_not_ask_which_is_which(one: int, other: int) -> None:
    assert mcnemar(one, other) == pytest.approx(mcnemar(other, one))
    assert 0 < mcnemar(one, other) <= 1


DIFFERENCES = st.floats(-100, 100).map(lambda x: round(x, 3))


@given(st.lists(DIFFERENCES, max_size=6) | st.lists(DIFFERENCES, min_size=14, max_size=30))
@pytest.mark.slow
def test_wilcoxon_does_not_ask_which_is_which(values: list[float]) -> None:
    assert wilcoxon(values) == pytest.approx(wilcoxon([-v for v in values]))


# -- cells


def cells(text: str) -> list[Cell]:
    return list(dict.fromkeys(slot.cell for slot in planned_rows(shards_of(parse_sweep(text)))))


def test_lengths_and_temperatures_are_axes() -> None:
    one = HEAD + "methods: dense\nmax_new_tokens: 8\ntemperature: 0.5\n"
    grid = one.replace("8\ntemp", "[8, 16]\ntemp").replace(": 0.5", ": [0, 0.5]")
    found = cells(grid)
    assert [cell.label(found) for cell in found] == [
        f"math-2, {tokens} tokens, temperature {heat:g}" for tokens in (8, 16) for heat in (0, 0.5)
    ]
    assert parse_sweep(grid).lines == 4
    [only] = cells(one)
    assert only.label([only]) == "math-2"
    decoded = [(s.decoding.max_new_tokens, s.decoding.temperature) for s in shards_of(parse_sweep(grid))]
    assert decoded == [(8, 0.0), (8, 0.5), (16, 0.0), (16, 0.5)]
    keys = {slot.key("w") for slot in planned_rows(shards_of(parse_sweep(grid)))}
    mine = {slot.key("w") for slot in planned_rows(shards_of(parse_sweep(one)))}
    assert mine < keys, "a list asks for the rows that its values ask for alone"
    assert len(keys) == 4 * len(mine)


def test_a_judges_lengths_and_temperatures_are_its_own() -> None:
    judge = "{regime: parallel, orders: identity, max_new_tokens: [40, 80], temperature: [0, 1]}"
    text = f"name: a\ntasks: [math-2, {{judge: {judge}}}]\nmethods: dense\nproblems: 2\nmax_new_tokens: 8\n"
    found = cells(text)
    assert [cell.label(found) for cell in found] == [
        "math-2",
        *(f"judge parallel right joint, {n} tokens, temperature {t}" for n in (40, 80) for t in (0, 1)),
    ]
    asked = [shard.judge for shard in shards_of(parse_sweep(text)) if shard.judge]
    assert [(j.max_new_tokens, j.sampling.temperature) for j in asked] == [(40, 0), (40, 1), (80, 0), (80, 1)]
    assert parse_sweep(text).lines == 5
    # alone they are the task's own, as before they could be lists
    alone = cells(text.replace("[40, 80]", "80").replace("[0, 1]", "1"))
    assert [(cell.max_new_tokens, cell.temperature) for cell in alone] == [(8, 0.0), (None, None)]
    keys = {slot.digest for slot in planned_rows(shards_of(parse_sweep(text)))}
    some = text.replace("[40, 80]", "80").replace("[0, 1]", "1")
    assert {slot.digest for slot in planned_rows(shards_of(parse_sweep(some)))} < keys


@pytest.mark.parametrize(
    "text",
    [
        HEAD + "methods: [dense, naive]\nseeds: [0, 1]\ntemperature: [0, 1]\nmax_new_tokens: [8, 9, 10]\n",
        "name: a\nproblems: 1\nmethods: dense\nrequest_orders: [given, ascending]\ntemperature: [0, 1]\n"
        "tasks: [math-2, math-3, {judge: {regime: parallel, candidates: 3, orders: [all, 'shuffle:0']}}]\n",
    ],
)
def test_how_many_lines_a_sweep_will_have(text: str) -> None:
    slots = list(planned_rows(shards_of(parse_sweep(text))))
    assert parse_sweep(text).lines == len({(slot.cell, slot.method) for slot in slots})


def test_steps_and_profiles_are_axes() -> None:
    """KVCOMM's alignment steps, which its Table 5 turns on and off, and its profiles."""
    text = HEAD + (
        "methods:\n  - {name: kvcomm, label: steps, rotate: [true, false], prefix_offset: [true, false]}\n"
        "  - {name: kvcomm, profile: [shipped, corrected]}\n"
        "against: {method: 'steps rotate=true+prefix_offset=true'}\n"
    )
    found = compare(swept(text, chance)).tests
    assert [test.method for test in found] == [
        "dense", "steps rotate=true+prefix_offset=false", "steps rotate=false+prefix_offset=true",
        "steps rotate=false+prefix_offset=false", "kvcomm:profile=shipped", "kvcomm:profile=corrected",
    ]  # fmt: skip


def test_a_distances_interval_does_not_reach_below_zero() -> None:
    known = [*[0.0] * 9, 5.0]
    found = mean_distance([None, *known])
    assert found.low >= 0
    assert mean(known).low < 0, "Student's would"
    assert (found.value, found.of) == (0.5, 10)
    assert mean_distance([3.0]) == mean([3.0]), "one value has no interval"


# -- the command's tables


def test_the_tables_of_the_command() -> None:
    text = HEAD + (
        "methods: [dense, naive, 'kvcomm:gamma=0.5']\nrequest_orders: [given, ascending, descending]\n"
        "against: [dense, {request_order: given}]\n"
    )
    done = swept(text, lambda slot: chance(slot) | {"kl_first": 0.01 * slot.problem})
    sweep: Sweep = parse_sweep(text)
    lines: tuple[SweepLine, ...] = summarise(done)
    shown = Swept(sweep.name, sweep.title, lines, len(done.rows), True, compare(done))
    answers, costs, others = "\n".join(tables(shown)).split("\n\n")
    assert "score" not in answers, "which are right says it"
    assert max(map(len, f"{answers}\n{costs}\n{others}".splitlines())) <= 120, "a terminal's width"
    naive = next(line for line in answers.splitlines() if line.startswith("  naive"))
    right = next(x for x in lines if x.method == "naive").accuracy
    assert f"{right.value * 100:.1f} [{right.low * 100:.1f}, {right.high * 100:.1f}]" in naive
    assert "0.045 [0.029, 0.06]" in naive, "KL with its interval"
    naive = next(line for line in costs.splitlines() if line.startswith("  naive"))
    assert naive.count("[") == 4, "blocks, tokens, time and ratio"
    assert costs.count("math-2, ascending\n") == 1, "a cell's name stands once"
    assert others.splitlines()[1] == "against request order given"
    assert len(others.splitlines()) == 2 + 2 * 3
    halves = replace(shown, lines=tuple(replace(x, score=Share(0.25, 0.125, 0.5, 9)) for x in lines))
    answers = "\n".join(tables(halves)).split("\n\n")[0]
    assert "score" in answers.splitlines()[0]
    assert answers.count("0.250 [0.125, 0.500]") == len(lines)
    alone = replace(shown, compared=compare(replace(done, against=sweep.against[:1])))
    assert "\n".join(tables(alone)).count("\n\n") == 1, "no third table where there is dense alone"
