"""Two engines' answers to the same calls: where they part, is it rounding or something else?

Two engines never add in the same order, so their log probabilities differ a little everywhere, and where two
tokens are nearly as likely, greedy decoding takes one here and the other there. Such a parting is rounding if
the gap between the two tokens is small under both engines, compared with how far their log probabilities of
the same tokens lie apart before it.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from backend.base.errors import OptionError
from backend.base.text import common_prefix
from backend.logs.calls import Call, Chance

#: A parting is a near tie where both gaps are below so many times the usual difference; as in a run's record.
NEAR_TIE = 10.0
#: Both gaps are small; a gap is not; one engine does not say how likely the other's token is; no log
#: probabilities at all.
Kind = Literal["near tie", "divergence", "unknown", "without log probabilities"]
KINDS: tuple[Kind, ...] = ("near tie", "divergence", "unknown", "without log probabilities")


@dataclass(frozen=True)
class Parting:
    """Two answers to one call that part.

    Attributes:
        at: number of the first token that differs; ``one``, ``other`` what it is ("" where the answer ended).
        gaps: of each engine, by how many nats its own token is likelier to it than the other's, at least.
    """

    where: str
    beside: str
    kind: Kind
    at: int
    one: str
    other: str
    gaps: tuple[float | None, float | None]


@dataclass(frozen=True)
class TwoEngines:
    """All calls of two logs.

    Attributes:
        pairs: calls that both have; ``left``: those that only the first has, and only the second.
        same: pairs with the same answer.
        tokens: that both answered alike, with log probabilities; ``usual`` and ``largest``: the median and
            the largest difference of these, in nats.
        limit: gaps below it, in nats, count as near ties.
        partings: the others, the widest gap first.
    """

    pairs: int
    left: tuple[int, int]
    same: int
    tokens: int
    usual: float
    largest: float
    limit: float
    partings: list[Parting]

    def count(self, kind: Kind) -> int:
        """Partings of this kind."""
        return sum(parting.kind == kind for parting in self.partings)

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "kinds": {kind: self.count(kind) for kind in KINDS}}


def two_engines(one: Iterable[Call], other: Iterable[Call], limit: float | None = None) -> TwoEngines:
    """Compare two logs of the same calls. Calls with the same prompt are paired in their order.

    Args:
        limit: gap in nats below which a parting is a near tie; without one, :data:`NEAR_TIE` times the median
            difference of what both answered alike.

    Raises:
        OptionError: the limit is out of range.
    """
    if limit is not None and not 0 <= limit <= 100:
        raise OptionError(f"The limit of a near tie is {limit}; 0 to 100 nats are allowed.", field="near-tie")
    waiting: dict[int, list[Call]] = defaultdict(list)
    for call in other:
        waiting[_prompt(call)].append(call)
    for same in waiting.values():
        same.reverse()
    pairs: list[tuple[Call, Call]] = []
    alone = 0
    for call in one:
        if calls := waiting.get(_prompt(call)):
            pairs.append((call, calls.pop()))
        else:
            alone += 1
    differences = [gap for a, b in pairs for gap in _differences(a.chances, b.chances)]
    usual = float(np.median(differences)) if differences else 0.0
    limit = NEAR_TIE * usual if limit is None else limit
    partings = [_parting(a, b, limit) for a, b in pairs if a.output != b.output]
    partings.sort(key=lambda p: -max((gap for gap in p.gaps if gap is not None), default=0.0))
    return TwoEngines(
        len(pairs), (alone, sum(map(len, waiting.values()))), len(pairs) - len(partings), len(differences),
        usual, max(differences, default=0.0), limit, partings,
    )  # fmt: skip


def _prompt(call: Call) -> int:
    return hash((call.tools, call.messages))


def _alike(one: Sequence[Chance], other: Sequence[Chance]) -> int:
    return common_prefix([chance.token for chance in one], [chance.token for chance in other])


def _differences(one: Sequence[Chance], other: Sequence[Chance]) -> list[float]:
    """Of the tokens before two answers part, how far their log probabilities lie apart."""
    count = _alike(one, other)
    pairs = zip(one[:count], other[:count], strict=True)
    return [abs(a.log_probability - b.log_probability) for a, b in pairs]


def _parting(one: Call, other: Call, limit: float) -> Parting:
    at = _alike(one.chances, other.chances)
    first, second = (call.chances[at] if at < len(call.chances) else None for call in (one, other))
    gaps = (_gap(first, second), _gap(second, first))
    numbers = [gap for gap in gaps if gap is not None]
    kind: Kind
    if not one.chances or not other.chances:
        kind = "without log probabilities"
    elif any(gap > limit for gap in numbers):
        kind = "divergence"
    else:
        kind = "near tie" if _has_other(first, second) and _has_other(second, first) else "unknown"
    names = [chance.token if chance else "" for chance in (first, second)]
    return Parting(one.where, other.where, kind, at, names[0], names[1], gaps)


def _has_other(own: Chance | None, others: Chance | None) -> bool:
    """Whether an engine says how likely the other's token is to it."""
    return own is not None and others is not None and others.token in dict(own.likely)


def _gap(own: Chance | None, others: Chance | None) -> float | None:
    """By how much an engine's own token is likelier to it than the other's. Where the other's is not among
    its likeliest, by how much it is at least."""
    if own is None or others is None or not own.likely:
        return None
    likely = dict(own.likely)
    return own.log_probability - likely.get(others.token, min(likely.values()))
