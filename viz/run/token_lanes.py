"""The strip's content: each token's action and error under each method, and the prompt as marked text."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from backend.records.prompt import Prompt, Span
from backend.records.run import ACTIONS, Outcome, RunRecord
from viz.base import format as words
from viz.base.html import render

MAX_LANES = 8


@dataclass(frozen=True)
class MethodRun:
    """One method's tokens: action codes, worst-layer error, and whether the gate rejected them."""

    label: str
    name: str
    index: int
    outcome: Outcome
    codes: NDArray[np.uint8]
    error: NDArray[np.float32] | None
    layer: NDArray[np.int64] | None
    rejected: NDArray[np.bool_]


def lanes_of(record: RunRecord, agent: int) -> list[MethodRun]:
    """The lanes of one agent, dense first."""
    runs = []
    for label, look in list(words.styles(record).items())[:MAX_LANES]:
        outcome = record.outcome(agent, label)
        prompt = words.prompt_of(record, outcome)
        refused = {g.placeholder for g in outcome.gate if not g.shareable}
        rejected = np.zeros(len(prompt.texts), dtype=np.bool_)
        for span in prompt.spans:
            if span.kind == "placeholder" and span.name in refused:
                rejected[span.start : span.end] = True
        kinds = [e for e in (outcome.key_error, outcome.value_error) if e is not None and e.size]
        worst = (
            np.nan_to_num(np.max(np.stack(kinds), axis=0))
            if kinds and label != words.dense_label(record)
            else None
        )
        error = worst.max(axis=0).astype(np.float32) if worst is not None else None
        layer = worst.argmax(axis=0).astype(np.int64) if worst is not None else None
        codes = words.main_actions(outcome)
        runs.append(MethodRun(label, look.name, look.index, outcome, codes, error, layer, rejected))
    return runs


def runs_of(prompt: Prompt, codes: list[NDArray[Any]]) -> list[tuple[int, int]]:
    """Longest token ranges within one span over which every given array is constant."""
    total = len(prompt.texts)
    cuts = {0, total} | {s.start for s in prompt.spans} | {s.end for s in prompt.spans}
    for array in codes:
        cuts |= set((np.flatnonzero(np.diff(array.astype(np.int64))) + 1).tolist())
    edges = sorted(c for c in cuts if 0 <= c <= total)
    return list(pairwise(edges))


def reading_html(
    record: RunRecord, prompt: Prompt, lanes: list[MethodRun], selected: tuple[int, int] | None, shown: str
) -> Markup:
    """The readable prompt; a row of radio buttons chooses whose colouring it takes."""
    colours = words.slots(record.request.pipeline)
    spans = [s for s in prompt.spans if s.end > s.start]
    starts, ends = {s.start: s for s in spans}, {s.end: s for s in spans}
    low, high = selected or (0, 0)
    return render(
        "run/token_text.html",
        agent=prompt.agent,
        lanes=lanes,
        group=f"kv-reading-{prompt.agent}-{lanes[0].outcome.prompt}-{record.id}",
        chosen=next((i for i, lane in enumerate(lanes) if lane.label == shown), len(lanes) - 1),
        colours=colours,
        runs=[
            {
                "begins": _placeholder(starts.get(start)),
                "ends": _placeholder(ends.get(end)),
                "looks": " ".join(f"l{i}a{lane.codes[start]}" for i, lane in enumerate(lanes)),
                "tokens": [(t, low <= t < high, prompt.texts[t]) for t in range(start, end)],
            }
            for start, end in runs_of(prompt, [lane.codes for lane in lanes])
        ],
    )


def _placeholder(span: Span | None) -> Span | None:
    return span if span is not None and span.kind == "placeholder" else None


def lane_data(record: RunRecord, prompt: Prompt, lanes: list[MethodRun]) -> dict[str, Any]:
    """What tooltips say: token texts, spans, and per method the runs and the errors."""
    pipeline = record.request.pipeline
    return {
        "agent": prompt.agent,
        "texts": list(prompt.texts),
        "spans": [[s.start, s.end, words.segment_words(pipeline, s.name), s.name] for s in prompt.spans],
        "methods": {lane.label: _one_lane(lane) for lane in lanes},
    }


def _one_lane(lane: MethodRun) -> dict[str, Any]:
    runs = [
        {
            "r": [a.start, a.end],
            "action": ACTIONS[a.action] if 0 <= a.action < len(ACTIONS) else "computed",
            "source": a.source,
            "reason": a.reason,
            **({} if a.exact else {"approximate": 1}),
            **({"moved": a.moved_by} if a.moved_by else {}),
            **(
                {"anchors": [[n, round(w, 3)] for n, w in _heaviest(a.anchors, a.weights)]}
                if a.anchors
                else {}
            ),
        }
        for a in lane.outcome.spans
    ]
    layer_counts = {}
    if lane.outcome.actions.shape[0] > 1:
        differ = (lane.outcome.actions != lane.outcome.actions[0]).any(axis=0)
        for token in np.flatnonzero(differ).tolist()[:4000]:
            column = lane.outcome.actions[:, token]
            layer_counts[str(token)] = [int(np.count_nonzero(column == c)) for c in range(len(ACTIONS))]
    out: dict[str, Any] = {"name": lane.name, "codes": "".join(map(str, lane.codes.tolist())), "runs": runs}
    if layer_counts:
        out["mixed"] = layer_counts
    if lane.error is not None and lane.layer is not None:
        out["error"] = [round(float(e), 3) for e in lane.error]
        out["layer"] = lane.layer.tolist()
    return out


def _heaviest(anchors: tuple[int, ...], weights: tuple[float, ...]) -> list[tuple[int, float]]:
    """The five anchors of most weight."""
    pairs = list(zip(anchors, weights, strict=False)) or [(a, float("nan")) for a in anchors]
    return [(a, w if np.isfinite(w) else 0.0) for a, w in sorted(pairs, key=lambda p: -p[1])[:5]]
