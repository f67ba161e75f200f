"""How a prompt over documents is laid out: the role, headers of documents, where the question stands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backend.prompts.tasks.base import Piece
from backend.prompts.tasks.facts import choose
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw

LAYOUTS = phrases("layouts")
Phrases = tuple[str, ...]


# brackets of a label, which would be choices in a pattern
BRACKETS = str.maketrans("«»⟨⟩", "()[]")


@dataclass(frozen=True)
class Layout:
    """The template text of one prompt: the role, a header for each document, what stands between them."""

    role: str
    heads: tuple[str, ...]
    between: str
    label: str
    question_first: bool

    def pieces(self, texts: Sequence[str], question: str) -> list[Piece]:
        """The prompt, up to where the answer begins."""
        asks = [Piece(self.label), Piece(question, name="user_question")]
        reads = []
        for number, (head, text) in enumerate(zip(self.heads, texts, strict=True), 1):
            before = (self.between if number > 1 else "") + head
            reads += [Piece(before), Piece(text, name=f"document_{number}")]
        parts = [asks, reads] if self.question_first else [reads, asks]
        if self.role:
            parts = [[Piece(self.role)], *parts]
        pieces = parts[0]
        for part in parts[1:]:
            pieces = [*pieces, Piece(self.between + part[0].text), *part[1:]]
        return [piece for piece in (*pieces, Piece("\n")) if piece.text]


def draw_role(draw: Draw, who: Phrases, task: Phrases, manner: Phrases) -> str:
    """A role's text of sentences of three sorts; now and then none."""
    if draw.chance(0.1):
        return ""
    parts = [(who, 0.6), (task, 0.8), (manner, 0.25)]
    sentences = [choose(draw, patterns) for patterns, share in parts if draw.chance(share)]
    sentences = sentences or [choose(draw, task)]
    if draw.chance(0.2):
        draw.rng.shuffle(sentences)
    return draw.rng.choices((" ", "\n"), (9, 1))[0].join(sentences)


def draw_label(draw: Draw, labels: Phrases, bare: float = 0.12) -> str:
    """The words before a question or a message, or none."""
    if draw.chance(bare):
        return ""
    return choose_label(draw, labels)


def choose_label(draw: Draw, labels: Phrases) -> str:
    """A label with its last space or line break, which :func:`choose` would strip."""
    marked = tuple(re.sub(" $", "^", label) for label in labels)
    return choose(draw, marked).replace("^", " ").replace("~", "\n").translate(BRACKETS)


def draw_layout(draw: Draw, count: int) -> Layout:
    """The layout of a prompt over ``count`` documents."""
    between = "\n\n" if draw.chance(0.15) else "\n"
    if count == 1 and draw.chance(0.6):
        head = draw_label(draw, LAYOUTS.head_of_one, 0.35)
    else:
        head = draw_label(draw, LAYOUTS.heads, 0.05)
    titles = draw.rng.sample(LAYOUTS.titles, count)
    heads = tuple(head.format(i=i, t=title) for i, title in enumerate(titles, 1))
    if not head and count > 1:
        between = "\n\n"
    role = draw_role(draw, LAYOUTS.who, LAYOUTS.task, LAYOUTS.manner)
    return Layout(role, heads, between, draw_label(draw, LAYOUTS.labels), draw.chance(0.2))
