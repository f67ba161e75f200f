"""A head start: heads of the first layer that begin by looking a fixed number of tokens back.

Retrieval needs heads that read one, two or three tokens back, and a model spends its first million tokens on
learning them. Here they are set before training, which may change them: the embeddings get a common
direction, queries and keys of a head read only that direction, and RoPE's rotation makes their product peak
at the offset.
"""

from collections.abc import Sequence
from typing import Any

SHARE = 0.02  # of the common direction in each component of an embedding, as large as the rest of it
SHARPNESS = 4.0  # logits by which the token at the offset leads its neighbours
FASTEST = 0.15  # radians a token: slower pairs of components cannot tell neighbours apart


def look_back(model: Any, offsets: Sequence[int], seed: int) -> None:
    """Let head ``i`` of the first layer begin with its attention ``offsets[i]`` tokens back, in place.

    ``model`` is a freshly initialised Llama. Heads that share a key head share its keys, which are the same
    for every offset. Offsets beyond the number of heads are left out.
    """
    import torch

    config = model.config
    offsets = offsets[: config.num_attention_heads]
    hidden, width = config.hidden_size, config.head_dim
    generator = torch.Generator().manual_seed(seed)
    common = torch.sign(torch.randn(hidden, generator=generator))
    model.model.embed_tokens.weight.data += SHARE * common
    angles = config.rope_parameters["rope_theta"] ** (-torch.arange(0, width, 2) / width)
    angles = angles[angles >= FASTEST]
    lead = float((1 - torch.cos(angles)).sum())
    # a normalised embedding has half its length in the common direction
    gain = (SHARPNESS / lead * width**0.5) ** 0.5 / (hidden / 2) ** 0.5
    reads = gain * common / hidden**0.5
    attention = model.model.layers[0].self_attn
    group = config.num_attention_heads // config.num_key_value_heads
    fast, half = len(angles), width // 2
    for head, offset in enumerate(offsets):
        query = torch.zeros(width)
        query[:fast], query[half : half + fast] = torch.cos(angles * offset), -torch.sin(angles * offset)
        attention.q_proj.weight.data[head * width : (head + 1) * width] += torch.outer(query, reads)
    for head in range(-(-len(offsets) // group)):
        attention.k_proj.weight.data[head * width : head * width + fast] += reads
