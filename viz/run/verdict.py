"""Did reuse change the outcome? One sentence from the record, and the facts behind it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from backend.prompts.scoring import extract_answer
from backend.records.run import GateDecision, Outcome, RunRecord
from viz.base import format as words
from viz.base.format import listing, number
from viz.base.html import html, joined, listed, quoted
from viz.run.facts import facts, final_agent
from viz.run.familiarity import outlook_words

# Neutral: dense is wrong or the right answer is unknown, so a changed answer is neither harm nor gain.
Tone = Literal["same", "changed", "unclear", "neutral"]
TONE_WORDS: dict[Tone, str] = {
    "same": "no change",
    "changed": "changed",
    "unclear": "undecided",
    "neutral": "not judged",
}
# What a method did to the final agent: it reused nothing; the same texts; the same answer in other words;
# the same answer, but another candidate chosen; another answer.
Kind = Literal["nothing", "same", "text", "choice", "answer"]
STATES: dict[Kind, str] = {
    "nothing": "nothing reused",
    "same": "same text",
    "text": "same answer, other words",
    "choice": "answer kept, choice changed",
    "answer": "answer changed",
}
FULL_READ_WRONG = "nothing to compare: the full read is wrong"


@dataclass(frozen=True)
class Verdict:
    """The sentence as HTML, its tone, further facts as plain text, and what happened in few words."""

    sentence_html: Markup
    tone: Tone
    points: tuple[str, ...]
    state: str


@dataclass(frozen=True)
class Compared:
    """One method against dense at the last agent."""

    name: str
    kind: Kind
    dense: Outcome
    outcome: Outcome
    evidence: Outcome | None  # the outcome whose first divergence is described
    agents_differ: int
    why_nothing: str = ""

    @property
    def near_tie(self) -> bool:
        fidelity = self.evidence.fidelity if self.evidence else None
        return fidelity is not None and fidelity.near_tie


def compare(record: RunRecord, label: str) -> Compared:
    """What one method did to the texts and to the final answer."""
    dense, final = words.dense_label(record), final_agent(record)
    pairs = [(record.outcome(a, dense), record.outcome(a, label)) for a in record.agents]
    ref, out = record.outcome(final, dense), record.outcome(final, label)
    differ = [b for a, b in pairs if list(a.token_ids) != list(b.token_ids)]
    if ref.answer is None and out.answer is None:
        other_answer = ref.text.strip() != out.text.strip()
    else:
        other_answer = ref.answer != out.answer
    kind: Kind = "answer" if other_answer else "text" if differ else "same"
    if kind == "text" and choice(record, out) != choice(record, ref):
        kind = "choice"
    reason = ""
    if not any(words.reused_anything(b) for _, b in pairs):
        kind, reason = "nothing", _why_nothing(record, [b for _, b in pairs])
    evidence = None
    if record.request.mode == "pinned" and kind in ("answer", "choice", "text"):
        outcomes = [b for b in (differ if kind == "text" else [out]) if b.fidelity]
        evidence = next((b for b in outcomes if b.fidelity and b.fidelity.first_divergence is not None), None)
    name = words.styles(record)[label].name
    return Compared(name, kind, ref, out, evidence, len(differ), reason)


def choice(record: RunRecord, outcome: Outcome) -> str | None:
    """The candidates that a judge's text selects beside its answer; ``0``: none, None: no selection."""
    scoring = record.request.pipeline.scoring
    return None if scoring == "selection" else extract_answer(outcome.text, "selection")


def _choice_words(record: RunRecord, outcome: Outcome) -> str:
    candidate = choice(record, outcome)
    if candidate is None:
        return "nothing readable"
    return "no candidate" if candidate == "0" else f"candidate {candidate}"


