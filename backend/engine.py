"""The engine: it carries out plans. Token ids in, caches and logits out; no knowledge of any method."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.errors import BudgetError, ModelError, PromptError
from backend.kv import KVCache, KVSegment
from backend.methods.base import Blend, Clock, Plan, Term
from backend.model import LoadedModel
from backend.prompts import called
from backend.records import COMPUTED, CORRECTED, REUSED, Decoding
from backend.tokens import TokenizedPrompt

# Mixing works on pieces of the output this large, so that the piece stays in the processor's cache
# while the anchors' offsets stream through it.
MIX_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Prefill:
    """A prompt in the cache: ``cache`` holds all its tokens, ``logits`` (vocabulary,) follow the last."""

    cache: KVCache
    logits: Tensor
    actions: NDArray[np.uint8]  # (layers, tokens)
    forwarded_tokens: int
    exact: bool  # nothing in it was approximated


@dataclass(frozen=True)
class Decoded:
    """What one row generated. ``logits`` (generated, vocabulary), fp32, when they were asked for.

    ``kv`` is the answer's KV as decoding left it, for its readers: nothing is computed again.
    """

    ids: tuple[int, ...]  # without the stop token
    kv: KVSegment
    stopped: bool
    margins: tuple[float, ...]  # top-2 logit gap at each generated token, the stop token included
    logits: Tensor | None


class Engine:
    """Forwards, assembles and decodes on one model. Counts the tokens it forwards."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.forwarded_tokens = 0

    def clock(self) -> Clock:
        """A clock that waits for the device."""
        if self.model.device.type == "cuda":
            return Clock(torch.cuda.synchronize)
        if self.model.device.type == "mps":
            return Clock(torch.mps.synchronize)
        return Clock()

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        cache: KVCache,
        *,
        padding: Sequence[int] | None = None,
        keep: int = 1,
    ) -> Tensor:
        """Forward tokens on top of a cache.

        Args:
            ids: (rows, new tokens); they take the places after the cache's last.
            cache: extended in place; must have room.
            padding: per row, how many places at the left hold nothing.
            keep: logits of how many last tokens to return; 0 returns those of all.

        Returns:
            Logits (rows, kept, vocabulary), fp32.
        """
        rows, new = ids.shape
        start = cache.length
        cache.reserve(start + new)
        positions = torch.arange(start, start + new, device=ids.device).expand(rows, new)
        mask = None
        if padding is not None and any(padding):
            shift = torch.tensor(padding, device=ids.device)[:, None]
            mask = (torch.arange(start + new, device=ids.device)[None] >= shift).long()
            positions = (positions - shift).clamp_min(0)
        elif new > 1 or start == 0:
            # Without a mask, positions that do not start at 0 would be read as packed sequences.
            mask = torch.ones(rows, start + new, dtype=torch.long, device=ids.device)
        logits = self.model.module(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache.cache,
            use_cache=True,
            logits_to_keep=keep,
        ).logits
        self.forwarded_tokens += rows * new
        return logits.float()  # type: ignore[no-any-return]

    def ids(self, tokens: Sequence[int]) -> Tensor:
        """Token ids as a batch of one row."""
        return torch.tensor([list(tokens)], dtype=torch.long, device=self.model.device)

    def prefill(self, tokens: Sequence[int], pieces: int = 1) -> tuple[KVCache, Tensor]:
        """Plain prefill, in ``pieces`` chunks; returns the cache and the last token's logits."""
        cache = self.model.new_cache(len(tokens))
        size = -(-len(tokens) // pieces)
        logits = torch.empty(0)
        for at in range(0, len(tokens), size):
            logits = self.forward(self.ids(tokens[at : at + size]), cache)[0, -1]
        return cache, logits

    def encode(self, tokens: Sequence[int], lead_in: Sequence[int], context: str) -> KVSegment:
        """The base KV of ``tokens``: computed behind ``lead_in`` only, whose KV is dropped."""
        cache, _ = self.prefill((*lead_in, *tokens))
        return cache.segment(
            len(lead_in), len(lead_in) + len(tokens), self.model.rotation, exact=True, context=context
        )

    def check_room(self, prompt_tokens: int, new_tokens: int, agent: int) -> None:
        """Refuse what does not fit the model's context.

        Raises:
            BudgetError: prompt and answer together are too long.
        """
        limit = self.model.info.context_tokens
        if prompt_tokens + new_tokens > limit:
            raise BudgetError(
                f"Agent {called(agent)}'s prompt has {prompt_tokens:,} tokens; with {new_tokens:,} for its "
                f"answer that is more than the {limit:,} tokens that {self.model.info.name} can read. "
                "Shorten the texts or the template, or allow fewer new tokens.",
                field=f"agents.{agent}.template",
            )

    @torch.inference_mode()
    def execute(self, prompt: TokenizedPrompt, plan: Plan, clock: Clock, spare_tokens: int = 0) -> Prefill:
        """Carry out a plan. The last prompt token is always forwarded: its logits are the first answer.

        Args:
            prompt: the prompt that the plan partitions.
            plan: steps in order.
            clock: gets the parts ``correct``, ``rotate``, ``prefill`` and ``first_token``.
            spare_tokens: room to leave in the cache for decoding.

        Raises:
            ModelError: the plan does not partition the prompt.
            PromptError: the prompt has no token at all.
        """
        total = len(prompt.ids)
        if total == 0:
            raise PromptError(
                f"Agent {called(prompt.agent)}'s prompt is empty once its placeholders are filled, and the "
                "model has no token to begin with. Write some text into its template.",
                field=f"agents.{prompt.agent}.template",
            )
        cache = self.model.new_cache(total + spare_tokens)
        actions = np.zeros((self.model.info.layers, total), dtype=np.uint8)
        before, at, logits = self.forwarded_tokens, 0, None
        for step in plan.steps:
            if step.start != at or step.end > total:
                raise ModelError(f"The plan leaves a gap at token {at} of agent {prompt.agent}'s prompt.")
            at = step.end
            if isinstance(step.action, Blend):
                end = min(step.end, total - 1)
                if end > step.start:
                    self._place(cache, step.start, end, step.action, clock)
                    actions[:, step.start : end] = CORRECTED if step.action.terms else REUSED
            else:
                end = step.end
                # A prompt that is dense throughout is forwarded in one pass, last token included.
                last = end == total
                with clock.part("prefill"):
                    logits = self.forward(self.ids(prompt.ids[step.start : end]), cache)[0, -1]
                actions[:, step.start : end] = COMPUTED
                if last:
                    break
            logits = None
        if at != total:
            raise ModelError(f"The plan stops at token {at} of {total} of agent {prompt.agent}'s prompt.")
        if logits is None:
            with clock.part("first_token"):
                logits = self.forward(self.ids(prompt.ids[-1:]), cache)[0, -1]
            actions[:, -1] = COMPUTED
        exact = all(not isinstance(s.action, Blend) or s.action.exact for s in plan.steps)
        return Prefill(cache, logits, actions, self.forwarded_tokens - before, exact)

    def _place(self, cache: KVCache, start: int, end: int, blend: Blend, clock: Clock) -> None:
        """Write one blended span into the cache: mix position-free, rotate once, straight into place.

        Keys blended ``in_place`` (as shipped) are rotated first and mixed after.
        """
        tokens = end - start
        base, rotation = blend.base, self.model.rotation
        keys, values = base.keys[:, :, :tokens], base.values[:, :, :tokens]
        room_keys, room_values = cache.keys[:, 0, :, start:end], cache.values[:, 0, :, start:end]
        first = start if blend.moved else base.start
        positions = torch.arange(first, first + tokens, device=keys.device)
        with clock.part("correct"):
            room_values.copy_(values)
            if blend.terms:
                at, terms = blend.first_layer, blend.terms
                own = weights = [_cut(t.weight, tokens, at) for t in terms]
                if not blend.in_place:
                    keys = keys.clone()
                    mix(keys[at:], [self._key_offset(t, tokens)[at:] for t in terms], weights)
                if any(t.value_weight is not None for t in terms):
                    own = [
                        _cut(t.weight if t.value_weight is None else t.value_weight, tokens, at)
                        for t in terms
                    ]
                offsets = [t.offset.values[at:, :, :tokens].to(values.device) for t in terms]
                mix(room_values[at:], offsets, own)
        with clock.part("rotate"):
            rotation.rotate(keys, positions, room_keys)
        if blend.terms and blend.in_place:
            with clock.part("correct"):
                mix(room_keys[at:], [self._key_offset(t, tokens, positions)[at:] for t in terms], weights)
        cache.length = end

    def _key_offset(self, term: Term, tokens: int, positions: Tensor | None = None) -> Tensor:
        """A term's key offset, (layers, kv_heads, tokens, head_dim), turned by its shift, and to
        ``positions`` (tokens,) if they are given."""
        keys = term.offset.keys[:, :, :tokens].to(self.model.device)
        if positions is None:
            if not term.shift:
                return keys
            positions = torch.zeros(tokens, dtype=torch.long, device=keys.device)
        return self.model.rotation.rotate(keys, positions + term.shift)

    def decode(self, prefills: Sequence[Prefill], decoding: Decoding, **more: Any) -> list[Decoded]:
        """All of :meth:`decode_steps` at once."""
        steps = self.decode_steps(prefills, decoding, **more)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]

    def decode_steps(
        self,
        prefills: Sequence[Prefill],
        decoding: Decoding,
        *,
        context: str = "",
        keep_logits: bool = False,
    ) -> Generator[list[list[int]], None, list[Decoded]]:
        """Generate from several prefilled prompts as one batch; yields the ids so far after each token.

        Sampling uses the same Gumbel noise for every row, so rows with equal logits take equal
        tokens: a difference between methods is never luck.

        Args:
            prefills: rows; their caches are left untouched.
            decoding: length, temperature, top-p, seed.
            context: in words, whose context the answers' KV comes from.
            keep_logits: keep every step's logits.
        """
        rows = len(prefills)
        limit = decoding.max_new_tokens
        batch, padding = KVCache.batch([p.cache for p in prefills], limit)
        stops = self._stop_ids()
        generator = torch.Generator().manual_seed(decoding.seed)
        logits = torch.stack([p.logits for p in prefills])
        done, ids = [False] * rows, [[] for _ in range(rows)]  # type: ignore[var-annotated]
        margins: list[list[float]] = [[] for _ in range(rows)]
        kept: list[Tensor] = []
        for _ in range(limit):
            top = logits.topk(2, dim=-1)
            gaps = (top.values[:, 0] - top.values[:, 1]).tolist()
            picked = self._pick(logits, top.indices[:, 0], decoding, generator)
            if keep_logits:
                kept.append(logits)
            for row, token in enumerate(picked.tolist()):
                if done[row]:
                    continue
                margins[row].append(gaps[row])
                if token in stops:
                    done[row] = True
                else:
                    ids[row].append(token)
            yield ids
            if all(done):
                break
            # At the length limit this forward gives the last token its KV; its logits are not used.
            with torch.inference_mode():
                logits = self.forward(picked[:, None], batch, padding=padding)[:, -1]
        every = torch.stack(kept) if kept else None  # (steps, rows, vocabulary)
        out = []
        for row, prefill in enumerate(prefills):
            start = prefill.cache.length + padding[row]
            kv = batch.segment(
                start, start + len(ids[row]), self.model.rotation, exact=prefill.exact, context=context,
                row=row, padding=padding[row],
            )  # fmt: skip
            logits_of_row = None if every is None else every[: len(margins[row]), row]
            out.append(Decoded(tuple(ids[row]), kv, done[row], tuple(margins[row]), logits_of_row))
        return out

    def _stop_ids(self) -> set[int]:
        config: Any = getattr(self.model.module, "generation_config", None)
        found = getattr(config, "eos_token_id", None)
        if found is None:
            found = self.model.tokens.tokenizer.eos_token_id
        return set(found) if isinstance(found, list) else {found} if found is not None else set()

    def _pick(self, logits: Tensor, greedy: Tensor, decoding: Decoding, generator: torch.Generator) -> Tensor:
        if decoding.temperature <= 0:
            return greedy
        scaled = logits / decoding.temperature
        if decoding.top_p < 1:
            ordered, order = scaled.softmax(-1).sort(dim=-1, descending=True)
            beyond = ordered.cumsum(-1) - ordered >= decoding.top_p
            scaled = scaled.masked_fill(beyond.scatter(-1, order, beyond), -torch.inf)
        uniform = torch.rand(logits.shape[-1], generator=generator).clamp_min(1e-20).to(logits.device)
        return (scaled - uniform.log().neg().log()).argmax(-1)

    @torch.inference_mode()
    def teacher_force(self, prefills: Sequence[Prefill], ids: Sequence[int]) -> Tensor:
        """Logits along a given answer, (rows, answer + 1, vocabulary): the first row entry is the prefill's.

        The caches are copied, so decoding from them afterwards is not disturbed. Rows must be equally long.
        """
        first = torch.stack([p.logits for p in prefills])[:, None]
        if not ids:
            return first
        batch, padding = KVCache.batch([p.cache for p in prefills], len(ids))
        rest = self.forward(self.ids(ids).expand(len(prefills), -1), batch, padding=padding, keep=0)
        return torch.cat([first, rest], dim=1)


