"""Arithmetic word problems: solvers, and inspectors and analysts over right and wrong work."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from backend.prompts.filled_results import COMPARISONS
from backend.prompts.tasks.base import (
    ITEMS,
    NAMES,
    PRESET_WORDS,
    Document,
    Piece,
    Style,
    Wording,
    is_held_out,
)
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.roles import role_text
from backend.prompts.tasks.stories import draw_story
from backend.prompts.tasks.story_teller import compute
from backend.prompts.tasks.words import Draw

ROLE_WORDS = phrases("roles")


STORY_EDITS = ("extra", "words", "numbers", "ratios", "bare")
TRIES = 50
GAINS, LOSSES, START, ASK = PRESET_WORDS.gains, PRESET_WORDS.losses, PRESET_WORDS.start, PRESET_WORDS.ask
SOLVER, TASK = Wording(**PRESET_WORDS.solver), Wording(**PRESET_WORDS.task)


@dataclass(frozen=True)
class Role:
    """An agent who reads the work of others; ``checks`` when it says right or wrong to each of them."""

    title: str
    checks: bool
    wording: Wording


ROLES = tuple(Role(role["title"], role["checks"], Wording(**role["wording"])) for role in PRESET_WORDS.roles)


@dataclass(frozen=True)
class Problem:
    """A word problem: question text, its solution steps ``(left, op, right)`` and the final number."""

    question: str
    steps: tuple[tuple[int, str, int], ...]
    answer: int

    @property
    def held_out(self) -> bool:
        return is_held_out(self.question)

    @property
    def solution(self) -> str:
        """The written solution."""
        lines = [f"{left} {op} {right} = {compute(left, op, right)}." for left, op, right in self.steps]
        return " ".join([*lines, f"The answer is {self.answer}"])


def make_problem(rng: random.Random, steps: int, d: Draw | None = None) -> Problem:
    """Draw a problem of the presets' kind with ``steps`` operations; every intermediate value stays in 0..99.

    ``d`` draws names and things from the open vocabulary.
    """
    name, item = (d.name(), d.thing()) if d else (rng.choice(NAMES), rng.choice(ITEMS))
    value = rng.randint(2, 98)
    sentences = [rng.choice(START).format(n=name, a=value, i=item)]
    solution: list[tuple[int, str, int]] = []
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
        solution.append((value, op, right))
        value = compute(value, op, right)
    sentences.append(rng.choice(ASK).format(n=name, i=item))
    return Problem(" ".join(sentences), tuple(solution), value)


def wrong_solution(rng: random.Random, problem: Problem) -> tuple[str, int]:
    """A solution with one slip (a result off by a little, the wrong operation or number), carried on."""
    if not problem.steps:
        value = problem.answer + rng.choice((-2, -1, 1, 2, 10))
        return f"The answer is {abs(value)}", abs(value)
    for _ in range(TRIES):
        at, value = rng.randrange(len(problem.steps)), 0
        lines: list[str] = []
        replaced: dict[int, int] = {}
        for index, (left, op, right) in enumerate(problem.steps):
            # later steps use the wrong result of an earlier one
            left, right = replaced.get(left, left), replaced.get(right, right)
            right_result = compute(*problem.steps[index])
            if index == at and op in "+-" and rng.random() < 0.3:
                op = "-" if op == "+" else "+"
            elif index == at and rng.random() < 0.15:
                right = max(1, right + rng.choice((-10, -1, 1, 2, 10)))
            exact = op != "/" or (right != 0 and left % right == 0)
            value = compute(left, op, right) if exact else left // max(1, right)
            if index == at and (left, op, right) == problem.steps[index]:
                value += rng.choice((-10, -2, -1, 1, 2, 10))
            lines.append(f"{left} {op} {right} = {value}.")
            replaced[right_result] = value
            if value < 0:
                break
        if value >= 0 and value != problem.answer:
            return " ".join([*lines, f"The answer is {value}"]), value
    return f"The answer is {problem.answer + 1}", problem.answer + 1


def draw_problem(
    rng: random.Random,
    held_out: bool,
    max_steps: int,
    steps: int | None = None,
    style: Style | None = None,
) -> Problem:
    """Draw a problem of one side of the split, in open or the presets' language, as the style says."""
    style = style or Style("stock")
    while True:
        count = steps or rng.randint(1, max_steps)
        if style.edit in STORY_EDITS or (
            style.edit is None
            and (style.wording == "unseen" or (style.wording == "any" and rng.random() < 0.8))
        ):
            text, solution, answer = draw_story(rng, style, count)
            problem = Problem(text, tuple(solution), answer)
        else:
            open_words = style.edit == "names" or (style.wording == "any" and rng.random() < 0.5)
            problem = make_problem(rng, count, style.draw(rng) if open_words else None)
        if problem.held_out == held_out:
            return problem


def draw_solution(rng: random.Random, problem: Problem, right_share: float) -> tuple[str, int]:
    """A solution, right with the given chance, and its result."""
    if rng.random() < right_share:
        return problem.solution, problem.answer
    return wrong_solution(rng, problem)