def verdict(record: RunRecord) -> Verdict:
    """The outcome of a run in one sentence."""
    comparisons = [compare(record, label) for label in words.others(record)]
    ref = record.outcome(final_agent(record), words.dense_label(record))
    if not comparisons:
        head = html(
            "The full read answers {}{}. Add a reuse method to see what reuse changes.",
            _answer(ref),
            _right(ref),
        )
        return Verdict(_wrap(head), "unclear", facts(record), "nothing reused")
    changed = [c for c in comparisons if c.kind == "answer"]
    chose = [c for c in comparisons if c.kind == "choice"]
    worded = [c for c in comparisons if c.kind == "text"]
    same = [c for c in comparisons if c.kind == "same"]
    nothing = [c for c in comparisons if c.kind == "nothing"]
    notes: list[str | Markup] = []
    compared = changed + chose + worded + same
    neutral = bool(compared) and not ref.correct
    if neutral:
        head = _nothing_to_judge(record, changed, chose, worded + same)
        evidence = next((c for c in changed + chose + worded if c.evidence), None)
    elif changed:
        head = _change_words(changed)
        for changed_choice in chose:
            head += html("; {} kept it, but {}", changed_choice.name, _other_choice(record, changed_choice))
        keepers = [c.name for c in worded + same]
        if keepers:
            head += html("; {} kept it", listing(keepers))
        head += "."
        evidence = next((c for c in changed if c.evidence), None)
    elif chose:
        head = html("The answer stayed {}{}, but the choice changed: ", _answer(ref), _right(ref))
        head += listing(f"{c.name} {_other_choice(record, c)}" for c in chose)
        if worded or same:
            head += html("; {} kept both", listing(c.name for c in worded + same))
        head += "."
        evidence = next((c for c in chose if c.evidence), None)
    elif worded or same:
        head = _agreements(record, worded, same)
        evidence = next((c for c in worded if c.evidence), None)
    else:
        head, evidence = Markup("Nothing was reused, so nothing could change."), None
    if evidence is not None and evidence.evidence is not None:
        notes.append(_evidence_words(record, evidence, several=len(changed or chose or worded) > 1))
    for why in dict.fromkeys(c.why_nothing for c in nothing):
        names = listing(c.name for c in nothing if c.why_nothing == why)
        notes.append(why.format(name=names))
    if record.familiarity is not None and not ref.correct:
        notes.append(outlook_words(record.familiarity.outlook))
    if record.request.mode == "free":
        notes.append("Every method read its own texts (free-running), so only answers are compared.")
    tone = "neutral" if neutral else _tone(changed + chose, worded + same)
    worst = (changed or chose or worded or same or nothing)[0].kind
    state = TONE_WORDS[tone] if tone == "unclear" and compared else STATES[worst]
    if neutral:
        state = f"{state}, right answer unknown" if ref.correct is None else FULL_READ_WRONG
    return Verdict(_wrap(head, *notes), tone, facts(record), state)


def _tone(changed: list[Compared], unchanged: list[Compared]) -> Tone:
    if any(not c.near_tie for c in changed):
        return "changed"
    return "same" if unchanged and not changed else "unclear"


def _wrap(head: Markup, *rest: str) -> Markup:
    tail = joined(html(' <span class="kv-verdict-rest">{}</span>', r) for r in rest)
    return html('<strong class="kv-verdict-head">{}</strong>{}', head, tail)


def _answer(outcome: Outcome) -> Markup:
    if outcome.answer is None:
        return Markup("without a recognised answer")
    return html('<span class="kv-answer">{}</span>', words.clip(outcome.answer, 48))


def _right(outcome: Outcome) -> Markup:
    return Markup({None: "", True: "&nbsp;(right)", False: "&nbsp;(wrong)"}[outcome.correct])


def _change_words(changed: list[Compared]) -> Markup:
    first = changed[0]
    names = listing(c.name for c in changed)
    if first.dense.answer is None and all(c.outcome.answer is None for c in changed):
        return html("{} changed the final text", names)
    before = _answer(first.dense) + _right(first.dense)
    if len({c.outcome.answer for c in changed}) == 1:
        after = _answer(first.outcome) + _right(first.outcome)
        return html("{} changed the answer: {} became {}", names, before, after)
    each = listed(html("{}{} under {}", _answer(c.outcome), _right(c.outcome), c.name) for c in changed)
    return html("Reuse changed the answer: {} became {}", before, each)


def _other_choice(record: RunRecord, compared: Compared) -> str:
    now, was = _choice_words(record, compared.outcome), _choice_words(record, compared.dense)
    return f"chose {now} instead of {was}"


