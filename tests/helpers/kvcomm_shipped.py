"""KVCOMM *as shipped*, written down a second time so that the project can be compared to it.

Written from a description in ten points of what the public implementation (commit 48ca0b3) does,
and from nothing of ``backend/``: it imports torch alone, loops where the backend is vectorised,
and no function keeps state; :class:`PublicCode` puts them together and holds the pools. Slow on
purpose. "Point n" below is the description's.

Shapes: one segment's keys or values are ``[layers, heads, tokens, channels]``. An anchor's
tokens may outnumber the sample's; it is *eligible* only then or when they are equal.

Points the description leaves open, and how they are read here:

* **which tokens of a longer anchor meet the sample's**: its first ones, except for the prefix
  weights, where point 4 says the last ones;
* **A in ``gamma * log2(A)``**: the eligible anchors, those the entropy runs over;
* **the window of an eviction**: the newcomer itself is never in it. With V of 5 and more it
  cannot be; with less the public code may drop it, and stops with an error later.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

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
    """Which anchors one row of weights counts as used.

    The heaviest, as long as the running sum with each of them is under ``p``; where it is for
    none (the first alone has ``p`` or more), every one.
    """
    order = sorted(range(len(weights)), key=lambda a: -weights[a])
    used = [False] * len(weights)
    running = 0.0
    for a in order:
        running += weights[a]
        used[a] = running < p
    return used if any(used) else [True] * len(weights)


def dense_turn(counts: dict[str, int], new: str, limit: int) -> str | None:
    """One dense reader of ``new``: room is made when the pool holds more than ``limit``, then
    ``new`` is put behind the pool's last entry if it is not there. Returns the name that had to go.

    ``counts`` is the pool: a count by name, in the order of insertion.
    """
    gone = None
    if len(counts) > limit:
        window = [name for name in counts if name != new][:EVICTION_WINDOW]
        gone = min(window, key=lambda name: counts[name])  # min keeps the first of equals
        del counts[gone]
    counts.setdefault(new, 0)
    return gone


# ---------------------------------------------------------------- whole runs


@dataclass
class Part:
    """A segment of a prompt: its base as it stood from ``base_start`` on, and where it stands now."""

    keys: Tensor
    values: Tensor
    base_start: int
    start: int

    @property
    def tokens(self) -> int:
        return self.keys.shape[2]


@dataclass
class Anchor:
    """A text's base, moved to where the last dense reader read it; offsets by reader: the text's own
    keys and values, then those of the prefix segment behind it."""

    keys: Tensor
    values: Tensor
    offsets: dict[str, tuple[Tensor, Tensor, Tensor, Tensor]] = field(default_factory=dict)


class PublicCode:
    """The pools over many requests. A ``message`` is a request's question, by which all of its texts
    are known; a ``hole`` is a placeholder's name.
    """

    def __init__(self, gamma: float, limit: int, frequencies: list[float]) -> None:
        self.gamma, self.limit, self.frequencies = gamma, limit, frequencies
        self.anchors: dict[str, dict[str, Anchor]] = {}
        self.counts: dict[str, dict[str, int]] = {}
        self.flags: dict[str, dict[str, bool]] = {}
        self.weights: dict[str, dict[str, Tensor]] = {}  # of the present request (point 10)

    def begin(self) -> None:
        """A request begins."""
        self.weights = {}

    def arrive(
        self, hole: str, message: str, values: Tensor, outside: bool
    ) -> tuple[bool, float | None, float | None] | None:
        """The gate's answer about a text's base values; None when it is not asked (point 10)."""
        flags, counts = self.flags.setdefault(hole, {}), self.counts.setdefault(hole, {})
        pool = self.anchors.setdefault(hole, {})
        if outside and message in flags:
            return None
        found = gate(values, [anchor.values for anchor in pool.values()], self.gamma)
        flags[message] = found[0]
        if not found[0]:  # point 8: counted here, from the values alone
            names, tokens = list(pool), values.shape[2]
            near = [names[a] for a in eligible(tokens, [anchor.values for anchor in pool.values()])]
            distances = [
                math.sqrt(float(((values - pool[name].values[:, :, :tokens]).double() ** 2).sum()))
                for name in near
            ]
            for name, used in zip(near, activated(softmax_of_minus(distances)), strict=True):
                counts[name] += used
        return found

    def reads_densely(self, agent: str, message: str, holes: list[str]) -> bool:
        """Whether one of the texts is new and this agent has not left its offset yet."""
        return any(
            self.flags[hole][message]
            and (message not in self.anchors[hole] or agent not in self.anchors[hole][message].offsets)
            for hole in holes
        )

    def read_densely(
        self, agent: str, message: str, texts: dict[str, tuple[Part, Part]], real: tuple[Tensor, Tensor]
    ) -> int:
        """A dense reader's turn: each new text becomes an anchor, or learns this reader's offsets.
        Returns how many anchors had to go.

        ``texts``: by hole, the text and the prefix segment behind it. ``real``: the prompt's dense cache.
        """
        dropped = 0
        for hole, pair in texts.items():
            if not self.flags[hole][message]:
                continue
            pool = self.anchors[hole]
            gone = dense_turn(self.counts[hole], message, self.limit)
            if gone is not None:
                del pool[gone]
                dropped += 1
            offsets = []
            for part in pair:
                at = slice(part.start, part.start + part.tokens)
                keys = real[0][:, :, at]
                offsets.append(
                    recorded_key_offset(keys, part.keys, part.base_start, part.start, self.frequencies)
                )
                offsets.append(real[1][:, :, at] - part.values)
            text = pair[0]
            anchor = pool.setdefault(message, Anchor(text.keys, text.values))
            anchor.keys = rotate(text.keys, text.start - text.base_start, self.frequencies)
            anchor.offsets[agent] = (offsets[0], offsets[1], offsets[2], offsets[3])
        return dropped

    def reuse(self, agent: str, hole: str, pair: tuple[Part, Part]) -> list[tuple[Tensor, Tensor]]:
        """The keys and values of a text and of the prefix segment behind it."""
        text, behind = pair
        every = list(self.anchors[hole].values())
        near = [every[a] for a in eligible(text.tokens, [anchor.values for anchor in every])]
        if not near:
            return [
                (reused_keys(p.keys, p.base_start, p.start, self.frequencies, None), p.values) for p in pair
            ]
        if hole not in self.weights:
            here = rotate(text.keys, text.start - text.base_start, self.frequencies)
            keys, values = [a.keys for a in near], [a.values for a in near]
            self.weights[hole] = {
                "own keys": placeholder_weights(here, keys),
                "own values": placeholder_weights(text.values, values),
                "behind keys": prefix_weights(here, keys),
                "behind values": prefix_weights(text.values, values),
            }
        found = self.weights[hole]
        own = [
            placeholder_offset(found[f"own {side}"], [a.offsets[agent][at] for a in near], text.tokens)
            for at, side in enumerate(("keys", "values"))
        ]
        after = [
            prefix_offset(found[f"behind {side}"], [a.offsets[agent][at] for a in near])
            for at, side in enumerate(("keys", "values"), 2)
        ]
        return [
            (
                reused_keys(part.keys, part.base_start, part.start, self.frequencies, mixed[0]),
                reused_values(part.values, mixed[1]),
            )
            for part, mixed in ((text, own), (behind, after))
        ]
