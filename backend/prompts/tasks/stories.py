"""Word problems as people write them: anybody, anything, any verb, any order, with what does not matter in between.

A story is drawn as what happens to an amount, put into sentences of one tense and one person, and comes with its
steps. The patterns are in ``presets/tasks/stories.yaml``, further ones for training in ``stories_trained.yaml``.
"""

import random
from dataclasses import replace

from backend.prompts.tasks.base import Style
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.plain_stories import draw_plain
from backend.prompts.tasks.quantities import QUANTITIES
from backend.prompts.tasks.situations import COUNT_WORDS, draw_situation
from backend.prompts.tasks.story_teller import (
    LARGEST,
    Step,
    Story,
    StoryProblem,
    Teller,
    ask_question,
    compute,
    lower_start,
    product_step,
    verb,
)
from backend.prompts.tasks.story_totals import draw_purchase, draw_sum
from backend.prompts.tasks.whole_problems import draw_whole
from backend.prompts.tasks.words import Draw, start_sentence

STORIES, MORE = phrases("stories"), phrases("stories_trained")


def draw_chain(d: Draw, story: Story, steps: int) -> StoryProblem:
    """An amount that is changed ``steps`` times, in sentences."""
    teller, rng = Teller(d, story), d.rng
    top = story.highest
    solution: list[Step] = []
    if steps and d.chance(story.ratios * 0.35):
        groups, each = rng.randint(2, 12), d.number(max(2, min(story.lowest, 700)), max(20, top // 12))
        start = d.pick(STORIES.groups_start)
        first = teller.sentence(start, m=groups, n=each)
        value = groups * each
        solution.append(product_step(start, each, groups))
    else:
        low, high = (max(story.lowest, 10), min(top, 999)) if d.chance(0.5) else (story.lowest, top)
        value = d.number(low, high)
        first = teller.sentence(d.pick(STORIES.start), n=value)
    teller.mentioned = True
    clauses: list[tuple[str, bool]] = []
    while len(solution) < steps:
        clause, new = _change(teller, value, steps - len(solution))
        clauses.append(clause)
        solution += new
        value = compute(*new[-1])
    sentences = [first, *_join(teller, clauses)]
    question_first = d.chance(0.08)
    ask = ask_question(teller, STORIES.ask_first if question_first else STORIES.ask)
    if question_first:
        sentences.insert(0, ask)
    elif d.chance(0.06) and len(sentences) == 2 and ask.startswith("How many"):
        first, second = (x.rstrip(".") for x in sentences)
        sentences = [f"{ask.rstrip('?.')} if {lower_start(first, teller)} and {lower_start(second, teller)}?"]
    else:
        sentences.append(ask)
    for share, patterns in ((story.filler, STORIES.filler), (story.amounts, STORIES.aside_amounts)):
        while d.chance(share):
            at = rng.randint(0, max(0, len(sentences) - 1))
            sentences.insert(at, start_sentence(teller.fill(d.pick(patterns))))
            share *= 0.5
    return " ".join(sentences), solution, value


def _events(d: Draw, own: str, others: str) -> tuple[str, ...]:
    """What somebody does or what happens; for training with further patterns."""
    name = own if d.chance(0.7) else others
    patterns: tuple[str, ...] = getattr(STORIES, name)
    return patterns + getattr(MORE, name) if d.trains else patterns


_SHARES = {3: ("a third", "one third"), 4: ("a quarter", "one fourth"), 5: ("a fifth", "one fifth")}


def _change(teller: Teller, value: int, steps_left: int) -> tuple[tuple[str, bool], list[Step]]:
    """One thing that happens to the amount: its clause and its steps."""
    d, rng, story = teller.d, teller.d.rng, teller.story
    kinds = []
    low = min(story.lowest, 99)
    if value + low <= story.highest:
        kinds += ["+"] * 3
    if value > low:
        kinds += ["-"] * 3
    shares = [k for k in _SHARES if value >= k and value % k == 0]
    if d.chance(story.ratios):
        kinds = [x for x, good in (
            ("twice", value * 2 <= story.highest),
            ("times", value * 3 <= story.highest),
            ("triple", value * 3 <= story.highest),
            ("half", value % 2 == 0 and value > 1),
            ("kept", shares),
            ("lost", shares and steps_left > 1),
            ("groups+", steps_left > 1 and value + 20 <= story.highest),
            ("groups-", steps_left > 1 and value > 12),
        ) if good] or kinds  # fmt: skip
    kind = rng.choice(kinds or ["-" if value else "+"])
    if kind == "+":
        n = d.number(low, max(low, story.highest - value))
        return teller.event(_events(d, "gains", "others_gain"), n=n), [(value, "+", n)]
    if kind == "-":
        n = d.number(min(low, value), value)
        return teller.event(_events(d, "losses", "others_lose"), n=n), [(value, "-", n)]
    if kind == "twice":
        return teller.event(STORIES.twice), [(value, "*", 2)]
    if kind == "times":
        m = rng.randint(3, max(3, min(10, story.highest // value))) if value else 3
        factor = COUNT_WORDS[m - 2] if d.chance(0.7) else m
        return teller.event(STORIES.times, m=factor), [(value, "*", m)]
    if kind == "triple":
        return teller.event(STORIES.triple), [(value, "*", 3)]
    if kind == "half":
        return teller.event(STORIES.half), [(value, "/", 2)]
    if kind in ("kept", "lost"):
        k = rng.choice(shares)
        words = rng.choice(_SHARES[k])
        if kind == "kept":
            return teller.event(STORIES.share_kept, f=words), [(value, "/", k)]
        return teller.event(STORIES.share_lost, f=words), [(value, "/", k), (value, "-", value // k)]
    if kind == "groups+":
        m, n = rng.randint(2, 9), d.number(2, max(3, (story.highest - value) // 9))
        pattern, op = d.pick(STORIES.groups_gain), "+"
    else:
        m = rng.randint(2, min(9, value // 2))
        n = rng.randint(1, value // m)
        pattern, op = d.pick(STORIES.groups_lose), "-"
    return (teller.fill(pattern, m=m, n=n), False), [product_step(pattern, n, m), (value, op, m * n)]


_BETWEEN = (
    ", ", " and ", ", and ", ", then ", ", and then ", " and then ", " and later ", " and also ",
    ", but then ", "; ",
)  # fmt: skip


def _join(teller: Teller, clauses: list[tuple[str, bool]]) -> list[str]:
    """Clauses as sentences: with a subject, joined by commas and *and*, with or without a connective before them."""
    d, out, i = teller.d, [], 0
    while i < len(clauses):
        text, bare = clauses[i]
        if bare:
            use_pronoun = d.chance(0.45)
            # a they that stands for one person has other verbs than the person
            same = teller.who.agrees == teller.who.pronoun_agrees
            text = f"{teller.who.pronoun if use_pronoun and same else teller.who.subject} {text}"
        else:
            text = text.removeprefix("then ") if d.chance(0.3) else text
        while i + 1 < len(clauses) and d.chance(teller.story.joined):
            i += 1
            more, more_bare = clauses[i]
            if bare and more_bare:
                text += d.rng.choice(_BETWEEN) + more
            else:
                if more_bare:
                    more = f"{teller.who.subject} {more}"
                text += d.rng.choice(_BETWEEN[1:]) + more.removeprefix("then ")
            bare = bare and more_bare
        if d.chance(0.25):
            text = d.pick(STORIES.connect) + text
        out.append(start_sentence(text) + ".")
        i += 1
    return out


def draw_relation(d: Draw, story: Story, steps: int) -> StoryProblem:
    """Two people's amounts: one given by the other (*5 more than*, *half as many as*), together, or their difference."""
    rng = d.rng
    subject, other = d.names(2)
    thing = d.thing()
    past = d.chance(0.3)
    has = "had" if past else "has"
    does = "did" if past else "does"
    a = d.number(max(2, story.lowest), story.highest // 3)
    solution: list[Step] = []
    kind = rng.choice(("more", "fewer", "times", "half", "plain", "plain"))
    base = d.phrase(
        (
            f"{{s}} {has} {{n}} {{i}}.",
            f"{{s}} {'owned' if past else 'owns'} {{n}} {{i}}.",
            f"{{s}} {'counted' if past else 'counts'} {{n}} {{i}}.",
            "There are {n} {i} in {s}'s bag.",
            f"{{s}} {'found' if past else 'finds'} {{n}} {{i}}.",
            "{s}'s {i}: {n}.",
            f"{{s}} {'bought' if past else 'buys'} {{n}} {{i}}.",
            "{n} {i} belong to {s}.",
            f"{{s}} {'collected' if past else 'collects'} {{n}} {{i}}.",
            f"{{s}} {'got' if past else 'gets'} {{n}} {{i}}.",
        ),
        s=subject, n=a, i=thing,
    )  # fmt: skip
    if kind == "half" and a % 2:
        kind = "times"
    if kind == "plain":
        b = d.number(max(1, story.lowest), story.highest // 3)
        statement = d.phrase(
            (
                f"{{t}} {has} {{n}} {{i}}.", f"{{t}} {has} {{n}}.", f"{{t}} {'owned' if past else 'owns'} {{n}} {{i}}.",
                f"{{t}} {'found' if past else 'finds'} {{n}} {{i}}.", "{t} has got {n} of them.", "In {t}'s bag there are {n}.",
                "{n} {i} belong to {t}.", f"{{t}}, on the other hand, {has} {{n}} {{i}}.",
                f"And {{t}} {has} {{n}} {{i}}.", f"{{t}}, a friend of {{s}}, {has} {{n}} {{i}}.",
            ),
            s=subject, t=other, n=b, i=thing,
        )  # fmt: skip
    else:
        m = rng.choice((2, 2, 3, 4, 5))
        low, high = (
            (1, max(1, a - 1)) if kind == "fewer" else (max(1, min(99, story.lowest)), story.highest // 3)
        )
        n = d.number(low, high)
        times = "twice" if m == 2 and d.chance(0.7) else f"{COUNT_WORDS[m - 2]} times"
        phrase, step = {
            "more": (f"{n} (more {{i}}|more) than", (a, "+", n)),
            "fewer": (f"{n} (fewer {{i}}|fewer|less) than", (a, "-", n)),
            "times": (f"{times} as many [{{i}}] as", (a, "*", m)),
            "half": ("half as many [{i}] as", (a, "/", 2)),
        }[kind]
        statement = d.phrase(
            (
                f"{{t}} {has} {phrase} {{s}}.",
                f"{{t}} {has} {phrase} {{s}} {'did' if past else 'does'}.",
                f"{{t}} {'owned' if past else 'owns'} {phrase} {{s}}.",
                f"{{t}} {'found' if past else 'finds'} {phrase} {{s}}.",
                f"{{t}} {'got' if past else 'gets'} {phrase} {{s}}.",
                f"But {{t}} {has} {phrase} {{s}}.",
                f"{{t}}, a friend, {has} {phrase} {{s}}.",
                f"{{t}} {'counted' if past else 'counts'} {phrase} {{s}}.",
                f"And {{t}} {has} {phrase} {{s}}.",
                f"{{t}} {'bought' if past else 'buys'} {phrase} {{s}}.",
            ),
            s=subject, t=other, i=thing,
        )  # fmt: skip
        solution.append(step)
        b = compute(*step)
    target = rng.choice(
        ("together", "difference", "subject", "other") if kind == "plain" else ("other", "other", "together")
    )
    if target == "together":
        ask = d.phrase(
            (
                f"How many {{i}} {does.replace('does', 'do')} they have [together|in total|altogether|in all]?",
                f"How many {{i}} {does.replace('does', 'do')} {{s}} and {{t}} have (together|in total|altogether|in all)?",
                "What is the total number of {i}?",
                "How many {i} is that (together|in total|altogether|in all)?",
                "How many {i} are there in (total|all)?",
                "What do they have together?",
                "Find the sum of their {i}.",
                "Together, how many {i} do they have?",
                "In total they have how many {i}?",
                "How many have the two of them together?",
            ),
            s=subject, t=other, i=thing,
        )  # fmt: skip
        solution.append((a, "+", b))
    elif target == "difference":
        first, second, high, low = (subject, other, a, b) if a >= b else (other, subject, b, a)
        ask = d.phrase(
            (
                "How many more {i} does {s} have than {t}?",
                "How many (fewer|less) {i} does {t} have than {s}?",
                "What is the difference?",
                "By how many is {s} ahead of {t}?",
                "How many more does {s} have?",
                "{s} has how many more than {t}?",
                "How many {i} does {t} need to have as many as {s}?",
                "What is the difference between their numbers?",
                "How much more does {s} have than {t}?",
                "How many {i} more than {t} does {s} have?",
            ),
            s=first, t=second, i=thing,
        )  # fmt: skip
        solution.append((high, "-", low))
    else:
        who = subject if target == "subject" else other
        patterns = (
            f"How many {{i}} {does} {{s}} have?",
            f"How many {does} {{s}} have?",
            "What number of {i} does {s} have?",
            "How many {i} are {s}'s?",
            "How many {i} belong to {s}?",
            "Find the number of {i} of {s}.",
            "Tell me how many {i} {s} has.",
            f"How many {{i}} {does} {{s}} have [now|in the end]?",
            "How many of the {i} does {s} have?",
            "And {s}, how many {i}?",
        )
        ask = d.phrase(patterns, s=who, i=thing)
        if not solution and steps:
            # one more event for the person of the question
            value, n = (a if target == "subject" else b), d.number(1, 99)
            gain = d.chance(0.5) or n > value
            vb = verb(rng.choice(STORIES.gain_verbs if gain else STORIES.loss_verbs), "3", past)
            base += f" {statement} {who} {vb} {n}{' more' if gain else ''}."
            statement = ""
            solution.append((value, "+" if gain else "-", n))
    answer = compute(*solution[-1]) if solution else (a if target == "subject" else b)
    parts = (
        [base, statement, ask]
        if not statement or kind != "plain" or d.chance(0.7)
        else [statement, base, ask]
    )
    parts = [p for p in parts if p]
    if d.chance(story.filler):
        parts.insert(rng.randint(0, len(parts) - 1), d.say(rng.choice(("(It|Today) (is|was) a (nice|rainy|cold) day.",
                     "They are friends.", "The sun is shining.", "They like {i}.", "{x} is at home.")), i=thing, x=d.name()))  # fmt: skip
    return " ".join(start_sentence(p) for p in parts), solution, answer


SHAPES = {
    "chain": draw_chain, "relation": draw_relation, "sum": draw_sum, "purchase": draw_purchase,
    "situation": draw_situation, "plain": draw_plain, "whole": draw_whole, **QUANTITIES,
}  # fmt: skip
# how often each shape is drawn, of a hundred or so
OPEN = {"plain": 34, "whole": 110, "chain": 22, "relation": 5, "sum": 10, "purchase": 3, "situation": 30,
        "compared": 9, "groups": 9, "listed": 7, "priced": 3, "part": 4}  # fmt: skip
# the same for training, which has the composed shapes more often: the edits draw these
TRAINED = OPEN | {"plain": 30, "whole": 100, "chain": 45, "relation": 14, "purchase": 6, "situation": 60, "compared": 20,
                  "groups": 20, "listed": 12, "priced": 6, "part": 6}  # fmt: skip
NUMBERS = {"chain": 40, "relation": 8, "sum": 6, "purchase": 2, "situation": 30, "compared": 6, "listed": 8}
RATIOS = {"chain": 25, "relation": 20, "purchase": 5, "compared": 25, "groups": 20, "priced": 5}


def _shape(rng: random.Random, shares: dict[str, int]) -> str:
    return rng.choices(tuple(shares), tuple(shares.values()))[0]


AS_EDITED = ("extra", "words", "numbers", "ratios")  # a part of the training's stories is drawn like these


def _edited(rng: random.Random, edit: str) -> tuple[Story, str]:
    """What may occur in a story where a visitor changed one thing, and its shape."""
    if edit == "numbers":
        return Story(filler=0.1, amounts=0.05, lowest=100), _shape(rng, NUMBERS)
    if edit == "ratios":
        return Story(ratios=1.0, filler=0.1, amounts=0.05), _shape(rng, RATIOS)
    story = Story(filler=1.0, amounts=0.3) if edit == "extra" else Story(filler=0.05, amounts=0.05)
    return story, rng.choice(("chain", "situation"))


def draw_story(rng: random.Random, style: Style, steps: int) -> StoryProblem:
    """A word problem in open language with about ``steps`` steps: its text, its steps and its answer.

    With other *words*, some pattern of it is one that training never shows.
    """
    d = style.draw(rng)
    story, shape = Story(), _shape(rng, TRAINED if style.trains else OPEN)
    if style.edit in AS_EDITED:
        story, shape = _edited(rng, style.edit)
    elif style.edit == "bare":
        shape = "sum"
    elif style.trains and style.level > 0.5 and d.chance(0.3):
        story, shape = _edited(rng, rng.choice(AS_EDITED))
    elif style.level < 1:
        ease, highest = style.level, 999 if style.level < 0.3 else LARGEST
        story = Story(0.25 * ease, 0.15 * ease, 0.3, 0.35 * ease, highest=highest)
    if style.edit is None and style.level > 0.5 and d.chance(0.25):
        story = replace(story, lowest=100)
    text, solution, answer = SHAPES[shape](d, story, steps)
    while style.edit == "words" and not d.unseen_patterns:
        text, solution, answer = SHAPES[shape](d, story, steps)
    return _surface(d, text), solution, answer


def _surface(d: Draw, text: str) -> str:
    """Now and then as people type: small letters, no mark at the end, two spaces, a stray newline, a greeting."""
    if d.chance(0.04):
        text = text.lower()
    elif d.chance(0.01):
        text = text.upper()
    if d.chance(0.05):
        text = text.rstrip("?.")
    if d.chance(0.03):
        text = text.replace(". ", ".  ")
    if d.chance(0.03):
        text = text.replace(". ", ".\n", 1)
    if d.chance(0.02):
        text += d.rng.choice((" ", "\n", "  "))
    if d.chance(0.02):
        text = f'"{text}"'
    return text
