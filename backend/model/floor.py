"""The numerical floor: how far a model is from itself when it reads the same tokens in another way.

Rounding depends on the order in which sums are taken, and that on how many tokens and rows are forwarded at
once. A method that copies exactly (the prefix cache) reads the prompt in another way than dense does, so it
differs from dense by as much; below the floor there is no finding.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from backend.cache.norms import token_norms

# Keys and values (layers, kv_heads, tokens, head_dim), and every token's logits (tokens, vocabulary)
KVAndLogits = tuple[Tensor, Tensor, Tensor]
PIECES = (2, 3, 5)  # into how many equal pieces the tokens are cut
BEGINNING = 3  # tokens read first, then the rest, as behind a short shared beginning
ROWS = 3


def numerical_floor(
    read: Callable[[tuple[int, ...], int], KVAndLogits], tokens: int, turn: Callable[[Tensor], Tensor]
) -> tuple[float, float]:
    """The largest difference over several ways of reading the same tokens.

    Args:
        read: reads them in pieces of these lengths, as so many equal rows; what the first row then holds.
        tokens: how many they are.
        turn: keys turned away from their positions and back, as a copy of them is.

    Returns:
        The largest of a token's keys and values at any layer, as a share of their length; and the largest of
        any token's logits.
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
