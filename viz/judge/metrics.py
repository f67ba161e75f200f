"""How reuse changes a judge: the paper's table, flips beside accuracy, selected slots, a map of questions.

Source: judge study, Table 1, Fig. 7, A.2.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.statistics import Share
from backend.base.text import boundary_words, replication
from backend.records.judge import Judged
from backend.records.judge_summary import changes_of
from backend.records.judge_tables import JudgeLine, JudgeTable, ProblemCount
from viz.base.figure import FigureView, Panel, colour_bar, empty_view, figure, share_bars
from viz.base.format import NONE, clip, listing, number, order_words, plot_text, plural, rounded
from viz.base.html import render
from viz.base.subplots import plane_layouts, two_panels
from viz.base.theme import MAGNITUDE, OUTLINE_COLOUR, MethodStyle, method_styles

NOT_YET = "Nothing has been judged yet."


def views(
    judged: Judged, table: JudgeTable, counts: Sequence[ProblemCount]
) -> tuple[FigureView | Panel, ...]:
    """All views of a batch. ``table`` and ``counts`` are :func:`backend.records.judge_summary.table` and
    :func:`~backend.records.judge_summary.counted` of it."""
    orders = tuple(dict.fromkeys(line.order for line in table.lines))
    return (
        table_panel(table, judged),
        shares(table, judged),
        counts_map(counts),
        *(slots_taken(table, order, judged) for order in orders[:2]),
        question_map(judged, counts),
    )


def _styles(table: JudgeTable, judged: Judged | None) -> dict[str, MethodStyle]:
    labels = tuple(dict.fromkeys(line.method for line in table.lines))
    names = {c.label: c.name for c in judged.request.methods} if judged else {}
    return method_styles(labels, names)


def share_words(share: Share) -> str:
    """``71 % (63 to 78)``, or a dash."""
    if not share.of or math.isnan(share.value):
        return NONE
    return f"{share.value:.0%} ({100 * share.low:.0f} to {100 * share.high:.0f})"


def change_words(share: Share) -> str:
    """``-12 points (-19 to -5)``, or a dash."""
    if not share.of or math.isnan(share.value):
        return NONE
    return f"{100 * share.value:+.0f} ({100 * share.low:+.0f} to {100 * share.high:+.0f})"


def finding(table: JudgeTable, judged: Judged | None = None) -> str:
    """The table in a sentence: the largest loss of consistency, what replaced it, the final answers."""
    lines = [x for x in table.lines if x.jcr.of and x.method != table.lines[0].method]
    if not lines:
        return "Only the full read was asked, and the full read agrees with itself."
    worst = min(lines, key=lambda x: x.jcr.value)
    name = _styles(table, judged)[worst.method].name
    sentence = (
        f"{name} ({order_words(worst.order)}) keeps {worst.jcr.value:.0%} of the full read’s selections"
    )
    if worst.jcr.value < 1:
        sentence += (
            f"; it takes none in {worst.to_none.value:.0%} where the full read selects otherwise, another "
            f"candidate in {worst.to_another.value:.0%}"
        )
    if worst.accuracy_change.of:
        sentence += f". Its final answers change by {change_words(worst.accuracy_change)} points"
    return f"{sentence}, over {plural(worst.problems, 'problem')}."


def table_panel(table: JudgeTable, judged: Judged | None = None) -> Panel:
    """Table 1 of the paper, with intervals."""
    looks = _styles(table, judged)
    orders: dict[str, list[JudgeLine]] = {}
    for line in table.lines:
        orders.setdefault(line.order, []).append(line)
    body = render(
        "judge/table.html",
        not_yet=NOT_YET,
        notes=[*judged.notes, *filter(None, [boundary_words(judged.boundary_tax)])] if judged else (),
        finding=finding(table, judged),
        changes=changes_of(judged) if judged else 0,
        replication=replication(1, "warm-up", "problems of an order"),
        orders=[
            (order_words(order), lines[0].problems, _moved_words(lines[0]), [_cells(x, looks) for x in lines])
            for order, lines in orders.items()
        ],
    )
    return Panel("judge_table", "Does the judge still select the same?", body)


def _cells(line: JudgeLine, looks: dict[str, MethodStyle]) -> tuple[object, ...]:
    return (
        looks[line.method].name, share_words(line.accuracy), share_words(line.selection),
        share_words(line.jcr), share_words(line.jcr_without_none), share_words(line.to_none),
        share_words(line.to_another), change_words(line.jcr_change), share_words(line.blocks), line.failures,
        line.near_ties, line.twins,
    )  # fmt: skip


def _moved_words(dense: JudgeLine) -> str:
    if not dense.moved.of:
        return ""
    share = share_words(dense.moved)
    return f"; the full read itself selects another candidate than in the first order in {share}"


COLUMNS = (
    "order", "method", "problems", "final answer right (share)", "from", "to", "selection right (share)",
    "JCR (share)", "JCR from", "JCR to", "JCR without near ties", "JCR without none taken",
    "changed to none (share)", "changed to another (share)", "final answer as full read (share)",
    "blocks reused (share)", "tokens reused (share)", "prompts reused whole (share)",
    "accuracy change (paired)", "change from", "change to", "JCR change against first order", "unread",
    "near ties", "same text", "moved against first order (share)", "median time to first token (ms)",
)  # fmt: skip


def _row(x: JudgeLine) -> tuple[Any, ...]:
    jcr, change = x.jcr, x.accuracy_change
    numbers = (
        x.accuracy.value, x.accuracy.low, x.accuracy.high, x.selection.value, jcr.value, jcr.low, jcr.high,
        x.jcr_without_ties.value, x.jcr_without_none.value, x.to_none.value, x.to_another.value,
        x.same_answer.value, x.blocks.value, x.tokens, x.reused_problems,
        change.value, change.low, change.high, x.jcr_change.value,
    )  # fmt: skip
    return (
        x.order, x.method, x.problems, *rounded(*numbers), x.failures, x.near_ties, x.twins,
        *rounded(x.moved.value, x.ttft_ms),
    )  # fmt: skip


def shares(table: JudgeTable, judged: Judged | None = None) -> FigureView:
    """Accuracy and JCR side by side, a mark per method and order."""
    title = "Does a right answer mean an unchanged verdict?"
    if not table.lines:
        return empty_view("judge_shares", title, NOT_YET, COLUMNS)
    looks = _styles(table, judged)
    orders = tuple(dict.fromkeys(line.order for line in table.lines))
    drawing = figure(90 + 34 * len(orders) * max(2, len(looks)))
    two_panels(drawing, ("Final answer right", "Selects as full read (JCR)"))
    for label, look in looks.items():
        lines = [line for line in table.lines if line.method == label]
        for axis, kind in (("", "accuracy"), ("2", "jcr")):
            line_shares: list[Share] = [getattr(line, kind) for line in lines]
            drawing.add_scatter(
                x=[100 * s.value for s in line_shares],
                y=[f"{plot_text(order_words(line.order))}<br>{plot_text(look.name)}" for line in lines],
                error_x=share_bars(line_shares, 100),
                mode="markers",
                name=plot_text(look.name),
                marker={"color": look.colour, "symbol": look.symbol, "size": 10},
                showlegend=False,
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
                hovertemplate="%{y}: %{x:.1f}%<extra></extra>",
            )
    names = [
        f"{plot_text(order_words(o))}<br>{plot_text(look.name)}" for o in orders for look in looks.values()
    ]
    scale = {"title": "share of problems (%)", "range": [-3, 103]}
    drawing.update_layout(
        xaxis=scale,
        xaxis2=scale,
        yaxis={"categoryorder": "array", "categoryarray": names[::-1]},
        yaxis2={"categoryorder": "array", "categoryarray": names[::-1]},
    )
    how = (
        "One line per order and method; bars are 95% intervals (Wilson). Left: is the final answer right; "
        "right: is the selected candidate the one that the full read selects in the same order."
    )
    return FigureView(
        "judge_shares", title, how, finding(table, judged), drawing, COLUMNS, tuple(map(_row, table.lines))
    )


def counts_map(counts: Sequence[ProblemCount]) -> FigureView:
    """Fig. 7, right: problems by how many methods were right and how many kept dense's selection."""
    title = "Are easy problems safe to reuse?"
    columns = (
        "problem", "order", "question", "methods right", "methods that selected as the full read", "methods",
        "changed by", "of these took none", "of these near ties",
    )  # fmt: skip
    if not counts:
        return empty_view("judge_counts", title, NOT_YET, columns)
    most = max(c.methods for c in counts)
    grid = np.zeros((most + 1, most + 1), dtype=np.int64)
    for c in counts:
        grid[c.right, c.kept] += 1
    drawing = figure(150 + 44 * (most + 1))
    drawing.add_heatmap(
        z=grid,
        x=list(range(most + 1)),
        y=list(range(most + 1)),
        text=grid,
        texttemplate="%{text}",
        colorscale=MAGNITUDE,
        zmin=0,
        colorbar=colour_bar("problems"),
        hovertemplate="%{y} methods right, %{x} selected as the full read: %{z} problems<extra></extra>",
    )
    drawing.update_layout(
        xaxis={"title": "reuse methods that selected as full read (JCR count)", "dtick": 1},
        yaxis={"title": "reuse methods with a right answer (ACC count)", "dtick": 1},
    )
    easy = [c for c in counts if c.right == c.methods]
    flips = [c for c in easy if c.flipped]
    count = len(flips)
    gave_up = sum(set(c.flipped) == set(c.none_taken) for c in flips)
    finding = (
        f"Of {plural(len(easy), 'judgement')} that every reuse method answers right, {count} "
        f"{'has' if count == 1 else 'have'} a changed selection under at least one; in {gave_up} of these "
        "every changed selection is none of the candidates."
        if easy
        else "No judgement is answered right by every reuse method."
    )
    ties = sum(bool(c.near_ties) for c in counts)
    how = (
        "A judgement is a problem in one order. Upwards: right answers; rightwards: unchanged "
        "selections. If accuracy vouched for consistency, all would lie on the diagonal."
        + (f" {plural(ties, 'case')} with a near tie counted as changed." if ties else "")
    )
    rows = tuple(
        (
            c.problem,
            c.order,
            c.question,
            c.right,
            c.kept,
            c.methods,
            listing(c.flipped),
            listing(c.none_taken),
            listing(c.near_ties),
        )
        for c in counts
    )
    return FigureView("judge_counts", title, how, finding, drawing, columns, rows)


