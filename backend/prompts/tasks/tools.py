"""A ReAct-like loop: one turn of Thought and Action, with the turns and observations before it."""

from __future__ import annotations

import random

from backend.prompts.tasks.arithmetic import ordered
from backend.prompts.tasks.base import ITEMS, NAMES, Document, Piece, Style, Wording, held_out

AGENT = Wording(
    "You answer with tools: lookup gives a price, calc gives a result, finish gives the answer.",
    (
        "You have tools. lookup gives a price, calc gives a result, finish ends with the answer.",
        "Answer with the tools lookup, calc and finish. Think before each action.",
    ),
    ("You are an agent with tools. Use lookup, calc and finish. Think before you act.",),
)
KINDS = ("one item", "two items", "difference")
Turn = tuple[str, str, str]  # thought, action, observation


def draw_loop(rng: random.Random, kind: str) -> tuple[str, list[Turn], int]:
    """The question, all turns of the loop (the last without an observation), and the answer."""
    name = rng.choice(NAMES)
    first, second = rng.sample(ITEMS, 2)
    price, other = rng.randint(2, 60), rng.randint(2, 60)
    amount, more = rng.choice((2, 3)), rng.choice((2, 3))
    if price * amount > 99:
        amount = 2 if price < 50 else 1
    turns: list[Turn] = [
        (f"I need the price of {first}.", f"lookup[{first}]", str(price)),
    ]
    if kind == "one item":
        amount = max(amount, 2) if price < 50 else 1
        question = f"{name} buys {amount} {first}. What does {name} pay?"
        answer = price * amount
        turns.append((f"{amount} {first} at {price}.", f"calc[{price} * {amount}]", str(answer)))
    elif kind == "difference":
        question = f"What is the difference between the price of {first} and the price of {second}?"
        turns.append((f"I need the price of {second}.", f"lookup[{second}]", str(other)))
        high, low = max(price, other), min(price, other)
        answer = high - low
        turns.append((ordered(price, "<", other), f"calc[{high} - {low}]", str(answer)))
    else:
        price, other = rng.randint(2, 24), rng.randint(2, 24)
        turns[0] = (turns[0][0], turns[0][1], str(price))
        question = f"{name} buys {amount} {first} and {more} {second}. What does {name} pay?"
        a, b = price * amount, other * more
        answer = a + b
        turns.append((f"{amount} {first} at {price}.", f"calc[{price} * {amount}]", str(a)))
        turns.append((f"I need the price of {second}.", f"lookup[{second}]", str(other)))
        turns.append((f"{more} {second} at {other}.", f"calc[{other} * {more}]", str(b)))
        turns.append((f"The sum of {a} and {b}.", f"calc[{a} + {b}]", str(answer)))
    turns.append(("I know the answer.", f"finish[{answer}]", ""))
    return question, turns, answer


def turn_text(number: int, turn: Turn) -> str:
    """What the agent writes in a turn."""
    return f"Thought {number}: {turn[0]} Action {number}: {turn[1]}"


def make_tools(rng: random.Random, style: Style, held: bool, kind: str, size: int | None) -> Document:
    """(e) Turn number ``size`` of a loop (else any): the observations of the tools stand in the prompt.

    Split by the question alone, which is all that the first turn shows.
    """
    while True:
        question, turns, answer = draw_loop(rng, kind)
        if held_out(question) == held:
            break
    last = min(size or rng.randint(1, len(turns)), len(turns))
    pieces = [
        Piece(style.say(rng, AGENT) + "\nThe question is: "),
        Piece(question, name="user_question"),
        Piece("\n"),
    ]
    for number, turn in enumerate(turns[: last - 1], 1):
        pieces += [
            Piece(turn_text(number, turn), name=f"agent_{number}_current"),
            Piece(f"\nObservation {number}: "),
            Piece(turn[2], name=f"observation_{number}"),
            Piece("\n"),
        ]
    pieces.append(Piece(turn_text(last, turns[last - 1]), answer=True))
    return Document("tools", kind, tuple(pieces), str(answer), last)
