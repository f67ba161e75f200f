"""The turns of one episode, as cards: what each method wrote, and its prompt in fragments by provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.records.agent_loop import copied_tokens, over
from backend.records.run import PROVENANCE, Outcome, Prompt, RunRecord, SpanAction, ToolUse
from viz.base import format as words
from viz.base.format import escape, milliseconds, number, percent, plural
from viz.base.glossary import term
from viz.base.theme import MethodStyle, method_styles


def turns_html(
    outcomes: Sequence[Outcome],
    labels: Sequence[str],
    names: Mapping[str, str],
    writing: Mapping[str, str] | None = None,
    tools: Sequence[ToolUse] = (),
) -> str:
    """A card per turn, one column per method.

    Args:
        outcomes: of the turns that are finished, in order.
        labels: the methods', dense first; ``names`` their registry names.
        writing: what each writes of the turn that is going on.
        tools: what the tools gave.
    """
    looks = method_styles(labels, names)
    turns = list(dict.fromkeys(o.agent for o in outcomes))
    cards = [
        _card(t, [o for o in outcomes if o.agent == t], labels, looks, [u for u in tools if u.agent == t])
        for t in turns
    ]
    if writing:
        cards.append(_going((turns[-1] if turns else 0) + 1, writing, looks))
    return f'<div class="kv-loop">{_legend()}{"".join(cards)}</div>' if cards else ""


def fragments_html(record: RunRecord, turn: int) -> str:
    """The prompt of a turn under every method, each fragment marked by where its cache came from."""
    looks = words.styles(record)
    lanes = [
        f'<div class="kv-loop-lane" style="--kv-method:var(--kv-method-{looks[o.method].index})">'
        f"<h4>{escape(looks[o.method].name)}</h4>{_bar(o)}"
        f'<p class="kv-loop-text">{_fragments(words.prompt_of(record, o), o)}</p></div>'
        for o in record.outcomes
        if o.agent == turn
    ]
    return (
        f'{_legend()}<div class="kv-loop-lanes">{"".join(lanes)}</div>'
        '<p class="kv-how">Each fragment is marked by where its cache came from; the reason shows on hover. '
        "Soft tokens are not drawn.</p>"
    )


def _legend() -> str:
    keys = "".join(
        f'<span><i class="kv-prov-key kv-prov-{_slug(word)}" aria-hidden="true"></i>{term(word)}</span>'
        for word in PROVENANCE
    )
    return f'<p class="kv-loop-legend">{keys}</p>'


def _slug(word: str) -> str:
    return word.replace(" ", "-")


def _card(
    turn: int,
    outcomes: Sequence[Outcome],
    labels: Sequence[str],
    looks: Mapping[str, MethodStyle],
    tools: Sequence[ToolUse],
) -> str:
    dense = next((o for o in outcomes if o.method == labels[0]), None)
    seen = {use.method: use.text for use in tools}
    shared = tools[0].text if len(tools) == 1 else ""  # pinned: all read what dense's call gave
    cells = []
    for o in outcomes:
        observed = seen.get(o.method, shared)
        told = f"Observation {turn}: {words.clip(observed, 200)}"
        said = f'<p class="kv-loop-seen">{escape(told)}</p>' if observed and not over(o) else ""
        same = dense is None or o is dense or o.text == dense.text
        cells.append(
            f'<article class="kv-cell" style="--kv-method:var(--kv-method-{looks[o.method].index})">'
            f"<h4>{escape(looks[o.method].name)}</h4>{_bar(o)}"
            f'<p class="kv-loop-out{"" if same else " kv-changed"}">{escape(o.text)}</p>{said}'
            f'<div class="kv-badges">{_badges(o, dense)}</div></article>'
        )
    return _turn(turn, "".join(cells))


def _going(turn: int, writing: Mapping[str, str], looks: Mapping[str, MethodStyle]) -> str:
    cells = "".join(
        f'<article class="kv-cell" style="--kv-method:var(--kv-method-{looks[label].index})">'
        f"<h4>{escape(looks[label].name)}</h4>"
        f'<p class="kv-loop-out">{escape(text)}<i class="kv-caret" aria-hidden="true"></i></p></article>'
        for label, text in writing.items()
        if label in looks
    )
    return _turn(turn, cells)


def _turn(turn: int, cells: str) -> str:
    head = f'<section class="kv-loop-turn"><h3>Turn {turn}</h3>'
    return f'{head}<div class="kv-loop-cells">{cells}</div></section>'


def _badges(outcome: Outcome, dense: Outcome | None) -> str:
    total = outcome.actions.shape[1]
    out = [
        f"{percent(copied_tokens(outcome), total)} of {total:,} tokens reused",
        f"TTFT {milliseconds(outcome.timing.ttft_ms)}",
    ]
    if outcome.fidelity is not None and outcome is not dense:
        out.append(f"KL {number(outcome.fidelity.kl_first, 2)} nats")
    return "".join(f'<span class="kv-badge kv-num">{escape(x)}</span>' for x in out)


def _bar(outcome: Outcome) -> str:
    """The prompt as a bar: its fragments in order, as wide as they are long."""
    parts = "".join(
        f'<i class="kv-prov-{_slug(_word(s))}" style="flex-grow:{s.end - s.start}" title="{_why(s)}"></i>'
        for s in outcome.spans
    )
    return f'<div class="kv-loop-bar" role="img" aria-label="{escape(_told(outcome))}">{parts}</div>'


def _told(outcome: Outcome) -> str:
    counts: dict[str, int] = {}
    for s in outcome.spans:
        counts[_word(s)] = counts.get(_word(s), 0) + s.end - s.start
    return ", ".join(f"{plural(count, 'token')} {word}" for word, count in counts.items())


def _fragments(prompt: Prompt, outcome: Outcome) -> str:
    return "".join(
        f'<span class="kv-prov-{_slug(_word(s))}" title="{_why(s)}">'
        f"{escape(''.join(prompt.texts[s.start : s.end]))}</span>"
        for s in outcome.spans
    )


def _word(action: SpanAction) -> str:
    return action.provenance or "computed"


def _why(action: SpanAction) -> str:
    return escape(f"{_word(action)}, {plural(action.end - action.start, 'token')}: {action.reason}")
