"""A prompt in the cache: what carrying a plan out leaves."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from backend.cache.kv_cache import KVCache
from backend.methods.plan import Plan, Selection


@dataclass(frozen=True)
class Prefill:
    """A prompt in the cache: ``cache`` holds all its tokens, soft ones behind them; ``logits`` (vocabulary,)
    follow the last."""

    cache: KVCache
    logits: Tensor
    actions: NDArray[np.uint8]  # (layers, tokens)
    token_layers: int  # every token at every layer that it was forwarded through
    exact: bool  # nothing in it was approximated
    plan: Plan  # as it was carried out: a fallback's own
    selection: Selection | None = None
    hidden: Tensor | None = None  # (tokens, hidden) states before layer ``plan.cut``
    projected: Tensor | None = None  # (layers, tokens, n), where the plan asks for it

    @property
    def forwarded_tokens(self) -> int:
        """Forwarded tokens in whole passes, rounded up."""
        return -(-self.token_layers // len(self.actions))
