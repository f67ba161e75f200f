"""A weighted sum of offsets from one arena, to add to a base."""

from dataclasses import dataclass

from torch import Tensor

from backend.cache.row_arena import Arena


@dataclass(frozen=True)
class Mixture:
    """``sum_a weights[a, t] * rows[starts[a] + t]`` of one arena of offsets.

    ``weights``: (anchors, tokens); ``starts``: the row of each anchor's first token.
    """

    arena: Arena
    starts: tuple[int, ...]
    weights: Tensor

    @property
    def bytes(self) -> int:
        """Bytes of the offsets that are read."""
        return self.weights.numel() * self.arena.row_bytes
