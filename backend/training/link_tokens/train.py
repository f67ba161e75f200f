"""Training of link tokens with low-rank deltas: ``kvlab train-links``.

The loss is on the answer alone: the answer itself, as in the paper, or in part (``teacher``) what the base
says of each of its tokens when it reads the whole prompt densely, where the base has learnt the task.
The batch of a step is a function of (seed, step), and the checkpoint holds the trained tensors, the
optimiser's state and the step, so an interrupted run goes on as if it had not been.
The base's weights stay as they are; what is trained is saved as one small file
(:mod:`backend.model.link_tokens`).
"""

import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from backend.base.errors import OptionError
from backend.base.ranges import check_choice, check_within
from backend.model.link_tokens import (
    NO_SOFT,
    Delta,
    Links,
    base_hash,
    load_links,
    projections,
    save_links,
    select_tokens,
)
from backend.model.load import LoadedModel
from backend.training.link_tokens.examples import LEARNT_KINDS, MIXTURES, MOST_DOCUMENTS, Example, draw
from backend.training.link_tokens.layout import Batch, batch, lay_out
from backend.training.recipe import rate_factor
from backend.training.train import append

ALPHA = 2.0  # scale of the deltas, which begin at zero
MOST_PADDING = 1.25  # of a part: its tokens with padding, over those without


@dataclass(frozen=True)
class LinkRecipe:
    """Everything that decides what is trained.

    ``links``: link tokens behind a document. ``edges``: KV-START and KV-END; with neither, the layout is
    Block-Attention's. ``rank``: of the deltas; 0 trains the link tokens alone (a control). ``compression``:
    "none", "drop" (tokens that say the least) or "anchors"; ``compressed`` is the share of tokens taken away.
    "packet" takes none away: ``wrappers`` trained tokens stand before and as many behind each document,
    encoded with it (KV Packet).
    ``teacher``: share of the loss that is the KL from the base's own dense reading, in the kinds that the
    base has learnt; the rest is the answer's. ``shuffle``: may a question's documents stand in any order?
    """

    seed: int = 0
    steps: int = 3000
    batch: int = 32
    links: int = 5
    edges: bool = True
    rank: int = 32
    rate: float = 1e-3
    embedding_rate: float = 1e-2
    warmup_steps: int = 100
    decay_share: float = 0.5
    mixture: str = "lab"
    compression: str = "none"
    compressed: float = 0.5
    chunk_tokens: int = 100
    wrappers: int = 8
    teacher: float = 0.0
    shuffle: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        check_choice(self.mixture, MIXTURES, "links.mixture")
        check_choice(self.compression, ("none", "drop", "anchors", "packet"), "links.compression")
        ranges = {
            "steps": (1, 10_000_000), "batch": (1, 4096), "links": (0, 64), "rank": (0, 512),
            "rate": (0.0, 1.0), "embedding_rate": (0.0, 1.0), "compressed": (0.0, 0.95),
            "chunk_tokens": (1, 4096), "wrappers": (1, 64), "teacher": (0.0, 1.0),
        }  # fmt: skip
        for name, (low, high) in ranges.items():
            check_within(getattr(self, name), low, high, f"links.{name}")
        if not self.rank and not self.links and not self.edges and not self.anchors:
            raise OptionError(
                "With no link token, no edge and rank 0 there is nothing to train. Give a rank, or links.",
                field="links.rank",
            )

    @property
    def anchors(self) -> int:
        """Most anchors of a chunk, or all tokens around a document."""
        if self.compression == "packet":
            return 2 * self.wrappers
        if self.compression != "anchors":
            return 0
        return max(1, round(self.chunk_tokens * (1 - self.compressed)))

    @property
    def label(self) -> str:
        """KVLink5, Block-Attention, ..."""
        if self.mixture in ROLES:
            return ROLES[self.mixture]
        if self.compression == "packet":
            return f"KV Packet{self.wrappers}"
        name = f"KVLink{self.links}" if self.edges or self.links else "Block-Attention"
        return name if self.shuffle else f"{name}, unshuffled"


#: What weights trained for one role are called, by their mixture.
ROLES = {"brief": "Brief judge", "long": "Long reader"}


