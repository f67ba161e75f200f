"""Sentences of a story: its people, verbs that agree with them, and patterns filled."""

import re
from dataclasses import dataclass
from typing import Any

from backend.prompts.filled_results import CALCULATIONS
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw, start_sentence

STORIES = phrases("stories")
WORDS = phrases("words")


Step = tuple[int, str, int]
StoryProblem = tuple[str, list[Step], int]  # the text, the steps and the answer
LARGEST = 9999


@dataclass(frozen=True)
class Story:
    """What may occur in a story: shares between 0 and 1, and the numbers' range."""

    filler: float = 0.25
    amounts: float = 0.15
    ratios: float = 0.3
    joined: float = 0.35
    lowest: int = 1
    highest: int = LARGEST


@dataclass(frozen=True)
class Person:
    """Somebody, as subject, pronoun, object and possessive; ``agrees``: ``3`` or ``p`` (as they do), ``1`` for I."""

    subject: str
    pronoun: str
    object: str
    possessive: str
    agrees: str = "3"
    pronoun_agrees: str = "3"

    @property
    def as_object(self) -> str:
        return self.object if self.subject in ("I", "we") else self.subject


_PRONOUNS = (
    ("he", "him", "his", "3"),
    ("she", "her", "her", "3"),
    ("they", "them", "their", "p"),
)
_HOUSES = re.compile(
    r"shop|library|school|museum|market|restaurant|factory|team|club|class|bakery|zoo|store|hotel|comp"
)


def draw_person(d: Draw) -> Person:
    """Somebody with a name or without one, I, you, we, or two people."""
    at = d.rng.random()
    if at < 0.06:
        return Person("I", "I", "me", "my", "1", "1")
    if at < 0.09:
        return Person("you", "you", "you", "your", "p", "p")
    if at < 0.12:
        return Person("we", "we", "us", "our", "p", "p")
    if at < 0.16:
        first, second = d.names(2)
        return Person(f"{first} and {second}", "they", "them", "their", "p", "p")
    if at < 0.3:
        who = d.pick_word(WORDS.somebody)
        if _HOUSES.search(who):
            return Person(who, "it", "it", "its")
        return Person(who, *d.rng.choice(_PRONOUNS[:2])[:3])
    subject, object_, possessive, agrees = d.rng.choices(_PRONOUNS, (5, 5, 1))[0]
    return Person(d.name(), subject, object_, possessive, "3", agrees)


def verb(base: str, agrees: str, past: bool) -> str:
    """A verb in the tense, agreeing with ``3`` (he), ``p`` (they) or ``1`` (I)."""
    head, _, tail = base.partition(" ")
    tail = f" {tail}" if tail else ""
    if head == "be":
        form = ("were" if agrees == "p" else "was") if past else {"3": "is", "p": "are", "1": "am"}[agrees]
    elif head == "does":
        form = "did" if past else ("does" if agrees == "3" else "do")
    elif past:
        form = STORIES.irregular.get(head) or _regular_past(head)
    elif agrees != "3":
        form = head
    elif head == "have":
        form = "has"
    elif head.endswith(("s", "x", "z", "ch", "sh", "o")):
        form = head + "es"
    elif head.endswith("y") and head[-2] not in "aeiou":
        form = head[:-1] + "ies"
    else:
        form = head + "s"
    return form + tail


_DOUBLED = "drop ship plan trap stop grab slip chop snap hop trim pin wrap scrap swap skip rot tap flap clap hug rob step".split()


def _regular_past(head: str) -> str:
    if head.endswith("e"):
        return head + "d"
    if head.endswith("y") and head[-2] not in "aeiou":
        return head[:-1] + "ied"
    if head in _DOUBLED:
        return head + head[-1] + "ed"
    return head + "ed"


