"""KVLink: separately encoded documents, moved into place and joined by trained link tokens (Yang et al.
2025).

Documents are kept without position and turned once to where they stand (Section 2.2). Behind the document of
index n come K link tokens of its own, before the first KV-START, behind the last KV-END (Section 2.3,
appendix A.2); these are forwarded, see everything before them, and are seen by everything behind. Weights and
link tokens are trained together by ``kvlab train-links`` and loaded together as a model ``BASE+LINKS``, so a
run on it compares with dense under the same weights.

Readings: a document is what stands in a placeholder, but for the question; template text is read afresh like
the question, and like link tokens it sees everything before it. With no link tokens and no trained weights
this is PromptCache with its keys moved. Compression (Section 2.4): "drop" shortens a text before it is
encoded; anchors are trained like links and stand in the text's place, so that positions count what is kept.
"""

from dataclasses import dataclass

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.compression import shortened
from backend.methods.dense import dense_plan, fallback_plan
from backend.methods.options import Options, option
from backend.methods.plan import Compute, Link, Plan, Reuse, Step
from backend.methods.promptcache import NOTHING, ApartMethod, apart, documents
from backend.model.link_tokens import Links
from backend.records.model_info import ModelInfo

READ = "template and question see everything before them"
RATES = {"half": 0.5, "three-quarters": 0.75}


@dataclass(frozen=True)
class KVLinkOptions(Options):
    """Options of KVLink."""

    links: str = option(
        "as trained", "Link tokens behind a document",
        "As many as the model's weights were trained with (none on others), or a number that must be theirs. "
        "0 leaves link tokens out.",
        choices=("as trained", "0", "1", "5"), paper="Section 2.3, Table 1",
    )  # fmt: skip
    compression: str = option(
        "none", "Documents are compressed by",
        "Dropping the tokens that say the least, or keeping anchor tokens alone, which have to be trained.",
        choices=("none", "drop", "anchors"), paper="Section 2.4, Table 3",
    )  # fmt: skip
    rate: str = option(
        "half", "Compression rate",
        "Share of a document's tokens that is dropped; anchors have the rate that they were trained at.",
        choices=tuple(RATES), paper="Table 3", advanced=True,
    )  # fmt: skip


def missing(options: KVLinkOptions, links: Links | int | None) -> str | None:
    """What the weights lack for these options, and what to run; None when nothing.

    Args:
        options: what is asked.
        links: the weights' link tokens, or their number; None where there are none.
    """
    count = links.tokens if isinstance(links, Links) else links
    if options.links not in ("as trained", "0") and count != int(options.links):
        have = "no link tokens" if count is None else f"{count} link tokens behind a document"
        return (
            f"The weights have {have}, not {options.links}. Train them (kvlab train-links --links "
            f"{options.links} --out kvlink{options.links}.safetensors) and run on --model "
            f"embedded+kvlink{options.links}.safetensors."
        )
    if options.compression == "anchors" and not (isinstance(links, Links) and len(links.anchor_tokens)):
        return (
            "The weights have no anchor tokens. Train them (kvlab train-links --compression anchors --out "
            "anchors.safetensors) and run on --model embedded+anchors.safetensors."
        )
    return None


class KVLinkMethod(ApartMethod):
    """Documents by copy, moved, with link tokens between them."""

    name = "kvlink"
    column = 150
    title = "KVLink"
    summary = "Encodes each document by itself, moves it into place, and joins them by a few trained tokens."
    paper = "Yang et al. 2025, Sections 2.2 to 2.4"
    Options = KVLinkOptions

    @classmethod
    def supports(cls, model: ModelInfo, options: KVLinkOptions | None = None) -> str | None:
        """As every method's; with ``options``, also what the weights lack for them."""
        reason = super().supports(model)
        if reason or options is None or options.compression == "anchors":
            return reason  # a model's facts do not say whether it has anchors: the plan checks
        return missing(options, model.links)

    def layout(self, context: PromptInContext) -> PromptInContext:
        """The prompt as this method reads it: its documents compressed, where the options say so."""
        options, names = self.options, [span.name for span in documents(context)]
        links = context.encoder.links if context.encoder is not None else None
        if options.compression == "none" or not names or missing(options, links):
            return context
        return shortened(context, names, options.compression, RATES[options.rate])

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        links = context.encoder.links if context.encoder is not None else None
        if reason := missing(self.options, links):
            return fallback_plan(context.prompt, reason)
        names = [span.name for span in documents(context)]
        if not names:
            return dense_plan(context.prompt, NOTHING)
        if self.options.links == "0":
            links = None
        steps: list[Step] = []
        soft: list[Link] = []
        for span in context.prompt.filled_spans:
            if span.name not in names:
                steps.append(Step(span.start, span.end, Compute(READ)))
                continue
            index, base = names.index(span.name), apart(context, span, clock)
            steps.append(
                Step(span.start, span.end, Reuse(base, reason=f"document {index + 1}, {base.context}"))
            )
            if links is None:
                continue
            if index == 0:
                soft.append(Link(span.start, links.edges[:1], "KV-START"))
            soft.append(Link(span.end, links.behind(index), f"links of document {index + 1}"))
            if index == len(names) - 1:
                soft.append(Link(span.end, links.edges[1:], "KV-END"))
        soft = [link for link in soft if link.tokens and link.at < len(context.prompt.ids)]
        count = sum(link.tokens for link in soft)
        how = f"joined by {count} trained tokens" if count else "with nothing to join them"
        return Plan(
            tuple(steps),
            "partial",
            f"{len(names)} documents were copied and moved, {how}.",
            links=tuple(soft),
        )