def _cut(weight: Tensor, tokens: int, first_layer: int) -> Tensor:
    """A term's weight for the first tokens of a span and the layers from ``first_layer`` on."""
    if weight.ndim == 1:
        return weight[:tokens]
    return weight[first_layer:] if weight.ndim else weight


def mix(out: Tensor, offsets: Sequence[Tensor], weights: Sequence[Tensor]) -> None:
    """``out += sum weight * offset`` in place, a few layers at a time (see MIX_CHUNK_BYTES).

    Args:
        out: (layers, kv_heads, tokens, head_dim).
        offsets: tensors of that shape.
        weights: each a scalar (), (tokens,), or (layers, kv_heads, 1, head_dim).
    """
    layer_bytes = out[0].numel() * out.element_size()
    size = max(1, MIX_CHUNK_BYTES // max(1, layer_bytes))
    plain = [float(w) if w.ndim == 0 else None for w in weights]
    columns = [
        None if w.ndim == 0 else w.to(out.dtype)[:, None] if w.ndim == 1 else w.to(out.dtype) for w in weights
    ]
    for at in range(0, out.shape[0], size):
        part = out[at : at + size]
        for offset, scalar, column in zip(offsets, plain, columns, strict=True):
            if column is None:
                part.add_(offset[at : at + size], alpha=scalar)
            else:
                part.addcmul_(offset[at : at + size], column[at : at + size] if column.ndim == 4 else column)
