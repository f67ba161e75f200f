"""The findings of each step of the guided tour: which prediction came true, sentences, and figures.

All are computed from the record. If the effect that a step is about does not show in the run, the step says
so (``StepFindings.shows``). A step's methods are identified by their order behind dense.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup, escape

from backend.records.run import Outcome, RunRecord
from viz.anchors.gate_decisions import decision_panel
from viz.anchors.pool import gate_view, weights_view
from viz.attention.views import mass_by_slot
from viz.base import format as words
from viz.base.figure import FigureView, Panel
from viz.base.format import milliseconds, number, percent, plural, ratio, size
from viz.base.html import html, listed, quoted
from viz.run.cache_error import offset_by_layer
from viz.run.cache_error_facts import error_by_layer
from viz.run.facts import final_agent
from viz.run.play import play_panel
from viz.run.timing import ttft_view
from viz.run.verdict import compare

View = FigureView | Panel


@dataclass(frozen=True)
class StepFindings:
    """A step's findings.

    Attributes:
        choice: the key of the prediction that came true; None if the run decides none.
        shows: whether the run shows the effect that the step is about.
        sentences: one or two; :func:`describe_step` escapes those that are not :class:`Markup`.
        views: figures.
        texts: whether to show the agents' texts side by side.
        strip: the agent whose prompt is shown token by token, if any.
    """

    choice: str | None
    shows: bool
    sentences: tuple[str, ...]
    views: tuple[View, ...] = ()
    texts: bool = False
    strip: int | None = None


def describe_step(key: str, record: RunRecord) -> StepFindings:
    """The findings of ``record`` at the step ``key``."""
    findings = STEPS[key](record)
    return replace(findings, sentences=tuple(map(escape, findings.sentences)))


# -- what the steps have in common


def answers(record: RunRecord, label: str) -> tuple[int, int]:
    """The number of agents whose answer (or text, without an answer) is dense's, and of all agents."""
    same = sum(
        _answer_text(record.outcome(agent, label))
        == _answer_text(record.outcome(agent, words.dense_label(record)))
        for agent in record.agents
    )
    return same, len(record.agents)


def _answer_text(outcome: Outcome) -> str:
    return outcome.text.strip() if outcome.answer is None else outcome.answer


def shown_answer(outcome: Outcome) -> Markup:
    """The answer of an outcome."""
    if outcome.answer is None:
        return Markup("no answer that can be read")
    return html('<span class="kv-answer">{}</span>', words.clip(outcome.answer, 40))


def copied_error(record: RunRecord, label: str, like: str | None = None) -> float | None:
    """Mean relative error of keys and values over the tokens that ``like`` (by default ``label`` itself) took
    from a cache, over all agents and layers; None where there are none or none were measured."""
    parts = []
    for agent in record.agents:
        out, reader = record.outcome(agent, label), record.outcome(agent, like or label)
        mask = words.main_actions(reader) > 0
        if out.key_error is None or out.value_error is None or mask.shape[-1] != out.key_error.shape[1]:
            continue
        parts += [out.key_error[:, mask].ravel(), out.value_error[:, mask].ravel()]
    values = np.concatenate(parts) if parts else np.zeros(0)
    return float(np.nanmean(values)) if values.size else None


def layer_errors(record: RunRecord, agent: int, label: str) -> np.ndarray | None:
    """(layers,) mean relative error of the keys taken from a cache."""
    out = record.outcome(agent, label)
    mask = words.main_actions(out) > 0
    if out.key_error is None or not mask.any():
        return None
    return np.asarray(np.nan_to_num(out.key_error[:, mask]).mean(axis=1))


def _name(record: RunRecord, label: str) -> str:
    return words.styles(record)[label].name


def _times(record: RunRecord, label: str) -> tuple[float, float]:
    """Time to first token under a method and under dense, over the agents, in milliseconds."""
    return words.total_ttft(record, label), words.total_ttft(record, words.dense_label(record))


NOT_MEASURED = "This run holds no measure of the cache’s error, so it decides nothing here."


#: Steps of the picture in :mod:`viz.run.play` that show what a step of the tour is about.
COPIED, TURNED, MISSING, CORRECTED = 1, 2, 3, 4


def picture(record: RunRecord, agent: int, label: str, at: int) -> tuple[View, ...]:
    """A text's keys and values on their way into the prompt; empty if the record does not hold them."""
    recorded = any(outcome.transfers for outcome in record.outcomes)
    return (play_panel(record, agent, label, at=at),) if recorded else ()


# -- the steps


