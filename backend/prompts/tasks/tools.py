"""A ReAct-like loop: one turn of Thought and Action, with the turns and observations before it."""

import random
from dataclasses import dataclass

from backend.prompts.tasks.arithmetic import comparison
from backend.prompts.tasks.base import ASIDES, ITEMS, NAMES, Document, Piece, Style, Wording, is_held_out
from backend.prompts.tasks.parts import is_open, join_pieces, phrase, pick, settle
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.story_teller import compute
from backend.prompts.tasks.words import Draw, start_sentence

TOOL_WORDS = phrases("tools")


AGENT = Wording(
    "You answer with tools: lookup gives a price, calc gives a result, finish gives the answer.", (), ()
)
KINDS = ("one item", "two items", "difference")
LARGEST = 9999
Turn = tuple[str, str, str]  # thought, action, observation


@dataclass
class Loop:
    """The turns of a loop, added one by one."""

    turns: list[Turn]

    def look(self, thing: str, price: int) -> int:
        self.turns.append((f"I need the price of {thing}.", f"lookup[{thing}]", str(price)))
        return price

    def calc(self, thought: str, left: int, op: str, right: int) -> int:
        result = compute(left, op, right)
        self.turns.append((thought, f"calc[{left} {op} {right}]", str(result)))
        return result

    def times(self, amount: int, thing: str, price: int) -> int:
        return self.calc(f"{amount} {thing} at {price}.", price, "*", amount)

    def total(self, left: int, right: int) -> int:
        return self.calc(f"The sum of {left} and {right}.", left, "+", right)

    def apart(self, left: int, right: int) -> int:
        return self.calc(comparison(left, "<", right), max(left, right), "-", min(left, right))

    def finish(self, answer: int) -> list[Turn]:
        self.turns.append(("I know the answer.", f"finish[{answer}]", ""))
        return self.turns


def draw_loop(rng: random.Random, kind: str) -> tuple[str, list[Turn], int]:
    """The question in the presets' words, all turns (the last without an observation), and the answer."""
    name = rng.choice(NAMES)
    first, second = rng.sample(ITEMS, 2)
    price, other = rng.randint(2, 60), rng.randint(2, 60)
    amount, more = rng.choice((2, 3)), rng.choice((2, 3))
    if price * amount > 99:
        amount = 2 if price < 50 else 1
    loop = Loop([])
    if kind == "one item":
        amount = max(amount, 2) if price < 50 else 1
        question = f"{name} buys {amount} {first}. What does {name} pay?"
        answer = loop.times(amount, first, loop.look(first, price))
    elif kind == "difference":
        question = f"What is the difference between the price of {first} and the price of {second}?"
        answer = loop.apart(loop.look(first, price), loop.look(second, other))
    else:
        price, other = rng.randint(2, 24), rng.randint(2, 24)
        question = f"{name} buys {amount} {first} and {more} {second}. What does {name} pay?"
        a = loop.times(amount, first, loop.look(first, price))
        answer = loop.total(a, loop.times(more, second, loop.look(second, other)))
    return question, loop.finish(answer), answer


def draw_open_loop(d: Draw, kind: str, *, small: bool = False) -> tuple[str, list[Turn], int]:
    """The same in open language, with prices to 9,999 (``small``: the presets' numbers)."""
    while True:
        things, name = d.things(3), d.name()
        form, slots, loop, answer = _draw_question(d, kind, things, name, 60 if small else LARGEST)
        question = phrase(d, TOOL_WORDS.worth[form], n=name, **slots)
        if d.chance(0.06):
            question = f"{pick(d, ASIDES)} {question}" if d.chance(0.5) else f"{question} {pick(d, ASIDES)}"
        if d.chance(0.04):
            question = question.rstrip("?.")
        if answer <= LARGEST:
            return start_sentence(question), loop.finish(answer), answer


