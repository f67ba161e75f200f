"""Texts side by side: one column per method, dense first, one row per agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backend.prompts.pipeline import Pipeline
from backend.records.run import Fidelity, GateDecision, Outcome, RunRecord
from viz.base import format as words
from viz.base.format import escape, number
from viz.base.glossary import term
from viz.base.placeholder_pills import pill, weights_label
from viz.base.textdiff import diff_html, plain_html
from viz.base.theme import MethodStyle, method_styles
from viz.run.verdict import is_near_tie

STATE_WORDS = {
    "dense": "computed",
    "reused": "reused",
    "partial": "partly reused",
    "fallback": "gate refused",
}
STATE_TERMS = {"dense": "dense", "reused": "reused", "partial": "partial", "fallback": "fallback"}
ACTION_ORDER = ("reused", "corrected", "recomputed", "computed")


def comparison_html(record: RunRecord, dimmed: bool = False) -> str:
    """The whole comparison of a finished run; ``dimmed`` when it no longer matches the inputs."""
    looks = words.styles(record)
    dense = words.dense_label(record)
    heads = [head(looks[m], _column_summary(record, m)) for m in record.labels]

    def cell(agent: int, label: str) -> str:
        return _cell(record, record.outcome(agent, label), record.outcome(agent, dense))

    found = grid(record.request.pipeline, record.agents, record.labels, looks, heads, cell, dimmed)
    return notes_html(record) + found


def notes_html(record: RunRecord) -> str:
    """What the run says about itself: what a reader should know before trusting its figures."""
    if not record.notes:
        return ""
    items = "".join(f"<p>{escape(note)}</p>" for note in record.notes)
    return f'<div class="kv-notes" role="note">{items}</div>'


def live_html(
    pipeline: Pipeline,
    labels: Sequence[str],
    texts: Mapping[tuple[int, str], str],
    progress: str,
    done: int,
    total: int,
) -> str:
    """The same grid while a run is going on."""
    looks = method_styles(labels)
    started = [a for a in pipeline.order if any((a, m) in texts for m in labels)]
    current = started[-1] if started else None

    def cell(agent: int, label: str) -> str:
        text = texts.get((agent, label))
        writing = agent == current and text is not None
        if text is None:
            body = '<p class="kv-out kv-waiting"></p>'
        else:
            caret = '<i class="kv-caret" aria-hidden="true"></i>' if writing else ""
            body = f'<p class="kv-out">{plain_html([text])}{caret}</p>'
        state = "writing" if writing else "written" if text is not None else "waiting"
        return f'<div class="kv-badges"><span class="kv-badge kv-badge-quiet">{state}</span></div>{body}'

    share = 100 * done / total if total else 0
    bar = (
        f'<div class="kv-progress" role="progressbar" aria-valuemin="0" aria-valuemax="{total}" '
        f'aria-valuenow="{done}"><p><span>{escape(progress)}</span>'
        f'<span class="kv-num">{done} of {total}</span></p>'
        f'<div class="kv-progress-track"><i style="width:{share:.1f}%"></i></div></div>'
    )
    heads = [head(looks[m], "running") for m in labels]
    live = grid(pipeline, pipeline.order, labels, looks, heads, cell, False)
    return f'{bar}<div class="kv-live">{live}</div>'


def grid(
    pipeline: Pipeline,
    agents: Sequence[int],
    labels: Sequence[str],
    looks: Mapping[str, MethodStyle],
    heads: Sequence[str],
    cell: Callable[[int, str], str],
    dimmed: bool = False,
) -> str:
    """Agents by methods: ``heads`` from :func:`head`, and what ``cell(agent, label)`` says of each."""
    rows = []
    for number_, agent in enumerate(agents, start=1):
        name = words.agent_name(pipeline, agent)
        role = words.agent_role(pipeline, agent)
        shown_role = (
            f'<span class="kv-role">{escape(words.clip(role, 90))}</span>' if role and role != name else ""
        )
        rows.append(
            f'<div class="kv-row-head"><h4><span class="kv-step">{number_}</span>'
            f"{escape(name)}</h4>{weights_label(words.agent_weights(pipeline, agent))}{shown_role}</div>"
        )
        rows += [
            f'<article class="kv-cell" data-agent="{agent}" data-method="{escape(m)}" '
            f'style="--kv-method:var(--kv-method-{looks[m].index})">'
            f'<p class="kv-cell-method">{escape(looks[m].name)}</p>{cell(agent, m)}</article>'
            for m in labels
        ]
    stale = " kv-dimmed" if dimmed else ""
    return (
        f'<div class="kv-compare{stale}"><div class="kv-grid" style="--kv-n:{len(labels)}">'
        f"{''.join(heads)}{''.join(rows)}</div></div>"
    )


def head(look: MethodStyle, summary: str) -> str:
    """A column's head: the method and one line of HTML."""
    return (
        f'<header class="kv-method-head" style="--kv-method:var(--kv-method-{look.index})">'
        f"<h3>{escape(look.name)}</h3><p>{summary}</p></header>"
    )


