"""The strip: what happened to every token of one agent's prompt, one lane per method.

Markup is kept small so that prompts of thousands of tokens stay usable: a lane is a row of runs, a run
a row of ``<i data-token>`` cells; the agent and the method stand on the lane, and everything a tooltip
needs is in one JSON block per strip. Action is told by colour and by height or hatching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.records import ACTIONS, Outcome, Prompt, RunRecord
from viz import words
from viz.glossary import term
from viz.words import embedded_json, escape, number

CELL_PX = 5  # the least width of a token before the band scrolls sideways
MAX_CELLS = 9000  # over all lanes; beyond it one cell stands for several tokens
OVERVIEW_FROM = 240  # tokens from which a whole-prompt overview is added
MAX_LANES = 8


@dataclass(frozen=True)
class Lane:
    """One method's tokens: action codes, worst-layer error, and whether the gate rejected them."""

    label: str
    name: str
    index: int
    outcome: Outcome
    codes: NDArray[np.uint8]
    error: NDArray[np.float32] | None
    layer: NDArray[np.int64] | None
    rejected: NDArray[np.bool_]


def lanes_of(record: RunRecord, agent: int) -> list[Lane]:
    """The lanes of one agent, dense first."""
    found = []
    for label, look in list(words.styles(record).items())[:MAX_LANES]:
        outcome = record.outcome(agent, label)
        prompt = words.prompt_of(record, outcome)
        refused = {g.placeholder for g in outcome.gate if not g.shareable}
        rejected = np.zeros(len(prompt.texts), dtype=np.bool_)
        for span in prompt.spans:
            if span.kind == "placeholder" and span.name in refused:
                rejected[span.start : span.end] = True
        kinds = [e for e in (outcome.key_error, outcome.value_error) if e is not None and e.size]
        worst = np.nan_to_num(np.max(np.stack(kinds), axis=0)) if kinds and label != words.dense_label(record) else None
        error = worst.max(axis=0).astype(np.float32) if worst is not None else None
        layer = worst.argmax(axis=0).astype(np.int64) if worst is not None else None
        codes = words.main_actions(outcome)
        found.append(Lane(label, look.name, look.index, outcome, codes, error, layer, rejected))
    return found


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
    bands = "".join(_band(record, agent, record.prompts[i], part, selected, shown) for i, part in groups.items())
    name = escape(words.agent_name(record.request.pipeline, agent))
    return (
        f'<section class="kv-strip" data-agent="{agent}"><header class="kv-strip-head"><h4>{name}’s prompt, token by token</h4>'
        f"<p>{_finding(record, lanes)}</p></header>{_legend(lanes)}{bands}</section>"
    )


def _band(
    record: RunRecord, agent: int, prompt: Prompt, lanes: list[Lane], selected: tuple[int, int] | None, shown: str
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
            f'<div class="kv-lane-name{" kv-with-error" if has_error else ""}" style="--kv-method:var(--kv-method-{lane.index})">'
            f'<b>{escape(lane.name)}</b><span class="kv-num">{words.percent(kept, total)} from cache</span></div>'
        )
        rows.append(
            f'<div class="kv-lane" data-agent="{agent}" data-method="{escape(lane.label)}">{_cells(prompt, lane, step)}</div>'
        )
        if has_error:
            rows.append(_silhouette(lane, peak))
    rows.append(_ticks(total))
    mark = _mark(selected, total)
    overview = _overview(lanes, total, selected) if total >= OVERVIEW_FROM else ""
    merged = f'<p class="kv-note">One cell stands for {step} tokens: the prompt is long.</p>' if step > 1 else ""
    return (
        f'<div class="kv-band-group" data-agent="{agent}" data-tokens="{total}">{overview}<div class="kv-band-row">'
        f'<div class="kv-lane-names">{"".join(names)}</div>'
        f'<div class="kv-band-scroll" tabindex="0" role="group" aria-label="Tokens; arrow keys move the selection">'
        f'<div class="kv-band" style="min-width:{total * CELL_PX}px">{"".join(rows)}{mark}</div></div></div>'
        f"{merged}{_reading(record, prompt, lanes, selected, shown)}"
        f'<script type="application/json" class="kv-data">{embedded_json(_data(record, prompt, lanes))}</script></div>'
    )


