"""One column pinned as A beside all others: which options differ, and what they changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from backend.records.request import MethodChoice, with_reference
from backend.records.run import RunRecord
from viz.base import format as words
from viz.base.format import number
from viz.base.html import html, quoted, render
from viz.run.diagnosis import mean_error
from viz.run.facts import final_agent

SEEN_BESIDE = 4  # columns of a comparison on a screen 1,280 pixels wide
MOST_OPTIONS = 4  # differing options that are named
OptionNames = Mapping[str, Mapping[str, str]]  # what a page calls them, by method, then by option


@dataclass(frozen=True)
class Difference:
    """A column beside A, each figure in words."""

    name: str
    index: int  # of its colour
    options: str
    answer: Markup
    token: Markup
    time: str
    reused: str
    error: str


def differences_html(record: RunRecord, pinned: str, names: OptionNames) -> Markup:
    """The pinned column as the first line of a table, every other one below it.

    Without a pinned column dense is A, if there are more columns than fit on a screen; else there is no
    table.
    """
    a = pinned if pinned in record.labels else words.dense_label(record)
    if a != pinned and len(record.labels) <= SEEN_BESIDE:
        return Markup()
    others = [label for label in record.labels if label != a]
    lines = [difference(record, a, label, names) for label in (a, *others)]
    return render("run/differences.html", lines=lines, pinned=a == pinned)


def difference(record: RunRecord, a: str, label: str, names: OptionNames) -> Difference:
    """One column beside A; for A itself its figures alone."""
    look, is_a, final = words.styles(record)[label], label == a, final_agent(record)
    outcome, of_a = record.outcome(final, label), record.outcome(final, a)
    first, cached = words.total_ttft(record, label), words.cached_ttft(record, label)
    hits, total = words.cached_tokens(record, label)
    error = mean_error([record.outcome(agent, label) for agent in record.agents])
    own_choice = _choice(record, label)
    exact = words.exact_words(record.request.pipeline, own_choice.exact)
    answer = words.clip(outcome.answer, 24) if outcome.answer is not None else "none"
    return Difference(
        look.name, look.index,
        "" if is_a else changed_options(_choice(record, a), own_choice, names, exact),
        html("{}{}", "" if is_a or outcome.answer == of_a.answer else "≠ ", answer),
        Markup() if is_a else first_token(record, a, label),
        words.milliseconds(first) if is_a
        else words.times_words(first, cached, words.total_ttft(record, a), "A"),
        words.percent(hits, total), "0" if error is None else number(error, 2),
    )  # fmt: skip


def _choice(record: RunRecord, label: str) -> MethodChoice:
    return next(choice for choice in with_reference(record.request.methods) if choice.label == label)


def changed_options(a: MethodChoice, b: MethodChoice, names: OptionNames, exact: str = "") -> str:
    """The options of ``b`` that differ from A's, with both values, and its repaired parts, in words."""
    if a.name != b.name:
        return "another method"
    labels = names.get(a.name, {})
    keys = [key for key in {**a.options, **b.options} if a.options.get(key) != b.options.get(key)]
    changes = [
        f"{labels.get(key, key)}: {_value(a.options.get(key))} → {_value(b.options.get(key))}"
        for key in keys[:MOST_OPTIONS]
    ]
    changes += [f"{len(keys) - len(changes)} more"] if len(keys) > len(changes) else []
    changes += [f"repaired: {exact}"] if exact and b.exact != a.exact else []
    return "; ".join(changes) or "none"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "as usual" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def first_token(record: RunRecord, a: str, label: str) -> Markup:
    """The first token that differs from A's, in running order of the agents."""
    for agent in record.agents:
        ref, other = record.outcome(agent, a), record.outcome(agent, label)
        reference, tokens = (list(o.token_ids) for o in (ref, other))
        if reference == tokens:
            continue
        length = min(len(reference), len(tokens))
        at = next((i for i in range(length) if reference[i] != tokens[i]), length)
        name = words.agent_name(record.request.pipeline, agent)
        now, was = (o.texts[at] if at < len(o.texts) else "(end)" for o in (other, ref))
        return html("{}, token {}: {} for {}", name, at + 1, quoted(now), quoted(was))
    return Markup("none: same texts")
