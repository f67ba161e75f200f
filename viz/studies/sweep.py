"""A sweep's lines: every method in every cell, with intervals, and how they compare with dense and others."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby

from markupsafe import Markup

from backend.base.statistics import Share
from backend.base.text import boundary_words, replication
from backend.records.sweep import Comparison, SweepLine, Swept
from viz.base.figure import FigureView, Panel, figure, share_bars
from viz.base.format import clip, number, percent, plot_text, plural
from viz.base.html import html, joined, table
from viz.base.theme import MethodStyle, method_styles

MOST_CELLS = 24  # in a figure; the table and the files have all of them
SURE = 0.05
LABEL = 44  # characters of a cell's name in a figure


def views(swept: Swept) -> tuple[FigureView | Panel, ...]:
    """Right answers or scores, answers as dense, tokens from a cache, the first token, the table, and
    comparisons with other baselines than dense."""
    any_accuracy = any(line.accuracy.of for line in swept.lines)
    figures: tuple[FigureView | Panel, ...] = (
        *([right(swept)] if any_accuracy or not swept.graded else []),
        *([score(swept)] if swept.graded else []),
        as_dense(swept),
        cached(swept),
        sooner(swept),
        Panel("sweep_table", TABLE, table_html(swept)),
    )
    comparisons = others_html(swept)
    return (*figures, Panel("sweep_between", BETWEEN, comparisons)) if comparisons else figures


TABLE = "Every method in every cell"
BETWEEN = "Against each other"


def styles(swept: Swept) -> dict[str, MethodStyle]:
    """A look for each method's label; options and a name of its own do not change the kind."""
    labels = list(dict.fromkeys(line.method for line in swept.lines))
    return method_styles(labels, {label: label.split(":")[0] for label in labels})


def _line_name(swept: Swept, line: SweepLine | Comparison) -> str:
    return f"{styles(swept)[line.method].name} in {clip(line.label)}"


def right(swept: Swept) -> FigureView:
    """Accuracy with Wilson's interval."""
    tests = [x for x in swept.against_dense.values() if x.right_p is not None]
    sure = _clear(tests)
    if not tests:
        finding = "Nothing here has a known answer, or nothing is compared with the full read."
    elif not sure:
        finding = (
            f"In {plural(len(tests), 'test')} no difference from the full read is clear; few problems say "
            "little."
        )
    else:
        worst = sure[0]
        finding = (
            f"{len(sure)} of {plural(len(tests), 'test')} against the full read are clear. Most: "
            f"{_line_name(swept, worst)} lost {worst.only_other} that the full read had right, and won "
            f"{worst.only_mine}."
        )
    how = (
        "Points: share of problems answered right; bars: 95% (Wilson). Clear: McNemar’s exact test on the "
        "problems where just one of the two is right, p under 0.05 after Holm’s correction for all tests "
        "of this sweep."
    )
    return _dots(
        swept, "sweep_right", "Does accuracy hold?", how, finding, "answered right", lambda x: x.accuracy
    )


def score(swept: Swept) -> FigureView:
    """Mean score with a t interval, of answers that can be half right."""
    finding = "Only the full read has run."
    dense = {x.cell: x.score for x in swept.lines if x.method == swept.dense}
    others = [x for x in swept.lines if x.graded and x.method != swept.dense and x.cell in dense]
    if others:
        most = max(others, key=lambda x: dense[x.cell].value - x.score.value)
        finding = "No method scores below the full read."
        if most.score.value < dense[most.cell].value:
            finding = (
                f"Most lost: {_line_name(swept, most)}, {number(most.score.value)}; the full read has "
                f"{number(dense[most.cell].value)}."
            )
    how = (
        "Mean over problems of token F1 (questions over texts) or Rouge-L (summaries), from 0 to 1; bars: "
        "95% (t)."
    )
    half_right = {x.cell for x in swept.lines if x.graded}
    return _dots(
        swept, "sweep_score", "How good are the answers?", how, finding, "score",
        lambda x: x.score if x.cell in half_right else replace(x.score, of=0), share=False,
    )  # fmt: skip


def _clear(tests: Sequence[Comparison]) -> list[Comparison]:
    """Those that differ in what is right, the largest difference first."""
    sure = [x for x in tests if x.right_holm is not None and x.right_holm < SURE]
    return sorted(sure, key=lambda x: -abs(x.only_other - x.only_mine))


def as_dense(swept: Swept) -> FigureView:
    """How often the answer is dense's."""
    others = [x for x in swept.lines if x.as_dense.of and x.method != swept.dense]
    finding = "Only the full read has run."
    if others:
        low = min(others, key=lambda x: x.as_dense.value)
        finding = (
            "Every answer is the full read’s."
            if low.as_dense.value == 1
            else (
                f"Furthest from the full read: {_line_name(swept, low)}, which gives its answer in "
                f"{percent(low.as_dense.value, 1)} of {plural(low.as_dense.of, 'problem')}."
            )
        )
        if low.to_none.of:
            finding += (
                f" Its judge took none in {percent(low.to_none.value, 1)} where the full read selects "
                f"otherwise, another candidate in {percent(low.to_another.value, 1)}."
            )
    how = (
        "Share of problems whose answer (a judge’s: selection) is the full read’s; bars: 95% (Wilson). "
        "Accuracy can hold while answers change."
    )
    return _dots(
        swept, "sweep_as_dense", "Is it the same answer?", how, finding, "answer as the full read’s",
        lambda x: x.as_dense,
    )  # fmt: skip


