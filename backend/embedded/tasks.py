"""Task generator of the embedded model: problems with known answers, as lists of segments.

Every document is a list of :class:`Piece` in prompt order. Pieces are the segments that the lab's
templates produce (template text and placeholder content), and they are tokenised one by one, so the
model is trained on exactly the token boundaries that it meets in the lab.

Tasks
    (a) *solver*: an arithmetic word problem, numbers under 100, one to three steps.
    (b) *worker*: an inspector, analyst or checker who sees 1 to 4 solutions of others, right or
        wrong, and gives its own.
    (c) *judge*: 2 to 5 candidates; restates each candidate's result with a verdict, names the first
        right one (0 when all are wrong) and gives the final answer.
    (d) *drill*: a chain of bare calculations. Arithmetic is what training waits for, and a drill holds ten
        times as many calculations a token as a word problem.

Problems are split by a hash of their wording: one in 32 is held out and never trained on.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import Literal

TaskName = Literal["solver", "worker", "judge", "drill"]

NAMES = (
    "Tess Omar Lena Hugo Iris Noah Mara Felix Nina Otto Ruth Sami Vera Yara Emil Alma Cleo Dina Ezra Finn "
    "Gwen Jonas Kira Leo"
).split()
ITEMS = (
    "coins books pens shells cards stamps apples stones marbles cookies keys ribbons tickets beads nuts cups"
).split()
GAINS = ("finds", "buys", "gets", "wins", "picks up", "is given")
LOSSES = ("gives away", "loses", "sells", "drops", "hands out", "throws out")
START = ("{n} has {a} {i}.", "At first {n} has {a} {i}.", "{n} owns {a} {i}.")
ASK = (
    "How many {i} does {n} have now?",
    "How many {i} does {n} have in the end?",
    "How many {i} are left with {n}?",
)

SOLVER_ROLES = (
    "You are a math solver. Solve the problem step by step.",
    "You are a math expert. Solve the task step by step.",
    "You are a careful student. Work out the answer step by step.",
)
# role title, and the wordings of its instruction
WORKER_ROLES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Inspector",
        (
            "You are an inspector. Check the work of the other agents and give your own solution.",
            "You are an inspector. Look for mistakes of the other agents, then solve the task yourself.",
        ),
    ),
    (
        "Analyst",
        (
            "You are a mathematical analyst. Read the hints of the other agents and give your own solution.",
            "You are an analyst. Compare the other agents and solve the task step by step.",
        ),
    ),
    (
        "Checker",
        (
            "You are a checker. Go through every step again and give your own solution.",
            "You are a checker. Do not trust the other agents. Give your own solution.",
        ),
    ),
    (
        "Programming Expert",
        (
            "You are a programming expert. Work like a program, line by line, and give your own solution.",
            "You are a programming expert. Use the hints of the other agents and give your own solution.",
        ),
    ),
)
JUDGE_ROLES = (
    "You are the judge. Compare the candidates, select the best one and give the final answer.",
    "You are the top decision maker. Judge the candidates one by one and give the final answer.",
)


@dataclass(frozen=True)
class Piece:
    """One segment of a document; ``answer`` marks what the model has to produce."""

    text: str
    answer: bool = False


@dataclass(frozen=True)
class Problem:
    """A word problem: question text, its solution steps ``(left, op, right)`` and the final number."""

    question: str
    steps: tuple[tuple[int, str, int], ...]
    answer: int

    @property
    def held_out(self) -> bool:
        return hashlib.sha256(self.question.encode()).digest()[0] % 32 == 0


@dataclass(frozen=True)
class Document:
    """One training or test example."""

    task: TaskName
    pieces: tuple[Piece, ...]
    answer: int
    best: int | None = None  # the judge's selection; None for other tasks
    steps: int = 1

    @property
    def target(self) -> str:
        return self.pieces[-1].text


def compute(left: int, op: str, right: int) -> int:
    """Value of one step."""
    return {"+": left + right, "-": left - right, "*": left * right}[op]


def make_problem(rng: random.Random, steps: int) -> Problem:
    """Draw a problem with ``steps`` operations; every intermediate value stays in 0..99."""
    name, item = rng.choice(NAMES), rng.choice(ITEMS)
    value = rng.randint(2, 98)
    sentences = [rng.choice(START).format(n=name, a=value, i=item)]
    done: list[tuple[int, str, int]] = []
    for _ in range(steps):
        kinds = []
        if value <= 97:
            kinds += ["+", "+"]
        if value >= 2:
            kinds += ["-", "-"]
        if 1 <= value <= 49:
            kinds.append("*")
        op = rng.choice(kinds)
        if op == "+":
            right = rng.randint(1, 99 - value)
            sentences.append(f"{name} {rng.choice(GAINS)} {right} more.")
        elif op == "-":
            right = rng.randint(1, value)
            sentences.append(f"{name} {rng.choice(LOSSES)} {right}.")
        else:
            right = 3 if value <= 33 and rng.random() < 0.4 else 2
            times = "twice" if right == 2 else "three times"
            sentences.append(f"Then {name} has {times} as many.")
        done.append((value, op, right))
        value = compute(value, op, right)
    sentences.append(rng.choice(ASK).format(n=name, i=item))
    return Problem(" ".join(sentences), tuple(done), value)


def solution_text(steps: tuple[tuple[int, str, int], ...]) -> str:
    """The written solution; each step continues from the previous result."""
    lines = [f"{left} {op} {right} = {compute(left, op, right)}." for left, op, right in steps]
    left, op, right = steps[-1]
    return " ".join(lines) + f" The answer is {compute(left, op, right)}"


def wrong_solution(rng: random.Random, problem: Problem) -> tuple[str, int]:
    """A solution with one slip (a result off by a little, or the wrong operation), carried on."""
    while True:
        at = rng.randrange(len(problem.steps))
        value, lines = problem.steps[0][0], []
        for index, (_, op, right) in enumerate(problem.steps):
            shown = op
            if index == at and op != "*" and rng.random() < 0.3:
                shown = "-" if op == "+" else "+"
            result = compute(value, shown, right)
            if index == at and shown == op:
                result += rng.choice((-10, -2, -1, 1, 2, 10))
            lines.append(f"{value} {shown} {right} = {result}.")
            value = result
        if (
            0 <= value <= 199
            and value != problem.answer
            and "-" not in "".join(x.split("=")[1] for x in lines)
        ):
            return " ".join(lines) + f" The answer is {value}", value


def judgement_text(problem: Problem, results: list[int]) -> tuple[str, int]:
    """The judge's fixed output structure and the index it selects (1-based; 0 when none is right)."""
    body = " ".join(f"{left} {op} {right} = {compute(left, op, right)}." for left, op, right in problem.steps)
    verdicts = " ".join(
        f"Candidate {i}: {value} {'right' if value == problem.answer else 'wrong'}."
        for i, value in enumerate(results, 1)
    )
    best = next((i for i, value in enumerate(results, 1) if value == problem.answer), 0)
    return f"{body} {verdicts} The best candidate is {best}. The answer is {problem.answer}", best


