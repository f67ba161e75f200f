"""Naive, position-only reuse: copy every segment and rotate its keys into place."""

from dataclasses import dataclass

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, copy_everything
from backend.methods.options import Options, option, prefix_base_option
from backend.methods.plan import Plan


@dataclass(frozen=True)
class NaiveOptions(Options):
    """Options of the naive method."""

    rotate: bool = option(
        True,
        "Move keys to their new position",
        "Rotate copied keys from where they were computed to where they stand now. Off: copied as they are.",
        paper="KVCOMM Table 5, K w/ rot",
    )
    prefix_base: str = prefix_base_option()


class NaiveMethod(Method):
    """The contract's defaults with two switches: reuse everything, correct nothing but the position."""

    name = "naive"
    column = 30
    title = "Copy and reposition"
    summary = "Copies the cache of every shared text and only moves it to its new place."
    paper = "KVCOMM Fig. A.12 (plain); judge study, naive reuse"
    Options = NaiveOptions

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        return copy_everything(context, self.options.prefix_base, self.options.rotate)
