"""Facts in open wording, as in visitors' documents, a question about them, and its answer."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from functools import cache

from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.relations import RELATIONS, TRAINED, VERBS, Relation
from backend.prompts.tasks.words import INNERMOST, Draw, split, start_sentence

DOCUMENTS = phrases("documents")
DOMAINS = phrases("domains")
WORDS = phrases("words")


# words for the same property: a fact about either answers the question
SAME = {"color": "colour", "town": "city", "meal": "food", "dish": "food", "game": "sport"}
TRIES = 400
FIRST_WORDS = ("Where", "Who", "What", "Which", "How", "When", "Tell", "Name")  # of questions
Key = tuple[str, ...]  # what a question asks for, see Statement.keys
# what a relation may be about, and the kind of its object
ABOUTS = {
    "favourite": DOMAINS.favourites,
    "attribute": DOMAINS.attributes,
    "of place": DOMAINS.of_places,
    "count": dict.fromkeys(DOMAINS.counted, "number"),
    "count of place": dict.fromkeys(DOMAINS.counted_places, "number"),
}


def choose(draw: Draw, patterns: tuple[str, ...], *, nested: bool = False, noun: bool = False) -> str:
    """One pattern of a list with its choices made, of this document's side; empty where none fits.

    ``nested``: the subject is a description, which takes no ``'s``; ``noun``: the pattern has to be one.
    """
    options = _options(patterns, nested, noun, draw.unseen)
    return draw.rng.choice(draw.rng.choice(options)) if options else ""


@cache
def _options(
    patterns: tuple[str, ...], nested: bool, noun: bool, unseen: bool
) -> tuple[tuple[str, ...], ...]:
    """The fitting sentences of each pattern, of one side of the split; of both where that side has none."""

    def fits(text: str) -> bool:
        if nested and ("{s}'s" in text or (noun and not text.endswith(" {s}"))):
            return False
        return bool(text) and not (noun and text.startswith("what "))

    expansions = [tuple(filter(fits, expand(pattern))) for pattern in patterns]
    side = split(tuple(itertools.chain.from_iterable(expansions)))[unseen]
    if not unseen or side:
        expansions = [tuple(text for text in texts if text in side) for texts in expansions]
    return tuple(filter(None, expansions))


@cache
def expand(pattern: str) -> tuple[str, ...]:
    """Every sentence of a pattern with its choices made."""
    if (inner := INNERMOST.search(pattern)) is None:
        return (re.sub(r" ([.,?!])", r"\1", re.sub(r" +", " ", pattern).strip()),)
    body = inner[0][1:-1]
    options = [*body.split("|"), *([""] if inner[0][0] == "[" else [])]
    expansions = (expand(pattern[: inner.start()] + option + pattern[inner.end() :]) for option in options)
    return tuple(dict.fromkeys(itertools.chain.from_iterable(expansions)))


@dataclass(frozen=True)
class Statement:
    """A fact and the sentence that says it, without its capital and its full stop."""

    relation: Relation
    subject: str
    object: str
    about: str
    text: str

    @property
    def keys(self) -> tuple[Key, ...]:
        """Questions that this fact answers; the only answer if no other fact has the same key."""
        about = SAME.get(self.about, self.about)
        keys: list[Key] = [(self.subject.lower(), self.relation.group, about)]
        keys.append((self.object.lower(), self.relation.group, about, "back"))
        if self.relation.mutual:
            keys += [(self.object.lower(), *keys[0][1:]), (self.subject.lower(), *keys[1][1:])]
        return tuple(keys)


@dataclass(frozen=True)
class Story:
    """A question, the facts that answer it one after the other, other facts, and the answer.

    ``bridge`` is what leads from the first fact to the second, empty where one fact answers. ``further`` are
    more questions about the same facts, each answered by one of them.
    """

    question: str
    needed: tuple[Statement, ...]
    others: tuple[Statement, ...]
    answer: str
    bridge: str = ""
    further: tuple[tuple[str, str], ...] = ()


class Cast:
    """Who and what the facts of one document are about; no two share a word."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.used: set[str] = set()
        self.members: dict[str, list[str]] = {}

    def new(self, domain: str, subject: bool = False) -> str:
        """Somebody or something that was not there before."""
        for attempt in range(60):
            text = self._draw(domain, subject)
            words = {w for w in re.findall(r"\w+", text.lower()) if w not in ("the", "a", "my", "of")}
            if attempt > 50 or not words & self.used:
                break
        self.used |= words
        self.members.setdefault(domain, []).append(text)
        return text

    def any(self, domain: str, again: float) -> str:
        """Somebody or something, at times one that was there before."""
        if domain in self.members and self.draw.chance(again):
            return self.draw.rng.choice(self.members[domain])
        return self.new(domain)

    def _draw(self, domain: str, subject: bool) -> str:
        draw = self.draw
        if domain.startswith("the "):
            return "the " + self._draw(domain[4:], subject)
        if domain == "person":
            return draw.pick_word(WORDS.somebody) if subject and draw.chance(0.1) else draw.name()
        if domain == "place":
            first = "" if draw.chance(0.9) else draw.pick(("New", "Old", "Port", "San"))
            return f"{first} {draw.place()}".lstrip()
        if domain == "years":
            return str(draw.rng.randint(2, 99))
        if domain == "time":
            return f"{draw.rng.randint(1, 23)}:{draw.pick(('00', '15', '30', '45', '10', '50'))}"
        if domain == "year":
            return str(draw.rng.randint(1400, 2030))
        if domain in ("number", "price"):
            number = draw.number(2)
            return f"{number} {draw.pick(DOMAINS.values['unit'])}" if domain == "price" else str(number)
        if domain in ("word", "made-up") or draw.chance(0.12):
            word = draw.word()
            return word.capitalize() if domain in ("language", "country", "river") else word
        if domain == "country" and draw.chance(0.3):
            return draw.word().capitalize()
        return draw.pick_word(DOMAINS.values[domain])


