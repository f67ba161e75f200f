"""Intervals by SciPy, to compare the lab's own with."""

from __future__ import annotations

from scipy import stats


def scipy_wilson(good: int, seen: int) -> tuple[float, float]:
    """95% interval of a share (Wilson)."""
    found = stats.binomtest(good, seen).proportion_ci(method="wilson")
    return float(found.low), float(found.high)
