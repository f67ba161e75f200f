"""The documents of a training step as padded batches: a function of (seed, step)."""

import os
import random
from dataclasses import dataclass
from typing import Any

from backend.prompts.filled_results import split_filled
from backend.prompts.tasks import Document, Style, make_document
from backend.training.recipe import Recipe, curriculum


class Packer:
    """Turns (seed, step) into the batches of one step."""

    def __init__(self, tokenizer: Any, recipe: Recipe) -> None:
        self.recipe = recipe
        self.tokenizer = tokenizer
        self.bos, self.eos = tokenizer.bos_token_id, tokenizer.eos_token_id
        self.opener = tokenizer.convert_tokens_to_ids("<a>")
        self.cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        ids = self.cache.get(text)
        if ids is None:
            ids = self.tokenizer.encode(text, add_special_tokens=False)
            if len(text) < 120 and len(self.cache) < 50_000:
                self.cache[text] = ids
        return ids

    def encode_document(self, document: Document, rng: random.Random) -> tuple[list[int], list[float]]:
        """A document's tokens and the weight of the loss on each: 0 for results that are filled in."""
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
        # two in five at the full level, at which the evaluation is
        style = Style(level=level * min(1.0, rng.uniform(0.4, 1.4)), trains=True)
        document = make_document(rng, task, kind=kind or None, style=style)
        return self.encode_document(document, rng)

    def batches(self, step: int, process: int = 0, processes: int = 1) -> list[tuple[Any, Any]]:
        """A process's batches of the step: ``(ids, weights)``, each ``(documents, longest's tokens)``.

        Shortest first; of documents sorted by length every process takes each ``processes``-th.
        """
        recipe = self.recipe
        rng = random.Random(f"{recipe.seed}:{step}")
        documents, total = [], 0
        while total < recipe.step_tokens:
            ids, weights = self.document(rng, recipe.tokens_before + step * recipe.step_tokens)
            if len(ids) <= recipe.context:
                documents.append((ids, weights))
                total += len(ids)
        documents.sort(key=lambda item: len(item[0]))
        return padded(documents[process::processes], recipe.batch_tokens, self.tokenizer.pad_token_id)


def padded(
    documents: list[tuple[list[int], list[float]]], batch_tokens: int, pad: int
) -> list[tuple[Any, Any]]:
    """Batches of documents sorted by length, padded at the right, where no earlier token attends."""
    import torch

    out, start = [], 0
    while start < len(documents):
        count = 1
        while (
            start + count < len(documents) and (count + 1) * len(documents[start + count][0]) <= batch_tokens
        ):
            count += 1
        group = documents[start : start + count]
        start += count
        length = max(len(ids) for ids, _ in group)
        rows = torch.full((len(group), length), pad, dtype=torch.long)
        weights = torch.zeros((len(group), length))
        for row, (ids, loss) in enumerate(group):
            rows[row, : len(ids)] = torch.tensor(ids)
            weights[row, : len(ids)] = torch.tensor(loss)
        out.append((rows, weights))
    return out


def step_batches(packer: Packer, start: int, end: int, device: str, process: int, processes: int) -> Any:
    """A process's batches of steps ``start`` to ``end``; for a GPU, other processes prepare them ahead."""
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
