"""True offsets: what a prompt's context adds to the KV of each segment, layer by layer."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.records.prompt import Prompt, Span
from backend.records.run import OffsetProbe, RunRecord
from viz.base import format as words
from viz.base.figure import FigureView, empty_view, figure
from viz.base.format import number
from viz.base.subplots import layer_axes, layer_curve, span_words, two_panels
from viz.base.theme import OUTLINE_COLOUR, SLOT_COLOURS

PREFIX_COLOUR = "#8b95a1"


def _probe(record: RunRecord, agent: int) -> OffsetProbe | None:
    return next((p for p in record.offsets if p.agent == agent), None)


def _with_base(probe: OffsetProbe, prompt: Prompt) -> list[Span]:
    """The spans that have a base KV."""
    mask = (probe.key_offset != 0).any(axis=0) | (probe.value_offset != 0).any(axis=0)
    return [s for s in prompt.spans if s.end > s.start and bool(mask[s.start : s.end].any())]


def _relative(offset: NDArray[np.float32], norm: NDArray[np.float32], span: Span) -> NDArray[np.float64]:
    values = offset[:, span.start : span.end].astype(np.float64)
    return np.asarray((values / np.maximum(norm[:, span.start : span.end], 1e-12)).mean(axis=1))


def offset_by_layer(record: RunRecord, agent: int, span_name: str | None = None) -> FigureView:
    """What the context adds to each segment, layer by layer."""
    title = "How much does the context change the text’s memory?"
    columns = (
        "segment",
        "tokens",
        "layer",
        "key offset (relative)",
        "value offset (relative)",
        "key difference before moving (relative)",
    )
    probe = _probe(record, agent)
    if probe is None:
        return empty_view("offset_by_layer", title, "Offsets were not measured in this run.", columns)
    prompt = record.prompts[probe.prompt]
    spans = [s for s in _with_base(probe, prompt) if span_name in (None, s.name)]
    if not spans:
        reason = (
            "This segment opens the prompt, so it has no context and no offset."
            if span_name
            else "No segment of this prompt has a base to compare with."
        )
        return empty_view("offset_by_layer", title, reason, columns)
    pipeline, colours = record.request.pipeline, words.slots(record.request.pipeline)
    layers = probe.key_offset.shape[0]
    drawing = figure(340)
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    unaligned = np.zeros(layers)
    count = 0
    dashes = iter(("dot", "dashdot", "longdash", "longdashdot") * 8)
    for span in spans:
        key = _relative(probe.key_offset, probe.key_norm, span)
        value = _relative(probe.value_offset, probe.value_norm, span)
        unmoved = _relative(probe.key_unaligned, probe.key_norm, span)
        size = span.end - span.start
        unaligned, count = unaligned + unmoved * size, count + size
        hole = span.kind == "placeholder"
        name = words.segment_words(pipeline, span.name)
        colour = SLOT_COLOURS[colours.get(span.name, 0)] if hole else PREFIX_COLOUR
        dash = "solid" if hole else next(dashes)
        for axis, values in (("", key), ("2", value)):
            layer_curve(
                drawing, axis, values, name, colour, dash=dash, legendgroup=span.name,
                width=2.2 if hole else 1.3, size=5 if hole else 3,
            )  # fmt: skip
        rows += [
            (name, size, i, round(float(key[i]), 6), round(float(value[i]), 6), round(float(unmoved[i]), 6))
            for i in range(layers)
        ]
    unmoved = unaligned / max(1, count)
    drawing.add_scatter(
        x=np.arange(layers),
        y=unmoved.astype(np.float32),
        mode="lines",
        name="keys before moving (all segments)",
        line={"color": OUTLINE_COLOUR, "width": 2.4, "dash": "dash"},
        hovertemplate="before moving<br>layer %{x}: %{y:.3f}<extra></extra>",
    )
    layer_axes(drawing, layers, "offset, share of the vector’s length")
    worst = max(rows, key=lambda r: max(r[3], r[4]))
    kind = "keys" if worst[3] >= worst[4] else "values"
    key_mean = float(np.average([r[3] for r in rows], weights=[r[1] for r in rows]))
    finding = (
        f"The context changes the {kind} of {span_words(record, worst[0])} at layer {worst[2]} most: by "
        f"{number(max(worst[3], worst[4]), 2)} of their length. Moving the keys leaves a difference of "
        f"{number(key_mean, 2)} where there was {number(float(unmoved.mean()), 2)} before (means)."
    )
    how = (
        "One line per segment: the length of (KV read in this prompt minus KV read elsewhere) over the "
        "length of the "
        "KV, mean over the segment’s tokens; 0 means that copying is exact."
    )
    return FigureView("offset_by_layer", title, how, finding, drawing, columns, tuple(rows))
