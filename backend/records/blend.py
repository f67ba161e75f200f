"""Error against the share of tokens computed again: request and record. Free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backend.base.serialization import Floats
from backend.base.statistics import bootstrap, mean_interval
from backend.prompts.pipeline import Pipeline
from backend.records.model_info import ModelInfo
from backend.records.prompt import Taxed

BLEND_FORMAT = 1

#: Methods that compute a share of the tokens again, each with its own choice of them.
CHOICES = ("cacheblend", "query_norm", "random_k", "oracle_k")
MASKS = ("exact", "shipped")
RATIOS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0)
MOST_BLENDED = 1000  # prompts


@dataclass(frozen=True)
class BlendRequest:
    """What is measured: prompts of one agent under each choice of tokens, mask and share computed again.

    ``values``: one request to ``pipeline`` each. ``agent``: whose prompts, 0 for the last one's.
    """

    pipeline: Pipeline
    values: tuple[Mapping[str, str], ...]
    agent: int = 0
    choices: tuple[str, ...] = CHOICES
    masks: tuple[str, ...] = MASKS
    ratios: tuple[float, ...] = RATIOS
    max_new_tokens: int = 96


@dataclass(frozen=True)
class BlendStudy(Taxed):
    """Distances from dense, (choices, masks, ratios, prompts) each.

    Attributes:
        agent: whose prompts; ``prompt_tokens`` (prompts,) their lengths.
        keys, values: relative L2 error of K and V, mean over layers and tokens.
        chosen: that of V over the tokens that were computed again at every layer; NaN where none was.
        kl: of the next token behind the prompt, dense || method, in nats.
        work: tokens times layers forwarded, as a share of dense's.
        copied_keys, copied_values, copied_kl: (prompts,) the same of position-only reuse.
        floor: (prompts,) KL of dense against dense in two pieces.
    """

    request: BlendRequest
    model: ModelInfo
    agent: int
    prompt_tokens: NDArray[np.int64]
    keys: Floats
    values: Floats
    chosen: Floats
    kl: Floats
    work: Floats
    copied_keys: Floats
    copied_values: Floats
    copied_kl: Floats
    floor: Floats
    wall_ms: float
    format: int = BLEND_FORMAT

    def mean(self, kind: str, choice: str, mask: str) -> tuple[NDArray[np.float64], ...]:
        """Mean over prompts by ratio and its 95% interval, each (ratios,). A bootstrap: what is measured is a
        distance, and a normal interval would reach below zero. NaN where too little is known."""
        rows = [row[~np.isnan(row)].tolist() for row in self._rows(kind, choice, mask)]
        intervals = [bootstrap(row) for row in rows]
        ends = np.array(
            [(share.low, share.high) if share.of > 1 else (np.nan, np.nan) for share in intervals]
        )
        return np.array([share.value for share in intervals]), *ends.T

    def steps(self, kind: str, choice: str, mask: str) -> tuple[NDArray[np.float64], ...]:
        """Mean change from each ratio to the next, paired over prompts, with its 95% interval, each (ratios -
        1,)."""
        return mean_interval(np.diff(self._rows(kind, choice, mask), axis=0))

    def _rows(self, kind: str, choice: str, mask: str) -> NDArray[np.float64]:
        index = self.request.choices.index(choice), self.request.masks.index(mask)
        return np.asarray(getattr(self, kind)[index], dtype=np.float64)
