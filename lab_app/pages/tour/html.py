"""HTML of the guided tour. Every text that is not the lab's own is escaped here."""

import re
from collections.abc import Mapping, Sequence

from backend.prompts.template import QUESTION
from backend.records.request import RunRequest
from backend.records.run import RunRecord
from lab_app.pages.pipeline.html import label
from lab_app.pages.tour import text as words
from lab_app.pages.tour.steps import Step
from lab_app.visits.classroom import Room
from viz.base.format import clip, escape, percent, plural
from viz.base.glossary import term
from viz.pages.tour import StepFindings

TERM = re.compile(r"\[\[([^\]|]+)(?:\|([^\]]+))?\]\]")
MOST_VALUE, MOST_VALUES = 600, 1200  # characters of a request's text, and of all its texts


def with_terms(text: str) -> str:
    """Escaped text in which ``[[term]]`` and ``[[term|shown]]`` are explained on hover and focus."""
    out, at = [], 0
    for match in TERM.finditer(text):
        out += [escape(text[at : match.start()]), term(match.group(1), match.group(2))]
        at = match.end()
    return "".join(out) + escape(text[at:])


def steps_nav(steps: Sequence[Step], at: int, completed: Sequence[str], fixed: bool) -> str:
    """All steps by number; ``fixed``: a teacher leads, so that no other step can be chosen."""
    items = []
    for index, step in enumerate(steps):
        current = ' aria-current="step"' if index == at else ""
        mark = f'<span class="kv-unseen-words">{words.DONE}</span>' if step.key in completed else ""
        state = " kv-done" if step.key in completed else ""
        items.append(
            f'<li><button type="button" class="kv-tour-dot{state}" data-kv="tour-step" '
            f'data-step="{index}"{current}'
            f'{" disabled" if fixed and index != at else ""} title="{escape(step.title)}">'
            f"<b>{index + 1}</b><span>{escape(step.short)}</span>{mark}</button></li>"
        )
    return f'<nav aria-label="{words.STEPS}"><ol class="kv-tour-steps">{"".join(items)}</ol></nav>'


def lesson(step: Step, at: int, count: int, request: RunRequest | None) -> str:
    """A step's text, and what is going to be run."""
    paragraphs = "".join(f"<p>{with_terms(p)}</p>" for p in step.text)
    return (
        f'<article class="kv-tour-step" data-step="{at}">'
        f'<p class="kv-eyebrow">{words.STEP.format(step=at + 1, count=count)}</p>'
        f'<h2 tabindex="-1">{escape(step.title)}</h2>{paragraphs}'
        f'<div class="kv-tour-asked"><p class="kv-eyebrow">{words.ASKED}</p><p>{with_terms(step.asked)}</p>'
        f"{values(request) if request is not None else ''}</div></article>"
    )