def make_drill(rng: random.Random, length: int = 14) -> Document:
    """A chain of calculations, each going on from the last result."""
    problem = make_problem(rng, length)
    text = " ".join(f"{left} {op} {right} = {compute(left, op, right)}." for left, op, right in problem.steps)
    return Document("drill", (Piece("Compute.\n"), Piece(text, answer=True)), problem.answer, steps=length)


def draw_problem(rng: random.Random, held_out: bool, max_steps: int) -> Problem:
    """Draw until the problem falls on the wanted side of the split."""
    while True:
        problem = make_problem(rng, rng.randint(1, max_steps))
        if problem.held_out == held_out:
            return problem


def make_document(
    rng: random.Random,
    task: TaskName,
    *,
    held_out: bool = False,
    max_steps: int = 3,
    others: int | None = None,
    canonical: bool = False,
) -> Document:
    """Draw one document.

    ``others`` fixes how many solutions of others are shown; ``canonical`` takes the first wording of
    every instruction (the one the presets use) instead of a random one.
    """
    if task == "drill":
        return make_drill(rng)
    problem = draw_problem(rng, held_out, max_steps)

    def wording(options: tuple[str, ...]) -> str:
        return options[0] if canonical or rng.random() < 0.5 else rng.choice(options)

    def shown_solution(right_share: float) -> tuple[str, int]:
        if rng.random() < right_share:
            return solution_text(problem.steps), problem.answer
        return wrong_solution(rng, problem)

    if task == "solver":
        pieces = [
            Piece(f"{wording(SOLVER_ROLES)}\nThe task is: "),
            Piece(problem.question),
            Piece("\n"),
            Piece(solution_text(problem.steps), answer=True),
        ]
        return Document("solver", tuple(pieces), problem.answer, steps=len(problem.steps))
    if task == "worker":
        count = others or rng.choice((1, 1, 2, 2, 3, 4))
        titles = ["Math Solver", *(title for title, _ in WORKER_ROLES)]
        if not canonical and rng.random() < 0.3:
            rng.shuffle(titles)
        role = WORKER_ROLES[(count - 1) % len(WORKER_ROLES)] if canonical else rng.choice(WORKER_ROLES)
        pieces = [Piece(f"{wording(role[1])}\nThe task is: "), Piece(problem.question)]
        for number in range(1, count + 1):
            pieces.append(Piece(f"\nAgent {number}, role is {titles[number - 1]}, output is:\n"))
            pieces.append(Piece(shown_solution(0.6)[0]))
        pieces += [Piece("\n"), Piece(solution_text(problem.steps), answer=True)]
        return Document("worker", tuple(pieces), problem.answer, steps=len(problem.steps))
    count = others or rng.choice((2, 2, 3, 3, 4, 5))
    pieces = [Piece(f"{wording(JUDGE_ROLES)}\nThe task is: "), Piece(problem.question)]
    results = []
    share = rng.choice((0.25, 0.5, 0.75))
    for number in range(1, count + 1):
        text, value = shown_solution(share)
        results.append(value)
        pieces.append(Piece(f"\nCandidate {number}:\n"))
        pieces.append(Piece(text))
    text, best = judgement_text(problem, results)
    pieces += [Piece("\n"), Piece(text, answer=True)]
    return Document("judge", tuple(pieces), problem.answer, best, steps=len(problem.steps))
