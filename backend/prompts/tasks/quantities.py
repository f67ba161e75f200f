"""Word problems on comparisons, rates, groups, sharing, lists of kinds, prices and parts of a whole."""

import re
from typing import Any

from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.situations import COUNT_WORDS, Telling, number
from backend.prompts.tasks.story_teller import Person, Step, Story, StoryProblem, compute, product_step, verb
from backend.prompts.tasks.words import Draw, plural, start_sentence

QUANTITY_WORDS = phrases("quantities")
SITUATIONS = phrases("situations")


def singular(things: str) -> str:
    """One of some things."""
    if things.endswith("ies"):
        return things[:-3] + "y"
    if things.endswith(("shes", "ches", "xes", "sses")):
        return things[:-2]
    return {"shelves": "shelf", "loaves": "loaf", "leaves": "leaf"}.get(things) or things.removesuffix("s")


def _anybody(d: Draw) -> Telling:
    """Somebody with things of any kind."""
    return Telling(d, 0)


def _text(*sentences: str) -> str:
    joined = " ".join(start_sentence(x) for x in sentences if x)
    joined = re.sub(r"\b([Aa]) (?=(?:hour|evening|afternoon)\b)", r"\1n ", joined)
    return re.sub(r" ([.,?!:])", r"\1", re.sub(r" +", " ", joined))


