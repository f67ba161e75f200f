"""Several requests in a row: what each method kept and what it cost, counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from backend.records.run import COMPUTED, RECOMPUTED, RunRecord
from viz.base.format import percent
from viz.base.html import render
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
        outcomes = [o for o in record.outcomes if o.method == label]
        last = record.outcome(final, label)
        cached = sum(int((~np.isin(o.actions, (COMPUTED, RECOMPUTED)).all(axis=0)).sum()) for o in outcomes)
        out.append(
            Count(
                label,
                names.get(label, label),
                last.correct,
                last.answer == dense.answer and (last.answer is not None or last.text == dense.text),
                len(outcomes),
                sum(o.state == "reused" for o in outcomes),
                sum(o.actions.shape[1] for o in outcomes),
                cached,
                sum(o.timing.ttft_ms for o in outcomes),
            )
        )
    return tuple(out)


def tally_html(rows: Sequence[tuple[Count, ...]], total: int) -> Markup:
    """The counts of several requests as a table; empty without any."""
    if not rows:
        return Markup()
    styles = method_styles([c.label for c in rows[0]], {c.label: c.name for c in rows[0]})
    dense = sum(row[0].ttft_ms for row in rows)
    lines = []
    for counts in zip(*rows, strict=True):
        scored = [c for c in counts if c.right is not None]
        agents, tokens = sum(c.agents for c in counts), sum(c.tokens for c in counts)
        lines.append(
            (
                styles[counts[0].label].name,
                f"{sum(bool(c.right) for c in scored)} of {len(scored)}" if scored else "not known",
                f"{sum(c.as_dense for c in counts)} of {len(counts)}",
                percent(sum(c.reused_agents for c in counts), agents),
                percent(sum(c.cached_tokens for c in counts), tokens),
                f"{sum(c.ttft_ms for c in counts) / max(1e-9, dense):.2f}\u00d7 the full read",
            )
        )
    return render("run/tally.html", lines=lines, done=len(rows), wanted=total)
