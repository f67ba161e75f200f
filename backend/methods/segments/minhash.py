"""When are two runs of tokens alike? Shingles, their MinHash signatures, and the exact measure behind them.

A signature only says where to look; what it finds is verified by the exact Jaccard similarity of the
shingles.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.errors import OptionError

SEED = 1
HIGHEST = 0.95  # threshold of an index; what is the same is found by its tokens
#: LSH weighs a missed segment more than a useless candidate, which verification throws out anyway.
WEIGHTS = (0.1, 0.9)


def shingles(ids: Sequence[int], size: int) -> set[tuple[int, ...]]:
    """The runs of ``size`` neighbouring tokens; of fewer tokens, the whole is one; of none, there is none."""
    if not ids:
        return set()
    return {tuple(ids[at : at + size]) for at in range(max(1, len(ids) - size + 1))}


def jaccard(a: Sequence[int], b: Sequence[int], size: int) -> float:
    """Exact similarity of two token runs: shared shingles over all; 1 for two empty ones."""
    first, second = shingles(a, size), shingles(b, size)
    union = len(first | second)
    return len(first & second) / union if union else 1.0


class Sketcher:
    """Makes signatures and indexes of them.

    Args:
        size: tokens of a shingle (the plan's k).
        permutations: numbers in a signature.
        tau: Jaccard similarity from which the index should find.

    Raises:
        OptionError: the library that makes signatures is not installed.
    """

    def __init__(self, size: int, permutations: int, tau: float) -> None:
        try:
            from datasketch import MinHash  # takes a second to load
        except ImportError:
            raise OptionError(
                "Segment reuse looks for alike text with the library datasketch, which is not installed. "
                "Install it (pip install datasketch), or choose another method.",
                field="methods",
            ) from None
        self.size, self.permutations, self.tau = size, permutations, tau
        self._mixer = (
            np.random.default_rng(SEED).integers(1, 1 << 63, size, dtype=np.uint64) * np.uint64(2) + 1
        )
        self._first = MinHash(permutations, seed=SEED)

    def signature(self, ids: Sequence[int]) -> Any:
        """The MinHash of a token run."""
        from datasketch import MinHash

        minhash = MinHash(
            self.permutations, seed=SEED, hashfunc=int, permutations=self._first.permutations,
            scheme=self._first.scheme,
        )  # fmt: skip
        minhash.update_batch(self._hashes(ids))
        return minhash

    def _hashes(self, ids: Sequence[int]) -> NDArray[np.uint32]:
        """One number for each shingle."""
        tokens = np.asarray(ids, dtype=np.uint64) + np.uint64(1)
        size = min(self.size, len(tokens))
        if not size:
            return np.empty(0, dtype=np.uint32)
        windows = np.lib.stride_tricks.sliding_window_view(tokens, size)
        mixed: NDArray[np.uint64] = (windows * self._mixer[:size]).sum(axis=1, dtype=np.uint64)
        return (mixed >> np.uint64(32)).astype(np.uint32)

    def index(self, entries: Iterable[tuple[int, Any]] = ()) -> Any:
        """An LSH index over signatures by number."""
        from datasketch import MinHashLSH

        index = MinHashLSH(num_perm=self.permutations, params=_bands(self.tau, self.permutations))
        for number, signature in entries:
            index.insert(number, signature)
        return index


@cache
def _bands(tau: float, permutations: int) -> tuple[int, int]:
    """Bands and rows of an index; looked for once, which can take half a second."""
    from datasketch import MinHashLSH

    index = MinHashLSH(threshold=min(tau, HIGHEST), num_perm=permutations, weights=WEIGHTS)
    return index.b, index.r


def blocks(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Runs that two alike token runs share in order: their starts in ``a`` and ``b``, and their length."""
    if tuple(a) == tuple(b):
        yield 0, 0, len(a)
        return
    from difflib import SequenceMatcher

    for match in SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks():
        if match.size:
            yield match.a, match.b, match.size
