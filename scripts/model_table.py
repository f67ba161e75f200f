"""Which architectures the lab accepts: a table over tiny random models of transformers' causal families.

Usage: python scripts/model_table.py [FAMILY ...] [--markdown FILE]

Each family is built from its configuration class with small sizes and random weights, certified as any model
is, and compared with plain transformers: a prompt read in two pieces and decoded, and a prompt read under a
mask of one's own with its places shuffled, against one plain forward. Nothing is downloaded. A family that
cannot be built so is listed with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from backend.base.errors import LabError
from backend.engine.runner import ModelRunner
from backend.methods.registry import METHODS
from backend.model.load import LoadedModel, wrap_model
from backend.model.suitability import check_loaded
from backend.training.tokenizer import train_tokenizer

PROMPT, ANSWER = 40, 8  # tokens; beyond the windows and chunks below
SIZES: dict[str, Any] = {
    "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.15, "sliding_window": 16,
}  # fmt: skip
OWN = ("sliding_window", "head_dim")  # a configuration takes any, but a model reads those that are its own
MOE = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
}  # fmt: skip
LATENT = {
    **MOE, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8,
    "v_head_dim": 16, "n_group": 1, "topk_group": 1,
}  # fmt: skip
MIXED = {"layer_types": ["sliding_attention"] * 3 + ["full_attention"]}
HALF = {"partial_rotary_factor": 0.5}
#: What a family needs beyond its sizes.
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "phimoe", "gpt_oss", "glm4_moe", "minimax_m2",
         "granitemoe", "flex_olmo"), MOE,
    ),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3"), LATENT),
    **dict.fromkeys(("cohere2", "gemma3_text"), MIXED),
    **dict.fromkeys(("glm", "glm4", "stablelm", "phi"), HALF),
    "hunyuan_v1_dense": {"head_dim": 16}, "ministral": {"head_dim": 16},
    "codegen": {"rotary_dim": 4, "n_positions": 128, "num_attention_heads": 4},
    "dots1": {**MOE, "n_group": 1, "topk_group": 1, "n_shared_experts": 1},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32},
    "falcon": {"multi_query": False},
    "falcon (ALiBi)": {"alibi": True, "multi_query": False},
    "gemma2": {"query_pre_attn_scalar": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]], "window_size": 16, "num_layers": 4},
    "gpt_neox_japanese": {"intermediate_multiple_size": 2},
    "gptj": {"rotary_dim": 8, "n_positions": 128},
    "hunyuan_v1_moe": {**MOE, "head_dim": 16, "moe_topk": 2},
    "jetmoe": {"kv_channels": 16, "num_local_experts": 2},
    "llama4_text": {**MOE, "attention_chunk_size": 16, "floor_scale": 64, "intermediate_size_mlp": 48},
    "mpt": {"d_model": 32, "n_layers": 4, "n_heads": 2, "max_seq_len": 128},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "phi3": {"sliding_window": None},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 2},
    "smollm3": {"no_rope_layers": [1, 1, 1, 0]},
    "xglm": {"d_model": 32, "ffn_dim": 48, "num_layers": 4, "attention_heads": 2},
}  # fmt: skip
FAMILIES = (
    *"apertus arcee biogpt bitnet bloom codegen cohere cohere2 ctrl deepseek_v2 deepseek_v3".split(),
    *"diffllama doge dots1 ernie4_5 ernie4_5_moe exaone4 falcon".split(), "falcon (ALiBi)",
    *"falcon_h1 flex_olmo gemma gemma2 gemma3_text glm glm4 glm4_moe gpt2 gpt_bigcode gpt_neo".split(),
    *"gpt_neox gpt_neox_japanese gpt_oss gptj granite granitemoe granitemoeshared helium".split(),
    *"hunyuan_v1_dense hunyuan_v1_moe jais2 jamba jetmoe lfm2 llama llama4_text mamba minimax_m2".split(),
    *"ministral mistral mixtral mpt nanochat nemotron olmo olmo2 olmo3 olmoe opt persimmon phi phi3".split(),
    *"phimoe qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma rwkv seed_oss smollm3".split(),
    *"stablelm starcoder2 vaultgemma xglm".split(),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One family. ``plain`` and ``masked``: largest error of logits, relative to the largest, against one
    plain forward of transformers; None where it does not apply."""

    family: str
    layers: str = ""
    refused: str = ""
    methods: int = 0
    plain: float | None = None
    masked: float | None = None


