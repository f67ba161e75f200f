"""The engine: it carries out plans. Token ids in, caches and logits out; no knowledge of any method."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.base.clock import Clock
from backend.base.errors import BudgetError, ModelError, PromptError
from backend.cache.kernels.mix_and_rotate import Mixture
from backend.cache.kernels.mix_and_rotate import blend as fused_blend
from backend.cache.kv_cache import KVCache, KVSegment
from backend.cache.observations import PromptInContext
from backend.cache.row_arena import ArenaOffset
from backend.engine.assembled_prompt import AssembledView
from backend.engine.cuda_graph import Recordings, recordable
from backend.engine.decoding import DecodeBatch, Decoded, Together
from backend.engine.layout import Layout, Piece, lay_out
from backend.engine.partial_layers import gather, read_above
from backend.engine.prefetch import brought
from backend.methods.base import Method
from backend.methods.plan import Blend, Dense, Link, Plan, Selection, Step, Term
from backend.model.hooks import masked_at, masks_of
from backend.model.load import LoadedModel
from backend.prompts.pipeline import called
from backend.records.run import COMPUTED, CORRECTED, REUSED, Decoding, TokenizedPrompt

# Mixing works on pieces of the output this large, so that the piece stays in the processor's cache
# while the anchors' offsets stream through it.
MIX_CHUNK_BYTES = 1 << 20
EVENTS: dict[str, Any] = {"cuda": torch.cuda.Event, "mps": torch.mps.event.Event}
PIECE = 512  # tokens forwarded at once behind others on a CPU; of 64 to 1,024, the quickest or near it


@dataclass(frozen=True)
class Prefill:
    """A prompt in the cache: ``cache`` holds all its tokens, soft ones behind them; ``logits`` (vocabulary,)
    follow the last."""

    cache: KVCache
    logits: Tensor
    actions: NDArray[np.uint8]  # (layers, tokens)
    token_layers: int  # every token at every layer that it was forwarded through
    exact: bool  # nothing in it was approximated
    plan: Plan  # as it was carried out: a fallback's own
    selection: Selection | None = None
    hidden: Tensor | None = None  # (tokens, hidden) states before layer ``plan.cut``

    @property
    def forwarded_tokens(self) -> int:
        """Forwarded tokens in whole passes, rounded up."""
        return -(-self.token_layers // len(self.actions))


class Engine:
    """Forwards, assembles and decodes on one model. Counts the tokens it forwards, layer by layer.

    ``one_by_one``: rows are forwarded one after the other and not as one batch, in less memory.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.token_layers = 0
        self.one_by_one = False

    @property
    def forwarded_tokens(self) -> int:
        """Forwarded tokens in whole passes, rounded up."""
        return -(-self.token_layers // self.model.info.layers)

    def clock(self) -> Clock:
        """A clock of the device's own time."""
        event = EVENTS.get(self.model.device.type)
        if event is None:
            return Clock()

        def mark() -> Any:
            made = event(enable_timing=True)
            made.record()
            return made

        def between(first: Any, last: Any) -> float:
            last.synchronize()
            return float(first.elapsed_time(last))

        return Clock(mark, between)

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
            ids: (rows, new tokens), or input embeddings (rows, new tokens, hidden); they take the places
                after the cache's last.
            cache: extended in place; must have room.
            padding: per row, how many places at the left hold nothing.
            positions: (new tokens,) of a single row, where they are not those of the places.
            keep: logits of how many last tokens to return; 0 returns those of all.

        Returns:
            Logits (rows, kept, vocabulary), fp32.
        """
        new = ids.shape[1]
        start = cache.length
        cache.reserve(start + new)
        if positions is None:
            moved = torch.tensor(cache.shifts).to(ids.device, non_blocking=True)[:, None]
            positions = torch.arange(start, start + new, device=ids.device) + moved
        else:
            positions = positions.to(ids.device, non_blocking=True)[None]
        mask = None
        if padding is not None and any(padding):
            shift = torch.tensor(padding).to(ids.device, non_blocking=True)[:, None]
            mask = (torch.arange(start + new, device=ids.device)[None] >= shift).long()
            positions = (positions - shift).clamp_min(0)
        return self._pass(ids, cache, positions, mask, keep)

    @torch.inference_mode()
    def forward_seeing(
        self,
        ids: Tensor,
        cache: KVCache,
        sees: Tensor,
        positions: Tensor,
        *,
        keep: int = 1,
        layers: int | None = None,
    ) -> Tensor:
        """Forward tokens of a single row under a mask of one's own.

        Args:
            ids: as in :meth:`forward`; appended to the cache.
            cache: extended in place.
            sees: (new, places + new) bool.
            positions: (places + new,) RoPE positions.
            keep: as in :meth:`forward`.
            layers: how many are counted, where the caller ends the pass early.

        Returns:
            Logits (1, kept, vocabulary), fp32.
        """
        new = ids.shape[1]
        cache.reserve(cache.length + new)
        masks = masks_of(self.model, sees, positions)
        own = positions[-new:].to(self.model.device)[None]
        return self._pass(ids, cache, own, masks, keep, layers)

    def _pass(
        self, ids: Tensor, cache: KVCache, positions: Tensor, mask: Any, keep: int, layers: int | None = None
    ) -> Tensor:
        count = self.model.info.layers if layers is None else layers
        self.token_layers += ids.shape[0] * ids.shape[1] * count
        given = {"inputs_embeds": ids} if ids.is_floating_point() else {"input_ids": ids}
        logits = self.model.module(
            **given,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=cache.cache,
            use_cache=True,
            logits_to_keep=keep,
        ).logits
        return logits.float()  # type: ignore[no-any-return]

    def ids(self, tokens: Sequence[int]) -> Tensor:
        """Token ids as a batch of one row. Nothing waits for the device."""
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
    def execute(
        self,
        prompt: TokenizedPrompt,
        plan: Plan,
        clock: Clock,
        spare_tokens: int = 0,
        *,
        method: Method | None = None,
        context: PromptInContext | None = None,
    ) -> Prefill:
        """Carry out a plan. The last prompt token is always forwarded: its logits are the first answer.

        Args:
            prompt: the prompt that the plan partitions.
            plan: steps in order.
            clock: gets the parts ``correct``, ``rotate``, ``prefill`` and ``first_token``, with hooks also
                ``select``, ``recompute``, ``accept`` and ``fallback``.
            spare_tokens: room to leave in the cache for decoding.
            method: whose hooks are asked where something was copied; none when absent.
            context: the prompt for the hooks; comes with ``method``.

        Raises:
            ModelError: the plan does not partition the prompt, or a selection does not fit it.
            PromptError: the prompt has no token at all.
        """
        total = len(prompt.ids)
        if total == 0:
            raise PromptError(
                f"Agent {called(prompt.agent)}'s prompt is empty once its placeholders are filled, and the "
                "model has no token to begin with. Write some text into its template.",
                field=f"agents.{prompt.agent}.template",
            )
        layout = lay_out(plan, total, prompt.agent)
        cache = self.model.new_cache(total + len(layout.soft) + spare_tokens)
        actions = np.zeros((self.model.info.layers, total), dtype=np.uint8)
        before = self.token_layers
        copied = np.zeros(total, dtype=bool)
        for step in plan.steps:
            copied[step.start : min(step.end, total - 1)] = isinstance(step.action, Blend)
        if plan.visible_layers is not None and copied.any():
            raise ModelError("A plan that hides tokens at some layers only cannot copy others.")
        view = selection = None
        asked = method if copied.any() else None
        choosing = asked is not None and type(asked).select is not Method.select
        hidden = None
        if plan.cut is None:
            logits = self._assemble(prompt, plan, layout, cache, actions, clock, hold_last=choosing)
        else:
            cache, logits, hidden = self._read_above(prompt, plan, actions, clock, spare_tokens)
        if choosing:
            _prompt_first(cache, layout, held=total - 1)
        if asked is not None and context is not None:
            view = AssembledView(self, context, plan, layout, cache, torch.from_numpy(copied))
        if view is not None and asked is not None and choosing:
            with clock.part("select"):
                selection = asked.select(view, clock)
            if selection is not None:
                with clock.part("recompute"):
                    view.recompute(selection, actions)
                cache = view.cache
        if logits is None:
            with clock.part("first_token"):
                logits = self._last_token(prompt, plan, layout, cache, by_place=not choosing)
            if plan.visible is None:  # once for a prompt's size, and no part of its time
                logits = self._recorded(prompt, layout, cache, logits)
            actions[:, -1] = COMPUTED
        if not choosing:
            _prompt_first(cache, layout, held=total)
        elif len(layout.soft):
            end = total + len(layout.soft)
            cache.reorder(torch.tensor([*range(total - 1), end - 1, *range(total - 1, end - 1)]))
        if not layout.natural:
            cache.positions = torch.cat([layout.positions, layout.soft])
            cache.shifts = [int(layout.positions[-1]) + 1 - cache.length]
        if view is not None and asked is not None and type(asked).accept is not Method.accept:
            view.logits = logits
            with clock.part("accept"):
                refused = asked.accept(view, clock)
            if refused is not None:
                with clock.part("fallback"):
                    cache, logits = view.dense_pass()
                return Prefill(
                    cache, logits, np.full_like(actions, COMPUTED), self.token_layers - before, True,
                    _fallen_back(plan, total, refused), selection,
                )  # fmt: skip
        exact = layout.natural and plan.visible is None
        exact = exact and all(not isinstance(s.action, Blend) or s.action.exact for s in plan.steps)
        return Prefill(cache, logits, actions, self.token_layers - before, exact, plan, selection, hidden)

    def _read_above(
        self, prompt: TokenizedPrompt, plan: Plan, actions: NDArray[np.uint8], clock: Clock, spare_tokens: int
    ) -> tuple[KVCache, Tensor, Tensor]:
        """Carry out a plan with a cut: its cache, the last token's logits, and the states at the cut."""
        assert plan.cut is not None
        last = len(prompt.ids) - 1
        with clock.part("rotate"):
            known = gather(plan, last, self.model)
        with clock.part("prefill"):
            found = read_above(self.model, prompt.ids, known, spare_tokens)
        self.token_layers += found.token_layers
        actions[:] = COMPUTED
        actions[: plan.cut, known.tokens.numpy()] = REUSED
        return found.cache, found.logits, found.hidden

    def _assemble(
        self,
        prompt: TokenizedPrompt,
        plan: Plan,
        layout: Layout,
        cache: KVCache,
        actions: NDArray[np.uint8],
        clock: Clock,
        hold_last: bool,
    ) -> Tensor | None:
        """Copy and forward, and leave all in the order of places; the last token's logits (vocabulary,) if it
        was forwarded with others. ``hold_last``: it waits in any case.

        Where several runs are forwarded, all copies are made first and one pass forwards the rest, under a
        mask: many short passes cost more than one (KVLink, Section 2.3).
        """
        logits = None
        runs = list(layout.runs())
        starts, at = dict[int, int](), 0  # place of each piece's first token
        for piece in layout.pieces:
            starts[id(piece)], at = at, at + piece.tokens
        forwarded = [run for run in runs if not isinstance(run[0].action, Blend)]
        if len(forwarded) > 1:
            runs = [run for run in runs if isinstance(run[0].action, Blend)]
            runs.append([piece for run in forwarded for piece in run])
        held: list[int] = []  # the places that are filled, in the cache's order
        blends = brought(run[0].action for run in runs if isinstance(run[0].action, Blend))
        for run in runs:
            end = run[-1].end
            if isinstance(run[0].action, Blend):
                piece, end, blend = run[0], min(end, layout.total - 1), next(blends)
                if end > piece.start:
                    first = int(layout.positions[piece.start])
                    self._place(cache, len(held), end - piece.start, first, blend, clock)
                    actions[:, piece.start : end] = CORRECTED if blend.terms else REUSED
                    held += range(starts[id(piece)], starts[id(piece)] + end - piece.start)
                continue
            last = end == layout.total
            # A prompt that is dense throughout is forwarded in one pass, last token included.
            end -= last and hold_last
            new = [at for p in run for at in range(starts[id(p)], starts[id(p)] + p.tokens)]
            new = new[: len(new) - (last and hold_last)]
            if not new:
                continue
            # Said here and at the end, not span by span: each layer takes its views anew.
            cache.length = len(held)
            with clock.part("prefill"):
                found = self._forward_run(prompt, plan, layout, cache, run, held, new)
            held += new
            for piece in run:
                actions[:, piece.start : min(piece.end, end)] = COMPUTED
            if last and not hold_last:
                logits = found
        cache.length = len(held)
        if len(forwarded) > 1:
            cache.reorder(torch.tensor(held).argsort())
        return logits

    def _forward_run(
        self,
        prompt: TokenizedPrompt,
        plan: Plan,
        layout: Layout,
        cache: KVCache,
        run: Sequence[Piece],
        held: Sequence[int],
        new: Sequence[int],
    ) -> Tensor:
        """Forward pieces whose tokens take the places ``new``, over those that the cache holds (``held``, in
        its order); the last one's logits (vocabulary,)."""
        given = self.ids([t for p in run for t in prompt.ids[p.start : p.end]])
        if any(isinstance(p.action, Link) for p in run):
            given = torch.cat([self._embedded(prompt, p) for p in run])[None]
        given = given[:, : len(new)]
        first, places = cache.length, torch.tensor([*held, *new])
        positions = layout.by_place[places]
        ordered = bool((places == torch.arange(len(places))).all())
        if plan.visible is None and ordered:
            return self._forward_behind(given, cache, positions[first:])
        sees = places[None] <= places[first:, None]
        if plan.visible is None:
            return self.forward_seeing(given, cache, sees, positions)[0, -1]
        own, others = layout.token_at[places[first:]], layout.token_at[places]
        hidden = ~plan.visible.cpu()[own.clamp_min(0)][:, others.clamp_min(0)]
        hidden &= (own >= 0)[:, None] & (others >= 0)[None]
        return self._forward_hiding(given, cache, sees, hidden, positions, plan)

    def _forward_behind(self, ids: Tensor, cache: KVCache, positions: Tensor) -> Tensor:
        """Forward tokens (1, new) that follow all that the cache holds; the last one's logits (vocabulary,).

        Behind a beginning, attention gets a mask and looks at what it hides as well. On a CPU that is paid in
        full, so there a piece looks no further than its own end; an empty cache needs no mask.
        """
        size = PIECE if cache.length and ids.device.type == "cpu" else ids.shape[1]
        logits = torch.empty(0)
        for at in range(0, ids.shape[1], size):
            logits = self.forward(ids[:, at : at + size], cache, positions=positions[at : at + size])[0, -1]
        return logits

    def _embedded(self, prompt: TokenizedPrompt, piece: Piece) -> Tensor:
        """Input embeddings (tokens, hidden) of prompt tokens or of soft ones."""
        if isinstance(piece.action, Link):
            return piece.action.embeddings.to(self.model.device, self.model.dtype)
        embed = self.model.module.get_input_embeddings()
        rows: Tensor = embed(self.ids(prompt.ids[piece.start : piece.end]))[0]
        return rows

    def _forward_hiding(
        self, ids: Tensor, cache: KVCache, sees: Tensor, hidden: Tensor, positions: Tensor, plan: Plan
    ) -> Tensor:
        """:meth:`forward_seeing` with some places hidden, at all layers or at the plan's."""
        if plan.visible_layers is None:
            return self.forward_seeing(ids, cache, sees & ~hidden, positions)[0, -1]
        with masked_at(self.model, *plan.visible_layers, masks_of(self.model, sees & ~hidden, positions)):
            return self.forward_seeing(ids, cache, sees, positions)[0, -1]

    def _last_token(
        self, prompt: TokenizedPrompt, plan: Plan, layout: Layout, cache: KVCache, by_place: bool
    ) -> Tensor:
        """Forward the last prompt token over all others, which lie ``by_place`` or before the soft ones."""
        ids, position = self.ids(prompt.ids[-1:]), layout.positions[-1:]
        if plan.visible is None:
            return self._first_token(ids, cache, position)
        soft = len(layout.soft)
        dark = ~plan.visible[-1].cpu()
        hidden = torch.cat([dark[:-1], torch.zeros(soft, dtype=torch.bool), dark[-1:]])
        positions = torch.cat([layout.positions[:-1], layout.soft, position])
        if by_place:
            order = torch.cat([layout.places[:-1], layout.soft_places, layout.places[-1:]]).argsort()
            hidden, positions = hidden[order], positions[order]
        sees = torch.ones(1, len(hidden), dtype=torch.bool)
        return self._forward_hiding(ids, cache, sees, hidden[None], positions, plan)

    def _first_token(self, ids: Tensor, cache: KVCache, position: Tensor) -> Tensor:
        """Forward one token over a cache that holds all others, as a recorded graph where there is one."""
        if recordable(self.model, cache):
            cache.reserve(cache.length + 1)
            found = Recordings.on(self.model).run(self.model, ids, cache, position)
            if found is not None:
                self.token_layers += self.model.info.layers
                return found
        return self.forward(ids, cache, positions=position)[0, -1]

    def _recorded(self, prompt: TokenizedPrompt, layout: Layout, cache: KVCache, logits: Tensor) -> Tensor:
        """Record a first token's pass that was made plainly; the logits that hold now."""
        if not recordable(self.model, cache):
            return logits
        ids, position = self.ids(prompt.ids[-1:]), layout.positions[-1:]
        return Recordings.on(self.model).learn(self.model, ids, cache, position, logits)

    def _place(
        self, cache: KVCache, start: int, tokens: int, position: int, blend: Blend, clock: Clock
    ) -> None:
        """Write the first ``tokens`` of a blended span, from a RoPE position on, into the cache from place
        ``start`` on: mix position-free, rotate once, straight into place. The cache is not told.

        Keys blended ``in_place`` (as shipped) are rotated first and mixed after.
        """
        end = start + tokens
        base, rotation = blend.base, self.model.rotation
        keys, values = base.keys[:, :, :tokens], base.values[:, :, :tokens]
        room_keys, room_values = cache.keys[:, 0, :, start:end], cache.values[:, 0, :, start:end]
        first = position if blend.moved else base.start
        positions = torch.arange(first, first + tokens, device=keys.device)
        mixture = _mixture(blend, tokens)
        if mixture is not None or not blend.terms:
            # One pass: what is corrected is rotated with it.
            with clock.part("correct" if blend.terms else "rotate"):
                fused_blend(base, mixture, positions, rotation, room_keys, room_values)
            return
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
        together: Together | None = None,
        wait: bool = False,
    ) -> Generator[list[list[int]], None, list[Decoded]]:
        """Generate from several prefilled prompts as one batch; yields the ids so far after each token. See
        :class:`backend.engine.decoding.DecodeBatch`.

        Sampling uses the same Gumbel noise for every row, so rows with equal logits take equal
        tokens: a difference between methods is never luck. Rows that have stopped leave the batch as soon as
        they are half of it: that copies the others' caches, which costs about one step.

        Args:
            prefills: rows; their caches are left untouched.
            decoding: length, temperature, top-p, seed.
            context: in words, whose context the answers' KV comes from.
            keep_logits: keep every step's logits.
            together: with whom else, at whatever place in their answers they are; with nobody when absent.
            wait: yield once before the first token, so that others may join from there on.
        """
        batch = together.batch(self, prefills) if together and not self.one_by_one else DecodeBatch(self)
        return (
            yield from batch.steps(prefills, decoding, context=context, keep_logits=keep_logits, wait=wait)
        )

    def stop_ids(self) -> set[int]:
        """Tokens that end an answer."""
        config: Any = getattr(self.model.module, "generation_config", None)
        found = getattr(config, "eos_token_id", None)
        if found is None:
            found = self.model.tokens.tokenizer.eos_token_id
        return set(found) if isinstance(found, list) else {found} if found is not None else set()

    @torch.inference_mode()
    def teacher_force(self, prefills: Sequence[Prefill], ids: Sequence[int]) -> Tensor:
        """Logits along a given answer, (rows, answer + 1, vocabulary): the first row entry is the prefill's.

        The caches are copied, so decoding from them afterwards is not disturbed. Rows must be equally long.
        """
        if self.one_by_one and len(prefills) > 1:
            return torch.cat([self.teacher_force([prefill], ids) for prefill in prefills])
        first = torch.stack([p.logits for p in prefills])[:, None]
        if not ids:
            return first
        batch, padding = KVCache.batch([p.cache for p in prefills], len(ids))
        rest = self.forward(self.ids(ids).expand(len(prefills), -1), batch, padding=padding, keep=0)
        return torch.cat([first, rest], dim=1)


