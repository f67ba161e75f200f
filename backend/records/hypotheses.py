"""The four hypotheses of the segment-reuse plan: what is measured, and what the numbers decide. Free of
torch.

H1: at least 20% less wall-clock time than no reuse, at a cost of at most 2 points of task success. H2: with
a halo of at most 8 tokens the KL at the ends of grafts stays below 0.1 nats. H3: of the segments that
MinHash and context find at tau 0.8, more than 70% are reusable. H4: moving keys is numerically stable, and
the probe's fallbacks cap the worst. *Reusable*, which the plan leaves open: grafting it alone moves the
next-token distribution at the prompt's end by less than 0.1 nats. Segments behind a beginning that is the
same, for which reuse is exact, decide neither H2 nor H3; an exact prefix cache has them too.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import OptionError
from backend.base.ranges import check_ranges
from backend.base.serialization import Saved, decode
from backend.base.statistics import bootstrap_interval, wilson
from backend.records.run import MethodChoice, ModelInfo

HYPOTHESES_FORMAT = 1
NEAR = 0.1  # nats (H2, H3)
LESS = 0.2  # of the wall-clock time (H1)
LOSS = 0.02  # of task success (H1)
PRECISION = 0.7  # H3
AT_TAU = 0.8  # H3
HALO = 8  # H2: up to here
FEWEST = 30  # observations, below which nothing is decided
SMALLEST_TAU = 0.5  # from here on candidates are measured (H3)
RERUNS = 5
GUARDED, UNGUARDED = "segments", "segments, no probe"
LIMITS: dict[str, tuple[int, int]] = {
    "episodes": (1, 500), "turns": (2, 16), "memory": (1, 500), "seed": (0, 2**31 - 1),
    "max_new_tokens": (1, 512), "reruns": (0, 500), "candidates": (0, 200),
}  # fmt: skip

Grid = Literal["none", "one at a time", "full"]
Word = Literal["supported", "refuted", "undecided"]


@dataclass(frozen=True)
class Setting:
    """A point of the grid: the options of :mod:`backend.methods.segments.method` that vary."""

    form: str = "all layers"
    layer_share: float = 1.0
    halo: int = 8
    tau: float = 0.8
    context_tokens: int = 64
    int8: bool = False

    @property
    def name(self) -> str:
        layers = self.form if self.layer_share == 1 else f"{self.form} ({self.layer_share:.0%})"
        eight = ", int8" if self.int8 else ""
        return f"{layers}, h {self.halo}, tau {self.tau:g}, W {self.context_tokens}{eight}"


BASE = Setting()
KEPT, SKIPPED = "lower layers, states kept", "lower layers, states skipped"
LAYERS = (("all layers", 1.0), *((form, x) for form in (KEPT, SKIPPED) for x in (0.25, 0.375, 0.5, 0.75)))
HALOS, TAUS, CONTEXTS = (0, 4, 8, 16), (0.6, 0.7, 0.8, 0.9), (32, 64, 128)


def settings_of(grid: Grid) -> tuple[Setting, ...]:
    """The grid's points, the base first: the plan's ablations one at a time, or all their combinations in the
    consistent forms."""
    if grid == "none":
        return (BASE,)
    found = [BASE]
    if grid == "one at a time":
        found += [Setting(form, share) for form, share in LAYERS]
        found += [Setting(halo=h) for h in HALOS] + [Setting(tau=t) for t in TAUS]
        found += [Setting(context_tokens=w) for w in CONTEXTS] + [Setting(int8=True)]
    else:
        found += [
            Setting(form, share, h, t, w)
            for form, share in LAYERS
            if form != SKIPPED
            for h in HALOS
            for t in TAUS
            for w in CONTEXTS
        ]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class HypothesesRequest:
    """Episodes of the agent loop.

    ``methods`` run free, each with its own turns; ``memory``: episodes that one store lives for. ``grid``:
    the settings measured on dense's turns. ``reruns``: first episodes that are run five times with sampling.
    ``candidates``: most matches of a prompt that are grafted one by one (H3). ``common``: options of segment
    reuse under every method and setting, which do not vary; the plan's lengths suit longer prompts than the
    embedded model's.

    Raises:
        OptionError: a number is out of its range.
    """

    methods: tuple[MethodChoice, ...] = (
        MethodChoice("dense"),
        MethodChoice("prefix"),
        MethodChoice("segments", {}, GUARDED),
        MethodChoice("segments", {"probe": "off"}, UNGUARDED),
        MethodChoice("segments", {"probe": "off", "int8": True}, "segments, int8"),
    )
    episodes: int = 100
    turns: int = 8
    memory: int = 25
    seed: int = 0
    max_new_tokens: int = 48
    grid: Grid = "one at a time"
    reruns: int = 5
    candidates: int = 4
    common: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_ranges(self, LIMITS, "hypotheses")
        if self.grid not in typing.get_args(Grid):
            allowed = ", ".join(typing.get_args(Grid))
            raise OptionError(
                f"The grid is {self.grid!r}; allowed: {allowed}. Choose one of them.", field="hypotheses.grid"
            )


@dataclass(frozen=True)
class LiveStep:
    """One turn of one method, free-running.

    Attributes:
        exact_tokens, grafted_tokens: copied behind the same beginning, and otherwise.
        repeated_tokens: that stand in a run which some earlier prompt had too, of the shortest segment's
            length: what a cache of texts would find (naive prompt cache), without saving anything.
        skipped: the plan's FLOP proxy, attention matmuls left out: tokens x layers x heads x head_dim, as a
            share.
        match_ms: part of ``ttft_ms``. ``correct``: None before the episode's last turn.
    """

    episode: int
    method: str
    turn: int
    prompt_tokens: int
    exact_tokens: int
    grafted_tokens: int
    repeated_tokens: int
    skipped: float
    state: str
    match_ms: float
    ttft_ms: float
    decode_ms: float
    correct: bool | None


@dataclass(frozen=True)
class PinnedStep:
    """One of dense's turns read under a setting, without a probe: ``boundary`` KL(dense || grafted) in nats
    at the last token of each graft that is not exact, ``last`` at the prompt's end."""

    episode: int
    turn: int
    setting: Setting
    prompt_tokens: int
    exact_tokens: int
    grafted_tokens: int
    boundary: tuple[float, ...]
    last: float
    skipped: float


