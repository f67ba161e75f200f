"""Tokens computed against answers flipped: what compositions of methods cost and keep. Free of torch.

*Flips* are answers (a judge's: selections) that are not the full read's. *Cost* is prompt tokens forwarded,
as a share of the full read's; the texts' own caches exist before. Both are over all tasks and modes, as many
problems of each. Shares have exact 95% intervals (Clopper and Pearson), costs the bootstrap's.
"""

from dataclasses import dataclass

from backend.base.statistics import Share

AGREE = " | "  # a | b: both read; where their answers differ, the full read's is taken


@dataclass(frozen=True)
class FrontierPoint:
    """One composition.

    Attributes:
        parts: decisions that it takes beside reading the prompt: reuse, choice, gate, and the second reading.
        round: the last one in which it was measured, from 1.
        on: on the Pareto frontier of the last round, by cost and flips.
    """

    method: str
    parts: int
    flips: int
    share: Share
    cost: Share
    round: int
    on: bool = False


@dataclass(frozen=True)
class Ahead:
    """The chosen composition beside another row, on problems that the choice did not use.

    Attributes:
        difference: flips of the chosen one less those of the row at equal tokens computed, in shares: the
            cheaper of the two spends what it saved on full reads of problems at random. Its interval is
            corrected for everything that was tried (Bonferroni); below 0 the chosen one is ahead.
    """

    row: FrontierPoint
    difference: Share


@dataclass(frozen=True)
class Frontier:
    """A search's result.

    Attributes:
        rounds: problems of each cell, round by round; ``cells`` tasks and modes.
        tried: compositions, those of two readings among them.
        limit: the largest cost that may win.
        points: of the last round first, by cost.
        best: of the last round the fewest flips within ``limit``; ``simplest`` the fewest parts among those
            whose flips are not clearly more than its own (McNemar's exact test, 5%, each for itself).
        confirmed: the best one on other problems (``held_out`` says on how many of which cells), and
            ``against`` the rows it is compared with.
    """

    name: str
    title: str
    cells: tuple[str, ...]
    rounds: tuple[int, ...]
    tried: int
    limit: float
    points: tuple[FrontierPoint, ...]
    best: str = ""
    simplest: str = ""
    complete: bool = True
    held_out: tuple[str, ...] = ()
    confirmed: FrontierPoint | None = None
    against: tuple[Ahead, ...] = ()

    @property
    def ahead(self) -> bool:
        """Is the best one ahead of every row that it was compared with?"""
        return bool(self.against) and all(x.difference.high < 0 for x in self.against)
