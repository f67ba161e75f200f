"""True offsets: the ceiling of every method that corrects by offsets.

Adds to each base the offset that the dense pass over this very prompt shows (Eq. 6 and 7 with the request
itself as the only anchor), so with both corrections on it equals dense. It needs the dense pass that it is
meant to replace: a control, not a method to serve with.
"""

from dataclasses import dataclass

import torch

from backend.base.clock import Clock
from backend.cache.kv_cache import Offset
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, segment_base
from backend.methods.dense import dense_plan
from backend.methods.options import Options, option, prefix_base_option
from backend.methods.plan import Compute, Plan, Reuse, Step, Term


@dataclass(frozen=True)
class OracleOptions(Options):
    """Options of the oracle."""

    placeholder_offset: bool = option(
        True, "Correct the shared texts", "Add the true offsets to the placeholders' KV.",
        paper="Eq. 6",
    )  # fmt: skip
    prefix_offset: bool = option(
        True, "Correct the template text behind them",
        "Add the true offsets to the following prefix segments.",
        paper="Eq. 7",
    )  # fmt: skip
    prefix_base: str = prefix_base_option()


class OracleMethod(Method):
    """What a perfect estimate of the offsets would give."""

    name = "oracle"
    column = 240
    title = "True offsets"
    summary = "Corrects the copy by the offsets that dense really shows: the ceiling of every correction."
    paper = "a control of this lab"
    Options = OracleOptions

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        agent, options = context.prompt.agent, self.options
        if any(agent not in sample.offsets for sample in context.samples.values()):
            return dense_plan(
                context.prompt, "True offsets are known in pinned mode only, where dense read this prompt."
            )
        offsets: dict[str, tuple[Offset, int]] = {}
        for name, sample in context.samples.items():
            entry = sample.offsets[agent]
            if options.placeholder_offset:
                offsets[name] = (entry.placeholder, sample.number)
            if options.prefix_offset:
                offsets |= {follower: (offset, sample.number) for follower, offset in entry.followers.items()}
        weight = torch.ones(())
        steps: list[Step] = []
        action: Reuse | Compute
        for span in context.prompt.filled_spans:
            if span.name in offsets:
                offset, number = offsets[span.name]
                base = segment_base(context, span.name)
                action = Reuse(base, (Term(weight, offset, number),), reason="corrected by its true offset")
            elif span.kind == "prefix" and span.start > 0 and options.prefix_offset:
                action = Compute("template text behind an empty placeholder: no sample holds its offset")
            else:
                base = segment_base(context, span.name, options.prefix_base)
                action = Reuse(base, reason="copied", exact=span.start == 0)
            steps.append(Step(span.start, span.end, action))
        return Plan(tuple(steps), "reused", "Every segment was copied and corrected by its true offset.")
