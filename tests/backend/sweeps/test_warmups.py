"""Several warm-ups as one line: what was answered behind one pool counts as one draw."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from fake_sweep import row
from intervals import scipy_wilson

from backend.base.errors import OptionError
from backend.base.statistics import bootstrap, clustered
from backend.sweeps.compare import compare
from backend.sweeps.grid import PlannedRow, planned_rows, shards_of
from backend.sweeps.read import parse_sweep
from backend.sweeps.run import SweepDone
from backend.sweeps.summary import summarise

TEXT = "name: pools\ntasks: [math-2]\nproblems: 6\nwarmup: 2\nwarmups: 12\nmethods: [dense, naive]\n"


def swept(text: str, measured: Any) -> SweepDone:
    sweep = parse_sweep(text)
    slots = list(planned_rows(shards_of(sweep)))
    rows = tuple((slot.cell, slot.method, row(slot, **measured(slot))) for slot in slots)
    cells = tuple(dict.fromkeys(slot.cell for slot in slots))
    return SweepDone(rows, cells, True, sweep.against, sweep.warmups)


def by_pool(slot: PlannedRow) -> dict[str, Any]:
    """Right or wrong is decided by the warm-up alone: six problems say no more than one."""
    good = slot.method == "dense" or random.Random(slot.cell.seed).random() < 0.5
    return {"correct": good, "score": float(good), "ttft_ms": 5.0 + slot.cell.seed}


def test_the_interval_is_as_wide_as_the_warm_ups_differ() -> None:
    rng = np.random.default_rng(0)
    pools = (rng.random(20) < 0.6).astype(float)
    values, of = np.repeat(pools, 50), np.repeat(np.arange(20), 50)
    found = clustered(list(values), list(of))
    assert found.value == pytest.approx(pools.mean())
    assert found.of == 1000
    naive = bootstrap(list(values))
    assert found.high - found.low > 5 * (naive.high - naive.low)
    half = 1.96 * pools.std(ddof=1) / math.sqrt(20)
    assert found.high - found.low == pytest.approx(2 * half, rel=0.2)


def test_independent_values_lose_little_by_being_clustered() -> None:
    values = (np.random.default_rng(1).random(1000) < 0.6).astype(float)
    found, plain = clustered(list(values), [i // 50 for i in range(1000)]), bootstrap(list(values))
    assert 0.8 < (found.high - found.low) / (plain.high - plain.low) < 2


@pytest.mark.slow
def test_its_interval_holds_the_truth_as_often_as_it_says() -> None:
    """Of pools that differ 95 in 100 intervals hold the mean, of those over requests alone far fewer."""
    rng, held, without = np.random.default_rng(2), 0, 0
    for trial in range(150):
        rates = np.clip(rng.normal(0.7, 0.15, 20), 0, 1)
        values = [float(x) for p in rates for x in rng.random(10) < p]
        found = clustered(values, [i // 10 for i in range(200)], draws=300, seed=trial)
        held += found.low <= 0.7 <= found.high
        plain = bootstrap(values, seed=trial)
        without += plain.low <= 0.7 <= plain.high
    assert held >= 136, held
    assert without < held


def test_one_warm_up_has_no_interval_and_what_is_unknown_is_left_out() -> None:
    one = clustered([1.0, 0.0, None], [3, 3, 3])
    assert (one.value, one.of, one.low, one.high) == (0.5, 2, -math.inf, math.inf)
    assert math.isnan(clustered([None], [0]).value)
    rate = clustered([2.0, 0.0, 4.0], [0, 0, 1], [4.0, 4.0, 8.0])
    assert rate.value == 6 / 16


@pytest.mark.slow
def test_lines_are_over_all_warm_ups_and_the_tests_count_them() -> None:
    done = swept(TEXT, by_pool)
    assert (len(done.cells), len(done.line_cells)) == (12, 1)
    dense, naive = summarise(done)
    assert (dense.problems, dense.warmups, dense.counted) == (72, 12, "72 behind 12")
    assert dense.label == "math-2", "the seed of the first is no name"
    assert naive.accuracy.high - naive.accuracy.low > 0.3, "twelve draws say little, however many problems"
    assert (dense.accuracy.value, dense.accuracy.high) == (1, 1)
    assert dense.accuracy.low == pytest.approx(scipy_wilson(72, 72)[0], abs=1e-5), "all right is no certainty"
    [test] = compare(done).tests
    assert (test.pairs, test.warmups) == (72, 12)
    lost = test.only_other // 6
    # a sign of the same direction in each differing warm-up: Wilcoxon over warm-ups, not McNemar
    assert test.right_p is not None
    assert 0.5**lost / 3 <= test.right_p <= 1
    assert test.right_p > 100 * 0.5**test.only_other
    assert naive.ttft_ratio.value == 1, "times stand beside those of the same warm-up"


def test_one_slow_request_decides_no_warm_ups_time() -> None:
    """A second's hiccup, on either side, in one request of six: the medians still say a millisecond."""

    def hiccups(slot: PlannedRow) -> dict[str, Any]:
        found = by_pool(slot)
        if slot.method != "dense":
            hiccup = 1000.0 * (-1) ** slot.cell.seed if slot.problem == 1 else -1.0
            found["ttft_ms"] = 5000.0 + hiccup
        else:
            found["ttft_ms"] = 5000.0
        return found

    [test] = compare(swept(TEXT, hiccups)).tests
    assert test.wilcoxon < 0.001


def test_without_warm_ups_nothing_changes() -> None:
    done = swept(TEXT.replace("warmups: 12\n", "seeds: [0, 1]\n"), by_pool)
    assert len(summarise(done)) == 4
    assert {line.counted for line in summarise(done)} == {"6"}


@pytest.mark.parametrize(
    ("line", "said"),
    [("warmups: 0", "warmups"), ("warmups: 2000", "warmups"), ("warmups: 2\nseeds: [1, 2]", "name one seed")],
)
def test_what_cannot_be_asked_says_what_can(line: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_sweep(f"name: x\ntasks: [math-2]\nmethods: [dense]\n{line}\n")
