"""Other orders of the same texts: what a call reads in each, and what a prefix cache would then hit."""

from collections import Counter
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from backend.logs.call_pipeline import Section
from backend.logs.calls import STAYS, SYSTEM, TOOLS
from backend.logs.gather import Gathered
from backend.logs.pieces import Ids, messages_of
from backend.logs.prefixes import block_hits, shared_prefixes

TRIED = 5_000  # calls that a layout is tried on

#: A call's messages, each with its role and pieces.
Messages = list[tuple[str, list[int]]]
Layout = Callable[[int, Messages], Messages]


def steady(log: Gathered, keys: list[tuple[int, str]]) -> dict[tuple[int, str], set[int]]:
    """Of the calls with each key: the pieces that most of them have."""
    sizes = Counter(keys)
    counts: dict[tuple[int, str], Counter[int]] = {key: Counter() for key in sizes}
    for key, pieces in zip(keys, log.pieces, strict=True):
        counts[key].update(set(pieces.tolist()))
    return {
        key: {p for p, n in counts[key].items() if n >= STAYS * sizes[key]} if sizes[key] > 1 else set()
        for key in sizes
    }


class Layouts:
    """What a log's calls would be in other layouts.

    Args:
        log: its calls; the first ``TRIED`` are laid out.
        block: tokens of an engine's block.
    """

    def __init__(self, log: Gathered, block: int) -> None:
        self.log, self.block = log, block
        self.tried = min(len(log.pieces), TRIED)
        self._by_agent = steady(log, [(agent, "") for agent in log.agents])
        self._by_session = steady(log, list(zip(log.agents, log.sessions, strict=True)))
        self._agents_with = Counter(p for pieces in self._by_agent.values() for p in pieces)
        self._header = {role: piece for piece, role in log.headers.items()}
        self.named: dict[str, Layout] = {
            "sort the tools by name": self._sort_tools,
            "move what changes in the system prompt to the end": self._to_the_end,
            "put what stays before what changes in the first message": self._stays_first,
            "one common system prompt for all agents, what is theirs behind it": self._one_header,
            "all of these": self._everything,
        }

    def own(self, n: int) -> Messages:
        """A call as it was sent."""
        return messages_of(self.log.pieces[n].tolist(), self.log.headers)

    def sections(self, name: str, n: int) -> list[Section] | None:
        """What a model reads of a call in a layout; None where that is what was sent. A text that was moved
        behind all messages is the last one's end."""
        own, messages = self.own(n), self.named[name](n, self.own(n))
        if messages == own:
            return None
        if len(messages) > 1 and not messages[-1][0]:
            moved = messages.pop()[1]
            messages[-1] = (messages[-1][0], [*messages[-1][1], *moved])
        return [
            (role, self._joined(pieces, role == TOOLS or (role, pieces) in own))
            for role, pieces in messages
            if pieces
        ]

    def _joined(self, pieces: list[int], as_sent: bool) -> str:
        """A message's text. Where paragraphs were moved, each but the last has a blank line behind it."""
        texts = [self.log.texts[p] for p in pieces]
        if as_sent:
            return "".join(texts)
        return "".join(t if t.endswith("\n\n") else t + "\n\n" for t in texts).rstrip("\n")

    def saved(self, name: str) -> NDArray[np.int64] | None:
        """Of each tried call, the tokens that it would hit more (or less, below 0); None where the layout
        changes nothing."""
        own = [self.own(n) for n in range(self.tried)]
        moved = [self.named[name](n, messages) for n, messages in enumerate(own)]
        if moved == own:
            return None
        return self._hits([self._flat(messages) for messages in moved]) - self.before

    @cached_property
    def before(self) -> NDArray[np.int64]:
        """Of each tried call, the tokens that it hits as it was sent."""
        return self._hits(self.log.pieces[: self.tried])

    def _hits(self, calls: list[Ids]) -> NDArray[np.int64]:
        prefix, _ = shared_prefixes(calls, self.log.tokens)
        return block_hits(prefix, np.array([self.log.tokens.count(p) for p in calls], np.int64), self.block)

    def _flat(self, messages: Messages) -> Ids:
        header = self._header
        return np.array(
            [p for role, ps in messages for p in ([header[role], *ps] if role in header else ps)], np.int32
        )

    # -- the layouts -----------------------------------------------------------------------------------------

    def _rank(self, n: int, piece: int) -> int:
        """0: in all of the agent's calls, 1: in all of the session's, 2: changes."""
        agent = self.log.agents[n]
        if piece in self._by_agent[agent, ""]:
            return 0
        return 1 if piece in self._by_session[agent, self.log.sessions[n]] else 2

    def _sort_tools(self, n: int, messages: Messages) -> Messages:
        texts = self.log.texts
        return [(role, sorted(p, key=lambda i: texts[i]) if role == TOOLS else p) for role, p in messages]

    def _to_the_end(self, n: int, messages: Messages) -> Messages:
        moved = [p for role, pieces in messages if role == SYSTEM for p in pieces if self._rank(n, p) == 2]
        out = [
            (role, sorted((p for p in pieces if self._rank(n, p) < 2), key=lambda p: self._rank(n, p)))
            if role == SYSTEM
            else (role, pieces)
            for role, pieces in messages
        ]
        return [*out, ("", moved)] if moved else out

    def _stays_first(self, n: int, messages: Messages) -> Messages:
        first = next((i for i, (role, _) in enumerate(messages) if role not in (TOOLS, SYSTEM)), None)
        return [
            (role, sorted(pieces, key=lambda p: self._rank(n, p))) if place == first else (role, pieces)
            for place, (role, pieces) in enumerate(messages)
        ]

    def _one_header(self, n: int, messages: Messages) -> Messages:
        shared = self._agents_with
        common = [p for role, pieces in messages if role == SYSTEM for p in pieces if shared[p] > 1]
        rest = [(role, [p for p in ps if shared[p] < 2] if role == SYSTEM else ps) for role, ps in messages]
        return [(SYSTEM, common), *rest] if common else messages

    def _everything(self, n: int, messages: Messages) -> Messages:
        return self._one_header(n, self._stays_first(n, self._to_the_end(n, self._sort_tools(n, messages))))
