"""A radix tree over token ids: the KV of earlier prompts, with shared prefixes stored once.

A node holds the tokens of its edge and a copy of their KV, position-free, so evicting a node frees its bytes.
Prompts of one *key* (trust domain, weights) share a root; those of other keys are never found. Eviction takes
the least recently used leaf, as SGLang's RadixAttention does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from weakref import ReferenceType, ref

from backend.cache.kv_cache import KVSegment

Key = tuple[str, str]


@dataclass(eq=False)
class _Node:
    ids: tuple[int, ...]
    segment: KVSegment | None  # None in a root, which has no tokens
    # Weak, so that dropping a tree frees its tensors at once and not at the next garbage collection.
    parent_ref: ReferenceType[_Node] | None
    children: dict[int, _Node] = field(default_factory=dict)  # by their first token

    @property
    def parent(self) -> _Node:
        """The node above, which holds this one."""
        node = self.parent_ref() if self.parent_ref is not None else None
        assert node is not None
        return node


class PrefixTree:
    """Prompts of one or several keys within a byte budget.

    Attributes:
        bytes: held now; at most the budget after an insertion.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.bytes = 0
        self._roots: dict[Key, _Node] = {}
        # By last use, and on one path the deeper node first, so the first node is always a leaf.
        self._order: OrderedDict[_Node, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def longest(self, key: Key, ids: Sequence[int]) -> tuple[KVSegment, ...]:
        """The KV of the longest stored prefix of ``ids``, as consecutive pieces (views); empty if there is
        none."""
        path = list(self._walk(key, ids))
        self._touch([node for node, _ in path])
        return tuple(node.segment.slice(0, tokens) for node, tokens in path if node.segment)

    def insert(self, key: Key, ids: Sequence[int], segment: KVSegment) -> None:
        """Store the part of a prompt that is new, then evict down to the budget.

        Args:
            key: of the prompt.
            ids: its tokens.
            segment: their KV, exact, from position 0 on; the new part is copied.
        """
        nodes = list(self._walk(key, ids))
        path, shared = [node for node, _ in nodes], sum(tokens for _, tokens in nodes)
        if nodes and nodes[-1][1] < len(path[-1].ids):
            path[-1] = self._split(*nodes[-1])
        if shared < len(ids):
            parent = path[-1] if path else self._roots.setdefault(key, _Node((), None, None))
            path.append(self._add(parent, tuple(ids[shared:]), _copy(segment, shared, len(ids))))
        self._touch(path)
        self.shrink(self.budget_bytes)

    def shrink(self, budget_bytes: int) -> None:
        """Evict leaves, least recently used first, until at most ``budget_bytes`` remain."""
        while self.bytes > budget_bytes and self._order:
            node = next(iter(self._order))
            assert node.segment is not None
            assert not node.children
            del node.parent.children[node.ids[0]], self._order[node]
            self.bytes -= node.segment.bytes

    def _walk(self, key: Key, ids: Sequence[int]) -> Iterator[tuple[_Node, int]]:
        """Nodes along ``ids``, each with the number of its tokens that agree; only the last may agree in
        part."""
        node, at = self._roots.get(key), 0
        while node is not None and at < len(ids):
            node = node.children.get(ids[at])
            if node is None:
                return
            pairs = zip(node.ids, ids[at:], strict=False)
            count = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            yield node, count
            if count < len(node.ids):
                return
            at += count

    def _touch(self, path: Sequence[_Node]) -> None:
        for node in reversed(path):
            self._order.move_to_end(node)

    def _add(self, parent: _Node, ids: tuple[int, ...], segment: KVSegment) -> _Node:
        node = parent.children[ids[0]] = _Node(ids, segment, ref(parent))
        self._order[node] = None
        self.bytes += segment.bytes
        return node

    def _split(self, node: _Node, at: int) -> _Node:
        """Divide a node before its token ``at``; returns the upper node. The KV of both is copied."""
        assert node.segment is not None
        self.bytes -= node.segment.bytes
        upper = self._add(node.parent, node.ids[:at], _copy(node.segment, 0, at))
        node.segment = _copy(node.segment, at, len(node.ids))
        self.bytes += node.segment.bytes
        node.ids, node.parent_ref = node.ids[at:], ref(upper)
        upper.children[node.ids[0]] = node
        return upper


def _copy(segment: KVSegment, start: int, end: int) -> KVSegment:
    piece = segment.slice(start, end)
    return KVSegment(piece.keys.clone(), piece.values.clone(), piece.start, piece.exact, piece.context)
