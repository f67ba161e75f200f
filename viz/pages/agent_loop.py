"""An agent loop over episodes: what was reused, how long a step took, whether the task succeeded, and how
near each method stayed to dense."""

from collections.abc import Callable
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from backend.base.text import boundary_words, replication
from backend.records.agent_loop import LoopLine, LoopRecord, summary
from backend.records.run import PROVENANCE
from viz.base.figure import FigureView, empty_view, figure, hatch, interval
from viz.base.format import listing, milliseconds, number, percent, plot_text, plural, rounded
from viz.base.theme import ACTION_COLOURS, MethodStyle, method_styles

NEAR = 0.1  # nats; under it a reused segment counts as reusable
LEAST_KL = 1e-9  # drawn for anything smaller, for the log axis
#: Provenance word -> (figure colour, pattern): colour is never alone.
PROVENANCE_LOOKS: dict[str, tuple[str, str]] = {
    "exact local": (ACTION_COLOURS[1], ""),
    "exact external": ("#7fb2e6", "."),
    "semantic": (ACTION_COLOURS[2], "/"),
    "rejected": ("#8a6fdc", "x"),
    "fallback": (ACTION_COLOURS[3], "\\"),
    "computed": (ACTION_COLOURS[0], ""),
}
Column = NDArray[np.float64]
MODES = {"pinned": "pinned", "free": "free-running"}


def views(record: LoopRecord) -> tuple[FigureView, ...]:
    """All figures of the loop."""
    return (
        reused_by_turn(record),
        provenance(record),
        latency_by_turn(record),
        success(record),
        kl_by_turn(record),
    )


def looks(record: LoopRecord) -> dict[str, MethodStyle]:
    """The look of every method, by label."""
    return method_styles(record.labels, {m.label: m.name for m in record.request.methods})


def _first_mode(record: LoopRecord) -> str:
    """Pinned if it was run, since there all methods read the same prompts."""
    return next(m for m in ("pinned", "free") if m in record.request.modes)


def _lines(record: LoopRecord, mode: str) -> list[LoopLine]:
    return [line for line in summary(record) if line.mode == mode]


def _by_turn(
    drawing: go.Figure,
    record: LoopRecord,
    mode: str,
    column: Column,
    middle: Callable[[Column], float],
    least: float = 0.0,
) -> list[tuple[Any, ...]]:
    """A line per method over turns with the middle half of the episodes; returns the table's rows."""
    rows: list[tuple[Any, ...]] = []
    for label, look in looks(record).items():
        own_rows = record.rows(mode, label) & ~np.isnan(column)
        turns = np.unique(record.turn[own_rows])
        if not len(turns):
            continue
        groups = [np.maximum(column[own_rows & (record.turn == t)], least) for t in turns]
        y = [middle(g) for g in groups]
        low, high = ([float(np.percentile(g, q)) for g in groups] for q in (25, 75))
        drawing.add_scatter(
            x=turns, y=y, mode="lines+markers", name=plot_text(look.name),
            line={"color": look.colour, "width": 2, "dash": look.dash},
            marker={"symbol": look.symbol, "size": 7},
            error_y=interval(y, low, high),
            hovertemplate=f"{plot_text(look.name)}<br>turn %{{x}}: %{{y:.4g}}<extra></extra>",
        )  # fmt: skip
        rows += [
            (mode, label, int(t), len(g), *(round(float(v), 6) for v in (m, a, b)))
            for t, g, m, a, b in zip(turns, groups, y, low, high, strict=True)
        ]
    drawing.update_layout(xaxis={"title": "turn of the episode", "dtick": 1})
    return rows