def _runs(prompt: Prompt, codes: list[NDArray[Any]]) -> list[tuple[int, int]]:
    """Longest token ranges within one span over which every given array is constant."""
    total = len(prompt.texts)
    cuts = {0, total} | {s.start for s in prompt.spans} | {s.end for s in prompt.spans}
    for array in codes:
        cuts |= set((np.flatnonzero(np.diff(array.astype(np.int64))) + 1).tolist())
    edges = sorted(c for c in cuts if 0 <= c <= total)
    return list(zip(edges, edges[1:], strict=False))


def _cells(prompt: Prompt, lane: Lane, step: int) -> str:
    out = []
    for start, end in _runs(prompt, [lane.codes, lane.rejected]):
        name = ACTIONS[lane.codes[start]]
        refused = " kv-x" if lane.rejected[start] else ""
        cells = "".join(f"<i data-token={t}></i>" for t in range(start, end, step))
        out.append(f'<span class="kv-run kv-a-{name}{refused}" style="flex-grow:{end - start}">{cells}</span>')
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
            extra = f" kv-bracket-slot\" style=\"{place};--kv-slot:var(--kv-slot-{colours.get(span.name, 0)})"
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
        f'<svg class="kv-error" viewBox="0 0 {len(heights)} 100" preserveAspectRatio="none" aria-hidden="true" '
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
    return f'<div class="kv-selected" style="left:{100 * start / total:.3f}%;width:{100 * (end - start) / total:.3f}%"></div>'


def _overview(lanes: list[Lane], total: int, selected: tuple[int, int] | None) -> str:
    rects = []
    for row, lane in enumerate(lanes):
        edges = [0, *(np.flatnonzero(np.diff(lane.codes.astype(int))) + 1).tolist(), total]
        rects += [
            f'<rect class="kv-a-{ACTIONS[lane.codes[a]]}" x="{a}" y="{row}" width="{b - a}" height=".8"/>'
            for a, b in zip(edges, edges[1:], strict=False)
        ]
    if selected is not None:
        rects.append(
            f'<rect class="kv-overview-mark" x="{selected[0]}" y="0" width="{selected[1] - selected[0]}" height="{len(lanes)}"/>'
        )
    return (
        f'<svg class="kv-overview" viewBox="0 0 {total} {len(lanes)}" preserveAspectRatio="none" data-tokens="{total}" '
        f'style="height:{7 * len(lanes)}px" role="img" aria-label="The whole prompt; click to go there">{"".join(rects)}</svg>'
    )


def _reading(
    record: RunRecord, prompt: Prompt, lanes: list[Lane], selected: tuple[int, int] | None, shown: str
) -> str:
    group = f"kv-reading-{prompt.agent}-{lanes[0].outcome.prompt}-{record.id}"
    chosen = next((i for i, lane in enumerate(lanes) if lane.label == shown), len(lanes) - 1)
    tabs = "".join(
        f'<label style="--kv-method:var(--kv-method-{lane.index})"><input type="radio" name="{escape(group)}" data-lane="{i}" '
        f'data-method="{escape(lane.label)}"{" checked" if i == chosen else ""}>{escape(lane.name)}</label>'
        for i, lane in enumerate(lanes)
    )
    colours = words.slots(record.request.pipeline)
    starts = {s.start: s for s in prompt.spans if s.end > s.start}
    ends = {s.end for s in prompt.spans if s.end > s.start}
    out: list[str] = []
    for start, end in _runs(prompt, [lane.codes for lane in lanes]):
        span = starts.get(start)
        if span is not None and span.kind == "placeholder":
            out.append(
                f'<span class="kv-slot-text" style="--kv-slot:var(--kv-slot-{colours.get(span.name, 0)})">'
                f'<span class="kv-slot-tag" aria-hidden="true">{escape(span.name)}</span>'
            )
        kinds = " ".join(f"l{i}a{lane.codes[start]}" for i, lane in enumerate(lanes))
        cells = "".join(
            f"<i data-token={t}{' class=kv-on' if selected and selected[0] <= t < selected[1] else ''}>{escape(prompt.texts[t])}</i>"
            for t in range(start, end)
        )
        out.append(f'<span class="{kinds}">{cells}</span>')
        inside = words.span_at(prompt, end - 1)
        if end in ends and inside is not None and inside.kind == "placeholder":
            out.append("</span>")
    return (
        f'<div class="kv-reading"><div class="kv-reading-head"><span>The prompt, marked as under</span>{tabs}</div>'
        f'<p class="kv-text" data-agent="{prompt.agent}">{"".join(out)}</p></div>'
    )