def draw_compared(d: Draw, story: Story, steps: int) -> StoryProblem:
    """Two amounts, counted or measured: one is given by the other, before or after it."""
    rng = d.rng
    table = d.rng.choice(QUANTITY_WORDS.compared) if d.chance(0.6) else QUANTITY_WORDS.compared[0]
    t = _anybody(d)
    people = table["who"] == ("person",)
    if people:
        subject, other = d.names(2)
        kin = d.phrase(
            (
                "(my|his|her) (brother|sister|mother|cousin|friend|uncle|neighbour)",
                "the (teacher|boy|girl|baker)",
            )
        )
        if d.chance(0.15):
            other = kin
    else:
        subject, other = rng.sample(table["who"], 2)
    inverse = d.chance(0.15)
    me = people and not inverse and d.chance(0.1)
    thing = d.thing() if table["of"] == ("THINGS",) else d.pick_word(table["of"])
    kind = rng.choice(("more", "more", "less", "less", "times", "half", "apart"))
    m = rng.choice((2, 2, 3, 4, 5))
    cap = min(int(table.get("top", ("9999",))[0]), story.highest)
    top = cap // {"less": 2, "half": 2, "times": m + 1}.get(kind, 4)
    a = d.number(max(4, min(story.lowest, top // 4)), top)
    if kind == "half":
        a += a % 2
    n = d.number(2, max(2, a - 2 if kind == "less" else top))
    times = (
        "half" if kind == "half" else "twice" if m == 2 and d.chance(0.8) else f"{COUNT_WORDS[m - 2]} times"
    )
    # the step from the one to the other, and back
    op, by = {"more": ("+", n), "less": ("-", n), "times": ("*", m), "half": ("/", 2), "apart": ("+", n)}[
        kind
    ]
    b = compute(a, op, by)
    agrees = "1" if me else "3"
    slots: dict[str, Any] = {
        "s": "I" if me else subject, "r": "me" if me else subject, "z": "my" if me else f"{subject}'s",
        "t": other, "i": thing, "m": times,
    }  # fmt: skip
    past = d.chance(0.25)

    def say(pattern: str, short: bool = False, **more: Any) -> str:
        text = d.say(pattern)
        text = text.replace(" THAN", "" if short else " than {r}").replace(" AS", "" if short else " as {r}")
        text = re.sub(r"<([a-z ]+)(?:/(3))?>", lambda f: verb(f[1], f[2] or agrees, past), text)
        return text.format(**{**slots, **more})

    base = d.pick(table["base"])
    of_other = base.replace("{s}", "{t}").replace("{z}", "{t}'s").replace("{r}", "{t}")
    if kind == "apart":
        first, second = say(base, n=a), say(of_other, n=b)
        if me:
            agrees = "3"
            second = say(of_other, n=b)
        both = f"{first}.", f"{second}."
        if d.chance(0.5):
            return _text(*both, say(d.pick(table["all"])) + "?"), [(a, "+", b)], a + b
        return _text(*both, say(d.pick(table["apart"]), u=other) + "?"), [(b, "-", a)], b - a
    relation = d.pick(table["times" if kind in ("times", "half") else kind])
    if inverse:
        agrees = "3"
        parts = [say(of_other, n=number(d, b)), say(relation, n=number(d, n))]
        rng.shuffle(parts)
        back = {"+": "-", "-": "+", "*": "/", "/": "*"}[op]
        ask = say(d.pick(table["ask"]), u=subject) + "?"
        return _text(*(f"{x}." for x in parts), ask), [(b, back, by)], a
    solution: list[Step] = [(a, op, by)]
    base_first = d.chance(0.65)
    parts = [say(base, n=number(d, a)), say(relation, short=base_first and d.chance(0.4), n=number(d, n))]
    if not base_first:
        parts.reverse()
    answer = b
    extra = ""
    if d.chance(0.25):
        ask = say(d.pick(table["all"])) + "?"
        solution.append((a, "+", b))
        answer = a + b
    else:
        if steps > 1 and table["of"] == ("THINGS",) and d.chance(0.5) and b > 3:
            gain = d.chance(0.4)
            n = d.number(2, b - 1)
            solution.append((b, "+" if gain else "-", n))
            answer = compute(*solution[-1])
            t.who = Person(other, other, other, f"{other}'s")
            t.past, t.thing, t.mentioned = past, thing, True
            extra = t.fill(t.event("up" if gain else "down"), n=n) + "."
        ask = say(d.pick(table["ask"]), u=other) + "?"
    if not extra and d.chance(0.08):
        return _text(f"{ask[:-1]} if {' and '.join(parts)}?"), solution, answer
    joined = f"{parts[0]}{rng.choice((' and ', ', and ', ', '))}{parts[1]}." if d.chance(0.25) else ""
    statements = [joined] if joined else [f"{x}." for x in parts]
    return _text(*statements, extra, ask), solution, answer


def draw_groups(d: Draw, story: Story, steps: int) -> StoryProblem:
    """Groups of as many each, a rate over time, or equal shares; then a loss or a gain now and then."""
    t, rng = _anybody(d), d.rng
    m = rng.randint(2, 12)
    n = d.number(max(2, min(story.lowest, 700)), max(20, story.highest // 20))
    slots: dict[str, Any] = {"m": number(d, m, 0.35)}
    kind = rng.choices(("rate", "carried", "each", "shared"), (30, 35, 12, 23))[0]
    container = d.rng.choice(SITUATIONS.carried_in)
    slots |= {"n": number(d, n), "g": d.rng.choice(QUANTITY_WORDS.group)}
    slots |= {"C": container, "c": singular(container)}
    if kind == "shared":
        slots["v"] = m * n
        return _text(t.fill(d.pick(QUANTITY_WORDS.shared), **slots)), [(m * n, "/", m)], n
    does = verb("does", t.who.agrees, t.past and d.chance(0.4))
    if kind == "rate":
        doing, _, slots["i"] = d.rng.choice(QUANTITY_WORDS.rates).partition(" ")
        slots["d"] = d.rng.choice(QUANTITY_WORDS.spans)
        of_remainder = steps > 1 and d.chance(0.4)
        slots["v"] = v = m * n + d.number(2, 500)
        pattern = d.pick(QUANTITY_WORDS.rate_left if of_remainder else QUANTITY_WORDS.rate)
        pattern = pattern.replace("<does>", does).replace("<DO>", f"<{doing}>").replace("DO", doing)
        text = t.fill(pattern, **slots)
        solution = [product_step(pattern, n, m)]
        if of_remainder:
            solution.append((v, "-", m * n))
        return _text(text), solution, compute(*solution[-1])
    if kind == "each":
        pattern = d.pick(QUANTITY_WORDS.each)
    else:
        carrier, does, t.thing = d.rng.choice(QUANTITY_WORDS.carriers).split()
        slots |= {"C": carrier, "c": singular(carrier)}
        pattern = d.pick(QUANTITY_WORDS.carried).replace("<V/", f"<{does}/")
    ask = d.pick(QUANTITY_WORDS.ask_each)
    solution = [product_step(pattern, n, m)]
    text, more, value = t.fill(pattern, **slots), "", m * n
    if steps > 1 and d.chance(0.6) and value > 3:
        gain = d.chance(0.35)
        k = d.number(2, value - 1)
        more = _change(t, gain, k)
        solution.append((value, "+" if gain else "-", k))
        value = compute(*solution[-1])
        ask = d.pick(("How many {i} are (left|there)?", "How many {i} remain?",
                      "How many {i} is that now?",
                      "What is the number of {i} now?"))  # fmt: skip
    return _text(text, more, t.fill(ask, past=False)), solution, value


def _change(t: Telling, gain: bool, n: int) -> str:
    """A sentence that adds to the things or takes from them."""
    pattern = t.d.pick(QUANTITY_WORDS.list_gain if gain else QUANTITY_WORDS.list_loss)
    return t.fill(pattern if pattern.startswith("{") else "{" + pattern, n=number(t.d, n)) + "."


def _listing(parts: list[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1]


def draw_listed(d: Draw, story: Story, steps: int) -> StoryProblem:
    """Several kinds, or the same at several times, added up; then something is lost or comes."""
    t, rng = _anybody(d), d.rng
    count = 2 if steps < 2 else rng.choice((2, 3, 3, 4)) if steps > 2 else rng.choice((2, 2, 3))
    top = max(9, story.highest // (count + 1))
    amounts = [d.number(max(2, min(story.lowest, top // 2)), top) for _ in range(count)]
    solution: list[Step] = []
    value = amounts[0]
    for amount in amounts[1:]:
        solution.append((value, "+", amount))
        value = compute(*solution[-1])
    by_time = d.chance(0.4)
    more, k, gain = "", 0, d.chance(0.35)
    later = steps > 1 and d.chance(0.5)
    if by_time:
        name = rng.choice(tuple(QUANTITY_WORDS.periods))
        times = rng.sample(QUANTITY_WORDS.periods[name], count)
        doing = d.rng.choice(QUANTITY_WORDS.period_do)
        parts = [
            f"{amounts[0]} {{i}} {times[0]}",
            *(f"{a}{rng.choice((' ', ' {i} '))}{at}" for a, at in zip(amounts[1:], times[1:], strict=True)),
        ]
        first = t.fill(f"{{s}} <{doing}> {_listing(parts)}.")
        ask = d.pick(QUANTITY_WORDS.ask_period).replace("DO", doing)
        ask = ask.replace("<does>", verb("does", t.who.agrees, t.past))
        slots = {"periods": name, "both": "both" if count == 2 else "all"}
        t.mentioned = True
        if later and value > 3:
            k = d.number(2, value - 1)
            more = t.fill(t.event("up" if gain else "down"), n=number(d, k)) + "."
            ask = d.say(d.pick(t.table["ask"])).replace("<does>", verb("does", t.who.agrees, False)) + "?"
    else:
        whole = rng.choice(tuple(QUANTITY_WORDS.kinds))
        kinds = rng.sample(QUANTITY_WORDS.kinds[whole], count) if whole != "things" else d.things(count)
        place = d.say(f"({QUANTITY_WORDS.spots})")
        pattern = d.pick(QUANTITY_WORDS.listed)
        parts = [f"{number(d, a)} {x}" for a, x in zip(amounts, kinds, strict=True)]
        first = t.fill(pattern, list=_listing(parts), l=place) + "."
        ask = d.pick(QUANTITY_WORDS.ask_list)
        slots = {"w": whole, "l": place}
        if later:
            at = rng.randrange(count)
            if amounts[at] < 4:
                gain = True
            k = d.number(2, 99 if gain else amounts[at] - 1)
            t.thing = kinds[at]
            more = _change(t, gain, k)
    if k:
        solution.append((value, "+" if gain else "-", k))
        value = compute(*solution[-1])
    return _text(first, more, t.fill(ask, past=False, **slots)), solution, value


def draw_priced(d: Draw, story: Story, steps: int) -> StoryProblem:
    """The cost of several of two goods, from the price of one of each."""
    t, rng = _anybody(d), d.rng
    a, b = rng.sample(QUANTITY_WORDS.goods, 2)
    p, q = (d.number(2, max(9, min(600, story.highest // 20))) for _ in range(2))
    x, y = rng.randint(1, 9), rng.randint(1, 9)
    money = d.pick_word("euros|dollars|coins|pounds|cents|francs|crowns|yen".split("|"))
    statement = t.fill(d.pick(QUANTITY_WORDS.priced), a=a, b=b, A=plural(a), B=plural(b), p=p, q=q, e=money)
    amounts = [
        f"{number(d, z) if z > 1 else rng.choice(('1', 'one'))} {w if z == 1 else plural(w)}"
        for z, w in ((x, a), (y, b))
    ]
    t.mentioned = "{s}" in statement
    ask = d.pick(QUANTITY_WORDS.ask_priced).replace("<does>", verb("does", t.who.agrees, t.past))
    question = t.fill(ask, x=" and ".join(amounts), e=money)
    solution: list[Step] = [(price, "*", z) for price, z in ((p, x), (q, y)) if z > 1]
    solution.append((p * x, "+", q * y))
    statement = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", statement)
    return _text(statement, question), solution, p * x + q * y


def draw_part(d: Draw, story: Story, steps: int) -> StoryProblem:
    """A part of the things; the question is for the rest, or for all, where the part does not matter."""
    t = Telling(d)
    while t.top < 9999 or "{w} of them" not in " ".join(t.table["same"]) or "at" in t.table:
        t = Telling(d)
    value = d.number(max(4, story.lowest), story.highest)
    n = d.number(2, value - 1)
    first = t.fill(d.pick(t.table["start"]), n=number(d, value)) + "."
    t.mentioned = True
    part, remainder = d.pick(QUANTITY_WORDS.parts).split(">")
    color, place = d.color(), d.place()
    part_text = t.fill(f"{{n}} [of them|of the {{i}}|{{i}}] {part}", n=number(d, n), k=color, t=place) + "."
    joined = d.chance(0.2)
    statement = f"{first[:-1]} and {part_text}" if joined else first
    if d.chance(0.4) and re.search(QUANTITY_WORDS.kept_parts, part):
        ask = d.say(d.pick(t.table["ask"])).replace("<does>", verb("does", t.who.agrees, False))
        if re.search(r"left|remain|stay|still|good|whole|unsold|to (do|come)|missing|travel|arrive", ask):
            ask = "How many {i} are there"
        return _text(statement, "" if joined else part_text, t.fill(ask, past=False) + "?"), [], value
    ask = t.fill(f"How many [{{i}}|of them|of the {{i}}] ({remainder})?", past=False, k=color, t=place)
    return _text(statement, "" if joined else part_text, ask), [(value, "-", n)], value - n


QUANTITIES = {
    "compared": draw_compared,
    "groups": draw_groups,
    "listed": draw_listed,
    "priced": draw_priced,
    "part": draw_part,
}
