"""What a cache of prefixes would hit: the longest beginning that an earlier call had, and an engine's blocks.

Calls are walked in a tree of pieces; where a call leaves it, its next piece is compared token by token with
its neighbours there, in the order of their tokens, among which the longest match has to be. (A few tokens may
be missed where a text ends in one call and goes on in another, so that it is cut differently.)
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from backend.logs.pieces import Ids, Tokens

Counts = NDArray[np.int64]
_SEED = 20_250


class PrefixTree:
    """All calls so far. A branch of a single call is stored as that call's number."""

    def __init__(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._calls: list[Ids] = []
        self._next: dict[int, int] = {}  # node and piece: the node behind it, or -1 - the only call there
        self._pieces: list[list[int]] = [[]]  # of each node: the next pieces, in the order of their tokens
        self._through: list[int] = [-1]  # of each node: a call that went through it

    def add(self, pieces: Ids) -> tuple[int, int]:
        """Add a call; returns the tokens of its longest shared beginning, and the earlier call (-1: none)."""
        number, node, depth, path = len(self._calls), 0, 0, pieces.tolist()
        self._calls.append(pieces)
        for piece in path:
            key = node << 32 | piece
            following = self._next.get(key)
            if following is None:
                break
            node = self._opened(key, -1 - following, depth) if following < 0 else following
            depth += 1
        shared = self.tokens.count(pieces[:depth])
        if depth == len(path):
            return shared, self._through[node]
        near, donor = self._nearest(node, pieces, depth)
        row = self._pieces[node]
        row.insert(bisect_left(row, self._order(path[depth]), key=self._order), path[depth])
        self._next[node << 32 | path[depth]] = -1 - number
        return shared + near, donor if near or not depth else self._through[node]

    def _opened(self, key: int, call: int, depth: int) -> int:
        """Make the branch of one call a node, with that call's next piece behind it."""
        node = self._next[key] = len(self._pieces)
        behind = self._calls[call][depth + 1 : depth + 2].tolist()
        self._pieces.append(behind)
        self._through.append(call)
        for piece in behind:
            self._next[node << 32 | piece] = -1 - call
        return node

    def _order(self, piece: int) -> bytes:
        start = self.tokens.starts[piece]
        return self.tokens.flat[start : start + self.tokens.lengths[piece]].astype(">u4").tobytes()

    def _nearest(self, node: int, pieces: Ids, depth: int) -> tuple[int, int]:
        """The longest match behind a node, in tokens, and the call that has it."""
        row, best, donor = self._pieces[node], 0, -1
        place = bisect_left(row, self._order(int(pieces[depth])), key=self._order)
        for piece in row[max(0, place - 1) : place + 1]:
            following = self._next[node << 32 | piece]
            call = -1 - following if following < 0 else self._through[following]
            match = self._match(pieces[depth:], self._calls[call][depth:])
            if match > best:
                best, donor = match, call
        return best, donor

    def _match(self, one: Ids, other: Ids) -> int:
        first = common(self.tokens.of(one[:1]), self.tokens.of(other[:1]))
        if first < min(self.tokens.lengths[one[0]], self.tokens.lengths[other[0]]):
            return first
        return common(self.tokens.of(one), self.tokens.of(other))  # a piece ends: the texts may go on alike


def common(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> int:
    """How many tokens two rows begin with alike."""
    size = min(len(one), len(other))
    different = one[:size] != other[:size]
    return int(different.argmax()) if different.any() else size


def shared_prefixes(calls: Sequence[Ids], tokens: Tokens) -> tuple[Counts, Counts]:
    """Of each call, the tokens of its longest beginning that an earlier one had, and that one (-1: none)."""
    tree = PrefixTree(tokens)
    rows = np.array([tree.add(pieces) for pieces in calls], np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def block_hits(prefix: Counts, totals: Counts, block: int) -> Counts:
    """Tokens that an unlimited cache of whole blocks hits. A prompt's last token is computed anyway."""
    return np.minimum(prefix, np.maximum(totals - 1, 0)) // block * block


def lru_hits(calls: Sequence[Ids], tokens: Tokens, block: int, capacity: int) -> Counts:
    """The same with a cache of ``capacity`` blocks that evicts the least recently used, and of one call its
    last block first, as vLLM does. While a call is read, its unfinished last block takes room too; no call
    hits that, and it is freed first."""
    rng = np.random.default_rng(_SEED)
    weights = rng.integers(1, 1 << 63, block, np.uint64) | np.uint64(1)
    places = np.zeros(0, np.uint64)
    cache: dict[int, None] = {}
    hits = np.zeros(len(calls), np.int64)
    for number, pieces in enumerate(calls):
        ids = tokens.of(pieces)
        whole = len(ids) // block
        if whole > len(places):
            places = np.concatenate([places, rng.integers(1, 1 << 63, 2 * whole, np.uint64) | np.uint64(1)])
        mixed = (ids[: whole * block].reshape(whole, block) + np.uint64(1)) @ weights
        mixed ^= mixed >> np.uint64(29)
        chain = (mixed * places[:whole]).cumsum().tolist()  # a block's name depends on all before it
        # With a block in the cache are all before it: they were read with it and are evicted later.
        count = bisect_left(chain, True, hi=(len(ids) - 1) // block, key=lambda name: name not in cache)
        hits[number] = count * block
        deque(map(cache.pop, chain, repeat(None)), 0)  # the most recently used stand last
        cache.update(dict.fromkeys(reversed(chain)))
        while len(cache) > capacity - bool(len(ids) % block):
            del cache[next(iter(cache))]
    return hits
