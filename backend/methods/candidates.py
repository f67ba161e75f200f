"""Changes of a run on purpose, as data: which candidates may see one another, and which are computed again.

The judge study's ablation (Section 6.2, Table 2) blocks cross-candidate attention: "candidate i cannot attend
to candidates j < i", with the template text unchanged. Read literally only the candidates' *texts* are kept
apart (scope ``published``): the separators between them, and whatever follows, see everything, so that what
one candidate says still reaches the next through the separator's values. Scope ``strict`` closes that way: a
candidate with its header sees the shared prefix and itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from backend.methods.plan import Compute, Plan, Reuse, Step
from backend.records.prompt import TokenizedPrompt, slots

Scope = Literal["published", "strict"]
SCOPES: tuple[Scope, ...] = ("published", "strict")


@dataclass(frozen=True)
class Block:
    """A candidate in a prompt: tokens ``[start, end)``; its header comes first, its text from ``text`` on."""

    name: str
    start: int
    text: int
    end: int


def blocks(prompt: TokenizedPrompt) -> tuple[Block, ...]:
    """The candidates of a prompt with their headers, in order; they follow one another without a gap.

    A candidate's header is all that stands between it and the one before. The first one's is as much like the
    second one's as can be: the end of the template text before it, from the token that opens the second
    header, nearest to the second header's length. A lone candidate has none.
    """
    spans = slots(prompt.spans)
    if not spans:
        return ()
    starts = [before.end for before in spans[:-1]]
    first = spans[0].start
    if starts:
        first = _first_header(prompt, spans[0].start, starts[0], spans[1].start)
    return tuple(
        Block(span.name, start, span.start, span.end)
        for span, start in zip(spans, (first, *starts), strict=True)
    )


def _first_header(prompt: TokenizedPrompt, text: int, second: int, second_text: int) -> int:
    """Where the header of the first candidate begins, whose text begins at ``text``."""
    before = next((s for s in prompt.spans if s.kind == "prefix" and s.end == text), None)
    length = second_text - second
    if before is None or length == 0:
        return text
    openings = [i for i in range(before.start, text) if prompt.ids[i] == prompt.ids[second]]
    return min(openings or [max(before.start, text - length)], key=lambda i: (abs(text - i - length), i))


def visible(prompt: TokenizedPrompt, scope: Scope) -> Tensor:
    """Which tokens a token may look at, beside being causal, when candidates are kept apart.

    Returns:
        (tokens, tokens) bool: row looks at column.
    """
    owner = torch.full((len(prompt.ids),), -1)
    for number, block in enumerate(blocks(prompt)):
        owner[block.text if scope == "published" else block.start : block.end] = number
    return (owner[:, None] < 0) | (owner[None] < 0) | (owner[:, None] == owner[None])


def dense_steps(prompt: TokenizedPrompt, reason: str, *, shared_start: bool = False) -> tuple[Step, ...]:
    """Steps that forward every token.

    Args:
        prompt: to be partitioned.
        reason: for the record.
        shared_start: give every candidate, its header included, the positions behind the shared prefix; what
            follows the candidates goes on behind the longest. (Then a strictly masked candidate's KV does not
            depend on the order.)
    """
    total, candidates = len(prompt.ids), blocks(prompt)
    if not shared_start or not candidates:
        return (Step(0, total, Compute(reason)),)
    start = candidates[0].start
    behind = start + max(block.end - block.start for block in candidates)
    inside = ((b.start, b.end, start) for b in candidates)
    places = [(0, start, 0), *inside, (candidates[-1].end, total, behind)]
    return tuple(Step(a, b, Compute(reason), position) for a, b, position in places if b > a)


def slots_only(plan: Plan, prompt: TokenizedPrompt) -> Plan:
    """A plan that copies nothing but the candidates' texts; the words around them, and the question, are
    computed, unless their copy is exact.

    So the judge study's methods reuse (Section 3: the candidates' blocks).
    """
    texts = [(span.start, span.end) for span in slots(prompt.spans)]

    def restrict(step: Step) -> Step:
        inside = any(start <= step.start and step.end <= end for start, end in texts)
        if isinstance(step.action, Compute) or step.action.exact or inside:
            return step
        return replace(step, action=Compute("only candidates are copied"))

    steps = tuple(map(restrict, plan.steps))
    copies = any(isinstance(step.action, Reuse) for step in steps)
    return replace(plan, steps=steps, state=plan.state if copies else "dense")


def chosen_tokens(prompt: TokenizedPrompt, chosen: Sequence[int], *, headers: bool) -> tuple[int, ...]:
    """Token indices of some candidates (their places, from 0), with their headers or without."""
    candidates = blocks(prompt)
    return tuple(
        token
        for number, block in enumerate(candidates)
        if number in chosen
        for token in range(block.start if headers else block.text, block.end)
    )
