"""KVCOMM *as shipped*, written down a second time so that the project can be compared to it.

Written from a description in ten points of what the public implementation (commit 48ca0b3) does,
and from nothing of ``backend/``: it imports torch alone, loops where the backend is vectorised,
and keeps no state but what is handed in. Slow on purpose. "Point n" below is the description's.

Shapes: one segment's keys or values are ``[layers, heads, tokens, channels]``. An anchor's
tokens may outnumber the sample's; it is *eligible* only then or when they are equal.

Points the description leaves open, and how they are read here:

* **which tokens of a longer anchor meet the sample's**: its first ones, except for the prefix
  weights, where point 4 says the last ones;
* **A in ``gamma * log2(A)``**: the eligible anchors, those the entropy runs over;
* **activation counts "wrong at the boundary"**: the anchor whose weight carries the running sum
  across ``p`` is not counted (a correct nucleus counts it);
* **"the pool alternates between V and V+1"**: room is made before an insertion and only when
  the pool already holds more than V.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TOP_P = 0.9
EVICTION_WINDOW = 5


# ---------------------------------------------------------------- rotation


def default_frequencies(dim: int, theta: float) -> list[float]:
    """Radians a position, one for every channel pair: ``theta ** (-2 i / dim)``."""
    return [theta ** (-2.0 * i / dim) for i in range(dim // 2)]


def llama3_frequencies(
    dim: int, theta: float, factor: float, low: float, high: float, original: int
) -> list[float]:
    """The frequencies of Llama 3's scaling.

    Wavelengths shorter than ``original / high`` stay, longer than ``original / low`` are
    divided by ``factor``, and those between are blended linearly in ``original / wavelength``.
    """
    out = []
    for frequency in default_frequencies(dim, theta):
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            out.append(frequency)
        elif wavelength > original / low:
            out.append(frequency / factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append((1 - smooth) * frequency / factor + smooth * frequency)
    return out


def rotate(keys: Tensor, shift: int, frequencies: list[float]) -> Tensor:
    """Keys moved by ``shift`` positions, half-split layout: channel i is paired with i + dim/2."""
    half = keys.shape[-1] // 2
    moved = torch.empty_like(keys)
    for i in range(half):
        cosine, sine = math.cos(shift * frequencies[i]), math.sin(shift * frequencies[i])
        first, second = keys[..., i], keys[..., i + half]
        moved[..., i] = first * cosine - second * sine
        moved[..., i + half] = second * cosine + first * sine
    return moved


# ---------------------------------------------------------------- weights


def softmax_of_minus(distances: list[float]) -> list[float]:
    """``softmax(-d)``, in double precision."""
    least = min(distances)
    raised = [math.exp(least - d) for d in distances]
    total = sum(raised)
    return [r / total for r in raised]


def eligible(sample_tokens: int, anchors: list[Tensor]) -> list[int]:
    """Indices of the anchors that have at least as many tokens as the sample."""
    return [a for a, anchor in enumerate(anchors) if anchor.shape[2] >= sample_tokens]


def placeholder_weights(sample: Tensor, anchors: list[Tensor]) -> Tensor:
    """Point 3: weights ``[tokens, anchors]`` for one of K and V, every anchor eligible."""
    tokens = sample.shape[2]
    weights = torch.empty(tokens, len(anchors), dtype=torch.float64)
    for t in range(tokens):
        distances = []
        for anchor in anchors:
            distances.append(float((sample[:, :, t] - anchor[:, :, t]).double().abs().mean()))
        weights[t] = torch.tensor(softmax_of_minus(distances), dtype=torch.float64)
    return weights


def prefix_weights(sample: Tensor, anchors: list[Tensor]) -> Tensor:
    """Point 4: weights ``[layers, heads, channels, anchors]`` for one of K and V."""
    layers, heads, tokens, channels = sample.shape
    weights = torch.empty(layers, heads, channels, len(anchors), dtype=torch.float64)
    for layer in range(layers):
        for head in range(heads):
            for c in range(channels):
                distances = []
                for anchor in anchors:
                    tail = anchor[layer, head, anchor.shape[2] - tokens :, c]
                    difference = (sample[layer, head, :, c] - tail).double()
                    distances.append(math.sqrt(float((difference**2).sum())))
                weights[layer, head, c] = torch.tensor(softmax_of_minus(distances), dtype=torch.float64)
    return weights


# ---------------------------------------------------------------- offsets


def recorded_key_offset(
    real: Tensor, base: Tensor, base_start: int, start: int, frequencies: list[float]
) -> Tensor:
    """Point 6: what the anchor stores: its real keys less its base moved to the same place.

    The difference stays in the rotated frame of the anchor's own position ``start``.
    """
    return real - rotate(base, start - base_start, frequencies)


def placeholder_offset(weights: Tensor, offsets: list[Tensor], tokens: int) -> Tensor:
    """Points 3 and 5: the mix of the anchors' offsets, ``[layers, heads, tokens, channels]``."""
    layers, heads, _, channels = offsets[0].shape
    mixed = torch.zeros(layers, heads, tokens, channels, dtype=torch.float64)
    for layer in range(1, layers):  # layer 0 gets no offset
        for t in range(tokens):
            for a, offset in enumerate(offsets):
                mixed[layer, :, t] += weights[t, a] * offset[layer, :, t].double()
    return mixed


