"""Which part of the cache changed a verdict: the set whose repair restores it, and a map of single parts."""

import numpy as np

from backend.records.blame import BlameRecord, Trial
from viz.base.figure import FigureView, colour_bar, figure
from viz.base.format import clip, listing, number, part_words, plot_text, plural, segment_words
from viz.base.theme import DIVERGING

COLUMNS = ("segment", "layer", "log-odds of full read’s token (nats)", "share of the way to the full read")


def views(record: BlameRecord) -> tuple[FigureView, ...]:
    """The map, with the finding above it."""
    return (part_map(record),)


def finding(record: BlameRecord) -> str:
    """One sentence: which repair restores dense's verdict, and how often random sets of that size do."""
    if record.found is None:
        if not record.everything.restored:
            return (
                "Not even the whole cache brings the full read’s verdict back: rounding decides this answer."
            )
        limit = f" within {plural(record.request.passes, 'pass', 'passes')}" if record.spent else ""
        return f"No set of at most {plural(record.request.most_parts, 'part')} brings it back{limit}."
    parts = listing([part_words(record.request.run.pipeline, p) for p in record.found.parts])
    by_chance = sum(trial.restored for trial in record.random)
    chance = (
        f" Of {plural(len(record.random), 'random set')} as large, {by_chance} did." if record.random else ""
    )
    share = record.share * 100
    return f"Repairing {parts} brings {verdict(record.dense)} back: {number(share, 2)}% of the cache.{chance}"


def verdict(trial: Trial) -> str:
    """A trial's answer in short, or the beginning of its text."""
    return clip(trial.answer or trial.choice or f"“{trial.text.strip()}”", 40)


def part_map(record: BlameRecord) -> FigureView:
    """Segments by layers: how far repairing that part alone moves the method towards dense."""
    pipeline = record.request.run.pipeline
    names = [segment_words(pipeline, segment) for segment in record.mapped]
    shift = np.array([[record.recovered(float(x)) for x in row] for row in record.map], dtype=np.float32)
    drawing = figure(94 + 17 * len(names), margin={"l": 170, "t": 12})
    layers = list(range(record.map.shape[1]))
    peak = max(1.0, float(np.nanmax(np.abs(shift), initial=0)))
    drawing.add_heatmap(
        z=shift, x=layers, y=list(range(len(names))), colorscale=DIVERGING, zmin=-peak, zmax=peak,
        colorbar=colour_bar("of the way<br>to the full read"), customdata=record.map,
        hovertemplate="layer %{x}: %{z:.2f} of the way, log-odds %{customdata:.2f}<extra></extra>",
    )  # fmt: skip
    for index, segment in enumerate(record.mapped):
        for part in record.found.parts if record.found else ():
            if part.segment == segment:
                drawing.add_shape(
                    type="rect", x0=part.first - 0.5, x1=part.last + 0.5, y0=index - 0.5, y1=index + 0.5,
                    line={"color": "#1d2733", "width": 2},
                )  # fmt: skip
    ticks = [plot_text(clip(name, 26)) for name in names]
    drawing.update_layout(
        xaxis={"title": "layer", "dtick": max(1, len(layers) // 16)},
        yaxis={"tickvals": list(range(len(names))), "ticktext": ticks, "autorange": "reversed"},
    )
    full, own = (plot_text(clip(token, 20)) for token in (record.dense_token, record.method_token))
    how = (
        "A field is the full read’s keys and values in this segment and layer alone, and how far the "
        f"log-odds of {full!r} over {own!r} then go from the method’s (0) to the full read’s (1)."
    )
    how += " Framed: the set that was found." if record.found else ""
    how += " Empty: the passes were spent." if np.isnan(shift).any() else ""
    rows = tuple(
        (name, layer, float(record.map[index, layer]), float(shift[index, layer]))
        for index, name in enumerate(names)
        for layer in layers
        if np.isfinite(record.map[index, layer])
    )
    title = "Which part of the cache changed the answer?"
    return FigureView("blame_map", title, how, finding(record), drawing, COLUMNS, rows)
