"""Records of the judge lab: candidate sets, how they are put before a judge, and what it selected. Frozen and
free of torch, like :mod:`backend.records.run`.

Source: judge study, Sections 3 and 5 (regimes, orders, JCR, reuse rate). Candidates and slots are counted
from 1; 0 is "none of them". An order is a tuple whose k-th entry names the candidate in slot k.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import OptionError
from backend.base.ranges import SEEDS, check_choice, check_ranges
from backend.base.serialization import SELDOM, Saved
from backend.records.model_info import ModelInfo
from backend.records.request import Decoding, MethodChoice
from backend.records.risk_gate import RiskGate
from backend.records.run import AgentState, RunRecord

JUDGED_FORMAT = 1
Regime = Literal["typed", "progressive", "parallel"]
Protocol = Literal["joint", "pairwise", "selection", "rewriting"]
OrderKind = Literal["identity", "shuffle", "fixed"]
#: How a selection differs from dense's: it takes none, it takes another candidate, or it cannot be read.
Change = Literal["none", "another", "unread"]
NONE_TAKEN = (0,)
#: Where the candidates come from, in words for a person.
REGIMES: dict[Regime, str] = {
    "typed": "given as texts: there is no cache to reuse, each is encoded alone",
    "progressive": "one after the other, each agent reading those before it",
    "parallel": "independently of each other",
}
PROTOCOLS: dict[Protocol, str] = {
    "joint": "checks all candidates, names one and gives the final answer",
    "pairwise": "compares every two candidates; most wins are selected, ties are sets",
    "selection": "names a candidate and nothing else",
    "rewriting": "reads the candidates and writes its own answer, selecting none",
}
#: What the judge selects by, as the embedded model was taught it.
CRITERIA = ("right", "all", "corrects", "differs", "closest", "majority")
LIMITS: dict[str, tuple[int, int]] = {
    "candidates": (2, 8), "count": (1, 10_000), "warmup": (0, 1000), "steps": (1, 4), "seed": SEEDS,
}  # fmt: skip
MOST_ORDERS = 24  # all permutations of four candidates
ANSWER_TOKENS = 160  # of the judge's answer, as its presets have it
CANDIDATE_TOKENS = 96
SAMPLING = Decoding(CANDIDATE_TOKENS, 1.0, 1.0, 0)


@dataclass(frozen=True)
class Candidate:
    """One candidate answer, fixed for all methods.

    ``source``: who wrote it, by which KVCOMM keeps its anchors. ``ids``: its tokens as they were generated;
    none for a typed text, which the judge's tokenizer reads. ``right``: gives the expected answer.
    """

    text: str
    source: str
    ids: tuple[int, ...] = ()
    right: bool | None = None


@dataclass(frozen=True)
class JudgeProblem:
    """A question, its candidates in their original order, and the known answer.

    ``number`` counts from 1 and seeds what is drawn for the problem.
    """

    number: int
    question: str
    candidates: tuple[Candidate, ...]
    regime: Regime = "typed"
    expected: str | None = None

    @property
    def right(self) -> tuple[int, ...]:
        """The candidates that give the expected answer."""
        return tuple(i for i, candidate in enumerate(self.candidates, 1) if candidate.right)


@dataclass(frozen=True)
class Order:
    """How candidates are laid out before the judge (judge study, Eq. 4).

    *identity*: as they were written. *shuffle*: a random permutation for each problem, from ``seed``.
    *fixed*: ``places`` names the candidate in each slot, the same for every problem.
    """

    kind: OrderKind = "identity"
    seed: int = 0
    places: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Its name in rows and figures."""
        if self.kind == "fixed":
            return "order " + " ".join(map(str, self.places))
        return "identity" if self.kind == "identity" else f"shuffle {self.seed}"

    def layout(self, problem: int, count: int) -> tuple[int, ...]:
        """The candidate in each of ``count`` slots, for one problem."""
        if self.kind == "fixed":
            return self.places
        places = list(range(1, count + 1))
        if self.kind == "shuffle":
            random.Random(f"order:{self.seed}:{problem}").shuffle(places)
        return tuple(places)


