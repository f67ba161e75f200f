"""Judges over 2 to 6 candidates, with verdicts that need the candidates to be compared.

A judge goes through the candidates one by one, restates each result beside the number it is compared
with, says its verdict and the best so far, and only then names the best. Ties are reported as sets.

A judge may also be asked for nothing but the number (*glance*). It then writes no steps in which it could
compare, so the candidates have to be compared where they are read: each by what it sees of those before it.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from backend.prompts.tasks.arithmetic import (
    Problem,
    apart,
    checked,
    draw_problem,
    question_pieces,
    solution_text,
    versus,
    wrong_solution,
)
from backend.prompts.tasks.base import Document, Piece, Style, Wording

# kind: what the judge selects
ROLES = {
    # the first candidate that is right
    "right": Wording(
        "You are the judge. Check the candidates, select the first right one and give the final answer.",
        (
            "You are the top decision maker. Check the candidates one by one and select the first right one.",
            "You judge the work of others. Which candidate is the first right one?",
        ),
        ("You are the judge of a team. Go through the candidates and find the first right one.",),
    ),
    # every candidate that is right, a set
    "all": Wording(
        "You are the judge. Check the candidates, select all right ones and give the final answer.",
        (
            "You are the top decision maker. Check the candidates one by one and select all right ones.",
            "You judge the work of others. Which candidates are right? Name all right ones.",
        ),
        ("You are the judge of a team. Go through the candidates and find all right ones.",),
    ),
    # the first candidate that is right after a wrong one
    "corrects": Wording(
        "You are the judge. Select the first candidate that corrects an earlier one.",
        (
            "You are the top decision maker. Which candidate corrects an earlier one?",
            "You judge the work of others. Find the candidate that corrects a mistake of an earlier one.",
        ),
        ("You are the judge of a team. Go through the candidates. Who corrects an earlier one?",),
    ),
    # the first candidate with another result than candidate 1
    "differs": Wording(
        "You are the judge. Select the first candidate that differs from candidate 1.",
        (
            "You are the top decision maker. Which candidate is the first that differs from candidate 1?",
            "You judge the work of others. Find the first one that differs from candidate 1.",
        ),
        ("You are the judge of a team. Go through the candidates. Who differs first from candidate 1?",),
    ),
    # the candidates whose result is nearest to candidate 1's
    "closest": Wording(
        "You are the judge. Select the candidate that is closest to candidate 1.",
        (
            "You are the top decision maker. Which candidate is closest to candidate 1?",
            "You judge the work of others. Find the one that comes closest to candidate 1.",
        ),
        ("You are the judge of a team. Go through the candidates. Who is closest to candidate 1?",),
    ),
    # the candidates with the result that most of them have
    "majority": Wording(
        "You are the judge. Count the votes and select the candidates of the majority.",
        (
            "You are the top decision maker. Follow the majority of the candidates.",
            "You judge the work of others. Count the votes. What does the majority say?",
        ),
        ("You are the judge of a team. Go through the candidates, count and find the majority.",),
    ),
}
KINDS = tuple(ROLES)
GLANCES = ("differs", "majority")  # what can be told from the results alone
NUMBER_ALONE = " Write only: The best candidate is its number."


def selection_text(best: tuple[int, ...]) -> str:
    """``The best candidate is 2.``, ``The best candidates are 1 and 3.``, or candidate 0 for none."""
    if len(best) > 1:
        return f"The best candidates are {' and '.join(map(str, best))}."
    return f"The best candidate is {best[0] if best else 0}."


def listed(candidates: list[int]) -> str:
    """``1 and 3``, or ``0`` for none."""
    return " and ".join(map(str, candidates)) or "0"


def judgement(kind: str, problem: Problem, results: list[int]) -> tuple[str, tuple[int, ...], str]:
    """The judge's text up to its answer, the selected candidates and the final answer.

    Every line ends with the best so far, so that the next one has only to keep it or to change it.
    """
    if kind in ("right", "all", "corrects"):
        lines, best = _against_mine(kind, problem.answer, results)
        lines.insert(0, solution_text(problem.steps).rpartition(" The answer")[0])
        final = str(problem.answer)
    elif kind == "majority":
        lines, best = _votes(results)
        final = " and ".join(dict.fromkeys(str(results[number - 1]) for number in best))
    else:
        lines, best = _against_first(kind, results)
        final = str(results[best[0] - 1] if best else results[0])
    lines.append(selection_text(tuple(best)))
    return " ".join(lines), tuple(best), final


def _against_mine(kind: str, mine: int, results: list[int]) -> tuple[list[str], list[int]]:
    lines: list[str] = []
    best: list[int] = []
    wrong_before = False
    for number, value in enumerate(results, 1):
        word = "Right" if value == mine else "Wrong"
        if kind == "corrects" and word == "Right" and wrong_before:
            word = "Corrects"
        wrong_before = wrong_before or word == "Wrong"
        counts = word == ("Corrects" if kind == "corrects" else "Right")
        if counts and (kind == "all" or not best):
            best.append(number)
        lines.append(f"Candidate {number}: {versus(value, mine)} {word}. Best {listed(best)}.")
    return lines, best


def _against_first(kind: str, results: list[int]) -> tuple[list[str], list[int]]:
    first = results[0]
    lines = [f"Candidate 1: {first}."]
    best: list[int] = []
    least = -1
    for number, value in enumerate(results[1:], 2):
        distance = abs(value - first)
        start = f"Candidate {number}:"
        if kind == "differs":
            if value != first and not best:
                best = [number]
            word = "Differs" if value != first else "Same"
            lines.append(f"{start} {versus(value, first)} {word}. Best {listed(best)}.")
            continue
        if not best or distance < least:
            best, least = [number], distance
        elif distance == least:
            best.append(number)
        lines.append(f"{start} {apart(value, first)} Best {least}: {listed(best)}.")
    return lines, best


def _votes(results: list[int]) -> tuple[list[str], list[int]]:
    lines: list[str] = []
    best: list[int] = []
    most = 0
    voters: dict[int, list[int]] = {}
    for number, value in enumerate(results, 1):
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


def draw_results(rng: random.Random, kind: str, problem: Problem, count: int) -> list[tuple[str, int]]:
    """Texts and results of the candidates: a few different solutions, some of them shared."""
    pool = [(solution_text(problem.steps), problem.answer)]
    for _ in range(count if kind == "closest" else 2):
        pool.append(wrong_solution(rng, problem))
    if kind in ("right", "all", "corrects"):
        share = rng.choice((0.25, 0.5, 0.75))
        rest = (1 - share) / (len(pool) - 1)
        return rng.choices(pool, [share, *[rest] * (len(pool) - 1)], k=count)
    rng.shuffle(pool)
    if kind == "differs":
        return rng.choices(pool, [0.65, 0.25, 0.1], k=count)
    return rng.choices(pool, k=count)


def make_glance(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """(c) A judge over ``size`` candidates (else 2 to 6) who names the best and writes nothing else."""
    problem = draw_problem(rng, held, style.upto(rng, 1, 3))
    count = size or min(style.upto(rng, 2, 6), style.upto(rng, 2, 6))
    short = style.wording == "stock" or rng.random() < 0.7
    role = ROLES[kind]
    role = Wording(*(_with_form(words) for words in (role.stock, role.others, role.unseen)))
    pieces = question_pieces(rng, style, role, problem)
    results = []
    for number, (text, value) in enumerate(draw_results(rng, kind, problem, count), 1):
        pieces.append(Piece(f"\nCandidate {number}:\n"))
        pieces.append(Piece(f"The answer is {value}" if short else text, name=f"candidate_{number}"))
        results.append(value)
    _, best, _ = judgement(kind, problem, results)
    pieces += [Piece("\n"), Piece(selection_text(tuple(sorted(best))), answer=True)]
    document = Document("glance", kind, tuple(pieces), "", count, best)
    return replace(document, answer=document.selection)


def _with_form(words: Any) -> Any:
    return words + NUMBER_ALONE if isinstance(words, str) else tuple(word + NUMBER_ALONE for word in words)


def make_judge(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """(c) A judge over ``size`` candidates (else 2 to 6), who reads whole solutions or only results.

    Some candidates are inspectors, whose texts speak of the results before theirs (as in the presets
    where agents work one after the other).
    """
    problem = draw_problem(rng, held, style.upto(rng, 1, 3))
    count = size or min(style.upto(rng, 2, 6), style.upto(rng, 2, 6))
    short = rng.random() > 0.2 + 0.6 * style.level and style.wording == "any"
    header = "\nCandidate {i}:\n"
    if style.wording == "any" and rng.random() < 0.15:
        header = "\nAnswer of candidate {i}:\n"
    inspected = rng.random() < 0.35
    pieces = question_pieces(rng, style, ROLES[kind], problem)
    results: list[int] = []
    for number, (text, value) in enumerate(draw_results(rng, kind, problem, count), 1):
        pieces.append(Piece(header.format(i=number)))
        shown = f"The answer is {value}" if short else text
        if inspected and not short and number % 2 == 0:
            shown = checked(text, results)
        pieces.append(Piece(shown, name=f"candidate_{number}"))
        results.append(value)
    text, best, final = judgement(kind, problem, results)
    pieces += [Piece("\n"), Piece(f"{text} The answer is {final}", answer=True)]
    return Document("judge", kind, tuple(pieces), final, count, best)
