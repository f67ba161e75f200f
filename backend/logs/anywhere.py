"""What any cache could reuse: text that an earlier call had, wherever it stood there.

A piece that was sent before counts whole. In a new piece, every run of at least ``RUN`` tokens that stood in
a piece of an earlier call counts: all windows of that length are hashed at once and sorted, and what has the
same hash is compared token by token. Their union is what maximal matches would cover.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.logs.pieces import Tokens

RUN = 16
AT_ONCE = 1 << 21  # windows that are sorted together
_ODD = [
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
]


@dataclass(frozen=True)
class Overlap:
    """What earlier calls had sent of each piece when it was first sent.

    Attributes:
        first: the call that sent the piece first.
        tokens: how many of its tokens earlier calls had sent.
        source: a piece that such tokens came from; -1 where there is none.
        mask: of each token of all pieces, whether an earlier call had sent it.
    """

    first: NDArray[np.int64]
    tokens: NDArray[np.int64]
    source: NDArray[np.int64]
    mask: NDArray[np.bool_]


def find_overlap(tokens: Tokens, first: NDArray[np.int64]) -> Overlap:
    """Look for every piece's tokens in earlier calls; see :class:`Overlap`.

    Args:
        first: of each piece, the call that sent it first, ascending.
    """
    size, count = len(tokens.flat), len(tokens.lengths)
    owner = np.repeat(np.arange(count, dtype=np.int32), tokens.lengths)
    source = np.full(count, -1, np.int64)
    depth = np.zeros(size + 1, np.int8)  # windows that begin less those that ended; at most RUN are open
    hashes = _windows(tokens.flat)
    parts = 1 + len(hashes) // AT_ONCE
    part_of = (hashes >> np.uint64(40)) % np.uint64(parts)
    part_of = np.where(owner[: len(hashes)] == owner[size - len(hashes) :], part_of, parts).astype(np.uint16)
    for part in range(parts):
        windows = np.flatnonzero(part_of == part)
        order = windows[np.argsort(hashes[windows], kind="stable")]
        begins = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
        earliest = np.repeat(order[begins], np.diff(np.append(begins, len(order))))
        again = first[owner[earliest]] < first[owner[order]]
        windows, earliest = order[again], earliest[again]
        same = np.ones(len(windows), bool)
        for step in range(RUN):
            same &= tokens.flat[windows + step] == tokens.flat[earliest + step]
        windows, earliest = windows[same], earliest[same]
        depth[windows] += 1
        depth[windows + RUN] -= 1
        source[owner[windows]] = owner[earliest]
    mask = depth[:-1].cumsum(dtype=np.int8) > 0
    upto = np.concatenate([[0], mask.cumsum(dtype=np.int32)])
    covered = upto[tokens.starts + tokens.lengths] - upto[tokens.starts]
    return Overlap(first, covered.astype(np.int64), source, mask)


def _windows(flat: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A hash of every window of ``RUN`` tokens, doubled from one token."""
    hashes = (flat.astype(np.uint64) + np.uint64(1)) * np.uint64(0xFF51AFD7ED558CCD)
    hashes ^= hashes >> np.uint64(32)
    for step, odd in enumerate(_ODD):
        width = 1 << step
        wider = hashes[:-width] * odd if len(hashes) > width else hashes[:0]
        wider += hashes[len(hashes) - len(wider) :]
        hashes = wider
    return hashes