class Trainee:
    """A base model with the tensors that are trained over it."""

    def __init__(self, model: LoadedModel, recipe: LinkRecipe) -> None:
        self.module, self.recipe = model.module, recipe
        for parameter in self.module.parameters():
            parameter.requires_grad_(False)
        table = model.module.get_input_embeddings().weight.detach()
        generator = torch.Generator().manual_seed(recipe.seed)
        hidden = table.shape[1]
        middle, spread = table.float().mean(dim=0).cpu(), table.float().std(dim=0).cpu()

        def soft(*shape: int) -> Tensor:
            drawn = torch.randn(*shape, hidden, generator=generator) * spread + middle
            made: Tensor = drawn.to(table.device).requires_grad_()
            return made

        self.links = soft(MOST_DOCUMENTS, recipe.links)
        self.edges = soft(2 if recipe.edges else 0)
        self.anchors = soft(recipe.anchors)
        self.deltas: dict[str, Delta] = {}
        for name, part in projections(self.module).items() if recipe.rank else ():
            out, into = part.weight.shape
            down = torch.randn(recipe.rank, into, generator=generator) / math.sqrt(into)
            self.deltas[name] = Delta(
                torch.zeros(out, recipe.rank, device=table.device, requires_grad=True),
                down.to(table.device).requires_grad_(),
            )

    @property
    def soft(self) -> list[Tensor]:
        """The embeddings that are trained."""
        return [self.links, self.edges, self.anchors]

    @property
    def matrices(self) -> list[Tensor]:
        """The deltas' two factors, by name."""
        return [x for name in sorted(self.deltas) for x in (self.deltas[name].up, self.deltas[name].down)]

    def begin_with(self, path: Path) -> None:
        """Take the values of a file that has the same tensors.

        Raises:
            OptionError: its tensors are others.
            ModelError: it is missing, or no file of link tokens.
        """
        links, deltas, _ = load_links(path)
        given = [links.links, links.edges, links.anchor_tokens]
        given += [x for name in sorted(deltas) for x in (deltas[name].up / ALPHA, deltas[name].down)]
        own = [*self.soft, *self.matrices]
        if sorted(deltas) != sorted(self.deltas) or [x.shape for x in given] != [x.shape for x in own]:
            raise OptionError(
                f"--init is {str(path)!r}, whose link tokens or deltas have other sizes than this training's."
                " Name a file that was trained with the same links, edges, rank and compression.",
                field="links.init",
            )
        for tensor, value in zip(own, given, strict=True):
            tensor.data.copy_(value)

    def as_links(self, facts: dict[str, Any] | None = None) -> Links:
        """The link tokens as they are now; they share the trained tensors."""
        r = self.recipe
        rate = r.compressed if r.compression in ("drop", "anchors") else 0.0
        about = (r.compression, rate, r.chunk_tokens, facts or {})
        return Links(self.links, self.edges, self.anchors, *about)

    def weights(self) -> dict[str, Tensor]:
        """The base's projections with the deltas added, by parameter name."""
        parts = projections(self.module)
        return {
            f"{name}.weight": parts[name].weight
            + ALPHA * (delta.up @ delta.down).to(parts[name].weight.dtype)
            for name, delta in self.deltas.items()
        }

    def hidden(
        self, ids: Tensor, soft: Tensor, position: Tensor, mask: Tensor, adapted: bool = True
    ) -> Tensor:
        """(rows, tokens, hidden) of the last layer; arguments as in :class:`Batch`. ``adapted``: with the
        deltas, or as the base itself."""
        table = self.module.get_input_embeddings().weight
        inputs = functional.embedding(ids, table)
        if int((soft != NO_SOFT).sum()):
            soft_rows = self.as_links().table.to(inputs.dtype)
            inputs = torch.where((soft != NO_SOFT)[..., None], soft_rows[soft.clamp_min(0)], inputs)
        # padding attends to itself, so that no row of attention is empty
        visible = mask | torch.eye(ids.shape[1], dtype=torch.bool, device=ids.device)
        arguments = {
            "inputs_embeds": inputs,
            "attention_mask": visible[:, None],
            "position_ids": position,
            "use_cache": False,
        }
        inner = self.module.base_model
        prefix = f"{self.module.base_model_prefix}."
        weights = self.weights() if adapted else {}
        changed = {name.removeprefix(prefix): weight for name, weight in weights.items()}
        hidden_state: Tensor = functional_call(inner, changed, kwargs=arguments).last_hidden_state
        return hidden_state

    def logits(self, inputs: Batch, adapted: bool = True) -> tuple[Tensor, Tensor, Tensor]:
        """Logits (n, vocabulary) before each token that is to be learnt, that token (n,) and its row (n,)."""
        hidden = self.hidden(inputs.ids, inputs.soft, inputs.position, inputs.mask, adapted)
        learnt = inputs.weight[:, 1:] > 0
        rows = torch.arange(len(inputs.ids), device=inputs.ids.device)[:, None].expand(learnt.shape)
        return (
            self.module.get_output_embeddings()(hidden[:, :-1][learnt]).float(),
            inputs.ids[:, 1:][learnt],
            rows[learnt],
        )

    @torch.no_grad()
    def surprisal(self, texts: Sequence[Sequence[int]]) -> list[Tensor]:
        """Minus log probability of every token of each text, read alone; infinite for the first."""
        longest = max(map(len, texts))
        padded = [[*t, *[0] * (longest - len(t))] for t in texts]
        ids = torch.tensor(padded, device=self.links.device, dtype=torch.long)
        causal = torch.ones(longest, longest, dtype=torch.bool, device=ids.device).tril()
        position = torch.arange(longest, device=ids.device).expand(ids.shape)
        hidden = self.hidden(ids, torch.full_like(ids, NO_SOFT), position, causal.expand(len(ids), -1, -1))
        log_probabilities = self.module.get_output_embeddings()(hidden[:, :-1]).float().log_softmax(-1)
        loss = -log_probabilities.gather(-1, ids[:, 1:, None])[..., 0]
        loss = torch.cat([loss.new_full((len(ids), 1), torch.inf), loss], dim=1)
        return [row[: len(t)] for row, t in zip(loss, texts, strict=True)]


