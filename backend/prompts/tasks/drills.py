"""Drills: the bare skills that every task needs, at ten times the density of a task.

Three skills take longest to learn: calculating, finding the value of a key, and comparing two numbers. A
drill asks for one of them many times over one prompt. Only the answers have a loss, not which question comes
next. Drills are for training alone.
"""

import random
from collections.abc import Iterable

from backend.prompts.tasks.arithmetic import (
    comparison,
    distance,
    draw_problem,
    draw_solution,
    equality,
    make_problem,
)
from backend.prompts.tasks.base import COLORS, ITEMS, NAMES, Document, Piece, Style
from backend.prompts.tasks.documents import CITIES, FOODS, draw_facts, sentence
from backend.prompts.tasks.facts import choose, draw_story
from backend.prompts.tasks.judge_words import role_text
from backend.prompts.tasks.judging import GLANCES, ROLES, judgement, selection_text
from backend.prompts.tasks.messages import article, code_words, listing, patterns
from backend.prompts.tasks.program_forms import draw_open
from backend.prompts.tasks.programs import draw_program
from backend.prompts.tasks.story_teller import compute
from backend.prompts.tasks.words import Draw, start_sentence

#: Questions and their answers.
Queries = list[tuple[str, str]]
WORDS: tuple[str, ...] = (*NAMES, *ITEMS, *COLORS, *CITIES, *FOODS)


