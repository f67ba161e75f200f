"""From what a judge wrote under each method to outcomes: selections mapped back, compared with dense's."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backend.judge.prompts import (
    Verdict,
    final_of,
    read_verdict,
    right_final,
    same_final,
    selection_right,
    truth,
)
from backend.prompts.scoring import selection_token
from backend.records.judge import JudgeOutcome, JudgeProblem, JudgeRequest, originals
from backend.records.run import NEAR_TIE, Outcome, RunRecord, reuse


@dataclass(frozen=True)
class Reading:
    """One prompt under one method. ``layout``: the candidate in each of its slots."""

    layout: tuple[int, ...]
    outcome: Outcome
    verdict: Verdict
    margin: float | None  # top-2 gap at the token that names the selection
    blocks: int
    reused_blocks: int
    prompt_tokens: int
    reused_tokens: int
    first_margin: float | None  # top-2 gap at the first token
    boundary_tokens: int | None = None

    @property
    def selected(self) -> tuple[int, ...] | None:
        """The selection as the candidates' own numbers."""
        return None if self.verdict.slots is None else originals(self.verdict.slots, self.layout)


def reading_of(
    record: RunRecord,
    outcome: Outcome,
    margins: Sequence[float],
    layout: tuple[int, ...],
    request: JudgeRequest,
) -> Reading:
    """Read one prompt's outcome; ``margins`` are the top-2 gaps of its generated tokens."""
    prompt = record.prompts[outcome.prompt]
    slots = tuple(s for s in prompt.spans if s.name.startswith("candidate_"))
    reused, _, _ = reuse(prompt.spans, outcome.actions)
    _, blocks, whole = reuse(slots, outcome.actions)
    place = selection_token(outcome.texts)
    verdict = read_verdict(outcome.text, len(layout), request.protocol, request.criterion, request.wording)
    margin = None if place is None or place >= len(margins) else margins[place]
    first = margins[0] if margins else None
    tokens = outcome.actions.shape[1]
    return Reading(
        layout, outcome, verdict, margin, blocks, whole, tokens, reused, first, prompt.boundary_tokens
    )


def near_tie(reading: Reading, dense: Reading) -> bool:
    """Could rounding alone have parted them, at the first different token or at dense's selecting one?"""
    near = reading.outcome.fidelity
    if near is None or near.first_divergence is None:
        return False
    gaps = [gap for gap in (near.margin, dense.margin) if gap is not None]
    return bool(gaps) and min(gaps) < NEAR_TIE * near.floor


def most_wins(readings: Sequence[Reading]) -> tuple[int, ...] | None:
    """Pairwise: the candidates that won most often; none of them is ``(0,)``, unreadable pairs are no wins,
    and None when no pair could be read."""
    read = [r.selected for r in readings if r.selected is not None]
    wins = Counter(number for selected in read for number in selected if number)
    if not read:
        return None
    most = max(wins.values(), default=0)
    return tuple(sorted(number for number, count in wins.items() if count == most)) or (0,)


def outcome_of(
    problem: JudgeProblem,
    order: str,
    layout: tuple[int, ...],
    label: str,
    readings: Sequence[Reading],
    dense: Sequence[Reading],
    request: JudgeRequest,
) -> JudgeOutcome:
    """One method's outcome from its prompts' readings, beside dense's of the same prompts."""
    pairwise, rewriting = request.protocol == "pairwise", request.protocol == "rewriting"
    selected, answer = _decision(problem, readings, pairwise, request.wording)
    dense_selected, dense_answer = _decision(problem, dense, pairwise, request.wording)
    slots = None
    if selected is not None:
        slots = tuple(sorted(layout.index(number) + 1 if number else 0 for number in selected))
    best, final = truth(problem, layout, "right" if rewriting else request.criterion)
    if rewriting:
        consistent = None if dense_answer is None else same_final(answer, dense_answer)
    else:
        consistent = None if dense_selected is None else selected == dense_selected
    near = [r.outcome.fidelity for r in readings if r.outcome.fidelity is not None]
    parts: dict[str, float] = {}
    for reading in readings:
        for part, spent in reading.outcome.timing.parts_ms.items():
            parts[part] = parts.get(part, 0.0) + spent
    changed = [
        (r, d)
        for r, d in zip(readings, dense, strict=True)
        if r.selected != d.selected or (rewriting and r.verdict.answer != d.verdict.answer)
    ]
    states = [r.outcome.state for r in readings]
    texts = {0: ""} | {n: candidate.text for n, candidate in enumerate(problem.candidates, 1)}
    named = [sorted(texts[n] for n in numbers or ()) for numbers in (selected, dense_selected)]
    return JudgeOutcome(
        problem=problem.number,
        order=order,
        layout=tuple(layout),
        method=label,
        state=states[0] if len(set(states)) == 1 else "partial",
        slots=slots,
        selected=selected,
        answer=answer,
        failure="; ".join(dict.fromkeys(r.verdict.failure for r in readings if r.verdict.failure)),
        correct=None
        if final is None or request.protocol == "selection"
        else right_final(answer, final, request.wording),
        selection_right=None
        if best is None or rewriting
        else slots is not None and selection_right(slots, best, request.criterion),
        consistent=consistent,
        same_answer=answer == dense_answer,
        blocks=sum(r.blocks for r in readings),
        reused_blocks=sum(r.reused_blocks for r in readings),
        prompt_tokens=sum(r.prompt_tokens for r in readings),
        reused_tokens=sum(r.reused_tokens for r in readings),
        forwarded_tokens=sum(r.outcome.timing.forwarded_tokens for r in readings),
        margin=_least(r.margin for r in readings),
        dense_margin=_least(r.margin for r in dense),
        floor=max((f.floor for f in near), default=0.0),
        near_tie=consistent is False and all(near_tie(r, d) for r, d in changed) and bool(changed),
        twin=selected != dense_selected and bool(named[0]) and named[0] == named[1],
        kl_first=_mean([f.kl_first for f in near]),
        kl_mean=_mean([float(f.kl_tokens.mean()) if f.kl_tokens.size else 0.0 for f in near]),
        ttft_ms=sum(r.outcome.timing.ttft_ms for r in readings),
        parts_ms=parts,
        text="\n---\n".join(r.outcome.text for r in readings),
        entropies=tuple(
            g.entropy
            for r in readings
            for g in r.outcome.gate
            if g.entropy is not None and g.placeholder.startswith("candidate_")
        ),
        first_margin=_least(r.first_margin for r in readings),
        boundary_tokens=sum(r.boundary_tokens or 0 for r in readings),
    )


def _decision(
    problem: JudgeProblem, readings: Sequence[Reading], pairwise: bool, wording: str
) -> tuple[tuple[int, ...] | None, str | None]:
    """What was selected, and the final answer (pairwise: the winners', where they agree)."""
    if not pairwise:
        return readings[0].selected, readings[0].verdict.answer
    selected = most_wins(readings)
    finals = {final_of(problem.candidates[n - 1].text, wording) for n in selected or () if n}
    return selected, next(iter(finals)) if len(finals) == 1 else None


def _least(values: Iterable[float | None]) -> float | None:
    return min((v for v in values if v is not None), default=None)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
