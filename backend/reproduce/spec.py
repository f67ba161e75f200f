"""What a reproduction is: a table of a paper, and a plan whose measurements stand beside its figures. Free of
torch.

The tables are data (``presets/reproductions``, read by :mod:`backend.reproduce.reader`). The paper's figures
are transcribed from its text, which has no page numbers; ``place`` names table and section. A figure that the
text does not hold (a plot) is None and never guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Scale = Literal["embedded", "paper"]
SCALES: tuple[Scale, ...] = ("embedded", "paper")
Form = Literal["percent", "ms", "times", "number", "nats", "mb", "joules"]
PAPERS = {
    "kvcomm": "KVCOMM (Ye et al.)",
    "judges": "When KV Cache Reuse Fails in Multi-Agent Systems (Liang et al., arXiv:2601.08343)",
    "kvlink": "KVLink (Yang et al.)",
    "segments": "Cross-Query KV Segment Reuse for Template-Heavy Agents (a research plan)",
    "omitted": "none: what the papers leave out",
}


@dataclass(frozen=True)
class Value:
    """A measured figure; ``low`` and ``high``: its 95% interval (NaN without one); ``of``: sample size."""

    value: float
    low: float = float("nan")
    high: float = float("nan")
    of: int = 0


@dataclass(frozen=True)
class Measurement:
    """Measured figures (``values`` by metric) of one setting (``where``: for example task, method, order)."""

    where: Mapping[str, str]
    values: Mapping[str, Value]


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Attributes:
        metric: the measured figure beside the paper's; None where only the paper has one.
        form: how it is written; percent figures are shares from 0 to 1 when measured and 0 to 100 in papers.
        at: for columns that are settings, such as data sets: what they add to a line's ``at``, by scale. They
            are not measured at other scales.
    """

    title: str
    metric: str | None
    form: Form = "percent"
    at: Mapping[Scale, Mapping[str, str]] | None = None

    def measured(self, scale: Scale) -> bool:
        """Whether there can be a figure of ours."""
        return self.metric is not None and (self.at is None or scale in self.at)


@dataclass(frozen=True)
class Line:
    """A row of the table.

    Attributes:
        paper: one figure for each column, as printed; None where the paper has none.
        at: the :attr:`Measurement.where` of our figure at each scale; without an entry there is none.
            ``model`` has to be a part of the model's name, all others have to be equal.
        metrics: other metrics than the columns', by the column's title.
    """

    label: str
    paper: tuple[float | str | None, ...]
    at: Mapping[Scale, Mapping[str, str]] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)


# -- plans: what is run


@dataclass(frozen=True)
class SweepPlan:
    """A sweep (:mod:`backend.sweeps`).

    Attributes:
        tasks: as in a sweep file; a task's ``data`` names a file's stem in the folder given with ``--data``.
            ``model`` is one of its own instead of the scale's, ``problems`` their own number, ``steps`` makes
            word problems of so many calculations.
        problems, warmup: measured requests of each cell, and those before them.
        linked: methods also run on each set of weights that the scale needs.
        against: the method that the others are tested against, where the table's claim is about it; the run's
            notes give the p values.
    """

    tasks: tuple[Mapping[str, Any], ...]
    methods: tuple[Any, ...]
    problems: int
    warmup: int = 0
    request_orders: tuple[str, ...] = ("given",)
    mode: str = "free"
    max_new_tokens: int | None = None
    linked: tuple[str, ...] = ()
    against: str = ""


@dataclass(frozen=True)
class DocumentsPlan:
    """Two-hop questions over documents encoded apart (:mod:`backend.studies.documents`), on the base and
    on each set of weights that the scale needs. ``positions``: also by the place of the answer's document."""

    problems: int
    positions: bool = False


@dataclass(frozen=True)
class EvaluationPlan:
    """The embedded model's held-out tasks, read densely, on the base and on each set of weights that the
    scale needs (:mod:`backend.training.evaluate`)."""

    problems: int


@dataclass(frozen=True)
class HarnessTask:
    """A benchmark, by the names of the LM Evaluation Harness.

    Attributes:
        metrics: by the title of the column that they fill: a metric and its filter, such as ``acc,none``.
        shots: examples before each question; None leaves the task's own number.
        chat: whether prompts are put into the model's chat template, if it has one.
    """

    name: str
    metrics: Mapping[str, str]
    shots: int | None = None
    chat: bool = False


@dataclass(frozen=True)
class HarnessPlan:
    """Public benchmarks, read densely (:mod:`backend.reproduce.harness`), on the base and on each set of
    weights that the scale needs; ``problems`` of each task, 0 asks all."""

    tasks: tuple[HarnessTask, ...]
    problems: int = 0


@dataclass(frozen=True)
class SeriesPlan:
    """Several plans, one after another."""

    plans: tuple[SweepPlan | HarnessPlan, ...]


@dataclass(frozen=True)
class HypothesesPlan:
    """H1 to H4 (:mod:`backend.studies.hypotheses`); ``problems`` are episodes."""

    problems: int
    grid: Literal["none", "one at a time", "full"] = "one at a time"
    turns: int = 8
    reruns: int = 0
    common: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupPlan:
    """Times of every agent of a fully connected group (:mod:`backend.bench.group`).

    Attributes:
        settings: (agents, prefix, question, answer) tokens of each case.
        problems: timed repetitions.
    """

    settings: tuple[tuple[int, int, int, int], ...]
    problems: int
    anchors: int = 20