def draw_story(draw: Draw, hops: int, count: int, further: int = 0) -> Story:
    """A question of one hop or two, and ``count`` facts that do not answer it.

    Many of them state the same relation of other subjects, or other relations of the question's subjects.
    ``further``: up to so many more questions about them.
    """
    for _ in range(TRIES):
        if story := _story(draw, hops, count, further):
            return story
    raise ValueError(f"no story of {hops} hops and {count} other facts was found")


def relations(draw: Draw) -> list[Relation]:
    """The relations, for training with further patterns."""
    return TRAINED if draw.trains else RELATIONS


def pick_relation(draw: Draw, options: list[Relation]) -> Relation:
    """One of the relations; seldom a verb between people, of which there are many."""
    if draw.chance(0.75):
        options = [r for r in options if r.name not in VERBS] or options
    return draw.rng.choice(options)


@dataclass(frozen=True)
class _Topic:
    """A relation with what it is about."""

    relation: Relation
    object: str
    k: str
    v: str

    @classmethod
    def new(cls, draw: Draw, relation: Relation) -> _Topic:
        k, object_ = "", relation.object
        if relation.about:
            k = draw.pick(tuple(ABOUTS[relation.about]))
            object_ = ABOUTS[relation.about][k]
        verb = draw.word() if any("{v}" in text for text in relation.says) else ""
        return cls(relation, object_, k, verb.rstrip("s") or verb)

    def say(self, draw: Draw, subject: str, object_: str) -> Statement:
        text = self.fill(choose(draw, self.relation.says), subject, object_)
        return Statement(self.relation, subject, object_, self.k or self.v, text)

    def fill(self, pattern: str, subject: str = "", object_: str = "") -> str:
        who = "who" if self.object == "person" else "what"
        article = "an" if object_[:1].lower() in tuple("aeiou") else "a"
        return pattern.format(s=subject, o=object_, k=self.k, v=self.v, a=article, W=who.capitalize(), w=who)

    def ask(self, draw: Draw, subject: str, nested: bool) -> str:
        """A question for the object; ``subject`` is a description where it is nested."""
        relation, at = self.relation, draw.rng.random()
        clause = choose(draw, relation.told, nested=nested)
        noun = choose(draw, relation.that, nested=nested, noun=True)
        simple = choose(draw, relation.asks, nested=nested)
        if clause and at < 0.2:
            return choose(draw, DOCUMENTS.ask_told).format(t=self.fill(clause, subject))
        if noun and (at < 0.4 or not simple):
            return self.fill(choose(draw, DOCUMENTS.ask_noun).replace("{n}", self.fill(noun, subject)))
        return self.fill(simple, subject)

    def ask_back(self, draw: Draw, object_: str) -> str:
        """A question for the subject."""
        question = self.fill(choose(draw, self.relation.back), object_=object_)
        if question.startswith("Who ") and draw.chance(0.25):
            return choose(draw, DOCUMENTS.ask_told).format(t="w" + question[1:-1])
        return question


