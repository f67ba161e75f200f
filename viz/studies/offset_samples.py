"""What a scenario's requests show of offsets, and how well these are estimated (KVCOMM, Fig. A.4 to A.12)."""

from typing import Any

import numpy as np

from backend.records.offsets import APPROXIMATIONS, KINDS, OffsetStudy
from viz.base.figure import FigureView, empty_view, figure
from viz.base.format import GAP, agent_name, number, percent, rounded
from viz.base.subplots import layer_axes, layer_curve, two_panels
from viz.base.theme import METHOD_COLOURS, OUTLINE_COLOUR, SLOT_COLOURS
from viz.studies.offset_focus import PART_WORDS, Array, Focus

PART_COLOURS = (SLOT_COLOURS[4], SLOT_COLOURS[0])
QUANTILES = (5, 25, 50, 75, 95)
#: The two copies, the estimates, the profiles, the ceiling: (colour, dash, symbol).
LOOKS = {
    "plain": (OUTLINE_COLOUR, "dot", "x"),
    "moved": (METHOD_COLOURS[1], "solid", "diamond"),
    "nearest": (METHOD_COLOURS[3], "dot", "triangle-up"),
    "cosine": (METHOD_COLOURS[4], "dashdot", "cross"),
    "softmax": (METHOD_COLOURS[2], "solid", "square"),
    "uniform": (METHOD_COLOURS[5], "longdash", "circle"),
    "shipped": (METHOD_COLOURS[6], "dash", "star"),
    "corrected": (SLOT_COLOURS[2], "solid", "hexagon"),
    "oracle": (OUTLINE_COLOUR, "dash", "circle-open"),
}


def distributions(record: OffsetStudy, focus: Focus) -> FigureView:
    """Fig. A.4 to A.11: offsets of shared texts against those of the template text behind them."""
    title = "Is template text changed more than the texts in its holes?"
    columns = (
        "text", "kind", "layer", "tokens", *(f"{q}% quantile" for q in QUANTILES), "mean offset (L2)",
        "standard deviation between requests",
    )  # fmt: skip
    samples = record.samples
    if samples is None:
        return empty_view("study_distributions", title, _no_requests(), columns)
    drawing = figure(340, boxmode="group")
    two_panels(drawing)
    rows: list[tuple[Any, ...]] = []
    layers = samples.keys.shape[0]
    spread_of: dict[tuple[str, int], tuple[float, float]] = {}
    for part, label in enumerate(PART_WORDS):
        mask = samples.part == part
        if focus.agent is not None:
            mask = mask & (samples.agent == focus.agent)
        if not mask.any():
            continue
        number_of, numbers = samples.sample[mask], np.unique(samples.sample[mask])
        for axis, kind in zip(("", "2"), KINDS, strict=True):
            data = getattr(samples, kind)[:, mask].astype(np.float64)
            low, first, middle, third, high = np.percentile(data, QUANTILES, axis=1)
            means = np.stack([data[:, number_of == i].mean(axis=1) for i in numbers])
            drawing.add_box(
                x=np.arange(layers),
                lowerfence=low,
                q1=first,
                median=middle,
                q3=third,
                upperfence=high,
                mean=data.mean(axis=1),
                name=label,
                legendgroup=label,
                offsetgroup=label,
                showlegend=axis == "",
                line={"color": PART_COLOURS[part], "width": 1.6},
                fillcolor=f"{PART_COLOURS[part]}{('22', '66')[part]}",
                xaxis=f"x{axis}",
                yaxis=f"y{axis}",
            )
            between = means.std(axis=0)
            spread_of[kind, part] = (float(data[-1].mean()), float(between[-1] / max(data[-1].mean(), 1e-12)))
            rows += [
                (label, kind, layer, int(mask.sum()),
                 *rounded(*(q[layer] for q in (low, first, middle, third, high))),
                 *rounded(data[layer].mean(), between[layer]))
                for layer in range(layers)
            ]  # fmt: skip
    layer_axes(drawing, layers, "offset (L2)")
    drawing.update_layout(xaxis={"range": [-0.6, layers - 0.4]}, xaxis2={"range": [-0.6, layers - 0.4]})
    finding = " ".join(
        f"At the last layer the {kind} of {PART_WORDS[1]} move by {number(spread_of[kind, 1][0], 2)}, of "
        f"{PART_WORDS[0]} by {number(spread_of[kind, 0][0], 2)}; from request to request these means vary by "
        f"{percent(spread_of[kind, 1][1], 1)} and {percent(spread_of[kind, 0][1], 1)}."
        for kind in KINDS
        if (kind, 1) in spread_of and (kind, 0) in spread_of
    )
    how = (
        f"Every token of {len(np.unique(samples.sample))} requests, {_who(record, focus)}: boxes hold the "
        "middle half, whiskers 5 to 95%. Offsets are relative to the base that would be copied."
    )
    if not rows:
        return empty_view("study_distributions", title, "This agent reads no shared text.", columns)
    return FigureView(
        "study_distributions", title, how, finding or "One of the two kinds of text does not occur here.",
        drawing, columns, tuple(rows),
    )  # fmt: skip


QUESTIONS = {
    "cosine": ("Does the estimated correction point the right way?", "cosine similarity of the offsets"),
    "cache_cosine": ("How like the real cache is the corrected one?", "cosine similarity of the KV"),
    "error": ("How much error does each estimate leave?", "error (L2)"),
}


