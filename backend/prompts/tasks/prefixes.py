"""Messages whose meaning depends on something in the reader's prefix: a codebook, a unit, who "I" is."""

import random
from dataclasses import dataclass

from backend.prompts.tasks.base import COLORS, ITEMS, NAMES, Document, Piece, Style, is_held_out
from backend.prompts.tasks.layouts import draw_label, draw_role
from backend.prompts.tasks.messages import draw_open_message
from backend.prompts.tasks.phrases import phrases

LAYOUTS = phrases("layouts")
PREFIXES = phrases("prefixes")


UNITS = "box bag crate basket".split()
SIZES = (2, 3, 4, 5)  # pieces in a pack
KINDS = ("codebook", "units", "who")
MOST_VALUES = {"codebook": 99, "units": len(SIZES), "who": 2}
TRIES = 20_000
READERS = {
    "codebook": "You know the codebook. Say what the message comes to.",
    "units": "You know how much a pack holds. Say how many pieces the message means.",
    "who": "You know who writes to whom. Answer the question about the message.",
}
STOCK = 0.32  # share of training documents in the presets' words


@dataclass(frozen=True)
class Message:
    """One message, and what it comes to for each reader: their prefixes, written steps and numbers."""

    text: str
    books: tuple[str, ...]
    steps: tuple[str, ...]
    values: tuple[int, ...]


def _codebook(rng: random.Random, count: int, steps: int, readers: int) -> Message | None:
    words = rng.sample(COLORS, count)
    books = [{word: rng.randint(2, 40) for word in words} for _ in range(readers)]
    first = rng.choice(words)
    values = [book[first] for book in books]
    message = [f"Start with {first}."]
    lines = [[f"{first} means {value}."] for value in values]
    for _ in range(steps):
        word = rng.choice([w for w in words if w != first])
        add = rng.random() < 0.55
        message.append(f"{'Add' if add else 'Take'} {word}.")
        for reader, book in enumerate(books):
            result = values[reader] + book[word] * (1 if add else -1)
            sign = "+" if add else "-"
            lines[reader].append(
                f"{word} means {book[word]}. {values[reader]} {sign} {book[word]} = {result}."
            )
            values[reader] = result
            if not 0 <= result <= 99:
                return None
    return Message(
        " ".join(message),
        tuple(" ".join(f"{word} means {book[word]}." for word in words) for book in books),
        tuple(map(" ".join, lines)),
        tuple(values),
    )


def _units(rng: random.Random, count: int, steps: int, readers: int) -> Message | None:
    units = rng.sample(UNITS, min(count, len(UNITS)))
    unit, name, item = rng.choice(units), rng.choice(NAMES), rng.choice(ITEMS)
    packs, loose = rng.randint(2, 16), rng.randint(1, 19)
    text = f"{name} has {packs} times a {unit} of {item}."
    if steps > 1:
        text += f" {name} has {loose} more."
    books, lines, values = [], [], []
    for _ in range(readers):
        sizes = {u: rng.choice(SIZES) for u in units}
        books.append(" ".join(f"One {u} holds {sizes[u]}." for u in units))
        total = packs * sizes[unit]
        line = f"One {unit} holds {sizes[unit]}. {packs} * {sizes[unit]} = {total}."
        if steps > 1:
            line += f" {total} + {loose} = {total + loose}."
            total += loose
        lines.append(line)
        values.append(total)
    return Message(text, tuple(books), tuple(lines), tuple(values))


def _who(rng: random.Random, count: int, steps: int, readers: int) -> Message | None:
    writer, reader = rng.sample(NAMES, 2)
    item = rng.choice(ITEMS)
    writer_count, reader_count = rng.sample(range(2, 50), 2)
    halves = [f"I have {writer_count} {item}.", f"You have {reader_count} {item}."]
    if rng.random() < 0.5:
        halves.reverse()
    more, writer_grows = rng.randint(1, 40), rng.random() < 0.5
    if steps > 1:
        halves.append(f"{'I' if writer_grows else 'You'} get {more} more.")
    books, lines, values = [], [], []
    writer_first = rng.random() < 0.5
    for number in range(readers):
        of_writer = writer_first == (number % 2 == 0)
        person, value = (writer, writer_count) if of_writer else (reader, reader_count)
        books.append(f"{writer} writes to {reader}. How many {item} does {person} have?")
        line = f"{person} {'writes. I' if of_writer else 'reads. You'} have {value} {item}."
        if steps > 1 and of_writer == writer_grows:
            line += f" {value} + {more} = {value + more}."
            value += more
        lines.append(line)
        values.append(value)
    return Message(" ".join(halves), tuple(books), tuple(lines), tuple(values))


_DRAW = {"codebook": _codebook, "units": _units, "who": _who}


def draw_message(
    rng: random.Random, kind: str, held_out: bool, words: int, steps: int, readers: int = 1
) -> Message:
    """A message on one side of the split, by its last reader's prefix; ``words`` in a codebook.

    Its readers get different numbers, as many as the kind allows: *who* has two.

    Raises:
        ValueError: none was found; there are too many steps or readers.
    """
    for _ in range(TRIES):
        message = _DRAW[kind](rng, words, steps, readers)
        if message is None or is_held_out(message.books[-1] + message.text) != held_out:
            continue
        if len(set(message.values)) == min(readers, MOST_VALUES[kind]):
            return message
    raise ValueError(f"no message of kind {kind} with {steps} steps and {readers} readers was found")


def make_prefix(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(g) A message that means another number to each reader; ``size`` steps (else 1 or 2).

    The answer first restates what the prefix says of each word of the message.
    """
    steps = size or style.upto(rng, 1, 2)
    if style.wording == "unseen" or (style.wording == "any" and rng.random() >= STOCK):
        return _open(rng, style, held_out, kind, steps)
    message = draw_message(rng, kind, held_out, style.upto(rng, 2, 5), steps)
    pieces = (
        Piece(READERS[kind] + "\n"),
        Piece(message.books[0], name="prefix_1"),
        Piece("\nThe message is: "),
        Piece(message.text, name="user_question"),
        Piece("\n"),
        Piece(f"{message.steps[0]} The answer is {message.values[0]}", answer=True),
    )
    return Document("prefix", kind, pieces, str(message.values[0]), steps)


def _open(rng: random.Random, style: Style, held_out: bool, kind: str, steps: int) -> Document:
    draw = style.draw(rng)
    while True:
        message = draw_open_message(draw, style, kind, steps)
        if is_held_out(message.book + message.text) == held_out:
            break
    role = draw_role(draw, PREFIXES.who[kind], PREFIXES.task[kind], LAYOUTS.manner)
    between = "\n\n" if draw.chance(0.1) else "\n"
    parts = [
        [Piece(role)] if role else [],
        [Piece(message.book, name="prefix_1")],
        [Piece(draw_label(draw, PREFIXES.labels, 0.15)), Piece(message.text, name="user_question")],
        [Piece(draw_label(draw, LAYOUTS.labels, 0.4) + message.question)] if message.question else [],
    ]
    pieces: list[Piece] = []
    for part in filter(None, parts):
        if pieces and part[0].name:
            pieces.append(Piece(between))
        elif pieces:
            part[0] = Piece(between + part[0].text)
        pieces += part
    answer = Piece(f"{message.steps} The answer is {message.value}", answer=True)
    pieces = [*(piece for piece in pieces if piece.text), Piece("\n"), answer]
    return Document("prefix", kind, tuple(pieces), str(message.value), steps)
