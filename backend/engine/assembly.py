"""Assembles a plan in a cache: copies spans and forwards the other tokens over them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVCache
from backend.engine.cuda_graph import CudaGraphs, recordable
from backend.engine.layout import Layout, Piece
from backend.engine.placement import place
from backend.engine.prefetch import prefetch
from backend.engine.runner import ModelRunner
from backend.methods.plan import Link, Plan, Reuse
from backend.model.hooks import masked_at, masks_of
from backend.records.prompt import TokenizedPrompt
from backend.records.run import COMPUTED, CORRECTED, REUSED

PIECE = 512  # tokens forwarded at once behind a prefix on a CPU; the fastest of 64 to 1,024, or nearly


@dataclass
class Assembly:
    """Assembles one prompt under one plan.

    Attributes:
        runner: forwards tokens that are not copied.
        prompt: the prompt that the plan partitions.
        plan: steps in order.
        layout: of the plan.
        cache: empty at first; written in place.
        actions: (layers, tokens), written in place: the action on each token.
        clock: gets the parts ``correct``, ``rotate`` and ``prefill``.
    """

    runner: ModelRunner
    prompt: TokenizedPrompt
    plan: Plan
    layout: Layout
    cache: KVCache
    actions: NDArray[np.uint8]
    clock: Clock

    def assemble(self, hold_last: bool) -> Tensor | None:
        """Copy and forward; the cache ends in the order of places. Returns the last token's logits
        (vocabulary,) if it was forwarded with others. ``hold_last``: leave the last token out.

        If several runs are forwarded, all copies come first and one pass forwards the rest under a mask: many
        short passes cost more than one (KVLink, Section 2.3).
        """
        layout, cache, actions = self.layout, self.cache, self.actions
        logits = None
        runs = list(layout.runs())
        starts, at = dict[int, int](), 0  # place of each piece's first token
        for piece in layout.pieces:
            starts[id(piece)], at = at, at + piece.tokens
        passes = [run for run in runs if not isinstance(run[0].action, Reuse)]
        if len(passes) > 1:
            runs = [run for run in runs if isinstance(run[0].action, Reuse)]
            runs.append([piece for run in passes for piece in run])
        order: list[int] = []  # the filled places, in the cache's order
        reuses = prefetch(run[0].action for run in runs if isinstance(run[0].action, Reuse))
        for run in runs:
            end = run[-1].end
            if isinstance(run[0].action, Reuse):
                piece, end, reuse = run[0], min(end, layout.total - 1), next(reuses)
                if end > piece.start:
                    first = int(layout.positions[piece.start])
                    tokens, rotation = end - piece.start, self.runner.model.rotation
                    place(rotation, cache, len(order), tokens, first, reuse, self.clock)
                    actions[:, piece.start : end] = CORRECTED if reuse.terms else REUSED
                    order += range(starts[id(piece)], starts[id(piece)] + tokens)
                continue
            last = end == layout.total
            # A fully dense prompt is forwarded in one pass, including its last token.
            end -= last and hold_last
            fresh = [at for p in run for at in range(starts[id(p)], starts[id(p)] + p.tokens)]
            fresh = fresh[: len(fresh) - (last and hold_last)]
            if not fresh:
                continue
            # Set here and at the end, not span by span: it renews the views of every layer.
            cache.length = len(order)
            self._temper(order)
            with self.clock.part("prefill"):
                last_logits = self._forward_run(run, order, fresh)
            order += fresh
            for piece in run:
                actions[:, piece.start : min(piece.end, end)] = COMPUTED
            if last and not hold_last:
                logits = last_logits
        cache.length = len(order)
        if len(passes) > 1:
            cache.reorder(torch.tensor(order).argsort())
        self._temper(sorted(order))
        return logits

    def _temper(self, order: Sequence[int]) -> None:
        """Set at which of the filled places, in the cache's order, attention is tempered."""
        if (temper := self.plan.temper) is not None:
            places = temper.places[torch.tensor(order, dtype=torch.long)]
            self.cache.tempers = [replace(temper, places=places)]

    def _forward_run(self, run: Sequence[Piece], order: Sequence[int], fresh: Sequence[int]) -> Tensor:
        """Forward pieces whose tokens take the places ``fresh``, over those that the cache holds
        (``order``, in its order); the last one's logits (vocabulary,)."""
        inputs = self.runner.ids([t for p in run for t in self.prompt.ids[p.start : p.end]])
        if any(isinstance(p.action, Link) for p in run):
            inputs = torch.cat([self._embeddings(p) for p in run])[None]
        inputs = inputs[:, : len(fresh)]
        first, places = self.cache.length, torch.tensor([*order, *fresh])
        positions = self.layout.by_place[places]
        in_order = bool((places == torch.arange(len(places))).all())
        if self.plan.visible is None and in_order:
            return self._forward_behind(inputs, positions[first:])
        visible = places[None] <= places[first:, None]
        if self.plan.visible is None:
            return self.runner.forward_seeing(inputs, self.cache, visible, positions)[0, -1]
        query_tokens, place_tokens = self.layout.token_at[places[first:]], self.layout.token_at[places]
        hidden = ~self.plan.visible.cpu()[query_tokens.clamp_min(0)][:, place_tokens.clamp_min(0)]
        hidden &= (query_tokens >= 0)[:, None] & (place_tokens >= 0)[None]
        return self._forward_hiding(inputs, visible, hidden, positions)

    def _forward_behind(self, ids: Tensor, positions: Tensor) -> Tensor:
        """Forward tokens (1, new) behind all that the cache holds; the last one's logits (vocabulary,).

        Behind a prefix attention needs a mask, and a CPU also computes what the mask hides. So tokens are
        forwarded in pieces there; an empty cache needs no mask.
        """
        size = PIECE if self.cache.length and ids.device.type == "cpu" else ids.shape[1]
        logits = torch.empty(0)
        for at in range(0, ids.shape[1], size):
            part = slice(at, at + size)
            logits = self.runner.forward(ids[:, part], self.cache, positions=positions[part])[0, -1]
        return logits

    def _embeddings(self, piece: Piece) -> Tensor:
        """Input embeddings (tokens, hidden) of prompt tokens or of soft ones."""
        if isinstance(piece.action, Link):
            return piece.action.embeddings.to(self.runner.model.device, self.runner.model.dtype)
        embed = self.runner.model.module.get_input_embeddings()
        rows: Tensor = embed(self.runner.ids(self.prompt.ids[piece.start : piece.end]))[0]
        return rows

    def _forward_hiding(self, ids: Tensor, visible: Tensor, hidden: Tensor, positions: Tensor) -> Tensor:
        """:meth:`ModelRunner.forward_seeing` with some places hidden, at all layers or at the plan's."""
        if self.plan.visible_layers is None:
            return self.runner.forward_seeing(ids, self.cache, visible & ~hidden, positions)[0, -1]
        masks = masks_of(self.runner.model, visible & ~hidden, positions)
        with masked_at(self.runner.model, *self.plan.visible_layers, masks):
            return self.runner.forward_seeing(ids, self.cache, visible, positions)[0, -1]

    def last_token(self, by_place: bool) -> Tensor:
        """Forward the last prompt token. The cache holds the others ``by_place``, or before the soft
        tokens."""
        ids, position = self.runner.ids(self.prompt.ids[-1:]), self.layout.positions[-1:]
        if self.plan.visible is None:
            return first_token(self.runner, ids, self.cache, position)
        soft = len(self.layout.soft)
        unseen = ~self.plan.visible[-1].cpu()
        hidden = torch.cat([unseen[:-1], torch.zeros(soft, dtype=torch.bool), unseen[-1:]])
        positions = torch.cat([self.layout.positions[:-1], self.layout.soft, position])
        if by_place:
            places = self.layout.places
            order = torch.cat([places[:-1], self.layout.soft_places, places[-1:]]).argsort()
            hidden, positions = hidden[order], positions[order]
        visible = torch.ones(1, len(hidden), dtype=torch.bool)
        return self._forward_hiding(ids, visible, hidden[None], positions)

    def record(self, logits: Tensor) -> Tensor:
        """Record the plain pass that gave ``logits`` as a CUDA graph, if possible; returns the logits to
        use."""
        if not recordable(self.runner.model, self.cache):
            return logits
        ids, position = self.runner.ids(self.prompt.ids[-1:]), self.layout.positions[-1:]
        return CudaGraphs.on(self.runner.model).learn(self.runner.model, ids, self.cache, position, logits)

    def prompt_first(self, tokens: int) -> None:
        """Reorder the cache from the order of places to prompt tokens (``tokens`` of them), then soft tokens,
        so that readers find prompt tokens at their own indices. Attention does not depend on the order."""
        if len(self.layout.soft):
            self.cache.reorder(torch.cat([self.layout.places[:tokens], self.layout.soft_places]))


def first_token(runner: ModelRunner, ids: Tensor, cache: KVCache, position: Tensor) -> Tensor:
    """Forward one token over a cache that holds all others, by a recorded graph if there is one; its logits
    (vocabulary,)."""
    if recordable(runner.model, cache):
        cache.reserve(cache.length + 1)
        logits = CudaGraphs.on(runner.model).run(runner.model, ids, cache, position)
        if logits is not None:
            runner.token_layers += runner.model.info.layers
            return logits
    return runner.forward(ids, cache, positions=position)[0, -1]