def _data(record: RunRecord, prompt: Prompt, lanes: list[Lane]) -> dict[str, Any]:
    """What tooltips say: token texts, spans, and per method the runs and the errors."""
    pipeline = record.request.pipeline
    return {
        "agent": prompt.agent,
        "texts": list(prompt.texts),
        "spans": [
            [s.start, s.end, words.slot_words(pipeline, s.name) if s.kind == "placeholder" else s.name]
            for s in prompt.spans
        ],
        "methods": {lane.label: _lane_data(lane) for lane in lanes},
    }


def _lane_data(lane: Lane) -> dict[str, Any]:
    runs = [
        {
            "r": [a.start, a.end],
            "action": ACTIONS[a.action] if 0 <= a.action < len(ACTIONS) else "computed",
            "source": a.source,
            "reason": a.reason,
            **({} if a.exact else {"approximate": 1}),
            **({"moved": a.moved_by} if a.moved_by else {}),
            **({"anchors": [[n, round(w, 3)] for n, w in _heaviest(a.anchors, a.weights)]} if a.anchors else {}),
        }
        for a in lane.outcome.spans
    ]
    mixed = {}
    if lane.outcome.actions.shape[0] > 1:
        differ = (lane.outcome.actions != lane.outcome.actions[0]).any(axis=0)
        for token in np.flatnonzero(differ).tolist()[:4000]:
            column = lane.outcome.actions[:, token]
            mixed[str(token)] = [int(np.count_nonzero(column == c)) for c in range(len(ACTIONS))]
    out: dict[str, Any] = {"name": lane.name, "codes": "".join(map(str, lane.codes.tolist())), "runs": runs}
    if mixed:
        out["mixed"] = mixed
    if lane.error is not None and lane.layer is not None:
        out["error"] = [round(float(e), 3) for e in lane.error]
        out["layer"] = lane.layer.tolist()
    return out


def _heaviest(anchors: tuple[int, ...], weights: tuple[float, ...], most: int = 5) -> list[tuple[int, float]]:
    pairs = list(zip(anchors, weights, strict=False)) or [(a, float("nan")) for a in anchors]
    return [(a, w if np.isfinite(w) else 0.0) for a, w in sorted(pairs, key=lambda p: -p[1])[:most]]


def _legend(lanes: list[Lane]) -> str:
    used = {int(c) for lane in lanes for c in np.unique(lane.codes)}
    items = [
        f'<span class="kv-key"><i class="kv-run kv-a-{name}" aria-hidden="true"></i>{term(name)}</span>'
        for code, name in enumerate(ACTIONS)
        if code in used or code < 3
    ]
    if any(lane.rejected.any() for lane in lanes):
        items.append(f'<span class="kv-key"><i class="kv-run kv-a-computed kv-x" aria-hidden="true"></i>{term("rejected", "rejected by the gate")}</span>')
    if any(lane.error is not None for lane in lanes):
        items.append(
            '<span class="kv-key"><svg class="kv-key-error" viewBox="0 0 4 100" preserveAspectRatio="none" aria-hidden="true">'
            f'<path d="M0 0V40h1V90h1V30h1V60h1V0z"/></svg>{term("relative error", "error of the token’s KV at its worst layer, downwards")}</span>'
        )
    return f'<p class="kv-legend">{"".join(items)}</p>'


def _finding(record: RunRecord, lanes: list[Lane]) -> str:
    found = [(float(lane.error.max()), int(lane.error.argmax()), lane) for lane in lanes if lane.error is not None]
    found = [f for f in found if f[0] > 0]
    total = len(words.prompt_of(record, lanes[0].outcome).texts)
    said = f'<span class="kv-num">{total:,}</span> tokens.'
    if found:
        error, token, lane = max(found, key=lambda f: f[0])
        text = words.prompt_of(record, lane.outcome).texts[token]
        layer = int(lane.layer[token]) if lane.layer is not None else 0
        said += (
            f" The largest error is at token {token}, {words.quoted(text)}, layer {layer}, under {escape(lane.name)}: "
            f'<span class="kv-num">{number(error, 2)}</span> of dense’s size.'
        )
    return said
