"""Notes of a record about agents that run on other weights than the lab's own."""

from collections.abc import Sequence

import numpy as np

from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder, agent_label
from backend.records.prompt import Prompt
from backend.records.request import RunRequest
from backend.records.run import COMPUTED, RECOMPUTED, Outcome


def foreign(pipeline: Pipeline, agent: int, name: str) -> bool:
    """Was a placeholder's cache computed by other weights than its reader's?"""
    hole = Placeholder(name)
    source = pipeline.outside_model
    if hole.kind == "agent" and hole.agent is not None and pipeline.fills(hole):
        source = pipeline.agent(hole.agent).model
    return source != pipeline.agent(agent).model


def weights_notes(
    request: RunRequest, outcomes: Sequence[Outcome], prompts: Sequence[Prompt]
) -> tuple[str, ...]:
    """The warning, and the measured error of copied texts by whose weights computed their cache.

    The error of a text is the mean over its tokens and all layers of the relative L2 error against dense, as
    in ``Outcome.key_error`` and ``value_error``; a method's is the mean over its texts. Pinned runs only.
    """
    pipeline = request.pipeline
    others = [a for a in pipeline.agents if a.model]
    if len({a.model for a in pipeline.agents}) == 1:
        return ()  # whatever is exchanged, the same weights computed it
    agents = ", ".join(f"agent {agent_label(a.id)} on {a.model!r}" for a in others)
    notes = [
        f"Weights differ: {agents}. Their caches and the others' are exchanged although each would compute "
        "them otherwise; the errors hold that difference too."
    ]
    for label in dict.fromkeys(o.method for o in outcomes):
        errors: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for outcome in (o for o in outcomes if o.method == label):
            if outcome.key_error is None or outcome.value_error is None:
                continue
            computed = np.asarray(np.isin(outcome.actions, (COMPUTED, RECOMPUTED)).all(axis=0))
            for span in prompts[outcome.prompt].spans:
                tokens = [i for i in range(span.start, span.end) if not computed[i]]
                if span.kind == "placeholder" and tokens:
                    keys, values = outcome.key_error[:, tokens], outcome.value_error[:, tokens]
                    pair = float(keys.mean()), float(values.mean())
                    errors[foreign(pipeline, outcome.agent, span.name)].append(pair)
        if errors[True]:
            notes.append(f"{label}: {_error_words(errors[True])} in texts whose cache other weights "
                         f"computed, {_error_words(errors[False])} in the rest.")  # fmt: skip
    return tuple(notes)


def _error_words(errors: list[tuple[float, float]]) -> str:
    if not errors:
        return "no text"
    keys, values = np.mean(errors, axis=0)
    return f"relative error of keys {keys:.3g} and values {values:.3g}"
