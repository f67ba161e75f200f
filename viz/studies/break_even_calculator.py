"""The break-even formula for one case: its numbers, and both sides by prompt length (docs/break-even.md)."""

from dataclasses import replace

from markupsafe import Markup

from backend.records.break_even import LONGEST, Answer, Case, answer, dense_ms, parts_ms, reuse_ms
from backend.records.hardware import Figures
from viz.base.figure import FigureView, Panel, figure, hatch
from viz.base.format import GAP, milliseconds, number, plural, ratio, size
from viz.base.html import html, joined
from viz.base.theme import TIME_PARTS, MethodStyle, method_styles

POINTS = 81  # of each line
#: The formula's parts as the lab's figures of time call them.
PARTS = {
    "base": "base", "gate": "gate", "match": "match", "mix": "correct", "write": "rotate",
    "first token": "first_token",
}  # fmt: skip
SHADE = "rgba(139,149,161,0.13)"


def views(figures: Figures, case: Case) -> tuple[Panel, FigureView, FigureView]:
    """The numbers, time by length, and where the time goes."""
    result = answer(figures.machine, case)
    title = (
        "Reuse does not pay here"
        if result.least_share is None
        else "Reuse pays here, if enough requests pass"
    )
    return Panel("pays", title, facts_html(figures, case)), by_length(figures, case), by_part(figures, case)


def facts_html(figures: Figures, case: Case) -> Markup:
    """All numbers of the formula, with their meaning."""
    rows = joined(
        html("<div><dt>{}</dt><dd>{} <em>{}</em></dd></div>", *fact)
        for fact in facts(case, answer(figures.machine, case))
    )
    return html(
        '<dl class="kv-metrics kv-pays">{}</dl><p class="kv-how">{}: {}. By the formula; decoding and '
        "whether the answer stays right are not in it.</p>",
        rows,
        figures.machine.name,
        figures.where,
    )


def facts(case: Case, result: Answer) -> list[tuple[str, str, str]]:
    """Label, value and note of each number."""
    gain = result.dense_ms - result.reuse_ms
    direction = "sooner" if gain >= 0 else "later"
    share, most, least, payoff = (
        result.least_share,
        result.most_anchors,
        result.least_tokens,
        result.pays_after,
    )
    return [
        (
            "First token", f"{milliseconds(abs(gain))} {direction}",
            f"{milliseconds(result.reuse_ms)} instead of {milliseconds(result.dense_ms)}, "
            f"{ratio(result.dense_ms, result.reuse_ms)} as fast",
        ),
        (
            "Requests that must pass the gate", "all are too few" if share is None else _share(share),
            "reuse is slower even then" if share is None else "else reuse costs more than it gains",
        ),
        (
            "Shortest prompt that pays",
            "none" if least is None else "any length" if least == 1 else plural(least, "token"),
            "with its parts in proportion, if every request passes",
        ),
        (
            "Most anchors",
            "not even none" if most is None else "any number" if most >= LONGEST else f"{most:,}",
            "pay if all of them are mixed",
        ),
        (
            f"A pool of {plural(case.anchors, 'anchor')}", size(result.pool_bytes),
            "bases and one reader’s offsets",
        ),
        (
            "Paid off", _payoff_words(case, payoff),
            "those that fill the pool included" if payoff else "",
        ),
    ]  # fmt: skip


def _payoff_words(case: Case, payoff: int | None) -> str:
    if not case.anchors:
        return "nothing to pay off"
    return "never" if payoff is None else f"after {plural(payoff, 'request')}"


def _share(share: float) -> str:
    text = number(100 * share, 2) if share >= 0.001 else "under 0.1"
    return f"{text}{GAP}%"


def scale(case: Case, tokens: int) -> Case:
    """The case for another prompt length, its parts in proportion."""
    shared, outside = (round(part * tokens / case.prompt) for part in (case.shared, case.outside))
    return replace(case, prompt=tokens, shared=shared, outside=outside)


def looks() -> tuple[MethodStyle, MethodStyle]:
    """Dense’s and KVCOMM’s, which is the reuse that the formula knows."""
    styles = method_styles(("dense", "kvcomm"))
    return styles["dense"], styles["kvcomm"]


