"""Naive, position-only reuse: copy every segment and rotate its keys into place."""

from __future__ import annotations

from dataclasses import dataclass, replace

from backend.methods.base import Blend, Clock, Method, Options, Plan, option
from backend.store import ObservationLog, PromptInContext


@dataclass(frozen=True)
class NaiveOptions(Options):
    """Options of the naive method."""

    rotate: bool = option(
        True,
        "Move keys to their new position",
        "Rotate copied keys from where they were computed to where they stand now. Off: copied as they are.",
        paper="KVCOMM Table 5, K w/ rot",
        shapes_pool=False,
    )


class NaiveMethod(Method):
    """The contract's defaults: reuse everything, correct nothing but the position."""

    name = "naive"
    title = "Position-only"
    summary = "Copies the cache of every shared text and only moves it to its new place."
    paper = "KVCOMM Fig. A.12 (plain); judge study, naive reuse"
    Options = NaiveOptions

    def plan(self, context: PromptInContext, log: ObservationLog, clock: Clock) -> Plan:
        plan = super().plan(context, log, clock)
        if self.options.rotate:
            return plan
        steps = tuple(
            replace(step, action=replace(step.action, moved=False, reason="copied, not moved"))
            for step in plan.steps
            if isinstance(step.action, Blend)
        )
        return replace(
            plan, steps=steps, reason="Every segment was copied; keys were left at their old positions."
        )
