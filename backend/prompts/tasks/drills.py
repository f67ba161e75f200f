"""Drills: the bare skills that every task needs, at ten times the density of a task.

Training waits for three things: to calculate, to find what stands behind a key, and to tell whether two
numbers are equal. A drill asks for one of them again and again over one prompt; only what can be known is
an answer, so no loss is spent on which question comes next. Drills are for training alone.
"""

from __future__ import annotations

import random

from backend.prompts.tasks.arithmetic import (
    apart,
    compute,
    draw_problem,
    make_problem,
    ordered,
    shown_solution,
    versus,
)
from backend.prompts.tasks.base import COLORS, ITEMS, NAMES, Document, Piece, Style
from backend.prompts.tasks.documents import CITIES, FOODS, draw_facts, sentence
from backend.prompts.tasks.judging import GLANCES, ROLES, judgement, selection_text
from backend.prompts.tasks.programs import draw_program

WORDS = (*NAMES, *ITEMS, *COLORS, *CITIES, *FOODS)


def make_drill(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """A chain of bare calculations, each with the last result; or the run of a long program."""
    if kind == "program":
        source, text, value = draw_program(rng, rng.choice(("straight", "branch", "loop")), size or 8)
        return Document("drill", kind, (Piece(source + "\n"), Piece(text, answer=True)), str(value), 8)
    problem = make_problem(rng, size or 14)
    asked = [(f"{left} {op} {right} =", f" {compute(left, op, right)}.") for left, op, right in problem.steps]
    return Document("drill", kind, (Piece("Compute.\n"), *queries(asked)), str(problem.answer), len(asked))


def queries(asked: list[tuple[str, str]]) -> list[Piece]:
    """Questions and answers in turn, of which the answers are trained: ``red means`` `` 12.``"""
    pieces = []
    for number, (stem, answer) in enumerate(asked):
        pieces += [Piece((" " if number else "") + stem), Piece(answer, answer=True)]
    return pieces


def _copy(rng: random.Random, count: int, level: float) -> tuple[list[str], list[tuple[str, str]]]:
    """Words and numbers, once more in the same order."""
    drawn = [rng.choice(WORDS) if rng.random() < 0.6 else str(rng.randint(1, 99)) for _ in range(count * 4)]
    head, *rest = drawn
    return [" ".join(drawn)], [(head, " " + " ".join(rest) + ".")]


def _pairs(rng: random.Random, count: int, level: float) -> tuple[list[str], list[tuple[str, str]]]:
    """Words and what they mean: a number or another word, at first side by side, then with a verb between."""
    keys = rng.sample(COLORS if count < 6 and rng.random() < 0.4 else WORDS, count)
    verb = rng.choice((" means", " costs", " is", " holds", " has")) if rng.random() < level else ""
    pairs = [
        (key + verb, f" {rng.randint(2, 99) if rng.random() < 0.6 else rng.choice(WORDS)}.") for key in keys
    ]
    asked = rng.sample(pairs, len(pairs))
    return [" ".join(map("".join, pairs))], asked + rng.sample(pairs, len(pairs))


def _facts(rng: random.Random, count: int, level: float) -> tuple[list[str], list[tuple[str, str]]]:
    """Facts of documents."""
    _, needed, others = draw_facts(rng, "one-hop", count + rng.randint(0, count // 2))
    facts = needed + others
    rng.shuffle(facts)
    texts, asked = [], []
    for number in range(1, count + 1):
        shelf = facts[number - 1 :: count]
        texts.append(f"Document {number}:\n" + " ".join(map(sentence, shelf)))
        for fact in shelf:
            stem, _, end = sentence(fact)[:-1].rpartition(" ")
            asked.append((stem, f" {end}."))
    return texts, rng.sample(asked, len(asked))


def _sections(rng: random.Random, count: int, level: float) -> tuple[list[str], list[tuple[str, str]]]:
    """A result in each numbered section, further from its number the higher the level.

    The result has to know in which section it stands: that is what a candidate read alone does not.
    """
    numbers = list(range(1, count + 1))
    if rng.random() < 0.4:
        numbers = rng.sample(range(1, 13), count)
    word = rng.choice(("Candidate", "Agent", "Part", "Section"))
    cue = " The answer is" if rng.random() < 0.2 + level else ""
    texts, asked = [], []
    for number in numbers:
        value = rng.randint(0, 99)
        filler = "".join(
            f" {rng.choice(WORDS) if rng.random() < 0.7 else rng.randint(1, 99)}"
            for _ in range(rng.randint(0, round(16 * level * level)))
        )
        text = f"{filler}{cue} {value}"
        texts.append(f"{word} {number}:" + ("\n" + text[1:] if rng.random() < 0.3 + level else text))
        asked.append((f"{word} {number}:", f" {value}."))
    return texts, rng.sample(asked, len(asked)) + (rng.sample(asked, len(asked)) if level < 0.5 else [])


def _candidates(rng: random.Random, count: int, level: float) -> tuple[list[str], list[tuple[str, str]]]:
    """Results of numbered candidates, who show their work or only the result."""
    problem = draw_problem(rng, False, 1 + round(level))
    short = rng.random() > level
    texts, asked = [], []
    word = rng.choice(("Candidate", "Agent"))
    for number in range(1, count + 1):
        if short:
            value = rng.randint(0, 99)
            text = f"The answer is {value}"
        else:
            text, value = shown_solution(rng, problem, 0.3)
        texts.append(f"{word} {number}:\n{text}")
        asked.append((f"{word} {number}:", f" {value}."))
    again = rng.sample(asked, len(asked))
    return texts, again if rng.random() < 0.5 else asked + again


def _roles(rng: random.Random, count: int, level: float) -> tuple[list[str], list[tuple[str, str]]]:
    """Who writes to whom, and what "I" and "you" have."""
    names = rng.sample(NAMES, 2 * max(1, count // 2))
    letters = list(zip(names[::2], names[1::2], strict=True))
    item, numbers = rng.choice(ITEMS), rng.sample(range(2, 50), 2)
    halves = [(f"{who} have", f" {n} {item}.") for who, n in zip(("I", "You"), numbers, strict=True)]
    texts = [
        " ".join(f"{a} writes to {b}." for a, b in letters),
        " ".join(map("".join, rng.sample(halves, 2))),
    ]
    asked = [(a, " writes.") for a, _ in letters] + [(b, " reads.") for _, b in letters] + halves
    return texts, rng.sample(asked, len(asked))


RECALL = {
    "copy": _copy,
    "pairs": _pairs,
    "facts": _facts,
    "sections": _sections,
    "candidates": _candidates,
    "roles": _roles,
}
RECALL_KINDS = tuple(RECALL)


def make_recall(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """Look-ups in one prompt, one after the other: what a drill does for arithmetic, done for retrieval."""
    count = size or rng.randint(3, 4 + round(6 * style.level))
    texts, asked = RECALL[kind](rng, count, style.level)
    pieces = (Piece("Recall.\n" + "\n".join(texts) + "\n"), *queries(asked[:16]))
    return Document("recall", kind, pieces, asked[-1][1], count)


Asked = list[tuple[str, str]]


def _equal(rng: random.Random, count: int) -> Asked:
    """Pairs of numbers, equal or not."""
    asked = []
    for _ in range(count):
        mine = other = rng.randint(0, 99)
        if rng.random() < 0.5:
            other = rng.choice((mine + 1, mine + 10, abs(mine - 1), abs(mine - 10), rng.randint(0, 99)))
        who, words = rng.choice((("Candidate", "Right Wrong"), ("Number", "Same Differs")))
        word = words.split()[mine != other]
        asked.append((f"{who} {rng.randint(1, 6)}: {versus(other, mine)}", f" {word}."))
    return asked


def _pair(rng: random.Random) -> tuple[int, int]:
    left = rng.randint(0, 99)
    return left, min(99, max(0, left + rng.randint(-9, 9))) if rng.random() < 0.4 else rng.randint(0, 99)


def _order(rng: random.Random, count: int) -> Asked:
    """Pairs of numbers, in order or not."""
    drawn = [ordered(left, rng.choice("<>"), right) for left, right in (_pair(rng) for _ in range(count))]
    return [(stem + sign, end) for stem, sign, end in (text.partition(" is") for text in drawn)]


def _apart(rng: random.Random, count: int) -> Asked:
    """Pairs of numbers, and how far they are apart."""
    drawn = [apart(*_pair(rng)) for _ in range(count)]
    return [(stem + sign, end) for stem, sign, end in (text.partition(" is") for text in drawn)]


def _same(rng: random.Random, count: int) -> Asked:
    """A row of numbers, for each the last one before it that is equal."""
    some = rng.sample(range(100), rng.randint(2, 6))
    last: dict[int, int] = {}
    asked = []
    for number in range(1, count + 1):
        value = rng.choice(some)
        asked.append((f"Candidate {number}: {value}. Same as", f" {last.get(value, 0)}."))
        last[value] = number
    return asked


def _glance(rng: random.Random, count: int) -> Asked:
    """What a judge at a glance does, and nothing around it."""
    kind, values = rng.choice(GLANCES), rng.sample(range(100), 3)
    shares = (13, 5, 2) if kind == "differs" else (1, 1, 1)
    results = rng.choices(values, shares, k=rng.randint(2, 5))
    read = "".join(f"\nCandidate {number}:\nThe answer is {value}" for number, value in enumerate(results, 1))
    _, best, _ = judgement(kind, make_problem(rng, 1), results)
    return [(f"{ROLES[kind].stock}{read}\n", selection_text(tuple(sorted(best))))]


COMPARE = {"equal": _equal, "order": _order, "apart": _apart, "same": _same, "glance": _glance}


def make_compare(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """Pairs of numbers: equal or not, in order or not, how far apart; or which of a row are equal."""
    asked = COMPARE[kind](rng, size or 12)
    return Document("compare", kind, (Piece("Compare.\n"), *queries(asked)), asked[-1][1], len(asked))
