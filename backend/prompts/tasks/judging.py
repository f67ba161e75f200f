"""Judges over 2 to 6 candidates, with verdicts that need the candidates to be compared.

A judge goes through the candidates one by one, restates each result beside the one that it is compared
with, says its verdict and the best so far, and only then names the best. Ties are reported as sets.

Results are numbers, and words too for the criteria that only ask what is equal. Only the role says what the
judge selects; one without a criterion asks for the first right candidate.

A judge may also be asked for the number alone (*glance*). It then writes no steps in which it could compare,
so the comparison happens while the candidates are read: each attends to those before it.
"""

import random
from collections.abc import Sequence
from dataclasses import replace

from backend.prompts.tasks.arithmetic import Problem, distance, equality
from backend.prompts.tasks.base import PRESET_WORDS, Document, Piece, Style
from backend.prompts.tasks.judge_prompt import SOLVING, JudgePrompt, Value, draw_prompt

# kind: what the judge selects, in the presets' words; the open ones are in judge_words.py
ROLES: dict[str, str] = PRESET_WORDS.criteria
KINDS = tuple(ROLES)
GLANCES = ("differs", "majority")  # kinds that the results alone decide
NUMBER_ALONE = " Write only: The best candidate is its number."


def selection_text(best: tuple[int, ...]) -> str:
    """``The best candidate is 2.``, ``The best candidates are 1 and 3.``, or candidate 0 for none."""
    if len(best) > 1:
        return f"The best candidates are {' and '.join(map(str, best))}."
    return f"The best candidate is {best[0] if best else 0}."


def listed(candidates: list[int]) -> str:
    """``1 and 3``, or ``0`` for none."""
    return " and ".join(map(str, candidates)) or "0"


def judgement(
    kind: str, problem: Problem | None, results: Sequence[Value], numbers: Sequence[int] = ()
) -> tuple[str, tuple[int, ...], str]:
    """The judge's text up to its answer, the selected candidates and the final answer.

    Every line ends with the best so far, which the next one keeps or changes. ``numbers`` are the
    candidates', 1 and up by default. Only the kinds of ``SOLVING`` need a problem.
    """
    rows = list(zip(numbers or range(1, len(results) + 1), results, strict=True))
    by_number = dict(rows)
    if kind in SOLVING:
        assert problem is not None
        lines, best = _against_answer(kind, problem.answer, rows)
        if steps := problem.solution.rpartition("The answer")[0].strip():
            lines.insert(0, steps)
        final = str(problem.answer)
    elif kind == "majority":
        lines, best = _votes(rows)
        final = " and ".join(dict.fromkeys(str(by_number[number]) for number in best))
    else:
        lines, best = _against_first(kind, rows)
        final = str(by_number[best[0]] if best else results[0])
    lines.append(selection_text(tuple(best)))
    return " ".join(lines), tuple(best), final


Rows = list[tuple[int, Value]]


def _against_answer(kind: str, answer: int, rows: Rows) -> tuple[list[str], list[int]]:
    lines: list[str] = []
    best: list[int] = []
    wrong_before = False
    for number, value in rows:
        word = "Right" if value == answer else "Wrong"
        if kind == "corrects" and word == "Right" and wrong_before:
            word = "Corrects"
        wrong_before |= word == "Wrong"
        counts = word == ("Corrects" if kind == "corrects" else "Right")
        if counts and (kind == "all" or not best):
            best.append(number)
        lines.append(f"Candidate {number}: {equality(value, answer)} {word}. Best {listed(best)}.")
    return lines, best


def _against_first(kind: str, rows: Rows) -> tuple[list[str], list[int]]:
    (number, first), *others = rows
    lines = [f"Candidate {number}: {first}."]
    best: list[int] = []
    least = -1
    for number, value in others:
        start = f"Candidate {number}:"
        if kind == "differs":
            if value != first and not best:
                best = [number]
            word = "Differs" if value != first else "Same"
            lines.append(f"{start} {equality(value, first)} {word}. Best {listed(best)}.")
            continue
        gap = abs(int(value) - int(first))
        if not best or gap < least:
            best, least = [number], gap
        elif gap == least:
            best.append(number)
        lines.append(f"{start} {distance(int(value), int(first))} Best {least}: {listed(best)}.")
    return lines, best


def _votes(rows: Rows) -> tuple[list[str], list[int]]:
    lines: list[str] = []
    best: list[int] = []
    most = 0
    voters: dict[Value, list[int]] = {}
    for number, value in rows:
        same = voters.setdefault(value, [])
        before = same[-1] if same else 0
        same.append(number)
        if len(same) > most:
            best, most = list(same), len(same)
        elif len(same) == most:
            best += same
        votes = f"Same as {before}. Votes {listed(same)} = {len(same)}."
        lines.append(f"Candidate {number}: {value}. {votes} Best {listed(best)} = {most}.")
    return lines, best


def _draw(
    rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None, form: str = ""
) -> JudgePrompt:
    count = size or style.upto(rng, 2, 6)
    if not size and not style.trains:  # training has more of the long ones, at whose end it stops too early
        count = min(count, style.upto(rng, 2, 6))
    return draw_prompt(rng, style, held_out, kind, count, ROLES[kind], form)


def make_glance(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(c) A judge over ``size`` candidates (else 2 to 6) who names the best and writes nothing else."""
    prompt = _draw(rng, style, held_out, kind, size, NUMBER_ALONE)
    _, best, _ = judgement(kind, prompt.problem, prompt.results, prompt.numbers)
    pieces = (*prompt.pieces, Piece(selection_text(tuple(sorted(best))), answer=True))
    document = Document("glance", kind, pieces, "", len(prompt.results), best)
    return replace(document, answer=document.selection)


def make_judge(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(c) A judge over ``size`` candidates (else 2 to 6), who reads whole solutions or only results.

    Some candidates are inspectors, who comment on the results before theirs (as in the presets where agents
    work one after the other).
    """
    prompt = _draw(rng, style, held_out, kind, size)
    text, best, final = judgement(kind, prompt.problem, prompt.results, prompt.numbers)
    pieces = (*prompt.pieces, Piece(f"{text} The answer is {final}", answer=True))
    return Document("judge", kind, pieces, final, len(prompt.results), best)
