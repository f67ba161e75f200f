"""Small Python functions to be executed, line by line."""

import random

from backend.prompts.filled_results import COMPARISONS
from backend.prompts.tasks.arithmetic import comparison
from backend.prompts.tasks.base import ASIDES, PRESET_WORDS, Document, Piece, Style, Wording, is_held_out
from backend.prompts.tasks.parts import is_open, phrase, pick, settle
from backend.prompts.tasks.phrases import phrases
from backend.prompts.tasks.program_forms import draw_open
from backend.prompts.tasks.story_teller import compute

PROGRAMS = phrases("programs")


RUNNER = Wording(**PRESET_WORDS.runner)
KINDS = ("straight", "branch", "loop")


def _operation(rng: random.Random, value: int) -> tuple[str, int, int]:
    options = [op for op, good in (("+", value <= 90), ("-", value >= 1), ("*", value <= 33)) if good]
    op = rng.choice(options)
    if op == "*":
        right = 2 if value > 20 else rng.choice((2, 3))
    else:
        right = rng.randint(1, min(40, 99 - value) if op == "+" else value)
    return op, right, compute(value, op, right)


def draw_program(rng: random.Random, kind: str, lines: int) -> tuple[str, str, int]:
    """Source, its written execution and what it prints; values stay in 0..99."""
    name = rng.choice(("x", "n", "a", "k"))
    value = start = rng.randint(1, 60)
    source = [f"def f({name}):"]
    trace = [f"{name} = {start}."]

    def step(indent: str) -> None:
        nonlocal value
        op, right, result = _operation(rng, value)
        source.append(f"{indent}{name} = {name} {op} {right}")
        trace.append(f"{name} = {value} {op} {right} = {result}.")
        value = result

    special = rng.randrange(lines)
    for index in range(lines):
        if kind == "branch" and index == special:
            limit = rng.randint(5, 80)
            sign = rng.choice("<>")
            source.append(f"    if {name} {sign} {limit}:")
            trace.append(comparison(value, sign, limit))
            before = value
            step("        ")
            if not COMPARISONS[sign](before, limit):
                value = before
                trace.pop()
        elif kind == "loop" and index == special:
            turns, right = rng.choice((2, 2, 3)), rng.randint(1, 9)
            op = "-" if value >= 3 * right and rng.random() < 0.5 else "+"
            if op == "+" and value + 3 * right > 99:
                op, right = ("-", min(9, value // 3)) if value >= 3 else ("+", 1)
            source += [f"    for i in range({turns}):", f"        {name} = {name} {op} {right}"]
            for _ in range(turns):
                result = compute(value, op, right)
                trace.append(f"{name} = {value} {op} {right} = {result}.")
                value = result
        else:
            step("    ")
    source += [f"    return {name}", f"print(f({start}))"]
    return "\n".join(source), " ".join(trace), value


def role_text(rng: random.Random, style: Style, original: Style) -> str:
    """The instruction before a program, in open or the presets' words."""
    if is_open(rng, style, "roles"):
        d = style.draw(rng)
        text = phrase(d, PROGRAMS.runners)
        if d.chance(0.15 + 0.2 * style.level):
            more = pick(d, ASIDES) if d.chance(0.5) else phrase(d, PROGRAMS.runners)
            text = f"{more} {text}" if d.chance(0.3) else f"{text} {more}"
        return text.lower() if d.chance(0.06) else text
    if original.wording == "any":
        return rng.choice((RUNNER.stock, RUNNER.stock, *RUNNER.others))
    return RUNNER.stock


def make_program(rng: random.Random, style: Style, held_out: bool, kind: str, size: int | None) -> Document:
    """(f) A program of ``size`` statements (else 1 to 4, in open form to 5), and what it prints.

    In the presets' form it is a function with one variable, and its call.
    """
    original, style = style, settle(rng, style)
    open_form = is_open(rng, style, "names", "words", "numbers", "extra", "ratios", "bare")
    lines = size or style.upto(rng, 1, 5 if open_form else 4)
    while True:
        source, trace, value = (
            draw_open(style.draw(rng), kind, lines) if open_form else draw_program(rng, kind, lines)
        )
        if is_held_out(source) == held_out:
            break
    pieces = (
        Piece(role_text(rng, style, original) + "\n"),
        Piece(source, name="user_question"),
        Piece("\n"),
        Piece(f"{trace} The answer is {value}", answer=True),
    )
    return Document("program", kind, pieces, str(value), lines)
