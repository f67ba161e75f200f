"""Sweeps: files, the grid, rows that survive a kill, and the numbers of a summary."""

from __future__ import annotations

import csv
import json
import math
import os
import random
import sqlite3
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_sweep import FakeRunner, row
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from backend.base.errors import LabError, OptionError, RecordError
from backend.prompts.presets import PRESET_FOLDER
from backend.records.sweep import Count, SweepLine, clock_time
from backend.sweeps.compare import compare, holm, mcnemar, wilcoxon
from backend.sweeps.export import export
from backend.sweeps.grid import PlannedRow, Shard, planned_rows, shards_of
from backend.sweeps.problems import arranged
from backend.sweeps.read import parse_sweep, read_sweep
from backend.sweeps.rows import COLUMNS, Finished
from backend.sweeps.run import Recorded, SweepDone, run_sweep
from backend.sweeps.spec import JudgeTask, Sweep
from backend.sweeps.store import SweepStore
from backend.sweeps.summary import mean, median, summarise

ROOT = Path(__file__).parents[3]
SMALL = "name: small\ntasks: [math-2]\nmethods: [dense, naive]\nproblems: 5\n"


def finish(sweep: Sweep, store: SweepStore, runner: FakeRunner | None = None) -> SweepDone:
    *_, last = run_sweep(sweep, store, runner or FakeRunner())
    assert isinstance(last, SweepDone)
    return last


# -- the kill


@pytest.mark.slow
def test_three_kills_leave_exactly_two_thousand_rows(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    program = ROOT / "tests" / "helpers" / "fake_sweep.py"
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path / "rows.sqlite"), str(seed)],
        capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *killed, last = json.loads(done.stdout)
    assert [run["killed"] for run in killed] == [True] * 3, seed
    assert not last["killed"]
    before = 0
    for run in killed:
        # what was reported as written is there, and nothing that was not begun
        assert before + 4 * run["written"] <= run["rows"] <= before + 4 * run["begun"], (seed, run)
        assert run["rows"] % 4 == 0, "a problem's rows come together"
        assert run["begun"] - run["written"] <= 1
        before = run["rows"]
    # what was written is not computed again: one problem in flight for each kill at the most
    assert 500 <= sum(run["begun"] for run in (*killed, last)) <= 503, seed
    with sqlite3.connect(tmp_path / "rows.sqlite") as file:
        ask = "SELECT count(*), count(DISTINCT key) FROM rows"
        assert file.execute(ask).fetchone() == (2000, 2000)
        ask = "SELECT count(*) FROM (SELECT DISTINCT seed, problem, method FROM rows)"
        assert file.execute(ask).fetchone() == (2000,)
    file.close()


# -- keys


def keys(text: str, weights: str = "fake") -> list[str]:
    return [slot.key(weights) for slot in planned_rows(shards_of(parse_sweep(text)))]


def test_a_longer_sweep_goes_on_from_a_shorter_one() -> None:
    short, long = keys(SMALL), keys(SMALL.replace("problems: 5", "problems: 7"))
    assert len(short) == 10
    assert set(short) < set(long)


def test_labels_are_no_part_of_a_row() -> None:
    assert keys(SMALL) == keys(SMALL.replace("naive", "naive@copied"))
    assert keys(SMALL) == keys(SMALL.replace("[math-2]", "[{pipeline: math-2, label: mine}]"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[dense, naive]", "[dense, 'kvcomm:gamma=0.5']"),
        ("problems: 5", "problems: 5\nwarmup: 1"),
        ("problems: 5", "problems: 5\nseeds: [1]"),
        ("problems: 5", "problems: 5\nmodes: [free]"),
        ("problems: 5", "problems: 5\nrequest_orders: [descending]"),
        ("problems: 5", "problems: 5\nmax_new_tokens: 5"),
        ("problems: 5", "problems: 5\nmeasure_cache: true"),
        ("math-2", "math-3"),
    ],
)
def test_what_decides_a_row_is_in_its_key(old: str, new: str) -> None:
    """All rows change but, where only a method changes, dense's."""
    same = set(keys(SMALL)) & set(keys(SMALL.replace(old, new)))
    assert len(same) == (5 if "kvcomm" in new else 0)


