"""Where segments begin and end (segment reuse, "Segment discovery and indexing").

Two kinds: *pieces* between marks of the agent's scaffold ("Thought:", "Action:", "Observation:", a tool's
bracketed arguments) and after punctuation, and *windows* of fixed size that overlap by half, for what repeats
without being marked. Readings of open points: pieces between scaffold marks alone (whole turns) and pieces
between all marks are both candidates; windows begin at the prompt's first token.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

SCAFFOLD = re.compile(
    r"\n*\b(?:Thought|Action(?: Input)?|Observation|Question|Final Answer)\b ?\d*:", re.IGNORECASE
)
ARGUMENT = re.compile(r"\[[^\[\]\n]*\]")
PUNCTUATION = re.compile(r"[.!?;](?=\s)|\n")


@dataclass(frozen=True)
class CutRules:
    """How long segments may be. ``window``: 0 makes none."""

    minimum: int = 24
    maximum: int = 256
    window: int = 64


@dataclass(frozen=True, order=True)
class Cut:
    """Tokens ``[start, end)`` of a prompt."""

    start: int
    end: int

    @property
    def tokens(self) -> int:
        return self.end - self.start


def cuts(texts: Sequence[str], rules: CutRules) -> tuple[Cut, ...]:
    """Every candidate segment of a prompt, each once, in order; they overlap.

    Args:
        texts: what each token reads.
        rules: lengths; a shorter or longer piece is left out.
    """
    total, turns, pieces = len(texts), *_borders(texts)
    candidates = {Cut(a, b) for borders in (turns, turns | pieces) for a, b in pairwise(sorted(borders))}
    if rules.window:
        step = max(1, rules.window // 2)
        candidates |= {Cut(a, a + rules.window) for a in range(0, total - rules.window + 1, step)}
    return tuple(sorted(cut for cut in candidates if rules.minimum <= cut.tokens <= rules.maximum))


def _borders(texts: Sequence[str]) -> tuple[set[int], set[int]]:
    """Token indices before which a turn, and a smaller piece, begins."""
    text, total = "".join(texts), len(texts)
    ends = list(accumulate(map(len, texts)))

    def token_at(place: int) -> int:
        """The token that a character belongs to."""
        return bisect_right(ends, place)

    turns = {0, total} | {token_at(mark.start()) for mark in SCAFFOLD.finditer(text)}
    pieces = {token_at(mark.end() - 1) + 1 for mark in SCAFFOLD.finditer(text)}
    for mark in ARGUMENT.finditer(text):
        pieces |= {token_at(mark.start()) + 1, token_at(mark.end() - 1)}
    pieces |= {token_at(mark.start()) + 1 for mark in PUNCTUATION.finditer(text)}
    return turns, pieces
