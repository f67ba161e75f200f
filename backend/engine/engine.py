"""The engine executes plans: token ids in, caches and logits out. It knows no method."""

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from backend.base.cancel import drain
from backend.base.clock import Clock
from backend.base.errors import ModelError, PromptError
from backend.cache.kv_cache import KVCache
from backend.cache.samples import PromptInContext
from backend.engine.assembled_prompt import AssembledPrompt
from backend.engine.assembly import Assembly
from backend.engine.decoding import DecodeBatch, Decoded
from backend.engine.layout import lay_out
from backend.engine.partial_layers import LayeredPass, gather, known_layers, read_above
from backend.engine.prefill import Prefill
from backend.engine.runner import ModelRunner
from backend.engine.turns import ModelScheduler
from backend.methods.base import Method
from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.model.load import LoadedModel
from backend.prompts.template import agent_label
from backend.records.prompt import TokenizedPrompt
from backend.records.request import Decoding
from backend.records.run import COMPUTED, RECOMPUTED, REUSED


class Engine(ModelRunner):
    """Assembles prompts and decodes on one model.

    ``one_by_one``: forward rows one after the other instead of as one batch, in less memory.
    """

    def __init__(self, model: LoadedModel) -> None:
        super().__init__(model)
        self.one_by_one = False

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
        """Execute a plan. The last prompt token is always forwarded, for the first answer token's logits.

        Args:
            prompt: the prompt that the plan partitions.
            plan: steps in order.
            clock: gets the parts ``correct``, ``rotate``, ``prefill`` and ``first_token``, with hooks also
                ``select``, ``recompute``, ``accept`` and ``fallback``.
            spare_tokens: room to leave in the cache for decoding.
            method: whose hooks are called if something was copied.
            context: the prompt for the hooks; needed with ``method``.

        Raises:
            ModelError: the plan does not partition the prompt, or a selection does not fit it.
            PromptError: the prompt has no token.
        """
        total = len(prompt.ids)
        if total == 0:
            raise PromptError(
                f"Agent {agent_label(prompt.agent)}'s prompt is empty once its placeholders are filled, and "
                "the model has no token to begin with. Write some text into its template.",
                field=f"agents.{prompt.agent}.template",
            )
        layout = lay_out(plan, total, prompt.agent)
        cache = self.model.new_cache(total + len(layout.soft) + spare_tokens)
        actions = np.zeros((self.model.info.layers, total), dtype=np.uint8)
        start = self.token_layers
        copied = np.zeros(total, dtype=bool)
        for step in plan.steps:
            copied[step.start : min(step.end, total - 1)] = isinstance(step.action, Reuse)
        if plan.visible_layers is not None and copied.any():
            raise ModelError("A plan that hides tokens at some layers only cannot copy others.")
        view = selection = None
        hooks = method if copied.any() else None
        selects = hooks is not None and type(hooks).select is not Method.select
        partial = None
        assembly = Assembly(self, prompt, plan, layout, cache, actions, clock)
        if plan.cut is None:
            logits = assembly.assemble(hold_last=selects)
        else:
            partial = self._read_above(prompt, plan, actions, clock, spare_tokens)
            cache, logits = partial.cache, partial.logits
            assembly.cache = cache
        if selects:
            assembly.prompt_first(tokens=total - 1)
        if hooks is not None and context is not None:
            view = AssembledPrompt(self, context, plan, layout, cache, torch.from_numpy(copied))
        if view is not None and hooks is not None and selects:
            with clock.part("select"):
                selection = hooks.select(view, clock)
            if selection is not None:
                with clock.part("recompute"):
                    view.recompute(selection, actions)
                    view.take_exact(selection.exact, actions)
                cache = assembly.cache = view.cache
        if logits is None:
            with clock.part("first_token"):
                logits = assembly.last_token(by_place=not selects)
            if plan.visible is None:  # once per size, and not timed
                logits = assembly.record(logits)
            actions[:, -1] = COMPUTED
        if not selects:
            assembly.prompt_first(tokens=total)
        elif len(layout.soft):
            end = total + len(layout.soft)
            cache.reorder(torch.tensor([*range(total - 1), end - 1, *range(total - 1, end - 1)]))
        if not layout.natural:
            cache.positions = torch.cat([layout.positions, layout.soft])
            cache.shifts = [int(layout.positions[-1]) + 1 - cache.length]
        if view is not None and hooks is not None and type(hooks).accept is not Method.accept:
            view.logits = logits
            with clock.part("accept"):
                refusal = hooks.accept(view, clock)
            if refusal is not None:
                with clock.part("fallback"):
                    cache, logits = view.dense_pass()
                return Prefill(
                    cache, logits, np.full_like(actions, COMPUTED), self.token_layers - start, True,
                    _fallback_plan(plan, total, refusal), selection,
                )  # fmt: skip
        exact = layout.natural and plan.visible is None
        exact = exact and all(not isinstance(s.action, Reuse) or s.action.exact for s in plan.steps)
        hidden, projected = (None, None) if partial is None else (partial.hidden, partial.projected)
        token_layers = self.token_layers - start
        return Prefill(cache, logits, actions, token_layers, exact, plan, selection, hidden, projected)

    def _read_above(
        self, prompt: TokenizedPrompt, plan: Plan, actions: NDArray[np.uint8], clock: Clock, spare_tokens: int
    ) -> LayeredPass:
        """Execute a plan with a cut."""
        assert plan.cut is not None
        last = len(prompt.ids) - 1
        with clock.part("rotate"):
            tokens = gather(plan, last, self.model)
        with clock.part("prefill"):
            partial = read_above(self.model, prompt.ids, tokens, spare_tokens, plan.project)
        self.token_layers += partial.token_layers
        actions[:] = COMPUTED
        copy_layers = np.array(known_layers(plan.cut, plan.until, self.model.info.layers), dtype=np.intp)
        actions[np.ix_(copy_layers, tokens.tokens.numpy())] = REUSED if plan.own is None else RECOMPUTED
        return partial

    def decode(self, prefills: Sequence[Prefill], decoding: Decoding, **options: Any) -> list[Decoded]:
        """All of :meth:`decode_steps` at once."""
        return drain(self.decode_steps(prefills, decoding, **options))

    def decode_steps(
        self,
        prefills: Sequence[Prefill],
        decoding: Decoding,
        *,
        context: str = "",
        keep_logits: bool = False,
        scheduler: ModelScheduler | None = None,
        wait: bool = False,
    ) -> Generator[list[list[int]], None, list[Decoded]]:
        """Generate from several prefilled prompts as one batch; yields all ids so far after each token. See
        :class:`backend.engine.decoding.DecodeBatch`.

        Sampling uses the same Gumbel noise for every row, so rows with equal logits get equal tokens, and
        methods never differ by chance. Ended rows leave the batch once they are half of it: that copies the
        other caches, which costs about one step.

        Args:
            prefills: rows; their caches are not changed.
            decoding: length, temperature, top-p, seed.
            context: in words, the context of the answers' KV.
            keep_logits: keep every step's logits.
            scheduler: decode in one batch with its other callers; without it, alone.
            wait: yield once before the first token, so that others may join.
        """
        batch = scheduler.batch(self, prefills) if scheduler and not self.one_by_one else DecodeBatch(self)
        return (
            yield from batch.steps(prefills, decoding, context=context, keep_logits=keep_logits, wait=wait)
        )

    @torch.inference_mode()
    def teacher_force(self, prefills: Sequence[Prefill], ids: Sequence[int]) -> Tensor:
        """Logits along a given answer, (rows, answer + 1, vocabulary); the first are the prefill's.

        The caches are copied, so one can still decode from them. Rows must be equally long.
        """
        if self.one_by_one and len(prefills) > 1:
            return torch.cat([self.teacher_force([prefill], ids) for prefill in prefills])
        first = torch.stack([p.logits for p in prefills])[:, None]
        if not ids:
            return first
        batch, padding = KVCache.batch([p.cache for p in prefills], len(ids))
        later = self.forward(self.ids(ids).expand(len(prefills), -1), batch, padding=padding, keep=0)
        return torch.cat([first, later], dim=1)


def _fallback_plan(plan: Plan, total: int, reason: str) -> Plan:
    """The dense plan that replaces a refused one."""
    return Plan((Step(0, total, Compute(reason, "fallback")),), "fallback", reason, plan.gate)