def cached(swept: Swept) -> FigureView:
    """Prompt tokens that were not computed."""
    most = max((x for x in swept.lines if x.tokens.of), key=lambda x: x.tokens.value, default=None)
    finding = "No prompt has been read yet."
    if most is not None:
        finding = (
            f"Most from a cache: {_line_name(swept, most)}, {percent(most.tokens.value, 1)} of its tokens."
        )
    how = "Share of all agents’ prompt tokens that came from a cache; bars: 95% (bootstrap over problems)."
    return _dots(
        swept, "sweep_tokens", "How much came from a cache?", how, finding, "prompt tokens from a cache",
        lambda x: x.tokens,
    )  # fmt: skip


def sooner(swept: Swept) -> FigureView:
    """Time to the last agent's first token, as dense's over the method's."""
    others = [x for x in swept.lines if x.ttft_ratio.of and x.method != swept.dense]
    finding = "Only the full read has run."
    if others:
        best = max(others, key=lambda x: x.ttft_ratio.value)
        finding = "Fastest" if best.ttft_ratio.value > 1 else "None is faster than the full read. Nearest"
        finding += (
            f": {_line_name(swept, best)}, {number(best.ttft_ratio.value)} times as fast as the full read"
        )
        low, high = best.ttft_ratio.low, best.ttft_ratio.high
        finding += f" (95%: {number(low)} to {number(high)})." if math.isfinite(low) else "."
    how = (
        "The full read’s time to the last agent’s first token over the method’s, problem by problem; the "
        "median. 1: no gain. Bars: 95% (order statistics, from six problems on). Rows that ran while others "
        "used this machine have other times than on a quiet one."
    )
    view = _dots(
        swept, "sweep_ttft", "Does it pay?", how, finding, "times as fast as the full read",
        lambda x: x.ttft_ratio, share=False,
    )  # fmt: skip
    view.figure.add_vline(x=1, line={"color": "#8b95a1", "width": 1, "dash": "dot"})
    return view


def _dots(
    swept: Swept,
    key: str,
    title: str,
    how: str,
    finding: str,
    axis: str,
    value: Callable[[SweepLine], Share],
    share: bool = True,
) -> FigureView:
    """One row for each method, cell under cell, each under its name where there are several."""
    looks = styles(swept)
    cells = [list(group) for _, group in groupby(swept.lines, key=lambda line: line.cell)]
    drawn = cells[:MOST_CELLS]
    places: list[tuple[float, str]] = []
    points: dict[str, list[tuple[float, SweepLine, Share]]] = {}
    at = 0.0
    for lines in drawn:
        if len(cells) > 1:
            places.append((at, f"<b>{plot_text(clip(lines[0].label, LABEL))}</b>"))
            at += 1
        for line in lines:
            places.append((at, plot_text(clip(looks[line.method].name, LABEL))))
            points.setdefault(line.method, []).append((at, line, value(line)))
            at += 1
        at += 0.4
    drawing = figure(int(70 + 22 * at), margin={"l": 8, "r": 20, "t": 8})
    for method, dots in points.items():
        marks = [(y, line, s) for y, line, s in dots if s.of and math.isfinite(s.value)]
        if not marks:
            continue
        look = looks[method]
        drawing.add_scatter(
            x=[s.value for _, _, s in marks],
            y=[y for y, _, _ in marks],
            mode="markers",
            name=plot_text(look.name),
            marker={"color": look.colour, "symbol": look.symbol, "size": 9},
            customdata=[[plot_text(line.label), s.of] for _, line, s in marks],
            hovertemplate=f"{plot_text(look.name)}<br>%{{customdata[0]}}<br>"
            f"%{{x:{'.1%' if share else '.2f'}}}, %{{customdata[1]}} problems<extra></extra>",
            showlegend=False,
            error_x=share_bars([s for _, _, s in marks], color=look.colour),
        )  # fmt: skip
    drawing.update_layout(
        yaxis={
            "tickmode": "array", "tickvals": [y for y, _ in places], "ticktext": [name for _, name in places],
            "range": [at - 0.3, -0.7], "showgrid": False, "ticks": "", "showline": False,
        },
        xaxis={"title": axis}
        | ({"range": [-0.02, 1.02], "tickformat": ".0%"} if share else {"rangemode": "tozero"}),
    )  # fmt: skip
    if len(cells) > MOST_CELLS:
        finding += f" The first {MOST_CELLS} of {len(cells)} cells are drawn."
    rows = tuple(
        (
            x.label,
            x.method,
            s.of,
            *(round(v, 4) if math.isfinite(v) else None for v in (s.value, s.low, s.high)),
        )
        for x in swept.lines
        for s in [value(x)]
    )
    columns = ("cell", "method", "problems", axis, "95% from", "95% to")
    return FigureView(key, title, how, finding, drawing, columns, rows)


