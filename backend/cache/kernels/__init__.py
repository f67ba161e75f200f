"""The reuse path's inner loops: one pass over the bytes, on any device.

:mod:`.mix_and_rotate` and :mod:`.distances` hold what is computed and a vectorised path on torch;
:mod:`.triton_kernels` the same as Triton kernels, taken on CUDA where Triton is installed.
"""

from functools import cache
from importlib.util import find_spec

import torch


def triton_on(device: torch.device) -> bool:
    """Is there a Triton that compiles for this device?"""
    return device.type == "cuda" and _installed()


@cache
def _installed() -> bool:
    return find_spec("triton") is not None