def reused_by_turn(record: LoopRecord) -> FigureView:
    """Tokens taken from a cache by turn, beside the prompt's length."""
    mode, title = _first_mode(record), "How much of each turn’s prompt came from a cache?"
    columns = ("mode", "method", "turn", "episodes", "mean (tokens)", "lower quartile", "upper quartile")
    drawing = figure(320)
    rows = _by_turn(drawing, record, mode, record.reused_tokens.astype(float), lambda g: float(g.mean()))
    if not rows:
        return empty_view("loop_reused", title, "No turn was run.", columns)
    dense = record.rows(mode, record.labels[0])
    turns = np.unique(record.turn[dense])
    length = [float(record.prompt_tokens[dense & (record.turn == t)].mean()) for t in turns]
    drawing.add_scatter(
        x=turns, y=length, mode="lines", name="the whole prompt",
        line={"color": "#8b95a1", "width": 1.5, "dash": "dot"},
        hovertemplate="turn %{x}: %{y:.0f} tokens in the prompt<extra></extra>",
    )  # fmt: skip
    drawing.update_layout(yaxis={"title": "tokens taken from a cache", "rangemode": "tozero"})
    rows += [(mode, "the whole prompt", int(t), int((record.turn[dense] == t).sum()), round(n, 3), "", "")
             for t, n in zip(turns, length, strict=True)]  # fmt: skip
    shares = [f"{looks(record)[x.method].name} {percent(x.reused, 1)}" for x in _lines(record, mode)[1:]]
    finding = (
        f"Over {_episodes(record)}, of all prompt tokens: {listing(shares)}."
        if shares
        else "Only the full read was run."
    )
    how = (
        "Means over the episodes, bars the middle half. The dotted line is the prompt: everything so far. "
        "For the prefix cache the share is its hit rate."
    )
    return FigureView("loop_reused", title, how, finding, drawing, columns, tuple(rows))


def latency_by_turn(record: LoopRecord) -> FigureView:
    """Time to first token by turn."""
    mode, title = _first_mode(record), "Was the next step faster?"
    columns = ("mode", "method", "turn", "episodes", "median (ms)", "lower quartile", "upper quartile")
    drawing = figure(320)
    rows = _by_turn(drawing, record, mode, record.ttft_ms, lambda g: float(np.median(g)))
    if not rows:
        return empty_view("loop_latency", title, "No turn was run.", columns)
    drawing.update_layout(yaxis={"title": "time to first token (ms)", "rangemode": "tozero"})
    dense = _lines(record, mode)[0]
    sentences = [
        f"{looks(record)[x.method].name} {milliseconds(x.ttft_ms)} ({number(x.ratio, 2)}× as fast)"
        for x in _lines(record, mode)[1:]
    ]
    others = f"; {listing(sentences)}" if sentences else ""
    finding = f"Median step: the full read {milliseconds(dense.ttft_ms)}{others}."
    how = (
        "Medians over the episodes, bars the middle half; matching, correction and the last token’s forward "
        "included. How many times as fast: the median over turns of the full read’s time divided by the "
        "method’s."
    )
    return FigureView("loop_latency", title, how, finding, drawing, columns, tuple(rows))


def success(record: LoopRecord) -> FigureView:
    """Episodes that ended with the right answer, with 95% intervals."""
    title = "Did the agent still get there?"
    columns = (
        "mode",
        "method",
        "right",
        "episodes",
        "share",
        "95% from",
        "95% to",
        "behind the full read",
        "from",
        "to",
    )
    lines = [line for line in summary(record) if line.known]
    if not lines:
        return empty_view("loop_success", title, "No episode has a known answer.", columns)
    styles, drawing = looks(record), figure(90 + 26 * len(lines))
    for mode in dict.fromkeys(x.mode for x in lines):
        lines_of_mode = [x for x in lines if x.mode == mode]
        share = np.array([x.right / x.known for x in lines_of_mode])
        drawing.add_scatter(
            x=share,
            y=[plot_text(f"{styles[x.method].name}, {MODES[mode]}") for x in lines_of_mode],
            mode="markers", name=MODES[mode], showlegend=False,
            marker={
                "color": [styles[x.method].colour for x in lines_of_mode], "size": 9,
                "symbol": "circle" if mode == "pinned" else "diamond",
            },
            error_x=interval(
                share, [x.right_low for x in lines_of_mode], [x.right_high for x in lines_of_mode]
            ),
            hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "episodes that ended right", "range": [-0.02, 1.02], "tickformat": ".0%"},
        yaxis={"autorange": "reversed"}, margin={"l": 190},
    )  # fmt: skip
    rows = tuple(
        (x.mode, x.method, x.right, x.known,
         *rounded(x.right / x.known, x.right_low, x.right_high, *x.behind, digits=4))
        for x in lines
    )  # fmt: skip
    last = lines[-1].mode
    counts = [f"{styles[x.method].name} {x.right} of {x.known}" for x in lines if x.mode == last]
    finding = f"{MODES[last].capitalize()}: {listing(counts)}."
    how = (
        "An episode is right when it ends with finish[...] and the known answer. Pinned, only the last turn "
        "is a method’s own. Bars are 95% intervals, each by itself; those of “behind the full read” (in the "
        "data) hold together for all methods and modes (Bonferroni). "
        + " ".join(
            filter(
                None,
                (
                    replication(record.request.stores, "store", "episodes"),
                    boundary_words(record.boundary_tax),
                ),
            )
        )
    )
    return FigureView("loop_success", title, how, finding, drawing, columns, rows)