def _prompt_first(cache: KVCache, layout: Layout, held: int) -> None:
    """From the order of places to prompt tokens, of which ``held`` are there, before soft ones: what reads a
    cache finds a prompt's tokens at their own indices. To attention the order of the cache means nothing."""
    if len(layout.soft):
        cache.reorder(torch.cat([layout.places[:held], layout.soft_places]))


def _fallen_back(plan: Plan, total: int, reason: str) -> Plan:
    """The dense plan that takes the place of a refused one."""
    return Plan((Step(0, total, Dense(reason, "fallback")),), "fallback", reason, plan.gate)


def _mixture(blend: Blend, tokens: int) -> Mixture | None:
    """A blend's terms for the first ``tokens`` of its span, where one pass can mix them: offsets in one
    arena, one weight per token for keys and values, position-free, at all layers. None for any others, and
    for no terms."""
    if not blend.terms or blend.in_place or blend.first_layer:
        return None
    offsets: list[ArenaOffset] = []
    for term in blend.terms:
        offset = term.offset
        if not isinstance(offset, ArenaOffset) or term.shift or term.value_weight is not None:
            return None
        if term.weight.ndim > 1 or offset.rows.arena is not (offsets or [offset])[0].rows.arena:
            return None
        offsets.append(offset)
    arena = offsets[0].rows.arena
    if arena.buffer.device != blend.base.keys.device:
        return None
    # In the order of their places, in which anchors of one length are evenly spaced.
    ordered = sorted(zip(offsets, blend.terms, strict=True), key=lambda pair: pair[0].first_row)
    if len({t.weight.shape for _, t in ordered}) > 1:
        return None
    every = torch.stack([t.weight for _, t in ordered]).to(arena.buffer.device)
    weights = every[:, :tokens] if every.ndim > 1 else every[:, None].expand(-1, tokens)
    return Mixture(arena, tuple(offset.first_row for offset, _ in ordered), weights)


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
