"""The embedded model's tasks, its packed batches, and a training that can be repeated and resumed.

What a document's answer should be is worked out here from the text of its prompt alone.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import math
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tiny
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from backend.model.load import EMBEDDED, LoadedModel, load_model
from backend.model.tokenizer import Tokens
from backend.prompts.presets import Preset, load_preset, preset_names
from backend.prompts.tasks import (
    TASKS,
    Document,
    Style,
    arithmetic,
    candidate_words,
    documents,
    drills,
    judge_words,
    judging,
    make_document,
    prefixes,
    tools,
)
from backend.prompts.tasks.facts import draw_story
from backend.prompts.tasks.words import Draw
from backend.records.events import RunDone
from backend.records.run import MethodChoice, slots
from backend.session.session import LabSession
from backend.studies import task_requests
from backend.studies.task_requests import as_request
from backend.training import evaluate as evaluation
from backend.training import train
from backend.training.evaluate import (
    EVALUATED,
    WORDINGS,
    answers,
    evaluate,
    held_out_documents,
    marks,
    suitability,
    tally,
)
from backend.training.muon import Muon, orthogonalise
from backend.training.tokenizer import VOCABULARY
from backend.training.train import (
    CURRICULUM,
    SIZES,
    Packer,
    Recipe,
    curriculum,
    hidden_states,
    padded,
    rate_factor,
)
from backend.training.twins import ALIKE, pair_twins

SEEDS = st.integers(0, 10**9)
STEP = re.compile(r"(\d+) ([-+*/]) (\d+) = (-?\d+)\.")
FACT = re.compile(r"(\w+) (helps|trusts|lives in|likes|eats|has) (\w+)\.")
# Scenarios whose prompts are trained on: of those with generated requests, not the ones that look back on
# earlier turns, which no document does.
GENERATED = [
    name
    for name in preset_names()
    if (preset := load_preset(name)).request_source == "generated" and preset.pipeline.turns == 1
]


# -- the truth about a task, from the text


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
    for said in sorted(candidate_words.SAID, key=len, reverse=True):
        frame = re.escape(said).replace(r"\(", "(?:").replace(r"\)", ")").replace(r"\|", "|")
        if found := re.fullmatch(frame.replace(r"\{v\}", "(.+?)"), text):
            return found[1]
    return text.rstrip(".!") if text != "Mr." else text


def results_of(values: Mapping[str, str]) -> list[int | str]:
    """What the candidates say: their last numbers, or words."""
    found: list[int | str] = []
    for text in numbered(values, "candidate_{}"):
        numbers = re.findall(r"\d+", text)
        if text in candidate_words.UNCLEAR:
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
            return told
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
    told, _, answer = document.target.rpartition(" The answer is ")
    assert answer == document.answer
    if document.task == "documents":
        assert answer in told
        ends = [i for i, letter in enumerate(told, 1) if letter == "."]
        said = [(told[: i - 1], told[i + 1 : -1]) for i in ends]
        assert any(first in prompt and (not rest or rest in prompt) for first, rest in said)
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


# -- documents


@pytest.mark.parametrize("task", EVALUATED)
@given(
    seed=SEEDS, held_out=st.booleans(), wording=st.sampled_from(WORDINGS), level=st.sampled_from([0, 0.5, 1])
)
def test_every_target_is_true(task: str, seed: int, held_out: bool, wording: str, level: float) -> None:
    style = Style(wording, level)
    document = make_document(random.Random(seed), task, held_out=held_out, style=style)
    if in_open_wording(document):
        assert wording != "stock"
        assert_open(document)
    elif (true := truth(document)) is not None:
        target, answer, best = true
        assert document.target == target
        assert document.best == best
        assert answer in (document.answer, None)
    else:
        assert task == "tools"
    assert document.task == task
    assert document.kind in TASKS[task][1]
    assert all(piece.text for piece in document.pieces)
    assert [p.answer for p in document.pieces] == [False] * (len(document.pieces) - 1) + [True]
    named = [p.name for p in document.pieces if p.name]
    assert len(set(named)) == len(named) == len(document.values)
    again = make_document(random.Random(seed), task, held_out=held_out, style=style)
    assert again == document


@pytest.mark.parametrize("kind", ["inspector", "analyst"])
@given(seed=SEEDS, wording=st.sampled_from(WORDINGS))
def test_workers_read_what_their_roles_would_write(kind: str, seed: int, wording: str) -> None:
    document = make_document(random.Random(seed), "worker", kind=kind, style=Style(wording))
    texts = numbered(document.values, "agent_{}_current")
    seen: list[int] = []
    for header, text in zip(headers(document), texts, strict=True):
        checks = re.search("inspector|checker", header.lower())
        if not re.search("solver|analyst|expert", header.lower()):  # a header may not say who it is
            checks = checks or " vs " in text
        told = verdicts(result(text), seen, agents(document)) if checks else ""
        assert_solution(document, text, told)
        seen.append(result(text))


@given(seed=SEEDS, kind=st.sampled_from(judging.KINDS))
def test_judges_read_solutions_inspections_or_results(seed: int, kind: str) -> None:
    document = make_document(random.Random(seed), "judge", kind=kind, style=Style("stock"))
    texts = numbered(document.values, "candidate_{}")
    short = [text == f"The answer is {result(text)}" for text in texts]
    assert all(short) or not any(short)
    inspected = not short[0] and " vs " in texts[1]
    for number, text in enumerate(texts if not short[0] else [], 1):
        seen = [result(other) for other in texts[: number - 1]]
        assert_solution(document, text, verdicts(result(text), seen) if inspected and number % 2 == 0 else "")


def assert_solution(document: Document, text: str, told: str) -> None:
    """Somebody's text solves the problem, with one slip that is carried on, or none; then what it tells."""
    question = document.values["user_question"].strip()
    steps, own = solved(question) if in_stock_words(question) else written_solution(document)
    ending = f"{told} The answer is {result(text)}"
    assert f" {text}".endswith(ending)
    written = f" {text}".removesuffix(ending).strip()
    shown, wanted = chain(written), chain(steps)
    assert " ".join(f"{a} {op} {b} = {c}." for a, op, b, c in shown) == written
    if not wanted or (not shown and not in_stock_words(question)):
        return
    assert shown[-1][3] == result(text)
    slips, carried = 0, dict[int, int]()
    for (a, op, b, c), (left, sign, right, end) in zip(shown, wanted, strict=True):
        right_here = (a, op, b) == (carried.get(left, left), sign, carried.get(right, right))
        slips += not right_here or compute(a, op, max(1, b) if op == "/" else b) != c
        carried[end] = c
    assert slips == (result(text) != own)


