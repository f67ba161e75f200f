"""Instructions for agents in open language: solvers, and readers of others' work."""

from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw, start_sentence

ROLE_WORDS = phrases("roles")


def role_text(d: Draw, kind: str) -> str:
    """An instruction for a *solver*, *inspector* or *analyst*: who, what and how in any order, some of it missing.

    The task always stays: nothing else says that an inspector has to give verdicts.
    """
    parts = []
    tasks = [d.phrase(ROLE_WORDS.what[kind])]
    if d.chance(0.25):
        tasks.append(d.phrase(ROLE_WORDS.what[kind]))
    if d.chance(0.7):
        parts.append(d.phrase(ROLE_WORDS.who[kind]))
    parts += tasks
    if d.chance(0.15):
        d.rng.shuffle(parts)
    while d.chance(0.25):
        parts.insert(d.rng.randint(0, len(parts)), d.phrase(ROLE_WORDS.how))
    mark = d.rng.choice((". ", ". ", ". ", ".\n", ", ", "! ", " - ", "; "))
    text = mark.join(p if mark[0] in ".!" or not i else p[:1].lower() + p[1:] for i, p in enumerate(parts))
    text = start_sentence(text) + d.rng.choice((".", ".", ".", "", "!", ":"))
    return text.lower() if d.chance(0.05) else text
