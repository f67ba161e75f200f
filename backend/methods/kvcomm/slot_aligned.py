"""Slot-aligned reuse: KVCOMM with anchors kept by the place where a text stands, not by who wrote it.

Source: judge study, A.4, Table 4. It asks whether a fixed place in the judge's prompt makes offsets fit when
candidates are shuffled. Where texts do not change places (every pipeline but a shuffled judge) a placeholder
is its own slot and this is KVCOMM.
"""

from dataclasses import dataclass

from backend.cache.samples import Sample
from backend.methods.kvcomm.method import KVCommMethod
from backend.methods.kvcomm.options import KVCommOptions


@dataclass(frozen=True)
class SlotAlignedOptions(KVCommOptions):
    """KVCOMM's options."""


class SlotAlignedMethod(KVCommMethod):
    """KVCOMM with a pool per slot."""

    name = "slotaligned"
    column = 60
    title = "Slot-aligned"
    summary = "KVCOMM with anchors kept by the slot in the prompt, whoever wrote the text that stands there."
    paper = "judge study, A.4, Table 4"
    Options = SlotAlignedOptions

    def scope(self, sample: Sample) -> str:
        """The slot."""
        return sample.placeholder