def read_orders(text: str, candidates: int) -> tuple[Order, ...]:
    """``identity,shuffle:0,shuffle:1`` or ``all`` to orders; ``all`` is every permutation, identity first.

    Raises:
        OptionError: it cannot be read so, names an order twice, or has too many.
    """
    orders: list[Order] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        kind, _, seed = part.partition(":")
        if kind == "identity" and not seed:
            orders.append(Order())
        elif kind == "shuffle" and (not seed or (seed.isascii() and seed.isdigit() and len(seed) < 10)):
            orders.append(Order("shuffle", int(seed or 0)))
        elif kind == "all" and not seed and math.factorial(candidates) <= MOST_ORDERS:
            layouts = list(permutations(range(1, candidates + 1)))
            orders += [Order(), *(Order("fixed", places=places) for places in layouts[1:])]
        elif kind == "all" and not seed:
            raise OptionError(
                f"{candidates} candidates have {math.factorial(candidates):,} permutations; all of them are "
                f"judged up to {MOST_ORDERS} (four candidates). Use shuffle:0, or fewer candidates.",
                field="orders",
            )
        else:
            raise OptionError(
                f"The order {part[:40]!r} is not known; there are identity, shuffle:SEED and all. Write them "
                "with commas between, as in identity,shuffle:0.",
                field="orders",
            )
    labels = [order.label for order in orders]
    if not orders or len(set(labels)) < len(labels) or len(orders) > MOST_ORDERS:
        raise OptionError(
            f"The orders are {', '.join(labels)[:200] or 'none'}; 1 to {MOST_ORDERS} are allowed, each once. "
            "Change them.",
            field="orders",
        )
    return tuple(orders)


def originals(slots: Sequence[int], layout: Sequence[int]) -> tuple[int, ...]:
    """Selected slots back to the candidates' own numbers, ascending; 0 (none) stays (judge study, Section 3).

    Raises:
        IndexError: there is no such slot.
    """
    return tuple(sorted(layout[slot - 1] if slot else 0 for slot in slots))


