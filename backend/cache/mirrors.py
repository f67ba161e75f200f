"""Sibling caches as differences from one master: a block is kept only where it differs.

Source: TokenDance (arXiv 2604.03143), diff-aware storage: of the caches that several agents have of one text
one is the *master*; the others are *mirrors*, which store the blocks that differ from it. Our reading: a
block is :data:`BLOCK` tokens of one layer, keys and values together; a stored block is exact; a mask holds
one bit per block. Keys are compared position-free. With a tolerance of 0 nothing is lost; otherwise blocks
whose relative difference is within it are replaced by the master's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 16  # tokens


@dataclass(frozen=True)
class Mirror:
    """A cache beside its master.

    Attributes:
        mask: (layers, blocks) bool, which blocks are stored.
        blocks: keys and values of the stored blocks, (stored, 2, kv_heads, BLOCK, head_dim); a shorter last
            block is padded with zeros, which are not counted.
        tokens: of the cache.
    """

    mask: Tensor
    blocks: Tensor
    tokens: int

    @property
    def bytes(self) -> int:
        """Bytes of the stored blocks and of the mask."""
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
    """Store the blocks that differ from the master.

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
    """(layers, blocks, 2, kv_heads, BLOCK, head_dim), the last block padded with zeros."""
    missing = -cache.shape[3] % BLOCK
    padded = torch.nn.functional.pad(cache, (0, 0, 0, missing))
    pair, layers, heads, tokens, dim = padded.shape
    return padded.reshape(pair, layers, heads, tokens // BLOCK, BLOCK, dim).permute(1, 3, 0, 2, 4, 5)
