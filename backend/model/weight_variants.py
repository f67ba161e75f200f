"""Agents that run on other weights of one architecture.

A cache depends on its weights: an answer's cache comes from its writer's weights, and the request's cache
from the lab's model, whatever weights the reader has. (DroidSpeak studies which layers of a fine-tuned
model's cache a base model can use; KVCOMM requires the same architecture.) Dense, the reference, reads every
prompt with the reading agent's own weights, so a difference from dense includes the error of the weights.
"""

import torch

from backend.base.errors import ModelError
from backend.model.load import LoadedModel


def check_sibling(own: LoadedModel, other: LoadedModel, name: str) -> None:
    """Refuse weights whose caches do not fit the lab's model.

    Raises:
        ModelError: the two differ in the shape of caches, the rotation of keys or the tokenizer.
    """
    a, b = own.info, other.info
    facts: list[tuple[str, object, object]] = [
        (words, getattr(a, field), getattr(b, field))
        for words, field in (
            ("layers", "layers"), ("KV heads", "kv_heads"), ("dimensions of a head", "head_dim"),
            ("vocabulary", "vocabulary"), ("number type", "dtype"), ("device", "device"),
        )
    ]  # fmt: skip
    differ = [f"{words} {value} instead of {base}" for words, base, value in facts if base != value]
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
