"""What is kept of a finished run so that changing it answers at once (:mod:`backend.session.revision`)."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from torch import Tensor

from backend.base.clock import Clock
from backend.engine.decoding import Decoded
from backend.engine.prefill import Prefill
from backend.records.run import AttentionProbe
from backend.session.outcomes import CacheDistance
from backend.session.streams import AnsweredRequest, PromptRun

KEPT_BYTES = 32 * 1024**2  # of what earlier changes gave; what the last one gave is kept in any case


@dataclass
class PlanResult:
    """What a changed method's plan gave at one agent: a later change may ask for an equal one.

    ``logits``: along dense's answer. ``distance`` from dense's cache, and where the answer of the tokens
    ``answer`` was read from, once they were measured.
    """

    prefill: Prefill
    clock: Clock
    logits: Tensor
    distance: CacheDistance | None = None
    answer: tuple[int, ...] | None = None
    attention: tuple[AttentionProbe, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of cache and logits."""
        return _bytes(self.prefill.cache.keys, self.prefill.cache.values, self.logits)


@dataclass
class DenseReading:
    """Dense at every agent of one past request, read again: what a change is compared with."""

    past: AnsweredRequest
    rows: dict[int, PromptRun] = field(default_factory=dict)
    logits: dict[int, Tensor] = field(default_factory=dict)  # along the answer, (answer + 1, vocabulary)
    plain: dict[int, PlanResult] = field(default_factory=dict)  # the same: a plan that copies nothing
    decoded: dict[tuple[int, bytes], Decoded] = field(default_factory=dict)  # answers of changed methods
    results: OrderedDict[Hashable, PlanResult] = field(default_factory=OrderedDict)  # the last used last

    def keep(self, latest: dict[Hashable, PlanResult]) -> None:
        """Keep what a change gave or took over, and of earlier ones what there is room for."""
        for key, result in latest.items():
            self.results[key] = result
            self.results.move_to_end(key)
        size = sum(result.bytes for result in self.results.values())
        for key in list(self.results)[: len(self.results) - len(latest)]:
            if size <= KEPT_BYTES:
                break
            size -= self.results.pop(key).bytes

    @property
    def bytes(self) -> int:
        """Bytes of caches and logits."""
        caches = [row.prefill.cache for row in self.rows.values()] + [row.kv for row in self.decoded.values()]
        own = _bytes(*(t for kv in caches for t in (kv.keys, kv.values)), *self.logits.values())
        return own + sum(result.bytes for result in self.results.values())


def _bytes(*tensors: Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)
