"""Which parts of a document are in open language, and which as the presets have them."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from backend.prompts.tasks.base import Piece, Style
from backend.prompts.tasks.words import Draw, split

STOCK_SHARE = 0.3  # of training documents that are worded entirely as the presets are


def settle(rng: random.Random, style: Style) -> Style:
    """The style of one document: some of wording *any* become *stock* as a whole."""
    if style.wording == "any" and style.edit is None and rng.random() < STOCK_SHARE:
        return replace(style, wording="stock")
    return style


def is_open(rng: random.Random, style: Style, *edits: str) -> bool:
    """Is a part of the document in open language? ``edits`` are those that change this part.

    In a document of *any* wording some parts stay as the presets have them: an edit rarely changes all.
    """
    if style.edit is not None:
        return style.edit in edits
    if style.wording == "any":
        return rng.random() < 0.8
    return style.wording == "unseen"


def join_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The pieces, with neighbouring template texts joined, as in a parsed template."""
    result: list[Piece] = []
    for piece in pieces:
        plain = piece.name is None and not piece.answer
        if plain and result and result[-1].name is None and not result[-1].answer:
            result[-1] = Piece(result[-1].text + piece.text)
        elif piece.text:
            result.append(piece)
    return tuple(result)


def pick(d: Draw, options: Sequence[str]) -> str:
    """One of the options of this document's side of the split."""
    return d.pick(options, _one_in(tuple(options)))


def phrase(d: Draw, patterns: Sequence[str], **slots: object) -> str:
    """One pattern of a list, of this document's side, with its choices made."""
    return d.say(pick(d, patterns), **slots)


def kept_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """The options that training never shows."""
    return split(options, _one_in(options))[1]


@cache
def _one_in(options: tuple[str, ...]) -> int:
    """One in how many is kept from training: ten, or fewer if that would keep less than two."""
    return next((n for n in range(10, 3, -1) if len(split(options, n)[1]) > 1), 3)