def test_weights_are_in_every_key() -> None:
    assert not set(keys(SMALL)) & set(keys(SMALL, "other"))


def test_a_row_depends_on_the_requests_before_it_and_not_on_those_behind() -> None:
    [shard] = shards_of(parse_sweep(SMALL))
    changed = list(shard.requests)
    changed[2] = replace(changed[2], values={"user_question": "Another one?"})
    other = replace(shard, requests=tuple(changed))
    same = [
        a == b for a, b in zip(shard.units, other.units, strict=True)
    ]  # fmt: skip
    assert same == [True, True, False, False, False]


def test_many_methods_are_split_and_dense_is_one_row() -> None:
    text = SMALL.replace(
        "[dense, naive]", "[{name: kvcomm, capacity: [" + ", ".join(map(str, range(1, 25))) + "]}]"
    )
    shards = shards_of(parse_sweep(text))
    assert [len(shard.methods) for shard in shards] == [20, 6]
    assert all(shard.methods[0].name == "dense" for shard in shards)
    assert len(keys(text)) == 5 * 25


def test_cells_that_ask_the_same_are_refused() -> None:
    with pytest.raises(OptionError, match="'a' and 'b' ask for the same rows"):
        keys(SMALL.replace("[math-2]", "[{pipeline: math-2, label: a}, {pipeline: math-2, label: b}]"))


# -- request orders


@given(
    st.lists(st.integers(0, 5), max_size=20),
    st.sampled_from(["given", "random", "random:3", "ascending", "descending"]),
)
def test_an_order_keeps_every_request(lengths: list[int], order: str) -> None:
    places = arranged(range(len(lengths)), lengths, order)
    assert sorted(places) == list(range(len(lengths)))
    found = [lengths[p] for p in places]
    if order == "given":
        assert places == list(range(len(lengths)))
    if order in ("ascending", "descending"):
        assert found == sorted(lengths, reverse=order == "descending")
        ties = [(a, b) for a, b in pairwise(places) if lengths[a] == lengths[b]]
        assert all(a < b for a, b in ties), "equal ones stay as drawn"


def test_orders_measure_the_same_problems_behind_the_same_warm_up() -> None:
    text = SMALL + "warmup: 3\nrequest_orders: [given, random:1, random:2, ascending, descending]\n"
    shards = shards_of(parse_sweep(text))
    sent = [[r.number for r in shard.requests] for shard in shards]
    assert all(numbers[:3] == [-2, -1, 0] for numbers in sent)
    assert all(sorted(numbers[3:]) == [1, 2, 3, 4, 5] for numbers in sent)
    assert len({tuple(numbers) for numbers in sent}) >= 4
    lengths = [r.length for r in shards[3].requests[3:]]
    assert lengths == sorted(lengths)


# -- the file


def small_rows() -> tuple[Shard, list[PlannedRow]]:
    [shard] = shards_of(parse_sweep(SMALL))
    return shard, [slot for slots in shard.units for slot in slots]


def test_rows_are_written_once_and_never_changed(tmp_path: Path) -> None:
    _, slots = small_rows()
    with SweepStore(tmp_path / "a.sqlite") as store:
        store.add(Finished("u", (row(slots[0]), row(slots[1])), {"a": 1}))
        store.add(Finished("u", (row(slots[1], answer="other"), row(slots[2])), {"a": 2}))
        assert store.memo("u") == {"a": 1}
        assert store.memo("v") is None
        found = {r.key: r for r in store.rows()}
        assert found[slots[1].key("fake")] == row(slots[1])
        assert found[slots[1].key("fake")].correct is True
        assert found[slots[1].key("fake")].selection_right is None
        for statement in ("UPDATE rows SET answer = 'x'", "DELETE FROM rows", "DELETE FROM memos"):
            with pytest.raises(sqlite3.DatabaseError, match="final"):
                store.connection.execute(statement)


def test_a_problem_is_whole_or_not_there(tmp_path: Path) -> None:
    _, slots = small_rows()
    with SweepStore(tmp_path / "a.sqlite") as store:
        with pytest.raises(sqlite3.IntegrityError):
            store.add(Finished("u", (row(slots[0]), row(slots[1], state=None))))
        assert store.keys() == set()
        store.add(Finished("u", (row(slots[0]),)))
        assert len(store.keys()) == 1


