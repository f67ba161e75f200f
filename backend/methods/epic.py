"""EPIC: compute the first tokens of every text again (LegoLink; Hu et al., ICML 2025, arXiv 2410.15332).

A text that was encoded alone begins with an attention sink of its own, which a prompt should have only at its
very beginning. LegoLink therefore computes the first k tokens of each copied text (k of 32 or less) over what
stands before them, and no others: which tokens is known beforehand, so nothing is spent on choosing. The
words behind the last text are computed in any case. A text with which the prompt begins needs nothing.

Open points, as read here: a *chunk* is a placeholder's text, or every segment (``chunks``); the chosen tokens
of all chunks go through the model together, in one pass over the assembled cache.
"""

from dataclasses import dataclass
from typing import cast

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, PromptView, copy_everything
from backend.methods.options import Options, option, prefix_base_option
from backend.methods.plan import MaskKind, Plan, Selection
from backend.methods.selective import candidates, mask_option, suffix_option


@dataclass(frozen=True)
class EpicOptions(Options):
    """Options of EPIC."""

    first_tokens: int = option(
        16, "First tokens computed", "How many at the beginning of each copied text; 0 computes none again.",
        minimum=0, maximum=32, paper="EPIC, LegoLink-k",
    )  # fmt: skip
    chunks: str = option(
        "texts", "Texts that count",
        "The placeholders' texts, or the template segments between them as well.",
        choices=("texts", "all segments"), paper="left open", advanced=True,
    )  # fmt: skip
    mask: str = mask_option()
    suffix: bool = suffix_option()
    prefix_base: str = prefix_base_option()


class EpicMethod(Method):
    """Where a text begins is where it goes wrong most."""

    name = "epic"
    column = 80
    title = "EPIC"
    summary = "Copies the cache, then computes the first tokens of every copied text again."
    paper = "EPIC, LegoLink"
    Options = EpicOptions
    needs_masks = True

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        return copy_everything(context, self.options.prefix_base)

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        o = self.options
        free, suffix = candidates(view, o.suffix)
        starts = [
            span.start
            for span in view.context.prompt.spans
            if span.start > 0 and (span.kind == "placeholder" or o.chunks == "all segments")
        ]
        ends = [end for _, end in view.start.values()]
        heads = {t for a in starts for t in range(a, min(a + o.first_tokens, *(e for e in ends if e > a)))}
        chosen = tuple(sorted({*heads & set(free), *suffix}))
        if not chosen:
            return None
        mask = cast(MaskKind, o.mask)
        return Selection(chosen, mask=mask, reason="computed again: the beginning of a text, or the suffix")
