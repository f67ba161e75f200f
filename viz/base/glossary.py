"""One plain sentence for every term on the screen."""

from functools import lru_cache

from markupsafe import Markup, escape

GLOSSARY: dict[str, str] = {
    "KV cache": "What a model remembers of text it has read: one key and one value vector per token "
    "and layer.",
    "key": "The part of a token's memory that decides how much attention later tokens pay to it.",
    "value": "The part of a token's memory that is handed on when a later token pays attention to it.",
    "prefill": "Reading the whole prompt once to fill the KV cache, before the first word can be written.",
    "full read": "The reference (dense): a model reads every token of the prompt itself; nothing is reused.",
    "base KV": "The KV of a piece of text that was read somewhere else, without this prompt's context.",
    "offset": "What this prompt's context adds to the base KV: KV read in context minus base KV.",
    "anchor": "A text seen before whose true offset was kept as an example for similar texts.",
    "anchor pool": "The anchors kept for one placeholder; an old one leaves when the pool is full.",
    "warm up": "Running some requests first, so that the anchor pools are no longer empty.",
    "gate": "The rule that decides whether a text is close enough to the anchors to reuse its KV.",
    "entropy": "How evenly the weights are spread over the anchors: high when no anchor stands out.",
    "entropy threshold": "Above this entropy no anchor is clearly nearest, so the text is computed instead "
    "of reused.",
    "gamma": "Sets the entropy threshold: threshold = gamma times the entropy of perfectly even weights.",
    "weight": "How much one anchor's offset counts in the mix; an agent's weights add up to 1.",
    "placeholder": "A named hole in a template that is filled when the pipeline runs.",
    "prefix segment": "Template text before, between or after placeholders; it is the same in every request.",
    "segment": "A run of neighbouring tokens that is treated as one piece.",
    "tool": "A program that is called with an agent's answer; what it gives is text for later agents.",
    "TTFT": "Time to first token: from the moment the last input text exists until the first new token.",
    "KL": "How different two next-token distributions are, in nats; 0 means the same.",
    "nats": "The unit of KL and entropy with natural logarithms; 1 nat is about 1.44 bits.",
    "rounding noise": "How much the full read differs from itself when it is computed in another order.",
    "lead": "The gap between the best and the second best next token's log-odds (logits); small means a "
    "near tie.",
    "near tie": "Two next tokens almost equally likely, so rounding alone can swap them.",
    "logit": "The score a model gives a token before scores are turned into probabilities.",
    "pinned": "Every method reads the full read's texts, so prompts are equal and errors comparable.",
    "free-running": "Every method reads its own texts, so early differences can grow from agent to agent.",
    "rotation": "How a key carries its position; a copied key is moved by turning it by the distance.",
    "copy and reposition": "Reuse that moves copied keys to their new position and corrects nothing else.",
    "KVCOMM": "Reuse that adds the mixed offsets of similar earlier texts to the copied KV.",
    "computed": "The model read this token itself.",
    "reused": "This token's KV was copied and moved to its position; nothing was added.",
    "corrected": "This token's KV was copied and an offset estimated from anchors was added.",
    "recomputed": "This token's KV was copied first and then computed again at some layers.",
    "exact local": "Copied from this agent's earlier prompts, behind the same text: what a full read "
    "would compute.",
    "exact external": "Copied from elsewhere, behind the same text: what a full read would compute.",
    "semantic": "Copied from another context, corrected or not: near to what a full read computes, "
    "not equal.",
    "rejected": "The gate refused to reuse this placeholder, so its tokens were computed.",
    "fallback": "The method could have reused, but its gate said no, so the prompt was computed densely.",
    "partial": "One part of the prompt was reused and another part computed.",
    "reuse rate": "Here: tokens whose KV was copied, as a share of the prompt's tokens.",
    "first divergence": "The first generated token that differs from the full read's.",
    "JCR": "Judge consistency rate: how often a method selects the candidate that the full read selects in "
    "the same order.",
    "fidelity": "How near a method's predictions are to the full read's on the same prompt.",
    "relative error": "Size of the difference to the full read's vector, divided by that vector's own size.",
    "layer": "One of the model's stacked processing steps; layer 0 reads the token itself.",
    "certificate": "The result of testing, when the model was loaded, whether its keys can be moved.",
    "approximate": "Copied KV that itself came from a cache that was not computed exactly.",
}


TERM = Markup('<abbr class="kv-term" tabindex="0" data-tip="{}">{}</abbr>')


@lru_cache(maxsize=1024)
def term(name: str, shown: str | None = None) -> Markup:
    """A word with its explanation on hover and focus; an unknown term is shown without one."""
    text = shown or name
    return TERM.format(GLOSSARY[name], text) if name in GLOSSARY else escape(text)