def build(family: str) -> Any:
    """A tiny random model of a family, in fp32."""
    torch.manual_seed(0)
    kind = family.partition(" ")[0]
    usual = AutoConfig.for_model(kind)
    own = [
        k
        for k in OWN
        if getattr(usual, k, None) is not None and not isinstance(getattr(type(usual), k, 0), property)
    ]
    sizes = {k: v for k, v in SIZES.items() if k not in OWN or k in own}
    config = AutoConfig.for_model(kind, **{**sizes, **SETTINGS.get(family, {})})
    module = AutoModelForCausalLM.from_config(config).eval().float()
    generator = torch.Generator().manual_seed(0)
    for name, weight in sorted(module.named_parameters()):
        if weight.ndim >= 2:  # wide enough that a wrong key shows
            weight.data.normal_(0, 0.15, generator=generator)
        elif weight.isnan().any() or "bias" in name:
            weight.data.zero_()
    return module


def ids_of(tokens: int) -> list[int]:
    return torch.randint(5, 300, (tokens,), generator=torch.Generator().manual_seed(1)).tolist()


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual - expected).abs().max() / expected.abs().max())


@torch.inference_mode()
def plain_error(model: LoadedModel) -> float:
    """A prompt read in two pieces and an answer token by token, against one forward of all."""
    ids, runner = ids_of(PROMPT + ANSWER), ModelRunner(model)
    cache, logits = runner.prefill(ids[:PROMPT], pieces=2)
    actual = [logits] + [runner.forward(runner.ids([i]), cache)[0, -1] for i in ids[PROMPT:]]
    expected = model.module(input_ids=torch.tensor([ids]), use_cache=False).logits[0, PROMPT - 1 :].float()
    return error(torch.stack(actual), expected)


@torch.inference_mode()
def masked_error(model: LoadedModel) -> float:
    """The second half of a prompt under a mask, over a first half whose places are shuffled."""
    ids, runner, half = ids_of(PROMPT), ModelRunner(model), PROMPT // 2
    cache, _ = runner.prefill(ids[:half])
    order = torch.randperm(half, generator=torch.Generator().manual_seed(2))
    cache.reorder(order)
    positions = torch.cat([order, torch.arange(half, PROMPT)])
    sees = positions[None] <= positions[half:, None]
    actual = runner.forward_seeing(runner.ids(ids[half:]), cache, sees, positions, keep=0)[0]
    expected = model.module(input_ids=torch.tensor([ids]), use_cache=False).logits[0, half:].float()
    return error(actual, expected)


def examine(family: str, tokenizer: Any) -> Row:
    """Build a family's tiny model, certify it and measure it."""
    try:
        module = build(family)
    except Exception as problem:
        return Row(family, refused=f"not built at this size: {' '.join(str(problem).split())[:90]}")
    try:
        check_loaded(family, module, tokenizer)
        model = wrap_model(module, tokenizer, name=family)
    except LabError as problem:
        return Row(family, refused=str(problem))
    certificate = model.info.certificate
    kinds = Counter(layer.kind for layer in certificate.layers)
    types = Counter(getattr(module.config.get_text_config(), "layer_types", None) or [])
    layers = ", ".join(
        [*(f"{n} {kind}" for kind, n in kinds.items()), *(f"{n} {t}" for t, n in types.items())]
    )
    methods = sum(cls.supports(model.info) is None for cls in METHODS)
    try:
        masked = masked_error(model)
    except LabError:
        masked = None
    refused = "" if certificate.relocatable else certificate.reason
    return Row(family, layers, refused, methods, plain_error(model), masked)


def markdown(rows: Sequence[Row]) -> str:
    """The table as it stands in docs/models.md."""
    out = [
        "| family | layers | accepted | methods | error, plain | error, masked |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        accepted = row.refused.replace("|", "/") or "yes"
        errors = ["-" if e is None else f"{e:.0e}" for e in (row.plain, row.masked)]
        cells = (row.family, row.layers or "-", accepted, str(row.methods or "-"), *errors)
        out.append(f"| {' | '.join(cells)} |")
    return "\n".join(out) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    parser.add_argument(
        "--markdown", metavar="FILE", help="write the table below the file's first line of it"
    )
    args = parser.parse_args(argv)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    tokenizer = train_tokenizer(seed=0, documents=120, vocab_size=360)
    rows = []
    for family in args.families or FAMILIES:
        rows.append(examine(family, tokenizer))
        print(rows[-1], file=sys.stderr, flush=True)
    table = markdown(rows)
    if args.markdown:
        path = Path(args.markdown)
        before = path.read_text(encoding="utf-8").partition("| family |")[0]
        path.write_text(before + table, encoding="utf-8")
    else:
        print(table, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
