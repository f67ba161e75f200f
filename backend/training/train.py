"""Training of the embedded model: ``kvlab train-embedded``.

Packed sequences with per-document attention masks and positions, loss on every token (prompt tokens
at a reduced weight), Muon on the matrices and AdamW on the rest, warm-up, a constant rate, then a
linear decay over the last part. The batch of a step is a function of (seed, step), and the checkpoint
holds weights, optimiser state and step, so an interrupted run continues as if it had not been. A run may
also begin from the weights of an earlier one (``init``), with fresh optimiser state.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.prompts.tasks import Style, make_document
from backend.training.head_start import look_back
from backend.training.number_head_start import order_numbers
from backend.training.tokenizer import save_tokenizer


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the trained weights."""

    seed: int = 0
    tokens: int = 14_000_000
    sequence_tokens: int = 512
    batch: int = 4
    hidden: int = 160
    layers: int = 5
    heads: int = 5
    kv_heads: int = 5
    intermediate: int = 448
    context: int = 2048
    muon_rate: float = 0.015
    adam_rate: float = 3e-3
    warmup_steps: int = 100
    decay_share: float = 0.5
    prompt_weight: float = 0.03
    look_back: tuple[int, ...] = (1, 2, 3, 4)  # where the first heads look before training
    number_order: float = 0.7  # of a number's size in its embedding before training, as a share of its length
    tokens_before: int = 0  # seen by the weights that this run began with; the curriculum goes on from there

    @property
    def step_tokens(self) -> int:
        return self.sequence_tokens * self.batch

    @property
    def steps(self) -> int:
        return max(1, self.tokens // self.step_tokens)


# The model that ships, and its sibling with a third of the parameters and the same tokenizer.
SIZES: dict[str, dict[str, Any]] = {
    "main": {},
    "small": {"hidden": 96, "layers": 4, "heads": 3, "kv_heads": 3, "intermediate": 256},
}

# The curriculum, by tokens seen: the level (how long and hard documents are, changing evenly from one row to
# the next) and the shares of the documents, by task or by task and kind. Skills come first and nearly alone:
# a model that is taught to copy and to find before anything else does so after half a million tokens, and one
# that is taught everything at once does not after twelve.
CURRICULUM: tuple[tuple[int, float, dict[str, int]], ...] = (
    (0, 0.0, {"recall copy": 2, "recall pairs": 3, "drill chain": 3}),
    (600_000, 0.2, {"recall copy": 1, "recall pairs": 3, "recall facts": 3, "recall sections": 3}
     | {"drill chain": 4, "compare": 6}),
    (1_800_000, 0.0, {"compare equal": 6, "compare same": 8, "compare order": 8, "compare apart": 3}
     | {"recall copy": 1, "recall pairs": 3, "recall facts": 2, "recall sections": 4}
     | {"recall candidates": 2, "recall roles": 3, "drill chain": 5, "drill program": 2, "solver": 3}
     | {"worker": 3, "documents one-hop": 3, "documents two-hop": 3, "judge": 8, "prefix": 3}
     | {"tools": 3, "program": 3}),
    (5_000_000, 0.8, {"compare equal": 5, "compare same": 9, "compare order": 8, "compare apart": 4}
     | {"recall pairs": 3, "recall sections": 3, "recall candidates": 2}
     | {"recall roles": 4, "drill chain": 5, "drill program": 2, "solver": 5, "worker": 5}
     | {"documents one-hop": 3, "documents two-hop": 5, "judge": 12, "prefix": 6, "tools": 4}
     | {"program": 5}),
    (8_000_000, 1.0, {"compare equal": 2, "compare same": 10, "compare order": 6, "compare apart": 3}
     | {"recall pairs": 2, "recall sections": 1, "recall candidates": 1}
     | {"recall roles": 5, "drill chain": 4, "drill program": 2, "solver": 8, "worker": 6}
     | {"documents one-hop": 3, "documents two-hop": 7, "judge": 20, "prefix codebook": 4}
     | {"prefix units": 1, "prefix who": 8, "tools": 5, "program": 9}),
)  # fmt: skip


def curriculum(tokens: int) -> tuple[dict[str, int], float]:
    """Shares of the tasks' documents and their level after so many tokens of training."""
    at = max(i for i, row in enumerate(CURRICULUM) if row[0] <= tokens)
    start, level, shares = CURRICULUM[at]
    if at + 1 < len(CURRICULUM):
        end, next_level, _ = CURRICULUM[at + 1]
        level += (next_level - level) * (tokens - start) / (end - start)
    return shares, level


def rate_factor(step: int, recipe: Recipe) -> float:
    """Learning-rate multiplier: warm-up, constant, linear decay to zero."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    decay_from = recipe.steps * (1 - recipe.decay_share)
    if step < decay_from:
        return 1.0
    return max(0.0, (recipe.steps - step) / (recipe.steps - decay_from))


HOMELESS = 6  # documents that find no room before a batch counts as full


class Packer:
    """Turns (seed, step) into one packed batch."""

    def __init__(self, tokenizer: Any, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.bos, self.eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.opener = tokenizer.convert_tokens_to_ids("<a>")
        self.cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        found = self.cache.get(text)
        if found is None:
            found = self.tokenizer.encode(text, add_special_tokens=False)
            if len(text) < 120 and len(self.cache) < 50_000:
                self.cache[text] = found
        return found

    def document(self, rng: random.Random, tokens_seen: int) -> tuple[list[int], list[float]]:
        shares, level = curriculum(tokens_seen)
        task, _, kind = rng.choices(list(shares), list(shares.values()))[0].partition(" ")
        ids, weights = [self.bos], [0.0]
        opened = False
        for piece in make_document(rng, task, kind=kind or None, style=Style(level=level)).pieces:
            if piece.answer and not opened:
                ids.append(self.opener)
                weights.append(0.0)
                opened = True
            new = self.encode(piece.text)
            ids += new
            weights += [1.0 if piece.answer else self.recipe.prompt_weight] * len(new)
        return [*ids, self.eos], [*weights, 1.0]

    def batch(self, step: int) -> tuple[Any, Any, Any, Any]:
        """``(ids, positions, documents, weights)``, each ``(batch, sequence_tokens)``.

        A document goes to the first row that has room for it; documents are never cut. The batch is full
        when several in a row found no room.
        """
        import torch

        recipe = self.recipe
        rng = random.Random(f"{recipe.seed}:{step}")
        shape = (recipe.batch, recipe.sequence_tokens)
        ids = torch.zeros(shape, dtype=torch.long)
        positions = torch.zeros(shape, dtype=torch.long)
        documents = torch.full(shape, -1, dtype=torch.long)
        weights = torch.zeros(shape)
        filled = [0] * recipe.batch
        number = homeless = 0
        while homeless < HOMELESS:
            tokens, loss = self.document(rng, recipe.tokens_before + step * recipe.step_tokens)
            room = recipe.sequence_tokens - len(tokens)
            row = next((r for r, at in enumerate(filled) if at <= room), None)
            if row is None:
                homeless += 1
                continue
            homeless = 0
            at, end = filled[row], filled[row] + len(tokens)
            ids[row, at:end] = torch.tensor(tokens)
            positions[row, at:end] = torch.arange(len(tokens))
            documents[row, at:end] = number
            weights[row, at:end] = torch.tensor(loss)
            filled[row], number = end, number + 1
        return ids, positions, documents, weights


def bfloat16_pays(device: str) -> bool:
    """Does the device multiply bfloat16 in hardware? Emulated, it is over ten times slower than float32."""
    import torch

    if device != "cpu":
        return True
    found = torch.backends.cpu.get_cpu_capability()
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    return "AVX512" in found and ("avx512_bf16" in flags or "amx_bf16" in flags)


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
    )
    model = LlamaForCausalLM(config)
    look_back(model, recipe.look_back, recipe.seed)
    return model


def train(
    folder: Path,
    recipe: Recipe,
    *,
    init: Path | None = None,
    tokenizer_from: Path | None = None,
    stop_after_steps: int | None = None,
    compile_model: bool = True,
    report: Callable[[dict[str, Any]], None] | None = None,
    checkpoint_every: int = 200,
    check_every: int = 0,
    check: Callable[[Path], dict[str, Any]] | None = None,
) -> Path:
    """Train (or continue) in ``folder``; returns the folder of the exported model.

    ``folder/checkpoint.pt`` is written every ``checkpoint_every`` steps and at the end,
    ``folder/train.jsonl`` gets a row per 20 steps, ``folder/export/`` the model in hub layout (bf16).

    Args:
        init: a folder in hub layout whose weights and tokenizer a new run begins with.
        tokenizer_from: a folder whose tokenizer a new run takes, else one is trained.
        stop_after_steps: end early; the next call goes on from there.
        compile_model: through ``torch.compile``.
        report: called with every row of the log.
        checkpoint_every: steps.
        check_every: steps between two calls of ``check`` with the exported model; 0 for none.
        check: its result goes to ``folder/checks.jsonl``.
    """
    import torch
    from torch.nn import functional
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    from backend.training.muon import Muon

    folder.mkdir(parents=True, exist_ok=True)
    export = folder / "export"
    checkpoint = folder / "checkpoint.pt"
    # The weights belong to the vocabulary they began with.
    known = export if checkpoint.exists() else init or tokenizer_from
    if known:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(known)
        tokenizer.save_pretrained(export)
    else:
        tokenizer = save_tokenizer(export, recipe.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
    model = build_model(recipe, tokenizer).to(device)
    if init:
        model.load_state_dict(LlamaForCausalLM.from_pretrained(init, dtype=torch.float32).state_dict())
    matrices = [
        p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n
    ]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    muon = Muon(matrices, lr=recipe.muon_rate)
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    start = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        start = state["step"]
    else:
        order_numbers(model, tokenizer, recipe.number_order, recipe.seed)
    forward = torch.compile(model.model, dynamic=False) if compile_model else model.model
    halves = bfloat16_pays(device)
    end = min(recipe.steps, start + stop_after_steps) if stop_after_steps else recipe.steps

    def save(step: int) -> None:
        state = {
            "model": model.state_dict(),
            "muon": muon.state_dict(),
            "adam": adam.state_dict(),
            "step": step,
        }
        torch.save(state, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)

    began, losses = time.perf_counter(), []
    for step, batch in zip(
        range(start, end), batches(Packer(tokenizer, recipe), start, end, device), strict=True
    ):
        factor = rate_factor(step, recipe)
        for optimiser, rate in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        ids, positions, documents, weights = (x.to(device, non_blocking=True) for x in batch)
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        mask = (documents[:, :, None] == documents[:, None, :]) & causal
        with torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
            hidden = forward(
                input_ids=ids, position_ids=positions, attention_mask=mask[:, None], use_cache=False
            ).last_hidden_state
            wanted = weights[:, 1:] > 0
            logits = model.lm_head(hidden[:, :-1][wanted])
        each = functional.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none")
        scale = weights[:, 1:][wanted]
        loss = (each * scale).sum() / scale.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step()
        adam.step()
        muon.zero_grad(set_to_none=True)
        adam.zero_grad(set_to_none=True)
        losses.append(each.detach()[scale == 1.0].mean())  # stays on the device until it is logged
        if (step + 1) % 20 == 0 or step + 1 == end:
            row = {
                "step": step + 1,
                "tokens": recipe.tokens_before + (step + 1) * recipe.step_tokens,
                "answer_loss": round(math.fsum(map(float, losses)) / len(losses), 5),
                "tokens_per_s": round(
                    (step + 1 - start) * recipe.step_tokens / (time.perf_counter() - began)
                ),
            }
            losses.clear()
            append(folder / "train.jsonl", row)
            if report:
                report(row)
        if (step + 1) % checkpoint_every == 0 or step + 1 == end:
            save(step + 1)
        if check and check_every and (step + 1) % check_every == 0:
            export_model(model, export, recipe, step + 1)
            tokens = recipe.tokens_before + (step + 1) * recipe.step_tokens
            append(folder / "checks.jsonl", {"step": step + 1, "tokens": tokens, **check(export)})
    export_model(model, export, recipe, end)
    return export


def batches(packer: Packer, start: int, end: int, device: str) -> Any:
    """The batches of steps ``start`` to ``end``, packed ahead by other processes where a GPU is waiting."""
    from torch.utils.data import DataLoader

    workers = min(14, max(1, (os.cpu_count() or 2) - 2)) if device == "cuda" else 0
    return DataLoader(
        _Steps(packer, start, end),  # type: ignore[arg-type]
        batch_size=None,
        num_workers=workers,
        pin_memory=workers > 0,
        prefetch_factor=8 if workers else None,
    )


@dataclass(frozen=True)
class _Steps:
    """A run's batches by number."""

    packer: Packer
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.packer.batch(self.start + index)


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a log of JSON lines."""
    with path.open("a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")


def export_model(model: Any, export: Path, recipe: Recipe, step: int) -> None:
    """Write a bf16 copy in hub layout, with the recipe beside it."""
    import copy

    import torch

    clone = copy.deepcopy(model).to("cpu", torch.bfloat16)
    clone.save_pretrained(export)
    facts = {**asdict(recipe), "step": step, "tokens_seen": recipe.tokens_before + step * recipe.step_tokens}
    (export / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