def make_drill(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """A chain of bare calculations, each with the last result; or the run of a long program."""
    if kind == "program":
        form, lines = rng.choice(("straight", "branch", "loop")), size or 8
        if rng.random() < 0.7:  # an open one is shorter, since its statements vary more
            lines = min(lines, 5)
            source, text, value = draw_open(style.draw(rng), form, lines)
        else:
            source, text, value = draw_program(rng, form, lines)
        return Document("drill", kind, (Piece(source + "\n"), Piece(text, answer=True)), str(value), lines)
    problem = make_problem(rng, size or 14)
    queries = [(f"{a} {op} {b} =", f" {compute(a, op, b)}.") for a, op, b in problem.steps]
    pieces = (Piece("Compute.\n"), *query_pieces(queries))
    return Document("drill", kind, pieces, str(problem.answer), len(queries))


def query_pieces(queries: Queries) -> list[Piece]:
    """Questions and answers in turn; only answers are trained: ``red means`` `` 12.``"""
    pieces = []
    for number, (stem, answer) in enumerate(queries):
        pieces += [Piece((" " if number else "") + stem), Piece(answer, answer=True)]
    return pieces


LETTERS = "abcdefghijklmnopqrstuvwxyz"


def any_word(draw: Draw) -> str:
    """A word of the presets, of a list, made up, or letters in any order."""
    at = draw.rng.random()
    if at < 0.25:
        return draw.rng.choice(WORDS)
    if at < 0.45:
        return letters(draw)
    if at < 0.65:
        return draw.word()
    return (draw.name if at < 0.8 else draw.color if at < 0.87 else draw.thing)().split()[-1]


def letters(draw: Draw) -> str:
    """One to five letters, in any order."""
    case = str.upper if draw.chance(0.2) else str.lower
    return case("".join(draw.rng.choice(LETTERS) for _ in range(draw.rng.randint(1, 5))))


def _copy(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """Words, letters and numbers, once more in the same order."""
    # at low levels mostly without meaning: only the text before predicts what follows
    senseless = draw.chance(0.7 - 0.4 * level)
    numbers = draw.rng.choice((0.1, 0.3, 0.5))
    head, *tail = (
        str(draw.number()) if draw.chance(numbers) else letters(draw) if senseless else any_word(draw)
        for _ in range(count * 4)
    )
    return [" ".join((head, *tail))], [(head, " " + " ".join(tail) + ".")]


def _pairs(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """Words and what they mean: a number or another word, at first side by side, then with a verb between."""
    rng = draw.rng
    keys: dict[str, str] = {}
    sort = draw.color if rng.random() < 0.25 else lambda: any_word(draw)
    while len(keys) < count:
        key = sort()
        keys.setdefault(key.lower(), key)
    verbs = (" means", " costs", " is", " holds", " has", " =", ":", " stands for", " opens", " comes from")
    verb = rng.choice(verbs) if rng.random() < level else ""
    pairs = [
        (key + verb, f" {draw.number() if rng.random() < 0.6 else any_word(draw)}.") for key in keys.values()
    ]
    queries = rng.sample(pairs, len(pairs))
    return [" ".join(map("".join, pairs))], queries + rng.sample(pairs, len(pairs))


def _facts(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """Facts of documents, and their ends."""
    rng = draw.rng
    if draw.chance(0.3):
        _, needed, others = draw_facts(rng, "one-hop", count + rng.randint(0, count // 2))
        ends = [sentence(fact)[:-1].rpartition(" ")[::2] for fact in (*needed, *others)]
    else:
        story = draw_story(draw, 1, count + rng.randint(0, count // 2))
        facts = [fact for fact in (*story.needed, *story.others) if fact.text.endswith(" " + fact.object)]
        ends = [(start_sentence(s.text.removesuffix(" " + s.object)), s.object) for s in facts]
    rng.shuffle(ends)
    shelves = [ends[number::count] for number in range(count)]
    texts = [
        f"Document {number}:\n" + " ".join(f"{stem} {end}." for stem, end in shelf)
        for number, shelf in enumerate((shelf for shelf in shelves if shelf), 1)
    ]
    prompt = " ".join(texts)
    queries = [(stem, f" {end}.") for stem, end in ends if prompt.count(stem + " ") == 1]
    if not queries:
        return _facts(draw, count, level)
    return texts, rng.sample(queries, len(queries))


def _sections(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """A result in each numbered section, further from its number the higher the level.

    Trains the model to tie a result to its section, which a candidate's text read alone does not show.
    """
    rng = draw.rng
    numbers = list(range(1, count + 1))
    if rng.random() < 0.4:
        numbers = rng.sample(range(1, 13), count)
    word = rng.choice(("Candidate", "Agent", "Part", "Section"))
    cue = " The answer is" if rng.random() < 0.2 + level else ""
    texts, queries = [], []
    for number in numbers:
        value = rng.randint(0, 99) if draw.chance(0.6) else draw.number()
        filler = "".join(
            f" {any_word(draw) if rng.random() < 0.7 else draw.number()}"
            for _ in range(rng.randint(0, round(16 * level * level)))
        )
        text = f"{filler}{cue} {value}"
        texts.append(f"{word} {number}:" + ("\n" + text[1:] if rng.random() < 0.3 + level else text))
        queries.append((f"{word} {number}:", f" {value}."))
    rounds = 2 if level < 0.5 else 1
    return texts, [query for _ in range(rounds) for query in rng.sample(queries, len(queries))]


def _candidates(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """Results of numbered candidates, who show their work or only the result."""
    rng = draw.rng
    problem = draw_problem(rng, False, 1 + round(level))
    is_short = rng.random() > level
    texts, queries = [], []
    word = rng.choice(("Candidate", "Agent"))
    for number in range(1, count + 1):
        if is_short:
            value = rng.randint(0, 99) if draw.chance(0.6) else draw.number()
            text = f"The answer is {value}"
        else:
            text, value = draw_solution(rng, problem, 0.3)
        texts.append(f"{word} {number}:\n{text}")
        queries.append((f"{word} {number}:", f" {value}."))
    shuffled = rng.sample(queries, len(queries))
    return texts, shuffled if rng.random() < 0.5 else queries + shuffled


def _roles(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """Who writes to whom, and what "I" and "you" have."""
    rng = draw.rng
    stock = draw.chance(0.25)
    names = rng.sample(NAMES, 2 * max(1, count // 2)) if stock else draw.names(2 * max(1, count // 2))
    letters = list(zip(names[::2], names[1::2], strict=True))
    item = rng.choice(ITEMS) if stock else draw.thing()
    numbers = rng.sample(range(2, 50 if stock else rng.choice((50, 200, 1000, 9999))), 2)
    halves = [(f"{who} have", f" {n} {item}.") for who, n in zip(("I", "You"), numbers, strict=True)]
    texts = [
        " ".join(f"{a} writes to {b}." for a, b in letters),
        " ".join(map("".join, rng.sample(halves, 2))),
    ]
    queries = [(a, " writes.") for a, _ in letters] + [(b, " reads.") for _, b in letters] + halves
    return texts, rng.sample(queries, len(queries))


def _codes(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """A codebook as messages have it, and what each of its words means."""
    means = patterns(draw).means
    pattern = choose(draw, means)
    book = {word: draw.number(1, draw.rng.choice((20, 99, 999, 9999))) for word in code_words(draw, count)}
    lines = [
        (pattern if draw.chance(0.9) else choose(draw, means)).format(w=word, n=number)
        for word, number in book.items()
    ]
    queries = [(f"{word} means", f" {number}.") for word, number in book.items()]
    return [listing(draw, lines, ())], draw.rng.sample(queries, len(queries))


def _packs(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """How much packs hold, as messages' prefixes say it."""
    p = patterns(draw)
    item, pattern = draw.thing(), choose(draw, p.holds)
    units: dict[str, int] = {}
    while len(units) < count:
        units.setdefault(draw.pick_word(p.packs) if draw.chance(0.7) else draw.word(), draw.number(2, 999))
    lines = [
        start_sentence(
            (pattern if draw.chance(0.85) else choose(draw, p.holds)).format(u=u, n=n, i=item, a=article(u))
        )
        for u, n in units.items()
    ]
    queries = [(f"One {unit} holds", f" {number}.") for unit, number in units.items()]
    return [listing(draw, lines, ())], draw.rng.sample(queries, len(queries))


def _sides(draw: Draw, count: int, level: float) -> tuple[list[str], Queries]:
    """Letters in open wording: who writes, who reads, and what each of them has."""
    p = patterns(draw)
    texts: list[str] = []
    queries: Queries = []
    names = draw.names(count)
    for writer, reader in zip(names[::2], names[1::2], strict=False):
        texts.append(start_sentence(choose(draw, p.writes).format(w=writer, r=reader)) + ".")
        queries += [(writer, " writes."), (reader, " reads.")]
    halves = []
    for item in draw.things(draw.rng.randint(1, 3)):
        for who, owner in (("I", p.mine), ("You", p.yours)):
            number = draw.number(2, 9999)
            halves.append(start_sentence(choose(draw, owner).format(n=number, i=item)) + ".")
            queries.append((f"{who} have {item}:", f" {number}."))
    draw.rng.shuffle(halves)
    return [" ".join(texts), " ".join(halves)], draw.rng.sample(queries, len(queries))


RECALL = {
    "codes": _codes,
    "packs": _packs,
    "sides": _sides,
    "copy": _copy,
    "pairs": _pairs,
    "facts": _facts,
    "sections": _sections,
    "candidates": _candidates,
    "roles": _roles,
}


def make_recall(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """Many look-ups in one prompt: a drill for retrieval."""
    count = size or rng.randint(3, 4 + round(6 * style.level))
    texts, queries = RECALL[kind](style.draw(rng), count, style.level)
    pieces = (Piece("Recall.\n" + "\n".join(texts) + "\n"), *query_pieces(queries[:16]))
    return Document("recall", kind, pieces, queries[-1][1], count)


def _number(d: Draw) -> int:
    """Small ones half of the time."""
    return d.rng.randint(0, 99) if d.chance(0.5) else d.number(0, 9999)


def _near(d: Draw, value: int) -> int:
    """A number that looks like another, or any."""
    rng = d.rng
    if d.chance(0.4):
        return _number(d)
    step = rng.choice((1, 1, 2, 10, 10, 100, 1000, rng.randint(1, 9)))
    return rng.choice((abs(value - step), min(9999, value + step), int(str(value)[::-1])))


def _value(d: Draw, words: bool) -> str:
    if not words:
        return str(_number(d))
    return d.rng.choice((d.place, d.color, d.name, d.word))()


def _equal(d: Draw, count: int) -> Queries:
    """Pairs of numbers or words, equal or not."""
    queries = []
    words = d.chance(0.25)
    for _ in range(count):
        value = other = _value(d, words)
        if d.chance(0.5):
            other = _value(d, True) if words else str(_near(d, int(value)))
        who, verdicts = d.rng.choice(
            (("Candidate", "Right Wrong"), ("Candidate", "Same Differs"), ("Agent", "Right Wrong"))
        )
        word = verdicts.split()[value != other]
        queries.append((f"{who} {d.rng.randint(1, 9)}: {equality(other, value)}", f" {word}."))
    return queries


def _pair(d: Draw) -> tuple[int, int]:
    left = _number(d)
    return left, _near(d, left)


def _order(d: Draw, count: int) -> Queries:
    """Pairs of numbers, in order or not."""
    pairs = (_pair(d) for _ in range(count))
    return _verdicts(comparison(left, d.rng.choice("<>"), right) for left, right in pairs)


def _distance(d: Draw, count: int) -> Queries:
    """Pairs of numbers, and how far they are apart."""
    return _verdicts(distance(*_pair(d)) for _ in range(count))


def _verdicts(texts: Iterable[str]) -> Queries:
    """Queries for what follows ``is``."""
    return [(stem + sign, end) for stem, sign, end in (text.partition(" is") for text in texts)]


def _same(d: Draw, count: int) -> Queries:
    """A row of numbers or words, for each the last one before it that is equal."""
    words = d.chance(0.25)
    values = list({_value(d, words) for _ in range(d.rng.randint(2, 6))})
    last: dict[str, int] = {}
    queries = []
    for number in range(1, count + 1):
        value = d.rng.choice(sorted(values))
        queries.append((f"Candidate {number}: {value}. Same as", f" {last.get(value, 0)}."))
        last[value] = number
    return queries


def _glance(d: Draw, count: int) -> Queries:
    """A judge at a glance, without steps and without a question."""
    rng = d.rng
    kind, first = rng.choice(GLANCES), _number(d)
    values = [first, _near(d, first), _near(d, first)]
    shares = (13, 5, 2) if kind == "differs" else (1, 1, 1)
    results = rng.choices(values, shares, k=rng.randint(2, 5))
    header = rng.choice(("Candidate {}:\n", "Candidate {}: ", "Agent {}: ", "({}) "))
    cue = rng.choice(("The answer is ", "The answer is ", "", "It is "))
    read = "".join(f"\n{header.format(number)}{cue}{value}" for number, value in enumerate(results, 1))
    _, best, _ = judgement(kind, None, results)
    role = ROLES[kind] if d.chance(0.5) else role_text(d, kind, ("candidate 1",), 0.0)
    return [(f"{role}{read}\n", selection_text(tuple(sorted(best))))]


COMPARE = {"equal": _equal, "order": _order, "apart": _distance, "same": _same, "glance": _glance}


def make_compare(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """Pairs of numbers: equal or not, in order or not, how far apart; or which of a row are equal."""
    queries = COMPARE[kind](style.draw(rng), size or 12)
    pieces = (Piece("Compare.\n"), *query_pieces(queries))
    return Document("compare", kind, pieces, queries[-1][1], len(queries))
