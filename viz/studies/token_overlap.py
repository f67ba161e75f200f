"""Would two models keep the same tokens of the candidates? (Judge study, Fig. 5)"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.records.token_overlap import OBSERVERS, TokenOverlap
from viz.base import format as words
from viz.base.figure import FigureView, colour_bar, figure, interval, pool_columns
from viz.base.format import GAP, number, plot_text, plural
from viz.base.theme import MAGNITUDE, METHOD_COLOURS, OUTLINE_COLOUR


def views(record: TokenOverlap) -> tuple[FigureView, ...]:
    """Both figures."""
    return overlap_by_budget(record), scores_of_tokens(record)


def overlap_by_budget(record: TokenOverlap) -> FigureView:
    """Jaccard similarity of the kept sets by budget: mean over prompts and its 95% interval."""
    title = "Do the two models keep the same tokens of the candidates?"
    columns = (
        "kept by the attention of", "budget (share of tokens)", "kept (tokens, mean)", "Jaccard (mean)",
        "95% from", "95% to", "Jaccard by chance",
    )  # fmt: skip
    prompts = len(record.tokens)
    budgets, chance = np.array(record.request.budgets), record.chance.mean(axis=0)
    drawing = figure(340)
    rows: list[tuple[Any, ...]] = []
    for index, (name, shown) in enumerate(OBSERVERS.items()):
        values = record.jaccard[index]
        mean = values.mean(axis=0)
        low, high = _interval(values)
        drawing.add_scatter(
            x=100 * budgets,
            y=mean,
            error_y=interval(mean - low, high - mean),
            mode="lines+markers",
            name=shown,
            line={"color": METHOD_COLOURS[(1, 6)[index]], "width": 2, "dash": ("solid", "dash")[index]},
            marker={"size": 7, "symbol": ("circle", "diamond")[index]},
            hovertemplate=f"{shown}<br>%{{x}} % kept: %{{y:.3f}}<extra></extra>",
        )  # fmt: skip
        table = zip(budgets, record.kept.mean(axis=0), mean, low, high, chance, strict=True)
        rows += [
            (name, float(b), round(float(k), 2), *("" if np.isnan(v) else round(float(v), 6) for v in found))
            for b, k, *found in table
        ]
    drawing.add_scatter(
        x=100 * budgets,
        y=chance,
        mode="lines",
        name="two random sets",
        line={"color": OUTLINE_COLOUR, "width": 2, "dash": "dot"},
        hovertemplate="by chance<br>%{x} % kept: %{y:.3f}<extra></extra>",
    )
    drawing.update_layout(
        xaxis={"title": {"text": "tokens of the candidates that are kept (%)"}, "range": [0, 102]},
        yaxis={"title": {"text": "Jaccard similarity of the two sets"}, "range": [0, 1.03]},
    )
    at = int(np.abs(budgets - 0.2).argmin())
    found = [
        f"{number(float(record.jaccard[i, :, at].mean()), 2)} ({shown})"
        for i, shown in enumerate(OBSERVERS.values())
    ]
    finding = (
        f"At {100 * budgets[at]:g}{GAP}% kept, {record.model.name} and {record.other.name} share "
        f"{words.listing(found)}; two random sets would share {number(float(chance[at]), 2)}."
    )
    how = (
        f"1 means the same tokens. Means over {plural(prompts, 'prompt')} with 95% intervals; overlap above "
        "the dotted line is more than chance, which alone reaches 1 when everything is kept."
    )
    return FigureView("overlap_by_budget", title, how, finding, drawing, columns, tuple(rows))


def _interval(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """95% interval of the means over rows (normal); NaN for a single row."""
    if len(values) < 2:
        return np.full(values.shape[1], np.nan), np.full(values.shape[1], np.nan)
    mean, half = values.mean(axis=0), 1.96 * values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)


def scores_of_tokens(record: TokenOverlap) -> FigureView:
    """Each candidate token's score under both models, as ranks, for the first prompt."""
    title = "Which tokens of the candidates does each model look back at?"
    columns = (
        "kept by the attention of",
        "model",
        "token",
        "slot",
        "text",
        "attention received (share)",
        "rank (%)",
    )
    names = (record.model.name, record.other.name)
    if names[0] == names[1]:
        names = (names[0], f"{names[1]} (other)")
    count = len(record.texts)
    order = record.scores.argsort(axis=-1).argsort(axis=-1)
    ranks = (100 * order / max(1, count - 1)).astype(np.float32)
    bars = [f"{names[m]}, {shown}" for shown in OBSERVERS.values() for m in range(2)]
    flat, starts, width = pool_columns(ranks.reshape(len(bars), count))
    named = [plot_text(words.token_name(record.texts[i])) for i in starts]
    drawing = figure(250, margin={"t": 20, "r": 8, "l": 8})
    drawing.add_heatmap(
        z=flat,
        x=starts.astype(np.int32),
        y=[plot_text(b) for b in bars],
        text=[named] * len(bars),
        colorscale=MAGNITUDE,
        zmin=0,
        zmax=100,
        colorbar=colour_bar("rank (%)"),
        hovertemplate="%{y}<br>candidate token %{x} (%{text}): rank %{z:.0f} %<extra></extra>",
    )
    for edge in np.flatnonzero(np.diff(record.slot)) + 0.5:
        drawing.add_vline(x=float(edge), line={"color": "#ffffff", "width": 1, "dash": "dot"})
    drawing.update_layout(
        xaxis={"title": {"text": "token of the candidates, one after the other"}, "showgrid": False},
        yaxis={"autorange": "reversed", "showgrid": False},
    )
    rows = tuple(
        (observer, names[m], int(record.places[i]), int(record.slot[i]), words.token_name(record.texts[i]),
         round(float(record.scores[o, m, i]), 8), round(float(ranks[o, m, i]), 2))
        for o, observer in enumerate(OBSERVERS) for m in range(2) for i in range(count)
    )  # fmt: skip
    rho = [float(np.nanmean(r)) if np.isfinite(r).any() else float("nan") for r in record.correlation]
    told = [f"{number(r, 2)} ({shown})" for r, shown in zip(rho, OBSERVERS.values(), strict=True)]
    finding = (
        f"Over {plural(len(record.tokens), 'prompt')}, Spearman’s rho of the two models’ scores is "
        f"{words.listing(told)}."
    )
    pooled = f" A column is the highest of {width} tokens." if width > 1 else ""
    how = (
        "The first prompt. Bright tokens receive the most attention and are kept first; where two "
        "neighbouring rows of one kind look alike, the models agree. Dotted lines part the candidates."
        + pooled
    )
    return FigureView("overlap_scores", title, how, finding, drawing, columns, rows)
