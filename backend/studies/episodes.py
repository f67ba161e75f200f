"""An agent loop's episode under one method, turn by turn, and what is counted on its tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.methods.base import Method
from backend.methods.plan import Plan, Reuse
from backend.prompts.pipeline import Pipeline
from backend.prompts.presets import Example
from backend.prompts.tools.react import act, finishes
from backend.records.request import Decoding
from backend.session.outcomes import remember_prompt
from backend.session.prompt_run import read_prompt
from backend.session.request_state import RequestState


@dataclass(frozen=True)
class Turn:
    """One turn as it was read and answered."""

    number: int
    context: PromptInContext
    prefill: Prefill
    clock: Clock
    ids: tuple[int, ...]
    text: str
    decode_ms: float
    last: bool


def turns(
    engine: Engine, pipeline: Pipeline, log: SampleLog, example: Example, method: Method, decoding: Decoding
) -> Iterator[Turn]:
    """An episode under one method, turn by turn, until it finishes or the turns are over."""
    state = RequestState(pipeline, engine, log)
    state.start(example.values)
    for number in pipeline.order:
        context, clock = state.context(number), engine.clock()
        engine.check_room(len(context.prompt.ids), decoding.max_new_tokens, number)
        context, prefill = read_prompt(engine, context, method, log, clock)
        began = engine.clock()
        with began.part("decode"):
            [decoded] = engine.decode([prefill], decoding, context="its own context")
        if prefill.exact and not method.shares_texts:
            remember_prompt(engine, context, prefill, log)
        text = engine.model.tokens.decode(decoded.ids)
        last = finishes(text) or number == pipeline.order[-1]
        yield Turn(number, context, prefill, clock, decoded.ids, text, began.parts["decode"], last)
        if last:
            break
        state.answer(number, decoded.ids, text, decoded.kv)
        state.tool_result(number, act(text).text)
    log.samples.clear()  # samples of one episode; the methods here keep what they need themselves


def copied(plan: Plan, total: int) -> tuple[int, int]:
    """Tokens that a plan copies where it is exact, and elsewhere; the last one is always forwarded."""
    counts = [0, 0]
    for step in plan.steps:
        if isinstance(step.action, Reuse):
            counts[not step.action.exact] += min(step.end, total - 1) - step.start
    return counts[0], counts[1]


def levenshtein(a: Sequence[int], b: Sequence[int]) -> int:
    """Fewest insertions, deletions and replacements that make one of the other."""
    row = np.arange(len(b) + 1)
    other = np.asarray(b, dtype=np.int64)
    for number, token in enumerate(a, 1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (other != token))
        best = np.concatenate([[number], changed])
        # an insertion costs one more than the place before: a running minimum of what is left of it
        steps = np.arange(len(best))
        row = np.minimum.accumulate(best - steps) + steps
    return int(row[-1])


def entropy(texts: Sequence[Sequence[int]]) -> float:
    """Mean over places of the entropy, in nats, of the tokens that the texts have there; an ended text has
    none."""
    longest = max((len(t) for t in texts), default=0)
    entropies = []
    for place in range(longest):
        tokens = [t[place] if place < len(t) else None for t in texts]
        shares = np.array([tokens.count(token) for token in set(tokens)]) / len(tokens)
        entropies.append(float(-(shares * np.log(shares)).sum()))
    return float(np.mean(entropies)) if entropies else 0.0
