"""Moving keys to another position: one rotation (RoPE).

A key computed at position ``p`` is ``R_p k``; moved to ``q`` it is ``R_(q-p) (R_p k)``. The lab stores
keys position-free (``k``, as at position 0) and rotates once, in fp32, when a cache is assembled.
Only ``inv_freq`` matters: a scaling of cos and sin (YaRN, longrope) is a factor of the key and is not
changed by a rotation.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class LayerRotation:
    """How one layer rotates its keys.

    ``inv_freq``: (rotated_dims / 2,), radians per position; empty if the layer's keys hold no position.
    ``interleaved``: pairs are neighbours (0, 1), (2, 3), ... instead of halves (0, d/2), (1, d/2 + 1), ...
    """

    inv_freq: Tensor
    interleaved: bool = False

    @property
    def rotated_dims(self) -> int:
        return 2 * self.inv_freq.numel()


def rotate_layer(keys: Tensor, positions: Tensor, rule: LayerRotation, out: Tensor | None = None) -> Tensor:
    """Rotate the keys of one or several layers that share a rule.

    Args:
        keys: (..., tokens, head_dim).
        positions: (tokens,), by how many positions to rotate each token; may be negative.
        rule: the layers' rotation.
        out: where to write, of the shape of ``keys``, not overlapping them; by default a new tensor.

    Returns:
        The rotated keys, in the dtype of ``keys``; computed in fp32.
    """
    if out is None:
        out = torch.empty_like(keys)
    dims = rule.rotated_dims
    if dims == 0:
        return out.copy_(keys)
    angles = positions.to(torch.float32)[:, None] * rule.inv_freq.to(torch.float32)
    cos, sin = angles.cos(), angles.sin()
    plain = keys[..., :dims].float()
    if rule.interleaved:
        cosines, first, second = cos.repeat_interleave(2, dim=-1), slice(0, dims, 2), slice(1, dims, 2)
    else:
        cosines, first, second = torch.cat([cos, cos], dim=-1), slice(0, dims // 2), slice(dims // 2, dims)
    # Three in-place passes over whole heads: on a CPU seven times as fast as a sum of two products per half.
    straight = out.dtype == torch.float32 and not (torch.is_grad_enabled() and plain.requires_grad)
    result = torch.mul(plain, cosines, out=out[..., :dims]) if straight else plain * cosines
    result[..., first].addcmul_(plain[..., second], sin, value=-1)
    result[..., second].addcmul_(plain[..., first], sin)
    if not straight:
        out[..., :dims] = result
    if dims < keys.shape[-1]:
        out[..., dims:] = keys[..., dims:]
    return out


@dataclass(frozen=True)
class Rotation:
    """The rotation of a whole model, layer by layer."""

    layers: tuple[LayerRotation, ...]

    @cached_property
    def groups(self) -> list[tuple[slice, LayerRotation]]:
        """Runs of neighbouring layers that share a rule; cached, since comparing waits for the device."""
        runs: list[tuple[slice, LayerRotation]] = []
        for index, rule in enumerate(self.layers):
            if runs and _equal(runs[-1][1], rule):
                runs[-1] = (slice(runs[-1][0].start, index + 1), rule)
            else:
                runs.append((slice(index, index + 1), rule))
        return runs

    def rotate(self, keys: Tensor, positions: Tensor, out: Tensor | None = None) -> Tensor:
        """Rotate ``keys`` (layers, kv_heads, tokens, head_dim) by ``positions`` (tokens,)."""
        if out is None:
            out = torch.empty_like(keys)
        for layers, rule in self.groups:
            rotate_layer(keys[layers], positions, rule, out[layers])
        return out

    def tables(self, positions: Tensor, pairs: int) -> tuple[Tensor, Tensor, Tensor]:
        """Cosines and sines of each pair of channels, (rules, tokens, pairs), fp32, and the rule of each
        layer, (layers,). Pairs beyond a rule's own are not rotated."""
        frequencies, rules = self._frequencies(positions.device, pairs)
        angles = positions.to(torch.float32)[:, None] * frequencies[:, None]
        return angles.cos(), angles.sin(), rules

    def _frequencies(self, device: torch.device, pairs: int) -> tuple[Tensor, Tensor]:
        """Frequencies of each group of layers, (rules, pairs), and each layer's group, (layers,); cached."""
        tables = self._by_device.get((device, pairs))
        if tables is None:
            table = torch.zeros(len(self.groups), pairs)
            for row, (_, rule) in zip(table, self.groups, strict=True):
                row[: rule.inv_freq.numel()] = rule.inv_freq.float()
            of_layer = torch.cat(
                [torch.full((run.stop - run.start,), n) for n, (run, _) in enumerate(self.groups)]
            )
            tables = self._by_device[device, pairs] = table.to(device), of_layer.to(device)
        return tables

    @cached_property
    def _by_device(self) -> dict[tuple[torch.device, int], tuple[Tensor, Tensor]]:
        return {}


def _equal(a: LayerRotation, b: LayerRotation) -> bool:
    return a.interleaved == b.interleaved and torch.equal(a.inv_freq, b.inv_freq)
