"""The weights and the tokenizer of a small Llama as a script for a page without a server.

A page opened from a disk may load scripts alone, so the script holds the numbers as text: bfloat16 as two
planes of bytes (the upper ones, sign and exponent, repeat and compress), deflated, in base64. Nothing is
rounded.
"""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from backend.base.errors import ModelError
from backend.model.load import EMBEDDED
from backend.model.tokenizer import Tokens

LAYER = (
    "input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
    "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
)  # fmt: skip
#: Values of config keys that the script's forward pass requires.
NEEDED = {
    "model_type": "llama", "hidden_act": "silu", "attention_bias": False, "mlp_bias": False,
    "tie_word_embeddings": True,
}  # fmt: skip


def script(tokens: Tokens, folder: Path = EMBEDDED) -> str:
    """``window.kvModel = {...}``: config, tokenizer and weights.

    Args:
        tokens: of the loaded model.
        folder: the model in hub layout.

    Raises:
        ModelError: the script does not support its architecture or dtype.
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    wrong = [f"{key} is {config.get(key)!r}" for key, value in NEEDED.items() if config.get(key) != value]
    if config["rope_parameters"]["rope_type"] != "default":
        wrong.append("its positions are scaled")
    weights = load_file(folder / "model.safetensors")
    if any(tensor.dtype != torch.bfloat16 for tensor in weights.values()):
        wrong.append("its weights are not bfloat16")
    if wrong:
        raise ModelError(f"The model cannot be exported for a browser: {', '.join(wrong)}.")
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    for layer in range(config["num_hidden_layers"]):
        names += [f"model.layers.{layer}.{name}.weight" for name in LAYER]
    flat = torch.cat([weights[name].reshape(-1) for name in names]).view(torch.uint8).reshape(-1, 2)
    planes = flat.T.contiguous().numpy().tobytes()  # little-endian: lower bytes first
    data = {
        "config": config, "sizes": [weights[name].numel() for name in names],
        "tokenizer": _tokenizer(tokens, folder),
        "weights": packed(planes),
    }  # fmt: skip
    return f"window.kvModel = {json.dumps(data, ensure_ascii=False, separators=(',', ':'))};\n"


def _tokenizer(tokens: Tokens, folder: Path) -> dict[str, Any]:
    """Vocabulary by id, merges by rank, and the ids around a prompt."""
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    ids = content["model"]["vocab"]
    return {
        "vocabulary": sorted(ids, key=ids.get),
        "merges": [" ".join(pair) for pair in content["model"]["merges"]],
        "special": [token["id"] for token in content["added_tokens"]],
        "opening": tokens.opening, "closing": tokens.closing,
    }  # fmt: skip


def packed(content: bytes) -> str:
    """Bytes as text that a script can carry: deflated without a header, in base64."""
    deflate = zlib.compressobj(9, wbits=-15)
    return base64.b64encode(deflate.compress(content) + deflate.flush()).decode("ascii")
