"""One agent's tokenised prompt and the segments that it consists of. Frozen and free of torch."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backend.base.serialization import Saved
from backend.base.text import Tax
from backend.prompts.template import Placeholder

SpanKind = Literal["prefix", "placeholder"]


@dataclass(frozen=True)
class Span:
    """A segment's place in a prompt: token indices ``[start, end)``."""

    kind: SpanKind
    name: str  # the placeholder's name, or "prefix 0", "prefix 1", ...
    start: int
    end: int


def slots(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The texts that a prompt puts side by side, in order, such as a judge's candidates: what stands in its
    placeholders, but the question and what tools gave. (The judge study's slot is a candidate's place.)"""
    kinds = ("agent", "declared", "history")
    return tuple(
        s for s in spans if s.kind == "placeholder" and s.end > s.start and Placeholder(s.name).kind in kinds
    )


@dataclass(frozen=True)
class Prompt:
    """One agent's tokenised prompt. ``texts[i]`` is what token ``i`` adds to the text. ``boundary_tokens``:
    how many of them the whole text, tokenised at once, would not have; None in records of earlier
    versions."""

    agent: int
    token_ids: NDArray[np.int64]  # (tokens,)
    texts: tuple[str, ...]
    spans: tuple[Span, ...]
    boundary_tokens: int | None = None


@dataclass(frozen=True)
class Taxed(Saved):
    """A record of a study's prompts. ``boundary_tax``: of dense's, the tokens that their texts, tokenised at
    once, would not have, and all of them; None in records of earlier versions."""

    boundary_tax: Tax | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class TokenizedPrompt:
    """One agent's prompt: token ids and the spans that partition them."""

    agent: int
    ids: tuple[int, ...]
    spans: tuple[Span, ...]

    @property
    def filled_spans(self) -> tuple[Span, ...]:
        """The spans that hold tokens."""
        return tuple(span for span in self.spans if span.end > span.start)

    def span_ids(self, span: Span) -> tuple[int, ...]:
        """The ids of a span."""
        return self.ids[span.start : span.end]
