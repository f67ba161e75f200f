"""What became of the four hypotheses of segment reuse, and the numbers that decided them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from markupsafe import Markup

from backend.records.hypotheses import NEAR, HypothesesRecord
from backend.records.hypothesis_verdicts import AT_TAU, PRECISION, precision_recall, verdicts
from viz.base.figure import FigureView, Panel, empty_view, figure, hatch
from viz.base.format import number, percent, plot_text, plural
from viz.base.html import html, table
from viz.base.theme import method_styles

MARKS = {"supported": "✓", "refuted": "✗", "undecided": "?"}
LEAST_KL = 1e-8  # nats; smaller ones are drawn here, for the axis is logarithmic


def views(record: HypothesesRecord) -> tuple[FigureView | Panel, ...]:
    """The verdicts, then a figure to each."""
    return (
        verdict_panel(record),
        time_by_reuse(record),
        reuse_by_method(record),
        kl_by_setting(record),
        precision_by_tau(record),
        stability(record),
    )


def verdict_panel(record: HypothesesRecord) -> Panel:
    """Each hypothesis with its verdict and the reason."""
    rows = [
        (
            v.name,
            v.claim,
            html('<span class="kv-verdict-{}">{} {}</span>', v.word, MARKS[v.word], v.word),
            v.reason,
        )
        for v in verdicts(record)
    ]
    body = table(("", "hypothesis", "verdict", "because"), [("", rows)], row_heads=True) + Markup(
        '<p class="kv-how">A verdict is given where the whole 95% interval lies on one side of the limit, '
        "from 30 observations on. Segments behind the same beginning are exact and decide neither H2 nor "
        "H3.</p>"
    )
    return Panel("hypotheses", "Which of the plan’s hypotheses hold on this model?", body)


def _labels(record: HypothesesRecord) -> list[str]:
    known = {step.method for step in record.live}
    return [choice.label for choice in record.request.methods if choice.label in known]


def time_by_reuse(record: HypothesesRecord) -> FigureView:
    """Time to first token against dense, by the share of tokens that were copied (the plan's first
    analysis)."""
    columns = ("method", "episode", "turn", "share copied", "full read's time over its own")
    title = "Does more reuse save more time?"
    labels, styles = _labels(record), method_styles(_labels(record), _names(record))
    if len(labels) < 2:
        return empty_view("hypotheses_time", title, "No method ran beside the full read.", columns)
    dense = {(s.episode, s.turn): s.ttft_ms for s in record.live if s.method == labels[0]}
    drawing = figure(330)
    rows: list[tuple[Any, ...]] = []
    medians = []
    for label in labels[1:]:
        mine = [s for s in record.live if s.method == label and (s.episode, s.turn) in dense]
        share = [(s.exact_tokens + s.grafted_tokens) / s.prompt_tokens for s in mine]
        ratio = [dense[s.episode, s.turn] / max(1e-9, s.ttft_ms) for s in mine]
        style = styles[label]
        drawing.add_scatter(
            x=share,
            y=ratio,
            mode="markers",
            name=plot_text(style.name),
            marker={"size": 6, "color": style.colour, "symbol": style.symbol, "opacity": 0.7},
            hovertemplate="%{x:.0%} copied: %{y:.2f} times as fast<extra></extra>",
        )
        rows += [
            (label, s.episode, s.turn, round(x, 4), round(y, 4))
            for s, x, y in zip(mine, share, ratio, strict=True)
        ]
        medians.append(f"{style.name} {number(float(np.median(ratio)), 2)}" if ratio else f"{style.name} –")
    drawing.add_hline(y=1, line={"width": 1, "dash": "dot", "color": "#8b95a1"})
    drawing.update_layout(
        xaxis={"title": {"text": "share of the prompt’s tokens copied"}, "tickformat": ".0%"},
        yaxis={
            "title": {"text": "the full read’s time to first token over the method’s (log)"},
            "type": "log",
        },
    )
    finding = f"Median over turns, the full read’s time over the method’s: {', '.join(medians)}."
    how = "Each mark is a turn; above 1 the method was faster, looking up, copying and probing included."
    return FigureView("hypotheses_time", title, how, finding, drawing, columns, tuple(rows))


def _names(record: HypothesesRecord) -> dict[str, str]:
    return {choice.label: choice.name for choice in record.request.methods}


def reuse_by_method(record: HypothesesRecord) -> FigureView:
    """Tokens copied exactly and otherwise, beside what a cache of texts would have found."""
    columns = (
        "method",
        "copied, exact",
        "copied, alike",
        "repeated text (ceiling)",
        "attention skipped",
        "tokens",
    )
    title = "How much of the agent’s text repeats, and how much of it was copied?"
    labels = _labels(record)
    if not labels:
        return empty_view("hypotheses_reuse", title, "No episode was run.", columns)
    rows: list[tuple[Any, ...]] = []
    for label in labels:
        mine = [s for s in record.live if s.method == label]
        total = sum(s.prompt_tokens for s in mine)
        shares = (
            sum(s.exact_tokens for s in mine) / total,
            sum(s.grafted_tokens for s in mine) / total,
            sum(s.repeated_tokens for s in mine) / total,
            sum(s.skipped * s.prompt_tokens for s in mine) / total,
        )
        rows.append((label, *(round(x, 4) for x in shares), total))
    drawing = figure(300, barmode="group")
    for index, (name, colour, shape) in enumerate(
        zip(columns[1:5], ("#3f80cf", "#2aa391", "#8b95a1", "#b08a1a"), ("", "/", ".", "x"), strict=True)
    ):
        drawing.add_bar(
            x=[plot_text(row[0]) for row in rows],
            y=[row[1 + index] for row in rows],
            name=name,
            marker={"color": colour, "pattern": hatch(shape)},
            hovertemplate=f"{name}: %{{y:.1%}}<extra></extra>",
        )
    drawing.update_layout(
        xaxis={"title": {"text": "method"}},
        yaxis={"title": {"text": "share of prompt tokens"}, "tickformat": ".0%", "range": [0, 1]},
    )
    last = rows[-1]
    finding = (
        f"{percent(last[3], 1)} of the tokens read by {last[0]} repeat earlier text; it copied "
        f"{percent(last[1] + last[2], 1)}."
    )
    how = (
        "Repeated: in a run that an earlier prompt had too, the ceiling of any exact "
        "match. Attention skipped is "
        "the plan’s FLOP proxy (tokens × layers × heads × head size)."
    )
    return FigureView("hypotheses_reuse", title, how, finding, drawing, columns, tuple(rows))


def kl_by_setting(record: HypothesesRecord) -> FigureView:
    """KL at the ends of grafts under each setting of the grid."""
    columns = (
        "setting", "grafts", "mean KL at ends (nats)", "95th percentile", "worst KL at "
        "the prompt's end (nats)",
        "tokens grafted", "attention skipped",
    )  # fmt: skip
    title = "Which layers, halo, tau and context keep the predictions at the grafts’ ends?"
    rows: list[tuple[Any, ...]] = []
    for setting in dict.fromkeys(s.setting for s in record.pinned):
        steps = [s for s in record.pinned if s.setting == setting]
        ends = np.array([x for s in steps for x in s.boundary])
        if not ends.size:
            continue
        total = sum(s.prompt_tokens for s in steps)
        rows.append(
            (
                setting.name, ends.size, float(ends.mean()), float(np.percentile(ends, 95)),
                max(s.last for s in steps), round(sum(s.grafted_tokens for s in steps) / total, 4),
                round(sum(s.skipped * s.prompt_tokens for s in steps) / total, 4),
            )
        )  # fmt: skip
    if not rows:
        return empty_view("hypotheses_kl", title, "No graft that is not exact was made.", columns)
    drawing = figure(120 + 26 * len(rows), margin={"l": 300})
    for column, name, symbol in ((2, "mean", "circle"), (3, "95th percentile", "line-ns-open")):
        drawing.add_scatter(
            x=[max(LEAST_KL, row[column]) for row in rows],
            y=[plot_text(row[0]) for row in rows],
            mode="markers",
            name=name,
            marker={"size": 9, "color": "#2aa391", "symbol": symbol, "line": {"width": 2}},
            hovertemplate=f"{name}: %{{x:.3g}} nats<extra></extra>",
        )
    drawing.add_vline(x=NEAR, line={"width": 1, "dash": "dash", "color": "#dd7a28"})
    drawing.update_layout(
        xaxis={"title": {"text": "KL(full read || grafted), nats (log)"}, "type": "log"},
        yaxis={"title": {"text": "setting"}, "autorange": "reversed"},
    )
    under = sum(row[2] < NEAR for row in rows)
    finding = f"The mean is below 0.1 nats under {under} of {plural(len(rows), 'setting')}."
    how = (
        "Left is better; the dashed line is the plan’s limit. Stores hold what the full read "
        "computed, and the first row is "
        "the base that the others vary."
    )
    return FigureView("hypotheses_kl", title, how, finding, drawing, columns, tuple(rows))


def precision_by_tau(record: HypothesesRecord) -> FigureView:
    """Precision and recall of what is alike from a threshold on."""
    columns = ("tau", "precision", "recall", "segments found")
    title = "Is a segment that looks alike also reusable?"
    found = precision_recall(record)
    if not found or not found[0][3]:
        return empty_view(
            "hypotheses_precision", title, "Nothing alike behind another beginning was found.", columns
        )
    rows = tuple((t, *("" if math.isnan(x) else round(x, 4) for x in (p, r)), n) for t, p, r, n in found)
    drawing = figure(310)
    for index, (name, colour, dash) in enumerate(
        (("precision", "#3f80cf", "solid"), ("recall", "#dd7a28", "dash"))
    ):
        drawing.add_scatter(
            x=[row[0] for row in found],
            y=[row[1 + index] for row in found],
            customdata=[row[3] for row in found],
            mode="lines+markers",
            name=name,
            line={"color": colour, "dash": dash, "width": 2},
            hovertemplate=f"tau %{{x}}: {name} %{{y:.0%}} of %{{customdata}} found<extra></extra>",
        )
    drawing.add_hline(y=PRECISION, line={"width": 1, "dash": "dot", "color": "#8b95a1"})
    drawing.update_layout(
        xaxis={"title": {"text": "tau (Jaccard similarity of the shingles)"}},
        yaxis={"title": {"text": "share of segments"}, "tickformat": ".0%", "range": [0, 1.05]},
    )
    at = next(row for row in found if math.isclose(row[0], AT_TAU))
    said = f"{at[1]:.0%} of {at[3]}" if at[3] else "none"
    finding = f"At tau {AT_TAU}, {said} found segments are reusable."
    how = (
        "Reusable: grafting it alone moves the next token’s distribution by less than "
        "0.1 nats. The dotted line is "
        "the 70% of H3; recall is among what is alike from 0.5 on."
    )
    return FigureView("hypotheses_precision", title, how, finding, drawing, columns, rows)


def stability(record: HypothesesRecord) -> FigureView:
    """How far five runs with sampling are apart."""
    columns = ("method", "episodes", "mean edit distance (share of tokens)", "mean token entropy (nats)")
    title = "Does reuse make the agent’s answers steadier?"
    labels = [x for x in _labels(record) if any(r.method == x for r in record.reruns)]
    if not labels:
        return empty_view("hypotheses_stability", title, "No episode was run five times.", columns)
    rows = []
    for label in labels:
        mine = [r for r in record.reruns if r.method == label]
        apart, spread = (float(np.mean([getattr(r, name) for r in mine])) for name in ("distance", "entropy"))
        rows.append((label, len(mine), round(apart, 4), round(spread, 4)))
    drawing = figure(290, barmode="group")
    for index, (name, colour, shape) in enumerate(
        (("edit distance", "#3f80cf", ""), ("token entropy", "#b08a1a", "/"))
    ):
        drawing.add_bar(
            x=[plot_text(row[0]) for row in rows],
            y=[row[2 + index] for row in rows],
            name=name,
            marker={"color": colour, "pattern": hatch(shape)},
            hovertemplate=f"{name}: %{{y:.3f}}<extra></extra>",
        )
    drawing.update_layout(
        xaxis={"title": {"text": "method"}},
        yaxis={"title": {"text": "share of tokens; nats"}, "rangemode": "tozero"},
    )
    first, last = rows[0], rows[-1]
    finding = (
        f"Five runs of an episode are {number(first[2], 2)} apart under {first[0]}, "
        f"{number(last[2], 2)} under {last[0]}."
    )
    how = (
        "Temperature 0.2, top-p 0.95, five seeds, the same for every method; 0 means "
        "that all five are the same."
    )
    return FigureView("hypotheses_stability", title, how, finding, drawing, columns, tuple(rows))
