"""Questions over facts spread across documents: one hop or two, each hop stated and cited."""

from __future__ import annotations

import random

from backend.embedded.tasks.base import COLORS, NAMES, Document, Piece, Style, Wording, held_out

CITIES = "Rome Paris Oslo Berlin Madrid Cairo Lima Tokyo Delhi Athens Dublin Vienna".split()
LANDS = "north south east west valley desert forest coast".split()
FOODS = "rice bread soup fish corn beans cheese pasta".split()

READER = Wording(
    "You read documents. Answer the question and name the document of each fact.",
    (
        "You are a reader. Find the facts in the documents and answer the question.",
        "Use the documents. Answer the question step by step.",
        "You are a librarian. Answer from the documents alone.",
    ),
    (
        "You are a careful reader. Answer the question from the documents and name each document.",
        "Read the documents. Find each fact and answer.",
    ),
)
# relation: its sentence and what its object is
FACTS = {
    "boss": "{s} works for {o}.",
    "friend": "{s} is a friend of {o}.",
    "city": "{s} lives in {o}.",
    "color": "{s} likes {o}.",
    "food": "{s} eats {o}.",
    "land": "{s} lies in the {o}.",
}
RANGE = {"boss": NAMES, "friend": NAMES, "city": CITIES, "color": COLORS, "food": FOODS, "land": LANDS}
ONE_HOP = {
    "boss": "For whom does {s} work?",
    "friend": "Of whom is {s} a friend?",
    "city": "Where does {s} live?",
    "color": "What does {s} like?",
    "food": "What does {s} eat?",
    "land": "Where does {s} lie?",
}
TWO_HOPS = {
    ("boss", "city"): "Where does the boss of {s} live?",
    ("boss", "color"): "What does the boss of {s} like?",
    ("boss", "food"): "What does the boss of {s} eat?",
    ("friend", "city"): "Where does the friend of {s} live?",
    ("friend", "color"): "What does the friend of {s} like?",
    ("friend", "food"): "What does the friend of {s} eat?",
    ("city", "land"): "Where does the city of {s} lie?",
}
KINDS = ("one-hop", "two-hop")
Fact = tuple[str, str, str]  # subject, relation, object


def sentence(fact: Fact) -> str:
    """The fact as the documents say it."""
    return FACTS[fact[1]].format(s=fact[0], o=fact[2])


def draw_facts(rng: random.Random, kind: str, count: int) -> tuple[str, list[Fact], list[Fact]]:
    """The question, the facts that answer it, and others; a subject has one object per relation."""
    people = rng.sample(NAMES, min(len(NAMES), count + 3))
    subject = people[0]
    known: dict[tuple[str, str], str] = {}

    def add(who: str, relation: str) -> Fact | None:
        if (who, relation) in known:
            return None
        options = [x for x in RANGE[relation] if x != who and (x in people or relation in ("city", "land"))]
        if relation in ("color", "food"):
            options = list(RANGE[relation])
        known[who, relation] = rng.choice(options)
        return who, relation, known[who, relation]

    if kind == "one-hop":
        relation = rng.choice(list(ONE_HOP))
        who = rng.choice(CITIES) if relation == "land" else subject
        needed = [add(who, relation)]
        question = ONE_HOP[relation].format(s=who)
    else:
        first, second = rng.choice(list(TWO_HOPS))
        hop = add(subject, first)
        assert hop is not None
        needed = [hop, add(hop[2], second)]
        question = TWO_HOPS[first, second].format(s=subject)
    facts = [fact for fact in needed if fact]
    others: list[Fact] = []
    while len(others) < count:
        relation = rng.choice(list(FACTS))
        near = facts[-1][0] if rng.random() < 0.3 else rng.choice(people)
        who = rng.choice(CITIES) if relation == "land" else near
        if (who in CITIES) == (relation == "land") and (fact := add(who, relation)):
            others.append(fact)
    return question, facts, others


def make_documents(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """(d) ``size`` documents (else 3 to 10) of one to three facts, and a question of one or two hops.

    The answer states each hop with its document in brackets: ``Nina works for Hugo [2].``
    """
    count = size or min(style.upto(rng, 3, 10), style.upto(rng, 3, 10))
    while True:
        texts, question, facts, numbers = _draw(rng, kind, count, style)
        if held_out(question + " ".join(texts)) == held:
            break
    header = "\nDocument {i}:\n"
    if style.wording == "any" and rng.random() < 0.2:
        header = "\nDocument {i}: "
    pieces = [Piece(style.say(rng, READER))]
    for number, text in enumerate(texts, 1):
        pieces += [Piece(header.format(i=number)), Piece(text, name=f"document_{number}")]
    hops = " ".join(f"{sentence(fact)[:-1]} [{number}]." for fact, number in zip(facts, numbers, strict=True))
    answer = facts[-1][2]
    pieces += [
        Piece("\nThe question is: "),
        Piece(question, name="user_question"),
        Piece("\n"),
        Piece(f"{hops} The answer is {answer}", answer=True),
    ]
    return Document("documents", kind, tuple(pieces), answer, count)


def _draw(
    rng: random.Random, kind: str, count: int, style: Style
) -> tuple[list[str], str, list[Fact], list[int]]:
    extra = rng.randint(0, round(count * 0.8 * style.level))
    question, facts, others = draw_facts(rng, kind, count - (1 if kind == "one-hop" else 2) + extra)
    # each needed fact in a document of its own, the others anywhere
    homes = rng.sample(range(count), len(facts))
    shelves: list[list[Fact]] = [[] for _ in range(count)]
    for fact, home in zip(facts, homes, strict=True):
        shelves[home].append(fact)
    for fact in others:
        empty = [shelf for shelf in shelves if not shelf]
        rng.choice(empty or [shelf for shelf in shelves if len(shelf) < 3] or shelves).append(fact)
    for shelf in shelves:
        rng.shuffle(shelf)
    texts = [" ".join(map(sentence, shelf)) for shelf in shelves]
    return texts, question, facts, [home + 1 for home in homes]
