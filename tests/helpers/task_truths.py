"""What a document's answer should be, worked out from the text of its prompt alone."""

from __future__ import annotations

import ast
import contextlib
import io
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

from backend.prompts.presets import Preset
from backend.prompts.tasks import (
    Document,
    Style,
    candidate_words,
    documents,
    make_document,
    prefixes,
)

STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = (-?\d+)\.")
FACT = re.compile(r"(\w+) (helps|trusts|lives in|likes|eats|has) (\w+)\.")


def compute(left: int, op: str, right: int) -> int:
    return left // right if op == "/" else {"+": left + right, "-": left - right, "*": left * right}[op]


def chain(text: str) -> list[tuple[int, str, int, int]]:
    """Every calculation that a text writes down."""
    return [(int(a), op, int(b), int(c)) for a, op, b, c in STEP.findall(text)]


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.?]) ", text)


def solved(question: str) -> tuple[str, int]:
    """The written steps of a word problem and its result."""
    first, *rest, asked = sentences(question)
    assert asked.startswith("How many ")
    value = int(re.fullmatch(r"(?:At first )?\w+ (?:has|owns) (\d+) \w+\.", first)[1])  # type: ignore[index]
    lines = []
    for said in rest:
        if found := re.fullmatch(r"Then \w+ has (twice|three times) as many\.", said):
            op, right = "*", 2 if found[1] == "twice" else 3
        elif found := re.fullmatch(r"\w+ (?:finds|buys|gets|wins|picks up|is given) (\d+) more\.", said):
            op, right = "+", int(found[1])
        else:
            found = re.fullmatch(r"\w+ (?:gives away|loses|sells|drops|hands out|throws out) (\d+)\.", said)
            assert found, said
            op, right = "-", int(found[1])
        lines.append(f"{value} {op} {right} = {compute(value, op, right)}.")
        value = compute(value, op, right)
    return " ".join(lines), value


def in_stock_words(question: str) -> bool:
    """Is a word problem said as the presets say theirs?"""
    try:
        solved(question)
    except (AssertionError, TypeError, ValueError):
        return False
    return True


def written_solution(document: Document) -> tuple[str, int]:
    """The steps that an answer writes to a problem in open language: each is right, the last gives it."""
    body, _, answer = document.target.rpartition("The answer is ")
    written = body.partition("Agent ")[0].strip()
    steps = chain(written)
    assert " ".join(f"{a} {op} {b} = {c}." for a, op, b, c in steps) == written
    for a, op, b, c in steps:
        assert b and a == b * c if op == "/" else compute(a, op, b) == c
    if steps:
        assert steps[-1][3] == int(answer)
    else:
        assert answer in re.findall(r"\d+", document.values["user_question"])
    return written, int(answer)


def agents(document: Document) -> list[int]:
    """The numbers of the agents whose work is read: those before it, or their places where there are none."""
    found = [re.findall(r"\d+", header) for header in headers(document)]
    return [int(f[0]) for f in found] if all(found) else list(range(1, len(found) + 1))


def headers(document: Document) -> list[str]:
    """The template text before each agent's work."""
    pieces = document.pieces
    return [pieces[at - 1].text for at, piece in enumerate(pieces) if (piece.name or "").startswith("agent_")]


def result(text: str) -> int:
    """The number that somebody's text ends with."""
    return int(re.search(r" ?The answer is (\d+)$", text)[1])  # type: ignore[index]


def verdicts(own: int, results: Sequence[int], numbers: Sequence[int] = ()) -> str:
    """What a checker says of the results before it; ``numbers`` are the agents', else 1 on."""
    return "".join(
        f" Agent {i}: {value} vs {own}. {'Right' if value == own else 'Wrong'}."
        for i, value in zip(numbers or range(1, len(results) + 1), results, strict=False)
    )


