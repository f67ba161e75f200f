"""Word problems as most people first type them: *Lena has 20 shells. She finds 5 shells. How many are left?*

Each common verb is rare in the other stories, since these use many: weights trained on them alone subtracted
what was bought. Here few verbs come often, in short sentences. The patterns are in
``presets/tasks/plain.yaml``.
"""

import re

from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.quantities import singular
from backend.prompts.tasks.story_teller import Step, Story, StoryProblem, Teller, compute, verb
from backend.prompts.tasks.words import Draw, start_sentence

PLAIN = phrases("plain")
STORIES = phrases("stories")


def draw_plain(d: Draw, story: Story, steps: int) -> StoryProblem:
    """An amount that is changed ``steps`` times, in plain words: the text, the steps and the answer."""
    teller, rng = Teller(d, story), d.rng
    value = d.number(max(2, story.lowest), min(999, story.highest) if d.chance(0.7) else story.highest)
    solution: list[Step] = []
    first = _clause(teller, d.pick(PLAIN.start), n=value)
    teller.mentioned = True
    sentences = []
    while len(solution) < steps:
        both = steps - len(solution) > 1 and d.chance(0.3)
        op = "+" if value < story.highest // 2 and (d.chance(0.5) or value < 2 * story.lowest) else "-"
        amounts = _amounts(d, story, value, op, both)
        if not amounts:
            op, amounts = "+", [d.number(1, 9)]
        text, signs = _event(teller, op, amounts, value, story)
        for sign, amount in signs:
            solution.append((value, sign, amount))
            value = compute(*solution[-1])
        sentences.append(text)
    for share, patterns in ((story.filler * 0.6, PLAIN.filler), (story.filler * 0.6, STORIES.filler)):
        if d.chance(share):
            line = teller.fill(d.pick(patterns), b=rng.randint(2, 12)).removesuffix(".")
            sentences.insert(rng.randint(0, len(sentences)), line)
    if d.chance(story.amounts) and value > 1:
        line = _clause(teller, d.pick(PLAIN.same), n=d.number(1, value - 1))
        sentences.insert(rng.randint(0, len(sentences)), line)
    sentences.insert(1 if sentences and d.chance(0.05) else 0, first)
    ask = _question(teller)
    text = " ".join([*(start_sentence(x) + "." for x in sentences), ask])
    return re.sub(r"\.\.", ".", text), solution, value


def _amounts(d: Draw, story: Story, value: int, op: str, both: bool) -> list[int]:
    """One or two numbers that may be added to the value or taken from it; none where it is too small."""
    low = min(story.lowest, 99)
    if op == "-":
        if value <= low:
            return []
        first = d.number(low, value)
        remainder = value - first
        return [first, d.number(1, remainder)] if both and remainder > 1 else [first]
    first = d.number(low, max(low, story.highest - value))
    room = story.highest - value - first
    return [first, d.number(1, room)] if both and room > 1 else [first]


def _event(
    teller: Teller, op: str, amounts: list[int], value: int, story: Story
) -> tuple[str, list[tuple[str, int]]]:
    """A sentence for one change, or for two that share it, and the signs and numbers in their order."""
    d, rng = teller.d, teller.d.rng
    verbs, quantity = (PLAIN.gain_verbs, PLAIN.more) if op == "+" else (PLAIN.loss_verbs, PLAIN.less)
    n = amounts[0]
    if len(amounts) == 1 and d.chance(0.3):
        pattern = d.pick(PLAIN.gains if op == "+" else PLAIN.losses)
        pattern = pattern.replace("MORE", d.pick(PLAIN.more)).replace("LESS", d.pick(PLAIN.less))
        return _clause(teller, pattern, n=n), [(op, n)]
    pattern = f"{{s}} <{rng.choice(verbs)}> {d.pick(quantity)}"
    if len(amounts) == 1:
        if d.chance(0.2):
            # a second verb, in the other direction or the same
            after = compute(value, op, n)
            other = "-" if after > 1 and d.chance(0.6) else "+"
            m = d.number(1, after) if other == "-" else d.number(1, max(1, story.highest - after))
            words = (PLAIN.loss_verbs, PLAIN.less) if other == "-" else (PLAIN.gain_verbs, PLAIN.more)
            second = f"<{rng.choice(words[0])}> " + d.pick(words[1]).replace("{n}", "{m}")
            return _clause(teller, f"{pattern} and {second}", n=n, m=m), [(op, n), (other, m)]
        return _clause(teller, pattern + d.pick(PLAIN.where), n=n), [(op, n)]
    m = amounts[1]
    if d.chance(0.5):
        day, other_day = rng.choice(PLAIN.days)
        pattern += f" on {day} and {{m}} on {other_day}"
    else:
        pattern += d.pick(PLAIN.again)
    return _clause(teller, pattern, n=n, m=m), [(op, n), (op, m)]


def _clause(teller: Teller, pattern: str, **numbers: int) -> str:
    """The pattern filled, with verbs of a plural where it says so, and one thing in the singular."""
    plural = re.sub(r"<([A-Za-z ]+)/p>", lambda m: verb(m[1], "p", teller.past), pattern)
    text = teller.fill(plural, None, **numbers)
    if 1 in numbers.values():
        noun = singular(teller.thing)
        text = re.sub(rf"\b1 ((?:more |new )?){re.escape(teller.thing)}\b", rf"1 \g<1>{noun}", text)
    return text


def _question(teller: Teller) -> str:
    d, who = teller.d, teller.who
    text = d.say(d.pick(PLAIN.ask)).replace("<does>", verb("does", who.agrees, teller.past and d.chance(0.4)))
    same = who.agrees == who.pronoun_agrees
    subject = who.pronoun if same and d.chance(0.3) else who.subject
    return start_sentence(text.format(s=subject, i=teller.thing))
