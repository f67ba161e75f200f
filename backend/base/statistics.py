"""Shares and means with their 95% intervals. Free of torch and of SciPy, since records and figures import it.

What needs a distribution of SciPy's (Student's t, exact tests) is in the module that uses it. SciPy's own
bootstrap draws other samples from a seed, which would change published figures.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

Z95 = 1.96  # 95% of a normal distribution lie within so many deviations
RESAMPLES = 2000
MOST_TIMES = 10  # at most so many times the resamples for intervals that are read together


@dataclass(frozen=True)
class Share:
    """A share with its 95% interval. ``of``: problems counted; with none the share is NaN."""

    value: float
    low: float
    high: float
    of: int


NOTHING = Share(math.nan, math.nan, math.nan, 0)


def deviations(family: int) -> float:
    """Deviations of a normal distribution's mean for a 95% interval that is one of ``family`` read together
    (Bonferroni): all of them hold their true values with 95%. :data:`Z95` for a family of one."""
    return Z95 if family <= 1 else NormalDist().inv_cdf(1 - 0.025 / family)


def wilson(successes: int, total: int, z: float = Z95) -> tuple[float, float]:
    """95% confidence interval of a share (Wilson)."""
    if total == 0:
        return (0.0, 1.0)
    p = successes / total
    centre = p + z * z / (2 * total)
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    # rounding may leave an end just outside
    return (max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale))


def share_of(good: int, total: int) -> Share:
    """A share with Wilson's interval."""
    return Share(good / total, *wilson(good, total), total) if total else NOTHING


def share(hits: Sequence[bool | None]) -> Share:
    """Share of true values among those that are not None, with Wilson's interval."""
    values = [bool(h) for h in hits if h is not None]
    return share_of(sum(values), len(values))


def bootstrap_interval(
    statistic: Callable[[NDArray[np.int64]], NDArray[np.float64]],
    count: int,
    draws: int = RESAMPLES,
    seed: int = 0,
    family: int = 1,
    clusters: Sequence[int] | None = None,
) -> tuple[float, float]:
    """95% percentile bootstrap interval of a statistic; NaN where no draw has a value.

    Args:
        statistic: of drawn indices, (draws, count) to (draws,); NaN for a draw without a value.
        count: how many observations there are; each draw takes as many, with replacement.
        family: how many intervals are read together (Bonferroni); the tails then need more draws.
        clusters: (count,) cluster of each observation, where those of one cluster are not independent:
            clusters are drawn, then observations within them, as in :func:`clustered`. A single cluster is
            ignored.
    """
    draws *= min(max(1, family), MOST_TIMES)
    rng = np.random.default_rng(seed)
    if clusters is None or len(set(clusters)) < 2:
        places = rng.integers(0, count, (draws, count))
    else:
        _, owners, sizes = np.unique(np.asarray(clusters), return_inverse=True, return_counts=True)
        starts = np.cumsum(sizes) - sizes
        picks = rng.integers(0, len(sizes), (draws, len(sizes)))[:, owners]
        positions = starts[picks] + (rng.random((draws, count)) * sizes[picks]).astype(np.int64)
        places = np.argsort(owners, kind="stable")[positions]
    values = statistic(places)
    values = values[~np.isnan(values)]
    if not len(values):
        return math.nan, math.nan
    low, high = np.percentile(values, [2.5 / max(1, family), 100 - 2.5 / max(1, family)])
    return float(low), float(high)


def bootstrap(
    values: Sequence[float], weights: Sequence[float] | None = None, seed: int = 0, family: int = 1
) -> Share:
    """Mean (or sum of values over sum of weights), with a 95% percentile bootstrap interval, one of
    ``family`` that are read together."""
    if not values:
        return NOTHING
    x = np.asarray(values, dtype=float)
    w = np.ones_like(x) if weights is None else np.asarray(weights, dtype=float)
    if w.sum() == 0:
        return NOTHING

    def ratio(places: NDArray[np.int64]) -> NDArray[np.float64]:
        divisors = w[places].sum(axis=1)
        return np.asarray(x[places].sum(axis=1)[divisors > 0] / divisors[divisors > 0])

    return Share(
        float(x.sum() / w.sum()), *bootstrap_interval(ratio, len(x), seed=seed, family=family), len(x)
    )


def clustered(
    values: Sequence[float | None],
    clusters: Sequence[int],
    weights: Sequence[float] | None = None,
    draws: int = RESAMPLES,
    seed: int = 0,
) -> Share:
    """Mean (or sum of values over sum of weights), with a 95% interval for values that come in clusters.

    Requests after one warm-up share its pool, so they are not independent. Each draw of the bootstrap takes
    clusters, then values within each of them, both with replacement (Davison and Hinkley 1997, section 3.8).
    A single cluster has no interval.

    Args:
        values: those that are None are left out.
        clusters: the cluster of each value.
    """
    entries = [
        (c, v, w)
        for c, v, w in zip(clusters, values, weights or [1.0] * len(values), strict=True)
        if v is not None
    ]
    if not entries or not sum(w for _, _, w in entries):
        return NOTHING
    groups: dict[int, list[tuple[float, float]]] = {}
    for cluster, value, weight in entries:
        groups.setdefault(cluster, []).append((float(value), float(weight)))
    sizes = np.asarray([len(rows) for rows in groups.values()])
    table = np.zeros((len(groups), int(sizes.max()), 2))
    for row, group in zip(table, groups.values(), strict=True):
        row[: len(group)] = group
    middle = float(table[..., 0].sum() / table[..., 1].sum())
    if len(groups) == 1:
        return Share(middle, -math.inf, math.inf, len(entries))
    rng = np.random.default_rng(seed)
    means: list[float] = []
    for _ in range(draws):
        picks = rng.integers(0, len(sizes), len(sizes))
        places = (rng.random((len(picks), table.shape[1])) * sizes[picks][:, None]).astype(int)
        mask = np.arange(table.shape[1]) < sizes[picks][:, None]
        sums = (table[picks[:, None], places] * mask[..., None]).sum((0, 1))
        if sums[1]:
            means.append(float(sums[0] / sums[1]))
    low, high = np.percentile(means, [2.5, 97.5])
    return Share(middle, float(low), float(high), len(entries))


