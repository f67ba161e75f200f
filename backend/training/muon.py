"""Muon: momentum whose matrix updates are orthogonalised (Jordan et al. 2024).

``torch.optim.Muon`` orthogonalises one matrix after the other in bfloat16. On a CPU without bfloat16 units
that takes longer than the rest of the step many times over, so here matrices of one shape go together, in a
precision that the caller chooses.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

# coefficients of the quintic Newton-Schulz iteration of the published recipe
A, B, C = 3.4445, -4.7750, 2.0315


def orthogonalise(stack: Tensor, steps: int = 5) -> Tensor:
    """Nearly the nearest orthogonal matrices of ``(n, rows, columns)``.

    Singular values end at about 0.7 to 1.2, but for directions below 0.005 of the norm, which stay smaller.
    """
    x: Tensor = stack / (stack.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    for _ in range(steps):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum, orthogonalised; decoupled weight decay. Every parameter is a matrix."""

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dtype = dtype
        super().__init__(list(params), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update of all matrices that have a gradient."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    shapes.setdefault(p.shape, []).append(p)
            for shape, params in shapes.items():
                updates = []
                for p in params:
                    state = self.state[p]
                    if "momentum" not in state:
                        state["momentum"] = torch.zeros_like(p)
                    grad = p.grad
                    assert grad is not None
                    state["momentum"].lerp_(grad, 1 - group["momentum"])
                    updates.append(grad.lerp(state["momentum"], group["momentum"]))
                rate = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for p, update in zip(params, orthogonalise(torch.stack(updates).to(self.dtype)), strict=True):
                    p.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)
