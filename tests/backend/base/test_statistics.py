"""Shares, means and bootstraps: against SciPy's, and against the draws that published figures rest on."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from backend.base.statistics import (
    NOTHING,
    Share,
    bootstrap,
    bootstrap_interval,
    clustered,
    deviations,
    mean_and_half,
    share,
    share_of,
    wilson,
)


@pytest.mark.parametrize(("good", "seen"), [(0, 5), (5, 5), (3, 10), (97, 100)])
def test_a_share_has_wilsons_interval(good: int, seen: int) -> None:
    wanted = stats.binomtest(good, seen).proportion_ci(method="wilson")
    assert wilson(good, seen) == pytest.approx((wanted.low, wanted.high), abs=1e-5)
    assert share_of(good, seen) == Share(good / seen, *wilson(good, seen), seen)
    assert share([True] * good + [False] * (seen - good) + [None]) == share_of(good, seen)


def test_nothing_counted_is_no_share() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert share_of(0, 0) is share([None]) is bootstrap([]) is bootstrap([1.0], [0.0]) is NOTHING


def test_draws_are_the_same_as_one_by_one() -> None:
    """Published intervals were drawn so."""
    values = np.random.default_rng(7).normal(size=31)
    rng = np.random.default_rng(0)
    one_by_one = [values[rng.integers(31, size=31)].mean() for _ in range(2000)]
    found = bootstrap_interval(lambda drawn: values[drawn].mean(axis=1), 31)
    assert found == tuple(np.percentile(one_by_one, [2.5, 97.5]))
    assert bootstrap(values.tolist()) == Share(pytest.approx(values.mean()), *found, 31)


def test_every_interval_of_means_is_as_wide_as_95_percent_are() -> None:
    """Of many normal values the interval has 1.96 standard errors to each side; of 90% it would have 1.64."""
    values = np.random.default_rng(3).normal(size=600).tolist()
    error = float(stats.sem(values))
    for found in (bootstrap(values), clustered(values, range(600), seed=1)):
        assert (found.high - found.low) / (2 * error) == pytest.approx(1.96, rel=0.07)


def test_intervals_that_are_read_together_are_wider() -> None:
    """Of 20, each has to miss in one case of 400 only (Bonferroni)."""
    assert (deviations(1), deviations(0)) == (1.96, 1.96)
    wide = float(stats.norm.ppf(1 - 0.05 / 20 / 2))
    assert deviations(20) == pytest.approx(wide)
    values = np.random.default_rng(3).normal(size=600).tolist()
    found = bootstrap(values, family=20)
    assert (found.high - found.low) / (2 * float(stats.sem(values))) == pytest.approx(wide, rel=0.07)


def test_draws_of_clusters_hold_whole_clusters() -> None:
    """Values that are alike within each of a few clusters say no more than the clusters do."""
    of = [5, 5, 5, 9, 9, 2, 2, 2, 2, 2]
    x = np.array([1.0 if c == 5 else 0.0 for c in of])

    def shares(drawn: np.ndarray) -> np.ndarray:
        assert {round(float(m), 6) for m in x[drawn[:50]].mean(axis=1)} <= {
            round(k / 10, 6) for k in (0, 2, 3, 5, 7, 8, 10)
        }, "each place gets what is in one drawn cluster"
        return np.asarray(x[drawn].mean(axis=1))

    assert bootstrap_interval(shares, 10, clusters=of) == (0.0, 1.0)
    values = np.random.default_rng(5).normal(size=400)
    mean = lambda drawn: values[drawn].mean(axis=1)  # noqa: E731
    alone = bootstrap_interval(mean, 400)
    assert bootstrap_interval(mean, 400, clusters=[1] * 400) == alone, "one store says nothing of others"
    low, high = bootstrap_interval(mean, 400, clusters=[i // 10 for i in range(400)])
    assert 0.8 < (high - low) / (alone[1] - alone[0]) < 2


def test_a_draw_without_a_figure_is_left_out() -> None:
    def odd(drawn: np.ndarray) -> np.ndarray:
        return np.where(drawn[:, 0] == 0, np.nan, 5.0)

    assert bootstrap_interval(odd, 2) == (5.0, 5.0)
    assert all(map(math.isnan, bootstrap_interval(lambda drawn: np.full(len(drawn), np.nan), 2)))


def test_means_leave_out_what_is_not_known() -> None:
    rows = np.array([[1.0, 2.0, 4.0, np.nan], [3.0, np.nan, np.nan, np.nan], [np.nan] * 4])
    mean, half = mean_and_half(rows)
    assert mean[:2] == pytest.approx([7 / 3, 3])
    assert half[0] == pytest.approx(1.96 * stats.sem([1, 2, 4]))
    assert np.isnan(half[1:]).all()
    assert np.isnan(mean[2])


def test_counting_needs_neither_torch_nor_scipy() -> None:
    code = (
        "import sys, backend.base.statistics\n"
        "assert not {'torch', 'scipy', 'sklearn'} & set(sys.modules), 'too much'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
