"""The four hypotheses of the segment-reuse plan: what is measured, and what the numbers decide. Free of
torch.

H1: at least 20% less wall-clock time than no reuse, at a cost of at most 2 points of task success. H2: with
a halo of at most 8 tokens the KL at the ends of grafts stays below 0.1 nats. H3: of the segments that
MinHash and context find at tau 0.8, more than 70% are reusable. H4: moving keys is numerically stable, and
the probe's fallbacks cap the worst. *Reusable*, which the plan leaves open: grafting it alone moves the
next-token distribution at the prompt's end by less than 0.1 nats. Segments behind a beginning that is the
same, for which reuse is exact, decide neither H2 nor H3; an exact prefix cache has them too.
"""

import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backend.base.ranges import SEEDS, check_choice, check_ranges
from backend.base.serialization import from_json
from backend.base.text import sum_taxes
from backend.records.model_info import ModelInfo
from backend.records.prompt import Taxed
from backend.records.request import MethodChoice

HYPOTHESES_FORMAT = 1
NEAR = 0.1  # nats (H2, H3)
SMALLEST_TAU = 0.5  # from here on candidates are measured (H3)
RERUNS = 5
GUARDED, UNGUARDED = "segments", "segments, no probe"
LIMITS: dict[str, tuple[int, int]] = {
    "episodes": (1, 500), "turns": (2, 16), "memory": (1, 500), "seed": SEEDS,
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
        suffix = ", int8" if self.int8 else ""
        return f"{layers}, h {self.halo}, tau {self.tau:g}, W {self.context_tokens}{suffix}"


BASE = Setting()
KEPT, SKIPPED = "lower layers, states kept", "lower layers, states skipped"
LAYERS = (("all layers", 1.0), *((form, x) for form in (KEPT, SKIPPED) for x in (0.25, 0.375, 0.5, 0.75)))
HALOS, TAUS, CONTEXTS = (0, 4, 8, 16), (0.6, 0.7, 0.8, 0.9), (32, 64, 128)


def settings_of(grid: Grid) -> tuple[Setting, ...]:
    """The grid's points, the base first: the plan's ablations one at a time, or all their combinations in the
    consistent forms."""
    if grid == "none":
        return (BASE,)
    settings = [BASE]
    if grid == "one at a time":
        settings += [Setting(form, share) for form, share in LAYERS]
        settings += [Setting(halo=h) for h in HALOS] + [Setting(tau=t) for t in TAUS]
        settings += [Setting(context_tokens=w) for w in CONTEXTS] + [Setting(int8=True)]
    else:
        settings += [
            Setting(form, share, h, t, w)
            for form, share in LAYERS
            if form != SKIPPED
            for h in HALOS
            for t in TAUS
            for w in CONTEXTS
        ]
    return tuple(dict.fromkeys(settings))


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

    @property
    def stores(self) -> int:
        """How many stores the episodes see, one after the other."""
        return -(-self.episodes // self.memory)

    def __post_init__(self) -> None:
        check_ranges(self, LIMITS, "hypotheses")
        check_choice(self.grid, typing.get_args(Grid), "hypotheses.grid", "The grid")


@dataclass(frozen=True)
class LiveStep:
    """One turn of one method, free-running.

    Attributes:
        exact_tokens, grafted_tokens: copied behind the same beginning, and otherwise.
        skipped: the plan's FLOP proxy, attention matmuls left out: tokens x layers x heads x head_dim, as a
            share.
        match_ms: part of ``ttft_ms``. ``correct``: None before the episode's last turn.
    """

    gone = ("repeated_tokens",)
    episode: int
    method: str
    turn: int
    prompt_tokens: int
    exact_tokens: int
    grafted_tokens: int
    skipped: float
    state: str
    match_ms: float
    ttft_ms: float
    decode_ms: float
    correct: bool | None


@dataclass(frozen=True)
class PinnedStep:
    """One of dense's turns read under a setting, without a probe.

    Attributes:
        boundary: KL(dense || grafted) in nats at the last token of each graft that is not exact.
        last: the same at the prompt's end, where the turn's first word may be fixed by the format.
        along: its mean along dense's turn; None in rows of earlier versions.
    """

    episode: int
    turn: int
    setting: Setting
    prompt_tokens: int
    exact_tokens: int
    grafted_tokens: int
    boundary: tuple[float, ...]
    last: float
    skipped: float
    along: float | None = None


@dataclass(frozen=True)
class LoneGraft:
    """A stored segment that is alike, but not all behind the same beginning, grafted alone with the base's
    halo: ``end`` (the last of its grafts), ``last`` and ``along`` as in :class:`PinnedStep`; ``kept``:
    whether every token of dense's turn is still the likeliest. The latter two are None in earlier rows."""

    episode: int
    turn: int
    similarity: float
    context: float
    tokens: int
    end: float
    last: float
    along: float | None = None
    kept: bool | None = None

    @property
    def moved(self) -> float:
        """How far the turn is moved, in nats: along it, where that was measured."""
        return self.last if self.along is None else self.along

    @property
    def reusable(self) -> bool:
        return self.moved < NEAR and self.kept is not False


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
class HypothesesRecord(Taxed):
    """All rows of an experiment; :func:`verdicts` follow from them."""

    request: HypothesesRequest
    model: ModelInfo
    tolerance: float  # relative, below which a moved key counts as the same (as in the certificate)
    live: tuple[LiveStep, ...]
    pinned: tuple[PinnedStep, ...]
    candidates: tuple[LoneGraft, ...]
    reruns: tuple[Rerun, ...]
    moved: tuple[Moved, ...]
    format: int = HYPOTHESES_FORMAT


def record_of_rows(
    request: HypothesesRequest,
    model: ModelInfo,
    tolerance: float,
    moved: Sequence[Moved],
    rows: Iterable[Mapping[str, Any]],
) -> HypothesesRecord:
    """The record of finished episodes; each row holds lists ``live``, ``pinned``, ``candidates``,
    ``reruns``."""
    episodes = list(rows)

    def items(name: str, kind: type) -> tuple[Any, ...]:
        return tuple(from_json(kind, item) for row in episodes for item in row[name])

    return HypothesesRecord(
        request, model, tolerance, items("live", LiveStep), items("pinned", PinnedStep),
        items("candidates", LoneGraft), items("reruns", Rerun), tuple(moved),
        boundary_tax=sum_taxes(row.get("boundary_tax") for row in episodes),
    )  # fmt: skip
