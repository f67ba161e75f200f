"""Stories whose numbers are added up: parts of a whole, and what a purchase costs."""

from backend.prompts.tasks.story_teller import Step, Story, StoryProblem, compute
from backend.prompts.tasks.words import Draw, start_sentence

_EXPRESSIONS = {
    "+": ("{a} plus {b}", "the sum of {a} and {b}", "{a} and {b} together", "{a} + {b}", "{a} added to {b}", "{b} more than {a}",
          "adding {b} to {a}", "{a} increased by {b}"),
    "-": ("{a} minus {b}", "the difference of {a} and {b}", "{a} take away {b}", "{a} - {b}", "{b} less than {a}", "{a} less {b}",
          "subtracting {b} from {a}", "{a} decreased by {b}", "{b} subtracted from {a}"),
    "*": ("{a} times {b}", "the product of {a} and {b}", "{a} multiplied by {b}", "{a} * {b}", "{a} x {b}", "{a} × {b}", "{a} groups of {b}"),
    "/": ("{a} divided by {b}", "{a} over {b}", "{a} / {b}", "{a} : {b}", "{a} ÷ {b}", "the quotient of {a} and {b}"),
}  # fmt: skip


_INSTRUCTIONS = {
    "+": ("Add {a} and {b}", "Add {b} to {a}", "Sum up {a} and {b}", "Put {a} and {b} together", "Increase {a} by {b}"),
    "-": ("Subtract {b} from {a}", "Take {b} away from {a}", "Take {b} from {a}", "Decrease {a} by {b}"),
    "*": ("Multiply {a} by {b}", "Multiply {a} and {b}", "Multiply {a} with {b}"),
    "/": ("Divide {a} by {b}", "Split {a} into {b} equal parts"),
}  # fmt: skip


def draw_precedence(d: Draw, story: Story) -> StoryProblem:
    """A bare sum in which a product or a bracket comes first: its text and its steps."""
    rng = d.rng
    a, b, c, e = (d.number(2, min(99, story.highest)) for _ in range(4))
    b, c = (rng.randint(2, 12), d.number(2, 30)) if d.chance(0.7) else (b, c)
    form = rng.choice(
        ("a+bc", "bc+a", "a-bc", "bc-a", "(a+b)c", "c(a+b)", "(a-b)c", "bc+de", "a+b/c", "a-(b+c)", "a-(b-c)")
    )
    if form == "a+bc":
        text, solution = f"{a} + {b} * {c}", [(b, "*", c), (a, "+", b * c)]
    elif form == "bc+a":
        text, solution = f"{b} * {c} + {a}", [(b, "*", c), (b * c, "+", a)]
    elif form == "a-bc":
        a += b * c
        text, solution = f"{a} - {b} * {c}", [(b, "*", c), (a, "-", b * c)]
    elif form == "bc-a":
        a = min(a, b * c - 1)
        text, solution = f"{b} * {c} - {a}", [(b, "*", c), (b * c, "-", a)]
    elif form == "(a+b)c":
        c = rng.randint(2, 12)
        text, solution = f"({a} + {b}) * {c}", [(a, "+", b), (a + b, "*", c)]
    elif form == "c(a+b)":
        c = rng.randint(2, 12)
        text, solution = f"{c} * ({a} + {b})", [(a, "+", b), (c, "*", a + b)]
    elif form == "(a-b)c":
        a, c = a + b, rng.randint(2, 12)
        text, solution = f"({a} - {b}) * {c}", [(a, "-", b), (a - b, "*", c)]
    elif form == "bc+de":
        a = rng.randint(2, 12)
        text, solution = f"{b} * {c} + {a} * {e}", [(b, "*", c), (a, "*", e), (b * c, "+", a * e)]
    elif form == "a+b/c":
        text, solution = f"{a} + {b * c} / {b}", [(b * c, "/", b), (a, "+", c)]
    elif form == "a-(b+c)":
        a += b + c
        text, solution = f"{a} - ({b} + {c})", [(b, "+", c), (a, "-", b + c)]
    else:
        b += c
        a += b - c
        text, solution = f"{a} - ({b} - {c})", [(b, "-", c), (a, "-", b - c)]
    if d.chance(0.25):
        text = text.replace(" ", "")
    return text.replace("*", rng.choice("**x")), solution, compute(*solution[-1])