class Teller:
    """Puts patterns into sentences of one story: its people, things and tense."""

    def __init__(self, d: Draw, story: Story) -> None:
        self.d, self.story = d, story
        self.past = d.chance(0.5)
        self.who = draw_person(d)
        self.others = [x for x in d.names(4) if x not in self.who.subject][:3]
        self.thing, self.other_thing = d.things(2)
        self.container = d.pick(STORIES.container)
        self.containers = d.pick(STORIES.containers)
        self.mentioned = False
        self.verbs: set[str] = set()

    def fill(self, pattern: str, past: bool | None = None, **more: Any) -> str:
        """A pattern as a clause: its choices made, its verbs in form, its slots filled."""
        d, who = self.d, self.who
        agrees = self._agreement(pattern)
        for mark, patterns in (
            ("GOT", STORIES.got),
            ("LOST", STORIES.lost),
            ("WHERE", STORIES.where),
            ("WHEN", STORIES.when),
        ):
            pattern = pattern.replace(mark, patterns)
        while "SOMEONE" in pattern:
            pattern = pattern.replace("SOMEONE", d.say(f"({STORIES.someone})"), 1)
        pattern = d.say(pattern)
        tense = self.past if past is None else past
        chosen = {
            "GAIN": STORIES.gain_verbs,
            "LOSS": STORIES.loss_verbs,
            "TO": STORIES.to_verbs,
            "FROM": STORIES.from_verbs,
            "LEAVE": STORIES.leave_verbs,
            "COME": STORIES.come_verbs,
        }

        def conjugate(match: re.Match[str]) -> str:
            base = match[1]
            if base in chosen:
                base = d.rng.choice(chosen[base])
            return verb(base, agrees, tense)

        pattern = re.sub(r"(?<=to )<([A-Za-z ]+)>|(?<=let )<([A-Za-z ]+)>", lambda m: m[1] or m[2], pattern)
        pattern = re.sub(r"<([A-Za-z ]+)>", conjugate, pattern)
        same = who.agrees == who.pronoun_agrees
        used = who.pronoun if self.mentioned and same and d.chance(0.4) else who.subject
        slots = {
            "s": used, "S": who.as_object, "p": who.pronoun, "o": who.object, "h": who.possessive, "i": self.thing, "j": self.other_thing,
            "x": d.rng.choice(self.others), "c": self.container, "C": self.containers, "q": d.number(2, 999),
            "a": d.rng.randint(2, 90), "t": d.place(), "k": d.color(), **more,
        }  # fmt: skip
        return pattern.format(**slots)

    def _agreement(self, pattern: str) -> str:
        before = pattern.partition("<")[0]
        if "number" in before or "amount" in before:
            return "3"
        marks = re.findall(r"\{[a-zA-Z]\}|SOMEONE|GOT|LOST|half|[Tt]here|friends|visitors|children", before)
        if not marks:
            return self.who.agrees if not before.strip() else "3"
        last = marks[-1]
        if last == "{s}":
            # the pronoun may stand for the name, and then agrees by itself
            return self.who.agrees
        if last == "{p}":
            return self.who.pronoun_agrees
        return "3" if last in ("SOMEONE", "{x}", "{c}", "{t}", "{k}", "{a}", "{q}") else "p"

    def event(self, patterns: tuple[str, ...], **more: Any) -> tuple[str, bool]:
        """A clause, and whether it lacks its subject (a verb phrase that can be joined)."""
        pattern = self.d.pick(patterns)
        return self.fill(pattern, **more), pattern.startswith("<")

    def sentence(self, pattern: str, **more: Any) -> str:
        text = start_sentence(self.fill(pattern, **more))
        self.mentioned = self.mentioned or "{s}" in pattern
        return text


def lower_start(text: str, teller: Teller) -> str:
    first = text.split()[0]
    name = teller.who.subject.split()[0]
    return text if first in (name, "I", *teller.others) else text[:1].lower() + text[1:]


def ask_question(teller: Teller, patterns: tuple[str, ...]) -> str:
    d, who = teller.d, teller.who
    past = teller.past and d.chance(0.4)
    if who.agrees != "3":
        patterns = tuple(p for p in patterns if not re.search(r"\bhas\b|ends|does \{s\}", p))
    text = d.phrase(patterns).replace("<does>", verb("does", who.agrees, past))
    named = d.chance(0.75) or who.agrees != who.pronoun_agrees
    subject = who.subject if named else who.pronoun
    return start_sentence(text.format(s=subject, S=who.as_object, i=teller.thing))


def product_step(pattern: str, n: int, m: int) -> Step:
    """The step that multiplies two numbers, in their order in the pattern."""
    return (n, "*", m) if pattern.find("{n}") < pattern.find("{m}") else (m, "*", n)


def compute(left: int, op: str, right: int) -> int:
    """Value of one step; division is exact."""
    return int(CALCULATIONS["//" if op == "/" else op](left, right))
