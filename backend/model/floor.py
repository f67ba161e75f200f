"""The numerical floor: how much a model's output changes when the same tokens are forwarded in another way.

Rounding depends on the order of sums, and so on how many tokens and rows are forwarded at once. Even a method
that copies exactly (the prefix cache) forwards the prompt in another way than dense, and differs from dense
by as much. A difference below the floor means nothing.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from backend.cache.norms import token_norms

# Keys and values (layers, kv_heads, tokens, head_dim), and every token's logits (tokens, vocabulary)
KVAndLogits = tuple[Tensor, Tensor, Tensor]
PIECES = (2, 3, 5)  # numbers of equal pieces
BEGINNING = 3  # tokens forwarded first, then the rest, as behind a short shared prefix
ROWS = 3


def numerical_floor(
    read: Callable[[tuple[int, ...], int], KVAndLogits], tokens: int, turn: Callable[[Tensor], Tensor]
) -> tuple[float, float]:
    """The largest difference over several ways of forwarding the same tokens.

    Args:
        read: forwards them in pieces of given lengths, as so many equal rows; returns the first row's
        results.
        tokens: their number.
        turn: rotates keys to position 0 and back, as copying does.

    Returns:
        The largest difference of a token's keys or values at any layer, relative to their norm; and the
        largest difference of any logit.
    """
    keys, values, logits = read((tokens,), 1)
    ways = [(tuple(len(part) for part in torch.arange(tokens).chunk(count)), 1) for count in PIECES]
    readings = [read(*way) for way in (*ways, ((BEGINNING, tokens - BEGINNING), 1), ((tokens,), ROWS))]
    pairs = [(turn(keys), keys)]
    pairs += [pair for other in readings for pair in ((other[0], keys), (other[1], values))]
    shares = [token_norms(a - b) / token_norms(b).clamp_min(1e-12) for a, b in pairs]
    return (
        max(float(share.max()) for share in shares),
        max(float((other[2] - logits).abs().max()) for other in readings),
    )
