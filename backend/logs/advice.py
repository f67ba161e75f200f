"""What stays and what changes in each agent's prompts; which layouts would share more."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.logs.gather import Gathered
from backend.logs.layouts import Layouts, steady

CUT = "cut at paragraphs and reuse each wherever it stands (needs a method)"
LONGEST_EXCERPT = 80
MOST_TEMPLATES = 24


@dataclass(frozen=True)
class Part:
    """Neighbouring pieces of a template that all stay or all change; size and excerpt are from one call."""

    stays: bool
    tokens: int
    excerpt: str


@dataclass(frozen=True)
class Template:
    """What stays and what changes in an agent's prompts, in the order of one of its calls."""

    agent: str
    calls: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Advice:
    """A layout that hits ``saved`` tokens more than the log's own, ``of`` all tokens of the tried calls."""

    layout: str
    saved: int
    of: int
    calls: int


def templates(log: Gathered) -> list[Template]:
    """The templates of the agents with most calls, in that order."""
    staying = steady(log, [(agent, "") for agent in log.agents])
    out = []
    for agent, count in Counter(log.agents).most_common(MOST_TEMPLATES):
        calls = [n for n, a in enumerate(log.agents) if a == agent]
        parts: list[Part] = []
        run: list[int] = []
        pieces = log.pieces[sorted(calls, key=lambda n: len(log.pieces[n]))[len(calls) // 2]].tolist()
        for place, piece in enumerate(pieces):
            run.append(piece)
            stays = piece in staying[agent, ""]
            if place + 1 == len(pieces) or (pieces[place + 1] in staying[agent, ""]) != stays:
                text = " ".join("".join(log.texts[p] for p in run[:3])[: 2 * LONGEST_EXCERPT].split())
                parts.append(Part(stays, log.tokens.count(np.array(run)), text[:LONGEST_EXCERPT]))
                run = []
        out.append(Template(log.names[agent], count, tuple(parts)))
    return out


def advise(log: Gathered, totals: NDArray[np.int64], anywhere: NDArray[np.int64], block: int) -> list[Advice]:
    """Every layout that hits more than the log's own, the best first."""
    layouts = Layouts(log, block)
    tried, total = layouts.tried, int(totals[: layouts.tried].sum())
    saved = {name: layouts.saved(name) for name in layouts.named}
    gains = {name: int(more.sum()) for name, more in saved.items() if more is not None}
    gains[CUT] = int(anywhere[:tried].sum() - layouts.before.sum())
    rows = [Advice(name, more, total, tried) for name, more in gains.items() if more > 0]
    return sorted(rows, key=lambda row: -row.saved)
