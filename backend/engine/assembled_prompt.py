"""An assembled prompt: probing it, and recomputing some of its tokens.

Selective recompute appends the chosen tokens' fresh K/V to the cache, at their true positions and under a
mask that hides the stale copies, and then moves them into place. This works on every model. A new choice at
each layer needs :class:`LayerWalk`, which works for the families whose layers the lab can call one by one.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.base.errors import ModelError, OptionError
from backend.cache.kv_cache import KVCache
from backend.cache.rope import rotate_layer
from backend.cache.samples import PromptInContext
from backend.engine.layout import Layout, lay_out
from backend.engine.runner import ModelRunner
from backend.methods.plan import Compute, MaskKind, Plan, Selection, Step
from backend.model.hooks import (
    call_layer,
    masked_at,
    masks_of,
    stop_after,
    watch_attention,
    why_not_layerwise,
)
from backend.records.blame import Part
from backend.records.run import RECOMPUTED


class AssembledPrompt:
    """The :class:`backend.methods.base.PromptView` of one prompt under one plan.

    Args:
        runner: forwards and counts tokens.
        context: the prompt.
        plan: as assembled.
        layout: of the plan.
        cache: prompt tokens first, then soft tokens.
        copied: (total,) bool, tokens that were copied.
    """

    def __init__(
        self,
        runner: ModelRunner,
        context: PromptInContext,
        plan: Plan,
        layout: Layout,
        cache: KVCache,
        copied: Tensor,
    ) -> None:
        self.runner, self.context, self.plan, self.layout = runner, context, plan, layout
        self.cache, self.copied, self.total = cache, copied, layout.total
        self.start: Mapping[str, tuple[int, int]] = {s.name: (s.start, s.end) for s in context.prompt.spans}
        self.logits: Tensor | None = None
        self._fresh: tuple[int, KVCache] | None = None  # layers computed, cache
        self._dense: tuple[KVCache, Tensor] | None = None
        self._walk: LayerWalk | None = None

    @property
    def token_layers(self) -> int:
        return self.runner.token_layers

    @property
    def layerwise(self) -> str:
        return why_not_layerwise(self.runner.model)

    def fresh(self, layer: int) -> tuple[Tensor, Tensor]:
        cache = self.fresh_cache(layer + 1)
        return self._free(cache, layer, torch.arange(self.total))

    def stale(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self._free(self.cache, layer, torch.arange(self._prompt_tokens))
        room = (0, 0, 0, self.total - self._prompt_tokens)
        return torch.nn.functional.pad(keys, room), torch.nn.functional.pad(values, room)

    def dense(self) -> KVCache:
        return self.dense_pass()[0]

    def dense_pass(self) -> tuple[KVCache, Tensor]:
        """A dense prefill's cache and last logits; computed once."""
        if self._dense is None:
            self._dense = self.runner.prefill(self.context.prompt.ids)
        return self._dense

    def attention(self, queries: Sequence[int], layer: int) -> Tensor:
        return self._attention(list(queries), range(layer, layer + 1))[0]

    def attentions(self, queries: Sequence[int]) -> Tensor:
        return self._attention(list(queries), range(self.runner.model.info.layers), together=True)

    @torch.inference_mode()
    def _attention(self, tokens: list[int], layers: range, together: bool = False) -> Tensor:
        with watch_attention(self.runner.model, layers) as recordings:
            self._probe(tokens, layers[-1] + 1, together)
        if len(recordings) != len(layers):
            name = self.runner.model.info.name
            raise ModelError(f"{name} does not tell what its layers {layers[0]} to {layers[-1]} attend to.")
        length = self.cache.length
        weights = torch.cat(recordings).float()  # (layers, heads, queries, places + queries)
        out = weights.new_zeros(*weights.shape[:2], len(tokens), self.total)
        out[..., : self._prompt_tokens] = weights[..., : self._prompt_tokens]
        out[..., tokens] += weights[..., length:]  # the hidden stale copies have weight 0
        return out

    @torch.inference_mode()
    def logits_at(self, tokens: Sequence[int]) -> Tensor:
        logits = self._probe(list(tokens), self.runner.model.info.layers)
        assert logits is not None
        return logits[0]

    def dense_logits_at(self, tokens: Sequence[int]) -> Tensor:
        plan = Plan((Step(0, self.total, Compute("the whole prompt")),), "dense", "")
        layout = lay_out(plan, self.total, self.context.prompt.agent)
        mask = torch.zeros(self.total, dtype=torch.bool)
        return AssembledPrompt(self.runner, self.context, plan, layout, self.dense(), mask).logits_at(tokens)

    def step(self, tokens: Sequence[int], mask: MaskKind = "exact") -> tuple[Tensor, Tensor]:
        if self.layerwise:
            raise OptionError(self.layerwise, field="methods")
        if self._walk is None:
            self._walk = LayerWalk(self)
        layer = self._walk.layer
        self._walk.step(tuple(tokens), mask)
        return self._free(self._walk.cache, layer, torch.tensor(list(tokens), dtype=torch.long))

    # -- for the engine -------------------------------------------------------------------------

    @torch.inference_mode()
    def recompute(self, selection: Selection, actions: NDArray[np.uint8]) -> None:
        """Recompute a selection; writes into the cache and the action map.

        Raises:
            ModelError: unknown tokens or layers, or growing sets.
            OptionError: it is gradual and the model's layers cannot be called one by one.
        """
        layers, last = self.runner.model.info.layers, self.total - 1
        sets = selection.sets
        for tokens in sets:
            if list(tokens) != sorted(set(tokens)) or (tokens and not 0 <= tokens[0] <= tokens[-1] <= last):
                raise ModelError("Chosen tokens must be ascending indices of the prompt.")
        sets = [tuple(t for t in s if t != last) for s in sets]  # the last token is always forwarded
        if not 0 <= selection.first_layer <= layers or not 0 <= selection.fresh_below <= layers:
            raise ModelError(f"A selection begins at a layer that the model, which has {layers}, has not.")
        if selection.gradual:
            self._gradual(sets, selection, actions)
            return
        below = selection.fresh_below
        if below:
            self._place_fresh(below, actions)
        indices = torch.tensor(sets[0], dtype=torch.long)
        if not len(indices):
            return
        runner, length = self.runner, self.cache.length
        visible, positions = self.over_fresh(indices, selection.mask), self.key_positions(indices)
        ids = runner.ids([self.context.prompt.ids[t] for t in sets[0]])
        if selection.mask == "shipped" and selection.mask_layer:
            wide = masks_of(runner.model, visible, positions)
            with masked_at(runner.model, selection.mask_layer, layers, wide):
                runner.forward_seeing(ids, self.cache, self.over_fresh(indices, "exact"), positions)
        else:
            runner.forward_seeing(ids, self.cache, visible, positions)
        at = max(selection.first_layer, below)
        for buffer in (self.cache.keys, self.cache.values):
            buffer[at:, :, :, indices.to(buffer.device)] = buffer[at:, :, :, length : length + len(indices)]
        self.cache.length = length
        actions[at:, indices.numpy()] = RECOMPUTED

    @torch.inference_mode()
    def take_exact(self, parts: Sequence[Part], actions: NDArray[np.uint8]) -> None:
        """Replace parts of the cache by a dense pass's keys and values.

        Raises:
            OptionError: positions differ from a dense pass's, or some tokens are hidden from others.
        """
        if parts and (not self.layout.natural or self.plan.visible is not None or len(self.layout.soft)):
            raise OptionError(
                "This method hides tokens from one another or gives them positions of its own, so no part of "
                "a full read fits into its cache. Repair another method.",
                field="methods",
            )
        for part in parts:
            exact = self.dense()
            at = (slice(part.first, part.last + 1), slice(None), slice(None), slice(part.start, part.end))
            if part.half != "values":
                self.cache.keys[at] = exact.keys[at]
            if part.half != "keys":
                self.cache.values[at] = exact.values[at]
            actions[part.first : part.last + 1, part.start : part.end] = RECOMPUTED

    def _gradual(self, sets: list[tuple[int, ...]], selection: Selection, actions: NDArray[np.uint8]) -> None:
        if self.layerwise:
            raise OptionError(self.layerwise, field="methods")
        first_sets = [tuple(range(self.total - 1))] * selection.first_layer
        layer_sets = [*first_sets, *sets]
        if len(layer_sets) > self.runner.model.info.layers or any(
            not set(b) <= set(a) for a, b in pairwise(layer_sets)
        ):
            raise ModelError("Sets of chosen tokens, one per layer, must shrink and be no more than layers.")
        walk = self._walk
        if walk is None or walk.sets != layer_sets[: walk.layer] or walk.mask != selection.mask:
            walk = LayerWalk(self)
        for tokens in layer_sets[walk.layer :]:
            walk.step(tokens, selection.mask)
        self.cache = walk.cache
        for layer, tokens in enumerate(layer_sets):
            actions[layer, list(tokens)] = RECOMPUTED

    def _place_fresh(self, below: int, actions: NDArray[np.uint8]) -> None:
        fresh, tokens = self.fresh_cache(below), self._prompt_tokens
        for buffer, fresh_buffer in ((self.cache.keys, fresh.keys), (self.cache.values, fresh.values)):
            buffer[:below, :, :, :tokens] = fresh_buffer[:below, :, :, :tokens]
        actions[:below, :tokens] = RECOMPUTED

    # -- inside --------------------------------------------------------------------------------

    @property
    def _prompt_tokens(self) -> int:
        """Prompt tokens in the cache."""
        return self.cache.length - len(self.layout.soft)

    def visibility(self, tokens: Tensor, mask: MaskKind) -> Tensor:
        """Which of the cache's places each token attends to, (n, places) bool: all before it and itself; or,
        as shipped, those in the lower right corner of a causal mask."""
        ranks = torch.cat([self.layout.places[: self._prompt_tokens], self.layout.soft_places])
        if mask == "shipped":
            # The last prompt token is forwarded separately; it is the last row of that mask.
            order = ranks.argsort().argsort()
            return order[None] <= torch.arange(len(tokens))[:, None] + (len(ranks) - len(tokens))
        visible = ranks[None] <= self.layout.places[tokens][:, None]
        if self.plan.visible is not None:
            visible[:, : self._prompt_tokens] &= self.plan.visible.cpu()[tokens, : self._prompt_tokens]
        return visible

    def over_fresh(self, tokens: Tensor, mask: MaskKind) -> Tensor:
        """:meth:`visibility` with these tokens' fresh copies appended, the stale ones hidden: (n, places +
        n)."""
        visible = self.visibility(tokens, mask)
        fresh = visible[:, tokens]
        visible[:, tokens] = False
        return torch.cat([visible, fresh], dim=1)

    def key_positions(self, tokens: Tensor) -> Tensor:
        """RoPE positions of the cache's places and of appended prompt tokens."""
        positions = self.layout.positions
        return torch.cat([positions[: self._prompt_tokens], self.layout.soft, positions[tokens]])

    def _probe(self, tokens: list[int], layers: int, together: bool = False) -> Tensor | None:
        """Forward tokens over the cache and drop their K/V. Each sees its own fresh K/V and the others' in
        the cache; ``together``: it sees the fresh K/V of all these tokens."""
        indices = torch.tensor(tokens, dtype=torch.long)
        length = self.cache.length
        probed = torch.eye(len(tokens), dtype=torch.bool)
        if together:
            probed = self.layout.places[indices][None] <= self.layout.places[indices][:, None]
            if self.plan.visible is not None:
                probed &= self.plan.visible.cpu()[indices][:, indices]
        visible, inside = self.visibility(indices, "exact"), indices < self._prompt_tokens
        visible[:, indices[inside]] &= ~probed[:, inside]
        visible = torch.cat([visible, probed], dim=1)
        ids = self.runner.ids([self.context.prompt.ids[t] for t in tokens])
        positions = self.key_positions(indices)
        try:
            return self.runner.forward_seeing(ids, self.cache, visible, positions, keep=0, layers=layers)
        finally:
            self.cache.length = length

    @torch.inference_mode()
    def fresh_cache(self, layers: int) -> KVCache:
        """A cache whose first ``layers`` layers are computed by a pass over all tokens."""
        if self._dense is not None and self.layout.natural and self.plan.visible is None:
            return self._dense[0]
        if self._fresh is None or self._fresh[0] < layers:
            cache = self.runner.model.new_cache(self.total)
            ids = self.runner.ids(self.context.prompt.ids)
            visible = torch.ones(self.total, self.total, dtype=torch.bool).tril()
            if self.plan.visible is not None:
                visible &= self.plan.visible.cpu()
            with stop_after(self.runner.model, layers - 1):
                self.runner.forward_seeing(ids, cache, visible, self.layout.positions, layers=layers)
            self._fresh = (layers, cache)
        return self._fresh[1]

    def _free(self, cache: KVCache, layer: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Position-free keys, and values, of prompt tokens at a layer of a cache."""
        places, positions = tokens.to(cache.keys.device), self.layout.positions[tokens].to(cache.keys.device)
        rule = self.runner.model.rotation.layers[layer]
        keys = rotate_layer(cache.keys[layer, 0][:, places], -positions, rule)
        return keys, cache.values[layer, 0][:, places].clone()


class LayerWalk:
    """Recomputes a shrinking set of tokens layer by layer, in a copy of the view's cache."""

    def __init__(self, view: AssembledPrompt) -> None:
        self.view, self.cache = view, view.cache.copy()
        self.cache.reserve(self.cache.length + view.total)
        self.sets: list[tuple[int, ...]] = []
        self.mask: MaskKind = "exact"
        self._hidden: Tensor | None = None

    @property
    def layer(self) -> int:
        """The next layer."""
        return len(self.sets)

    @torch.inference_mode()
    def step(self, tokens: tuple[int, ...], mask: MaskKind) -> None:
        """Forward these tokens through the next layer and write their K/V into place."""
        view, runner, layer = self.view, self.view.runner, self.layer
        tokens = tuple(t for t in tokens if t != view.total - 1)
        previous = self.sets[-1] if self.sets else tokens
        if not set(tokens) <= set(previous) or layer >= runner.model.info.layers:
            raise ModelError("A walk goes on with tokens of the layer before, and ends at the last layer.")
        self.mask = mask
        self.sets.append(tokens)
        if not tokens:
            return
        indices = torch.tensor(tokens, dtype=torch.long)
        if self._hidden is None:
            embed = runner.model.module.get_input_embeddings()
            hidden = embed(runner.ids([view.context.prompt.ids[t] for t in tokens]))
        else:
            index = {t: i for i, t in enumerate(previous)}
            hidden = self._hidden[:, [index[t] for t in tokens]]
        length = self.cache.length
        masks = masks_of(runner.model, view.over_fresh(indices, mask), view.key_positions(indices))
        positions = view.layout.positions[indices].to(runner.model.device)
        self._hidden = call_layer(runner.model, layer, hidden, positions, masks, self.cache)
        runner.token_layers += len(tokens)
        for buffer in (self.cache.keys[layer], self.cache.values[layer]):
            buffer[:, :, indices.to(buffer.device)] = buffer[:, :, length : length + len(tokens)]
        self.cache.layers[layer].rewind(length)