def values(request: RunRequest) -> str:
    """The texts of the request, so that a prediction can be made from them."""
    names = sorted(request.values, key=lambda name: (name == QUESTION, _natural(name)))
    most = min(MOST_VALUE, MOST_VALUES // max(1, len(names)))
    rows = "".join(
        f"<div><dt>{escape(label(name))}</dt><dd>{escape(clip(request.values[name], most))}</dd></div>"
        for name in names
    )
    return f'<dl class="kv-tour-values">{rows}</dl>'


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def reveal(
    step: Step, outcome: StepFindings, guess: str | None, record: RunRecord, live: bool, notes: Sequence[str]
) -> str:
    """The run's own sentences beside the prediction."""
    if outcome.choice is None:
        tone, head = "unclear", words.UNDECIDED
    elif guess is None:
        tone, head = "unclear", words.CAME_OUT.format(choice=escape(step.choices[outcome.choice]))
    elif guess == outcome.choice:
        tone, head = "same", words.RIGHT.format(choice=escape(step.choices[guess]))
    else:
        tone = "changed"
        head = words.WRONG.format(
            chosen=escape(step.choices[guess]), choice=escape(step.choices[outcome.choice])
        )
    effect = "" if outcome.shows else f'<p class="kv-tour-honest">{words.NO_EFFECT}</p>'
    sentences = "".join(f"<p>{sentence}</p>" for sentence in outcome.sentences)
    source = words.LIVE if live else words.RECORDED
    facts = " · ".join([escape(clip(record.model.name, 40)), *map(escape, notes)])
    return (
        f'<section class="kv-verdict kv-verdict-{tone} kv-tour-reveal" '
        f'aria-label="{words.WHAT_CAME_OUT}" data-choice="{escape(outcome.choice or "")}">'
        f'<p class="kv-eyebrow">{words.WHAT_CAME_OUT} <span class="kv-tour-source" data-live="{int(live)}">'
        f"{source}</span></p>"
        f'<p class="kv-verdict-sentence"><strong class="kv-verdict-head">{head}</strong></p>'
        f'<div class="kv-tour-said">{sentences}{effect}</div><p '
        f'class="kv-factline"><span>{facts}</span></p></section>'
    )


def takeaway(step: Step) -> str:
    """The key point, whatever the run showed."""
    return (
        f'<section class="kv-tour-takeaway"><p class="kv-eyebrow">{words.TAKEAWAY}</p>'
        f"<p>{with_terms(step.takeaway)}</p></section>"
    )


# -- the class room


def tally(step: Step, counts: Mapping[str, int], members: int, right: str | None) -> str:
    """The class's predictions as bars; ``right``: the one that came true, once it is revealed."""
    total = sum(counts.values())
    rows = "".join(
        f"<li{' data-right=1' if key == right else ''}><span>{escape(answer)}"
        f"{' ' + words.CAME_TRUE if key == right else ''}</span>"
        f'<i style="--kv-fill:{100 * counts.get(key, 0) / max(1, total):.0f}%" aria-hidden="true"></i>'
        f'<b class="kv-num">{counts.get(key, 0)} · {percent(counts.get(key, 0), total)}</b></li>'
        for key, answer in step.choices.items()
    )
    return (
        f'<section class="kv-tour-tally" aria-label="{words.TALLY}"><p class="kv-eyebrow">{words.TALLY} '
        f"<span>{words.PREDICTED.format(count=total, members=plural(members, 'participant'))}</span></p>"
        f"<ul>{rows}</ul></section>"
    )


def waiting(room: Room) -> str:
    """A participant's line until the teacher reveals."""
    count = words.PREDICTED.format(
        count=f'<b class="kv-room-predicted">{room.predicted}</b>',
        members=plural(len(room.members), "participant"),
    )
    return f'<p class="kv-help" role="status">{words.WAIT_REVEAL} {count}</p>'


def room_link(room: str) -> str:
    """The end of the link with which a student joins; the page's address comes before it."""
    return f"?lesson=1&room={room}#tour"


def room_card(room: Room, leads: bool) -> str:
    """The visit's part in the room; the browser asks for the room's news by the attributes."""
    data = (
        f'class="kv-room" data-room="{escape(room.id)}" data-leads="{int(leads)}" '
        f'data-version="{room.version}" '
        f'data-predicted="{room.predicted}" data-members="{len(room.members)}"'
    )
    if not leads:
        return f'<div {data}><p class="kv-help"><b>{words.IN_ROOM}</b> {words.IN_ROOM_HELP}</p></div>'
    link = room_link(room.id)
    return (
        f'<div {data} data-key="{escape(room.key)}"><img class="kv-room-qr" alt="{words.QR}" '
        'width="132" height="132">'
        f'<div class="kv-room-words"><p><b>{words.ROOM_OPEN}</b> {words.ROOM_OPEN_HELP}</p>'
        f'<p class="kv-room-line"><a class="kv-room-link kv-shared-link" href="{escape(link)}" '
        'target="_blank" rel="noopener">'
        f"{escape(link)}</a>"
        f'<button type="button" class="kv-small-button" data-kv="copy">{words.COPY}</button>'
        f'<button type="button" class="kv-small-button" data-kv="projector" aria-pressed="false">'
        f"{words.PROJECTOR}</button></p>"
        f'<p class="kv-help">{words.ROOM_RULES}</p></div></div>'
    )


def lectures(steps: Sequence[Step]) -> str:
    """The teacher's page: goals, timing and questions of every step."""
    rows = "".join(
        f'<tr><th scope="row">{at}. {escape(s.title)}</th><td>{escape(s.teacher.goal)}</td>'
        f'<td class="kv-right kv-num">{s.teacher.minutes}</td><td><ul>'
        f"{''.join(f'<li>{escape(ask)}</li>' for ask in s.teacher.ask)}</ul></td></tr>"
        for at, s in enumerate(steps, 1)
    )
    total = sum(s.teacher.minutes for s in steps)
    return (
        f'<p class="kv-help">{words.LECTURE_HELP.format(minutes=total)}</p>'
        f'<div class="kv-table-wrap" tabindex="0" role="group" aria-label="{words.LECTURE}">'
        '<table class="kv-table kv-lectures"><thead><tr>'
        + "".join(f"<th>{head}</th>" for head in words.LECTURE_HEADS)
        + f"</tr></thead><tbody>{rows}</tbody></table></div>"
    )
