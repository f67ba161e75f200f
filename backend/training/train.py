"""Training of the embedded model: ``kvlab train-embedded``.

A step draws documents, sorts them by length and reads them in few padded batches, so that short ones cost
little. The loss is on what the model has to write; results that the calculator fills in carry none, and a
part of the prompt's tokens has a small one. Muon on the matrices and AdamW on the rest, warm-up, a constant
rate, then a linear decay. A step's documents are a function of (seed, step), and the checkpoint holds
weights, optimiser state and step, so an interrupted run continues as if it had not been. A run may also begin
from the weights of an earlier one (``init``), with fresh optimiser state.

Several processes share each step's documents and add up their gradients, so they train what one would:
``torchrun --nproc-per-node 2 -m lab_app.cli.main train-embedded ...``. On a CPU they use its cores better
than one process with as many threads.
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

from backend.prompts.filled_results import split_filled
from backend.prompts.tasks import Document, Style, make_document
from backend.training.head_start import look_back
from backend.training.tokenizer import save_tokenizer
from backend.training.twins import pair_twins


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the trained weights."""

    seed: int = 0
    tokens: int = 60_000_000
    step_tokens: int = 4096
    batch_tokens: int = 1024  # read at once, padding included: activations that stay in a CPU core's cache
    hidden: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 6
    intermediate: int = 512
    context: int = 2048
    muon_rate: float = 0.015
    adam_rate: float = 3e-3
    warmup_steps: int = 60
    decay_share: float = 0.5
    prompt_weight: float = 0.05
    prompt_share: float = 0.25  # of the prompt's tokens that have a loss at all
    look_back: tuple[int, ...] = (1, 2, 3, 4)  # where the first heads look before training
    tokens_before: int = 0  # seen by the weights that this run began with; the curriculum goes on from there

    @property
    def steps(self) -> int:
        return max(1, self.tokens // self.step_tokens)


# The model that ships, and its sibling with a quarter of the parameters and the same tokenizer.
SIZES: dict[str, dict[str, Any]] = {
    "main": {},
    "small": {"hidden": 96, "layers": 4, "heads": 3, "kv_heads": 3, "intermediate": 256},
}

# The curriculum, by tokens seen: the level (how long and hard documents are, changing evenly from one row to
# the next) and the shares of the documents, by task or by task and kind. Skills come first and nearly alone:
# a model that is taught to copy and to find before anything else does so after half a million tokens, and one
# that is taught everything at once does not after twelve.
CURRICULUM: tuple[tuple[int, float, dict[str, int]], ...] = (
    (0, 0.0, {"recall copy": 4, "recall pairs": 4, "drill chain": 2, "solver": 4}),
    (1_000_000, 0.1, {"recall copy": 2, "recall pairs": 4, "recall facts": 3, "recall sections": 4}
     | {"compare same": 4, "drill chain": 1, "solver": 14, "documents one-hop": 2, "program": 1}),
    (3_000_000, 0.2, {"recall copy": 1, "recall pairs": 2, "recall facts": 2, "recall sections": 3}
     | {"compare same": 4, "recall candidates": 2, "recall roles": 2, "solver": 24, "worker": 5, "judge": 5}
     | {"documents one-hop": 3, "documents two-hop": 3, "prefix": 4, "tools": 3, "program": 3}),
    (8_000_000, 0.6, {"recall copy": 1, "recall pairs": 1, "recall sections": 1, "recall roles": 2}
     | {"compare same": 2, "solver": 26, "worker": 9, "judge": 12, "documents one-hop": 3}
     | {"documents two-hop": 5, "prefix codebook": 2, "prefix units": 2, "prefix who": 4}
     | {"tools": 4, "program": 4}),
    (20_000_000, 1.0, {"recall copy": 1, "recall roles": 1, "compare same": 1}
     | {"solver": 26, "worker": 11, "judge": 16, "documents one-hop": 4, "documents two-hop": 6}
     | {"prefix codebook": 3, "prefix units": 2, "prefix who": 5, "tools": 5, "program": 5}),
    # what is learnt last: the families that are read once, not by a whole pipeline
    (48_000_000, 1.0, {"recall copy": 2, "recall pairs": 1, "recall facts": 1, "recall roles": 1}
     | {"compare same": 1, "solver": 24, "worker": 7, "judge": 14, "documents one-hop": 7}
     | {"documents two-hop": 10}
     | {"prefix codebook": 3, "prefix units": 3, "prefix who": 5, "tools": 10, "program": 9}),
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


class Packer:
    """Turns (seed, step) into the batches of one step."""

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

    def encode_document(self, document: Document, rng: random.Random) -> tuple[list[int], list[float]]:
        """A document's tokens and the weight of the loss on each: 0 for what is given or filled in."""
        recipe = self.recipe
        ids, weights = [self.bos], [0.0]
        opened = False
        for piece in document.pieces:
            if not piece.answer:
                new = self.encode(piece.text)
                ids += new
                weights += [recipe.prompt_weight if rng.random() < recipe.prompt_share else 0.0 for _ in new]
                continue
            if not opened:
                ids.append(self.opener)
                weights.append(0.0)
                opened = True
            for text, filled in split_filled(piece.text):
                new = self.encode(text)
                ids += new
                weights += [0.0 if filled else 1.0] * len(new)
        return [*ids, self.eos], [*weights, 1.0]

    def document(self, rng: random.Random, tokens_seen: int) -> tuple[list[int], list[float]]:
        shares, level = curriculum(tokens_seen)
        task, _, kind = rng.choices(list(shares), list(shares.values()))[0].partition(" ")
        document = make_document(
            rng, task, kind=kind or None, style=Style(level=level * rng.uniform(0.4, 1.0))
        )
        return self.encode_document(document, rng)

    def batches(self, step: int, process: int = 0, processes: int = 1) -> list[tuple[Any, Any]]:
        """A process's batches of the step: ``(ids, weights)``, each ``(documents, longest's tokens)``.

        Shortest first; of documents sorted by length every process takes each ``processes``-th.
        """
        recipe = self.recipe
        rng = random.Random(f"{recipe.seed}:{step}")
        drawn, total = [], 0
        while total < recipe.step_tokens:
            ids, weights = self.document(rng, recipe.tokens_before + step * recipe.step_tokens)
            if len(ids) <= recipe.context:
                drawn.append((ids, weights))
                total += len(ids)
        drawn.sort(key=lambda item: len(item[0]))
        return padded(drawn[process::processes], recipe.batch_tokens, self.tokenizer.pad_token_id)


def padded(drawn: list[tuple[list[int], list[float]]], batch_tokens: int, pad: int) -> list[tuple[Any, Any]]:
    """Neighbours of documents sorted by length, padded behind their ends (nobody sees what is behind)."""
    import torch

    out, at = [], 0
    while at < len(drawn):
        count = 1
        while at + count < len(drawn) and (count + 1) * len(drawn[at + count][0]) <= batch_tokens:
            count += 1
        some = drawn[at : at + count]
        at += count
        length = max(len(ids) for ids, _ in some)
        rows = torch.full((len(some), length), pad, dtype=torch.long)
        weights = torch.zeros((len(some), length))
        for row, (ids, loss) in enumerate(some):
            rows[row, : len(ids)] = torch.tensor(ids)
            weights[row, : len(ids)] = torch.tensor(loss)
        out.append((rows, weights))
    return out


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

    # what stands later, as an amount that leaves nothing of its weight
    hidden_from = torch.full((tokens, tokens), -1e9, device=ids.device, dtype=dtype).triu(1)

    def turned(states: Any) -> Any:
        a, b = states.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        h = functional.rms_norm(x, x.shape[-1:], layer.input_layernorm.weight, eps).to(dtype)
        weights = (attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight)
        both = functional.linear(h, torch.cat(weights).to(dtype)).view(batch, tokens, heads + 2 * kv, width)
        q, k, v = both.transpose(1, 2).split((heads, kv, kv), 1)
        if tokens <= PLAIN_ATTENTION_UP_TO and kv == heads:
            scores = (turned(q) * width**-0.5) @ turned(k).transpose(-1, -2) + hidden_from
            mixed = scores.softmax(-1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(
                turned(q), turned(k), v, is_causal=True, enable_gqa=kv != heads
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
        fills_results=True,
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
        report: called with every row of the log.
        checkpoint_every: steps.
        check_every: steps between two calls of ``check`` with the exported model; 0 for none.
        check: its result goes to ``folder/checks.jsonl``.
    """
    import torch
    from torch.nn import functional
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    from backend.training.muon import Muon

    process, processes = join_processes()
    first = process == 0  # it alone writes
    folder.mkdir(parents=True, exist_ok=True)
    export = folder / "export"
    checkpoint = folder / "checkpoint.pt"
    if first and not checkpoint.exists():  # else the weights keep the vocabulary they began with
        if known := init or tokenizer_from:
            PreTrainedTokenizerFast.from_pretrained(known).save_pretrained(export)
        else:
            save_tokenizer(export, recipe.seed)
    if processes > 1:
        torch.distributed.barrier()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(export)
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
    dtype = torch.bfloat16 if bfloat16_pays(device) else torch.float32
    muon = Muon(matrices, lr=recipe.muon_rate, dtype=dtype)
    adam = torch.optim.AdamW(others, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    start = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        muon.load_state_dict(state["muon"])
        adam.load_state_dict(state["adam"])
        start = state["step"]
    else:
        if not init:
            pair_twins(model, tokenizer, recipe.seed)
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
    steps = step_batches(Packer(tokenizer, recipe), start, end, device, process, processes)
    for step, batches in zip(range(start, end), steps, strict=True):
        factor = rate_factor(step, recipe)
        for optimiser, rate in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        scale, answered, seen = torch.zeros(3, device=device).unbind()
        for batch in batches:
            ids, weights = (x.to(device, non_blocking=True) for x in batch)
            hidden = hidden_states(model, ids, dtype)
            wanted = weights[:, 1:] > 0
            logits = functional.linear(hidden[:, :-1][wanted], model.lm_head.weight.to(dtype))
            each = functional.cross_entropy(logits.float(), ids[:, 1:][wanted], reduction="none")
            share = weights[:, 1:][wanted]
            (each * share).sum().backward()
            answers = each.detach()[share == 1.0]
            scale, answered, seen = scale + share.sum(), answered + answers.sum(), seen + len(answers)
        scale, answered, seen = add_up(model, torch.stack((scale, answered, seen)), processes)
        for p in model.parameters():
            assert p.grad is not None
            p.grad /= scale
        losses.append(answered / seen.clamp(min=1))  # stays on the device until it is logged
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step()
        adam.step()
        muon.zero_grad(set_to_none=True)
        adam.zero_grad(set_to_none=True)
        if not first:
            continue
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
    if first:
        export_model(model, export, recipe, end)
    return export


def join_processes() -> tuple[int, int]:
    """This process's number and how many there are: more than one where ``torchrun`` started them."""
    import torch

    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return 0, 1
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def add_up(model: Any, totals: Any, processes: int) -> Any:
    """Add up gradients, in place, and ``totals`` over the processes; returns the totals."""
    import torch

    if processes == 1:
        return totals
    parameters = list(model.parameters())
    for p in parameters:
        if p.grad is None:  # no document of the step came to this process
            p.grad = torch.zeros_like(p)
    flat = torch.cat([totals.flatten(), *(p.grad.flatten() for p in parameters)])
    torch.distributed.all_reduce(flat)
    totals, *grads = flat.split([totals.numel(), *(p.numel() for p in parameters)])
    for p, grad in zip(parameters, grads, strict=True):
        p.grad.copy_(grad.view_as(p))
    return totals


def step_batches(packer: Packer, start: int, end: int, device: str, process: int, processes: int) -> Any:
    """A process's batches of steps ``start`` to ``end``, made ahead by others where a GPU is waiting."""
    from torch.utils.data import DataLoader

    workers = min(14, max(1, (os.cpu_count() or 2) - 2)) if device == "cuda" else 0
    return DataLoader(
        _Steps(packer, start, end, process, processes),  # type: ignore[arg-type]
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
    process: int
    processes: int

    def __len__(self) -> int:
        return self.end - self.start

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        return self.packer.batches(self.start + index, self.process, self.processes)


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
