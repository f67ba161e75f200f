"""What the hardware allows: the time that bytes and operations need at the rates of the same run.

What reuses moves bytes, so its roof is the bandwidth of a large copy. What computes is held against the rate
of a large product of matrices in its own precision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from backend.bench.common import medians, timed
from backend.model.load import LoadedModel

COPY_BYTES = {"cpu": 1 << 27, "cuda": 1 << 31, "mps": 1 << 28}  # several times any cache
PRODUCT_SIDE = {"cpu": 512, "cuda": 8192, "mps": 2048}


@torch.inference_mode()
def copy_gb_s(device: torch.device, repeats: int) -> float:
    """Bytes read and written in a second by one large copy, in units of 1e9."""
    source = torch.ones(COPY_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    into = torch.empty_like(source)
    spent = medians(timed({"copy": lambda: into.copy_(source)}, repeats, device))["copy"]
    return round(2 * source.numel() * 4 / spent / 1e6, 2)


@torch.inference_mode()
def product_gflop_s(device: torch.device, dtype: torch.dtype, repeats: int) -> float:
    """Multiplications and additions in a second by one large product of matrices, in units of 1e9."""
    side = PRODUCT_SIDE[device.type]
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    into = torch.empty_like(a)
    spent = medians(timed({"product": lambda: torch.mm(a, b, out=into)}, repeats, device))["product"]
    return round(2 * side**3 / spent / 1e6, 2)


@dataclass(frozen=True)
class Rates:
    """What the hardware gave in one run: bytes of a copy, and operations of a product of matrices by the side
    that computes in its precision; both in 1e9 a second."""

    copy_gb_s: float
    product_gflop_s: Mapping[str, float]


def rates(device: torch.device, sides: Mapping[str, torch.dtype], repeats: int) -> Rates:
    """Measure them.

    Args:
        device: where.
        sides: the precision of each side that computes.
        repeats: of the copy, and of each product.
    """
    copied = copy_gb_s(device, repeats)
    return Rates(copied, {name: product_gflop_s(device, dtype, repeats) for name, dtype in sides.items()})


def least_ms(amount: float, rate: float) -> float:
    """Milliseconds for so many bytes or operations at a rate in 1e9 a second."""
    return round(amount / rate / 1e6, 4)


def percent(least: float, spent: float) -> float:
    """The least time as a share of the time taken."""
    return round(100 * least / spent, 1)


def beyond(shares: Mapping[str, float]) -> str:
    """What is wrong with shares of the roofline (percent, by side): none can take less than the least time.
    Empty where all are possible."""
    listed = ", ".join(f"{side} {share:g}%" for side, share in shares.items() if share > 100)
    return listed and (
        f"These sides reach more than the hardware allows: {listed} of the roofline; at most 100% is "
        "possible. The least time or the rate that it was taken from is wrong, as when a neighbour slowed "
        "the copy but not the side. Measure again on a quiet machine, and do not keep these times."
    )


def checked(report: dict[str, Any]) -> dict[str, Any]:
    """The same report of a benchmark, with ``wrong`` where a time is shorter than the hardware allows."""
    wrong = beyond(report["roofline_percent"])
    return report | ({"wrong": wrong} if wrong else {})


def weight_bytes(model: LoadedModel) -> int:
    """What one token's pass has to read at least."""
    return sum(p.numel() * p.element_size() for p in model.module.parameters())


def prefill_operations(
    model: LoadedModel, tokens: int, new: int | None = None, *, logits: bool = True
) -> int:
    """Multiplications and additions of a prefill whose last token alone gets logits.

    Two for each weight of a linear layer and token, and in each layer and head two products of ``head_dim``
    for each pair of tokens that see each other. What grows with neither, norms and activations, is left out.

    Args:
        tokens: of the prompt.
        new: how many of them, the last ones, are computed; all when absent.
        logits: whether the last one gets logits; a text encoded for its cache does not.
    """
    new = tokens if new is None else new
    head = model.module.get_output_embeddings()
    layers = sum(
        part.weight.numel()
        for part in model.module.modules()
        if isinstance(part, nn.Linear) and part is not head
    )
    pairs = new * (2 * tokens - new + 1) // 2
    attention: int = 4 * model.info.layers * model.info.heads * model.info.head_dim * pairs
    weights: int = layers * new + (head.weight.numel() if logits else 0)
    return 2 * weights + attention