def draw_sum(d: Draw, story: Story, steps: int) -> StoryProblem:
    """A bare sum: signs or words, with or without an instruction, worked from the left."""
    rng = d.rng
    top = story.highest
    value = start = d.number(story.lowest, top)
    solution: list[Step] = []
    is_instruction = False
    if story.lowest < 100 and d.chance(0.3):
        text, solution, value = draw_precedence(d, story)
    elif d.chance(0.15):
        if d.chance(0.4):
            value += value % 2
            op, patterns = "/", ["half of {a}", "(a|one) half of {a}", "{a} halved", "half {a}"]
        else:
            op, patterns = (
                "*",
                ["twice {a}", "double {a}", "two times {a}", "{a} doubled", "the double of {a}"],
            )
        text = d.phrase(patterns, a=value)
        solution.append((value, op, 2))
        value = compute(value, op, 2)
    else:
        multiply = d.chance(0.2)
        if multiply:
            value = start = d.number(story.lowest, top // 4)
        for _ in range(max(1, steps)):
            op = rng.choice("**/" if multiply else "+-")
            if op == "-" and value < 2:
                op = "+"
            if op == "+":
                right = d.number(min(story.lowest, 99), max(1, top - value))
            elif op == "-":
                right = d.number(1, value)
            else:
                divisors = [x for x in range(2, 13) if value % x == 0]
                if op == "/" and not divisors:
                    op = "*"
                if op == "*" and value * 2 > top:
                    break
                right = rng.choice(divisors) if op == "/" else rng.randint(2, min(12, top // value))
            solution.append((value, op, right))
            value = compute(value, op, right)
        if len(solution) == 1 and d.chance(0.5):
            left, op, right = solution[0]
            is_instruction = d.chance(0.3)
            text = d.pick((_INSTRUCTIONS if is_instruction else _EXPRESSIONS)[op]).format(a=left, b=right)
        else:
            gap = d.rng.choice((" ", " ", " ", ""))
            wordy = d.chance(0.15)
            names = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
            text = str(start)
            for _, op, right in solution:
                sign = f"{gap}{rng.choice('*x') if op == '*' else op}{gap}" if not wordy else f" {names[op]} "
                text += f"{sign}{right}"
    if is_instruction:
        return text + d.rng.choice((".", ".", "", "!", ". What do you get?", ", please.")), solution, value
    ask = d.pick(
        (
            "What is {e}?", "{e}", "{e} = ?", "{e} =", "Compute {e}.", "Calculate {e}", "How much is {e}?", "What's {e}?",
            "Solve: {e}", "Work out {e}.", "Please compute {e}.", "What does {e} make?", "What do you get for {e}?",
            "{e} is what?", "Tell me {e}.", "Find {e}.", "What is the result of {e}?", "Give me the value of {e}.",
            "{e}?", "Hi, what is {e}?", "Evaluate {e}.", "Can you tell me what {e} is?",
        )
    )  # fmt: skip
    return start_sentence(ask.format(e=text)), solution, value


def draw_purchase(d: Draw, story: Story, steps: int) -> StoryProblem:
    """Prices: what somebody pays for several things, and what is left of a note."""
    rng = d.rng
    who, thing = d.name(), d.thing()
    price, count = d.number(max(2, min(story.lowest, 500)), max(3, story.highest // 20)), rng.randint(2, 12)
    money = d.pick("euros dollars coins pounds cents pesos francs crowns points yen rubles marks".split())
    base = d.phrase(
        (
            "One of the {i} costs {n} {e}. {s} buys {m}.", "{i} cost {n} {e} each. {s} buys {m} [of them].",
            "{s} buys {m} {i} (for|at) {n} {e} each.", "A shop sells {i} at {n} {e} each. {s} takes {m}.",
            "{s} bought {m} {i}. Each [one] cost {n} {e}.", "{s} orders {m} {i}, and each costs {n} {e}.",
            "The price of the {i} is {n} {e} each, and {s} needs {m} of them.", "{s} sells {m} {i} for {n} {e} each.",
            "{s} gets {m} {i}. The price is {n} {e} apiece.", "{i} are {n} {e} each. {s} wants {m}.",
            "{s} pays {n} {e} for each of {m} {i}.", "{m} {i} at {n} {e} each are what {s} buys.",
        ),
        s=who, i=thing, n=price, m=count, e=money,
    )  # fmt: skip
    price_first = 0 <= base.find(f" {price} ") < base.find(str(count))
    solution: list[Step] = [(price, "*", count) if price_first else (count, "*", price)]
    total = price * count
    if steps > 1 and d.chance(0.6):
        paid = total + d.number(1, 500)
        base += " " + d.phrase(
            ("{s} pays with {n} {e}.", "{s} has {n} {e}.", "{s} had {n} {e} before.", "{s} gives the clerk {n} {e}.",
             "In the purse there are {n} {e}.", "{s} came with {n} {e}.", "{s} takes {n} {e} along.", "{s} hands over {n} {e}.",
             "{s} started with {n} {e}.", "{s} puts {n} {e} on the table."),
            s=who, n=paid, e=money,
        )  # fmt: skip
        ask = d.phrase(
            ("How much change does {s} get?", "How many {e} are left?", "What is left?", "How much is left for {s}?",
             "How many {e} does {s} have left?", "How many {e} does {s} keep?", "How much money remains?",
             "How many {e} come back?", "What change is that?", "How many {e} remain?"),
            s=who, e=money,
        )  # fmt: skip
        solution.append((paid, "-", total))
        if "sells" in base.partition(".")[0] and "shop" not in base:
            base = base.replace("sells", "buys", 1)
        return start_sentence(base) + " " + ask, solution, paid - total
    ask = d.phrase(
        ("How much is that [in total]?", "How many {e} is that?", "What is the total [price]?", "How much in (all|total)?",
         "How much money is that?", "What does it come to?", "How many {e} altogether?", "Find the total.",
         "How much do all the {i} cost?", "What do the {i} cost together?"),
        s=who, e=money, i=thing,
    )  # fmt: skip
    return start_sentence(base) + " " + ask, solution, total
