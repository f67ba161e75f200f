"""DroidSpeak: a variant of a model reads on from what another one has read, and computes a few layers of it
again (Liu et al., NSDI 2026, arXiv 2411.02820).

A receiver whose prompt begins as a sender's did takes the sender's keys and values of that beginning at all
layers but a contiguous group of *critical* ones. Those it computes with its own weights, for every token of
the beginning, and goes into the first of them with the hidden states that the sender had there (the *E cache*
of the transition layer). What follows the beginning it reads as usual, over the mixture.

Readings. At hand were the abstract and what others tell of Sections 3.2, 4.1, 4.2 and 4.3.

* *Which layers* is profiled offline there: all groups on a training set, and of those that lose little the
  smallest. Here the group is two options; ``presets/sweeps/droidspeak.yaml`` compares a few groups.
* A beginning is shared where the tokens are the same from the first on, as in a prefix cache. An answer is
  read afresh even where it stands there: its decoding leaves keys and values, but no hidden states.
* A beginning that the same weights have read is copied at all layers, which is exact. Of several readers the
  one that shares most is taken, of equals one on the receiver's weights, then the latest.
* What was taken over is not handed on: its error would be too.
* With no layer computed it is the full reuse that the paper compares with, with all of them a full read.

Loading keys and values while layers are computed (Section 4.3) is a matter of time alone, and not here. It
needs the model's layers one by one, which the lab has for the Llama and Qwen families.
"""

from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Self

from torch import Tensor

from backend.base.clock import Clock
from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Method, MethodEvent, Prefilled
from backend.methods.dense import dense_plan
from backend.methods.options import Options, layer_option
from backend.methods.plan import Compute, Plan, Reuse, Step

SHORTEST = 16  # tokens that are worth taking over: the first words of two prompts are often the same
HELD = 32  # prompts that are remembered, the latest ones


@dataclass(frozen=True)
class DroidSpeakOptions(Options):
    """Options of DroidSpeak."""

    first_layer: int = layer_option(
        6, "First layer computed again", "The transition layer.",
        paper="Section 4.1",
    )  # fmt: skip
    layers: int = layer_option(
        3, "Layers computed again", "None is full reuse.", paper="Section 4.2",
    )  # fmt: skip


@dataclass(frozen=True)
class Read:
    """A prompt that somebody has read: by which weights, its tokens, their KV, and (tokens, hidden) states
    before the transition layer."""

    weights: str
    ids: tuple[int, ...]
    kv: KVSegment
    hidden: Tensor

    def shared(self, ids: tuple[int, ...]) -> int:
        """How many first tokens are the same; the last of ``ids``, whose logits are needed, never counts."""
        pairs = zip(self.ids, ids[:-1], strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    @property
    def bytes(self) -> int:
        return self.kv.bytes + self.hidden.numel() * self.hidden.element_size()


class DroidSpeakMethod(Method):
    """Layers by copy from another variant, but for a few."""

    name = "droidspeak"
    column = 195
    title = "DroidSpeak"
    summary = "Takes over what another variant of the model has read, but for a few layers."
    paper = "DroidSpeak, arXiv 2411.02820"
    not_replayed = "it copies earlier prompts, which have left the log since"
    needs_bases = False
    shares_texts = False
    needs_masks = True
    needs_layers = True
    Options = DroidSpeakOptions

    def __init__(self, options: DroidSpeakOptions, read: tuple[Read, ...] = ()) -> None:
        super().__init__(options)
        self._read = read  # the latest last

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        assert context.rotation is not None, "the prompt was laid out without a model"
        ids, count = context.prompt.ids, len(context.rotation.layers)
        first = min(self.options.first_layer, count - 1)
        until = min(first + self.options.layers, count)
        with clock.part("match"):
            found = [(r.shared(ids), r.weights == context.weights, n) for n, r in enumerate(self._read)]
        length, own, place = max(found, default=(0, False, 0))
        if length < SHORTEST or (not own and until - first == count):
            unread = length < SHORTEST
            why = "Nobody has read this beginning." if unread else "All layers are computed again."
            return replace(dense_plan(context, why), cut=first)
        sender, end = self._read[place], len(ids)
        who = sender.weights or "the lab's own weights"
        again = "none" if own or first == until else f"{first} to {until - 1}"
        copied = Reuse(
            sender.kv.slice(0, length),
            reason=f"the same beginning, read by {who}",
            exact=own,
            hidden=sender.hidden[:length],
        )
        return Plan(
            (Step(0, length, copied), Step(length, end, Compute("behind the shared beginning"))),
            "partial",
            f"The first {length} of {end} tokens were read by {who}; layers computed again: {again}.",
            cut=first,
            until=first if own else until,
        )

    def on_event(self, event: MethodEvent, log: SampleLog) -> None:
        """Remember a prompt that was read without taking anything over from other weights."""
        if not isinstance(event, Prefilled) or event.hidden is None:
            return
        context, ids = event.context, event.context.prompt.ids
        if any(isinstance(s.action, Reuse) and not s.action.exact for s in event.plan.steps):
            return
        assert context.rotation is not None
        kv = event.cache.segment(0, len(ids), context.rotation, exact=True, context="an earlier prompt")
        kept = (r for r in self._read if (r.weights, r.ids) != (context.weights, ids))
        self._read = (*kept, Read(context.weights, ids, kv, event.hidden))[-HELD:]

    def fork(self) -> Self:
        return type(self)(self.options, self._read)

    @property
    def held_bytes(self) -> int:
        return sum(read.bytes for read in self._read)

    def shrink(self, budget_bytes: int) -> None:
        while self._read and self.held_bytes > budget_bytes:
            self._read = self._read[1:]
