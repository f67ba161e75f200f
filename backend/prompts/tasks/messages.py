"""Messages in open wording: what a visitor's codebook, packs or letter may say, and what it comes to.

However the prefix says it, an answer restates it in one form: ``red means 12. 12 + 7 = 19.``
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.prompts.tasks.base import Style
from backend.prompts.tasks.facts import choose
from backend.prompts.tasks.layouts import choose_kept
from backend.prompts.tasks.words import COLORS, Draw, plural, start_sentence

MEANS = (
    "{w} (means|is|equals|stands for|is worth|counts as|has the value|comes to|gives|makes|reads as) {n};"
    "{w} = {n};{w}: {n};{w} -> {n};{w} - {n};{w} .. {n};{n} is {w};{n} for {w};the (number|value|code) (of|"
    "for) {w} is {n};read {w} as {n};for {w} (read|write|take|say) {n};(instead of|where it says) {w} "
    "(read|take) {n};{w} (always|here) means {n};{n} is the (number|value) of {w};{w} is [the] number {n};"
    "(take|use) {n} for {w};{w} has {n} points;{w} costs {n}"
)
BOOK = (
    "Codebook: ;The codebook: ;My codebook:~;Codebook:~;Code: ;Key: ;Legend:~;Values: ;List:~;Table:~;In "
    "(my|our) code: ;The words mean:~;What the words mean: ;(Secret|Our) code:~;Words and numbers: ;"
    "Dictionary: ;Given: ;Meaning:~"
)
START = (
    "(start|begin) (with|from|at) {w};first (comes|there is) {w};the first [word] is {w};(set out|go) from "
    "{w};you (start|begin) with {w};{w} is first;(we|you) have {w};write down {w};put down {w};at first "
    "{w};take {w} as the start"
)
ADD = (
    "[then|now|next] add {w};plus {w};[then] add {w} [to it|on top];put {w} on top;increase [it] by {w};"
    "then plus {w};and add {w};after that add {w};{w} (is added|comes on top);(join|include) {w};count {w} "
    "in;[then] add {w} as well"
)
TAKE = (
    "[then|now|next] (take|take away|take off|subtract) {w};minus {w};[then] remove {w};deduct {w};less "
    "{w};then minus {w};(decrease|lower|reduce) [it] by {w};{w} is (taken away|removed|subtracted);after "
    "that take away {w};drop {w};leave out {w};give {w} back;and take {w} away"
)
TIMES = (
    "[then|now] multiply [it] by {w};times {w};then times {w};take it {w} times;(it is|make it) multiplied "
    "by {w}"
)
TOTALS = (
    "What (is|comes out|do you get)?;[So] what is the (result|total|sum|number)?;How much is it?;What does "
    "it come to?;Say what it comes to.;(Give|Tell me|Work out) the (result|number|total).;What number (is "
    "it|comes out)?;And the result?"
)
FORMULAS = (
    "What is {e}?;{e};{e} = ?;How much is {e}?;(Work out|Compute|Calculate|Solve) {e}.;{e}?;Tell me {e}.;"
    "{e} please;Give me {e}"
)

PACKS = (
    "box bag crate basket pack jar tin carton case sack bottle tray chest bundle barrel drawer shelf bus "
    "room table team packet can tube bucket truck ship van cart hall house cage pot bowl roll set stack "
    "row page album folder envelope parcel pallet cupboard tower class boat train chain net pile"
).split()
HOLDS = (
    "(one|each|every|{a}) {u} holds {n} [{i}];(each|every|one|{a}) {u} has {n} [{i}] in it;there are {n} "
    "[{i}] in ({a}|each|one|every) {u};({a}|each|every) {u} (contains|carries|takes|keeps) {n} [{i}];{n} "
    "{i} (fit|go|are packed) in ({a}|each|one) {u};(1|{a}|one) {u} = {n} [{i}];{n} in ({a}|each) {u};in "
    "({a}|each|every) {u} there are {n} [{i}];{u}: {n};{a} {u} is {n} [pieces|{i}];you get {n} {i} in ({a}|"
    "each) {u};{a} {u} of {i} has {n};({a}|one) {u} means {n};{n} {i} (make|fill) ({a}|one) {u};we put {n} "
    "[{i}] into each {u};{n} {i} per {u};{n} per {u}"
)
HAS = (
    "{name} (has|owns|buys|gets|sends|orders|needs|wants|brings|packs|finds) {p} {us} [of {i}];(I|we|"
    "they) (have|need|want|order|send|bought|see) {p} {us} [of {i}];there are {p} {us} [of {i}];{p} {us} "
    "[of {i}];please (send|bring|give) (me|us) {p} {us} [of {i}];(send|bring|order|pack|take) {p} {us} [of "
    "{i}];{p} {us} (arrive|came|are here|stand here);{name} has {p} times {a} {u} of {i};{p} (full|whole) "
    "{us};a truck brings {p} {us};{p} times {a} {u}"
)
MORE = (
    "{name} has {m} more;{m} more;and {m} more;(and|plus) {m} loose (ones|{i});{m} {i} (lie|are) beside "
    "(it|them);add {m} [{i}];{m} (others|extra) [{i}];there are {m} loose {i} [too|as well];(then|now) {m} "
    "(come|are added);also {m} single {i};{m} (more|extra) {i} come with it"
)
FEWER = (
    "{m} (are|were) (broken|lost|sold|eaten|missing|gone|taken|bad|given away);take away {m};minus {m};"
    "{name} (loses|sells|gives away|breaks) {m};without {m} of them;{m} of them (fall out|go missing|are "
    "left out);(then|now) {m} are taken;{m} {i} (are|were) (sold|lost|broken|removed);less {m}"
)
PACKED = (
    "how many {us} (do|will) (I|we|you) need for {t} {i}?;{t} {i}: how many {us} [is that]?;{t} {i} are "
    "how many {us}?;(I|we) (have|need) {t} {i}. How many {us} (is|are|makes) that?;pack {t} {i} into {us}. "
    "How many {us}?;how many {us} hold {t} {i}?;how many {us} are {t} {i}?;{name} has {t} {i}. How many "
    "{us} does {name} fill?;{t} {i} fill how many {us}?"
)
HOW_MANY = (
    "How many (pieces|{i}) (is|are) (that|this|it|there)?;How many {i}?;How many {i} (in all|altogether|in "
    "total)?;How many {i} does that (make|mean)?;What is the total?;(Count|Say|Tell me) how many {i}.;How "
    "much is that?;So how many {i} do we (have|get)?"
)

WRITES = (
    "{w} (writes|is writing) to {r};{w} (sends|wrote|has sent) (a|this|the) (message|letter|note|mail|"
    "card) to {r};{r} (gets|has|receives|reads|opens) a (message|letter|note|mail) (from|by) {w};from {w} "
    "to {r};this is a (message|letter|note|card) from {w} to {r};the (writer|sender|author) is {w} and the "
    "reader is {r};{w} is the (writer|sender), {r} [is] the (reader|receiver);(writer|sender|author): {w}, "
    "(reader|receiver): {r};from: {w}, to: {r};{r} reads what {w} (writes|wrote|says);a (letter|message|"
    "note) goes from {w} to {r};{w} tells {r} [something];{w} (says|talks|speaks) to {r};(reader|"
    "receiver): {r}. (Writer|Sender): {w};{w} is I and {r} is you;I am {w}, you are {r};you are {r} and I "
    "am {w};{r} is the (reader|one who reads) and {w} the (writer|one who writes)"
)
ASK = (
    "How many {i} does {x} (have|own|hold|keep)?;How many {i} has {x} [got]?;(Tell me|Say|Find out|Write) "
    "how many {i} {x} has.;{x} has how many {i}?;How many {i} (belong to|are with) {x}?;What number of {i} "
    "does {x} have?;How many {i} are {x}'s?;(I want|We need) to know how many {i} {x} has.;Count the {i} "
    "of {x}.;What is {x}'s number of {i}?;Of {i}, how many does {x} have?;How many {i} does {x} have (now|"
    "in the end|then)?;(And|So) how many {i} does {x} have?"
)
MINE = (
    "I (have|own|hold|keep|count) {n} {i};I have got {n} {i};there are {n} {i} in my (bag|room|house|"
    "pocket|box);my (bag|box|room|shelf) holds {n} {i};{n} {i} are mine;{n} {i} belong to me;I see {n} {i} "
    "in my (bag|box|room);mine are {n} {i};I had {n} {i};at first I have {n} {i}"
)
YOURS = (
    "you (have|own|hold|keep|count) {n} {i};you have got {n} {i};there are {n} {i} in your (bag|room|house|"
    "pocket|box);your (bag|box|room|shelf) holds {n} {i};{n} {i} are yours;{n} {i} belong to you;I see {n} "
    "{i} in your (bag|box|room);yours are {n} {i};you had {n} {i};at first you have {n} {i}"
)
# who gains and who loses: I, you
EVENTS = {
    (1, 0): (
        "I (get|find|buy|win|make|receive|pick up|earn) {m} more;then I (get|find|buy) {m};{m} more come "
        "to me;they give me {m}"
    ),
    (0, 1): (
        "you (get|find|buy|win|make|receive|pick up|earn) {m} more;then you (get|find|buy) {m};{m} more "
        "come to you;they give you {m}"
    ),
    (-1, 0): (
        "I (lose|sell|give away|drop|break|use|throw out) {m};then I (lose|sell) {m};{m} of mine are (lost|"
        "gone|sold)"
    ),
    (0, -1): (
        "you (lose|sell|give away|drop|break|use|throw out) {m};then you (lose|sell) {m};{m} of yours are "
        "(lost|gone|sold)"
    ),
    (-1, 1): (
        "I (give|send|bring|hand|pass) you {m} [of mine];then I give {m} to you;you (take|get) {m} (of "
        "mine|from me)"
    ),
    (1, -1): (
        "you (give|send|bring|hand|pass) me {m} [of yours];then you give {m} to me;I (take|get) {m} (of "
        "yours|from you)"
    ),
}  # fmt: skip
TRIES = 2000


@dataclass(frozen=True)
class Told:
    """A message in open wording: the prefix, the message, a question behind it, the steps, the number."""

    book: str
    text: str
    asked: str
    steps: str
    value: int


def _joined(draw: Draw, parts: list[str], lists: bool = True) -> str:
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


def _keys(draw: Draw, count: int) -> list[str]:
    """Different code words of one sort, or of any."""
    rng = draw.rng
    sorts = (
        lambda: draw.pick(COLORS, 8),
        draw.word,
        lambda: draw.name().split()[-1],
        lambda: rng.choice("ABCDEFGHKLMNPQRSTUVWXYZ"),
        lambda: draw.thing().split()[-1],
        lambda: "".join(rng.choices("bcdfghklmnpqrstvwxz", k=rng.choice((2, 3)))),
    )
    sort = draw.rng.choices(sorts, (5, 4, 2, 2, 2, 1))[0]
    mixed = draw.chance(0.1)
    found: dict[str, str] = {}
    while len(found) < count:
        word = (draw.rng.choice(sorts) if mixed or draw.chance(0.03) else sort)()
        found.setdefault(word.lower(), word)
    return list(found.values())


def _book(draw: Draw, parts: list[str], starts: str) -> str:
    """The prefix's list, mostly without words before it."""
    at = draw.rng.random()
    if at < 0.55:
        text = " ".join(part + "." for part in parts)
    elif at < 0.75:
        text = ", ".join(parts)
    else:
        text = "\n".join(part + draw.rng.choice(("", ".")) for part in parts)
    return (choose_kept(draw, starts) if starts and draw.chance(0.2) else "") + text


