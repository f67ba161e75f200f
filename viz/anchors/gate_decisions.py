"""The gate's decision in words: the comparison, its result and the verdict (KVCOMM, Eq. 5)."""

import math

from backend.records.run import GateDecision, RunRecord
from viz.base import format as words
from viz.base.figure import Panel
from viz.base.format import plural
from viz.base.html import render


def distinct(a: float, b: float) -> tuple[str, str]:
    """Two numbers with enough decimals, at least two, to show which is larger."""
    for digits in range(2, 18):
        pair = f"{a:.{digits}f}", f"{b:.{digits}f}"
        if a == b or pair[0] != pair[1]:
            return pair
    return repr(a), repr(b)


def decision_words(gate: GateDecision) -> tuple[str, ...]:
    """Sentences: the candidates, the comparison, the verdict. The last one states the decision."""
    verdict = (
        "So it is shared: its KV may be copied and corrected."
        if gate.shareable
        else "So it is computed: the prompt is read afresh"
        + ("." if gate.rule == "no pool" else ", and this text becomes an anchor.")
    )
    intro = f"This text has {plural(gate.tokens, 'token')}; the pool held {plural(gate.pool_size, 'anchor')}"
    if gate.entropy is None or gate.threshold is None:
        reason = {
            "no pool": "The pool may hold no anchors, so nothing can be shared.",
            "empty pool": "There is nothing to compare it with.",
            "longer than every anchor": "None is long enough: an offset is needed for each of its tokens.",
            "too few anchors": "As shipped, the public code wants at least two that are long enough.",
        }.get(gate.rule, gate.reason)
        long_enough = f", {gate.eligible} of them long enough." if gate.pool_size else "."
        return intro + long_enough, reason, verdict
    count = gate.eligible
    entropy, threshold = distinct(gate.entropy, gate.threshold)
    within = gate.entropy <= gate.threshold
    alike = f", as if {math.exp(gate.entropy):.2f} of them weighed alike" if count > 1 else ""
    sentences = [
        f"{intro}, {count} of them at least as long.",
        f"The entropy of their weights is {entropy} nats{alike}.",
        f"That is {'within' if within else 'over'} the {threshold} nats that are allowed: "
        + ("the weight is on few enough of them." if within else "no anchor stands out enough."),
    ]
    if gate.rule == "length":
        sentences.append("But this gate asks only for an anchor that is long enough; the entropy has no say.")
    if gate.rule == "closeness":
        sentences.append(f"This gate asks for nearness as well. {gate.reason}")
    elif within and not gate.shareable:
        sentences.append("But gamma is 0, which shares nothing.")
    if count == 1:
        sentences.append("One anchor alone always has an entropy of 0, however far it is.")
    return (*sentences, verdict)


def decision_panel(record: RunRecord, agent: int, method: str) -> Panel:
    """Every placeholder's decision in words, and the agent's outcome."""
    title = "What did the gate say, in words?"
    outcome = record.outcome(agent, method)
    refused = [
        words.segment_words(record.request.pipeline, g.placeholder) for g in outcome.gate if not g.shareable
    ]
    body = render(
        "anchors/gate_decisions.html",
        pipeline=record.request.pipeline,
        agent=agent,
        outcome=outcome,
        decisions=[(g.placeholder, " ".join(decision_words(g))) for g in outcome.gate],
        refused=refused,
    )
    return Panel("decision", title, body)
