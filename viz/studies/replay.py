"""What other settings would have done with past requests: reuse, answers and texts of a replay.

The trade-off is that of KVCOMM's Tables 5 and 6, the texts side by side those of its Fig. A.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from backend.base.statistics import wilson
from backend.records.replay import PastRequest, Replay, Replayed
from viz.base.figure import FigureView, Panel, figure, interval
from viz.base.format import GAP, agent_name, clip, listing, percent, plot_text, plural
from viz.base.html import html, joined, render, table
from viz.base.subplots import two_panels
from viz.base.textdiff import diff_html
from viz.base.theme import (
    ACTION_COLOURS,
    METHOD_COLOURS,
    OUTLINE_COLOUR,
    SLOT_COLOURS,
    MethodStyle,
    method_styles,
)
from viz.run.comparison import grid

#: What became of a final answer: (words, mark, colour). The first two are dense's answers.
FATES = (
    ("as the full read: nothing was shared", "·", ACTION_COLOURS[0]),
    ("as the full read, from copies", "=", SLOT_COLOURS[4]),
    ("another answer", "≠", SLOT_COLOURS[0]),
    ("right became wrong", "✗", METHOD_COLOURS[1]),
    ("wrong became right", "✓", METHOD_COLOURS[4]),
)
MOST_MARKS = 60  # columns that have room for a mark


@dataclass(frozen=True)
class Tally:
    """One method over all replayed requests. ``same`` and ``right``: final answers; ``known``: requests with
    a known answer; the rest over all agents."""

    label: str
    requests: int
    same: int
    right: int
    known: int
    blocks: int
    reused_blocks: int
    tokens: int
    reused_tokens: int
    forwarded: int

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the share of same answers (Wilson); rounding may leave it by a hair."""
        low, high = wilson(self.same, self.requests)
        return max(0.0, low), min(1.0, high)


def views(record: Replay, chosen: int | None = None) -> tuple[FigureView | Panel, ...]:
    """Counts by method, what reuse cost, which answers changed, and one request's texts."""
    request = valid_request(record, chosen)
    return (counts(record), trade_off(record), fates(record), texts(record, request))


def valid_request(record: Replay, wish: int | None) -> int:
    """A request that this record can show: the wished one, else the latest whose answer changed, else the
    latest."""
    numbers = [asked.number for asked in record.requests]
    if wish in numbers:
        return int(wish or 0)
    changed = [row.request for row in finals(record) if not row.as_dense]
    return changed[-1] if changed else numbers[-1]


def styles(record: Replay) -> dict[str, MethodStyle]:
    """The look of every method, by label."""
    return method_styles(record.labels, {m.label: m.name for m in record.request.methods})


def finals(record: Replay) -> list[Replayed]:
    """The rows of the agent whose answer is the pipeline's."""
    return [row for row in record.rows if row.agent == record.request.pipeline.final]


def tallies(record: Replay) -> tuple[Tally, ...]:
    """Counts of every method, dense first."""
    out = []
    for label in record.labels:
        rows = [row for row in record.rows if row.method == label]
        last = [row for row in finals(record) if row.method == label]
        known = [row for row in last if row.correct is not None]
        out.append(
            Tally(
                label, len(last), sum(row.as_dense for row in last), sum(bool(row.correct) for row in known),
                len(known), sum(row.blocks for row in rows), sum(row.reused_blocks for row in rows),
                sum(row.prompt_tokens for row in rows), sum(row.reused_tokens for row in rows),
                sum(row.forwarded_tokens for row in rows),
            )
        )  # fmt: skip
    return tuple(out)


def counts(record: Replay) -> Panel:
    """One line per method."""
    looks = styles(record)
    rows = []
    for index, tally in enumerate(tallies(record)):
        low, high = (f"{100 * x:.0f}" for x in tally.interval)
        same = f"{tally.same} of {tally.requests}"
        rows.append(
            (
                looks[tally.label].name,
                percent(tally.reused_blocks, tally.blocks),
                percent(tally.reused_tokens, tally.tokens),
                html('{} <span class="kv-note">{} to {}{}%</span>', same, low, high, GAP)
                if index
                else "the reference",
                f"{tally.right} of {tally.known}" if tally.known else "not known",
                f"{tally.tokens - tally.reused_tokens:,}",
                f"{tally.forwarded:,}" if index else "remembered",
            )
        )
    heads = (
        "method", "shared texts copied", "prompt tokens copied", "final answer as full read (95%)",
        "final answer right", "prompt tokens it reads", "of these read by the replay",
    )  # fmt: skip
    how = (
        "Pinned: every method read the texts that the full read wrote. A method that shares nothing at an "
        "agent answers as the full read there by definition, so the replay reads nothing for it. Intervals "
        "are Wilson’s."
    )
    notes = joined(html('<p class="kv-how">{}</p>', note) for note in (how, *record.notes))
    return Panel("replay_counts", "What would these settings have done?", table(heads, [("", rows)]) + notes)


