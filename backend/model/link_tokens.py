"""Link tokens and the low-rank deltas trained with them, in one file beside their base weights.

KVLink (Section 2.3, appendix A.2) puts K trained tokens behind each separately encoded document, different
ones for each place in the prompt, and one before the first and one behind the last document (KV-START,
KV-END); the model is trained too. Here the model's part is a low-rank delta of its projections, ``weight + up
@ down``, so the file has a few megabytes. It names its base weights by their hash; others are refused.

An adapted model is a model like any other (:func:`backend.model.load.load_model` with ``BASE+NAME``). A cache
belongs to its weights, so a method that needs adapted weights is compared with dense on the same weights.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from backend.base.errors import ModelError

FORMAT = "kvlab-links-1"
SHIPPED = Path(__file__).resolve().parents[2] / "presets" / "model" / "links"
#: Deltas alone: variants of the base for one role, which agents may run on by name.
VARIANTS = SHIPPED.with_name("variants")
MOST_BYTES = 16 * 2**20
HASHED_ELEMENTS = 1 << 28
NO_SOFT = -1


@dataclass(frozen=True)
class Links:
    """The trained soft tokens of weights for separately encoded documents.

    Attributes:
        links: (documents, tokens, hidden) embeddings behind the document of each index; may have no tokens.
        edges: (2, hidden) embeddings of KV-START and KV-END; (0, hidden): none (Block-Attention).
        anchor_tokens: (most, hidden) embeddings that replace a chunk of a document; (0, hidden): none. With
            "packet" the first half precedes each document, and the second follows it.
        compression: of documents in training: "none", "drop", "anchors" or "packet".
        rate: share of a document's tokens that the compression removed.
        chunk_tokens: tokens of a document that share one set of anchors.
    """

    links: Tensor
    edges: Tensor
    anchor_tokens: Tensor
    compression: str = "none"
    rate: float = 0.0
    chunk_tokens: int = 100
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Link tokens behind a document (K)."""
        return int(self.links.shape[1])

    @property
    def documents(self) -> int:
        """Documents that have link tokens of their own."""
        return int(self.links.shape[0])

    def behind(self, document: int) -> Tensor:
        """(tokens, hidden): the link tokens behind a document, by its index from 0. Documents beyond the
        trained ones use the last."""
        return self.links[min(document, self.documents - 1)]

    @property
    def table(self) -> Tensor:
        """(rows, hidden): all soft tokens; see :meth:`row`."""
        return torch.cat([self.edges, self.links.flatten(0, 1), self.anchor_tokens])

    def row(self, kind: str, index: int = 0, token: int = 0) -> int:
        """The row of :attr:`table` of an edge (0 start, 1 end), a document's link token, or an anchor."""
        edges = int(self.edges.shape[0])
        if kind == "edge":
            return index
        if kind == "link":
            return edges + min(index, self.documents - 1) * self.tokens + token
        return edges + self.links.shape[0] * self.tokens + index

    def to(self, device: torch.device, dtype: torch.dtype) -> Links:
        """A copy on a model's device, in its dtype."""
        links, edges, anchors = (x.to(device, dtype) for x in (self.links, self.edges, self.anchor_tokens))
        return replace(self, links=links, edges=edges, anchor_tokens=anchors)


@dataclass(frozen=True)
class Delta:
    """A low-rank change of one projection: ``weight + up @ down``; (out, rank) and (rank, in)."""

    up: Tensor
    down: Tensor


Deltas = dict[str, Delta]


def projections(module: Any) -> dict[str, Any]:
    """The linear layers inside the decoder's layers, by name, which deltas may change."""
    return {
        name: part
        for name, part in module.named_modules()
        if isinstance(part, torch.nn.Linear) and ".layers." in f".{name}"
    }


