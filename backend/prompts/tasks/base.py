"""What every task of the embedded model shares: documents, wordings, and the held-out split."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

NAMES = (
    "Tess Omar Lena Hugo Iris Noah Mara Felix Nina Otto Ruth Sami Vera Yara Emil Alma Cleo Dina Ezra Finn "
    "Gwen Jonas Kira Leo"
).split()
ITEMS = (
    "coins books pens shells cards stamps apples stones marbles cookies keys ribbons tickets beads nuts cups"
).split()

COLORS = "red blue green gold black white brown pink".split()

# Sentences that mean nothing for the task: a prompt may hold them, so that its length and its start vary
# and a person's edits stay near what the model has seen.
ASIDES = (
    "Be brief.",
    "Be careful.",
    "Take your time.",
    "You work in a team.",
    "Use plain numbers.",
    "Write one line.",
    "Your work will be read by others.",
    "Today is Monday.",
    "Do not skip a step.",
    "Stay with the facts.",
)


@dataclass(frozen=True)
class Piece:
    """One segment of a document.

    ``answer`` marks what the model has to produce, ``name`` the placeholder that holds this text in the
    lab's presets (None for template text).
    """

    text: str
    answer: bool = False
    name: str | None = None


@dataclass(frozen=True)
class Document:
    """One training or test example: segments in prompt order, the last one the answer.

    ``answer`` is what "The answer is" is followed by; ``best`` the selected candidates of a judge, and
    empty when none qualifies. ``size`` counts what makes the task longer: steps, candidates or documents.
    """

    task: str
    kind: str
    pieces: tuple[Piece, ...]
    answer: str
    size: int
    best: tuple[int, ...] | None = None

    @property
    def target(self) -> str:
        return self.pieces[-1].text

    @property
    def selection(self) -> str:
        """The judge's selection as text: ``1 and 3``, or ``0`` when no candidate qualifies."""
        return " and ".join(map(str, sorted(self.best or ()))) or "0"

    @property
    def values(self) -> dict[str, str]:
        """Texts of the named placeholders."""
        return {piece.name: piece.text for piece in self.pieces if piece.name is not None}


@dataclass(frozen=True)
class Wording:
    """Ways to say one instruction: the presets' one, others trained on, and ones never trained on."""

    stock: str
    others: tuple[str, ...]
    unseen: tuple[str, ...]


@dataclass(frozen=True)
class Style:
    """How a document's template text is worded.

    ``wording``: *stock* (the presets'), *any* (what training sees: stock half of the time) or *unseen*.
    ``level``: 0 to 1, how long and hard a document may be; training raises it.
    ``answers_first``: what answers a question over documents stands in the first of them, as a retriever
    would put it.
    """

    wording: str = "any"
    level: float = 1.0
    answers_first: bool = False

    def say(self, rng: random.Random, wording: Wording) -> str:
        """One wording of an instruction."""
        if self.wording == "stock":
            return wording.stock
        if self.wording == "unseen":
            return rng.choice(wording.unseen)
        text = wording.stock if rng.random() < 0.4 else rng.choice((wording.stock, *wording.others))
        while rng.random() < 0.2:
            aside = rng.choice(ASIDES)
            text = f"{aside} {text}" if rng.random() < 0.5 else f"{text} {aside}"
        return text

    def upto(self, rng: random.Random, low: int, high: int) -> int:
        """A size from ``low`` to at most ``high``, as far as the level allows."""
        return rng.randint(low, low + round((high - low) * self.level))


def held_out(text: str) -> bool:
    """Is a problem with this text kept from training? One in 32 is."""
    return hashlib.sha256(text.encode()).digest()[0] % 32 == 0
