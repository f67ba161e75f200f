"""The result of executing a plan: a prompt in a cache."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backend.cache.kv_cache import KVCache
from backend.methods.plan import Plan, Selection


@dataclass(frozen=True)
class Prefill:
    """``cache``: all prompt tokens, then soft ones; ``logits``: (vocabulary,), after the last prompt
    token."""

    cache: KVCache
    logits: Tensor
    actions: NDArray[np.uint8]  # (layers, tokens)
    token_layers: int  # forwarded tokens, summed over layers
    exact: bool  # no approximation in it
    plan: Plan  # as executed: a fallback's own
    selection: Selection | None = None
    hidden: Tensor | None = None  # (tokens, hidden) states before layer ``plan.cut``
    projected: Tensor | None = None  # (layers, tokens, n), if the plan requests it

    @property
    def forwarded_tokens(self) -> int:
        """Forwarded tokens in whole passes, rounded up."""
        return -(-self.token_layers // len(self.actions))