@dataclass(frozen=True)
class CostPlan:
    """What pools cost by size (:mod:`backend.studies.anchor_cost`), for each number of reading agents."""

    anchors: tuple[int, ...]
    lengths: tuple[int, ...]
    agents: tuple[int, ...] = (1,)


@dataclass(frozen=True)
class SpeedPlan:
    """Time to first token by document length (:mod:`backend.studies.document_speed`); ``problems`` are
    repetitions."""

    lengths: tuple[int, ...]
    problems: int
    source: Literal["memory", "disk"] = "memory"


@dataclass(frozen=True)
class LatencyPlan:
    """Whole requests, each method by itself (:mod:`backend.studies.latency`)."""

    pipelines: tuple[str, ...]
    methods: tuple[str, ...]
    problems: int
    warmup: int


@dataclass(frozen=True)
class ProximityPlan:
    """Whether near tokens have near KV and near offsets (:mod:`backend.studies.proximity`), behind the first
    words of a preset's first two agents; ``problems`` are pairs."""

    preset: str
    problems: int
    vocabulary: int = 4000


@dataclass(frozen=True)
class OffsetsPlan:
    """Offsets of a preset's question behind its agents' first words, and of its requests, with estimates from
    the others (:mod:`backend.studies.offsets`); ``problems`` are requests."""

    preset: str
    problems: int


@dataclass(frozen=True)
class AttentionPlan:
    """What a preset's judge attends to, method by method (:mod:`backend.session.probes.attention`)."""

    preset: str
    methods: str
    problems: int
    warmup: int = 0


@dataclass(frozen=True)
class OverlapPlan:
    """Which tokens of a preset's candidates two models would keep (:mod:`backend.reproduce.overlap`)."""

    preset: str
    other: str
    problems: int


@dataclass(frozen=True)
class JudgedPlan:
    """A batch of generated problems before a judge: gates that are learned from it, and how many methods kept
    what dense selected (:mod:`backend.judge`); ``temperature`` is the candidates'."""

    methods: str
    problems: int
    warmup: int
    temperature: float = 1.0
    wording: str = "embedded"
    candidates_only: bool = False


@dataclass(frozen=True)
class UsesPlan:
    """How often the anchors of a preset's requests were used in a mix, by their length."""

    preset: str
    methods: str
    problems: int
    warmup: int = 0


Plan = (
    SweepPlan
    | DocumentsPlan
    | EvaluationPlan
    | HarnessPlan
    | SeriesPlan
    | HypothesesPlan
    | GroupPlan
    | CostPlan
    | SpeedPlan
    | LatencyPlan
    | ProximityPlan
    | OffsetsPlan
    | AttentionPlan
    | OverlapPlan
    | JudgedPlan
    | UsesPlan
)


@dataclass(frozen=True)
class Weights:
    """Weights for documents encoded apart that a plan needs; the fields are those of
    :class:`backend.training.link_tokens.train.LinkRecipe`, which trains them."""

    links: int = 5
    edges: bool = True
    mixture: str = "lab"
    compression: str = "none"
    compressed: float = 0.5
    shuffle: bool = True


@dataclass(frozen=True)
class Drawing:
    """How a figure is drawn: a curve for each of some columns, over the lines whose place is a number.

    Attributes:
        over: what of :attr:`Line.at` is the number; ``x`` and ``y`` are the axes' titles.
        columns: titles of the columns that are drawn.
    """

    over: str
    x: str
    y: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Printed:
    """A printed figure that no table stands for.

    Attributes:
        shows: what, in words.
        here: where in the lab the same is drawn or measured; empty: nowhere.
        absent: why no figure of ours is saved; empty where one is.
    """

    place: str
    shows: str
    here: str = ""
    absent: str = ""


@dataclass(frozen=True)
class Scaled:
    """What is run at one scale.

    Attributes:
        here: our setting in words, beside the paper's.
        minutes: about how long it takes with training: on two CPU cores at embedded scale, on one large GPU
            at paper scale.
        model: what ``--model`` replaces.
        absent: why lines without a place at this scale have no figure of ours.
        weights: trained weights that the plan is carried out on, beside the base; those that do not ship are
            trained first (:mod:`backend.reproduce.training`).
    """

    plan: Plan
    here: str
    minutes: int
    model: str = "embedded"
    absent: str = ""
    weights: tuple[Weights, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper.

    Attributes:
        sentence: what it asks.
        setting: the paper's models, data and hardware.
        caveat: what has to be known before the two figures are compared.
        scales: what is run at each of :data:`SCALES`.
        drawn: how it is drawn, where it is a figure.
    """

    name: str
    paper: str
    place: str
    sentence: str
    setting: str
    caveat: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    scales: Mapping[Scale, Scaled]
    drawn: Drawing | None = None

    @property
    def needs_links(self) -> bool:
        """Does a scale need trained weights?"""
        return any(scaled.weights for scaled in self.scales.values())
