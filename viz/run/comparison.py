"""Texts side by side: one column per method, dense first, one row per agent."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from backend.prompts.pipeline import Pipeline
from backend.records.run import Outcome, RunRecord
from viz.base import format as words
from viz.base.html import render
from viz.base.textdiff import diff_html
from viz.base.theme import MethodStyle, method_styles
from viz.run.differences import OptionNames, differences_html

SAME = "the same text under every method"


@dataclass(frozen=True)
class Columns:
    """Actions on columns: those in ``duplicable`` can be duplicated, those in ``removable`` (further ones of
    a method) removed, and each pinned; ``pinned`` is. ``options``: names of options on the page."""

    duplicable: frozenset[str] = frozenset()
    removable: frozenset[str] = frozenset()
    pinned: str = ""
    options: OptionNames = field(default_factory=dict)


def comparison_html(
    record: RunRecord, columns: Columns | None = None, pending: Collection[tuple[int, str]] = ()
) -> Markup:
    """The comparison of a finished run. ``columns``: for buttons at their heads and a table beside the pinned
    one. ``pending``: agents and labels still being decoded."""
    looks = words.styles(record)
    dense = words.dense_label(record)
    heads = [_column_summary(record, m) for m in record.labels]

    def cell(agent: int, label: str) -> Markup:
        waits = (agent, label) in pending
        return _cell(record, record.outcome(agent, label), record.outcome(agent, dense), waits)

    last = record.agents[-1]
    answers = [_badges(record.outcome(last, m), record.outcome(last, dense)) for m in record.labels]
    table = grid(
        record.request.pipeline, record.agents, record.labels, looks, heads, cell, columns,
        text_differences(record), answers,
    )  # fmt: skip
    options = columns or Columns()
    differences = Markup() if pending else differences_html(record, options.pinned, options.options)
    return render("run/notes.html", notes=record.notes) + differences + table


def text_differences(record: RunRecord) -> dict[int, str]:
    """Which methods' texts differ from dense's, in words, by agent."""
    dense, looks = words.dense_label(record), words.styles(record)
    notes = {}
    for agent in record.agents if len(record.labels) > 1 else ():
        full = list(record.outcome(agent, dense).token_ids)
        changed = [m for m in record.labels if list(record.outcome(agent, m).token_ids) != full]
        notes[agent] = f"other text: {words.listing(looks[m].name for m in changed)}" if changed else SAME
    return notes


def live_html(
    pipeline: Pipeline,
    labels: Sequence[str],
    texts: Mapping[tuple[int, str], str],
    progress: str,
    done: int,
    total: int,
) -> Markup:
    """The grid of a run in progress."""
    begun = [a for a in pipeline.order if any((a, m) in texts for m in labels)]
    current = begun[-1] if begun else None

    def cell(agent: int, label: str) -> Markup:
        text = texts.get((agent, label))
        return render("run/live_cell.html", text=text, writing=agent == current and text is not None)

    live = grid(pipeline, pipeline.order, labels, method_styles(labels), ["running"] * len(labels), cell)
    share = 100 * done / total if total else 0
    return render("run/live.html", grid=live, progress=progress, done=done, total=total, share=share)


def grid(
    pipeline: Pipeline,
    agents: Sequence[int],
    labels: Sequence[str],
    looks: Mapping[str, MethodStyle],
    summaries: Sequence[str],
    cell: Callable[[int, str], Markup],
    columns: Columns | None = None,
    notes: Mapping[int, str] | None = None,
    answers: Sequence[Markup] = (),
) -> Markup:
    """Agents by methods: a summary under each method's name, and ``cell(agent, label)`` for each.

    ``answers``: shown at the heads of columns that can be changed, where agents' rows are hidden. ``notes``:
    by agent; with them only the last agent is open, and a single one only if its texts differ.
    """
    open_agents = set(agents)
    if notes:
        open_agents = {agents[-1]} if len(agents) > 1 or notes[agents[-1]] != SAME else set()
    roles = {a: words.clip(words.agent_role(pipeline, a), 90) for a in agents}
    return render(
        "run/grid.html", pipeline=pipeline, agents=agents, looks=[looks[m] for m in labels], roles=roles,
        summaries=summaries, cell=cell, columns=columns, opened=open_agents, said=notes or {},
        SAME=SAME, answers=answers,
    )  # fmt: skip


def _column_summary(record: RunRecord, label: str) -> str:
    ttft_ms, reference = (words.total_ttft(record, m) for m in (label, words.dense_label(record)))
    hits, total = words.cached_tokens(record, label)
    if label == words.dense_label(record):
        return f"the reference · {total:,} prompt tokens · TTFT {words.milliseconds(ttft_ms)}"
    if not all(record.outcome(agent, label).timing.parts_ms for agent in record.agents):
        return f"{words.percent(hits, total)} of tokens from a cache"  # planned, and not read yet
    times = words.times_words(ttft_ms, words.cached_ttft(record, label), reference)
    exact = next((m.exact for m in record.request.methods if m.label == label), "")
    repaired = words.exact_words(record.request.pipeline, exact)
    prefix = f"repaired: {repaired} · " if repaired else ""
    return f"{prefix}{words.percent(hits, total)} of tokens from a cache · TTFT {times}"


def _badges(outcome: Outcome, dense: Outcome) -> Markup:
    """A short form of an answer."""
    changed = outcome is not dense and outcome.answer != dense.answer
    return render("run/badges.html", outcome=outcome, changed=changed, quiet_same=False)


def _cell(record: RunRecord, outcome: Outcome, dense: Outcome, pending: bool = False) -> Markup:
    reference, same = outcome is dense, list(outcome.token_ids) == list(dense.token_ids)
    first = outcome.fidelity.first_divergence if outcome.fidelity else None
    counts = words.action_counts(outcome)
    return render(
        "run/cell.html",
        record=record,
        outcome=outcome,
        dense=dense,
        reference=reference,
        pending=pending,
        same=same,
        text="".join(outcome.texts) if same else diff_html(dense.texts, outcome.texts, first),
        changed=not reference and outcome.answer != dense.answer,
        tools=[t for t in record.tools if (t.agent, t.method) == (outcome.agent, outcome.method)],
        counts={name: counts[name] for name in words.ACTION_ORDER if counts[name]},
        total=sum(counts.values()),
        near_tie=outcome.fidelity is not None and outcome.fidelity.near_tie,
    )
