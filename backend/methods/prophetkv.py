"""ProphetKV: compute again the tokens that the query looks at (Wang et al., ICML 2026, arXiv 2602.02579).

Tokens that stand out by themselves, but not to the query, crowd out those that the answer needs; so the
query chooses. Stage 1: its tokens alone pass all layers over the assembled cache, and every layer's attention
to the context is fused into *one* set of tokens. Stage 2: these and the query are computed again at all
layers. The budget is 20% of the context (abstract).

Readings of points that the texts at hand (the abstract, and others' summaries) leave open:

* *The query* is all that stands behind the last text that is no question, where a RAG prompt has it. A
  question that stands before the texts cannot look at them, so its words there are context.
* *Fusing*: a layer's attention, summed over heads and query tokens, is divided by its sum over the context,
  so that layers count alike; then the mean over layers ("fuse layer-wise attention metrics").
* *The context* is every copied token before the query whose copy is not exact: an exact beginning, with its
  attention sink, would take budget and change nothing.
* Stage 1 forwards the query once more than stage 2 does; both are counted.

``random_k:ratio=0.2+fresh_layers=0`` is its control of equal size, ``query_norm`` another reading.
"""

from dataclasses import dataclass

from torch import Tensor

from backend.base.clock import Clock
from backend.methods.base import PromptView
from backend.methods.options import Options, option, prefix_base_option
from backend.methods.selective import SelectiveMethod, exact_tokens, mask_option, ratio_option
from backend.prompts.template import Placeholder


@dataclass(frozen=True)
class ProphetKVOptions(Options):
    """Options of ProphetKV."""

    ratio: float = ratio_option(0.2, "abstract: 20%")
    fusion: str = option(
        "all layers", "Layers that choose", "All, fused into one choice; or the middle one alone: a control.",
        choices=("all layers", "middle layer"), paper="dual-stage pipeline",
    )  # fmt: skip
    mask: str = mask_option()
    prefix_base: str = prefix_base_option()

    @property
    def fresh_layers(self) -> int:
        """No layer is computed for all tokens."""
        return 0


class ProphetKVMethod(SelectiveMethod):
    """What the query looks at, over all layers."""

    name = "prophetkv"
    column = 90
    title = "ProphetKV"
    summary = "Copies the cache, then computes again the tokens that the question looks at, over all layers."
    paper = "ProphetKV, arXiv 2602.02579"
    Options = ProphetKVOptions

    def parts(self, view: PromptView) -> tuple[list[int], list[int]]:
        exact = exact_tokens(view)
        copied = [t for t in range(view.total - 1) if view.copied[t] and t not in exact]
        start = query_start(view)
        return [t for t in copied if t < start], [t for t in copied if t >= start]

    def score(self, view: PromptView, clock: Clock) -> Tensor:
        context, _ = self.parts(view)
        query = range(query_start(view), view.total)
        if self.options.fusion == "middle layer":
            attention = view.attention(query, int(view.cache.keys.shape[0]) // 2)[None]
        else:
            attention = view.attentions(query)
        layers = attention.sum(dim=(1, 2))  # (layers, total)
        score: Tensor = (layers / layers[:, context].sum(dim=1, keepdim=True)).mean(dim=0)
        return score


def query_start(view: PromptView) -> int:
    """The first token of the query: behind the last text that is no question; the last token at most."""
    spans = view.context.prompt.spans
    texts = [s for s in spans if s.kind == "placeholder" and Placeholder(s.name).kind != "question"]
    return min(max((s.end for s in texts), default=0), view.total - 1)
