"""Forward passes of one model: token ids in, caches and logits out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from backend.base.clock import Clock
from backend.base.errors import BudgetError
from backend.cache.kv_cache import KVCache, KVSegment, as_argument
from backend.model.hooks import masks_of
from backend.model.load import LoadedModel
from backend.model.suitability import stop_ids
from backend.model.tempering import temper_attention
from backend.prompts.template import agent_label

TOGETHER = 1024  # most places of a batch in which texts are encoded
EVENTS: dict[str, Any] = {"cuda": torch.cuda.Event, "mps": torch.mps.event.Event}


class ModelRunner:
    """Runs one model over token ids and caches, and counts forwarded tokens times layers."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.token_layers = 0

    @property
    def forwarded_tokens(self) -> int:
        """Forwarded tokens as whole passes, rounded up."""
        return -(-self.token_layers // self.model.info.layers)

    def clock(self) -> Clock:
        """A clock of the device's own time."""
        event = EVENTS.get(self.model.device.type)
        if event is None:
            return Clock()

        def mark() -> Any:
            stamp = event(enable_timing=True)
            stamp.record()
            return stamp

        def elapsed(first: Any, last: Any) -> float:
            last.synchronize()
            return float(first.elapsed_time(last))

        return Clock(mark, elapsed)

    @torch.inference_mode()
    def forward(
        self,
        ids: Tensor,
        cache: KVCache,
        *,
        padding: Sequence[int] | None = None,
        positions: Tensor | None = None,
        keep: int = 1,
    ) -> Tensor:
        """Forward tokens on top of a cache.

        Args:
            ids: (rows, new tokens), or input embeddings (rows, new tokens, hidden); appended to the cache.
            cache: extended in place.
            padding: per row, the number of empty places at the left.
            positions: (new tokens,) of a single row, if they differ from the places.
            keep: return the logits of so many last tokens; 0 for all.

        Returns:
            Logits (rows, keep, vocabulary), fp32.
        """
        count = ids.shape[1]
        start = cache.length
        cache.reserve(start + count)
        if positions is None:
            shifts = torch.tensor(cache.shifts).to(ids.device, non_blocking=True)[:, None]
            positions = torch.arange(start, start + count, device=ids.device) + shifts
        else:
            positions = positions.to(ids.device, non_blocking=True)[None]
        mask = None
        if padding is not None and any(padding):
            shift = torch.tensor(padding).to(ids.device, non_blocking=True)[:, None]
            mask = (torch.arange(start + count, device=ids.device)[None] >= shift).long()
            positions = (positions - shift).clamp_min(0)
        return self._pass(ids, cache, positions, mask, keep)

    @torch.inference_mode()
    def forward_seeing(
        self,
        ids: Tensor,
        cache: KVCache,
        visible: Tensor,
        positions: Tensor,
        *,
        keep: int = 1,
        layers: int | None = None,
    ) -> Tensor:
        """Forward tokens of a single row under a given mask.

        Args:
            ids: as in :meth:`forward`; appended to the cache.
            cache: extended in place.
            visible: (new, places + new) bool.
            positions: (places + new,) RoPE positions.
            keep: as in :meth:`forward`.
            layers: how many to count, if the caller ends the pass early.

        Returns:
            Logits (1, keep, vocabulary), fp32.
        """
        count = ids.shape[1]
        cache.reserve(cache.length + count)
        masks = masks_of(self.model, visible, positions)
        queries = positions[-count:].to(self.model.device)[None]
        return self._pass(ids, cache, queries, masks, keep, layers)

    def _pass(
        self, ids: Tensor, cache: KVCache, positions: Tensor, mask: Any, keep: int, layers: int | None = None
    ) -> Tensor:
        count = self.model.info.layers if layers is None else layers
        self.token_layers += ids.shape[0] * ids.shape[1] * count
        inputs = {"inputs_embeds": ids} if ids.is_floating_point() else {"input_ids": ids}
        with temper_attention(self.model, cache):
            logits = self.model.module(
                **inputs,
                position_ids=positions,
                attention_mask=mask,
                **as_argument(self.model.module, cache.cache),
                use_cache=True,
                logits_to_keep=keep,
            ).logits
        return logits.float()  # type: ignore[no-any-return]

    def ids(self, tokens: Sequence[int]) -> Tensor:
        """Token ids as a batch of one row; does not wait for the device."""
        return torch.tensor([list(tokens)], dtype=torch.long).to(self.model.device, non_blocking=True)

    def prefill(self, tokens: Sequence[int], pieces: int = 1) -> tuple[KVCache, Tensor]:
        """Plain prefill, in ``pieces`` chunks; returns the cache and the last token's logits."""
        cache = self.model.new_cache(len(tokens))
        size = -(-len(tokens) // pieces)
        logits = torch.empty(0)
        for at in range(0, len(tokens), size):
            logits = self.forward(self.ids(tokens[at : at + size]), cache)[0, -1]
        return cache, logits

    def encode(self, tokens: Sequence[int], lead_in: Sequence[int], context: str) -> KVSegment:
        """The base KV of ``tokens``, computed behind ``lead_in`` alone, whose KV is dropped."""
        cache, _ = self.prefill((*lead_in, *tokens))
        return cache.segment(
            len(lead_in), len(lead_in) + len(tokens), self.model.rotation, exact=True, context=context
        )

    def encode_together(
        self, texts: Sequence[Sequence[int]], lead_in: Sequence[int], context: str
    ) -> list[KVSegment]:
        """:meth:`encode` of several texts behind one lead-in, in batches of at most :data:`TOGETHER` places.
        Rows are padded at the right, which no text token attends to."""
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        segments: dict[int, KVSegment] = {}
        while order:
            longest = len(lead_in) + len(texts[order[-1]])
            count = max(1, TOGETHER // longest)
            batch, order = order[-count:], order[:-count]
            rows = torch.zeros((len(batch), longest), dtype=torch.long)
            for row, index in enumerate(batch):
                ids = (*lead_in, *texts[index])
                rows[row, : len(ids)] = torch.tensor(ids)
            cache = self.model.new_cache(longest, len(batch))
            self.forward(rows.to(self.model.device, non_blocking=True), cache)
            for row, index in enumerate(batch):
                start, end = len(lead_in), len(lead_in) + len(texts[index])
                segments[index] = cache.segment(
                    start, end, self.model.rotation, exact=True, context=context, row=row
                )
        return [segments[index] for index in range(len(texts))]

    def check_room(self, prompt_tokens: int, new_tokens: int, agent: int) -> None:
        """Refuse a prompt and answer that exceed the model's context.

        Raises:
            BudgetError: prompt and answer together are too long.
        """
        limit = self.model.info.context_tokens
        if prompt_tokens + new_tokens > limit:
            raise BudgetError(
                f"Agent {agent_label(agent)}'s prompt has {prompt_tokens:,} tokens; with {new_tokens:,} for "
                f"its answer that is more than the {limit:,} tokens that {self.model.info.name} can read. "
                "Shorten the texts or the template, or allow fewer new tokens.",
                field=f"agents.{agent}.template",
            )

    def stop_ids(self) -> set[int]:
        """Tokens that end an answer."""
        return stop_ids(self.model.module, self.model.tokens.tokenizer)
