"""DroidSpeak: a variant of a model reads on from what another one has read, and computes a few layers of it
again (Liu et al., NSDI 2026, arXiv 2411.02820).

A receiver whose prompt begins as a sender's did takes the sender's keys and values of that beginning at all
layers but a contiguous group of *critical* ones. Those it computes with its own weights, for every token of
the beginning, and goes into the first of them with the hidden states that the sender had there (the *E cache*
of the transition layer). What follows the beginning it reads as usual, over the mixture.

Readings. At hand were the abstract and others' summaries of Sections 3.2, 4.1, 4.2 and 4.3.

* *Which layers* is profiled offline there: all groups on a training set, and of those that lose little the
  smallest. Here the group is two options; ``presets/sweeps/droidspeak.yaml`` compares a few groups.
* What a beginning is and from whom it is taken over: :mod:`backend.methods.beginnings`. One that the same
  weights have read is copied at all layers, which is exact.
* With no layer computed it is the full reuse that the paper compares with, with all of them a full read.

Loading keys and values while layers are computed (Section 4.3) is a matter of time alone, and not here. It
needs the model's layers one by one, which the lab has for the Llama and Qwen families.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from backend.base.clock import Clock
from backend.cache.samples import PromptInContext, SampleLog
from backend.methods.base import Prefilled
from backend.methods.beginnings import BeginningsMethod
from backend.methods.dense import dense_plan
from backend.methods.options import Options, layer_option
from backend.methods.plan import Compute, Plan, Reuse, Step


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


class DroidSpeakMethod(BeginningsMethod):
    """Layers by copy from another variant, but for a few."""

    name = "droidspeak"
    column = 195
    title = "DroidSpeak"
    summary = "Takes over what another variant of the model has read, but for a few layers."
    paper = "DroidSpeak, arXiv 2411.02820"
    Options = DroidSpeakOptions

    def plan(self, context: PromptInContext, log: SampleLog, clock: Clock) -> Plan:
        assert context.rotation is not None, "the prompt was laid out without a model"
        ids, count = context.prompt.ids, len(context.rotation.layers)
        first = min(self.options.first_layer, count - 1)
        until = min(first + self.options.layers, count)
        match = self.longest(context, clock)
        own = match is not None and match[0].weights == context.weights
        if match is None or (not own and until - first == count):
            reason = "All layers are computed again." if match else "Nobody has read this beginning."
            return replace(dense_plan(context.prompt, reason), cut=first)
        (sender, length), end = match, len(ids)
        again = "none" if own or first == until else f"{first} to {until - 1}"
        copied = Reuse(
            sender.kv.slice(0, length),
            reason=f"the same beginning, read by {sender.reader}",
            exact=own,
            hidden=sender.extras["hidden"][:length],
        )
        return Plan(
            (Step(0, length, copied), Step(length, end, Compute("behind the shared beginning"))),
            "partial",
            f"The first {length} of {end} tokens were read by {sender.reader}; "
            f"layers computed again: {again}.",
            cut=first,
            until=first if own else until,
        )

    def extras(self, event: Prefilled) -> Mapping[str, Tensor] | None:
        """(tokens, hidden) states before the transition layer."""
        return None if event.hidden is None else {"hidden": event.hidden}
