"""The strip: what happened to every token of one agent's prompt, one lane per method.

Markup is small, for prompts of thousands of tokens: a lane is a row of runs, a run a row of ``<i
data-token>`` cells; agent and method are attributes of the lane, and tooltips read one JSON block per strip.
Actions differ in colour and in height or hatching.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup

from backend.records.prompt import Prompt, Span
from backend.records.run import ACTIONS, RunRecord
from viz.base import format as words
from viz.base.html import joined, render
from viz.run.token_lanes import MethodRun, lane_data, lanes_of, reading_html, runs_of

CELL_PX = 4  # the least width of a token before the band scrolls sideways
MAX_CELLS = 9000  # over all lanes; beyond it one cell stands for several tokens
OVERVIEW_FROM = 240  # tokens from which a whole-prompt overview is added


def strip_html(
    record: RunRecord, agent: int, selected: tuple[int, int] | None = None, method: str | None = None
) -> Markup:
    """One agent's prompt as a band and as text.

    Args:
        record: the run.
        agent: whose prompt.
        selected: tokens ``[start, end)`` to mark.
        method: whose colouring the text starts with; by default the last method's.
    """
    lanes = lanes_of(record, agent)
    groups: dict[int, list[MethodRun]] = {}
    for lane in lanes:
        groups.setdefault(lane.outcome.prompt, []).append(lane)
    shown = method if method in record.labels else lanes[-1].label
    bands = [_band(record, agent, record.prompts[i], part, selected, shown) for i, part in groups.items()]
    codes = {int(c) for lane in lanes for c in np.unique(lane.codes)}
    return render(
        "run/token_strip.html",
        agent=agent,
        name=words.agent_name(record.request.pipeline, agent),
        total=len(words.prompt_of(record, lanes[0].outcome).texts),
        worst=_worst(record, lanes),
        actions=[name for code, name in enumerate(ACTIONS) if code in codes or code < 3],
        rejected=any(lane.rejected.any() for lane in lanes),
        measured=any(lane.error is not None for lane in lanes),
        bands=joined(bands),
    )


def _band(
    record: RunRecord,
    agent: int,
    prompt: Prompt,
    lanes: list[MethodRun],
    selected: tuple[int, int] | None,
    shown: str,
) -> Markup:
    total = len(prompt.texts)
    if not total:
        return Markup('<p class="kv-note">This prompt has no tokens.</p>')
    peak = max((float(lane.error.max()) for lane in lanes if lane.error is not None), default=0.0)
    step = max(1, -(-total * len(lanes) // MAX_CELLS))
    return render(
        "run/token_band.html",
        agent=agent,
        total=total,
        lanes=[_lane(prompt, lane, peak, step) for lane in lanes],
        step=step,
        width=total * CELL_PX,
        spans=[_bracket(record, span) for span in prompt.spans if span.end > span.start],
        ticks=ticks(total),
        selected=_within(selected, total),
        overview=total >= OVERVIEW_FROM,
        chosen=selected,
        reading=reading_html(record, prompt, lanes, selected, shown),
        data=lane_data(record, prompt, lanes),
    )


def ticks(total: int) -> list[int]:
    """The tokens numbered below a band, without one near the end of a long band."""
    unit = next(s for s in (5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if total / s <= 14 or s == 100)
    return [token for token in range(0, total, unit) if token <= 0.95 * total or 9 * unit >= total]


def _lane(prompt: Prompt, lane: MethodRun, peak: float, step: int) -> dict[str, Any]:
    """A lane's runs as (action, rejected, tokens, cells), and its errors as heights of 100."""

    # Built here, since a template's loop takes twice as long; numbers need no escaping.
    def cells(start: int, end: int) -> Markup:
        return Markup("".join(f"<i data-token={token}></i>" for token in range(start, end, step)))

    changes = (np.flatnonzero(np.diff(lane.codes.astype(int))) + 1).tolist()
    return {
        "lane": lane,
        "kept": int(np.isin(lane.codes, (1, 2)).sum()),
        "runs": [
            (ACTIONS[lane.codes[start]], bool(lane.rejected[start]), end - start, cells(start, end))
            for start, end in runs_of(prompt, [lane.codes, lane.rejected])
        ],
        "changes": [(ACTIONS[lane.codes[a]], a, b) for a, b in pairwise([0, *changes, len(lane.codes)])],
        "heights": np.round(100 * lane.error / peak).astype(int).tolist()
        if lane.error is not None and peak > 0
        else [],
    }


def _bracket(record: RunRecord, span: Span) -> dict[str, Any]:
    """A segment above the lanes; ``slot`` is None for template text."""
    pipeline = record.request.pipeline
    hole = span.kind == "placeholder"
    return {
        "span": span,
        "label": words.segment_words(pipeline, span.name),
        "slot": words.slots(pipeline).get(span.name, 0) if hole else None,
    }


def _within(selected: tuple[int, int] | None, total: int) -> tuple[int, int] | None:
    if selected is None or not 0 <= selected[0] < selected[1]:
        return None
    return min(selected[0], total), min(selected[1], total)


def _worst(record: RunRecord, lanes: list[MethodRun]) -> dict[str, Any] | None:
    """The token with the largest error of all lanes."""
    errors = [
        (float(lane.error.max()), int(lane.error.argmax()), lane) for lane in lanes if lane.error is not None
    ]
    error, token, lane = max(errors, key=lambda f: f[0], default=(0.0, 0, None))
    if lane is None or not error:
        return None
    layer = int(lane.layer[token]) if lane.layer is not None else 0
    text = words.prompt_of(record, lane.outcome).texts[token]
    return {"error": error, "token": token, "layer": layer, "text": text, "name": lane.name}