@given(seed=SEEDS, kind=st.sampled_from(prefixes.KINDS), readers=st.integers(1, 4), steps=st.integers(1, 3))
def test_messages_are_true_for_every_reader(seed: int, kind: str, readers: int, steps: int) -> None:
    message = prefixes.draw_message(random.Random(seed), kind, True, 3, steps, readers)
    assert len(message.books) == len(message.steps) == len(message.values) == readers
    for book, written, value in zip(message.books, message.steps, message.values, strict=True):
        assert read_message(kind, book, message.text) == (f"{written} The answer is {value}", value)
        assert 0 <= value <= 99
    if kind == "who":
        about = [book.split()[-2] for book in message.books]
        assert all(a != b for a, b in pairwise(about)), "readers are asked about one and the other"


@pytest.mark.parametrize("kind", ["codebook", "units"])
def test_a_message_means_different_things(kind: str) -> None:
    rng = random.Random(0)
    drawn = [prefixes.draw_message(rng, kind, True, 3, 2, 2) for _ in range(200)]
    assert sum(len(set(message.values)) == 2 for message in drawn) > 60


@given(seed=SEEDS, hops=st.integers(1, 2), others=st.integers(1, 12), unseen=st.booleans())
def test_one_fact_answers_each_hop(seed: int, hops: int, others: int, unseen: bool) -> None:
    story = draw_story(Draw(random.Random(seed), unseen), hops, others)
    assert len(story.needed) == hops
    last = story.needed[-1]
    back = story.answer == last.subject
    assert story.answer in (last.subject, last.object)
    facts = [*story.needed, *story.others]
    assert sum(last.keys[back] in said.keys for said in facts) == 1
    if not back:
        same = [said for said in facts if said.keys[0][:3] == last.keys[0]]
        assert {said.object for said in same} == {last.object}, "no second object of the same"


def test_judges_meet_every_case() -> None:
    rng = random.Random(0)
    for kind in judging.KINDS:
        best = [make_document(rng, "judge", kind=kind, size=4).best for _ in range(200)]
        first = {b[0] for b in best if b}
        assert (() in best) == (kind in ("right", "all", "corrects", "differs")), "candidate 0"
        assert (max(map(len, best)) > 1) == (kind in ("all", "closest", "majority")), "ties are sets"
        assert first >= ({2, 3, 4} if kind in ("corrects", "differs", "closest") else {1, 2})