def judged(
    kind: str,
    solution: tuple[str, int] | None,
    results: Sequence[int | str],
    numbers: Sequence[int] = (),
) -> tuple[str, str, tuple[int, ...]]:
    """A judge's text, final answer and selection; each line is worked out from the results up to it."""
    steps, mine = solution or ("", -1)
    first = results[0]
    shown = dict(zip(numbers or range(1, len(results) + 1), results, strict=True))
    numbers = numbers or range(1, len(results) + 1)

    def listed(chosen: Sequence[int]) -> str:
        return " and ".join(map(str, chosen)) or "0"

    def selected(seen: Sequence[int]) -> tuple[str, list[int]]:
        """The measure of the best so far, where there is one, and the best so far."""
        every = list(zip(numbers, seen, strict=False))
        if kind == "majority":
            most = max(Counter(seen).values())
            winners = [v for v in dict.fromkeys(seen) if seen.count(v) == most]
            # values in the order in which they came to so many votes, each with all its voters
            came = sorted(winners, key=lambda v: [i for i, x in every if x == v][most - 1])
            return f" = {most}", [i for v in came for i, x in every if x == v]
        if kind == "closest":
            least = min(abs(v - first) for v in seen[1:])
            return f"{least}: ", [i for i, v in every[1:] if abs(v - first) == least]
        if kind == "differs":
            return "", [i for i, v in every if v != first][:1]
        right = [i for i, v in every if v == mine]
        if kind == "corrects":
            right = [i for i in right if any(v != mine for k, v in every if k < i)]
        return "", right if kind == "all" else right[:1]

    lines = [steps] if kind in ("right", "all", "corrects") else []
    for at, (i, value) in enumerate(zip(numbers, results, strict=True), 1):
        line = f"Candidate {i}: {value}" + ("." if kind == "majority" else "")
        if kind in ("right", "all", "corrects"):
            corrects = kind == "corrects" and any(other != mine for other in results[: at - 1])
            word = "Wrong" if value != mine else "Corrects" if corrects else "Right"
            line += f" vs {mine}. {word}."
        elif kind == "majority":
            same = [j for j, v in zip(numbers, results[:at], strict=False) if v == value]
            line += f" Same as {[0, *same][-2]}. Votes {listed(same)} = {len(same)}."
        elif at > 1 and kind == "closest":
            line += f" < {first} is {value < first}. {max(value, first)} - {min(value, first)}"
            line += f" = {abs(value - first)}."
        elif at > 1:
            line += f" vs {first}. {'Same' if value == first else 'Differs'}."
        else:
            lines.append(f"{line}.")
            continue
        measure, best = selected(results[:at])
        told = f"{listed(best)}{measure}" if kind == "majority" else f"{measure}{listed(best)}"
        lines.append(f"{line} Best {told}.")
    _, chosen = selected(results)
    final = str(mine)
    if kind == "majority":
        final = " and ".join(dict.fromkeys(str(shown[i]) for i in chosen))
    elif kind in ("differs", "closest"):
        final = str(shown[chosen[0]] if chosen else first)
    lines.append(f"The best candidate{'s are' if len(chosen) > 1 else ' is'} {listed(chosen)}.")
    return f"{' '.join(lines)} The answer is {final}", final, tuple(chosen)


def found_in(documents: Sequence[str], question: str) -> tuple[str, str]:
    """The hops of a question over documents, and the answer."""
    known: dict[tuple[str, str], str] = {}
    for text in documents:
        assert " ".join(sentences(text)) == " ".join(m[0] for m in FACT.finditer(text)), "facts, nothing else"
        for who, verb, what in FACT.findall(text):
            assert (who, verb) not in known, "a question has one answer"
            known[who, verb] = what
    found = re.fullmatch(
        r"(?:The (?:one whom|city that) (?=\w+ (?:helps|trusts|lives in) ))?"
        r"(\w+) (helps|trusts|lives in|likes|eats|has)"
        r"(?: (lives in|likes|eats|has))? (?:whom|what(?: city| weather)?)\?",
        question,
    )
    assert found, question
    who, *path = (part for part in found.groups() if part)
    assert (len(path) == 2) == question.startswith("The ")
    hops = []
    for verb in path:
        hops.append(f"{who} {verb} {known[who, verb]}.")
        who = known[who, verb]
    return f"{' '.join(hops)} The answer is {who}", who


