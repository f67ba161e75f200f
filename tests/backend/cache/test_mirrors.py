"""Caches kept as differences from a master."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backend.cache.mirrors import BLOCK, mirror


def drawn(tokens: int, seed: int = 0) -> Tensor:
    return torch.randn(2, 3, 2, tokens, 4, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tokens", [1, BLOCK, 3 * BLOCK, 2 * BLOCK + 5])
def test_at_tolerance_zero_every_bit_comes_back_and_only_changed_blocks_are_kept(tokens: int) -> None:
    master = drawn(tokens)
    own = master.clone()
    own[1, 2, 0, tokens - 1, 3] += 1e-6
    kept = mirror(own, master)
    assert torch.equal(kept.restore(master), own)
    wanted = torch.zeros(3, -(-tokens // BLOCK), dtype=torch.bool)
    wanted[2, -1] = True
    assert torch.equal(kept.mask, wanted)
    last = tokens % BLOCK or BLOCK
    assert kept.bytes == last * 2 * 2 * 4 * 4 + -(-wanted.numel() // 8)
    assert mirror(master, master).bytes == -(-wanted.numel() // 8)


def test_what_a_tolerance_loses_is_within_it_block_by_block() -> None:
    master, own = drawn(50), drawn(50) + 0.1 * drawn(50, 1)
    sizes = []
    for tolerance in (0.0, 0.09, 0.1, 0.11, 1.0):
        kept = mirror(own, master, tolerance)
        back = kept.restore(master)
        for block in range(0, 50, BLOCK):
            for layer in range(3):
                mine, found = (x[:, layer, :, block : block + BLOCK] for x in (own, back))
                assert (mine - found).norm() <= tolerance * mine.norm() + 1e-6
        sizes.append(kept.bytes)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > own.numel() * 4 > sizes[2] > sizes[-1]
    assert torch.equal(mirror(own, master, 1.0).restore(master), master)
