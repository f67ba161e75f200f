"""KV in eight bits: symmetric, one step for each channel (segment reuse, "Quantization").

Each channel of each head and layer has its own step: its largest value over the tokens divided by 127. A
value is rounded to the nearest multiple, an error of at most half a step (plus rounding to the tensor's dtype
when it is read). The plan stores rotated keys; here they are packed position-free, so that the result does
not depend on the position.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_STEPS = 127


@dataclass(frozen=True)
class Packed:
    """``steps``: (..., tokens, channels) int8; ``step``: (..., 1, channels) float32; ``dtype``: of the
    unpacked values."""

    steps: Tensor
    step: Tensor
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return self.steps.numel() + self.step.numel() * self.step.element_size()

    def unpack(self) -> Tensor:
        """The values, each a multiple of its channel's step."""
        return (self.steps.to(torch.float32) * self.step).to(self.dtype)


def pack(values: Tensor) -> Packed:
    """Pack (..., tokens, channels). A channel of zeros stays zeros."""
    exact = values.detach().to(torch.float64)  # in fp32 a quotient can round across the middle of a step
    largest = exact.abs().amax(dim=-2, keepdim=True) if values.shape[-2] else exact.sum(dim=-2, keepdim=True)
    step = (largest / MAX_STEPS).to(torch.float32)
    steps = (exact / step.double().clamp_min(torch.finfo(torch.float64).tiny)).round()
    return Packed(steps.clamp(-MAX_STEPS, MAX_STEPS).to(torch.int8), step, values.dtype)
