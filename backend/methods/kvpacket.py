"""KV Packet: documents between trained tokens, encoded once and never computed again (Chen et al. 2026, arXiv
2604.13226).

A document is an immutable packet: trained soft tokens before it and behind it, the same for every document,
are encoded with it and kept with it. They are to bridge what the document lacks of its context, so nothing is
computed again. Only they are trained, by distillation from the model's own reading of the whole prompt; the
weights stay as they are (``kvlab train-links --compression packet``, as :data:`TRAIN` has it), and they are
loaded as a model ``BASE+FILE``. The embedded model's ship with it (``embedded+packet``).

Readings of points that the abstract leaves open: a document is what stands in a placeholder, but for the
question; it sees its own wrappers before it, and neither another document nor the template. Template and
question are read afresh over the packets.
"""

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.block_attention import BlockAttentionMethod
from backend.methods.compression import shortened
from backend.methods.dense import fallback_plan
from backend.methods.plan import Plan
from backend.methods.promptcache import documents

TRAIN = (
    "kvlab train-links --compression packet --links 0 --no-edges --rank 0 --mixture apart --teacher 1 "
    "--steps 1000 --batch 8 --out packet.safetensors"
)
LACKING = (
    "The weights have no wrappers. The embedded model's ship with it: run on --model embedded+packet. For "
    f"another model train them ({TRAIN}) and run on --model MODEL+packet.safetensors."
)


def has_wrappers(context: PromptInContext) -> bool:
    """Do the reader's weights have wrappers?"""
    links = context.encoder.links if context.encoder is not None else None
    return links is not None and links.compression == "packet"


class KVPacketMethod(BlockAttentionMethod):
    """Blocks between trained tokens."""

    name = "kvpacket"
    column = 160
    title = "KV Packet"
    summary = "Encodes each document alone between a few trained tokens, and computes nothing of it again."
    paper = "Chen et al. 2026, arXiv 2604.13226"

    def layout(self, context: PromptInContext) -> PromptInContext:
        """The prompt with wrappers around its documents."""
        names = [span.name for span in documents(context)]
        return shortened(context, names, "packet", 0.0) if names and has_wrappers(context) else context

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        if has_wrappers(context):
            return super().plan(context, log, clock)
        return fallback_plan(context.prompt, LACKING)
