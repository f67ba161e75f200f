"""A judge's prompt: its role, the question if there is one, and the candidates as people write them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from backend.prompts.tasks.arithmetic import Problem, draw_problem, with_verdicts, wrong_solution
from backend.prompts.tasks.base import Piece, Style, is_held_out
from backend.prompts.tasks.candidate_words import same_form, state_answer, unit_of, worked
from backend.prompts.tasks.judge_words import role_text
from backend.prompts.tasks.parts import is_open, join_pieces, phrase, pick, settle
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.question_words import open_question, open_values
from backend.prompts.tasks.story_teller import compute
from backend.prompts.tasks.words import Draw

CANDIDATES = phrases("candidates")
JUDGES = phrases("judges")


SOLVING = ("right", "all", "corrects")  # kinds that need the judge's own solution
LARGEST = 9999
NONE = "none"  # the result of a candidate that gives none
Value = int | str
T = TypeVar("T")


@dataclass(frozen=True)
class JudgePrompt:
    """A judge's prompt and its candidates' results; ``numbers`` are the candidates'."""

    pieces: tuple[Piece, ...]
    problem: Problem | None
    results: tuple[Value, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A question with the results and the texts of its candidates."""

    question: str
    results: list[Value]
    texts: list[str]
    problem: Problem | None = None

    @property
    def held_out(self) -> bool:
        """Split by the question; by the candidates where there is none."""
        return is_held_out(self.question or "\n".join(self.texts))


def draw_results(rng: random.Random, kind: str, problem: Problem, count: int) -> list[tuple[str, int]]:
    """Texts and results of the candidates: a few different solutions, some of them shared."""
    wrong = (wrong_solution(rng, problem) for _ in range(count if kind == "closest" else 2))
    return spread(rng, kind, [(problem.solution, problem.answer), *wrong], count)


def spread(rng: random.Random, kind: str, pool: Sequence[T], count: int) -> list[T]:
    """One of the pool for each of ``count`` candidates; the pool's first is the right one."""
    options = list(pool)
    if kind in SOLVING:
        share = rng.choice((0.25, 0.5, 0.75))
        other_share = (1 - share) / (len(options) - 1)
        return rng.choices(options, [share, *[other_share] * (len(options) - 1)], k=count)
    rng.shuffle(options)
    if kind == "differs":
        return rng.choices(options, [0.65, 0.25, *[0.1] * (len(options) - 2)], k=count)
    return rng.choices(options, k=count)


def draw_prompt(
    rng: random.Random, style: Style, held_out: bool, kind: str, count: int, role: str, form: str = ""
) -> JudgePrompt:
    """Draw a judge's prompt over ``count`` candidates.

    ``role`` is the presets'; ``form`` is added where the judge has to write the number alone.
    """
    original, style = style, settle(rng, style)
    d = style.draw(rng)
    while True:
        case = _draw_case(d, style, original, held_out, kind, count, bool(form))
        if case.held_out == held_out:
            break
    header, gap = "Candidate {i}:", "\n"
    if is_open(rng, style, "names"):
        header, gap = pick(d, CANDIDATES.headers), d.rng.choice(("\n", " "))
    numbers = tuple(range(1, count + 1))
    if "{i}" in header and style.wording != "stock" and d.chance(0.06):
        numbers = (1, *sorted(rng.sample(range(2, 10), count - 1)))
    names = d.names(count)
    letters = "ABCDEF" if d.chance(0.8) else "abcdef"
    if header.count("{") > 1:
        people = [pick(d, CANDIDATES.role_names) for _ in range(count)]
    else:
        people = d.rng.sample(CANDIDATES.role_names, count)
    candidates = []
    for at, text in enumerate(case.texts):
        head = header.format(i=numbers[at], l=letters[at], n=names[at], r=people[at])
        candidates.append([Piece(head + gap), Piece(text, name=f"candidate_{at + 1}")])
    firsts = _firsts(header, letters[0], names[0])
    if is_open(rng, style, "roles"):
        role = role_text(d, kind, firsts, style.level)
        if form:
            role = f"{role} {pick(d, JUDGES.forms)}"
        elif kind == "right" and case.question and d.chance(0.05):
            role = ""
    else:
        role += form
    question = []
    if case.question:
        lead = pick(d, CANDIDATES.leads) if is_open(rng, style) else "The task is: "
        question = [Piece(lead), Piece(case.question, name="user_question")]
    pieces = _lay_out(d, style, role, question, candidates)
    return JudgePrompt(pieces, case.problem, tuple(case.results), numbers)


def _firsts(header: str, letter: str, name: str) -> tuple[str, ...]:
    """How a role names the first candidate."""
    word = header.split()[0].strip("*#").lower()
    if "{l}" in header:
        return (f"candidate {letter}", letter, f"answer {letter}", "candidate 1")
    if "{n}" in header and "{i}" not in header:
        return (name, f"the answer of {name}", "candidate 1")
    if word in ("agent", "answer", "solution", "result", "student", "option", "reply", "worker"):
        return (f"{word} 1", f"{word} 1", "number 1")
    return ("candidate 1", "candidate 1", "number 1", "no. 1", "candidate one")


def _lay_out(
    d: Draw, style: Style, role: str, question: list[Piece], candidates: list[list[Piece]]
) -> tuple[Piece, ...]:
    """The blocks in some order, a line between them."""
    order = [[Piece(role)], question, *candidates]
    at = d.rng.random() if is_open(d.rng, style) else 1.0
    if at < 0.1:
        order = [question, *candidates, [Piece(role)]]
    elif at < 0.22:
        order = [[Piece(role)], *candidates, question]
    blocks = [block for block in order if block and (block[0].text or len(block) > 1)]
    pieces: list[Piece] = []
    for block in blocks:
        pieces += [Piece("\n" if pieces else ""), *block]
    return join_pieces([*pieces, Piece("\n")])


def _draw_case(
    d: Draw, style: Style, original: Style, held_out: bool, kind: str, count: int, glance: bool
) -> Case:
    rng = d.rng
    if style.wording != "stock" and style.edit is None:
        at = rng.random()
        if at < (0.25 if kind in SOLVING else 0.15):
            return _sum_case(d, style, kind, count)
        if at < 0.6 and kind not in SOLVING:
            return _open_case(d, style, kind, count, with_question=at < 0.38)
    problem = draw_problem(rng, held_out, style.upto(rng, 1, 3), style=style)
    solutions = draw_results(rng, kind, problem, count)
    if style.wording != "stock":
        solutions = _arrange(d, kind, solutions, [value == problem.answer for _, value in solutions])
    results: list[Value] = [value for _, value in solutions]
    if is_open(rng, style, "words"):
        unit = unit_of(problem.question) or d.thing()
        texts = _candidate_texts(d, style, results, unit, [text for text, _ in solutions])
        return _unclear(d, kind, Case(problem.question, results, texts, problem))
    trained = original.wording == "any"
    short = rng.random() > 0.2 + 0.6 * style.level and trained
    if glance:
        short = not trained or rng.random() < 0.7
    texts = []
    values: list[int] = []
    inspected = not glance and not short and rng.random() < 0.35
    for number, (text, value) in enumerate(solutions, 1):
        body = with_verdicts(text, values) if inspected and number % 2 == 0 else text
        texts.append(f"The answer is {value}" if short else body)
        values.append(value)
    return Case(problem.question, results, texts, problem)


def _candidate_texts(
    d: Draw, style: Style, results: Sequence[Value], unit: str, works: Sequence[str] = ()
) -> list[str]:
    """What candidates write: their work, or only a result."""
    show = 0.0
    if works and d.chance(0.15 + 0.5 * style.level):
        show = d.rng.choice((0.5, 1.0, 1.0))
    counts = all(isinstance(value, int) for value in results)
    form = same_form(d, counts) if d.chance(0.5) else None
    others = tuple(d.number(1, LARGEST) for _ in range(3))
    texts = []
    for at, value in enumerate(results):
        if d.chance(show):
            texts.append(worked(d, works[at], unit))
        else:
            texts.append(state_answer(d, str(value), unit, others, form))
    return texts


def _spread_results(d: Draw, kind: str, pool: list[T], count: int) -> list[T]:
    """As :func:`spread`; for *closest* mostly without repetition."""
    if kind == "closest" and d.chance(0.6):
        return d.rng.sample(pool, count)
    return spread(d.rng, kind, pool, count)


def _arrange(d: Draw, kind: str, candidates: list[T], is_right: list[bool]) -> list[T]:
    """For *corrects* often a wrong one first, so that there is something to correct."""
    if kind != "corrects" or all(is_right) or not d.chance(0.6):
        return candidates
    at = is_right.index(False)
    return [candidates[at], *candidates[:at], *candidates[at + 1 :]]


def _unclear(d: Draw, kind: str, case: Case) -> Case:
    """Now and then one of the candidates gives no result."""
    if kind not in (*SOLVING, "differs") or not d.chance(0.06):
        return case
    at = d.rng.randrange(kind == "differs", len(case.results))
    results, texts = list(case.results), list(case.texts)
    results[at], texts[at] = NONE, pick(d, CANDIDATES.unclear)
    return replace(case, results=results, texts=texts)


def _near(d: Draw, value: int) -> int:
    """A number that is easily taken for another, or any."""
    rng = d.rng
    while True:
        at = rng.random()
        if at < 0.45:
            number = value + rng.choice((-1, 1, -2, 2, -10, 10, -100, 100, rng.randint(-9, 9)))
        elif at < 0.6:
            number = int(str(value)[::-1])
        elif at < 0.7:
            number = int(str(value) + rng.choice("0123456789"))
        else:
            number = d.number(0, LARGEST)
        if 0 <= number <= LARGEST and number != value:
            return number


def _sum_case(d: Draw, style: Style, kind: str, count: int) -> Case:
    """A bare calculation, without a story."""
    rng = d.rng
    value = d.number(1, LARGEST)
    steps: list[tuple[int, str, int]] = []
    for index in range(rng.choice((1, 1, 1 + round(style.level), 1 + round(2 * style.level)))):
        op = rng.choice("++--*" if index == 0 and value < 1000 else "+-")
        most = {"+": LARGEST - value, "-": value, "*": min(99, LARGEST // max(1, value))}[op]
        if most < 1:
            op, most = ("+", 9) if value < 9000 else ("-", 9)
        right = d.number(1, most)
        steps.append((value, op, right))
        value = compute(value, op, right)
    tight = d.chance(0.4)
    formula = str(steps[0][0]) + "".join(f"{op}{n}" if tight else f" {op} {n}" for _, op, n in steps)
    words = formula
    if not tight and d.chance(0.15):
        words = formula.replace("+", "plus").replace("-", "minus").replace("*", "times")
    pool = [value, *(_near(d, value) for _ in range(count if kind == "closest" else 2))]
    values = _spread_results(d, kind, pool, count)
    values = _arrange(d, kind, values, [phrase == value for phrase in values])
    results: list[Value] = list(values)
    sep = "=" if tight else " = "
    works = [f"{formula}{sep}{v}" for v in values]
    texts = _candidate_texts(d, style, results, d.thing(), works)
    problem = Problem(phrase(d, CANDIDATES.sums, e=words), tuple(steps), value)
    return _unclear(d, kind, Case(problem.question, results, texts, problem))


def _open_case(d: Draw, style: Style, kind: str, count: int, with_question: bool) -> Case:
    """A question that cannot be worked out, or none at all: the candidates alone decide."""
    sorts = ("number",) if kind == "closest" else ("number", "number", "place", "color", "name", "word")
    sort = d.rng.choice(sorts)
    others = d.rng.choice((1, 2, 2, 3)) if kind != "closest" else count
    pool: list[Value]
    if sort == "number":
        first = d.number(0, LARGEST)
        pool = [first, *(_near(d, first) for _ in range(others))]
    else:
        pool = list(open_values(d, sort, others + 1))
    results = _spread_results(d, kind, pool, count)
    texts = _candidate_texts(d, style, results, d.thing())
    question = open_question(d, sort) if with_question else ""
    return _unclear(d, kind, Case(question, results, texts))
