"""How people write a candidate down: headers, results and sentences around them, work in their own form."""

import re
from itertools import pairwise

from backend.prompts.tasks.parts import phrase, pick
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw

CANDIDATES = phrases("candidates")
WORDS = phrases("words")


_UNITS = frozenset(WORDS.things)
_STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)\.")


def state_answer(d: Draw, value: str, unit: str, others: tuple[int, ...], form: str | None = None) -> str:
    """A candidate that gives a result and shows no work; ``form`` where all candidates have the same."""
    slots = {"v": value, "u": unit, "n": d.name()}
    if form is not None:
        return form.format(**slots, x=0, y=0)
    if not value.isdecimal():
        return phrase(d, CANDIDATES.said if d.chance(0.5) else ("{v}", "{v}", "{v}.", "{v}!"), **slots)
    at = d.rng.random()
    if at < 0.15 and others:
        return phrase(d, CANDIDATES.longer, **slots, x=d.rng.choice(others), y=d.rng.choice(others))
    forms = CANDIDATES.bare if at < 0.45 else CANDIDATES.said if at < 0.8 else CANDIDATES.counted
    return phrase(d, forms, **slots)


def same_form(d: Draw, counts: bool) -> str:
    """A form that all candidates share."""
    forms = [("{v}", "{v}."), CANDIDATES.said]
    if counts:
        forms = [CANDIDATES.bare, CANDIDATES.said, CANDIDATES.said, CANDIDATES.counted]
    return d.say(pick(d, d.rng.choice(forms)))


def worked(d: Draw, text: str, unit: str) -> str:
    """A written solution (steps and "The answer is") in somebody's own form."""
    steps = _STEP.findall(text)
    if not steps or d.chance(0.3):
        return text
    value = steps[-1][3]
    tight = d.chance(0.5)
    lines = [f"{a}{op}{b}={c}" if tight else f"{a} {op} {b} = {c}" for a, op, b, c in steps]
    body = d.rng.choice((", ", "; ", ". ", "\n", " and ", ", then ", " -> ", ". Then ")).join(lines)
    if d.chance(0.2) and all(a[3] == b[0] for a, b in pairwise(steps)):
        chain = steps[0][0]
        for index, (_, op, right, _) in enumerate(steps):
            if index and op in "*/" and {x[1] for x in steps[:index]} & {"+", "-"}:
                chain = f"({chain})"
            chain += f"{op}{right}" if tight else f" {op} {right}"
        body = f"{chain}={value}" if tight else f"{chain} = {value}"
    opening = d.rng.choice(("", "", "", "", "We have ", "First ", "I compute ", "Work: ", "So: "))
    endings = (
        "", "", f". So {value}.", f", so it is {value}.", f". The answer is {value}", f". Answer: {value}",
        f". It is {value} {unit}.", ".",
    )  # fmt: skip
    return opening + body + d.rng.choice(endings)


def unit_of(question: str) -> str | None:
    """What a question counts, where it is a thing that the lists know."""
    return next((word for word in re.findall(r"[a-z]+", question) if word in _UNITS), None)