def cache(record: RunRecord) -> StepFindings:
    """How much of a prompt that was read before has to be read again."""
    label, dense = words.others(record)[0], words.dense_label(record)
    hits, total = words.cached_tokens(record, label)
    share = 1 - hits / total if total else 1.0
    choice = "few" if share <= 0.1 else "half" if share <= 0.75 else "all"
    method_ms, dense_ms = _times(record, label)
    agent = final_agent(record)
    same = answers(record, label)[0] == len(record.agents)
    memory = size(record.model.kv_bytes_per_token * total)
    lines = (
        f"Of {plural(total, 'token')}, {hits:,} came from the cache and {total - hits:,} had to be read "
        f"({percent(total - hits, total)}). All keys and values of {record.model.layers} layers take "
        f"{memory}.",
        html(
            "The first word came after {} instead of {} ({}; measured once), and the answer is {}{}.",
            milliseconds(method_ms),
            milliseconds(dense_ms),
            ratio(method_ms, dense_ms),
            "the same: " if same else html("{} instead of ", shown_answer(record.outcome(agent, label))),
            shown_answer(record.outcome(agent, dense))
            + ("" if same else ", which an exact cache should not do"),
        ),
    )
    return StepFindings(choice, choice != "all" and same, lines, (ttft_view(record),), strip=agent)


def prefix(record: RunRecord) -> StepFindings:
    """How many answers survive when every part of a prompt is copied from elsewhere."""
    label, dense = words.others(record)[0], words.dense_label(record)
    same, total = answers(record, label)
    choice = "all" if same == total else "some" if same else "none"
    changed = [
        a
        for a in record.agents
        if _answer_text(record.outcome(a, label)) != _answer_text(record.outcome(a, dense))
    ]
    hits, tokens = words.cached_tokens(record, label)
    lines = [
        f"{same} of {total} answers are the full read’s, with {percent(hits, tokens)} of the prompts’ tokens "
        "copied."
    ]
    if changed:
        a = record.outcome(changed[-1], label)
        lines.append(
            html(
                "{} says {}; with its prompt read in full, {}.",
                words.agent_name(record.request.pipeline, changed[-1]),
                shown_answer(a),
                shown_answer(record.outcome(changed[-1], dense)),
            )
        )
    else:
        lines.append(
            "In this run the copy did no visible harm: all answers held. Look at the errors in the cache "
            "below; they are there all the same."
        )
    agent = changed[-1] if changed else final_agent(record)
    return StepFindings(
        choice,
        bool(changed),
        tuple(lines),
        (*picture(record, agent, label, COPIED), error_by_layer(record, agent)),
        True,
        agent,
    )


def rotation(record: RunRecord) -> StepFindings:
    """What moving removes of the keys' error at layer 0, and what stays above."""
    mover, copier = words.others(record)[:2]
    agent, floor = final_agent(record), record.model.certificate.floor
    view = (*picture(record, agent, mover, TURNED), error_by_layer(record, agent))
    after, before = layer_errors(record, agent, mover), layer_errors(record, agent, copier)
    if after is None or before is None:
        return StepFindings(None, False, (NOT_MEASURED,), view)
    if before[0] <= 10 * floor:
        lines: tuple[str, ...] = (
            "In this run the copied keys were not turned wrongly at layer 0, so there was nothing to move: "
            f"their error is {number(float(before[0]), 2)}.",
        )
        return StepFindings(None, False, lines, view)
    share = float(after[0] / before[0])
    choice = "gone" if share <= 0.01 else "part" if share < 0.75 else "none"
    distances = [abs(s.moved_by) for s in record.outcome(agent, mover).spans if s.moved_by]
    way = f" by up to {plural(max(distances), 'position')}" if distances else ""
    top = len(after) - 1
    lines = (
        f"At layer 0 the copied keys are off by {number(float(before[0]), 2)} of their length; moved{way}, "
        + (
            "by no more than rounding."
            if after[0] <= 10 * floor
            else f"by {number(float(after[0]), 2)} (rounding alone makes {number(floor, 1)})."
        ),
        f"At layer {top}, the last, {number(float(after[-1]), 2)} is left after moving: that part is not a "
        "matter of place."
        if after[-1] > 10 * floor
        else "Nothing above rounding is left at the last layer either, so here the copy lacked nothing but "
        "its place.",
    )
    return StepFindings(choice, choice == "gone" and bool(after[-1] > 10 * floor), lines, view, strip=agent)


