"""How much do chosen tokens bring when they are computed again? (CacheBlend, Fig. 6 and 16; both masks)"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend.records.blend import BlendStudy
from viz.base.figure import FigureView, figure, interval
from viz.base.format import TINY, number, plural
from viz.base.subplots import curve, two_panels
from viz.base.theme import METHOD_COLOURS, SYMBOLS

NAMES = {
    "cacheblend": "CacheBlend",
    "query_norm": "query norm",
    "random_k": "random",
    "oracle_k": "largest true error",
}
MASK_WORDS = {"exact": "exact mask", "shipped": "mask as shipped"}
KINDS = {
    "keys": ("K error (relative)", "keys"),
    "values": ("V error (relative)", "values"),
    "chosen": ("V error of the chosen (relative)", "values of the chosen tokens"),
    "kl": ("KL (nats)", "next token"),
}
LOG = {"type": "log", "exponentformat": "power"}


def views(record: BlendStudy) -> tuple[FigureView, ...]:
    """Values, keys, the next token, the chosen tokens alone, and what it costs."""
    return (
        by_ratio(record, "values"),
        by_ratio(record, "keys"),
        by_ratio(record, "kl"),
        by_ratio(record, "chosen"),
        by_work(record),
    )


def _plottable(values: NDArray[np.float64], log: bool) -> NDArray[np.float64]:
    """What is 0 has no place on a log axis."""
    return np.maximum(values, TINY) if log else values


def by_ratio(record: BlendStudy, kind: str) -> FigureView:
    """Mean error by share, a line per choice of tokens, a panel per mask."""
    masks, ratios = record.request.masks, record.request.ratios
    drawing = figure(330)
    if len(masks) > 1:
        two_panels(drawing, tuple(MASK_WORDS[m].capitalize() for m in masks))
    log = kind == "kl"
    rows: list[tuple[Any, ...]] = []
    for axis, mask in zip(("", "2"), masks, strict=False):
        for index, choice in enumerate(record.request.choices):
            mean, low, high = record.mean(kind, choice, mask)
            plotted = _plottable(mean, log)
            curve(
                drawing, list(ratios), plotted, NAMES[choice], METHOD_COLOURS[1 + index], axis=axis,
                symbol=SYMBOLS[index], hover="share %{x}: %{y:.4g}",
                error_y=interval(plotted, _plottable(low, log), _plottable(high, log)),
            )  # fmt: skip
            steps = (np.full(1, np.nan), *record.steps(kind, choice, mask)[1:])
            rows += [
                (NAMES[choice], mask, ratio, *map(_plain, (mean[i], low[i], high[i])), _falls(i, steps[2]))
                for i, ratio in enumerate(ratios)
            ]
    unit, label = KINDS[kind]
    x = {"title": "share of tokens computed again", "range": [-0.03, 1.03]}
    scale = LOG if log else {"rangemode": "tozero"}
    drawing.update_layout(xaxis=x, yaxis={"title": unit + ", log scale" * log} | scale)
    if len(masks) > 1:
        drawing.update_layout(xaxis2=x, yaxis2=LOG if log else {})
    title = {
        "values": "Does computing more tokens again bring values nearer to the full read?",
        "keys": "Does computing more tokens again bring keys nearer to the full read?",
        "kl": "Does computing more tokens again bring the next token nearer to the full read?",
        "chosen": "Are the tokens that were computed again right?",
    }[kind]
    bare = {"keys": record.copied_keys, "values": record.copied_values, "kl": record.copied_kl}.get(kind)
    base = "" if bare is None else f" Copying and repositioning alone has {number(float(bare.mean()), 3)}."
    how = (
        f"Means over {plural(len(record.prompt_tokens), 'prompt')} with 95% intervals, which say nothing of "
        "the pairing: the table says where a step to the next share falls with certainty." + base
    ) + f" What is under {TINY:g} nats is drawn there." * log
    columns = ("choice", "mask", "share", unit, "95% from", "95% to", "falls from the share before")
    return FigureView(
        f"blend_{kind}", title, how, _finding(record, kind, label), drawing, columns, tuple(rows)
    )


def by_work(record: BlendStudy) -> FigureView:
    """The next token's KL against all that was forwarded, choosing included."""
    drawing = figure(330)
    rows: list[tuple[Any, ...]] = []
    mask = record.request.masks[0]
    for index, choice in enumerate(record.request.choices):
        work, mean = record.mean("work", choice, mask)[0], record.mean("kl", choice, mask)[0]
        curve(
            drawing, work, np.maximum(mean, TINY), NAMES[choice], METHOD_COLOURS[1 + index],
            symbol=SYMBOLS[index], hover="%{x:.0%} of the full read's work: %{y:.4g} nats",
        )  # fmt: skip
        rows += [
            (NAMES[choice], mask, ratio, _plain(work[i]), _plain(mean[i]))
            for i, ratio in enumerate(record.request.ratios)
        ]
    drawing.add_vline(x=1, line={"width": 1, "dash": "dot", "color": "#8b95a1"})
    drawing.update_layout(
        xaxis={"title": "work / full read's (tokens × layers)", "rangemode": "tozero"},
        yaxis={"title": "KL (nats), log scale"} | LOG,
    )
    first = record.request.choices[0]
    work_shares = record.mean("work", first, mask)[0]
    finding = (
        f"{NAMES[first]} does {number(float(work_shares[0]) * 100, 2)}% of the full read’s work at share "
        f"{record.request.ratios[0]:g} and {number(float(work_shares[-1]) * 100, 3)}% at "
        f"{record.request.ratios[-1]:g}."
    )
    how = (
        "All that was forwarded counts: the layers by which tokens are chosen, the chosen, the last token. "
        "Right of the dotted line reading everything would have been cheaper."
    )
    title = "What does nearness to the full read cost?"
    columns = ("choice", "mask", "share", "work / full read's", "KL (nats)")
    return FigureView("blend_work", title, how, finding, drawing, columns, tuple(rows))


def _finding(record: BlendStudy, kind: str, label: str) -> str:
    """Both masks at the share where they differ most, under the first choice."""
    choice, masks = record.request.choices[0], record.request.masks
    means = [record.mean(kind, choice, mask)[0] for mask in masks]
    if len(masks) == 1 or np.isnan(means[0] - means[1]).all():
        line = means[0][~np.isnan(means[0])]
        if not len(line):
            return "Nothing was computed again."
        return f"{NAMES[choice]}, {label}: from {number(float(line[0]), 3)} to {number(float(line[-1]), 3)}."
    widest = int(np.nanargmax(np.abs(means[1] - means[0])))
    values = " and ".join(
        f"{number(float(m[widest]), 3)} under the {MASK_WORDS[k]}" for m, k in zip(means, masks, strict=True)
    )
    return f"{NAMES[choice]}, {label}: at share {record.request.ratios[widest]:g} the error is {values}."


def _falls(index: int, high: np.ndarray[Any, Any]) -> str:
    """Is the paired step to this share below zero with its whole interval?"""
    if not index or np.isnan(high[index - 1]):
        return ""
    return "yes" if high[index - 1] < 0 else "no"


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)