def test_two_processes_on_one_file_write_each_row_once(tmp_path: Path) -> None:
    sweep = parse_sweep(SMALL)
    with SweepStore(tmp_path / "a.sqlite") as one, SweepStore(tmp_path / "a.sqlite") as two:
        walks = [run_sweep(sweep, store, FakeRunner()) for store in (one, two)]
        ends = [event for pair in zip(*walks, strict=True) for event in pair][-2:]
        assert all(isinstance(end, SweepDone) and len(end.rows) == 10 for end in ends)
        assert len(list(one.rows())) == 10


@pytest.mark.parametrize("content", [b"not a database, but long enough to look at" * 50, None])
def test_another_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.sqlite"
    if content is None:
        with sqlite3.connect(path) as file:
            file.execute("CREATE TABLE rows (key TEXT)")
        file.close()
    else:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=r"a\.sqlite is no file of a sweep.*--out"):
        SweepStore(path)


def test_a_file_of_another_version_is_refused(tmp_path: Path) -> None:
    with SweepStore(tmp_path / "a.sqlite") as store:
        store.connection.execute("PRAGMA user_version=99")
    with pytest.raises(RecordError, match="format 99; this version reads format 2"):
        SweepStore(tmp_path / "a.sqlite")


def test_a_file_of_the_first_version_goes_on(tmp_path: Path) -> None:
    """As the version without lengths and temperatures in its columns left it."""
    sweep, path, begun = parse_sweep(SMALL), tmp_path / "a.sqlite", []
    with SweepStore(path) as store:
        finish(replace(sweep, problems=2), store)
        ask = store.connection.execute
        for column in ("max_new_tokens", "temperature"):
            ask(f"ALTER TABLE rows DROP COLUMN {column}")
        ask("DROP TABLE weights")
        ask("PRAGMA user_version=1")
    runner = FakeRunner()
    runner.started = begun.append
    for _ in range(2):  # when it is opened again, it is of this version
        with SweepStore(path) as store:
            rows = [found for _, _, found in finish(sweep, store, runner).rows]
            assert store.weights("embedded") == "fake"
    assert begun == [3, 4, 5]
    assert [found.max_new_tokens for found in rows] == [None] * 4 + [96] * 6
    assert [found.temperature for found in rows] == [None] * 4 + [0.0] * 6
    assert [found.problem for found in rows] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


# -- the loop


def test_only_what_is_missing_runs_and_the_time_left_is_from_this_process(tmp_path: Path) -> None:
    sweep, begun = parse_sweep(SMALL), []
    runner = FakeRunner()
    runner.started = begun.append
    with SweepStore(tmp_path / "a.sqlite") as store:
        finish(replace(sweep, problems=2), store, runner)
        times = iter(range(0, 1000, 10))
        events = list(run_sweep(sweep, store, runner, clock=lambda: float(next(times))))
        assert begun == [1, 2, 3, 4, 5]
        counts = [e for e in events if isinstance(e, Count)]
        assert [(c.done, c.total) for c in counts] == [(4, 10), (6, 10), (8, 10), (10, 10)]
        assert counts[0].seconds_left is None
        assert counts[1].seconds_left == pytest.approx(10 / 2 * 4)
        assert str(counts[1]) == "6 of 10 rows, 00:20 left"
        assert finish(sweep, store, runner).rows == events[-1].rows
        assert begun == [1, 2, 3, 4, 5]


def test_what_is_there_is_shown_without_a_model(tmp_path: Path) -> None:
    sweep = parse_sweep(SMALL)
    with SweepStore(tmp_path / "a.sqlite") as store:
        with pytest.raises(OptionError, match="does not say which weights embedded has"):
            list(run_sweep(sweep, store, Recorded(store)))
        finish(replace(sweep, problems=2), store, FakeRunner("old"))
        some = finish(replace(sweep, problems=2), store)
        *_, shown = run_sweep(sweep, store, Recorded(store))
        assert isinstance(shown, SweepDone)
        assert shown.rows == some.rows, "of the weights that came last"
        assert (some.complete, shown.complete) == (True, False)
        assert store.connection.execute("SELECT identity FROM weights").fetchall() == [("old",), ("fake",)]
        with pytest.raises(sqlite3.DatabaseError, match="final"):
            store.connection.execute("DELETE FROM weights")


