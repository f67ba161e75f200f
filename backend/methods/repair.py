"""Repair: reuse, then compute again the few tokens from which a judge reads what a candidate says.

A judge compares; a copied candidate never met the others, for its cache was made in its own agent's context
(judge study, Section 6: cross-candidate attention is what reuse loses, and masking it collapses
consistency). Its discussion asks for reuse that keeps interaction; this is one such method, the lab's own.
Over position-only or KVCOMM's reuse it computes a share of the prompt again. The tokens read the assembled
cache, each other included.

Which tokens: each candidate's last (the default), where its answer stands; over KVCOMM they bring back nearly
every choice (FINDINGS.md, "What repairs a judge"). The other rules are for comparison: the words between the
candidates, then the question and the rest of the prompt's own words (best on earlier weights of the embedded
model); tokens that the words behind the candidates look at, those that look most at other candidates, each
candidate's first (EPIC's rule), those whose fresh K/V differ most (CacheBlend's rule), or any (the control);
in the whole prompt, or in candidates alone. A prompt without candidates has its placeholders' texts instead.

The budget is all that may be forwarded beside the last token. Tokens whose copy is exact get none of it. What
choosing forwards is paid first, in token-layers over the number of layers. Each piece of the prompt gets its
share by length.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.methods.base import PromptView
from backend.methods.candidates import blocks
from backend.methods.options import Options, layer_option, option, seed_option
from backend.methods.over import KVCOMM, OverMethod
from backend.methods.plan import Selection
from backend.methods.selective import best, exact_tokens
from backend.records.prompt import TokenizedPrompt

WORDS = ("words", "headers", "question")
SELECTORS = (*WORDS, "first", "tail", "cross", "asked", "deviation", "random")


@dataclass(frozen=True)
class RepairOptions(Options):
    """Options of repair."""

    base: str = option(
        "kvcomm", "Repairs",
        "What is reused before: repositioned copies, or KVCOMM in one of its profiles.",
        choices=("naive", *KVCOMM),
    )  # fmt: skip
    budget: float = option(
        0.25, "Budget", "Share of the prompt's tokens that choosing and computing again may forward.",
        minimum=0.0, maximum=1.0, paper="judge study, Section 7 proposes it",
    )  # fmt: skip
    selector: str = option(
        "tail", "Computes again",
        "tail: each candidate's end, where its answer stands. To compare with: first: its beginning. "
        "words: those between the candidates (headers), then the question and the prompt's other words; "
        "headers, question: these alone. cross: tokens that look most at other candidates. asked: tokens "
        "that the words behind the candidates look at. deviation: tokens whose K/V change most when fresh. "
        "random: a control.",
        choices=SELECTORS, paper="first: EPIC; deviation: CacheBlend",
    )  # fmt: skip
    scope: str = option(
        "all", "Within",
        "The candidates after the first, all candidates, or the whole prompt. Words are between them always.",
        choices=("later", "all", "prompt"), advanced=True,
    )  # fmt: skip
    layer: int = layer_option(
        -1, "Looks at layer",
        "Where attention or deviation is read. -1: layer 1, or half of the depth for the words behind the "
        "candidates, of which there are few.",
        minimum=-1,
    )  # fmt: skip
    seed: int = seed_option("Of the random control.")

    @property
    def wants_lead_in(self) -> bool:
        return self.base == "kvcomm shipped"


class RepairMethod(OverMethod):
    """Another method's plan and pools, and a selection of its own."""

    name = "repair"
    column = 200
    title = "Repair"
    summary = "Reuses the cache, then computes again the end of each text, where its answer stands."
    paper = "a method of this lab, after the judge study's Section 7"
    Options = RepairOptions

    def select(self, view: PromptView, clock: Clock) -> Selection | None:
        layers = int(view.cache.keys.shape[0])
        budget = int(self.options.budget * view.total)
        reason = f"chosen to be computed again ({self.options.selector})"
        if self.options.selector in WORDS:
            words = self._words(view)[:budget]
            return Selection(tuple(sorted(words)), reason=reason) if words else None
        chunks = [[t for t in chunk if view.copied[t]] for chunk in self._chunks(view)]
        chunks = [chunk for chunk in chunks if chunk]
        if not chunks:
            return None
        if budget >= sum(map(len, chunks)):
            every = sorted(t for chunk in chunks for t in chunk)
            return Selection(tuple(every), reason="the budget covers every token that may be computed again")
        layer, chosen, below = self.layer(layers), [], 0
        if self.price(view, chunks) * (layer + 1) <= budget * layers:  # else too little is left to choose by
            forwarded = view.token_layers
            score = self.score(view, chunks, layer)
            budget -= -(-(view.token_layers - forwarded) // layers)  # choosing is paid first
            dealt = zip(chunks, shares(chunks, budget), strict=True)
            chosen = [t for chunk, count in dealt for t in best(score, chunk, count)]
            # To see the deviation every token was computed up to that layer; so they may as well stay.
            below = layer + 1 if self.options.selector == "deviation" else 0
        if not chosen and not below:
            return None
        return Selection(tuple(sorted(chosen)), fresh_below=below, reason=reason)

    def _words(self, view: PromptView) -> list[int]:
        """What is no candidate's text: the candidates' headers, the other texts (such as the question), then
        the rest of the prompt's own words; or one of the first two."""
        candidate_blocks = blocks(view.context.prompt)
        candidates = {block.name for block in candidate_blocks}
        spans = [s for s in view.context.prompt.spans if s.name not in candidates]
        headers = [(block.start, block.text) for block in candidate_blocks]
        texts = [(s.start, s.end) for s in spans if s.kind == "placeholder"]
        template_spans = [(s.start, s.end) for s in spans if s.kind != "placeholder"]
        chosen = {"headers": headers, "question": texts, "words": [*headers, *texts, *template_spans]}
        places = chosen[self.options.selector]
        exact, last = exact_tokens(view), view.total - 1
        tokens = (token for start, end in places for token in range(start, min(end, last)))
        return [token for token in dict.fromkeys(tokens) if view.copied[token] and token not in exact]

    def layer(self, layers: int) -> int:
        """The layer that is looked at, of so many."""
        own = layers // 2 if self.options.selector == "asked" else 1
        return min(own if self.options.layer < 0 else self.options.layer, layers - 1)

    def price(self, view: PromptView, chunks: Sequence[Sequence[int]]) -> int:
        """How many tokens choosing forwards, up to the layer that is looked at."""
        if self.options.selector == "cross":
            return sum(map(len, chunks))
        if self.options.selector == "asked":
            return len(_query(view))
        return view.total if self.options.selector == "deviation" else 0

    def _chunks(self, view: PromptView) -> Sequence[Sequence[int]]:
        """The tokens that may be computed again, piece by piece."""
        if self.options.scope == "prompt":
            exact = exact_tokens(view)
            spans = (range(start, min(end, view.total - 1)) for start, end in view.start.values())
            return [[token for token in span if token not in exact] for span in spans]
        texts = [range(start, min(end, view.total - 1)) for start, end in _texts(view.context.prompt)]
        return texts[1:] if self.options.scope == "later" else texts

    def score(self, view: PromptView, chunks: Sequence[Sequence[int]], layer: int) -> Tensor:
        """(tokens,) how much each prompt token matters; only those in ``chunks`` count."""
        score, how = torch.zeros(view.total), self.options.selector
        if how == "cross":
            tokens = [t for chunk in chunks for t in chunk]
            texts = _texts(view.context.prompt)
            attention = view.attention(tokens, layer).mean(dim=0).cpu()  # (queries, total)
            for row, token in zip(attention, tokens, strict=True):
                score[token] = sum(row[a:b].sum() for a, b in texts if not a <= token < b)
        elif how == "asked":
            score = view.attention(_query(view), layer).mean(dim=(0, 1)).cpu()
        elif how == "deviation":
            for new, old in zip(view.fresh(layer), view.stale(layer), strict=True):
                score += ((new - old).float() ** 2).sum(dim=(0, 2)).cpu()
        elif how == "random":
            order = random.Random(f"{self.options.seed}:{view.context.prompt.ids}")
            score = torch.tensor([order.random() for _ in range(view.total)])
        else:
            sign = -1.0 if how == "first" else 1.0
            score = sign * torch.arange(view.total, dtype=torch.float32)
        return score


def shares(chunks: Sequence[Sequence[int]], budget: int) -> list[int]:
    """``most`` tokens dealt out to chunks by their lengths (largest remainders, earlier chunks first)."""
    total = sum(map(len, chunks))
    budget = max(0, min(budget, total))
    exact = [budget * len(chunk) / total for chunk in chunks]
    out = [int(share) for share in exact]
    by_remainder = sorted(range(len(chunks)), key=lambda i: out[i] - exact[i])
    for index in by_remainder[: budget - sum(out)]:
        out[index] += 1
    return out


def _texts(prompt: TokenizedPrompt) -> list[tuple[int, int]]:
    """First token and one past the last of each candidate, or of each placeholder where there are none."""
    candidates = [(block.text, block.end) for block in blocks(prompt)]
    return candidates or [(s.start, s.end) for s in prompt.spans if s.kind == "placeholder"]


def _query(view: PromptView) -> range:
    """The words behind the candidates, or behind the last of other texts; the last prompt token at least."""
    end = max((end for _, end in _texts(view.context.prompt)), default=0)
    return range(min(end, view.total - 1), view.total)