def _article(word: str) -> str:
    return "an" if word[:1].lower() in "aeiou" else "a"


def _codebook(draw: Draw, steps: int, level: float) -> Told | None:
    rng = draw.rng
    words = _keys(draw, max(2, rng.randint(2, 3 + round(4 * level)), min(steps + 1, 3)))
    most = rng.choice((20, 99, 99, 999, 9999))
    book = {word: draw.number(1, most) for word in words}
    pattern = choose(draw, MEANS)
    lines = [(pattern if draw.chance(0.9) else choose(draw, MEANS)).format(w=w, n=n) for w, n in book.items()]
    first = rng.choice(words)
    value = book[first]
    told = [f"{first} means {value}."]
    moves: list[tuple[str, str]] = []
    if steps > 1 or not draw.chance(0.12):
        for _ in range(steps):
            word = rng.choice([w for w in words if w != first])
            op = rng.choices("+-*", (11, 9, 1))[0]
            number = book[word]
            if draw.chance(0.1):
                word = str(number := draw.number(1, most))
            else:
                told.append(f"{word} means {number}.")
            result = {"+": value + number, "-": value - number, "*": value * number}[op]
            if result < 0 or result > 99_999:
                return None
            told.append(f"{value} {op} {number} = {result}.")
            value = result
            moves.append((op, word))
    at = rng.random()
    if not moves:
        text = choose(
            draw,
            "What (is|does it mean:|number is) {w}?;{w};{w}?;What does {w} mean?;Just {w}.;Only {w}.;Say {w}",
        ).format(w=first)
    elif at < 0.25 and "*" not in dict(moves):
        names = rng.choice(({"+": "+", "-": "-"}, {"+": "plus", "-": "minus"}, {"+": "and", "-": "without"}))
        text = choose(draw, FORMULAS).format(e=f"{first} " + " ".join(f"{names[op]} {w}" for op, w in moves))
    else:
        ways = {"+": ADD, "-": TAKE, "*": TIMES}
        start = first if draw.chance(0.12) else choose(draw, START).format(w=first)
        text = _joined(draw, [start, *(choose(draw, ways[op]).format(w=w) for op, w in moves)])
        if draw.chance(0.25):
            text += " " + choose(draw, TOTALS)
    return Told(_book(draw, lines, BOOK), text, "", " ".join(told), value)