def test_times_for_people() -> None:
    assert [clock_time(s) for s in (0, 61.4, 3600, 360_000)] == ["00:00", "01:01", "1:00:00", "100:00:00"]


def test_an_export_has_todays_labels(tmp_path: Path) -> None:
    with SweepStore(tmp_path / "a.sqlite") as store:
        finish(parse_sweep(SMALL), store)
        done = finish(parse_sweep(SMALL.replace("naive", "naive@=copied 100%")), store)
    export(done.rows, tmp_path / "a.csv", "csv")
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert tuple(found[0]) == COLUMNS
    assert [r["method"] for r in found[:4]] == ["dense", "=copied 100%"] * 2
    assert [r["problem"] for r in found] == [str(n) for n in range(1, 6) for _ in range(2)]
    parquet = pytest.importorskip("pyarrow.parquet")
    export(done.rows, tmp_path / "a.parquet", "parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert tuple(table.column_names) == COLUMNS
    assert table.to_pylist()[1]["method"] == "=copied 100%"
    assert table.schema.field("selection_right").type == "bool"
    assert table.column("correct").to_pylist() == [True] * 10


# -- numbers


def line(lines: tuple[SweepLine, ...], method: str) -> SweepLine:
    return next(x for x in lines if x.method == method)


def test_a_summary_by_hand() -> None:
    sweep = parse_sweep(SMALL.replace("problems: 5", "problems: 10"))
    slots = list(planned_rows(shards_of(sweep)))
    right = {"dense": [1] * 9 + [0], "naive": [1] * 3 + [0] * 6 + [1]}
    rows = tuple(
        (
            s.cell,
            s.method,
            row(s, correct=bool(right[s.method][s.problem - 1]), as_dense=s.method == "dense" or s.problem <
                4, ttft_ms=10.0 + s.problem if s.method == "dense" else 5.0, blocks_reused=s.problem % 2),
        )
        for s in slots
    )  # fmt: skip
    done = SweepDone(rows, (slots[0].cell,), against=sweep.against)
    lines, [test] = summarise(done), compare(done).tests
    dense, naive = line(lines, "dense"), line(lines, "naive")
    assert lines[0] is dense
    assert (dense.accuracy.value, naive.accuracy.value) == (0.9, 0.4)
    assert (naive.accuracy.low, naive.accuracy.high) == pytest.approx((0.1682, 0.6873), abs=1e-3)
    assert naive.as_dense.value == 0.3
    assert (test.method, test.axis, test.mine, test.other) == ("naive", "method", "naive", "dense")
    assert (test.only_other, test.only_mine, test.pairs) == (6, 1, 10)
    assert test.right_p == pytest.approx(2 * (1 + 7) / 2**7)
    assert test.wilcoxon == pytest.approx(2 / 2**10)
    assert test.right_holm == test.right_p, "one test needs no correction"
    assert naive.blocks.value == pytest.approx(5 / 40)
    # of ten values the second and the ninth hold the median with 97.9%, the third and the eighth with 89.1%
    assert naive.ttft_ratio == test.ttft_ratio
    ratio = naive.ttft_ratio
    assert (ratio.value, ratio.low, ratio.high, ratio.of) == pytest.approx((3.1, 12 / 5, 19 / 5, 10))
    assert (dense.ttft_ms.value, dense.ttft_ms.low, dense.ttft_ms.high) == (15.5, 12, 19)
    assert (dense.ttft_ratio.value, dense.ttft_ratio.low, dense.ttft_ratio.high) == (1, 1, 1)


def test_means_and_tests_are_scipys() -> None:
    values = [1.0, 2.0, 4.0, None, math.nan]
    found = mean(values)
    low, high = scipy_stats.t.interval(0.95, 2, 7 / 3, scipy_stats.sem([1, 2, 4]))
    assert (found.value, found.low, found.high, found.of) == pytest.approx((7 / 3, low, high, 3))
    assert mean([]).of == 0
    assert math.isinf(mean([3.0]).high)
    assert mcnemar(0, 0) == wilcoxon([0.0, 0.0]) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 2**5)