def asked_of(document: Document) -> tuple[str, list[tuple[str, str]]]:
    """A drill's text to read, and its questions with their answers."""
    text, *rest = document.pieces
    assert [p.answer for p in document.pieces] == [False] + [False, True] * (len(rest) // 2)
    return text.text, [(q.text, a.text) for q, a in zip(rest[::2], rest[1::2], strict=True)]


def test_the_drill_is_a_chain() -> None:
    document = make_document(random.Random(1), "drill", kind="chain")
    text, asked = asked_of(document)
    assert text == "Compute.\n"
    assert len(asked) == document.size == 14
    lines = chain(" ".join(stem.strip() + answer for stem, answer in asked))
    assert len(lines) == 14
    assert all(compute(a, op, b) == c for a, op, b, c in lines)
    assert all(a[3] == b[0] for a, b in pairwise(lines))
    assert lines[-1][3] == int(document.answer)


@given(seed=SEEDS, level=st.sampled_from([0, 0.5, 1]), kind=st.sampled_from(drills.RECALL_KINDS))
def test_what_is_recalled_is_there(seed: int, level: float, kind: str) -> None:
    text, asked = asked_of(make_document(random.Random(seed), "recall", kind=kind, style=Style(level=level)))
    assert re.fullmatch(r"Recall\.\n(?s:.*)\n", text)
    shelves = text.removeprefix("Recall.\n")
    assert all(stem.startswith(" ") == bool(number) for number, (stem, _) in enumerate(asked))
    for stem, answer in ((stem.strip(), answer) for stem, answer in asked):
        if kind in ("copy", "pairs"):
            told = re.findall(rf"(?:^|\. ){re.escape(stem)}( [^.\n]*?)[.\n]", shelves)
            assert [f"{t}." for t in told] == [answer], "a key stands for one thing"
        elif kind == "roles":
            seen = (
                rf"{stem} (writes) to"
                if answer == " writes."
                else rf"to {stem}\."
                if answer == " reads."
                else ""
            )
            assert re.search(seen or re.escape(stem + answer), shelves)
        elif kind == "facts":
            assert stem + answer in shelves
            assert shelves.count(stem + " ") == 1
        elif kind == "sections":
            told = re.findall(rf"(?m)^{stem}[\n ](?:.* )?(\d+)$", shelves)
            assert [f" {t}." for t in told] == [answer]
        else:
            found = re.search(rf"{stem}\n.*The answer is (\d+)", shelves)
            assert answer == f" {found[1]}."  # type: ignore[index]


@given(seed=SEEDS, kind=st.sampled_from(tuple(drills.COMPARE)))
def test_what_is_compared_is_true(seed: int, kind: str) -> None:
    text, asked = asked_of(make_document(random.Random(seed), "compare", kind=kind))
    assert text == "Compare.\n"
    if kind == "glance":
        [(stem, answer)] = asked
        role, *shown = stem.strip().split("\n")
        results = [int(n) for n in re.findall(r"(\d+)(?:\n|$)", "\n".join(shown))]
        right = []
        for criterion in judging.GLANCES:
            _, _, best = judged(criterion, None, results)
            listed = " and ".join(map(str, sorted(best))) or "0"
            right.append(f"The best candidate{'s are' if len(best) > 1 else ' is'} {listed}.")
        if role in (stock := [judging.ROLES[criterion].stock for criterion in judging.GLANCES]):
            assert answer == right[stock.index(role)]
        assert answer in right
        return
    assert len(asked) == 12
    row: list[str] = []
    for stem, answer in asked:
        if kind == "same":
            number, value = re.fullmatch(r" ?Candidate (\d+): (.+)\. Same as", stem).groups()  # type: ignore[union-attr]
            earlier = [place for place, other in enumerate(row, 1) if other == value]
            row.append(value)
            assert int(number) == len(row)
            assert answer == f" {max(earlier, default=0)}."
            continue
        if kind == "equal":
            left, right = re.fullmatch(r" ?\w+ \d+: (.+) vs (.+)\.", stem).groups()  # type: ignore[union-attr]
            assert answer in ((" Right.", " Same.") if left == right else (" Wrong.", " Differs."))
            continue
        first, second = map(int, re.findall(r"\d+", stem))
        true = first < second if "<" in stem else first > second
        high, low = max(first, second), min(first, second)
        told = f" {high} - {low} = {high - low}." if kind == "apart" else ""
        assert answer == f" {true}.{told}"


def test_words_begin_like_their_twins() -> None:
    """A word with the space before it begins mostly as the word without; nothing else changes."""
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED)
    model, untouched = (train.build_model(SMALL, tokenizer) for _ in range(2))
    pair_twins(model, tokenizer, 0)
    before, after = (x.model.embed_tokens.weight.detach() for x in (untouched, model))
    names = tokenizer.get_vocab()
    twins = {at: names[name[1:]] for name, at in names.items() if name[0] == "Ġ" and name[1:] in names}
    assert len(twins) > 200
    spaced, bare = torch.tensor(list(twins)), torch.tensor(list(twins.values()))
    own = (1 - ALIKE**2) ** 0.5
    torch.testing.assert_close(after[spaced], ALIKE * before[bare] + own * before[spaced])
    others = [at for at in range(len(tokenizer)) if at not in twins]
    assert torch.equal(after[others], before[others])


def test_heads_begin_by_looking_back() -> None:
    recipe = replace(SMALL, hidden=128, heads=4, kv_heads=2, look_back=(1, 3))
    model = train.build_model(recipe, tiny.tokenizer())
    model.config._attn_implementation = "eager"
    ids = torch.randint(4, 200, (1, 24), generator=torch.Generator().manual_seed(0))
    weights = model(ids, output_attentions=True).attentions[0][0]
    for head, offset in enumerate(recipe.look_back):
        assert weights[head].diagonal(-offset).min() > 0.5
    assert weights[2].diagonal(-1)[4:].max() < 0.5, "the others begin anywhere"


@pytest.mark.parametrize(
    ("task", "sizes", "name"),
    [
        ("solver", range(1, 5), None),
        ("worker", range(1, 5), "agent_{}_current"),
        ("judge", range(2, 7), "candidate_{}"),
        ("glance", range(2, 7), "candidate_{}"),
        ("documents", range(1, 11), "document_{}"),
        ("tools", range(1, 7), "observation_{}"),
        ("program", range(1, 5), None),
        ("prefix", range(1, 3), None),
    ],
)
def test_sizes(task: str, sizes: range, name: str | None) -> None:
    """Without a wish all sizes occur, with one it is kept; a size is what it says."""
    rng = random.Random(2)
    style = Style("stock") if task == "program" else Style()
    drawn = [make_document(rng, task, style=style) for _ in range(300)]
    assert {d.size for d in drawn} == set(sizes)
    if task != "tools":  # a loop may have fewer turns
        drawn = [make_document(rng, task, size=size, style=style) for size in sizes]
        assert [d.size for d in drawn] == list(sizes)
    for document in drawn:
        if name:
            assert len(numbered(document.values, name)) == document.size - (task == "tools")
        elif task == "solver":
            assert len(chain(document.target)) == document.size
        elif task == "program":  # between def and return, print; a branch or a loop counts as one
            lines = document.values["user_question"].split("\n")[1:-2]
            assert sum(not line.startswith(" " * 8) for line in lines) == document.size


def test_one_slip_makes_a_wrong_solution() -> None:
    rng = random.Random(4)
    for _ in range(300):
        problem = arithmetic.make_problem(rng, rng.randint(1, 4))
        assert solved(problem.question)[1] == problem.answer
        assert all(0 <= x <= 99 for line in chain(solved(problem.question)[0]) for x in (line[0], line[3]))
        text, value = arithmetic.wrong_solution(rng, problem)
        assert value == result(text) != problem.answer


# -- what is kept from training


def problem_text(document: Document) -> str:
    """What the split is made by, from the prompt."""
    values = document.values
    question = values.get("user_question") or "\n".join(numbered(values, "candidate_{}"))
    if document.task == "documents":
        return question + " ".join(numbered(values, "document_{}"))
    if document.task == "prefix":
        return values["prefix_1"] + question
    return question