def _column_summary(record: RunRecord, label: str) -> str:
    spent = sum(record.outcome(a, label).timing.ttft_ms for a in record.agents)
    reference = sum(record.outcome(a, words.dense_label(record)).timing.ttft_ms for a in record.agents)
    counts = [words.action_counts(record.outcome(a, label)) for a in record.agents]
    total = sum(sum(c.values()) for c in counts)
    kept = sum(c["reused"] + c["corrected"] for c in counts)
    if label == words.dense_label(record):
        return f"the reference · {total:,} prompt tokens · TTFT {words.milliseconds(spent)}"
    return (
        f"{escape(words.percent(kept, total))} of tokens from a cache · TTFT {words.milliseconds(spent)}, "
        f"{words.ratio(spent, reference)} dense"
    )


def _cell(record: RunRecord, outcome: Outcome, dense: Outcome) -> str:
    reference = outcome is dense
    same = list(outcome.token_ids) == list(dense.token_ids)
    first = outcome.fidelity.first_divergence if outcome.fidelity else None
    text = plain_html(outcome.texts) if reference or same else diff_html(dense.texts, outcome.texts, first)
    badges = [
        f'<span class="kv-badge kv-state kv-state-{outcome.state}"><i aria-hidden="true"></i>'
        f"{term(STATE_TERMS[outcome.state], STATE_WORDS[outcome.state])}</span>"
    ]
    if outcome.answer is not None:
        changed = not reference and outcome.answer != dense.answer
        badges.append(
            f'<span class="kv-badge kv-badge-answer{" kv-changed" if changed else ""}">'
            f"{'≠ ' if changed else ''}answer {escape(words.clip(outcome.answer, 24))}</span>"
        )
    if outcome.correct is not None:
        mark, word, tone = ("✓", "right", "good") if outcome.correct else ("✗", "wrong", "bad")
        badges.append(f'<span class="kv-badge kv-{tone}"><b aria-hidden="true">{mark}</b> {word}</span>')
    if not reference and same and outcome.fidelity is None:
        badges.append('<span class="kv-badge kv-badge-quiet">= dense’s text</span>')
    cut = (
        ""
        if outcome.stopped
        else '<span class="kv-cut" title="stopped at the length limit"> … cut at the limit</span>'
    )
    return (
        f'<div class="kv-badges">{"".join(badges)}</div>'
        f'<p class="kv-out{" kv-out-same" if same and not reference else ""}">{text or "(no text)"}{cut}</p>'
        f"{_tool(record, outcome)}{_bar(outcome)}{_metrics(outcome, dense)}{_why(record, outcome)}"
    )


