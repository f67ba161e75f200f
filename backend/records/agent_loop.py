"""An agent loop: its questions, its prompts, and the record of many episodes. Frozen and free of torch.

One *episode* is one question to a ReAct agent (Yao et al. 2022). A turn is a Thought and an Action; the
tool's Observation goes into the next turn's prompt behind everything so far. ``finish[...]`` ends the
episode.
"""

import dataclasses
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.ranges import SEEDS, check_ranges
from backend.base.serialization import Saved
from backend.base.statistics import bootstrap_interval, deviations, mean_and_half, wilson
from backend.prompts.agent import Agent
from backend.prompts.pipeline import MAX_AGENTS, Pipeline
from backend.prompts.presets import Example, load_preset
from backend.prompts.scoring import extract_answer, same_answer
from backend.prompts.tasks.base import is_held_out
from backend.prompts.tasks.tools import KINDS, draw_loop
from backend.prompts.template import QUESTION
from backend.prompts.tools.collection import price_list
from backend.prompts.tools.react import finishes
from backend.records.model_info import ModelInfo
from backend.records.request import Decoding, MethodChoice, Mode, RunRequest
from backend.records.run import PROVENANCE, Outcome, RunRecord

LOOP_FORMAT = 1
PRESET = "react-tools"  # the loop of four turns whose wording is taken
LARGEST = 99  # the largest result that the embedded model was taught
LIMITS: dict[str, tuple[int, int]] = {
    "episodes": (1, 500), "turns": (2, MAX_AGENTS), "memory": (1, 1000), "seed": SEEDS,
    "max_new_tokens": (1, 512),
}  # fmt: skip
#: ``LoopRecord.ends``: the episode goes on, or how it ended.
GOES_ON, WRONG, RIGHT, UNKNOWN = -1, 0, 1, 2