def equality(value: int | str, other: int | str) -> str:
    """A result beside the one that it is compared with: ``36 vs 38.``"""
    return f"{value} vs {other}."


def distance(value: int, other: int) -> str:
    """How far two numbers are apart, in steps: ``36 < 38 is True. 38 - 36 = 2.``"""
    low, high = sorted((value, other))
    return f"{comparison(value, '<', other)} {high} - {low} = {high - low}."


def comparison(left: int, sign: str, right: int) -> str:
    """Whether a comparison of two numbers holds: ``36 < 38 is True.``"""
    return f"{left} {sign} {right} is {COMPARISONS[sign](left, right)}."


def with_verdicts(text: str, results: list[int], numbers: Sequence[int] | None = None) -> str:
    """A solution text with a verdict on each of others' results, before the answer.

    ``numbers`` are the agents', else 1 on. Each result is restated beside the solution's own, then comes the
    verdict: a small model recognises equal numbers when they stand side by side.
    """
    steps, _, answer = text.rpartition("The answer is ")
    lines = [
        f"Agent {number}: {equality(value, int(answer))} {'Right' if value == int(answer) else 'Wrong'}."
        for number, value in zip(numbers or range(1, len(results) + 1), results, strict=False)
    ]
    return " ".join(filter(None, [steps.strip(), *lines, f"The answer is {answer}"]))


def is_open(rng: random.Random, style: Style, share: float = 0.7) -> bool:
    """Are the words around the problem open, not the presets'?"""
    if style.edit is not None:
        return style.edit == "roles"
    return style.wording == "unseen" or (style.wording == "any" and rng.random() < share)


def question_pieces(
    rng: random.Random, style: Style, role: Wording, problem: Problem, kind: str | None = None
) -> list[Piece]:
    """The role, and the problem as ``user_question``; ``kind`` as :func:`roles.role_text` words it."""
    if kind and is_open(rng, style):
        d = style.draw(rng)
        text = role_text(d, kind) if d.chance(0.9) or kind == "inspector" else ""
        text = (text + d.pick(ROLE_WORDS.before_task)).lstrip() or "Task: "
    else:
        text = style.say(rng, role) + task_words(rng, style)
    return [Piece(text), Piece(problem.question, name="user_question")]


def task_words(rng: random.Random, style: Style) -> str:
    """The words before the problem."""
    if style.wording == "any":
        return TASK.stock if rng.random() < 0.7 else rng.choice(TASK.others)
    return TASK.stock if style.wording == "stock" else rng.choice(TASK.unseen)


def make_solver(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(a) A word problem, of one to four steps where ``size`` does not say."""
    problem = draw_problem(rng, held_out, style.upto(rng, 1, 4), size, style)
    pieces = question_pieces(rng, style, SOLVER, problem, "solver")
    pieces += [Piece("\n"), Piece(problem.solution, answer=True)]
    return Document("solver", kind, tuple(pieces), str(problem.answer), len(problem.steps))


def make_worker(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(b) An agent who sees 1 to 4 solutions of others, right or wrong; ``kind``: *inspector* gives a
    verdict on each, *analyst* only solves."""
    problem = draw_problem(rng, held_out, style.upto(rng, 1, 3), None, style)
    count = size or min(style.upto(rng, 1, 4), style.upto(rng, 1, 4))
    roles = [role for role in ROLES if role.checks == (kind == "inspector")]
    stock = style.wording == "stock"
    # the presets' order: solver, inspector, analyst, checker, programming expert
    role = next((r for r in (ROLES[count - 1],) if stock and r in roles), None) or rng.choice(roles)
    others: list[Role | None] = [None, *ROLES[: count - 1]]
    if not stock and rng.random() < 0.4:
        others = [rng.choice((None, *ROLES)) for _ in range(count)]
    header = ROLE_WORDS.agent_headers[0]
    if is_open(rng, style, 0.35):
        header = style.draw(rng).pick(ROLE_WORDS.agent_headers)
    pieces = question_pieces(rng, style, role.wording, problem, kind)
    results: list[int] = []
    # numbers may have gaps, as in a team without some of its agents
    numbers = list(range(1, count + 1))
    if not stock and "{i}" in header and rng.random() < 0.2:
        numbers = sorted(rng.sample(range(1, 9), count))
    for place, (number, other) in enumerate(zip(numbers, others, strict=True), 1):
        text, value = draw_solution(rng, problem, 0.6)
        if other is not None and other.checks:
            text = with_verdicts(text, results, numbers)
        title = "Math Solver" if other is None else other.title
        pieces.append(Piece(header.format(i=number, t=title)))
        pieces.append(Piece(text, name=f"agent_{place}_current"))
        results.append(value)
    answer = with_verdicts(problem.solution, results, numbers) if role.checks else problem.solution
    pieces += [Piece("\n"), Piece(answer, answer=True)]
    return Document("worker", kind, tuple(pieces), str(problem.answer), count)