def trade_off(record: Replay) -> FigureView:
    """How much every method copies, beside the share of final answers that stay dense's (Tables 5 and 6)."""
    looks, every = styles(record), tallies(record)
    others = every[1:]
    drawing = figure(120 + 30 * len(others))
    two_panels(drawing, ("Prompt tokens copied", "Final answers as the full read"))
    names = [plot_text(clip(looks[tally.label].name, 34)) for tally in others]
    colours = [looks[tally.label].colour for tally in others]
    copied = [100 * tally.reused_tokens / max(1, tally.tokens) for tally in others]
    same = [100 * tally.same / max(1, tally.requests) for tally in others]
    spans = [tally.interval for tally in others]
    error = interval(
        [share - 100 * low for share, (low, _) in zip(same, spans, strict=True)],
        [100 * high - share for share, (_, high) in zip(same, spans, strict=True)],
        color=OUTLINE_COLOUR,
    )
    for axis, values, bars in (("", copied, None), ("2", same, error)):
        drawing.add_scatter(
            x=values,
            y=names,
            error_x=bars,
            mode="markers",
            marker={"size": 10, "symbol": [looks[t.label].symbol for t in others], "color": colours},
            showlegend=False,
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            hovertemplate="%{y}: %{x:.0f} %<extra></extra>",
        )
    scale = {"title": "share (%)", "range": [-3, 103]}
    drawing.update_layout(xaxis=scale, xaxis2=scale, yaxis={"autorange": "reversed", "ticks": ""})
    most = max(others, key=lambda tally: (tally.reused_tokens, tally.same))
    finding = (
        f"{looks[most.label].name} copies most, {percent(most.reused_tokens, most.tokens)} of the prompt "
        f"tokens, and keeps the full read’s answer in {most.same} of {plural(most.requests, 'request')}."
    )
    how = (
        "Left: how much of all prompts is copied. Right: how many final answers stay the full read’s; bars "
        f"are 95% intervals over {plural(len(record.requests), 'request')}; a difference inside them may be "
        "chance."
    )
    columns = (
        "method", "requests", "final answers as the full read", "95% from (share)", "95% to (share)",
        "final answers right", "with known answer", "shared texts", "shared texts copied", "prompt tokens",
        "prompt tokens copied", "prompt tokens read by the replay",
    )  # fmt: skip
    rows = tuple(
        (
            looks[tally.label].name, tally.requests, tally.same, *(round(x, 4) for x in tally.interval),
            tally.right, tally.known, tally.blocks, tally.reused_blocks, tally.tokens, tally.reused_tokens,
            tally.forwarded,
        )
        for tally in every
    )  # fmt: skip
    title = "What does more reuse cost?"
    return FigureView("replay_trade_off", title, how, finding, drawing, columns, rows)


def fate(row: Replayed, dense: Replayed, shared: bool) -> int:
    """What became of a final answer: an index of ``FATES``. ``shared``: its agent copied something."""
    if row.as_dense:
        return 1 if shared else 0
    if row.correct is None or row.correct == dense.correct:
        return 2
    return 4 if row.correct else 3


