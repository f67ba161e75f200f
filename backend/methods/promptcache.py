"""PromptCache: texts as modules, each encoded by itself and put together by copying (Gim et al. 2024).

As published, a schema gives every module a range of positions; a module's keys stay where the schema put it,
so a prompt has gaps where a text is shorter than its range. KVLink's Table 1 compares with the variant that
moves the keys to their place in the prompt (its Section 3.1 and appendix A.3); both are here.

Readings: a module is what stands in a placeholder, but for the question, which is the user's own text and
read afresh; so is template text, unless it is made modules as well. A module sees its own tokens alone. A
schema reserves ``room`` tokens for each text; a longer one takes what it needs, and all behind it moves on.
"""

from dataclasses import dataclass

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method
from backend.methods.dense import dense_plan
from backend.methods.options import Options, option
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.prompts.template import Placeholder
from backend.records.prompt import Span

NOTHING = "No text but the question stands in this prompt's placeholders: there is nothing to copy."
AFRESH = "the user's own text, and what holds the modules together"


def documents(context: PromptInContext) -> list[Span]:
    """The texts that can be encoded apart: what stands in placeholders, but for the question."""
    return [
        span
        for span in context.prompt.filled_spans
        if span.kind == "placeholder" and Placeholder(span.name).kind != "question"
    ]


def encoded(context: PromptInContext, start: int, end: int, clock: Clock) -> KVSegment:
    """The KV of prompt tokens ``[start, end)``, encoded by themselves; timed as ``base``."""
    assert context.encoder is not None, "the prompt was laid out without an encoder"
    return context.encoder.encode(context.prompt.ids[start:end], clock)


def apart(context: PromptInContext, span: Span, clock: Clock) -> KVSegment:
    """A document's KV: as a method laid it out, or encoded by itself."""
    return context.method_bases.get(span.name) or encoded(context, span.start, span.end, clock)


@dataclass(frozen=True)
class PromptCacheOptions(Options):
    """Options of PromptCache."""

    positions: str = option(
        "schema", "Modules stand at",
        "The positions that the schema gave them, as published, or moved to their place in the prompt.",
        choices=("schema", "prompt"), paper="PromptCache Section 3.3; KVLink Section 3.1",
    )  # fmt: skip
    modules: str = option(
        "texts", "Modules are",
        "The placeholders' texts, the template's too, or the whole prompt as one (a control: that is dense).",
        choices=("texts", "texts and template", "whole prompt"), paper="PromptCache Section 3.2",
    )  # fmt: skip
    room: int = option(
        64, "Tokens that the schema reserves for a text", "Shorter texts leave a gap in the positions.",
        minimum=1, maximum=4096, paper="PromptCache Section 3.2, parameters", advanced=True,
    )  # fmt: skip


class ApartMethod(Method):
    """A method that encodes texts by themselves, as its readers' weights need them."""

    not_replayed = "it encodes texts by themselves, and a replay encodes nothing"
    needs_bases = False
    needs_masks = True


class PromptCacheMethod(ApartMethod):
    """Modules by copy, nothing across them."""

    name = "promptcache"
    column = 130
    title = "PromptCache"
    summary = (
        "Encodes each text by itself once, and copies it to where a fixed layout, or the prompt, wants it."
    )
    paper = "Gim et al. 2024; KVLink Section 3.1 (re-encoded)"
    Options = PromptCacheOptions

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        total, options = len(context.prompt.ids), self.options
        if options.modules == "whole prompt":
            base = encoded(context, 0, total, clock)
            steps = (Step(0, total, Reuse(base, reason="the whole prompt as one module", exact=True)),)
            return Plan(steps, "reused", "The whole prompt is one module.")
        modules = {span.name for span in documents(context)}
        if options.modules == "texts and template":
            modules = {span.name for span in context.prompt.filled_spans}
        if not modules:
            return dense_plan(context.prompt, NOTHING)
        own = options.positions == "schema"
        out: list[Step] = []
        position = 0
        for span in context.prompt.filled_spans:
            length = span.end - span.start
            action: Reuse | Compute = Compute(AFRESH)
            if span.name in modules:
                base = encoded(context, span.start, span.end, clock)
                action = Reuse(base, reason="a module, encoded by itself", exact=span.start == 0)
            out.append(Step(span.start, span.end, action, position if own else None))
            text = span.kind == "placeholder" and Placeholder(span.name).kind != "question"
            position += max(length, options.room) if text else length
        where = "the positions of the schema" if own else "their place in the prompt"
        whole = all(isinstance(step.action, Reuse) for step in out)
        return Plan(tuple(out), "reused" if whole else "partial", f"Modules were copied to {where}.")
