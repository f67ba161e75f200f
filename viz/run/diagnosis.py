"""One sentence each on the second and third question, computed from the record."""

from __future__ import annotations

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
from viz.run.verdict import compare


@dataclass(frozen=True)
class Standing:
    """One method over the whole pipeline."""

    label: str
    name: str
    kind: str  # as in viz.run.verdict: nothing, same, text, answer
    error: float | None  # mean relative error of the tokens taken from a cache, keys and values
    kl: float | None  # mean KL of the first token over agents, nats
    corrected: bool  # by offsets or by computing tokens again
    again: bool  # by computing tokens again
    answer: str | None


def standings(record: RunRecord) -> list[Standing]:
    """Every method but dense, in column order."""
    looks, out = words.styles(record), []
    for label in words.others(record):
        found = [record.outcome(agent, label) for agent in record.agents]
        kls = [o.fidelity.kl_first for o in found if o.fidelity is not None]
        out.append(
            Standing(
                label, looks[label].name, compare(record, label).kind, _mean_error(found),
                float(np.mean(kls)) if kls else None, any((o.actions >= 2).any() for o in found),
                any((o.actions == 3).any() for o in found),
                record.outcome(final_agent(record), label).answer,
            )
        )  # fmt: skip
    return out


def _mean_error(outcomes: list[Outcome]) -> float | None:
    parts = [
        error[:, taken]
        for o in outcomes
        if (taken := words.main_actions(o) > 0).any()
        for error in (o.key_error, o.value_error)
        if error is not None
    ]
    values = np.concatenate([p.ravel() for p in parts]) if parts else np.zeros(0)
    return float(np.nanmean(values)) if values.size else None


def where(record: RunRecord) -> Markup:
    """Where does it come from?"""
    found = [s for s in standings(record) if s.kind != "nothing"]
    if not found:
        return Markup("Nothing was copied from a cache in this run, so there is nothing to trace.")
    if record.request.mode == "free":
        return html(
            "Only a {} run can trace it: free-running methods read different texts. "
            "Switch the mode and run again.",
            term("pinned"),
        )
    rank = {"answer": 0, "text": 1, "same": 2}
    traced = min(found, key=lambda s: (rank.get(s.kind, 3), -(s.error or 0)))
    worst = _worst_segment(record, traced.label)
    changed = [a for a in record.agents if _differs(record, a, traced.label)]
    said = Markup()
    if changed:
        said = html("{} first departs from dense at {}. ", traced.name, _agent(record, changed[0]))
    if worst is None:
        return said or html("{} left no measurable error in the cache.", traced.name)
    agent, name, error, layer = worst
    return said + html(
        "Its copied cache is furthest from dense’s in the {} of {}’s prompt: "
        "mean error <b>{}</b> of dense’s size, worst at layer {}.",
        _segment(record, name),
        _agent(record, agent),
        number(error, 2),
        layer,
    )


def _differs(record: RunRecord, agent: int, label: str) -> bool:
    dense = record.outcome(agent, words.dense_label(record))
    return list(dense.token_ids) != list(record.outcome(agent, label).token_ids)


def _worst_segment(record: RunRecord, label: str) -> tuple[int, str, float, int] | None:
    found = []
    for agent in record.agents:
        outcome = record.outcome(agent, label)
        kinds = [e for e in (outcome.key_error, outcome.value_error) if e is not None and e.size]
        if not kinds:
            continue
        error = np.nan_to_num(np.max(np.stack(kinds), axis=0))
        for span in words.prompt_of(record, outcome).spans:
            if span.end > span.start:
                layers = error[:, span.start : span.end].mean(axis=1)
                found.append((agent, span.name, float(layers.mean()), int(layers.argmax())))
    worst = max(found, key=lambda f: f[2], default=None)
    return worst if worst and worst[2] > 0 else None


def _agent(record: RunRecord, agent: int) -> str:
    return words.agent_name(record.request.pipeline, agent)


def _segment(record: RunRecord, name: str) -> str:
    if name.startswith("prefix"):
        return f"template text ({name})"
    return words.slot_words(record.request.pipeline, name)


def repair(record: RunRecord) -> Markup:
    """What would repair it?"""
    found = standings(record)
    reused = [s for s in found if s.kind != "nothing"]
    plain = [s for s in reused if not s.corrected]
    better = [s for s in reused if s.corrected]
    refused = [s for s in found if s.kind == "nothing"]
    names = {choice.label: choice.name for choice in record.request.methods}
    if not reused:
        return Markup(
            "Nothing needs repair. To see what correction does, let a method reuse: "
            "fill its pools or raise gamma."
        )
    if len(better) > 1 and (steps := _steps(better + plain)):
        return steps
    if better and plain:
        return _corrected(min(better, key=_distance), max(plain, key=_distance))
    if any(names.get(s.label) == "kvcomm" for s in refused):
        return html(
            "{}’s {} refused to reuse and computed the prompts: safe, but nothing was gained. "
            "More anchors or a higher {} let it correct instead.",
            refused[0].name,
            term("gate"),
            term("gamma"),
        )
    if refused:
        return html(
            "{} copied nothing. Computing the prompt is always a repair; it costs dense’s time.",
            refused[0].name,
        )
    if plain and all(s.kind == "same" for s in plain) and all((s.error or 0) < 0.01 for s in plain):
        return Markup("Nothing needs repair: the copied cache agrees with dense’s.")
    if better:
        return html("{} already corrects its copies; add Naive to see how much that repairs.", better[0].name)
    return Markup(
        "Not tried in this run. Add KVCOMM: it corrects the copied cache by the offsets that similar earlier "
        "texts showed."
    )


def _distance(standing: Standing) -> float:
    return standing.kl if standing.kl is not None else standing.error or 0.0


def _corrected(better: Standing, plain: Standing) -> Markup:
    name, other = better.name, plain.name
    moved = []
    if better.error is not None and plain.error is not None:
        moved.append(
            html("mean cache error {} to <b>{}</b>", number(plain.error, 2), number(better.error, 2))
        )
    if better.kl is not None and plain.kl is not None:
        first = html("{} of the first token", term("KL"))
        moved.append(html("{} {} to <b>{}</b> nats", first, number(plain.kl, 2), number(better.kl, 2)))
    nearer = _distance(better) < _distance(plain)
    how = "Computing some tokens again" if better.again else "Correcting the copies with anchors"
    kept, lost = better.kind != "answer", plain.kind == "answer"
    if kept and lost:
        said = f"{how}: {name} kept the answer that {other} lost"
        said += "" if nearer or not moved else ", though on average it is not nearer to dense"
    elif lost:
        said = f"Not this correction: under {name} the answer changed too" + (
            ", though it is nearer to dense" if nearer else ""
        )
    elif kept:
        said = (
            f"{how} brings {name} nearer to dense than {other}"
            if nearer
            else (f"Nothing: the answer held, and {name}’s correction is not nearer to dense than {other}")
        )
    else:
        said = f"Leaving the correction out: {name} changed the answer and {other} did not"
    return html("{} ({}).", said, joined(moved, "; ")) if moved else html("{}.", said)


def _steps(found: list[Standing]) -> Markup:
    """With a method and itself minus single steps in one run: which step matters most."""
    whole = next((s for s in found if any(o.label.startswith(f"{s.label} without ") for o in found)), None)
    if whole is None:
        return Markup()
    without = [s for s in found if s.label.startswith(f"{whole.label} without ")]
    worst = max(without, key=_distance)
    step = worst.label.removeprefix(whole.label + " without ")
    return html(
        "All steps together leave {} {}. The step that matters most is <b>{}</b>: switched off, it is {}.",
        number(_distance(whole), 2),
        "nats of KL at the first token" if whole.kl is not None else "mean cache error",
        STEP_NAMES.get(step, step),
        number(_distance(worst), 2),
    )