def _story(draw: Draw, hops: int, count: int, further: int) -> Story | None:
    cast = Cast(draw)
    middle = ""
    needed: list[Statement] = []
    last = _Topic.new(
        draw, pick_relation(draw, [r for r in relations(draw) if hops == 1 or r.subject in BRIDGES])
    )
    kinds = [last]
    back = hops == 1 and bool(last.relation.back) and draw.chance(0.25)
    if hops == 1:
        subject, object_ = cast.new(last.relation.subject, True), cast.new(last.object)
        needed.append(last.say(draw, subject, object_))
        question = last.ask_back(draw, object_) if back else last.ask(draw, subject, False)
        keys = [needed[0].keys[1 if back else 0]]
    else:
        bridge = last.relation.subject
        forward = [
            r for r in relations(draw) if r.that and bridge in _objects(r) and r.name != last.relation.name
        ]
        behind = [
            r for r in relations(draw) if r.who and r.subject == bridge and r.group != last.relation.group
        ]
        backwards = bool(behind) and (not forward or draw.chance(0.3))
        if not behind and not forward:
            return None
        first = _Topic.new(draw, pick_relation(draw, behind if backwards else forward))
        if not backwards and first.object != bridge:
            return None
        kinds.append(first)
        middle, start = cast.new(bridge), ""
        start = cast.new(first.object if backwards else first.relation.subject)
        pair = (middle, start) if backwards else (start, middle)
        needed = [first.say(draw, *pair), last.say(draw, middle, cast.new(last.object))]
        noun = choose(draw, first.relation.who if backwards else first.relation.that, noun=True)
        if not noun:
            return None
        noun = first.fill(noun, start, start)
        question = last.ask(draw, noun, True)
        keys = [needed[0].keys[1 if backwards else 0], needed[1].keys[0]]
    others, topics = _others(draw, cast, kinds, needed, keys, count)
    story = Story(
        _as_typed(draw, question),
        tuple(needed),
        tuple(others),
        needed[-1].subject if back else needed[-1].object,
        middle,
    )
    if not unique(story, keys):
        return None
    return replace(story, further=_further(draw, story, topics, further)) if further else story


def _further(draw: Draw, story: Story, topics: list[_Topic], most: int) -> tuple[tuple[str, str], ...]:
    """Questions that one of the other facts answers alone, with their answers."""
    facts = list(zip(story.others, topics, strict=True))
    asked: list[tuple[str, str]] = []
    for fact, topic in draw.rng.sample(facts, len(facts)):
        back = bool(topic.relation.back) and draw.chance(0.4)
        if len(asked) < most and unique(story, [fact.keys[1 if back else 0]]):
            text = topic.ask_back(draw, fact.object) if back else topic.ask(draw, fact.subject, False)
            if text:
                asked.append((_as_typed(draw, text), fact.subject if back else fact.object))
    return tuple(asked)


def _others(
    draw: Draw,
    cast: Cast,
    kinds: list[_Topic],
    needed: list[Statement],
    question_keys: list[Key],
    count: int,
) -> tuple[list[Statement], list[_Topic]]:
    """Other facts, with the topic of each: needed relations of other subjects, other relations of needed
    subjects, and any."""
    others: list[Statement] = []
    topics: list[_Topic] = []
    used = {key for statement in needed for key in statement.keys}
    subjects = {statement.subject: statement.relation.subject for statement in needed}
    attempts = 0
    while len(others) < count and attempts < 20 * count + 20:
        attempts += 1
        at = draw.rng.random()
        kind = draw.rng.choice(kinds)
        if at < 0.55:
            subject = cast.any(kind.relation.subject, 0.3)
        else:
            if at < 0.8:
                subject = draw.rng.choice(list(subjects))
                options = [r for r in relations(draw) if r.subject == subjects[subject]]
            else:
                options, subject = relations(draw), ""
            kind = _Topic.new(draw, pick_relation(draw, options))
            kinds = [*kinds, kind] if draw.chance(0.3) else kinds
            subject = subject or cast.any(kind.relation.subject, 0.4)
        statement = kind.say(draw, subject, cast.any(kind.object, 0.2))
        keys = set(statement.keys)
        new = keys if statement.relation.mutual else {statement.keys[0]}
        if statement.subject == statement.object or used & new or keys.intersection(question_keys):
            continue
        used |= new
        subjects.setdefault(statement.subject, statement.relation.subject)
        others.append(statement)
        topics.append(kind)
    return others, topics


def unique(story: Story, question_keys: list[Key]) -> bool:
    """Does one fact alone answer each hop?"""
    key_sets = [set(statement.keys) for statement in (*story.needed, *story.others)]
    return all(sum(key in keys for keys in key_sets) == 1 for key in question_keys)


def _as_typed(draw: Draw, question: str) -> str:
    """The question as somebody types it."""
    if not draw.chance(0.12):
        return start_sentence(question)
    question = question.rstrip("?.")
    if draw.chance(0.5) and question.split()[0] in FIRST_WORDS:
        question = question[0].lower() + question[1:]
    return question


def _objects(relation: Relation) -> set[str]:
    return {relation.object} if not relation.about else set(ABOUTS[relation.about].values())


BRIDGES = {r.subject for r in RELATIONS if r.who} | {x for r in RELATIONS for x in _objects(r)}
BRIDGES &= {r.subject for r in RELATIONS if r.subject not in ("word", "made-up", "goods", "number")}
