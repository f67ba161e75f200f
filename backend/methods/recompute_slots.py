"""Position-only reuse of all but chosen candidates, which are computed again where they stand.

An intervention rather than a way to serve: it asks which candidate's missing context changed the verdict. The
chosen tokens are read over the copied cache, so they see what stands before them as the others left it.
"""

from dataclasses import dataclass

from backend.base.clock import Clock
from backend.methods.base import Method, PromptView
from backend.methods.candidates import blocks, chosen_tokens
from backend.methods.options import Options, layer_option, option
from backend.methods.plan import Selection

WHICH = ("later", "all", "first", "last", "one")
MOST_SLOTS = 32


@dataclass(frozen=True)
class RecomputeSlotsOptions(Options):
    """Options of the intervention."""

    which: str = option(
        "later", "Candidates to compute again",
        "later: all but the first, which has no candidate to see. one: the candidate of the number below.",
        choices=WHICH,
    )  # fmt: skip
    slot: int = option(
        2, "Number of the candidate", "Counted from 1 in the judge's order; matters with one.",
        minimum=1, maximum=MOST_SLOTS,
    )  # fmt: skip
    headers: bool = option(
        False, "Their separators too", "Compute the template text before each chosen one again as well.",
    )  # fmt: skip
    first_layer: int = layer_option(
        0, "From layer", "Lower layers keep the copied cache.",    )  # fmt: skip


class RecomputeSlotsMethod(Method):
    """The contract's default plan, then a selection of whole candidates."""

    name = "recompute_slots"
    column = 230
    title = "Recompute chosen candidates"
    summary = "Copies and repositions the cache, then computes whole candidates again."
    paper = "a control of this lab"
    Options = RecomputeSlotsOptions
    needs_masks = True

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        options, prompt = self.options, view.context.prompt
        count = len(blocks(prompt))
        slots = {
            "all": range(count),
            "later": range(1, count),
            "first": range(min(1, count)),
            "last": range(max(0, count - 1), count),
            "one": range(options.slot - 1, min(options.slot, count)),
        }[options.which]
        tokens = chosen_tokens(prompt, slots, headers=options.headers)
        if not tokens or options.first_layer >= view.cache.keys.shape[0]:
            return None
        named = ", ".join(str(slot + 1) for slot in slots)
        return Selection(tokens, first_layer=options.first_layer, reason=f"candidate {named} computed again")