@dataclass(frozen=True)
class Part:
    """Rows of a step that are nearly equally long: what is trained on, and each row's kind. ``taught``: the
    rows that the teacher reads; ``whole``: these rows as it reads them, None without a teacher."""

    inputs: Batch
    kinds: list[str]
    taught: list[int]
    whole: Batch | None


def alike(lengths: Sequence[int]) -> list[list[int]]:
    """Indices of rows in groups of nearly equal length (:data:`MOST_PADDING`), the shortest first."""
    groups: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        together = [*groups[-1], row] if groups else [row]
        padded = len(together) * lengths[row]
        if groups and padded <= MOST_PADDING * sum(lengths[i] for i in together):
            groups[-1] = together
        else:
            groups.append([row])
    return groups


class Feed:
    """Turns (seed, step) into a batch, in parts."""

    def __init__(self, model: LoadedModel, trainee: Trainee) -> None:
        self.tokens, self.trainee = model.tokens, trainee
        self.limit = model.info.context_tokens
        self.end = (int(model.tokens.tokenizer.eos_token_id),)

    def at(self, step: int) -> list[Part]:
        """The batch of a step."""
        recipe = self.trainee.recipe
        rng = random.Random(f"links:{recipe.seed}:{step}")
        examples = [draw(rng, MIXTURES[recipe.mixture], shuffle=recipe.shuffle) for _ in range(recipe.batch)]
        pairs = zip(examples, self.lay_out(examples), strict=True)
        short = [(example, sequence) for example, sequence in pairs if len(sequence.ids) <= self.limit]
        parts = []
        for group in alike([len(sequence.ids) for _, sequence in short]):
            rows = [short[i] for i in group]
            kinds = [example.kind for example, _ in rows]
            taught = [i for i, kind in enumerate(kinds) if recipe.teacher and kind in LEARNT_KINDS]
            whole = None
            if taught:
                whole = batch(self.lay_out([replace(rows[i][0], apart=False) for i in taught]))
            parts.append(Part(batch([sequence for _, sequence in rows]), kinds, taught, whole))
        return parts

    def lay_out(self, examples: Sequence[Example]) -> list[Any]:
        """Examples to sequences, their documents compressed where the recipe says so."""
        links = self.trainee.as_links()
        prompts = [
            [(list(self.tokens.encode(p.text)), e.separate(p)) for p in e.document.pieces[:-1]]
            for e in examples
        ]
        if links.compression == "drop":
            texts = [ids for pieces in prompts for ids, apart in pieces if apart]
            surprisals = iter(self.trainee.surprisal(texts)) if texts else iter(())
            for pieces in prompts:
                for number, (ids, apart) in enumerate(pieces):
                    if apart:
                        indices = select_tokens(next(surprisals), links.rate)
                        pieces[number] = ([ids[i] for i in indices.tolist()], True)
        out = []
        for example, pieces in zip(examples, prompts, strict=True):
            whole = [(list(self.tokens.opening), False), *pieces, (list(self.tokens.closing), False)]
            answer = [*self.tokens.encode(example.document.target), *self.end]
            out.append(lay_out(whole, answer, links if example.apart else None))
        return out


def teacher_loss(trainee: Trainee, whole: Batch, logits: Tensor) -> Tensor:
    """KL (n,) in nats of ``logits`` (n, vocabulary) from the base's own on the same rows, read densely."""
    with torch.no_grad():
        target = trainee.logits(whole, adapted=False)[0].log_softmax(-1)
    return functional.kl_div(logits.log_softmax(-1), target, reduction="none", log_target=True).sum(-1)