@pytest.mark.parametrize("task", EVALUATED)
def test_what_is_held_out_is_never_trained_on(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Style, "is_rough", lambda *_: False)  # white space behind a text is no part of it
    rng = random.Random(3)
    for held_out, count in ((False, 150), (True, 60)):
        texts = [problem_text(make_document(rng, task, held_out=held_out)) for _ in range(count)]
        assert {hashlib.sha256(text.encode()).digest()[0] % 32 == 0 for text in texts} == {held_out}


def test_one_problem_in_32_is_held_out() -> None:
    rng = random.Random(3)
    share = sum(arithmetic.make_problem(rng, 2).held_out for _ in range(4000)) / 4000
    assert share == pytest.approx(1 / 32, abs=0.012)


# -- wordings and levels


@pytest.mark.parametrize("task", ["documents", "prefix"])
def test_a_part_of_training_is_what_the_presets_say(task: str) -> None:
    rng = random.Random(6)
    drawn = [make_document(rng, task) for _ in range(300)]
    assert 0.6 < sum(map(in_open_wording, drawn)) / 300 < 0.76
    assert all(in_open_wording(make_document(rng, task, style=Style("unseen"))) for _ in range(100))


@pytest.mark.parametrize("task", sorted({*EVALUATED} - {"documents", "prefix"}))
def test_unseen_wordings_are_never_trained_on(task: str) -> None:
    rng = random.Random(6)
    drawn = {
        wording: [make_document(rng, task, style=Style(wording)).pieces[0].text for _ in range(250)]
        for wording in WORDINGS
    }
    roles = {wording: {text.split("\n")[0] for text in texts} for wording, texts in drawn.items()}
    assert not roles["unseen"] & roles["stock"]
    assert len(roles["any"]) > 60


@pytest.mark.parametrize("kind", judging.KINDS)
def test_open_roles_are_many_and_some_are_kept_back(kind: str) -> None:
    rng = random.Random(5)
    trained, unseen = (
        {judge_words.role_text(Draw(rng, side), kind, ("candidate 1",), 0.5) for _ in range(400)}
        for side in (False, True)
    )
    assert len(trained) > 350
    assert not trained & unseen


@given(seed=SEEDS, kind=st.sampled_from(tools.KINDS), unseen=st.booleans())
def test_open_loops_are_true(seed: int, kind: str, unseen: bool) -> None:
    question, turns, answer = tools.draw_open_loop(Draw(random.Random(seed), unseen), kind)
    prices: dict[str, int] = {}
    known: list[int] = []
    for _, action, seen in turns[:-1]:
        if found := re.fullmatch(r"lookup\[(.+)\]", action):
            assert found[1].lower() in question.lower()
            prices[found[1]] = int(seen)
        else:
            left, op, right = re.fullmatch(r"calc\[(\d+) ([-+*]) (\d+)\]", action).groups()  # type: ignore[union-attr]
            assert int(seen) == compute(int(left), op, int(right))
            told = [*known, *map(int, re.findall(r"\d+", question)), *range(2, 13)]
            assert int(left) in told
            assert int(right) in told
        known.append(int(seen))
        assert 0 <= known[-1] <= 9999
    assert known[-1] == answer
    assert turns[-1][1] == f"finish[{answer}]"
    if kind == "difference":
        first, second = prices.values()
        assert answer == abs(first - second)
        assert turns[2][0] == f"{first} < {second} is {first < second}."
    elif len(prices) == len(turns) - len(prices):  # no amounts
        assert answer == sum(prices.values())


@pytest.mark.parametrize("task", sorted({*EVALUATED} - {"tools"}))
def test_documents_grow_with_the_level(task: str) -> None:
    rng = random.Random(7)
    low, high = (
        sum(
            len(p.text) for _ in range(200) for p in make_document(rng, task, style=Style(level=level)).pieces
        )
        for level in (0.0, 1.0)
    )
    assert low * 1.1 < high


# -- the same boundaries in training and in the lab


@pytest.mark.parametrize("name", GENERATED)
def test_training_sees_the_very_ids_of_the_presets_prompts(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = Tokens(tiny.tokenizer())
    packer = Packer(tiny.tokenizer(), Recipe())
    preset = load_preset(name)
    flow = preset.pipeline
    for agent in flow.order:
        document = trained_document(preset, agent)
        texts = [p.text for p in document.pieces if p.name]
        holes = [h.name for h in flow.template(agent).placeholders]
        values = {hole: tokens.encode(text) for hole, text in zip(holes, texts, strict=True)}
        prompt = tokens.prompt(flow, agent, values)
        monkeypatch.setattr(train, "make_document", lambda *_, document=document, **__: document)
        ids, weights = packer.document(random.Random(0), 10**7)
        answer = [*tokens.encode(document.target), tokens.tokenizer.eos_token_id]
        assert ids == [*prompt.ids, *answer]
        assert set(weights[-len(answer) :]) <= {0.0, 1.0}
        assert weights[-1] == 1
        assert weights[0] == weights[len(prompt.ids) - 1] == 0, "neither opening token is learnt"
        assert set(weights[1 : len(prompt.ids) - 1]) == {0.0, Recipe().prompt_weight}


# -- batches


SMALL = Recipe(
    tokens=3 * 768, step_tokens=768, batch_tokens=768, hidden=32, layers=1, heads=2, kv_heads=1,
    intermediate=48, context=512, warmup_steps=1,
)  # fmt: skip
GROWN = replace(SMALL, step_tokens=3072, batch_tokens=2048, tokens_before=10**7)


@pytest.mark.parametrize("recipe", [SMALL, GROWN], ids=["small", "grown"])
@pytest.mark.parametrize("step", [0, 1])
def test_each_row_is_a_document(recipe: Recipe, step: int) -> None:
    packer = Packer(tiny.tokenizer(), recipe)
    total, lengths = 0, []
    for ids, weights in packer.batches(step):
        assert ids.shape == weights.shape
        assert ids.shape[0] == 1 or ids.numel() <= recipe.batch_tokens
        for row, loss in zip(ids, weights, strict=True):
            length = row.tolist().index(packer.eos) + 1
            assert row[0] == packer.bos
            assert loss[0] == 0
            assert loss[length - 1] == 1, "no document is cut"
            assert row[length:].eq(packer.tokenizer.pad_token_id).all()
            assert not loss[length:].any()
            assert sum(int((row == token).sum()) for token in (packer.bos, packer.opener, packer.eos)) == 3
            lengths.append(length)
            total += length
        assert max(lengths[-len(ids) :]) == ids.shape[1], "no longer than its longest"
    assert lengths == sorted(lengths)
    assert len(lengths) > 1
    assert max(lengths) <= recipe.context
    assert recipe.step_tokens <= total < recipe.step_tokens + recipe.context


def test_padded_by_hand() -> None:
    drawn = [([n] * n, [0.5] * n) for n in (6, 2, 3, 2, 9)]
    first, second, third = padded(drawn, 10, 0)
    assert first[0].tolist() == [[2, 2, 0], [2, 2, 0], [3, 3, 3]]
    assert first[1].tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0], [0.5] * 3]
    assert second[0].tolist() == [[6] * 6]
    assert third[0].tolist() == [[9] * 9]


