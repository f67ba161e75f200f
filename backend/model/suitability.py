"""Checks that a model can write answers with its tokenizer."""

from typing import Any

import torch

from backend.base.errors import ModelError
from backend.model.device_map import home_of

AHEAD = 1e-3  # relative to the logits' norm; a causal model's are bit-equal


def check_causal(name: str, config: Any) -> None:
    """Refuse an architecture without a causal language model in transformers.

    Raises:
        ModelError: see above.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise _not_causal(name, config)


def _not_causal(name: str, config: Any) -> ModelError:
    return ModelError(
        f"The model {name!r} is of the architecture {config.model_type!r} and does not write one token after "
        "another. The lab needs a causal language model, such as Llama, Qwen or Mistral. Give one.",
        field="model.name",
    )


def check_loaded(name: str, module: Any, tokenizer: Any) -> None:
    """Refuse a model that attends in both directions, and a tokenizer without an end token or of another
    model.

    Raises:
        ModelError: see above.
    """
    if _looks_ahead(module):
        raise _not_causal(name, module.config)
    if not stop_ids(module, tokenizer):
        raise ModelError(
            f"The tokenizer of {name!r} has no end-of-sequence token, and its generation_config.json names "
            "none, so no answer would end. Set eos_token in tokenizer_config.json, or eos_token_id in "
            "generation_config.json.",
            field="model.name",
        )
    rows = int(module.get_input_embeddings().weight.shape[0])
    if tokenizer.vocab_size > rows:
        raise ModelError(
            f"The tokenizer of {name!r} has {tokenizer.vocab_size:,} tokens, but the model knows {rows:,}. "
            "At most as many are allowed. Put the model's own tokenizer into its folder.",
            field="model.name",
        )


@torch.inference_mode()
def _looks_ahead(module: Any) -> bool:
    """Whether a later token changes an earlier one's logits, as in BERT. Such models have ``is_decoder``
    False, but so do some causal ones (GPT-NeoX)."""
    if getattr(module.config, "is_decoder", None) is not False:
        return False
    ids = torch.tensor([[1, 2, 1], [1, 2, 3]], device=home_of(module))
    first, other = module(input_ids=ids).logits[:, 0].float()
    return float((first - other).norm()) > AHEAD * float(first.norm())


def stop_ids(module: Any, tokenizer: Any) -> set[int]:
    """Tokens that end an answer: the model's and the tokenizer's, which may end a chat turn."""
    ids = getattr(getattr(module, "generation_config", None), "eos_token_id", None)
    several = ids if isinstance(ids, list) else [ids]
    return {int(i) for i in (*several, tokenizer.eos_token_id) if i is not None}