@given(st.lists(st.floats(1, 1e6), min_size=1, max_size=60))
def test_a_medians_interval_is_the_narrowest_that_holds_it(values: list[float]) -> None:
    """By the binomial distribution, counted out: no use of a table."""
    found, count = median(values), len(values)

    def missed(rank: int) -> float:
        """How often fewer than ``rank`` of so many lie below the median."""
        return sum(math.comb(count, k) for k in range(rank)) / 2**count

    ranks = [rank for rank in range(1, count // 2 + 1) if 2 * missed(rank) <= 0.05]
    if not ranks:
        assert count < 6
        assert (found.low, found.high) == (-math.inf, math.inf)
        return
    ordered = sorted(values)
    assert (found.low, found.high) == (ordered[ranks[-1] - 1], ordered[-ranks[-1]])
    assert found.low <= found.value <= found.high


def test_holm_by_hand() -> None:
    assert holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


# -- sweep files


@pytest.mark.parametrize("path", sorted((ROOT / "presets" / "sweeps").glob("*.yaml")), ids=lambda p: p.stem)
def test_the_shipped_sweeps_are_whole(path: Path) -> None:
    sweep = read_sweep(path)
    assert sweep.name == path.stem
    if path.stem != "gsm8k":  # its data is not shipped
        few = replace(sweep, problems=2, warmup=1)
        assert len({slot.digest for slot in planned_rows(shards_of(few))}) >= 2 * len(sweep.methods)


def test_the_steps_are_a_grid() -> None:
    sweep = parse_sweep(
        "name: a\ntasks: [math-2]\nmethods: "
        "[{name: kvcomm, rotate: [true, false], gamma: [0.1, 0.5], label: mine}, "
        "{name: kvcomm, profile: shipped, capacity: 7}]"
    )
    labels = [m.label for m in sweep.methods]
    assert labels == [
        "dense", "mine rotate=true+gamma=0.1", "mine rotate=true+gamma=0.5", "mine rotate=false+gamma=0.1",
        "mine rotate=false+gamma=0.5", "kvcomm:profile=shipped+capacity=7",
    ]  # fmt: skip
    assert sweep.methods[3].options == {"rotate": False, "gamma": 0.1}
    assert sweep.methods[5].options["capacity"] == 7
    assert len(sweep.methods[5].options) > 1


def test_a_judges_axes_are_tasks_and_its_orders_are_cells() -> None:
    sweep = parse_sweep(
        "name: a\ntasks: "
        "[{judge: {regime: [progressive, parallel], candidates: [2, 3], orders: 'identity,shuffle:1'}}]\n"
        "methods: [dense, naive]\nproblems: 3\nwarmup: 1"
    )
    assert [t.label for t in sweep.tasks] == [
        f"judge {r} right joint candidates {n}" for r in ("progressive", "parallel") for n in (2, 3)
    ]
    assert all(isinstance(t, JudgeTask) for t in sweep.tasks)
    shards = shards_of(sweep)
    assert [p.number for p in shards[0].problems] == [0, 1, 2, 3]
    slots = list(planned_rows(shards))
    assert len(slots) == 4 * 3 * 2 * 2
    assert {s.cell.judge_order for s in slots} == {"identity", "shuffle 1"}
    listed = "[{judge: {regime: parallel, orders: ORDERS}}]\nmethods: [dense]\nproblems: 2\n"
    one, other = (
        parse_sweep("name: x\ntasks: " + listed.replace("ORDERS", given)).tasks
        for given in ("'identity,shuffle:1'", "[identity, 'shuffle:1']")
    )
    assert one == other


@pytest.mark.parametrize(
    ("change", "said", "field"),
    [
        ({"name": "A b"}, "name is 'A b'; small letters", "name"),
        ({"colour": 1}, "unknown key 'colour'. Allowed keys: name,", "colour"),
        ({"problems": "many"}, "problems is 'many', but must be a whole number", "problems"),
        ({"problems": 0}, "problems is 0; 1 to 10,000 are allowed", "problems"),
        ({"problems": True}, "problems is True", "problems"),
        ({"seeds": [0, 0]}, "seeds has 0 twice", "seeds"),
        ({"seeds": []}, "seeds is an empty list", "seeds"),
        ({"seeds": [-1]}, "seeds is -1; 0 to", "seeds"),
        ({"temperature": [0, 0.0]}, "temperature has 0 twice", "temperature"),
        ({"temperature": [0, 6]}, "temperature is 6; 0 to 5 are allowed", "temperature"),
        ({"temperature": [10**400]}, "0 to 5 are allowed", "temperature"),
        ({"temperature": [True]}, "temperature has True; allowed are", "temperature"),
        ({"max_new_tokens": [16, 0]}, "max_new_tokens is 0; 1 to 4,096", "max_new_tokens"),
        ({"max_new_tokens": [1.5]}, "max_new_tokens has 1.5; allowed are", "max_new_tokens"),
        ({"problems": [2, 3]}, "problems is [2, 3], but must be a whole number", "problems"),
        ({"tasks": [{"judge": {"temperature": [1, 9]}}]}, "tasks.1.judge.temperature is 9",
        "tasks.1.judge.temperature"),
        ({"against": []}, "against is an empty list", "against"),
        ({"against": "naive"}, "against has 'naive'; allowed are dense and one axis", "against"),
        ({"against": {"seed": 0}}, "The axes are method, task, model, mode, request_order", "against"),
        ({"against": [{"method": "dense", "mode": "free"}]}, "one axis with a value", "against"),
        ({"against": {"mode": "pinned"}}, "do not differ in it", "against.mode"),
        ({"against": {"judge_order": "identity"}}, "do not differ in it", "against.judge_order"),
        ({"against": {"method": "naiv"}, "methods": ["naive"]}, "this sweep has dense, naive",
        "against.method"), ({"against": {"temperature": True}, "temperature": [0, 1]}, "is True",
        "against.temperature"),
        ({"against": ["dense", {"method": "dense"}], "methods": ["naive"]}, "has dense twice", "against"),
        ({"modes": "loose"}, "modes is 'loose'; there are pinned, free", "modes"),
        ({"request_orders": ["sorted"]}, "there are given, random, random:SEED", "request_orders"),
        ({"methods": ["kvcom"]}, "There is no method 'kvcom'", "methods"),
        ({"methods": [3]}, "Method 1 is 3; write a name", "methods.1"),
        ({"methods": [{"name": "kvcomm", "gama": 1}]}, "no option 'gama'; it has", "kvcomm.gama"),
        ({"methods": [{"name": "kvcomm", "gamma": []}]}, "gamma is an empty list", "methods.1.gamma"),
        ({"methods": ["naive", "naive@again"]}, "'naive' and 'again' have the same options", "methods"),
        ({"tasks": []}, "tasks is an empty list", "tasks"),
        ({"tasks": ["math-9"]}, "There is no preset 'math-9'", "tasks.1.pipeline"),
        ({"tasks": ["math-2", {"pipeline": "math-4", "agents": 9}]}, "2 to 5 are allowed", "tasks.2.agents"),
        ({"tasks": [{"pipeline": "math-2", "turns": 99}]}, "1 to 8 are allowed", "tasks.1.turns"),
        ({"tasks": [{"pipeline": "documents-10", "documents": 900, "data": "x", "format": "musique"}]},
         "1 to 100 are allowed", "tasks.1.documents"),
        ({"tasks": ["no.yaml"]}, "no.yaml cannot be read", "tasks.1.pipeline"),
        ({"tasks": [5]}, "task 1 is 5, but must be keys with values, as in 'pipeline: ...'", "tasks.1"),
        ({"tasks": ["math-2", "math-2"]}, "Two tasks are called 'math-2'", "tasks"),
        ({"tasks": [{"pipeline": "math-{agents}"}]}, "agents are not given", "tasks.1.agents"),
        ({"tasks": [{"agents": 2}]}, "needs one of pipeline, judge and trace", "tasks.1"),
        ({"tasks": [{"pipeline": "math-2", "data": "x"}]}, "has data, but no format", "tasks.1.format"),
        ({"tasks": [{"pipeline": "math-2", "data": "x", "format": "y"}]}, "there are gsm8k",
        "tasks.1.format"), ({"tasks": [{"judge": {"regime": "loud"}}]}, "regime is 'loud'; allowed:",
        "judge.regime"), ({"tasks": [{"judge": {}}], "modes": ["free"]}, "modes has 'free'", "modes"),
    ],
)  # fmt: skip
def test_a_wrong_file_says_what_and_what_is_allowed(change: dict[str, Any], said: str, field: str) -> None:
    body = {"name": "a", "tasks": ["math-2"], "methods": ["dense"]} | change
    with pytest.raises(OptionError) as caught:
        parse_sweep(json.dumps(body), "my.yaml")
    assert str(caught.value).startswith("my.yaml")
    assert said in str(caught.value)
    assert caught.value.field == field


def test_a_pipeline_that_a_task_does_not_fit_is_the_tasks(tmp_path: Path) -> None:
    """A prompt of it looks back further than the task's turns: its place in the preset is no place here."""
    shipped = (PRESET_FOLDER / "math-turns.yaml").read_text(encoding="utf-8")
    told = shipped.replace("turns: 2", "turns: 3").replace("{agent_2_history_-1}", "{agent_2_history_-2}")
    (tmp_path / "far.yaml").write_text(told, encoding="utf-8")
    text = "name: t\nmethods: dense\ntasks:\n  - {pipeline: far.yaml, turns: 2}\n"
    with pytest.raises(OptionError, match="look back by 1 at most") as caught:
        parse_sweep(text, folder=tmp_path)
    assert caught.value.field == "tasks.1.pipeline"


def test_data_in_a_home_that_nobody_has_is_missed_as_any_file_is() -> None:
    task = "{pipeline: math-2, data: ~nobody-has-this-name/x.jsonl, format: gsm8k}"
    text = f"name: t\nmethods: dense\ntasks:\n  - {task}\n"
    [found] = parse_sweep(text).tasks
    assert found.data is not None
    assert found.data.path == Path("~nobody-has-this-name/x.jsonl")


@pytest.mark.parametrize(("text", "found"), [("", "empty"), ("# nothing yet", "empty"), ("[a]", "['a']")])
def test_what_is_no_sweep_file_is_told_what_one_looks_like(text: str, found: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_sweep(text, "my.yaml")
    said = str(caught.value)
    assert said.startswith(
        f"my.yaml is {found}, but must be keys with values, as in 'name: ...'. The keys are"
    )
    assert "against; needed are name, tasks, methods. docs/sweeps.md has examples." in said


@settings(max_examples=30)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda x: (
            st.lists(x)
            | st.dictionaries(
                st.sampled_from(["name", "tasks", "methods", "judge", "pipeline", "seeds"]) | st.text(), x
            )
        ),
        max_leaves=8,
    )
)
@pytest.mark.slow
def test_whatever_a_file_holds_it_is_no_traceback(body: Any) -> None:
    for text in (json.dumps(body), str(body)):
        try:
            parse_sweep(text)
        except LabError as error:
            found = str(error)
            assert found.startswith("sweep")


def test_dense_is_always_there() -> None:
    assert [m.name for m in parse_sweep(SMALL.replace("[dense, naive]", "[]")).methods] == ["dense"]
    assert [m.name for m in parse_sweep(SMALL.replace("dense, naive", "naive, dense")).methods] == [
        "dense",
        "naive",
    ]


def test_a_pipeline_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\ntitle: Mine\nsummary: ''\nmodel: any\nneeds_context: 100\nrequest_source: examples\n"
        "agents: [{id: 1, name: A, role: '', template: 'Say it: {user_question}'}]\n"
        "examples: [{values: {user_question: 'One?'}, answer: '1'}]\n"
    )
    (tmp_path / "s.yaml").write_text("name: s\ntasks: [mine.yaml]\nmethods: dense\nproblems: 2\n")
    [shard] = shards_of(read_sweep(tmp_path / "s.yaml"))
    assert [r.golds for r in shard.requests] == [("1",), ("1",)]
