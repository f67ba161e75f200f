"""PAL-KV: KVCOMM with the anchors of all agents pooled for the correction; the gate stays KVCOMM's.

Source: judge study, Section 4, Eq. 12 to 14, and C.3. It asks whether an agent's offsets are its own.

* KVCOMM decides, gates, counts and evicts by each agent's own pool; only where it would reuse does the
  correction come from the union of the pools. So the reuse rate of texts equals KVCOMM's by construction.
* The union is over the pools of texts of one kind (:attr:`backend.prompts.template.Placeholder.kind`):
  answers of agents, or declared texts. A request has one pool, so nothing is pooled for it.
* Eq. 12 takes a correction from the union where C.3 speaks of the matched set and a weighted sum: here the
  union is matched and weighed as KVCOMM's options say (``top_k`` is C.3's expanded set).
* Anchors that this very request made are left out: their offsets are known in the lab because dense has read
  the prompt, and nowhere else.
* Template text is corrected by those anchors of the union that stood before it. ``weights_from`` *first
  agent* holds for KVCOMM's own match; each agent weighs the union for itself.
"""

from dataclasses import dataclass

from backend.cache.samples import PromptInContext, Sample, SampleLog
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import KVCommOptions
from backend.methods.kvcomm.pool import AnchorPool
from backend.methods.kvcomm.weights import Match
from backend.prompts.template import Placeholder


@dataclass(frozen=True)
class PalKVOptions(KVCommOptions):
    """KVCOMM's options."""


class PalKVMethod(KVCommMethod):
    """KVCOMM's gate, everybody's anchors."""

    name = "palkv"
    column = 50
    title = "PAL-KV"
    summary = "Reuses exactly where KVCOMM does, and corrects by the anchors of all agents pooled."
    paper = "judge study, Eq. 12 to 14"
    Options = PalKVOptions

    def mixed(self, context: PromptInContext, name: str, match: Match, log: SampleLog) -> Match:
        """The union's anchors, weighed as KVCOMM weighs its own."""
        sample = context.samples[name]
        union = AnchorPool(name, self.pool(self.scope(sample)).rules, self.union(context, sample, log))
        turn = self.turn(context, sample)
        return union.match(sample, context.prompt.agent, None, log, turn) or match

    def union(self, context: PromptInContext, sample: Sample, log: SampleLog) -> dict[int, int]:
        """Anchors of all pools that hold texts of the sample's kind, oldest first, with their uses."""
        kind = Placeholder(sample.placeholder).kind
        numbers = {s.number for s in context.samples.values()}
        anchors = {
            number: uses
            for pool in self._pools.values()
            for number, uses in pool.uses.items()
            if number in log.samples
            and number not in numbers
            and Placeholder(log.samples[number].placeholder).kind == kind
        }
        return dict(sorted(anchors.items()))
