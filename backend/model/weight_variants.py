"""Agents that run on other weights of one architecture.

A cache is its weights' own: what an agent with other weights wrote is read by the others from a cache that
their weights would not have computed, and the request's cache comes from the lab's model whoever reads it.
(DroidSpeak studies which layers of a fine-tuned model's cache a base model may take; KVCOMM asks for the
same architecture.) Dense, the reference, reads every agent's prompt with that agent's own weights, so the
difference from dense holds the error of the weights beside the error of the context.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from backend.base.errors import ModelError
from backend.model.load import LoadedModel
from backend.prompts.pipeline import Pipeline
from backend.prompts.template import Placeholder, called
from backend.records.run import COMPUTED, RECOMPUTED, Outcome, Prompt, RunRequest


def check_sibling(own: LoadedModel, other: LoadedModel, name: str) -> None:
    """Refuse weights whose caches do not fit the lab's model.

    Raises:
        ModelError: the two differ in what a cache is made of or in how text becomes tokens.
    """
    a, b = own.info, other.info
    facts: list[tuple[str, object, object]] = [
        (words, getattr(a, field), getattr(b, field))
        for words, field in (
            ("layers", "layers"), ("KV heads", "kv_heads"), ("dimensions of a head", "head_dim"),
            ("vocabulary", "vocabulary"), ("number type", "dtype"), ("device", "device"),
        )
    ]  # fmt: skip
    differ = [f"{words} {theirs} instead of {ours}" for words, ours, theirs in facts if ours != theirs]
    if own.tokens.tokenizer.get_vocab() != other.tokens.tokenizer.get_vocab():
        differ.append("another tokenizer")
    elif (own.tokens.opening, own.tokens.closing) != (other.tokens.opening, other.tokens.closing):
        differ.append("another chat template")
    if not differ and not _same_rotation(own, other):
        differ.append("keys that turn otherwise with position (RoPE)")
    if differ:
        raise ModelError(
            f"The weights {name!r} ({b.name}) do not fit {a.name}: {', '.join(differ)}. Caches are exchanged "
            "between weights of one architecture with one tokenizer only, such as a fine-tuned model and its "
            "base. Name such weights.",
            field="model.weights",
        )


def _same_rotation(own: LoadedModel, other: LoadedModel) -> bool:
    pairs = zip(own.rotation.layers, other.rotation.layers, strict=True)
    return all(a.interleaved == b.interleaved and torch.equal(a.inv_freq, b.inv_freq) for a, b in pairs)


def foreign(pipeline: Pipeline, agent: int, name: str) -> bool:
    """Was a placeholder's cache computed by other weights than its reader's?"""
    hole = Placeholder(name)
    written = pipeline.written(hole) and hole.kind == "agent" and hole.agent is not None
    source = pipeline.agent(hole.agent).model if written and hole.agent is not None else ""
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
    if not others:
        return ()
    who = ", ".join(f"agent {called(a.id)} on {a.model!r}" for a in others)
    notes = [
        f"Weights differ: {who}. Their caches and the others' are exchanged although each would compute "
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
            notes.append(f"{label}: {_said(errors[True])} in texts whose cache other weights computed, "
                         f"{_said(errors[False])} in the rest.")  # fmt: skip
    return tuple(notes)


def _said(errors: list[tuple[float, float]]) -> str:
    if not errors:
        return "no text"
    keys, values = np.mean(errors, axis=0)
    return f"relative error of keys {keys:.3g} and values {values:.3g}"
