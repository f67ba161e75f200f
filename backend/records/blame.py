"""Which part of a reused cache changed the answer: request and record. Free of torch."""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from backend.base.errors import OptionError
from backend.base.ranges import SEEDS
from backend.base.serialization import Floats
from backend.base.text import show
from backend.records.model_info import ModelInfo
from backend.records.prompt import Span, Taxed
from backend.records.request import RunRequest

BLAME_FORMAT = 1
BLAME_LIMITS: dict[str, tuple[int, int]] = {
    "passes": (50, 5000), "most_parts": (1, 6), "draws": (0, 40), "seed": SEEDS
}  # fmt: skip
Half = Literal["keys and values", "keys", "values"]
EXACT = re.compile(
    r"(?P<agent>\d{1,6})/(?P<segment>[^/;]{1,100})/(?P<first>\d{1,3})-(?P<last>\d{1,3})"
    rf"/(?P<half>{'|'.join(get_args(Half))})"
)
MOST_EXACT = 2000  # characters of such a line


@dataclass(frozen=True)
class BlameRequest:
    """Search what one agent's answer under one method depended on.

    Attributes:
        run: a pinned request that was run.
        method: a label of its methods; ``agent`` the one whose answer differs from dense's.
        passes: most caches that may be assembled and answered from, controls and map included.
        most_parts: most segments in a set.
        draws: random sets of the same size, as a control.
        seed: of the draws.
    """

    run: RunRequest
    method: str
    agent: int
    passes: int = 300
    most_parts: int = 4
    draws: int = 20
    seed: int = 0


@dataclass(frozen=True)
class Part:
    """A part of a prompt's cache: tokens ``[start, end)`` at layers ``first`` to ``last``, both included.
    ``segment`` is the span's name; empty for a part placed at random."""

    segment: str
    start: int
    end: int
    first: int
    last: int
    half: Half = "keys and values"

    @property
    def cells(self) -> int:
        """Tokens times layers, keys and values counted apart."""
        both = 2 if self.half == "keys and values" else 1
        return (self.end - self.start) * (self.last - self.first + 1) * both


def cells(parts: Iterable[Part]) -> int:
    """Size of parts that do not overlap; see :attr:`Part.cells`."""
    return sum(part.cells for part in parts)


def exact_text(agent: int, parts: Iterable[Part]) -> str:
    """Parts of an agent's cache as one line, by their segments' names: ``3/agent_2_current/1-2/keys``."""
    return ";".join(f"{agent}/{p.segment}/{p.first}-{p.last}/{p.half}" for p in parts)


def exact_parts(text: str) -> list[tuple[int, Part]]:
    """The inverse: agents and parts, not yet placed among a prompt's tokens.

    Raises:
        OptionError: it cannot be read so.
    """
    parts = []
    for line in filter(None, text.split(";")):
        pieces = EXACT.fullmatch(line)
        if pieces is None or int(pieces["first"]) > int(pieces["last"]):
            raise OptionError(
                f"{show(line)} names no part of a cache. Measure again, and repair what is found.",
                field="methods",
            )
        first, last = int(pieces["first"]), int(pieces["last"])
        half: Half = next(h for h in get_args(Half) if h == pieces["half"])
        parts.append((int(pieces["agent"]), Part(pieces["segment"], 0, 0, first, last, half)))
    return parts


@dataclass(frozen=True)
class Trial:
    """The answer from the method's cache with dense's KV in ``parts``.

    Attributes:
        text: the answer; ``answer`` and ``choice`` (a judge's candidate) are what can be read off it.
        restored: the verdict is dense's: both are the same, or the text where neither can be read off.
        log_odds: of dense's token over the method's where their answers part, in nats.
    """

    parts: tuple[Part, ...]
    text: str
    answer: str | None
    choice: str | None
    restored: bool
    log_odds: float


@dataclass(frozen=True)
class BlameRecord(Taxed):
    """The smallest set that was found, and all sets that were tried.

    Attributes:
        spans: the prompt's segments; ``tokens`` its length.
        dense: dense's own answer, read beside it; its ``log_odds`` are those of dense's own cache.
        nothing, everything: the answer with no part repaired, and with all of them.
        at: index of the first token of the answer that differs; ``dense_token``, ``method_token``: its text,
            "(end)" where the answer ended.
        trials: all that was tried in the search, in order.
        found: the smallest set that brought dense's verdict back; None when no set of the allowed size did.
        random: as many sets of the same size, placed at random where the caches differ.
        map: (segments, layers) log-odds when that part alone is repaired; rows as ``mapped``, spans' names.
            NaN where the budget was spent.
        passes: caches assembled and answered from; at most the request's.
        spent: the search itself was cut short by the budget.
    """

    request: BlameRequest
    model: ModelInfo
    spans: tuple[Span, ...]
    tokens: int
    dense: Trial
    nothing: Trial
    everything: Trial
    at: int
    dense_token: str
    method_token: str
    trials: tuple[Trial, ...]
    found: Trial | None
    random: tuple[Trial, ...]
    mapped: tuple[str, ...]
    map: Floats
    passes: int
    spent: bool
    wall_ms: float
    format: int = BLAME_FORMAT

    @property
    def share(self) -> float:
        """Of the cache's bytes, those of the set that was found; NaN without one."""
        whole = 2 * self.tokens * self.model.layers
        return cells(self.found.parts) / whole if self.found else math.nan

    def recovered(self, log_odds: float) -> float:
        """How much of the way from the method's log-odds (0) to dense's (1) was made."""
        way = self.dense.log_odds - self.nothing.log_odds
        return (log_odds - self.nothing.log_odds) / way if way else math.nan