def by_length(figures: Figures, case: Case) -> FigureView:
    """Both sides’ time over the prompt’s length; the crossing, the asked prompt and timed ones are marked."""
    machine, result = figures.machine, answer(figures.machine, case)
    dense, reuse = looks()
    least = result.least_tokens
    end = _end(figures, case, least)
    lengths = sorted({max(1, round(end * i / (POINTS - 1))) for i in range(POINTS)} | {case.prompt})
    rows = []
    for tokens in lengths:
        a, b = dense_ms(machine, tokens), reuse_ms(machine, scale(case, tokens))
        rows.append((tokens, round(a, 4), round(b, 4), round(a / b, 4) if b else None))
    drawing = figure(
        260,
        xaxis={"title": "prompt (tokens)", "range": [0, end]},
        yaxis={"title": "time to first token (ms)", "rangemode": "tozero"},
    )
    timed = [t for t in figures.timed if t.tokens <= end]
    if timed:
        drawing.add_vrect(
            x0=min(t.tokens for t in timed), x1=max(t.tokens for t in timed), fillcolor=SHADE, line_width=0,
            layer="below",
        )  # fmt: skip
    for look, column, mark in ((dense, 1, result.dense_ms), (reuse, 2, result.reuse_ms)):
        name = "Full read" if column == 1 else "KVCOMM"
        drawing.add_scatter(
            x=[row[0] for row in rows], y=[row[column] for row in rows], mode="lines", name=name,
            legendgroup=name, line={"color": look.colour, "dash": look.dash, "width": 2.5},
            hovertemplate=f"%{{x:,}} tokens: %{{y:.3g}} ms<extra>{name}</extra>",
        )  # fmt: skip
        drawing.add_scatter(
            x=[case.prompt], y=[mark], mode="markers+text", showlegend=False, legendgroup=name,
            marker={"color": look.colour, "symbol": look.symbol, "size": 11},
            text=[f"<b>{milliseconds(mark)}</b>"], textposition="top left", cliponaxis=False,
            hovertemplate=f"your prompt, {case.prompt:,} tokens: %{{y:.3g}} ms<extra>{name}</extra>",
        )  # fmt: skip
        if timed:
            drawing.add_scatter(
                x=[t.tokens for t in timed], y=[t.dense_ms if column == 1 else t.reuse_ms for t in timed],
                mode="markers", name=f"{name}, timed",
                marker={
                    "color": look.colour, "symbol": f"{look.symbol}-open", "size": 8, "line": {"width": 2},
                },
                text=[f"{t.shared:,} of {t.tokens:,} tokens shared, {t.anchors} anchors" for t in timed],
                hovertemplate="%{text}: %{y:.3g} ms<extra>" + f"{name}, timed" + "</extra>",
            )  # fmt: skip
    crossing = least is not None and 1 < least <= end
    if crossing:
        drawing.add_vline(x=least, line={"color": "#8b95a1", "dash": "dot", "width": 1.5})
        drawing.add_annotation(
            x=least, y=1, yref="paper", text=f"pays from {least:,} on", showarrow=False, xanchor="left",
            yanchor="top", xshift=5, font={"size": 12},
        )  # fmt: skip
    how = "Lines: what the formula says of prompts whose parts stay in proportion; large marks: your prompt."
    how += " Behind the dotted line reuse is sooner at every length." if crossing else ""
    how += (
        " Open marks were timed, each with the texts and anchors that the pointer shows; outside the shade "
        "the lines go on by the formula alone."
        if timed
        else " From a data sheet, times are the least that operations and bytes need."
        if not figures.timed
        else ""
    )
    columns = ("prompt (tokens)", "full read (ms)", "reuse (ms)", "full read / reuse")
    return FigureView(
        "pays_length", "From what length is the first token sooner?", how, _finding(case, result), drawing,
        columns, tuple(rows),
    )  # fmt: skip


def _end(figures: Figures, case: Case, least: int | None) -> int:
    """Where the axis ends: the prompt is on it, and the crossing and timed prompts that are not far off."""
    marks = [t.tokens for t in figures.timed] + ([least] if least else [])
    return min(LONGEST, round(max([1.5 * case.prompt, *(1.15 * x for x in marks if x < 8 * case.prompt)])))


def _finding(case: Case, result: Answer) -> str:
    times = ratio(result.dense_ms, result.reuse_ms)
    fast = (
        f"A prompt of {plural(case.prompt, 'token')} has its first token {times} as fast as the full read’s"
    )
    if result.least_tokens is None:
        return f"{fast}; with these shares and anchors no length pays."
    if result.least_tokens == 1:
        return f"{fast}; with these shares and anchors any length pays."
    return f"{fast}; with these shares and anchors prompts from {result.least_tokens:,} tokens on pay."


def by_part(figures: Figures, case: Case) -> FigureView:
    """What dense and reuse spend their time on, at the asked length."""
    machine, result = figures.machine, answer(figures.machine, case)
    a, b, c = machine.dense_ms
    sides = {
        "Full read": {
            "at any length": a,
            "for each token": b * case.prompt,
            "for each pair": c * case.prompt**2,
        },
        "KVCOMM": parts_ms(machine, case),
    }
    drawing = figure(190, barmode="stack", bargap=0.35, margin={"t": 52, "r": 90})
    greys = dict(zip(sides["Full read"], ("#b3bac3", TIME_PARTS["prefill"][1], "#5f6a77"), strict=True))
    for side, parts in sides.items():
        for part, ms in parts.items():
            if ms == 0:
                continue
            plain = (f"the full read, {part}", greys.get(part, ""), "")
            words, colour, pattern = TIME_PARTS.get(PARTS.get(part, ""), plain)
            drawing.add_bar(
                y=[side], x=[ms], orientation="h", name=words,
                marker={"color": colour, "line": {"width": 0}, "pattern": hatch(pattern)},
                hovertemplate=f"{side}, {words}: %{{x:.3g}} ms<extra></extra>",
            )  # fmt: skip
    ends = {"Full read": result.dense_ms, "KVCOMM": result.reuse_ms}
    drawing.add_scatter(
        y=list(ends), x=list(ends.values()), mode="text", showlegend=False, hoverinfo="skip",
        cliponaxis=False, textposition="middle right", text=[f" {milliseconds(ms)}" for ms in ends.values()],
    )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": "time to first token (ms)", "rangemode": "tozero"},
        yaxis={"autorange": "reversed", "showgrid": False, "ticks": ""},
        legend={"traceorder": "normal"},
    )
    costly, most = max(result.parts_ms.items(), key=lambda item: item[1])
    part = TIME_PARTS[PARTS[costly]][0]
    finding = f"Most of KVCOMM’s {milliseconds(result.reuse_ms)} goes to “{part}”: {milliseconds(most)}."
    how = "Each bar is a sum of the formula’s terms for your prompt; what takes no time has no piece."
    rows = tuple((side, part, round(ms, 4)) for side, parts in sides.items() for part, ms in parts.items())
    return FigureView(
        "pays_part", "What does the time go to?", how, finding, drawing, ("side", "part", "time (ms)"), rows
    )  # fmt: skip
