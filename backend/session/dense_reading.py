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

KEPT_BYTES = 32 * 1024**2  # of earlier changes' results; those of the last change are kept in any case


@dataclass
class PlanResult:
    """The result of a changed method's plan at one agent, for later changes with an equal plan.

    ``logits``: along dense's answer. Once measured: ``distance`` from dense's cache, and ``attention`` of the
    answer with the tokens ``answer``.
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
    """Dense at every agent of one past request, read again, to compare changes with."""

    past: AnsweredRequest
    rows: dict[int, PromptRun] = field(default_factory=dict)
    logits: dict[int, Tensor] = field(default_factory=dict)  # along the answer, (answer + 1, vocabulary)
    plain: dict[int, PlanResult] = field(default_factory=dict)  # the same: a plan that copies nothing
    decoded: dict[tuple[int, bytes], Decoded] = field(default_factory=dict)  # answers of changed methods
    results: OrderedDict[Hashable, PlanResult] = field(default_factory=OrderedDict)  # the last used last

    def keep(self, latest: dict[Hashable, PlanResult]) -> None:
        """Keep the results that a change used, and earlier ones as far as there is room."""
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
