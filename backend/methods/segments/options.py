"""The options of segment reuse; defaults are the plan's "Ours-base" where it names a value."""

from dataclasses import dataclass

from backend.methods.options import Options, option
from backend.methods.segments.cutting import CutRules
from backend.methods.segments.store import MatchRules

PAPER = "Cross-query segment reuse"
FORMS = ("all layers", "lower layers, states kept", "lower layers, states skipped")
PROBES = ("off", "first use", "always")


@dataclass(frozen=True)
class SegmentsOptions(Options):
    """What can be set of :mod:`backend.methods.segments.method`."""

    tau: float = option(
        0.8, "Alike from", "Jaccard similarity of the shingles from which a stored segment may be grafted.",
        minimum=0.0, maximum=1.0, paper=f"{PAPER}, tau",
    )  # fmt: skip
    halo: int = option(
        8, "Halo (tokens)", "Tokens at the edges of a graft that are read afresh.",
        minimum=0, maximum=512, paper=f"{PAPER}, h",
    )  # fmt: skip
    form: str = option(
        "all layers", "Layers reused",
        "All; or the lower ones, the upper going on from stored states, or (inconsistent, to look at) from "
        "embeddings.",
        choices=FORMS, paper=f"{PAPER}, L_reuse",
    )  # fmt: skip
    layer_share: float = option(
        0.5, "Share of layers reused", "From the bottom up, where not all layers are reused.",
        minimum=0.0, maximum=1.0, paper=f"{PAPER}, L_reuse",
    )  # fmt: skip
    probe: str = option(
        "first use", "Probe the grafts",
        "Compare the predictions at the grafts' ends with a dense pass, and fall back where they differ.",
        choices=PROBES, paper=f"{PAPER}, acceptance tests",
    )  # fmt: skip
    threshold: float = option(
        0.1, "Largest KL at a graft's end", "In nats; a prompt whose mean is above it is read afresh.",
        minimum=0.0, maximum=100.0, paper=f"{PAPER}, H2",
    )  # fmt: skip
    int8: bool = option(
        False, "Keep in 8 bits", "Store keys and values as int8 with one step per channel.",
        paper=f"{PAPER}, Quantization",
    )  # fmt: skip
    context_tokens: int = option(
        64, "Left context (tokens)", "How many tokens before a segment must be alike too.",
        minimum=0, maximum=512, paper=f"{PAPER}, W",
    )  # fmt: skip
    context_tau: float = option(
        0.5, "Left context alike from", "Jaccard similarity of the shingles of the tokens before a segment.",
        minimum=0.0, maximum=1.0, paper=f"{PAPER}, context signature", advanced=True,
    )  # fmt: skip
    minimum_tokens: int = option(
        24, "Shortest segment", "Shorter pieces are not looked up.", minimum=1, maximum=512, advanced=True,
    )  # fmt: skip
    maximum_tokens: int = option(
        256, "Longest segment", "Longer pieces are covered by windows.", minimum=1, maximum=4096,
        advanced=True,
    )  # fmt: skip
    window_tokens: int = option(
        64, "Window (tokens)", "Length of the overlapping windows; 0 makes none.", minimum=0, maximum=1024,
        paper=f"{PAPER}, Segmentation", advanced=True,
    )  # fmt: skip
    shingle: int = option(
        8, "Shingle (tokens)", "Tokens of a shingle.", minimum=1, maximum=64, paper=f"{PAPER}, k",
        advanced=True,
    )  # fmt: skip
    permutations: int = option(
        128, "Permutations", "Numbers in a MinHash signature.", minimum=16, maximum=1024, advanced=True,
        paper=f"{PAPER}, MinHash",
    )  # fmt: skip
    edit_tokens: int = option(
        4, "Lengths may differ by", "Tokens by which a stored segment may be longer or shorter.",
        minimum=0, maximum=64, paper=f"{PAPER}, r", advanced=True,
    )  # fmt: skip
    halo_sides: str = option(
        "both", "Halo at", "Both ends of a graft, or the left one alone.", choices=("both", "left"),
        advanced=True,
    )  # fmt: skip
    budget_mb: int = option(
        64, "Memory (MiB)", "What stored segments may take; the one used longest ago goes first.",
        minimum=1, maximum=65536, paper=f"{PAPER}, Memory", advanced=True,
    )  # fmt: skip

    @property
    def cut_rules(self) -> CutRules:
        """How prompts are cut."""
        return CutRules(self.minimum_tokens, self.maximum_tokens, self.window_tokens)

    @property
    def match_rules(self) -> MatchRules:
        """When segments match."""
        return MatchRules(
            self.shingle, self.permutations, self.tau, self.context_tokens, self.context_tau, self.edit_tokens
        )