def base_hash(module: Any) -> str:
    """Identity of weights, independent of the dtype they are loaded in: 16 hex digits of a hash of their bf16
    values (a strided sample for large models)."""
    digest = hashlib.sha256()
    total = sum(p.numel() for p in module.parameters())
    stride = max(1, -(-total // HASHED_ELEMENTS))
    for key, tensor in module.state_dict().items():
        digest.update(key.encode())
        sample = tensor.detach().flatten()[::stride].to("cpu", torch.bfloat16).contiguous()
        digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


def save_links(path: Path, links: Links, deltas: Deltas, base: str) -> Path:
    """Write the file, in fp16.

    Args:
        path: a ``.safetensors`` file.
        links: with facts that can be JSON.
        deltas: by the projection's name; may be empty (link tokens only).
        base: :func:`base_hash` of the weights that they were trained on.

    Raises:
        ModelError: the file would be too large to ship beside a model.
    """
    from safetensors.torch import save_file

    tensors = {"links": links.links, "edges": links.edges, "anchors": links.anchor_tokens}
    for name, delta in deltas.items():
        tensors[f"up.{name}"], tensors[f"down.{name}"] = delta.up, delta.down
    halves = {k: v.detach().to("cpu", torch.float16).contiguous() for k, v in tensors.items()}
    size = sum(2 * v.numel() for v in halves.values())
    if size > MOST_BYTES:
        raise ModelError(
            f"The deltas take {size / 2**20:.1f} MiB; at most {MOST_BYTES >> 20} are shipped beside a model. "
            "Choose a lower rank.",
            field="links.rank",
        )
    facts = {
        "compression": links.compression,
        "rate": links.rate,
        "chunk_tokens": links.chunk_tokens,
        "facts": dict(links.facts),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"format": FORMAT, "base": base, "facts": json.dumps(facts, sort_keys=True)}
    save_file(halves, path, metadata=metadata)
    return path


def load_links(path: Path) -> tuple[Links, Deltas, str]:
    """Read a file: link tokens, deltas and the hash of their base weights.

    Raises:
        ModelError: it is missing, or not of this format.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        if metadata.get("format") != FORMAT:
            raise KeyError("format")
        facts = json.loads(metadata["facts"])
        names = {name.removeprefix("up.") for name in tensors if name.startswith("up.")}
        deltas = {name: Delta(tensors[f"up.{name}"], tensors[f"down.{name}"]) for name in sorted(names)}
        links = Links(tensors["links"], tensors["edges"], tensors["anchors"], **facts)
        return links, deltas, metadata["base"]
    except FileNotFoundError:
        raise ModelError(
            f"There are no link tokens at {path}. Train them: kvlab train-links --out {path}",
            field="model.name",
        ) from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} holds no link tokens of the lab ({type(error).__name__}). Name a file that kvlab "
            "train-links wrote.",
            field="model.name",
        ) from None


def find_links(name: str) -> Path:
    """The file of a shipped name, or a path.

    Raises:
        ModelError: it is neither.
    """
    path = Path(os.path.expanduser(name))
    if path.suffix == ".safetensors":
        return path
    paths = {p.stem: p for folder in (VARIANTS, SHIPPED) for p in sorted(folder.glob("*.safetensors"))}
    if name not in paths:
        listed = ", ".join(sorted(paths)) or "none"
        raise ModelError(
            f"There are no link tokens called {name!r}; shipped: {listed}. Name one of them, or the "
            ".safetensors file that kvlab train-links wrote.",
            field="model.name",
        )
    return paths[name]


@torch.no_grad()
def apply_links(module: Any, path: Path, name: str) -> Links:
    """Add a file's deltas to a freshly loaded module's weights, in place; returns its link tokens.

    Raises:
        ModelError: the file belongs to other weights.
    """
    links, deltas, base = load_links(path)
    weights = base_hash(module)
    if weights != base:
        raise ModelError(
            f"The link tokens {path.name} belong to the weights {base}, but {name} has the weights {weights}."
            f" Train them anew: kvlab train-links --model {name} --out {path.name}",
            field="model.name",
        )
    parts = projections(module)
    for key, delta in deltas.items():
        weight = parts[key].weight
        change = delta.up.to(weight.device) @ delta.down.to(weight.device)
        weight.copy_((weight.float() + change).to(weight.dtype))
    embedding = module.get_input_embeddings().weight
    return links.to(embedding.device, embedding.dtype)


def select_tokens(surprisal: Tensor, rate: float) -> Tensor:
    """The tokens that remain when a share ``rate`` is dropped: those with the largest surprisal, in order.

    Args:
        surprisal: (tokens,) minus log probability of each token; the first one's is infinite.
        rate: 0 keeps all.

    Returns:
        Their indices, ascending; at least one.
    """
    tokens = surprisal.numel()
    keep = max(1, round(tokens * (1 - rate)))
    return surprisal.topk(keep).indices.sort().values


def anchors_of(tokens: int, rate: float, chunk_tokens: int) -> Iterable[tuple[int, int, int]]:
    """The chunks of a document and their anchors: (start, end, number of anchors), at least one anchor."""
    for start in range(0, tokens, chunk_tokens):
        end = min(tokens, start + chunk_tokens)
        yield start, end, max(1, round((end - start) * (1 - rate)))
