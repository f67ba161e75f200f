"""Sibling caches as differences from one master: a block is kept only where it differs.

Source: TokenDance (arXiv 2604.03143), diff-aware storage: of the caches that several agents have of one text
one is the *master*; the others are *mirrors*, which hold the blocks that differ from it. Readings: a block is
:data:`BLOCK` tokens of one layer, keys and values together; a kept block is the mirror's own numbers, so it
comes back exactly; which blocks are kept is one bit each. Keys are compared position-free. At a tolerance of
0 nothing is lost; above it a block goes whose relative difference is smaller, and reads as the master's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 16  # tokens


@dataclass(frozen=True)
class Mirror:
    """A cache beside its master.

    Attributes:
        mask: (layers, blocks) bool.
        blocks: the kept blocks' keys and values, (kept, 2, kv_heads, BLOCK, head_dim); a last one that is
            shorter is filled up with zeros, which are not counted.
        tokens: of the cache.
    """

    mask: Tensor
    blocks: Tensor
    tokens: int

    @property
    def bytes(self) -> int:
        """What is kept, and a bit for each block."""
        last = self.tokens % BLOCK or BLOCK
        full, partial = int(self.mask[:, :-1].sum()), int(self.mask[:, -1:].sum())
        token_bytes = 2 * self.blocks.shape[2] * self.blocks.shape[4] * self.blocks.element_size()
        return (full * BLOCK + partial * last) * token_bytes + -(-self.mask.numel() // 8)

    def restore(self, master: Tensor) -> Tensor:
        """The cache, (2, layers, kv_heads, tokens, head_dim), from its master's in the same shape."""
        blocks = _blocks(master).clone()
        blocks[self.mask] = self.blocks
        layers, _, _, heads, _, dim = blocks.shape
        cache = blocks.permute(2, 0, 3, 1, 4, 5).reshape(2, layers, heads, -1, dim)
        return cache[:, :, :, : self.tokens]


def mirror(cache: Tensor, master: Tensor, tolerance: float = 0.0) -> Mirror:
    """Keep what differs.

    Args:
        cache: keys (position-free) and values, (2, layers, kv_heads, tokens, head_dim), at least one token.
        master: the same of the master.
        tolerance: relative difference (L2) up to which a block counts as the master's.
    """
    blocks, master_blocks = _blocks(cache), _blocks(master)
    difference = (blocks.double() - master_blocks.double()).flatten(2).norm(dim=2)
    mask = difference > tolerance * blocks.double().flatten(2).norm(dim=2)
    return Mirror(mask, blocks[mask], cache.shape[3])


def _blocks(cache: Tensor) -> Tensor:
    """(layers, blocks, 2, kv_heads, BLOCK, head_dim), the last block filled up with zeros."""
    missing = -cache.shape[3] % BLOCK
    padded = torch.nn.functional.pad(cache, (0, 0, 0, missing))
    pair, layers, heads, tokens, dim = padded.shape
    return padded.reshape(pair, layers, heads, tokens // BLOCK, BLOCK, dim).permute(1, 3, 0, 2, 4, 5)