def fates(record: Replay) -> FigureView:
    """Which final answers change, request by request."""
    looks, labels = styles(record), record.labels[1:]
    numbers = [asked.number for asked in record.requests]
    last = {(row.request, row.method): row for row in finals(record)}
    dense = record.labels[0]
    codes = np.array([
        [fate(last[n, m], last[n, dense], last[n, m].reused_tokens > 0) for n in numbers] for m in labels
    ])  # fmt: skip
    drawing = figure(110 + 34 * len(labels))
    hover = [
        [f"request {n}, {plot_text(looks[m].name)}<br>{FATES[codes[i, j]][0]}" for j, n in enumerate(numbers)]
        for i, m in enumerate(labels)
    ]
    steps = [(edge / len(FATES), f[2]) for place, f in enumerate(FATES) for edge in (place, place + 1)]
    drawing.add_heatmap(
        x=numbers,
        y=[plot_text(clip(looks[m].name, 34)) for m in labels],
        z=codes,
        zmin=-0.5,
        zmax=len(FATES) - 0.5,
        colorscale=steps,
        showscale=False,
        xgap=1,
        ygap=2,
        text=[[FATES[code][1] for code in row] for row in codes],
        texttemplate="<b>%{text}</b>" if len(numbers) <= MOST_MARKS else None,
        textfont={"color": "#ffffff", "size": 13},
        customdata=hover,
        hovertemplate="%{customdata}<extra></extra>",
    )
    for words, mark, colour in FATES:
        drawing.add_scatter(
            x=[None], y=[None], mode="markers", name=f"{mark} {words}",
            marker={"symbol": "square", "size": 10, "color": colour}, hoverinfo="skip",
        )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "request, in the order in which they were sent", "showgrid": False,
               "dtick": 1 if len(numbers) <= 30 else None, "range": [numbers[0] - 0.5, numbers[-1] + 0.5]},
        yaxis={"autorange": "reversed", "showgrid": False, "ticks": ""},
        legend={"y": 1.06, "bgcolor": "rgba(0,0,0,0)", "bordercolor": OUTLINE_COLOUR},
    )  # fmt: skip
    changed = [
        f"{looks[m].name} {int((codes[i] > 1).sum())}" for i, m in enumerate(labels) if (codes[i] > 1).any()
    ]
    finding = (
        f"Final answers that differ from the full read’s, of {len(numbers)}: {listing(changed)}."
        if changed
        else f"No method changes a final answer of these {plural(len(numbers), 'request')}."
    )
    how = "One column per request, one row per method, at the last agent. Click one to read its texts below."
    columns = (
        "request", "agent", "method", "state", "answer", "as the full read", "right", "shared texts",
        "shared texts copied", "prompt tokens", "prompt tokens copied", "gate", "reason", "text",
    )  # fmt: skip
    title = "Which answers change?"
    rows = tuple(_line(record, row, looks[row.method].name) for row in record.rows)
    return FigureView("replay_fates", title, how, finding, drawing, columns, rows)


def _line(record: Replay, row: Replayed, name: str) -> tuple[Any, ...]:
    """A row of the table: everything that is known of one agent under one method."""
    gate = "; ".join(f"{g.placeholder} {'shared' if g.shareable else g.rule}" for g in row.gate)
    return (
        row.request, agent_name(record.request.pipeline, row.agent), name, row.state, row.answer,
        row.as_dense, row.correct, row.blocks, row.reused_blocks, row.prompt_tokens, row.reused_tokens, gate,
        row.reason, row.text,
    )  # fmt: skip


def texts(record: Replay, chosen: int) -> Panel:
    """Every agent's text of one request under every method, differences from dense marked (Fig. A.2)."""
    looks, dense = styles(record), record.labels[0]
    rows = {(row.agent, row.method): row for row in record.rows if row.request == chosen}

    def cell(agent: int, label: str) -> Markup:
        return _cell(record, rows[agent, label], rows[agent, dense])

    heads = [_summary([rows[a, m] for a in record.agents], m == dense) for m in record.labels]
    body = grid(record.request.pipeline, record.agents, record.labels, looks, heads, cell)
    asked = next(asked for asked in record.requests if asked.number == chosen)
    body = html('<p class="kv-finding">{}</p>', clip(question(asked), 240)) + body
    return Panel("replay_texts", f"What did the agents write at request {chosen}?", body)


def question(request: PastRequest) -> str:
    """What a past request asked, in one text."""
    joined_values = " · ".join(text for text in request.values.values() if text.strip())
    return joined_values + (f" Known answer: {request.expected}" if request.expected is not None else "")


def _summary(rows: Sequence[Replayed], reference: bool) -> str:
    if reference:
        return "the reference, as remembered"
    whole, copied = sum(row.prompt_tokens for row in rows), sum(row.reused_tokens for row in rows)
    blocks = f"{sum(row.reused_blocks for row in rows)} of {sum(row.blocks for row in rows)}"
    return f"{percent(copied, whole)} of tokens and {blocks} shared texts copied"


def _cell(record: Replay, row: Replayed, dense: Replayed) -> Markup:
    same = row.texts == dense.texts
    return render(
        "studies/replay_cell.html",
        record=record,
        outcome=row,
        text="".join(row.texts) if same else diff_html(dense.texts, row.texts),
        changed=not row.as_dense,
        quiet_same=same and row is not dense,
    )
