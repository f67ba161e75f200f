"""Models of somebody's own: random weights and a tokenizer, in folders as they lie on the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from token_kinds import TEMPLATES, tokenizer

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "max_position_embeddings": 40_000, "initializer_range": 0.15,
}  # fmt: skip
#: A tokenizer's kind, and a chat template or none.
KINDS = (
    ("byte-level", "thinking"),
    ("byte-level", None),
    ("llama-legacy", "inst"),
    ("llama-metaspace", "no-system"),
    ("gemma", "chatml"),
)


def save(folder: Path, kind: str = "byte-level", template: str | None = None, **changes: Any) -> Path:
    """A model of random weights and its tokenizer, as they lie on the hub."""
    tokens = tokenizer(kind, TEMPLATES[template] if template else None)
    torch.manual_seed(0)
    usual = {"vocab_size": len(tokens), "bos_token_id": 1, "eos_token_id": 2}
    config = transformers.LlamaConfig(**{**SIZES, **usual, **changes})
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder
