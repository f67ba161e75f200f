"""One sentence each on the second and third question, computed from the record."""

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from backend.records.run import Outcome, RunRecord
from viz.base import format as words
from viz.base.format import number
from viz.base.glossary import term
from viz.base.html import html, joined
from viz.base.theme import STEP_NAMES
from viz.run.facts import final_agent
from viz.run.verdict import compare, passing_gamma, refusal


@dataclass(frozen=True)
class Standing:
    """One method over the whole pipeline."""

    label: str
    name: str
    kind: str  # as in viz.run.verdict: nothing, same, text, choice, answer
    error: float | None  # mean relative error of the tokens taken from a cache, keys and values
    kl: float | None  # mean KL of the first token over agents, nats
    corrected: bool  # by offsets or by computing tokens again
    again: bool  # by computing tokens again
    answer: str | None

    @property
    def lost(self) -> str:
        """What changed at the last agent: answer or choice; empty if neither."""
        return self.kind if self.kind in ("answer", "choice") else ""


def standings(record: RunRecord) -> list[Standing]:
    """Every method but dense, in column order."""
    looks, out = words.styles(record), []
    for label in words.others(record):
        outcomes = [record.outcome(agent, label) for agent in record.agents]
        kls = [o.fidelity.kl_first for o in outcomes if o.fidelity is not None]
        out.append(
            Standing(
                label, looks[label].name, compare(record, label).kind, mean_error(outcomes),
                float(np.mean(kls)) if kls else None, any((o.actions >= 2).any() for o in outcomes),
                any((o.actions == 3).any() for o in outcomes),
                record.outcome(final_agent(record), label).answer,
            )
        )  # fmt: skip
    return out


def mean_error(outcomes: list[Outcome]) -> float | None:
    """Mean relative error of the tokens taken from a cache, keys and values; None where none was."""
    parts = [
        error[:, mask]
        for o in outcomes
        if (mask := words.main_actions(o) > 0).any()
        for error in (o.key_error, o.value_error)
        if error is not None
    ]
    values = np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)
    return float(np.nanmean(values)) if values.size else None


def where(record: RunRecord) -> Markup:
    """Where a difference comes from, in a sentence."""
    reusing = [s for s in standings(record) if s.kind != "nothing"]
    if not reusing:
        return Markup("Nothing was copied from a cache in this run, so there is nothing to trace.")
    if record.request.mode == "free":
        return html(
            "Only a {} run can trace it: free-running methods read different texts. "
            "Switch the mode and run again.",
            term("pinned"),
        )
    rank = {"answer": 0, "choice": 1, "text": 2, "same": 3}
    focus = min(reusing, key=lambda s: (rank.get(s.kind, 4), -(s.error or 0)))
    worst = _worst_segment(record, focus.label)
    agents = [a for a in record.agents if _differs(record, a, focus.label)]
    sentence = Markup()
    if agents:
        sentence = html("{} first departs from the full read at {}. ", focus.name, _agent(record, agents[0]))
    if worst is None:
        return sentence or html("{} left no measurable error in the cache.", focus.name)
    agent, name, error, layer = worst
    return sentence + html(
        "Its copied cache is furthest from the full read’s in {}{} of {}’s prompt: "
        "mean relative error <b>{}</b>, worst at layer {}.",
        "" if name.startswith("prefix") else "the ",
        words.segment_words(record.request.pipeline, name),
        _agent(record, agent),
        number(error, 2),
        layer,
    )


def _differs(record: RunRecord, agent: int, label: str) -> bool:
    dense = record.outcome(agent, words.dense_label(record))
    return list(dense.token_ids) != list(record.outcome(agent, label).token_ids)


def _worst_segment(record: RunRecord, label: str) -> tuple[int, str, float, int] | None:
    errors = []
    for agent in record.agents:
        outcome = record.outcome(agent, label)
        kinds = [e for e in (outcome.key_error, outcome.value_error) if e is not None and e.size]
        if not kinds:
            continue
        error = np.nan_to_num(np.max(np.stack(kinds), axis=0))
        for span in words.prompt_of(record, outcome).spans:
            if span.end > span.start:
                layers = error[:, span.start : span.end].mean(axis=1)
                errors.append((agent, span.name, float(layers.mean()), int(layers.argmax())))
    worst = max(errors, key=lambda f: f[2], default=None)
    return worst if worst and worst[2] > 0 else None


def _agent(record: RunRecord, agent: int) -> str:
    return words.agent_name(record.request.pipeline, agent)


def repair(record: RunRecord) -> Markup:
    """What would repair a difference, in a sentence."""
    methods = standings(record)
    reusing = [s for s in methods if s.kind != "nothing"]
    plain = [s for s in reusing if not s.corrected]
    better = [s for s in reusing if s.corrected]
    refused = [s for s in methods if s.kind == "nothing"]
    names = {choice.label: choice.name for choice in record.request.methods}
    if not reusing:
        return Markup(
            "Nothing needs repair. To see what correction does, let a method reuse: "
            "fill its pools or raise gamma."
        )
    if sentence := repair_words(reusing):
        return sentence
    if any(names.get(s.label) == "kvcomm" for s in refused):
        return _less_strict(record, refused[0])
    if refused:
        return html(
            "{} copied nothing. Computing the prompt is always a repair; it costs the full read’s time.",
            refused[0].name,
        )
    if plain and all(s.kind == "same" for s in plain) and all((s.error or 0) < 0.01 for s in plain):
        return Markup("Nothing needs repair: the copied cache agrees with the full read’s.")
    if better:
        return html(
            "{} already corrects its copies; add Copy and reposition to see how much that repairs.",
            better[0].name,
        )
    return Markup(
        "Not tried in this run. Add KVCOMM: it corrects the copied cache by the offsets that similar earlier "
        "texts showed."
    )


