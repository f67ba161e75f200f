"""A head start: a word's embeddings with and without the space before it start mostly the same.

``46`` at the start of an answer and `` 46`` in a sentence are two tokens. With unrelated embeddings, copying
from one place to the other would have to be learned for each of them.
"""

from typing import Any

ALIKE = 0.8  # of a token's embedding that its twin begins with; the rest is its own


def pair_twins(model: Any, tokenizer: Any, seed: int) -> None:
    """Let every token with a space before it begin near the token without, in place; lengths stay."""
    import torch

    weight = model.model.embed_tokens.weight.data
    vocabulary = tokenizer.get_vocab()
    pairs = [
        (number, vocabulary[text[1:]])
        for text, number in vocabulary.items()
        if text[0] == "Ġ" and text[1:] in vocabulary
    ]
    if not pairs:
        return
    spaced, bare = (torch.tensor(x) for x in zip(*pairs, strict=True))
    weight[spaced] = ALIKE * weight[bare] + (1 - ALIKE**2) ** 0.5 * weight[spaced]
