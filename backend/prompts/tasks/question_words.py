"""Questions that cannot be worked out, for candidates who only have opinions, and what may answer them."""

from backend.prompts.tasks.parts import phrase
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw, start_sentence

QUESTIONS = phrases("questions")
WORDS = phrases("words")


def open_question(d: Draw, sort: str) -> str:
    """A question that only those who answer it know."""
    return phrase(
        d,
        QUESTIONS.asked[sort],
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
    values: dict[str, str] = {}
    capital = d.chance(0.5)
    while len(values) < count:
        value = draws[sort]() if sort in draws else d.thing() if d.chance(0.4) else d.word()
        if sort == "color" and value not in WORDS.colors and d.chance(0.5):
            continue
        if value not in ("and", "vs"):
            values.setdefault(value.lower(), start_sentence(value) if capital else value)
    return list(values.values())
