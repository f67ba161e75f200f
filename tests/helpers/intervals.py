"""Intervals by SciPy, to compare the lab's own with."""

from __future__ import annotations

from scipy import stats


def scipy_wilson(good: int, seen: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a share (Wilson)."""
    found = stats.binomtest(good, seen).proportion_ci(confidence_level=level, method="wilson")
    return float(found.low), float(found.high)
