"""From verified segments to grafts: which prompt tokens get whose KV, and what of them is left to be read
afresh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from backend.methods.segments.minhash import blocks
from backend.methods.segments.store import SegmentMatch, StoredSegment


@dataclass(frozen=True)
class Graft:
    """Prompt tokens ``[start, end)`` get the KV of a stored segment's tokens from ``at`` on.

    ``exact``: a dense pass would give the same, for the prompts agree up to here.
    """

    start: int
    end: int
    stored: StoredSegment
    at: int
    exact: bool

    @property
    def tokens(self) -> int:
        return self.end - self.start

    def part(self, start: int, end: int) -> Graft:
        """Its prompt tokens within ``[start, end)``."""
        first, last = max(start, self.start), min(end, self.end)
        return replace(self, start=first, end=last, at=self.at + first - self.start)

    def follows(self, other: Graft) -> bool:
        """Did it follow ``other`` in their source prompt as it does here? Then there is no edge between
        them."""
        if self.start != other.end:
            return False
        if self.exact and other.exact:
            return True
        return self.stored.source == other.stored.source and self._moved == other._moved

    @property
    def _moved(self) -> int:
        return self.start - self.at - self.stored.start


@dataclass(frozen=True)
class Run:
    """Grafts without an edge between them; ``grafts`` are what is copied of prompt tokens ``[start,
    end)``."""

    start: int
    end: int
    grafts: tuple[Graft, ...]


def cover(matches: Sequence[SegmentMatch], limit: int) -> tuple[Run, ...]:
    """Cover as much as can be, each token once: what stands behind the same beginning first, then
    the longest.

    Args:
        matches: verified segments; they may overlap.
        limit: no token from here on is grafted.
    """
    chosen: list[Graft] = []
    free = [True] * limit
    for match in sorted(matches, key=_rank, reverse=True):
        for at, begin, size in blocks(match.stored.ids, match.content):
            # up to the first token that differs, the two prompts are one
            exact = match.beginning and at == begin == 0 and match.stored.exact and not match.stored.packed
            whole = Graft(match.cut.start + begin, match.cut.start + begin + size, match.stored, at, exact)
            places = range(whole.start, min(whole.end, limit))
            for is_free, group in groupby(places, key=lambda place: free[place]):
                if is_free:
                    stretch = list(group)
                    chosen.append(whole.part(stretch[0], stretch[-1] + 1))
                    free[stretch[0] : stretch[-1] + 1] = [False] * len(stretch)
    out: list[list[Graft]] = []
    for graft in sorted(chosen, key=lambda g: g.start):
        if out and graft.follows(out[-1][-1]):
            out[-1].append(graft)
        else:
            out.append([graft])
    return tuple(Run(run[0].start, run[-1].end, tuple(run)) for run in out)


def _rank(match: SegmentMatch) -> tuple[bool, int, float, float, int]:
    return match.beginning, match.cut.tokens, match.similarity, match.context, -match.cut.start


def without_halo(runs: Sequence[Run], halo: int, both: bool) -> tuple[Run, ...]:
    """Leave ``halo`` tokens at the left end of each run, and at the right one if ``both``, to be read afresh;
    an end that a dense pass would give the same needs none. Runs of which nothing remains are left out."""
    out = []
    for run in runs:
        first = run.start + (0 if run.grafts[0].exact else halo)
        last = run.end - (halo if both and not run.grafts[-1].exact else 0)
        inside = tuple(g.part(first, last) for g in run.grafts if g.start < last and g.end > first)
        if first < last and inside:
            out.append(replace(run, grafts=inside))
    return tuple(out)


def labels(total: int, runs: Sequence[Run], rejected: Sequence[tuple[int, int]]) -> list[str]:
    """What each token is: "graft", "edge", "rejected" (a similar segment failed verification) or ""."""
    out = [""] * total
    for start, end in rejected:
        out[start:end] = ["rejected"] * (end - start)
    for run in runs:
        out[run.start : run.end] = ["edge"] * (run.end - run.start)
        for graft in run.grafts:
            out[graft.start : graft.end] = ["graft"] * graft.tokens
    return out