def _units(draw: Draw, steps: int, level: float) -> Told | None:
    rng = draw.rng
    count = rng.randint(1, 3 + round(2 * level))
    units: dict[str, int] = {}
    while len(units) < max(count, 2 if steps > 2 else 1):
        units.setdefault(draw.pick(PACKS, 8) if draw.chance(0.8) else draw.word(), draw.number(2, 999))
    item, name = draw.thing(), draw.name()
    pattern = choose(draw, HOLDS)
    lines = [
        start_sentence(
            (pattern if draw.chance(0.85) else choose(draw, HOLDS)).format(u=u, n=n, i=item, a=_article(u))
        )
        for u, n in units.items()
    ]
    unit = rng.choice(list(units))
    packs = draw.number(2, 99)
    if steps == 1 and draw.chance(0.12):
        total = packs * units[unit]
        text = choose(draw, PACKED).format(us=plural(unit), i=item, t=total, name=name)
        packed = f"One {unit} holds {units[unit]}. {total} / {units[unit]} = {packs}."
        return Told(_book(draw, lines, ""), start_sentence(text), "", packed, packs)
    value = packs * units[unit]
    told = [f"One {unit} holds {units[unit]}. {packs} * {units[unit]} = {value}."]
    parts = [choose(draw, HAS).format(name=name, p=packs, u=unit, us=plural(unit), i=item, a=_article(unit))]
    others = [u for u in units if u != unit]
    for _ in range(steps - 1):
        if others and draw.chance(0.4):
            other, packs = others.pop(), draw.number(2, 40)
            more = packs * units[other]
            told.append(
                f"One {other} holds {units[other]}. {packs} * {units[other]} = {more}. "
                f"{value} + {more} = {value + more}."
            )
            parts.append(
                choose(
                    draw,
                    "[and|also|then] {p} {us};{p} {us} [of them] too;plus {p} {us};{p} more {us};{p} {us} "
                    "come as well",
                ).format(p=packs, us=plural(other))
            )
            value += more
            continue
        loose, grows = draw.number(1, 200), draw.chance(0.65)
        if not grows and loose > value:
            return None
        result = value + loose if grows else value - loose
        told.append(f"{value} {'+' if grows else '-'} {loose} = {result}.")
        parts.append(choose(draw, MORE if grows else FEWER).format(m=loose, i=item, name=name))
        value = result
    text = _joined(draw, parts)
    if draw.chance(0.4):
        text += " " + choose(draw, HOW_MANY).format(i=item)
    return Told(_book(draw, lines, ""), text, "", " ".join(told), value)


