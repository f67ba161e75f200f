"""How familiar the model is with a request: in words, and token by token."""

import numpy as np
from markupsafe import Markup

from backend.records.familiarity import USUAL, AgentSurprisal, Outlook
from backend.records.prompt import Prompt
from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.figure import Panel
from viz.base.format import listing, number
from viz.base.html import html, joined, listed

MOST_TOKENS = 1500  # drawn; of a longer text the beginning
LEVELS = {
    "familiar": Markup("The model knows requests like this."),
    "unsure": Markup("Partly new to the model{words}."),
    "unusual": Markup("Unusual for the model{words}."),
}


def outlook_words(outlook: Outlook) -> Markup:
    """How usual the request is, and how such requests were answered, in one or two sentences."""
    rare_words = listing(f"“{words.clip(word, 24)}”" for word in outlook.words)
    sentence = LEVELS[outlook.level].format(words=f": {rare_words}" if rare_words else "")
    if outlook.wrong is None:
        return html(
            "{} {} of the prompts’ tokens surprise it more than {:g}% of the scenario’s own do. Its weights "
            "are not calibrated, so this does not tell whether its answer is right.",
            sentence,
            words.percent(round(1000 * outlook.surprising), 1000),
            USUAL,
        )
    if outlook.level == "unusual":
        sentence += " Its answer is probably wrong, with or without reuse."
    like = outlook.like
    if like is None or not like.requests:
        return sentence
    return html(
        "{} It answered {} of {} held-out requests like this wrong.", sentence, like.wrong, like.requests
    )


def surprisal_panel(record: RunRecord, agent: int, span: str | None = None) -> Panel:
    """A prompt’s tokens, or those of one segment, by how surprising they are; below them dense’s answer."""
    title = "How familiar is this to the model?"
    familiarity = record.familiarity
    surprisal = next((a for a in familiarity.agents if a.agent == agent), None) if familiarity else None
    if familiarity is None or surprisal is None:
        note = "This run did not measure how surprising its prompts are. Run it again to see it."
        return Panel("surprisal", title, html('<p class="kv-note">{}</p>', note))
    prompt, dense = record.prompts[surprisal.prompt], record.outcome(agent, words.dense_label(record))
    place = next((s for s in prompt.spans if s.name == span), None)
    start, end = (place.start, place.end) if place else (0, len(prompt.texts))
    last = min(end, start + MOST_TOKENS)
    cut = html('<p class="kv-note">The first {} tokens are shown.</p>', MOST_TOKENS) if last < end else ""
    body = _tokens(prompt.texts[start:last], surprisal.tokens[start:last], familiarity.usual, start)
    answer = _tokens(dense.texts, surprisal.answer, familiarity.usual, 0)
    return Panel(
        "surprisal",
        title,
        html(
            '<div><p class="kv-finding">{}</p>'
            '<p class="kv-how">The darker, the more surprising: full from {} nats on, which {:g}% of the '
            "tokens of familiar requests reach. Mean by segment: {}.</p>"
            '<p class="kv-surprisal">{}</p>{}'
            '<p class="kv-how">The full read’s answer to it, mean {} nats:</p>'
            '<p class="kv-surprisal">{}</p></div>',
            outlook_words(familiarity.outlook),
            number(familiarity.usual, 2),
            100 - USUAL,
            _by_segment(record, prompt, surprisal),
            body,
            cut,
            _mean(surprisal.answer),
            answer or "(no text)",
        ),
    )


def _tokens(texts: tuple[str, ...], nats: np.ndarray, usual: float, first: int) -> Markup:
    out = []
    for place, (text, value) in enumerate(zip(texts, nats.tolist(), strict=True), first):
        words_of_value = "not predicted" if np.isnan(value) else f"{number(value, 2)} nats"
        depth = 0 if np.isnan(value) else round(100 * min(1.0, max(0.0, value) / usual))
        out.append(
            html(
                '<span style="--kv-depth:{}%" title="token {}: {}">{}</span>',
                depth,
                place,
                words_of_value,
                text,
            )
        )
    return joined(out)


def _mean(nats: np.ndarray) -> str:
    values = nats[~np.isnan(nats)]
    return number(float(values.mean()), 2) if len(values) else words.NONE


def _by_segment(record: RunRecord, prompt: Prompt, surprisal: AgentSurprisal) -> Markup:
    parts = []
    for span in prompt.spans:
        if span.end > span.start:
            name = words.segment_words(record.request.pipeline, span.name)
            parts.append(f"{name} {_mean(surprisal.tokens[span.start : span.end])}")
    return listed(parts)