def acted(question: str, seen: Sequence[str]) -> tuple[list[str], bool] | None:
    """All turns of the tool loop up to the one after the observations seen; is that the last one?

    None for a question that is not in the presets' words.
    """
    if found := re.fullmatch(r"(\w+) buys (\d) (\w+) and (\d) (\w+)\. What does \1 pay\?", question):
        wanted = [(found[3], found[2]), (found[5], found[4])]
    elif found := re.fullmatch(r"(\w+) buys (\d) (\w+)\. What does \1 pay\?", question):
        wanted = [(found[3], found[2])]
    elif found := re.fullmatch(
        r"What is the difference between the price of (\w+) and the price of (\w+)\?", question
    ):
        wanted = [(found[1], ""), (found[2], "")]
    else:
        return None
    turns: list[tuple[str, str]] = []
    left = [re.findall(r"\d+", text)[-1] for text in seen]

    def act(thought: str, action: str) -> str:
        """Take a turn; raises StopIteration when nothing was observed after it."""
        turns.append((thought, action))
        if not left:
            raise StopIteration
        if formula := re.fullmatch(r"calc\[(\d+) ([-+*]) (\d+)\]", action):
            assert left[0] == str(compute(int(formula[1]), formula[2], int(formula[3]))), "calc is right"
        return left.pop(0)

    with contextlib.suppress(StopIteration):
        got = []
        for item, amount in wanted:
            price = act(f"I need the price of {item}.", f"lookup[{item}]")
            got.append(act(f"{amount} {item} at {price}.", f"calc[{price} * {amount}]") if amount else price)
        if not wanted[0][1]:
            high, low = sorted(map(int, got), reverse=True)
            rises = int(got[0]) < int(got[1])
            got = [act(f"{got[0]} < {got[1]} is {rises}.", f"calc[{high} - {low}]")]
        elif len(got) == 2:
            got = [act(f"The sum of {got[0]} and {got[1]}.", f"calc[{got[0]} + {got[1]}]")]
        act("I know the answer.", f"finish[{got[0]}]")
    assert not left, "every observation belongs to a turn"
    texts = [f"Thought {i}: {thought} Action {i}: {action}" for i, (thought, action) in enumerate(turns, 1)]
    return texts, turns[-1][1].startswith("finish")


