"""Facts written whole: sentences with slots, questions about them, and the answers.

They say whatever people write about a person, a place or a thing, beyond the relations of
:mod:`backend.prompts.tasks.relations`. The lines are in ``presets/tasks/facts.txt``, each as ``topic |||
sentence ;; sentence ||| question // question ||| answer``. All are for training: held-out documents ask
about relations.
"""

import re
from dataclasses import dataclass
from functools import cache

from backend.prompts.tasks.phrases import FOLDER
from backend.prompts.tasks.words import Draw

FACTS = FOLDER / "facts.txt"
POOL = re.compile(r"\{([a-z]):([^{}]*)\}")
SLOT = re.compile(r"\{([A-Za-z])\}")
PEOPLE, PLACES, THINGS, COLOURS = "NMO", "PQ", "TU", "ce"
SAME_TEMPLATE = 0.45  # of the facts beside the needed ones


@dataclass(frozen=True)
class Sentence:
    """A fact as the documents say it, without its full stop."""

    text: str


@dataclass(frozen=True)
class WholeStory:
    """A question, the facts that answer it one after the other, other facts, and the answer; ``bridge`` leads
    from the first fact to the second."""

    question: str
    needed: tuple[Sentence, ...]
    others: tuple[Sentence, ...]
    answer: str
    bridge: str = ""


@dataclass(frozen=True)
class Template:
    """One line of the file; ``pools`` are what its own slots are drawn from."""

    topic: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    answer: str
    pools: dict[str, tuple[str, ...]]

    @property
    def keys(self) -> set[str]:
        """The slots that distinguish facts of the same template: in a question, or in both sentences."""
        slots = {slot for question in self.questions for slot in SLOT.findall(question)}
        if len(self.sentences) > 1:
            first, second = (set(SLOT.findall(text)) for text in self.sentences)
            slots |= first & second
        return slots

    @property
    def bridge(self) -> str:
        """The slot by which the second sentence hangs on the first; empty with one sentence."""
        if len(self.sentences) == 1:
            return ""
        first, second = (set(SLOT.findall(text)) for text in self.sentences)
        return min((first & second) - {self.answer} or first & second, default="")


def parse(line: str) -> Template:
    """The template of one line."""
    pools: dict[str, tuple[str, ...]] = {}
    for slot, options in POOL.findall(line):
        pools[slot] = tuple(option.strip() for option in options.split("|"))
    topic, sentences, questions, answer = POOL.sub(r"{\1}", line).split(" ||| ")
    return Template(
        topic.strip(), tuple(text.strip().rstrip(".") for text in sentences.split(" ;; ")),
        tuple(text.strip() for text in questions.split(" // ")), answer.strip().strip("{}"), pools,
    )  # fmt: skip


@cache
def templates(hops: int) -> tuple[Template, ...]:
    """The templates of so many sentences."""
    lines = FACTS.read_text(encoding="utf-8").splitlines()
    parsed = (parse(line) for line in lines if line and not line.startswith("#"))
    return tuple(template for template in parsed if len(template.sentences) == hops)


def draw_whole_story(d: Draw, hops: int, count: int) -> WholeStory:
    """A question of one hop or two, and ``count`` facts that do not answer it."""
    template = d.rng.choice(templates(hops))
    used: set[str] = set()
    values = _fill(d, template, used, {})
    others: list[Sentence] = []
    while len(others) < count:
        if d.chance(SAME_TEMPLATE):
            others.append(_same_template(d, template, values, used))
        else:
            others.append(_other_template(d, template, values, used))
    return WholeStory(
        d.say(d.rng.choice(template.questions), **values),
        tuple(Sentence(d.say(text, **values)) for text in template.sentences),
        tuple(others),
        values[template.answer],
        values[template.bridge] if template.bridge else "",
    )


def _same_template(d: Draw, template: Template, values: dict[str, str], used: set[str]) -> Sentence:
    """A sentence of the same template with another value in at least one of its keys."""
    text = d.rng.choice(template.sentences)
    slots = set(SLOT.findall(text))
    keys = sorted(slots & template.keys)
    other = d.rng.choice(keys)
    shared = {s: values[s] for s in sorted(slots) if s != other and s != template.answer and d.chance(0.3)}
    if len(template.sentences) > 1 and set(keys) & set(shared):
        shared = {}
    return Sentence(d.say(text, **_fill(d, template, used, shared)))


def _other_template(d: Draw, template: Template, values: dict[str, str], used: set[str]) -> Sentence:
    """A fact of another topic, often about a person, place or thing of the question."""
    while (other := d.rng.choice(templates(d.rng.choice((1, 1, 2))))).topic == template.topic:
        pass
    text = d.rng.choice(other.sentences)
    shared: dict[str, str] = {}
    for sort in (PEOPLE, PLACES, THINGS):
        needed_values = [values[s] for s in sorted(values) if s in sort]
        slots = [s for s in SLOT.findall(text) if s in sort]
        if needed_values and slots and d.chance(0.5):
            shared[slots[0]] = d.rng.choice(needed_values)
    return Sentence(d.say(text, **_fill(d, other, used, shared)))


def _fill(d: Draw, template: Template, used: set[str], shared: dict[str, str]) -> dict[str, str]:
    """A value for each slot of the template: that of ``shared``, or one not used before."""
    slots = {s for text in (*template.sentences, *template.questions) for s in SLOT.findall(text)}
    values = dict(shared)
    for slot in sorted(slots - set(shared)):
        for _ in range(20):
            value = _value(d, slot, template.pools)
            if value.lower() not in used and value not in values.values():
                break
        else:
            value = d.word()
        used.add(value.lower())
        values[slot] = value
    return values


def _value(d: Draw, slot: str, pools: dict[str, tuple[str, ...]]) -> str:
    if slot in pools:
        return d.rng.choice(pools[slot]) if d.chance(0.9) else d.word()
    if slot in PEOPLE:
        return d.name()
    if slot in PLACES:
        return d.place()
    if slot in THINGS:
        return d.thing()
    if slot in COLOURS:
        return d.color()
    if slot == "y":
        return str(d.rng.randint(1400, 2030))
    if slot == "h":
        return f"{d.rng.randint(5, 22)}:{d.rng.choice(('00', '15', '30', '45', '10', '20'))}"
    return d.word() if slot == "w" else str(d.number(2, 9999))
