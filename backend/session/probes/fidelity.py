"""How near a method's answer is to dense, with the numerical floor beside it."""

from __future__ import annotations

from torch import Tensor

from backend.cache.norms import kl
from backend.engine.decoding import Decoded
from backend.model.tokenizer import Tokens
from backend.records.run import Fidelity


def fidelity(
    dense: Decoded, method: Decoded, forced: Tensor, dense_logits: Tensor, floor: float, tokens: Tokens
) -> Fidelity:
    """Compare one method with dense on the same prompt.

    Args:
        dense, method: what both generated.
        forced: the method's logits along dense's answer, (answer + 1, vocabulary).
        dense_logits: dense's own, the same shape.
        floor: largest logit difference between two ways of computing dense.
    """
    divergences = kl(dense_logits, forced)
    divergence = first_difference(dense, method)
    return Fidelity(
        kl_first=float(divergences[0]),
        kl_tokens=divergences.cpu().numpy(),
        first_divergence=divergence,
        dense_token="" if divergence is None else _token(dense, divergence, tokens),
        method_token="" if divergence is None else _token(method, divergence, tokens),
        margin=None if divergence is None or divergence >= len(dense.margins) else dense.margins[divergence],
        floor=floor,
        logit_difference=float((forced[0] - dense_logits[0]).abs().max()),
    )


def first_difference(a: Decoded, b: Decoded) -> int | None:
    """Index of the first generated token that differs, the stop counted as a token; None when equal."""
    if a.ids == b.ids and a.stopped == b.stopped:
        return None
    for index, (x, y) in enumerate(zip(a.ids, b.ids, strict=False)):
        if x != y:
            return index
    return min(len(a.ids), len(b.ids))


def _token(row: Decoded, at: int, tokens: Tokens) -> str:
    return tokens.texts([row.ids[at]])[0] if at < len(row.ids) else "(end)"