@dataclass(frozen=True)
class Candidate:
    """A stored segment that is alike, but not all behind the same beginning, grafted alone with the base's
    halo: ``end`` (the last of its grafts) and ``last`` as in :class:`PinnedStep`."""

    episode: int
    turn: int
    similarity: float
    context: float
    tokens: int
    end: float
    last: float

    @property
    def reusable(self) -> bool:
        return self.last < NEAR


@dataclass(frozen=True)
class Rerun:
    """An episode run five times: mean Levenshtein ``distance`` of its tokens between two runs, over the
    longer one's length, and mean ``entropy`` over places, in nats, of the five runs' tokens there."""

    episode: int
    method: str
    tokens: float
    distance: float
    entropy: float


@dataclass(frozen=True)
class Moved:
    """Keys computed at one place and moved by ``shift`` against keys computed there: relative error."""

    shift: int
    error: float


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


@dataclass(frozen=True)
class HypothesesRecord(Saved):
    """All rows of an experiment; :func:`verdicts` follow from them."""

    request: HypothesesRequest
    model: ModelInfo
    tolerance: float  # relative, below which a moved key counts as the same (as in the certificate)
    live: tuple[LiveStep, ...]
    pinned: tuple[PinnedStep, ...]
    candidates: tuple[Candidate, ...]
    reruns: tuple[Rerun, ...]
    moved: tuple[Moved, ...]
    format: int = HYPOTHESES_FORMAT


