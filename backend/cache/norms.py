"""Norms and distances of caches and logits."""

import torch
from torch import Tensor


def kl(dense: Tensor, method: Tensor) -> Tensor:
    """KL(dense || method) in nats per row; logits (rows, vocabulary)."""
    p, q = dense.log_softmax(-1), method.log_softmax(-1)
    return (p.exp() * (p - q)).sum(-1).clamp_min(0)


def largest_difference(a: Tensor, b: Tensor) -> float:
    """Largest absolute difference of two logit tensors."""
    return float(torch.max((a - b).abs()))


def token_norms(x: Tensor) -> Tensor:
    """L2 norm over heads and channels: (layers, kv_heads, tokens, head_dim) to (layers, tokens), fp32."""
    return x.float().square().sum(dim=(1, 3)).sqrt()
