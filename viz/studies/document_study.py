"""Questions over documents that are encoded apart (KVLink, Tables 1 and 3, Figures 3 and 6)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.base.text import boundary_words
from backend.records.documents import DocumentArm, DocumentSpeed, DocumentStudy
from viz.base.figure import FigureView, empty_view, figure, interval
from viz.base.format import milliseconds, percent, plot_text, ratio, size
from viz.base.subplots import curve
from viz.base.theme import DASHES, METHOD_COLOURS, SYMBOLS

FLOOR = "PromptCache"  # of the gap, as in KVLink's Table 1: moved into place
NOT_RUN = "None of the study’s questions has been asked yet."


def views(study: DocumentStudy) -> tuple[FigureView, ...]:
    """Accuracy, by position, by number of documents, compression, times."""
    return accuracy(study), by_position(study), by_documents(study), compression(study), speed(study)


def _answered_arms(study: DocumentStudy) -> list[str]:
    """Labels of arms with uncompressed documents that were asked at all."""
    return [a.label for a in study.arms if a.compression == "none" and study.share(a.label)[1]]


def _bars(study: DocumentStudy, labels: list[str], colours: list[str]) -> Any:
    shares = [study.share(label) for label in labels]
    middle = [good / n for good, n, _, _ in shares]
    drawing = figure(110 + 34 * len(labels), margin={"l": 8, "r": 24})
    drawing.add_bar(
        x=middle[::-1],
        y=[plot_text(label) for label in labels[::-1]],
        orientation="h",
        marker={"color": colours[::-1]},
        error_x=interval(middle[::-1], *list(zip(*shares[::-1], strict=True))[2:], color="#8b95a1"),
        hovertemplate="%{y}: %{x:.1%}<extra></extra>",
    )
    drawing.update_layout(
        xaxis={"title": "questions answered right", "range": [0, 1.02], "tickformat": ".0%"}, showlegend=False
    )
    return drawing


def accuracy(study: DocumentStudy) -> FigureView:
    """Right answers by arm with intervals, and the gap recovered (Table 1)."""
    title = "How much of the full read’s accuracy is left when documents are encoded apart?"
    columns = (
        "arm", "weights", "right", "of", "share", "95% from", "95% to", "full read on the same weights",
        "gap recovered", "gap 95% from", "gap 95% to",
    )  # fmt: skip
    labels = _answered_arms(study)
    if not labels:
        return empty_view("documents_accuracy", title, NOT_RUN, columns)
    top = labels[0]
    rows = []
    best: tuple[float, str] | None = None
    for label in labels:
        good, n, low, high = study.share(label)
        base = study.own_dense(label)
        base_share = None if base is None else study.share(base)
        gap = None
        if label not in (FLOOR, top) and FLOOR in labels:
            gap = study.recovered(label, FLOOR, top)
        dense = study.arms[study.arm(label)].method == "dense"
        if gap is not None and not dense and (best is None or gap[0] > best[0]):
            best = (gap[0], label)
        rows.append(
            (
                label, study.arms[study.arm(label)].weights, good, n, round(good / n, 4), round(low, 4),
                round(high, 4), base_share[0] / base_share[1] if base_share and base_share[1] else None,
                *_rounded(gap),
            )
        )  # fmt: skip
    drawing = _bars(study, labels, [_colour(study.arms[study.arm(label)]) for label in labels])
    good, n, *_ = study.share(top)
    finding = f"The full read answers {percent(good, n)} of {n} questions"
    if FLOOR in labels:
        floor_good, floor_seen, *_ = study.share(FLOOR)
        finding += f", {FLOOR} {percent(floor_good, floor_seen)}"
    if best is not None and best[0] > 0:
        finding += f"; {best[1]} closes {percent(best[0], 1)} of the gap between them."
    else:
        finding += "." if best is None else "; no other closes any of the gap between them."
    how = (
        "Two-hop questions over 5 to 10 documents, greedy answers, all arms asked alike. Bars are 95% "
        f"intervals (Wilson). Grey: the full read. {FLOOR} has its keys moved into place. Arms with weights "
        "of their own stand beside the full read on the same weights. Intervals of the gap (in the "
        "data) hold together for all arms (Bonferroni); those of shares each by itself. "
        f"{boundary_words(study.boundary_tax)}"
    ).strip()
    return FigureView("documents_accuracy", title, how, finding, drawing, columns, tuple(rows))


def _colour(arm: DocumentArm) -> str:
    if arm.method == "dense":
        return METHOD_COLOURS[0]
    return METHOD_COLOURS[
        {"promptcache": 1, "cacheblend": 3, "block_attention": 2, "kvlink": 4}.get(arm.method, 5)
    ]


def _rounded(gap: tuple[float, float, float] | None) -> tuple[float | None, ...]:
    return (None, None, None) if gap is None else tuple(round(x, 4) for x in gap)


def _lines(
    study: DocumentStudy, labels: list[str], values: NDArray[np.int64], axis: str
) -> tuple[Any, list[Any]]:
    """Shares by a property of the questions, one line per arm."""
    drawing = figure(340)
    rows: list[Any] = []
    places = np.unique(values[(study.correct >= 0).any(axis=0)])
    for index, label in enumerate(labels):
        xs, ys, lows, highs = [], [], [], []
        for place in places:
            good, n, low, high = study.share(label, values == place)
            if not n:
                continue
            xs.append(int(place))
            ys.append(good / n)
            lows.append(low)
            highs.append(high)
            rows.append((label, int(place), good, n, *_rounded((good / n, low, high))))
        aside = (index - (len(labels) - 1) / 2) * 0.06  # so that bars do not hide each other
        curve(
            drawing, [x + aside for x in xs], ys, label, METHOD_COLOURS[index % 7], size=7, customdata=xs,
            dash=DASHES[index % 7], symbol=SYMBOLS[index % 7], error_y=interval(ys, lows, highs),
            hover="%{customdata}: %{y:.1%}",
        )  # fmt: skip
    drawing.update_layout(
        xaxis={"title": axis, "dtick": 1},
        yaxis={"title": "questions answered right", "range": [0, 1.02], "tickformat": ".0%"},
    )
    return drawing, rows


def _line_arms(study: DocumentStudy) -> list[str]:
    """The arms that lines can hold: dense on the base's weights, and the methods; not dense on others'."""
    labels = _answered_arms(study)
    return [
        label for label in labels if label == labels[0] or study.arms[study.arm(label)].method != "dense"
    ][:7]


def by_position(study: DocumentStudy) -> FigureView:
    """Right answers by the place of the document with the answer (Figure 6)."""
    title = "Does it matter where the document with the answer stands?"
    columns = ("arm", "position of the answer’s document", "right", "of", "share", "95% from", "95% to")
    labels = _line_arms(study)
    if not labels:
        return empty_view("documents_position", title, NOT_RUN, columns)
    drawing, rows = _lines(study, labels, study.position, "position of the document with the answer")
    spread = {label: _slope(study, label) for label in labels}
    worst = min(spread, key=lambda label: spread[label])
    finding = (
        f"From the first to the second half of the documents {labels[0]} changes by "
        + _points(spread[labels[0]])
        + ("." if worst == labels[0] else f", {worst} by {_points(spread[worst])}.")
    )
    how = (
        "The fact that answers stands in the document of this number, the one that leads to it in another. "
        "Bars are 95% intervals; later positions exist in longer prompts only."
    )
    return FigureView("documents_position", title, how, finding, drawing, columns, tuple(rows))


def _slope(study: DocumentStudy, label: str) -> float:
    """Share in the second half of the documents minus that in the first."""
    second_half = study.position * 2 > study.documents
    (a, n, *_), (b, m, *_) = study.share(label, second_half), study.share(label, ~second_half)
    return a / max(1, n) - b / max(1, m)


def _points(change: float) -> str:
    return f"{change * 100:+.1f} points".replace("-", "−")


def by_documents(study: DocumentStudy) -> FigureView:
    """Right answers by how many documents there are."""
    title = "Do more documents make it harder?"
    columns = ("arm", "documents", "right", "of", "share", "95% from", "95% to")
    labels = _line_arms(study)
    if not labels:
        return empty_view("documents_number", title, NOT_RUN, columns)
    drawing, rows = _lines(study, labels, study.documents, "documents in the prompt")
    ends = [[r for r in rows if r[0] == label] for label in labels]
    shares = [
        f"{part[0][0]} from {percent(part[0][4], 1)} to {percent(part[-1][4], 1)}" for part in ends if part
    ][:3]
    finding = f"From {rows[0][1]} to {rows[-1][1]} documents: {'; '.join(shares)}."
    how = "Each document is one to three short facts. Bars are 95% intervals (Wilson)."
    return FigureView("documents_number", title, how, finding, drawing, columns, tuple(rows))


def compression(study: DocumentStudy) -> FigureView:
    """Right answers when the documents' KV is compressed (Table 3)."""
    title = "What is lost when the kept documents are compressed?"
    columns = ("arm", "compression", "tokens taken away", "right", "of", "share", "95% from", "95% to")
    arms = [
        a for a in study.arms if a.compression != "none" and a.method != "dense" and study.share(a.label)[1]
    ]
    if not arms:
        return empty_view(
            "documents_compression", title, "No weights trained on compressed documents were asked.", columns
        )
    plain = [a for a in study.arms if a.compression == "none" and a.adapted and a.method != "dense"]
    plotted = [a for a in plain if study.share(a.label)[1]] + arms
    rows: list[tuple[Any, ...]] = []
    for arm in plotted:
        good, n, low, high = study.share(arm.label)
        rows.append((arm.label, arm.compression, arm.rate, good, n, *_rounded((good / n, low, high))))
    colours = {"none": METHOD_COLOURS[0], "drop": METHOD_COLOURS[1], "anchors": METHOD_COLOURS[4]}
    drawing = _bars(study, [a.label for a in plotted], [colours[a.compression] for a in plotted])
    best = max((r for r in rows if r[1] != "none"), key=lambda r: r[5])
    finding = (
        f"Best of the compressed: {best[0]} answers {percent(best[5], 1)} with {percent(best[2], 1)} of the "
        "tokens gone."
    )
    how = (
        "Drop: the tokens that the model could best have guessed are left out before a document is encoded. "
        "Anchors: trained tokens that have read the text are kept in its place. Grey: not compressed."
    )
    return FigureView("documents_compression", title, how, finding, drawing, columns, tuple(rows))


