"""Shadow dense: a sampled share of the served answers is checked against dense, afterwards.

Serving with reuse does not show how often it changes a verdict, for the dense one is not computed. Here a
request is drawn with a known probability, independently of what it is; once its answer is given, the last
agent's very prompt is read densely and answered again. The share that differs among those checked estimates
the share that differs among all (without bias, for being drawn depends on nothing else), with an exact
interval.
"""

import hashlib
import time
from collections.abc import Sequence

from backend.base.clock import Clock
from backend.base.errors import OptionError
from backend.engine.engine import Engine
from backend.methods.dense import dense_plan
from backend.prompts.scoring import answer_changed, extract_answer
from backend.records.request import RunRequest
from backend.records.run import Outcome, ShadowCheck
from backend.session.streams import PromptRun


def check_share(share: float) -> float:
    """The share of requests to check, if it is one.

    Raises:
        OptionError: it is not between 0 and 1.
    """
    if not 0 <= share <= 1:
        raise OptionError(
            f"The share of requests to check is {share!r}; allowed: 0 to 1, such as 0.1 for every tenth. "
            "Change it.",
            field="shadow",
        )
    return share


def is_sampled(share: float, seed: int, key: str) -> bool:
    """Is this request checked? Decided by its key alone, so that a batch that goes on draws the same."""
    hash_value = int.from_bytes(hashlib.sha256(f"shadow:{seed}:{key}".encode()).digest()[:8], "big")
    return hash_value < share * 2**64


def shadow_checks(
    engine: Engine, rows: Sequence[PromptRun], outcomes: Sequence[Outcome], request: RunRequest
) -> tuple[ShadowCheck, ...]:
    """Check the answers that one agent gave under every method but dense.

    Pinned, dense has read the prompt already. Free, each method's own prompt is read densely and answered
    again, unless the method itself read it so.

    Args:
        engine: the agent's.
        rows: finished; ``outcomes`` theirs.
        request: its decoding and scoring.
    """
    dense_texts: dict[tuple[int, ...], str] = {}
    if request.mode == "pinned":
        dense_texts[rows[0].context.prompt.ids] = outcomes[0].text
    decoding = request.decoding_of(outcomes[0].agent)
    out = []
    for row, outcome in zip(rows, outcomes, strict=True):
        if row.run.choice.reference:
            continue
        ids, start, forwarded = row.context.prompt.ids, time.perf_counter(), engine.forwarded_tokens
        if row.plan.plain:
            dense_texts.setdefault(ids, outcome.text)
        elif ids not in dense_texts:
            prefill = engine.execute(row.context.prompt, dense_plan(row.context.prompt, "checked"), Clock())
            [decoded] = engine.decode([prefill], decoding)
            dense_texts[ids] = engine.model.tokens.decode(decoded.ids)
        dense_answer = extract_answer(dense_texts[ids], request.pipeline.scoring)
        flipped = answer_changed(dense_answer, dense_texts[ids], outcome.answer, outcome.text)
        wall_ms, cost = (time.perf_counter() - start) * 1e3, engine.forwarded_tokens - forwarded
        out.append(
            ShadowCheck(outcome.agent, outcome.method, dense_answer, flipped, cost, wall_ms if cost else 0.0)
        )
    return tuple(out)
