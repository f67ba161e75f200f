"""Training of the embedded model: ``kvlab train-embedded``.

Packed sequences with per-document attention masks and positions, loss on every token (prompt tokens
at a reduced weight), Muon on the matrices and AdamW on the rest, warm-up, a constant rate, then a
linear decay over the last part. The batch of a step is a function of (seed, step), and the checkpoint
holds weights, optimiser state and step, so an interrupted run continues as if it had not been.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from backend.embedded.tasks import TaskName, make_document
from backend.embedded.tokenizer import save_tokenizer


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the trained weights."""

    seed: int = 0
    tokens: int = 12_000_000
    sequence_tokens: int = 384
    batch: int = 8
    hidden: int = 256
    layers: int = 6
    heads: int = 8
    kv_heads: int = 4
    intermediate: int = 672
    context: int = 2048
    muon_rate: float = 0.02
    adam_rate: float = 3e-3
    warmup_steps: int = 100
    decay_share: float = 0.35
    prompt_weight: float = 0.25

    @property
    def steps(self) -> int:
        return max(1, self.tokens // (self.sequence_tokens * self.batch))


DRILLS_FROM = 0.4864  # step 1,900 of 3,906


def mixture(progress: float) -> tuple[tuple[TaskName, float], ...]:
    """Shares of the tasks' documents at a point of training (0 to 1).

    Solving first, then reading others. The drills came late: without them, formats and copying were
    learned by 0.45, but no arithmetic.
    """
    if progress < 0.15:
        return (("solver", 0.8), ("worker", 0.15), ("judge", 0.05))
    if progress < 0.4:
        return (("solver", 0.4), ("worker", 0.3), ("judge", 0.3))
    if progress < DRILLS_FROM:
        return (("solver", 0.25), ("worker", 0.3), ("judge", 0.45))
    if progress < 0.8:
        return (("drill", 0.4), ("solver", 0.3), ("worker", 0.15), ("judge", 0.15))
    return (("drill", 0.15), ("solver", 0.25), ("worker", 0.25), ("judge", 0.35))


def rate_factor(step: int, recipe: Recipe) -> float:
    """Learning-rate multiplier: warm-up, constant, linear decay to zero."""
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    decay_from = recipe.steps * (1 - recipe.decay_share)
    if step < decay_from:
        return 1.0
    return max(0.0, (recipe.steps - step) / (recipe.steps - decay_from))


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

    def document(self, rng: random.Random, progress: float) -> tuple[list[int], list[float]]:
        names, shares = zip(*mixture(progress), strict=True)
        task = rng.choices(names, shares)[0]
        max_steps = 1 if progress < 0.05 else 2 if progress < 0.12 else 3
        ids, weights = [self.bos], [0.0]
        for piece in make_document(rng, task, max_steps=max_steps).pieces:
            new = self.encode(piece.text)
            if piece.answer:
                ids.append(self.opener)
                weights.append(0.0)
                new = [*new, self.eos]
            ids += new
            weights += [1.0 if piece.answer else self.recipe.prompt_weight] * len(new)
        return ids, weights

    def batch(self, step: int) -> tuple[Any, Any, Any, Any]:
        """``(ids, positions, documents, weights)``, each ``(batch, sequence_tokens)``."""
        import torch

        recipe = self.recipe
        rng = random.Random(f"{recipe.seed}:{step}")
        progress = step / recipe.steps
        shape = (recipe.batch, recipe.sequence_tokens)
        ids = torch.zeros(shape, dtype=torch.long)
        positions = torch.zeros(shape, dtype=torch.long)
        documents = torch.full(shape, -1, dtype=torch.long)
        weights = torch.zeros(shape)
        for row in range(recipe.batch):
            at = number = 0
            while at < recipe.sequence_tokens:
                tokens, loss = self.document(rng, progress)
                if at + len(tokens) > recipe.sequence_tokens and at > 0:
                    break  # documents are not cut; the rest of the row is padding
                tokens, loss = tokens[: recipe.sequence_tokens], loss[: recipe.sequence_tokens]
                end = at + len(tokens)
                ids[row, at:end] = torch.tensor(tokens)
                positions[row, at:end] = torch.arange(len(tokens))
                documents[row, at:end] = number
                weights[row, at:end] = torch.tensor(loss)
                at, number = end, number + 1
        return ids, positions, documents, weights


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
    return LlamaForCausalLM(config)


def train(
    folder: Path,
    recipe: Recipe,
    *,
    stop_after_steps: int | None = None,
    compile_model: bool = True,
    report: Callable[[dict[str, Any]], None] | None = None,
    checkpoint_every: int = 200,
    evaluate_every: int = 0,
) -> Path:
    """Train (or continue) in ``folder``; returns the folder of the exported model.

    ``folder/checkpoint.pt`` is written every ``checkpoint_every`` steps and at the end,
    ``folder/train.jsonl`` gets a row per 20 steps, ``folder/export/`` the model in hub layout (bf16).
    """
    import torch
    from torch.nn import functional

    folder.mkdir(parents=True, exist_ok=True)
    export = folder / "export"
    tokenizer = save_tokenizer(export, recipe.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model(recipe, tokenizer).to(device)
    matrices = [
        p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n
    ]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    muon = torch.optim.Muon(
        matrices, lr=recipe.muon_rate, weight_decay=0.01, momentum=0.95, adjust_lr_fn="original"
    )
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    start = 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        start = state["step"]
    forward = torch.compile(model.model, dynamic=False) if compile_model else model.model
    packer = Packer(tokenizer, recipe)
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
    for step in range(start, end):
        factor = rate_factor(step, recipe)
        for optimiser, rate in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        ids, positions, documents, weights = (x.to(device) for x in packer.batch(step))
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
        mask = (documents[:, :, None] == documents[:, None, :]) & causal
        with torch.autocast(device, dtype=torch.bfloat16):
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
        answers = scale == 1.0
        losses.append(float(each.detach()[answers].mean()))
        if (step + 1) % 20 == 0 or step + 1 == end:
            row = {
                "step": step + 1,
                "tokens": (step + 1) * recipe.batch * recipe.sequence_tokens,
                "answer_loss": round(math.fsum(losses) / len(losses), 5),
                "tokens_per_s": round(
                    (step + 1 - start) * recipe.batch * recipe.sequence_tokens / (time.perf_counter() - began)
                ),
            }
            losses.clear()
            with (folder / "train.jsonl").open("a", encoding="utf-8") as log:
                log.write(json.dumps(row) + "\n")
            if report:
                report(row)
        if (step + 1) % checkpoint_every == 0 or step + 1 == end:
            save(step + 1)
        if evaluate_every and (step + 1) % evaluate_every == 0:
            export_model(model, export, recipe, step + 1)
    export_model(model, export, recipe, end)
    return export


def export_model(model: Any, export: Path, recipe: Recipe, step: int) -> None:
    """Write a bf16 copy in hub layout, with the recipe beside it."""
    import copy

    import torch

    clone = copy.deepcopy(model).to("cpu", torch.bfloat16)
    clone.save_pretrained(export)
    facts = {**asdict(recipe), "step": step, "tokens_seen": step * recipe.batch * recipe.sequence_tokens}
    (export / "recipe.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
