"""What documents say: relations, each with ways to state it, to ask for it and to speak of its object.

They stand in ``presets/tasks/relations.yaml``, in the grammar of :class:`~backend.prompts.tasks.words.Draw`.
In patterns ``{s}`` and ``{o}`` are subject and object, ``{k}`` what a relation is about (a *favourite*
what?), ``{v}`` a made-up word, and ``{a}`` the article of ``{o}``. Documents for training have the patterns
of ``relations_trained.yaml`` too.
"""

from dataclasses import dataclass, replace

from backend.prompts.tasks.phrases import phrases

RELATION_WORDS = phrases("relations")
MORE = phrases("relations_trained")


@dataclass(frozen=True)
class Relation:
    """One relation; see the module for its patterns.

    ``subject`` and ``object`` name what they are drawn from; ``about`` names a table that gives ``{k}`` and
    with it the object's. ``that`` speaks of the object ("the city where {s} lives"), ``told`` follows "tell
    me"; ``back`` asks for the subject and ``who`` speaks of it ("the person who lives in {o}"). Of the
    relations of a ``group`` a subject has only one.
    """

    name: str
    subject: str
    object: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    that: tuple[str, ...]
    told: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    who: tuple[str, ...] = ()
    about: str = ""
    group: str = ""
    mutual: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "group", self.group or self.name)


def _person(verb: str, base: str) -> Relation:
    """A person does something to a person."""
    return Relation(
        base, "person", "person",
        (
            f"{{s}} {verb} {{o}}", f"{{s}} (often|sometimes|also|always|now) {verb} {{o}}",
            f"{{s}} {verb} {{o}} (today|every day|on Sundays|at times)", f"it is {{o}} whom {{s}} {verb}",
            f"{{o}} is the (person|one) whom {{s}} {verb}", f"the (person|one) whom {{s}} {verb} is {{o}}",
            f"(we know|they say|I heard) that {{s}} {verb} {{o}}",
            f"{{s}} is the (person|one) who {verb} {{o}}", f"nobody but {{s}} {verb} {{o}}",
        ),
        (
            f"(Who|Whom) does {{s}} {base}?", f"{{s}} {verb} (whom|who)?", f"Which person does {{s}} {base}?",
            f"(Who|Whom) is it that {{s}} {verb}?", f"{{s}} {verb} which person?",
            f"What is the name of the (person|one) {{s}} {verb}?",
        ),
        (f"the (person|one) (whom|who|that) {{s}} {verb}", f"the (person|one) {{s}} {verb}"),
        (f"(who|whom) {{s}} {verb}", f"which person {{s}} {verb}", f"who it is that {{s}} {verb}"),
        (f"(Who|Which person) {verb} {{o}}?", f"Who is (it|the one) that {verb} {{o}}?"),
        (f"the (person|one) (who|that) {verb} {{o}}",),
    )  # fmt: skip


def _pairs() -> list[tuple[str, str]]:
    """What a person does to a person: ``looks after`` and ``look after``."""
    plain = [(verb, base) for verb, base in map(str.split, RELATION_WORDS.people)]
    triples = (triple.split() for triple in RELATION_WORDS.behind)
    return plain + [(f"{verb} {word}", f"{base} {word}") for verb, base, word in triples]


def _widened(relation: Relation, more: dict[str, tuple[str, ...]]) -> Relation:
    return replace(relation, **{field: getattr(relation, field) + texts for field, texts in more.items()})


def _widened_person(verb: str, base: str) -> Relation:
    more = {
        field: tuple(text.replace("VERB", verb).replace("BASE", base) for text in texts)
        for field, texts in MORE.between_people.items()
    }
    return _widened(_person(verb, base), more)


_NAMED = [Relation(**row) for row in RELATION_WORDS.relations]
VERBS = {base for _, base in _pairs()}
RELATIONS = [*_NAMED, *(_person(*pair) for pair in _pairs())]
# for training
TRAINED = [_widened(relation, MORE.relations.get(relation.name, {})) for relation in _NAMED]
TRAINED += [_widened_person(*pair) for pair in _pairs()]
