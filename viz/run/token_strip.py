"""The strip: what happened to every token of one agent's prompt, one lane per method.

Markup is kept small so that prompts of thousands of tokens stay usable: a lane is a row of runs, a run
a row of ``<i data-token>`` cells; the agent and the method stand on the lane, and everything a tooltip
needs is in one JSON block per strip. Action is told by colour and by height or hatching.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from backend.records.run import ACTIONS, Prompt, RunRecord
from viz.base import format as words
from viz.base.format import embedded_json, escape, number
from viz.base.glossary import term
from viz.run.token_lanes import Lane, lane_data, lanes_of, reading_html, runs_of

CELL_PX = 4  # the least width of a token before the band scrolls sideways
MAX_CELLS = 9000  # over all lanes; beyond it one cell stands for several tokens
OVERVIEW_FROM = 240  # tokens from which a whole-prompt overview is added


def strip_html(
    record: RunRecord, agent: int, selected: tuple[int, int] | None = None, method: str | None = None
) -> str:
    """One agent's prompt as a band and as text.

    Args:
        record: the run.
        agent: whose prompt.
        selected: tokens ``[start, end)`` to mark.
        method: whose colouring the text starts with; by default the last method's.
    """
    lanes = lanes_of(record, agent)
    groups: dict[int, list[Lane]] = {}
    for lane in lanes:
        groups.setdefault(lane.outcome.prompt, []).append(lane)
    shown = method if method in record.labels else lanes[-1].label
    bands = "".join(
        _band(record, agent, record.prompts[i], part, selected, shown) for i, part in groups.items()
    )
    name = escape(words.agent_name(record.request.pipeline, agent))
    return (
        f'<section class="kv-strip" data-agent="{agent}"><header class="kv-strip-head"><h4>{name}’s '
        f"prompt, token by token</h4>"
        f"<p>{_finding(record, lanes)}</p></header>{_legend(lanes)}{bands}</section>"
    )


def _band(
    record: RunRecord,
    agent: int,
    prompt: Prompt,
    lanes: list[Lane],
    selected: tuple[int, int] | None,
    shown: str,
) -> str:
    total = len(prompt.texts)
    if not total:
        return '<p class="kv-note">This prompt has no tokens.</p>'
    step = max(1, -(-total * len(lanes) // MAX_CELLS))
    peak = max((float(lane.error.max()) for lane in lanes if lane.error is not None), default=0.0)
    names, rows = ['<div class="kv-lane-name kv-lane-top"></div>'], [_brackets(record, prompt)]
    for lane in lanes:
        has_error = lane.error is not None and peak > 0
        kept = int(np.isin(lane.codes, (1, 2)).sum())
        names.append(
            f'<div class="kv-lane-name{" kv-with-error" if has_error else ""}" '
            f'style="--kv-method:var(--kv-method-{lane.index})">'
            f'<b>{escape(lane.name)}</b><span class="kv-num">{words.percent(kept, total)} from '
            f"cache</span></div>"
        )
        rows.append(
            f'<div class="kv-lane" data-agent="{agent}" data-method="{escape(lane.label)}">'
            f"{_cells(prompt, lane, step)}</div>"
        )
        if has_error:
            rows.append(_silhouette(lane, peak))
    rows.append(_ticks(total))
    mark = _mark(selected, total)
    overview = _overview(lanes, total, selected) if total >= OVERVIEW_FROM else ""
    merged = (
        f'<p class="kv-note">One cell stands for {step} tokens: the prompt is long.</p>' if step > 1 else ""
    )
    return (
        f'<div class="kv-band-group" data-agent="{agent}" data-tokens="{total}">{overview}<div '
        f'class="kv-band-row">'
        f'<div class="kv-lane-names">{"".join(names)}</div>'
        f'<div class="kv-band-scroll" tabindex="0" role="group" aria-label="Tokens; arrow keys move the '
        f'selection">'
        f'<div class="kv-band" style="min-width:{total * CELL_PX}px">{"".join(rows)}{mark}</div></div></div>'
        f"{merged}{reading_html(record, prompt, lanes, selected, shown)}"
        f'<script type="application/json" class="kv-data">'
        f"{embedded_json(lane_data(record, prompt, lanes))}</script></div>"
    )


def _cells(prompt: Prompt, lane: Lane, step: int) -> str:
    out = []
    for start, end in runs_of(prompt, [lane.codes, lane.rejected]):
        name = ACTIONS[lane.codes[start]]
        refused = " kv-x" if lane.rejected[start] else ""
        cells = "".join(f"<i data-token={t}></i>" for t in range(start, end, step))
        out.append(
            f'<span class="kv-run kv-a-{name}{refused}" style="flex-grow:{end - start}">{cells}</span>'
        )
    return "".join(out)


def _brackets(record: RunRecord, prompt: Prompt) -> str:
    total, colours = len(prompt.texts), words.slots(record.request.pipeline)
    out = []
    for span in prompt.spans:
        if span.end <= span.start:
            continue
        place = f"left:{100 * span.start / total:.3f}%;width:{100 * (span.end - span.start) / total:.3f}%"
        tokens = f"{words.plural(span.end - span.start, 'token')}, {span.start} to {span.end - 1}"
        if span.kind == "placeholder":
            label = words.slot_words(record.request.pipeline, span.name)
            extra = f' kv-bracket-slot" style="{place};--kv-slot:var(--kv-slot-{colours.get(span.name, 0)})'
        else:
            label, extra = span.name, f'" style="{place}'
        out.append(
            f'<span class="kv-bracket{extra}" data-span="{escape(span.name)}" data-start="{span.start}" '
            f'data-end="{span.end}" data-tip="{escape(f"{label}: {tokens}")}"><b>{escape(label)}</b></span>'
        )
    return f'<div class="kv-brackets">{"".join(out)}</div>'


def _silhouette(lane: Lane, peak: float) -> str:
    assert lane.error is not None
    heights = np.round(100 * lane.error / peak).astype(int)
    path = "".join(f"V{h}h1" for h in heights)
    return (
        f'<svg class="kv-error" viewBox="0 0 {len(heights)} 100" preserveAspectRatio="none" '
        f'aria-hidden="true" '
        f'style="--kv-method:var(--kv-method-{lane.index})"><path d="M0 0{path}V0z"/></svg>'
    )


def _ticks(total: int) -> str:
    step = next(s for s in (5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if total / s <= 14 or s == 100)
    marks = "".join(f'<span style="left:{100 * t / total:.3f}%">{t}</span>' for t in range(0, total, step))
    return f'<div class="kv-ticks" aria-hidden="true">{marks}</div>'


def _mark(selected: tuple[int, int] | None, total: int) -> str:
    if selected is None or not 0 <= selected[0] < selected[1]:
        return '<div class="kv-selected" hidden></div>'
    start, end = min(selected[0], total), min(selected[1], total)
    return (
        f'<div class="kv-selected" '
        f'style="left:{100 * start / total:.3f}%;width:{100 * (end - start) / total:.3f}%"></div>'
    )


def _overview(lanes: list[Lane], total: int, selected: tuple[int, int] | None) -> str:
    rects = []
    for row, lane in enumerate(lanes):
        edges = [0, *(np.flatnonzero(np.diff(lane.codes.astype(int))) + 1).tolist(), total]
        rects += [
            f'<rect class="kv-a-{ACTIONS[lane.codes[a]]}" x="{a}" y="{row}" width="{b - a}" height=".8"/>'
            for a, b in pairwise(edges)
        ]
    if selected is not None:
        rects.append(
            f'<rect class="kv-overview-mark" x="{selected[0]}" y="0" width="{selected[1] - selected[0]}" '
            f'height="{len(lanes)}"/>'
        )
    return (
        f'<svg class="kv-overview" viewBox="0 0 {total} {len(lanes)}" preserveAspectRatio="none" '
        f'data-tokens="{total}" '
        f'style="height:{7 * len(lanes)}px" role="img" aria-label="The whole prompt; click to go there">'
        f"{''.join(rects)}</svg>"
    )


def _legend(lanes: list[Lane]) -> str:
    used = {int(c) for lane in lanes for c in np.unique(lane.codes)}
    items = [
        f'<span class="kv-key"><i class="kv-run kv-a-{name}" aria-hidden="true"></i>{term(name)}</span>'
        for code, name in enumerate(ACTIONS)
        if code in used or code < 3
    ]
    if any(lane.rejected.any() for lane in lanes):
        items.append(
            f'<span class="kv-key"><i class="kv-run kv-a-computed kv-x" aria-hidden="true"></i>'
            f"{term('rejected', 'rejected by the gate')}</span>"
        )
    if any(lane.error is not None for lane in lanes):
        items.append(
            '<span class="kv-key"><svg class="kv-key-error" viewBox="0 0 4 100" preserveAspectRatio="none" '
            'aria-hidden="true">'
            f'<path d="M0 0V40h1V90h1V30h1V60h1V0z"/></svg>'
            f"{term('relative error', 'error of the token’s KV at its worst layer, downwards')}</span>"
        )
    return f'<p class="kv-legend">{"".join(items)}</p>'


def _finding(record: RunRecord, lanes: list[Lane]) -> str:
    found = [
        (float(lane.error.max()), int(lane.error.argmax()), lane) for lane in lanes if lane.error is not None
    ]
    found = [f for f in found if f[0] > 0]
    total = len(words.prompt_of(record, lanes[0].outcome).texts)
    said = f'<span class="kv-num">{total:,}</span> tokens.'
    if found:
        error, token, lane = max(found, key=lambda f: f[0])
        text = words.prompt_of(record, lane.outcome).texts[token]
        layer = int(lane.layer[token]) if lane.layer is not None else 0
        said += (
            f" The largest error is at token {token}, {words.quoted(text)}, layer {layer}, under "
            f"{escape(lane.name)}: "
            f'<span class="kv-num">{number(error, 2)}</span> of dense’s size.'
        )
    return said
