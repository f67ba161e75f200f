"""APE, adaptive parallel encoding: contexts read apart, attention to them tuned (Yang et al. 2025, arXiv
2502.05431).

Parallel encoding reads each context by itself and lets them share positions. Three corrections bring
attention to them nearer to a sequential read's: a *shared prefix* before every context, so that the states of
first tokens, which draw attention, are there once; a *temperature* below 1, which sharpens attention to the
contexts; and a *scale*, by which the logarithm of their sum of exponents is multiplied
(:mod:`backend.model.tempering`). All tokens behind the contexts attend to them in this way.

Readings of points that the abstract and the algorithm leave open:

* *Contexts* are the texts in placeholders but for the question. Template text before a context is read
  afresh, and takes the positions before it: the words before the second one stand where the first began.
* *Shared prefix*: the template's words before the first text. Behind them each context is encoded, once for
  all requests; the question, which changes, is no part of it. A template that begins with a text has none.
* *Temperature and scale* are searched for each model and task there; 0.9 and 0.9 are this lab's defaults.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch

from backend.base.clock import Clock
from backend.cache.kv_cache import Temper
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.dense import dense_plan
from backend.methods.options import Options, option
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.methods.promptcache import NOTHING, ApartMethod, documents

READ = "read afresh, over contexts that were read apart"


@dataclass(frozen=True)
class ApeOptions(Options):
    """Options of APE. At temperature 1, scale 1, no prefix and own positions it is Block-Attention."""

    prefix: bool = option(
        True, "Shared prefix", "Encode each context behind the template's first words; else by itself.",
        paper="APE, shared prefix",
    )  # fmt: skip
    temperature: float = option(
        0.9, "Attention temperature", "Below 1, attention to the contexts is sharper.",
        minimum=0.1, maximum=2.0, paper="APE, attention temperature",
    )  # fmt: skip
    scale: float = option(
        0.9, "Scaling factor",
        "Multiplies the logarithm of the contexts' sum of exponents, and so the share that they get.",
        minimum=0.1, maximum=2.0, paper="APE, scaling factor",
    )  # fmt: skip
    positions: str = option(
        "shared", "Contexts stand at",
        "The same positions, as published; or each at its own place in the prompt.",
        choices=("shared", "own"), paper="APE, position reuse",
    )  # fmt: skip


class ApeMethod(ApartMethod):
    """Contexts by copy, side by side; attention to them tuned."""

    name = "ape"
    column = 170
    title = "APE"
    summary = (
        "Reads each text apart, behind the same first words, and tunes the attention that later words pay."
    )
    paper = "Yang et al. 2025, arXiv 2502.05431"
    Options = ApeOptions

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        prompt, o, encoder = context.prompt, self.options, context.encoder
        contexts = documents(context)
        if not contexts:
            return dense_plan(context.prompt, NOTHING)
        assert encoder is not None, "the prompt was laid out without an encoder"
        spans = prompt.filled_spans
        prefix = prompt.ids[: spans[0].end] if o.prefix and spans[0].kind == "prefix" else ()
        first = contexts[0].start
        # Behind each context begins what belongs to the next.
        edges = [first, *(span.end for span in contexts)]
        widest = first + max(end - start for start, end in pairwise(edges))
        steps: list[Step] = []
        for span in spans:
            action: Reuse | Compute = Compute(READ if span.start >= first else "before the contexts")
            if span in contexts:
                base = encoder.encode(prompt.ids[span.start : span.end], clock, prefix)
                action = Reuse(base, reason="a context, read apart")
            place: int | None = None
            if o.positions == "shared" and span.start >= first:
                before = max(edge for edge in edges if edge <= span.start)
                place = (first if before < edges[-1] else widest) + span.start - before
            steps.append(Step(span.start, span.end, action, place))
        is_context = torch.zeros(len(prompt.ids), dtype=torch.bool)
        for span in contexts:
            is_context[span.start : span.end] = True
        plain = o.temperature == 1 and o.scale == 1
        how = f"temperature {o.temperature:g}, scale {o.scale:g}"
        return Plan(
            tuple(steps), "partial", f"{len(contexts)} contexts were copied side by side, {how}.",
            temper=None if plain else Temper(is_context, o.temperature, o.scale),
        )  # fmt: skip