def offsets(record: RunRecord) -> StepFindings:
    """How large the values' offset is where it is largest, and whether adding it restores the answer."""
    plain, control = words.others(record)[:2]
    agent = final_agent(record)
    probe = next((p for p in record.offsets if p.agent == agent), None)
    view = (*picture(record, agent, plain, MISSING), offset_by_layer(record, agent))
    mask = (
        None if probe is None else (probe.key_offset != 0).any(axis=0) | (probe.value_offset != 0).any(axis=0)
    )
    if probe is None or mask is None or not mask.any():
        return StepFindings(
            None, False, ("No offsets were measured in this run, so it decides nothing here.",), view
        )
    share = (probe.value_offset[:, mask] / np.maximum(probe.value_norm[:, mask], 1e-12)).mean(axis=1)
    top, most = int(share.argmax()), float(share.max())
    choice = "small" if most < 0.1 else "middle" if most <= 0.5 else "large"
    shows = most > 10 * record.model.certificate.floor
    first = (
        f"The values’ offset is {number(float(share[0]), 2)} of their length at layer 0 and largest at layer "
        f"{top}: {number(most, 2)}."
    )
    fits = [record.outcome(agent, m).fidelity for m in (plain, control)]
    same = answers(record, control)
    second = f"With the true offsets added, {same[0]} of {same[1]} answers are the full read’s"
    second += f" (plain copy: {answers(record, plain)[0]})"
    if fits[0] is not None and fits[1] is not None:
        second += (
            f"; the prediction of the last agent’s first token is {number(fits[1].kl_first, 2)} nats from "
            f"the full read’s instead of {number(fits[0].kl_first, 2)}"
        )
    return StepFindings(choice, shows, (first, second + "."), (*view, error_by_layer(record, agent)))


def anchors(record: RunRecord) -> StepFindings:
    """How much of a plain copy's error mixed offsets remove, on the tokens that both copied."""
    plain, mixed = words.others(record)[:2]
    agent = next(
        (a for a in reversed(record.agents) if words.reused_anything(record.outcome(a, mixed))),
        final_agent(record),
    )
    weights = weights_view(record, agent, mixed)
    views = (*picture(record, agent, mixed, CORRECTED), weights, error_by_layer(record, agent))
    before, after = copied_error(record, plain, mixed), copied_error(record, mixed)
    if after is None or not before:
        reason = record.outcome(agent, mixed).reason
        lines: tuple[str, ...] = (
            f"In this run {_name(record, mixed)} copied nothing, so there is nothing to compare. {reason}",
        )
        return StepFindings(None, False, lines, views, texts=True)
    share = after / before
    choice = "most" if share < 0.5 else "some" if share < 0.98 else "none"
    same = {label: answers(record, label) for label in (plain, mixed)}
    lines = (
        f"Over the tokens that {_name(record, mixed)} copied, the mean relative error is {number(after, 2)}, "
        f"where the plain copy has {number(before, 2)}: "
        + (f"{percent(1 - share, 1)} of it is gone." if share < 1 else "it grew."),
        f"The full read’s answer is given by {same[mixed][0]} of {plural(same[mixed][1], 'agent')} with "
        "mixed offsets and by "
        f"{same[plain][0]} with the plain copy.",
    )
    return StepFindings(choice, share < 0.98, lines, views, texts=True)


def gate(record: RunRecord) -> StepFindings:
    """How many agents each of two gates lets reuse, and what became of the answers."""
    first, second = words.others(record)[:2]
    pipeline, total = record.request.pipeline, len(record.agents)
    reusers = {
        m: [a for a in record.agents if words.reused_anything(record.outcome(a, m))] for m in (first, second)
    }
    choice = "all" if len(reusers[first]) == total else "some" if reusers[first] else "none"
    same = {m: answers(record, m)[0] for m in (first, second)}
    first_sentence = (
        f"{_name(record, first)}: {len(reusers[first])} of {plural(total, 'agent')} reuse, and "
        f"{same[first]} of "
        f"{total} answers are the full read’s. {_name(record, second)}: {len(reusers[second])} reuse, "
        f"{same[second]} are "
        "the full read’s."
    )
    label = second if len(reusers[second]) < len(reusers[first]) else first
    refusers = [a for a in record.agents if a not in reusers[label] and record.outcome(a, label).gate]
    agent = refusers[0] if refusers else final_agent(record)
    stop = next((g for g in record.outcome(agent, label).gate if not g.shareable), None)
    shows = reusers[first] != reusers[second]
    if stop is not None:
        reason = (
            f"{_name(record, label)} refuses {words.segment_words(pipeline, stop.placeholder)} at "
            f"{words.agent_name(pipeline, agent)}: {stop.reason}"
        )
    else:
        reason = "Neither gate refused anything."
    if not shows:
        reason += " In this run both gates let the same agents reuse."
    views = (gate_view(record, agent, first), decision_panel(record, agent, label))
    return StepFindings(choice, shows, (first_sentence, reason), views, texts=True)


