"""How near a method's answer is to dense, with the numerical floor beside it."""

from collections.abc import Container
from typing import Any

from torch import Tensor

from backend.cache.norms import kl
from backend.engine.decoding import Decoded
from backend.model.tokenizer import Tokens
from backend.records.run import Fidelity

LIKELIEST = 6  # tokens whose probabilities are kept at the first divergence


def fidelity(
    dense: Decoded,
    method: Decoded,
    forced: Tensor,
    dense_logits: Tensor,
    floor: float,
    tokens: Tokens,
    stops: Container[int] = (),
) -> Fidelity:
    """Compare one method with dense on the same prompt.

    Args:
        dense, method: what both generated.
        forced: the method's logits along dense's answer, (answer + 1, vocabulary).
        dense_logits: dense's own, the same shape.
        floor: largest logit difference between two ways of computing dense.
        stops: tokens that end an answer.
    """
    divergences = kl(dense_logits, forced)
    divergence = first_difference(dense, method)
    likely: dict[str, Any] = {}
    if divergence is not None:
        likely = _chances(dense_logits[divergence], forced[divergence], tokens, stops)
    return Fidelity(
        kl_first=float(divergences[0]),
        kl_tokens=divergences.cpu().numpy(),
        first_divergence=divergence,
        dense_token="" if divergence is None else _token(dense, divergence, tokens),
        method_token="" if divergence is None else _token(method, divergence, tokens),
        margin=None if divergence is None or divergence >= len(dense.margins) else dense.margins[divergence],
        floor=floor,
        logit_difference=float((forced[0] - dense_logits[0]).abs().max()),
        **likely,
    )


def _chances(
    dense: Tensor, method: Tensor, tokens: Tokens, stops: Container[int]
) -> dict[str, tuple[Any, ...]]:
    """The likeliest tokens of two predictions, (vocabulary,) logits each, with both probabilities."""
    both = [logits.float().softmax(dim=0) for logits in (dense, method)]
    likeliest = (both[0] + both[1]).topk(min(LIKELIEST, len(dense))).indices.tolist()
    return {
        "likely": tuple("(end)" if t in stops else tokens.texts([t])[0] for t in likeliest),
        "dense_chances": tuple(float(both[0][t]) for t in likeliest),
        "method_chances": tuple(float(both[1][t]) for t in likeliest),
    }


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