def gathered(
    request: HypothesesRequest,
    model: ModelInfo,
    tolerance: float,
    moved: Sequence[Moved],
    rows: Iterable[Mapping[str, Any]],
) -> HypothesesRecord:
    """The record of finished episodes; each row holds lists ``live``, ``pinned``, ``candidates``,
    ``reruns``."""
    every = list(rows)

    def all_of(name: str, kind: type) -> tuple[Any, ...]:
        return tuple(decode(kind, item, {}) for row in every for item in row[name])

    return HypothesesRecord(
        request, model, tolerance, all_of("live", LiveStep), all_of("pinned", PinnedStep),
        all_of("candidates", Candidate), all_of("reruns", Rerun), tuple(moved),
    )  # fmt: skip


# -- verdicts


def verdicts(record: HypothesesRecord) -> tuple[Verdict, ...]:
    """H1 to H4, each decided by its numbers, or left undecided where they do not suffice."""
    return (_h1(record), _h2(record), _h3(record), _h4(record))


def _h1(record: HypothesesRecord) -> Verdict:
    claim = "Segment reuse takes at least 20% less time than no reuse and costs at most 2 points of success."
    dense, ours = (_episodes(record, label) for label in (record.request.methods[0].label, GUARDED))
    both = sorted(dense.keys() & ours.keys())
    columns = ("less time", "from", "to", "success lost", "from", "to", "episodes")
    if len(both) < FEWEST:
        return _undecided(
            "H1", claim, columns, len(both), "episodes under both dense and guarded segment reuse"
        )
    times = np.array([(dense[e][0], ours[e][0]) for e in both])
    # per turn, as a method's own turns may be more or fewer
    less, low, high = _interval(
        times, lambda pairs: 1 - pairs[..., 1].sum(axis=-1) / pairs[..., 0].sum(axis=-1)
    )
    lost = np.array([float(dense[e][1]) - float(ours[e][1]) for e in both])
    loss, loss_low, loss_high = _interval(lost, lambda x: x.mean(axis=-1))
    numbers = (less, low, high, loss, loss_low, loss_high, float(len(both)))
    said = (
        f"{less:.1%} less time a turn (95%: {low:.1%} to {high:.1%}), {loss:+.1%} success lost "
        f"({loss_low:+.1%} to {loss_high:+.1%})"
    )
    if high < LESS or loss_low > LOSS:
        failed = "the time saved is below 20%" if high < LESS else "success falls by more than 2 points"
        return Verdict("H1", claim, "refuted", f"{said}: {failed}.", columns, numbers)
    if low >= LESS and loss_high <= LOSS:
        return Verdict("H1", claim, "supported", f"{said}.", columns, numbers)
    return Verdict("H1", claim, "undecided", f"{said}: the interval holds the limit.", columns, numbers)