def _share(share: Share) -> str | Markup:
    if not share.of or not math.isfinite(share.value):
        return "-"
    if not math.isfinite(share.low):
        return f"{share.value:.1%}"
    return html("{:.1%} <small>{:.0%} to {:.0%}</small>", share.value, share.low, share.high)


def _middle(share: Share, places: int, unit: str = "") -> str | Markup:
    """A median or mean, with its interval if there is one."""
    if not share.of:
        return "-"
    value, low, high = (f"{x:.{places}f}" for x in (share.value, share.low, share.high))
    if not math.isfinite(share.high - share.low):
        return value + unit
    return html("{}{} <small>{} to {}</small>", value, unit, low, high)


def _p(value: float | None, corrected: float | None) -> str | Markup:
    """As measured, and under it after the correction."""
    if value is None or corrected is None:
        return "-"
    first, second = ("<0.001" if p < 0.001 else f"{p:.3f}" for p in (value, corrected))
    return html("{} <small>Holm {}</small>", first, second)


def table_html(swept: Swept) -> Markup:
    """All lines as a table."""
    looks, against = styles(swept), swept.against_dense
    scored = ("score",) * swept.graded
    judged = ("changed to none",) * any(x.to_none.of for x in swept.lines)
    head = (
        "method", "problems", "right", *scored, "as full read", *judged, "tokens from a cache",
        "first token, ms",
        "full read’s / it", "lost / won", swept.p_name, "times p",
    )  # fmt: skip
    many = len({line.cell for line in swept.lines}) > 1
    groups = []
    for _, cell_lines in groupby(swept.lines, key=lambda line: line.cell):
        lines: Sequence[SweepLine] = list(cell_lines)
        rows = [
            (
                looks[x.method].name, x.counted, _share(x.accuracy), *(_middle(x.score, 3) for _ in scored),
                _share(x.as_dense), *(_share(x.to_none) for _ in judged), _share(x.tokens),
                _middle(x.ttft_ms, 1), _middle(x.ttft_ratio, 2, "×"),
                *_tests(against.get((x.cell, x.method))),
            )
            for x in lines
        ]  # fmt: skip
        groups.append((lines[0].label if many else "", rows))
    return table(head, groups, row_heads=True) + html(
        '<p class="kv-how">Lost / won: problems that just the full read, or just the method, has right; '
        "McNemar’s exact test on them. Times: the last agent’s, medians; Wilcoxon’s signed ranks, problem by "
        "problem. Behind several warm-ups both tests are of the warm-ups’ differences. "
        "{} Under each p: after Holm’s correction for all tests of its kind. {}</p>",
        replication(swept.warmups, "warm-up", "problems"),
        boundary_words(swept.boundary_tax),
    )


def others_html(swept: Swept) -> Markup:
    """Comparisons with other baselines than dense, and what cannot be compared; empty without any."""
    tests = swept.against_others
    if not tests and not swept.compared.left_out:
        return Markup()
    looks, sure = styles(swept), _clear(tests)
    count = sum(x.right_p is not None for x in tests)
    finding = f"In {plural(count, 'test')} no difference in what is right is clear."
    if sure:
        most = sure[0]
        finding = (
            f"{len(sure)} of {plural(count, 'test')} are clear. Most: {_line_name(swept, most)} lost "
            f"{most.only_other} that {most.against} had right, and won {most.only_mine}."
        )
    groups = [
        (
            f"against {against}",
            [
                (
                    x.label, looks[x.method].name, x.pairs, *_tests(x)[:2], _middle(x.ttft_ratio, 2, "×"),
                    _tests(x)[2],
                )
                for x in same_baseline
            ],
        )
        for against, same_baseline in groupby(tests, key=lambda x: x.against)
    ]  # fmt: skip
    head = ("cell", "method", "pairs", "lost / won", swept.p_name, "its time / this one’s", "times p")
    paragraph = html('<p class="kv-finding">{}</p>', finding) + table(head, groups, row_heads=True)
    return (
        (paragraph if tests else Markup())
        + joined(html('<p class="kv-help">{}</p>', note) for note in swept.compared.left_out)
        + Markup(
            '<p class="kv-how">Each line beside the one that is the same in everything but what is named, '
            "problem by problem. Lost / won: problems that just the other, or just this one, has right. "
            "Times of two cells were taken one after the other: what else the machine did is in them.</p>"
        )
    )


def _tests(test: Comparison | None) -> tuple[str, str, str]:
    """Lost and won, and the two tests."""
    if test is None:
        return "-", "-", "-"
    counts = "-" if test.right_p is None else f"{test.only_other} / {test.only_mine}"
    return counts, _p(test.right_p, test.right_holm), _p(test.wilcoxon, test.wilcoxon_holm)