def executed(source: str) -> tuple[str, int]:
    """What happens when a program runs, line by line, and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(source, {})
    values: dict[str, int] = {}
    lines: list[str] = []
    functions: dict[str, ast.FunctionDef] = {}

    def shown(node: ast.expr) -> str:
        text = ast.unparse(node)
        return re.sub(r"[A-Za-z_]\w*", lambda found: str(values[found[0]]), text)

    def call(node: ast.Call) -> None:
        assert isinstance(node.func, ast.Name)
        function = functions[node.func.id]
        for argument, value in zip(function.args.args, node.args, strict=True):
            values[argument.arg] = eval(shown(value))
            lines.append(f"{argument.arg} = {values[argument.arg]}.")
        go(function.body)

    def go(body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.FunctionDef):
                functions[statement.name] = statement
            elif isinstance(statement, ast.If):
                test = shown(statement.test)
                lines.append(f"{test} is {eval(test)}.")
                go(statement.body if eval(test) else statement.orelse)
            elif isinstance(statement, ast.While):
                while True:
                    test = shown(statement.test)
                    lines.append(f"{test} is {eval(test)}.")
                    if not eval(test):
                        break
                    go(statement.body)
            elif isinstance(statement, ast.For):
                assert isinstance(statement.target, ast.Name)
                for value in eval(ast.unparse(statement.iter)):
                    values[statement.target.id] = value
                    go(statement.body)
            elif isinstance(statement, ast.Expr):  # print or a function that prints
                inner = statement.value
                assert isinstance(inner, ast.Call)
                if ast.unparse(inner.func) == "print":
                    [inner] = inner.args
                if isinstance(inner, ast.Call):
                    call(inner)
            elif isinstance(statement, ast.Assign | ast.AugAssign):
                [target] = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                given = statement.value
                if isinstance(given, ast.Call):
                    call(given)
                    continue
                if isinstance(statement, ast.AugAssign):
                    given = ast.BinOp(ast.Name(target.id), statement.op, given)
                formula = shown(given)
                values[target.id] = eval(formula)
                worked = isinstance(given, ast.BinOp)
                lines.append(
                    f"{target.id} = {formula} = {values[target.id]}."
                    if worked
                    else f"{target.id} = {formula}."
                )
            else:
                assert isinstance(statement, ast.Return)

    go(ast.parse(source).body)
    assert all(0 <= value <= 999 for value in values.values())
    return f"{' '.join(lines)} The answer is {int(out.getvalue())}", int(out.getvalue())


def read_message(kind: str, book: str, message: str) -> tuple[str, int]:
    """What a message comes to for the reader of one book, with the steps."""
    steps = []
    if kind == "codebook":
        means = {word: int(number) for word, number in re.findall(r"(\w+) means (\d+)\.", book)}
        first, *rest = re.findall(r"(Start with|Add|Take) (\w+)\.", message)
        assert first[0] == "Start with"
        value = means[first[1]]
        steps.append(f"{first[1]} means {value}.")
        moves = [
            (f"{word} means {means[word]}. ", "+" if verb == "Add" else "-", means[word])
            for verb, word in rest
        ]
    elif kind == "units":
        holds = {unit: int(number) for unit, number in re.findall(r"One (\w+) holds (\d+)\.", book)}
        first, *rest = sentences(message)
        packs, unit = re.fullmatch(r"\w+ has (\d+) times a (\w+) of \w+\.", first).groups()  # type: ignore[union-attr]
        value = int(packs)
        moves = [(f"One {unit} holds {holds[unit]}. ", "*", holds[unit])]
        moves += [("", "+", int(re.fullmatch(r"\w+ has (\d+) more\.", said)[1])) for said in rest]  # type: ignore[index]
    else:
        asked = re.fullmatch(r"(\w+) writes to (\w+)\. How many \w+ does (\w+) have\?", book)
        assert asked
        assert asked[3] in asked.groups()[:2]
        pronoun = "I" if asked[3] == asked[1] else "You"
        told = re.search(rf"\b{pronoun} have (\d+) \w+\.", message)
        assert told
        value = int(told[1])
        steps.append(f"{asked[3]} {'writes' if pronoun == 'I' else 'reads'}. {told[0]}")
        moves = [("", "+", int(n)) for n in re.findall(rf"\b{pronoun} get (\d+) more\.", message)]
    for restated, op, right in moves:
        steps.append(f"{restated}{value} {op} {right} = {compute(value, op, right)}.")
        value = compute(value, op, right)
    return f"{' '.join(steps)} The answer is {value}", value


def numbered(values: Mapping[str, str], name: str) -> list[str]:
    """The values of ``name`` with 1, 2 and so on in its braces."""
    found = []
    while (key := name.format(len(found) + 1)) in values:
        found.append(values[key].strip())
    return found


def framed(text: str) -> str:
    """A result in words, out of the sentence around it."""
    for said in sorted(candidate_words.CANDIDATES.said, key=len, reverse=True):
        frame = re.escape(said).replace(r"\(", "(?:").replace(r"\)", ")").replace(r"\|", "|")
        if found := re.fullmatch(frame.replace(r"\{v\}", "(.+?)"), text):
            return found[1]
    return text.rstrip(".!") if text != "Mr." else text


def results_of(values: Mapping[str, str]) -> list[int | str]:
    """What the candidates say: their last numbers, or words."""
    found: list[int | str] = []
    for text in numbered(values, "candidate_{}"):
        numbers = re.findall(r"\d+", text)
        if text in candidate_words.CANDIDATES.unclear:
            found.append("none")
        else:
            found.append(int(numbers[-1]) if numbers else framed(text))
    return found


def shown_numbers(document: Document) -> list[int]:
    """The numbers before the candidates, or their places where there are none."""
    pieces = document.pieces
    places = [i for i, p in enumerate(pieces) if (p.name or "").startswith("candidate_")]
    heads = [pieces[i - 1].text.rstrip().rpartition("\n")[2] for i in places]
    found = [re.findall(r"\d+", head)[-1:] for head in heads]
    if all(found):
        numbers = [int(number) for [number] in found]
        if numbers[0] == 1 and all(a < b for a, b in pairwise(numbers)):
            return numbers
    return list(range(1, len(places) + 1))


def own_solution(document: Document) -> tuple[str, int]:
    """The judge's steps, as it writes them: each is right, and goes on from the last one."""
    if not document.pieces[-1].answer:  # a preset's request
        return solved(document.values["user_question"])
    written = document.target[: document.target.index("Candidate ")].strip()
    steps = chain(written)
    assert " ".join(f"{a} {op} {b} = {c}." for a, op, b, c in steps) == written
    assert all(compute(a, op, b) == c for a, op, b, c in steps)
    own = steps[-1][3] if steps else int(document.answer)
    if found := re.fullmatch(
        r"(?:[A-Z][a-z ]+)?(\d+(?: ?[-+*] ?\d+)+)[.?]?", document.values["user_question"]
    ):
        assert eval(found[1]) == own
    return written, own


