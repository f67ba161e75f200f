"""What documents say: relations, each with ways to state it, to ask for it and to speak of its object.

Patterns are those of :class:`~backend.prompts.tasks.words.Draw`, separated by semicolons. In them ``{s}`` and
``{o}`` are subject and object, ``{k}`` what a relation is about (a *favourite* what?), ``{v}`` a made-up word, and
``{a}`` the article of ``{o}``.
"""
# A line is a list of words or patterns.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

from backend.prompts.tasks.relations_people import PEOPLE as ABOUT_PEOPLE
from backend.prompts.tasks.relations_things import THINGS as ABOUT_THINGS


@dataclass(frozen=True)
class Relation:
    """One relation; see the module for its patterns.

    ``subject`` and ``object`` name what they are drawn from; ``about`` names a table that gives ``{k}`` and with
    it the object's. ``that`` speaks of the object ("the city where {s} lives"), ``told`` follows "tell me";
    ``back`` asks for the subject and ``who`` speaks of it ("the person who lives in {o}"). Of the relations of a
    ``group`` a subject has only one.
    """

    name: str
    subject: str
    object: str
    says: str
    asks: str
    that: str
    told: str = ""
    back: str = ""
    who: str = ""
    about: str = ""
    group: str = ""
    mutual: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", self.group or self.name)


def _person(verb: str, base: str) -> Relation:
    """A person does something to a person."""
    return Relation(
        base, "person", "person",
        f"{{s}} {verb} {{o}};{{s}} (often|sometimes|also|always|now) {verb} {{o}};{{s}} {verb} {{o}} (today|every day|on Sundays|at times);"
        f"it is {{o}} whom {{s}} {verb};{{o}} is the (person|one) whom {{s}} {verb}",
        f"(Who|Whom) does {{s}} {base}?;{{s}} {verb} (whom|who)?;Which person does {{s}} {base}?",
        f"the (person|one) (whom|who|that) {{s}} {verb};the (person|one) {{s}} {verb}",
        f"(who|whom) {{s}} {verb}",
        f"(Who|Which person) {verb} {{o}}?",
        f"the (person|one) (who|that) {verb} {{o}}",
    )  # fmt: skip


# verbs between people, in both forms
PEOPLE = (
    "helps help|trusts trust|calls call|knows know|visits visit|teaches teach|follows follow|admires admire|"
    "pays pay|misses miss|drives drive|loves love|thanks thank|invites invite|feeds feed|paints paint|"
    "guides guide|greets greet|envies envy|hires hire|blames blame|saves save|likes like|hates hate|fears fear|"
    "meets meet|joins join|supports support|protects protect|carries carry|chases chase|watches watch|draws draw|"
    "pushes push|pulls pull|finds find|hears hear|sees see|remembers remember|forgets forget|respects respect|"
    "praises praise|advises advise|warns warn|tickles tickle|copies copy|leads lead|mocks mock|serves serve|"
    "treats treat|nurses nurse|trains train|coaches coach|beats beat|avoids avoid|hugs hug|kisses kiss|tricks trick|"
    "sponsors sponsor|represents represent|interviews interview|photographs photograph|replaces replace|assists assist"
)
BEHIND = (
    "writes write to|works work for|looks look for|waits wait for|cooks cook for|reports report to|talks talk to|listens listen to|cares care for|plays play with|dances dance with|"
    "sings sing for|lives live with|learns learn from|travels travel with|sits sit beside|laughs laugh at|runs run after"
)


def _table(rows: str) -> list[Relation]:
    """Relations from text: a line ``name: subject > object`` with further fields, then a line for each pattern."""
    found = []
    for block in rows.strip().split("\n\n"):
        first, *lines = block.strip().split("\n")
        name, _, ends = first.partition(": ")
        ends, *more = ends.split(", ")
        subject, _, object_ = ends.partition(" > ")
        fields = dict(line.strip().split(": ", 1) for line in lines)
        fields |= dict(field.split("=") for field in more)
        found.append(Relation(name, subject, object_, **fields))
    return found


def _verbs() -> list[Relation]:
    plain = [_person(*pair.split()) for pair in PEOPLE.split("|")]
    triples = [triple.split() for triple in BEHIND.split("|")]
    return plain + [_person(f"{verb} {word}", f"{base} {word}") for verb, base, word in triples]


VERBS = {r.name for r in _verbs()}
RELATIONS = [
    *_table(ABOUT_PEOPLE),
    *_table(ABOUT_THINGS),
    *_verbs(),
]
