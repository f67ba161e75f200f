"""A gate on logged calls: does reuse keep the answers? Request and record. Free of torch."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

from backend.base.errors import OptionError
from backend.base.statistics import confidence_sequence, lower_limit, upper_limit
from backend.prompts.scoring import SCORINGS, Scoring
from backend.records.model_info import ModelInfo
from backend.records.prompt import Taxed
from backend.records.request import MethodChoice

GATE_FORMAT = 1
#: At most the limit, with the level's certainty; not certain of it; undecided.
Verdict = Literal["at most", "not certain", "could not tell"]
CODES: dict[Verdict, int] = {"at most": 0, "not certain": 1, "could not tell": 2}
MOST_SAMPLED = 100_000


class Sampling(Protocol):
    """How a log's calls are sampled and read; see :class:`GateRequest`."""

    @property
    def warm(self) -> int: ...
    @property
    def max_new_tokens(self) -> int: ...
    @property
    def same(self) -> Scoring: ...
    @property
    def seed(self) -> int: ...


def check_flags(*flags: tuple[str, object, bool, str]) -> None:
    """
    Args:
        flags: a flag's name, its value, whether that is good, and what is allowed.

    Raises:
        OptionError: one is not good.
    """
    for name, value, good, allowed in flags:
        if not good:
            raise OptionError(f"--{name} is {value}; allowed: {allowed}. Change it.", field=name)


def check_sampling(sampling: Sampling) -> None:
    """
    Raises:
        OptionError: a number is out of range.
    """
    warm, longest = sampling.warm, sampling.max_new_tokens
    check_flags(
        ("warmup", warm, 0 <= warm <= 1000, "0 to 1,000"),
        ("max-new-tokens", longest, 1 <= longest <= 4096, "1 to 4,096"),
        ("same", sampling.same, sampling.same in SCORINGS, ", ".join(SCORINGS)),
    )


@dataclass(frozen=True)
class GateRequest:
    """Do at most ``max_flips`` of the answers change under a method?

    Attributes:
        method: read beside dense.
        max_flips: share of changed answers that is allowed, above 0 and below 1.
        level: certainty that is wanted, of each side.
        calls: most calls that are sampled.
        warm: first calls of each template that only fill the pools, where the method keeps any.
        max_new_tokens: of an answer.
        same: what of two answers has to be equal: as in a pipeline's scoring; *none*: the whole text.
        stop_early: look after every call and stop once the answer is certain.
        seed: which calls are sampled, in which order.
    """

    method: MethodChoice
    max_flips: float
    level: float = 0.95
    calls: int = 300
    warm: int = 8
    max_new_tokens: int = 64
    same: Scoring = "none"
    stop_early: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_flags(
            ("max-flips", self.max_flips, 0 < self.max_flips < 1, "above 0% and below 100%"),
            ("level", self.level, 0.5 <= self.level < 1, "50% and more, below 100%"),
            ("calls", self.calls, 1 <= self.calls <= MOST_SAMPLED, f"1 to {MOST_SAMPLED:,}"),
        )
        check_sampling(self)
        if self.method.reference:
            raise OptionError(
                "--method is dense, which cannot change an answer. Name another.", field="method"
            )

    def limits(self, flips: int, calls: int) -> tuple[float, float]:
        """Limits of the true share, each with the certainty ``level``; with ``stop_early`` both hold at every
        look."""
        if self.stop_early:
            return confidence_sequence(flips, calls, self.level, self.max_flips)
        return lower_limit(flips, calls, self.level), upper_limit(flips, calls, self.level)

    @cached_property
    def needed(self) -> int:
        """The fewest calls, all without a flip, that make the answer certain."""
        low, high = 0, 1
        while self.limits(0, high)[1] > self.max_flips:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.limits(0, middle)[1] > self.max_flips else (low, middle)
        return high


@dataclass(frozen=True)
class GateRow:
    """One sampled call. ``refused``: why it could not be read; then the other fields are empty. ``near_tie``:
    the answer changed where rounding alone could have changed it."""

    where: str
    agent: str
    refused: str = ""
    flipped: bool = False
    near_tie: bool = False
    prompt_tokens: int = 0
    reused_tokens: int = 0
    dense: str = ""
    method: str = ""


@dataclass(frozen=True)
class GateRecord(Taxed):
    """The gate's rows. ``calls``: in the log; ``warmed`` of them only filled pools."""

    request: GateRequest
    model: ModelInfo
    calls: int
    warmed: int
    rows: tuple[GateRow, ...] = ()
    format: int = GATE_FORMAT

    @property
    def read(self) -> tuple[GateRow, ...]:
        """The rows that were compared."""
        return tuple(row for row in self.rows if not row.refused)

    @property
    def flips(self) -> int:
        return sum(row.flipped for row in self.read)

    @property
    def limits(self) -> tuple[float, float]:
        """Of the share of changed answers; see :meth:`GateRequest.limits`."""
        return self.request.limits(self.flips, len(self.read))

    @property
    def verdict(self) -> Verdict:
        return self.decision[0]

    @property
    def code(self) -> int:
        """The command's exit status."""
        return CODES[self.verdict]

    @cached_property
    def decision(self) -> tuple[Verdict, str]:
        """The verdict, and why in one sentence."""
        request, count, (low, high) = self.request, len(self.read), self.limits
        limit, sure = f"{request.max_flips:.2%}", f"with {request.level:.0%} certainty"
        changed = f"{self.flips} of {count} answers changed"
        if low > request.max_flips:
            return "not certain", f"{changed}: more than {limit}, {sure}"
        if count < request.needed:
            note = f"{count} calls were compared" if self.rows else f"{self.sampled} calls can be sampled"
            refused = len(self.rows) - count
            why = f", and {refused} could not be read ({self.first_refusal})" if refused else ""
            return "could not tell", (
                f"{note}{why}; no fewer than {request.needed} can show that at most {limit} change, {sure}"
            )
        if not any(row.reused_tokens for row in self.read):
            why = f"{request.method.label} reused nothing in {count} calls: nothing was tried"
            return "could not tell", why
        if high <= request.max_flips:
            return "at most", f"{changed}: at most {high:.2%}, {sure}"
        return "not certain", f"{changed}: at most {high:.2%} {sure}, and {limit} are allowed"

    @property
    def sampled(self) -> int:
        """Calls that can be sampled."""
        return min(self.calls - self.warmed, self.request.calls)

    @property
    def first_refusal(self) -> str:
        return next((row.refused for row in self.rows if row.refused), "")
