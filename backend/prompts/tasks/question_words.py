"""Questions that cannot be worked out, for candidates who only have opinions, and what may answer them."""

from __future__ import annotations

from backend.prompts.tasks.parts import one
from backend.prompts.tasks.words import COLORS, Draw, start_sentence

# the open questions: {p} a place, {n} a name, {t} things
ASKED: dict[str, tuple[str, ...]] = {
    "number": (
        "How many {t} are in the (jar|box|room|bag|picture|basket)?",
        "How many {t} does {n} (have|own|need|want|see)?",
        "How many people live in {p}?",
        "How old is {n}?",
        "What does the {s} cost?",
        "Guess the number of {t}.",
        "How far is it to {p}?",
        "Which number does {n} think of?",
        "What is the number of the house of {n}?",
        "How many {t} can {n} carry?",
        "When was {n} born?",
        "What is the weight of the {t}?",
        "How many {t} and {u} are there?",
        "Estimate the number of {t} in {p}.",
        "How many minutes does it take to {p}?",
    ),
    "place": (
        "What is the capital of {k}?",
        "Where does {n} live?",
        "Where was {n} born?",
        "Which city has the most {t}?",
        "Where are the {t}?",
        "Where should we meet?",
        "Which city is the oldest?",
        "Where does the train to {p} start?",
        "In which town is the museum of {t}?",
        "To which city does {n} travel?",
        "Which city is bigger than {p}?",
        "Where do the {t} come from?",
    ),
    "color": (
        "What colour are the {t}?",
        "What color is the {s}?",
        "Which colour does {n} like?",
        "What is the colour of the house of {n}?",
        "Which color is the best for {t}?",
        "What colour is the car of {n}?",
        "Pick a colour.",
        "Which colour do you get of these {t}?",
        "What is the favourite colour of {n}?",
        "What colour is the flag of {p}?",
        "Which colour has the coat of {n}?",
        "What colour shall the {t} have?",
    ),
    "name": (
        "Who wrote the book?",
        "Who has the {t}?",
        "Who lives in {p}?",
        "Who won the game?",
        "Who should lead the team?",
        "Who is older than {n}?",
        "Who took the {t}?",
        "Who is the friend of {n}?",
        "Who painted the {s}?",
        "Who comes from {p}?",
        "Whom does {n} trust?",
        "Who found the {t} of {n}?",
    ),
    "word": (
        "What does {n} like?",
        "What does {n} want?",
        "What is in the {s}?",
        "What did {n} buy in {p}?",
        "What is the password?",
        "What is the best present for {n}?",
        "What do they call the {t}?",
        "What does {n} collect?",
        "Which word is meant?",
        "What is under the {s}?",
        "What do people in {p} eat?",
        "What is missing among the {t}?",
    ),
}


def open_question(d: Draw, sort: str) -> str:
    """A question that only those who answer it know."""
    return one(
        d,
        ASKED[sort],
        n=d.name(),
        p=d.place(),
        k=start_sentence(d.word()),
        t=d.thing(),
        u=d.thing(),
        s=d.word(),
    )


def open_values(d: Draw, sort: str, count: int) -> list[str]:
    """Different words or names that answer an open question."""
    draws = {"place": d.place, "color": d.color, "name": d.name}
    found: dict[str, str] = {}
    capital = d.chance(0.5)
    while len(found) < count:
        value = draws[sort]() if sort in draws else d.thing() if d.chance(0.4) else d.word()
        if sort == "color" and value not in COLORS and d.chance(0.5):
            continue
        if value not in ("and", "vs"):
            found.setdefault(value.lower(), start_sentence(value) if capital else value)
    return list(found.values())
