"""Messages in open wording, with a codebook, packs or a letter, and the number that each comes to.

Answers restate the prefix in one form, whatever its wording: ``red means 12. 12 + 7 = 19.``
"""

from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

from backend.prompts.tasks.base import Style
from backend.prompts.tasks.facts import choose
from backend.prompts.tasks.layouts import choose_label
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.words import Draw, plural, start_sentence

MESSAGES, MORE = phrases("messages"), phrases("messages_trained")
WORDS = phrases("words")


TRIES = 2000


@dataclass(frozen=True)
class OpenMessage:
    """A message in open wording: the prefix, the message, a question behind it, the steps, the number."""

    book: str
    text: str
    question: str
    steps: str
    value: int


@cache
def _trained() -> SimpleNamespace:
    """Both files' patterns."""
    both = {key: value + getattr(MORE, key, ()) for key, value in vars(MESSAGES).items()}
    return SimpleNamespace(**both)


def patterns(draw: Draw) -> SimpleNamespace:
    """The patterns of one side of the split: held-out messages use the first file's alone."""
    return MESSAGES if draw.unseen else _trained()


def _join(draw: Draw, parts: list[str], lists: bool = True) -> str:
    """Parts as sentences, as a list with commas, or on lines."""
    at = draw.rng.random()
    if at < 0.55:
        return " ".join(start_sentence(part) + "." if draw.chance(0.9) else part + "." for part in parts)
    if at < 0.75 and lists:
        return start_sentence(", ".join(parts)) + draw.rng.choice((".", "."))
    if at < 0.88:
        mark = draw.rng.choice((".", "", ","))
        return "\n".join(part + mark for part in parts).rstrip(",")
    return (" ".join(part + "." for part in parts)) if at < 0.95 else "; ".join(parts)


def code_words(draw: Draw, count: int) -> list[str]:
    """Different code words of one sort, or of any."""
    rng = draw.rng
    sorts = (
        lambda: draw.pick_word(WORDS.colors),
        draw.word,
        lambda: draw.name().split()[-1],
        lambda: rng.choice("ABCDEFGHKLMNPQRSTUVWXYZ"),
        lambda: draw.thing().split()[-1],
        lambda: "".join(rng.choices("bcdfghklmnpqrstvwxz", k=rng.choice((2, 3)))),
    )
    sort = draw.rng.choices(sorts, (5, 4, 2, 2, 2, 1))[0]
    mixed = draw.chance(0.1)
    words: dict[str, str] = {}
    while len(words) < count:
        word = (draw.rng.choice(sorts) if mixed or draw.chance(0.03) else sort)()
        words.setdefault(word.lower(), word)
    return list(words.values())


def listing(draw: Draw, parts: list[str], starts: tuple[str, ...]) -> str:
    """The prefix's list, mostly without words before it."""
    at = draw.rng.random()
    if at < 0.55:
        text = " ".join(part + "." for part in parts)
    elif at < 0.75:
        text = ", ".join(parts)
    else:
        text = "\n".join(part + draw.rng.choice(("", ".")) for part in parts)
    return (choose_label(draw, starts) if starts and draw.chance(0.2) else "") + text


def article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"


def _codebook(draw: Draw, steps: int, level: float) -> OpenMessage | None:
    rng, p = draw.rng, patterns(draw)
    words = code_words(draw, max(2, rng.randint(2, 3 + round(4 * level)), min(steps + 1, 3)))
    most = rng.choice((20, 99, 99, 999, 9999))
    book = {word: draw.number(1, most) for word in words}
    pattern = choose(draw, p.means)
    lines = [
        (pattern if draw.chance(0.9) else choose(draw, p.means)).format(w=w, n=n) for w, n in book.items()
    ]
    first = rng.choice(words)
    value = book[first]
    answer = [f"{first} means {value}."]
    moves: list[tuple[str, str]] = []
    if steps > 1 or not draw.chance(0.12):
        for _ in range(steps):
            word = rng.choice([w for w in words if w != first])
            op = rng.choices("+-*", (11, 9, 1))[0]
            number = book[word]
            if draw.chance(0.1):
                word = str(number := draw.number(1, most))
            else:
                answer.append(f"{word} means {number}.")
            result = {"+": value + number, "-": value - number, "*": value * number}[op]
            if result < 0 or result > 99_999:
                return None
            answer.append(f"{value} {op} {number} = {result}.")
            value = result
            moves.append((op, word))
    at = rng.random()
    if not moves:
        text = choose(draw, p.meanings).format(w=first)
    elif at < 0.25 and "*" not in dict(moves):
        names = rng.choice(({"+": "+", "-": "-"}, {"+": "plus", "-": "minus"}, {"+": "and", "-": "without"}))
        text = choose(draw, p.formulas).format(
            e=f"{first} " + " ".join(f"{names[op]} {w}" for op, w in moves)
        )
    else:
        ways = {"+": p.add, "-": p.take, "*": p.times}
        start = first if draw.chance(0.12) else choose(draw, p.start).format(w=first)
        text = _join(draw, [start, *(choose(draw, ways[op]).format(w=w) for op, w in moves)])
        if draw.chance(0.25):
            text += " " + choose(draw, p.totals)
    return OpenMessage(listing(draw, lines, p.book), text, "", " ".join(answer), value)


