"""Prefix cache: reuse the longest exact token prefix of an earlier prompt. Changes nothing but time."""

from dataclasses import dataclass

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method
from backend.methods.dense import dense_plan
from backend.methods.options import Options, option
from backend.methods.plan import Compute, Plan, Reuse, Step


@dataclass(frozen=True)
class PrefixOptions(Options):
    """Options of the prefix cache."""

    minimum_tokens: int = option(
        1, "Shortest prefix worth copying", "Prefixes shorter than this are read afresh.",
        minimum=1, maximum=4096,
    )  # fmt: skip


class PrefixMethod(Method):
    """What serving systems do today: exact, and only at the front."""

    name = "prefix"
    column = 20
    title = "Prefix cache"
    summary = "Copies the longest beginning that an earlier prompt shares exactly, and reads the rest afresh."
    paper = "vLLM, SGLang: exact prefix caching"
    not_replayed = "it copies earlier prompts, most of which have left the log since, and it is exact"
    needs_bases = False
    shares_texts = False
    Options = PrefixOptions

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        ids = context.prompt.ids
        with clock.part("match"):
            prefix = log.longest_prefix(ids, context.weights)
        # the last token's logits are needed
        length = min(sum(piece.tokens for piece in prefix), len(ids) - 1)
        if length < self.options.minimum_tokens:
            return dense_plan(context.prompt, "No earlier prompt begins like this one.")
        reason = "the same beginning, at the same place"
        copied = [
            Step(p.start, min(p.start + p.tokens, length), Reuse(p, reason=reason, exact=True))
            for p in prefix
        ]
        steps = (
            *(s for s in copied if s.end > s.start),
            Step(length, len(ids), Compute("after the shared beginning")),
        )
        return Plan(
            steps, "partial", f"The first {length} of {len(ids)} tokens equal those of an earlier prompt."
        )