def _less_strict(record: RunRecord, method: Standing) -> Markup:
    """What would let KVCOMM reuse where its gate refused everything."""
    start = html(
        "{}’s {} refused to reuse and computed the prompts: safe, but nothing was gained. ",
        method.name,
        term("gate"),
    )
    outcomes = [record.outcome(agent, method.label) for agent in record.agents]
    gate = refusal(outcomes)
    if gate is not None and gate.rule == "longer than every anchor":
        return start + html("{} as long as this text would let it correct.", term("anchor", "Anchors"))
    if gamma := passing_gamma(outcomes):
        return start + html("From {} {} on, every text would have passed.", term("gamma"), f"{gamma:g}")
    return start + html("A higher {}, or nearer anchors, may let it correct.", term("gamma"))


def repair_words(reused: list[Standing]) -> Markup:
    """The effect of correcting beside copying alone, or of single steps; empty if neither was run."""
    plain = [s for s in reused if not s.corrected]
    better = [s for s in reused if s.corrected]
    if len(better) > 1 and (steps := _steps(better + plain)):
        return steps
    if not better or not plain:
        return Markup()
    best = min(better, key=lambda s: (bool(s.lost), _distance(s)))
    harmless, harmful = [s for s in plain if not s.lost], [s for s in plain if s.lost]
    if best.lost and harmless and harmful:  # an uncorrected copy did better
        return _correction_words(min(harmless, key=_distance), max(harmful, key=_distance))
    return _correction_words(best, max(harmful or plain, key=_distance))


def _distance(standing: Standing) -> float:
    return standing.kl if standing.kl is not None else standing.error or 0.0


def _pair_words(first: float, second: float) -> tuple[str, str]:
    """Two figures to compare: two digits each, or three if two would hide a difference."""
    two = number(first, 2), number(second, 2)
    return two if two[0] != two[1] else (number(first), number(second))


def _correction_words(better: Standing, plain: Standing) -> Markup:
    """A correcting method beside one that only copies, with claims that agree with the figures in
    brackets."""
    name, other = better.name, plain.name
    parts, trends = [], set()
    for title, of, unit in (
        (Markup("mean relative error"), "error", ""),
        (html("{} of the first token", term("KL")), "kl", " nats"),
    ):
        before, after = getattr(plain, of), getattr(better, of)
        if before is not None and after is not None:
            base, loss = _pair_words(before, after)
            trends.add("as far" if base == loss else "nearer" if after < before else "further")
            parts.append(html("{} {} to <b>{}</b>{}", title, base, loss, unit))
    trend = (
        trends.pop()
        if len(trends) == 1
        else "mixed"
        if {"nearer", "further"} <= trends
        else (trends - {"as far"} or {""}).pop()
    )
    how = (
        "Computing some tokens again"
        if better.again
        else "Correcting the copies with anchors"
        if better.corrected
        else "Another way of copying"
    )
    distance = {
        "nearer": "nearer to the full read",
        "further": "further from the full read",
        "as far": "as far from the full read",
        "mixed": "nearer to the full read by one measure and further by the other",
    }.get(trend, "")
    loss, base = better.lost, plain.lost
    though = f", though it is {distance}" if distance else ""
    if not base and not loss:
        if trend == "nearer":
            sentence = f"{how} brings {name} nearer to the full read than {other}"
        else:
            sentence = (
                f"Nothing needs repair: the answer held under both; {name} is {distance or 'not measured'}"
            )
    elif not loss:
        sentence = f"{how}: {name} kept the {base} that {other} lost" + (though if trend != "nearer" else "")
    elif not base:
        sentence = f"Leaving the correction out: {name} changed the {loss} and {other} did not"
    elif loss == base:
        sentence = f"Not this correction: under {name} the {loss} changed too" + (
            though if trend == "nearer" else ""
        )
    elif loss == "choice":
        sentence = f"{how}, in part: {name} kept the answer that {other} lost, but not the choice"
    else:
        sentence = f"Not this correction: {name} changed the answer, {other} the choice alone"
    return html("{} ({}).", sentence, joined(parts, "; ")) if parts else html("{}.", sentence)


def _steps(methods: list[Standing]) -> Markup:
    """If a method and its ablations were run: which step matters most."""
    full = next((s for s in methods if any(o.label.startswith(f"{s.label} without ") for o in methods)), None)
    if full is None:
        return Markup()
    without = [s for s in methods if s.label.startswith(f"{full.label} without ")]
    of = "kl" if all(s.kl is not None for s in (full, *without)) else "error"
    all_steps: float | None = getattr(full, of)
    distances = [(distance, s) for s in without if (distance := getattr(s, of)) is not None]
    if all_steps is None or not distances:
        return Markup()
    most, worst = max(distances, key=lambda pair: pair[0])
    step = worst.label.removeprefix(full.label + " without ")
    base, off = _pair_words(all_steps, most)
    head = html(
        "All steps together leave {} {}.",
        base,
        "nats of KL at the first token" if of == "kl" else "relative error",
    )
    if base == off or most < all_steps:
        return head + html(" No single step matters: switched off, each leaves {} or less.", off)
    return head + html(
        " The step that matters most is <b>{}</b>: switched off, it is {}.", STEP_NAMES.get(step, step), off
    )
