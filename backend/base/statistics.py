"""Shares and means with their 95% intervals: Wilson's, the bootstrap, and the normal one. Free of torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Z95 = 1.96  # standard deviations to either side of the mean
RESAMPLES = 2000  # draws of a bootstrap


def wilson(successes: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """95% confidence interval of a share (Wilson)."""
    if total == 0:
        return (0.0, 1.0)
    p = successes / total
    centre = p + z * z / (2 * total)
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # rounding may leave an end just outside
    return (max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def mean_interval(rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Mean over the last axis, NaN left out, and its 95% interval; NaN where nothing is left."""
    known = (~np.isnan(rows)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(np.isnan(rows), 0, rows).sum(axis=-1) / known
        spread = np.where(np.isnan(rows), 0, (rows - mean[..., None]) ** 2).sum(axis=-1) / (known - 1)
        half = Z95 * np.sqrt(spread / known)
    return mean, mean - half, mean + half


@dataclass(frozen=True)
class Share:
    """A share with its 95% interval; ``of`` problems were counted, and with none the share is NaN."""

    value: float
    low: float
    high: float
    of: int


NOTHING = Share(math.nan, math.nan, math.nan, 0)  # of no problem at all


def share(hits: Sequence[bool | None]) -> Share:
    """Share of true ones among those that are known, with Wilson's interval."""
    known = [bool(h) for h in hits if h is not None]
    if not known:
        return NOTHING
    low, high = wilson(sum(known), len(known))
    return Share(sum(known) / len(known), low, high, len(known))


def bootstrap(values: Sequence[float], weights: Sequence[float] | None = None, seed: int = 0) -> Share:
    """Mean (or sum of values over sum of weights) of problems, with a 95% percentile bootstrap interval."""
    if not values:
        return NOTHING
    x = np.asarray(values, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    if w.sum() == 0:
        return NOTHING
    drawn = np.random.default_rng(seed).integers(0, len(x), (RESAMPLES, len(x)))
    below = w[drawn].sum(axis=1)
    means = x[drawn].sum(axis=1)[below > 0] / below[below > 0]
    low, high = np.percentile(means, [2.5, 97.5])
    return Share(float(x.sum() / w.sum()), float(low), float(high), len(x))


def interval(
    values: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], float], draws: int = 2000
) -> tuple[float, float, float]:
    """A statistic with its 95% bootstrap interval over the first axis (seeded)."""
    rng = np.random.default_rng(0)
    found = [statistic(values[rng.integers(len(values), size=len(values))]) for _ in range(draws)]
    low, high = np.percentile(found, [2.5, 97.5])
    return statistic(values), float(low), float(high)