def _nothing_to_judge(
    record: RunRecord, changed: list[Compared], chose: list[Compared], same: list[Compared]
) -> Markup:
    """The head if dense is wrong or the right answer is unknown: whether the answer changed, and every
    method's answer, without judging harm or gain."""
    unchanged = chose + same
    ref = (changed + unchanged)[0].dense
    each = listed(html("{} answers {}{}", c.name, _answer(c.outcome), _right(c.outcome)) for c in changed)
    verb = "answers" if len(unchanged) == 1 else "answer"
    also = f"{listing(c.name for c in unchanged)} {verb} as the full read" if unchanged else ""
    also += "".join(f", but {c.name} {_other_choice(record, c)}" for c in chose)
    if ref.correct is False:
        right = words.clip(record.request.expected or "", 48)
        head = html("The full read itself is wrong: it answers {} where {} is right", _answer(ref), right)
        return html("{}; {}.", head, joined([x for x in (each, also) if x], "; "))
    unknown = "Nobody knows what is right here"
    textless = ref.answer is None and all(c.outcome.answer is None for c in changed)
    if not changed:
        if textless:
            return html("The final text stayed the same. {}: {}.", unknown, also)
        return html("The answer stayed {}. {}: {}.", _answer(ref), unknown, also)
    tail = f"; {also}" if also else ""
    if textless:
        names = listing(c.name for c in changed)
        return html("The final text changed under {}{}. {}.", names, tail, unknown)
    return html("The answer changed: the full read answers {}, {}{}. {}.", _answer(ref), each, tail, unknown)


def _agreements(record: RunRecord, worded: list[Compared], same: list[Compared]) -> Markup:
    unchanged = worded + same
    ref = unchanged[0].dense
    if worded:
        reservation = (
            f"{listing(c.name for c in worded)} worded it differently"
            if len(record.agents) == 1
            else listing(
                f"{c.name} worded {words.plural(c.agents_differ, 'agent')} of {len(record.agents)} "
                "differently"
                for c in worded
            )
        )
        if ref.answer is None:
            return html("The final text stayed the same, but {}.", reservation)
        return html("The answer stayed {}{}, but {}.", _answer(ref), _right(ref), reservation)
    names = unchanged[0].name if len(unchanged) == 1 else f"all {len(unchanged)} methods"
    verb = "writes" if len(unchanged) == 1 else "write"
    if ref.answer is None:
        return html("Nothing changed: {} {} the same texts as the full read.", names, verb)
    verb = "answers" if len(unchanged) == 1 else "answer"
    return html("Nothing changed: {} {} {}, as the full read does.", names, verb, _answer(ref))


def _evidence_words(record: RunRecord, compared: Compared, several: bool) -> Markup:
    outcome = compared.evidence
    if outcome is None or outcome.fidelity is None:
        return Markup()
    fidelity = outcome.fidelity
    text = html(
        "First different token{}: {} instead of {} at {}",
        f" under {compared.name}" if several else "",
        quoted(fidelity.method_token),
        quoted(fidelity.dense_token),
        words.agent_name(record.request.pipeline, outcome.agent),
    )
    if fidelity.margin is not None:
        lead = html(", where {} led by {} (log-odds)", quoted(fidelity.dense_token), number(fidelity.margin))
        text += lead + f"; rounding noise {number(fidelity.floor, 1)}"
    if compared.near_tie:
        return text + ": a near tie, so rounding alone could have caused it."
    return text + "."


def refusal(outcomes: Iterable[Outcome]) -> GateDecision | None:
    """The first text that a gate refused to share; None if there is none."""
    return next((gate for o in outcomes for gate in o.gate if not gate.shareable), None)


def passing_gamma(outcomes: Iterable[Outcome]) -> float | None:
    """The least gamma, in steps of 0.05, at which every text would have passed its gate; None if gamma does
    not decide, or none was refused. KVCOMM, Eq. 5: the entropy of the anchors' weights is at most gamma times
    the largest possible."""
    refused = [gate for o in outcomes for gate in o.gate if not gate.shareable]
    if any(gate.rule != "entropy" or len(gate.anchors) < 2 for gate in refused):
        return None
    needed = max(((gate.entropy or 0.0) / math.log(len(gate.anchors)) for gate in refused), default=0.0)
    return math.ceil(min(needed, 1.0) * 20 - 1e-9) / 20 if 0 < needed <= 1 + 1e-6 else None


def _why_nothing(record: RunRecord, outcomes: list[Outcome]) -> str:
    if refused := refusal(outcomes):
        if refused.rule == "empty pool":
            return "{name} has no anchors yet, so it computed everything: warm up its pools."
        text = words.segment_words(record.request.pipeline, refused.placeholder)
        if refused.rule == "longer than every anchor":
            return "{name} computed everything: the " + text + " is longer than every anchor."
        if refused.rule == "entropy":
            return "{name} computed everything: no anchor of the " + text + " stands out enough for its gate."
        return "{name} computed everything: its gate rejected the " + text + "."
    return "{name} reused nothing: " + (outcomes[-1].reason or "every token was computed.").replace(
        "{", "{{"
    ).replace("}", "}}")