def _tool(record: RunRecord, outcome: Outcome) -> str:
    """What the agent's tool gave for this answer."""
    found = [t for t in record.tools if (t.agent, t.method) == (outcome.agent, outcome.method)]
    return "".join(
        f'<p class="kv-tool{"" if t.ok else " kv-bad"}">{term("tool", f"Tool {t.tool}")} '
        + (
            f"gave <b>{escape(words.clip(t.text, 200))}</b>"
            if t.ok
            else f"gave nothing: {escape(words.clip(t.reason, 200))}"
        )
        + "</p>"
        for t in found
    )


def _bar(outcome: Outcome) -> str:
    counts = words.action_counts(outcome)
    total = sum(counts.values())
    present = [name for name in ACTION_ORDER if counts[name]]
    pieces = "".join(f'<i class="kv-a-{name}" style="flex-grow:{counts[name]}"></i>' for name in present)
    said = ", ".join(
        f'<span class="kv-nowrap">{term(name)} <b>{counts[name]:,}</b> '
        f"({escape(words.percent(counts[name], total))})</span>"
        for name in present
    )
    if len(present) == 1:
        said = f"{term(present[0])} <b>all {total:,}</b> prompt tokens"
    else:
        said += f" of {total:,}"
    return f'<div class="kv-share" aria-hidden="true">{pieces}</div><p class="kv-share-words">{said}</p>'


def _metrics(outcome: Outcome, dense: Outcome) -> str:
    reference = outcome is dense
    versus = (
        "" if reference else f" <em>{words.ratio(outcome.timing.ttft_ms, dense.timing.ttft_ms)} dense</em>"
    )
    rows = [(term("TTFT"), f"{words.milliseconds(outcome.timing.ttft_ms)}{versus}", "")]
    fidelity = outcome.fidelity
    if fidelity is not None and reference:
        rows.append((term("numerical floor"), f"{number(fidelity.floor, 1)} nats", ""))
    elif fidelity is not None:
        rows.append((term("KL", "KL, first token"), f"{number(fidelity.kl_first, 2)} nats", ""))
        said, wide = "none", ""
        if fidelity.first_divergence is not None:
            said, wide = _divergence(fidelity), ' class="kv-wide"'
        rows.append((term("first divergence", "First difference"), said, wide))
    body = "".join(f"<div{wide}><dt>{name}</dt><dd>{value}</dd></div>" for name, value, wide in rows)
    return f'<dl class="kv-metrics">{body}</dl>'


def _divergence(fidelity: Fidelity) -> str:
    said = (
        f"token {(fidelity.first_divergence or 0) + 1}: {words.quoted(fidelity.method_token)} "
        f"for {words.quoted(fidelity.dense_token)}"
    )
    if fidelity.margin is None:
        return said
    kind = term("near tie", "near tie, margin") if is_near_tie(fidelity) else term("top-2 margin", "margin")
    floor = term("numerical floor", "floor")
    return f"{said} <em>{kind} {number(fidelity.margin)} nats, {floor} {number(fidelity.floor, 1)}</em>"


def _why(record: RunRecord, outcome: Outcome) -> str:
    if not outcome.reason and not outcome.gate:
        return ""
    passed = sum(g.shareable for g in outcome.gate)
    short = (
        f": gate passed {passed} of {words.plural(len(outcome.gate), 'placeholder')}" if outcome.gate else ""
    )
    items = "".join(_gate(record, g) for g in outcome.gate)
    listed = f'<ul class="kv-gates">{items}</ul>' if items else ""
    return (
        f'<details class="kv-why"><summary>Why{short}</summary><p>{escape(outcome.reason)}</p>'
        f"{listed}</details>"
    )


def _gate(record: RunRecord, gate: GateDecision) -> str:
    mark, word = ("✓", "share") if gate.shareable else ("✗", "compute")
    shown = pill(record.request.pipeline, gate.placeholder)
    return f"<li>{shown} <b>{mark} {word}</b> {escape(gate.reason)}</li>"