def estimate_view(record: OffsetStudy, focus: Focus, which: str) -> FigureView:
    """Fig. A.12: estimated against real, by layer: ``cosine``, ``cache_cosine`` or ``error``."""
    title, unit = QUESTIONS[which]
    columns = ("estimate", "agent", "text", "kind", "layer", unit, "real offset (L2)", "tokens")
    estimates = record.approximated
    key = f"study_{which}"
    if estimates is None:
        return empty_view(key, title, _no_requests(), columns)
    part = focus.part
    chosen = [i for i, agent in enumerate(estimates.agents) if focus.agent in (None, agent)]
    weight = estimates.tokens[chosen, part].astype(np.float64)
    if not weight.sum():
        why = "No sample here has an anchor that is at least as long, so nothing can be estimated."
        return empty_view(key, title, why, columns)
    data = getattr(estimates, which)[:, chosen, part]  # (rows, agents, kinds, layers)
    mean = _mean(data, weight)
    real = _mean(estimates.offset[None][:, chosen, part], weight)[0]
    layers = data.shape[-1]
    drawing = figure(380)
    two_panels(drawing)
    for index, name in enumerate(estimates.names):
        colour, dash, symbol = LOOKS.get(name, (OUTLINE_COLOUR, "solid", "circle"))
        hidden = which == "error" and name == "plain"
        for kind, axis in enumerate(("", "2")):
            layer_curve(
                drawing, axis, mean[index, kind], APPROXIMATIONS.get(name, name), colour, dash=dash,
                symbol=symbol, visible="legendonly" if hidden else True,
            )  # fmt: skip
    layer_axes(drawing, layers, unit)
    drawing.update_layout(margin={"t": 96}, legend={"y": 1.16})
    if which != "error":
        drawing.update_layout(yaxis={"rangemode": "normal"})
    rows = [
        (APPROXIMATIONS.get(name, name), agent, PART_WORDS[part], kind, layer,
         *rounded(getattr(estimates, which)[i, a, part, k, layer], estimates.offset[a, part, k, layer]),
         int(estimates.tokens[a, part]))
        for i, name in enumerate(estimates.names)
        for a, agent in enumerate(estimates.agents)
        if a in chosen
        for k, kind in enumerate(KINDS)
        for layer in range(layers)
    ]  # fmt: skip
    return FigureView(
        key, title, _how(record, focus, which), _ranking(estimates.names, mean, real, which), drawing,
        columns, tuple(rows),
    )  # fmt: skip


def _ranking(names: tuple[str, ...], mean: Array, real: Array, which: str) -> str:
    """Every estimate from best to worst, keys and values together, over the layers that have an offset."""
    if mean.shape[-1] < 2:
        return "A model of one layer has no offsets: its keys and values depend on the token alone."
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = real if which == "error" else np.ones_like(real)
        share = (mean / scale)[:, :, 1:].reshape(len(names), -1)
        score = np.nansum(share, axis=1) / (~np.isnan(share)).sum(axis=1)
    scores = {
        name: float(value)
        for name, value in zip(names, score, strict=True)
        if name not in ("plain", "oracle") and not np.isnan(value)
    }
    order = sorted(scores, key=lambda name: scores[name] if which == "error" else -scores[name])
    if which == "error":
        ranking = ", ".join(f"{APPROXIMATIONS.get(n, n)} {100 * scores[n]:.0f}{GAP}%" for n in order)
        return f"What is left of the true offset, from best to worst: {ranking}."
    ranking = ", ".join(f"{APPROXIMATIONS.get(n, n)} {number(scores[n], 2)}" for n in order)
    return f"From best to worst, over all layers but the first: {ranking}."


def _how(record: OffsetStudy, focus: Focus, which: str) -> str:
    estimates = record.approximated
    assert estimates is not None
    agents = [i for i, agent in enumerate(estimates.agents) if focus.agent in (None, agent)]
    counted, unmatched = (int(x[agents, focus.part].sum()) for x in (estimates.tokens, estimates.unmatched))
    aid = {
        "cosine": "1: the estimate points exactly where the real offset does; 0: no relation or no estimate.",
        "cache_cosine": "1: the corrected cache points exactly where the full read’s does.",
        "error": "0: the estimate is exact; an estimate above “copied and moved” is worse than none.",
    }[which]
    return (
        f"{aid} Each request is estimated from the {len(record.request.values) - 1} others, whatever the "
        f"gate would say; {PART_WORDS[focus.part]}, {_who(record, focus)}: {counted:,} tokens"
        + (f", {unmatched:,} more had no anchor as long." if unmatched else ".")
    )


def _mean(data: Array, weight: Array) -> Array:
    """Mean over agents (axis 1) by their tokens; NaN only where every agent has none."""
    weights = np.where(np.isnan(data), 0.0, weight[None, :, None, None])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((np.nan_to_num(data) * weights).sum(axis=1) / weights.sum(axis=1))


def _who(record: OffsetStudy, focus: Focus) -> str:
    if focus.agent is None or record.request.pipeline is None:
        return "all agents"
    return agent_name(record.request.pipeline, focus.agent)


def _no_requests() -> str:
    return "No requests were sent through the scenario. Ask for two or more and measure again."
