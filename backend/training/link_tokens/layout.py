"""One training sequence: its tokens, their positions and the attention mask (KVLink, Fig. 2, 4 and 7).

Document tokens attend to their own document alone: no system prompt, no begin-of-sequence token, no link.
Link tokens and all other tokens attend to everything before them. With anchors, a document's tokens attend to
their chunk, an anchor to its chunk and the document's earlier anchors, and all others to the anchors alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from backend.model.link_tokens import NO_SOFT, Links, anchors_of

NO_DOCUMENT = -1  # the owner of what belongs to no document
PADDING = -2


@dataclass
class Layout:
    """One example in the making; all lists are equally long.

    ``soft``: the row of the links' table that stands in for the token, or ``NO_SOFT``. ``owner``: the
    document's index or ``REST``. ``chunk``: of a document's token. ``anchor``: is it one? ``weight``: of its
    loss.
    ``position``: RoPE position; text that anchors replace shares the positions before it, and only its
    anchors attend to it.
    """

    ids: list[int] = field(default_factory=list)
    soft: list[int] = field(default_factory=list)
    owner: list[int] = field(default_factory=list)
    chunk: list[int] = field(default_factory=list)
    anchor: list[bool] = field(default_factory=list)
    weight: list[float] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    next: int = 0  # position of what comes next

    def add(
        self,
        ids: Sequence[int],
        owner: int = NO_DOCUMENT,
        chunk: int = 0,
        weight: float = 0.0,
        *,
        dropped: bool = False,
    ) -> None:
        """Text tokens; ``dropped`` ones take no positions."""
        count = len(ids)
        first = self.next - count if dropped else self.next
        self.ids += ids
        self.soft += [NO_SOFT] * count
        self.owner += [owner] * count
        self.chunk += [chunk] * count
        self.anchor += [False] * count
        self.weight += [weight] * count
        self.position += range(first, first + count)
        self.next = first + count

    def add_soft(
        self, rows: Sequence[int], owner: int = NO_DOCUMENT, chunk: int = 0, *, anchors: bool = False
    ) -> None:
        """Trained tokens; ``anchors``: later tokens attend to them instead of the document."""
        start = len(self.ids)
        self.add([0] * len(rows), owner, chunk)
        self.soft[start:] = rows
        self.anchor[start:] = [anchors] * len(rows)


def put_document(layout: Layout, ids: Sequence[int], index: int, links: Links) -> None:
    """A separately encoded document with its anchors and link tokens."""
    if links.compression == "anchors":
        for number, (start, end, anchors) in enumerate(anchors_of(len(ids), links.rate, links.chunk_tokens)):
            layout.add(ids[start:end], index, number, dropped=True)
            layout.add_soft([links.row("anchor", a) for a in range(anchors)], index, number, anchors=True)
    elif links.compression == "packet":
        rows = [links.row("anchor", a) for a in range(len(links.anchor_tokens))]
        layout.add_soft(rows[: len(rows) // 2], index)
        layout.add(ids, index)
        layout.add_soft(rows[len(rows) // 2 :], index)
    else:
        layout.add(ids, index)
    layout.add_soft([links.row("link", index, token) for token in range(links.tokens)])


def lay_out(
    pieces: Sequence[tuple[Sequence[int], bool]], answer: Sequence[int], links: Links | None
) -> Layout:
    """One example.

    Args:
        pieces: the prompt's token ids in order, each with: is it a separately encoded document?
        answer: what to learn, its end token included.
        links: None reads everything densely, as one text.
    """
    layout = Layout()
    documents = sum(separate for _, separate in pieces) if links is not None else 0
    index = 0
    for ids, separate in pieces:
        if links is None or not separate:
            layout.add(ids)
            continue
        if index == 0 and len(links.edges):
            layout.add_soft([links.row("edge", 0)])
        put_document(layout, ids, index, links)
        index += 1
        if index == documents and len(links.edges):
            layout.add_soft([links.row("edge", 1)])
    layout.add(answer, weight=1.0)
    return layout


@dataclass(frozen=True)
class Batch:
    """Sequences of one batch, padded at the right; all (rows, tokens) but ``mask`` (rows, tokens, tokens):
    may the row's token look at the column's?"""

    ids: Tensor
    soft: Tensor
    position: Tensor
    weight: Tensor
    mask: Tensor

    def to(self, device: Any) -> Batch:
        """The same on a device."""
        return Batch(*(x.to(device) for x in (self.ids, self.soft, self.position, self.weight, self.mask)))


def batch(sequences: Sequence[Layout]) -> Batch:
    """Sequences to tensors."""
    longest = max(len(s.ids) for s in sequences)

    def stack(name: str, fill: Any, dtype: torch.dtype) -> Tensor:
        rows = [[*getattr(s, name), *([fill] * (longest - len(s.ids)))] for s in sequences]
        return torch.tensor(rows, dtype=dtype)

    owner = stack("owner", PADDING, torch.long)
    return Batch(
        stack("ids", 0, torch.long),
        stack("soft", NO_SOFT, torch.long),
        stack("position", 0, torch.long),
        stack("weight", 0.0, torch.float32),
        visibility(owner, stack("chunk", 0, torch.long), stack("anchor", False, torch.bool)),
    )


def visibility(owner: Tensor, chunk: Tensor, anchor: Tensor) -> Tensor:
    """(rows, tokens, tokens): may the row's token look at the column's? Arguments (rows, tokens)."""
    reader, source = owner[:, :, None], owner[:, None]
    both_anchors = anchor[:, :, None] & anchor[:, None]
    same_chunk = chunk[:, :, None] == chunk[:, None]
    within = (reader == source) & (same_chunk | both_anchors)
    # of a document with anchors, later tokens attend to these alone
    compressed = anchor.any(dim=1, keepdim=True)[:, None] & (source >= 0) & ~anchor[:, None]
    outside = (reader == NO_DOCUMENT) & (source != PADDING) & ~compressed
    tokens = owner.shape[1]
    causal = torch.ones(tokens, tokens, dtype=torch.bool, device=owner.device).tril()
    return (within | outside) & causal