def test_what_is_filled_in_is_not_learnt() -> None:
    packer = Packer(tiny.tokenizer(), SMALL)
    document = make_document(random.Random(1), "solver", style=Style("stock"), size=2)
    ids, weights = packer.encode_document(document, random.Random(0))
    at = ids.index(packer.opener) + 1
    free = [(i, w) for i, w in zip(ids[at:], weights[at:], strict=True) if w == 0]
    told = "".join(f" {line[3]}" for line in chain(document.target))
    assert packer.tokenizer.decode([i for i, _ in free]) == told
    assert set(weights[at:]) == {0.0, 1.0}


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    one, other = Packer(tiny.tokenizer(), SMALL), Packer(tiny.tokenizer(), SMALL)
    other.batches(0)  # what was drawn before does not matter

    def ids(packer: Packer, step: int) -> list[Any]:
        return [(rows.tolist(), weights.tolist()) for rows, weights in packer.batches(step)]

    assert ids(one, 2) == ids(other, 2)
    assert ids(one, 1) != ids(one, 2)
    assert ids(one, 1) != ids(Packer(tiny.tokenizer(), replace(SMALL, seed=1)), 1)


@pytest.mark.parametrize("tokens", [40, train.PLAIN_ATTENTION_UP_TO + 8])
@pytest.mark.parametrize("own", [False, True], ids=["tiny", "trained"])
def test_hidden_states_are_the_models_own(tokens: int, own: bool) -> None:
    model = train.build_model(replace(SMALL, kv_heads=2), tiny.tokenizer()) if own else tiny.llama()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(4, len(tiny.tokenizer()), (2, tokens), generator=generator)
    with torch.no_grad():
        wanted = model.model(ids, use_cache=False).last_hidden_state
        found = hidden_states(model, ids, torch.float32)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)


@given(st.integers(0, 10**8))
def test_the_curriculum(tokens: int) -> None:
    """Each row's shares hold until the next row; the level goes evenly from one row's to the next's."""
    shares, level = curriculum(tokens)
    at = max(i for i, row in enumerate(CURRICULUM) if row[0] <= tokens)
    assert shares == CURRICULUM[at][2]
    between = [row[1] for row in CURRICULUM[at : at + 2]]
    assert min(between) <= level <= max(between)
    assert all(share > 0 for share in shares.values())
    for name in shares:
        task, _, kind = name.partition(" ")
        assert not kind or kind in TASKS[task][1]


def test_the_curriculum_by_hand() -> None:
    levels = {0: 0, 500_000: 0.05, 2_000_000: 0.15, 5_500_000: 0.4, 14_000_000: 0.8, 10**9: 1}
    assert {tokens: pytest.approx(curriculum(tokens)[1]) for tokens in levels} == levels
    assert [row[0] for row in CURRICULUM] == sorted({row[0] for row in CURRICULUM})
    taught = {name.partition(" ")[0] for name in curriculum(10**9)[0]}
    # selecting at a glance was not learned (FINDINGS.md)
    assert taught == {*TASKS} - {"glance", "drill"}, "in the end all other tasks are trained"


@pytest.mark.parametrize("tokens", [0, 800_000, 10**7])
def test_the_packer_follows_the_curriculum(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Style]] = []
    document = make_document(random.Random(0), "solver")

    def listening(_: random.Random, task: str, *, kind: str | None, style: Style) -> Document:
        asked.append((f"{task} {kind}" if kind else task, style))
        return document

    monkeypatch.setattr(train, "make_document", listening)
    packer, rng = Packer(tiny.tokenizer(), SMALL), random.Random(0)
    for _ in range(4000):
        packer.document(rng, tokens)
    shares, level = curriculum(tokens)
    assert {style.wording for _, style in asked} == {"any"}
    levels = [style.level for _, style in asked]
    assert 0.4 * level <= min(levels) <= 0.45 * level
    assert 0.95 * level <= max(levels) <= level
    counts = Counter(name for name, _ in asked)
    drawn = {name: count / 4000 for name, count in counts.items()}
    wanted = {name: share / sum(shares.values()) for name, share in shares.items()}
    assert drawn == pytest.approx(wanted, abs=0.03)


