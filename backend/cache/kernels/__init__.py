"""The reuse path's inner loops: one pass over the bytes, on any device.

:mod:`.mix_and_rotate` and :mod:`.distances` are vectorised in torch; :mod:`.triton_kernels` has the same as
Triton kernels, used on CUDA if Triton is installed.
"""

from functools import cache
from importlib.util import find_spec

import torch


def triton_on(device: torch.device) -> bool:
    """Whether Triton kernels can run on this device."""
    return device.type == "cuda" and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
