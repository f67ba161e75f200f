"""Word problems written whole: a text with slots for names, things and numbers, and the steps that solve it.

Composed stories vary in words but little in structure; these have the structure of what people write. The
texts are in ``presets/tasks/problems.txt``; one in eight is kept from training.
"""

import re
from dataclasses import dataclass
from functools import cache

from backend.prompts.tasks.phrases import FOLDER, phrases
from backend.prompts.tasks.story_teller import LARGEST, Step, Story, StoryProblem, Teller, compute
from backend.prompts.tasks.words import Draw, is_unseen, start_sentence

STORIES = phrases("stories")
# between two sentences, and not behind a title such as Dr.
BETWEEN = re.compile(
    "(?<=[.!])" + "".join(rf"(?<!{re.escape(x)})" for x in phrases("words").titles if x.endswith(".")) + " "
)
PROBLEMS = FOLDER / "problems.txt"
TRIES, SMALL_AFTER = 300, 30
MOST = 99  # of small numbers


@dataclass(frozen=True)
class WholeProblem:
    """A problem with slots; each step is ``(left, op, right)`` over slots, integers and ``r1``, ``r2`` ..."""

    text: str
    steps: tuple[tuple[str, str, str], ...]


@cache
def problems(unseen: bool, most: int) -> tuple[WholeProblem, ...]:
    """The problems of one side of the split that have at most so many steps."""
    entries: list[WholeProblem] = []
    for line in PROBLEMS.read_text(encoding="utf-8").splitlines():
        text, bar, steps = line.partition(" ||| ")
        if bar and not line.startswith("#") and is_unseen(text) == unseen:
            parts = [step.split() for step in steps.split(";")]
            entries.append(WholeProblem(text, tuple((left, op, right) for left, op, right in parts)))
    return tuple(whole for whole in entries if len(whole.steps) <= most)


def draw_whole(d: Draw, story: Story, steps: int) -> StoryProblem:
    """A problem of at most ``steps`` steps: its text, its steps and its answer."""
    options = problems(d.unseen, max(steps, 1))
    while True:
        whole = d.rng.choice(options)
        for attempt in range(TRIES):
            numbers = _numbers(d, story if attempt < SMALL_AFTER else Story(highest=MOST), whole)
            solution = _solve(whole, numbers)
            if solution:
                n, m, o = d.names(3)
                t, u = d.things(2)
                text = d.say(whole.text, N=n, M=m, O=o, T=t, U=u, P=d.place(), **numbers)
                return _with_asides(d, story, start_sentence(text)), solution, compute(*solution[-1])


def _with_asides(d: Draw, story: Story, text: str) -> str:
    """Now and then sentences that change nothing, with and without numbers, anywhere before the last one."""
    for share, patterns in ((story.filler, STORIES.filler), (story.amounts, STORIES.aside_amounts)):
        if d.chance(share * 0.8):
            sentences = BETWEEN.split(text)
            aside = start_sentence(Teller(d, story).fill(d.pick(patterns)))
            sentences.insert(d.rng.randint(0, len(sentences) - 1), aside)
            text = " ".join(sentences)
    return text


def _numbers(d: Draw, story: Story, whole: WholeProblem) -> dict[str, int]:
    """A number for each slot; one that a step divides is a multiple of what it is divided by."""
    low = max(2, min(story.lowest, story.highest // 3))
    numbers = {slot: d.number(low, story.highest) for slot in "abcde"}
    numbers |= {"m": d.rng.randint(2, 12), "k": d.rng.randint(2, 5)}
    for left, op, right in whole.steps:
        by = numbers.get(right) or (int(right) if right.isdecimal() else 0)
        if op == "/" and left in numbers and by:
            numbers[left] = max(by, numbers[left] - numbers[left] % by)
    return numbers


def _solve(whole: WholeProblem, numbers: dict[str, int]) -> list[Step]:
    """The steps with their numbers; none where a result is negative, no whole number, or too large."""
    values, solution = dict(numbers), []
    for count, (left, op, right) in enumerate(whole.steps, 1):
        a, b = (values[x] if x in values else int(x) for x in (left, right))
        if op == "/" and (b == 0 or a % b):
            return []
        result = compute(a, op, b)
        if not 0 <= result <= LARGEST:
            return []
        values[f"r{count}"] = result
        solution.append((a, op, b))
    return solution