def prefix_offset(weights: Tensor, offsets: list[Tensor]) -> Tensor:
    """Points 4 and 5: as `placeholder_offset`, the weights alike for every token."""
    layers, heads, tokens, channels = offsets[0].shape
    mixed = torch.zeros(layers, heads, tokens, channels, dtype=torch.float64)
    for layer in range(1, layers):  # layer 0 gets no offset
        for head in range(heads):
            for t in range(tokens):
                for a, offset in enumerate(offsets):
                    mixed[layer, head, t] += weights[layer, head, :, a] * offset[layer, head, t].double()
    return mixed


def reused_keys(
    base: Tensor, base_start: int, start: int, frequencies: list[float], mixed: Tensor | None
) -> Tensor:
    """Points 6 and 9: the base moved to ``start``, plus the mix *as recorded*, not re-rotated.

    ``mixed`` is None where no anchor is eligible: then the moved base stands alone.
    """
    moved = rotate(base, start - base_start, frequencies)
    return moved if mixed is None else moved + mixed.to(moved.dtype)


def reused_values(base: Tensor, mixed: Tensor | None) -> Tensor:
    """As `reused_keys`; values carry no position."""
    return base if mixed is None else base + mixed.to(base.dtype)


# ---------------------------------------------------------------- weights per agent (point 10)


def weights_by_agent(agents: list[str], keys_of: dict[str, tuple[Tensor, list[Tensor]]]) -> dict[str, Tensor]:
    """Placeholder key weights every agent of a request mixes with: those of the first of them.

    ``keys_of[agent]`` is the sample's and the anchors' base keys in that agent's frame.
    """
    first = placeholder_weights(*keys_of[agents[0]])
    return dict.fromkeys(agents, first)


# ---------------------------------------------------------------- gate


def gate(
    sample_values: Tensor, anchor_values: list[Tensor], gamma: float
) -> tuple[bool, float | None, float | None]:
    """Point 7: (becomes an anchor, entropy in bits, threshold in bits).

    The last two are None where the decision did not need them.
    """
    if len(anchor_values) <= 1:
        return True, None, None
    long_enough = eligible(sample_values.shape[2], anchor_values)
    if len(long_enough) < 2:
        return True, None, None
    tokens = sample_values.shape[2]
    distances = []
    for a in long_enough:
        difference = (sample_values - anchor_values[a][:, :, :tokens]).double()
        distances.append(math.sqrt(float((difference**2).sum())))
    entropy = entropy_of(distances)
    threshold = gamma * math.log2(len(long_enough))
    return entropy > threshold, entropy, threshold


def entropy_of(distances: list[float]) -> float:
    """Entropy in bits of ``softmax(-d)``; a weight of 0 adds 0."""
    return -sum(w * math.log2(w) for w in softmax_of_minus(distances) if w > 0)


# ---------------------------------------------------------------- counts and eviction (point 8)


def activated(weights: list[float], p: float = TOP_P) -> list[bool]:
    """Which anchors one row of weights counts as used."""
    order = sorted(range(len(weights)), key=lambda a: -weights[a])
    used = [False] * len(weights)
    running = 0.0
    for a in order:
        running += weights[a]
        used[a] = running <= p
    return used


def insert(pool: list[str], counts: dict[str, int], new: str, limit: int) -> str | None:
    """Put ``new`` behind the pool's last entry; return the name that had to go, if any."""
    gone = None
    if len(pool) > limit:
        window = pool[:EVICTION_WINDOW]  # insertion order: the oldest first
        gone = min(window, key=lambda name: counts.get(name, 0))  # min keeps the first of equals
        pool.remove(gone)
    pool.append(new)
    counts.setdefault(new, 0)
    return gone
