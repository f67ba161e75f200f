"""Block-Attention: documents as blocks, encoded by themselves and moved into place (Sun et al. 2024).

What it adds to PromptCache with keys moved is training: the model learns to read blocks that do not see each
other; template text and the question, its last block, see everything. As in KVLink's appendix A.3, nothing
stands between the blocks. With weights that were not trained so (any but ``BASE+LINKS``) it is PromptCache,
moved, and the plan says so.
"""

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.dense import dense_plan
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.methods.promptcache import NOTHING, ApartMethod, apart, documents

LAST_BLOCK = "the last block and what holds the blocks together"


class BlockAttentionMethod(ApartMethod):
    """Blocks by copy, moved; at its best on weights trained for it."""

    name = "block_attention"
    column = 140
    title = "Block-Attention"
    summary = "Encodes each document by itself and moves it into place, on weights trained to read blocks."
    paper = "Sun et al. 2024; KVLink Section 3.1, appendix A.3"

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        blocks = {span.name for span in documents(context)}
        if not blocks:
            return dense_plan(context.prompt, NOTHING)
        steps: list[Step] = []
        for span in context.prompt.filled_spans:
            action: Reuse | Compute = Compute(LAST_BLOCK)
            if span.name in blocks:
                action = Reuse(apart(context, span, clock), reason="a block")
            steps.append(Step(span.start, span.end, action))
        trained = context.encoder is not None and context.encoder.links is not None
        weights = "weights trained" if trained else "weights that were not trained"
        reason = f"{len(blocks)} blocks were copied and moved, on {weights} to read them."
        return Plan(tuple(steps), "partial", reason)
