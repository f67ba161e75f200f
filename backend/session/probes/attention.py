"""Which texts a generated token was read off: attention of single queries over everything before them.

The judge study compares, "during the judge's first-token generation", how much attention goes to the shared
prefix and to each candidate's slot (Fig. 3, 8). The query that generates a token is the one *before* it: the
last prompt token for the first generated one. The same is measured at the selecting token, which names the
candidate.

Only the asked queries' rows are computed, (heads, rows, places) at one layer at a time, and reduced where the
model runs; no map of all tokens by all tokens is ever stored. The rows come from where transformers hands
rotated queries and the cache's keys to its attention, so any family that goes through that interface is
measured by its own projections, norms and rotation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from backend.base.errors import ModelError
from backend.cache.kv_cache import KVCache
from backend.engine.engine import Engine
from backend.engine.prefill import Prefill
from backend.model.hooks import masked_at, masks_of
from backend.prompts.scoring import selection_token
from backend.records.prompt import TokenizedPrompt
from backend.records.run import AttentionProbe

WATCHED = "kvlab_rows"
#: Arguments that change an attention's probabilities: with a sink the others do not sum to one, and so on.
UNREAD = ("s_aux", "softcap", "position_bias")

Take = Callable[[int, Tensor], None]


@dataclass(frozen=True)
class AttentionRows:
    """What queries looked at.

    Attributes:
        mass: (queries, layers, heads, regions), sums to one over the regions when these cover every place.
        places: (queries, layers, places), the mean over heads.
    """

    mass: NDArray[np.float32]
    places: NDArray[np.float32]


@contextmanager
def watching(module: Any, rows: Sequence[int] | None, take: Take) -> Iterator[set[int]]:
    """While this is open, forwards of one prompt hand their attention to ``take(layer, probabilities)``.

    Args:
        module: a causal LM of transformers; forwards go on as before, and afterwards nothing is left on it.
        rows: which of the forwarded tokens are the queries; all when None.
        take: gets probabilities (heads, rows, places), fp32, on the module's device.

    Yields:
        The layers seen so far.

    Raises:
        ModelError: this family's attention cannot be read; the message says why.
    """
    attention_before = getattr(module.config, "_attn_implementation", None)
    layers: set[int] = set()
    sdpa = AttentionInterface()["sdpa"]

    def attend(
        layer: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **more: Any
    ) -> Any:
        unread = [name for name in UNREAD if more.get(name) is not None]
        if unread:
            raise _unreadable(module, f"its attention adds {', '.join(unread)} to the scores")
        queries = slice(None) if rows is None else list(rows)
        scale = more.get("scaling") or query.shape[-1] ** -0.5
        take(layer.layer_idx, probabilities(query[0], key[0], mask, float(scale), queries))
        layers.add(layer.layer_idx)
        return sdpa(layer, query, key, value, mask, **more)

    attention, masks = AttentionInterface(), AttentionMaskInterface()
    # The classes' own tables are shared by every model; what is put there is taken out again below.
    attention.register(WATCHED, attend)
    masks.register(WATCHED, masks["sdpa"])
    try:
        try:
            module.set_attn_implementation(WATCHED)
        except (ValueError, KeyError) as error:
            raise _unreadable(module, f"its attention cannot be exchanged ({error})") from None
        yield layers
    finally:
        if getattr(module.config, "_attn_implementation", None) != attention_before:
            module.set_attn_implementation(attention_before)
        for table in (attention, masks):
            type(table)._global_mapping.pop(WATCHED, None)


def probabilities(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, rows: slice | list[int]
) -> Tensor:
    """Attention of some queries, (heads, rows, places), fp32.

    Args:
        query: (heads, new, head_dim), rotated; the last ``new`` of the places.
        key: (kv_heads, places, head_dim), rotated; several query heads share one (grouped queries).
        mask: (1, 1 or heads, new, places), True or 0 where a query may look; None: causal.
        scale: of the scores.
        rows: which of the new tokens.
    """
    new, places, groups = query.shape[1], key.shape[1], query.shape[0] // key.shape[0]
    queries = query[:, rows].float()
    heads, count, size = queries.shape
    shared = queries.reshape(key.shape[0], groups * count, size)
    scores = (shared @ key.float().transpose(-1, -2) * scale).view(heads, count, places)
    if mask is None:
        last = torch.arange(places - new, places, device=key.device)[rows]
        visible = torch.arange(places, device=key.device) <= last[:, None]
        scores = scores.masked_fill(~visible, -torch.inf)
    elif mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask[0, :, rows, :places], -torch.inf)
    else:
        scores = scores + mask[0, :, rows, :places].float()
    return scores.softmax(-1)


def _unreadable(module: Any, why: str) -> ModelError:
    kind = getattr(module.config, "model_type", type(module).__name__)
    return ModelError(
        f"Attention was not measured: a model of type {kind!r} cannot be watched, since {why}. Families like "
        "Llama, Qwen and Mistral can. Run without attention.",
        field="probe_attention",
    )


@torch.inference_mode()
def attention_rows(
    engine: Engine,
    cache: KVCache,
    ids: Sequence[int],
    rows: Sequence[int],
    member: Tensor,
    *,
    sees: Tensor | None = None,
    positions: Tensor | None = None,
    at_layers: tuple[Tensor, tuple[int, int]] | None = None,
) -> AttentionRows:
    """Forward ``ids`` on top of a cache and keep what some of them look at. The cache is left as it was.

    Args:
        engine: forwards.
        cache: of one row.
        ids: the new tokens.
        rows: which of them are the queries, ascending.
        member: (places, regions), 1 where a place, new ones included, belongs to a region.
        sees: (new, places) bool, which places the new tokens may look at, beside being causal; None: all.
        positions: (new,) their RoPE positions; None: those after the cache's last.
        at_layers: what they may look at instead at some layers, and the first and last of these.

    Raises:
        ModelError: this family's attention cannot be read.
    """
    layers, length = engine.model.info.layers, cache.length
    places = length + len(ids)
    causal = torch.ones(len(ids), places, dtype=torch.bool).tril(length)
    key_positions = cache.positions_of(0, places)
    if positions is not None:
        key_positions[length:] = positions
    layer_masks: AbstractContextManager[None] = nullcontext()
    if at_layers is not None:
        layer_masks = masked_at(
            engine.model, *at_layers[1], masks_of(engine.model, causal & at_layers[0], key_positions)
        )
    membership = member.to(engine.model.device, torch.float32)
    mass: dict[int, Tensor] = {}
    maps: dict[int, Tensor] = {}

    def take(layer: int, weights: Tensor) -> None:
        mass[layer] = weights @ membership
        maps[layer] = weights.mean(dim=0)

    try:
        with layer_masks, watching(engine.model.module, rows, take) as read_layers:
            engine.forward_seeing(
                engine.ids(ids), cache, causal if sees is None else causal & sees, key_positions
            )
    finally:
        cache.length = length
    if read_layers != set(range(layers)):
        raise _unreadable(
            engine.model.module, f"only {len(read_layers)} of its {layers} layers use the common attention"
        )
    return AttentionRows(
        torch.stack([mass[n] for n in range(layers)]).permute(2, 0, 1, 3).cpu().numpy(),
        torch.stack([maps[n] for n in range(layers)]).transpose(0, 1).cpu().numpy(),
    )


def attention_probes(
    engine: Engine,
    prompt: TokenizedPrompt,
    prefill: Prefill,
    answer: Sequence[int],
    *,
    method: str,
    prompt_index: int,
) -> tuple[AttentionProbe, ...]:
    """Where a method's first and selecting tokens were read from, in its own cache along its own answer.

    The last prompt token is forwarded once more, with the answer up to the selecting token behind it: one
    pass of so many tokens. Its first copy is hidden.

    Args:
        engine: of the agent's weights.
        prompt: what was prefilled.
        prefill: under the method.
        answer: the ids that the method generated.
        method: the choice's label.
        prompt_index: index into ``RunRecord.prompts``.

    Raises:
        ModelError: this family's attention cannot be read.
    """
    cache, total, length = prefill.cache, len(prompt.ids), prefill.cache.length
    texts = engine.model.tokens.texts(answer)
    queries: dict[Literal["first", "selecting"], int] = {"first": 0} if answer else {}
    selecting = selection_token(texts)
    if selecting is not None:
        queries["selecting"] = selecting
    rows = sorted(set(queries.values()))
    if not rows:
        return ()
    ids = (*prompt.ids[-1:], *answer[: rows[-1]])
    spans = prompt.filled_spans
    regions = [s.name for s in spans] + ["links"] * (length > total) + ["answer"]
    member = torch.zeros(length + len(ids), len(regions))
    for index, span in enumerate(spans):
        member[span.start : span.end, index] = 1
    member[total:length, len(spans)] = 1
    member[length] = member[total - 1]
    member[length + 1 :, -1] = 1
    sees = torch.ones(len(ids), length + len(ids), dtype=torch.bool)
    sees[:, total - 1] = False
    plan, at_layers = prefill.plan, None
    if plan.visible is not None:
        visible = sees.clone()
        visible[0, :total] &= plan.visible[-1].cpu()
        if plan.visible_layers is None:
            sees = visible
        else:
            at_layers = (visible, plan.visible_layers)
    last = cache.positions_of(total - 1, total)
    positions = torch.cat([last, cache.positions_of(length, length + len(ids) - 1)])
    measured = attention_rows(
        engine, cache, ids, rows, member, sees=sees, positions=positions, at_layers=at_layers
    )
    maps = measured.places[:, :, :total].copy()
    maps[:, :, -1] = measured.places[:, :, length]
    return tuple(
        AttentionProbe(
            prompt.agent, method, prompt_index, query, at, texts[at], tuple(regions),
            measured.mass[rows.index(at)], maps[rows.index(at)],
        )
        for query, at in queries.items()
    )  # fmt: skip
