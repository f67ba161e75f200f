"""The model that is trained, and its forward pass with matrices in another type than the residual stream."""

from pathlib import Path
from typing import Any

from backend.training.head_start import look_back
from backend.training.recipe import Recipe

# Up to here the plain products are quicker than the fused attention, whose backward pass is slow on a CPU.
PLAIN_ATTENTION_UP_TO = 384


def hidden_states(model: Any, ids: Any, dtype: Any) -> Any:
    """The last hidden states of a Llama ``(batch, tokens, hidden)`` for causal rows from position 0.

    The same as the model's own forward, with matrices in ``dtype`` and the residual stream in float32; a test
    compares the two.
    """
    import torch
    from torch.nn import functional

    config = model.config
    batch, tokens = ids.shape
    heads, kv, width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    eps = config.rms_norm_eps
    x = functional.embedding(ids, model.model.embed_tokens.weight)
    angles = torch.arange(tokens, device=ids.device)[:, None] * model.model.rotary_emb.inv_freq
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)

    # causal mask, added to the scores
    hidden_from = torch.full((tokens, tokens), -1e9, device=ids.device, dtype=dtype).triu(1)

    def rotate(states: Any) -> Any:
        a, b = states.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        h = functional.rms_norm(x, x.shape[-1:], layer.input_layernorm.weight, eps).to(dtype)
        weights = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        both = functional.linear(h, torch.cat(weights).to(dtype)).view(batch, tokens, heads + 2 * kv, width)
        q, k, v = both.transpose(1, 2).split((heads, kv, kv), 1)
        if tokens <= PLAIN_ATTENTION_UP_TO and kv == heads:
            scores = (rotate(q) * width**-0.5) @ rotate(k).transpose(-1, -2) + hidden_from
            mixed = scores.softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(
                rotate(q), rotate(k), v, is_causal=True, enable_gqa=kv != heads
            )
        mixed = mixed.transpose(1, 2).reshape(batch, tokens, -1)
        x = x + functional.linear(mixed, attention.o_proj.weight.to(dtype)).to(x.dtype)
        h = functional.rms_norm(x, x.shape[-1:], layer.post_attention_layernorm.weight, eps).to(dtype)
        gate, up = functional.linear(
            h, torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)).to(dtype)
        ).chunk(2, -1)
        x = x + functional.linear(functional.silu(gate) * up, mlp.down_proj.weight.to(dtype)).to(x.dtype)
    return functional.rms_norm(x, x.shape[-1:], model.model.norm.weight, eps).to(dtype)


def bfloat16_pays(device: str) -> bool:
    """Does the device multiply bfloat16 in hardware? Emulated, it is over ten times slower than float32."""
    import torch

    if device != "cpu":
        return True
    capability = torch.backends.cpu.get_cpu_capability()
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    return "AVX512" in capability and ("avx512_bf16" in flags or "amx_bf16" in flags)


def build_model(recipe: Recipe, tokenizer: Any) -> Any:
    """A freshly initialised Llama of the recipe's shape, seeded."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(recipe.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.hidden // recipe.heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="sdpa",
        fills_results=True,
    )
    model = LlamaForCausalLM(config)
    look_back(model, recipe.look_back, recipe.seed)
    return model