def _amount(d: Draw, price: int) -> tuple[int, str]:
    """How many, and how it is written; with the price it stays in bounds."""
    most = max(2, min(99, LARGEST // max(1, price)))
    amount = d.rng.randint(2, min(most, 12)) if d.chance(0.8) else d.number(2, most)
    return amount, TOOL_WORDS.numbers[amount] if amount <= 12 and d.chance(0.25) else str(amount)


def _draw_question(
    d: Draw, kind: str, things: list[str], name: str, most: int
) -> tuple[str, dict[str, str], Loop, int]:
    """The question's form and slots, the turns, and the answer."""
    loop, at = Loop([]), d.rng.random()
    first, second, third = things
    if kind == "difference":
        answer = loop.apart(loop.look(first, d.number(1, most)), loop.look(second, d.number(1, most)))
        return "difference", {"t": first, "s": second, "m": d.rng.choice(TOOL_WORDS.money)}, loop, answer
    if kind == "one item":
        price = d.number(1, most if at < 0.2 else min(most, 4999))
        if at < 0.2:
            return "price", {"t": first}, loop, loop.look(first, price)
        amount, amount_text = _amount(d, price)
        total = loop.times(amount, first, loop.look(first, price))
        slots = {"a": amount_text, "t": first}
        if at < 0.75 or total >= LARGEST:
            return "times", slots, loop, total
        payment = d.rng.choice(
            [n for n in (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, LARGEST) if n >= total][:3]
        )
        money = d.rng.choice((f"{payment} {d.rng.choice(TOOL_WORDS.money)}", f"{payment}", f"${payment}"))
        answer = loop.calc(f"The rest of {payment}.", payment, "-", total)
        return "change", slots | {"w": money}, loop, answer
    if at < 0.25:
        answer = loop.look(first, d.number(1, most // 3))
        prices = [loop.look(second, d.number(1, most // 3))]
        slots = {"t": first, "s": second}
        if at < 0.15:
            prices.append(loop.look(third, d.number(1, most // 3)))
            slots["r"] = third
        for price in prices:
            answer = loop.total(answer, price)
        return "each" if at < 0.15 else "pair", slots, loop, answer
    price, other = d.number(1, most // 4), d.number(1, most // 4)
    (amount, a), (more, b) = _amount(d, 2 * price), _amount(d, 2 * other)
    left = loop.times(amount, first, loop.look(first, price))
    answer = loop.total(left, loop.times(more, second, loop.look(second, other)))
    return "two", {"a": a, "t": first, "b": b, "s": second}, loop, answer


def turn_text(number: int, turn: Turn) -> str:
    """What the agent writes in a turn."""
    return f"Thought {number}: {turn[0]} Action {number}: {turn[1]}"


def agent_text(d: Draw) -> str:
    """The agent's role in open language."""
    patterns = (TOOL_WORDS.lookup, TOOL_WORDS.calc, TOOL_WORDS.finish)
    three = [phrase(d, some, o="[", c="]") for some in patterns]
    names = ["lookup", "calc", "finish"]
    if d.chance(0.35):
        d.rng.shuffle(three)
        d.rng.shuffle(names)
    if d.chance(0.2):
        names = [f"{name}[]" for name in names]
    tools = d.rng.choice((", ", ", ", "; ", ". ")).join(three)
    if ". " in tools:
        tools = ". ".join(start_sentence(part) for part in tools.split(". "))
    pattern = pick(d, TOOL_WORDS.agents)
    if d.chance(0.25):
        pattern = pattern.split("{Tools}")[0] if not pattern.startswith("{Tools}") else pattern
    listed = d.rng.choice(("{}, {} and {}", "{}, {}, {}", "{} and {} and {}")).format(*names)
    text = d.say(pattern)
    for slot, value in (("{tools}", tools), ("{Tools}", start_sentence(tools)), ("{names}", listed)):
        text = text.replace(slot, value)
    if d.chance(0.2):
        text = f"{text} {pick(d, ASIDES)}"
    return text.lower() if d.chance(0.05) else text


def _observed(d: Draw, turn: Turn) -> str:
    """What a tool answers, in open language."""
    inside = turn[1].partition("[")[2][:-1]
    if turn[1].startswith("lookup"):
        return phrase(d, TOOL_WORDS.prices, p=turn[2], t=inside, m=d.rng.choice(TOOL_WORDS.money))
    return phrase(d, TOOL_WORDS.sums, p=turn[2], e=inside)


def make_tools(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(e) Turn number ``size`` of a loop (else any): the observations of the tools stand in the prompt.

    Split by the question alone, which is all that the first turn shows.
    """
    style = settle(rng, style)
    d = style.draw(rng)
    open_words = is_open(rng, style, "names", "words", "numbers", "extra", "bare", "ratios")
    while True:
        if open_words:
            question, turns, answer = draw_open_loop(d, kind, small=style.edit in ("names", "words"))
        else:
            question, turns, answer = draw_loop(rng, kind)
        if is_held_out(question) == held_out:
            break
    most = 2 + round((len(turns) - 2) * style.level)
    last = min(size or rng.randint(1, most), len(turns))
    role = agent_text(d) if is_open(rng, style, "roles") else AGENT.stock
    lead = pick(d, TOOL_WORDS.leads) if is_open(rng, style) else "The question is: "
    observation = pick(d, TOOL_WORDS.observations) if is_open(rng, style) else "Observation {i}: "
    plain = not is_open(rng, style, "words") or d.chance(0.5)
    pieces = [Piece(f"{role}\n{lead}"), Piece(question, name="user_question"), Piece("\n")]
    for number, turn in enumerate(turns[: last - 1], 1):
        pieces += [
            Piece(turn_text(number, turn), name=f"agent_{number}_current"),
            Piece("\n" + observation.format(i=number)),
            Piece(turn[2] if plain else _observed(d, turn), name=f"observation_{number}"),
            Piece("\n"),
        ]
    pieces.append(Piece(turn_text(last, turns[last - 1]), answer=True))
    return Document("tools", kind, join_pieces(pieces), str(answer), last)
