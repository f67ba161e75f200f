"""How people instruct a judge: who it is, what it should select, and how it should work.

A role combines lists, so that each kind has thousands of wordings. Only the words for what is selected
distinguish the kinds; a role without such words asks for the first right candidate.
"""

from backend.prompts.tasks.base import ASIDES
from backend.prompts.tasks.parts import phrase, pick
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw, start_sentence

JUDGES = phrases("judges")


def role_text(d: Draw, kind: str, firsts: tuple[str, ...], level: float) -> str:
    """A role in open language. ``firsts``: ways to name the first candidate besides those of any list."""
    if kind == "right" and d.chance(0.06):
        return phrase(d, JUDGES.plain, c=d.rng.choice(JUDGES.nouns)[1])
    a, c = d.rng.choice(JUDGES.nouns[:1] * 6 + JUDGES.nouns)
    first = d.rng.choice((*firsts, "the first one", "the first", f"the first {a}"))
    slots = {"a": a, "c": "candidates" if c == "ones" else c, "f": first}
    at = d.rng.random()
    if at < 0.25:
        request = phrase(d, JUDGES.questions[kind], **slots)
    else:
        extra = at < (0.55 if kind == "majority" else 0.38)
        do = (
            phrase(d, JUDGES.requests[kind], **slots)
            if extra
            else f"{pick(d, JUDGES.verbs)} {phrase(d, JUDGES.goals[kind], **slots)}"
        )
        while not extra and do.startswith("list the first"):
            do = f"{pick(d, JUDGES.verbs)} {phrase(d, JUDGES.goals[kind], **slots)}"
        request = phrase(d, JUDGES.leads, do=do, **slots) if d.chance(0.4) else start_sentence(do) + "."
        if d.chance(0.12) and not extra:
            request = start_sentence(phrase(d, JUDGES.goals[kind], **slots))
            request += d.rng.choice((".", "?", "!", ", please."))
    parts = [request]
    if d.chance(0.25 + 0.4 * level) and not request.startswith(("You are", "As ")):
        parts.insert(0, phrase(d, JUDGES.who, **slots))
    while d.chance(0.15 + 0.2 * level):
        aside = phrase(d, JUDGES.how, **slots) if d.chance(0.7) else pick(d, ASIDES)
        if aside in parts:
            break
        parts.insert(0 if d.chance(0.15) else len(parts), aside)
    text = " ".join(parts)
    if d.chance(0.06):
        text = text.lower()
    return text.rstrip(".") if d.chance(0.08) else text
