"""Tiny random models of many families, each with what its architecture does to a key."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import tiny
import torch
import transformers

from backend.cache.kv_cache import KVCache
from backend.engine.engine import Engine
from backend.model.load import LoadedModel, wrap_model

WINDOW = 8
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "initializer_range": 0.15,
}
HYBRID = ["sliding_attention"] * 3 + ["full_attention"]


@dataclass(frozen=True)
class Family:
    """A configuration, and what each layer's keys are in the architecture's own code."""

    config: str
    settings: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("rotation",) * 4
    dims: int = 16
    interleaved: bool = False
    window: bool = False


ROPE, NOPE = "rotation", "no position"
FAMILIES = {
    "gemma2": Family("Gemma2Config", {"head_dim": 16, "sliding_window": WINDOW}, window=True),
    "gemma3": Family(
        "Gemma3TextConfig", {"head_dim": 16, "sliding_window": WINDOW, "layer_types": HYBRID}, window=True
    ),
    "smollm3": Family("SmolLM3Config", {"no_rope_layers": [1, 0, 1, 0]}, (ROPE, NOPE, ROPE, NOPE)),
    "smollm3 with a window": Family(
        "SmolLM3Config",
        {"no_rope_layers": [1, 1, 1, 0], "use_sliding_window": True, "sliding_window": WINDOW},
        (ROPE, ROPE, ROPE, NOPE),
        window=True,
    ),
    "cohere2": Family(
        "Cohere2Config", {"head_dim": 16, "sliding_window": WINDOW}, (ROPE, ROPE, ROPE, NOPE), 16, True, True
    ),
    "exaone4": Family(
        "Exaone4Config",
        {"head_dim": 16, "sliding_window": WINDOW, "layer_types": HYBRID},
        (ROPE, ROPE, ROPE, NOPE),
        window=True,
    ),
    "glm4": Family("Glm4Config", {"head_dim": 16}, ("partial rotation",) * 4, 8, True),
    "gpt_neox": Family("GPTNeoXConfig", {"num_key_value_heads": None}, ("partial rotation",) * 4, 4),
    "stablelm": Family("StableLmConfig", {}, ("partial rotation",) * 4, 4),
    "phi3": Family("Phi3Config", {"partial_rotary_factor": 0.75}, ("partial rotation",) * 4, 12),
    "gpt_oss": Family(
        "GptOssConfig",
        {"head_dim": 16, "sliding_window": WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1},
        window=True,
    ),
    "bloom": Family("BloomConfig", {"num_key_value_heads": None}, ("distance bias",) * 4, 0),
    "mpt": Family("MptConfig", {"num_key_value_heads": None}, ("distance bias",) * 4, 0),
    "falcon with ALiBi": Family(
        "FalconConfig", {"num_key_value_heads": None, "alibi": True}, ("distance bias",) * 4, 0
    ),
}
REFUSED = {
    "gpt2": Family("GPT2Config", {"num_key_value_heads": None}),
    "opt": Family("OPTConfig", {"num_key_value_heads": None, "ffn_dim": 48, "word_embed_proj_dim": 32}),
    # takes no positions from outside: its learned ones follow the places in the cache
    "bart": Family(
        "BartConfig",
        {"num_key_value_heads": None, "d_model": 32, "decoder_layers": 4, "decoder_attention_heads": 2,
         "decoder_ffn_dim": 48},
    ),
}  # fmt: skip
#: They read a mask of two axes only, and so are forwarded plainly.
UNRECORDED = ("bloom", "falcon with ALiBi")
#: Not on the fake device: the last one sorts by experts, with an operation that the CPU, on which the fake
#: device computes, does not have.
LEFT_OUT = (*UNRECORDED, "gpt_oss")


def build(family: Family) -> Any:
    """A random model, seeded."""
    torch.manual_seed(0)
    settings = {**SIZES, "vocab_size": len(tiny.tokenizer()), **family.settings}
    config = getattr(transformers, family.config)(**{k: v for k, v in settings.items() if v is not None})
    module = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weights in module.parameters():
        if weights.ndim > 1:  # some families ignore initializer_range, and would see hardly any context
            weights.data.normal_(0, 0.15)
    return module


@cache
def loaded(name: str) -> LoadedModel:
    """A family's model, certified."""
    return wrap_model(build((FAMILIES | REFUSED)[name]), tiny.tokenizer(), name=name)


def ids(count: int, seed: int = 0) -> list[int]:
    return torch.randint(5, 32, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


def split(engine: Engine, tokens: list[int]) -> tuple[KVCache, torch.Tensor, torch.Tensor]:
    """A cache of all but the last token, that token, and its position."""
    cache, _ = engine.prefill(tokens[:-1])
    cache.reserve(len(tokens))
    return cache, engine.ids(tokens[-1:]), torch.tensor([len(tokens) - 1])
