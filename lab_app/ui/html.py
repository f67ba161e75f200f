"""Small pieces of HTML of the page's own: top bar, status line, messages. Everything is escaped here."""

import json
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from backend.prompts.presets import Example
from backend.records.events import Progress
from lab_app.ui import text
from viz.base.format import clip, duration, escape, plural, size
from viz.base.theme import shown_name
from viz.run.verdict_card import QUESTION_1


def known_answer(example: Example | None, values: Mapping[str, str]) -> str:
    """The known answer, while the request is still the one of the set."""
    if example is None or example.answer is None:
        return ""
    if not example.matches(values):
        return '<p class="kv-help">Edited: no known answer, so nothing is scored.</p>'
    return f'<p class="kv-help">Known answer: <b class="kv-num">{escape(clip(example.answer, 24))}</b></p>'


def lasting(seconds: float) -> str:
    """A duration in a sentence."""
    words = duration(seconds)
    return words if words.startswith("under") else f"about {words}"


def cost(once: Any, warm: int, before: float) -> str:
    """What a run will cost; ``before``: the seconds that ``warm`` requests for the pools take, 0 if they are
    there already."""
    about = lasting(once.seconds + before)
    first = f" The pools come filled: their {plural(warm, 'request')} were computed before." if warm else ""
    if before:
        first = f" Of this, about {duration(before)} send {plural(warm, 'request')} to the pools first."
    amount = f"{size(once.bytes)}, {once.tokens:,} tokens to read."
    return f'<p class="kv-cost"><b>{about[0].upper()}{about[1:]}</b>, {amount}{first}</p>'


def cannot_run(message: str) -> str:
    """Why Run would do nothing: its field may be out of sight."""
    return f'<p class="kv-cost"><b>Cannot run yet.</b> {escape(clip(message, 220))}</p>'


def error(message: str) -> str:
    """A message beside its field."""
    return f'<p class="kv-problem" role="alert">{escape(message)}</p>'


def progress_text(event: Progress) -> str:
    """A run's progress, with methods named as on the page."""
    if event.method is None:
        return event.text
    before, _, behind = event.text.rpartition(event.method)  # an agent may have the same name
    return before + shown_name(event.method, event.method.partition(" ")[0]) + behind


def progress(event: Progress, kind: str = "running") -> str:
    """The line above the results of a run that goes on."""
    return status(progress_text(event), kind, event.done, event.total)


def status(message: str, kind: str, done: int = 0, total: int = 0, again: bool = False) -> str:
    """The line above the results: ``running``, ``waiting``, ``busy``, ``edited``, ``note`` or ``error``."""
    bar = f'<i class="kv-status-bar" style="--kv-fill:{100 * done / total:.1f}%"></i>' if total else ""
    button = (
        f'<button type="button" class="kv-small-button" data-kv="run">{text.AGAIN}</button>' if again else ""
    )
    role = "alert" if kind == "error" else "status"
    head = f'<div class="kv-status kv-status-{kind}" data-state="{kind}" role="{role}">'
    return f"{head}<p>{escape(message)}</p>{button}{bar}</div>"


def set_button(values: Mapping[str, Any], label: str, run: bool = False) -> Markup:
    """A button that fills boxes, by their ids, as if somebody typed, and presses Run if it is to
    (``assets/app.js``)."""
    act = Markup(" data-run") if run else ""
    return Markup(
        ' <button type="button" class="kv-small-button" data-kv="set" data-boxes="{}"{}>{}</button>'
    ).format(json.dumps(values), act, label)


def empty_card(title: str = text.EMPTY_VERDICT, help_: str = text.EMPTY_HELP) -> str:
    """Before the first run."""
    return (
        f'<section class="kv-verdict kv-verdict-empty" aria-label="{QUESTION_1}">'
        f'<p class="kv-eyebrow">{QUESTION_1}</p><p class="kv-verdict-sentence">'
        f'<strong class="kv-verdict-head">{title}</strong>'
        f'<span class="kv-verdict-rest">{help_}</span></p></section>'
    )


def heading(question: str, extra: str = "") -> str:
    """A question that heads a part of the page."""
    return f'<div class="kv-heading"><h2>{question}</h2>{extra}</div>'


def saved_measurement(facts: str, elem_id: str, kind: str, token: str, notes: str = "", act: str = "") -> str:
    """What was measured, and the link that saves it; ``act`` is HTML of what else can be done with it, and
    ``notes`` HTML that stands below."""
    return (
        f'<div class="kv-measured" data-state="measured"><p class="kv-help">{escape(facts)}</p>{act}'
        f'<a class="kv-button" id="{elem_id}" href="lab/measured/{kind}/{escape(token)}" download>'
        f"{text.MEASURE_SAVE}</a></div>{notes}"
    )