def _who(draw: Draw, steps: int, level: float) -> Told | None:
    rng = draw.rng
    writer, reader, third = draw.names(3)
    item = draw.thing()
    counts = [draw.number(2, rng.choice((50, 100, 999, 9999))) for _ in range(3)]
    if counts[0] == counts[1]:
        return None
    parts = [choose(draw, MINE).format(n=counts[0], i=item), choose(draw, YOURS).format(n=counts[1], i=item)]
    strangers = draw.chance(0.1 + 0.2 * level)
    if strangers:
        parts.append(f"{third} has {counts[2]} {item}")
    rng.shuffle(parts)
    of_third = strangers and draw.chance(0.2)
    at = 2 if of_third else rng.randrange(2)
    who = (writer, reader, third)[at]
    value = counts[at]
    told = [("I have", "You have", f"{who} has")[at] + f" {value} {item}."]
    told[0] = ("{} writes. ", "{} reads. ", "")[at].format(who) + told[0]
    for _ in range((steps - 1) + (draw.chance(0.3) if steps > 1 else 0)):
        change, ways = rng.choice(list(EVENTS.items()))
        more = draw.number(1, 99)
        counts[0] += change[0] * more
        counts[1] += change[1] * more
        if min(counts[:2]) < 0:
            return None
        parts.append(choose(draw, ways).format(m=more, i=item))
        if not of_third and change[at]:
            result = counts[at]
            told.append(f"{value} {'+' if change[at] > 0 else '-'} {more} = {result}.")
            value = result
    book = start_sentence(choose(draw, WRITES).format(w=writer, r=reader))
    asked = choose(draw, ASK).format(i=item, x=who)
    behind = draw.chance(0.25)
    end = rng.choice((".", ".", ".\n"))
    book += end.rstrip("\n") if behind else (end if end.endswith("\n") else end + " ") + asked
    return Told(book, _joined(draw, parts), asked if behind else "", " ".join(told), value)


_TOLD = {"codebook": _codebook, "units": _units, "who": _who}


def draw_told(draw: Draw, style: Style, kind: str, steps: int) -> Told:
    """A message of about so many steps."""
    for _ in range(TRIES):
        told = _TOLD[kind](draw, steps, style.level)
        if told is not None:
            return told
    raise ValueError(f"no message of kind {kind} with {steps} steps was found")
