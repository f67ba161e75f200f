"""Sampled calls of a log under dense and reuse: request and record. Free of torch."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TypeVar

from backend.base.errors import OptionError
from backend.base.statistics import exact_share
from backend.prompts.scoring import Scoring
from backend.records.blame import BLAME_LIMITS, Half
from backend.records.log_gate import MOST_SAMPLED, check_flags, check_sampling
from backend.records.model_info import ModelInfo
from backend.records.prompt import Taxed
from backend.records.request import MethodChoice

READING_FORMAT = 1
Row = TypeVar("Row")
MOST_TOKENS = 10**12


@dataclass(frozen=True)
class ReadingRequest:
    """What becomes of logged calls under reuse?

    Attributes:
        methods: read beside dense.
        sample: most calls that are read, every agent's share as in the log.
        most_tokens: prompt tokens after which no further call is read, of all methods together.
        layouts: every layout that the log's X-ray proposes is tried on the sampled calls, too.
        blame_passes: most caches put together for each changed answer, to find what changed it; 0: none.
        warm, max_new_tokens, same, seed: see :class:`backend.records.log_gate.GateRequest`.
    """

    methods: tuple[MethodChoice, ...]
    sample: int = 50
    most_tokens: int = 10_000_000
    blame_passes: int = 150
    warm: int = 8
    max_new_tokens: int = 64
    same: Scoring = "none"
    seed: int = 0
    layouts: bool = False

    def __post_init__(self) -> None:
        low, high = BLAME_LIMITS["passes"]
        passes = self.blame_passes
        check_flags(
            ("sample", self.sample, 1 <= self.sample <= MOST_SAMPLED, f"1 to {MOST_SAMPLED:,}"),
            ("most-tokens", self.most_tokens, 1 <= self.most_tokens <= MOST_TOKENS, f"1 to {MOST_TOKENS:,}"),
            ("blame-passes", passes, passes == 0 or low <= passes <= high, f"0, or {low} to {high:,}"),
        )
        check_sampling(self)
        if not self.methods or any(method.reference for method in self.methods):
            raise OptionError(
                "--methods has to name reuse methods; dense is read anyway. Name one, such as naive.",
                field="methods",
            )


@dataclass(frozen=True)
class BlamedPart:
    """Of the smallest set that brings dense's answer back, one part: the beginning of its text, and where in
    the cache."""

    text: str
    first: int
    last: int
    half: Half


@dataclass(frozen=True)
class Blamed:
    """What changed an answer, by :mod:`backend.studies.blame`.

    Attributes:
        parts: of the smallest set that was found; empty where none was.
        share: of the cache's bytes that it is; 0 where none was found.
        random_restored: of ``random`` sets as large, placed at random, those that bring the answer back too.
        dense_token, method_token: where the answers part.
        refused: why nothing was searched; empty where it was.
    """

    parts: tuple[BlamedPart, ...] = ()
    share: float = 0.0
    random_restored: int = 0
    random: int = 0
    dense_token: str = ""
    method_token: str = ""
    refused: str = ""


@dataclass(frozen=True)
class ReadingRow:
    """One call under one method, beside dense.

    Attributes:
        flipped: the answer changed. ``near_tie``: where the texts part, rounding alone could have done it.
        dense_call, method_call: the call of a tool in each answer; empty where there is none.
        kl_first, kl_answer: KL(dense || method) in nats at the answer's first token, and its mean over
            dense's own answer.
        logged_tokens: of the logged answer that was fed to both; 0 where the log has none, and then the next
            two are 0 too.
        kl_logged: mean KL along them in nats; ``swapped``: where the likeliest next token is another.
        key_error, value_error: relative L2 error of the cache against dense, mean over layers and tokens;
            None where the method reads another prompt.
        blamed: what changed the answer; None where it did not change, where rounding could have done it, and
            where it was not asked for.
    """

    where: str
    agent: str
    method: str
    prompt_tokens: int
    reused_tokens: int
    dense: str
    text: str
    flipped: bool
    near_tie: bool
    dense_call: str
    method_call: str
    kl_first: float
    kl_answer: float
    logged_tokens: int = 0
    kl_logged: float = 0.0
    swapped: int = 0
    key_error: float | None = None
    value_error: float | None = None
    blamed: Blamed | None = None

    @property
    def call_flipped(self) -> bool:
        """Another tool, other arguments, or a call where there was none."""
        return self.dense_call != self.method_call


@dataclass(frozen=True)
class Refused:
    """A call that could not be read."""

    where: str
    agent: str
    why: str


@dataclass(frozen=True)
class Proposed:
    """A layout that the X-ray proposes: ``saved`` tokens more are found, ``of`` all in the ``calls`` on which
    it was tried."""

    layout: str
    saved: int
    of: int
    calls: int


@dataclass(frozen=True)
class LayoutRow:
    """A sampled call in another layout, beside dense's answer to the call as it was sent.

    Attributes:
        layout: see :class:`Proposed`.
        method: empty where the layout is read in full, as an exact prefix cache would have it; else the
            method that copies its texts.
        touched: the layout changes the call; else nothing was read, for the answer cannot change.
        prompt_tokens: that were read; ``saved``: those that the layout finds more, below 0 if less.
        flipped, near_tie, dense_call, method_call, kl_first, kl_answer: as of :class:`ReadingRow`.
    """

    where: str
    agent: str
    layout: str
    method: str
    touched: bool
    prompt_tokens: int
    saved: int
    dense: str
    text: str
    flipped: bool = False
    near_tie: bool = False
    dense_call: str = ""
    method_call: str = ""
    kl_first: float = 0.0
    kl_answer: float = 0.0


@dataclass(frozen=True)
class ExactCount:
    """``count`` of ``of``, with exact 95% limits of the true share (Clopper and Pearson)."""

    count: int
    of: int

    @property
    def limits(self) -> tuple[float, float]:
        share = exact_share(self.count, self.of)
        return share.low, share.high

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        low, high = self.limits
        return {"count": self.count, "of": self.of, "low": low, "high": high}


@dataclass(frozen=True)
class ReadingRecord(Taxed):
    """The rows of a reading. ``calls``: in the log; ``warmed`` of them only filled pools. ``spent``: the
    budget of tokens ended the reading. ``proposed``, ``laid``: layouts, where they were asked for, and what
    they changed."""

    request: ReadingRequest
    model: ModelInfo
    calls: int
    warmed: int
    spent: bool = False
    refused: tuple[Refused, ...] = ()
    rows: tuple[ReadingRow, ...] = ()
    format: int = READING_FORMAT
    proposed: tuple[Proposed, ...] = ()
    laid: tuple[LayoutRow, ...] = ()

    def of(self, method: str, agent: str | None = None) -> list[ReadingRow]:
        """The rows of a method, of one agent if it is named."""
        return [row for row in self.rows if row.method == method and agent in (None, row.agent)]

    @property
    def agents(self) -> list[str]:
        """Those that were read, the one with most calls first."""
        first = self.of(self.request.methods[0].label)
        names = [row.agent for row in first]
        return sorted(dict.fromkeys(names), key=lambda name: -names.count(name))

    def summary(self) -> list[dict[str, Any]]:
        """For each method what it changed, over all calls and for each agent. Counts have exact intervals;
        a mean is None where nothing is known."""
        return [
            _summed(method.label, agent, self.of(method.label, agent))
            for method in self.request.methods
            for agent in (None, *self.agents)
        ]

    def verdicts(self) -> list[dict[str, Any]]:
        """For each proposed layout, and each method where it needs one: tokens saved, and answers changed
        with exact intervals. Calls that a layout leaves as they are count as unchanged."""
        out = []
        for proposal in self.proposed:
            layout_rows = [row for row in self.laid if row.layout == proposal.layout]
            for method in dict.fromkeys(row.method for row in layout_rows):
                rows = [row for row in layout_rows if row.method == method]
                calls = [row for row in rows if row.dense_call or row.method_call]
                out.append({
                    "layout": proposal.layout, "method": method, "saved": proposal.saved, "of": proposal.of,
                    "calls": proposal.calls,
                    "touched": sum(row.touched for row in rows),
                    "flips": _counted(rows, lambda row: row.flipped),
                    "real_flips": _counted(rows, lambda row: row.flipped and not row.near_tie),
                    "tool_flips": _counted(calls, lambda row: row.dense_call != row.method_call),
                    "kl_first": fmean(row.kl_first for row in rows),
                    "kl_answer": fmean(row.kl_answer for row in rows),
                })  # fmt: skip
        return out


def _counted(rows: Iterable[Row], test: Callable[[Row], bool]) -> dict[str, Any]:
    hits = [test(row) for row in rows]
    return ExactCount(sum(hits), len(hits)).plain()


def _summed(method: str, agent: str | None, rows: Sequence[ReadingRow]) -> dict[str, Any]:
    def mean(values: Iterable[float | None]) -> float | None:
        numbers = [value for value in values if value is not None]
        return fmean(numbers) if numbers else None

    tokens = sum(row.prompt_tokens for row in rows)
    with_tools = [row for row in rows if row.dense_call or row.method_call]
    logged = [row for row in rows if row.logged_tokens]
    total = sum(row.logged_tokens for row in logged)
    searches = [row.blamed for row in rows if row.blamed is not None and not row.blamed.refused]
    return {
        "method": method,
        "agent": agent,
        "reused": sum(row.reused_tokens for row in rows) / tokens if tokens else None,
        "flips": _counted(rows, lambda row: row.flipped),
        "real_flips": _counted(rows, lambda row: row.flipped and not row.near_tie),
        "tool_flips": _counted(with_tools, lambda row: row.call_flipped),
        "real_tool_flips": _counted(with_tools, lambda row: row.call_flipped and not row.near_tie),
        "kl_first": mean(row.kl_first for row in rows),
        "kl_answer": mean(row.kl_answer for row in rows),
        "kl_logged": sum(r.kl_logged * r.logged_tokens for r in logged) / total if total else None,
        "swapped": sum(row.swapped for row in logged) / total if total else None,
        "logged_tokens": total,
        "key_error": mean(row.key_error for row in rows),
        "value_error": mean(row.value_error for row in rows),
        "explained": ExactCount(sum(bool(b.parts) for b in searches), len(searches)).plain(),
    }