def _units(draw: Draw, steps: int, level: float) -> OpenMessage | None:
    rng, p = draw.rng, patterns(draw)
    count = rng.randint(1, 3 + round(2 * level))
    units: dict[str, int] = {}
    while len(units) < max(count, 2 if steps > 2 else 1):
        units.setdefault(draw.pick_word(p.packs) if draw.chance(0.8) else draw.word(), draw.number(2, 999))
    item, name = draw.thing(), draw.name()
    pattern = choose(draw, p.holds)
    lines = [
        start_sentence(
            (pattern if draw.chance(0.85) else choose(draw, p.holds)).format(u=u, n=n, i=item, a=article(u))
        )
        for u, n in units.items()
    ]
    unit = rng.choice(list(units))
    packs = draw.number(2, 99)
    if steps == 1 and draw.chance(0.12):
        total = packs * units[unit]
        text = choose(draw, p.packed).format(us=plural(unit), i=item, t=total, name=name)
        packed = f"One {unit} holds {units[unit]}. {total} / {units[unit]} = {packs}."
        return OpenMessage(listing(draw, lines, ()), start_sentence(text), "", packed, packs)
    value = packs * units[unit]
    answer = [f"One {unit} holds {units[unit]}. {packs} * {units[unit]} = {value}."]
    parts = [choose(draw, p.has).format(name=name, p=packs, u=unit, us=plural(unit), i=item, a=article(unit))]
    others = [u for u in units if u != unit]
    for _ in range(steps - 1):
        if others and draw.chance(0.4):
            other, packs = others.pop(), draw.number(2, 40)
            more = packs * units[other]
            answer.append(
                f"One {other} holds {units[other]}. {packs} * {units[other]} = {more}. "
                f"{value} + {more} = {value + more}."
            )
            parts.append(choose(draw, p.other_packs).format(p=packs, us=plural(other)))
            value += more
            continue
        loose, grows = draw.number(1, 200), draw.chance(0.65)
        if not grows and loose > value:
            return None
        result = value + loose if grows else value - loose
        answer.append(f"{value} {'+' if grows else '-'} {loose} = {result}.")
        parts.append(choose(draw, p.more if grows else p.fewer).format(m=loose, i=item, name=name))
        value = result
    text = _join(draw, parts)
    if draw.chance(0.4):
        text += " " + choose(draw, p.how_many).format(i=item)
    return OpenMessage(listing(draw, lines, ()), text, "", " ".join(answer), value)


def _who(draw: Draw, steps: int, level: float) -> OpenMessage | None:
    rng, p = draw.rng, patterns(draw)
    writer, reader, third = draw.names(3)
    item = draw.thing()
    counts = [draw.number(2, rng.choice((50, 100, 999, 9999))) for _ in range(3)]
    if counts[0] == counts[1]:
        return None
    parts = [
        choose(draw, p.mine).format(n=counts[0], i=item),
        choose(draw, p.yours).format(n=counts[1], i=item),
    ]
    strangers = draw.chance(0.1 + 0.2 * level)
    if strangers:
        parts.append(f"{third} has {counts[2]} {item}")
    rng.shuffle(parts)
    of_third = strangers and draw.chance(0.2)
    at = 2 if of_third else rng.randrange(2)
    who = (writer, reader, third)[at]
    value = counts[at]
    answer = [("I have", "You have", f"{who} has")[at] + f" {value} {item}."]
    answer[0] = ("{} writes. ", "{} reads. ", "")[at].format(who) + answer[0]
    for _ in range((steps - 1) + (draw.chance(0.3) if steps > 1 else 0)):
        event = rng.choice(p.events)
        change = event["change"]
        more = draw.number(1, 99)
        counts[0] += change[0] * more
        counts[1] += change[1] * more
        if min(counts[:2]) < 0:
            return None
        parts.append(choose(draw, event["says"]).format(m=more, i=item))
        if not of_third and change[at]:
            result = counts[at]
            answer.append(f"{value} {'+' if change[at] > 0 else '-'} {more} = {result}.")
            value = result
    book = start_sentence(choose(draw, p.writes).format(w=writer, r=reader))
    question = choose(draw, p.ask).format(i=item, x=who)
    question_last = draw.chance(0.25)
    end = rng.choice((".", ".", ".\n"))
    book += end.rstrip("\n") if question_last else (end if end.endswith("\n") else end + " ") + question
    return OpenMessage(book, _join(draw, parts), question if question_last else "", " ".join(answer), value)


_DRAW = {"codebook": _codebook, "units": _units, "who": _who}


def draw_open_message(draw: Draw, style: Style, kind: str, steps: int) -> OpenMessage:
    """A message of about so many steps."""
    for _ in range(TRIES):
        message = _DRAW[kind](draw, steps, style.level)
        if message is not None:
            return message
    raise ValueError(f"no message of kind {kind} with {steps} steps was found")
