"""Documents changed before they are read: tokens dropped, anchor tokens in a text's place, or wrappers around
it."""

from collections.abc import Sequence
from dataclasses import replace

from backend.cache.kv_cache import KVSegment
from backend.cache.samples import PromptInContext
from backend.model.link_tokens import select_tokens
from backend.records.prompt import TokenizedPrompt


def shortened(
    context: PromptInContext, names: Sequence[str], compression: str, rate: float
) -> PromptInContext:
    """The same prompt with the texts of the placeholders ``names`` compressed.

    "drop" keeps the tokens that the reader's model could not have guessed, reading the text alone: a share
    ``rate`` goes (prompt compression, LLMLingua's idea with the model itself in the place of a small one).
    "anchors" puts anchor tokens into the text's place, at the rate that they were trained at. "packet" puts
    trained tokens before and behind it; their ids here are fillers, for they are copied, never forwarded.
    """
    encoder = context.encoder
    assert encoder is not None, "the prompt was laid out without an encoder"
    ids: list[int] = []
    spans, bases = [], dict[str, KVSegment]()
    for span in context.prompt.spans:
        own = context.prompt.span_ids(span)
        if span.name in names and own:
            if compression == "drop":
                own = tuple(own[i] for i in select_tokens(encoder.surprisal(own), rate).tolist())
            else:
                encode = encoder.packet if compression == "packet" else encoder.anchor_tokens
                bases[span.name] = encode(own)
                own = own[:1] * bases[span.name].tokens
        spans.append(replace(span, start=len(ids), end=len(ids) + len(own)))
        ids += own
    prompt = TokenizedPrompt(context.prompt.agent, tuple(ids), tuple(spans))
    return replace(context, prompt=prompt, method_bases=bases)
