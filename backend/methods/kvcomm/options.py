"""KVCOMM's options and its three profiles."""

from dataclasses import dataclass

from backend.methods.options import Options, Profile, option


@dataclass(frozen=True)
class KVCommOptions(Options):
    """Options of KVCOMM; the defaults are the paper's."""

    rotate: bool = option(
        True, "Move keys to their new position", "Rotate corrected keys into place (alignment step 1).",
        paper="Table 5, K w/ rot",
    )  # fmt: skip
    placeholder_offset: bool = option(
        True, "Correct the shared texts",
        "Add the anchors' offsets to the placeholders' KV (alignment step 2).",
        paper="Eq. 6; Table 5, phi w/ offset",
    )  # fmt: skip
    prefix_offset: bool = option(
        True, "Correct the template text behind them",
        "Add the anchors' offsets to the following prefix segments' KV (alignment step 3).",
        paper="Eq. 7; Table 5, p w/ offset",
    )  # fmt: skip
    gamma: float = option(
        0.3, "Entropy threshold (gamma)",
        "How evenly the anchors may weigh before a text counts as new. 0 shares nothing.",
        minimum=0.0, maximum=1.0, paper="Eq. 5, Table 6",
    )  # fmt: skip
    capacity: int = option(
        20, "Pool size (V)", "How many anchors each placeholder may keep. 0 shares nothing.",
        minimum=0, maximum=256, paper="Section 3.3, Table 6",
    )  # fmt: skip
    approximation: str = option(
        "softmax", "Offset from",
        "All anchors by their L2 distance or cosine similarity, the nearest alone, or all alike (a control).",
        choices=("softmax", "cosine", "nearest", "uniform"), paper="Table A.4, Fig. A.12", advanced=True,
    )  # fmt: skip
    temperature: float = option(
        1.0, "Softmax temperature", "Below 1, near anchors weigh more; above 1, all weigh more alike.",
        minimum=0.01, maximum=100.0, paper="not in the paper", advanced=True,
    )  # fmt: skip
    top_k: int = option(
        0, "Anchors mixed (top k)", "Mix only the heaviest anchors. 0 mixes all.",
        minimum=0, maximum=256, paper="not in the paper", advanced=True,
    )  # fmt: skip
    distance: str = option(
        "token", "Weights per",
        "One weight per anchor and token, one per anchor for the whole text, separate ones for keys and "
        "values as shipped, or one per token for keys and one for values, from the KV of all layers.",
        choices=("token", "sequence", "separate", "token kv"),
        paper="Eq. 6 leaves it open; token kv: Section 6.4.4", advanced=True,
    )  # fmt: skip
    compared: str = option(
        "embedding", "Texts compared by",
        "Their token embeddings (small), or the whole KV of all layers as shipped.",
        choices=("embedding", "kv"), paper="Section 3.1: h at layer 1", advanced=True,
    )  # fmt: skip
    norm: str = option(
        "sum", "Distance of two texts",
        "Sum of their tokens' distances, the norm of all of them as one vector, or the mean per token.",
        choices=("sum", "frobenius", "mean"), paper="Eq. 5 leaves it open", advanced=True,
    )  # fmt: skip
    gate: str = option(
        "entropy", "A text is shared when",
        "Entropy: an anchor stands out. Length: an anchor is long enough. Closeness: an anchor is near as "
        "well. Shipped: as the public code decides.",
        choices=("entropy", "length", "closeness", "shipped"), paper="Eq. 5, Table A.3", advanced=True,
    )  # fmt: skip
    closeness: float = option(
        0.5, "Allowed distance",
        "For the closeness gate: how far the anchors may be, as a share of a token embedding's length.",
        minimum=0.0, maximum=2.0, paper="not in the paper", advanced=True,
    )  # fmt: skip
    eviction: str = option(
        "published", "Full pool drops",
        "The least used of the first quarter, of the first five (as shipped), or of all.",
        choices=("published", "shipped", "least used"), paper="Section 3.3", advanced=True,
    )  # fmt: skip
    frame: str = option(
        "position-free", "Key offsets kept",
        "Position-free, or in the frame of the anchor's own position and added unturned, as shipped.",
        choices=("position-free", "anchor's position"), paper="Eq. 6", advanced=True,
    )  # fmt: skip
    first_layer: bool = option(
        True, "Correct layer 0 too", "As shipped, layer 0 gets no offset; its true offset is zero.",
        paper="Eq. 6", advanced=True,
    )  # fmt: skip
    text_base: str = option(
        "alone", "Outside texts were encoded",
        "Questions, tool results and given texts: alone, or behind the user header and the words that stand "
        "before them on their line of the first template that reads them, as shipped.",
        choices=("alone", "lead-in"), paper="Section 3.3", advanced=True,
    )  # fmt: skip
    keys_at: str = option(
        "position-free", "Keys compared",
        "Position-free, all turned to where the text stands in the agent's prompt, or each where it stood "
        "itself, as shipped. Matters only where keys have weights of their own.",
        choices=("position-free", "agent's position", "own position"), paper="Eq. 6", advanced=True,
    )  # fmt: skip
    weights_from: str = option(
        "each agent", "Mixing weights found by",
        "Each agent for itself, or the first agent that reuses a text, for all later ones too, as shipped.",
        choices=("each agent", "first agent"), paper="Eq. 6", advanced=True,
    )  # fmt: skip
    missing: str = option(
        "dense", "Agent without anchors",
        "Read the prompt afresh, or copy uncorrected as shipped.",
        choices=("dense", "copy"), paper="Algorithm 1", advanced=True,
    )  # fmt: skip
    repeated: str = option(
        "gated", "A text that came before",
        "Is gated like any other, or shared without asking the gate again, as shipped.",
        choices=("gated", "shared"), paper="Algorithm 1", advanced=True,
    )  # fmt: skip
    fresh: str = option(
        "prompt", "A new text is read afresh",
        "With its whole prompt, or alone with the template text behind it, over what the others left in the "
        "cache. A free-running prompt that is copied in part teaches no offset.",
        choices=("prompt", "text"), paper="Algorithm 1; judge study, C.3", advanced=True,
    )  # fmt: skip
    prefix_base: str = option(
        "template", "Template text was encoded",
        "In its template, with stand-ins in the holes, or alone (matters only where it is not corrected); or "
        "with the placeholders' names in the holes, as shipped (matters also where offsets are unturned).",
        choices=("template", "alone", "names"), paper="Fig. 3, initialization", advanced=True,
    )  # fmt: skip
    budget_mib: float = option(
        0.0, "Memory of a pool (MiB)",
        "Most that the anchors of one placeholder may take, offsets included; the eviction rule makes room. "
        "0 sets no limit.",
        minimum=0.0, maximum=65536.0, paper="Section 6.4.5", advanced=True,
    )  # fmt: skip
    codec: str = option(
        "none", "Stored offsets are packed",
        "Not at all; in half precision, mixed as it is, at half the bytes to read; without loss, or rounded "
        "to multiples of a step, which mixing unpacks again.",
        choices=("none", "half", "lossless", "lossy"), paper="Section 6.4.5 proposes it", advanced=True,
    )  # fmt: skip
    codec_step: float = option(
        0.1, "Step of the lossy form", "Each element of an offset errs by at most half of it.",
        minimum=0.001, maximum=10.0, paper="Section 6.4.5: half of the elements are under 0.1", advanced=True,
    )  # fmt: skip
    on_device: int = option(
        0, "Anchors kept on the device",
        "Offsets of all but the most used anchors of a placeholder wait in main memory (copies in half "
        "precision do not). 0 keeps all on the device; where the model runs on a CPU this changes nothing.",
        minimum=0, maximum=256, paper="Section 6.4.4, Table A.6", advanced=True,
    )  # fmt: skip

    @property
    def wants_lead_in(self) -> bool:
        return self.text_base == "lead-in" or self.prefix_base == "names"


PROFILES = {
    "published": Profile(
        "As published", "The paper's equations, with this lab's reading of open points.", {}
    ),
    "shipped": Profile(
        "As shipped",
        "As the public code: whole KV compared, weights of its own, key offsets in the anchor's frame.",
        {
            "compared": "kv",
            "distance": "separate",
            "norm": "frobenius",
            "gate": "shipped",
            "eviction": "shipped",
            "frame": "anchor's position",
            "first_layer": False,
            "text_base": "lead-in",
            "keys_at": "own position",
            "weights_from": "first agent",
            "missing": "copy",
            "repeated": "shared",
            "prefix_base": "names",
        },
    ),
    "corrected": Profile(
        "Corrected",
        "Position-free offsets, distances per token, closeness as well as contrast, exact eviction.",
        {"norm": "mean", "gate": "closeness", "temperature": 0.1, "eviction": "least used"},
    ),
}