def speed(study: DocumentStudy) -> FigureView:
    """Time to first token by document length, loading included (Figure 3)."""
    title = "What is gained in time, loading included?"
    columns = (
        "method", "tokens per document", "prompt tokens", "TTFT (ms)", "of it loading (ms)",
        "quartile from (ms)", "quartile to (ms)", "KV loaded (bytes)",
    )  # fmt: skip
    times = study.speed
    if times is None:
        return empty_view(
            "documents_speed", title, "Times by document length were not measured in this study.", columns
        )
    drawing = figure(330)
    rows = []
    for index, name in enumerate(times.names):
        has_load = index > 0
        middle = times.ttft_ms[index]
        curve(
            drawing, list(times.lengths), middle, name, METHOD_COLOURS[index % 7], size=7,
            dash=DASHES[index % 7], symbol=SYMBOLS[index % 7], hover="%{x} tokens: %{y:.3g} ms",
            error_y=interval(middle, times.low_ms[index], times.high_ms[index]),
        )  # fmt: skip
        rows += [
            (
                name, length, int(times.prompt_tokens[i]), *_times(times, index, i),
                int(times.loaded_bytes[i]) if has_load else 0,
            )
            for i, length in enumerate(times.lengths)
        ]  # fmt: skip
    part = float(times.load_ms[-1, -1] / max(1e-9, times.ttft_ms[-1, -1]))
    drawing.update_layout(
        xaxis={"title": f"tokens of each of {times.documents} documents", "rangemode": "tozero"},
        yaxis={"title": "time to first token (ms)", "rangemode": "tozero"},
    )
    dense, last = float(times.ttft_ms[0, -1]), float(times.ttft_ms[-1, -1])
    finding = (
        f"At {times.lengths[-1]:,} tokens a document {times.names[-1]} needs {milliseconds(last)} where "
        f"the full read needs {milliseconds(dense)} ({ratio(dense, last)}); loading "
        f"{size(times.loaded_bytes[-1])} from {times.source} is {percent(part, 1)} of it."
    )
    how = (
        f"Medians of {times.repeats}, bars the middle half, {times.model.name} on {times.model.device} in "
        f"{times.model.dtype}; random tokens. Documents were encoded before; KV lies in {times.source}."
        + (" Files were read before, so the system holds them." if times.source == "disk" else "")
    )
    return FigureView("documents_speed", title, how, finding, drawing, columns, tuple(rows))


def _times(times: DocumentSpeed, row: int, column: int) -> tuple[float, ...]:
    fields = (times.ttft_ms, times.load_ms, times.low_ms, times.high_ms)
    return tuple(float(f"{values[row, column]:.4g}") for values in fields)