def truth(document: Document) -> tuple[str, str | None, tuple[int, ...] | None] | None:
    """A document's target, answer (None where the prompt does not decide it) and selection.

    None where the question is in words that only its author understands.
    """
    task, kind, values = document.task, document.kind, document.values
    values = {name: text.strip() for name, text in values.items()}
    if task in ("judge", "glance"):
        solution = own_solution(document) if kind in ("right", "all", "corrects") else None
        told = judged(kind, solution, results_of(values), shown_numbers(document))
        if task == "judge":
            return told[0].strip(), *told[1:]  # what is read off has no steps
        chosen = told[2]
        numbers = " and ".join(map(str, sorted(chosen))) or "0"
        return f"The best candidate{'s are' if len(chosen) > 1 else ' is'} {numbers}.", numbers, chosen
    question = values["user_question"]
    if task in ("solver", "worker"):
        steps, own = solved(question) if in_stock_words(question) else written_solution(document)
        seen = [result(text) for text in numbered(values, "agent_{}_current")]
        told = verdicts(own, seen, agents(document)) if kind == "inspector" else ""
        return f"{steps}{told} The answer is {own}".strip(), str(own), None
    if task == "documents":
        target, answer = found_in(numbered(values, "document_{}"), question)
        return target, answer, None
    if task == "tools":
        found = acted(question, numbered(values, "observation_{}"))
        if found is None:
            return None
        turns, last = found
        return turns[-1], turns[-1].partition("finish[")[2][:-1] if last else None, None
    target, number = executed(question) if task == "program" else read_message(
        kind, values["prefix_1"], question
    )  # fmt: skip
    return target, str(number), None


def in_open_wording(document: Document) -> bool:
    """Is this a question over documents or a message that is not said as the presets say theirs?"""
    if document.task not in ("documents", "prefix"):
        return False
    role = " ".join(document.pieces[0].text.lower().split())
    stock = documents.READER if document.task == "documents" else prefixes.READERS[document.kind]
    return not role.startswith(stock.lower())


def assert_open(document: Document) -> None:
    """The answer holds what the prompt says, and right calculations."""
    prompt = "".join(piece.text for piece in document.pieces[:-1])
    told, _, answer = document.target.rpartition("The answer is ")
    told = told.rstrip()
    assert answer == document.answer
    if document.task == "documents":  # of two hops, behind what leads from the first to the second
        assert (told == "") == (document.kind == "one-hop")
        assert all(
            text.lower() in prompt.lower() for text in (told.removeprefix("First ").rstrip("."), answer)
        )
        return
    steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)\.", told)
    for left, op, right, end in steps:
        a, b, c = int(left), int(right), int(end)
        assert (a == b * c and b) if op == "/" else compute(a, op, b) == c
    assert len(steps) == told.count(" = ")
    assert told.endswith(f" = {answer}." if steps else ".")
    assert re.search(rf"\b{answer}\b", told)
    seen = {n for *_, n in steps} | set(re.findall(r"\d+", prompt))
    assert set(re.findall(r"\d+", told)) <= seen | {n for step in steps for n in step}


def trained_document(preset: Preset, agent: int) -> Document:
    """A document worded as an agent's prompt in a preset, contents aside."""
    source, flow = preset.task, preset.pipeline
    assert source is not None
    rng = random.Random(f"{flow.name} {agent}")
    task, kind, size, style = source.task, source.kind, source.size, Style("stock")
    if task == "solver":
        kind, size = "problem", None
        if agent == flow.judge:
            task, kind, size = "judge", "right", len(flow.agents) - 1
        elif agent > 1:  # inspectors and analysts take turns
            task, kind, size = "worker", ("analyst", "inspector")[agent % 2 == 0], agent - 1
    elif task == "tools":
        size = agent
    elif task == "program" and agent != flow.final:  # another of the wordings that are trained on
        style = Style("any")
    while True:
        document = make_document(rng, task, kind=kind, size=size, style=style, held_out=True)
        texts = [p.text for p in document.pieces[:-1] if p.name is None]
        if style.wording == "stock" or texts == [
            part for part in flow.template(agent).parts if isinstance(part, str)
        ]:
            return document


def problem_text(document: Document) -> str:
    """What the split is made by, from the prompt."""
    values = document.values
    question = values.get("user_question") or "\n".join(numbered(values, "candidate_{}"))
    if document.task == "documents":
        return question + " ".join(numbered(values, "document_{}"))
    if document.task == "prefix":
        return values["prefix_1"] + question
    return question