def _episodes(record: HypothesesRecord, label: str) -> dict[int, tuple[float, bool]]:
    """Mean time of a turn (to first token and decoding) and success, by episode."""
    found: dict[int, list[LiveStep]] = {}
    for step in record.live:
        if step.method == label:
            found.setdefault(step.episode, []).append(step)
    return {
        episode: (sum(s.ttft_ms + s.decode_ms for s in steps) / len(steps), bool(steps[-1].correct))
        for episode, steps in found.items()
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
    prompts = [np.array(found) for found in ends.values() if found]
    columns = ("mean KL", "from", "to", "share of grafts under 0.1", "prompts")
    if len(prompts) < FEWEST:
        return _undecided("H2", claim, columns, len(prompts), "prompts with a graft that is not exact")
    means = np.array([x.mean() for x in prompts])
    mean, low, high = _interval(means, lambda x: x.mean(axis=-1))
    under = float((np.concatenate(prompts) < NEAR).mean())
    numbers = (mean, low, high, under, float(len(prompts)))
    said = f"Mean KL {mean:.3g} nats (95%: {low:.3g} to {high:.3g}); {under:.0%} of the grafts are below 0.1"
    word: Word = "supported" if high < NEAR else "refuted" if low > NEAR else "undecided"
    return Verdict("H2", claim, word, f"{said}.", columns, numbers)


def _h3(record: HypothesesRecord) -> Verdict:
    claim = "Of the segments that MinHash and context find at tau 0.8, more than 70% are reusable."
    found = [c for c in record.candidates if c.similarity >= AT_TAU and c.context >= context_tau(record)]
    columns = ("precision", "from", "to", "segments")
    if len(found) < FEWEST:
        return _undecided("H3", claim, columns, len(found), "alike segments behind another beginning")
    good = sum(c.reusable for c in found)
    low, high = wilson(good, len(found))
    numbers = (good / len(found), low, high, float(len(found)))
    said = f"{good} of {len(found)} are reusable, {numbers[0]:.0%} (95%: {low:.0%} to {high:.0%})"
    word: Word = "supported" if low > PRECISION else "refuted" if high < PRECISION else "undecided"
    return Verdict("H3", claim, word, f"{said}.", columns, numbers)


def _h4(record: HypothesesRecord) -> Verdict:
    claim = "Moving keys is numerically stable, and the probe's fallbacks cap the worst."
    steps = [s for s in record.pinned if s.setting.form != SKIPPED and s.boundary]
    columns = ("worst key error", "tolerance", "worst KL, no probe", "worst KL, probe", "prompts")
    prompts = len({(s.episode, s.turn) for s in steps})
    if prompts < FEWEST or not record.moved:
        return _undecided("H4", claim, columns, prompts, "prompts with a graft that is not exact")
    error = max(m.error for m in record.moved)
    free = max(s.last for s in steps)
    # what a probe of every prompt at 0.1 nats would have let through
    kept = [s.last for s in steps if float(np.mean(s.boundary)) <= NEAR]
    capped = max(kept, default=0.0)
    numbers = (error, record.tolerance, free, capped, float(prompts))
    said = (
        f"Moved keys err by at most {error:.1g} (tolerated: {record.tolerance:.1g}); the worst next-token KL "
        f"is {free:.3g} nats without and {capped:.3g} with the probe, which lets {len(kept)} of {len(steps)} "
        f"readings of {prompts} prompts pass"
    )
    good = error <= record.tolerance and math.isfinite(capped) and capped <= NEAR
    why = "" if good else ": a prompt that the probe lets pass is still worse than 0.1 nats"
    if error > record.tolerance:
        why = ": moved keys are not the same keys"
    return Verdict("H4", claim, "supported" if good else "refuted", f"{said}{why}.", columns, numbers)


def _undecided(name: str, claim: str, columns: tuple[str, ...], count: int, what: str) -> Verdict:
    reason = f"There are {count} {what}; at least {FEWEST} are needed."
    return Verdict(
        name, claim, "undecided", reason, columns, (math.nan,) * (len(columns) - 1) + (float(count),)
    )


def _interval(
    values: NDArray[np.float64], statistic: Callable[[NDArray[np.float64]], Any]
) -> tuple[float, float, float]:
    """A statistic with its 95% bootstrap interval.

    Args:
        statistic: of (..., values) or, of pairs, (..., values, 2), along the values.
    """
    return float(statistic(values)), *bootstrap_interval(lambda drawn: statistic(values[drawn]), len(values))


def context_tau(record: HypothesesRecord) -> float:
    """How alike the tokens before a segment had to be."""
    return float(record.request.common.get("context_tau", 0.5))


def precision_recall(record: HypothesesRecord) -> tuple[tuple[float, float, float, int], ...]:
    """(tau, precision, recall, found) over thresholds from 0.5 on; recall among what is alike from 0.5 on,
    behind another beginning. Precision is NaN where nothing is found."""
    every = [c for c in record.candidates if c.context >= context_tau(record)]
    reusable = sum(c.reusable for c in every)
    out = []
    for tau in np.round(np.arange(SMALLEST_TAU, 1.001, 0.05), 2).tolist():
        found = [c for c in every if c.similarity >= tau]
        good = sum(c.reusable for c in found)
        out.append(
            (
                tau,
                good / len(found) if found else math.nan,
                good / reusable if reusable else math.nan,
                len(found),
            )
        )
    return tuple(out)