def train_links(
    model: LoadedModel,
    out: Path,
    recipe: LinkRecipe,
    *,
    init: Path | None = None,
    stop_after_steps: int | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
    report_every: int = 20,
    checkpoint_every: int = 500,
) -> Path:
    """Train (or go on training, also a finished one with more steps) and write ``out``; returns it.

    Beside it lie ``<out>.checkpoint.pt`` and ``<out>.train.jsonl``, which need not be shipped.

    Args:
        model: the base, in fp32; its weights are left as they are.
        out: the ``.safetensors`` file.
        recipe: what is trained, on what.
        init: a file that an earlier training wrote, mostly over earlier weights of the base. Training begins
            with its values; a checkpoint beside ``out`` goes before it.
        stop_after_steps: end early; the next call goes on from there.
        report: called with every row of the log.
        report_every: steps between two rows.
        checkpoint_every: steps between two checkpoints.

    Raises:
        OptionError: the checkpoint belongs to another recipe or other weights, or ``init`` to another recipe.
        ModelError: the file would be too large, or ``init`` is none.
    """
    if out.suffix != ".safetensors":
        raise OptionError(f"--out is {str(out)!r}; it must end in .safetensors. Change it.", field="out")
    out.parent.mkdir(parents=True, exist_ok=True)
    checkpoint, log = out.with_suffix(".checkpoint.pt"), out.with_suffix(".train.jsonl")
    trainee = Trainee(model, recipe)
    base = base_hash(model.module)
    groups = [{"params": trainee.soft, "rate": recipe.embedding_rate}]
    if trainee.matrices:
        groups.append({"params": trainee.matrices, "rate": recipe.rate})
    optimiser = torch.optim.AdamW(groups, betas=(0.9, 0.95), weight_decay=0.0)
    # without the number of steps: a finished training goes on with more
    identity = {"recipe": asdict(replace(recipe, steps=1)), "base": base}
    if init is not None:
        trainee.begin_with(init)
    start = _resume(checkpoint, trainee, optimiser, identity)
    end = recipe.steps if stop_after_steps is None else min(recipe.steps, start + stop_after_steps)
    feed, device = Feed(model, trainee), model.device
    start_time, losses = time.perf_counter(), dict[str, list[Tensor]]()
    parameters = [*trainee.soft, *trainee.matrices]
    for step in range(start, end):
        for group in optimiser.param_groups:
            group["lr"] = group["rate"] * rate_factor(step, recipe)
        parts = feed.at(step)
        learnt = sum(int((part.inputs.weight[:, 1:] > 0).sum()) for part in parts)
        for part in parts:
            logits, tokens, rows = trainee.logits(part.inputs.to(device))
            each = functional.cross_entropy(logits, tokens, reduction="none")
            loss = each.sum()
            if part.whole is not None:
                taught = torch.isin(rows, torch.tensor(part.taught, device=device))
                from_teacher = teacher_loss(trainee, part.whole.to(device), logits[taught])
                loss = loss + recipe.teacher * (from_teacher - each[taught]).sum()
            if loss.requires_grad:  # not where link tokens alone are trained and no row has one
                (loss / learnt).backward()
            for row, kind in enumerate(part.kinds):
                losses.setdefault(kind, []).append(each.detach()[rows == row].mean())
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        if (step + 1) % report_every == 0 or step + 1 == end:
            means = {kind: round(float(torch.stack(v).mean()), 4) for kind, v in sorted(losses.items())}
            speed = (step + 1 - start) * recipe.batch / (time.perf_counter() - start_time)
            line = {"step": step + 1, "loss": means, "examples_per_s": round(speed, 1)}
            losses.clear()
            append(log, line)
            if report:
                report(line)
        if (step + 1) % checkpoint_every == 0 or step + 1 == end:
            _save(checkpoint, trainee, optimiser, step + 1, identity)
    facts = {**asdict(recipe), "step": end, "label": recipe.label, "base_name": model.info.name}
    scaled = {name: Delta(ALPHA * d.up, d.down) for name, d in trainee.deltas.items()}
    return save_links(out, trainee.as_links(facts), scaled, base)


def _save(
    path: Path, trainee: Trainee, optimiser: torch.optim.Optimizer, step: int, identity: dict[str, Any]
) -> None:
    tensors = [x.detach() for x in (*trainee.soft, *trainee.matrices)]
    state = {"tensors": tensors, "optimiser": optimiser.state_dict(), "step": step}
    torch.save(state | {"identity": json.dumps(identity, sort_keys=True)}, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)


def _resume(path: Path, trainee: Trainee, optimiser: torch.optim.Optimizer, identity: dict[str, Any]) -> int:
    """The step to begin with: 0, or where the checkpoint stopped."""
    if not path.exists():
        return 0
    state = torch.load(path, map_location=trainee.links.device, weights_only=True)
    if state["identity"] != json.dumps(identity, sort_keys=True):
        raise OptionError(
            f"{path.name} belongs to another recipe or other weights. Remove it to begin anew, or choose "
            "another --out.",
            field="out",
        )
    for tensor, value in zip((*trainee.soft, *trainee.matrices), state["tensors"], strict=True):
        tensor.data.copy_(value)
    optimiser.load_state_dict(state["optimiser"])
    return int(state["step"])
