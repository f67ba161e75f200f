"""A head start: numbers that begin in order.

To tell which of two numbers is larger, their embeddings need a direction along which they are ordered. From
random embeddings a model finds one late: after 17 M tokens it still guessed. Here it is put in place before
training, which is then free to change it.
"""

from __future__ import annotations

from typing import Any

from backend.training.tokenizer import LARGEST

MIDDLE = 50  # the tasks' numbers are 0 to 99, some up to 199


def order_numbers(model: Any, tokenizer: Any, share: float, seed: int) -> None:
    """Add to the embedding of each number that is one token its size along one random direction, in place.

    ``share`` is the length of what is added at ``MIDDLE`` steps from the middle, as a share of the numbers'
    mean embedding length. 0 changes nothing.
    """
    import torch

    weight = model.model.embed_tokens.weight.data
    found = {
        ids[0]: (number - MIDDLE) / MIDDLE
        for number in range(LARGEST + 1)
        for before in ("", " ")
        if len(ids := tokenizer.encode(f"{before}{number}", add_special_tokens=False)) == 1
    }
    rows = torch.tensor(list(found), device=weight.device)
    sizes = torch.tensor(list(found.values()), device=weight.device)
    direction = torch.randn(weight.shape[1], generator=torch.Generator().manual_seed(seed)).to(weight.device)
    length = share * weight[rows].norm(dim=1).mean() / direction.norm()
    weight[rows] += sizes[:, None] * direction * length
