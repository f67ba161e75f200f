"""What the numbers of a :class:`backend.records.hypotheses.HypothesesRecord` decide about H1 to H4."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.statistics import bootstrap_interval, wilson
from backend.records.hypotheses import (
    GUARDED,
    KEPT,
    NEAR,
    SKIPPED,
    SMALLEST_TAU,
    HypothesesRecord,
    LiveStep,
    Word,
)

LESS = 0.2  # of the wall-clock time (H1)
LOSS = 0.02  # of task success (H1)
PRECISION = 0.7  # H3
AT_TAU = 0.8  # H3
TELLING = 1e-4  # nats; where no graft changes more, the measure cannot separate segments (H3)
HALO = 8  # H2: up to here
FEWEST = 30  # observations, below which nothing is decided


@dataclass(frozen=True)
class Verdict:
    """What the numbers decide: ``claim`` in words, the ``word``, and why. ``columns`` and ``values`` are the
    numbers that it rests on."""

    name: str
    claim: str
    word: Word
    reason: str
    columns: tuple[str, ...]
    values: tuple[float, ...]


def verdicts(record: HypothesesRecord) -> tuple[Verdict, ...]:
    """H1 to H4, each decided by its numbers, or left undecided where they do not suffice."""
    return (_h1(record), _h2(record), _h3(record), _h4(record))


def _h1(record: HypothesesRecord) -> Verdict:
    claim = "Segment reuse takes at least 20% less time than no reuse and costs at most 2 points of success."
    dense, reuse = (_episodes(record, label) for label in (record.request.methods[0].label, GUARDED))
    episodes = sorted(dense.keys() & reuse.keys())
    columns = ("less time", "from", "to", "success lost", "from", "to", "episodes")
    if len(episodes) < FEWEST:
        return _undecided(
            "H1", claim, columns, len(episodes), "episodes under both dense and guarded segment reuse"
        )
    times = np.array([(dense[e][0], reuse[e][0]) for e in episodes])
    # per turn, as a method's own turns may be more or fewer
    stores = _stores(record, episodes)
    less, low, high = _interval(
        times, lambda pairs: 1 - pairs[..., 1].sum(axis=-1) / pairs[..., 0].sum(axis=-1), stores
    )
    losses = np.array([float(dense[e][1]) - float(reuse[e][1]) for e in episodes])
    loss, loss_low, loss_high = _interval(losses, lambda x: x.mean(axis=-1), stores)
    numbers = (less, low, high, loss, loss_low, loss_high, float(len(episodes)))
    text = (
        f"{less:.1%} less time a turn (95%: {low:.1%} to {high:.1%}), {loss:+.1%} success lost "
        f"({loss_low:+.1%} to {loss_high:+.1%})"
    )
    if high < LESS or loss_low > LOSS:
        failure = "the time saved is below 20%" if high < LESS else "success falls by more than 2 points"
        return Verdict("H1", claim, "refuted", f"{text}: {failure}.", columns, numbers)
    if low >= LESS and loss_high <= LOSS:
        return Verdict("H1", claim, "supported", f"{text}.", columns, numbers)
    return Verdict("H1", claim, "undecided", f"{text}: the interval holds the limit.", columns, numbers)


def _episodes(record: HypothesesRecord, label: str) -> dict[int, tuple[float, bool]]:
    """Mean time of a turn (to first token and decoding) and success, by episode."""
    episodes: dict[int, list[LiveStep]] = {}
    for step in record.live:
        if step.method == label:
            episodes.setdefault(step.episode, []).append(step)
    return {
        episode: (sum(s.ttft_ms + s.decode_ms for s in steps) / len(steps), bool(steps[-1].correct))
        for episode, steps in episodes.items()
    }


def _h2(record: HypothesesRecord) -> Verdict:
    claim = (
        "With partial layers and a halo of at most 8 tokens, KL at the ends of grafts stays below 0.1 nats."
    )
    steps = [s for s in record.pinned if 0 < s.setting.halo <= HALO and s.setting.form == KEPT]
    steps = steps or [s for s in record.pinned if 0 < s.setting.halo <= HALO and s.setting.form != SKIPPED]
    ends: dict[tuple[int, int], list[float]] = {}
    for step in steps:  # settings that read one prompt are no independent observations
        ends.setdefault((step.episode, step.turn), []).extend(step.boundary)
    ends = {place: kls for place, kls in ends.items() if kls}
    prompts = [np.array(kls) for kls in ends.values()]
    columns = ("mean KL", "from", "to", "share of grafts under 0.1", "prompts")
    if len(prompts) < FEWEST:
        return _undecided("H2", claim, columns, len(prompts), "prompts with a graft that is not exact")
    means = np.array([x.mean() for x in prompts])
    stores = _stores(record, [episode for episode, _ in ends])
    mean, low, high = _interval(means, lambda x: x.mean(axis=-1), stores)
    under = float((np.concatenate(prompts) < NEAR).mean())
    numbers = (mean, low, high, under, float(len(prompts)))
    text = f"Mean KL {mean:.3g} nats (95%: {low:.3g} to {high:.3g}); {under:.0%} of the grafts are below 0.1"
    word: Word = "supported" if high < NEAR else "refuted" if low > NEAR else "undecided"
    return Verdict("H2", claim, word, f"{text}.", columns, numbers)


def _h3(record: HypothesesRecord) -> Verdict:
    claim = "Of the segments that MinHash and context find at tau 0.8, more than 70% are reusable."
    candidates = [c for c in record.candidates if c.similarity >= AT_TAU and c.context >= context_tau(record)]
    columns = ("precision", "from", "to", "segments")
    if len(candidates) < FEWEST:
        return _undecided("H3", claim, columns, len(candidates), "alike segments behind another beginning")
    if max(c.moved for c in record.candidates) < TELLING:
        reason = (
            f"No segment moves the turn by {TELLING:g} nats or more, alike or not: this KL tells nothing "
            "apart here."
        )
        return Verdict("H3", claim, "undecided", reason, columns, (math.nan,) * 3 + (float(len(candidates)),))
    good = sum(c.reusable for c in candidates)
    low, high = wilson(good, len(candidates))
    hits = np.array([float(c.reusable) for c in candidates])
    stores = _stores(record, [c.episode for c in candidates])
    _, low_of_stores, high_of_stores = _interval(hits, lambda x: x.mean(axis=-1), stores)
    low, high = min(low, low_of_stores), max(high, high_of_stores)
    numbers = (good / len(candidates), low, high, float(len(candidates)))
    text = f"{good} of {len(candidates)} are reusable, {numbers[0]:.0%} (95%: {low:.0%} to {high:.0%})"
    word: Word = "supported" if low > PRECISION else "refuted" if high < PRECISION else "undecided"
    return Verdict("H3", claim, word, f"{text}.", columns, numbers)


def _h4(record: HypothesesRecord) -> Verdict:
    claim = "Moving keys is numerically stable, and the probe's fallbacks cap the worst."
    steps = [s for s in record.pinned if s.setting.form != SKIPPED and s.boundary]
    columns = ("worst key error", "tolerance", "worst KL, no probe", "worst KL, probe", "prompts")
    prompts = len({(s.episode, s.turn) for s in steps})
    if prompts < FEWEST or not record.moved:
        return _undecided("H4", claim, columns, prompts, "prompts with a graft that is not exact")
    error = max(m.error for m in record.moved)
    moved = [s.last if s.along is None else s.along for s in steps]
    free = max(moved)
    # what a probe of every prompt at 0.1 nats would have let through
    passes = [kl for kl, s in zip(moved, steps, strict=True) if float(np.mean(s.boundary)) <= NEAR]
    capped = max(passes, default=0.0)
    numbers = (error, record.tolerance, free, capped, float(prompts))
    text = (
        f"Moved keys err by at most {error:.1g} (tolerated: {record.tolerance:.1g}); the worst turn's KL "
        f"is {free:.3g} nats without and {capped:.3g} with the probe, which lets {len(passes)} of "
        f"{len(steps)} readings of {prompts} prompts pass"
    )
    good = error <= record.tolerance and math.isfinite(capped) and capped <= NEAR
    if good and free <= NEAR:
        reason = f"{text}: nothing is worse than {NEAR:g} nats without the probe, so it had nothing to cap."
        return Verdict("H4", claim, "undecided", reason, columns, numbers)
    failure = "" if good else ": a prompt that the probe lets pass is still worse than 0.1 nats"
    if error > record.tolerance:
        failure = ": moved keys are not the same keys"
    return Verdict("H4", claim, "supported" if good else "refuted", f"{text}{failure}.", columns, numbers)


def _undecided(name: str, claim: str, columns: tuple[str, ...], count: int, what: str) -> Verdict:
    reason = f"There are {count} {what}; at least {FEWEST} are needed."
    return Verdict(
        name, claim, "undecided", reason, columns, (math.nan,) * (len(columns) - 1) + (float(count),)
    )


def _stores(record: HypothesesRecord, episodes: Sequence[int]) -> list[int]:
    """The store of each episode; episodes of one store are not independent."""
    return [episode // record.request.memory for episode in episodes]


def _interval(
    values: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], Any], stores: Sequence[int]
) -> tuple[float, float, float]:
    """A statistic with its 95% bootstrap interval, over stores, then over the values of each.

    Args:
        statistic: of (..., values) or, of pairs, (..., values, 2), along the values.
    """
    interval = bootstrap_interval(lambda sample: statistic(values[sample]), len(values), clusters=stores)
    return float(statistic(values)), *interval


def context_tau(record: HypothesesRecord) -> float:
    """Least similarity of the tokens before a segment."""
    return float(record.request.common.get("context_tau", 0.5))


def precision_recall(record: HypothesesRecord) -> tuple[tuple[float, float, float, int], ...]:
    """(tau, precision, recall, found) over thresholds from 0.5 on; recall among what is alike from 0.5 on,
    behind another beginning. Precision is NaN where nothing is found."""
    candidates = [c for c in record.candidates if c.context >= context_tau(record)]
    reusable = sum(c.reusable for c in candidates)
    out = []
    for tau in np.round(np.arange(SMALLEST_TAU, 1.001, 0.05), 2).tolist():
        matches = [c for c in candidates if c.similarity >= tau]
        good = sum(c.reusable for c in matches)
        precision = good / len(matches) if matches else math.nan
        out.append((tau, precision, good / reusable if reusable else math.nan, len(matches)))
    return tuple(out)
