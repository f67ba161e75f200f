"""A method over another: the other's plan and pools, and a choice of its own of what is computed again."""

from typing import Self

from backend.base.clock import Clock
from backend.cache.offset_packing import Stored
from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.methods.base import Method, MethodEvent
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import PROFILES, KVCommOptions
from backend.methods.kvcomm.palkv import PalKVMethod
from backend.methods.kvcomm.slot_aligned import SlotAlignedMethod
from backend.methods.naive import NaiveMethod, NaiveOptions
from backend.methods.options import Options
from backend.methods.plan import Plan
from backend.records.pools import PoolState

KVCOMM = {"kvcomm": "published", "kvcomm shipped": "shipped", "kvcomm corrected": "corrected"}
POOLED: dict[str, type[Method]] = {"palkv": PalKVMethod, "slotaligned": SlotAlignedMethod}


def base_method(name: str) -> Method:
    """A fresh instance of what is reused before: ``naive``, one of :data:`KVCOMM` or of :data:`POOLED`."""
    if name in KVCOMM:
        return KVCommMethod(KVCommOptions(**PROFILES[KVCOMM[name]].options))
    return POOLED[name](POOLED[name].Options()) if name in POOLED else NaiveMethod(NaiveOptions())


class OverMethod(Method):
    """The hooks of ``base``, but for :meth:`select` and :meth:`accept`. Options say which, as ``base``."""

    needs_masks = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._base = base_method(self.options.base)

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        return self._base.plan(context, log, clock)

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        self._base.on_event(event, log)

    def pools(self, log: SampleLog) -> tuple[PoolState, ...]:
        return self._base.pools(log)

    def needed(self) -> set[int]:
        return self._base.needed()

    def offloadable(self) -> set[int]:
        return self._base.offloadable()

    @property
    def held_bytes(self) -> int:
        return self._base.held_bytes

    def held_of(self, number: int) -> int:
        return self._base.held_of(number)

    def stored(self, anchor: Sample, agent: int) -> Stored | None:
        return self._base.stored(anchor, agent)

    def forget(self, numbers: set[int]) -> None:
        self._base.forget(numbers)

    def fork(self) -> Self:
        twin = type(self)(self.options)
        twin._base = self._base.fork()
        return twin
