"""What link tokens are trained on: documents read apart, and the same model's tasks read as one text.

KVLink's mixture (appendix A.1, Table 4) has three kinds with separately encoded parts (questions over
retrieved documents, conversations whose earlier turns are encoded apart, summaries of texts cut into
segments) and three read as usual (the same questions, instructions, plain text), which keep the dense
ability. The counterparts
here: two-hop questions over documents; a judge's task, whose named texts are encoded apart; "what is said of
X?", whose answer gathers X's facts from all documents; and of those read as usual the questions and the
embedded model's other tasks.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from backend.prompts.tasks import Document, Piece, Style, make_document
from backend.prompts.tasks.base import NAMES, held_out
from backend.prompts.tasks.documents import FACTS, ONE_HOP, RANGE, Fact, sentence
from backend.prompts.tasks.judging import GLANCES

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
    # where what is trained stands around documents alone, other examples teach it nothing
    "apart": {"documents apart": 80, "conversation apart": 20},
    # controls that show what the dense examples contribute
    "no-dense": _without(LAB, "documents", "tasks"),
    # a role of its own: weights of a judge that writes as little as it needs
    "brief": {"brief": 100},
}
#: Tasks of the embedded model that are read as usual.
USUAL = ("solver", "worker", "judge", "tools", "program", "prefix")
#: Kinds that the base has learnt before, so that its own dense reading can teach them. Of summaries it has
#: never read one: it gives their answers 12 nats a token.
KNOWN = ("documents", "documents apart", "conversation apart", "tasks")
MOST_DOCUMENTS = 10


@dataclass(frozen=True)
class Drawn:
    """An example as text: a generated document, and whether its named texts are encoded apart."""

    kind: str
    document: Document
    apart: bool

    def separate(self, piece: Piece) -> bool:
        """Is this piece a separately encoded document? The question is not: it is the reader's own."""
        return self.apart and piece.name is not None and piece.name != "user_question" and bool(piece.text)


def draw(rng: random.Random, mixture: Mixture, level: float = 1.0, *, shuffle: bool = True) -> Drawn:
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
    elif kind == "brief":
        document = make_document(rng, "judge", kind=rng.choice(GLANCES), style=style)
        said = document.target.replace("Candidate ", "").rpartition(" The answer is")[0]
        document = replace(document, pieces=(*document.pieces[:-1], Piece(said, answer=True)))
    else:
        document = make_document(rng, rng.choice(USUAL), style=style)
    return Drawn(kind, document, kind.endswith("apart"))


def make_summary(rng: random.Random, held: bool = False, size: int | None = None) -> Document:
    """``size`` documents (else 3 to 10) of one to three facts; the answer gathers what they say of one
    person.

    Stands for a summary of a text that was cut into segments: every document may hold a part of the answer.
    """
    while True:
        count = size or rng.randint(3, MOST_DOCUMENTS)
        people = rng.sample(NAMES, min(len(NAMES), count + 2))
        who = people[0]
        relations = [r for r in FACTS if r in ONE_HOP and r != "land"]
        about = [
            (who, r, _object(rng, r, who)) for r in rng.sample(relations, rng.randint(2, len(relations)))
        ]
        about = about[:count]
        shelves: list[list[Fact]] = [[] for _ in range(count)]
        for fact, home in zip(about, sorted(rng.sample(range(count), len(about))), strict=True):
            shelves[home].append(fact)
        known = set()
        for shelf in shelves:
            while not shelf or (len(shelf) < 3 and rng.random() < 0.3):
                other, relation = rng.choice(people[1:]), rng.choice(relations)
                if (other, relation) not in known:
                    known.add((other, relation))
                    shelf.append((other, relation, _object(rng, relation, other)))
            rng.shuffle(shelf)
        texts = [" ".join(map(sentence, shelf)) for shelf in shelves]
        question = f"What is said of {who}?"
        if held_out(question + " ".join(texts)) == held:
            break
    pieces = [
        Piece("You read documents. Say what they say of one person and name the document of each fact.")
    ]
    for number, text in enumerate(texts, 1):
        pieces += [Piece(f"\nDocument {number}:\n"), Piece(text, name=f"document_{number}")]
    lines = [
        f"{sentence(fact)[:-1]} [{number}]."
        for number, shelf in enumerate(shelves, 1)
        for fact in shelf
        if fact[0] == who
    ]
    pieces += [
        Piece("\nThe question is: "),
        Piece(question, name="user_question"),
        Piece("\n"),
        Piece(" ".join(lines), answer=True),
    ]
    return Document("summary", "person", tuple(pieces), lines[-1], count)


def _object(rng: random.Random, relation: str, who: str) -> str:
    return rng.choice([x for x in RANGE[relation] if x != who])
