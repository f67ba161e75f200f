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

import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backend.training.batches import Packer, step_batches
from backend.training.deepen import deepen
from backend.training.forward_pass import bfloat16_pays, build_model, hidden_states
from backend.training.recipe import Recipe, rate_factor
from backend.training.tokenizer import save_tokenizer
from backend.training.twins import pair_twins


def train(
    folder: Path,
    recipe: Recipe,
    *,
    init: Path | None = None,
    tokenizer_from: Path | None = None,
    stop_after_steps: int | None = None,
    compiled: bool = False,
    report: Callable[[dict[str, Any]], None] | None = None,
    checkpoint_every: int = 200,
    check_every: int = 0,
    check: Callable[[Path], dict[str, Any]] | None = None,
) -> Path:
    """Train (or continue) in ``folder``; returns the folder of the exported model.

    ``folder/checkpoint.pt`` is written every ``checkpoint_every`` steps and at the end,
    ``folder/train.jsonl`` gets a row per 20 steps, ``folder/export/`` the model in hub layout (bf16).

    Args:
        init: a folder in hub layout whose weights and tokenizer a new run begins with; layers that it
            lacks are added without changing what it answers.
        tokenizer_from: a folder whose tokenizer a new run takes, else one is trained.
        stop_after_steps: end early; the next call goes on from there.
        compiled: let torch compile the forward pass, which takes a minute or two at the start and needs a
            C++ compiler. On one core with bfloat16 units a step then takes about four fifths of the time.
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
    first = process == 0  # only this process writes files
    folder.mkdir(parents=True, exist_ok=True)
    export = folder / "export"
    checkpoint = folder / "checkpoint.pt"
    if first and not checkpoint.exists():  # else the weights keep the vocabulary they began with
        if source := init or tokenizer_from:
            PreTrainedTokenizerFast.from_pretrained(source).save_pretrained(export)
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
        first_weights = LlamaForCausalLM.from_pretrained(init, dtype=torch.float32).state_dict()
        model.load_state_dict(deepen(first_weights, recipe.layers))
    matrices = [
        p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n and "lm_head" not in n
    ]
    matrix_ids = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in matrix_ids]
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
    elif not init:
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

    forward = torch.compile(hidden_states, dynamic=True) if compiled else hidden_states
    start_time, losses = time.perf_counter(), []
    steps = step_batches(Packer(tokenizer, recipe), start, end, device, process, processes)
    for step, batches in zip(range(start, end), steps, strict=True):
        factor = rate_factor(step, recipe)
        for optimiser, rate in ((muon, recipe.muon_rate), (adam, recipe.adam_rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
        scale, loss, count = torch.zeros(3, device=device).unbind()
        for batch in batches:
            ids, weights = (x.to(device, non_blocking=True) for x in batch)
            hidden = forward(model, ids, dtype)
            has_loss = weights[:, 1:] > 0
            logits = functional.linear(hidden[:, :-1][has_loss], model.lm_head.weight.to(dtype))
            each = functional.cross_entropy(logits.float(), ids[:, 1:][has_loss], reduction="none")
            share = weights[:, 1:][has_loss]
            (each * share).sum().backward()
            answers = each.detach()[share == 1.0]
            scale, loss, count = scale + share.sum(), loss + answers.sum(), count + len(answers)
        scale, loss, count = add_up(model, torch.stack((scale, loss, count)), processes)
        for p in model.parameters():
            assert p.grad is not None
            p.grad /= scale
        losses.append(loss / count.clamp(min=1))  # stays on the device until it is logged
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        muon.step()
        adam.step()
        muon.zero_grad(set_to_none=True)
        adam.zero_grad(set_to_none=True)
        if not first:
            continue
        tokens = recipe.tokens_before + (step + 1) * recipe.step_tokens
        if (step + 1) % 20 == 0 or step + 1 == end:
            speed = (step + 1 - start) * recipe.step_tokens / (time.perf_counter() - start_time)
            row = {
                "step": step + 1,
                "tokens": tokens,
                "answer_loss": round(math.fsum(map(float, losses)) / len(losses), 5),
                "tokens_per_s": round(speed),
            }
            losses.clear()
            append(folder / "train.jsonl", row)
            if report:
                report(row)
        if (step + 1) % checkpoint_every == 0 or step + 1 == end:
            save(step + 1)
        if check and check_every and (step + 1) % check_every == 0:
            export_model(model, export, recipe, step + 1)
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
