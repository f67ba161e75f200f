"""Weights over anchors: how near each is to a sample, and how much its offsets count (KVCOMM, Eq. 5, 6).

Readings of points that the paper leaves open
    * *h* is the input embedding of the tokens (h at layer 1, Section 3.1); the public implementation
      compares the base KV of all layers instead (``compared``).
    * Weights per ``token``: one softmax "across the anchor dimension" per token, averaged over the tokens
      for the following prefix segment. Per ``sequence``: one weight per anchor. ``separate`` is the public
      implementation's: keys and values each by themselves, the mean absolute difference per token; and for
      the following prefix segment one weight per layer, head and channel, from the norm over the
      placeholder's tokens, aligned at their ends. Both depend on where the keys are compared: position-free,
      both at the agent's own place, or, as shipped, each where it stood (:data:`Turn`).
    * Weights of ``token kv``: the paper's other reading. Appendix 6.4.4: the softmax "reduces the Key/Value
      tensor into the shape of [m, 1, 1, seq_len, 1]", so one L2 distance per token over layers, heads and
      dimensions, of keys and of values each by themselves; for the following prefix segment their means.
    * The distance of two sequences, ``sum``: the sum of their tokens' L2 distances (a sequence's
      unnormalised weight is then the product of its tokens'); ``frobenius``: the norm of H - H_a as one
      long vector; ``mean``: per token and as a share of the tokens' own mean norm, so that neither the
      length nor the model's scale decides. They decide the reuse rate: see FINDINGS.md.
    * Truncation: an anchor longer than the sample is cut to the sample's length at its end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from backend.cache.kernels import distances as kernels
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import Sample

Approximation = Literal["softmax", "cosine", "nearest", "uniform"]
Compared = Literal["embedding", "kv"]
Norm = Literal["sum", "frobenius", "mean"]
Per = Literal["token", "sequence", "separate", "token kv"]
TextBase = Literal["alone", "lead-in"]
Turn = Callable[[Sample, Tensor], Tensor]  # a text's position-free keys to where they are compared


@dataclass(frozen=True)
class Weighing:
    """How anchors are weighed.

    ``approximation``: *softmax* of minus the L2 distance (the paper's), *cosine*: softmax of the cosine
    similarity, *nearest*: the nearest anchor alone, *uniform*: all alike (a control). ``temperature``
    divides distances and similarities. ``top_k`` keeps the heaviest anchors; 0 keeps all. ``text_base``:
    which base of an outside text is meant (see :func:`base_of`).
    """

    approximation: Approximation = "softmax"
    temperature: float = 1.0
    top_k: int = 0
    compared: Compared = "embedding"
    norm: Norm = "sum"
    per: Per = "token"
    text_base: TextBase = "alone"


def base_of(sample: Sample, text_base: TextBase) -> KVSegment:
    """A sample's base. Of an outside text, on request, the one behind its lead-in (as shipped); an answer has
    one base only, its producer's."""
    return sample.lead_in_base if text_base == "lead-in" and sample.lead_in_base is not None else sample.base


def squared_distances(descriptor: Tensor, anchor: Tensor) -> Tensor:
    """Squared L2 distance of each token to the anchor's at the same place, (tokens,); the anchor is cut."""
    return (descriptor - anchor[: descriptor.shape[0]]).square().sum(dim=-1)


def descriptor(sample: Sample, weighing: Weighing) -> Tensor:
    """What is compared: (tokens, features), fp32."""
    if weighing.compared == "embedding":
        return sample.descriptor
    base = base_of(sample, weighing.text_base)
    both = torch.cat([base.keys, base.values], dim=-1)
    return both.permute(2, 0, 1, 3).flatten(1).float()


def dissimilarities(sample: Sample, anchors: Sequence[Sample], weighing: Weighing) -> Tensor:
    """Per anchor and token (anchors, tokens): the squared L2 distance, or 1 minus the cosine similarity.

    Of embeddings the distances are found in one pass over them (:mod:`backend.cache.kernels.distances`),
    whatever KV the anchors hold.
    """
    own = descriptor(sample, weighing)
    if weighing.approximation == "cosine":
        others = (descriptor(a, weighing)[: sample.tokens] for a in anchors)
        return torch.stack([1 - functional.cosine_similarity(own, x, dim=-1) for x in others])
    if weighing.compared == "embedding":
        squared = kernels.squared_distances(sample.features, [a.features for a in anchors])
    else:
        squared = torch.stack([squared_distances(own, descriptor(a, weighing)) for a in anchors])
    if weighing.norm != "mean":
        return squared
    length: Tensor = own.norm(dim=-1).mean().clamp_min(1e-9)
    return squared / length.square()


def of_sequences(scores: Tensor, weighing: Weighing) -> Tensor:
    """Dissimilarity of the sequences (anchors,) from their tokens' (anchors, tokens)."""
    if weighing.approximation == "cosine":
        return scores.mean(dim=1)
    if weighing.norm == "frobenius":
        return scores.sum(dim=1).sqrt()
    roots = scores.sqrt()
    return roots.sum(dim=1) if weighing.norm == "sum" else roots.mean(dim=1)


def weights(distances: Tensor, weighing: Weighing) -> Tensor:
    """Weights of the shape of ``distances``; over the anchors (dimension 0) they sum to one."""
    if weighing.approximation == "uniform":
        return torch.full_like(distances, 1 / distances.shape[0])
    if weighing.approximation == "nearest":
        nearest = distances.argmin(dim=0, keepdim=True)
        return torch.zeros_like(distances).scatter_(0, nearest, 1.0)
    return torch.softmax(-distances / weighing.temperature, dim=0)


@dataclass(frozen=True)
class Weight:
    """One anchor's weight, for keys and values: (), (tokens,) or (layers, heads, 1, head_dim)."""

    keys: Tensor
    values: Tensor


@dataclass(frozen=True)
class Match:
    """A sample's weights over anchors: for the placeholder's own tokens, and for the prefix segment
    behind it. ``sequence`` (anchors,) is one weight per anchor, for records and counts."""

    anchors: tuple[Sample, ...]
    sequence: Tensor
    own: tuple[Weight, ...]
    behind: tuple[Weight, ...]


def subset(every: Sequence[Weight], mask: Sequence[bool]) -> tuple[Weight, ...]:
    """Weights of some of the anchors, summing to one among themselves; none where they had no weight."""
    chosen = [w for w, present in zip(every, mask, strict=True) if present]
    if not chosen:
        return ()
    keys, values = torch.stack([w.keys for w in chosen]), torch.stack([w.values for w in chosen])
    if not (bool((keys.sum(dim=0) > 0).all()) and bool((values.sum(dim=0) > 0).all())):
        return ()
    both = zip(keys / keys.sum(dim=0), values / values.sum(dim=0), strict=True)
    return tuple(Weight(k, v) for k, v in both)


def heaviest(sequence: Tensor, top_k: int) -> list[int]:
    """Places of the ``top_k`` heaviest anchors in their order (all for 0)."""
    if not top_k or top_k >= sequence.shape[0]:
        return list(range(sequence.shape[0]))
    return sorted(sequence.topk(top_k).indices.tolist())


def weigh(
    sample: Sample, anchors: Sequence[Sample], scores: Tensor, weighing: Weighing, turn: Turn | None = None
) -> Match:
    """Weights of Eq. 6 and 7 over the anchors.

    Args:
        sample: whose offsets are wanted.
        anchors: at least as long.
        scores: :func:`dissimilarities`, (anchors, tokens).
        weighing: the rule.
        turn: for ``separate`` and ``token kv``: where keys are compared; position-free when absent.
    """
    sequence = weights(of_sequences(scores, weighing), weighing)
    heavy = heaviest(sequence, weighing.top_k)
    if len(heavy) < len(anchors):
        places = torch.tensor(heavy).to(scores.device, non_blocking=True)  # a list would wait for the device
        anchors, scores, sequence = [anchors[i] for i in heavy], scores[places], sequence[places]
    sequence = sequence / sequence.sum()
    if weighing.per in ("separate", "token kv"):
        own, behind = _keys_and_values_apart(sample, anchors, weighing, turn)
    elif weighing.per == "sequence":
        own = behind = [Weight(w, w) for w in sequence]
    else:
        token = weights(scores if weighing.approximation == "cosine" else scores.sqrt(), weighing)
        own = [Weight(w, w) for w in token]
        behind = [Weight(w, w) for w in token.mean(dim=1)]
        sequence = token.mean(dim=1)
    return Match(tuple(anchors), sequence, tuple(own), tuple(behind))


def _keys_and_values_apart(
    sample: Sample, anchors: Sequence[Sample], weighing: Weighing, turn: Turn | None
) -> tuple[list[Weight], list[Weight]]:
    """Weights of keys and of values each by themselves: ``separate``, as the public implementation finds
    them, or ``token kv``, appendix 6.4.4."""
    texts = (sample, *anchors)
    bases = [base_of(text, weighing.text_base) for text in texts]
    keys = [turn(t, b.keys) if turn else b.keys for t, b in zip(texts, bases, strict=True)]
    find = _separate if weighing.per == "separate" else _token_kv
    own_keys, behind_keys = find(keys[0], keys[1:], weighing)
    own_values, behind_values = find(bases[0].values, [base.values for base in bases[1:]], weighing)
    token_weights = [Weight(k, v) for k, v in zip(own_keys, own_values, strict=True)]
    prefix_weights = [Weight(k, v) for k, v in zip(behind_keys, behind_values, strict=True)]
    return token_weights, prefix_weights


def _separate(sample: Tensor, anchors: Sequence[Tensor], weighing: Weighing) -> tuple[Tensor, Tensor]:
    """Per token (anchors, tokens), and for the prefix segment (anchors, layers, heads, 1, head_dim)."""
    tokens = sample.shape[2]
    token = torch.stack([(sample - x[:, :, :tokens]).abs().mean(dim=(0, 1, 3)) for x in anchors])
    tail = torch.stack([(sample - x[:, :, x.shape[2] - tokens :]).norm(dim=2, keepdim=True) for x in anchors])
    return weights(token, weighing), weights(tail, weighing)


def _token_kv(sample: Tensor, anchors: Sequence[Tensor], weighing: Weighing) -> tuple[Tensor, Tensor]:
    """Per token (anchors, tokens), and for the prefix segment (anchors,)."""
    tokens = sample.shape[2]
    squared = torch.stack([(sample - x[:, :, :tokens]).float().square().sum(dim=(0, 1, 3)) for x in anchors])
    token = weights(squared.sqrt(), weighing)
    return token, token.mean(dim=1)
