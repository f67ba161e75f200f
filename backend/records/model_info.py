"""Facts of a loaded model, and what was found out about moving its keys. Frozen and free of torch."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LayerCertificate:
    """One layer's behaviour under a shift of position, found by probing. Keys hold none where there is *no
    position*, nor under a *distance bias*, which attention adds to its scores (ALiBi)."""

    kind: Literal["rotation", "partial rotation", "no position", "distance bias", "not relocatable"]
    rotated_dims: int
    key_error: float  # relative error of moving keys by rotation
    value_error: float  # relative change of values under the shift


#: Why keys under a *distance bias* are read only where they stand in the cache.
BIASED = (
    "The model's attention adds a bias by distance (ALiBi), counted in places of the cache, so tokens can "
    "neither be computed out of their order nor under a mask, as this method does. Choose another, such as "
    "naive or kvcomm."
)

#: Families whose layers the lab calls one by one: they are called alike.
LAYERWISE = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True)
class Certificate:
    """Can this model's keys be moved? ``floor`` is the largest relative difference of the same keys and
    values read in several ways (what rounding alone does), ``logit_floor`` that of logits; in records of
    earlier versions, of keys and logits in one piece and in two."""

    relocatable: bool
    reason: str
    layers: tuple[LayerCertificate, ...]
    shift_tokens: int
    floor: float
    logit_floor: float


@dataclass(frozen=True)
class ModelInfo:
    """Facts of the loaded model."""

    name: str
    source: str
    weights_hash: str
    parameters: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context_tokens: int
    device: str
    dtype: str
    kv_bytes_per_token: int
    certificate: Certificate
    links: int | None = None  # link tokens behind a document that the weights were trained with
    family: str = ""  # as transformers calls it ("llama"); records of earlier versions have none

    @property
    def layerwise(self) -> bool:
        """Can its layers be read one by one?"""
        return self.family in LAYERWISE
