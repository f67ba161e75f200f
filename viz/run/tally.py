"""Several requests in a row: what each method kept and what it cost, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backend.records.run import COMPUTED, RECOMPUTED, RunRecord
from viz.base.format import escape, percent
from viz.base.theme import method_styles


@dataclass(frozen=True)
class Count:
    """One method in one record: the final answer, and reuse over all agents."""

    label: str
    name: str
    right: bool | None
    as_dense: bool
    agents: int
    reused_agents: int
    tokens: int
    cached_tokens: int
    ttft_ms: float


def count(record: RunRecord) -> tuple[Count, ...]:
    """A record in numbers small enough to keep many of them."""
    final = record.request.pipeline.final
    names = {m.label: m.name for m in record.request.methods}
    dense = record.outcome(final, record.labels[0])
    out = []
    for label in record.labels:
        mine = [o for o in record.outcomes if o.method == label]
        last = record.outcome(final, label)
        cached = sum(int((~np.isin(o.actions, (COMPUTED, RECOMPUTED)).all(axis=0)).sum()) for o in mine)
        out.append(
            Count(
                label,
                names.get(label, label),
                last.correct,
                last.answer == dense.answer and (last.answer is not None or last.text == dense.text),
                len(mine),
                sum(o.state == "reused" for o in mine),
                sum(o.actions.shape[1] for o in mine),
                cached,
                sum(o.timing.ttft_ms for o in mine),
            )
        )
    return tuple(out)


def tally_html(rows: Sequence[tuple[Count, ...]], wanted: int) -> str:
    """The counts of several requests as a table; empty without any."""
    if not rows:
        return ""
    labels = [c.label for c in rows[0]]
    styles = method_styles(labels, {c.label: c.name for c in rows[0]})
    dense = sum(row[0].ttft_ms for row in rows)
    body = ""
    for index, label in enumerate(labels):
        mine = [row[index] for row in rows]
        scored = [c for c in mine if c.right is not None]
        right = f"{sum(bool(c.right) for c in scored)} of {len(scored)}" if scored else "not known"
        agents, tokens = sum(c.agents for c in mine), sum(c.tokens for c in mine)
        time = sum(c.ttft_ms for c in mine)
        body += (
            f"<tr><td>{escape(styles[label].name)}</td><td>{right}</td>"
            f"<td>{sum(c.as_dense for c in mine)} of {len(mine)}</td>"
            f"<td>{percent(sum(c.reused_agents for c in mine), agents)}</td>"
            f"<td>{percent(sum(c.cached_tokens for c in mine), tokens)}</td>"
            f"<td>{time / max(1e-9, dense):.2f}\u00d7 dense</td></tr>"
        )
    return (
        '<div class="kv-card kv-table-wrap" id="kv-tally-card"><table class="kv-table"><caption>'
        f"{len(rows)} of {wanted} requests of the set, one after the other; "
        "the last one is shown below</caption>"
        "<thead><tr><th>method</th><th>final answer right</th><th>final answer as dense</th>"
        "<th>agents that reused all</th><th>prompt tokens from a cache</th>"
        "<th>time to first token, summed</th>"
        f"</tr></thead><tbody>{body}</tbody></table></div>"
    )