def mean_and_half(values: ArrayLike, z: float = Z95) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over the last axis without NaN, and half its 95% interval; NaN where too few values remain.

    Args:
        z: deviations within which 95% lie; a normal distribution's by default.
    """
    rows = np.asarray(values, dtype=np.float64)
    counts = (~np.isnan(rows)).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(np.isnan(rows), 0, rows).sum(axis=-1) / counts
        spread = np.where(np.isnan(rows), 0, (rows - mean[..., None]) ** 2).sum(axis=-1) / (counts - 1)
        return mean, z * np.sqrt(spread / counts)


def mean_interval(values: ArrayLike) -> tuple[NDArray[np.float64], ...]:
    """Mean over the last axis, and the ends of its 95% interval (:func:`mean_and_half`)."""
    mean, half = mean_and_half(values)
    return mean, mean - half, mean + half


def logistic(
    values: Mapping[str, float],
    features: Sequence[str],
    mean: Sequence[float],
    scale: Sequence[float],
    weight: Sequence[float],
    bias: float,
) -> float:
    """A logistic regression's probability: each named value enters as (value - mean) / scale, or as 0 if it
    is missing."""
    total = bias
    for name, middle, size, factor in zip(features, mean, scale, weight, strict=True):
        value = values.get(name, math.nan)
        total += factor * (value - middle) / size if math.isfinite(value) else 0.0
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, total))))


# -- a share's limits, exact ---------------------------------------------------------------------------------


def upper_limit(hits: int, total: int, level: float = 0.95) -> float:
    """The largest share under which as few as ``hits`` of ``total`` still happen with 1 - ``level``: the
    one-sided exact limit (Clopper and Pearson 1934, "The use of confidence or fiducial limits", Biometrika
    26). The true share is at most this with a probability of at least ``level``. 1 where ``total`` is 0."""
    if hits >= total:
        return 1.0
    return _crossing(lambda share: _at_most(hits, total, share) - (1 - level), hits / total, 1.0)


def lower_limit(hits: int, total: int, level: float = 0.95) -> float:
    """The one-sided exact lower limit; see :func:`upper_limit`."""
    return 1 - upper_limit(total - hits, total, level)


def exact_share(hits: int, total: int) -> Share:
    """A share with its exact 95% interval: one-sided limits of 97.5% each. NaN and 0 to 1 of nothing."""
    value = hits / total if total else math.nan
    return Share(value, lower_limit(hits, total, 0.975), upper_limit(hits, total, 0.975), total)


def confidence_sequence(
    hits: int, total: int, level: float = 0.95, around: float = 0.5
) -> tuple[float, float]:
    """An interval that is valid after every observation at once, so one may look after each and stop at any
    time: with probability ``level``, no interval of the sequence misses the true share.

    The evidence against a share p is the likelihood ratio of the observations, averaged over a Beta prior of
    the share, to p. Under the true share it is a martingale from 1, which reaches 1 / (1 - level) with a
    probability of at most 1 - level (Ville's inequality); shares with that much evidence are excluded.
    The beta-binomial mixture of Robbins (1970, "Statistical methods related to the law of the iterated
    logarithm", Ann. Math. Stat. 41), as in Howard, Ramdas, McAuliffe and Sekhon (2021,
    "Time-uniform, nonparametric, nonasymptotic confidence sequences", Ann. Stat. 49). Observations have to
    be independent.

    Args:
        hits: so far, of ``total``.
        around: the share near which the interval is narrow; choose it before observing.
    """
    if not total:
        return 0.0, 1.0
    threshold = -math.log(1 - level)
    middle = hits / total

    def margin(share: float) -> float:  # positive where the share is not excluded
        return threshold - log_evidence(hits, total, share, around)

    low = _crossing(lambda share: -margin(share), 0.0, middle) if hits else 0.0
    high = _crossing(margin, middle, 1.0) if hits < total else 1.0
    return low, high


def log_evidence(hits: int, total: int, share: float, around: float = 0.5) -> float:
    """Logarithm of the evidence against a share; see :func:`confidence_sequence`. The prior is Beta(1/2, b)
    with its mean at ``around``, and Jeffreys' at 1/2."""
    if (share <= 0 and hits) or (share >= 1 and hits < total):
        return math.inf
    a, b = 0.5, 0.5 * (1 - around) / around
    gain = _log_beta(a + hits, b + total - hits) - _log_beta(a, b)
    cost = (hits * math.log(share) if hits else 0.0) + (
        (total - hits) * math.log1p(-share) if hits < total else 0.0
    )
    return gain - cost


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _at_most(hits: int, total: int, share: float) -> float:
    """Probability of at most ``hits`` of ``total`` under a share between 0 and 1."""
    if share <= 0 or share >= 1:
        return float(share <= 0 or hits >= total)
    constant = math.lgamma(total + 1)
    return sum(
        math.exp(
            constant - math.lgamma(k + 1) - math.lgamma(total - k + 1)
            + k * math.log(share) + (total - k) * math.log1p(-share)
        )
        for k in range(hits + 1)
    )  # fmt: skip


def _crossing(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a decreasing function crosses 0, by bisection to a relative 1e-12."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return high