def kl_by_turn(record: LoopRecord) -> FigureView:
    """KL from dense along each turn. Its first token alone says little: the format fixes it."""
    title = "How far from the full read is each turn?"
    columns = ("mode", "method", "turn", "episodes", "median KL (nats)", "lower quartile", "upper quartile")
    if "pinned" not in record.request.modes:
        return empty_view(
            "loop_kl", title, "Defined only where every method reads the same texts (pinned).", columns
        )
    drawing = figure(320)
    column = np.where(record.method == 0, np.nan, record.kl_mean)  # dense against itself is left out
    rows = _by_turn(drawing, record, "pinned", column, lambda g: float(np.median(g)), LEAST_KL)
    if not rows:
        return empty_view("loop_kl", title, "No turn of a method beside the full read was run.", columns)
    drawing.add_hline(y=NEAR, line={"width": 1.2, "dash": "dash", "color": "#8b95a1"})
    drawing.update_layout(yaxis={"title": "KL (nats, log scale)", "type": "log", "exponentformat": "power"})
    shares = [
        f"{looks(record)[x.method].name} {percent(x.near, 1)}"
        for x in _lines(record, "pinned")[1:]
        if x.near == x.near
    ]
    finding = f"Turns under {NEAR} nats: {listing(shares)}."
    how = (
        "Mean KL between the full read and the method along the full read’s text of the turn, on the same "
        f"prompt: medians over the episodes, bars the middle half. The dashed line is {NEAR} nats; what is "
        f"under {LEAST_KL:g} is drawn there."
    )
    return FigureView("loop_kl", title, how, finding, drawing, columns, tuple(rows))


def provenance(record: LoopRecord) -> FigureView:
    """Where the prompts' tokens came from, in the words of serving systems."""
    mode, title = _first_mode(record), "Where did the prompts’ tokens come from?"
    columns = ("mode", "method", "provenance", "share of prompt tokens")
    lines, styles = _lines(record, mode), looks(record)
    if not lines:
        return empty_view("loop_provenance", title, "No turn was run.", columns)
    names = [plot_text(styles[x.method].name) for x in lines]
    drawing = figure(100 + 26 * len(lines), barmode="stack", margin={"l": 130, "t": 46})
    for index, word in enumerate(PROVENANCE):
        colour, pattern = PROVENANCE_LOOKS[word]
        drawing.add_bar(
            x=[x.provenance[index] for x in lines], y=names, orientation="h", name=word,
            marker={"color": colour, "line": {"width": 0}, "pattern": hatch(pattern)},
            hovertemplate=f"%{{y}}: %{{x:.1%}} {word}<extra></extra>",
        )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "share of prompt tokens", "range": [0, 1], "tickformat": ".0%"},
        yaxis={"autorange": "reversed"},
    )
    rows = tuple(
        (mode, x.method, word, round(x.provenance[i], 6)) for x in lines for i, word in enumerate(PROVENANCE)
    )

    def share(line: LoopLine, *kinds: str) -> float:
        return sum(line.provenance[PROVENANCE.index(kind)] for kind in kinds)

    least = min(lines, key=lambda x: share(x, "computed", "rejected", "fallback"))
    finding = (
        f"{styles[least.method].name} had the fewest tokens read; "
        f"{percent(share(least, 'exact local', 'exact external'), 1)} of its prompts’ tokens were copies "
        "that are exact."
    )
    how = (
        "Exact: what the full read would compute, from this agent’s earlier prompts (local) or from "
        "elsewhere (external). Semantic: a copy from another context. Rejected: found, not taken. Fallback: "
        "read after all."
    )
    return FigureView("loop_provenance", title, how, finding, drawing, columns, rows)


def _episodes(record: LoopRecord) -> str:
    return plural(len(record.questions), "episode")