_BUYS = re.compile(r"buys (\d+) (\w+)(?: and (\d+) (\w+))?\.")
_APART = re.compile(r"the price of (\w+) and the price of (\w+)")

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LoopRequest:
    """Episodes under several methods.

    ``turns``: the most turns of an episode. ``memory``: episodes that share one store; the next ones begin
    with an empty store, so that blocks of episodes are independent.

    Raises:
        OptionError: a number is out of its range.
    """

    methods: tuple[MethodChoice, ...]
    episodes: int = 20
    turns: int = 8
    modes: tuple[Mode, ...] = ("pinned", "free")
    memory: int = 25
    seed: int = 0
    max_new_tokens: int = 48

    @property
    def stores(self) -> int:
        """How many stores a mode and method go through."""
        return -(-self.episodes // self.memory)

    def __post_init__(self) -> None:
        check_ranges(self, LIMITS, "loop")

    def episode(self, example: Example, mode: Mode) -> RunRequest:
        """One episode's request to a session."""
        return RunRequest(
            loop_pipeline(self.turns),
            dict(example.values),
            self.methods,
            mode,
            Decoding(max_new_tokens=self.max_new_tokens),
            probe_offsets=False,
            expected=example.answer,
        )


def loop_pipeline(turns: int) -> Pipeline:
    """The loop unrolled: turn ``t`` is an agent that reads the question, all turns and all observations
    before it, worded as the embedded model was trained."""
    preset = load_preset(PRESET).pipeline
    agents: list[Agent] = []
    template = preset.agents[0].template
    for turn in range(1, turns + 1):
        agents.append(dataclasses.replace(preset.agents[0], id=turn, name=f"Turn {turn}", template=template))
        template += f"{{agent_{turn}_current}}\nObservation {turn}: {{condition_{turn}_current}}\n"
    return dataclasses.replace(
        preset,
        name="agent-loop",
        title="Agent loop",
        summary="A ReAct loop, turn by turn.",
        agents=tuple(agents),
    )


def loop_questions(count: int, seed: int = 0) -> tuple[Example, ...]:
    """Distinct questions that are held out of training, with their answers by the price list. A larger
    ``count`` begins with the questions of a smaller one."""
    rng = random.Random(f"agent loop {seed}")
    prices = {p.title: int(p.value) for p in price_list().passages if p.value}
    answers: dict[str, str] = {}
    while len(answers) < count:
        question, _, _ = draw_loop(rng, rng.choice(KINDS))
        answer = answer_of(question, prices)
        if answer is not None and answer <= LARGEST and is_held_out(question):
            answers.setdefault(question, str(answer))
    return tuple(Example({QUESTION: question}, answer) for question, answer in answers.items())


def answer_of(question: str, prices: Mapping[str, int]) -> int | None:
    """The answer to a question of the loop; None for other texts, and for a product without a price."""
    try:
        if pair := _APART.search(question):
            return abs(prices[pair[1]] - prices[pair[2]])
        if purchase := _BUYS.search(question):
            more = int(purchase[3]) * prices[purchase[4]] if purchase[3] else 0
            return int(purchase[1]) * prices[purchase[2]] + more
    except KeyError:
        pass
    return None


def is_final(outcome: Outcome) -> bool:
    """Does this turn end the episode?"""
    return finishes(outcome.text)


def right_end(text: str, expected: str | None) -> int:
    """How an episode ended with this turn's text: one of ``WRONG``, ``RIGHT``, ``UNKNOWN``."""
    if expected is None:
        return UNKNOWN
    answer = extract_answer(text, "text") if finishes(text) else None
    return RIGHT if answer is not None and same_answer(answer, expected) else WRONG


def cut(record: RunRecord) -> RunRecord:
    """The record, its pipeline cut to the turns that some method reached."""
    return dataclasses.replace(
        record, request=dataclasses.replace(record.request, pipeline=loop_pipeline(max(record.agents)))
    )


def turns_of(record: RunRecord) -> list[dict[str, Any]]:
    """One row per method and turn of an episode, in running order."""
    last = {o.method: o.agent for o in record.outcomes}
    return [_turn(record, outcome, last[outcome.method]) for outcome in record.outcomes]


def _turn(record: RunRecord, outcome: Outcome, last: int) -> dict[str, Any]:
    tokens_by_provenance = dict.fromkeys(PROVENANCE, 0)
    for span in outcome.spans:
        if span.provenance:
            tokens_by_provenance[span.provenance] += span.end - span.start
    fidelity, parts = outcome.fidelity, outcome.timing.parts_ms
    is_last = outcome.agent == last
    return {
        "method": outcome.method,
        "turn": outcome.agent,
        "prompt_tokens": len(record.prompts[outcome.prompt].token_ids),
        "boundary_tokens": record.prompts[outcome.prompt].boundary_tokens or 0,
        "reused_tokens": outcome.copied_tokens,
        "forwarded_tokens": outcome.timing.forwarded_tokens,
        "ttft_ms": outcome.timing.ttft_ms,
        "prefill_ms": parts.get("prefill", 0.0),
        "first_token_ms": parts.get("first_token", 0.0),
        "kl_first": fidelity.kl_first if fidelity else None,
        "kl_mean": float(fidelity.kl_tokens.mean()) if fidelity and fidelity.kl_tokens.size else None,
        "floor": fidelity.floor if fidelity else None,
        "provenance": tokens_by_provenance,
        "end": right_end(outcome.text, record.request.expected) if is_last else GOES_ON,
        "text": outcome.text,
    }


@dataclass(frozen=True)
class LoopRecord(Saved):
    """Many episodes. One row per mode, episode, method and turn that ran.

    Attributes:
        labels: of the methods, dense first; ``questions`` of the episodes.
        mode, method, episode: (rows,) indices into ``request.modes``, ``labels``, ``questions``.
        turn: (rows,) from 1 on.
        prompt_tokens, reused_tokens, forwarded_tokens: (rows,); reused: at one layer at least.
        boundary_tokens: (rows,) prompt tokens that its text, tokenised at once, would not have; None in
            records of earlier versions.
        ttft_ms, prefill_ms, first_token_ms: (rows,) time to first token, and two parts of it.
        kl_first, kl_mean: (rows,) nats, dense || method, at the turn's first token and along dense's text;
            NaN when free-running. ``floor``: the numerical floor of the logits.
        provenance: (rows, words) tokens by ``PROVENANCE``.
        ends: (rows,) ``GOES_ON``, or how the episode ended for this method.
    """

    request: LoopRequest
    model: ModelInfo
    labels: tuple[str, ...]
    questions: tuple[str, ...]
    mode: Ints
    method: Ints
    episode: Ints
    turn: Ints
    prompt_tokens: Ints
    reused_tokens: Ints
    forwarded_tokens: Ints
    ttft_ms: Floats
    prefill_ms: Floats
    first_token_ms: Floats
    kl_first: Floats
    kl_mean: Floats
    floor: Floats
    provenance: Ints
    ends: Ints
    boundary_tokens: Ints | None = None
    format: int = LOOP_FORMAT

    @property
    def boundary_tax(self) -> tuple[int, int]:
        """Boundary tokens of dense's prompts, and all their tokens."""
        dense = self.method == 0
        taxed = 0 if self.boundary_tokens is None else int(self.boundary_tokens[dense].sum())
        return taxed, int(self.prompt_tokens[dense].sum())

    def rows(self, mode: str, label: str) -> NDArray[np.bool_]:
        """Which rows belong to a method in a mode."""
        if mode not in self.request.modes:
            return np.zeros(len(self.mode), dtype=bool)
        rows = (self.mode == self.request.modes.index(mode)) & (self.method == self.labels.index(label))
        return np.asarray(rows, dtype=bool)


def record_of_rows(request: LoopRequest, model: ModelInfo, rows: Iterable[Mapping[str, Any]]) -> LoopRecord:
    """The record of finished episodes: rows with ``mode``, ``index``, ``question`` and
    ``turns`` (see :func:`turns_of`)."""
    episodes = list(rows)
    questions = {int(row["index"]): str(row["question"]) for row in episodes}
    numbers = sorted(questions)
    labels = tuple(dict.fromkeys(turn["method"] for row in episodes for turn in row["turns"]))
    flat = [(row, turn) for row in episodes for turn in row["turns"]]

    def ints(values: Iterable[int]) -> Ints:
        return np.array(list(values), dtype=np.int64)

    def column(name: str, kind: type) -> Any:
        return np.array([np.nan if turn[name] is None else turn[name] for _, turn in flat], dtype=kind)

    return LoopRecord(
        request,
        model,
        labels,
        tuple(questions[number] for number in numbers),
        mode=ints(request.modes.index(row["mode"]) for row, _ in flat),
        method=ints(labels.index(turn["method"]) for _, turn in flat),
        episode=ints(numbers.index(int(row["index"])) for row, _ in flat),
        turn=column("turn", np.int64),
        **{name: column(name, np.int64) for name in ("prompt_tokens", "reused_tokens", "forwarded_tokens")},
        **{name: column(name, np.float64) for name in ("ttft_ms", "prefill_ms", "first_token_ms")},
        **{name: column(name, np.float64) for name in ("kl_first", "kl_mean", "floor")},
        provenance=np.array(
            [[turn["provenance"].get(word, 0) for word in PROVENANCE] for _, turn in flat], dtype=np.int64
        ).reshape(len(flat), len(PROVENANCE)),
        ends=column("end", np.int64),
        boundary_tokens=ints(turn.get("boundary_tokens", 0) for _, turn in flat),
    )


@dataclass(frozen=True)
class LoopLine:
    """One method in one mode, over all episodes. Intervals are of 95%.

    Attributes:
        right: episodes that ended right, of ``known`` ones whose answer is known; ``right_low``,
            ``right_high`` of their share (Wilson's, or the bootstrap over stores where that is wider).
        behind: share of the episodes by which dense succeeded more often, and its lower and upper limit, over
            paired episodes (Agresti and Min 2005: half an episode added to each of the four cells); the
            limits of all methods and modes hold together (Bonferroni).
        turns: mean turns of an episode.
        reused: share of all prompt tokens taken from a cache, with half the interval of its mean over
            episodes. For the prefix cache this is the hit rate in tokens.
        ttft_ms: median; ``ratio``: median over turns of dense's time to first token over this one's.
        kl: mean over turns of the KL along dense's text of the turn, nats; ``kl_high`` its 95th percentile;
            ``near``: share of turns under 0.1 nats. NaN when free-running.
        kl_first: the same mean at a turn's first token, which the fixed format makes easy to predict.
        provenance: share of prompt tokens by ``PROVENANCE``.
    """

    mode: str
    method: str
    episodes: int
    right: int
    known: int
    right_low: float
    right_high: float
    behind: tuple[float, float, float]
    turns: float
    reused: float
    reused_half: float
    ttft_ms: float
    ratio: float
    kl: float
    kl_high: float
    near: float
    kl_first: float
    provenance: tuple[float, ...]


def summary(record: LoopRecord) -> tuple[LoopLine, ...]:
    """A line per mode and method, dense first."""
    return tuple(
        _line(record, mode, label)
        for mode in record.request.modes
        for label in record.labels
        if record.rows(mode, label).any()
    )


def _line(record: LoopRecord, mode: str, label: str) -> LoopLine:
    rows, dense_rows = record.rows(mode, label), record.rows(mode, record.labels[0])
    episodes = np.unique(record.episode[rows])
    shares = [
        record.reused_tokens[rows & (record.episode == e)].sum()
        / record.prompt_tokens[rows & (record.episode == e)].sum()
        for e in episodes
    ]
    times = {(e, t): ms for e, t, ms in _turn_times(record, dense_rows)}
    ratios = [times[e, t] / max(1e-9, ms) for e, t, ms in _turn_times(record, rows) if (e, t) in times]
    dense_ends, ends = (
        {
            int(e): int(x)
            for e, x in zip(record.episode[k], record.ends[k], strict=True)
            if x in (WRONG, RIGHT)
        }
        for k in (dense_rows, rows)
    )
    family = len(record.request.modes) * (len(record.labels) - 1)  # read together (Bonferroni)
    low, high = wilson(right := sum(ends.values()), len(ends))
    stores = [e // record.request.memory for e in ends]
    low, high = _store_interval([float(x) for x in ends.values()], stores, low, high)
    kl, kl_first = (column[rows & ~np.isnan(column)] for column in (record.kl_mean, record.kl_first))
    tokens = record.prompt_tokens[rows].sum()
    return LoopLine(
        mode,
        label,
        len(episodes),
        right,
        len(ends),
        low,
        high,
        _deficit(
            {e: (dense_ends[e], ends[e]) for e in ends if e in dense_ends}, record.request.memory, family
        ),
        float(rows.sum() / max(1, len(episodes))),
        float(record.reused_tokens[rows].sum() / max(1, tokens)),
        float(mean_and_half(shares)[1]),
        float(np.median(record.ttft_ms[rows])),
        float(np.median(ratios)) if ratios else float("nan"),
        float(kl.mean()) if kl.size else float("nan"),
        float(np.percentile(kl, 95)) if kl.size else float("nan"),
        float((kl < 0.1).mean()) if kl.size else float("nan"),
        float(kl_first.mean()) if kl_first.size else float("nan"),
        tuple(float(x) for x in record.provenance[rows].sum(axis=0) / max(1, tokens)),
    )


def _deficit(ends: Mapping[int, tuple[int, int]], memory: int, family: int) -> tuple[float, float, float]:
    """How much more often the first of each pair succeeded, with 95% limits for ``family`` comparisons.

    Args:
        ends: by episode.
    """
    if not ends:
        return (float("nan"),) * 3
    pairs = ends.values()
    wins = sum(a > b for a, b in pairs) + 0.5
    losses = sum(a < b for a, b in pairs) + 0.5
    total = len(pairs) + 2
    middle = (wins - losses) / total
    half = deviations(family) * (wins + losses - (wins - losses) ** 2 / total) ** 0.5 / total
    changes, stores = [float(a - b) for a, b in pairs], [e // memory for e in ends]
    low, high = max(-1.0, middle - half), min(1.0, middle + half)
    return (wins - losses) / len(pairs), *_store_interval(changes, stores, low, high, family)


def _store_interval(
    values: Sequence[float], stores: Sequence[int], low: float, high: float, family: int = 1
) -> tuple[float, float]:
    """The interval of a mean over episodes, widened to the bootstrap over stores, then episodes: episodes of
    one store are not independent. With a single store it stays as it is."""
    if len(set(stores)) < 2:
        return low, high
    x = np.asarray(values)
    interval = bootstrap_interval(lambda rows: x[rows].mean(axis=1), len(x), family=family, clusters=stores)
    return min(low, interval[0]), max(high, interval[1])


def _turn_times(record: LoopRecord, rows: NDArray[np.bool_]) -> Iterable[tuple[int, int, float]]:
    return zip(
        record.episode[rows].tolist(), record.turn[rows].tolist(), record.ttft_ms[rows].tolist(), strict=True
    )
