"""Beginnings of prompts that were read before, by the same weights or by a variant of them: what methods that
pass caches between variants have in common.

A beginning is shared where the tokens are the same from the first on, as in a prefix cache. Of several
readers the one that shares most is taken, of equals one on the receiver's weights, then the latest. What was
taken over from other weights is not handed on: its error would be too. An answer is read afresh even where it
stands in the beginning: its decoding leaves keys and values, but nothing of the layers' inputs.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Self

from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, MethodEvent, Prefilled
from backend.methods.plan import Reuse

SHORTEST = 16  # tokens that are worth taking over: the first words of two prompts are often the same
MOST_PROMPTS = 32  # prompts that are remembered, the latest ones


@dataclass(frozen=True)
class EarlierPrompt:
    """An earlier prompt: the weights that read it, its tokens, their KV, and what else the method keeps of
    it."""

    weights: str
    ids: tuple[int, ...]
    kv: KVSegment
    extras: Mapping[str, Tensor]

    def shared(self, ids: tuple[int, ...]) -> int:
        """How many first tokens are the same; the last of ``ids``, whose logits are needed, never counts."""
        pairs = zip(self.ids, ids[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @property
    def reader(self) -> str:
        """The weights that read it, in words."""
        return self.weights or "the lab's own weights"

    @property
    def bytes(self) -> int:
        return self.kv.bytes + sum(tensor.numel() * tensor.element_size() for tensor in self.extras.values())


class BeginningsMethod(Method):
    """Keeps earlier prompts, and finds the longest beginning that a prompt shares with one."""

    not_replayed = "it copies earlier prompts, which have left the log since"
    needs_bases = False
    shares_texts = False
    needs_masks = True
    needs_layers = True

    def __init__(self, options: Any, prompts: tuple[EarlierPrompt, ...] = ()) -> None:
        super().__init__(options)
        self._prompts = prompts  # the latest last

    @abstractmethod
    def extras(self, event: Prefilled) -> Mapping[str, Tensor] | None:
        """What is kept of a prompt beside its KV; None: the prompt is not kept."""

    def usable(self, prompt: EarlierPrompt, context: PromptInContext) -> bool:
        """Can this prompt copy from an earlier one?"""
        return True

    def longest(self, context: PromptInContext, clock: Clock) -> tuple[EarlierPrompt, int] | None:
        """The earlier prompt to copy from, and how many tokens; None below ``SHORTEST`` tokens."""
        with clock.part("match"):
            matches = [
                (prompt.shared(context.prompt.ids), prompt.weights == context.weights, place)
                for place, prompt in enumerate(self._prompts)
                if self.usable(prompt, context)
            ]
        tokens, _, place = max(matches, default=(0, False, 0))
        return None if tokens < SHORTEST else (self._prompts[place], tokens)

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        if not isinstance(event, Prefilled) or (extras := self.extras(event)) is None:
            return
        if any(isinstance(s.action, Reuse) and not s.action.exact for s in event.plan.steps):
            return
        context, ids = event.context, event.context.prompt.ids
        assert context.rotation is not None
        kv = event.cache.segment(0, len(ids), context.rotation, exact=True, context="an earlier prompt")
        others = (r for r in self._prompts if (r.weights, r.ids) != (context.weights, ids))
        self._prompts = (*others, EarlierPrompt(context.weights, ids, kv, extras))[-MOST_PROMPTS:]

    def fork(self) -> Self:
        return type(self)(self.options, self._prompts)

    @property
    def held_bytes(self) -> int:
        return sum(prompt.bytes for prompt in self._prompts)

    def shrink(self, budget_bytes: int) -> None:
        while self._prompts and self.held_bytes > budget_bytes:
            self._prompts = self._prompts[1:]