def slots_taken(table: JudgeTable, order: str, judged: Judged | None = None) -> FigureView:
    """How often each slot is selected, per method."""
    title = f"Which place in the prompt wins? ({order_words(order)})"
    columns = ("order", "method", "slot", "selected (share)", "from", "to", "readable selections")
    lines = [x for x in table.lines if x.order == order and any(p.of for p in x.picks)]
    key = f"judge_slots_{order.replace(' ', '_')}"
    if not lines:
        return empty_view(key, title, "No selection could be read, or none was asked for.", columns)
    looks = _styles(table, judged)
    slots = max(len(x.picks) for x in lines) - 1
    names = ["none", *(f"slot {k}" for k in range(1, slots + 1))]
    drawing = figure(300, barmode="group")
    rows: list[tuple[Any, ...]] = []
    for line in lines:
        look = looks[line.method]
        drawing.add_bar(
            x=names,
            y=[100 * p.value for p in line.picks],
            error_y=share_bars(line.picks, 100, color=OUTLINE_COLOUR),
            name=plot_text(look.name),
            marker={"color": look.colour},
            hovertemplate="%{x}: %{y:.1f}%<extra>" + plot_text(look.name) + "</extra>",
        )
        rows += [
            (order, line.method, name, round(p.value, 6), round(p.low, 6), round(p.high, 6), p.of)
            for name, p in zip(names, line.picks, strict=True)
        ]
    drawing.add_hline(y=100 / slots, line={"dash": "dot", "color": OUTLINE_COLOUR, "width": 1})
    drawing.update_layout(
        yaxis={"title": "selected (% of readable)", "rangemode": "tozero"},
        xaxis={"title": "place in the judge’s prompt"},
    )
    base = lines[0]
    top = max(range(len(base.picks)), key=lambda k: base.picks[k].value)
    finding = f"{looks[base.method].name} selects {names[top]} in {share_words(base.picks[top])}"
    farthest = max(lines, key=lambda x: abs(x.picks[top].value - base.picks[top].value))
    if farthest is not base:
        finding += f"; {looks[farthest.method].name} in {share_words(farthest.picks[top])}"
    how = (
        "Slots as the judge saw them, whoever stood there; the dotted line is an even share. The full read’s "
        "own bars are the baseline: a judge asked for the first right candidate rightly prefers early slots."
    )
    return FigureView(key, title, how, f"{finding}.", drawing, columns, tuple(rows))


