"""The microscope's tabs: what a page shows for a selection, in order."""

from collections.abc import Callable
from dataclasses import dataclass

from backend.records.run import RunRecord
from viz.anchors.activations import activation_histograms, activations_by_length
from viz.anchors.gate_decisions import decision_panel
from viz.anchors.memory import codec_view, memory_by_length, memory_by_pool
from viz.anchors.pool import gate_view, pool_table, weights_view
from viz.anchors.pool_map import anchor_map
from viz.anchors.weights import varies, weights_by_layer, weights_by_token
from viz.attention.views import views as attention_views
from viz.base import format as words
from viz.base.figure import FigureView, Panel
from viz.base.format import others
from viz.run.break_even import break_even_view
from viz.run.cache_error import offset_by_layer
from viz.run.cache_error_facts import error_by_layer, error_map
from viz.run.divergence import kl_along_answer
from viz.run.facts import final_agent
from viz.run.familiarity import surprisal_panel
from viz.run.play import play_panel
from viz.run.summary import memory_view, record_html
from viz.run.timing import ttft_view
from viz.run.verdict import compare

View = FigureView | Panel
RUN = "What exactly was run?"


@dataclass(frozen=True)
class Selection:
    """The selection on the page, shared by all tabs. ``span``: a span's name."""

    agent: int
    method: str
    span: str | None = None


@dataclass(frozen=True)
class Tab:
    """One tab: its label, the question it answers, and its views."""

    key: str
    label: str
    question: str
    views: Callable[[RunRecord, Selection], tuple[View, ...]]


def default_selection(record: RunRecord) -> Selection:
    """The last agent under a method that changed the answer, else under one that reused."""
    labels = words.others(record)
    changed = [label for label in labels if compare(record, label).kind == "answer"]
    reusing = [label for label in labels if words.reused_anything(record.outcome(final_agent(record), label))]
    method = (changed or reusing or list(labels) or [words.dense_label(record)])[0]
    agent = final_agent(record)
    if not words.reused_anything(record.outcome(agent, method)):
        agent = next((a for a in record.agents if words.reused_anything(record.outcome(a, method))), agent)
    return Selection(agent, method)


def gated_method(record: RunRecord, selection: Selection) -> str:
    """The selected method if it has a gate, else the first that has one."""
    labels = (selection.method, *others(record))
    return next(
        (m for m in labels if any(record.outcome(a, m).gate for a in record.agents)), selection.method
    )


def _play(record: RunRecord, focus: Selection) -> tuple[View, ...]:
    return (play_panel(record, focus.agent, focus.method, focus.span),)


def _offsets(record: RunRecord, focus: Selection) -> tuple[View, ...]:
    return (offset_by_layer(record, focus.agent, focus.span),)


def _errors(record: RunRecord, focus: Selection) -> tuple[View, ...]:
    method = focus.method if focus.method in others(record) else (*others(record), focus.method)[0]
    return (
        error_by_layer(record, focus.agent),
        error_map(record, focus.agent, method, "key"),
        error_map(record, focus.agent, method, "value"),
    )


def _answer(record: RunRecord, focus: Selection) -> tuple[View, ...]:
    return (kl_along_answer(record, focus.agent), surprisal_panel(record, focus.agent, focus.span))


def _anchors(record: RunRecord, focus: Selection) -> tuple[View, ...]:
    method = gated_method(record, focus)
    agent, span = focus.agent, focus.span
    by_layer = weights_by_layer(record, agent, method, span)
    return (
        gate_view(record, agent, method),
        decision_panel(record, agent, method),
        weights_view(record, agent, method),
        weights_by_token(record, agent, method, span),
        *((by_layer,) if varies(by_layer) else ()),
        anchor_map(record, agent, method, span),
        Panel("pools", "Which texts are kept as anchors?", pool_table(record, method)),
        activations_by_length(record, method),
        activation_histograms(record, method),
        memory_by_pool(record, method),
        memory_by_length(record, method),
        codec_view(record, method),
    )


def _attention(record: RunRecord, focus: Selection) -> tuple[View, ...]:
    return attention_views(record, focus.agent, focus.method, focus.span)


TABS: tuple[Tab, ...] = (
    Tab("play", "Play it", "What happens to a text that is copied?", _play),
    Tab("errors", "Errors", "Where does the reused cache differ from the full read’s?", _errors),
    Tab("offsets", "Offsets", "What would a correction have to add?", _offsets),
    Tab("answer", "Answer", "Where along the answer do predictions drift?", _answer),
    Tab("anchors", "Anchors", "What was the correction made from, and was it trusted?", _anchors),
    Tab("attention", "Attention", "What did this agent attend to?", _attention),
    Tab(
        "timing",
        "Timing",
        "What did reuse gain?",
        lambda run, _: (ttft_view(run), break_even_view(run)),
    ),
    Tab("memory", "Memory", "What did reuse keep?", lambda run, _: (memory_view(run),)),
    Tab("record", "Record", RUN, lambda run, _: (Panel("record", RUN, record_html(run)),)),
)


def tab(key: str) -> Tab:
    """The tab with this key."""
    return next(t for t in TABS if t.key == key)
