"""How familiar the model is with a request: in words, and token by token."""

from __future__ import annotations

import numpy as np

from backend.records.familiarity import USUAL, AgentSurprisal, Outlook
from backend.records.run import Prompt, RunRecord
from viz.base import format as words
from viz.base.figure import Panel
from viz.base.format import escape, listing, number

MOST_TOKENS = 1500  # drawn; of a longer text the beginning
LEVELS = {
    "familiar": "The model knows requests like this.",
    "unsure": "Partly new to the model{words}.",
    "unusual": "Unusual for the model{words}.",
}


def outlook_words(outlook: Outlook) -> str:
    """One or two sentences, as HTML: how usual the request is, and how such requests were answered."""
    listed = listing(f"“{escape(words.clip(word, 24))}”" for word in outlook.words)
    said = LEVELS[outlook.level].format(words=f": {listed}" if listed else "")
    if outlook.wrong is None:
        return (
            f"{said} {words.percent(round(1000 * outlook.surprising), 1000)} of the prompts’ tokens surprise "
            f"it more than {USUAL:g}% of the scenario’s own do. Its weights are not calibrated, so this does "
            "not tell whether its answer is right."
        )
    if outlook.level == "unusual":
        said += " Its answer is probably wrong, with or without reuse."
    like = outlook.like
    if like is None or not like.requests:
        return said
    return f"{said} It answered {like.wrong} of {like.requests} held-out requests like this wrong."


def surprisal_panel(record: RunRecord, agent: int, span: str | None = None) -> Panel:
    """A prompt’s tokens, or those of one segment, by how surprising they are; below them dense’s answer."""
    title = "How familiar is this to the model?"
    known = record.familiarity
    found = next((a for a in known.agents if a.agent == agent), None) if known else None
    if known is None or found is None:
        note = "This run did not measure how surprising its prompts are. Run it again to see it."
        return Panel("surprisal", title, f'<p class="kv-note">{note}</p>')
    prompt, dense = record.prompts[found.prompt], record.outcome(agent, words.dense_label(record))
    place = next((s for s in prompt.spans if s.name == span), None)
    start, end = (place.start, place.end) if place else (0, len(prompt.texts))
    shown = min(end, start + MOST_TOKENS)
    cut = f'<p class="kv-note">The first {MOST_TOKENS} tokens are shown.</p>' if shown < end else ""
    body = _tokens(prompt.texts[start:shown], found.tokens[start:shown], known.usual, start)
    answer = _tokens(dense.texts, found.answer, known.usual, 0)
    return Panel(
        "surprisal",
        title,
        f'<div class="kv-card"><p class="kv-finding">{outlook_words(known.outlook)}</p>'
        f'<p class="kv-how">The darker, the more surprising: full from {number(known.usual, 2)} nats on, '
        f"which {100 - USUAL:g}% of the tokens of familiar requests reach. Mean by segment: "
        f"{_by_segment(record, prompt, found)}.</p>"
        f'<p class="kv-surprisal">{body}</p>{cut}'
        f'<p class="kv-how">Dense’s answer to it, mean {_mean(found.answer)} nats:</p>'
        f'<p class="kv-surprisal">{answer or "(no text)"}</p></div>',
    )


def _tokens(texts: tuple[str, ...], nats: np.ndarray, usual: float, first: int) -> str:
    out = []
    for place, (text, value) in enumerate(zip(texts, nats.tolist(), strict=True), first):
        told = "not predicted" if np.isnan(value) else f"{number(value, 2)} nats"
        depth = 0 if np.isnan(value) else round(100 * min(1.0, max(0.0, value) / usual))
        out.append(f'<span style="--kv-depth:{depth}%" title="token {place}: {told}">{escape(text)}</span>')
    return "".join(out)


def _mean(nats: np.ndarray) -> str:
    known = nats[~np.isnan(nats)]
    return number(float(known.mean()), 2) if len(known) else words.NONE


def _by_segment(record: RunRecord, prompt: Prompt, found: AgentSurprisal) -> str:
    parts = []
    for span in prompt.spans:
        if span.end > span.start:
            slot = span.kind == "placeholder"
            name = words.slot_words(record.request.pipeline, span.name) if slot else span.name
            parts.append(f"{escape(name)} {_mean(found.tokens[span.start : span.end])}")
    return listing(parts)