def question_map(judged: Judged, counts: Sequence[ProblemCount]) -> FigureView:
    """Fig. 7, left: questions in the plane of their embeddings, coloured by how many methods kept dense's
    selection (over all orders)."""
    title = "Do flips belong to a kind of question?"
    columns = ("problem", "question", "PCA 1", "PCA 2", "selected as full read", "of", "right")
    same, total, right = Counter[int](), Counter[int](), Counter[int]()
    for c in counts:
        same[c.problem] += c.kept
        right[c.problem] += c.right
        total[c.problem] += c.methods
    places = [i for i, row in enumerate(judged.rows) if total[row.problem.number]]
    if judged.points is None or len(places) < 2:
        return empty_view("judge_questions", title, "A map needs two judged problems or more.", columns)
    drawing = figure(400, margin={"t": 40, "r": 8}, showlegend=False)
    (plane,) = plane_layouts(drawing, judged.points)
    problems = [judged.rows[i].problem for i in places]
    same_shares = [same[p.number] / total[p.number] for p in problems]
    drawing.add_scatter(
        x=plane[places, 0],
        y=plane[places, 1],
        mode="markers",
        marker={
            "size": 10,
            "symbol": ["circle" if right[p.number] == total[p.number] else "x-open" for p in problems],
            "color": [100 * s for s in same_shares],
            "colorscale": MAGNITUDE,
            "cmin": 0,
            "cmax": 100,
            "line": {"width": 1.2, "color": OUTLINE_COLOUR},
            "showscale": True,
            "colorbar": colour_bar("kept (%)"),
        },
        customdata=[
            f"{p.number}: {plot_text(clip(p.question, 80))}<br>{same[p.number]} of {total[p.number]} "
            "selections as the full read’s"
            for p in problems
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip
    how = (
        "Each mark is a question, the mean of its token embeddings; a cross when some method’s answer is "
        "wrong. Colour: the share of selections, over reuse methods and orders, that equal the full read’s."
    )
    finding = _neighbours(judged.points[places], np.array(same_shares))
    rows = tuple(
        (
            p.number, p.question, *(round(float(x), 6) for x in plane[i]),
            same[p.number], total[p.number], right[p.number],
        )
        for i, p in zip(places, problems, strict=True)
    )  # fmt: skip
    return FigureView("judge_questions", title, how, finding, drawing, columns, rows)


def _neighbours(points: NDArray[np.float32], shares: NDArray[np.float64]) -> str:
    """How much a question's share differs from its nearest neighbour's, and from any question's."""
    if not np.ptp(shares):
        return (
            f"All {len(shares)} questions keep the same share of selections: there is nothing to tell apart."
        )
    exact = points.astype(np.float64)
    squares = (exact**2).sum(axis=1)
    distances = squares[:, None] + squares[None] - 2 * exact @ exact.T
    np.fill_diagonal(distances, np.inf)
    pair = float(np.abs(shares - shares[distances.argmin(axis=1)]).mean())
    anyone = float(np.abs(shares[:, None] - shares[None]).sum() / (len(shares) * (len(shares) - 1)))
    return (
        f"A question and its nearest neighbour differ by {number(100 * pair, 2)} points in the share of kept "
        f"selections, any two questions by {number(100 * anyone, 2)}."
    )