@dataclass(frozen=True)
class JudgeRequest:
    """What is judged, how often and under what.

    Attributes:
        regime: where generated candidates come from; ``problems`` given here are judged as they are.
        count, seed, steps: generated problems: how many, drawn from what, and calculations in each (0: any).
        warmup: further problems before these that only fill the pools and leave no row.
        candidates: of a generated problem.
        orders: each keeps pools of its own, so that no text is met again in another order.
        methods: dense is added when it is missing; all read the same texts (pinned).
        sampling: how execution agents write: dense, with temperature; the seed varies by problem and agent.
        max_new_tokens: of the judge, which is greedy.
        judge, agents: model names, for the record. ``wording``: see :mod:`backend.judge.prompts`.
    """

    regime: Regime = "parallel"
    problems: tuple[JudgeProblem, ...] = ()
    count: int = 20
    seed: int = 0
    steps: int = 2
    warmup: int = 0
    candidates: int = 4
    criterion: str = "right"
    protocol: Protocol = "joint"
    orders: tuple[Order, ...] = (Order(), Order("shuffle", 0))
    methods: tuple[MethodChoice, ...] = ()
    sampling: Decoding = SAMPLING
    max_new_tokens: int = ANSWER_TOKENS
    judge: str = "embedded"
    agents: str = "embedded"
    wording: str = "embedded"
    gate: RiskGate | None = None  # may refuse reuse before the judge
    slots_only: bool = False  # copy the candidates alone; the question and all words around are computed
    # of a single given problem: the warm-up's are the same one with other numbers
    own_numbers: bool = field(default=False, metadata=SELDOM)

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            OptionError: a number or a choice is out of range.
        """
        check_ranges(self, LIMITS | {"steps": (0, LIMITS["steps"][1])}, "judge")
        choices: tuple[tuple[str, Sequence[str]], ...] = (
            ("regime", tuple(REGIMES)), ("protocol", tuple(PROTOCOLS)), ("criterion", CRITERIA),
        )  # fmt: skip
        for name, allowed in choices:
            check_choice(getattr(self, name), allowed, f"judge.{name}")
        if not self.orders:
            raise OptionError("No order is given. Give at least one, such as identity.", field="judge.orders")


@dataclass(frozen=True)
class JudgeOutcome:
    """One problem in one order under one method.

    Attributes:
        layout: the candidate in each slot.
        slots: what the judge named, as it stood before it; None when its answer cannot be read, or selects
            nothing by protocol.
        selected: the same as the candidates' own numbers.
        answer: its final answer; ``failure`` says what could not be read of it (empty: all was).
        correct: the final answer is the expected one; ``selection_right``: what it selected is right, all
            of it; None where nothing is expected.
        consistent: the selection is dense's in the same order (JCR's indicator; rewriting: the answer is).
            None where dense's own cannot be read.
        blocks, reused_blocks: candidates in the prompt, and those of them copied whole (the paper's reuse
            rate). ``prompt_tokens``, ``reused_tokens``, ``forwarded_tokens``: of the prompts.
        margin: top-2 logit gap at the token that names the selection; ``dense_margin`` dense's own there.
        floor: largest logit difference of dense against dense computed otherwise.
        near_tie: the selection differs from dense's where rounding alone could have changed dense's.
        twin: it differs, but names candidates with the very texts that dense's names.
        kl_first, kl_mean: KL from dense in nats, at the first token and along dense's answer.
        ttft_ms: time to first token of the judge, summed over its prompts.
        entropies: of the method's gate over the candidates; ``first_margin`` its own top-2 gap at the first
            token: what a risk gate may know before the verdict.
        boundary_tokens: of the prompts, that their texts, tokenised at once, would not have; None in rows of
            earlier versions.
    """

    gone = ("same_text", "parted_margin")
    problem: int
    order: str
    layout: tuple[int, ...]
    method: str
    state: AgentState
    slots: tuple[int, ...] | None
    selected: tuple[int, ...] | None
    answer: str | None
    failure: str
    correct: bool | None
    selection_right: bool | None
    consistent: bool | None
    same_answer: bool
    blocks: int
    reused_blocks: int
    prompt_tokens: int
    reused_tokens: int
    forwarded_tokens: int
    margin: float | None
    dense_margin: float | None
    floor: float
    near_tie: bool
    twin: bool
    kl_first: float
    kl_mean: float
    ttft_ms: float
    parts_ms: Mapping[str, float]
    text: str
    entropies: tuple[float, ...] = ()
    first_margin: float | None = None
    boundary_tokens: int | None = None

    @property
    def change(self) -> Change | None:
        """How the selection differs from dense's; None where it does not, and where none is made (rewriting).

        A judge that takes none is counted apart from one that prefers another candidate.
        """
        if self.consistent is not False:
            return None
        if self.selected is None:
            return "unread" if self.failure else None
        return "none" if self.selected == NONE_TAKEN else "another"


@dataclass(frozen=True)
class JudgedProblem:
    """A problem with all its outcomes, order by order, dense first: one row of a batch's file."""

    key: str
    problem: JudgeProblem
    outcomes: tuple[JudgeOutcome, ...]
    wall_ms: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OrderDone:
    """An event: a watched problem was judged in one more order. Its row so far, and the run's record."""

    row: JudgedProblem
    order: str
    record: RunRecord


@dataclass(frozen=True)
class Judged(Saved):
    """A batch as far as it went: all that tables and figures are made from.

    ``points``: (problems, components) the questions' mean token embeddings in principal coordinates, the
    widest first, so that distances are kept and any map can be drawn from them.
    """

    request: JudgeRequest
    model: ModelInfo
    rows: tuple[JudgedProblem, ...]
    notes: tuple[str, ...] = ()
    points: NDArray[np.float32] | None = None
    format: int = JUDGED_FORMAT

    @property
    def labels(self) -> tuple[str, ...]:
        """Method labels in column order, dense first."""
        return tuple(dict.fromkeys(o.method for row in self.rows for o in row.outcomes))

    @property
    def orders(self) -> tuple[str, ...]:
        """Labels of the orders, as asked."""
        return tuple(dict.fromkeys(o.order for row in self.rows for o in row.outcomes))

    @property
    def boundary_tax(self) -> tuple[int, int]:
        """Boundary tokens of dense's prompts, and all their tokens."""
        dense = [o for row in self.rows for o in row.outcomes if o.method == self.labels[0]]
        return sum(o.boundary_tokens or 0 for o in dense), sum(o.prompt_tokens for o in dense)

    def outcomes(self, order: str, method: str) -> tuple[JudgeOutcome, ...]:
        """One method's outcomes in one order, problem by problem."""
        return tuple(o for row in self.rows for o in row.outcomes if (o.order, o.method) == (order, method))
