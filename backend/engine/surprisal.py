"""The surprisal of tokens under a model."""

from collections.abc import Sequence

import torch
from torch import Tensor

from backend.engine.runner import ModelRunner
from backend.model.tokenizer import LONGEST_CALCULATION, Tokens

MOST_LOGITS = 1 << 24  # at a time: with a large vocabulary a long text is read in pieces


@torch.inference_mode()
def surprisal(runner: ModelRunner, ids: Sequence[int]) -> Tensor:
    """Minus log probability of each token given those before it, in nats.

    Args:
        runner: forwards the tokens once into a new cache.
        ids: one or more tokens.

    Returns:
        (tokens,), fp32; infinite for the first, which nothing predicts.
    """
    cache, inputs = runner.model.new_cache(len(ids)), runner.ids(ids)
    size = max(1, MOST_LOGITS // runner.model.info.vocabulary)
    parts = [inputs.new_full((1,), torch.inf, dtype=torch.float32)]
    for at in range(0, len(ids), size):
        logits = runner.forward(inputs[:, at : at + size], cache, keep=0)[0]
        targets = inputs[0, at + 1 : at + size + 1, None]
        parts.append(-logits[: len(targets)].log_softmax(-1).gather(-1, targets)[:, 0])
    return torch.cat(parts)


def filled_in(tokens: Tokens, ids: Sequence[int]) -> list[int]:
    """Indices of tokens that are results of calculations. Such results are filled in
    (:mod:`backend.prompts.filled_results`), so the model never predicts them."""
    places: list[int] = []
    for at in range(1, len(ids)):
        result = tokens.filled_after(ids[max(0, at - LONGEST_CALCULATION) : at])
        if result and tuple(ids[at : at + len(result)]) == result:
            places += range(at, at + len(result))
    return places
