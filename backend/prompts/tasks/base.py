"""What every task of the embedded model shares: documents, wordings, and the held-out split."""

import hashlib
import random
from dataclasses import dataclass

from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw

PRESET_WORDS = phrases("stock")
NAMES: tuple[str, ...] = PRESET_WORDS.names
ITEMS: tuple[str, ...] = PRESET_WORDS.items
COLORS: tuple[str, ...] = PRESET_WORDS.colors
ASIDES: tuple[str, ...] = PRESET_WORDS.asides


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
    others: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


# What visitors do to a word problem and its agents, one thing at a time
EDITS = ("names", "extra", "words", "numbers", "ratios", "bare", "roles", "space")


@dataclass(frozen=True)
class Style:
    """How a document's template text is worded.

    ``wording``: *stock* (the presets' words and sentences), *any* (what training sees: some of it stock, most
    of it open) or *unseen* (open, with words and patterns that training never shows).
    ``level``: 0 to 1, how long and hard a document may be; training raises it.
    ``edit``: the one thing that a visitor changed, see :data:`EDITS`; the rest is as ``wording`` says.
    ``answers_first``: the facts that answer a question stand in the first documents, as a retriever
    orders them.
    ``trains``: for training alone. Open documents are asked more than one question, composed stories and long
    loops come more often, and some lists have further patterns. What is evaluated, shown or fills a pool is
    not drawn so.
    """

    wording: str = "any"
    level: float = 1.0
    answers_first: bool = False
    trains: bool = False
    edit: str | None = None

    def draw(self, rng: random.Random) -> Draw:
        """Choices of words and patterns on this style's side of the split."""
        return Draw(rng, self.wording == "unseen" or self.edit is not None, self.trains)

    def is_rough(self, rng: random.Random) -> bool:
        """Is the white space between the segments irregular, as after a visitor's edits?"""
        if self.edit is not None:
            return self.edit == "space"
        return self.wording != "stock" and rng.random() < 0.2

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


def is_held_out(text: str) -> bool:
    """Is a problem with this text held out of training? One in 32 is."""
    return hashlib.sha256(text.encode()).digest()[0] % 32 == 0


def roughen(rng: random.Random, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """The same document with other white space in its template text: lines joined, parted or left open.

    Placeholders' texts stay; some get a space or a newline at their end.
    """
    last = len(pieces) - 2  # the template text before the answer
    out = []
    for at, piece in enumerate(pieces):
        text = piece.text
        if piece.answer:
            pass
        elif piece.name is not None:
            if rng.random() < 0.08:
                text += rng.choice((" ", "\n", "  ", "\n\n"))
        elif at == last and not text.strip():
            text = rng.choice(("", "", " ", "\n\n", " \n", "\n "))
        elif rng.random() < 0.5:
            text = _respaced(rng, text)
        if text or piece.answer:
            out.append(Piece(text, piece.answer, piece.name))
    return tuple(out)


def _respaced(rng: random.Random, text: str) -> str:
    kind = rng.randrange(6)
    if kind == 0 and text.count("\n") and len(text) > 12:
        text = text.replace("\n", " ", 1) if rng.random() < 0.5 else text.rstrip("\n") + " "
    elif kind == 1:
        text = text.replace("\n", "\n\n", rng.randint(1, 2))
    elif kind == 2:
        text = text.replace(" ", "  ", 1)
    elif kind == 3:
        text = text.replace("\n", " \n", 1)
    elif kind == 4:
        text = text.replace(": ", ":", 1) if ": " in text else text.rstrip(" ") + rng.choice((" ", "", "\t"))
    elif rng.random() < 0.15:
        text = text.replace("\n", "\r\n")
    else:
        text = " " + text if rng.random() < 0.5 else text.lower()
    return text
