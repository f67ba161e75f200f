"""The card with a run's outcome, and the line of facts below it."""

from collections.abc import Sequence

from markupsafe import Markup

from backend.prompts.template import QUESTION
from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.format import escape
from viz.base.glossary import term
from viz.run.diagnosis import repair, where
from viz.run.verdict import TONE_WORDS, Tone, verdict

QUESTION_1 = "Did reuse change the outcome?"
QUESTION_2 = "Where does it come from?"
QUESTION_3 = "What would repair it?"
POINTS = "Right answers, tokens and times"


def verdict_card(
    sentence_html: str,
    tone: Tone,
    points: Sequence[str],
    where: str,
    repair: str,
    footer: str,
    state: str = "",
    heads: tuple[str, str] = (QUESTION_2, QUESTION_3),
) -> str:
    """Three questions: the outcome, its source and its repair, or those of ``heads``."""
    items = "".join(f"<li>{escape(point)}</li>" for point in points)
    listed = (
        f'<details class="kv-points"><summary>{POINTS}</summary><ul>{items}</ul></details>' if items else ""
    )
    return (
        f'<section class="kv-verdict kv-verdict-{tone}" aria-label="{QUESTION_1}">'
        f'<p class="kv-eyebrow">{QUESTION_1} '
        f'<span class="kv-verdict-tone">{state or TONE_WORDS[tone]}</span></p>'
        f'<p class="kv-verdict-sentence">{sentence_html}</p><div class="kv-answers">'
        f'<div><p class="kv-eyebrow">{heads[0]}</p><p>{where}</p></div>'
        f'<div><p class="kv-eyebrow">{heads[1]}</p><p>{repair}</p></div></div>'
        f'{listed}<p class="kv-factline">{footer}</p></section>'
    )


def run_card(record: RunRecord, button: Markup = Markup()) -> str:  # noqa: B008
    """The card of a run's own verdict; ``button``: behind the sentence on its repair."""
    summary = verdict(record)
    return verdict_card(
        summary.sentence_html,
        summary.tone,
        summary.points,
        where(record),
        repair(record) + button,
        factline(record),
        summary.state,
    )


def factline(record: RunRecord) -> str:
    """What was run, in one line."""
    mode = term("pinned") if record.request.mode == "pinned" else term("free-running")
    values = record.request.values
    question = values.get(QUESTION) or next(iter(values.values()), "")
    question_html = f'<span class="kv-asked">{escape(words.clip(question, 140))}</span>' if question else ""
    created = record.created.replace("T", " ").split("+")[0]
    temperature = record.request.decoding.temperature
    how = (
        "greedy" if temperature == 0 else f"temperature {temperature:g}, seed {record.request.decoding.seed}"
    )
    title = escape(record.request.pipeline.title)
    model = escape(words.clip(record.model.name, 40))
    return f"{question_html}<span>{title} · {mode} · {how} · {model} · {escape(created)} UTC</span>"
