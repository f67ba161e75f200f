"""What stays and what changes in each agent's prompts; layouts that would share more, tried on the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.logs.gather import Gathered
from backend.logs.pieces import SYSTEM, TOOLS, Ids
from backend.logs.prefixes import block_hits, shared_prefixes

STAYS = 0.9  # share of an agent's calls that have a piece which stays
TRIED = 5_000  # calls that a layout is tried on
LONGEST_EXCERPT = 80


@dataclass(frozen=True)
class Part:
    """A run of pieces of a template; ``stays`` or changes; ``tokens`` and an excerpt of it in one call."""

    stays: bool
    tokens: int
    excerpt: str


@dataclass(frozen=True)
class Template:
    """An agent's prompt as its calls have it: what stays and what changes, in order, in one of its calls."""

    agent: str
    calls: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Advice:
    """A layout: ``saved`` tokens more than today's are hit, ``of`` all that were tried, in ``calls``."""

    layout: str
    saved: int
    of: int
    calls: int


def _steady(log: Gathered, keys: list[tuple[int, str]]) -> dict[tuple[int, str], set[int]]:
    """Of the calls with each key: the pieces that most of them have."""
    sizes = Counter(keys)
    counts: dict[tuple[int, str], Counter[int]] = {key: Counter() for key in sizes}
    for key, pieces in zip(keys, log.pieces, strict=True):
        counts[key].update(set(pieces.tolist()))
    return {
        key: {p for p, n in counts[key].items() if n >= STAYS * sizes[key]} if sizes[key] > 1 else set()
        for key in sizes
    }


def templates(log: Gathered, most: int = 24) -> list[Template]:
    """The agents' templates, those with most calls first."""
    steady = _steady(log, [(agent, "") for agent in log.agents])
    found = []
    for agent, count in Counter(log.agents).most_common(most):
        mine = [n for n, a in enumerate(log.agents) if a == agent]
        parts: list[Part] = []
        run: list[int] = []
        pieces = log.pieces[sorted(mine, key=lambda n: len(log.pieces[n]))[len(mine) // 2]].tolist()
        for place, piece in enumerate(pieces):
            run.append(piece)
            stays = piece in steady[agent, ""]
            if place + 1 == len(pieces) or (pieces[place + 1] in steady[agent, ""]) != stays:
                text = " ".join("".join(log.texts[p] for p in run[:3])[: 2 * LONGEST_EXCERPT].split())
                parts.append(Part(stays, log.tokens.count(np.array(run)), text[:LONGEST_EXCERPT]))
                run = []
        found.append(Template(log.names[agent], count, tuple(parts)))
    return found


Layout = Callable[[int, list[tuple[str, list[int]]]], list[tuple[str, list[int]]]]


def advise(log: Gathered, totals: NDArray[np.int64], anywhere: NDArray[np.int64], block: int) -> list[Advice]:
    """Every layout that hits more than the log's own, the best first."""
    tried = min(len(log.pieces), TRIED)
    by_agent = _steady(log, [(agent, "") for agent in log.agents])
    by_session = _steady(log, list(zip(log.agents, log.sessions, strict=True)))
    agents_with = Counter(p for pieces in by_agent.values() for p in pieces)
    header = {role: piece for piece, role in log.headers.items()}

    def rank(n: int, piece: int) -> int:
        """0: in all of the agent's calls, 1: in all of the session's, 2: changes."""
        agent = log.agents[n]
        return 0 if piece in by_agent[agent, ""] else 1 if piece in by_session[agent, log.sessions[n]] else 2

    def sort_tools(n: int, messages: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
        return [(role, sorted(p, key=lambda i: log.texts[i]) if role == TOOLS else p) for role, p in messages]

    def to_the_end(n: int, messages: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
        moved = [p for role, pieces in messages if role == SYSTEM for p in pieces if rank(n, p) == 2]
        out = [
            (role, sorted((p for p in pieces if rank(n, p) < 2), key=lambda p: rank(n, p)))
            if role == SYSTEM
            else (role, pieces)
            for role, pieces in messages
        ]
        return [*out, ("", moved)] if moved else out

    def stays_first(n: int, messages: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
        first = next((i for i, (role, _) in enumerate(messages) if role not in (TOOLS, SYSTEM)), None)
        return [
            (role, sorted(pieces, key=lambda p: rank(n, p))) if place == first else (role, pieces)
            for place, (role, pieces) in enumerate(messages)
        ]

    def one_header(n: int, messages: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
        common = [p for role, pieces in messages if role == SYSTEM for p in pieces if agents_with[p] > 1]
        rest = [
            (role, [p for p in ps if agents_with[p] < 2] if role == SYSTEM else ps) for role, ps in messages
        ]
        return [(SYSTEM, common), *rest] if common else messages

    def everything(n: int, messages: list[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
        return one_header(n, stays_first(n, to_the_end(n, sort_tools(n, messages))))

    layouts: dict[str, Layout] = {
        "sort the tools by name": sort_tools,
        "move what changes in the system prompt to the end": to_the_end,
        "put what stays before what changes in the first message": stays_first,
        "one common system prompt for all agents, what is theirs behind it": one_header,
        "all of these": everything,
    }  # fmt: skip
    before = int(_hits(log, log.pieces[:tried], block))
    total = int(totals[:tried].sum())
    found = []
    own = [_messages(pieces, log.headers) for pieces in log.pieces[:tried]]
    for name, layout in layouts.items():
        made = [layout(n, messages) for n, messages in enumerate(own)]
        if made != own:
            calls = [np.array(_flat(messages, header), np.int32) for messages in made]
            found.append(Advice(name, _hits(log, calls, block) - before, total, tried))
    reused = int(anywhere[:tried].sum()) - before
    found.append(
        Advice("cut at paragraphs and reuse each wherever it stands (needs a method)", reused, total, tried)
    )
    return sorted((a for a in found if a.saved > 0), key=lambda a: -a.saved)


def _messages(pieces: Ids, headers: dict[int, str]) -> list[tuple[str, list[int]]]:
    out: list[tuple[str, list[int]]] = []
    for piece in pieces.tolist():
        if piece in headers:
            out.append((headers[piece], []))
        elif out:
            out[-1][1].append(piece)
        else:
            out.append(("", [piece]))
    return out


def _flat(messages: list[tuple[str, list[int]]], header: dict[str, int]) -> list[int]:
    return [p for role, pieces in messages for p in ([header[role], *pieces] if role in header else pieces)]


def _hits(log: Gathered, calls: list[Ids], block: int) -> int:
    prefix, _ = shared_prefixes(calls, log.tokens)
    return int(block_hits(prefix, np.array([log.tokens.count(p) for p in calls], np.int64), block).sum())