def judge(record: RunRecord) -> StepFindings:
    """Whether a judge over copied candidates names the same one, and what the mask alone does."""
    plain, apart = words.others(record)[:2]
    agent, dense = final_agent(record), words.dense_label(record)
    ref, out, control = (record.outcome(agent, m) for m in (dense, plain, apart))
    choice = "none" if out.answer is None else "same" if out.answer == ref.answer else "other"
    if ref.answer is None:
        lines = ("The full read’s own verdict cannot be read in this run, so it decides nothing here.",)
        return StepFindings(None, False, lines, texts=True, strip=agent)
    first = html(
        "Read in full, the judge names {}; over copied candidates, {}; computed but kept apart, {}.",
        *map(shown_answer, (ref, out, control)),
    )
    evidence = compare(record, plain).evidence
    facts = evidence.fidelity if evidence is not None else None
    if choice == "same":
        second: str = "In this run the copy did not change the verdict. On other candidates it may."
    elif facts is not None and facts.margin is not None:
        second = html(
            "The texts part at {} instead of {}, where the full read’s lead was {} nats; rounding alone "
            "moves {}.",
            quoted(facts.method_token),
            quoted(facts.dense_token),
            number(facts.margin, 2),
            number(facts.floor, 1),
        )
    else:
        second = "The cache below shows where the copy differs."
    views = (mass_by_slot(record, agent, "first"),) if record.attention else ()
    return StepFindings(
        choice, choice != "same", (first, second), (*views, error_by_layer(record, agent)), True, agent
    )


def repair(record: RunRecord) -> StepFindings:
    """The smallest repair that brings the verdict back, and what it costs."""
    plain, quarter, half = words.others(record)[:3]
    agent, dense = final_agent(record), words.dense_label(record)
    ref = record.outcome(agent, dense)
    restored = {m: record.outcome(agent, m).answer == ref.answer for m in (plain, quarter, half)}
    names = listed(
        html("{} ({})", shown_answer(record.outcome(agent, m)), _name(record, m))
        for m in (plain, quarter, half)
    )
    first = html("The full read names {}. The others: {}.", shown_answer(ref), names)
    work = [_work(record, agent, m) for m in (quarter, half)]
    times = [_times(record, m) for m in (quarter, half)]
    second = (
        f"The repairs did {percent(*work[0])} and {percent(*work[1])} of the full read’s reading (tokens "
        "times layers), and "
        f"their first word came after {ratio(*times[0])} and {ratio(*times[1])} of the full read’s time "
        "(measured once)."
    )
    views = (error_by_layer(record, agent), ttft_view(record))
    if restored[plain]:
        first += " In this run the plain copy kept the verdict, so there was nothing to repair."
        return StepFindings(None, False, (first, second), views, True, agent)
    choice = "quarter" if restored[quarter] else "half" if restored[half] else "neither"
    return StepFindings(choice, choice != "neither", (first, second), views, True, agent)


def pays(record: RunRecord) -> StepFindings:
    """How much sooner a long prompt's answer begins once its documents are cached, and whether it holds."""
    plain, repaired = words.others(record)[:2]
    agent, dense = final_agent(record), words.dense_label(record)
    times = {label: _times(record, label) for label in (plain, repaired)}
    gains = {label: full / method_ms if method_ms else 0.0 for label, (method_ms, full) in times.items()}
    choice = "hardly" if gains[repaired] < 2 else "some" if gains[repaired] <= 10 else "much"
    hits, total = words.cached_tokens(record, repaired)
    first = (
        f"Of {plural(total, 'token')}, {_name(record, repaired)} reads {total - hits:,} and takes {hits:,} "
        f"from the cache. Its first word came after {milliseconds(times[repaired][0])} instead of "
        f"{milliseconds(times[repaired][1])}, {number(gains[repaired], 2)} times as soon; the plain "
        f"copy’s {number(gains[plain], 2)} times as soon (measured once)."
    )
    second = html(
        "The full read says {}, {} {}, the plain copy {}.",
        shown_answer(record.outcome(agent, dense)),
        _name(record, repaired),
        shown_answer(record.outcome(agent, repaired)),
        shown_answer(record.outcome(agent, plain)),
    )
    shows = choice != "hardly" and answers(record, repaired)[0] == len(record.agents)
    return StepFindings(choice, shows, (first, second), (ttft_view(record),), True, agent)


def _work(record: RunRecord, agent: int, label: str) -> tuple[int, int]:
    """Tokens times layers that were forwarded for a prompt, and those of the whole prompt."""
    out = record.outcome(agent, label)
    return out.timing.token_layers, out.actions.size


STEPS: dict[str, Callable[[RunRecord], StepFindings]] = {
    "cache": cache,
    "prefix": prefix,
    "rotation": rotation,
    "offsets": offsets,
    "anchors": anchors,
    "gate": gate,
    "judge": judge,
    "repair": repair,
    "pays": pays,
}