def test_the_rate_rises_stays_and_falls_to_zero() -> None:
    recipe = Recipe(tokens=1000 * 4096, step_tokens=4096, warmup_steps=100, decay_share=0.25)
    factors = [rate_factor(step, recipe) for step in range(recipe.steps)]
    assert recipe.steps == 1000
    assert factors[0] == 0.01
    assert factors[99] == factors[100] == factors[750] == 1
    assert factors[751] < 1
    assert factors[-1] == pytest.approx(1 / 250)
    assert all(0 < f <= 1 for f in factors)
    assert all(a >= b for a, b in pairwise(factors[100:]))


# -- Muon


SHAPES = st.sampled_from([(24, 8), (8, 24), (12, 12), (1, 5), (5, 1)])


def by_singular_values(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What five quintic steps make of a matrix, through its decomposition, and the relative values before."""
    u, s, v = torch.linalg.svd(matrix.double(), full_matrices=False)
    before = s / s.norm()
    after = before
    for _ in range(5):
        after = 3.4445 * after - 4.7750 * after**3 + 2.0315 * after**5
    return u @ torch.diag(after) @ v, before


@given(seed=SEEDS, shape=SHAPES, scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_orthogonalised_matrices(seed: int, shape: tuple[int, int], scale: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    stack = torch.randn(3, *shape, generator=generator) * scale
    found = orthogonalise(stack)
    assert found.shape == stack.shape
    for matrix, made in zip(stack, found, strict=True):
        wanted, before = by_singular_values(matrix)
        torch.testing.assert_close(made.double(), wanted, rtol=0, atol=2e-3)
        after = torch.linalg.svdvals(made)
        assert after.max() < 1.3
        # only a direction that hardly occurs stays small
        assert (before < 0.005).sum() >= (after < 0.3).sum()
        torch.testing.assert_close(orthogonalise(matrix[None])[0], made, rtol=0, atol=1e-5)


def test_muon_by_hand() -> None:
    """Two steps with Nesterov momentum; the matrices of one shape go together and one has no gradient."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 3), (3, 6), (6, 3), (6, 3)]
    weights = [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]
    before = [w.detach().clone() for w in weights]
    muon = Muon(weights, lr=0.1, momentum=0.9, weight_decay=0.5)
    wanted, momentum = [w.double() for w in before], [torch.zeros(shape) for shape in shapes]
    for _ in range(2):
        for i, weight in enumerate(weights[:3]):
            weight.grad = torch.randn(shapes[i], generator=generator)
            momentum[i] = 0.9 * momentum[i] + 0.1 * weight.grad
            update, _ = by_singular_values(0.1 * weight.grad + 0.9 * momentum[i])
            rate = 0.1 * math.sqrt(2) if shapes[i] == (6, 3) else 0.1
            wanted[i] = wanted[i] * (1 - 0.1 * 0.5) - rate * update
        muon.step()
    for weight, value in zip(weights, wanted, strict=True):
        torch.testing.assert_close(weight.detach().double(), value, rtol=0, atol=1e-3)
    assert torch.equal(weights[3].detach(), before[3])


# -- training


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Any:
    def save_tokenizer(folder: Path, seed: int = 0) -> Any:
        assert not (folder / "tokenizer.json").exists(), "a resumed training keeps its vocabulary"
        tiny.tokenizer().save_pretrained(folder)
        return tiny.tokenizer()

    monkeypatch.setattr(train, "save_tokenizer", save_tokenizer)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # bit for bit is a promise of the CPU

    def go(folder: Path, recipe: Recipe = SMALL, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        train.train(folder, recipe, **more)
        rows = [json.loads(x) for x in (folder / "train.jsonl").read_text(encoding="utf-8").splitlines()]
        return rows, torch.load(folder / "checkpoint.pt", weights_only=True)

    return go


def test_training_repeats_and_resumes(training: Any, tmp_path: Path) -> None:
    rows, state = training(tmp_path / "one")
    assert state["step"] == SMALL.steps == 3
    assert [(r["step"], r["tokens"]) for r in rows] == [(3, 3 * 768)]
    assert math.isfinite(rows[0]["answer_loss"])
    assert rows[0]["answer_loss"] > 0
    again, same = training(tmp_path / "again")
    assert again[0]["answer_loss"] == rows[0]["answer_loss"]
    training(tmp_path / "halves", stop_after_steps=1)
    assert torch.load(tmp_path / "halves" / "checkpoint.pt", weights_only=True)["step"] == 1
    _, resumed = training(tmp_path / "halves")
    for other in (same, resumed):
        assert other["step"] == 3
        assert all(torch.equal(state["model"][name], other["model"][name]) for name in state["model"])
    untrained = train.build_model(SMALL, tiny.tokenizer()).state_dict()
    assert not any(torch.equal(untrained[name], state["model"][name]) for name in untrained)
    seeded = train.build_model(replace(SMALL, seed=1), tiny.tokenizer())
    assert not torch.equal(seeded.lm_head.weight, untrained["lm_head.weight"])
    # a finished training has nothing left to do, and its export is a model of the lab
    _, done = training(tmp_path / "one")
    assert done["step"] == 3
    loaded = load_model(str(tmp_path / "one" / "export"), device="cpu", dtype="fp32")
    assert loaded.info.certificate.relocatable
    facts = json.loads((tmp_path / "one" / "export" / "recipe.json").read_text(encoding="utf-8"))
    assert (facts["step"], facts["tokens_seen"], facts["hidden"]) == (3, 3 * 768, 32)
    for name, tensor in loaded.module.state_dict().items():
        assert torch.equal(tensor, state["model"][name].bfloat16().float())


def test_training_goes_on_from_other_weights(training: Any, tmp_path: Path) -> None:
    """At a rate of zero, a run that begins with a model's weights ends with them, rounded as exported."""
    _, first = training(tmp_path / "first", stop_after_steps=2)
    still = replace(SMALL, tokens=768, tokens_before=5000, muon_rate=0.0, adam_rate=0.0, seed=9)
    export = tmp_path / "first" / "export"
    # save_tokenizer is not asked for one: a tokenizer comes with the weights
    rows, second = training(tmp_path / "second", still, init=export)
    assert rows[-1]["tokens"] == 5000 + 768
    assert all(torch.equal(second["model"][n], w.bfloat16().float()) for n, w in first["model"].items())
    own = (tmp_path / "second" / "export" / "tokenizer.json").read_text(encoding="utf-8")
    assert own == (export / "tokenizer.json").read_text(encoding="utf-8")
    facts = json.loads((tmp_path / "second" / "export" / "recipe.json").read_text(encoding="utf-8"))
    assert facts["tokens_seen"] == 5000 + 768


def test_training_is_looked_at_on_the_way(training: Any, tmp_path: Path) -> None:
    def check(export: Path) -> dict[str, Any]:
        return {"seen": json.loads((export / "recipe.json").read_text(encoding="utf-8"))["step"]}

    training(tmp_path, check_every=2, check=check)
    [row] = (tmp_path / "checks.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(row) == {"step": 2, "tokens": 2 * 768, "seen": 2}


def test_the_small_model_has_a_quarter_of_the_parameters() -> None:
    class Vocabulary(SimpleNamespace):
        def __len__(self) -> int:
            return VOCABULARY

    tokens = Vocabulary(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    counts = {
        name: sum(p.numel() for p in train.build_model(Recipe(**shape), tokens).parameters())
        for name, shape in SIZES.items()
    }
    assert 3.5 < counts["main"] / counts["small"] < 4.5


# -- evaluation


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> int:
    """A random model does not stop by itself."""
    for module in (evaluation, task_requests):
        monkeypatch.setattr(module, "MAX_ANSWER", 6)
    return 6


def drawn(count: int = 6, wording: str = "stock") -> list[Document]:
    return [d for task in EVALUATED for d in held_out_documents(task, count, wording, 0)]


def test_held_out_documents() -> None:
    for task in EVALUATED:
        documents = held_out_documents(task, 12, "stock", 0)
        kinds = TASKS[task][1]
        assert [d.kind for d in documents] == [kinds[i % len(kinds)] for i in range(12)]
        assert documents == held_out_documents(task, 12, "stock", 0)
        assert documents[:5] == held_out_documents(task, 5, "stock", 0)
        assert documents != held_out_documents(task, 12, "stock", 1)
        for text in map(problem_text, documents):
            assert hashlib.sha256(text.encode()).digest()[0] % 32 == 0
    assert {d.size for d in held_out_documents("judge", 12, "any", 0, size=4)} == {4}


def test_evaluation_reads_what_the_lab_reads(tiny_model: LoadedModel, brief: int) -> None:
    documents = [held_out_documents(task, 1, "stock", 0)[0] for task in EVALUATED]
    texts = answers(tiny_model, documents, batch=2)
    assert texts == answers(tiny_model, documents, batch=5), "batching must not show"
    for document, text in zip(documents, texts, strict=True):
        *_, done = LabSession(tiny_model).run(as_request(document, (MethodChoice("dense"),)))
        assert isinstance(done, RunDone)
        [outcome] = done.record.outcomes
        assert outcome.text == text
        tokens = tiny_model.tokens
        ids = [i for piece in document.pieces[:-1] for i in tokens.encode(piece.text)]
        assert done.record.prompts[0].token_ids.tolist() == [*tokens.opening, *ids, *tokens.closing]


def test_a_document_as_a_request() -> None:
    for document in drawn():
        asked = as_request(document, (MethodChoice("dense"),))
        assert asked.pipeline.check_values(asked.values) == asked.values
        assert list(asked.values.values()) == [p.text for p in document.pieces if p.name]
        judge = document.task in ("judge", "glance")
        assert asked.pipeline.scoring == ("selection" if judge else "text")
        assert asked.expected == (document.selection if judge else document.answer)


def judge_of(best: tuple[int, ...]) -> Document:
    """A judge's document with a selection that was wished for."""
    rng = random.Random(1)
    while True:
        document = make_document(rng, "judge", kind="all", size=4)
        if document.best == best:
            return document


def test_marks_by_hand() -> None:
    judge = judge_of((1, 3))
    answer = judge.answer
    every = {"exact": True, "answer": True, "selection": True}
    assert marks(judge, judge.target) == every
    said = "The best candidates are {}. The answer is {}"
    loose = every | {"exact": False}
    assert marks(judge, said.format("3, 1", answer)) == loose, "a selection is a set"
    assert marks(judge, said.format("1 and 2", answer)) == loose | {"selection": False}
    assert marks(judge, said.format("1", answer)) == loose | {"selection": False}
    assert marks(judge, said.format("1 and 3", answer + "0")) == loose | {"answer": False}
    assert marks(judge, "") == dict.fromkeys(every, False)
    none = judge_of(())
    assert marks(none, f"The best candidate is 0. The answer is {none.answer}")["selection"]
    reader = held_out_documents("documents", 1, "stock", 0)[0]
    assert marks(reader, f"The answer is {reader.answer.upper()}.") == {"exact": False, "answer": True}
    assert marks(reader, f"The answer is not {reader.answer}") == {"exact": False, "answer": False}
    turn = make_document(random.Random(0), "tools", kind="one item", size=2)
    assert marks(turn, turn.target) == {"exact": True, "answer": True}
    assert marks(turn, f"{turn.target} The answer is {turn.answer}") == {"exact": False, "answer": False}


def test_tally_by_hand() -> None:
    rng = random.Random(0)
    one, two = (make_document(rng, "program", kind=kind, size=2) for kind in ("straight", "loop"))
    report = tally([one, two], [one.target, f"The answer is {two.answer}"])
    whole = {"share": 1.0, "n": 2, "ci": [0.342, 1.0]}
    half = {"share": 0.5, "n": 2, "ci": [0.095, 0.905]}
    assert report["all"] == report["size 2"] == {"answer": whole, "exact": half}
    assert report["kind straight"]["exact"] == report["kind straight"]["answer"]
    assert report["kind loop"]["exact"] == {"share": 0.0, "n": 1, "ci": [0.0, 0.793]}
    assert set(report) == {"all", "size 2", "kind straight", "kind loop"}
    with pytest.raises(ValueError, match="zip"):
        tally([one, two], [one.target])


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        (lambda text: text, set()),
        (lambda text: text + ".", {"exact"}),
        (lambda text: re.sub(r"(The best candidates? (?:is|are)) [^.]*", r"\1 9", text), {"selection"}),
        (lambda text: text.replace("The answer is", "The answer is not"), {"exact", "answer"}),
        (lambda text: "", {"exact", "answer", "selection"}),
    ],
    ids=["perfect", "one sign more", "wrong candidate", "denied", "silent"],
)
def test_evaluation_scores_by_hand(spoil: Any, lost: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "answers", lambda _, documents: [spoil(d.target) for d in documents])
    report = evaluate(None, count=12)  # type: ignore[arg-type]
    assert set(report) == {f"{task}, {w}" for task in (*EVALUATED, "judge of 4") for w in WORDINGS}
    for name, groups in report.items():
        task = name.partition(",")[0]
        judge = task.startswith("judge")
        kinds = [rows for group, rows in groups.items() if group.startswith("kind ")]
        assert len(kinds) == len(TASKS[task.split()[0]][1])
        assert {rows["exact"]["n"] for rows in kinds} == {12 // len(kinds)}
        wanted = {"exact", "answer"} | ({"selection"} if judge else set())
        if task == "glance":  # it says nothing else
            wanted, judge = {"exact", "selection"}, True
        assert set(groups["all"]) == wanted
        gone = set(lost)
        if task == "glance":
            said = "The best candidate is 2."
            gone = (lost & {"selection"}) | ({"exact"} if spoil(said) != said else set())
        if task == "tools":  # a turn counts as a whole, and has no words of an answer
            gone = (
                {"exact", "answer"} if spoil("Action 1: lookup[keys]") != "Action 1: lookup[keys]" else set()
            )
        elif judge and "selection" in lost:
            gone |= {"exact"}
        elif not judge and lost == {"selection"}:
            gone = set()
        for mark, found in groups["all"].items():
            assert found["n"] == 12
            assert found["share"] == (mark not in gone), (name, mark)
    if not lost:
        assert set(report["judge of 4, any"]) == {"all", "size 4", *(f"kind {k}" for k in judging.KINDS)}


# -- suitability


def test_suitability_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dense always right, naive on every other document, masked judges never, strictly masked ones always."""
    ran: list[Any] = []
    drawn = [d for task in EVALUATED for d in held_out_documents(task, 4, "stock", 0)]

    class Session:
        def __init__(self, model: Any) -> None:
            self.fresh = True

        def run(self, request: Any) -> Iterator[Any]:
            assert self.fresh, "a session of its own for every document"
            self.fresh = False
            ran.append(request)
            document = drawn[len(ran) - 1]
            good = {"dense": True, "naive": len(ran) % 2 == 0, "masked": False, "strictly masked": True}
            outcomes = [
                SimpleNamespace(method=m.label, text=document.target if good[m.label] else "no")
                for m in request.methods
            ]
            yield RunDone(SimpleNamespace(outcomes=outcomes))  # type: ignore[arg-type]

    monkeypatch.setattr(evaluation, "LabSession", Session)
    report = suitability(None, count=4)  # type: ignore[arg-type]
    assert list(report) == list(EVALUATED)
    assert len(ran) == 4 * len(EVALUATED)
    for task, rows in report.items():
        assert (rows["dense"]["share"], rows["naive"]["share"]) == (1, 0.5)
        assert {row["n"] for row in rows.values()} == {4}
        assert ("masked" in rows) == ("strictly masked" in rows) == (task in ("judge", "glance"))
    assert report["judge"]["masked"]["share"] == 0
    assert report["judge"]["strictly masked"]["share"] == 1


def test_suitability_of_the_tiny_model(tiny_model: LoadedModel, brief: int) -> None:
    """A random model runs through it and knows nothing."""
    report = suitability(tiny_model, count=1, tasks=("solver", "judge"))
    none = {"share": 0.0, "n": 1, "ci": [0.0, 0.793]}
    both = dict.fromkeys(("dense", "naive"), none)
    assert report == {"solver": both, "judge": both | dict.fromkeys(("masked", "strictly masked"), none)}


def judge_over(count: int) -> Document:
    return make_document(random.Random(count), "judge", kind="right", size=count, style=Style("stock", 0.0))


def test_a_judges_candidates_and_nothing_else_can_be_kept_apart(tiny_model: LoadedModel, brief: int) -> None:
    document = judge_over(3)
    *_, done = LabSession(tiny_model).run(as_request(document, (MethodChoice("dense"),)))
    assert isinstance(done, RunDone)
    [prompt] = done.record.prompts
    told = ["".join(prompt.texts[s.start : s.end]) for s in slots(prompt.spans)]
    assert told == [piece.text for piece in document.pieces if (piece.name or "").startswith("candidate")]
