"""What link tokens are trained on: documents read apart, and the same model's tasks read as one text.

KVLink's mixture (appendix A.1, Table 4) has three kinds with separately encoded parts (questions over
retrieved documents, conversations whose earlier turns are encoded apart, summaries of texts cut into
segments) and three read as usual (the same questions, instructions, plain text), which keep the dense
ability. The counterparts here: two-hop questions over documents; a judge's task, whose named texts are
encoded apart; "what is said of X?", whose answer gathers X's facts from all documents; and, read as usual,
the same questions and the embedded model's other tasks.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.prompts.tasks import Document, Piece, Style, make_document
from backend.prompts.tasks.base import NAMES, is_held_out
from backend.prompts.tasks.documents import (
    FACTS,
    ONE_HOP,
    RANGE,
    READER,
    TWO_HOPS,
    Fact,
    sentence,
    stock_pieces,
)
from backend.prompts.tasks.judging import GLANCES
from backend.prompts.tasks.words import Draw

#: Shares of the examples: kind -> parts. Names with "apart" are encoded separately.
Mixture = Mapping[str, int]
LAB: Mixture = {
    "documents apart": 40, "conversation apart": 10, "summary apart": 5, "documents": 30, "tasks": 15,
}  # fmt: skip
#: Table 4's percentages; "tasks" stands for both its instructions and its plain text.
PAPER: Mixture = {
    "documents apart": 10, "conversation apart": 25, "summary apart": 5, "documents": 10, "tasks": 50,
}  # fmt: skip


def _without(mixture: Mixture, *names: str) -> Mixture:
    return {name: share for name, share in mixture.items() if name not in names}


MIXTURES: dict[str, Mixture] = {
    "lab": LAB,
    "paper": PAPER,
    # Table 5
    "no-summary": _without(LAB, "summary apart"),
    "no-conversation": _without(LAB, "conversation apart"),
    "qa-only": _without(LAB, "conversation apart", "summary apart", "tasks"),
    # for tokens around documents alone: examples without documents do not train them
    "apart": {"documents apart": 80, "conversation apart": 20},
    # controls that show what the dense examples contribute
    "no-dense": _without(LAB, "documents", "tasks"),
    # weights for one role: a judge that writes as little as it needs
    "brief": {"brief": 100},
    # a reader of prompts as long as its context, which the base has hardly seen
    "long": {"archive": 85, "documents": 15},
}
#: Tasks of the embedded model that are read as usual.
USUAL = ("solver", "worker", "judge", "tools", "program", "prefix")
#: Kinds that the base was trained on, so that its dense reading can be the teacher. It was not trained on
#: summaries: their answers have 12 nats a token.
LEARNT_KINDS = ("documents", "documents apart", "conversation apart", "tasks")
MOST_DOCUMENTS = 10
SUMMARISER = "You read documents. Say what they say of one person and name the document of each fact."
#: Facts of the longest archive: some 1,900 tokens with the embedded model's tokenizer.
MOST_FACTS = 270


@dataclass(frozen=True)
class Example:
    """An example as text: a generated document, and whether its named texts are encoded apart."""

    kind: str
    document: Document
    apart: bool

    def separate(self, piece: Piece) -> bool:
        """Is this piece encoded separately? The question never is."""
        return self.apart and piece.name is not None and piece.name != "user_question" and bool(piece.text)


def draw(rng: random.Random, mixture: Mixture, level: float = 1.0, *, shuffle: bool = True) -> Example:
    """One training example, of the share that is not held out.

    Without ``shuffle``, a question's documents stand as a retriever orders them (KVLink, appendix A.5): those
    that answer it come first.
    """
    kind = rng.choices(list(mixture), list(mixture.values()))[0]
    style = Style(level=level, answers_first=not shuffle)
    if kind.startswith("documents"):
        hops = "two-hop" if rng.random() < 0.75 else "one-hop"
        document = make_document(rng, "documents", kind=hops, style=style)
    elif kind.startswith("conversation"):
        document = make_document(rng, "judge", style=style)
    elif kind.startswith("summary"):
        document = make_summary(rng)
    elif kind == "archive":
        document = make_archive(rng, rng.randint(20, MOST_FACTS))
    elif kind == "brief":
        document = make_document(rng, "judge", kind=rng.choice(GLANCES), style=style)
        answer = document.target.replace("Candidate ", "").rpartition(" The answer is")[0]
        document = replace(document, pieces=(*document.pieces[:-1], Piece(answer, answer=True)))
    else:
        document = make_document(rng, rng.choice(USUAL), style=style)
    return Example(kind, document, kind.endswith("apart"))


def make_summary(rng: random.Random, held_out: bool = False, size: int | None = None) -> Document:
    """``size`` documents (else 3 to 10) of one to three facts; the answer gathers what they say of one
    person.

    Stands for a summary of a text that was cut into segments: every document may hold a part of the answer.
    """
    while True:
        count = size or rng.randint(3, MOST_DOCUMENTS)
        people = rng.sample(NAMES, min(len(NAMES), count + 2))
        who = people[0]
        relations = [r for r in FACTS if r in ONE_HOP and r != "land"]
        drawn = rng.sample(relations, rng.randint(2, len(relations)))
        about = [(who, r, _object(rng, r, who)) for r in drawn][:count]
        shelves: list[list[Fact]] = [[] for _ in range(count)]
        for fact, home in zip(about, sorted(rng.sample(range(count), len(about))), strict=True):
            shelves[home].append(fact)
        pairs = set()
        for shelf in shelves:
            while not shelf or (len(shelf) < 3 and rng.random() < 0.3):
                other, relation = rng.choice(people[1:]), rng.choice(relations)
                if (other, relation) not in pairs:
                    pairs.add((other, relation))
                    shelf.append((other, relation, _object(rng, relation, other)))
            rng.shuffle(shelf)
        texts = [" ".join(map(sentence, shelf)) for shelf in shelves]
        question = f"What is said of {who}?"
        if is_held_out(question + " ".join(texts)) == held_out:
            break
    lines = [
        f"{sentence(fact)[:-1]} [{number}]."
        for number, shelf in enumerate(shelves, 1)
        for fact in shelf
        if fact[0] == who
    ]
    pieces = stock_pieces(SUMMARISER, texts, question, " ".join(lines))
    return Document("summary", "person", pieces, lines[-1], count)


@dataclass(frozen=True)
class Archive:
    """Documents of many short facts, up to a model's context.

    ``facts``: objects by person and relation; ``texts``: of the documents.
    """

    facts: Mapping[tuple[str, str], str]
    texts: tuple[str, ...]

    def ask(self, rng: random.Random) -> tuple[str, tuple[Fact, ...]]:
        """A question of one hop or two (as often), and the facts that answer it; the last has the answer."""
        chains = [
            ((who, first, bridge), (bridge, second, self.facts[bridge, second]))
            for (who, first), bridge in self.facts.items()
            for hop, second in TWO_HOPS
            if hop == first and (bridge, second) in self.facts
        ]
        if chains and rng.random() < 0.5:
            hops = rng.choice(chains)
            return TWO_HOPS[hops[0][1], hops[1][1]].format(s=hops[0][0]), hops
        (who, relation), bridge = rng.choice(list(self.facts.items()))
        return ONE_HOP[relation].format(s=who), ((who, relation, bridge),)


def draw_archive(rng: random.Random, facts: int, documents: int = 8) -> Archive:
    """``facts`` about a fourth as many persons, with listed and drawn names, dealt to ``documents``."""
    made_up = [name for name in Draw(rng).names(60) if "." not in name]  # a fact ends where its dot stands
    names = list(dict.fromkeys([*NAMES, *made_up]))
    people = rng.sample(names, max(8, min(len(names), facts // 4)))
    relations = [relation for relation in FACTS if relation != "land"]
    objects: dict[tuple[str, str], str] = {}
    while len(objects) < facts:
        who, relation = rng.choice(people), rng.choice(relations)
        options = people if RANGE[relation] is NAMES else RANGE[relation]
        objects.setdefault((who, relation), rng.choice([x for x in options if x != who]))
    sentences = [sentence((who, relation, object_)) for (who, relation), object_ in objects.items()]
    rng.shuffle(sentences)
    return Archive(objects, tuple(" ".join(sentences[number::documents]) for number in range(documents)))


def make_archive(rng: random.Random, facts: int, held_out: bool = False) -> Document:
    """An archive of so many facts, and a question about it; the answer states each hop."""
    while True:
        archive = draw_archive(rng, facts)
        question, hops = archive.ask(rng)
        if is_held_out(question + " ".join(archive.texts)) == held_out:
            break
    answer = hops[-1][2]
    reasoning = f"{' '.join(map(sentence, hops))} The answer is {answer}"
    pieces = stock_pieces(READER, archive.texts, question, reasoning)
    kind = "one-hop" if len(hops) == 1 else "two-hop"
    return Document("documents", kind, pieces, answer, len(archive.texts))


def _object(rng: random.Random, relation: str, who: str) -> str:
    return rng.choice([x for x in RANGE[relation] if x != who])
